//! Garbage collection removes dead objects and keeps live ones, under concurrent use.

use crate::kit::{Home, Known, noise, put_chunks};
use safepoint_model::{ObjectId, ObjectKind, ObjectSink, ObjectSource};
use safepoint_store::{Collected, Collecting, Depth, Health, Outcome, Store, StoreError};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const PATIENT: Duration = Duration::from_secs(30);
const IMPATIENT: Duration = Duration::from_millis(20);

/// Collects with these live objects; runs an action before each `mark`.
fn collect_while(
    store: &Store,
    (dead_percent, patience): (u64, Duration),
    needed: &[Known],
    meanwhile: &mut dyn FnMut(u32, &mut HashSet<ObjectId>),
) -> Collected {
    let how = Collecting { dead_percent, patience, stop: &|| false };
    let mut looks = 0;
    let mut mark = |live: &mut HashSet<ObjectId>| -> Result<(), StoreError> {
        looks += 1;
        live.extend(ids(needed));
        meanwhile(looks, live);
        Ok(())
    };
    store.collect(&how, &mut mark).unwrap()
}

fn collect(store: &Store, needed: &[Known]) -> Collected {
    collect_while(store, (0, PATIENT), needed, &mut |_, _| {})
}

fn ids(known: &[Known]) -> HashSet<ObjectId> {
    known.iter().map(|(_, id, _)| *id).collect()
}

#[track_caller]
fn assert_there(store: &Store, known: &[Known]) {
    for (kind, id, bytes) in known {
        assert!(store.get(*kind, *id).unwrap() == *bytes, "{id}");
    }
}

