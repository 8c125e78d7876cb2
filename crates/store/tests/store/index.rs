//! The index is a cache: the packs restore it after any damage.

use crate::kit::{Home, Known, put_chunks};
use safepoint_model::{ObjectKind, ObjectSink, ObjectSource};
use safepoint_store::{Depth, Store};
use std::fs;

fn all_read(store: &Store, known: &[Known]) {
    for (kind, id, bytes) in known {
        assert_eq!(&store.get(*kind, *id).unwrap(), bytes);
    }
}

fn many(home: &Home) -> Vec<Known> {
    let store = home.open();
    let bytes: Vec<_> = (0..500u32).map(|i| i.to_le_bytes().repeat(20)).collect();
    let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    let mut known = put_chunks(&store, &slices[..250]);
    known.extend(put_chunks(&store, &slices[250..]));
    known
}

#[test]
fn the_index_is_rebuilt_from_the_packs_alone() {
    let home = Home::new();
    let known = many(&home);
    home.remove_index();
    let store = home.open();
    all_read(&store, &known);
    assert_eq!(store.usage().unwrap().objects, 500);
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
    let report = store.rebuild_index().unwrap();
    assert_eq!((report.objects, report.damaged.len()), (500, 0));
    all_read(&store, &known);
}

#[test]
fn a_corrupt_index_is_replaced_when_it_is_opened() {
    let home = Home::new();
    let known = many(&home);
    for junk in
        [&b"not a database, but long enough to be looked at as one by anybody"[..], b"", b"SQLite format 3\0"]
    {
        home.remove_index();
        fs::write(home.dir().join("index.db"), junk.repeat(100)).unwrap();
        let store = home.open();
        all_read(&store, &known);
        assert_eq!(store.usage().unwrap().objects, 500);
    }
}

#[test]
fn an_index_of_another_schema_is_replaced() {
    let home = Home::new();
    let known = many(&home);
    home.sql("PRAGMA user_version = 7");
    all_read(&home.open(), &known);
    home.sql("DROP TABLE objects");
    all_read(&home.open(), &known);
    home.sql("DROP TABLE packs; CREATE TABLE packs (name, indexed_bytes)");
    all_read(&home.open(), &known);
    assert_eq!(home.open().usage().unwrap().objects, 500);
}

#[test]
fn an_index_that_turns_corrupt_while_it_is_open_is_replaced() {
    let home = Home::new();
    let known = many(&home);
    home.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let path = home.dir().join("index.db");
    let mut bytes = fs::read(&path).unwrap();
    for page in bytes.chunks_mut(4096).skip(4) {
        page.fill(0xee);
    }
    fs::write(&path, bytes).unwrap();
    let store = home.open();
    all_read(&store, &known);
    let more = put_chunks(&store, &[b"and on it goes"]);
    all_read(&home.open(), &more);
    assert_eq!(home.open().usage().unwrap().objects, 501);
}

#[test]
fn wrong_rows_never_give_wrong_bytes_and_are_put_right() {
    let home = Home::new();
    let known = many(&home);
    for sql in [
        "UPDATE objects SET offset = offset + 1",
        "UPDATE objects SET offset = 9000000000000",
        "UPDATE objects SET stored_len = 4000000000",
        "UPDATE objects SET raw_len = 7",
        "UPDATE objects SET codec = 1 - codec",
        "UPDATE objects SET kind = 3",
        "UPDATE objects SET kind = 77",
        "UPDATE objects SET codec = 77",
        "UPDATE objects SET raw_len = -1",
        "UPDATE objects SET offset = 'x'",
        "UPDATE objects SET pack = 99",
        "DELETE FROM objects WHERE id IN (SELECT id FROM objects LIMIT 5)",
    ] {
        home.sql(sql);
        let store = home.open();
        all_read(&store, &known[..5]);
        store.rebuild_index().unwrap();
        all_read(&store, &known);
        assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, [], "{sql}");
    }
}

#[test]
fn validation_notices_rows_that_disagree_with_the_packs() {
    let home = Home::new();
    let known = many(&home);
    for sql in [
        "UPDATE objects SET offset = offset + 1",
        "UPDATE objects SET raw_len = raw_len + 1",
        "DELETE FROM objects",
        "UPDATE objects SET pack = 99",
    ] {
        home.sql(sql);
        let store = home.open();
        let report = store.validate(Depth::Quick, &|_, _| {}).unwrap();
        assert_eq!(report.damaged.len(), known.len(), "{sql}");
        assert!(report.damaged.iter().all(|damage| damage.object.is_some()));
        store.rebuild_index().unwrap();
    }
}

#[test]
fn a_writer_survives_the_loss_of_the_index_under_it() {
    let home = Home::new();
    let known = many(&home);
    let store = home.open();
    let writer = store.writer().unwrap();
    let id = writer.put(ObjectKind::Chunk, b"late").unwrap();
    home.remove_index();
    let other = home.open();
    all_read(&other, &known);
    writer.finish().unwrap();
    drop(store);
    let store = home.open();
    assert_eq!(store.get(ObjectKind::Chunk, id).unwrap(), b"late");
    all_read(&store, &known);
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn a_store_notices_that_its_index_was_replaced() {
    let home = Home::new();
    let known = many(&home);
    let store = home.open();
    home.remove_index();
    let other = home.open();
    let more = put_chunks(&store, &[b"through the old handle"]);
    assert!(other.contains(more[0].1).unwrap());
    all_read(&other, &known);
}

#[test]
fn a_rebuild_leaves_a_live_writer_its_pack() {
    let home = Home::new();
    let store = home.open();
    let known = put_chunks(&store, &[b"one"]);
    let writer = store.writer().unwrap();
    for seed in 0..10 {
        writer.put(ObjectKind::Chunk, &crate::kit::noise(seed, 1 << 20)).unwrap();
    }
    // The pack is held: an index rebuilt now does not cover it, and the writer must add its rows.
    home.remove_index();
    let other = home.open();
    assert!(!other.contains(known[0].1).unwrap());
    other.rebuild_index().unwrap();
    let late = store.writer().unwrap();
    late.finish().unwrap();
    writer.finish().unwrap();
    assert!(other.contains(known[0].1).unwrap());
    assert_eq!(other.usage().unwrap().objects, 11);
    assert_eq!(other.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn the_log_of_the_index_stays_short() {
    let home = Home::new();
    for round in 0..30u32 {
        let store = home.open();
        let bytes: Vec<_> = (0..200u32).map(|i| [round, i].map(u32::to_le_bytes).concat()).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        put_chunks(&store, &slices);
        assert!(fs::metadata(home.dir().join("index.db-wal")).unwrap().len() < 2 << 20);
    }
    assert!(fs::metadata(home.dir().join("index.db")).unwrap().len() > 100_000, "the log was checkpointed");
}
