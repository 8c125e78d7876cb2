//! Tests of rereading and of the stat cache.

use super::ruling::CACHE_SIGNATURE;
use super::*;
use safepoint_model::content::Content;
use safepoint_model::progress::Silent;
use safepoint_model::tree::Tree;
use safepoint_model::{ObjectError, ObjectKind};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// Change of the workspace during a capture.
type Event = Box<dyn FnOnce(&[u8]) + Send>;

/// Stores objects in memory and counts files read.
#[derive(Default)]
struct Memory {
    /// Called with the content of the first file read.
    event: Mutex<Option<Event>>,
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
        let event = self.event.lock().unwrap().take();
        if let Some(event) = event {
            event(&bytes);
        }
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

/// Workspace with the cache of its last capture.
struct Desk {
    folder: tempfile::TempDir,
    memory: Memory,
    cache: Option<StatCache>,
    /// Coverage of the last capture.
    coverage: std::cell::RefCell<Coverage>,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder, memory: Memory::default(), cache: None, coverage: std::cell::RefCell::default() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("work").join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    /// Captures the workspace; returns the number of files read and the tree.
    fn capture(&mut self) -> (usize, ObjectId) {
        // Files written within the clock tick are not trusted.
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
        self.coverage.replace(found.snapshot.coverage.clone());
        let read = *self.memory.read.lock().unwrap() - before;
        (read, found.snapshot.tree().unwrap())
    }

    /// Captures during an event, with and without a cache. Both captures and the next one must be complete.
    fn capture_while(&mut self, event: impl FnOnce(&[u8]) + Send + Clone + 'static) -> Coverage {
        *self.memory.event.lock().unwrap() = Some(Box::new(event));
        let (_, tree) = self.capture();
        assert!(self.memory.event.lock().unwrap().is_none(), "nothing was read");
        assert_eq!(tree, self.afresh());
        let (_, tree) = self.capture();
        assert_eq!(tree, self.afresh(), "the cache had a false hit");
        self.last_coverage()
    }

    /// Captures without a cache.
    fn afresh(&self) -> ObjectId {
        let root = Root::open(&self.path("")).unwrap();
        let found = scan(&root, &self.memory, &ScanOptions::default(), &Silent).unwrap();
        assert!(found.cache.is_none(), "a cache was written without being requested");
        self.coverage.replace(found.snapshot.coverage.clone());
        found.snapshot.tree().unwrap()
    }

