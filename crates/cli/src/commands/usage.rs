//! `usage`: prints disk usage and the space that deletion would free.

use crate::commands::Context;
use crate::commands::create::{SHOWN_MAX, more};
use crate::commands::naming::Naming;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, counted, printable, size};
use safepoint::model::agent::WorkspaceKind;
use safepoint::{CheckpointSpace, Space, WorkspaceSpace};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let space = manager.upkeep().space(&context.progress)?;
    tell(&context.out, Naming::new(&context.out, &manager, None)?, &space);
    Ok(Reply::done(json!({
        "home_bytes": space.home_bytes,
        "cap": {
            "cap_bytes": space.cap.cap_bytes,
            "headroom_bytes": space.cap.headroom_bytes,
            "reserve_bytes": space.cap.reserve_bytes,
        },
        "store": {
            "bytes": space.store.pack_bytes,
            "packs": space.store.packs,
            "objects": space.store.objects,
        },
        "dead_bytes": space.dead_bytes,
        "shared_bytes": space.shared_bytes,
        "attempts": {
            "rooms": space.attempts.rooms,
            "layer_bytes": space.attempts.layer_bytes,
            "copy_bytes": space.attempts.copy_bytes,
        },
        "workspaces": space.workspaces.iter().map(|of| json!({
            "workspace": json::workspace(&of.workspace),
            "checkpoints": of.checkpoints,
            "frees_bytes": of.frees_bytes,
        })).collect::<Value>(),
        "checkpoints": space.checkpoints.iter().map(|of| json!({
            "id": of.checkpoint.id,
            "label": of.checkpoint.label,
            "created_at": of.checkpoint.created_at,
            "workspace_id": of.checkpoint.workspace_id,
            "pinned": of.checkpoint.pinned,
            "frees_bytes": of.frees_bytes,
            "damaged": of.damaged,
        })).collect::<Value>(),
    })))
}

fn tell(out: &Printer, naming: Naming, space: &Space) {
    out.line(format!(
        "{} of at most {} on the disk",
        out.colours.bold(size(space.home_bytes)),
        size(space.cap.cap_bytes)
    ));
    let beside = space.home_bytes.saturating_sub(space.store.pack_bytes);
    for (bytes, what) in [
        (space.store.pack_bytes, "in packs: the content of all checkpoints"),
        (space.shared_bytes, "  needed by several checkpoints"),
        (space.dead_bytes, "  needed by none; `safepoint gc --thorough` frees it"),
        (beside, "beside the packs: records, the index, caches"),
    ] {
        out.line(format!("  {:>9}  {what}", size(bytes)));
    }
    let attempts = &space.attempts;
    for (bytes, what) in [
        (
            attempts.layer_bytes,
            "in layers of attempts, which count for the cap; see `safepoint attempt list`",
        ),
        (attempts.copy_bytes, "in copies of attempts, which do not count; see `safepoint attempt list`"),
    ] {
        if bytes > 0 {
            out.line(format!("  {:>9}  {what}", size(bytes)));
        }
    }
    if !space.workspaces.is_empty() {
        out.line("What deleting all checkpoints of a workspace would free:");
    }
    let (of_attempts, others): (Vec<&WorkspaceSpace>, Vec<&WorkspaceSpace>) =
        space.workspaces.iter().partition(|of| of.workspace.kind == WorkspaceKind::Attempt);
    for of in others {
        let root = printable(&of.workspace.root_path().display().to_string());
        let held = counted(of.checkpoints, "checkpoint", "checkpoints");
        out.line(format!("  {:>9}  {}  {held}", size(of.frees_bytes), out.colours.bold(root)));
    }
    if !of_attempts.is_empty() {
        let frees = of_attempts.iter().map(|of| of.frees_bytes).sum();
        let checkpoints = of_attempts.iter().map(|of| of.checkpoints).sum();
        let attempts = counted(of_attempts.len() as u64, "attempt", "attempts");
        let held = counted(checkpoints, "checkpoint", "checkpoints");
        out.line(format!("  {:>9}  {}  {held}", size(frees), out.colours.bold(attempts)));
    }
    let mut largest: Vec<&CheckpointSpace> = space.checkpoints.iter().collect();
    // The sort is stable: equal ones stay newest first.
    largest.sort_by_key(|of| std::cmp::Reverse(of.frees_bytes));
    if !largest.is_empty() {
        out.line("What deleting one checkpoint would free, the largest first:");
    }
    largest.iter().take(SHOWN_MAX).for_each(|of| out.line(line(out, naming, of)));
    more(out, largest.len());
}

fn line(out: &Printer, naming: Naming, of: &CheckpointSpace) -> String {
    let checkpoint = &of.checkpoint;
    let age = ago(Surroundings::now(), checkpoint.created_at);
    let damaged = if of.damaged { "damaged  " } else { "" };
    let before = format!("  {:>9}  {}  {age:<14}  ", size(of.frees_bytes), naming.id(checkpoint.id));
    let label = naming.fitted(&naming.label(checkpoint), before.len() + damaged.len());
    format!("{before}{}{label}", out.colours.red(damaged)).trim_end().to_owned()
}
