//! Store with a pack of arbitrary bytes: it opens, reports damage, never returns a wrong byte, and keeps
//! working.

use safepoint_model::{ObjectKind, ObjectSink, ObjectSource};
use safepoint_store::{Depth, Store, fuzzing};
use std::fs;
use std::path::{Path, PathBuf};

/// Puts the bytes into a pack beside a valid one.
pub fn packs(bytes: &[u8]) {
    let folder = folder();
    let good = b"an object that was finished".as_slice();
    let id = {
        let store = Store::open(folder.path()).expect("an empty folder becomes a store");
        let writer = store.writer().expect("a writer");
        let id = writer.put(ObjectKind::Chunk, good).expect("put");
        writer.finish().expect("finish");
        id
    };
    let known = pack(folder.path());
    let other = known.with_file_name(format!("{}.pack", "01ARZ3NDEKTSV4RRFFQ69G5FAV"));
    fs::write(other, fuzzing::pack_of(bytes)).expect("a pack");
    for without_index in [false, true] {
        if without_index {
            let _ = fs::remove_file(folder.path().join("index.db"));
        }
        let store = Store::open(folder.path()).expect("a store opens despite a damaged pack");
        store.validate(Depth::Deep, &|_, _| {}).expect("validation reports damage without failing");
        assert_eq!(store.get(ObjectKind::Chunk, id).expect("the other pack is intact"), good);
        let writer = store.writer().expect("a writer");
        let more = writer.put(ObjectKind::Chunk, bytes).expect("put");
        writer.finish().expect("finish");
        assert_eq!(store.get(ObjectKind::Chunk, more).expect("the object was finished"), bytes);
    }
}

fn pack(store: &Path) -> PathBuf {
    let mut all = fs::read_dir(store.join("packs")).expect("packs").flatten().map(|entry| entry.path());
    all.find(|path| path.extension().is_some_and(|it| it == "pack")).expect("a pack")
}

/// Creates a folder, in memory if possible.
pub(crate) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a folder")
}
