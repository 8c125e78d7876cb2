//! `delete`: checkpoints that are wanted no more. All that were named, or none.

use crate::args::DeleteArgs;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{ago, counted, printable};
use crate::render::warning;
use crate::{commands::Context, render::consent, render::exit};
use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{CheckpointManager, Tags};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &DeleteArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace_if_any(&manager)?;
    let session = args.session_id.as_deref();
    let mut chosen: Vec<Checkpoint> = Vec::new();
    for given in args.ids.iter().chain(&args.checkpoint_id) {
        let checkpoint = context.checkpoint(&manager, workspace.as_ref(), given, session)?;
        if !chosen.iter().any(|other| other.id == checkpoint.id) {
            chosen.push(checkpoint);
        }
    }
    if chosen.is_empty() {
        let missing = Problem::usage("no checkpoint is named", "Name one, as in `safepoint delete @`.");
        chosen.push(context.choose(&manager, workspace.as_ref(), missing)?);
    }
    let tags = if args.keep_tag { Tags::Kept } else { Tags::Removed };
    // A program that names the session and the whole id knows what it does.
    let whole = args.checkpoint_id.as_deref().is_some_and(|id| id.parse::<CheckpointId>().is_ok());
    match session.is_some() && whole {
        true => at_once(context, &manager, &chosen, tags),
        false => these_with(context, &manager, &chosen, tags),
    }
}

/// Deletes checkpoints once that was agreed to.
pub(crate) fn these(
    context: &Context,
    manager: &CheckpointManager,
    chosen: &[Checkpoint],
) -> Result<Reply, Problem> {
    these_with(context, manager, chosen, Tags::Removed)
}

/// The same, with a word about their tags.
fn these_with(
    context: &Context,
    manager: &CheckpointManager,
    chosen: &[Checkpoint],
    tags: Tags,
) -> Result<Reply, Problem> {
    let count = counted(chosen.len() as u64, "checkpoint", "checkpoints");
    let about: Vec<String> = chosen.iter().map(line).collect();
    consent::ask_about(context, &about, &format!("Delete {count}? This cannot be undone."))?;
    at_once(context, manager, chosen, tags)
}

fn at_once(
    context: &Context,
    manager: &CheckpointManager,
    chosen: &[Checkpoint],
    tags: Tags,
) -> Result<Reply, Problem> {
    let out = &context.out;
    let ids: Vec<CheckpointId> = chosen.iter().map(|checkpoint| checkpoint.id).collect();
    let left = manager.checkpoints().delete_with(&ids, tags)?;
    out.line(format!("Deleted {}:", counted(chosen.len() as u64, "checkpoint", "checkpoints")));
    chosen.iter().for_each(|checkpoint| out.line(line(checkpoint)));
    warning::warn(out, &left);
    out.remark("Free the space that only they took: safepoint gc");
    let deleted: Value = chosen.iter().map(json::checkpoint).collect();
    let exit = if left.is_empty() { exit::DONE } else { exit::IN_PART };
    Ok(Reply { data: json!({ "deleted": deleted }), exit, failure: None })
}

fn line(checkpoint: &Checkpoint) -> String {
    let label = checkpoint.label.as_deref().map(printable).unwrap_or_default();
    let pinned = if checkpoint.pinned { " (pinned)" } else { "" };
    let age = ago(Surroundings::now(), checkpoint.created_at);
    format!("  {}  {age}  {label}{pinned}", checkpoint.id).trim_end().to_owned()
}