    fn last_coverage(&self) -> Coverage {
        self.coverage.borrow().clone()
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
    assert_eq!(*desk.memory.recalled.lock().unwrap(), 0, "the first capture has no old tree");
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
    // New names before, between and after the others.
    for (from, to) in [("a", "zz"), ("zz", "c"), ("c", "0"), ("m", "mm")] {
        rename(&desk.path(from), &desk.path(to));
        desk.check(0);
        desk.check(0);
    }
    // Two directories that exchange names.
    rename(&desk.path("b"), &desk.path("t"));
    rename(&desk.path("mm"), &desk.path("b"));
    rename(&desk.path("t"), &desk.path("mm"));
    let (read, tree) = desk.capture();
    assert!(read <= 2, "{read}");
    assert_eq!(tree, desk.afresh());
    // Only changed files are read.
    rename(&desk.path("0"), &desk.path("1"));
    desk.write("1/deep/y", "changed");
    desk.check(1);
    // A new directory under a new name is read, even after deletions.
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
    assert_eq!(read, 0, "cached files are not read");
    desk.write("data-wal", "log 2");
    assert_eq!(desk.capture().0, 2, "a new log");
    desk.write("data", &page("2"));
    assert_eq!(desk.capture().0, 2, "a new database");
    desk.write("data-shm", "another index");
    assert_eq!(desk.capture().0, 0);
    fs::remove_file(desk.path("data-shm")).unwrap();
    assert_eq!(desk.capture().0, 0);
    fs::remove_file(desk.path("data-wal")).unwrap();
    assert_eq!(desk.capture().0, 0, "the database alone is unchanged");
    desk.write("data-wal", "log 1");
    assert_eq!(desk.capture().0, 2, "a log that appeared");
    desk.write("data", &page("1"));
    let _ = desk.capture();
    assert_ne!(desk.capture().1, tree, "times are part of the tree");
    // A file that is no database is independent of its neighbours.
    desk.write("text", "1");
    desk.write("text-wal", "1");
    assert_eq!(desk.capture().0, 2);
    desk.write("text-wal", "2");
    assert_eq!(desk.capture().0, 1);
}

/// Creates folders with files that contain their own path.
fn folders(desk: &Desk, count: usize, files: usize) {
    for folder in 0..count {
        for file in 0..files {
            let name = format!("top/{folder:03}/{file:03}");
            desk.write(&name, &name);
        }
    }
}

fn folder_of(content: &[u8]) -> String {
    let path = String::from_utf8(content.to_vec()).unwrap();
    path.rsplit_once('/').unwrap().0.to_owned()
}

#[test]
fn files_that_move_to_a_folder_that_was_listed_are_captured() {
    let mut desk = Desk::new();
    folders(&desk, 1, 64);
    let work = desk.path("");
    let coverage = desk.capture_while(move |content| {
        let read = work.join(str::from_utf8(content).unwrap());
        for entry in fs::read_dir(work.join("top/000")).unwrap().map(Result::unwrap) {
            if entry.path() != read {
                rename(&entry.path(), &work.join(entry.file_name()));
            }
        }
    });
    assert_eq!(coverage, Coverage::default());
}

#[test]
fn folders_that_move_to_a_folder_that_was_listed_are_captured() {
    let mut desk = Desk::new();
    folders(&desk, 64, 3);
    let work = desk.path("");
    let coverage = desk.capture_while(move |content| {
        let here = work.join(folder_of(content));
        for entry in fs::read_dir(work.join("top")).unwrap().map(Result::unwrap) {
            if entry.path() != here {
                rename(&entry.path(), &here.join(format!("from {}", entry.file_name().display())));
            }
        }
    });
    assert_eq!(coverage, Coverage::default());
}

#[test]
fn folders_and_files_that_change_places_are_captured_where_they_are() {
    let mut desk = Desk::new();
    folders(&desk, 64, 2);
    // The files of two folders differ only in content.
    let then = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    for folder in 0..64 {
        for file in 0..2 {
            let path = desk.path(&format!("top/{folder:03}/{file:03}"));
            File::options().write(true).open(path).unwrap().set_times(then).unwrap();
        }
    }
    let top = desk.path("top");
    let coverage = desk.capture_while(move |_| {
        for folder in 0..32 {
            let (a, b) = (top.join(format!("{folder:03}")), top.join(format!("{:03}", 63 - folder)));
            exchange(&a, &b);
            exchange(&a.join("000"), &a.join("001"));
        }
    });
    assert_eq!(coverage, Coverage::default());
}

fn exchange(a: &Path, b: &Path) {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, b, flags).unwrap();
}

#[test]
fn the_facts_of_a_folder_are_of_the_one_that_is_listed() {
    let desk = Desk::new();
    desk.write("a/one", "1");
    desk.write("b/two", "2");
    let root = Root::open(&desk.path("")).unwrap();
    let (options, started_ns) = (ScanOptions::default(), file::now_ns());
    // Later looks get a later time.
    linux::wait_for_tick(started_ns);
    let walk = Walk::new(&root, (&desk.memory, &desk.memory), &options, &Silent);
    let here = Here {
        fd: linux::open_dir(root.fd(), b".").unwrap(),
        path: RelPath::root(),
        depth: 0,
        rules: Rules::configured(&[]).unwrap(),
        keep: Keep::new(Above::Root(None)),
        below: walk.below_root(),
        only_kept: false,
        cached: None,
        started_ns,
        is_counted: false,
    };
    let looks = |folder: &Folder<'_>| {
        let opened = walk.open_listed(&here, folder, file::now_ns()).unwrap();
        let name = opened.names.iter().next().unwrap().to_vec();
        (opened.facts, opened.looked_at_ns > started_ns, name)
    };
    let facts = |name: &str| linux::facts_at(&here.fd, name.as_bytes()).unwrap();
    let Item::Directory(folder) = walk.classify(&here, b"a", None).unwrap() else { panic!("not a folder") };
    assert_eq!(looks(&folder), (folder.facts, false, b"one".to_vec()), "no second statx");
    // Another folder has the name when it is opened.
    exchange(&desk.path("a"), &desk.path("b"));
    let opened = looks(&folder);
    assert_eq!(opened, (facts("a"), true, b"two".to_vec()));
    assert_ne!(opened.0.ino, folder.facts.ino);
    assert_eq!(looks(&folder), opened, "listings are no longer trusted");
}

