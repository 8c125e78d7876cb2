//! Progress bars: bytes with rate and time left, or entries where no bytes are known.

use super::{size, took};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use safepoint::{Activity, Progress};
use safepoint_mcp::Watch;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Minimum run time before a bar is shown.
const PATIENCE: Duration = Duration::from_millis(500);
/// With fewer bytes than this, entries are shown.
const BYTES_MIN: u64 = 1_000_000;

/// Shows progress on a terminal, and passes on interrupts.
pub(crate) struct Bars {
    watched: bool,
    stop: Arc<AtomicBool>,
    deaf: AtomicBool,
    started: Instant,
    entries: AtomicU64,
    bytes: AtomicU64,
    /// Bytes that will be read or written, as far as known.
    expected: AtomicU64,
    shown: Mutex<Option<Shown>>,
    /// Client that gets the progress instead, and can stop the work.
    client: Option<Box<dyn Watch>>,
}

/// Visible or hidden bar.
struct Shown {
    bar: ProgressBar,
    unit: Unit,
    /// Number of entries, if known.
    entries: Option<u64>,
    begun: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Entries,
    Bytes,
}

impl Bars {
    /// Progress for a client.
    pub(crate) fn for_client(client: Box<dyn Watch>) -> Self {
        Self { client: Some(client), ..Self::new(false, Arc::default()) }
    }

    pub(crate) fn new(watched: bool, stop: Arc<AtomicBool>) -> Self {
        let (deaf, started) = (AtomicBool::new(false), Instant::now());
        let (entries, bytes, expected) = <(AtomicU64, AtomicU64, AtomicU64)>::default();
        Self { watched, stop, deaf, started, entries, bytes, expected, shown: Mutex::new(None), client: None }
    }

    /// Returns true if progress is shown.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Clears an interrupt that was meant for another program.
    pub(crate) fn forget_stop(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    /// Returns true after a request to stop, also if the work does not stop for it.
    pub(crate) fn was_asked_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.client.as_ref().is_some_and(|it| it.interrupted())
    }

    /// From now on nothing stops the work: it restores what another program left.
    pub(crate) fn ignore_stop(&self) {
        self.deaf.store(true, Ordering::Relaxed);
    }

    fn shown(&self) -> MutexGuard<'_, Option<Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the bar; shows it first.
    fn update(&self, shown: &mut Shown) {
        let Shown { bar, unit, entries, begun } = shown;
        let [counted, bytes, expected] =
            [&self.entries, &self.bytes, &self.expected].map(|number| number.load(Ordering::Relaxed));
        if *unit == Unit::Entries && bytes.max(expected) >= BYTES_MIN {
            *unit = Unit::Bytes;
            bar.set_style(style(Unit::Bytes, Some(expected), *begun));
        }
        match unit {
            Unit::Entries => bar.set_position(entries.map_or(counted, |total| counted.min(total))),
            Unit::Bytes => {
                // Some bytes come unexpectedly: a file that grew, or one that is read again.
                bar.set_length(expected.max(bytes));
                bar.set_position(bytes);
            }
        }
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            bar.enable_steady_tick(Duration::from_millis(100));
        }
    }
}

/// Verb of an activity.
pub(crate) fn verb(activity: Activity) -> &'static str {
    match activity {
        Activity::Scanning => "Reading the workspace",
        Activity::Staging => "Preparing files",
        Activity::Verifying => "Reading back",
        Activity::Settling => "Clearing up",
        Activity::Checking => "Checking the store",
        Activity::Collecting => "Freeing space",
        Activity::Copying => "Copying files",
        Activity::Uploading => "Publishing",
        Activity::Downloading => "Downloading",
    }
}

/// Style of a bar; every line fits 80 columns.
fn style(unit: Unit, total: Option<u64>, begun: Instant) -> ProgressStyle {
    let template = match (unit, total) {
        (Unit::Bytes, _) => "{prefix} {bar:10} {done} of {all}, {rate}/s, {left} left",
        (Unit::Entries, Some(_)) => "{prefix} {bar:10} {pos} of {len} entries",
        (Unit::Entries, None) => "{prefix} {spinner} {pos} entries",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style
        .with_key("done", |state: &ProgressState, text: &mut dyn Write| put(text, &size(state.pos())))
        .with_key("all", |state: &ProgressState, text: &mut dyn Write| {
            put(text, &size(state.len().unwrap_or(0)));
        })
        .with_key("rate", move |state: &ProgressState, text: &mut dyn Write| {
            put(text, &size(rate(state.pos(), begun.elapsed())));
        })
        .with_key("left", move |state: &ProgressState, text: &mut dyn Write| {
            let rest = state.len().unwrap_or(0).saturating_sub(state.pos());
            put(text, &left(rest, rate(state.pos(), begun.elapsed())));
        })
}

/// Mean number of bytes in a second. The estimate of the library would count all bytes before the first
/// line as one step.
fn rate(bytes: u64, time: Duration) -> u64 {
    (bytes as f64 / time.as_secs_f64().max(0.001)) as u64
}

/// Time for the rest, in whole seconds.
fn left(rest: u64, rate: u64) -> String {
    match rest.div_ceil(rate.max(1)) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => took(Duration::from_secs(seconds.min(359_999))),
    }
}

