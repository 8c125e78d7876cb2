//! Catalog identity, its last known event, and documents that wait for the next flush.
//!
//! In: the catalog's identity and the end of its history, after each commit. Out: the same, when the store is
//! opened. No checkpoint flushes these files. The mark is written after the commit that it names is durable,
//! so it is never ahead of a healthy catalog. A power cut may leave it behind, which only weakens detection.

use crate::{Store, StoreError, linux};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const MARK_FILE: &str = "catalog";
const MARK_FORMAT: &str = "safepoint catalog 1";
/// A sector is written atomically. The identity is in the first, the end of the history in the second.
const SECTOR_BYTES: usize = 512;
const LATER_FILE: &str = "later";
const CHECK_DIGITS: usize = 16;

/// Catalog that belongs to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Identity of the catalog.
    pub id: String,
    /// Number of the catalog among those of this store.
    pub generation: u64,
    /// Number of the last event known to be committed, or zero.
    pub seq: u64,
    /// Hash of that event.
    pub hash: [u8; 32],
}

/// Records the end of the catalog's history, from any thread, without a flush.
#[derive(Debug, Clone)]
pub struct MarkWriter {
    path: PathBuf,
    id: String,
    generation: u64,
}

impl MarkWriter {
    /// Records a committed event. A failure only weakens later detection.
    pub fn note(&self, seq: u64, hash: [u8; 32]) {
        let line = end_line(&self.id, self.generation, seq, &hash);
        if let Ok(file) = linux::open_write(&self.path) {
            let _ = file.write_all_at(&sector(&line), SECTOR_BYTES as u64);
        }
    }
}

impl Store {
    /// Returns the catalog that belongs to this store, if recorded.
    ///
    /// # Errors
    /// When the mark cannot be read.
    pub fn mark(&self) -> Result<Option<Mark>, StoreError> {
        let text =
            linux::read_small(&self.dir().join(MARK_FILE)).map_err(|source| self.keeper_error(source))?;
        Ok(text.as_deref().and_then(read_mark))
    }

    /// Records durably which catalog belongs to this store.
    ///
    /// # Errors
    /// When the mark cannot be written.
    pub fn set_mark(&self, mark: &Mark) -> Result<(), StoreError> {
        let Mark { id, generation, seq, hash } = mark;
        let mut bytes = sector(&checked(&format!("{MARK_FORMAT} {id} {generation}")));
        bytes.extend(sector(&end_line(id, *generation, *seq, hash)));
        linux::put_file(self.dir(), MARK_FILE, &bytes).map_err(|source| self.keeper_error(source))
    }

    /// Returns a writer for the end of this catalog's history; it writes only while the catalog belongs to
    /// the store.
    pub fn mark_writer(&self, id: &str, generation: u64) -> MarkWriter {
        MarkWriter { path: self.dir().join(MARK_FILE), id: id.to_owned(), generation }
    }

    /// Queues a document until the next flush stores it as an object. It survives the end of the process, but
    /// not a power cut.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_for_later(&self, document: &[u8]) -> Result<(), StoreError> {
        let path = self.dir().join(LATER_FILE);
        let append = || -> std::io::Result<()> {
            loop {
                let file = linux::lock(linux::open_or_create(&path)?)?;
                if linux::is_named(&file, &path)? {
                    let line = checked(&String::from_utf8_lossy(document));
                    let len = file.metadata()?.len();
                    return file.write_all_at(line.as_bytes(), len);
                }
            }
        };
        append().map_err(|source| self.keeper_error(source))
    }

    /// Returns the documents that wait for the next flush.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn kept_for_later(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let text =
            linux::read_small(&self.dir().join(LATER_FILE)).map_err(|source| self.keeper_error(source))?;
        let text = text.unwrap_or_default();
        Ok(text.lines().filter_map(unchecked).map(|line| line.as_bytes().to_vec()).collect())
    }

    /// Returns the number of bytes that wait for the next flush.
    pub fn later_bytes(&self) -> u64 {
        linux::len(&self.dir().join(LATER_FILE)).unwrap_or(0)
    }

    /// Removes the queued documents that are not `needed`.
    ///
    /// # Errors
    /// When the other documents cannot be rewritten.
    pub fn forget_later(&self, needed: impl Fn(&[u8]) -> bool) -> Result<(), StoreError> {
        let path = self.dir().join(LATER_FILE);
        let failed = |source| self.keeper_error(source);
        if linux::len(&path).is_none_or(|len| len == 0) {
            return Ok(());
        }
        let file = linux::open_write(&path).and_then(linux::lock).map_err(failed)?;
        if !linux::is_named(&file, &path).map_err(failed)? {
            return Ok(());
        }
        let kept = self.kept_for_later()?.into_iter().filter(|document| needed(document));
        let text: String = kept.map(|document| checked(&String::from_utf8_lossy(&document))).collect();
        linux::put_file(self.dir(), LATER_FILE, text.as_bytes()).map_err(failed)
    }

    fn keeper_error(&self, source: std::io::Error) -> StoreError {
        StoreError::Open { path: self.dir().to_owned(), source }
    }
}

