//! CHAIN: ancestors that readers of a head need, such as the earlier batches of a conversation.
//!
//! The document of an ancestor names the one before it. A capture takes up the chain of the last checkpoint and adds what
//! is new. A rollback compares two chains up to the ancestor that they share.

use super::values::Values;
use crate::Error;
use safepoint_catalog::StateRow;
use safepoint_model::thread::{
    KeptAncestor, KeptChannel, KeptState, KeptWrite, ThreadDocument, needs_parent,
};
use safepoint_model::{ObjectError, ObjectId, ObjectSource, document};
use safepoint_store::Writer;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Ancestors of an old chain that are visited for each one of the new chain.
const STEPS: usize = 2;

/// Returns true if readers of a state need its parent, too.
fn is_continued(state: &StateRow) -> bool {
    needs_parent(state.parent.as_deref(), &state.channels)
}

/// Puts a state into a writer as the document of its thread names it, without its writes.
pub(crate) fn keep_state(
    values: &Values<'_>,
    state: StateRow,
    earlier: Option<ObjectId>,
    writer: &Writer<'_>,
) -> Result<KeptState, Error> {
    let mut channels = BTreeMap::new();
    for (name, (version, value)) in state.channels {
        let value = value.map(|value| values.keep(value, writer)).transpose()?;
        channels.insert(name, KeptChannel { version, value });
    }
    Ok(KeptState {
        namespace: state.namespace,
        id: state.id,
        parent: state.parent,
        run_id: state.run_id,
        metadata: state.metadata,
        body: values.keep(state.body, writer)?,
        channels,
        files: state.files,
        created_at: state.created_at,
        writes: Vec::new(),
        earlier,
    })
}

/// Chain of a namespace in an older document, read as far as needed.
struct Known<'k> {
    source: &'k dyn ObjectSource,
    /// State that was read last.
    last: Option<KeptState>,
    /// Its document, unless it is a head.
    seen: HashMap<String, (KeptState, Option<ObjectId>)>,
}

impl<'k> Known<'k> {
    fn new(document: Option<&ThreadDocument>, namespace: &str, source: &'k dyn ObjectSource) -> Self {
        let heads = document.map(|document| document.heads.as_slice()).unwrap_or_default();
        let head = heads.iter().find(|head| head.namespace == namespace).cloned();
        let mut known = Self { source, last: None, seen: HashMap::new() };
        if let Some(head) = head {
            known.note(KeptState { writes: Vec::new(), ..head }, None);
        }
        known
    }

    fn note(&mut self, state: KeptState, id: Option<ObjectId>) {
        self.last = Some(state.clone());
        self.seen.insert(state.id.clone(), (state, id));
    }

    fn step(&mut self) -> Result<(), ObjectError> {
        if let Some(id) = self.last.take().and_then(|state| state.earlier) {
            self.note(KeptAncestor::load(self.source, id)?.state, Some(id));
        }
        Ok(())
    }

    /// Returns the document of a state, if the chain has it as it is now.
    fn document_of(&mut self, state: &StateRow, writer: &Writer<'_>) -> Result<Option<ObjectId>, Error> {
        for _ in 0..STEPS {
            self.step()?;
        }
        let Some((kept, id)) = self.seen.get(&state.id) else { return Ok(None) };
        let is_same = (&kept.parent, &kept.run_id, kept.created_at)
            == (&state.parent, &state.run_id, state.created_at)
            && (&kept.metadata, kept.files, kept.earlier.is_some())
                == (&state.metadata, state.files, is_continued(state));
        Ok(match (is_same, id) {
            (false, _) => None,
            (true, Some(id)) => Some(*id),
            (true, None) => Some(document::store(writer, &KeptAncestor::new(kept.clone()))?),
        })
    }
}

/// Parent of a state, if readers need it.
pub(crate) struct Link<'l> {
    pub(crate) thread_seq: u64,
    pub(crate) namespace: &'l str,
    pub(crate) parent: Option<&'l str>,
}

