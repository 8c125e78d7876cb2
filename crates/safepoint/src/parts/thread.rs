//! A thread as a part of a checkpoint: the head of each namespace with its writes, restored by the transaction that commits
//! everything.
//!
//! A rollback moves heads and deletes no state: those after the target stay, and an undo moves the heads back. A head
//! that was pruned since is inserted again from the document.

use crate::parts::kinds::{Kind, RecordsBack, RecordsNow};
use crate::parts::part::{Captured, Left, Part, Prepared, PutBack};
use crate::parts::{Member, Nothing};
use crate::rollback::Request;
use crate::rollback::scene::Scene;
use crate::threads::StateKey;
use crate::threads::chain::{self, Link};
use crate::threads::save::PreparedSave;
use crate::threads::values::{CutValue, Values};
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{StateRow, ThreadEdit, ThreadRows, Transaction, Workspace, WriteRow};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::thread::{KeptState, KeptValue, Thread, ThreadDocument, ThreadKey, ThreadValue};
use safepoint_model::{CheckpointId, ObjectId, ObjectSource, Progress, Timestamp, WorkspaceId, document};
use safepoint_planted::planted;
use safepoint_store::Writer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A restored thread, or a preview of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadBack {
    /// Thread.
    pub key: ThreadKey,
    /// Heads that move, with the id of the state before and afterwards, by namespace.
    pub heads: BTreeMap<String, (Option<String>, Option<String>)>,
}

/// Target of a thread's rollback.
#[derive(Clone)]
pub(crate) enum ThreadGoal {
    /// The document of the checkpoint.
    Document,
    /// One state as the head of its namespace; the other heads stay.
    State { namespace: String, id: String },
    /// One that is saved now, with the files of this checkpoint.
    Save { saving: Arc<PreparedSave>, files: CheckpointId },
}

/// Selection of threads to capture.
#[derive(Clone, Copy)]
pub(crate) enum Captures<'a> {
    /// No thread.
    Nothing,
    /// All that are bound to a workspace.
    Of(WorkspaceId),
    /// All threads of the home.
    Everything,
    /// The one whose state is saved.
    Saving(&'a PreparedSave),
}

/// Threads, as a kind.
pub(crate) struct ThreadParts;

impl Kind for ThreadParts {
    fn capture_records<'m>(
        &self,
        records: &RecordsNow<'_, 'm>,
        members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        let manager = records.manager;
        let read = |alone| {
            manager.catalog.read_threads::<_, Error>(|rows| match alone {
                Some(_) => Ok(rows.threads(alone)?),
                None => Ok(rows.all_threads()?),
            })
        };
        let rows = match records.threads {
            Captures::Nothing => return Ok(()),
            Captures::Saving(saving) => {
                let part = ThreadPart::new(manager, saving.key.clone(), ThreadGoal::Document);
                members.push(Member::new(ThreadPart { saving: Some(saving), ..part }, 0, None));
                return Ok(());
            }
            Captures::Of(workspace) => read(Some(workspace))?,
            Captures::Everything => read(None)?,
        };
        for row in rows {
            let part = ThreadPart::new(manager, row.thread.key, ThreadGoal::Document);
            members.push(Member::new(part, 0, None));
        }
        Ok(())
    }

    /// A thread has no folder of its own: the first one stands for it.
    fn stays_in(
        &self,
        _: &CheckpointManager,
        request: &Request<'_>,
        _: &Workspace,
        is_first: bool,
    ) -> Result<bool, Error> {
        Ok(is_first && request.options.parts.contains(&PartKind::Thread))
    }

    /// A requested state takes the place of the threads in the checkpoint.
    fn find_records(
        &self,
        _: &CheckpointManager,
        request: &Request<'_>,
        scene: &mut Scene,
        _: &mut Vec<Warning>,
    ) -> Result<(), Error> {
        if !request.options.wants(PartKind::Thread) {
            return Ok(());
        }
        let to = &request.to;
        if let Some((StateKey { thread, namespace, id }, saving)) = &request.state {
            let goal = match saving {
                Some(saving) => ThreadGoal::Save { saving: Arc::clone(saving), files: to.id },
                None => ThreadGoal::State { namespace: namespace.clone(), id: id.clone() },
            };
            scene.threads.push((thread.clone(), goal, to.integrity));
            return Ok(());
        }
        let is_named = request.options.parts.contains(&PartKind::Thread);
        if request.alone().is_some() && is_named && to.count(PartKind::Thread) == 0 {
            return Err(Error::NoPart { checkpoint: to.id, part: PartKind::Thread });
        }
        for part in to.parts.iter().filter(|part| is_thread(part)) {
            if let Some(key) = ThreadKey::from_part_key(&part.key) {
                scene.threads.push((key, ThreadGoal::Document, part.document));
            }
        }
        Ok(())
    }

    fn roll_back_records<'m>(&self, records: &RecordsBack<'_, 'm>, members: &mut Vec<Member<'m>>) {
        for (key, goal, target) in records.scene.threads.iter().cloned() {
            members.push(Member::new(ThreadPart::new(records.manager, key, goal), 0, Some(target)));
        }
    }
}

