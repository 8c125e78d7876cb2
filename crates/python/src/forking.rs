//! A gate that keeps calls and forks apart. SQLite and the allocator have locks of the whole process; a child must not inherit them
//! locked. Only atomics: a mutex could itself be inherited locked.

use pyo3::{Python, pyfunction};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Forks under way. Several threads may fork at once.
static FORKS: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicUsize = AtomicUsize::new(0);
const PAUSE: Duration = Duration::from_micros(500);

/// A call that is running.
pub(crate) struct Passed;

impl Passed {
    /// Waits until no fork is under way.
    pub(crate) fn enter() -> Self {
        loop {
            if FORKS.load(Ordering::SeqCst) == 0 {
                RUNNING.fetch_add(1, Ordering::SeqCst);
                if FORKS.load(Ordering::SeqCst) == 0 {
                    return Self;
                }
                RUNNING.fetch_sub(1, Ordering::SeqCst);
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets no call begin, and waits for those that run. Returns false if one still ran at the end of the time.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>, seconds: f64) -> bool {
    FORKS.fetch_add(1, Ordering::SeqCst);
    let wait = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    py.detach(|| {
        let began = Instant::now();
        while RUNNING.load(Ordering::SeqCst) > 0 {
            if began.elapsed() > wait {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    })
}

/// Ends a fork, in the parent or in the child. Calls begin again once none is under way; in the child none is.
#[pyfunction]
pub(crate) fn after_fork(is_child: bool) {
    if is_child {
        RUNNING.store(0, Ordering::SeqCst);
        FORKS.store(0, Ordering::SeqCst);
    } else {
        FORKS.fetch_sub(1, Ordering::SeqCst);
    }
}
