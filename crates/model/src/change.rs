//! Differences between two trees, and grafting of chosen paths from one tree into another.
//!
//! In: two roots and an object source. Out: [`Delta`]s, one per topmost difference, for rollbacks; or
//! [`Change`]s, one per path, for people.

use crate::checkpoint::word_type;
use crate::tree::{Entry, Node, Owners, Tree};
use crate::{ModelError, ObjectError, ObjectId, ObjectKind, ObjectSink, ObjectSource, RelPath};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Topmost difference at a path; it includes everything below an added or removed directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Present only in the new tree.
    Added {
        /// Path of the difference.
        path: RelPath,
        /// Entry in the new tree.
        new: Entry,
    },
    /// Present only in the old tree.
    Removed {
        /// Path of the difference.
        path: RelPath,
        /// Entry in the old tree.
        old: Entry,
    },
    /// Changed content, link target or type.
    Replaced {
        /// Path of the difference.
        path: RelPath,
        /// Old entry.
        old: Entry,
        /// New entry.
        new: Entry,
    },
    /// Same content with another mode, owner or attribute; for a directory, the directory itself only.
    Meta {
        /// Path of the difference.
        path: RelPath,
        /// Old entry.
        old: Entry,
        /// New entry.
        new: Entry,
    },
}

impl Delta {
    /// Returns the path of the difference.
    pub fn path(&self) -> &RelPath {
        match self {
            Delta::Added { path, .. }
            | Delta::Removed { path, .. }
            | Delta::Replaced { path, .. }
            | Delta::Meta { path, .. } => path,
        }
    }
}

/// Number of directories below which the calling thread compares alone.
const PARALLEL_MIN: usize = 16;

/// Returns the topmost differences: parents before children, sorted within each directory.
///
/// # Errors
/// When a tree is missing or damaged.
pub fn deltas(
    source: &dyn ObjectSource,
    old: ObjectId,
    new: ObjectId,
    owners: Owners,
) -> Result<Vec<Delta>, ObjectError> {
    let mut out = Vec::new();
    // Level by level, so that only this list grows with the depth.
    let mut level = vec![Pair { path: RelPath::root(), old, new }];
    while !level.is_empty() {
        let compared: Result<Vec<Compared>, ObjectError> = if level.len() < PARALLEL_MIN {
            level.iter().map(|pair| pair.compare(source, owners)).collect()
        } else {
            level.par_iter().map(|pair| pair.compare(source, owners)).collect()
        };
        level.clear();
        for compared in compared? {
            out.extend(compared.deltas);
            level.extend(compared.below);
        }
    }
    out.sort_by(|a, b| a.path().names().cmp(b.path().names()));
    Ok(out)
}

/// Directory in both trees.
struct Pair {
    path: RelPath,
    old: ObjectId,
    new: ObjectId,
}

/// Differences of a directory, and its subdirectories to be compared.
#[derive(Default)]
struct Compared {
    deltas: Vec<Delta>,
    below: Vec<Pair>,
}

impl Pair {
    fn compare(&self, source: &dyn ObjectSource, owners: Owners) -> Result<Compared, ObjectError> {
        let mut compared = Compared::default();
        if self.old == self.new {
            return Ok(compared);
        }
        let (old, new) = (Tree::load(source, self.old)?, Tree::load(source, self.new)?);
        let (mut left, mut right) = (old.entries().iter().peekable(), new.entries().iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return Ok(compared),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.name.cmp(&new.name),
            };
            let old = if order.is_le() { left.next() } else { None };
            let new = if order.is_ge() { right.next() } else { None };
            if let (Some(old), Some(new)) = (old, new)
                && old == new
            {
                continue;
            }
            let Some(name) = old.or(new).map(|entry| &entry.name) else { continue };
            let path = join(&self.path, name)?;
            match (old, new) {
                (Some(old), Some(new)) => compared.pair(source, path, old, new, owners),
                (Some(old), None) => compared.deltas.push(Delta::Removed { path, old: old.clone() }),
                (None, Some(new)) => compared.deltas.push(Delta::Added { path, new: new.clone() }),
                (None, None) => {}
            }
        }
    }
}

