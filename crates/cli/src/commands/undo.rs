//! `undo` and `redo`: one more rollback, to where the last one came from.

use crate::args::AgainArgs;
use crate::commands::Context;
use crate::commands::rollback::{answer, plain_options};
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::signals;
use safepoint::{CheckpointManager, Error, RollbackOptions, RolledBack, Workspace};

pub(crate) fn undo(context: &Context, args: &AgainArgs) -> Result<Reply, Problem> {
    run(context, args, |manager, at, options| manager.undo(at, options, &context.progress))
}

pub(crate) fn redo(context: &Context, args: &AgainArgs) -> Result<Reply, Problem> {
    run(context, args, |manager, at, options| manager.redo(at, options, &context.progress))
}

fn run(
    context: &Context,
    args: &AgainArgs,
    verb: impl FnOnce(&CheckpointManager, Option<&Workspace>, &RollbackOptions) -> Result<RolledBack, Error>,
) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    // Where no workspace is, it is the last rollback of several folders.
    let workspace = match context.surroundings.workspace_if_any(&manager)? {
        None if manager.has_gone_together()? => None,
        _ => Some(context.surroundings.workspace(&manager)?),
    };
    if let Some(workspace) = &workspace {
        context.recover_first(&manager, workspace)?;
    }
    // Undo commands of a plan's steps may run: they are not to stay behind.
    signals::listen_for_another();
    let options = plain_options(args.dry_run, args.keep_times, args.undo_commands.chosen());
    let done = verb(&manager, workspace.as_ref(), &options).map_err(|error| match &workspace {
        Some(workspace) => context.surroundings.explain_gone(workspace, error.into()),
        None => error.into(),
    })?;
    Ok(answer(context, &manager, &done, options.dry_run))
}
