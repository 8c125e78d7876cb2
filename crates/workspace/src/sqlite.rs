//! Parts of SQLite's file format: header, names of sidecar files, lock bytes.
//!
//! A database and its write-ahead log (`-wal`) belong together: either one with a version of the other from
//! another time is damaged. A rollback journal (`-journal`) is part of the database while it is "hot", that
//! is after its writer died. The next program that opens the database rebuilds the log's index (`-shm`). See
//! sqlite.org: fileformat2.html, walformat.html, lockingv3.html.

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

/// First bytes of a database.
const HEADER: &[u8; 16] = b"SQLite format 3\0";
/// First bytes of a hot journal.
const JOURNAL_HEADER: &[u8; 8] = &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// First bytes of a log, except the last bit.
const LOG_HEADER: [u8; 4] = [0x37, 0x7f, 0x06, 0x82];
/// First bytes of a log index: its version, in native byte order.
const INDEX_HEADER: [u8; 4] = 3_007_000_u32.to_ne_bytes();
/// Minimum page size; the size of a database is a multiple of it.
const PAGE_BYTES_MIN: u64 = 512;

/// Write-ahead log.
pub(crate) const LOG: &[u8] = b"-wal";
/// Index of the log, shared by processes that have the database open.
pub(crate) const INDEX: &[u8] = b"-shm";
/// Rollback journal.
pub(crate) const JOURNAL: &[u8] = b"-journal";
/// Suffixes of sidecar files.
pub(crate) const SIDECARS: [&[u8]; 3] = [LOG, JOURNAL, INDEX];

/// Byte that a writer locks while it waits for readers.
pub(crate) const PENDING: Bytes = Bytes(0x4000_0000, 1);
/// Byte that a writer locks before any change.
pub(crate) const RESERVED: Bytes = Bytes(0x4000_0001, 1);
/// Bytes that readers share, and that a writer locks before it writes to the database.
pub(crate) const SHARED: Bytes = Bytes(0x4000_0002, 510);
/// In the index: lock for a SQLite checkpoint.
pub(crate) const CHECKPOINT: Bytes = Bytes(121, 1);
/// In the index: the first read mark that refers to the log. Restarting the log locks all of them.
pub(crate) const READ_MARK: Bytes = Bytes(124, 1);

/// Storage for copies of large databases in use.
pub trait DatabaseCopies: fmt::Debug + Sync {
    /// Maximum time to hold the locks of a database.
    fn held_max(&self) -> Duration;

    /// Returns an empty file that is deleted when it is closed.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    fn file(&self) -> io::Result<File>;

    /// Returns a copy of this database, made by SQLite in another process.
    ///
    /// # Errors
    /// Fails if no such process is available or it failed.
    fn back_up(&self, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<File>;
}

/// Returns the database name for the name of a sidecar file.
pub(crate) fn base_of(name: &[u8]) -> Option<&[u8]> {
    // The last byte rejects nearly every name.
    match name.last()? {
        b'l' => name.strip_suffix(LOG).or_else(|| name.strip_suffix(JOURNAL)),
        b'm' => name.strip_suffix(INDEX),
        _ => None,
    }
    .filter(|base| !base.is_empty())
}

/// Returns the name of a sidecar file.
pub(crate) fn beside(name: &[u8], sidecar: &[u8]) -> Vec<u8> {
    [name, sidecar].concat()
}

/// Reads the first bytes of an open file; fewer if it is shorter.
pub(crate) fn start_of<const N: usize>(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut start = [0; N];
    let len = read_start(fd, &mut start)?;
    Ok(start[..len].to_vec())
}

/// Returns true if an open file begins with these bytes. Called for every file read, so it does not allocate.
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

/// Returns true if an open file of this size is a database.
pub(crate) fn is_database(fd: &OwnedFd, size: u64) -> bool {
    size >= PAGE_BYTES_MIN && begins_with(fd, HEADER)
}

/// Returns true if the file with this name is a database.
pub(crate) fn is_database_at(dir: &OwnedFd, name: &[u8]) -> bool {
    linux::open_file(dir, name).is_ok_and(|fd| {
        linux::facts_of(&fd).is_ok_and(|facts| facts.file_type.is_file() && is_database(&fd, facts.size))
    })
}

/// Returns true if an open journal is hot. An empty one, or one with a zeroed header, is not.
pub(crate) fn is_journal(fd: &OwnedFd) -> bool {
    begins_with(fd, JOURNAL_HEADER)
}

/// Returns true if a sidecar file has the right header or is empty.
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

/// Returns true if a stored file is a database. Reads it only if its size fits; an unreadable one counts as
/// no database.
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

/// Returns true if this path is a database in a tree.
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

/// Returns the path of a sidecar file.
pub(crate) fn path_beside(base: &RelPath, sidecar: &[u8]) -> Result<RelPath, ObjectError> {
    RelPath::new([base.as_bytes(), sidecar].concat()).map_err(|error| ObjectError::Store(Box::new(error)))
}

/// Returns the path of the database, if this is the name of a sidecar.
pub(crate) fn base_path(path: &RelPath) -> Option<RelPath> {
    let (above, name) = path.split_last()?;
    above.join(base_of(name)?).ok()
}

/// Returns the paths in these trees that belong to the same database: none is usable with the others from
/// another time.
///
/// # Errors
/// Fails if a tree cannot be read.
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

/// Reader of an open file that does not move its position.
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
