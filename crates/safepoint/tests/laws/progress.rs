//! Progress of long work: bytes within large files, against a known total.

use crate::bench::{Bench, noise};
use safepoint::{Activity, CreateOptions, Depth, ImportOptions, Progress, RollbackOptions, Silent};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

const BYTES: u64 = 6 << 20;

/// Reports of one activity.
#[derive(Debug, Default, Clone, Copy)]
struct Reports {
    expected: u64,
    bytes: u64,
    largest: u64,
}

/// Sums up the reports of each activity.
#[derive(Default)]
struct Recorder(Mutex<(Option<&'static str>, BTreeMap<&'static str, Reports>)>);

impl Recorder {
    fn add(&self, add: impl FnOnce(&mut Reports)) {
        let (now, all) = &mut *self.0.lock().unwrap();
        add(all.entry(now.expect("an activity was begun")).or_default());
    }

    /// Checks that an activity reported this many bytes, in parts, and expected them.
    fn assert_counts(&self, activity: &str, bytes: u64) {
        let all = &self.0.lock().unwrap().1;
        let reports = all.get(activity).copied().unwrap_or_default();
        assert!(reports.bytes >= bytes, "{activity}: {all:?}");
        assert!(reports.expected >= reports.bytes, "{activity}: {all:?}");
        assert!(reports.largest < BYTES, "{activity}: {all:?}");
    }
}

impl Progress for Recorder {
    fn begin(&self, activity: Activity, _: Option<u64>) {
        self.0.lock().unwrap().0 = Some(match activity {
            Activity::Scanning => "scanning",
            Activity::Staging => "staging",
            Activity::Verifying => "verifying",
            Activity::Settling => "settling",
            Activity::Checking => "checking",
            Activity::Collecting => "collecting",
            Activity::Copying => "copying",
            Activity::Uploading => "uploading",
            Activity::Downloading => "downloading",
        });
    }

    fn expect(&self, bytes: u64) {
        self.add(|reports| reports.expected += bytes);
    }

    fn advance(&self, _: u64, bytes: u64) {
        self.add(|reports| {
            reports.bytes += bytes;
            reports.largest = reports.largest.max(bytes);
        });
    }
}

#[test]
fn long_work_reports_bytes_within_large_files() {
    let bench = Bench::new();
    bench.write("folder/large", noise(1, BYTES as usize));
    bench.write("small", "1");
    let recorder = Recorder::default();
    let checkpoint =
        bench.manager.create(&bench.workspace, &CreateOptions::default(), &recorder).unwrap().checkpoint;
    recorder.assert_counts("scanning", BYTES + 1);

    fs::remove_dir_all(bench.path("folder")).unwrap();
    let recorder = Recorder::default();
    bench.manager.rollback(&bench.workspace, checkpoint.id, &RollbackOptions::default(), &recorder).unwrap();
    recorder.assert_counts("staging", BYTES);

    let recorder = Recorder::default();
    assert!(bench.manager.upkeep().validate(None, Depth::Deep, &recorder).unwrap().is_valid());
    recorder.assert_counts("checking", BYTES);

    let to = tempfile::tempdir().unwrap();
    let recorder = Recorder::default();
    let exported = bench
        .manager
        .export_checkpoint(&checkpoint, to.path(), safepoint::OutsideMemory::Omitted, &recorder)
        .unwrap();
    recorder.assert_counts("copying", BYTES + 1);
    recorder.assert_counts("checking", BYTES + 1);

    let recorder = Recorder::default();
    bench.manager.import(&bench.workspace, &exported.path, &ImportOptions::default(), &recorder).unwrap();
    recorder.assert_counts("scanning", BYTES + 1);
}

/// Files that the stat cache knows are not read, and so not counted.
#[test]
fn a_capture_without_changes_reports_no_bytes() {
    let bench = Bench::new();
    bench.write("large", noise(1, BYTES as usize));
    std::thread::sleep(std::time::Duration::from_millis(100));
    bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
    let recorder = Recorder::default();
    bench.manager.create(&bench.workspace, &CreateOptions::default(), &recorder).unwrap();
    let scanning = recorder.0.lock().unwrap().1["scanning"];
    assert_eq!((scanning.expected, scanning.bytes), (0, 0));
}
