//! Wrong bytes are never restored, and one damaged byte never affects other data.

use crate::bench::{Bench, assert_same, open, scratch, settle};
use safepoint::model::{CheckpointId, ObjectId};
use safepoint::{Depth, Failure, FailureKind, RollbackOptions, Settings, Silent};
use safepoint_testkit::TreeImage;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Project with three mostly distinct checkpoints, and a plain copy of each.
fn sample() -> (Bench, Vec<(CheckpointId, TreeImage)>) {
    let bench = Bench::new();
    let mut states = Vec::new();
    for (name, text) in [("one", "first"), ("two", "second"), ("three", "third")] {
        for old in ["one", "two", "three"] {
            let _ = fs::remove_dir_all(bench.path(old));
        }
        bench.write(&format!("{name}/file"), text.repeat(20));
        states.push((bench.create().id, bench.image()));
    }
    (bench, states)
}

fn packs(home: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.join("store/packs")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn every_single_byte_flip_is_detected_and_never_restored() {
    let (bench, states) = sample();
    let copy = scratch();
    let mut flips = 0u64;
    let mut still_restored = 0u64;
    for pack in packs(&bench.home()) {
        let good = fs::read(&pack).unwrap();
        for at in 0..good.len() {
            // Each case uses a fresh home, because damage must be found without prior knowledge.
            let home = copy.path().join("home");
            let _ = fs::remove_dir_all(&home);
            safepoint_testkit::copy_tree(&bench.home(), &home).unwrap();
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(home.join("store/packs").join(pack.file_name().unwrap()), &bad).unwrap();
            if at % 2 == 0 {
                // Half of the cases lack the index, which is only a cache.
                for name in ["index.db", "index.db-wal", "index.db-shm"] {
                    let _ = fs::remove_file(home.join("store").join(name));
                }
            }
            let manager = open(&home, Settings::default());
            let validation = manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
            assert!(!validation.is_valid(), "flipped byte {at} of {} was not detected", good.len());
            check_one_by_one(&manager, &states);
            still_restored += restore_all(&bench, &manager, &states, at);
            flips += 1;
        }
    }
    eprintln!(
        "damage: {flips} bytes flipped, all detected; {still_restored} restores of unaffected checkpoints were exact"
    );
    assert!(still_restored > flips, "one flip must not disable everything");
}

/// A checkpoint that a deep check finds intact is intact; a quick check never fails.
fn check_one_by_one(manager: &safepoint::CheckpointManager, states: &[(CheckpointId, TreeImage)]) {
    for (id, _) in states {
        let checkpoint = manager.checkpoints().get(*id).unwrap();
        let deep = manager.upkeep().validate(Some(&checkpoint), Depth::Deep, &Silent).unwrap();
        manager.upkeep().validate(Some(&checkpoint), Depth::Quick, &Silent).unwrap();
        let readable = manager.checkpoints().entries(&checkpoint).is_ok();
        assert!(!deep.is_valid() || readable);
        assert_eq!(deep.is_valid(), deep.restorable.contains(id));
    }
}

/// Each restore is exact, or refused without changes.
fn restore_all(
    bench: &Bench,
    manager: &safepoint::CheckpointManager,
    states: &[(CheckpointId, TreeImage)],
    at: usize,
) -> u64 {
    let mut exact = 0;
    for (id, image) in states.iter().skip(at % 3).take(2) {
        let before = bench.image();
        match manager.rollback(&bench.workspace, *id, &RollbackOptions::default(), &Silent) {
            Ok(done) => {
                if !done.waiting.is_empty() {
                    settle(manager, &bench.workspace);
                }
                assert_same(&bench.image(), image);
                exact += 1;
            }
            Err(error) => {
                assert_eq!(Failure::from(&error).kind, FailureKind::Damaged, "{error}: {error:?}");
                assert_same(&bench.image(), &before);
            }
        }
    }
    exact
}

#[test]
fn a_lost_pack_is_reported_by_path_and_the_next_checkpoint_is_whole() {
    let bench = Bench::new();
    bench.write("d/a", "1");
    let checkpoint = bench.create();
    for pack in packs(&bench.home()) {
        fs::remove_file(pack).unwrap();
    }
    let manager = open(&bench.home(), Settings::default());
    let validation = manager.upkeep().validate(Some(&checkpoint), Depth::Quick, &Silent).unwrap();
    assert!(!validation.is_valid() && validation.restorable.is_empty());
    let error =
        manager.rollback(&bench.workspace, checkpoint.id, &RollbackOptions::default(), &Silent).unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Damaged);
    // The stat cache must not vouch for missing objects.
    let image = bench.image();
    let second = manager.create(&bench.workspace, &Default::default(), &Silent).unwrap().checkpoint;
    assert!(manager.upkeep().validate(Some(&second), Depth::Deep, &Silent).unwrap().is_valid());
    bench.write("d/a", "2");
    manager.rollback(&bench.workspace, second.id, &RollbackOptions::default(), &Silent).unwrap();
    assert_same(&bench.image(), &image);
}

