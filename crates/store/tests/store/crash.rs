//! Crashes: every finished capture is kept, and leftovers do not block later ones.

use crate::kit::{Home, copy_dir, noise, put_chunks};
use safepoint_model::{ObjectKind, ObjectSink, ObjectSource};
use safepoint_store::{Depth, Store};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_tail_torn_at_any_length_loses_nothing_that_was_finished() {
    let home = Home::in_memory();
    let store = home.open();
    let first = put_chunks(&store, &[b"one", &[5; 200]]);
    let pack = home.packs().remove(0);
    let kept = fs::metadata(&pack).unwrap().len();
    let index = home.dir().join("saved");
    fs::create_dir(&index).unwrap();
    for name in ["index.db", "index.db-wal"] {
        fs::copy(home.dir().join(name), index.join(name)).unwrap();
    }
    put_chunks(&store, &[b"two", b"three"]);
    drop(store);
    let full = fs::read(&pack).unwrap();
    for len in kept as usize..=full.len() {
        for (with_index, zeroed) in [(true, false), (false, false), (true, true)] {
            let mut torn = full[..len].to_vec();
            if zeroed {
                // The length reached the disk before the bytes.
                torn.resize(full.len(), 0);
            }
            fs::write(&pack, &torn).unwrap();
            home.remove_index();
            if with_index {
                for name in ["index.db", "index.db-wal"] {
                    fs::copy(index.join(name), home.dir().join(name)).unwrap();
                }
            }
            let store = home.open();
            for (kind, id, bytes) in &first {
                assert_eq!(&store.get(*kind, *id).unwrap(), bytes);
            }
            let more = put_chunks(&store, &[b"after the crash"]);
            let store = home.open();
            assert_eq!(store.get(ObjectKind::Chunk, more[0].1).unwrap(), b"after the crash");
            assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, [], "length {len}");
            assert_eq!(home.packs().len(), 1, "length {len}");
        }
    }
}

