//! Three-way merge of trees: the result of an attempt, the project as it is, and the state that the attempt began with.
//!
//! Only directories that differ on both sides are loaded. Times are no difference.

use diffy::merge_bytes;
use safepoint_model::change::deltas;
use safepoint_model::content::Content;
use safepoint_model::tree::{Entry, Meta, Node, Owners, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectSink, ObjectSource, RelPath};
use std::collections::BTreeSet;

/// Longer files are not merged line by line.
const TEXT_BYTES_MAX: u64 = 8 << 20;

/// Result of a merge.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// Paths that cannot be merged.
    pub(super) conflicts: Vec<RelPath>,
    /// Text files of which both sides' lines were taken.
    pub(super) texts: Vec<RelPath>,
    /// Paths that only the project changed.
    pub(super) theirs: Vec<RelPath>,
}

/// The three states of one path.
#[derive(Clone, Copy)]
pub(super) struct Three<'a> {
    pub(super) base: Option<&'a Entry>,
    pub(super) ours: Option<&'a Entry>,
    pub(super) theirs: Option<&'a Entry>,
}

pub(super) struct Merging<'a, S> {
    pub(super) store: &'a S,
    pub(super) merged: Merged,
}

impl<S: ObjectSink + ObjectSource> Merging<'_, S> {
    /// Merges one path with everything below it. At a conflict the project's entry stays.
    pub(super) fn entry(&mut self, path: &RelPath, three: Three<'_>) -> Result<Option<Entry>, ObjectError> {
        let Three { base, ours, theirs } = three;
        if self.same(ours, theirs) || self.same(base, ours) {
            if !self.same(base, theirs) && !self.same(ours, theirs) {
                self.merged.theirs.push(path.clone());
            }
            return Ok(theirs.cloned());
        }
        if self.same(base, theirs) {
            return Ok(ours.cloned());
        }
        if let (Some(ours), Some(theirs)) = (ours, theirs)
            && let Some(meta) = merged_meta(base.map(|base| &base.meta), &ours.meta, &theirs.meta)
        {
            let base_node = base.map(|base| &base.node);
            let node = match (base_node, &ours.node, &theirs.node) {
                (_, Node::Directory(our_tree), Node::Directory(their_tree)) => {
                    let below = match base_node {
                        Some(Node::Directory(tree)) => Some(*tree),
                        _ => None,
                    };
                    Some(Node::Directory(self.directory(path, below, *our_tree, *their_tree)?))
                }
                (_, one, other) if one.same_content(other, self.store) => Some(other.clone()),
                (Some(base), one, other) if base.same_content(one, self.store) => Some(other.clone()),
                (Some(base), one, other) if base.same_content(other, self.store) => Some(one.clone()),
                (Some(Node::File(base)), Node::File(one), Node::File(other)) => {
                    let text = self.text(base, one, other)?;
                    if text.is_some() {
                        self.merged.texts.push(path.clone());
                    }
                    text.map(Node::File)
                }
                _ => None,
            };
            if let Some(node) = node {
                return Ok(Some(Entry { node, meta, name: theirs.name.clone() }));
            }
        }
        if self.same_below(base, theirs)? {
            return Ok(ours.cloned());
        }
        if self.same_below(base, ours)? {
            self.merged.theirs.push(path.clone());
            return Ok(theirs.cloned());
        }
        self.merged.conflicts.push(path.clone());
        Ok(theirs.cloned())
    }

    /// Returns true if both are directories that are the same but for times, also those of everything below. Needed only where the other
    /// side deleted or replaced the directory: two directories are merged entry by entry.
    fn same_below(&self, one: Option<&Entry>, other: Option<&Entry>) -> Result<bool, ObjectError> {
        let (Some(one), Some(other)) = (one, other) else { return Ok(false) };
        match (&one.node, &other.node) {
            (Node::Directory(old), Node::Directory(new))
                if one.meta.same_but_times(&other.meta, Owners::Compared) =>
            {
                Ok(deltas(self.store, *old, *new, Owners::Compared)?.is_empty())
            }
            _ => Ok(false),
        }
    }

    fn directory(
        &mut self,
        path: &RelPath,
        base: Option<ObjectId>,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<ObjectId, ObjectError> {
        let base = base.map(|base| Tree::load(self.store, base)).transpose()?;
        let (ours, theirs) = (Tree::load(self.store, ours)?, Tree::load(self.store, theirs)?);
        let all = base.iter().flat_map(Tree::entries).chain(ours.entries()).chain(theirs.entries());
        let names: BTreeSet<&[u8]> = all.map(|entry| entry.name.as_slice()).collect();
        let mut entries = Vec::new();
        for name in names {
            let path = path.join(name).map_err(|error| ObjectError::Store(Box::new(error)))?;
            let three = Three {
                base: base.as_ref().and_then(|base| base.get(name)),
                ours: ours.get(name),
                theirs: theirs.get(name),
            };
            entries.extend(self.entry(&path, three)?);
        }
        let tree = Tree::new(entries).map_err(|error| ObjectError::Store(Box::new(error)))?;
        self.store.put_tree(&tree.encode(), &[])
    }

    /// Returns true if both are the same but for times.
    fn same(&self, one: Option<&Entry>, other: Option<&Entry>) -> bool {
        match (one, other) {
            (Some(one), Some(other)) => {
                one.meta.same_but_times(&other.meta, Owners::Compared)
                    && one.node.same_content(&other.node, self.store)
            }
            (None, None) => true,
            _ => false,
        }
    }

    /// Merges two texts line by line. `None` if that is not clean, or one is no text.
    fn text(&self, base: &Content, ours: &Content, theirs: &Content) -> Result<Option<Content>, ObjectError> {
        if [base, ours, theirs].iter().any(|content| content.size > TEXT_BYTES_MAX) {
            return Ok(None);
        }
        let (base, ours, theirs) = (self.bytes(base)?, self.bytes(ours)?, self.bytes(theirs)?);
        if [&base, &ours, &theirs].iter().any(|bytes| bytes.contains(&0)) {
            return Ok(None);
        }
        match merge_bytes(&base, &ours, &theirs) {
            Ok(merged) => Ok(Some(self.store.put_content(merged.len() as u64, &mut merged.as_slice())?)),
            Err(_) => Ok(None),
        }
    }

    fn bytes(&self, content: &Content) -> Result<Vec<u8>, ObjectError> {
        let mut bytes = Vec::new();
        content.read::<ObjectError>(self.store, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }
}

/// Merges mode, owner and attributes. `None` if both sides changed them differently.
fn merged_meta(base: Option<&Meta>, ours: &Meta, theirs: &Meta) -> Option<Meta> {
    let same = |one: &Meta, other: &Meta| one.same_but_times(other, Owners::Compared);
    match base {
        _ if same(ours, theirs) => Some(theirs.clone()),
        Some(base) if same(base, ours) => Some(theirs.clone()),
        Some(base) if same(base, theirs) => Some(ours.clone()),
        _ => None,
    }
}
