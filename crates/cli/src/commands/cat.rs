//! `cat`: prints a file of a checkpoint.

use crate::args::CatArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &CatArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let checkpoint = context.checkpoint(&manager, Some(&workspace), &args.id, None)?;
    let checkpoint = safepoint::within(&checkpoint, workspace.id);
    let path = context.surroundings.path_in(&workspace, &args.path)?;
    if context.out.is_json() {
        let mut content = Vec::new();
        manager.checkpoints().cat(&checkpoint, &path, &mut content)?;
        let content = json::bytes(&content);
        return Ok(Reply::done(json!({ "checkpoint": checkpoint.id, "path": path, "content": content })));
    }
    match manager.checkpoints().cat(&checkpoint, &path, &mut context.out.bytes()) {
        // A closed or full output is reported once, at the end.
        Err(_) if context.out.is_closed() => Ok(Reply::done(Value::Null)),
        result => Ok(result.map(|()| Reply::done(Value::Null))?),
    }
}