#[track_caller]
fn assert_sound(store: &Store) {
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

/// Stores live and dead objects in one pack.
fn half_dead(store: &Store) -> (Vec<Known>, Vec<Known>) {
    let all = put_chunks(store, &[&noise(1, 20_000), &noise(2, 30_000), &noise(3, 10_000)]);
    let (dead, needed) = all.into_iter().partition(|(_, _, bytes)| bytes.len() == 30_000);
    (needed, dead)
}

/// Changes a byte in the middle of the stored content.
fn damage(pack: &Path, content: &[u8]) {
    let mut bytes = fs::read(pack).unwrap();
    let part = &content[content.len() / 2..][..32];
    let at = bytes.windows(32).position(|window| window == part).unwrap();
    bytes[at] ^= 1;
    fs::write(pack, bytes).unwrap();
}

#[test]
fn what_is_dead_goes_and_what_is_needed_reads_from_elsewhere() {
    let home = Home::new();
    let store = home.open();
    let (needed, dead) = half_dead(&store);
    let (old, before) = (home.packs(), home.pack_bytes());
    let collected = collect(&store, &needed);
    assert_eq!((collected.outcome, collected.packs, collected.objects), (Outcome::Done, 1, 1));
    assert_eq!(before - home.pack_bytes(), 30_000 + 48, "the object and its entry, exactly");
    assert_eq!(collected.freed_bytes, 30_000 + 48 + 16, "the head of the new pack is not counted");
    assert_eq!((collected.dead_bytes, collected.packs_left), (0, 0));
    assert!(!old[0].exists());
    assert_eq!(store.retired().unwrap(), [old[0].file_stem().unwrap().to_str().unwrap()]);
    assert_eq!(store.check(Depth::Quick, dead[0].1).unwrap(), Health::Missing);
    // Also for a later opener, and without an index.
    for _ in 0..2 {
        let other = home.open();
        assert_there(&other, &needed);
        assert!(!other.contains(dead[0].1).unwrap());
        assert_sound(&other);
        home.remove_index();
    }
}

#[test]
fn where_nothing_is_dead_nothing_counts_as_dead_and_nothing_is_touched() {
    let home = Home::new();
    let store = home.open();
    // Many small segments: their headers, footers and entries are not garbage.
    let needed: Vec<Known> = (0..40).flat_map(|n| put_chunks(&store, &[&noise(n, 50)])).collect();
    let before = fs::read(&home.packs()[0]).unwrap();
    assert_eq!(store.dead_bytes(&ids(&needed)).unwrap(), 0);
    for dead_percent in [0, 1, 30] {
        let collected = collect_while(&store, (dead_percent, PATIENT), &needed, &mut |_, _| {});
        assert_eq!(collected, Collected::default());
    }
    assert_eq!(fs::read(&home.packs()[0]).unwrap(), before);
}

#[test]
fn what_is_too_little_to_be_worth_it_stays_and_is_counted_to_the_byte() {
    let home = Home::new();
    let store = home.open();
    let needed = put_chunks(&store, &[&noise(1, 90_000)]);
    let mixed = put_chunks(&store, &[&noise(2, 1_000), &noise(3, 2_000)]);
    put_chunks(&store, &[&noise(4, 500)]);
    let needed = [&needed[..], &mixed[..1]].concat();
    // An object with its entry; and a whole segment, with header and footer.
    let dead = 2_000 + 48 + 500 + 48 + 2 * 96;
    assert_eq!(store.dead_bytes(&ids(&needed)).unwrap(), dead);
    let collected = collect_while(&store, (30, PATIENT), &needed, &mut |_, _| {});
    assert_eq!(collected, Collected { dead_bytes: dead, ..Collected::default() });
    let collected = collect(&store, &needed);
    assert_eq!((collected.packs, collected.objects, collected.dead_bytes), (1, 2, 0));
    assert_eq!(store.dead_bytes(&ids(&needed)).unwrap(), 0);
    assert_there(&store, &needed);
}

#[test]
fn a_tail_that_a_crash_left_is_dead_and_one_that_is_being_written_is_not() {
    let home = Home::new();
    let store = home.open();
    let needed = put_chunks(&store, &[&noise(1, 10_000)]);
    let pack = home.packs().remove(0);
    let whole = fs::read(&pack).unwrap();
    fs::write(&pack, [&whole[..], &[7; 333]].concat()).unwrap();
    assert_eq!(store.dead_bytes(&ids(&needed)).unwrap(), 333);
    fs::write(&pack, &whole).unwrap();
    let writer = store.writer().unwrap();
    // More than one segment, so that a part is on the disk before the end.
    for seed in 10..13 {
        writer.put(ObjectKind::Chunk, &noise(seed, 5 << 20)).unwrap();
    }
    assert!(home.pack_bytes() > 5 << 20);
    assert_eq!(store.dead_bytes(&ids(&needed)).unwrap(), 0);
    assert_eq!(collect(&store, &needed), Collected::default());
    assert_eq!(writer.finish().unwrap().objects, 3);
    assert_sound(&store);
}

#[test]
fn only_one_collects_and_meanwhile_no_pack_is_put_aside() {
    let home = Home::new();
    let store = home.open();
    let (needed, _) = half_dead(&store);
    let name = home.packs()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let other = home.open();
    let collected = collect_while(&store, (0, PATIENT), &needed, &mut |_, _| {
        let second = collect_while(&other, (0, PATIENT), &[], &mut |_, _| panic!("`mark` was called"));
        assert_eq!(second, Collected { outcome: Outcome::Busy, ..Collected::default() });
        assert_eq!(other.quarantine(&name).unwrap(), None);
    });
    assert_eq!((collected.outcome, collected.packs), (Outcome::Done, 1));
    assert_there(&other, &needed);
}

#[test]
fn somebody_who_uses_the_store_and_does_not_end_stops_it() {
    let home = Home::new();
    let (store, other) = (home.open(), home.open());
    let (needed, dead) = half_dead(&store);
    let using = other.using().unwrap();
    // In the second round the user remains from the previous turn.
    for _ in 0..2 {
        let collected = collect_while(&store, (0, IMPATIENT), &needed, &mut |looks, _| assert_eq!(looks, 1));
        assert_eq!(collected, Collected { outcome: Outcome::Stopped, ..Collected::default() });
        assert!(other.contains(dead[0].1).unwrap(), "it may be referenced again");
        assert_there(&other, &dead);
    }
    drop(using);
    assert_eq!(collect_while(&store, (0, IMPATIENT), &needed, &mut |_, _| {}).packs, 1);
}

#[test]
fn whoever_comes_later_keeps_nobody_waiting() {
    let home = Home::new();
    let (store, other) = (home.open(), home.open());
    let (needed, _) = half_dead(&store);
    let first = Cell::new(Some(other.using().unwrap()));
    let later = RefCell::new(Vec::new());
    // Called while waiting for the first user: others arrive one after another and stay.
    let stop = || {
        later.borrow_mut().push(other.using().unwrap());
        if later.borrow().len() > 2 {
            first.take();
        }
        false
    };
    let how = Collecting { dead_percent: 0, patience: PATIENT, stop: &stop };
    let mut mark = |live: &mut HashSet<ObjectId>| -> Result<(), StoreError> {
        live.extend(ids(&needed));
        Ok(())
    };
    assert_eq!(store.collect(&how, &mut mark).unwrap().packs, 1);
    assert!(!later.into_inner().is_empty());
}

#[test]
fn whoever_is_told_to_stop_stops_between_packs() {
    let home = Home::new();
    let store = home.open();
    // Two packs, each with dead objects: while one is held the next writer creates another.
    let holder = store.writer().unwrap();
    let held: Vec<ObjectId> =
        (20..23).map(|seed| holder.put(ObjectKind::Chunk, &noise(seed, 5 << 20)).unwrap()).collect();
    let (needed, dead) = half_dead(&store);
    holder.finish().unwrap();
    assert_eq!(home.packs().len(), 2);
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 1
    };
    let how = Collecting { dead_percent: 0, patience: PATIENT, stop: &stop };
    let mut mark = |live: &mut HashSet<ObjectId>| -> Result<(), StoreError> {
        live.extend(ids(&needed));
        Ok(())
    };
    let collected = store.collect(&how, &mut mark).unwrap();
    assert_eq!((collected.outcome, collected.packs), (Outcome::Stopped, 1));
    let left = [held[0], dead[0].1].iter().filter(|id| store.contains(**id).unwrap()).count();
    assert_eq!(left, 1, "existing objects may be referenced");
    assert_there(&store, &needed);
    assert_sound(&store);
    assert_eq!(collect(&store, &needed).packs, 1);
}

