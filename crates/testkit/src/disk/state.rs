//! Content of a disk at one point, computed from ops.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::pending::Dice;
use crate::op::{Change, FileId, Op, Slot};
use crate::record::{first_id, is_skipped};
use crate::tree::user_xattrs;

/// Bytes of a file, with a lazily computed hash: a point of a recording has a hundred images, which share
/// nearly all files.
#[derive(Default)]
pub(crate) struct Blob {
    pub(crate) bytes: Vec<u8>,
    hash: OnceLock<[u8; 32]>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Blob {
        let hash = OnceLock::new();
        Blob { bytes, hash }
    }

    pub(crate) fn hash(&self) -> &[u8; 32] {
        self.hash.get_or_init(|| *blake3::hash(&self.bytes).as_bytes())
    }

    /// Returns unshared bytes for a change.
    fn own(shared: &mut Arc<Blob>) -> &mut Vec<u8> {
        let blob = Arc::make_mut(shared);
        blob.hash = OnceLock::new();
        &mut blob.bytes
    }
}

impl Clone for Blob {
    fn clone(&self) -> Blob {
        Blob::new(self.bytes.clone())
    }
}

#[derive(Clone)]
pub(crate) enum Kind {
    /// Shared between states until written.
    File(Arc<Blob>),
    Dir(BTreeMap<OsString, FileId>),
    Symlink(PathBuf),
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) xattrs: BTreeMap<OsString, Vec<u8>>,
    /// `None`: the time of the last write, which is not modelled.
    pub(crate) mtime: Option<(i64, i64)>,
}

impl Node {
    fn new(kind: Kind, mode: u32) -> Node {
        Node { kind, mode, xattrs: BTreeMap::new(), mtime: None }
    }
}

#[derive(Clone, Default)]
pub(crate) struct State {
    nodes: BTreeMap<FileId, Node>,
}

impl State {
    pub(crate) fn node(&self, id: FileId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Loads the entry at `path` and everything below.
    pub(crate) fn load(&mut self, path: &Path) -> io::Result<FileId> {
        let meta = fs::symlink_metadata(path)?;
        let id = first_id(&meta);
        if self.nodes.contains_key(&id) {
            return Ok(id);
        }
        let kind = if meta.is_dir() {
            let mut entries = BTreeMap::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                if !is_skipped(&entry.file_name()) {
                    entries.insert(entry.file_name(), self.load(&entry.path())?);
                }
            }
            Kind::Dir(entries)
        } else if meta.is_symlink() {
            Kind::Symlink(fs::read_link(path)?)
        } else if meta.is_file() {
            Kind::File(Arc::new(Blob::new(fs::read(path)?)))
        } else {
            let why = format!("{path:?} is not a file, folder or symlink");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        let mut node = Node::new(kind, meta.mode() & 0o7777);
        node.xattrs = user_xattrs(path)?;
        node.mtime = Some((meta.mtime(), meta.mtime_nsec()));
        self.nodes.insert(id, node);
        Ok(id)
    }

    /// Creates the inode of a create, without a name.
    pub(crate) fn bear(&mut self, op: &Op) {
        let (id, node) = match op {
            Op::Create { file, mode, .. } | Op::Orphan { file, mode } => {
                (*file, Node::new(Kind::File(Arc::default()), *mode))
            }
            Op::Mkdir { dir, mode, .. } => (*dir, Node::new(Kind::Dir(BTreeMap::new()), *mode)),
            Op::Symlink { file, target, .. } => (*file, Node::new(Kind::Symlink(target.clone()), 0o777)),
            _ => return,
        };
        self.nodes.entry(id).or_insert(node);
    }

    pub(crate) fn at(&self, slot: &Slot) -> Option<FileId> {
        match self.nodes.get(&slot.dir).map(|n| &n.kind) {
            Some(Kind::Dir(entries)) => entries.get(&slot.name).copied(),
            _ => None,
        }
    }

    pub(crate) fn is_dir(&self, id: FileId) -> bool {
        matches!(self.nodes.get(&id).map(|n| &n.kind), Some(Kind::Dir(_)))
    }

    fn set(&mut self, slot: &Slot, id: Option<FileId>) {
        let Some(Node { kind: Kind::Dir(entries), .. }) = self.nodes.get_mut(&slot.dir) else {
            return;
        };
        match id {
            Some(id) => entries.insert(slot.name.clone(), id),
            None => entries.remove(&slot.name),
        };
    }

    /// Applies a change; syncs change nothing.
    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Create { at, file, .. } | Op::Symlink { at, file, .. } | Op::Link { at, file } => {
                self.set(at, Some(*file));
            }
            Op::Mkdir { at, dir, .. } => self.set(at, Some(*dir)),
            Op::Unlink { at } | Op::Rmdir { at } => self.set(at, None),
            Op::Rename { from, to } => {
                let moved = self.at(from);
                self.set(from, None);
                self.set(to, moved);
            }
            Op::Exchange { a, b } => {
                let (one, other) = (self.at(a), self.at(b));
                self.set(a, other);
                self.set(b, one);
            }
            Op::Inode { file, change, .. } => {
                if let Some(node) = self.nodes.get_mut(file) {
                    node.change(change);
                }
            }
            Op::Orphan { .. } | Op::Sync => {}
            Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Syncfs { .. } => {}
        }
    }

    /// Applies some blocks of a write; other changes are atomic.
    pub(crate) fn apply_torn(&mut self, op: &Op, dice: &mut Dice) {
        let Op::Inode { file, change: Change::Write { offset, data }, .. } = op else {
            return self.apply(op);
        };
        let Some(node) = self.nodes.get_mut(file) else {
            return;
        };
        let Kind::File(content) = &node.kind else {
            return;
        };
        let end = content.bytes.len() as u64;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let block = if at < end { 512 } else { 4096 };
            let len = ((block - at % block) as usize).min(data.len() - done);
            if dice.below(2) == 0 {
                node.write(at, &data[done..done + len]);
            }
            done += len;
        }
    }

    /// Applies only the length of a lost append.
    pub(crate) fn apply_length_only(&mut self, op: &Op) {
        let Op::Inode { file, change: Change::Write { offset, data }, .. } = op else {
            return;
        };
        let Some(node) = self.nodes.get_mut(file) else {
            return;
        };
        let end = *offset + data.len() as u64;
        if let Kind::File(content) = &node.kind
            && (content.bytes.len() as u64) < end
        {
            node.change(&Change::Truncate { len: end });
        }
    }
}

impl Node {
    fn change(&mut self, change: &Change) {
        match change {
            Change::Write { offset, data } => self.write(*offset, data),
            Change::Truncate { len } => {
                if let Kind::File(content) = &mut self.kind {
                    Blob::own(content).resize(*len as usize, 0);
                    self.mtime = None;
                }
            }
            Change::Mode(mode) => self.mode = *mode,
            Change::SetXattr { name, value } => {
                self.xattrs.insert(name.clone(), value.clone());
            }
            Change::RemoveXattr { name } => {
                self.xattrs.remove(name);
            }
            Change::Mtime(s, ns) => self.mtime = Some((*s, *ns)),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let Kind::File(content) = &mut self.kind else {
            return;
        };
        let content = Blob::own(content);
        let (start, end) = (offset as usize, offset as usize + data.len());
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(data);
        self.mtime = None;
    }
}