#[test]
fn folders_that_are_replaced_for_a_while_are_captured_as_they_are() {
    /// Replaces folders after the first capture and restores them after some more.
    struct Replacing {
        pairs: Vec<(std::path::PathBuf, std::path::PathBuf)>,
        captured: AtomicU64,
    }
    impl Progress for Replacing {
        fn advance(&self, _: u64, _: u64) {
            if [0, 20].contains(&self.captured.fetch_add(1, Ordering::SeqCst)) {
                self.pairs.iter().for_each(|(a, b)| exchange(a, b));
            }
        }
    }
    let mut desk = Desk::new();
    folders(&desk, 64, 2);
    let other = |folder: usize| desk.folder.path().join(format!("other/{folder:03}"));
    for folder in 0..64 {
        fs::create_dir_all(other(folder)).unwrap();
        fs::write(other(folder).join("other"), "other").unwrap();
    }
    let top = desk.path("top");
    let pairs = (0..64).map(|folder| (top.join(format!("{folder:03}")), other(folder))).collect();
    let (_, tree) = desk.capture();
    let replacing = Replacing { pairs, captured: AtomicU64::new(0) };
    for cache in [desk.cache.as_ref(), None] {
        let root = Root::open(&desk.path("")).unwrap();
        let options = ScanOptions { cache, ..ScanOptions::default() };
        replacing.captured.store(0, Ordering::SeqCst);
        let found = scan(&root, &desk.memory, &options, &replacing).unwrap().snapshot;
        assert_eq!((found.tree(), found.coverage), (Some(tree), Coverage::default()));
    }
}

#[test]
fn rules_that_appear_while_a_folder_is_captured_hold_for_what_is_read_again() {
    let mut desk = Desk::new();
    folders(&desk, 8, 8);
    desk.write("top/.safepointignore", "007\n");
    let work = desk.path("");
    let coverage = desk.capture_while(move |_| {
        fs::write(work.join("fresh"), "000\n").unwrap();
        rename(&work.join("fresh"), &work.join("top/.safepointignore"));
        fs::create_dir(work.join("cache")).unwrap();
        fs::write(work.join("cache/CACHEDIR.TAG"), CACHE_SIGNATURE).unwrap();
    });
    assert_eq!(coverage.skipped.len(), 9, "{coverage:?}");
}

#[test]
fn a_database_in_a_folder_that_is_read_again_stays_one_with_its_log() {
    let page = |text: &str| format!("{:\0<512}", format!("SQLite format 3\0{text}"));
    // Unchanged files are reused; if the log or the database changed, both are read again.
    for (changed, more) in
        [(None, 0), (Some(("data-wal", "log 2".to_owned())), 2), (Some(("data", page("2"))), 2)]
    {
        let mut desk = Desk::new();
        desk.write("data", &page("1"));
        desk.write("data-wal", "log 1");
        desk.write("data-shm", "index");
        desk.write("trigger", "trigger");
        let work = desk.path("");
        let reads = std::sync::Arc::new(Mutex::new(0));
        let read = reads.clone();
        desk.memory.event.lock().unwrap().replace(Box::new(move |_| {
            // After the whole read, so that the second read follows.
            *read.lock().unwrap() += 1;
            fs::write(work.join("new"), "new").unwrap();
            if let Some((name, content)) = changed {
                fs::write(work.join(name), content).unwrap();
            }
        }));
        let (read, tree) = desk.capture();
        assert_eq!(*reads.lock().unwrap(), 1);
        assert_eq!(tree, desk.afresh());
        assert!((4..=4 + more).contains(&read), "{read}");
    }
}

