//! THREADS: conversations of agents, saved state by state, and rolled back with the files.
//!
//! States never change. The latest state of a namespace is its head: the one that was saved or restored last. A save
//! is one transaction of the catalog with one flush; saves of several callers share it. Where a state carries files,
//! the transaction is that of their checkpoint.

pub(crate) mod chain;
pub(crate) mod delta;
pub(crate) mod erase;
pub(crate) mod recall;
pub(crate) mod room;
pub(crate) mod save;
pub(crate) mod settle;
pub(crate) mod trim;
pub(crate) mod values;

use crate::handles::Threads;
use crate::{
    CheckpointManager, CreateOptions, Created, DryRun, Error, Progress, RollbackOptions, RolledBack,
};
use safepoint_catalog::{ExistingWrites, StateQuery, StateRow, ThreadRow, ThreadRows};
use safepoint_model::rollback::Verb;
use safepoint_model::thread::{
    ChannelState, PendingWrite, Thread, ThreadKey, ThreadState, ThreadValue, check_id, check_name,
};
use safepoint_model::{CheckpointId, ModelError, WorkspaceId};
use save::PreparedSave;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use values::Values;

/// Most states of one page.
const PAGE_MAX: u64 = 1000;

/// State to be saved.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewState {
    /// Namespace.
    pub namespace: String,
    /// Id in the namespace. A state that has it already is replaced.
    pub id: String,
    /// Id of the state that it follows.
    pub parent: Option<String>,
    /// Run that saves it.
    pub run_id: Option<String>,
    /// Metadata.
    pub metadata: Map<String, Value>,
    /// The state without its channel values.
    pub body: ThreadValue,
    /// Version of each channel.
    pub channels: BTreeMap<String, String>,
    /// Values of the channels that are new in this state; `None` for one that is empty now. The other channels keep the
    /// values of their versions.
    pub values: BTreeMap<String, Option<ThreadValue>>,
    /// Checkpoint with the files of this state, if it exists already.
    pub files: Option<CheckpointId>,
    /// Serializer of the values. A thread refuses another one than its first.
    pub serializer: Option<String>,
    /// Time to live of the thread after its last change.
    pub ttl: Option<Duration>,
}

/// Write of a task that the next state takes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWrite {
    /// Position among the writes of the task.
    pub index: i64,
    /// Channel.
    pub channel: String,
    /// Value.
    pub value: ThreadValue,
}

/// Writes of one task for a state. The state may be saved later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewWrites {
    /// Namespace.
    pub namespace: String,
    /// State.
    pub state: String,
    /// Task.
    pub task_id: String,
    /// Path of the task in its graph.
    pub task_path: String,
    /// Writes.
    pub writes: Vec<NewWrite>,
    /// Result for writes whose task and index are recorded.
    pub existing: ExistingWrites,
    /// Serializer of the values.
    pub serializer: Option<String>,
}

/// Conditions on listed states.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListStates {
    /// Thread; all of the handle if `None`.
    pub thread: Option<String>,
    /// Namespace; all if `None`.
    pub namespace: Option<String>,
    /// Id of the state; all if `None`.
    pub id: Option<String>,
    /// Only states with a smaller id.
    pub before: Option<String>,
    /// Metadata that a state must have: equal values under these keys.
    pub metadata: Map<String, Value>,
    /// Maximum number of states; a page has at most 1000.
    pub limit: Option<u64>,
    /// End of the previous page.
    pub after: Option<String>,
    /// States that are listed.
    pub which: ListedStates,
    /// Values of the states.
    pub values: ListedValues,
}

/// States of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListedStates {
    /// All that match.
    #[default]
    All,
    /// Those that are the head of their namespace.
    Heads,
}

/// Values in a list of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListedValues {
    /// They are loaded.
    #[default]
    Loaded,
    /// They are left out: bodies and writes are empty, and channels have versions alone.
    Omitted,
}

/// Page of states, largest id first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatePage {
    /// States.
    pub states: Vec<ThreadState>,
    /// End of this page, if there may be more.
    pub next: Option<String>,
}

