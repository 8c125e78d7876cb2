//! `rollback`: makes the workspace equal to a checkpoint, or shows what that would do. Without one it lists them.

mod effects;
mod elsewhere;
mod git;
mod strategies;
mod tell;
mod turns;
mod words;

pub(crate) use strategies::{Asked, Ground, place_of};
pub(crate) use tell::{answer, shape, tell};
use turns::NamedTurn;
pub(crate) use turns::tell_conversation;

use crate::args::RollbackArgs;
use crate::commands::list::{self, table};
use crate::commands::{Context, advice};
use crate::commands::{lost, pick, recover};
use crate::problem::Problem;
use crate::render::consent;
use crate::render::output::Reply;
use crate::{render::exit, render::json, signals};
use safepoint::model::RelPath;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::rollback::Strategy;
use safepoint::{
    CheckpointManager, DryRun, FailedUndo, Filter, RoleFilter, RollbackOptions, Strict, Times, Workspace,
};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &RollbackArgs) -> Result<Reply, Problem> {
    if let Some(to) = &args.to {
        return elsewhere::run(context, args, to);
    }
    let manager = context.surroundings.of_session(args.session_id.as_deref())?.open(None)?;
    let around = context.surroundings.workspace_if_any(&manager)?;
    let args = &words::understood(context, &manager, around.as_ref(), args)?;
    let strategy = strategies::chosen(args)?;
    git::refuse_trial(args)?;
    let session = args.session_id.as_deref();
    if around.is_none()
        && let Some(given) = args.given.as_deref()
        && args.paths.is_empty()
        && matches!(strategy, Strategy::Immediate | Strategy::Selective)
    {
        // An invalid name is reported once the workspace is known.
        if let Ok(checkpoint) = context.checkpoint(&manager, None, given, session)
            && checkpoint.workspace_id.is_none()
        {
            return from_anywhere(context, &manager, &checkpoint, args);
        }
    }
    let workspace = context.surroundings.workspace(&manager)?;
    let named = |given: &str| context.checkpoint(&manager, Some(&workspace), given, session);
    let checkpoint = args.given.as_deref().map(named).transpose()?;
    let options = options(context, &workspace, args)?;
    let ground = strategies::Ground { context, manager: &manager, workspace: &workspace };
    if strategy == Strategy::Progressive {
        git::refuse(args)?;
        return ground.progressive(checkpoint.as_ref(), &args.into(), &options);
    }
    let (checkpoint, picked) = match checkpoint {
        Some(checkpoint) => (checkpoint, false),
        None if pick::can_pick(context) && workspace.head.is_some() => {
            let missing = Problem::usage("no checkpoint is named", "Name one, as in `safepoint rollback @`.");
            (context.choose(&manager, Some(&workspace), missing)?, true)
        }
        None => return choose(context, &manager, &workspace),
    };
    let at = checkpoint.workspace_id.is_some().then_some(&workspace);
    let options = git::options(args, (&manager, at), &checkpoint, options)?;
    if strategy == Strategy::Staged {
        return ground.staged(&checkpoint, &args.into(), &options);
    }
    // Undo commands of a plan's steps may run: they are not to stay behind.
    signals::listen_for_another();
    // Several folders go back together; chosen paths are those of this one.
    let many = checkpoint.workspace_id.is_none() && options.paths.is_empty();
    let at = (!many).then_some(&workspace);
    let back = |options: &RollbackOptions| {
        manager
            .rollback(at, checkpoint.id, options, &context.progress)
            .map_err(|error| context.failed(&manager, &workspace, error.into()))
            .map_err(|problem| git::files_alone(problem, &checkpoint))
            .map_err(|problem| lost::explained(&manager, &workspace, problem))
    };
    if picked && options.dry_run == DryRun::No && !context.yes {
        let dry = RollbackOptions { dry_run: DryRun::Yes, ..options.clone() };
        let shown = back(&dry)?;
        tell(context, &manager, &shown, dry.dry_run);
        turns::tell_undone(context, &manager, &shown, dry.dry_run);
        consent::ask(context, "Roll back to this?")?;
    }
    let turn = NamedTurn::read(context, &manager, &workspace, args, &options.paths)?;
    let done = back(&options)?;
    let mut reply = answer(context, &manager, &done, options.dry_run);
    match turn {
        Some(turn) => turn.tell(context, &manager, options.dry_run, &mut reply),
        None => reply.data["other_turns"] = turns::tell_undone(context, &manager, &done, options.dry_run),
    }
    Ok(reply)
}

