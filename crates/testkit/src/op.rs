//! Ops of a recording: changes to a disk, by the identity of files and folders, so that a write through a
//! descriptor reaches the right file after a rename. From [`mod@crate::record`] to [`crate::disk`].

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::trace::End;

/// File, folder or symlink. `generation` distinguishes files that reused an inode number; 0 for those present
/// at the start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    pub dev: u64,
    pub ino: u64,
    pub generation: u32,
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.ino, self.generation)
    }
}

/// Name in a folder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub dir: FileId,
    pub name: OsString,
    /// Path at the time; for people and predicates.
    pub path: PathBuf,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.path)
    }
}

/// Change of an inode's content or attributes.
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    Write {
        offset: u64,
        data: Arc<[u8]>,
    },
    Truncate {
        len: u64,
    },
    Mode(u32),
    SetXattr {
        name: OsString,
        value: Vec<u8>,
    },
    RemoveXattr {
        name: OsString,
    },
    /// Seconds and nanoseconds.
    Mtime(i64, i64),
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Write { offset, data } => write!(f, "write {} at {offset}", data.len()),
            Change::Truncate { len } => write!(f, "truncate to {len}"),
            Change::Mode(mode) => write!(f, "mode {mode:o}"),
            Change::SetXattr { name, .. } => write!(f, "set {name:?}"),
            Change::RemoveXattr { name } => write!(f, "remove {name:?}"),
            Change::Mtime(s, ns) => write!(f, "mtime {s}.{ns:09}"),
        }
    }
}

impl Change {
    /// Returns true for content, which `fdatasync` makes durable too.
    pub fn is_data(&self) -> bool {
        matches!(self, Change::Write { .. } | Change::Truncate { .. })
    }
}

/// Change of a disk, or a sync. Paths are those at the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Create {
        at: Slot,
        file: FileId,
        mode: u32,
    },
    /// File without a name (`O_TMPFILE`).
    Orphan {
        file: FileId,
        mode: u32,
    },
    Mkdir {
        at: Slot,
        dir: FileId,
        mode: u32,
    },
    Symlink {
        at: Slot,
        file: FileId,
        target: PathBuf,
    },
    Link {
        at: Slot,
        file: FileId,
    },
    Unlink {
        at: Slot,
    },
    Rmdir {
        at: Slot,
    },
    Rename {
        from: Slot,
        to: Slot,
    },
    Exchange {
        a: Slot,
        b: Slot,
    },
    Inode {
        file: FileId,
        path: PathBuf,
        change: Change,
    },
    Fsync {
        file: FileId,
        path: PathBuf,
    },
    Fdatasync {
        file: FileId,
        path: PathBuf,
    },
    Syncfs {
        dev: u64,
        path: PathBuf,
    },
    Sync,
}

impl Op {
    /// Returns true if it only makes other changes durable.
    pub fn is_sync(&self) -> bool {
        matches!(self, Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Syncfs { .. } | Op::Sync)
    }

    /// Returns the names it changes.
    pub fn slots(&self) -> Vec<&Slot> {
        match self {
            Op::Create { at, .. }
            | Op::Mkdir { at, .. }
            | Op::Symlink { at, .. }
            | Op::Link { at, .. }
            | Op::Unlink { at }
            | Op::Rmdir { at } => vec![at],
            Op::Rename { from, to } => vec![from, to],
            Op::Exchange { a, b } => vec![a, b],
            _ => Vec::new(),
        }
    }
}

/// Ops of a program on the folders, in order, and its end.
#[derive(Debug, Clone)]
pub struct Recording {
    pub ops: Vec<Op>,
    pub end: End,
}

impl Recording {
    /// Returns the recording without the ops that `drop` picks, to plant bugs. Only syncs can be dropped.
    pub fn without(&self, drop: impl Fn(&Op) -> bool) -> Recording {
        let ops = self.ops.iter().filter(|op| !drop(op)).cloned().collect();
        Recording { ops, end: self.end.clone() }
    }

    /// Returns the recording without the `n`-th sync (from 0), or `None` if there are fewer.
    pub fn without_sync(&self, n: usize) -> Option<Recording> {
        let (at, _) = self.ops.iter().enumerate().filter(|(_, op)| op.is_sync()).nth(n)?;
        let mut ops = self.ops.clone();
        ops.remove(at);
        Some(Recording { ops, end: self.end.clone() })
    }
}
