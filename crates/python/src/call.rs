//! One call: the work on a thread of its own, the wait on the calling thread. Calls of one short transaction need no
//! other thread.

use crate::failure::Refusal;
use crate::forking::Passed;
use crate::logs;
use pyo3::prelude::*;
use safepoint::Progress;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Time between two looks at signals.
const SIGNAL_CHECK: Duration = Duration::from_millis(20);
/// Stack of the thread, as large as that of a main thread.
const STACK_BYTES: usize = 8 << 20;

/// Handling of signals during a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signals {
    /// Python's handlers run; if one raises, the verb stops where nothing has changed yet.
    Noticed,
    /// They run after the call.
    Ignored,
}

/// Progress of a call: reports are not kept.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Progress for Interrupt {
    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs `act` without the GIL. A Python exception is one that a signal handler raised.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    signals: Signals,
    act: impl FnOnce(&Interrupt) -> Result<T, Refusal> + Send + 'static,
) -> PyResult<Result<T, Refusal>> {
    let stop = Arc::new(AtomicBool::new(false));
    let interrupt = Interrupt(Arc::clone(&stop));
    let (sender, mut receiver) = mpsc::sync_channel(1);
    let caller = logs::caller();
    let work = move || {
        logs::work_for(caller);
        let passed = Passed::enter();
        let done = panic::catch_unwind(AssertUnwindSafe(|| act(&interrupt)))
            .unwrap_or_else(|cause| Err(Refusal::internal(message_of(cause.as_ref()))));
        // A fork waits for this, and the result may be dropped in the caller.
        drop(passed);
        // The caller may be gone with its interpreter.
        let _ = sender.send(done);
    };
    let spawned = thread::Builder::new().name("safepoint".to_owned()).stack_size(STACK_BYTES).spawn(work);
    if let Err(error) = spawned {
        return Ok(Err(Refusal::internal(format!("cannot start a thread: {error}"))));
    }
    let mut raised = None;
    let done = loop {
        // An exclusive borrow may cross to where the GIL is not held; a shared one may not.
        let waiting = &mut receiver;
        match py.detach(move || waiting.recv_timeout(SIGNAL_CHECK)) {
            Ok(done) => break done,
            Err(RecvTimeoutError::Disconnected) => {
                break Err(Refusal::internal("the thread of the call ended without a result"));
            }
            Err(RecvTimeoutError::Timeout) if signals == Signals::Noticed && raised.is_none() => {
                if let Err(error) = py.check_signals() {
                    stop.store(true, Ordering::Relaxed);
                    raised = Some(error);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    match raised {
        Some(error) => Err(error),
        None => Ok(done),
    }
}

/// Runs `act` on the calling thread, without the GIL. Python's handlers of signals run after it.
pub(crate) fn run_here<T: Send>(
    py: Python<'_>,
    act: impl FnOnce(&Interrupt) -> Result<T, Refusal> + Send,
) -> Result<T, Refusal> {
    let caller = logs::caller();
    py.detach(move || {
        logs::work_for(caller);
        let _passed = Passed::enter();
        let interrupt = Interrupt(Arc::default());
        panic::catch_unwind(AssertUnwindSafe(|| act(&interrupt)))
            .unwrap_or_else(|cause| Err(Refusal::internal(message_of(cause.as_ref()))))
    })
}

fn message_of(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