#[test]
fn what_a_capture_put_on_record_meanwhile_stays() {
    let home = Home::new();
    let (store, other) = (home.open(), home.open());
    let (needed, dead) = half_dead(&store);
    let collected = collect_while(&store, (0, PATIENT), &needed, &mut |looks, live| {
        if looks == 2 {
            // It began before the objects were condemned, referenced one, and has ended.
            live.insert(dead[0].1);
        }
    });
    assert_eq!((collected.outcome, collected.packs, collected.objects), (Outcome::Done, 1, 0));
    assert_there(&other, &needed);
    assert_there(&other, &dead);
}

#[test]
fn a_capture_that_begins_after_the_sentence_stores_anew_what_it_still_can_read() {
    let home = Home::new();
    let (store, other) = (home.open(), home.open());
    let (needed, dead) = half_dead(&store);
    let collected = collect_while(&store, (0, PATIENT), &needed, &mut |looks, _| {
        if looks == 2 {
            assert!(!other.contains(dead[0].1).unwrap());
            assert_there(&other, &dead);
            let writer = other.writer().unwrap();
            writer.put(ObjectKind::Chunk, &dead[0].2).unwrap();
            assert_eq!(writer.finish().unwrap().objects, 1);
        }
    });
    assert_eq!((collected.packs, collected.objects), (1, 1));
    assert_there(&other, &dead);
    assert_there(&home.open(), &needed);
    assert_sound(&store);
}

