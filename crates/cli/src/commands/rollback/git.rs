//! Git options of a rollback, and the report of its git changes.

use crate::args::RollbackArgs;
use crate::problem::Problem;
use crate::render::terminal::printable;
use safepoint::model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint::{Error, GitMoved, GitReset, RollbackOptions};

/// So many digits of a commit are enough for people.
const DIGITS: usize = 10;

/// The options for git, as typed, for this checkpoint.
///
/// The form for programs (`--session-id U --checkpoint-id C`) moves branch and index (R7.4), and the files only with `--hard-reset`. A
/// checkpoint that is named in another way is its files: git moves by `--mixed`, `--hard-reset` or `--part git`.
pub(super) fn options(
    args: &RollbackArgs,
    checkpoint: &Checkpoint,
    options: RollbackOptions,
) -> Result<RollbackOptions, Problem> {
    let chooses = !args.paths.is_empty() || !args.parts.is_empty();
    let plain = args.strategy.is_none() && args.verify.is_none() && !chooses;
    let for_programs = args.checkpoint_id.is_some() && args.session_id.is_some();
    let git = match (args.hard_reset, args.mixed) {
        (true, _) | (_, true) if chooses => {
            let flag = if args.mixed { "--mixed" } else { "--hard-reset" };
            return Err(Problem::usage(
                format!("{flag} cannot be combined with --path or --part"),
                "Leave one of them out.",
            ));
        }
        (true, _) => GitReset::Hard,
        (false, true) => GitReset::Mixed,
        (false, false) if for_programs && plain => GitReset::Mixed,
        (false, false) => GitReset::No,
    };
    let part_git = args.parts.contains(&PartKind::Git);
    let noted = |part: &PartRecord| matches!(part.kind, PartKind::Git | PartKind::GitFolder);
    let has_state = checkpoint.parts.iter().any(noted);
    // A checkpoint of several folders has no one repository to move.
    let has_commit = checkpoint.workspace_id.is_some() && (checkpoint.commit_sha.is_some() || has_state);
    if (part_git && !has_state) || (git != GitReset::No && !has_commit) {
        return Err(files_alone(Error::NoGitState { checkpoint: checkpoint.id }.into(), checkpoint));
    }
    Ok(RollbackOptions { git, ..options })
}

/// A failure of git, with the command that restores the files alone.
pub(super) fn files_alone(problem: Problem, checkpoint: &Checkpoint) -> Problem {
    match problem.failure.code {
        "no_repository" | "no_git_state" => {
            problem.hint(format!("Restore the files alone: safepoint rollback {}", checkpoint.id))
        }
        _ => problem,
    }
}

/// Refuses flags for git in a progressive rollback, which leaves git alone.
pub(super) fn refuse(args: &RollbackArgs) -> Result<(), Problem> {
    match args.hard_reset || args.mixed {
        true => Err(Problem::usage(
            "--until searches by files and leaves git alone",
            "Find the checkpoint first, then roll back to it with --hard-reset.",
        )),
        false => Ok(()),
    }
}

/// Changes, in one line.
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
