//! What is read again, and what is not.

use super::*;
use safepoint_model::ObjectKind;
use safepoint_model::content::Content;
use safepoint_model::progress::Silent;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// Keeps objects in memory and counts files that are read.
#[derive(Default)]
struct Memory {
    objects: Mutex<HashMap<ObjectId, Vec<u8>>>,
    read: Mutex<usize>,
    recalled: Mutex<usize>,
}

impl ObjectSink for Memory {
    fn put(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, ObjectError> {
        let id = ObjectId::of(kind, bytes);
        self.objects.lock().unwrap().insert(id, bytes.to_vec());
        Ok(id)
    }

    fn recall(&self, kind: ObjectKind, id: ObjectId, bytes: &[u8]) {
        assert_eq!(ObjectId::of(kind, bytes), id);
        assert_eq!(self.objects.lock().unwrap().get(&id).unwrap(), bytes);
        *self.recalled.lock().unwrap() += 1;
    }

    fn put_content(&self, _: u64, reader: &mut dyn Read) -> Result<Content, ObjectError> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(ObjectError::Input)?;
        *self.read.lock().unwrap() += 1;
        self.put(ObjectKind::Chunk, &bytes)?;
        Ok(Content::whole(&bytes))
    }
}

impl ObjectSource for Memory {
    fn get(&self, _: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        self.objects.lock().unwrap().get(&id).cloned().ok_or(ObjectError::Missing { id })
    }
}

/// A workspace with the cache of its last capture.
struct Desk {
    folder: tempfile::TempDir,
    memory: Memory,
    cache: Option<StatCache>,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder, memory: Memory::default(), cache: None }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("work").join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    /// Captures it, and says how many files were read and what it was.
    fn capture(&mut self) -> (usize, ObjectId) {
        // What was written within the clock's tick is not trusted.
        std::thread::sleep(Duration::from_millis(60));
        let before = *self.memory.read.lock().unwrap();
        let blocks = self.folder.path().join("blocks");
        let next = match &self.cache {
            Some(cache) => CacheWriter::after(File::options().write(true).open(&blocks).unwrap(), cache),
            None => CacheWriter::anew(File::create(&blocks).unwrap()),
        };
        let root = Root::open(&self.path("")).unwrap();
        let options = ScanOptions { cache: self.cache.as_ref(), next: Some(&next), ..ScanOptions::default() };
        let found = scan(&root, &self.memory, &options, &Silent).unwrap();
        if let Some(cache) = found.cache {
            let head = cache.finish(next).unwrap();
            self.cache = Some(StatCache::new(File::open(&blocks).unwrap(), head));
        }
        let read = *self.memory.read.lock().unwrap() - before;
        (read, found.snapshot.tree().unwrap())
    }

    /// The same without a cache.
    fn afresh(&self) -> ObjectId {
        let root = Root::open(&self.path("")).unwrap();
        let found = scan(&root, &self.memory, &ScanOptions::default(), &Silent).unwrap();
        assert!(found.cache.is_none(), "nobody asked for one");
        found.snapshot.tree().unwrap()
    }

    fn check(&mut self, read: usize) {
        let (really, tree) = self.capture();
        assert_eq!((really, tree), (read, self.afresh()));
    }
}

fn rename(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

#[test]
fn what_did_not_change_is_not_read_again() {
    let mut desk = Desk::new();
    for name in ["a", "sub/b", "sub/deep/c", "other/d"] {
        desk.write(name, name);
    }
    desk.check(4);
    desk.check(0);
    desk.write("sub/deep/c", "changed");
    desk.check(1);
    desk.check(0);
    fs::remove_file(desk.path("sub/b")).unwrap();
    desk.check(0);
    desk.write("sub/new", "new");
    desk.check(1);
    fs::remove_dir_all(desk.path("other")).unwrap();
    desk.check(0);
}

#[test]
fn what_a_changed_folder_was_is_told_from_the_cache() {
    let mut desk = Desk::new();
    for name in ["a/b/one", "a/b/two", "a/c/three", "d/four"] {
        desk.write(name, name);
    }
    std::os::unix::fs::symlink("one", desk.path("a/b/link")).unwrap();
    desk.check(4);
    assert_eq!(*desk.memory.recalled.lock().unwrap(), 0, "there was nothing before");
    desk.write("a/b/one", "changed");
    fs::remove_file(desk.path("a/b/two")).unwrap();
    desk.check(1);
    assert_eq!(*desk.memory.recalled.lock().unwrap(), 3, "the root, a and a/b");
}

#[test]
fn what_is_in_a_renamed_folder_is_not_read_again() {
    let mut desk = Desk::new();
    for name in ["a/x", "a/deep/y", "b/x", "m/z", "top"] {
        desk.write(name, name);
    }
    desk.check(5);
    // To names before, between and after the others.
    for (from, to) in [("a", "zz"), ("zz", "c"), ("c", "0"), ("m", "mm")] {
        rename(&desk.path(from), &desk.path(to));
        desk.check(0);
        desk.check(0);
    }
    // Two that change places.
    rename(&desk.path("b"), &desk.path("t"));
    rename(&desk.path("mm"), &desk.path("b"));
    rename(&desk.path("t"), &desk.path("mm"));
    let (read, tree) = desk.capture();
    assert!(read <= 2, "{read}");
    assert_eq!(tree, desk.afresh());
    // What changed meanwhile is read, and only that.
    rename(&desk.path("0"), &desk.path("1"));
    desk.write("1/deep/y", "changed");
    desk.check(1);
    // Something else under a new name is what it is, whatever was deleted.
    fs::remove_dir_all(desk.path("1")).unwrap();
    desk.write("2/x", "a/x");
    desk.write("2/deep/y", "changed");
    desk.check(2);
}

#[test]
fn a_database_and_its_log_are_read_together_or_not_at_all() {
    let mut desk = Desk::new();
    let page = |text: &str| format!("{:\0<512}", format!("SQLite format 3\0{text}"));
    desk.write("data", &page("1"));
    desk.write("data-wal", "log 1");
    desk.write("data-journal", "");
    desk.write("data-shm", "index");
    assert_eq!(desk.capture().0, 2);
    let (read, tree) = desk.capture();
    assert_eq!(read, 0, "what the cache vouches for is not read");
    desk.write("data-wal", "log 2");
    assert_eq!(desk.capture().0, 2, "a new log");
    desk.write("data", &page("2"));
    assert_eq!(desk.capture().0, 2, "a new database");
    desk.write("data-shm", "another index");
    assert_eq!(desk.capture().0, 0);
    fs::remove_file(desk.path("data-shm")).unwrap();
    assert_eq!(desk.capture().0, 0);
    fs::remove_file(desk.path("data-wal")).unwrap();
    assert_eq!(desk.capture().0, 0, "the database alone is as it was");
    desk.write("data-wal", "log 1");
    assert_eq!(desk.capture().0, 2, "a log that came up");
    desk.write("data", &page("1"));
    let _ = desk.capture();
    assert_ne!(desk.capture().1, tree, "times are part of it");
    // A file that is no database goes its own way.
    desk.write("text", "1");
    desk.write("text-wal", "1");
    assert_eq!(desk.capture().0, 2);
    desk.write("text-wal", "2");
    assert_eq!(desk.capture().0, 1);
}