#[test]
fn a_finish_whose_rows_were_lost_is_found_again() {
    let home = Home::new();
    let store = home.open();
    put_chunks(&store, &[b"one"]);
    let copy = Home::new();
    copy_dir(&home.dir(), &copy.dir());
    let known = put_chunks(&store, &[b"two"]);
    fs::copy(&home.packs()[0], &copy.packs()[0]).unwrap();
    let behind = copy.open();
    assert!(behind.contains(known[0].1).unwrap());
    assert_eq!(behind.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn a_writer_indexes_what_it_finds_behind_the_index_before_it_goes_on() {
    let home = Home::new();
    put_chunks(&home.open(), &[b"one"]);
    let copy = Home::new();
    copy_dir(&home.dir(), &copy.dir());
    let known = put_chunks(&home.open(), &[b"two"]);
    let behind = copy.open();
    fs::copy(&home.packs()[0], &copy.packs()[0]).unwrap();
    assert!(!behind.contains(known[0].1).unwrap());
    put_chunks(&behind, &[b"three"]);
    assert!(behind.contains(known[0].1).unwrap());
    assert_eq!((copy.packs().len(), behind.usage().unwrap().objects), (1, 3));
    assert_eq!(behind.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn what_is_read_is_found_behind_the_index_too() {
    let home = Home::new();
    put_chunks(&home.open(), &[b"one"]);
    let copy = Home::new();
    copy_dir(&home.dir(), &copy.dir());
    let known = put_chunks(&home.open(), &[b"two"]);
    let behind = copy.open();
    fs::copy(&home.packs()[0], &copy.packs()[0]).unwrap();
    assert_eq!(behind.get(ObjectKind::Chunk, known[0].1).unwrap(), b"two");
}

#[test]
fn a_store_that_was_just_being_made_opens() {
    let home = Home::new();
    fs::create_dir(home.dir()).unwrap();
    fs::write(home.dir().join("index.db"), b"").unwrap();
    put_chunks(&home.open(), &[b"one"]);
    fs::write(home.dir().join("packs/00000000000000000000000000.pack"), b"").unwrap();
    let store = home.open();
    assert_eq!(store.usage().unwrap().objects, 1);
}

#[test]
fn a_hole_in_what_was_never_finished_is_cut_off_with_what_follows() {
    let home = Home::new();
    let store = home.open();
    let first = put_chunks(&store, &[b"one"]);
    let pack = home.packs().remove(0);
    let kept = fs::metadata(&pack).unwrap().len() as usize;
    let writer = store.writer().unwrap();
    for seed in 0..20 {
        writer.put(ObjectKind::Chunk, &noise(seed, 1 << 20)).unwrap();
    }
    let mut bytes = fs::read(&pack).unwrap();
    drop(writer);
    assert!(bytes.len() > kept + (2 << 20), "two segments were written");
    bytes[kept..kept + 4096].fill(0);
    let foot = kept + (1 << 20);
    bytes[foot..foot + 4096].fill(0);
    fs::write(&pack, &bytes).unwrap();
    let store = home.open();
    put_chunks(&store, &[b"two"]);
    assert!(fs::metadata(&pack).unwrap().len() < kept as u64 + 1000);
    assert_eq!(store.get(ObjectKind::Chunk, first[0].1).unwrap(), b"one");
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn a_hole_before_something_finished_is_kept_and_reported() {
    let home = Home::new();
    let store = home.open();
    put_chunks(&store, &[b"one"]);
    let pack = home.packs().remove(0);
    let from = fs::metadata(&pack).unwrap().len() as usize;
    put_chunks(&store, &[b"two"]);
    let to = fs::metadata(&pack).unwrap().len() as usize;
    let last = put_chunks(&store, &[b"three"]);
    let mut bytes = fs::read(&pack).unwrap();
    bytes[from..to].fill(0);
    fs::write(&pack, &bytes).unwrap();
    home.remove_index();
    let store = home.open();
    assert_eq!(store.get(ObjectKind::Chunk, last[0].1).unwrap(), b"three");
    let report = store.validate(Depth::Quick, &|_, _| {}).unwrap();
    assert_eq!(report.damaged.len(), 1);
    assert!(report.damaged[0].what.contains("belong to no segment"));
    put_chunks(&store, &[b"four"]);
    assert!(fs::metadata(&pack).unwrap().len() > bytes.len() as u64);
}

#[test]
fn opening_twice_changes_nothing() {
    let home = Home::new();
    put_chunks(&home.open(), &[b"one"]);
    let before = fs::read(&home.packs()[0]).unwrap();
    for _ in 0..3 {
        let store = Store::open(&home.dir()).unwrap();
        assert_eq!(store.usage().unwrap().objects, 1);
    }
    assert_eq!(fs::read(&home.packs()[0]).unwrap(), before);
}

const CHILD: &str = "SAFEPOINT_STORE_TEST_CHILD";

/// Returns the content of capture `number` of child `child`: one or several segments.
fn capture(child: u64, number: u64) -> Vec<Vec<u8>> {
    let size = if number.is_multiple_of(4) { 3 << 20 } else { 4000 };
    (0..7).map(|i| noise(child * 1_000_000 + number * 100 + i, size)).collect()
}

/// Not a test: the process that the next test kills. Prints the number of each finished capture.
#[test]
fn child_that_captures_until_it_is_killed() {
    let Some(given) = std::env::var_os(CHILD) else { return };
    let given = given.into_string().unwrap();
    let (child, dir) = given.split_once(':').unwrap();
    let child = child.parse().unwrap();
    let store = Store::open(Path::new(dir)).unwrap();
    for number in 0.. {
        let writer = store.writer().unwrap();
        for bytes in capture(child, number) {
            writer.put(ObjectKind::Chunk, &bytes).unwrap();
        }
        writer.finish().unwrap();
        let mut out = std::io::stderr().lock();
        writeln!(out, "finished {number}").unwrap();
    }
}

#[test]
fn writers_killed_at_any_moment_lose_nothing_that_they_finished() {
    let home = Home::new();
    drop(home.open());
    for round in 0..6u64 {
        let children: Vec<_> = [2 * round, 2 * round + 1]
            .into_iter()
            .map(|child| {
                let spawned = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "crash::child_that_captures_until_it_is_killed", "--nocapture"])
                    .env(CHILD, format!("{child}:{}", home.dir().display()))
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
                (child, spawned)
            })
            .collect();
        std::thread::sleep(Duration::from_millis(100 + 37 * round));
        for (child, mut spawned) in children {
            spawned.kill().unwrap();
            let said = BufReader::new(spawned.stderr.take().unwrap()).lines().map_while(Result::ok);
            let finished = said.filter(|line| line.starts_with("finished ")).count() as u64;
            spawned.wait().unwrap();
            let store = home.open();
            for bytes in (0..finished).flat_map(|number| capture(child, number)) {
                let id = safepoint_model::ObjectId::of(ObjectKind::Chunk, &bytes);
                assert_eq!(store.get(ObjectKind::Chunk, id).unwrap(), bytes);
            }
        }
        put_chunks(&home.open(), &[&round.to_le_bytes()]);
    }
    // Every free pack but the first is still as the crash left it: the next writer cuts it.
    let report = home.open().validate(Depth::Deep, &|_, _| {}).unwrap();
    assert!(report.damaged.iter().all(|damage| damage.what.contains("belong to no segment")), "{report:?}");
    home.remove_index();
    assert_eq!(home.open().validate(Depth::Deep, &|_, _| {}).unwrap().objects, report.objects);
}

#[test]
fn a_torn_tail_is_unfinished_and_not_damage() {
    let home = Home::in_memory();
    let store = home.open();
    put_chunks(&store, &[b"one", &[5; 200]]);
    let pack = home.packs().remove(0);
    let kept = fs::metadata(&pack).unwrap().len() as usize;
    let saved = home.dir().join("saved");
    fs::create_dir(&saved).unwrap();
    for name in ["index.db", "index.db-wal"] {
        fs::copy(home.dir().join(name), saved.join(name)).unwrap();
    }
    put_chunks(&store, &[b"two", b"three"]);
    drop(store);
    let full = fs::read(&pack).unwrap();
    for (len, zeroed) in (kept..=full.len()).flat_map(|len| [(len, false), (len, true)]) {
        let mut torn = full[..len].to_vec();
        if zeroed {
            torn.resize(full.len(), 0);
        }
        fs::write(&pack, &torn).unwrap();
        home.remove_index();
        for name in ["index.db", "index.db-wal"] {
            fs::copy(saved.join(name), home.dir().join(name)).unwrap();
        }
        let store = home.open();
        let report = store.validate(Depth::Deep, &|_, _| {}).unwrap();
        assert_eq!(report.damaged, [], "length {len}, zeroed {zeroed}");
        let unfinished = if len == full.len() { 0 } else { torn.len() - kept };
        assert_eq!(report.unfinished_bytes, unfinished as u64, "length {len}, zeroed {zeroed}");
        put_chunks(&store, &[b"after the crash"]);
        assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().unfinished_bytes, 0);
    }
}

#[test]
fn damage_inside_of_what_counted_is_damage_beside_a_torn_tail() {
    let home = Home::new();
    let store = home.open();
    put_chunks(&store, &[&[5; 200], &noise(1, 300)]);
    let pack = home.packs().remove(0);
    let mut bytes = fs::read(&pack).unwrap();
    bytes[150] ^= 1;
    bytes.extend_from_slice(&[7; 333]);
    fs::write(&pack, &bytes).unwrap();
    let report = home.open().validate(Depth::Deep, &|_, _| {}).unwrap();
    assert_eq!((report.damaged.is_empty(), report.unfinished_bytes), (false, 333));
}

#[test]
fn a_new_pack_of_which_a_power_cut_kept_the_length_alone_is_unfinished() {
    let home = Home::new();
    put_chunks(&home.open(), &[b"one"]);
    fs::write(home.dir().join("packs").join("01ZZZZZZZZZZZZZZZZZZZZZZZZ.pack"), [0; 500]).unwrap();
    let report = home.open().validate(Depth::Deep, &|_, _| {}).unwrap();
    assert_eq!((report.damaged, report.unfinished_bytes), (vec![], 484));
}