impl Compared {
    fn pair(&mut self, source: &dyn ObjectSource, path: RelPath, old: &Entry, new: &Entry, owners: Owners) {
        let same_meta = old.meta.same_but_times(&new.meta, owners);
        match (&old.node, &new.node) {
            (Node::Directory(old_tree), Node::Directory(new_tree)) => {
                self.below.push(Pair { path: path.clone(), old: *old_tree, new: *new_tree });
                if !same_meta {
                    self.deltas.push(Delta::Meta { path, old: old.clone(), new: new.clone() });
                }
            }
            (old_node, new_node) if !old_node.same_content(new_node, source) => {
                self.deltas.push(Delta::Replaced { path, old: old.clone(), new: new.clone() });
            }
            _ if !same_meta => self.deltas.push(Delta::Meta { path, old: old.clone(), new: new.clone() }),
            _ => {}
        }
    }
}

/// Names in a stored tree were checked when it was read; a failure here is a defect, reported as damage.
fn join(above: &RelPath, name: &[u8]) -> Result<RelPath, ObjectError> {
    above.join(name).map_err(|error| ObjectError::Store(Box::new(error)))
}

word_type! {
    /// Kind of change to a path.
    ChangeKind, "change", {
        /// Added.
        Added = "added",
        /// Changed content.
        Modified = "modified",
        /// Removed.
        Removed = "removed",
        /// Changed type: file, directory or link.
        Type = "type",
        /// Changed permissions, owner or attributes.
        Mode = "mode",
    }
}

/// Path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Changed path.
    pub path: RelPath,
    /// Kind of change.
    pub kind: ChangeKind,
    /// Old entry.
    pub old: Option<Entry>,
    /// New entry.
    pub new: Option<Entry>,
}

/// Expands deltas into one change per path.
///
/// # Errors
/// When a tree is missing or damaged.
pub fn changes(source: &dyn ObjectSource, deltas: &[Delta]) -> Result<Vec<Change>, ObjectError> {
    let mut out = Vec::new();
    for delta in deltas {
        match delta {
            Delta::Added { path, new } => whole(source, path, new, ChangeKind::Added, &mut out)?,
            Delta::Removed { path, old } => whole(source, path, old, ChangeKind::Removed, &mut out)?,
            Delta::Replaced { path, old, new } => {
                let kind =
                    if old.node.same_type(&new.node) { ChangeKind::Modified } else { ChangeKind::Type };
                out.push(Change { path: path.clone(), kind, old: Some(old.clone()), new: Some(new.clone()) });
                below(source, path, old, ChangeKind::Removed, &mut out)?;
                below(source, path, new, ChangeKind::Added, &mut out)?;
            }
            Delta::Meta { path, old, new } => out.push(Change {
                path: path.clone(),
                kind: ChangeKind::Mode,
                old: Some(old.clone()),
                new: Some(new.clone()),
            }),
        }
    }
    Ok(out)
}

fn whole(
    source: &dyn ObjectSource,
    path: &RelPath,
    entry: &Entry,
    kind: ChangeKind,
    out: &mut Vec<Change>,
) -> Result<(), ObjectError> {
    let here = Some(entry.clone());
    let (old, new) = if kind == ChangeKind::Removed { (here, None) } else { (None, here) };
    out.push(Change { path: path.clone(), kind, old, new });
    below(source, path, entry, kind, out)
}

fn below(
    source: &dyn ObjectSource,
    path: &RelPath,
    entry: &Entry,
    kind: ChangeKind,
    out: &mut Vec<Change>,
) -> Result<(), ObjectError> {
    if let Node::Directory(tree) = &entry.node {
        for child in Tree::load(source, *tree)?.entries() {
            whole(source, &join(path, &child.name)?, child, kind, out)?;
        }
    }
    Ok(())
}

/// Visits every entry below a tree, parents before children, sorted within each directory.
///
/// # Errors
/// When a tree is missing or damaged, or the visitor fails.
pub fn walk<E: From<ObjectError>>(
    source: &dyn ObjectSource,
    path: &RelPath,
    tree: ObjectId,
    visit: &mut dyn FnMut(&RelPath, &Entry) -> Result<(), E>,
) -> Result<(), E> {
    for entry in Tree::load(source, tree)?.entries() {
        let here = join(path, &entry.name)?;
        visit(&here, entry)?;
        if let Node::Directory(below) = &entry.node {
            walk(source, &here, *below, visit)?;
        }
    }
    Ok(())
}

