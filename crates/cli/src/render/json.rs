//! The shapes that programs read. `docs/schemas` promises them: add fields freely (there too), never take one away.

pub(crate) mod plan;
pub(crate) mod session;

use crate::render::warning;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use safepoint::model::change::Change;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::coverage::Coverage;
use safepoint::model::plan::state::PlanState;
use safepoint::model::rollback::Rollback;
use safepoint::model::tree::{Entry, Node};
use safepoint::{
    CheckpointManager, DamagedPart, DryRun, FolderRolledBack, GitMoved, GitStatus, HeldFolder, LeftAlone,
    ListedEntry, Outline, Recovery, RolledBack, SessionBack, Summary, ThreadBack, Validation, Workspace,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The version of the envelope and of everything in it.
pub(crate) const VERSION: u32 = 1;

/// Anything that serialises, which our own types always do.
pub(crate) fn value(thing: impl Serialize) -> Value {
    serde_json::to_value(thing).unwrap_or(Value::Null)
}

/// Bytes that are usually text: a string where they are, else the bytes in base64.
pub(crate) fn bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "bytes": STANDARD.encode(bytes) }),
    }
}

/// Keys of answers that only some options fill.
const OPTIONAL: &[(&str, &[&str])] = &[
    ("list", &["rollbacks", "turns", "published"]),
    ("show", &["entries", "folders"]),
    ("plan log", &["log", "step", "printed"]),
    ("rollback", &["built", "other_turns"]),
    ("rollback", ROLLBACK),
    ("plan rollback", ROLLBACK),
];
const ROLLBACK: &[&str] =
    &["checkpoints", "checks", "current", "check_changed_files", "tried_in", "left_out"];
/// Keys of a rollback of one folder, and of several.
const ROLLED_BACK: &[&str] = &[
    "answers",
    "strategy",
    "from",
    "paths",
    "changed_paths",
    "blocked",
    "rescued",
    "plan",
    "memory",
    "changed_meanwhile",
    "session",
    "together",
    "plans",
    "sessions",
];
const LEFT_ALONE: &[&str] = &["plan", "folder", "agents", "checkpoint", "agent", "why", "plans"];

/// Adds the keys that an answer lacks, as null: each command has one shape.
pub(crate) fn complete(command: &str, data: &mut Value) {
    for (_, keys) in OPTIONAL.iter().filter(|(name, _)| *name == command) {
        fill(data, keys);
    }
}

