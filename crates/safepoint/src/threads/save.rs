//! SAVE: states and writes, cut before and recorded in one transaction. Callers that save at the same time share it.
//!
//! A state with files is kept in memory until the transaction of its checkpoint: nothing of it is on record before.

use super::chain::{self, Link};
use super::values::{CutValue, Values};
use super::{NewState, NewWrites};
use crate::{CheckpointManager, CreateOptions, Created, Error, Progress};
use safepoint_catalog::{ExistingWrites, StateRow, ThreadRow, ThreadRows, Transaction, WriteRow};
use safepoint_model::thread::{KeptChannel, KeptState, Thread, ThreadDocument, ThreadKey, needs_parent};
use safepoint_model::{CheckpointId, ModelError, Timestamp, WorkspaceId};
use safepoint_planted::planted;
use safepoint_store::Writer;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a row with its indexes, about.
pub(super) const ROW_BYTES: u64 = 256;
/// New bytes above this go into a pack before the transaction.
const CATALOG_BYTES_MAX: u64 = 64 * 1024;

/// Saves that wait for the next transaction.
#[derive(Default)]
pub(crate) struct Saves {
    waiting: Mutex<Vec<Arc<Save>>>,
    leader: Mutex<()>,
}

struct Save {
    job: Job,
    /// Result, with the bytes that it added to the catalog.
    done: Mutex<Option<Result<u64, Error>>>,
}

pub(crate) enum Job {
    State { key: ThreadKey, state: Box<CutState>, at: Timestamp },
    Writes { key: ThreadKey, writes: NewWrites, values: Vec<CutValue>, at: Timestamp },
}

/// Value with its channel and version; without one if it is a body or a write.
type NamedValue<'v> = (Option<(&'v str, &'v str)>, &'v CutValue);

/// State, cut and hashed.
pub(crate) struct CutState {
    state: NewState,
    body: CutValue,
    values: BTreeMap<String, Option<CutValue>>,
    /// Bytes of its row, about.
    row_bytes: u64,
}

