//! A store with a pack of any bytes: it opens, says what is damaged, never gives out a wrong byte, and goes on working.

use safepoint_model::{ObjectKind, ObjectSink, ObjectSource};
use safepoint_store::{Depth, Store, fuzzing};
use std::fs;
use std::path::{Path, PathBuf};

/// The bytes stand in a pack beside one that is whole.
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
        let store = Store::open(folder.path()).expect("a damaged pack does not keep a store from opening");
        store.validate(Depth::Deep, &|_, _| {}).expect("validation reports damage and does not fail");
        assert_eq!(store.get(ObjectKind::Chunk, id).expect("the other pack is whole"), good);
        let writer = store.writer().expect("a writer");
        let more = writer.put(ObjectKind::Chunk, bytes).expect("put");
        writer.finish().expect("finish");
        assert_eq!(store.get(ObjectKind::Chunk, more).expect("it was finished"), bytes);
    }
}

fn pack(store: &Path) -> PathBuf {
    let mut all = fs::read_dir(store.join("packs")).expect("packs").flatten().map(|entry| entry.path());
    all.find(|path| path.extension().is_some_and(|it| it == "pack")).expect("a pack")
}

/// In memory, where there is such a place.
pub(crate) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a folder")
}