/// State to roll a thread back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateKey {
    /// Thread.
    pub thread: ThreadKey,
    /// Namespace.
    pub namespace: String,
    /// Id of the state.
    pub id: String,
}

impl<'m> Threads<'m> {
    /// Returns the handle of the threads that are bound to a workspace. Checkpoints of the workspace hold them.
    #[must_use]
    pub fn of(self, workspace: WorkspaceId) -> Self {
        Self { workspace: Some(workspace), ..self }
    }

    pub(crate) fn key(&self, thread: &str) -> Result<ThreadKey, Error> {
        Ok(ThreadKey::new(self.workspace, thread)?)
    }

    /// Saves a state and makes it the head of its namespace. When this returns, it is durable.
    ///
    /// # Errors
    /// When a name is invalid, the thread has another serializer, or the catalog fails; nothing is saved then.
    pub fn put(&self, thread: &str, state: NewState) -> Result<(), Error> {
        self.manager.save_state(self.key(thread)?, state)
    }

    /// Saves a state together with a checkpoint of the workspace: both or neither. Where `options` reuse a checkpoint with
    /// the same files, the state names that one.
    ///
    /// # Errors
    /// As for [`Threads::put`] and [`CheckpointManager::create`]; and when the handle has no workspace.
    pub fn put_with_files(
        &self,
        thread: &str,
        state: NewState,
        options: &CreateOptions,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let workspace = self.workspace.ok_or_else(no_workspace)?;
        self.manager.save_state_with_files((self.key(thread)?, workspace), state, options, progress)
    }

    /// Saves writes of a task for a state.
    ///
    /// # Errors
    /// As for [`Threads::put`].
    pub fn put_writes(&self, thread: &str, writes: NewWrites) -> Result<(), Error> {
        self.manager.save_writes(self.key(thread)?, writes)
    }

    /// Returns a state with its values and writes: the one with this id, or the head of the namespace.
    ///
    /// # Errors
    /// When the catalog or the store cannot be read, or a value is damaged.
    pub fn get(&self, thread: &str, namespace: &str, id: Option<&str>) -> Result<Option<ThreadState>, Error> {
        let key = self.key(thread)?;
        check_name("namespace", namespace)?;
        self.manager.read_unheld(|values| {
            let Some(thread) = values.rows.thread(&key)? else { return Ok(None) };
            let state = match id {
                Some(id) => values.rows.state(thread.seq, namespace, id)?,
                None => values.rows.head(thread.seq, namespace)?,
            };
            state.map(|state| load_state(values, state, ListedValues::Loaded)).transpose()
        })
    }

    /// Returns matching states with their values and writes, largest id first, one page at a time.
    ///
    /// # Errors
    /// As for [`Threads::get`].
    pub fn list(&self, wanted: &ListStates) -> Result<StatePage, Error> {
        let limit = wanted.limit.unwrap_or(PAGE_MAX).min(PAGE_MAX);
        let query = StateQuery {
            workspace: self.workspace,
            thread: wanted.thread.clone(),
            namespace: wanted.namespace.clone(),
            id: wanted.id.clone(),
            before: wanted.before.clone(),
            after: wanted.after.as_deref().map(read_cursor).transpose()?,
            metadata: wanted.metadata.clone(),
            limit: Some(limit),
            heads_only: wanted.which == ListedStates::Heads,
        };
        self.manager.read_unheld(|values| {
            let rows = values.rows.list(&query)?;
            let last = rows.last().filter(|_| rows.len() as u64 == limit);
            let next = last.map(|row| serde_json::json!([row.id, row.seq]).to_string());
            let states = rows.into_iter();
            let states =
                states.map(|row| load_state(values, row, wanted.values)).collect::<Result<_, _>>()?;
            Ok(StatePage { states, next })
        })
    }

