//! Git options of a rollback, and the report of its git changes.

use crate::args::RollbackArgs;
use crate::problem::Problem;
use crate::render::terminal::{for_shell, printable};
use safepoint::model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint::model::rollback::Strategy;
use safepoint::{CheckpointManager, Error, GitMoved, GitReset, RollbackOptions, Workspace};

/// So many digits of a commit are enough for people.
const DIGITS: usize = 10;

/// The options for git, as typed, for this checkpoint.
///
/// The form for programs (`--session-id U --checkpoint-id C`) moves branch and index (R7.4), and the files only with `--hard-reset`. A
/// checkpoint that is named in another way is its files: git moves by `--mixed`, `--hard-reset` or `--part git`.
pub(super) fn options(
    args: &RollbackArgs,
    (manager, at): (&CheckpointManager, Option<&Workspace>),
    checkpoint: &Checkpoint,
    options: RollbackOptions,
) -> Result<RollbackOptions, Problem> {
    let chooses = !args.paths.is_empty() || !args.parts.is_empty();
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
        (false, false) if is_for_programs(args) => GitReset::Mixed,
        (false, false) => GitReset::No,
    };
    let part_git = args.parts.contains(&PartKind::Git);
    let noted = |part: &PartRecord| matches!(part.kind, PartKind::Git | PartKind::GitFolder);
    let has_state = checkpoint.parts.iter().any(noted);
    // A checkpoint of several folders has no one repository to move.
    let has_commit = checkpoint.workspace_id.is_some() && (checkpoint.commit_sha.is_some() || has_state);
    if (part_git && !has_state) || (git != GitReset::No && !has_commit) {
        let error = Error::NoGitState { checkpoint: checkpoint.id };
        manager.note_refused_rollback(at, checkpoint, &options, &error);
        return Err(files_alone(error.into(), checkpoint));
    }
    Ok(RollbackOptions { git, ..options })
}

/// Returns true for the form of which git moves and the files stay.
fn is_for_programs(args: &RollbackArgs) -> bool {
    let named = args.checkpoint_id.is_some() && args.session_id.is_some();
    named && !args.hard_reset && args.paths.is_empty() && args.parts.is_empty()
}

/// Refuses to try files in the form for programs, which does not touch them.
pub(super) fn refuse_trial(args: &RollbackArgs) -> Result<(), Problem> {
    let flag = match (&args.until, &args.verify, args.strategy) {
        (Some(_), ..) => "--until",
        (None, Some(_), _) => "--verify",
        (None, None, Some(Strategy::Staged)) => "--strategy staged",
        (None, None, Some(Strategy::Progressive)) => "--strategy progressive",
        _ => return Ok(()),
    };
    if !is_for_programs(args) {
        return Ok(());
    }
    let given = args.checkpoint_id.as_deref().map(for_shell).unwrap_or_default();
    let commands = [("--until", &args.until), ("--verify", &args.verify)];
    let commands = commands.iter().filter_map(|(flag, command)| Some((flag, command.as_deref()?)));
    let mut again: Vec<String> = args.strategy.iter().map(|it| format!("--strategy {it}")).collect();
    again.extend(commands.map(|(flag, command)| format!("{flag} {}", for_shell(command))));
    Err(Problem::usage(
        format!(
            "--session-id with --checkpoint-id moves git and keeps the files, so {flag} has nothing to try"
        ),
        &format!("Roll back the files: safepoint rollback {given} {}", again.join(" ")),
    ))
}

/// A failure of git, with the command that restores the files alone.
pub(super) fn files_alone(problem: Problem, checkpoint: &Checkpoint) -> Problem {
    match problem.failure.code {
        "no_repository" | "no_git_state" | "part_of_repository" | "git_under_way" => {
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
