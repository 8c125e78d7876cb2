//! Threads: conversations of agents, saved state by state.

use super::checkpoints::Options as CreateFields;
use super::read;
use super::rollbacks::Options as RollbackFields;
use crate::failure::Refusal;
use crate::shapes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use safepoint::{
    CheckpointManager, ExistingWrites, KeepStates, ListStates, ListedStates, ListedValues, NewState,
    NewWrite, NewWrites, Progress, Removal, Threads,
};
use safepoint_model::thread::{ThreadState, ThreadValue};
use safepoint_model::{CheckpointId, WorkspaceId};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Owner of threads: a workspace, or the home.
#[derive(Deserialize)]
#[serde(transparent)]
struct Owner(Option<WorkspaceId>);

impl Owner {
    fn threads<'m>(&self, manager: &'m CheckpointManager) -> Threads<'m> {
        match self.0 {
            Some(id) => manager.threads().of(id),
            None => manager.threads(),
        }
    }
}

/// Encoding, and bytes in base64.
struct Encoded(ThreadValue);

impl<'de> Deserialize<'de> for Encoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (encoding, text): (String, String) = Deserialize::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(serde::de::Error::custom)?;
        Ok(Self(ThreadValue::new(encoding, bytes)))
    }
}

fn encoded(value: &ThreadValue) -> Value {
    json!([value.encoding, STANDARD.encode(&value.bytes)])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    workspace: Owner,
    thread: String,
    namespace: String,
    id: String,
    parent: Option<String>,
    run_id: Option<String>,
    metadata: Map<String, Value>,
    body: Encoded,
    channels: BTreeMap<String, String>,
    values: BTreeMap<String, Option<Encoded>>,
    files: Option<CheckpointId>,
    serializer: Option<String>,
    ttl_seconds: Option<u64>,
    /// Options of a checkpoint that is taken together with it.
    capture: Option<CreateFields>,
}

