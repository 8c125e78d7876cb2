//! `push` publishes the checkpoints of this workspace that a remote lacks; `list --remote` shows what is published.

use super::sync::tell;
use super::{open, text};
use crate::args::ListArgs;
use crate::args::remote::PushArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::{moment, printable};
use safepoint::remote::RemoteCheckpoint;
use safepoint::{
    CheckpointManager, PublishedAt, PublishedMemory, PushExtent, PushOptions, Pushed, Workspace,
};
use serde_json::{Value, json};

/// Checkpoints shown where no count is given.
const SHOWN: u64 = 100;

pub(crate) fn push(context: &Context, args: &PushArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let (stored, remote) = open(context, &manager, args.remote.name.as_deref())?;
    let how = options(context, args.with_memory);
    let pushed = manager.remotes().push((&stored.name, &remote), &workspace, &how, &context.progress)?;
    tell(context, &stored.name, &pushed);
    Ok(Reply::done(json!({
        "remote": stored.name,
        "published": pushed.published.iter().map(place).collect::<Vec<_>>(),
        "packs": pushed.packs,
        "bytes": pushed.bytes,
        "fenced": pushed.fenced,
        "excluded": pushed.excluded,
    })))
}

/// Delivers purges of a workspace to a remote, and nothing else.
pub(crate) fn purge(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    name: &str,
) -> Result<Pushed, Problem> {
    let (stored, remote) = open(context, manager, Some(name))?;
    let mut how = options(context, false);
    how.extent = PushExtent::Purges;
    Ok(manager.remotes().push((&stored.name, &remote), workspace, &how, &context.progress)?)
}

/// Options of a push.
pub(super) fn options(context: &Context, with_memory: bool) -> PushOptions {
    let mut options = PushOptions::new(context.surroundings.holder());
    if with_memory {
        options.memory = PublishedMemory::All;
    }
    options
}

/// Lists published checkpoints: those of this workspace, or all.
pub(crate) fn published(
    context: &Context,
    manager: &CheckpointManager,
    (name, args): (&str, &ListArgs),
) -> Result<Reply, Problem> {
    let (stored, remote) = open(context, manager, Some(name))?;
    let workspace = context.surroundings.workspace_if_any(manager)?.filter(|_| !args.all);
    let mut found = manager.remotes().published(&remote, workspace.as_ref())?;
    let limit = args.limit.or((!context.out.is_json()).then_some(SHOWN));
    found.truncate(limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX));
    for checkpoint in &found {
        let label = printable(text(checkpoint, "label"));
        let workspace = printable(text(checkpoint, "workspace"));
        let when = moment(checkpoint.published_at);
        context.out.line(format!("{}  {when}  {workspace}  {label}", checkpoint.id).trim_end());
    }
    if found.is_empty() {
        context
            .out
            .remark(format!("Nothing is published on {}: safepoint push {}", stored.name, stored.name));
    }
    let head = workspace.and_then(|workspace| workspace.head);
    let list: Value = found.iter().map(row).collect();
    Ok(Reply::done(json!({ "checkpoints": [], "head": head, "published": list })))
}

fn row(checkpoint: &RemoteCheckpoint) -> Value {
    json!({
        "checkpoint": checkpoint.id,
        "line": checkpoint.line,
        "seq": checkpoint.seq,
        "n": checkpoint.n,
        "workspace": checkpoint.workspace,
        "plan": checkpoint.plan,
        "pinned": checkpoint.pinned,
        "published_at": checkpoint.published_at,
        "fields": checkpoint.fields,
    })
}

/// Shape of the place of a published checkpoint.
pub(crate) fn place(at: &PublishedAt) -> Value {
    json!({ "checkpoint": at.checkpoint, "line": at.line, "seq": at.seq })
}