/// State to be saved together with a checkpoint of its files.
pub(crate) struct PreparedSave {
    pub(crate) key: ThreadKey,
    cut: CutState,
    at: Timestamp,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CheckpointManager {
    pub(crate) fn save_state(&self, key: ThreadKey, state: NewState) -> Result<(), Error> {
        let PreparedSave { key, cut, at } = self.prepare_save(key, state)?;
        self.save(Job::State { key, state: Box::new(cut), at })
    }

    pub(crate) fn save_writes(&self, key: ThreadKey, mut writes: NewWrites) -> Result<(), Error> {
        writes.check()?;
        let taken = writes.writes.iter_mut().map(|write| CutValue::new(std::mem::take(&mut write.value)));
        let values = taken.collect::<Result<_, Error>>()?;
        self.save(Job::Writes { key, writes, values, at: self.environment.now() })
    }

    /// Checks, cuts and hashes a state.
    pub(crate) fn prepare_save(&self, key: ThreadKey, mut state: NewState) -> Result<PreparedSave, Error> {
        let row_bytes = ROW_BYTES + state.check()?;
        let body = CutValue::new(std::mem::take(&mut state.body))?;
        let cut = |value: safepoint_model::thread::ThreadValue| CutValue::new(value);
        let values = std::mem::take(&mut state.values)
            .into_iter()
            .map(|(name, value)| Ok((name, value.map(cut).transpose()?)))
            .collect::<Result<_, Error>>()?;
        Ok(PreparedSave { key, cut: CutState { state, body, values, row_bytes }, at: self.environment.now() })
    }

    fn save(&self, job: Job) -> Result<(), Error> {
        let save = Arc::new(Save { job, done: Mutex::default() });
        self.save_within_cap(save.job.key().workspace, || {
            let (job, values) = (&save.job, save.job.values());
            // No piece that is found or put now may be collected before the commit. Short values have none.
            let has_pieces = values.iter().any(|(_, value)| value.long_bytes() > 0);
            let _using = has_pieces.then(|| self.store.using()).transpose()?;
            self.put_large_values(job.key(), job.namespace(), &values)?;
            self.commit_save(&save)
        })
    }

    /// Saves a state in the transaction that commits its checkpoint.
    pub(crate) fn save_state_with_files(
        &self,
        (key, workspace): (ThreadKey, WorkspaceId),
        state: NewState,
        options: &CreateOptions,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let saving = self.prepare_save(key, state)?;
        if planted!("state-saved-before-its-files") {
            let files = CheckpointId::from_bits(1);
            self.catalog.write(|transaction| self.publish_state(transaction, &saving, files))?;
        }
        self.create_for_state(workspace, options, &saving, progress)
    }

    /// Makes a prepared state the head of its namespace, with these files.
    pub(crate) fn publish_state(
        &self,
        transaction: &Transaction<'_>,
        saving: &PreparedSave,
        files: CheckpointId,
    ) -> Result<u64, Error> {
        self.carry_state(transaction, &saving.key, &saving.cut, (saving.at, Some(files)))
    }

    /// Saves a prepared state with these files, in a transaction of its own. The caller uses the store.
    pub(crate) fn save_in_place(&self, saving: &PreparedSave, files: CheckpointId) -> Result<(), Error> {
        self.put_large_values(&saving.key, saving.namespace(), &saving.cut.values())?;
        let added = self.catalog.write(|transaction| self.publish_state(transaction, saving, files))?;
        self.note_chunks(added);
        Ok(())
    }

    /// Puts values with many new bytes into a pack.
    fn put_large_values(
        &self,
        key: &ThreadKey,
        namespace: &str,
        values: &[NamedValue<'_>],
    ) -> Result<(), Error> {
        let most: u64 = values.iter().map(|(_, value)| value.long_bytes()).sum();
        if most <= CATALOG_BYTES_MAX {
            return Ok(());
        }
        self.read_values(|reader| {
            let thread = reader.rows.thread(key)?.map_or(0, |thread| thread.seq);
            let new = |writer: Option<&Writer<'_>>| -> Result<u64, Error> {
                let each = values
                    .iter()
                    .map(|(channel, value)| reader.new_bytes(thread, namespace, *channel, value, writer));
                each.sum()
            };
            if new(None)? > CATALOG_BYTES_MAX {
                let writer = self.store.writer()?;
                new(Some(&writer))?;
                writer.finish()?;
            }
            Ok(())
        })
    }

    /// Commits a save with all others that wait.
    fn commit_save(&self, save: &Arc<Save>) -> Result<(), Error> {
        lock(&self.saves.waiting).push(Arc::clone(save));
        {
            let _leader = lock(&self.saves.leader);
            if lock(&save.done).is_none() {
                let all = std::mem::take(&mut *lock(&self.saves.waiting));
                self.commit_saves(&all);
            }
        }
        let done = lock(&save.done).take();
        let added = done.unwrap_or_else(|| Err(Error::ThreadChanged { id: save.job.key().id.clone() }))?;
        self.note_chunks(added);
        Ok(())
    }

    /// Commits all, or each alone where one fails.
    fn commit_saves(&self, all: &[Arc<Save>]) {
        if all.len() > 1 {
            let together = self.catalog.write::<Vec<u64>, Error>(|transaction| {
                all.iter().map(|save| self.carry_metered(transaction, &save.job)).collect()
            });
            if let Ok(added) = together {
                all.iter().zip(added).for_each(|(save, added)| *lock(&save.done) = Some(Ok(added)));
                return;
            }
        }
        for save in all {
            let done = self.catalog.write(|transaction| self.carry_metered(transaction, &save.job));
            *lock(&save.done) = Some(done);
        }
    }

    /// Records a save, if the cap allows it.
    fn carry_metered(&self, transaction: &Transaction<'_>, job: &Job) -> Result<u64, Error> {
        let added = self.carry_save(transaction, job)?;
        self.spend(added)?;
        Ok(added)
    }

    /// Records a save. Returns the bytes that it added to the catalog.
    fn carry_save(&self, transaction: &Transaction<'_>, job: &Job) -> Result<u64, Error> {
        match job {
            Job::State { key, state, at } => {
                self.carry_state(transaction, key, state, (*at, state.state.files))
            }
            Job::Writes { key, writes, values, at } => {
                self.carry_writes(transaction, key, (writes, values), *at)
            }
        }
    }

    fn carry_state(
        &self,
        transaction: &Transaction<'_>,
        key: &ThreadKey,
        cut: &CutState,
        (at, files): (Timestamp, Option<CheckpointId>),
    ) -> Result<u64, Error> {
        let (rows, edit) = (transaction.threads(), transaction.edit_threads());
        let values = self.values(rows);
        let state = &cut.state;
        let thread = thread_for(transaction, key, (&state.serializer, state.ttl), at)?;
        let (body, more) = values.insert(&edit, thread.seq, &state.namespace, None, &cut.body)?;
        let mut added = cut.row_bytes + more;
        let mut channels = BTreeMap::new();
        for (name, (version, source)) in cut.sources(rows, thread.seq)? {
            let value = match source {
                Source::New(value) => {
                    let channel = Some((name, version));
                    let (seq, more) = values.insert(&edit, thread.seq, &state.namespace, channel, value)?;
                    added += more;
                    Some(seq)
                }
                Source::Known(seq) => Some(seq),
                Source::Empty => None,
            };
            channels.insert(name.to_owned(), (version.to_owned(), value));
        }
        if rows.has_state(thread.seq, &state.namespace, &state.id)? {
            edit.forget_chain(thread.seq)?;
        }
        let seq = edit.insert_state(&StateRow {
            seq: 0,
            thread_seq: thread.seq,
            thread: key.clone(),
            namespace: state.namespace.clone(),
            id: state.id.clone(),
            parent: state.parent.clone(),
            run_id: state.run_id.clone(),
            metadata: state.metadata.clone(),
            body,
            channels,
            files,
            files_pruned: false,
            hidden: false,
            is_head: false,
            created_at: at,
        })?;
        edit.set_thread_head(thread.seq, &state.namespace, seq)?;
        edit.touch_thread(thread.seq, at)?;
        Ok(added)
    }

    fn carry_writes(
        &self,
        transaction: &Transaction<'_>,
        key: &ThreadKey,
        (writes, cut): (&NewWrites, &[CutValue]),
        at: Timestamp,
    ) -> Result<u64, Error> {
        let (rows, edit) = (transaction.threads(), transaction.edit_threads());
        let values = self.values(rows);
        let thread = thread_for(transaction, key, (&writes.serializer, None), at)?;
        let mut added = ROW_BYTES;
        for (write, value) in writes.writes.iter().zip(cut) {
            let place = (writes.namespace.as_str(), writes.state.as_str());
            let known = edit.has_write(thread.seq, place, (&writes.task_id, write.index))?;
            if known && writes.existing == ExistingWrites::Kept {
                continue;
            }
            let (value, more) = values.insert(&edit, thread.seq, &writes.namespace, None, value)?;
            added += more;
            let row = WriteRow {
                task_id: writes.task_id.clone(),
                index: write.index,
                channel: write.channel.clone(),
                value,
                task_path: writes.task_path.clone(),
            };
            edit.insert_write(thread.seq, place.0, place.1, &row)?;
        }
        edit.touch_thread(thread.seq, at)?;
        Ok(added)
    }
}

/// Value of a channel in a state to be saved.
enum Source<'c> {
    /// It comes with the state.
    New(&'c CutValue),
    /// Number of the recorded value of this version.
    Known(u64),
    /// The channel is empty.
    Empty,
}

impl CutState {
    fn values(&self) -> Vec<NamedValue<'_>> {
        let channels = self.values.iter().filter_map(|(name, value)| {
            let version = self.state.channels.get(name)?;
            Some((Some((name.as_str(), version.as_str())), value.as_ref()?))
        });
        channels.chain([(None, &self.body)]).collect()
    }

