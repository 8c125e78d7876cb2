//! Layer of an attempt: an overlay's upper directory, read alone and put upon the state that it began with.
//!
//! Input: the tree of that state, and what a walk of the upper directory found. Output: the tree that the attempt
//! made. Only directories that the layer holds are loaded, so that the cost grows with the changes. The lower
//! directory is never read: the project may have changed since.

use super::{Scan, Walked};
use crate::error::WorkspaceError;
use safepoint_model::change::{self, Delta};
use safepoint_model::coverage::{Coverage, Skipped, Why};
use safepoint_model::tree::{Entry, Node, Owners, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectSink, ObjectSource, RelPath};
use std::collections::{BTreeMap, BTreeSet};

/// State below a layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerBase<'a> {
    /// Tree of its root.
    pub tree: ObjectId,
    /// Entries that it does not hold.
    pub coverage: &'a Coverage,
    /// Entries in it.
    pub count: u64,
    /// Bytes in its files.
    pub bytes: u64,
}

impl LayerBase<'_> {
    /// Returns the reason why the state does not hold a directory, if its mark may be missing in the layer.
    pub(super) fn left_out(&self, path: &RelPath) -> Option<Why> {
        let marked = |why| matches!(why, Why::CacheDirectory | Why::OtherHome | Why::MountPoint);
        let skipped = &self.coverage.skipped;
        skipped.iter().find(|skipped| marked(skipped.why) && skipped.path == *path).map(|skipped| skipped.why)
    }
}

/// Puts a layer upon the state below it.
pub(super) fn upon<S: ObjectSink + ObjectSource>(
    store: &S,
    base: &LayerBase<'_>,
    walked: Walked,
) -> Result<Scan, WorkspaceError> {
    let Walked { mut scan, opaque } = walked;
    let hidden: BTreeMap<RelPath, Why> =
        scan.snapshot.coverage.skipped.drain(..).map(|skipped| (skipped.path, skipped.why)).collect();
    let merging = Merging { store, hidden: &hidden, opaque: opaque.iter().cloned().collect() };
    let Some(layer) = scan.snapshot.tree() else { return Ok(scan) };
    let tree = merging.directory(&RelPath::root(), Some(base.tree), layer)?;
    scan.snapshot.root.node = Node::Directory(tree);
    scan.snapshot.coverage.skipped = merging.coverage(base);
    (scan.count, scan.bytes) = totals(store, base, tree)?;
    scan.cache = None;
    Ok(scan)
}

struct Merging<'a, S> {
    store: &'a S,
    /// Names of the layer that are not in its tree: deleted ones, and those that it leaves out.
    hidden: &'a BTreeMap<RelPath, Why>,
    opaque: BTreeSet<RelPath>,
}

impl<S: ObjectSink + ObjectSource> Merging<'_, S> {
    /// Returns the tree of a directory that the layer holds.
    fn directory(
        &self,
        path: &RelPath,
        below: Option<ObjectId>,
        layer: ObjectId,
    ) -> Result<ObjectId, ObjectError> {
        let below = below.filter(|_| !self.opaque.contains(path));
        let Some(below) = below else { return Ok(layer) };
        let mut entries: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
        for entry in Tree::load(self.store, below)?.into_entries() {
            if !self.hidden.contains_key(&joined(path, &entry.name)?) {
                entries.insert(entry.name.clone(), entry);
            }
        }
        for mut entry in Tree::load(self.store, layer)?.into_entries() {
            if let (Node::Directory(above), Some(Node::Directory(under))) =
                (&entry.node, entries.get(&entry.name).map(|entry| &entry.node))
            {
                entry.node =
                    Node::Directory(self.directory(&joined(path, &entry.name)?, Some(*under), *above)?);
            }
            entries.insert(entry.name.clone(), entry);
        }
        let put: Vec<ObjectId> = Vec::new();
        let tree = Tree::new(entries.into_values().collect())
            .map_err(|error| ObjectError::Store(Box::new(error)))?;
        self.store.put_tree(&tree.encode(), &put)
    }

    /// Returns what the result does not hold: what the layer leaves out, and what the state below left out where the layer does
    /// not hide it.
    fn coverage(&self, base: &LayerBase<'_>) -> Vec<Skipped> {
        let is_hidden = |path: &RelPath| {
            let by = |hidden: &RelPath| path.is_within(hidden);
            self.hidden.keys().any(by) || self.opaque.iter().any(by)
        };
        let below = base.coverage.skipped.iter().filter(|skipped| !is_hidden(&skipped.path)).cloned();
        let own = self.hidden.iter().filter(|(_, why)| **why != Why::Whiteout);
        let own = own.map(|(path, why)| Skipped { path: path.clone(), why: *why });
        let mut all: Vec<Skipped> = below.chain(own).collect();
        all.sort();
        all.dedup();
        all
    }
}

fn joined(path: &RelPath, name: &[u8]) -> Result<RelPath, ObjectError> {
    path.join(name).map_err(|error| ObjectError::Store(Box::new(error)))
}

/// Counts the entries and bytes of the result by its differences.
fn totals(
    source: &dyn ObjectSource,
    base: &LayerBase<'_>,
    tree: ObjectId,
) -> Result<(u64, u64), ObjectError> {
    let (mut more, mut less) = ((0, 0), (0, 0));
    for delta in change::deltas(source, base.tree, tree, Owners::Compared)? {
        match &delta {
            Delta::Added { new, .. } => count(source, new, &mut more)?,
            Delta::Removed { old, .. } => count(source, old, &mut less)?,
            Delta::Replaced { old, new, .. } => {
                count(source, old, &mut less)?;
                count(source, new, &mut more)?;
            }
            Delta::Meta { .. } => {}
        }
    }
    let after = |base: u64, more: u64, less: u64| base.saturating_add(more).saturating_sub(less);
    Ok((after(base.count, more.0, less.0), after(base.bytes, more.1, less.1)))
}

/// Adds an entry, and everything below it, to the counts.
fn count(source: &dyn ObjectSource, entry: &Entry, sum: &mut (u64, u64)) -> Result<(), ObjectError> {
    sum.0 += 1;
    match &entry.node {
        Node::File(content) => sum.1 += content.size,
        Node::Directory(tree) => {
            for below in Tree::load(source, *tree)?.entries() {
                count(source, below, sum)?;
            }
        }
        _ => {}
    }
    Ok(())
}