/// Returns the entry at a path below a root.
///
/// # Errors
/// When a tree along the path is missing or damaged.
pub fn find(source: &dyn ObjectSource, root: ObjectId, path: &RelPath) -> Result<Option<Entry>, ObjectError> {
    let mut tree = root;
    let mut found = None;
    for name in path.names() {
        match found.take() {
            None => {}
            Some(Entry { node: Node::Directory(below), .. }) => tree = below,
            Some(_) => return Ok(None),
        }
        found = Tree::load(source, tree)?.get(name).cloned();
        if found.is_none() {
            return Ok(None);
        }
    }
    Ok(found)
}

/// Reason why a path of one tree cannot be grafted into another.
#[derive(Debug, thiserror::Error)]
pub enum GraftError {
    /// Neither tree has the path.
    #[error("{path} is neither in the checkpoint nor in the workspace")]
    Nowhere {
        /// Requested path.
        path: RelPath,
    },
    /// A file is in the place of a required directory.
    #[error("cannot restore {path} alone: {above} is not a directory in the workspace")]
    Blocked {
        /// Requested path.
        path: RelPath,
        /// Path that is not a directory.
        above: RelPath,
    },
    /// A tree could not be read or stored.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A name in a tree is invalid.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Treatment of a chosen path that neither tree has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// Refuse it.
    Refused,
    /// Ignore it.
    Fine,
}

/// Returns the tree `base` with the given paths as in `donor`: added, replaced or removed.
///
/// A directory that `donor` lacks is removed with its last entry.
///
/// # Errors
/// See [`GraftError`]; and when the sink fails.
pub fn graft<S: ObjectSource + ObjectSink>(
    store: &S,
    base: ObjectId,
    donor: ObjectId,
    paths: &[RelPath],
    absent: Absent,
) -> Result<ObjectId, GraftError> {
    let mut root = base;
    // A path within another chosen path, or chosen twice, is included by the other.
    let covered = |at: usize, path: &RelPath| {
        let comes_with = |(other_at, other): (usize, &RelPath)| {
            other_at != at && path.is_within(other) && (path != other || other_at < at)
        };
        paths.iter().enumerate().any(comes_with)
    };
    for (_, path) in paths.iter().enumerate().filter(|(at, path)| !covered(*at, path)) {
        if path.is_root() {
            return Ok(donor);
        }
        let wanted = find(store, donor, path)?;
        if absent == Absent::Refused && wanted.is_none() && find(store, root, path)?.is_none() {
            return Err(GraftError::Nowhere { path: path.clone() });
        }
        let names: Vec<&[u8]> = path.names().collect();
        let graft = Graft { store, path, wanted };
        root = graft.rewrite(Some(root), Some(donor), &RelPath::root(), &names)?;
    }
    Ok(root)
}

/// Returns a tree without one path, and the removed entry if any. The directories above it stay, even if
/// empty.
///
/// # Errors
/// When a tree along the path is missing or damaged, or the sink fails.
pub fn without<S: ObjectSource + ObjectSink>(
    store: &S,
    root: ObjectId,
    path: &RelPath,
) -> Result<Option<(ObjectId, Entry)>, GraftError> {
    let Some(first) = path.names().next() else { return Ok(None) };
    let mut entries = Tree::load(store, root)?.into_entries();
    let Some(at) = entries.iter().position(|entry| entry.name == first) else { return Ok(None) };
    let rest: Vec<&[u8]> = path.names().skip(1).collect();
    let taken = match (&entries[at].node, rest.is_empty()) {
        (_, true) => entries.remove(at),
        (Node::Directory(below), false) => {
            let Some((below, taken)) = without(store, *below, &RelPath::new(rest.join(&b'/'))?)? else {
                return Ok(None);
            };
            entries[at].node = Node::Directory(below);
            taken
        }
        (_, false) => return Ok(None),
    };
    let root = store.put(ObjectKind::Tree, &Tree::new(entries)?.encode())?;
    Ok(Some((root, taken)))
}

struct Graft<'a, S> {
    store: &'a S,
    path: &'a RelPath,
    wanted: Option<Entry>,
}

