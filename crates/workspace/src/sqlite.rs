//! What of SQLite's file format has to be known: header, names of the files beside a database, lock bytes.
//!
//! A database and its write-ahead log (`-wal`) are one thing: either of them with the other of another moment is damaged. A rollback journal
//! (`-journal`) is part of the database while it is "hot", that is after its writer died. The index of the log (`-shm`) is rebuilt by
//! whoever opens the database first. See sqlite.org: fileformat2.html, walformat.html, lockingv3.html.

use crate::linux;
use crate::linux::ofd::Bytes;
use rustix::fd::{BorrowedFd, OwnedFd};
use safepoint_model::change;
use safepoint_model::content::{Content, Stretch};
use safepoint_model::tree::{Entry, Node};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSource, RelPath};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::time::Duration;

/// The first bytes of a database.
const HEADER: &[u8; 16] = b"SQLite format 3\0";
/// The first bytes of a journal that can be played back.
const JOURNAL_HEADER: &[u8; 8] = &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// The first bytes of a log, but for the last bit.
const LOG_HEADER: [u8; 4] = [0x37, 0x7f, 0x06, 0x82];
/// The first bytes of an index of a log: its version, in this machine's order of bytes.
const INDEX_HEADER: [u8; 4] = 3_007_000_u32.to_ne_bytes();
/// The smallest page: a database is a multiple of it.
const PAGE_BYTES_MIN: u64 = 512;

/// The write-ahead log.
pub(crate) const LOG: &[u8] = b"-wal";
/// The log's index, shared by those that have the database open.
pub(crate) const INDEX: &[u8] = b"-shm";
/// The rollback journal.
pub(crate) const JOURNAL: &[u8] = b"-journal";
/// What is added to a database's name.
pub(crate) const SIDECARS: [&[u8]; 3] = [LOG, JOURNAL, INDEX];

/// The byte that a writer locks while it waits for readers to end.
pub(crate) const PENDING: Bytes = Bytes(0x4000_0000, 1);
/// The byte that a writer locks before it changes anything.
pub(crate) const RESERVED: Bytes = Bytes(0x4000_0001, 1);
/// What readers lock, and a writer before it writes into the database.
pub(crate) const SHARED: Bytes = Bytes(0x4000_0002, 510);
/// In the index: what is locked to move the log into the database.
pub(crate) const CHECKPOINT: Bytes = Bytes(121, 1);
/// In the index: the first read mark that refers to the log. All of them are locked to begin the log anew.
pub(crate) const READ_MARK: Bytes = Bytes(124, 1);

/// Where copies of large databases go that programs are writing to.
pub trait DatabaseCopies: fmt::Debug + Sync {
    /// How long a database may be locked while it is read.
    fn held_max(&self) -> Duration;

    /// An empty file, which is gone when its handle is.
    ///
    /// # Errors
    /// When none can be made.
    fn file(&self) -> io::Result<File>;