fn sector(line: &str) -> Vec<u8> {
    let mut bytes = line.as_bytes().to_vec();
    bytes.resize(SECTOR_BYTES, b' ');
    bytes
}

fn end_line(id: &str, generation: u64, seq: u64, hash: &[u8; 32]) -> String {
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    checked(&format!("{id} {generation} {seq} {hash}"))
}

/// Returns the line prefixed with its checksum.
fn checked(line: &str) -> String {
    let sum = blake3::hash(line.as_bytes()).to_hex();
    format!("{} {line}\n", &sum[..CHECK_DIGITS])
}

/// Returns the line without its checksum if the checksum matches.
fn unchecked(line: &str) -> Option<&str> {
    let (sum, line) = line.split_once(' ')?;
    (blake3::hash(line.as_bytes()).to_hex()[..CHECK_DIGITS] == *sum).then_some(line)
}

fn read_mark(text: &str) -> Option<Mark> {
    let first = unchecked(text.lines().next()?)?.strip_prefix(MARK_FORMAT)?;
    let mut words = first.split_whitespace();
    let (id, generation) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    let end = text.get(SECTOR_BYTES..).and_then(|rest| read_end(rest, &id, generation));
    let (seq, hash) = end.unwrap_or((0, [0; 32]));
    Some(Mark { id, generation, seq, hash })
}

fn read_end(text: &str, id: &str, generation: u64) -> Option<(u64, [u8; 32])> {
    let mut words = unchecked(text.lines().next()?)?.split(' ');
    if words.next()? != id || words.next()?.parse() != Ok(generation) {
        return None;
    }
    let (seq, digits) = (words.next()?.parse().ok()?, words.next()?);
    Some((seq, *blake3::Hash::from_hex(digits).ok()?.as_bytes()))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests damage files")]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        (dir, store)
    }

    #[test]
    fn the_mark_reads_back_and_a_torn_end_is_unknown_not_wrong() {
        let (dir, store) = store();
        assert_eq!(store.mark().unwrap(), None);
        let mark = Mark { id: "abc".to_owned(), generation: 2, seq: 5, hash: [7; 32] };
        store.set_mark(&mark).unwrap();
        assert_eq!(store.mark().unwrap().as_ref(), Some(&mark));
        store.mark_writer("abc", 2).note(1_000_000, [9; 32]);
        let noted = Mark { seq: 1_000_000, hash: [9; 32], ..mark.clone() };
        assert_eq!(store.mark().unwrap(), Some(noted.clone()));
        store.mark_writer("abc", 2).note(6, [8; 32]);
        assert_eq!(store.mark().unwrap().unwrap().seq, 6);
        // The mark of another catalog is ignored.
        store.mark_writer("xyz", 2).note(9, [9; 32]);
        assert_eq!(store.mark().unwrap(), Some(Mark { seq: 0, hash: [0; 32], ..mark.clone() }));
        store.mark_writer("abc", 2).note(6, [8; 32]);
        let path = dir.path().join(MARK_FILE);
        let good = std::fs::read(&path).unwrap();
        for at in SECTOR_BYTES..SECTOR_BYTES + 90 {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            let read = store.mark().unwrap();
            assert!(read.is_none_or(|mark| mark.seq == 0), "byte {at}");
        }
    }

    #[test]
    fn documents_wait_until_they_are_forgotten_and_torn_lines_do_not_count() {
        let (dir, store) = store();
        assert!(store.kept_for_later().unwrap().is_empty());
        for text in ["one", "two", "three"] {
            store.keep_for_later(text.as_bytes()).unwrap();
        }
        assert_eq!(store.kept_for_later().unwrap(), [&b"one"[..], b"two", b"three"]);
        store.forget_later(|document| document != b"two").unwrap();
        assert_eq!(store.kept_for_later().unwrap(), [&b"one"[..], b"three"]);
        let path = dir.path().join(LATER_FILE);
        let len = std::fs::metadata(&path).unwrap().len();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(len - 3).unwrap();
        assert_eq!(store.kept_for_later().unwrap(), [&b"one"[..]]);
    }
}
