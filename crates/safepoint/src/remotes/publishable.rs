//! PUBLISHABLE: a checkpoint as it leaves this machine. It may lack memory of agents outside of the workspace, and paths that the
//! configuration excludes; then it has a manifest, documents and trees of its own, which are not in the store.

use crate::checkpoint::create::{files_part, memory_parts};
use crate::parts::files::keep_document;
use crate::{CheckpointManager, Error};
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind, PartRecord};
use safepoint_model::content::Content;
use safepoint_model::coverage::{Skipped, Why};
use safepoint_model::files::FilesDocument;
use safepoint_model::tree::{Node, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSink, ObjectSource, RelPath, document};
use safepoint_store::Store;
use safepoint_workspace::Patterns;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The store, and objects that only leave.
pub(super) struct Outgoing<'s> {
    store: &'s Store,
    own: Mutex<HashMap<ObjectId, (ObjectKind, Vec<u8>)>>,
    exclude: &'s Patterns,
    /// Trees that were looked at, by id and path.
    known: Mutex<HashMap<(ObjectId, RelPath), Lighter>>,
}

/// Directory without excluded paths.
#[derive(Debug, Clone)]
struct Lighter {
    tree: ObjectId,
    count: u64,
    bytes: u64,
    left_out: Vec<RelPath>,
}

impl<'s> Outgoing<'s> {
    pub(super) fn new(store: &'s Store, exclude: &'s Patterns) -> Self {
        Self { store, own: Mutex::default(), exclude, known: Mutex::default() }
    }

    fn own(&self) -> MutexGuard<'_, HashMap<ObjectId, (ObjectKind, Vec<u8>)>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of an object that is not in the store.
    pub(super) fn own_bytes(&self, id: ObjectId) -> Option<(ObjectKind, Vec<u8>)> {
        self.own().get(&id).cloned()
    }

    /// Returns a directory without excluded paths.
    fn lighter(&self, tree: ObjectId, path: &RelPath) -> Result<Lighter, ObjectError> {
        let key = (tree, path.clone());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let mut lighter = Lighter { tree, count: 0, bytes: 0, left_out: Vec::new() };
        let (mut entries, mut is_same) = (Vec::new(), true);
        for mut entry in Tree::load(self, tree)?.into_entries() {
            let below = path.join(&entry.name).map_err(|error| ObjectError::Store(Box::new(error)))?;
            let is_directory = matches!(entry.node, Node::Directory(_));
            if self.exclude.leave_out(&below, is_directory) {
                self.weigh(&entry.node, &mut lighter)?;
                lighter.left_out.push(below);
                is_same = false;
                continue;
            }
            if let Node::Directory(inner) = entry.node {
                let found = self.lighter(inner, &below)?;
                (lighter.count, lighter.bytes) = (lighter.count + found.count, lighter.bytes + found.bytes);
                lighter.left_out.extend(found.left_out);
                is_same = is_same && found.tree == inner;
                entry.node = Node::Directory(found.tree);
            }
            entries.push(entry);
        }
        if !is_same {
            let tree = Tree::new(entries).map_err(|error| ObjectError::Store(Box::new(error)))?;
            lighter.tree = self.put(ObjectKind::Tree, &tree.encode())?;
        }
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, lighter.clone());
        Ok(lighter)
    }

    /// Adds the entries and bytes of an excluded entry.
    fn weigh(&self, node: &Node, lighter: &mut Lighter) -> Result<(), ObjectError> {
        lighter.count += 1;
        match node {
            Node::File(content) => lighter.bytes += content.size,
            Node::Directory(tree) => {
                for entry in Tree::load(self, *tree)?.into_entries() {
                    self.weigh(&entry.node, lighter)?;
                }
            }
            Node::Symlink(_) => {}
        }
        Ok(())
    }

    /// Returns the files of a part without excluded paths; `None` if it has none of them.
    fn without_excluded(&self, id: ObjectId) -> Result<Option<(ObjectId, Lighter)>, ObjectError> {
        let files = FilesDocument::load(self, id)?;
        let Some(tree) = files.tree() else { return Ok(None) };
        let lighter = self.lighter(tree, &RelPath::root())?;
        if lighter.left_out.is_empty() {
            return Ok(None);
        }
        let mut root = files.root_entry();
        root.node = Node::Directory(lighter.tree);
        let mut coverage = files.coverage(self)?;
        let skipped = lighter.left_out.iter().map(|path| Skipped { path: path.clone(), why: Why::Ignored });
        coverage.skipped.extend(skipped);
        coverage.skipped.sort();
        let (count, bytes) =
            (files.count.saturating_sub(lighter.count), files.bytes.saturating_sub(lighter.bytes));
        Ok(Some((keep_document(self, &root, &coverage, count, bytes)?, lighter)))
    }
}

