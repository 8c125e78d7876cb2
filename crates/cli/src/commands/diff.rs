//! `diff`: prints the differences between a checkpoint and another one or the current state, in unified
//! format.

use crate::args::DiffArgs;
use crate::commands::{Context, recover};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::patch::{Patch, Stat};
use crate::render::terminal::printable;
use safepoint::model::RelPath;
use safepoint::{Against, CheckpointManager, Workspace};
use serde_json::json;

pub(crate) fn run(context: &Context, args: &DiffArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    compare(context, &manager, &workspace, args)
        .map_err(|problem| context.failed(&manager, &workspace, problem))
}

fn compare(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    args: &DiffArgs,
) -> Result<Reply, Problem> {
    let out = &context.out;
    let paths: Vec<RelPath> = args
        .paths
        .iter()
        .map(|path| context.surroundings.path_in(workspace, path))
        .collect::<Result<_, _>>()?;
    let find = |given: &str| context.checkpoint(manager, Some(workspace), given, None);
    // The position, as in `status`.
    let position = if workspace.head.is_some() { "@here" } else { "@" };
    let old = find(args.old.as_deref().unwrap_or(position))?;
    let new = args.new.as_deref().map(find).transpose()?;
    let new_id = new.as_ref().map(|new| new.id);
    let against = new.map_or(Against::Present, |new| Against::Checkpoint(Box::new(new)));
    let mut comparison = manager.diff(workspace, &old, &against, &context.progress)?;
    recover::tell(out, &comparison.recovered);
    comparison.warnings.iter().for_each(|warning| out.warn(printable(warning)));
    comparison
        .changes
        .retain(|change| paths.is_empty() || paths.iter().any(|path| change.path.is_within(path)));
    if args.name_only {
        comparison.changes.iter().for_each(|change| out.line(&change.path));
    } else if args.stat {
        Stat::new(&comparison)?.print(out);
    } else if !out.is_json() {
        Patch { comparison: &comparison, out }.print()?;
    }
    Ok(Reply::done(json!({
        "from": old.id,
        "to": new_id,
        "changes": json::changes(&comparison.changes),
        "coverage": comparison.coverage,
    })))
}