#[test]
fn validation_names_the_path_and_the_checkpoints_that_are_whole() {
    let (bench, states) = sample();
    let (first, _) = &states[0];
    let first = bench.manager.checkpoints().get(*first).unwrap();
    let content = "first".repeat(20);
    let object = ObjectId::of(safepoint::model::ObjectKind::Chunk, content.as_bytes());
    assert!(bench.manager.upkeep().validate(Some(&first), Depth::Deep, &Silent).unwrap().is_valid());
    let pack = packs(&bench.home()).pop().unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    // The chunk is short, and its compressed form contains its first letters.
    let at = bytes.windows(5).position(|window| window == b"first").expect("stored as a literal");
    bytes[at] ^= 0x20;
    fs::write(&pack, bytes).unwrap();
    let manager = open(&bench.home(), Settings::default());
    let validation = manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    let paths: BTreeSet<String> = validation
        .damaged
        .iter()
        .filter(|it| it.object == Some(object))
        .filter_map(|it| it.path.as_ref())
        .map(ToString::to_string)
        .collect();
    assert_eq!(paths, BTreeSet::from(["one/file".to_owned()]));
    assert_eq!(validation.restorable.len(), 2);
    let one = manager.upkeep().validate(Some(&first), Depth::Deep, &Silent).unwrap();
    assert!(!one.is_valid() && one.objects > 3 && one.bytes > 0);
}

#[test]
fn a_catalog_that_lists_other_parts_is_noticed() {
    let bench = Bench::new();
    bench.write("a", "1");
    let first = bench.create();
    bench.write("a", "2");
    let second = bench.create();
    let sql = rusqlite::Connection::open(bench.home().join("catalog.db")).unwrap();
    let changed = sql.execute(
        "UPDATE checkpoint_parts SET document = (SELECT document FROM checkpoint_parts WHERE checkpoint_id = ?2)
         WHERE checkpoint_id = ?1",
        [first.id.to_string(), second.id.to_string()],
    );
    assert_eq!(changed.unwrap(), 1);
    let first = bench.manager.checkpoints().get(first.id).unwrap();
    let validation = bench.manager.upkeep().validate(Some(&first), Depth::Quick, &Silent).unwrap();
    assert!(validation.damaged.iter().any(|it| it.what.contains("lists other parts")), "{validation:?}");
    let all = bench.manager.upkeep().validate(None, Depth::Quick, &Silent).unwrap();
    assert!(!all.restorable.contains(&first.id) && all.restorable.contains(&second.id));
}

#[test]
fn an_interrupted_validation_says_so() {
    struct Stop;
    impl safepoint::Progress for Stop {
        fn interrupted(&self) -> bool {
            true
        }
    }
    let bench = Bench::new();
    bench.write("a", "1");
    let checkpoint = bench.create();
    let error = bench.manager.upkeep().validate(Some(&checkpoint), Depth::Quick, &Stop).unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Interrupted);
}
