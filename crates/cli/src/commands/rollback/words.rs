//! The arguments of `rollback`: a checkpoint, paths, or both.

use crate::args::RollbackArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::terminal::for_shell;
use safepoint::{CheckpointManager, Error, Workspace};
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
    if let Some((number, side)) = super::turns::named(args) {
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
            (false, false) if text.contains('/') => return Err(neither(context, workspace, first)),
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

/// The failure of a word with a slash, which is meant as a path.
fn neither(context: &Context, workspace: Option<&Workspace>, word: &OsStr) -> Problem {
    let text = word.to_string_lossy();
    let outside = workspace.and_then(|workspace| context.surroundings.path_in(workspace, word).err());
    outside.unwrap_or_else(|| {
        let problem = Problem::from(Error::NoCheckpoint { reference: text.to_string() });
        problem.hint(format!(
            "If it is a path of an older checkpoint, name that, too: safepoint rollback @~1 -- {}",
            for_shell(&text)
        ))
    })
}

fn both(word: &str) -> Problem {
    let quoted = for_shell(word);
    Problem::usage(
        format!("{word:?} names both a checkpoint and a path"),
        &format!("The checkpoint: safepoint rollback --checkpoint-id {quoted}"),
    )
    .hint(format!("The path: safepoint rollback -- {quoted}"))
}
