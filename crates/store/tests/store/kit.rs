//! Shared test helpers: a store in a temporary folder, incompressible bytes, and access to its files.

use safepoint_model::{ObjectId, ObjectKind, ObjectSink};
use safepoint_store::{Store, Written};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Store that is deleted when the test ends.
pub(crate) struct Home {
    root: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    /// For loops over every byte: thousands of flushes take minutes on a busy disk and prove nothing more.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self { root: root.unwrap() }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.root.path().join("store")
    }

    pub(crate) fn open(&self) -> Store {
        Store::open(&self.dir()).unwrap()
    }

    /// Returns the paths of the packs, oldest first.
    pub(crate) fn packs(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> =
            fs::read_dir(self.dir().join("packs")).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    pub(crate) fn pack_bytes(&self) -> u64 {
        self.packs().iter().map(|path| fs::metadata(path).unwrap().len()).sum()
    }

    pub(crate) fn remove_index(&self) {
        for name in ["index.db", "index.db-wal", "index.db-shm"] {
            let _ = fs::remove_file(self.dir().join(name));
        }
    }

    /// Runs SQL on the index: on the table of most objects and on that of the newest.
    pub(crate) fn sql(&self, sql: &str) {
        let index = rusqlite::Connection::open(self.dir().join("index.db")).unwrap();
        index.execute_batch(sql).unwrap();
        index.execute_batch(&sql.replace("objects", "recent")).unwrap();
    }
}

/// Object and its bytes.
pub(crate) type Known = (ObjectKind, ObjectId, Vec<u8>);

/// Stores these objects in one capture.
pub(crate) fn put(store: &Store, objects: &[(ObjectKind, &[u8])]) -> (Written, Vec<Known>) {
    let writer = store.writer().unwrap();
    let known = objects
        .iter()
        .map(|(kind, bytes)| (*kind, writer.put(*kind, bytes).unwrap(), bytes.to_vec()))
        .collect();
    (writer.finish().unwrap(), known)
}

/// Stores these chunks in one capture.
pub(crate) fn put_chunks(store: &Store, chunks: &[&[u8]]) -> Vec<Known> {
    let objects: Vec<_> = chunks.iter().map(|bytes| (ObjectKind::Chunk, *bytes)).collect();
    put(store, &objects).1
}

/// Returns bytes that look random and are reproducible (xorshift).
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Copies a store as it is on disk.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