impl ObjectSource for Outgoing<'_> {
    fn get(&self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        match self.own_bytes(id) {
            Some((found, bytes)) if found == kind => Ok(bytes),
            _ => self.store.get(kind, id),
        }
    }
}

impl ObjectSink for Outgoing<'_> {
    fn put(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, ObjectError> {
        let id = ObjectId::of(kind, bytes);
        self.own().insert(id, (kind, bytes.to_vec()));
        Ok(id)
    }

    /// Files are never rewritten: this is for the trait alone.
    fn put_content(&self, _: u64, reader: &mut dyn Read) -> Result<Content, ObjectError> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(ObjectError::Input)?;
        self.put(ObjectKind::Chunk, &bytes)?;
        Ok(Content::whole(&bytes))
    }
}

/// Memory of agents that is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PublishedMemory {
    /// Only that inside of the workspace.
    #[default]
    Inside,
    /// All of it.
    All,
}

/// Checkpoint as it is published.
pub(super) struct Publishable {
    pub(super) checkpoint: Checkpoint,
    /// Excluded paths.
    pub(super) left_out: BTreeSet<RelPath>,
}

impl CheckpointManager {
    /// Returns a checkpoint as it is published. What is not in the store is in `outgoing` then.
    pub(super) fn publishable(
        &self,
        checkpoint: &Checkpoint,
        outgoing: &Outgoing<'_>,
        memory: PublishedMemory,
    ) -> Result<Publishable, Error> {
        let manifest: Manifest = document::load(outgoing, checkpoint.integrity)?;
        let mut checkpoint = Checkpoint { parts: manifest.parts, ..checkpoint.clone() };
        let mut left_out = BTreeSet::new();
        let outside: HashSet<String> =
            memory_parts(&checkpoint).into_iter().map(|(_, part)| part.key.clone()).collect();
        let before = checkpoint.parts.clone();
        if memory == PublishedMemory::Inside && !outside.is_empty() {
            let is_outside = |part: &PartRecord| part.kind == PartKind::Files && outside.contains(&part.key);
            checkpoint.parts.retain(|part| !is_outside(part));
            checkpoint
                .warnings
                .push("memory of agents outside of the workspace was not published".to_owned());
        }
        let own = files_part(&checkpoint).cloned().filter(|_| !outgoing.exclude.is_empty());
        if let Some(own) = own
            && let Some((document, lighter)) = outgoing.without_excluded(own.document)?
        {
            let same = checkpoint.parts.iter_mut().filter(|part| **part == own);
            same.for_each(|part| part.document = document);
            checkpoint.files.count = checkpoint.files.count.saturating_sub(lighter.count);
            checkpoint.files.bytes = checkpoint.files.bytes.saturating_sub(lighter.bytes);
            left_out.extend(lighter.left_out);
            checkpoint.warnings.push(format!("{} excluded paths were not published", left_out.len()));
        }
        if checkpoint.parts != before {
            checkpoint.integrity = document::store(outgoing, &Manifest::new(checkpoint.parts.clone()))?;
        }
        Ok(Publishable { checkpoint, left_out })
    }
}
