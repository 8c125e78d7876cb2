//! Damage costs at most one object, is always reported, and never affects neighbours.

use crate::kit::{Home, Known, noise, put, put_chunks};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSink, ObjectSource};
use safepoint_store::{Depth, Health, Store};
use std::fs;
use std::path::Path;

/// Two packs and three segments, with compressed and raw objects.
fn small_store(home: &Home) -> Vec<Known> {
    let store = home.open();
    let mut known = put(
        &store,
        &[(ObjectKind::Chunk, b"first"), (ObjectKind::Tree, &[7; 300]), (ObjectKind::Chunk, b"")],
    )
    .1;
    // While one writer holds the pack, the next one must create another.
    let holder = store.writer().unwrap();
    holder.put(ObjectKind::Chunk, &noise(1, 9 << 20)).unwrap();
    holder.put(ObjectKind::Chunk, b"fills the next segment").unwrap();
    known.extend(put(&store, &[(ObjectKind::Document, b"second"), (ObjectKind::Chunk, b"third")]).1);
    drop(holder);
    known.extend(put_chunks(&store, &[b"fourth", &[9; 99]]));
    assert_eq!(home.packs().len(), 2);
    known
}

/// Checks that no wrong bytes are returned; returns the unreadable objects.
fn lost(store: &Store, known: &[Known]) -> Vec<ObjectId> {
    let mut lost = Vec::new();
    for (kind, id, bytes) in known {
        match store.get(*kind, *id) {
            Ok(read) => assert_eq!(&read, bytes),
            Err(ObjectError::Damaged { .. } | ObjectError::Missing { .. }) => lost.push(*id),
            Err(error) => panic!("{error}"),
        }
    }
    lost
}

fn flip(path: &Path, at: usize, good: &[u8]) {
    let mut bad = good.to_vec();
    bad[at] ^= 0x55;
    fs::write(path, bad).unwrap();
}

#[test]
fn every_single_byte_flip_is_detected_and_others_still_read() {
    let home = Home::in_memory();
    let known = small_store(&home);
    let store = home.open();
    let mut flips = 0;
    for path in home.packs() {
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            flip(&path, at, &good);
            let report = store.validate(Depth::Deep, &|_, _| {}).unwrap();
            assert!(!report.damaged.is_empty(), "byte {at} of {}", path.display());
            let lost = lost(&store, &known);
            assert!(lost.len() <= 1, "byte {at} cost {}", lost.len());
            for id in &lost {
                assert!(report.damaged.iter().any(|damage| damage.object == Some(*id)), "byte {at}");
                assert!(matches!(store.check(Depth::Deep, *id).unwrap(), Health::Damaged(_)));
            }
            flips += 1;
        }
        fs::write(&path, &good).unwrap();
    }
    assert!(flips > 1000);
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn every_single_byte_flip_costs_one_object_at_most_without_the_index_too() {
    let home = Home::in_memory();
    let known = small_store(&home);
    for path in home.packs() {
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            flip(&path, at, &good);
            home.remove_index();
            let store = home.open();
            assert!(lost(&store, &known).len() <= 1, "byte {at}");
            assert!(!store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged.is_empty(), "byte {at}");
            assert_eq!(fs::metadata(&path).unwrap().len(), good.len() as u64);
        }
        fs::write(&path, &good).unwrap();
    }
}

#[test]
fn a_writer_never_cuts_off_a_damaged_pack_that_counted() {
    let home = Home::in_memory();
    let known = put_chunks(&home.open(), &[b"one", b"two"]);
    let path = home.packs().remove(0);
    let good = fs::read(&path).unwrap();
    for (number, at) in (0..good.len()).step_by(7).enumerate() {
        flip(&path, at, &good);
        home.remove_index();
        let store = home.open();
        put_chunks(&store, &[&number.to_le_bytes()]);
        let grown = fs::read(&path).unwrap();
        let same = grown.iter().zip(&good).filter(|(a, b)| a == b).count();
        assert_eq!(same, good.len() - 1, "byte {at}: only the flipped one differs");
        assert!(lost(&store, &known).len() <= 1);
        for extra in home.packs().iter().skip(1) {
            fs::remove_file(extra).unwrap();
        }
    }
}

#[test]
fn a_damaged_object_can_be_stored_anew() {
    let home = Home::new();
    let store = home.open();
    let known = put_chunks(&store, &[b"precious", b"other"]);
    let path = home.packs().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[16 + 96] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let id = known[0].1;
    assert!(matches!(store.get(ObjectKind::Chunk, id), Err(ObjectError::Damaged { .. })));
    assert!(!store.forget_damaged(known[1].1).unwrap(), "a readable object stays");
    assert!(store.forget_damaged(id).unwrap());
    put_chunks(&store, &[b"precious"]);
    assert_eq!(store.get(ObjectKind::Chunk, id).unwrap(), b"precious");
    home.remove_index();
    assert_eq!(lost(&home.open(), &known), []);
}