/// Returns the content of every file below a tree.
fn contents(source: &Memory, tree: ObjectId) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in Tree::load(source, tree).unwrap().entries() {
        match &entry.node {
            Node::Directory(tree) => found.extend(contents(source, *tree)),
            Node::File(content) => found.push(source.get(ObjectKind::Chunk, content.id).unwrap()),
            Node::Symlink(_) => {}
        }
    }
    found.sort();
    found
}

/// Signals the end, even after a failed assertion.
struct Over<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Captures while `disturb` runs repeatedly; returns the number of unsettled reports. Each capture is
/// complete or reported.
fn while_it_goes_on(desk: &mut Desk, rounds: usize, disturb: impl Fn(u64) + Sync) -> usize {
    let done = std::sync::atomic::AtomicBool::new(false);
    let all = contents(&desk.memory, desk.afresh());
    let mut reported = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0.. {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                disturb(number);
            }
        });
        let _over = Over(&done);
        for round in 0..rounds {
            let tree = match round % 2 {
                0 => desk.afresh(),
                _ => desk.capture().1,
            };
            let found = contents(&desk.memory, tree);
            let lost: Vec<_> = all.iter().filter(|content| found.binary_search(content).is_err()).collect();
            let coverage = desk.last_coverage();
            assert!(lost.is_empty() || !coverage.unsettled.is_empty(), "{round}: {} lost", lost.len());
            reported += usize::from(!coverage.unsettled.is_empty());
        }
    });
    reported
}

#[test]
fn a_folder_that_is_renamed_all_the_while_is_captured_or_reported() {
    let mut desk = Desk::new();
    for name in ["a/one", "a/deep/two", "a/deep/er/three", "other/four"] {
        desk.write(name, name);
    }
    let (a, z) = (desk.path("a"), desk.path("z"));
    while_it_goes_on(&mut desk, 200, |number| match number % 2 {
        0 => rename(&a, &z),
        _ => rename(&z, &a),
    });
}

#[test]
fn folders_that_change_names_all_the_while_are_captured_or_reported() {
    let mut desk = Desk::new();
    for name in ["a/one", "a/deep/two", "z/one", "z/deep/two", "m/three"] {
        desk.write(name, name);
    }
    let [a, z, t] = ["a", "z", "m/t"].map(|name| desk.path(name));
    while_it_goes_on(&mut desk, 200, |_| {
        rename(&a, &t);
        rename(&z, &a);
        rename(&t, &z);
    });
}

#[test]
fn files_that_move_between_folders_all_the_while_are_captured_or_reported() {
    let mut desk = Desk::new();
    for name in ["a/one", "a/two", "m/n/three", "z/four"] {
        desk.write(name, name);
    }
    let (here, there) = (desk.path("a/one"), desk.path("z/one"));
    let (two, three, t) = (desk.path("a/two"), desk.path("m/n/three"), desk.path("t"));
    while_it_goes_on(&mut desk, 200, |number| {
        match number % 2 {
            0 => rename(&here, &there),
            _ => rename(&there, &here),
        }
        rename(&two, &t);
        rename(&three, &two);
        rename(&t, &three);
    });
}

#[test]
fn a_slow_mover_is_noticed_too() {
    let mut desk = Desk::new();
    folders(&desk, 100, 4);
    let (here, there) = (desk.path("top/000"), desk.path("top/099/moved"));
    while_it_goes_on(&mut desk, 60, |number| {
        match number % 2 {
            0 => rename(&here, &there),
            _ => rename(&there, &here),
        }
        std::thread::sleep(Duration::from_micros(number % 7 * 300));
    });
}