    /// Returns the threads of the handle, sorted by id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn threads(&self) -> Result<Vec<Thread>, Error> {
        let workspace = self.workspace;
        self.manager
            .catalog
            .read_threads(|rows| Ok(rows.threads(workspace)?.into_iter().map(|row| row.thread).collect()))
    }

    /// Rolls a thread back to a state, with the files of that state: both or neither. Other threads stay. An undo restores
    /// the head and the files that were there before.
    ///
    /// # Errors
    /// [`Error::NoThread`], [`Error::NoState`]; [`Error::StateWithoutFiles`] if the state has no files, or its checkpoint is
    /// gone; or as [`CheckpointManager::rollback`].
    pub fn rollback(
        &self,
        thread: &str,
        (namespace, id): (&str, &str),
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        self.rollback_with(thread, (namespace, id), None, options, progress)
    }

    /// Rolls a thread back to a state and saves another one after it, with the files of the first: one commit. The new state
    /// is the head then, and `files` in it is ignored. An undo restores the head and the files that were there before.
    ///
    /// # Errors
    /// As [`Threads::rollback`] and [`Threads::put`]; also when `options` choose paths or parts.
    pub fn rollback_and_put(
        &self,
        thread: &str,
        (namespace, id): (&str, &str),
        state: NewState,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        if !options.paths.is_empty() || !options.parts.is_empty() {
            let why = "its files are those of an older state, and not a choice of them".to_owned();
            return Err(ModelError::Value { what: "state", why }.into());
        }
        let saving = self.manager.prepare_save(self.key(thread)?, state)?;
        self.rollback_with(thread, (namespace, id), Some(Arc::new(saving)), options, progress)
    }

    fn rollback_with(
        &self,
        thread: &str,
        (namespace, id): (&str, &str),
        saving: Option<Arc<PreparedSave>>,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let key = self.key(thread)?;
        let workspace = self.workspace.ok_or_else(no_workspace)?;
        let state = self.manager.catalog.read_threads::<_, Error>(|rows| {
            let thread = existing(rows, &key)?;
            let missing = || Error::NoState { thread: key.id.clone(), id: id.to_owned() };
            rows.state(thread.seq, namespace, id)?.ok_or_else(missing)
        })?;
        let without = || Error::StateWithoutFiles { id: id.to_owned(), pruned: state.files_pruned };
        let files = state.files.filter(|_| !state.files_pruned).ok_or_else(without)?;
        let target = StateKey { thread: key, namespace: namespace.to_owned(), id: id.to_owned() };
        self.manager.roll_back_to_state((workspace, files), (target, saving), options, progress)
    }

    /// Makes a state the head of its namespace. Files stay as they are.
    ///
    /// # Errors
    /// [`Error::NoThread`], [`Error::NoState`], or when the catalog fails.
    pub fn move_head(&self, thread: &str, namespace: &str, id: &str) -> Result<(), Error> {
        let (key, at) = (self.key(thread)?, self.manager.environment.now());
        self.manager.catalog.write(|transaction| {
            let (rows, edit) = (transaction.threads(), transaction.edit_threads());
            let thread = existing(&rows, &key)?;
            let missing = || Error::NoState { thread: key.id.clone(), id: id.to_owned() };
            let state = rows.state(thread.seq, namespace, id)?.ok_or_else(missing)?;
            edit.set_thread_head(thread.seq, namespace, state.seq)?;
            Ok(edit.touch_thread(thread.seq, at)?)
        })
    }
}

