//! The arguments of `rollback`: a checkpoint, paths, or both.

use crate::args::RollbackArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::terminal::for_shell;
use safepoint::{CheckpointManager, TurnSide, Workspace};
use std::ffi::OsStr;
use std::path::Path;

/// Understands the arguments: a first one that names no checkpoint is a path, and so is all that follows. Paths alone go back to `@`.
pub(super) fn understood(
    context: &Context,
    manager: &CheckpointManager,
    workspace: Option<&Workspace>,
    args: &RollbackArgs,
) -> Result<RollbackArgs, Problem> {
    let mut clear = args.clone();
    clear.given.clone_from(&args.checkpoint_id);
    let mut words = args.words.iter();
    if let Some((number, side)) = turn(args) {
        let workspace = context.surroundings.workspace(manager)?;
        clear.given = Some(manager.turns().checkpoint(&workspace, number, side)?.id.to_string());
    }
    if clear.given.is_none()
        && let Some(first) = words.next()
    {
        let text = first.to_string_lossy();
        let is_path = workspace.is_some_and(|workspace| is_path(context, manager, workspace, first));
        match (names_checkpoint(context, manager, workspace, first), is_path) {
            (true, true) if !text.starts_with('@') => return Err(both(&text)),
            (false, true) => clear.paths.push(first.clone()),
            // If it is neither, the failure is about the checkpoint.
            _ => clear.given = Some(text.into_owned()),
        }
    }
    clear.paths.extend(words.cloned().chain(args.after.iter().cloned()));
    clear.words.clear();
    clear.after.clear();
    if clear.given.is_none() && !clear.paths.is_empty() && args.until.is_none() {
        clear.given = Some("@".to_owned());
    }
    Ok(clear)
}

/// The turn that the arguments name.
fn turn(args: &RollbackArgs) -> Option<(u64, TurnSide)> {
    let after = args.turn.map(|number| (number, TurnSide::After));
    after.or(args.before_turn.map(|number| (number, TurnSide::Before)))
}

fn names_checkpoint(
    context: &Context,
    manager: &CheckpointManager,
    workspace: Option<&Workspace>,
    word: &OsStr,
) -> bool {
    let found = word.to_str().map(|word| context.checkpoint(manager, workspace, word, None));
    found.is_some_and(|found| !found.is_err_and(|problem| problem.failure.code == "no_checkpoint"))
}

/// Returns true if the path exists, or did in the newest checkpoint.
fn is_path(context: &Context, manager: &CheckpointManager, workspace: &Workspace, word: &OsStr) -> bool {
    let Ok(path) = context.surroundings.path_in(workspace, word) else { return false };
    if context.surroundings.absolute(Path::new(word)).symlink_metadata().is_ok() {
        return true;
    }
    let newest = manager.checkpoints().find(Some(workspace), "@");
    newest.is_ok_and(|newest| manager.checkpoints().holds_path(&newest, workspace, &path).unwrap_or(false))
}

fn both(word: &str) -> Problem {
    let quoted = for_shell(word);
    Problem::usage(
        format!("{word:?} names both a checkpoint and a path"),
        &format!("The checkpoint: safepoint rollback --checkpoint-id {quoted}"),
    )
    .hint(format!("The path: safepoint rollback -- {quoted}"))
}