    /// Returns the version and the value of each channel.
    fn sources(
        &self,
        rows: ThreadRows<'_>,
        thread_seq: u64,
    ) -> Result<BTreeMap<&str, (&str, Source<'_>)>, Error> {
        let state = &self.state;
        let continues = state.channels.keys().any(|name| !self.values.contains_key(name));
        let parent = match state.parent.as_ref().filter(|_| continues) {
            Some(parent) => rows.state(thread_seq, &state.namespace, parent)?,
            None => None,
        };
        let mut sources = BTreeMap::new();
        for (name, version) in &state.channels {
            let source = match self.values.get(name) {
                Some(Some(value)) => Source::New(value),
                Some(None) => Source::Empty,
                None => {
                    let known = match parent.as_ref().and_then(|parent| parent.channels.get(name)) {
                        Some((old, value)) if old == version => *value,
                        _ => rows.value_of(thread_seq, &state.namespace, name, version)?,
                    };
                    known.map_or(Source::Empty, Source::Known)
                }
            };
            sources.insert(name.as_str(), (version.as_str(), source));
        }
        Ok(sources)
    }
}

impl PreparedSave {
    pub(crate) fn namespace(&self) -> &str {
        &self.cut.state.namespace
    }

    pub(crate) fn id(&self) -> &str {
        &self.cut.state.id
    }

