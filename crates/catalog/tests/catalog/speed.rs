//! Figures, printed on request: `cargo test --release -p safepoint-catalog --test catalog speed --
//! --nocapture`. The limits are generous, so that a slow machine passes and a wrong algorithm fails.

use crate::records::{Room, checkpoint, rollback, step};
use safepoint_catalog::{Catalog, Filter};
use safepoint_model::reference::Reference;
use std::time::{Duration, Instant};

#[track_caller]
fn timed<T>(what: &str, limit: Duration, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let value = work();
    let took = began.elapsed();
    println!("{what}: {took:?}");
    assert!(took < limit, "{what} took {took:?}");
    value
}

#[test]
fn an_intent_of_20_000_steps_is_written_and_read_at_once() {
    let room = Room::new();
    room.insert(&checkpoint(1));
    let steps: Vec<_> = (0..20_000).map(step).collect();
    let record = rollback(1, 1);
    timed("write 20,000 steps", Duration::from_secs(3), || {
        room.write(|t| t.insert_rollback(&record, &steps));
    });
    let read = timed("read 20,000 steps", Duration::from_secs(3), || room.catalog.steps(record.id).unwrap());
    assert_eq!(read, steps);
}

#[test]
fn opening_an_up_to_date_catalog_is_cheap() {
    let room = Room::new();
    let Room { folder, catalog } = room;
    drop(catalog);
    let path = folder.path().join("catalog.db");
    timed("open 20 times", Duration::from_secs(1), || {
        for _ in 0..20 {
            Catalog::open(&path).unwrap();
        }
    });
}

#[test]
fn thousands_of_checkpoints_are_listed_and_found() {
    let room = Room::new();
    timed("write 2,000 checkpoints in one transaction", Duration::from_secs(5), || {
        room.write(|t| (1..2_001).try_for_each(|number| t.insert_checkpoint(&checkpoint(number))));
    });
    let all = timed("list 2,000 checkpoints", Duration::from_secs(2), || {
        room.catalog.checkpoints(&Filter::default()).unwrap()
    });
    assert_eq!(all.len(), 2_000);
    timed("resolve @ 100 times", Duration::from_secs(1), || {
        for _ in 0..100 {
            room.catalog.resolve(None, &Reference::Newest { back: 0 }).unwrap();
        }
    });
    timed("one checkpoint, one transaction", Duration::from_secs(1), || room.insert(&checkpoint(9_999)));
}
