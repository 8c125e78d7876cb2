//! TRIM: deletes threads and states, copies threads, and lets old ones go. Checkpoints that hold them stay.

use super::existing;
use super::values::Values;
use crate::handles::Threads;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{StateRow, ThreadEdit, ThreadRow, ThreadRows, Transaction, ValueRow};
use safepoint_model::Timestamp;
use safepoint_model::thread::{Thread, ThreadKey};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Removal of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Removal {
    /// They are deleted.
    #[default]
    Deleted,
    /// They are not listed any more, and stay for later states that are derived from them.
    Hidden,
}

/// States to keep of each namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepStates {
    /// Number of the newest states; the head is always kept.
    pub last: u64,
    /// Number of ancestors of a kept state that are hidden instead of deleted.
    pub hidden_ancestors: u64,
}

impl Default for KeepStates {
    fn default() -> Self {
        Self { last: 1, hidden_ancestors: 0 }
    }
}

impl Threads<'_> {
    /// Deletes a thread: its states, writes and values. Checkpoints that hold it can still restore its heads. Returns false if
    /// there was none.
    ///
    /// # Errors
    /// When the catalog fails; nothing is deleted then.
    pub fn delete(&self, thread: &str) -> Result<bool, Error> {
        let (key, at) = (self.key(thread)?, self.manager.environment.now());
        self.manager.delete_in(|transaction| match transaction.threads().thread(&key)? {
            Some(thread) => {
                transaction.edit_threads().delete_thread(&thread, at)?;
                Ok(true)
            }
            None => Ok(false),
        })
    }

    /// Removes the states that these runs saved, with their writes. Returns their number.
    ///
    /// # Errors
    /// When the catalog fails; nothing is removed then.
    pub fn delete_runs(&self, runs: &[String]) -> Result<u64, Error> {
        let (workspace, at) = (self.workspace, self.manager.environment.now());
        self.manager.delete_in(|transaction| {
            let (rows, edit) = (transaction.threads(), transaction.edit_threads());
            let mut of_threads: BTreeMap<ThreadKey, Vec<StateRow>> = BTreeMap::new();
            for state in rows.states_of_runs(workspace, runs)? {
                of_threads.entry(state.thread.clone()).or_default().push(state);
            }
            let mut removed = 0;
            for (key, states) in of_threads {
                let thread = existing(&rows, &key)?;
                let states: Vec<_> = states.into_iter().map(|state| (state, Removal::Deleted)).collect();
                removed += remove(&rows, &edit, &thread, &states, at)?;
            }
            Ok(removed)
        })
    }

    /// Removes states of a namespace by their ids. Returns their number.
    ///
    /// # Errors
    /// When there is no such thread, or the catalog fails; nothing is removed then.
    pub fn remove(
        &self,
        thread: &str,
        namespace: &str,
        ids: &[String],
        removal: Removal,
    ) -> Result<u64, Error> {
        let (key, at) = (self.key(thread)?, self.manager.environment.now());
        self.manager.delete_in(|transaction| {
            let (rows, edit) = (transaction.threads(), transaction.edit_threads());
            let thread = existing(&rows, &key)?;
            let mut states = Vec::new();
            for id in ids {
                states.extend(rows.state(thread.seq, namespace, id)?.map(|state| (state, removal)));
            }
            remove(&rows, &edit, &thread, &states, at)
        })
    }

    /// Removes the states of a thread but those to keep. Returns their number.
    ///
    /// # Errors
    /// When there is no such thread, or the catalog fails; nothing is removed then.
    pub fn prune(&self, thread: &str, keep: KeepStates) -> Result<u64, Error> {
        let (key, at) = (self.key(thread)?, self.manager.environment.now());
        self.manager.delete_in(|transaction| {
            let (rows, edit) = (transaction.threads(), transaction.edit_threads());
            let thread = existing(&rows, &key)?;
            let mut namespaces: BTreeMap<String, Vec<StateRow>> = BTreeMap::new();
            for state in rows.states(thread.seq)? {
                namespaces.entry(state.namespace.clone()).or_default().push(state);
            }
            let removed: Vec<_> =
                namespaces.into_values().flat_map(|states| to_remove(states, keep)).collect();
            remove(&rows, &edit, &thread, &removed, at)
        })
    }

    /// Copies all states, writes and heads of a thread to another one of the handle. States that it has already stay.
    ///
    /// # Errors
    /// When there is no such thread, the other one has another serializer, or the catalog fails.
    pub fn copy(&self, from: &str, to: &str) -> Result<(), Error> {
        let (from, to) = (self.key(from)?, self.key(to)?);
        let at = self.manager.environment.now();
        if from == to {
            return Ok(());
        }
        self.manager.catalog.write(|transaction| {
            let (rows, edit) = (transaction.threads(), transaction.edit_threads());
            let source = existing(&rows, &from)?;
            let target = match rows.thread(&to)? {
                Some(target) => target,
                None => {
                    let thread = Thread {
                        key: to.clone(),
                        version: 0,
                        created_at: at,
                        updated_at: at,
                        ..source.thread.clone()
                    };
                    let seq = edit.insert_thread(&thread)?;
                    ThreadRow { seq, thread, document: None, is_rewritten: false }
                }
            };
            if target.thread.serializer != source.thread.serializer {
                let why = "the threads have different serializers".to_owned();
                return Err(safepoint_model::ModelError::Value { what: "copy of a thread", why }.into());
            }
            copy_rows(&rows, &edit, &source, &target)?;
            Ok(edit.touch_thread(target.seq, at)?)
        })
    }

    /// Deletes the threads of the home and of all workspaces whose time to live is over. Returns their number.
    ///
    /// # Errors
    /// When the catalog fails; nothing is deleted then.
    pub fn expire(&self) -> Result<u64, Error> {
        self.manager.expire_threads()
    }
}