#[test]
fn an_index_that_is_built_anew_meanwhile_ends_it_with_nothing_gone() {
    for by_hand in [true, false] {
        let home = Home::new();
        let store = home.open();
        let (needed, dead) = half_dead(&store);
        let collected = collect_while(&store, (0, PATIENT), &needed, &mut |looks, _| {
            if looks == 2 && by_hand {
                home.sql("DELETE FROM meta WHERE name = 'collection'");
            } else if looks == 2 {
                home.remove_index();
                // A capture that starts now may reference any stored object, including dead ones.
                assert!(home.open().contains(dead[0].1).unwrap());
            }
        });
        assert_eq!(collected, Collected { outcome: Outcome::Stopped, ..Collected::default() });
        assert_there(&home.open(), &dead);
        assert_there(&home.open(), &needed);
        assert_eq!(collect(&store, &needed).packs, 1, "the next collection succeeds");
    }
}

#[test]
fn an_index_that_was_built_anew_before_does_not_hinder() {
    let home = Home::new();
    let store = home.open();
    let (needed, dead) = half_dead(&store);
    home.remove_index();
    let other = home.open();
    assert_eq!(collect(&store, &needed).packs, 1);
    assert!(!other.contains(dead[0].1).unwrap());
    assert_there(&other, &needed);
}

#[test]
fn a_pack_that_somebody_writes_to_is_left() {
    let home = Home::new();
    let store = home.open();
    let (needed, _) = half_dead(&store);
    let other = home.open();
    let mut writer = None;
    let collected = collect_while(&store, (0, PATIENT), &needed, &mut |looks, _| {
        if looks == 2 {
            let begun = other.writer().unwrap();
            for seed in 10..13 {
                begun.put(ObjectKind::Chunk, &noise(seed, 5 << 20)).unwrap();
            }
            writer = Some(begun);
        }
    });
    assert_eq!((collected.outcome, collected.packs, collected.packs_left), (Outcome::Done, 0, 1));
    let name = home.packs()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(store.quarantine(&name).unwrap(), None, "it is not quarantined");
    assert_eq!(writer.unwrap().finish().unwrap().objects, 3);
    assert_there(&store, &needed);
    assert_sound(&store);
}

#[test]
fn a_pack_in_which_something_needed_is_damaged_is_left_with_or_without_a_row_for_it() {
    for without_index in [false, true] {
        let home = Home::new();
        let store = home.open();
        let (needed, _) = half_dead(&store);
        let pack = home.packs().remove(0);
        damage(&pack, &needed[0].2);
        if without_index {
            home.remove_index();
        }
        let store = home.open();
        assert_eq!(store.contains(needed[0].1).unwrap(), !without_index);
        let before = fs::read(&pack).unwrap();
        let collected = collect(&store, &needed);
        assert_eq!((collected.outcome, collected.packs, collected.packs_left), (Outcome::Done, 0, 1));
        assert_eq!(fs::read(&pack).unwrap(), before, "the pack is unchanged");
        assert_there(&store, &needed[1..]);
    }
}

#[test]
fn a_pack_of_which_a_whole_segment_is_destroyed_is_left() {
    let home = Home::new();
    let store = home.open();
    let lost = put_chunks(&store, &[&noise(1, 1_000)]);
    let dead = put_chunks(&store, &[&noise(2, 50_000)]);
    let pack = home.packs().remove(0);
    let mut bytes = fs::read(&pack).unwrap();
    bytes[16..16 + 1_000 + 240].fill(0);
    fs::write(&pack, bytes).unwrap();
    home.remove_index();
    let store = home.open();
    assert!(store.contains(dead[0].1).unwrap() && !store.contains(lost[0].1).unwrap());
    let collected = collect(&store, &lost);
    assert_eq!((collected.packs, collected.packs_left), (0, 1));
    assert!(pack.exists());
}