#[test]
fn a_second_copy_is_read_where_the_first_is_damaged() {
    let home = Home::new();
    let store = home.open();
    let (one, two) = (store.writer().unwrap(), store.writer().unwrap());
    let id = one.put(ObjectKind::Chunk, b"twice").unwrap();
    two.put(ObjectKind::Chunk, b"twice").unwrap();
    // The first must hold its pack while the second acquires one.
    one.finish().unwrap();
    two.finish().unwrap();
    let path = home.packs().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[16 + 96] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(home.open().get(ObjectKind::Chunk, id).unwrap(), b"twice");
    assert_eq!(home.open().check(Depth::Quick, id).unwrap(), Health::Intact);
}

#[test]
fn a_pack_that_is_gone_or_cut_short_costs_only_what_was_in_it() {
    let home = Home::new();
    let known = small_store(&home);
    let packs = home.packs();
    let good = fs::read(&packs[0]).unwrap();
    let store = home.open();
    fs::write(&packs[0], &good[..good.len() - 1]).unwrap();
    let report = store.validate(Depth::Quick, &|_, _| {}).unwrap();
    assert!(report.damaged.iter().any(|damage| damage.what.contains("shorter")));
    assert!(lost(&home.open(), &known).len() <= 2);
    fs::write(&packs[0], &good[..50]).unwrap();
    let healths = known.iter().map(|(_, id, _)| store.check(Depth::Quick, *id).unwrap());
    assert!(healths.filter(|health| *health != Health::Intact).count() >= 2);
    put_chunks(&store, &[b"new"]);
    assert_eq!(fs::read(&packs[0]).unwrap(), &good[..50], "a pack that lost bytes is never written to");
    fs::write(&packs[0], &good).unwrap();
    assert_eq!(lost(&store, &known), []);
    fs::remove_file(&packs[0]).unwrap();
    let store = home.open();
    let gone = lost(&store, &known);
    assert!(!gone.is_empty() && gone.len() < known.len());
    assert_eq!(store.check(Depth::Quick, gone[0]).unwrap(), Health::Missing);
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn what_a_pack_lost_is_stored_again_by_the_next_writer() {
    for keep in [0, 1, 7, 8, 50, 300] {
        let home = Home::new();
        let bytes: Vec<Vec<u8>> = (0..20).map(|seed| noise(seed, 100)).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
        let known = put_chunks(&home.open(), &slices);
        let pack = home.packs().remove(0);
        let good = fs::read(&pack).unwrap();
        fs::write(&pack, &good[..keep]).unwrap();
        assert!(!lost(&home.open(), &known).is_empty());
        put_chunks(&home.open(), &slices);
        assert_eq!(lost(&home.open(), &known), [], "cut to {keep}");
        assert_eq!(fs::read(&pack).unwrap(), &good[..keep], "a pack that lost bytes is never written to");
    }
}

#[test]
fn an_unreadable_name_among_the_packs_is_reported_and_skipped() {
    let home = Home::new();
    let store = home.open();
    let known = put_chunks(&store, &[b"one"]);
    fs::write(home.dir().join("packs/junk.pack"), noise(3, 3000)).unwrap();
    fs::write(home.dir().join("packs/short.pack"), b"SFPT").unwrap();
    let store = home.open();
    assert_eq!(lost(&store, &known), []);
    let report = store.validate(Depth::Quick, &|_, _| {}).unwrap();
    assert!(report.damaged.iter().any(|damage| damage.pack == "junk"));
    put_chunks(&store, &[b"two"]);
    assert_eq!(fs::read(home.dir().join("packs/junk.pack")).unwrap(), noise(3, 3000));
}

#[test]
fn asking_for_many_lost_objects_reads_the_packs_once() {
    let home = Home::new();
    let store = home.open();
    let bytes: Vec<_> = (0..3000u32).map(u32::to_le_bytes).collect();
    let slices: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    put_chunks(&store, &slices);
    let begin = std::time::Instant::now();
    for i in 0..2000u32 {
        let id = ObjectId::of(ObjectKind::Tree, &i.to_le_bytes());
        assert!(matches!(store.get(ObjectKind::Tree, id), Err(ObjectError::Missing { .. })));
    }
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    let late = put_chunks(&store, &[b"late"]);
    home.sql("DELETE FROM objects");
    assert_eq!(store.get(ObjectKind::Chunk, late[0].1).unwrap(), b"late", "a pack that grew is read again");
}

#[test]
fn a_pack_that_vanishes_under_an_open_store_is_damage() {
    let home = Home::new();
    let known = put_chunks(&home.open(), &[b"one"]);
    let store = home.open();
    fs::remove_file(&home.packs()[0]).unwrap();
    assert!(matches!(store.check(Depth::Quick, known[0].1).unwrap(), Health::Damaged(_)));
    assert!(matches!(store.check(Depth::Deep, known[0].1).unwrap(), Health::Damaged(_)));
    assert_eq!(home.open().check(Depth::Deep, known[0].1).unwrap(), Health::Missing);
}
