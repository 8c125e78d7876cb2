//! Many threads, writers and handles.

use crate::kit::{Home, noise, put_chunks};
use rayon::prelude::*;
use safepoint_model::{ObjectKind, ObjectSink, ObjectSource};
use safepoint_store::{Depth, Store};
use std::sync::Barrier;

#[test]
fn two_writers_at_once_use_different_packs() {
    let home = Home::new();
    let (one, two) = (home.open(), home.open());
    let (a, b) = (one.writer().unwrap(), two.writer().unwrap());
    for seed in 0..10 {
        a.put(ObjectKind::Chunk, &noise(seed, 1 << 20)).unwrap();
        b.put(ObjectKind::Chunk, &noise(seed + 100, 1 << 20)).unwrap();
    }
    assert_eq!(home.packs().len(), 2);
    a.finish().unwrap();
    b.finish().unwrap();
    assert_eq!(home.packs().len(), 2);
    assert_eq!(one.usage().unwrap().objects, 20);
    assert_eq!(one.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
    put_chunks(&one, &[b"three"]);
    assert_eq!(home.packs().len(), 2, "a released pack is reused");
}

#[test]
fn many_threads_put_into_one_writer_and_each_content_is_stored_once() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    let bytes = |i: u64| noise(i % 40, 700_000 + (i % 40) as usize);
    let ids: Vec<_> =
        (0..120u64).into_par_iter().map(|i| writer.put(ObjectKind::Chunk, &bytes(i)).unwrap()).collect();
    (0..120usize).into_par_iter().for_each(|i| {
        assert_eq!(writer.get(ObjectKind::Chunk, ids[i]).unwrap(), bytes(i as u64));
    });
    assert_eq!(writer.finish().unwrap().objects, 40);
    let report = store.validate(Depth::Deep, &|_, _| {}).unwrap();
    assert_eq!((report.objects, report.damaged.len()), (40, 0));
}

#[test]
fn many_handles_write_and_read_at_once() {
    let home = Home::new();
    let barrier = Barrier::new(6);
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (home, barrier) = (&home, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let store = Store::open(&home.dir()).unwrap();
                for round in 0..8u64 {
                    let own = noise(1000 * thread + round, 3000);
                    let known = put_chunks(&store, &[&own, &noise(round, 2000)]);
                    for (kind, id, bytes) in &known {
                        assert_eq!(&store.get(*kind, *id).unwrap(), bytes);
                    }
                }
            });
        }
    });
    let store = home.open();
    assert_eq!(store.usage().unwrap().objects, 6 * 8 + 8);
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
    home.remove_index();
    assert_eq!(home.open().usage().unwrap().objects, 6 * 8 + 8);
}

#[test]
fn more_threads_than_segments_on_their_way_wait_for_each_other() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    std::thread::scope(|scope| {
        for seed in 0..16 {
            let writer = &writer;
            scope.spawn(move || {
                let bytes = noise(seed, 9 << 20);
                let id = writer.put(ObjectKind::Chunk, &bytes).unwrap();
                assert!(writer.get(ObjectKind::Chunk, id).unwrap() == bytes);
            });
        }
    });
    assert_eq!(writer.finish().unwrap().objects, 16);
    assert_eq!(store.validate(Depth::Quick, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn threads_that_wait_for_a_writer_that_fails_all_come_back() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    std::fs::remove_dir(home.dir().join("packs")).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let writer = &writer;
            scope.spawn(move || {
                for part in 0..3 {
                    let _ = writer.put(ObjectKind::Chunk, &noise(100 * seed + part, 8 << 20));
                }
            });
        }
    });
    assert!(writer.finish().is_err());
}

#[test]
fn a_reader_beside_a_rebuild_of_the_index_finds_everything() {
    let home = Home::new();
    let store = home.open();
    let known: Vec<_> = (0..40u64)
        .flat_map(|round| put_chunks(&store, &[&noise(round, 4000), &noise(100 + round, 4000)]))
        .collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = home.open();
                let (known, stop) = (&known, &stop);
                scope.spawn(move || {
                    let mut reads = 0u64;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        for (kind, id, bytes) in known {
                            assert_eq!(
                                reader.check(Depth::Quick, *id).unwrap(),
                                safepoint_store::Health::Intact
                            );
                            assert_eq!(&reader.get(*kind, *id).unwrap(), bytes);
                            reads += 1;
                        }
                    }
                    reads
                })
            })
            .collect();
        for _ in 0..60 {
            let report = store.rebuild_index().unwrap();
            assert_eq!((report.objects, report.damaged.len()), (80, 0));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>() > 1000);
    });
}

#[test]
fn a_reader_beside_an_index_that_is_lost_again_and_again_finds_everything() {
    let home = Home::new();
    let store = home.open();
    let known: Vec<_> = (0..40u64).flat_map(|round| put_chunks(&store, &[&noise(round, 40_000)])).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let reader = home.open();
                for (kind, id, bytes) in &known {
                    assert_eq!(&reader.get(*kind, *id).unwrap(), bytes);
                }
            }
        });
        for _ in 0..60 {
            home.remove_index();
            drop(home.open());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
}
