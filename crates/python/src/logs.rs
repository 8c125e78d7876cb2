//! Log records. Threads of the library put them into a queue; the thread that called a verb takes out those of its call and hands them to
//! `logging`. Pools of threads serve all calls, so the call that ends next takes their records.

use pyo3::pyfunction;
use safepoint_model::trace::{self, TraceLevel, Tracer};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

/// Records that wait for their reader; more are dropped.
const WAITING_MAX: usize = 10_000;

/// Record of a call.
struct Record {
    /// Thread that called; 0 for a record of a pool.
    caller: u64,
    /// Level of `logging`.
    level: u8,
    target: &'static str,
    text: String,
}

static CALLERS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Number of the thread that called the verb that this thread calls, or works for.
    static CALLER: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of the calling thread.
pub(crate) fn caller() -> u64 {
    CALLER.with(|own| {
        if own.get() == 0 {
            own.set(CALLERS.fetch_add(1, Ordering::Relaxed));
        }
        own.get()
    })
}

/// Records of this thread belong to a call of `caller`.
pub(crate) fn work_for(caller: u64) {
    CALLER.set(caller);
}

/// Least level of `logging` that is recorded. Above all levels: nothing is.
static LEVEL: AtomicU8 = AtomicU8::new(u8::MAX);
static WAITING: Mutex<VecDeque<Record>> = Mutex::new(VecDeque::new());
static INSTALLED: Once = Once::new();

/// Number of a level in `logging`; spans of single objects are below `DEBUG`.
fn number(level: TraceLevel) -> u8 {
    match level {
        TraceLevel::Error => 40,
        TraceLevel::Warn => 30,
        TraceLevel::Info => 20,
        TraceLevel::Debug => 10,
        TraceLevel::Trace => 5,
    }
}

/// Records nothing below this level of `logging`.
#[pyfunction]
pub(crate) fn set_log_level(level: u8) {
    LEVEL.store(level.max(1), Ordering::Relaxed);
    if level < u8::MAX {
        INSTALLED.call_once(|| {
            trace::install(Box::new(Queue { next: AtomicU64::new(1), running: Mutex::default() }));
        });
    }
}

/// Takes out the records of the calling thread's calls and of pools, oldest first.
#[pyfunction]
pub(crate) fn drain_logs() -> Vec<(u8, String, String)> {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let own = caller();
    let (taken, left) = waiting.drain(..).partition(|record| record.caller == own || record.caller == 0);
    *waiting = left;
    let taken: VecDeque<Record> = taken;
    taken.into_iter().map(|record| (record.level, record.target.to_owned(), record.text)).collect()
}

struct Queue {
    next: AtomicU64,
    running: Mutex<HashMap<u64, (Instant, String)>>,
}

fn target_of(target: &str) -> &'static str {
    trace::TARGETS.iter().find(|known| **known == target).copied().unwrap_or("verb")
}

fn push(target: &str, level: TraceLevel, text: String) {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.len() < WAITING_MAX {
        let (level, target) = (number(level), target_of(target));
        waiting.push_back(Record { caller: CALLER.get(), level, target, text });
    }
}

impl Tracer for Queue {
    fn wants(&self, _: &str, level: TraceLevel) -> bool {
        number(level) >= LEVEL.load(Ordering::Relaxed)
    }

    fn event(&self, target: &str, level: TraceLevel, text: &str) {
        push(target, level, text.to_owned());
    }

    fn enter(&self, _: &str, _: TraceLevel, text: &str) -> u64 {
        let span = self.next.fetch_add(1, Ordering::Relaxed);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(span, (Instant::now(), text.to_owned()));
        span
    }

    fn leave(&self, target: &str, level: TraceLevel, span: u64) {
        let ended = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&span);
        if let Some((began, text)) = ended {
            push(target, level, format!("{text}: {:.1} ms", began.elapsed().as_secs_f64() * 1e3));
        }
    }
}