/// Returns true if a part holds a thread.
pub(crate) fn is_thread(part: &PartRecord) -> bool {
    part.kind == PartKind::Thread
}

/// State of a thread at the time of its capture.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// Number and version, or `None` if it did not exist.
    row: Option<(u64, u64)>,
    document: ObjectId,
}

/// A thread, as a part.
pub(crate) struct ThreadPart<'m> {
    manager: &'m CheckpointManager,
    key: ThreadKey,
    goal: ThreadGoal,
    /// State that becomes a head with the checkpoint.
    saving: Option<&'m PreparedSave>,
    seen: Mutex<Option<Seen>>,
}

impl<'m> ThreadPart<'m> {
    pub(crate) fn new(manager: &'m CheckpointManager, key: ThreadKey, goal: ThreadGoal) -> Self {
        Self { manager, key, goal, saving: None, seen: Mutex::default() }
    }

    fn seen(&self) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn document(
        &self,
        values: &Values<'_>,
        writer: &Writer<'_>,
    ) -> Result<(Option<(u64, u64)>, ObjectId), Error> {
        let thread = values.rows.thread(&self.key)?;
        let seen = thread.as_ref().map(|thread| (thread.seq, thread.thread.version));
        // A collection keeps what a checkpoint names, and may take what none does.
        let last = values.rows.last_document(&self.key)?;
        let known = thread.as_ref().and_then(|thread| thread.document);
        if let Some(known) = known.filter(|known| self.saving.is_none() && last == Some(*known))
            && self.manager.store.contains(known)?
        {
            return Ok((seen, known));
        }
        // The documents of ancestors name what they continue: after a change there, all are made again.
        let is_rewritten = thread.as_ref().is_some_and(|thread| thread.is_rewritten);
        let last = last.filter(|_| !is_rewritten);
        let last = last.and_then(|last| ThreadDocument::load(&self.manager.store, last).ok());
        let mut heads: BTreeMap<String, KeptState> = BTreeMap::new();
        for state in values.rows.heads(thread.as_ref().map_or(0, |thread| thread.seq))? {
            if self.saving.is_none_or(|saving| saving.namespace() != state.namespace) {
                let namespace = state.namespace.clone();
                heads.insert(namespace, keep_head(values, state, last.as_ref(), writer)?);
            }
        }
        if let Some(saving) = self.saving {
            let seq = thread.as_ref().map(|thread| thread.seq);
            let head = saving.keep(values, seq, last.as_ref(), writer)?;
            heads.insert(saving.namespace().to_owned(), head);
        }
        let now = self.saving.map_or_else(|| self.manager.environment.now(), PreparedSave::saved_at);
        let serializer = thread.as_ref().and_then(|thread| thread.thread.serializer.clone());
        let kept = ThreadDocument {
            format: ThreadDocument::FORMAT,
            id: self.key.id.clone(),
            serializer: serializer.or_else(|| self.saving.and_then(|saving| saving.serializer().cloned())),
            created_at: thread.map_or(now, |thread| thread.thread.created_at),
            heads: heads.into_values().collect(),
        };
        Ok((seen, document::store(writer, &kept)?))
    }
}

