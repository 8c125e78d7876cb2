//! Work on a blocking thread: progress goes to the client, a stop request comes back.

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use safepoint::{Activity, Progress};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Minimum time between two progress reports.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Stop request for the call in progress, and for the whole server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    call: Arc<AtomicBool>,
    server: Arc<AtomicBool>,
}

impl Stop {
    /// New stop request for one call of a server.
    pub(crate) fn of(server: &Arc<AtomicBool>) -> Self {
        Self { call: Arc::default(), server: Arc::clone(server) }
    }

    fn is_requested(&self) -> bool {
        self.call.load(Ordering::Relaxed) || self.server.load(Ordering::Relaxed)
    }

    /// Stops the call when the request is dropped, unless it has ended.
    pub(crate) fn on_drop(&self) -> StopOnDrop {
        StopOnDrop(Arc::clone(&self.call))
    }

    pub(crate) fn request(&self) {
        self.call.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Finished units of a request, over all of its calls: the protocol requires that progress grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done(Arc<AtomicU64>);

/// Progress of one call.
pub(crate) struct Reporter {
    stop: Stop,
    to: Option<(ProgressToken, UnboundedSender<ProgressNotificationParam>)>,
    done: Done,
    activity: Mutex<(Option<Activity>, Instant)>,
}

impl Reporter {
    pub(crate) fn new(
        stop: Stop,
        done: Done,
        to: Option<(ProgressToken, UnboundedSender<ProgressNotificationParam>)>,
    ) -> Self {
        let started = Instant::now().checked_sub(REPORT_EVERY).unwrap_or_else(Instant::now);
        Self { stop, to, done, activity: Mutex::new((None, started)) }
    }

    fn report(&self, always: bool) {
        let Some((token, sender)) = &self.to else { return };
        let mut activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        if !always && activity.1.elapsed() < REPORT_EVERY {
            return;
        }
        activity.1 = Instant::now();
        let done = u32::try_from(self.done.0.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let message = activity.0.map_or("Working", word);
        let report = ProgressNotificationParam::new(token.clone(), f64::from(done)).with_message(message);
        // A receiver that is gone needs no report.
        let _ = sender.send(report);
    }
}

fn word(activity: Activity) -> &'static str {
    match activity {
        Activity::Scanning => "Reading the workspace",
        Activity::Staging => "Preparing files",
        Activity::Verifying => "Reading back",
        Activity::Settling => "Clearing up",
        Activity::Checking => "Checking the store",
        Activity::Collecting => "Freeing space",
        Activity::Copying => "Copying the workspace",
        Activity::Uploading => "Publishing",
        Activity::Downloading => "Downloading",
    }
}

impl Progress for Reporter {
    fn begin(&self, activity: Activity, _total: Option<u64>) {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(activity);
        self.done.0.fetch_add(1, Ordering::Relaxed);
        self.report(true);
    }

    fn advance(&self, entries: u64, _bytes: u64) {
        self.done.0.fetch_add(entries, Ordering::Relaxed);
        self.report(false);
    }

    fn interrupted(&self) -> bool {
        self.stop.is_requested()
    }
}
