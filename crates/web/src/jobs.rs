//! Long work: results as they come, progress, and a stop request.

use crate::desk::Watch;
use crate::problem::Problem;
use safepoint::{Activity, Progress};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Maximum number of jobs that run at once.
const RUNNING_MAX: usize = 8;
/// Time for which the results of a job are kept.
const KEPT: Duration = Duration::from_secs(30 * 60);
/// Maximum number of results of one job.
const ITEMS_MAX: usize = 100_000;

/// Long work.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    kind: &'static str,
    made: Instant,
    state: Mutex<State>,
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    items: Vec<Value>,
    activity: Option<&'static str>,
    end: Option<Result<Value, Value>>,
}

/// Jobs by their id.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<BTreeMap<String, Arc<Job>>>);

impl Jobs {
    /// Starts to keep a job.
    pub(crate) fn begin(&self, id: String, kind: &'static str) -> Result<Arc<Job>, Problem> {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.retain(|_, job| !job.is_over() || job.made.elapsed() < KEPT);
        if jobs.values().filter(|job| !job.is_over()).count() >= RUNNING_MAX {
            return Err(Problem::own(
                "too_many_jobs",
                "too many jobs run",
                "Cancel one, or wait for its end.",
            ));
        }
        let job = Arc::new(Job {
            id: id.clone(),
            kind,
            made: Instant::now(),
            state: Mutex::default(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            changed: watch::Sender::new(0),
        });
        jobs.insert(id, Arc::clone(&job));
        Ok(job)
    }

    pub(crate) fn get(&self, id: &str) -> Result<Arc<Job>, Problem> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.get(id).cloned().ok_or_else(|| {
            Problem::own(
                "no_job",
                "there is no such job",
                "Jobs are kept for 30 minutes, and end with the server.",
            )
        })
    }

    /// Asks all jobs to stop.
    pub(crate) fn stop(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(|job| job.cancel());
    }
}

impl Job {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().end.is_some()
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn end(&self, end: Result<Value, &Problem>) {
        self.state().end = Some(end.map_err(Problem::json));
        self.tell();
    }

    /// Results from this number on, at most so many.
    pub(crate) fn items(&self, from: usize, max: usize) -> Vec<Value> {
        self.state().items.iter().skip(from).take(max).cloned().collect()
    }

    pub(crate) fn json(&self) -> Value {
        let state = self.state();
        let total = self.total.load(Ordering::Relaxed);
        let word = match &state.end {
            None => "running",
            Some(Ok(_)) => "done",
            Some(Err(problem)) if problem["code"] == "interrupted" => "cancelled",
            Some(Err(_)) => "failed",
        };
        json!({
            "id": self.id, "kind": self.kind, "state": word, "activity": state.activity,
            "done": self.done.load(Ordering::Relaxed), "total": (total > 0).then_some(total),
            "items": state.items.len(),
            "result": state.end.as_ref().and_then(|end| end.as_ref().ok()),
            "problem": state.end.as_ref().and_then(|end| end.as_ref().err()),
        })
    }
}

impl Progress for Job {
    fn begin(&self, activity: Activity, total: Option<u64>) {
        let word = match activity {
            Activity::Scanning => "scanning",
            Activity::Staging => "staging",
            Activity::Verifying => "verifying",
            Activity::Settling => "settling",
            Activity::Checking => "checking",
            Activity::Collecting => "collecting",
            Activity::Copying => "copying",
            Activity::Uploading => "uploading",
            Activity::Downloading => "downloading",
        };
        self.state().activity = Some(word);
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total.unwrap_or(0), Ordering::Relaxed);
        self.tell();
    }

    fn advance(&self, entries: u64, _bytes: u64) {
        self.done.fetch_add(entries, Ordering::Relaxed);
    }

    fn interrupted(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

impl Watch for Job {
    fn item(&self, item: Value) {
        let mut state = self.state();
        if state.items.len() < ITEMS_MAX {
            state.items.push(item);
        }
        drop(state);
        self.tell();
    }
}

/// Watch of a call that nobody follows.
pub(crate) struct Unwatched;

impl Progress for Unwatched {}

impl Watch for Unwatched {
    fn item(&self, _item: Value) {}
}