/// Rolls back all folders of a checkpoint, from any directory.
fn from_anywhere(
    context: &Context,
    manager: &CheckpointManager,
    checkpoint: &Checkpoint,
    args: &RollbackArgs,
) -> Result<Reply, Problem> {
    let (parts, strict) = (args.parts.clone(), strict(args));
    let options = RollbackOptions {
        parts,
        strict,
        ..plain_options(args.dry_run, args.keep_times, args.undo_commands.chosen())
    };
    let options = git::options(args, (manager, None), checkpoint, options)?;
    signals::listen_for_another();
    let done = manager.rollback(None, checkpoint.id, &options, &context.progress);
    let done = done.inspect_err(|_| recover::tell(&context.out, &manager.take_recovered()))?;
    let mut reply = answer(context, manager, &done, options.dry_run);
    reply.data["other_turns"] = turns::tell_undone(context, manager, &done, options.dry_run);
    Ok(reply)
}

/// Back to a checkpoint, everything of it, and told.
pub(crate) fn back_to(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    checkpoint: &Checkpoint,
) -> Result<Value, Problem> {
    let options = RollbackOptions::default();
    let done = manager
        .rollback(workspace, checkpoint.id, &options, &context.progress)
        .map_err(|error| context.failed(manager, workspace, error.into()))?;
    tell(context, manager, &done, options.dry_run);
    Ok(shape(manager, &done, options.dry_run))
}

fn options(
    context: &Context,
    workspace: &Workspace,
    args: &RollbackArgs,
) -> Result<RollbackOptions, Problem> {
    let paths = args.paths.iter().map(|path| context.surroundings.path_in(workspace, path));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    let paths = outermost(paths);
    let (parts, strict) = (args.parts.clone(), strict(args));
    Ok(RollbackOptions {
        paths,
        parts,
        strict,
        ..plain_options(args.dry_run, args.keep_times, args.undo_commands.chosen())
    })
}

fn strict(args: &RollbackArgs) -> Strict {
    if args.strict { Strict::Yes } else { Strict::No }
}

/// The paths without those that lie in another one: they come with it.
pub(crate) fn outermost(mut paths: Vec<RelPath>) -> Vec<RelPath> {
    paths.sort();
    let mut chosen: Vec<RelPath> = Vec::new();
    for path in paths {
        if !chosen.iter().any(|above| path.is_within(above)) {
            chosen.push(path);
        }
    }
    chosen
}

/// Options of undo and redo, too.
pub(crate) fn plain_options(dry_run: bool, keep_times: bool, failed_undo: FailedUndo) -> RollbackOptions {
    RollbackOptions {
        dry_run: if dry_run { DryRun::Yes } else { DryRun::No },
        times: if keep_times { Times::Recorded } else { Times::Present },
        failed_undo,
        ..RollbackOptions::default()
    }
}

fn choose(context: &Context, manager: &CheckpointManager, workspace: &Workspace) -> Result<Reply, Problem> {
    let filter = Filter { workspace: Some(workspace.id), role: RoleFilter::Any, ..Filter::default() };
    let checkpoints = manager.checkpoints().list(&filter)?;
    let shown = list::folded(checkpoints.clone(), workspace.head);
    table(context, manager, Some(workspace), &shown)?;
    let hint = "Return to the newest, and see first what it does: safepoint rollback @ --dry-run";
    let problem = Problem::usage("no checkpoint is named", hint);
    let problem = if checkpoints.is_empty() { advice::without_copy(problem) } else { problem };
    context.out.flush();
    context.out.tell("roll back", &problem);
    let list: Value = checkpoints.iter().map(json::checkpoint).collect();
    let data = json!({ "rollback": null, "checkpoints": list });
    Ok(Reply { data, exit: exit::of(&problem.failure), failure: Some(problem.failure) })
}