#[test]
fn what_is_damaged_and_dead_goes_as_well() {
    let home = Home::new();
    let store = home.open();
    let (needed, dead) = half_dead(&store);
    damage(&home.packs()[0], &dead[0].2);
    let collected = collect(&store, &needed);
    assert_eq!((collected.packs, collected.packs_left), (1, 0));
    assert_there(&store, &needed);
    assert_sound(&store);
}

#[test]
fn where_it_is_not_known_what_is_needed_nothing_goes() {
    let home = Home::new();
    let store = home.open();
    let (needed, dead) = half_dead(&store);
    for fails_at in [1, 2] {
        let how = Collecting { dead_percent: 0, patience: PATIENT, stop: &|| false };
        let mut looks = 0;
        let mut mark = |live: &mut HashSet<ObjectId>| {
            looks += 1;
            live.extend(ids(&needed));
            if looks == fails_at { Err(StoreError::WriterFailed) } else { Ok(()) }
        };
        assert!(matches!(store.collect(&how, &mut mark), Err(StoreError::WriterFailed)));
        assert!(store.contains(dead[0].1).unwrap());
        assert_there(&home.open(), &dead);
    }
}

#[test]
fn what_a_collection_that_was_killed_left_condemned_may_be_used_again_after_the_next() {
    let home = Home::new();
    let store = home.open();
    let (needed, dead) = half_dead(&store);
    // State after a collection was killed once objects were condemned.
    home.sql("INSERT OR IGNORE INTO condemned SELECT * FROM objects; DELETE FROM objects;");
    assert!(!store.contains(dead[0].1).unwrap());
    assert_there(&store, &dead);
    let all = [&needed[..], &dead].concat();
    assert_eq!(collect(&store, &all), Collected::default());
    assert!(store.contains(dead[0].1).unwrap());
}

#[test]
fn only_so_many_names_of_packs_that_are_gone_are_kept() {
    let home = Home::new();
    let store = home.open();
    assert_eq!(store.retired().unwrap(), Vec::<String>::new());
    let (needed, _) = half_dead(&store);
    let gone = home.packs()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let old: String = (0..5000).map(|number| format!("old-{number}\n")).collect();
    fs::write(home.dir().join("retired"), old).unwrap();
    assert_eq!(collect(&store, &needed).packs, 1);
    let retired = store.retired().unwrap();
    assert_eq!((retired.len(), retired.first().unwrap().as_str()), (4096, "old-905"));
    assert_eq!(retired.last(), Some(&gone), "the newest names are kept");
}

#[test]
fn what_can_be_read_of_a_pack_that_is_put_aside_stays_in_the_store() {
    let home = Home::new();
    let store = home.open();
    let (good, bad) = half_dead(&store);
    let pack = home.packs().remove(0);
    let name = pack.file_stem().unwrap().to_str().unwrap().to_owned();
    damage(&pack, &bad[0].2);
    assert_eq!(store.quarantine(&name).unwrap(), Some(2));
    assert!(!pack.exists() && store.quarantine_dir().join(pack.file_name().unwrap()).exists());
    assert_there(&store, &good);
    assert!(!store.contains(bad[0].1).unwrap(), "it can be stored again");
    assert_sound(&store);
    assert_eq!(store.quarantine(&name).unwrap(), None, "the pack is gone");
}

#[test]
fn what_is_elsewhere_too_is_not_copied_from_a_pack_that_is_put_aside() {
    let home = Home::new();
    let store = home.open();
    let (good, bad) = half_dead(&store);
    let pack = home.packs().remove(0);
    damage(&pack, &bad[0].2);
    assert!(store.forget_damaged(bad[0].1).unwrap());
    // While the pack is held, new objects go to another pack.
    let held = fs::File::options().write(true).open(&pack).unwrap();
    held.lock().unwrap();
    put_chunks(&store, &[&bad[0].2]);
    drop(held);
    assert_eq!(store.quarantine(pack.file_stem().unwrap().to_str().unwrap()).unwrap(), Some(2));
    assert_there(&store, &bad);
    assert_there(&store, &good);
    assert_sound(&store);
}