impl Part for ThreadPart<'_> {
    fn kind(&self) -> PartKind {
        PartKind::Thread
    }

    fn key(&self) -> String {
        self.key.part_key()
    }

    fn capture(&self, writer: &Writer<'_>, _: Option<ObjectId>, _: &dyn Progress) -> Result<Captured, Error> {
        let (row, document) = self.manager.read_values(|values| self.document(values, writer))?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Seen { row, document });
        Ok(Captured::document(document))
    }

    fn commit(&self, transaction: &Transaction<'_>, checkpoint: &Checkpoint) -> Result<(), Error> {
        if let Some(saving) = self.saving {
            // Its pieces are in a pack by now.
            self.manager.publish_state(transaction, saving, checkpoint.id)?;
        } else if let Some(Seen { row: Some((seq, version)), document }) = self.seen() {
            // The next checkpoint of an unchanged thread names the same document.
            transaction.edit_threads().set_thread_document(seq, version, document)?;
        }
        Ok(())
    }

    fn prepare<'p>(
        &'p self,
        now: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        let (Some(now), Some(seen)) = (now, self.seen()) else { return Ok(Box::new(Nothing)) };
        let now = ThreadDocument::load(writer, now)?;
        let then = match &self.goal {
            ThreadGoal::Document => {
                Then::Document(load_kept(ThreadDocument::load(writer, target)?, Some(&now), writer)?)
            }
            ThreadGoal::State { namespace, id } => {
                Then::State { namespace: namespace.clone(), id: id.clone() }
            }
            ThreadGoal::Save { saving, files } => Then::Save { saving: Arc::clone(saving), files: *files },
        };
        let heads = moves(&now, &then);
        let at = self.manager.environment.now();
        Ok(Box::new(ThreadRollback {
            part: self,
            then,
            heads,
            is_same: then_is(&now, target, writer),
            seen,
            at,
        }))
    }

    fn resume<'p>(&'p self, _: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(Nothing))
    }
}

/// Target of a rollback, in memory.
enum Then {
    Document(Kept),
    State { namespace: String, id: String },
    Save { saving: Arc<PreparedSave>, files: CheckpointId },
}

/// Document with its values.
struct Kept {
    document: ThreadDocument,
    /// Ancestors that may be missing, oldest first.
    ancestors: Vec<KeptState>,
    values: BTreeMap<ObjectId, ThreadValue>,
}

/// Rollback of a thread.
struct ThreadRollback<'p> {
    part: &'p ThreadPart<'p>,
    then: Then,
    heads: BTreeMap<String, (Option<String>, Option<String>)>,
    /// True if the document is that of the current state.
    is_same: bool,
    seen: Seen,
    at: Timestamp,
}

fn then_is(now: &ThreadDocument, target: ObjectId, writer: &Writer<'_>) -> bool {
    ThreadDocument::load(writer, target).is_ok_and(|then| then.heads == now.heads)
}

/// Heads that differ, by namespace.
fn moves(now: &ThreadDocument, then: &Then) -> BTreeMap<String, (Option<String>, Option<String>)> {
    let ids = |document: &ThreadDocument| -> BTreeMap<String, String> {
        document.heads.iter().map(|head| (head.namespace.clone(), head.id.clone())).collect()
    };
    let before = ids(now);
    let after = match then {
        Then::Document(kept) => ids(&kept.document),
        Then::State { namespace, id } => with_head(&before, namespace, id),
        Then::Save { saving, .. } => with_head(&before, saving.namespace(), saving.id()),
    };
    let mut moves = BTreeMap::new();
    for namespace in before.keys().chain(after.keys()) {
        let (from, to) = (before.get(namespace).cloned(), after.get(namespace).cloned());
        if from != to {
            moves.insert(namespace.clone(), (from, to));
        }
    }
    moves
}

/// Heads with another one in a namespace.
fn with_head(before: &BTreeMap<String, String>, namespace: &str, id: &str) -> BTreeMap<String, String> {
    let mut after = before.clone();
    after.insert(namespace.to_owned(), id.to_owned());
    after
}

impl ThreadRollback<'_> {
    fn is_idle(&self) -> bool {
        match self.then {
            Then::Document(_) => self.heads.is_empty() && self.is_same,
            Then::State { .. } => self.heads.is_empty(),
            Then::Save { .. } => false,
        }
    }

    fn put_state_back(&self, transaction: &Transaction<'_>, namespace: &str, id: &str) -> Result<(), Error> {
        let (rows, edit) = (transaction.threads(), transaction.edit_threads());
        let key = &self.part.key;
        let thread = crate::threads::existing(&rows, key)?;
        let missing = || Error::NoState { thread: key.id.clone(), id: id.to_owned() };
        let state = rows.state(thread.seq, namespace, id)?.ok_or_else(missing)?;
        edit.set_thread_head(thread.seq, namespace, state.seq)?;
        Ok(edit.touch_thread(thread.seq, self.at)?)
    }

    fn put_document_back(&self, transaction: &Transaction<'_>, kept: &Kept) -> Result<(), Error> {
        let (rows, edit) = (transaction.threads(), transaction.edit_threads());
        let document = &kept.document;
        let seq = match rows.thread(&self.part.key)? {
            Some(thread) => thread.seq,
            None if document.heads.is_empty() => return Ok(()),
            None => edit.insert_thread(&thread_of(&self.part.key, document, self.at))?,
        };
        let values = self.part.manager.values(rows);
        Restore { values, edit, key: &self.part.key, seq, kept }.states()?;
        let is_kept = |namespace: &str| document.heads.iter().any(|head| head.namespace == namespace);
        for state in rows.heads(seq)?.into_iter().filter(|state| !is_kept(&state.namespace)) {
            edit.remove_thread_head(seq, &state.namespace)?;
        }
        crate::threads::trim::collect_values(&rows, &edit, seq)?;
        Ok(edit.touch_thread(seq, self.at)?)
    }
}

