//! `workspace`: lists the registered folders, follows one that was moved, forgets one.

use crate::args::workspace::{MoveArgs, WorkspaceCommand};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json::{self, set};
use crate::render::output::Reply;
use crate::render::terminal::{counted, for_shell, printable};
use safepoint::{CheckpointManager, Workspace};
use serde_json::{Value, json};
use std::path::Path;

pub(crate) fn run(context: &Context, command: &WorkspaceCommand) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    match command {
        WorkspaceCommand::List => list(context, &manager),
        WorkspaceCommand::Move(args) => relocate(context, &manager, args),
        WorkspaceCommand::Forget(args) => {
            let workspace = registered(context, &manager, &args.folder)?;
            let checkpoints = manager.workspaces().count_checkpoints(&workspace)?;
            manager.workspaces().forget(&workspace)?;
            let stays = counted(checkpoints, "checkpoint", "checkpoints");
            context.out.line(format!("Forgot {}. Its files and {stays} stay.", shown(&workspace)));
            let root = for_shell(&workspace.root_path().to_string_lossy());
            context.out.remark(format!("Register it again: safepoint init {root}"));
            Ok(Reply::done(json!({ "workspace": shape(&workspace, checkpoints) })))
        }
    }
}

fn list(context: &Context, manager: &CheckpointManager) -> Result<Reply, Problem> {
    let mut rows = Vec::new();
    for workspace in manager.workspaces().list()? {
        let checkpoints = manager.workspaces().count_checkpoints(&workspace)?;
        let note = if is_missing(&workspace) { "  (folder not found)" } else { "" };
        let count = counted(checkpoints, "checkpoint", "checkpoints");
        context.out.line(format!("{}  {}{note}", shown(&workspace), context.out.colours.dim(count)));
        rows.push(shape(&workspace, checkpoints));
    }
    if rows.is_empty() {
        context.out.remark("No folder is registered. Register this one: safepoint init");
    }
    Ok(Reply::done(json!({ "workspaces": rows })))
}

fn relocate(context: &Context, manager: &CheckpointManager, args: &MoveArgs) -> Result<Reply, Problem> {
    let old = registered(context, manager, &args.old)?;
    let moved = manager.workspaces().move_to(&old, &context.surroundings.absolute(&args.new))?;
    let checkpoints = manager.workspaces().count_checkpoints(&moved)?;
    let count = counted(checkpoints, "checkpoint", "checkpoints");
    context.out.line(format!("Moved {} to {}, with {count}.", shown(&old), shown(&moved)));
    Ok(Reply::done(json!({ "workspace": shape(&moved, checkpoints) })))
}

/// The workspace of a folder that was named. What is not registered cannot be moved or forgotten.
fn registered(context: &Context, manager: &CheckpointManager, folder: &Path) -> Result<Workspace, Problem> {
    let found = manager.workspaces().at(&context.surroundings.absolute(folder));
    found.map_err(|error| {
        let mut problem = Problem::from(error);
        if problem.failure.code == "no_workspace" {
            problem.failure.message =
                format!("{} is not registered", context.surroundings.absolute(folder).display());
            problem.failure.hints = vec!["Show the registered folders: safepoint workspace list".to_owned()];
        }
        problem
    })
}

fn shown(workspace: &Workspace) -> String {
    printable(&workspace.root_path().to_string_lossy())
}

fn is_missing(workspace: &Workspace) -> bool {
    workspace.root_path().symlink_metadata().is_err()
}

fn shape(workspace: &Workspace, checkpoints: u64) -> Value {
    let mut fields = json::workspace(workspace);
    set(&mut fields, "checkpoints", json!(checkpoints));
    set(&mut fields, "missing", json!(is_missing(workspace)));
    fields
}
