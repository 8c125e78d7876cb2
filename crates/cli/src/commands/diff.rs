//! `diff`: prints the differences between a checkpoint and another one or the current state, in unified
//! format.

use crate::args::DiffArgs;
use crate::commands::{Context, recover};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::patch::{Patch, Stat};
use crate::render::terminal::{for_shell, printable};
use safepoint::model::RelPath;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{Against, CheckpointManager, Workspace};
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
    let old = match args.pick {
        true => context.choose(
            manager,
            Some(workspace),
            Problem::usage("there is no terminal", "Name one: safepoint diff @"),
        )?,
        false => find(args.old.as_deref().unwrap_or(position))?,
    };
    let new = args.new.as_deref().map(find).transpose()?;
    let new_id = new.as_ref().map(|new| new.id);
    let against = new.map_or(Against::Present, |new| Against::Checkpoint(Box::new(new)));
    let mut comparison = manager.diff(workspace, &old, &against, &context.progress)?;
    recover::tell(out, &comparison.recovered);
    mistyped(context, manager, workspace, args, (&old, &against))?;
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

/// Refuses a path that neither side has: no change of it would look like no change at all.
fn mistyped(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    args: &DiffArgs,
    (old, new): (&Checkpoint, &Against),
) -> Result<(), Problem> {
    let is_known = |path: &RelPath| -> Result<bool, Problem> {
        let is_new = match new {
            Against::Checkpoint(new) => manager.checkpoints().holds_path(new, workspace, path)?,
            Against::Present => {
                workspace.root_path().join(OsStr::from_bytes(path.as_bytes())).symlink_metadata().is_ok()
            }
        };
        Ok(path.is_root() || is_new || manager.checkpoints().holds_path(old, workspace, path)?)
    };
    for given in &args.paths {
        if is_known(&context.surroundings.path_in(workspace, given)?)? {
            continue;
        }
        let old = old.id;
        let other = match new {
            Against::Checkpoint(new) => new.id.to_string(),
            Against::Present => "the current state".to_owned(),
        };
        let mut hints = vec![format!("List the paths of a checkpoint: safepoint show {old} --files")];
        // Paths of a diff begin at the root of the workspace, wherever it is asked for.
        let from_root = RelPath::new(given.as_bytes()).ok();
        if let Some(path) = from_root.filter(|path| is_known(path).unwrap_or(false)) {
            let typed = for_shell(&context.surroundings.typed_path(workspace, &path));
            hints.insert(0, format!("Paths are relative to the current directory; from here it is {typed}"));
        }
        return Err(Problem::no_such_path(Path::new(given), &format!("{old} nor {other}"), hints));
    }
    Ok(())
}