impl Prepared for ThreadRollback<'_> {
    fn put_back(&self) -> Option<PutBack> {
        let back = ThreadBack { key: self.part.key.clone(), heads: self.heads.clone() };
        (!self.is_idle()).then_some(PutBack::Thread(back))
    }

    /// A thread that was saved to since is not the one in the safety checkpoint.
    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let now = transaction.threads().thread(&self.part.key)?;
        match now.map(|thread| (thread.seq, thread.thread.version)) == self.seen.row {
            true => Ok(()),
            false => Err(Error::ThreadChanged { id: self.part.key.id.clone() }),
        }
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.intend(transaction)?;
        match &self.then {
            _ if self.is_idle() || planted!("thread-head-not-moved") => Ok(()),
            Then::State { namespace, id } => self.put_state_back(transaction, namespace, id),
            Then::Save { saving, files } => {
                self.part.manager.publish_state(transaction, saving, *files).map(drop)
            }
            Then::Document(kept) => self.put_document_back(transaction, kept),
        }
    }
}

/// Insertion of what a document has, and the tables lack.
struct Restore<'r> {
    values: Values<'r>,
    edit: ThreadEdit<'r>,
    key: &'r ThreadKey,
    seq: u64,
    kept: &'r Kept,
}

impl Restore<'_> {
    fn states(&self) -> Result<(), Error> {
        for state in &self.kept.ancestors {
            let known = self.values.rows.state(self.seq, &state.namespace, &state.id)?;
            let is_same = known.as_ref().map(|known| self.is_same_state(known, state)).transpose()?;
            if is_same != Some(true) {
                self.edit.forget_chain(self.seq)?;
                self.state(state, known.as_ref())?;
            }
        }
        self.kept.document.heads.iter().try_for_each(|head| self.head(head))
    }

    fn head(&self, head: &KeptState) -> Result<(), Error> {
        let rows = &self.values.rows;
        let known = rows.state(self.seq, &head.namespace, &head.id)?;
        let seq = match known {
            Some(state) if self.is_same_state(&state, head)? => {
                let shown = StateRow { hidden: false, ..state };
                self.edit.insert_state(&shown)?
            }
            known => self.state(head, known.as_ref())?,
        };
        self.writes(rows, head)?;
        Ok(self.edit.set_thread_head(self.seq, &head.namespace, seq)?)
    }

    /// Returns true if the table has the state as the document has it.
    fn is_same_state(&self, state: &StateRow, head: &KeptState) -> Result<bool, Error> {
        let versions = |state: &StateRow| -> BTreeMap<String, String> {
            state.channels.iter().map(|(name, (version, _))| (name.clone(), version.clone())).collect()
        };
        let kept: BTreeMap<String, String> =
            head.channels.iter().map(|(name, channel)| (name.clone(), channel.version.clone())).collect();
        Ok(state.parent == head.parent
            && state.metadata == head.metadata
            && versions(state) == kept
            && self.values.load(state.body)? == self.value(&head.body))
    }

    fn value(&self, kept: &KeptValue) -> ThreadValue {
        let mut value = self.kept.values.get(&kept.content.id).cloned().unwrap_or_default();
        value.encoding.clone_from(&kept.encoding);
        value
    }

    fn insert(
        &self,
        head: &KeptState,
        channel: Option<(&str, &str)>,
        kept: &KeptValue,
    ) -> Result<u64, Error> {
        let cut = CutValue::new(self.value(kept))?;
        Ok(self.values.insert(&self.edit, self.seq, &head.namespace, channel, &cut)?.0)
    }

    fn state(&self, head: &KeptState, known: Option<&StateRow>) -> Result<u64, Error> {
        let mut channels = BTreeMap::new();
        for (name, channel) in &head.channels {
            let value = match &channel.value {
                Some(value) => Some(self.insert(head, Some((name, &channel.version)), value)?),
                None => None,
            };
            channels.insert(name.clone(), (channel.version.clone(), value));
        }
        Ok(self.edit.insert_state(&StateRow {
            seq: 0,
            thread_seq: self.seq,
            thread: self.key.clone(),
            namespace: head.namespace.clone(),
            id: head.id.clone(),
            parent: head.parent.clone(),
            run_id: head.run_id.clone(),
            metadata: head.metadata.clone(),
            body: self.insert(head, None, &head.body)?,
            channels,
            files: head.files.or(known.and_then(|known| known.files)),
            files_pruned: false,
            hidden: false,
            is_head: true,
            created_at: head.created_at,
        })?)
    }

    /// Makes the writes for the state those of the document.
    fn writes(&self, rows: &ThreadRows<'_>, head: &KeptState) -> Result<(), Error> {
        let now = rows.writes(self.seq, &head.namespace, &head.id)?;
        let is_same = now.len() == head.writes.len()
            && now.iter().zip(&head.writes).all(|(now, then)| {
                (&now.task_id, now.index, &now.channel) == (&then.task_id, then.index, &then.channel)
                    && self.values.load(now.value).is_ok_and(|value| value == self.value(&then.value))
            });
        if is_same {
            return Ok(());
        }
        self.edit.delete_writes(self.seq, &head.namespace, &head.id)?;
        for write in &head.writes {
            let row = WriteRow {
                task_id: write.task_id.clone(),
                index: write.index,
                channel: write.channel.clone(),
                value: self.insert(head, None, &write.value)?,
                task_path: write.task_path.clone(),
            };
            self.edit.insert_write(self.seq, &head.namespace, &head.id, &row)?;
        }
        Ok(())
    }
}

