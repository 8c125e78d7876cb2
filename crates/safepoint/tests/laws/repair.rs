//! Repair uses every remaining copy, and reports what it could not read.

use crate::bench::{Bench, noise, open};
use safepoint::{CreateOptions, Depth, Settings, Silent};
use std::fs;
use std::path::{Path, PathBuf};

fn packs(home: &Path) -> Vec<PathBuf> {
    fs::read_dir(home.join("store/packs")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Changes a stored byte of this content.
fn damage(bench: &Bench, content: &[u8]) {
    let part = &content[content.len() / 2..][..32];
    for pack in packs(&bench.home()) {
        let mut bytes = fs::read(&pack).unwrap();
        if let Some(at) = bytes.windows(32).position(|window| window == part) {
            bytes[at] ^= 1;
            fs::write(&pack, bytes).unwrap();
        }
    }
}

#[test]
fn a_workspace_that_is_gone_is_said_and_does_not_keep_the_others_from_helping() {
    let bench = Bench::new();
    let other = bench.home().parent().unwrap().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("copy"), noise(1, 40_000)).unwrap();
    bench.write("file", noise(1, 40_000));
    let checkpoint = bench.create();
    bench.manager.workspaces().register(&other).unwrap();
    fs::remove_dir_all(bench.root()).unwrap();
    damage(&bench, &noise(1, 40_000));
    let manager = open(&bench.home(), Settings::default());
    let repair = manager.upkeep().repair(&Silent).unwrap();
    assert!(repair.is_whole(), "{repair:?}");
    assert_eq!((repair.damaged_objects, repair.quarantined.len()), (1, 1));
    assert!(repair.stored_anew >= 1, "the other workspace has the same content");
    assert_eq!(repair.restorable, [checkpoint.id]);
    assert_eq!(repair.skipped.len(), 1);
    assert!(repair.skipped[0].starts_with(bench.root().to_str().unwrap()), "{:?}", repair.skipped);
    fs::create_dir(bench.root()).unwrap();
    let workspace = manager.workspaces().list().unwrap().remove(0);
    manager.rollback(&workspace, checkpoint.id, &Default::default(), &Silent).unwrap();
    assert_eq!(fs::read(bench.path("file")).unwrap(), noise(1, 40_000));
}

#[test]
fn where_all_is_well_repair_changes_nothing() {
    let bench = Bench::new();
    bench.write("file", noise(1, 40_000));
    let checkpoint = bench.create();
    let before = packs(&bench.home());
    let bytes = fs::read(&before[0]).unwrap();
    let repair = bench.manager.upkeep().repair(&Silent).unwrap();
    assert!(repair.is_whole() && repair.skipped.is_empty() && repair.quarantined.is_empty(), "{repair:?}");
    assert_eq!((repair.damaged_objects, repair.stored_anew), (0, 0));
    assert_eq!(repair.restorable, [checkpoint.id]);
    assert_eq!(packs(&bench.home()), before);
    assert_eq!(fs::read(&before[0]).unwrap(), bytes);
    assert!(!repair.quarantine.exists());
}

#[test]
fn a_pack_that_cannot_be_put_aside_now_is_put_aside_the_next_time() {
    let bench = Bench::new();
    bench.write("file", noise(1, 40_000));
    bench.create();
    damage(&bench, &noise(1, 40_000));
    let pack = packs(&bench.home()).remove(0);
    let held = fs::File::options().write(true).open(&pack).unwrap();
    held.lock().unwrap();
    let manager = open(&bench.home(), Settings::default());
    let repair = manager.upkeep().repair(&Silent).unwrap();
    assert_eq!((repair.damaged_objects, repair.quarantined.len()), (1, 0));
    assert!(repair.is_whole(), "the workspace's content is stored again: {repair:?}");
    drop(held);
    assert_eq!(manager.upkeep().repair(&Silent).unwrap().quarantined.len(), 1);
    assert!(manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
    manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
}
