//! Interrupts in the middle of large files: the work stops there, and nothing is recorded.

use crate::bench::{Bench, noise};
use safepoint::{
    Activity, CreateOptions, Depth, Failure, FailureKind, Filter, Progress, RollbackOptions, Silent,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Interrupts once so many bytes were reported during an activity.
struct StopsAt {
    activity: Activity,
    limit: u64,
    now: Mutex<Option<Activity>>,
    bytes: AtomicU64,
}

impl StopsAt {
    fn new(activity: Activity, limit: u64) -> Self {
        Self { activity, limit, now: Mutex::new(None), bytes: AtomicU64::new(0) }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Progress for StopsAt {
    fn begin(&self, activity: Activity, _: Option<u64>) {
        *self.now.lock().unwrap() = Some(activity);
    }

    fn advance(&self, _: u64, bytes: u64) {
        if *self.now.lock().unwrap() == Some(self.activity) {
            self.bytes.fetch_add(bytes, Relaxed);
        }
    }

    fn end(&self) {
        *self.now.lock().unwrap() = None;
    }

    fn interrupted(&self) -> bool {
        self.bytes() >= self.limit
    }
}

/// Creates a file with one part of data in every `step` bytes.
fn islands(path: &Path, size: u64, step: u64) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for at in (0..size).step_by(step as usize) {
        file.write_all_at(&noise(at, MIB as usize), at).unwrap();
    }
}

fn assert_nothing_recorded(bench: &Bench) {
    assert_eq!(bench.manager.checkpoints().list(&Filter::default()).unwrap(), []);
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    assert_eq!(validation.objects, 0, "no object of the capture counts");
}

/// Dense files below and above the size for which a second thread stores pieces, and one with holes.
#[test]
fn an_interrupt_in_the_middle_of_a_large_file_stops_the_capture() {
    for (size, step) in [(24 * MIB, MIB), (96 * MIB, MIB), (1024 * MIB, 32 * MIB)] {
        let bench = Bench::new();
        islands(&bench.path("large"), size, step);
        let data = size / step * MIB;
        let stops = StopsAt::new(Activity::Scanning, data / 4);
        let error = bench.manager.create(&bench.workspace, &CreateOptions::default(), &stops).unwrap_err();
        assert_eq!(Failure::from(&error).kind, FailureKind::Interrupted, "{error}");
        assert!(stops.bytes() < data, "{} of {data} bytes were read", stops.bytes());
        assert_nothing_recorded(&bench);
        assert!(bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).is_ok());
    }
}

/// Interrupts after the workspace was read.
#[derive(Default)]
struct StopsAfterScan(AtomicBool);

impl Progress for StopsAfterScan {
    fn end(&self) {
        self.0.store(true, Relaxed);
    }

    fn interrupted(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// A flush cannot be stopped; the commit after it can.
#[test]
fn an_interrupt_after_the_scan_records_no_checkpoint() {
    let bench = Bench::new();
    bench.write("a", noise(1, 5_000));
    let stops = StopsAfterScan::default();
    let error = bench.manager.create(&bench.workspace, &CreateOptions::default(), &stops).unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Interrupted, "{error}");
    assert_eq!(bench.manager.checkpoints().list(&Filter::default()).unwrap(), []);
}

#[test]
fn an_interrupt_in_the_middle_of_a_large_file_stops_a_rollback_before_any_change() {
    let bench = Bench::new();
    let size = 32 * MIB;
    islands(&bench.path("large"), size, MIB);
    let checkpoint = bench.create();
    fs::remove_file(bench.path("large")).unwrap();
    let stops = StopsAt::new(Activity::Staging, size / 4);
    let error = bench
        .manager
        .rollback(&bench.workspace, checkpoint.id, &RollbackOptions::default(), &stops)
        .unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Interrupted, "{error}");
    assert!(stops.bytes() < size, "{} of {size} bytes were written", stops.bytes());
    assert!(!bench.path("large").exists());
    assert!(bench.manager.rollbacks(&bench.workspace).unwrap().is_empty());
}

/// Interrupts as soon as so many bytes were scanned, and notes when.
struct Latency {
    stops: StopsAt,
    asked: Mutex<Option<(Instant, u64)>>,
}

impl Progress for Latency {
    fn begin(&self, activity: Activity, total: Option<u64>) {
        self.stops.begin(activity, total);
    }

    fn advance(&self, entries: u64, bytes: u64) {
        self.stops.advance(entries, bytes);
        if self.stops.interrupted() {
            self.asked.lock().unwrap().get_or_insert_with(|| (Instant::now(), self.stops.bytes()));
        }
    }

    fn end(&self) {
        self.stops.end();
    }

    fn interrupted(&self) -> bool {
        self.stops.interrupted()
    }
}

/// The latency of an interrupt is a number of bytes, as a slow machine makes any time long: each thread ends the piece that it reads.
#[test]
fn an_interrupt_is_heeded_within_a_few_pieces() {
    /// Pieces that a pipeline may hold, of at most 1 MiB each.
    const PIECES_PER_THREAD: u64 = 4;
    /// Generous: a capture that goes on to the end of these files takes longer on a busy machine, too.
    const SECONDS_MAX: u64 = 20;
    let threads = std::thread::available_parallelism().unwrap().get() as u64;
    let bound = PIECES_PER_THREAD * (threads + 1) * MIB;
    for (files, size) in [(1, 64 * MIB), (12, 6 * MIB)] {
        let bench = Bench::new();
        for number in 0..files {
            islands(&bench.path(&format!("large {number}")), size, MIB);
        }
        let stops = StopsAt::new(Activity::Scanning, files * size / 8);
        let latency = Latency { stops, asked: Mutex::new(None) };
        let error = bench.manager.create(&bench.workspace, &CreateOptions::default(), &latency).unwrap_err();
        let ended = Instant::now();
        assert_eq!(Failure::from(&error).kind, FailureKind::Interrupted, "{error}");
        let (asked, before) = latency.asked.lock().unwrap().unwrap();
        let more = latency.stops.bytes() - before;
        assert!(more <= bound, "{files} files: {more} more bytes were read, {bound} may be");
        assert!(ended - asked < Duration::from_secs(SECONDS_MAX), "{files} files: {:?}", ended - asked);
        assert_nothing_recorded(&bench);
    }
}
