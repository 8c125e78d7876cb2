//! Threads in a layout: the document, the ancestors of its heads, and each of their contents as a file beside it.

use super::reading::Reading;
use super::rows::ContentRow;
use super::{DOCUMENT_BYTES_MAX, LIST_BYTES_MAX, LayoutError, beside};
use crate::Error;
use crate::threads::chain::{Visit, each_ancestor};
use crate::threads::values::put_bytes;
use safepoint_model::checkpoint::{PartKind, PartRecord};
use safepoint_model::content::Content;
use safepoint_model::thread::{KeptAncestor, KeptState, THREAD_VALUE_BYTES_MAX, ThreadDocument, ThreadKey};
use safepoint_model::{ObjectId, ObjectSink, ObjectSource, RelPath, WorkspaceId, document};
use std::collections::{HashMap, HashSet};

/// Ancestors of all heads, oldest first.
pub(super) const ANCESTORS: &str = ".ancestors.json";

/// Returns the path of a content.
pub(super) fn content_path(document: &RelPath, number: usize) -> RelPath {
    beside(document, &format!(".{number}.bin"))
}

/// Returns the ancestors that a document needs, each once and after the one before it.
pub(super) fn ancestors_of(
    document: &ThreadDocument,
    source: &dyn ObjectSource,
) -> Result<Vec<KeptAncestor>, Error> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    each_ancestor::<Error>(document, source, &mut |step| {
        match step {
            Visit::Document(id) => return Ok(seen.insert(id)),
            Visit::State(state) => found.push(KeptAncestor::new(state.clone())),
        }
        Ok(true)
    })?;
    found.reverse();
    Ok(found)
}

/// Returns the contents of a document and of its ancestors, in the order of their files.
pub(super) fn contents_of(document: &ThreadDocument, ancestors: &[KeptAncestor]) -> Vec<Content> {
    let states = document.heads.iter().chain(ancestors.iter().map(|ancestor| &ancestor.state));
    states.flat_map(KeptState::contents).collect()
}

/// Stores the ancestors of a layout. Every one must be needed, and must come after the one before it.
fn take_ancestors(
    reading: &mut Reading,
    at: &RelPath,
    kept: &ThreadDocument,
    sink: &dyn ObjectSink,
) -> Result<Vec<KeptAncestor>, Error> {
    if kept.heads.iter().all(|head| head.earlier.is_none()) {
        return Ok(Vec::new());
    }
    let file = beside(at, ANCESTORS);
    let bad = |why: &str| Error::from(LayoutError::bad(&file, why));
    let ancestors: Vec<KeptAncestor> = reading.document(&file, LIST_BYTES_MAX)?;
    let mut needed: HashMap<ObjectId, bool> = HashMap::new();
    let note = |earlier: Option<ObjectId>, needed: &mut HashMap<ObjectId, bool>| match earlier {
        Some(id) => needed.get_mut(&id).map(|is_needed| *is_needed = true),
        None => Some(()),
    };
    for ancestor in &ancestors {
        ancestor.check().map_err(|error| bad(&error.to_string()))?;
        note(ancestor.state.earlier, &mut needed)
            .ok_or_else(|| bad("an ancestor names one that does not come before it"))?;
        needed.insert(document::store(sink, ancestor)?, false);
    }
    for head in &kept.heads {
        note(head.earlier, &mut needed).ok_or_else(|| bad("an ancestor of a head is missing"))?;
    }
    match needed.values().all(|is_needed| *is_needed) {
        true => Ok(ancestors),
        false => Err(bad("it lists an ancestor that no state names")),
    }
}

/// Takes a thread from a layout. It belongs to this workspace from now on.
pub(super) fn take(
    reading: &mut Reading,
    row: &ContentRow,
    workspace: WorkspaceId,
    sink: &dyn ObjectSink,
) -> Result<PartRecord, Error> {
    let kept: ThreadDocument = reading.document(&row.path, DOCUMENT_BYTES_MAX)?;
    kept.check().map_err(|error| LayoutError::bad(&row.path, error.to_string()))?;
    let ancestors = take_ancestors(reading, &row.path, &kept, sink)?;
    let contents = contents_of(&kept, &ancestors);
    for (number, content) in contents.iter().enumerate() {
        let file = content_path(&row.path, number);
        let bytes = reading.bytes(&file, THREAD_VALUE_BYTES_MAX as u64)?;
        let put: Content = put_bytes(sink, &bytes)?;
        if put != *content {
            return Err(LayoutError::bad(&file, "it is not the value that the document names").into());
        }
    }
    let id = document::store(sink, &kept)?;
    let key = ThreadKey::new(Some(workspace), &kept.id)
        .map_err(|error| LayoutError::bad(&row.path, error.to_string()))?;
    Ok(PartRecord { kind: PartKind::Thread, key: key.part_key(), document: id })
}