impl<S: ObjectSource + ObjectSink> Graft<'_, S> {
    /// Rewrites one directory along the path; `base` is `None` if the directory is to be created.
    fn rewrite(
        &self,
        base: Option<ObjectId>,
        donor: Option<ObjectId>,
        here: &RelPath,
        names: &[&[u8]],
    ) -> Result<ObjectId, GraftError> {
        let load = |id: Option<ObjectId>| id.map_or(Ok(Tree::default()), |id| Tree::load(self.store, id));
        let (mut entries, donor) = (load(base)?.into_entries(), load(donor)?);
        let Some((name, rest)) = names.split_first() else { return self.keep(entries) };
        let at = entries.iter().position(|entry| entry.name == *name);
        let next = if rest.is_empty() {
            self.wanted.clone()
        } else {
            self.on_the_way(at.map(|at| &entries[at]), donor.get(name), &here.join(name)?, rest)?
        };
        if let Some(at) = at {
            entries.remove(at);
        }
        entries.extend(next);
        self.keep(entries)
    }

    fn on_the_way(
        &self,
        base: Option<&Entry>,
        donor: Option<&Entry>,
        here: &RelPath,
        rest: &[&[u8]],
    ) -> Result<Option<Entry>, GraftError> {
        let directory = |entry: Option<&Entry>| match entry.map(|entry| &entry.node) {
            Some(Node::Directory(tree)) => Some(*tree),
            _ => None,
        };
        let Some(model) = base.or(donor) else { return Ok(None) };
        if base.is_some() && directory(base).is_none() {
            return match self.wanted {
                Some(_) => Err(GraftError::Blocked { path: self.path.clone(), above: here.clone() }),
                None => Ok(base.cloned()),
            };
        }
        if base.is_none() && self.wanted.is_none() {
            return Ok(None);
        }
        let tree = self.rewrite(directory(base), directory(donor), here, rest)?;
        if donor.is_none() && Tree::load(self.store, tree)?.entries().is_empty() {
            return Ok(None);
        }
        Ok(Some(Entry { node: Node::Directory(tree), ..model.clone() }))
    }

    fn keep(&self, entries: Vec<Entry>) -> Result<ObjectId, GraftError> {
        Ok(self.store.put(ObjectKind::Tree, &Tree::new(entries)?.encode())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::object::tests::Memory;
    use crate::tree::Meta;
    use std::collections::BTreeMap;

    /// Builds a tree from `path -> content`; content that starts with `->` is a link target, content that
    /// starts with `+x` is executable.
    fn build(memory: &Memory, files: &[(&str, &str)]) -> ObjectId {
        let mut below: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        let mut entries = Vec::new();
        for (path, content) in files {
            match path.split_once('/') {
                Some((directory, rest)) => below.entry(directory).or_default().push((rest, content)),
                None => entries.push(leaf(memory, path, content)),
            }
        }
        for (name, files) in below {
            let node = Node::Directory(build(memory, &files));
            entries.push(Entry { name: name.into(), meta: Meta { mode: 0o755, ..Meta::default() }, node });
        }
        memory.put(ObjectKind::Tree, &Tree::new(entries).unwrap().encode()).unwrap()
    }

    fn leaf(memory: &Memory, name: &str, content: &str) -> Entry {
        let mode = if content.starts_with("+x") { 0o755 } else { 0o644 };
        let node = match content.strip_prefix("->") {
            Some(target) => Node::Symlink(target.into()),
            None => {
                Node::File(memory.put_content(0, &mut content.trim_start_matches("+x").as_bytes()).unwrap())
            }
        };
        Entry { name: name.into(), meta: Meta { mode, ..Meta::default() }, node }
    }

    fn listed(memory: &Memory, root: ObjectId) -> Vec<String> {
        let mut out = Vec::new();
        walk::<ObjectError>(memory, &RelPath::root(), root, &mut |path, entry| {
            if !matches!(entry.node, Node::Directory(_)) {
                out.push(path.to_string());
            }
            Ok(())
        })
        .unwrap();
        out
    }

    fn told(memory: &Memory, old: ObjectId, new: ObjectId) -> Vec<String> {
        let deltas = deltas(memory, old, new, Owners::Compared).unwrap();
        let changes = changes(memory, &deltas).unwrap();
        changes.iter().map(|change| format!("{} {}", change.kind, change.path)).collect()
    }

    #[test]
    fn every_kind_of_change_is_told() {
        let memory = Memory::default();
        let old = build(
            &memory,
            &[("a", "1"), ("b", "1"), ("gone/x", "1"), ("t", "1"), ("same/y", "1"), ("z", "9")],
        );
        let new = build(
            &memory,
            &[("a", "2"), ("b", "+x1"), ("new/x/y", "1"), ("t/in", "1"), ("same/y", "1"), ("z", "->9")],
        );
        assert_eq!(
            told(&memory, old, new),
            [
                "modified a",
                "mode b",
                "removed gone",
                "removed gone/x",
                "added new",
                "added new/x",
                "added new/x/y",
                "type t",
                "added t/in",
                "type z"
            ]
        );
        assert_eq!(told(&memory, old, old), Vec::<String>::new());
    }

    #[test]
    fn a_mode_of_a_directory_is_told_apart_from_what_is_in_it() {
        let memory = Memory::default();
        let inside = build(&memory, &[("f", "1")]);
        let root = |mode| {
            let meta = Meta { mode, ..Meta::default() };
            let entry = Entry { name: b"d".to_vec(), meta, node: Node::Directory(inside) };
            memory.put(ObjectKind::Tree, &Tree::new(vec![entry]).unwrap().encode()).unwrap()
        };
        assert_eq!(told(&memory, root(0o755), root(0o700)), ["mode d"]);
    }

    #[test]
    fn find_follows_directories_only() {
        let memory = Memory::default();
        let root = build(&memory, &[("a/b/c", "1"), ("f", "1")]);
        let at = |path: &str| find(&memory, root, &RelPath::new(path).unwrap()).unwrap();
        assert!(matches!(at("a/b/c").unwrap().node, Node::File(Content { size: 1, .. })));
        assert!(matches!(at("a").unwrap().node, Node::Directory(_)));
        assert!(at("a/x/c").is_none());
        assert!(at("f/g").is_none());
        assert!(find(&memory, root, &RelPath::root()).unwrap().is_none());
    }

    #[test]
    fn a_graft_changes_the_chosen_paths_and_nothing_else() {
        let memory = Memory::default();
        let now = build(&memory, &[("a/x", "new"), ("a/y", "new"), ("only-now", "1"), ("f", "1")]);
        let then = build(&memory, &[("a/x", "old"), ("deep/down/z", "1"), ("f/inside", "1")]);
        let graft = |paths: &[&str]| {
            let paths: Vec<RelPath> = paths.iter().map(|path| RelPath::new(*path).unwrap()).collect();
            graft(&memory, now, then, &paths, Absent::Refused)
        };
        assert_eq!(told(&memory, now, graft(&["a/x"]).unwrap()), ["modified a/x"]);
        assert_eq!(told(&memory, now, graft(&["a/y"]).unwrap()), ["removed a/y"]);
        assert_eq!(told(&memory, now, graft(&["only-now"]).unwrap()), ["removed only-now"]);
        assert_eq!(
            told(&memory, now, graft(&["deep/down/z"]).unwrap()),
            ["added deep", "added deep/down", "added deep/down/z"]
        );
        assert_eq!(
            told(&memory, now, graft(&["a", "f"]).unwrap()),
            ["modified a/x", "removed a/y", "type f", "added f/inside"]
        );
        assert_eq!(
            told(&memory, now, graft(&["only-now", "a/y", "only-now", "a", "a/y"]).unwrap()),
            ["modified a/x", "removed a/y", "removed only-now"]
        );
        assert_eq!(graft(&["a", ""]).unwrap(), then);
        assert_eq!(graft(&[""]).unwrap(), then);
        for (path, left) in [("a/y", 1), ("a", 1), ("only-now", 1), ("f/inside", 0), ("nothing", 0), ("", 0)]
        {
            let path = RelPath::new(path).unwrap();
            let taken = without(&memory, now, &path).unwrap();
            assert_eq!(taken.is_some(), left == 1, "{path}");
            if let Some((root, entry)) = taken {
                assert_eq!(find(&memory, root, &path).unwrap(), None);
                assert_eq!(find(&memory, now, &path).unwrap(), Some(entry));
            }
        }
        assert!(matches!(graft(&["nothing/here"]), Err(GraftError::Nowhere { .. })));
        assert!(matches!(graft(&["f/inside"]), Err(GraftError::Blocked { .. })));
        assert_eq!(listed(&memory, graft(&["a/x"]).unwrap()).len(), 4);
    }

    #[test]
    fn taking_out_below_what_is_not_there_changes_nothing() {
        let memory = Memory::default();
        let now = build(&memory, &[("a", "file")]);
        let path = RelPath::new("a/b").unwrap();
        // The path is in neither tree, so it is refused before anything is read.
        assert!(matches!(
            graft(&memory, now, now, &[path], Absent::Refused),
            Err(GraftError::Nowhere { .. })
        ));
    }
}