fn thread_of(key: &ThreadKey, document: &ThreadDocument, at: Timestamp) -> Thread {
    Thread {
        key: key.clone(),
        serializer: document.serializer.clone(),
        version: 0,
        created_at: document.created_at,
        updated_at: at,
        ttl_micros: None,
    }
}

fn keep_head(
    values: &Values<'_>,
    state: StateRow,
    last: Option<&ThreadDocument>,
    writer: &Writer<'_>,
) -> Result<KeptState, Error> {
    let writes = chain::keep_writes(values, (state.thread_seq, &state.namespace, &state.id), writer)?;
    let earlier = chain::keep_ancestors(values, &Link::of(&state), last, writer)?;
    Ok(KeptState { writes, ..chain::keep_state(values, state, earlier, writer)? })
}

/// Loads the values of a document, and those of the ancestors that the current one has not.
fn load_kept(
    document: ThreadDocument,
    now: Option<&ThreadDocument>,
    source: &dyn ObjectSource,
) -> Result<Kept, Error> {
    let mut ancestors = Vec::new();
    for head in &document.heads {
        ancestors.extend(chain::ancestors(head, now, source)?);
    }
    let mut values = BTreeMap::new();
    for state in ancestors.iter().chain(&document.heads) {
        let channels = state.channels.values().filter_map(|channel| channel.value.as_ref());
        let writes = state.writes.iter().map(|write| &write.value);
        for value in channels.chain(writes).chain([&state.body]) {
            values.insert(value.content.id, value.load(source)?);
        }
    }
    Ok(Kept { document, ancestors, values })
}

impl CheckpointManager {
    /// Inserts the threads of documents that the catalog lacks.
    pub(crate) fn restore_thread(
        &self,
        transaction: &Transaction<'_>,
        key: &ThreadKey,
        document: ObjectId,
    ) -> Result<(), Error> {
        let (rows, edit) = (transaction.threads(), transaction.edit_threads());
        if rows.thread(key)?.is_some() {
            return Ok(());
        }
        let document = ThreadDocument::load(&self.store, document)?;
        if document.heads.is_empty() {
            return Ok(());
        }
        let at = self.environment.now();
        let seq = edit.insert_thread(&thread_of(key, &document, at))?;
        let kept = load_kept(document, None, &self.store)?;
        Restore { values: self.values(rows), edit, key, seq, kept: &kept }.states()
    }
}
