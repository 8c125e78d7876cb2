//! What a rollback is to do with git, as it was typed, and what it did.

use crate::args::RollbackArgs;
use crate::problem::Problem;
use crate::render::terminal::printable;
use safepoint::model::checkpoint::{Checkpoint, PartKind};
use safepoint::{Error, GitMoved, GitReset, RollbackOptions, Uncommitted};

/// So many digits of a commit are enough for people.
const DIGITS: usize = 10;

/// What was typed, for this checkpoint.
///
/// The form for programs (`--session-id U --checkpoint-id C`) means a checkpoint's commit where it is one (R7.4): branch and index
/// move, and the files only with `--hard-reset`. A checkpoint that people name is its files, and git is left alone.
pub(super) fn options(
    args: &RollbackArgs,
    checkpoint: &Checkpoint,
    options: RollbackOptions,
) -> Result<RollbackOptions, Problem> {
    let plain = args.strategy.is_none() && args.verify.is_none();
    let whole = plain && args.paths.is_empty() && args.parts.is_empty();
    let for_programs = args.checkpoint_id.is_some() && args.session_id.is_some();
    let git = match (args.hard_reset, for_programs && whole && checkpoint.commit_sha.is_some()) {
        (true, _) if !args.paths.is_empty() || !args.parts.is_empty() => {
            return Err(Problem::usage(
                "--hard-reset means everything, and --path and --part choose",
                "Leave one of them out.",
            ));
        }
        // Said here, because a checkpoint of several folders goes back by another way.
        (true, _) if checkpoint.commit_sha.is_none() => {
            return Err(Error::NoCommit { checkpoint: checkpoint.id }.into());
        }
        (true, _) => GitReset::Hard,
        (false, true) => GitReset::Mixed,
        (false, false) => GitReset::No,
    };
    let part_git = args.parts.contains(&PartKind::Git);
    if part_git
        && !checkpoint.parts.iter().any(|part| matches!(part.kind, PartKind::Git | PartKind::GitFolder))
    {
        return Err(Error::NoGitState { checkpoint: checkpoint.id }.into());
    }
    if args.discard_uncommitted && git == GitReset::No && !part_git {
        return Err(Problem::usage(
            "--discard-uncommitted is about git, and git is left alone here",
            "Leave it out: a rollback of files keeps everything in its safety checkpoint anyway.",
        ));
    }
    let uncommitted = if args.discard_uncommitted { Uncommitted::Discarded } else { Uncommitted::Refused };
    Ok(RollbackOptions { git, uncommitted, ..options })
}

/// Going back step by step leaves git alone.
pub(super) fn refuse(args: &RollbackArgs) -> Result<(), Problem> {
    match args.hard_reset || args.discard_uncommitted {
        true => Err(Problem::usage(
            "--until looks for files that pass, and git is left alone meanwhile",
            "Find the checkpoint first, then roll back to it with --hard-reset.",
        )),
        false => Ok(()),
    }
}

/// What moved, in one line.
pub(crate) fn line(moved: &GitMoved) -> String {
    let short = |sha: &Option<String>| match sha {
        Some(sha) => sha.chars().take(DIGITS).collect(),
        None => "no commit".to_owned(),
    };
    let branch = match &moved.branch {
        Some(branch) => format!("branch {}", printable(branch)),
        None if moved.folder && moved.to.is_none() => "no repository that can be read".to_owned(),
        None => "detached HEAD".to_owned(),
    };
    let files = match (moved.folder, moved.files) {
        (true, true) => "all of its folder, with the files",
        (true, false) => "all of its folder; the files stay as they are",
        (false, true) => "with index and files",
        (false, false) => "with the index; the files stay as they are",
    };
    format!("git: {branch}, from {} to {}, {files}", short(&moved.from), short(&moved.to))
}
