//! `undo` and `redo`: one more rollback, to where the last one came from.

use crate::cli::Context;
use crate::cli::args::AgainArgs;
use crate::cli::output::Reply;
use crate::cli::rollback::{answer, plain_options};
use crate::problem::Problem;
use crate::signals;
use safepoint::{CheckpointManager, Error, RollbackOptions, RolledBack, Workspace};

pub(crate) fn undo(context: &Context, args: &AgainArgs) -> Result<Reply, Problem> {
    run(context, args, |manager, workspace, options| manager.undo(workspace, options, &context.progress))
}

pub(crate) fn redo(context: &Context, args: &AgainArgs) -> Result<Reply, Problem> {
    run(context, args, |manager, workspace, options| manager.redo(workspace, options, &context.progress))
}

fn run(
    context: &Context,
    args: &AgainArgs,
    verb: impl FnOnce(&CheckpointManager, &Workspace, &RollbackOptions) -> Result<RolledBack, Error>,
) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    context.recover_first(&manager, &workspace)?;
    // Undo commands of a plan's steps may run: they are not to stay behind.
    signals::listen_for_another();
    let options = plain_options(args.dry_run, args.keep_times, args.skip_failed_undo);
    let done = verb(&manager, &workspace, &options)
        .map_err(|error| context.surroundings.explain_gone(&workspace, error.into()))?;
    Ok(answer(context, &manager, &done, options.dry_run))
}