impl CheckpointManager {
    /// Runs a transaction that deletes values. What is in memory is deleted, too.
    pub(crate) fn delete_in<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let done = self.catalog.write(work);
        self.recall.forget();
        done
    }

    pub(crate) fn expire_threads(&self) -> Result<u64, Error> {
        // At the end of time every thread with a time to live is over.
        let end = Timestamp::from_micros(i64::MAX);
        if self.catalog.read_threads::<_, Error>(|rows| Ok(rows.expired(end)?))?.is_empty() {
            return Ok(0);
        }
        let at = self.environment.now();
        self.delete_in(|transaction| {
            let expired = transaction.threads().expired(at)?;
            let edit = transaction.edit_threads();
            expired.iter().try_for_each(|thread| edit.delete_thread(thread, at))?;
            Ok(expired.len() as u64)
        })
    }
}

/// Returns the states of a namespace to remove, given all in commit order.
fn to_remove(states: Vec<StateRow>, keep: KeepStates) -> Vec<(StateRow, Removal)> {
    let parents: HashMap<&str, Option<&str>> =
        states.iter().map(|state| (state.id.as_str(), state.parent.as_deref())).collect();
    let mut kept: BTreeSet<String> =
        states.iter().filter(|state| state.is_head).map(|state| state.id.clone()).collect();
    let last = usize::try_from(keep.last).unwrap_or(usize::MAX);
    for state in states.iter().rev().filter(|state| !state.hidden) {
        if kept.len() >= last {
            break;
        }
        kept.insert(state.id.clone());
    }
    let mut hidden: BTreeSet<String> = BTreeSet::new();
    for id in &kept {
        let mut next = parents.get(id.as_str()).copied().flatten();
        for _ in 0..keep.hidden_ancestors {
            let Some(id) = next else { break };
            if !hidden.insert(id.to_owned()) && !kept.contains(id) {
                break;
            }
            next = parents.get(id).copied().flatten();
        }
    }
    let removed = states.into_iter().filter(|state| !kept.contains(&state.id));
    removed
        .map(|state| {
            let removal = if hidden.contains(&state.id) { Removal::Hidden } else { Removal::Deleted };
            (state, removal)
        })
        .collect()
}

/// Removes states. A head moves to the nearest ancestor that stays, else to the newest state that stays.
fn remove(
    rows: &ThreadRows<'_>,
    edit: &ThreadEdit<'_>,
    thread: &ThreadRow,
    states: &[(StateRow, Removal)],
    at: Timestamp,
) -> Result<u64, Error> {
    if states.is_empty() {
        return Ok(0);
    }
    let gone: HashSet<u64> = states.iter().map(|(state, _)| state.seq).collect();
    let all = rows.states(thread.seq)?;
    for (head, _) in states.iter().filter(|(state, _)| state.is_head) {
        let here = |state: &&StateRow| {
            state.namespace == head.namespace && !gone.contains(&state.seq) && !state.hidden
        };
        let (mut ancestor, mut steps) = (head.parent.clone(), 0);
        let target = loop {
            let Some(id) = ancestor.filter(|_| steps < all.len()) else { break None };
            let found = all.iter().find(|state| state.namespace == head.namespace && state.id == id);
            match found {
                Some(state) if here(&state) => break Some(state),
                Some(state) => ancestor = state.parent.clone(),
                None => break None,
            }
            steps += 1;
        };
        match target.or_else(|| all.iter().rev().find(here)) {
            Some(state) => edit.set_thread_head(thread.seq, &head.namespace, state.seq)?,
            None => edit.remove_thread_head(thread.seq, &head.namespace)?,
        }
    }
    for (state, removal) in states {
        match removal {
            Removal::Deleted => edit.delete_state(state)?,
            Removal::Hidden => edit.hide_state(state.seq)?,
        }
    }
    edit.forget_chain(thread.seq)?;
    collect_values(rows, edit, thread.seq)?;
    edit.touch_thread(thread.seq, at)?;
    edit.note(thread, "thread.pruned", at, states.len())?;
    Ok(states.len() as u64)
}