/// Writes into the line of a bar, which accepts all text.
fn put(line: &mut dyn Write, text: &str) {
    let _ = line.write_str(text);
}

impl Progress for Bars {
    fn begin(&self, activity: Activity, total: Option<u64>) {
        if let Some(client) = &self.client {
            client.begin(activity, total);
        }
        if !self.watched {
            return;
        }
        for number in [&self.entries, &self.bytes, &self.expected] {
            number.store(0, Ordering::Relaxed);
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let begun = Instant::now();
        bar.set_style(style(Unit::Entries, total, begun));
        bar.set_prefix(verb(activity));
        *self.shown() = Some(Shown { bar, unit: Unit::Entries, entries: total, begun });
    }

    fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Ordering::Relaxed);
    }

    fn advance(&self, entries: u64, bytes: u64) {
        if let Some(client) = &self.client {
            client.advance(entries, bytes);
        }
        if !self.watched {
            return;
        }
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.started.elapsed() < PATIENCE {
            return;
        }
        if let Some(shown) = &mut *self.shown() {
            self.update(shown);
        }
    }

    fn end(&self) {
        if let Some(shown) = self.shown().take() {
            shown.bar.finish_and_clear();
        }
    }

    fn interrupted(&self) -> bool {
        self.was_asked_to_stop() && !self.deaf.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Activity; 7] = [
        Activity::Scanning,
        Activity::Staging,
        Activity::Verifying,
        Activity::Settling,
        Activity::Checking,
        Activity::Collecting,
        Activity::Copying,
    ];

    /// Bars of a process that has run for a second.
    fn patient() -> Bars {
        let mut bars = Bars::new(true, Arc::default());
        bars.started = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        bars
    }

    /// Position, length and unit of the bar.
    fn state(bars: &Bars) -> (u64, Option<u64>, Unit) {
        let shown = bars.shown();
        let shown = shown.as_ref().unwrap();
        (shown.bar.position(), shown.bar.length(), shown.unit)
    }

    #[test]
    fn a_bar_appears_only_after_a_while() {
        let stop = Arc::new(AtomicBool::new(false));
        let mut bars = Bars::new(true, Arc::clone(&stop));
        for (activity, total) in ALL.into_iter().zip([None, Some(3)].into_iter().cycle()) {
            bars.begin(activity, total);
            bars.advance(1, 10);
            assert_eq!(state(&bars).0, 0, "too early to be shown");
            bars.end();
        }
        bars.begin(Activity::Staging, Some(3));
        bars.advance(1, 10);
        bars.started = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        bars.advance(1, 10);
        assert_eq!(state(&bars), (2, Some(3), Unit::Entries), "early entries count");
        bars.end();
        assert!(bars.shown().is_none() && !bars.interrupted());
        stop.store(true, Ordering::Relaxed);
        assert!(bars.interrupted());
    }

    #[test]
    fn many_bytes_are_shown_in_place_of_entries() {
        let bars = patient();
        bars.begin(Activity::Scanning, None);
        bars.advance(5, 0);
        assert_eq!(state(&bars), (5, None, Unit::Entries));
        bars.expect(3_000_000);
        bars.advance(0, 1_000_000);
        assert_eq!(state(&bars), (1_000_000, Some(3_000_000), Unit::Bytes));
        bars.expect(1_000_000);
        bars.advance(1, 1_000_000);
        assert_eq!(state(&bars), (2_000_000, Some(4_000_000), Unit::Bytes));
        bars.advance(0, 9_000_000);
        assert_eq!(state(&bars), (11_000_000, Some(11_000_000), Unit::Bytes));
        bars.end();
        bars.begin(Activity::Staging, Some(2));
        bars.advance(1, 0);
        assert_eq!(state(&bars), (1, Some(2), Unit::Entries), "the next activity starts anew");
    }

    #[test]
    fn the_time_left_follows_from_the_mean_rate() {
        assert_eq!(rate(500, Duration::from_millis(250)), 2_000);
        assert_eq!([left(0, 10), left(95, 10), left(6_000, 10)], ["0 s", "10 s", "10m 00s"]);
        assert_eq!(left(u64::MAX, 0), "99h 59m");
    }

    #[test]
    fn nobody_watching_means_no_bar() {
        let bars = Bars::new(false, Arc::default());
        bars.begin(Activity::Scanning, None);
        bars.expect(10_000_000);
        bars.advance(1, 1);
        assert!(bars.shown().is_none());
    }
}
