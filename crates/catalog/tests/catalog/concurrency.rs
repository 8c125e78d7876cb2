//! Concurrent commits: none is lost.

use crate::records::{Room, checkpoint, here, id};
use safepoint_catalog::{Catalog, CatalogError, Filter};
use std::sync::Barrier;
use std::thread;

const EACH: u128 = 25;

#[test]
fn two_connections_write_at_once_and_nothing_is_lost() {
    let room = Room::new();
    let gate = Barrier::new(4);
    thread::scope(|scope| {
        for writer in 0..4u128 {
            let (path, gate) = (room.path(), &gate);
            scope.spawn(move || {
                let catalog = Catalog::open(&path).unwrap();
                gate.wait();
                for number in 0..EACH {
                    let record = checkpoint(1 + writer * EACH + number);
                    catalog
                        .write(|t| {
                            // A read before the write: its result must still hold at the commit.
                            let parent = t.head(here())?;
                            let record = safepoint_model::checkpoint::Checkpoint { parent, ..record };
                            t.insert_checkpoint(&record)?;
                            t.set_head(here(), record.id)
                        })
                        .unwrap_or_else(|error: CatalogError| panic!("{error:?}"));
                }
            });
        }
    });
    let all = room.catalog.checkpoints(&Filter::default()).unwrap();
    assert_eq!(all.len() as u128, 4 * EACH);
    assert!(all.windows(2).all(|pair| pair[0].parent == Some(pair[1].id)));
    assert_eq!(room.catalog.check().unwrap(), Vec::<String>::new());
}

#[test]
fn one_catalog_serves_many_threads() {
    let room = Room::new();
    thread::scope(|scope| {
        for number in 1..9u128 {
            let room = &room;
            scope.spawn(move || {
                room.insert(&checkpoint(number));
                assert!(room.catalog.checkpoint(id(number)).unwrap().is_some());
            });
        }
    });
    assert_eq!(room.catalog.checkpoints(&Filter::default()).unwrap().len(), 8);
}

#[test]
fn opening_a_fresh_catalog_many_times_at_once_works() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.db");
        let gate = Barrier::new(6);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    gate.wait();
                    let catalog = Catalog::open(&path).unwrap();
                    assert!(catalog.workspaces().unwrap().is_empty());
                });
            }
        });
        assert_eq!(Catalog::open(&path).unwrap().check().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_catalog_that_others_hold_is_busy() {
    let room = Room::new();
    let raw = room.raw();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waited = std::time::Instant::now();
    // Ten seconds are too long for a test: another thread releases the lock after one.
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(std::time::Duration::from_millis(300));
            raw.execute_batch("ROLLBACK").unwrap();
        });
        room.insert(&checkpoint(1));
    });
    assert!(waited.elapsed().as_millis() >= 300);
}
