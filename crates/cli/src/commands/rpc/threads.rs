//! Methods on threads.

use super::frame::{Attached, Frame};
use super::input::{BackTo, Copy, Delete, Get, List, OfWorkspace, Prune, Put, PutWrites, Runs};
use super::{Outcome, params};
use crate::problem::Problem;
use crate::render::json;
use safepoint::model::ModelError;
use safepoint::model::thread::{Thread, ThreadState};
use safepoint::{
    CheckpointManager, CreateOptions, DryRun, IfUnchanged, KeepStates, RollbackOptions, Silent, Threads,
};
use serde_json::{Map, Value, json};

/// Runs a method. `None` if it is unknown.
pub(super) fn call(
    manager: &CheckpointManager,
    method: &str,
    given: Value,
    frame: &Frame,
    attached: &mut Attached,
) -> Option<Outcome> {
    Some(match method {
        "threads.put" => put(manager, given, frame),
        "threads.put_writes" => put_writes(manager, given, frame),
        "threads.get" => get(manager, given, attached),
        "threads.list" => list(manager, given, attached),
        "threads.threads" => params::<OfWorkspace>(given).and_then(|it| {
            let threads = on(manager, it.workspace.as_deref())?.threads()?;
            Ok(threads.iter().map(thread).collect())
        }),
        "threads.delete" => delete(manager, given),
        "threads.delete_runs" => params::<Runs>(given).and_then(|it| {
            Ok(json!({ "removed": on(manager, it.workspace.as_deref())?.delete_runs(&it.runs)? }))
        }),
        "threads.copy" => params::<Copy>(given).and_then(|it| {
            on(manager, it.workspace.as_deref())?.copy(&it.from, &it.to)?;
            Ok(Value::Null)
        }),
        "threads.prune" => params::<Prune>(given).and_then(|it| {
            let keep = KeepStates { last: it.last, hidden_ancestors: it.hidden_ancestors };
            Ok(json!({ "removed": on(manager, it.workspace.as_deref())?.prune(&it.thread, keep)? }))
        }),
        "threads.expire" => Ok(manager.threads().expire().map(|removed| json!({ "removed": removed })))
            .and_then(|done| Ok(done?)),
        "threads.rollback" => rollback(manager, given, frame),
        _ => return None,
    })
}

/// Returns the threads of a workspace, or of the home.
fn on<'m>(manager: &'m CheckpointManager, workspace: Option<&str>) -> Result<Threads<'m>, Problem> {
    Ok(match workspace {
        Some(id) => manager.threads().of(id.parse()?),
        None => manager.threads(),
    })
}

fn invalid(why: String) -> Problem {
    ModelError::Value { what: "request", why }.into()
}

fn put(manager: &CheckpointManager, given: Value, frame: &Frame) -> Outcome {
    let Put { workspace, thread, state, capture } = params(given)?;
    let threads = on(manager, workspace.as_deref())?;
    let state = state.load(frame).map_err(invalid)?;
    let Some(capture) = capture else {
        threads.put(&thread, state)?;
        return Ok(Value::Null);
    };
    let unchanged = match capture.only_if_changed {
        true => IfUnchanged::ReusedOfAnySession,
        false => IfUnchanged::Added,
    };
    let options = CreateOptions { label: capture.label, unchanged, ..CreateOptions::default() };
    let created = threads.put_with_files(&thread, state, &options, &Silent)?;
    Ok(json!({ "checkpoint": json::checkpoint(&created.checkpoint), "unchanged": created.unchanged }))
}

fn put_writes(manager: &CheckpointManager, given: Value, frame: &Frame) -> Outcome {
    let mut writes: PutWrites = params(given)?;
    let (workspace, thread) = (writes.workspace.take(), std::mem::take(&mut writes.thread));
    on(manager, workspace.as_deref())?.put_writes(&thread, writes.load(frame).map_err(invalid)?)?;
    Ok(Value::Null)
}

fn get(manager: &CheckpointManager, given: Value, attached: &mut Attached) -> Outcome {
    let Get { workspace, thread, namespace, id } = params(given)?;
    let found = on(manager, workspace.as_deref())?.get(&thread, &namespace, id.as_deref())?;
    Ok(found.map_or(Value::Null, |found| state(&found, attached)))
}

fn list(manager: &CheckpointManager, given: Value, attached: &mut Attached) -> Outcome {
    let wanted: List = params(given)?;
    let threads = on(manager, wanted.workspace.as_deref())?;
    let page = threads.list(&wanted.wanted())?;
    let states: Vec<Value> = page.states.iter().map(|found| state(found, attached)).collect();
    Ok(json!({ "states": states, "next": page.next }))
}

fn delete(manager: &CheckpointManager, given: Value) -> Outcome {
    let Delete { workspace, thread, erase } = params(given)?;
    let threads = on(manager, workspace.as_deref())?;
    if !erase {
        return Ok(json!({ "deleted": threads.delete(&thread)? }));
    }
    let erased = threads.erase(&thread, &Silent)?;
    Ok(json!({
        "deleted": erased.deleted,
        "checkpoints": erased.checkpoints,
        "freed_bytes": erased.collected.freed_bytes,
    }))
}

fn rollback(manager: &CheckpointManager, given: Value, frame: &Frame) -> Outcome {
    let BackTo { workspace, thread, namespace, id, dry_run, state } = params(given)?;
    let dry_run = if dry_run { DryRun::Yes } else { DryRun::No };
    let options = RollbackOptions { dry_run, ..RollbackOptions::default() };
    let threads = on(manager, Some(&workspace))?;
    let at = (namespace.as_str(), id.as_str());
    let done = match state {
        Some(state) => {
            let state = state.load(frame).map_err(invalid)?;
            threads.rollback_and_put(&thread, at, state, &options, &Silent)?
        }
        None => threads.rollback(&thread, at, &options, &Silent)?,
    };
    Ok(json::rollback(&done, dry_run, None))
}

fn thread(thread: &Thread) -> Value {
    json!({
        "thread": thread.key.id,
        "workspace": thread.key.workspace,
        "serializer": thread.serializer,
        "version": thread.version,
        "created_at": thread.created_at,
        "updated_at": thread.updated_at,
        "ttl_ms": thread.ttl_micros.map(|ttl| ttl / 1000),
    })
}

fn state(found: &ThreadState, attached: &mut Attached) -> Value {
    let mut channels = Map::new();
    for (name, channel) in &found.channels {
        let value = channel.value.as_ref().map(|value| attached.add(value));
        channels.insert(name.clone(), json!({ "version": channel.version, "value": value }));
    }
    let mut writes = Vec::new();
    for write in &found.writes {
        writes.push(json!({
            "task_id": write.task_id,
            "index": write.index,
            "channel": write.channel,
            "value": attached.add(&write.value),
            "task_path": write.task_path,
        }));
    }
    json!({
        "thread": found.thread.id,
        "workspace": found.thread.workspace,
        "namespace": found.namespace,
        "id": found.id,
        "parent": found.parent,
        "run_id": found.run_id,
        "metadata": found.metadata,
        "body": attached.add(&found.body),
        "channels": channels,
        "writes": writes,
        "files": found.files,
        "files_pruned": found.files_pruned,
        "hidden": found.hidden,
        "is_head": found.is_head,
        "created_at": found.created_at,
    })
}
