//! `pin` and `unpin`: whether a checkpoint may ever be pruned.

use crate::args::OneArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use safepoint::Pinned;
use serde_json::json;

pub(crate) fn run(context: &Context, args: &OneArgs, pinned: Pinned) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace_if_any(&manager)?;
    let checkpoint = match &args.id {
        Some(given) => context.checkpoint(&manager, workspace.as_ref(), given, None)?,
        None => {
            let verb = if pinned == Pinned::Yes { "pin" } else { "unpin" };
            let hint = format!("Name one, as in `safepoint {verb} @`.");
            let missing = Problem::usage("no checkpoint is named", &hint);
            context.choose(&manager, workspace.as_ref(), missing)?
        }
    };
    let checkpoint = manager.checkpoints().pin(checkpoint.id, pinned)?;
    let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
    let name = format!("{}{}", context.out.colours.bold(checkpoint.id), label.unwrap_or_default());
    context.out.line(match pinned {
        Pinned::Yes => format!("Pinned {name}: it is never pruned."),
        Pinned::No => format!("Unpinned {name}: it may be pruned when it is old."),
    });
    Ok(Reply::done(json!({ "checkpoint": json::checkpoint(&checkpoint) })))
}