impl CheckpointManager {
    /// Runs reads of threads on one snapshot. Pieces cannot be collected during it.
    pub(crate) fn read_values<T>(
        &self,
        work: impl FnOnce(&Values<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _using = self.store.using()?;
        self.catalog.read_threads(|rows| work(&self.values(*rows)))
    }

    /// Runs reads of threads on one snapshot, without the lock that keeps pieces from being collected: every byte is
    /// checked, and what fails is read again with the lock, on the next snapshot.
    fn read_unheld<T>(&self, work: impl Fn(&Values<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let read = self.catalog.read_threads(|rows| work(&self.values(*rows)));
        if read.is_ok() { read } else { self.read_values(work) }
    }

    /// Returns a reader of values.
    pub(crate) fn values<'v>(&'v self, rows: ThreadRows<'v>) -> Values<'v> {
        Values { rows, store: &self.store, recall: Some(&self.recall) }
    }

    /// Rolls a workspace back to the files of a state, and its thread to that state or to one that is saved after it.
    fn roll_back_to_state(
        &self,
        (workspace, files): (WorkspaceId, CheckpointId),
        (target, saving): (StateKey, Option<Arc<PreparedSave>>),
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let to = self.checkpoints().get(files)?;
        let mut request = crate::rollback::Request::new(Verb::Rollback, Some(workspace), to, options);
        request.state = Some((target, saving));
        debug_assert!(request.options.dry_run == options.dry_run || options.dry_run == DryRun::No);
        self.roll_back(&request, progress)
    }
}

pub(crate) fn existing(rows: &ThreadRows<'_>, key: &ThreadKey) -> Result<ThreadRow, Error> {
    rows.thread(key)?.ok_or_else(|| Error::NoThread { id: key.id.clone() })
}

fn no_workspace() -> Error {
    let why = "its handle has no workspace, and so no files".to_owned();
    ModelError::Value { what: "thread", why }.into()
}

fn read_cursor(text: &str) -> Result<(String, u64), Error> {
    serde_json::from_str(text).map_err(|_| {
        let why = format!("{text:?} is not where a page ended");
        ModelError::Value { what: "position", why }.into()
    })
}

fn load_state(values: &Values<'_>, row: StateRow, which: ListedValues) -> Result<ThreadState, Error> {
    let load = |seq| match which {
        ListedValues::Loaded => values.load(seq).map(Some),
        ListedValues::Omitted => Ok(None),
    };
    let mut channels = BTreeMap::new();
    for (name, (version, value)) in row.channels {
        let value = value.map(load).transpose()?.flatten();
        channels.insert(name, ChannelState { version, value });
    }
    let mut writes = Vec::new();
    for write in values.rows.writes(row.thread_seq, &row.namespace, &row.id)? {
        writes.push(PendingWrite {
            task_id: write.task_id,
            index: write.index,
            channel: write.channel,
            value: load(write.value)?.unwrap_or_default(),
            task_path: write.task_path,
        });
    }
    Ok(ThreadState {
        thread: row.thread,
        namespace: row.namespace,
        id: row.id,
        parent: row.parent,
        run_id: row.run_id,
        metadata: row.metadata,
        body: load(row.body)?.unwrap_or_default(),
        channels,
        writes,
        files: row.files,
        files_pruned: row.files_pruned,
        hidden: row.hidden,
        is_head: row.is_head,
        created_at: row.created_at,
    })
}

impl NewState {
    /// Checks names and metadata. Returns the bytes of its metadata and channels.
    pub(crate) fn check(&self) -> Result<u64, Error> {
        check_name("namespace", &self.namespace)?;
        check_id("state id", &self.id)?;
        self.parent.iter().try_for_each(|parent| check_name("state id", parent))?;
        self.run_id.iter().try_for_each(|run| check_name("run id", run))?;
        self.serializer.iter().try_for_each(|name| check_name("serializer", name))?;
        for (channel, version) in &self.channels {
            check_name("channel", channel)?;
            check_name("version", version)?;
        }
        if let Some(channel) = self.values.keys().find(|name| !self.channels.contains_key(*name)) {
            let why = format!("channel {channel:?} has a value and no version");
            return Err(ModelError::Value { what: "state", why }.into());
        }
        let metadata = serde_json::to_vec(&self.metadata)
            .map_err(|error| ModelError::Value { what: "metadata", why: error.to_string() })?;
        let most = safepoint_model::thread::THREAD_METADATA_BYTES_MAX;
        if metadata.len() > most {
            let why = format!("it has {} bytes as JSON, and at most {most} are allowed", metadata.len());
            return Err(ModelError::Value { what: "metadata", why }.into());
        }
        let channels: usize =
            self.channels.iter().map(|(name, version)| name.len() + version.len() + 16).sum();
        Ok((metadata.len() + channels) as u64)
    }
}

impl NewWrites {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name("namespace", &self.namespace)?;
        check_id("state id", &self.state)?;
        check_name("task id", &self.task_id)?;
        check_name("task path", &self.task_path)?;
        self.serializer.iter().try_for_each(|name| check_name("serializer", name))?;
        self.writes.iter().try_for_each(|write| Ok(check_name("channel", &write.channel)?))
    }
}
