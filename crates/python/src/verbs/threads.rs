//! Threads: conversations of agents, saved state by state.

use super::checkpoints::Options as CreateFields;
use super::read;
use super::rollbacks::Options as RollbackFields;
use crate::failure::Refusal;
use crate::shapes;
use safepoint::{
    CheckpointManager, ExistingWrites, KeepStates, ListStates, ListedStates, ListedValues, NewState,
    NewWrite, NewWrites, Progress, Removal, Threads,
};
use safepoint_model::thread::{ThreadState, ThreadValue};
use safepoint_model::{CheckpointId, WorkspaceId};
use serde::Deserialize;
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

/// Values that come or go beside the JSON: it has their positions.
pub(crate) type Beside = Vec<Vec<u8>>;

/// Encoding, and position of the bytes among those beside the JSON.
#[derive(Deserialize)]
struct Encoded(String, usize);

impl Encoded {
    /// Takes the bytes. Each position is named once.
    fn value(self, beside: &mut Beside) -> Result<ThreadValue, Refusal> {
        let bytes =
            beside.get_mut(self.1).ok_or_else(|| Refusal::usage("invalid argument: a value is missing"))?;
        Ok(ThreadValue::new(self.0, std::mem::take(bytes)))
    }
}

fn values_of(
    given: BTreeMap<String, Option<Encoded>>,
    beside: &mut Beside,
) -> Result<BTreeMap<String, Option<ThreadValue>>, Refusal> {
    let mut value = |value: Option<Encoded>| value.map(|value| value.value(beside)).transpose();
    given.into_iter().map(|(name, given)| Ok((name, value(given)?))).collect()
}

fn encoded(value: ThreadValue, beside: &mut Beside) -> Value {
    beside.push(value.bytes);
    json!([value.encoding, beside.len() - 1])
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
    beside: &mut Beside,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: Put = read(arguments)?;
    let threads = given.workspace.threads(manager);
    let state = NewState {
        namespace: given.namespace,
        id: given.id,
        parent: given.parent,
        run_id: given.run_id,
        metadata: given.metadata,
        body: given.body.value(beside)?,
        channels: given.channels,
        values: values_of(given.values, beside)?,
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
    beside: &mut Beside,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: PutWrites = read(arguments)?;
    let write = |(index, channel, value): (i64, String, Encoded)| -> Result<NewWrite, Refusal> {
        Ok(NewWrite { index, channel, value: value.value(beside)? })
    };
    let writes = NewWrites {
        namespace: given.namespace,
        state: given.state,
        task_id: given.task_id,
        task_path: given.task_path,
        writes: given.writes.into_iter().map(write).collect::<Result<_, _>>()?,
        existing: if given.replace { ExistingWrites::Replaced } else { ExistingWrites::Kept },
        serializer: given.serializer,
    };
    given.workspace.threads(manager).put_writes(&given.thread, writes)?;
    Ok(Value::Null)
}

fn state(state: ThreadState, beside: &mut Beside) -> Value {
    let mut channels = Map::new();
    for (name, channel) in state.channels {
        let value = channel.value.map(|value| encoded(value, beside));
        channels.insert(name, json!([channel.version, value]));
    }
    let mut writes = Vec::new();
    for write in state.writes {
        let value = encoded(write.value, beside);
        writes.push(json!([write.task_id, write.index, write.channel, value, write.task_path]));
    }
    json!({
        "thread": state.thread.id,
        "namespace": state.namespace,
        "id": state.id,
        "parent": state.parent,
        "run_id": state.run_id,
        "metadata": state.metadata,
        "body": encoded(state.body, beside),
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

pub(super) fn get(
    manager: &CheckpointManager,
    arguments: Value,
    beside: &mut Beside,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: Get = read(arguments)?;
    let found = given.workspace.threads(manager).get(&given.thread, &given.namespace, given.id.as_deref())?;
    Ok(found.map_or(Value::Null, |found| state(found, beside)))
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
    beside: &mut Beside,
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
    let states: Vec<Value> = page.states.into_iter().map(|found| state(found, beside)).collect();
    Ok(json!({ "states": states, "next": page.next }))
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
    fn into_state(self, namespace: &str, beside: &mut Beside) -> Result<NewState, Refusal> {
        Ok(NewState {
            namespace: namespace.to_owned(),
            id: self.id,
            parent: self.parent,
            run_id: self.run_id,
            metadata: self.metadata,
            body: self.body.value(beside)?,
            channels: self.channels,
            values: values_of(self.values, beside)?,
            serializer: self.serializer,
            ..NewState::default()
        })
    }
}

pub(super) fn rollback(
    manager: &CheckpointManager,
    arguments: Value,
    beside: &mut Beside,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let given: Rollback = read(arguments)?;
    let (at, options) = ((given.namespace.as_str(), given.id.as_str()), given.options.into());
    let threads = given.workspace.threads(manager);
    Ok(shapes::rolled_back(&match given.state {
        Some(state) => {
            let state = state.into_state(&given.namespace, beside)?;
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