impl<'l> Link<'l> {
    pub(crate) fn of(state: &'l StateRow) -> Self {
        let parent = state.parent.as_deref().filter(|_| is_continued(state));
        Self { thread_seq: state.thread_seq, namespace: &state.namespace, parent }
    }
}

/// Puts the writes for a state into a writer.
pub(crate) fn keep_writes(
    values: &Values<'_>,
    (thread_seq, namespace, state): (u64, &str, &str),
    writer: &Writer<'_>,
) -> Result<Vec<KeptWrite>, Error> {
    let mut writes = Vec::new();
    for write in values.rows.writes(thread_seq, namespace, state)? {
        writes.push(KeptWrite {
            task_id: write.task_id,
            index: write.index,
            channel: write.channel,
            value: values.keep(write.value, writer)?,
            task_path: write.task_path,
        });
    }
    Ok(writes)
}

/// Puts the ancestors that readers of a head need into a writer. Returns the document of its parent.
pub(crate) fn keep_ancestors(
    values: &Values<'_>,
    head: &Link<'_>,
    last: Option<&ThreadDocument>,
    writer: &Writer<'_>,
) -> Result<Option<ObjectId>, Error> {
    let mut known = Known::new(last, head.namespace, writer);
    let (mut new, mut seen) = (Vec::new(), HashSet::new());
    let (mut earlier, mut next) = (None, head.parent.map(str::to_owned));
    while let Some(parent) = next {
        let state = values.rows.state(head.thread_seq, head.namespace, &parent)?;
        // Programs choose the ids, and could make a circle of them.
        let Some(state) = state.filter(|state| seen.insert(state.seq)) else { break };
        earlier = known.document_of(&state, writer)?;
        if earlier.is_some() {
            break;
        }
        next = Link::of(&state).parent.map(str::to_owned);
        new.push(state);
    }
    for state in new.into_iter().rev() {
        let kept = keep_state(values, state, earlier, writer)?;
        earlier = Some(document::store(writer, &KeptAncestor::new(kept))?);
    }
    Ok(earlier)
}

/// Returns the ancestors of a head that another document has not, oldest first.
pub(crate) fn ancestors(
    head: &KeptState,
    other: Option<&ThreadDocument>,
    source: &dyn ObjectSource,
) -> Result<Vec<KeptState>, ObjectError> {
    let heads = other.map(|document| document.heads.as_slice()).unwrap_or_default();
    let same = heads.iter().find(|other| other.namespace == head.namespace);
    let (mut next, mut other) = (head.earlier, same.and_then(|head| head.earlier));
    let (mut found, mut shared) = (Vec::new(), HashSet::new());
    while let Some(id) = next {
        for _ in 0..STEPS {
            if let Some(id) = other {
                shared.insert(id);
                other = KeptAncestor::load(source, id)?.state.earlier;
            }
        }
        if shared.contains(&id) {
            break;
        }
        let state = KeptAncestor::load(source, id)?.state;
        next = state.earlier;
        found.push(state);
    }
    found.reverse();
    Ok(found)
}

/// Visits every ancestor that a document needs, newest first. `enter` is asked before each, and ends its chain if false.
pub(crate) fn each_ancestor<E: From<ObjectError>>(
    document: &ThreadDocument,
    source: &dyn ObjectSource,
    visit: &mut dyn FnMut(Visit<'_>) -> Result<bool, E>,
) -> Result<(), E> {
    for head in &document.heads {
        let mut next = head.earlier;
        while let Some(id) = next {
            if !visit(Visit::Document(id))? {
                break;
            }
            let state = KeptAncestor::load(source, id)?.state;
            visit(Visit::State(&state))?;
            next = state.earlier;
        }
    }
    Ok(())
}

/// Step of a walk over ancestors.
pub(crate) enum Visit<'v> {
    /// Document of the next one, which is not read yet. The chain ends here if the visitor returns false.
    Document(ObjectId),
    /// State in it.
    State(&'v KeptState),
}