#[test]
fn a_pack_is_put_aside_whole_even_where_a_part_of_it_is_destroyed() {
    let home = Home::new();
    let store = home.open();
    let first = put_chunks(&store, &[&noise(1, 1_000)]);
    let second = put_chunks(&store, &[&noise(2, 2_000)]);
    let pack = home.packs().remove(0);
    let mut bytes = fs::read(&pack).unwrap();
    bytes[16..16 + 1_000 + 240].fill(0);
    fs::write(&pack, bytes).unwrap();
    assert_eq!(store.quarantine(pack.file_stem().unwrap().to_str().unwrap()).unwrap(), Some(1));
    assert_there(&store, &second);
    assert_eq!(store.check(Depth::Deep, first[0].1).unwrap(), Health::Missing);
}

#[test]
fn what_is_needed_of_a_pack_may_be_more_than_a_segment() {
    let home = Home::new();
    let store = home.open();
    let chunks: Vec<Vec<u8>> = (1..=5).map(|seed| noise(seed, 3 << 20)).collect();
    let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    let mut all = put_chunks(&store, &chunks);
    all.pop();
    let collected = collect(&store, &all);
    assert_eq!((collected.packs, collected.objects), (1, 1));
    assert_there(&store, &all);
    assert_sound(&store);
}

#[test]
fn whoever_finds_somebody_looking_whether_anyone_is_here_comes_in_a_moment_later() {
    let home = Home::new();
    let store = home.open();
    let file = home.dir().join("using-0");
    let looking = fs::File::options().write(true).create(true).truncate(false).open(file).unwrap();
    looking.lock().unwrap();
    let came_in = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _using = store.using().unwrap();
            came_in.store(true, Relaxed);
        });
        std::thread::sleep(Duration::from_millis(30));
        assert!(!came_in.load(Relaxed), "the user has to wait");
        drop(looking);
    });
    assert!(came_in.load(Relaxed));
}

#[test]
fn a_segment_that_no_longer_says_what_is_in_it_is_not_dead() {
    let home = Home::new();
    let store = home.open();
    put_chunks(&store, &[&noise(1, 1_000)]);
    assert_eq!(store.dead_bytes(&HashSet::new()).unwrap(), 1_000 + 240);
    let pack = home.packs().remove(0);
    let mut bytes = fs::read(&pack).unwrap();
    // In the index entry of the object, between payload and footer.
    bytes[16 + 96 + 1_000 + 20] ^= 1;
    fs::write(&pack, bytes).unwrap();
    assert_eq!(store.dead_bytes(&HashSet::new()).unwrap(), 0);
    assert_eq!(collect(&store, &[]), Collected::default());
    assert!(pack.exists(), "it is left to repair");
}

#[test]
fn a_pack_that_cannot_be_opened_is_a_failure_and_not_one_that_somebody_writes_to() {
    let home = Home::new();
    let store = home.open();
    half_dead(&store);
    let folder = home.packs()[0].with_file_name("folder.pack");
    std::fs::create_dir(&folder).unwrap();
    assert!(store.quarantine("folder").is_err());
    assert_eq!(store.quarantine("missing").unwrap(), None);
}

#[test]
fn whoever_holds_the_right_to_collect_keeps_others_from_it() {
    let home = Home::new();
    let (store, other) = (home.open(), home.open());
    let (needed, _) = half_dead(&store);
    let held = other.hold_collector().unwrap();
    assert_eq!(collect(&store, &needed).outcome, Outcome::Busy);
    drop(held);
    assert_eq!(collect(&store, &needed).outcome, Outcome::Done);
}