    /// A copy of the database of this name in this directory, made by SQLite itself in another process.
    ///
    /// # Errors
    /// When there is nothing that makes one, or it failed.
    fn back_up(&self, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<File>;
}

/// The name of a database, where this is the name of a file beside one.
pub(crate) fn base_of(name: &[u8]) -> Option<&[u8]> {
    // Nearly every name is refused by its last byte.
    match name.last()? {
        b'l' => name.strip_suffix(LOG).or_else(|| name.strip_suffix(JOURNAL)),
        b'm' => name.strip_suffix(INDEX),
        _ => None,
    }
    .filter(|base| !base.is_empty())
}

/// The name of a file beside a database.
pub(crate) fn beside(name: &[u8], sidecar: &[u8]) -> Vec<u8> {
    [name, sidecar].concat()
}

/// The first bytes of an open file; fewer where it is shorter.
pub(crate) fn start_of<const N: usize>(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut start = [0; N];
    let len = read_start(fd, &mut start)?;
    Ok(start[..len].to_vec())
}

/// Whether an open file begins with these bytes. Every file that is read is asked, so nothing is allocated.
fn begins_with<const N: usize>(fd: &OwnedFd, header: &[u8; N]) -> bool {
    let mut start = [0; N];
    read_start(fd, &mut start).is_ok_and(|len| start[..len] == *header)
}

fn read_start<const N: usize>(fd: &OwnedFd, start: &mut [u8; N]) -> io::Result<usize> {
    let mut len = 0;
    while len < N {
        match rustix::io::pread(fd, &mut start[len..], len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

/// Whether an open file of this size is a database.
pub(crate) fn is_database(fd: &OwnedFd, size: u64) -> bool {
    size >= PAGE_BYTES_MIN && begins_with(fd, HEADER)
}

/// Whether the file of this name is a database.
pub(crate) fn is_database_at(dir: &OwnedFd, name: &[u8]) -> bool {
    linux::open_file(dir, name).is_ok_and(|fd| {
        linux::facts_of(&fd).is_ok_and(|facts| facts.file_type.is_file() && is_database(&fd, facts.size))
    })
}

/// Whether an open journal can be played back. One that is empty or whose header is zero has been.
pub(crate) fn is_journal(fd: &OwnedFd) -> bool {
    begins_with(fd, JOURNAL_HEADER)
}

/// Whether a file beside a database is what its name says, or empty.
pub(crate) fn is_sidecar_at(dir: &OwnedFd, name: &[u8]) -> bool {
    let start = linux::open_file(dir, name).and_then(|fd| start_of::<8>(&fd));
    start.is_ok_and(|start| {
        let log = start.len() >= 4 && start[..3] == LOG_HEADER[..3] && start[3] | 1 == LOG_HEADER[3] | 1;
        start.iter().all(|byte| *byte == 0)
            || log
            || start == JOURNAL_HEADER
            || start.starts_with(&INDEX_HEADER)
    })
}

/// Whether a stored file is a database. Only a size that fits has it read; one that cannot be read is none, which fails elsewhere if it matters.
pub(crate) fn is_stored_database(source: &dyn ObjectSource, content: &Content) -> bool {
    let starts_like_one = || {
        let stretches = content.stretches(source).ok()?;
        let Some(Stretch::Data(first)) = stretches.first() else { return Some(false) };
        Some(source.get(ObjectKind::Chunk, first.id).ok()?.starts_with(HEADER))
    };
    content.size >= PAGE_BYTES_MIN
        && content.size.is_multiple_of(PAGE_BYTES_MIN)
        && starts_like_one().unwrap_or(false)
}

/// Whether this path is a database in a tree.
pub(crate) fn has_database(
    source: &dyn ObjectSource,
    tree: ObjectId,
    path: &RelPath,
) -> Result<bool, ObjectError> {
    match change::find(source, tree, path)? {
        Some(Entry { node: Node::File(content), .. }) => Ok(is_stored_database(source, &content)),
        _ => Ok(false),
    }
}

/// The path of a file beside a database.
pub(crate) fn path_beside(base: &RelPath, sidecar: &[u8]) -> Result<RelPath, ObjectError> {
    RelPath::new([base.as_bytes(), sidecar].concat()).map_err(|error| ObjectError::Store(Box::new(error)))
}

/// The database that this path belongs to, if its name says so.
pub(crate) fn base_path(path: &RelPath) -> Option<RelPath> {
    let (above, name) = path.split_last()?;
    above.join(base_of(name)?).ok()
}

/// The paths in these trees that go with this one, where it is a database or a file beside one: neither is of any use with the others of another
/// moment.
///
/// # Errors
/// When a tree cannot be read.
pub fn database_family(
    source: &dyn ObjectSource,
    trees: &[ObjectId],
    path: &RelPath,
) -> Result<Vec<RelPath>, ObjectError> {
    let base = base_path(path).unwrap_or_else(|| path.clone());
    let mut family = Vec::new();
    for base in if base == *path { vec![base] } else { vec![base, path.clone()] } {
        let mut known = false;
        for tree in trees {
            known |= has_database(source, *tree, &base)?;
        }
        if !known {
            continue;
        }
        for sidecar in [b"".as_slice(), LOG, JOURNAL, INDEX] {
            let member = path_beside(&base, sidecar)?;
            for tree in trees {
                if member != *path
                    && !family.contains(&member)
                    && change::find(source, *tree, &member)?.is_some()
                {
                    family.push(member.clone());
                }
            }
        }
    }
    Ok(family)
}

/// Some bytes of an open file, read without moving its position.
pub(crate) struct Reading<'a> {
    pub(crate) fd: &'a OwnedFd,
    pub(crate) at: u64,
    pub(crate) end: u64,
}

impl io::Read for Reading<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        let read = rustix::io::pread(self.fd, &mut buffer[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_a_database_are_known() {
        assert_eq!(base_of(b"a.db-wal"), Some(&b"a.db"[..]));
        assert_eq!(base_of(b"a-shm"), Some(&b"a"[..]));
        assert_eq!(base_of(b"a-journal"), Some(&b"a"[..]));
        assert_eq!(base_of(b"-wal"), None);
        assert_eq!(base_of(b"film"), None);
        assert_eq!(base_of(b""), None);
        let path = RelPath::new("d/a.db-wal").unwrap();
        assert_eq!(base_path(&path), Some(RelPath::new("d/a.db").unwrap()));
        assert_eq!(path_beside(&RelPath::new("d/a.db").unwrap(), LOG).unwrap(), path);
    }
}