    pub(crate) fn serializer(&self) -> Option<&String> {
        self.cut.state.serializer.as_ref()
    }

    pub(crate) fn saved_at(&self) -> Timestamp {
        self.at
    }

    /// Puts the state into a writer, as the document of its thread names it.
    pub(crate) fn keep(
        &self,
        values: &Values<'_>,
        thread_seq: Option<u64>,
        last: Option<&ThreadDocument>,
        writer: &Writer<'_>,
    ) -> Result<KeptState, Error> {
        let state = &self.cut.state;
        // No row has the number zero.
        let thread_seq = thread_seq.unwrap_or(0);
        let mut channels = BTreeMap::new();
        for (name, (version, source)) in self.cut.sources(values.rows, thread_seq)? {
            let value = match source {
                Source::New(value) => Some(value.keep(writer)?),
                Source::Known(seq) => Some(values.keep(seq, writer)?),
                Source::Empty => None,
            };
            channels.insert(name.to_owned(), KeptChannel { version: version.to_owned(), value });
        }
        let link = Link {
            thread_seq,
            namespace: &state.namespace,
            parent: state.parent.as_deref().filter(|_| needs_parent(state.parent.as_deref(), &channels)),
        };
        Ok(KeptState {
            earlier: chain::keep_ancestors(values, &link, last, writer)?,
            writes: chain::keep_writes(values, (thread_seq, &state.namespace, &state.id), writer)?,
            namespace: state.namespace.clone(),
            id: state.id.clone(),
            parent: state.parent.clone(),
            run_id: state.run_id.clone(),
            metadata: state.metadata.clone(),
            body: self.cut.body.keep(writer)?,
            channels,
            files: None,
            created_at: self.at,
        })
    }
}

impl Job {
    fn key(&self) -> &ThreadKey {
        match self {
            Job::State { key, .. } | Job::Writes { key, .. } => key,
        }
    }

    fn namespace(&self) -> &str {
        match self {
            Job::State { state, .. } => &state.state.namespace,
            Job::Writes { writes, .. } => &writes.namespace,
        }
    }

    fn values(&self) -> Vec<NamedValue<'_>> {
        match self {
            Job::State { state, .. } => state.values(),
            Job::Writes { values, .. } => values.iter().map(|value| (None, value)).collect(),
        }
    }
}

/// Returns the thread, inserted if it is new, with these settings.
fn thread_for(
    transaction: &Transaction<'_>,
    key: &ThreadKey,
    (serializer, ttl): (&Option<String>, Option<Duration>),
    at: Timestamp,
) -> Result<ThreadRow, Error> {
    let (rows, edit) = (transaction.threads(), transaction.edit_threads());
    let ttl_micros =
        ttl.map(|ttl| u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX).min(i64::MAX as u64 / 4));
    if let Some(thread) = rows.thread(key)? {
        match (&thread.thread.serializer, serializer) {
            (Some(known), Some(given)) if known != given => {
                let why = format!("its values are of serializer {known:?}, and {given:?} cannot read them");
                return Err(ModelError::Value { what: "serializer of the thread", why }.into());
            }
            _ => {}
        }
        if ttl_micros.is_some() || (serializer.is_some() && thread.thread.serializer.is_none()) {
            edit.set_thread(thread.seq, serializer.as_deref(), ttl_micros)?;
        }
        return Ok(thread);
    }
    if let Some(workspace) = key.workspace
        && transaction.workspace(workspace)?.is_none()
    {
        return Err(Error::NoWorkspace { path: PathBuf::from(workspace.to_string()) });
    }
    let thread = Thread {
        key: key.clone(),
        serializer: serializer.clone(),
        version: 0,
        created_at: at,
        updated_at: at,
        ttl_micros,
    };
    let seq = edit.insert_thread(&thread)?;
    Ok(ThreadRow { seq, thread, document: None, is_rewritten: false })
}