#[test]
fn new_files_that_come_and_go_are_not_reported() {
    let mut desk = Desk::new();
    for name in ["log", "build/old", "build/deep/older", "src/main"] {
        desk.write(name, name);
    }
    std::thread::sleep(Duration::from_millis(20));
    let work = desk.path("");
    let changes = |number: u64| {
        let file = |name: &str| work.join(name);
        // Changes through temporary files, a journal, folders, and an old file that is written.
        fs::write(file(&format!("build/{number}.tmp")), "new").unwrap();
        rename(&file(&format!("build/{number}.tmp")), &file(&format!("build/{number}.o")));
        fs::write(file("journal"), "new").unwrap();
        fs::remove_file(file("journal")).unwrap();
        fs::create_dir(file("build/deep/er")).unwrap();
        fs::write(file("build/deep/er/x"), "new").unwrap();
        fs::remove_dir_all(file("build/deep/er")).unwrap();
        std::thread::sleep(Duration::from_micros(200));
        let mut log = File::options().append(true).open(file("log")).unwrap();
        std::io::Write::write_all(&mut log, b"").unwrap();
    };
    // A scan that the kernel suspends for long may see a folder change more often than it reads it again.
    let mut reports = (0..3).map(|_| while_it_goes_on(&mut desk, 60, changes));
    assert!(reports.any(|reported| reported == 0));
}

#[test]
fn of_large_files_only_those_are_read_that_have_to_be() {
    let mut desk = Desk::new();
    let large = |desk: &Desk, name: &str, byte: u8, more: usize| {
        fs::write(desk.path(name), vec![byte; LARGE_FILE_BYTES as usize + more]).unwrap();
    };
    fs::create_dir(desk.path("sub")).unwrap();
    for name in ["same", "longer", "sub/touched"] {
        large(&desk, name, 1, 0);
    }
    desk.write("small", "1");
    let (_, before) = desk.capture();
    large(&desk, "longer", 1, 1);
    large(&desk, "sub/touched", 1, 0);
    large(&desk, "new", 1, 0);
    desk.write("small", "22");
    let look = |options: LargeFiles<'_>| {
        let before_read = *desk.memory.read.lock().unwrap();
        let root = Root::open(&desk.path("")).unwrap();
        let cache = desk.cache.as_ref();
        let options = ScanOptions { cache, keep: Some(before), large: options, ..ScanOptions::default() };
        let found = scan(&root, &desk.memory, &options, &Silent).unwrap().snapshot;
        (*desk.memory.read.lock().unwrap() - before_read, found)
    };
    let names = |found: &Snapshot| -> Vec<String> {
        let deltas = safepoint_model::change::deltas(
            &desk.memory,
            before,
            found.tree().unwrap(),
            safepoint_model::tree::Owners::Compared,
        );
        deltas.unwrap().iter().map(|delta| delta.path().to_string()).collect()
    };
    let (read, found) = look(LargeFiles::Read);
    assert_eq!((read, names(&found)), (4, ["longer", "new", "small"].map(str::to_owned).to_vec()));
    // A file of unchanged length is read to see that nothing differs.
    let (read, found) = look(LargeFiles::InDoubt);
    assert_eq!((read, names(&found)), (2, ["longer", "new", "small"].map(str::to_owned).to_vec()));
    assert!(found.coverage.skipped.is_empty());
    let chosen = [RelPath::new("sub").unwrap()];
    let (read, found) = look(LargeFiles::Within(&chosen));
    assert_eq!(read, 2);
    let left_out: Vec<(String, Why)> =
        found.coverage.skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.why)).collect();
    assert_eq!(left_out, [("longer".to_owned(), Why::NotChosen), ("new".to_owned(), Why::NotChosen)]);
}