pub(super) fn put(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: Put = read(arguments)?;
    let threads = given.workspace.threads(manager);
    let values = given.values.into_iter().map(|(name, value)| (name, value.map(|value| value.0)));
    let state = NewState {
        namespace: given.namespace,
        id: given.id,
        parent: given.parent,
        run_id: given.run_id,
        metadata: given.metadata,
        body: given.body.0,
        channels: given.channels,
        values: values.collect(),
        files: given.files,
        serializer: given.serializer,
        ttl: given.ttl_seconds.map(Duration::from_secs),
    };
    match given.capture {
        Some(options) => {
            let created = threads.put_with_files(&given.thread, state, &options.into(), progress)?;
            Ok(shapes::created(&created))
        }
        None => {
            threads.put(&given.thread, state)?;
            Ok(Value::Null)
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutWrites {
    workspace: Owner,
    thread: String,
    namespace: String,
    state: String,
    task_id: String,
    task_path: String,
    /// Index, channel, value.
    writes: Vec<(i64, String, Encoded)>,
    replace: bool,
    serializer: Option<String>,
}

pub(super) fn put_writes(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: PutWrites = read(arguments)?;
    let write = |(index, channel, value): (i64, String, Encoded)| NewWrite { index, channel, value: value.0 };
    let writes = NewWrites {
        namespace: given.namespace,
        state: given.state,
        task_id: given.task_id,
        task_path: given.task_path,
        writes: given.writes.into_iter().map(write).collect(),
        existing: if given.replace { ExistingWrites::Replaced } else { ExistingWrites::Kept },
        serializer: given.serializer,
    };
    given.workspace.threads(manager).put_writes(&given.thread, writes)?;
    Ok(Value::Null)
}

fn state(state: &ThreadState) -> Value {
    let channels: Map<String, Value> = state
        .channels
        .iter()
        .map(|(name, channel)| (name.clone(), json!([channel.version, channel.value.as_ref().map(encoded)])))
        .collect();
    let writes: Vec<Value> = state
        .writes
        .iter()
        .map(|write| {
            json!([write.task_id, write.index, write.channel, encoded(&write.value), write.task_path])
        })
        .collect();
    json!({
        "thread": state.thread.id,
        "namespace": state.namespace,
        "id": state.id,
        "parent": state.parent,
        "run_id": state.run_id,
        "metadata": state.metadata,
        "body": encoded(&state.body),
        "channels": channels,
        "writes": writes,
        "files": state.files,
        "files_pruned": state.files_pruned,
        "is_head": state.is_head,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Get {
    workspace: Owner,
    thread: String,
    namespace: String,
    id: Option<String>,
}

pub(super) fn get(manager: &CheckpointManager, arguments: Value, _: &dyn Progress) -> Result<Value, Refusal> {
    let given: Get = read(arguments)?;
    let found = given.workspace.threads(manager).get(&given.thread, &given.namespace, given.id.as_deref())?;
    Ok(found.as_ref().map_or(Value::Null, state))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    workspace: Owner,
    thread: Option<String>,
    namespace: Option<String>,
    id: Option<String>,
    before: Option<String>,
    metadata: Map<String, Value>,
    limit: Option<u64>,
    after: Option<String>,
    /// Only heads.
    #[serde(default)]
    heads: bool,
    /// Without values.
    #[serde(default)]
    bare: bool,
}

pub(super) fn list(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: List = read(arguments)?;
    let wanted = ListStates {
        thread: given.thread,
        namespace: given.namespace,
        id: given.id,
        before: given.before,
        metadata: given.metadata,
        limit: given.limit,
        after: given.after,
        which: if given.heads { ListedStates::Heads } else { ListedStates::All },
        values: if given.bare { ListedValues::Omitted } else { ListedValues::Loaded },
    };
    let page = given.workspace.threads(manager).list(&wanted)?;
    Ok(json!({ "states": page.states.iter().map(state).collect::<Vec<_>>(), "next": page.next }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct All {
    workspace: Owner,
}

pub(super) fn all(manager: &CheckpointManager, arguments: Value, _: &dyn Progress) -> Result<Value, Refusal> {
    let All { workspace } = read(arguments)?;
    let threads = workspace.threads(manager).threads()?;
    Ok(threads.iter().map(|thread| json!([thread.key.id, thread.updated_at])).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    workspace: Owner,
    thread: String,
    /// From all checkpoints, too.
    #[serde(default)]
    erase: bool,
}

pub(super) fn delete(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Delete { workspace, thread, erase } = read(arguments)?;
    let threads = workspace.threads(manager);
    Ok(json!(match erase {
        true => threads.erase(&thread, progress)?.deleted,
        false => threads.delete(&thread)?,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Runs {
    workspace: Owner,
    runs: Vec<String>,
}

pub(super) fn delete_runs(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Runs { workspace, runs } = read(arguments)?;
    Ok(json!(workspace.threads(manager).delete_runs(&runs)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Remove {
    workspace: Owner,
    thread: String,
    namespace: String,
    ids: Vec<String>,
    hide: bool,
}

pub(super) fn remove(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: Remove = read(arguments)?;
    let removal = if given.hide { Removal::Hidden } else { Removal::Deleted };
    let threads = given.workspace.threads(manager);
    Ok(json!(threads.remove(&given.thread, &given.namespace, &given.ids, removal)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prune {
    workspace: Owner,
    thread: String,
    keep_last: u64,
    hidden_ancestors: u64,
}

pub(super) fn prune(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: Prune = read(arguments)?;
    let keep = KeepStates { last: given.keep_last, hidden_ancestors: given.hidden_ancestors };
    Ok(json!(given.workspace.threads(manager).prune(&given.thread, keep)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Copy {
    workspace: Owner,
    from: String,
    to: String,
}

pub(super) fn copy(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Copy { workspace, from, to } = read(arguments)?;
    workspace.threads(manager).copy(&from, &to)?;
    Ok(Value::Null)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rollback {
    workspace: Owner,
    thread: String,
    namespace: String,
    id: String,
    options: RollbackFields,
    /// State that is saved after it, by the same commit.
    #[serde(default)]
    state: Option<StateFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFields {
    id: String,
    parent: Option<String>,
    run_id: Option<String>,
    metadata: Map<String, Value>,
    body: Encoded,
    channels: BTreeMap<String, String>,
    values: BTreeMap<String, Option<Encoded>>,
    serializer: Option<String>,
}

impl StateFields {
    fn into_state(self, namespace: &str) -> NewState {
        let values = self.values.into_iter().map(|(name, value)| (name, value.map(|value| value.0)));
        NewState {
            namespace: namespace.to_owned(),
            id: self.id,
            parent: self.parent,
            run_id: self.run_id,
            metadata: self.metadata,
            body: self.body.0,
            channels: self.channels,
            values: values.collect(),
            serializer: self.serializer,
            ..NewState::default()
        }
    }
}

pub(super) fn rollback(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: Rollback = read(arguments)?;
    let (at, options) = ((given.namespace.as_str(), given.id.as_str()), given.options.into());
    let threads = given.workspace.threads(manager);
    Ok(shapes::rolled_back(&match given.state {
        Some(state) => {
            let state = state.into_state(&given.namespace);
            threads.rollback_and_put(&given.thread, at, state, &options, progress)?
        }
        None => threads.rollback(&given.thread, at, &options, progress)?,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveHead {
    workspace: Owner,
    thread: String,
    namespace: String,
    id: String,
}

pub(super) fn move_head(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: MoveHead = read(arguments)?;
    given.workspace.threads(manager).move_head(&given.thread, &given.namespace, &given.id)?;
    Ok(Value::Null)
}

pub(super) fn expire(manager: &CheckpointManager, _: Value, _: &dyn Progress) -> Result<Value, Refusal> {
    Ok(json!(manager.threads().expire()?))
}
