//! Records as JSON, in the shapes of the command line's `--json`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use safepoint::model::attempt::Attempt;
use safepoint::model::change::Change;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::tree::{Entry, Node};
use safepoint::{
    AttemptShown, Created, FolderRolledBack, ListedEntry, PlanRecord, Recovery, RolledBack, RoomProcess,
    Summary, Workspace,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt;

pub(crate) fn value(thing: impl Serialize) -> Value {
    serde_json::to_value(thing).unwrap_or(Value::Null)
}

/// Text, or its bytes in base64 where they are none.
pub(crate) fn bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "bytes": STANDARD.encode(bytes) }),
    }
}

pub(crate) fn workspace(workspace: &Workspace) -> Value {
    json!({
        "id": workspace.id,
        "name": workspace.name,
        "root": bytes(&workspace.root),
        "created_at": workspace.created_at,
        "head": workspace.head,
    })
}

pub(crate) fn checkpoint(checkpoint: &Checkpoint) -> Value {
    let mut fields = value(checkpoint);
    // The record has a hash there, and programs expect the state itself.
    fields["state_snapshot"] = Value::Null;
    fields["uuid"] = json!(checkpoint.id.to_uuid());
    fields
}

pub(crate) fn checkpoints(checkpoints: &[Checkpoint]) -> Value {
    checkpoints.iter().map(checkpoint).collect()
}

pub(crate) fn created(created: &Created) -> Value {
    let warnings = created.warnings.iter().chain(&created.not_in_git);
    json!({
        "checkpoint": checkpoint(&created.checkpoint),
        "coverage": created.coverage,
        "pruned": created.pruned,
        "unchanged": created.unchanged,
        "not_in_git": created.not_in_git.iter().map(safepoint::Warning::code).collect::<Vec<_>>(),
        "warnings": warnings.map(safepoint::Warning::code).collect::<Vec<_>>(),
        "recovered": recovery(&created.recovered),
    })
}

pub(crate) fn recovery(recovery: &Recovery) -> Value {
    json!({
        "undone": recovery.undone,
        "settled": recovery.settled,
        "rescued": recovery.rescued,
        "waiting": recovery.waiting,
    })
}

fn entry_fields(entry: &Entry) -> Map<String, Value> {
    let (kind, size, target) = match &entry.node {
        Node::File(content) => ("file", json!(content.size), Value::Null),
        Node::Directory(_) => ("directory", Value::Null, Value::Null),
        Node::Symlink(target) => ("symlink", Value::Null, bytes(target)),
    };
    let mut fields = Map::new();
    fields.insert("type".to_owned(), json!(kind));
    fields.insert("mode".to_owned(), json!(entry.meta.mode));
    fields.insert("size".to_owned(), size);
    fields.insert("target".to_owned(), target);
    fields
}

pub(crate) fn entry(listed: &ListedEntry) -> Value {
    let mut fields = entry_fields(&listed.entry);
    fields.insert("path".to_owned(), value(&listed.path));
    Value::Object(fields)
}

pub(crate) fn changes(changes: &[Change]) -> Value {
    let shape = |change: &Change| {
        json!({
            "path": change.path,
            "change": change.kind,
            "old": change.old.as_ref().map(entry_fields),
            "new": change.new.as_ref().map(entry_fields),
        })
    };
    changes.iter().map(shape).collect()
}

/// Result of a rollback, undo or redo. A dry run has no id: it is not recorded.
pub(crate) fn rolled_back(done: &RolledBack) -> Value {
    let of_folder = |count: fn(&FolderRolledBack) -> u64| -> u64 { done.folders.iter().map(count).sum() };
    let folder = &done.folders[0];
    let is_dry = done.safety_checkpoint.is_none();
    json!({
        "id": (!is_dry).then_some(done.id),
        "verb": done.verb,
        "strategy": folder.record.strategy,
        "from": folder.record.from,
        "to": done.to,
        "safety_checkpoint": done.safety_checkpoint,
        "dry_run": is_dry,
        "restored_files_count": of_folder(|folder| folder.outline.restored),
        "removed_files_count": of_folder(|folder| folder.outline.removed),
        "changed_paths": folder.outline.paths,
        "blocked": folder.outline.blocked,
        "rescued": folder.record.rescued,
        "plans": done.plans.iter().map(|(id, _)| id).collect::<Vec<_>>(),
        "agents": done.agents,
        "sessions": done.sessions.iter().map(|back| back.id.to_uuid()).collect::<Vec<_>>(),
        "git": folder.git.as_ref().map(|git| json!({ "branch": git.branch, "from": git.from, "to": git.to })),
        "waiting": done.waiting,
        "verified": done.verified,
        "recovered": recovery(&done.recovered),
    })
}

pub(crate) fn attempt(shown: &AttemptShown) -> Value {
    let Attempt { id, number, name, kind, room, state, base, result, run, created_at, closed_at, .. } =
        &shown.attempt;
    json!({
        "id": id,
        "number": number,
        "name": name,
        "kind": kind,
        "state": state,
        "room": bytes(room.as_os_str().as_bytes()),
        "base": base,
        "result": result,
        "command": run.command,
        "exit_status": run.exit_status,
        "verified": run.verified,
        "passes": shown.passes(),
        "tests": run.tests,
        "metrics": shown.result.as_ref().map(|result| &result.metrics),
        "changes": [shown.changes.added, shown.changes.modified, shown.changes.removed],
        "milliseconds": run.milliseconds,
        "disk_bytes": shown.layer_bytes,
        "processes": processes(&shown.processes),
        "created_at": created_at,
        "closed_at": closed_at,
    })
}

pub(crate) fn processes(processes: &[RoomProcess]) -> Value {
    processes.iter().map(|process| json!([process.pid, process.name])).collect()
}

pub(crate) fn summary(summary: &Summary) -> Value {
    let mut fields = value(summary);
    fields["latest_checkpoint"] = value(summary.latest_checkpoint.as_deref().map(checkpoint));
    fields
}

pub(crate) fn plan(record: &PlanRecord) -> Value {
    let plan = &record.plan;
    let step = |step: &safepoint::model::plan::state::Step| {
        json!({
            "path": step.path, "title": step.spec.title, "state": step.state, "run": step.spec.run,
            "attempts": step.attempts, "error": step.error,
        })
    };
    json!({
        "id": plan.id,
        "title": plan.title,
        "state": plan.state,
        "step_index": plan.step_index(),
        "steps": plan.steps.iter().map(step).collect::<Vec<_>>(),
        "decisions": plan.decisions,
        "version": record.version,
        "workspace_id": record.workspace_id,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    })
}
