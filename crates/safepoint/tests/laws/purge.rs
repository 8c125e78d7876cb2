//! Purged paths are in no checkpoint, and nothing else changes.

use crate::bench::{Bench, ParsePath, assert_same};
use safepoint::model::coverage::Why;
use safepoint::{Depth, Error, Failure, FailureKind, Filter, Outcome, PurgeReport, Silent, Thoroughness};
use std::fs;

fn purge(bench: &Bench, paths: &[&str]) -> Result<PurgeReport, Error> {
    let paths: Vec<_> = paths.iter().map(|path| path.parse_path()).collect();
    bench.manager.upkeep().purge(&bench.workspace, &paths, &Silent)
}

fn assert_valid(bench: &Bench) {
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
}

fn paths_of(bench: &Bench, id: safepoint::model::CheckpointId) -> Vec<String> {
    let checkpoint = bench.manager.checkpoints().get(id).unwrap();
    let entries = bench.manager.checkpoints().entries(&checkpoint).unwrap();
    entries.iter().map(|entry| entry.path.to_string()).collect()
}

fn sample() -> Bench {
    let bench = Bench::new();
    bench.write("keys/a", "one");
    bench.write("keys/deep/b", "three");
    bench.write("keys-not-these", "stays");
    bench.write("src/main", "code");
    bench
}

#[test]
fn with_a_folder_goes_all_that_is_in_it() {
    let bench = sample();
    let one = bench.create();
    // The same content twice, so that both share all objects.
    let two = bench.create();
    let report = purge(&bench, &["keys"]).unwrap();
    assert_eq!(report.checkpoints, [two.id, one.id]);
    assert_eq!(report.collected.outcome, Outcome::Done);
    for before in [one, two] {
        let after = bench.manager.checkpoints().get(before.id).unwrap();
        assert_eq!(paths_of(&bench, before.id), ["keys-not-these", "src", "src/main"]);
        assert_eq!(after.files.count, before.files.count - 4, "two folders, two files");
        assert_eq!(after.files.bytes, before.files.bytes - 8);
        assert_ne!(after.integrity, before.integrity);
    }
    assert_valid(&bench);
    // It counts as left out: a rollback removes nothing at its path.
    bench.write("keys/new", "written later");
    bench.write("src/main", "changed");
    let image = bench.image();
    bench.rollback(report.checkpoints[0]);
    assert_eq!(bench.read("src/main"), "code");
    bench.write("src/main", "changed");
    assert_same(&bench.image(), &image);
}

#[test]
fn several_paths_go_at_once_even_one_below_the_other() {
    for paths in [["keys/deep/b", "keys", "src/main"], ["src/main", "keys", "keys/deep/b"]] {
        let bench = sample();
        let before = bench.create();
        purge(&bench, &paths).unwrap();
        assert_eq!(paths_of(&bench, before.id), ["keys-not-these", "src"], "{paths:?}");
        let after = bench.manager.checkpoints().get(before.id).unwrap();
        assert_eq!(after.files.count, before.files.count - 5);
        assert_eq!(after.files.bytes, before.files.bytes - 12);
        assert_valid(&bench);
    }
}

#[test]
fn what_is_purged_once_is_told_by_the_coverage_and_is_not_there_to_be_purged_again() {
    let bench = sample();
    let checkpoint = bench.create();
    purge(&bench, &["keys/a", "nothing-of-this-name"]).unwrap();
    let checkpoint = bench.manager.checkpoints().get(checkpoint.id).unwrap();
    let coverage = bench.manager.checkpoints().coverage(&checkpoint).unwrap();
    let told: Vec<_> = coverage.skipped.iter().filter(|skipped| skipped.why == Why::Purged).collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].path, "keys/a".parse_path());
    let error = purge(&bench, &["keys/a"]).unwrap_err();
    assert_eq!(error.to_string(), "no checkpoint of this workspace holds \"keys/a\"");
    // A path through a file does not match.
    let error = purge(&bench, &["src/main/below", "src/none"]).unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::NotFound);
    assert_eq!(bench.manager.checkpoints().get(checkpoint.id).unwrap(), checkpoint);
}

#[test]
fn a_whole_workspace_is_not_purged() {
    let bench = sample();
    let checkpoint = bench.create();
    for paths in [&[""][..], &["keys", ""]] {
        let error = purge(&bench, paths).unwrap_err();
        assert!(matches!(error, Error::PurgeRoot), "{error}");
        let failure = Failure::from(&error);
        assert_eq!((failure.code, failure.kind), ("purge_root", FailureKind::Usage));
        assert_eq!(bench.manager.checkpoints().get(checkpoint.id).unwrap(), checkpoint, "{paths:?}");
    }
}

#[test]
fn where_somebody_else_collects_the_purge_says_that_the_bytes_are_still_there() {
    let bench = sample();
    bench.create();
    let other = fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(bench.home().join("store/collect"))
        .unwrap();
    other.lock().unwrap();
    let report = purge(&bench, &["keys"]).unwrap();
    assert_eq!(report.collected.outcome, Outcome::Busy);
    assert_eq!(
        bench.manager.checkpoints().list(&Filter::default()).unwrap()[0].files.count,
        3,
        "but no checkpoint has them"
    );
    drop(other);
    assert!(bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap().objects > 0);
    assert_eq!(bench.manager.upkeep().space(&Silent).unwrap().dead_bytes, 0);
}