/// Adds missing keys of an object, as null.
pub(crate) fn fill(object: &mut Value, keys: &[&str]) {
    if let Value::Object(fields) = object {
        for key in keys {
            fields.entry(*key).or_insert(Value::Null);
        }
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

/// Every field of the record, and its id in UUID form. The state of its plan is JSON where [`with_state`] reads it, and null elsewhere.
pub(crate) fn checkpoint(checkpoint: &Checkpoint) -> Value {
    let mut fields = value(checkpoint);
    set(&mut fields, "state_snapshot", Value::Null);
    set(&mut fields, "uuid", json!(checkpoint.id.to_uuid()));
    set(&mut fields, "metrics", value(&checkpoint.metrics));
    fields
}

/// The same with what it left out.
pub(crate) fn checkpoint_with_coverage(record: &Checkpoint, coverage: &Coverage) -> Value {
    let mut fields = checkpoint(record);
    set(&mut fields, "coverage", value(coverage));
    fields
}

/// The record of a checkpoint with the state of its plan, where that can be read.
pub(crate) fn with_state(mut fields: Value, manager: &CheckpointManager, record: &Checkpoint) -> Value {
    if record.state_snapshot.is_some()
        && let Ok(plan) = manager.plans().at(record.id)
    {
        set(&mut fields, "state_snapshot", value(plan));
    }
    fields
}

pub(crate) fn set(object: &mut Value, key: &str, field: Value) {
    if let Value::Object(fields) = object {
        fields.insert(key.to_owned(), field);
    }
}

fn entry_fields(entry: &Entry) -> Map<String, Value> {
    let (kind, size, hash, target) = match &entry.node {
        Node::File(content) => {
            ("file", Some(content.size), (!content.is_unread()).then_some(content.id), None)
        }
        Node::Directory(tree) => ("directory", None, Some(*tree), None),
        Node::Symlink(target) => ("symlink", None, None, Some(bytes(target))),
    };
    let mut fields = Map::new();
    fields.insert("type".to_owned(), json!(kind));
    fields.insert("mode".to_owned(), json!(format!("{:04o}", entry.meta.mode)));
    fields.insert("size".to_owned(), json!(size));
    fields.insert("hash".to_owned(), json!(hash));
    fields.insert("target".to_owned(), json!(target));
    fields
}

/// An entry without its path.
pub(crate) fn entry_value(entry: &Entry) -> Value {
    Value::Object(entry_fields(entry))
}

/// One entry of `show --files`.
pub(crate) fn entry(listed: &ListedEntry) -> Value {
    let mut fields = entry_fields(&listed.entry);
    fields.insert("path".to_owned(), value(&listed.path));
    Value::Object(fields)
}

/// A folder of a checkpoint; `show --files` adds its entries.
pub(crate) fn folder(held: &HeldFolder) -> Value {
    let mut fields = value(held);
    fill(&mut fields, &["entries"]);
    fields
}

/// One path of `diff` and `status`.
pub(crate) fn change(change: &Change) -> Value {
    json!({
        "path": change.path,
        "change": change.kind,
        "old": change.old.as_ref().map(entry_fields),
        "new": change.new.as_ref().map(entry_fields),
    })
}

pub(crate) fn changes(changes: &[Change]) -> Value {
    changes.iter().map(change).collect()
}

/// Result of a rollback, undo or redo; `plan` is the plan's new state. A dry run has no id: it is not recorded.
pub(crate) fn rollback(done: &RolledBack, dry_run: DryRun, plan: Option<PlanState>) -> Value {
    let mut fields = match done.is_together() {
        true => rollback_together(done, dry_run),
        false => rollback_alone(done, dry_run, plan),
    };
    fill(&mut fields, ROLLED_BACK);
    fields
}

fn left_alone(left: &LeftAlone) -> Value {
    let mut fields = value(left);
    fill(&mut fields, LEFT_ALONE);
    fields
}

/// A rollback of one folder.
fn rollback_alone(done: &RolledBack, dry_run: DryRun, plan: Option<PlanState>) -> Value {
    let (folder, record) = (&done.folders[0], done.record());
    let dry = dry_run == DryRun::Yes;
    json!({
        "id": (!dry).then_some(record.id),
        "verb": record.verb,
        "answers": record.answers,
        "strategy": record.strategy,
        "from": record.from,
        "to": record.to,
        "safety_checkpoint": record.safety_checkpoint,
        "dry_run": dry,
        "paths": record.paths,
        "parts": record.parts,
        "restored_files_count": folder.outline.restored,
        "removed_files_count": folder.outline.removed,
        "changed_paths": folder.outline.paths,
        "blocked": folder.outline.blocked,
        "rescued": record.rescued,
        "plan": done.plans.first().map(|(_, back)| {
            json!({
                "decisions_superseded": back.decisions.len(),
                "subplans_invalidated": back.subplans.len(),
                "steps_taken_back": back.steps,
                "state": plan,
            })
        }),
        "plans_left": done.plans_left,
        "agents": done.agents,
        "memory": folders(done.folders.iter().skip(1)),
        "left_alone": done.left_alone.iter().map(left_alone).collect::<Value>(),
        "undone": done.undone,
        "effects_not_undone": warning::not_undone(&done.effects_not_undone),
        "verified": done.verified,
        "changed_meanwhile": folder.changed_meanwhile,
        "waiting": done.waiting,
        "git": folder.git.as_ref().map(git_moved),
        "session": done.sessions.first().map(session_back),
        "threads": done.threads.iter().map(thread_back).collect::<Value>(),
    })
}

/// The same for one of several folders.
fn rollback_together(done: &RolledBack, dry_run: DryRun) -> Value {
    let sum = |count: fn(&Outline) -> u64| -> u64 {
        done.folders.iter().map(|folder| count(&folder.outline)).sum()
    };
    let git = done.folders.iter().filter_map(|folder| {
        let mut told = git_moved(folder.git.as_ref()?);
        told["workspace_id"] = json!(folder.record.workspace_id);
        Some(told)
    });
    json!({
        "id": done.id,
        "verb": done.verb,
        "to": done.to,
        "safety_checkpoint": done.safety_checkpoint,
        "dry_run": dry_run == DryRun::Yes,
        "parts": done.record().parts,
        "restored_files_count": sum(|outline| outline.restored),
        "removed_files_count": sum(|outline| outline.removed),
        "together": folders(done.folders.iter()),
        "plans": done.plans.iter().map(|(id, _)| id).collect::<Vec<_>>(),
        "plans_left": done.plans_left,
        "agents": done.agents,
        "left_alone": done.left_alone.iter().map(left_alone).collect::<Value>(),
        "sessions": done.sessions.iter().map(session_back).collect::<Value>(),
        "git": git.collect::<Value>(),
        "undone": done.undone,
        "effects_not_undone": warning::not_undone(&done.effects_not_undone),
        "verified": done.verified,
        "waiting": done.waiting,
        "threads": done.threads.iter().map(thread_back).collect::<Value>(),
    })
}

/// Changes of each folder.
fn folders<'a>(folders: impl Iterator<Item = &'a FolderRolledBack>) -> Value {
    let shape = |FolderRolledBack { record, outline, .. }: &FolderRolledBack| {
        json!({
            "id": record.id,
            "workspace_id": record.workspace_id,
            "restored_files_count": outline.restored,
            "removed_files_count": outline.removed,
            "changed_paths": outline.paths,
            "blocked": outline.blocked,
            "rescued": record.rescued,
        })
    };
    folders.map(shape).collect()
}

fn session_back(back: &SessionBack) -> Value {
    json!({ "session_id": back.id.to_uuid(), "from": back.from, "to": back.to })
}

/// A thread whose heads moved.
fn thread_back(back: &ThreadBack) -> Value {
    let heads = back.heads.iter();
    let heads = heads.map(|(name, (from, to))| json!({ "namespace": name, "from": from, "to": to }));
    json!({ "thread": back.key.id, "workspace_id": back.key.workspace, "heads": heads.collect::<Value>() })
}

/// Changes of a rollback to a repository.
pub(crate) fn git_moved(git: &GitMoved) -> Value {
    json!({
        "branch": git.branch, "from": git.from, "to": git.to, "files": git.files, "folder": git.folder,
        "uncommitted": git.uncommitted,
    })
}

/// A rollback as it is on record.
pub(crate) fn rollback_record(record: &Rollback) -> Value {
    json!({
        "id": record.id,
        "verb": record.verb,
        "answers": record.answers,
        "from": record.from,
        "to": record.to,
        "safety_checkpoint": record.safety_checkpoint,
        "strategy": record.strategy,
        "parts": record.parts,
        "paths": record.paths,
        "state": record.state,
        "created_at": record.created_at,
        "finished_at": record.finished_at,
        "error": record.error,
    })
}

pub(crate) fn recovery(recovery: &Recovery) -> Value {
    json!({
        "undone": recovery.undone,
        "settled": recovery.settled,
        "rescued": recovery.rescued,
        "waiting": recovery.waiting,
        "released": recovery.released,
        "foreign": recovery.foreign,
        "warnings": warning::texts(&recovery.warnings),
    })
}

/// Something that a checkpoint needs and that is not there as it was.
pub(crate) fn damaged(damage: &DamagedPart) -> Value {
    json!({
        "checkpoint": damage.checkpoint,
        "path": damage.path,
        "object": damage.object,
        "what": damage.what,
    })
}

/// The result of `validate`. Unknown values are null: git without a repository, tests without a command.
pub(crate) fn validation(
    validation: &Validation,
    errors: &[String],
    warnings: &[String],
    tests_passing: Option<bool>,
    git: Option<&GitStatus>,
) -> Value {
    let damaged: Vec<Value> = validation.damaged.iter().map(damaged).collect();
    json!({
        "is_valid": errors.is_empty(),
        "errors": errors,
        "warnings": warnings,
        "checked": {
            "checkpoints": validation.checkpoints,
            "objects": validation.objects,
            "bytes": validation.bytes,
        },
        "damaged": damaged,
        "restorable": validation.restorable,
        "unfinished_bytes": validation.unfinished_bytes,
        "git_status": git.map(|git| {
            json!({
                "state": git.state,
                "branch": git.branch,
                "commit": git.commit,
                "operation": git.operation,
            })
        }),
        "has_uncommitted_changes": git.map(|git| !git.changes.is_empty()),
        "tests_passing": tests_passing,
    })
}

pub(crate) fn summary(summary: &Summary) -> Value {
    let mut fields = value(summary);
    set(&mut fields, "latest_checkpoint", value(summary.latest_checkpoint.as_deref().map(checkpoint)));
    fields
}