/// Deletes the values of a thread that no state and no write names, and that no named value continues.
pub(crate) fn collect_values(
    rows: &ThreadRows<'_>,
    edit: &ThreadEdit<'_>,
    thread_seq: u64,
) -> Result<(), Error> {
    let mut named: HashSet<u64> = HashSet::new();
    for state in rows.states(thread_seq)? {
        named.insert(state.body);
        named.extend(state.channels.values().filter_map(|(_, value)| *value));
    }
    for (namespace, state) in rows.written_states(thread_seq)? {
        named.extend(rows.writes(thread_seq, &namespace, &state)?.into_iter().map(|write| write.value));
    }
    // A base has a smaller number than the value that continues it.
    for (seq, base) in rows.value_bases(thread_seq)?.into_iter().rev() {
        match named.contains(&seq) {
            true => named.extend(base),
            false => edit.delete_value(seq)?,
        }
    }
    Ok(())
}

fn copy_rows(
    rows: &ThreadRows<'_>,
    edit: &ThreadEdit<'_>,
    source: &ThreadRow,
    target: &ThreadRow,
) -> Result<(), Error> {
    let mut copies: HashMap<u64, u64> = HashMap::new();
    let mut copy = |namespace: &str, channel: Option<(&str, &str)>, seq: u64| {
        copy_value(rows, edit, (target.seq, namespace, channel), seq, &mut copies)
    };
    for state in rows.states(source.seq)? {
        let namespace = state.namespace.as_str();
        if rows.state(target.seq, namespace, &state.id)?.is_none() {
            let body = copy(namespace, None, state.body)?;
            let mut channels = BTreeMap::new();
            for (name, (version, value)) in &state.channels {
                let value = match value {
                    Some(value) => Some(copy(namespace, Some((name, version)), *value)?),
                    None => None,
                };
                channels.insert(name.clone(), (version.clone(), value));
            }
            edit.insert_state(&StateRow { thread_seq: target.seq, body, channels, ..state.clone() })?;
        }
        let copied = rows.state(target.seq, namespace, &state.id)?;
        if let Some(copied) = copied.filter(|_| state.is_head) {
            edit.set_thread_head(target.seq, namespace, copied.seq)?;
        }
    }
    for (namespace, state) in rows.written_states(source.seq)? {
        for mut write in rows.writes(source.seq, &namespace, &state)? {
            write.value = copy(&namespace, None, write.value)?;
            edit.insert_write(target.seq, &namespace, &state, &write)?;
        }
    }
    Ok(())
}

/// Copies a value after the one that it continues. The pieces are shared.
fn copy_value(
    rows: &ThreadRows<'_>,
    edit: &ThreadEdit<'_>,
    (thread_seq, namespace, channel): (u64, &str, Option<(&str, &str)>),
    seq: u64,
    copies: &mut HashMap<u64, u64>,
) -> Result<u64, Error> {
    if let Some(copied) = copies.get(&seq) {
        return Ok(*copied);
    }
    let mut chain: Vec<ValueRow> = vec![rows.value(seq)?];
    while let Some((base, _)) =
        chain.last().and_then(|value| value.base).filter(|(base, _)| !copies.contains_key(base))
    {
        chain.push(rows.value(base)?);
    }
    let mut copied = seq;
    for mut value in chain.into_iter().rev() {
        value.base = value.base.and_then(|(base, shared)| Some((*copies.get(&base)?, shared)));
        // Versions of values that only others continue are not known here.
        let channel = channel.filter(|_| value.seq == seq);
        copied = edit.insert_value(thread_seq, namespace, channel, &value)?;
        copies.insert(value.seq, copied);
    }
    Ok(copied)
}

/// Checks every value of all threads. Returns the numbers of those that cannot be read, with the reasons, and the pieces
/// that must be in the store.
pub(crate) fn check_values(
    values: &Values<'_>,
) -> Result<(Vec<String>, HashSet<safepoint_model::ObjectId>), Error> {
    let values = &Values { recall: None, ..*values };
    let (mut bad, mut packed) = (Vec::new(), HashSet::new());
    for seq in values.rows.value_numbers()? {
        match values.check(seq) {
            Ok(pieces) => packed.extend(pieces),
            Err(error) => bad.push(error.to_string()),
        }
    }
    Ok((bad, packed))
}
