//! What the kernel may do to this process: ask it to stop, and limit its open files.

use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How a verb reacts to being asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// It looks at a flag and stops where nothing has changed yet. Later signals change nothing about that.
    WhenSafe,
    /// It changes nothing, so it ends at once.
    AtOnce,
}

/// Listens for Ctrl-C and `kill`. The flag is set when one came.
pub(crate) fn listen(stopping: Stopping) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Registration fails only for signals that cannot be caught. Without it the process dies at once, which is safe too.
        let _ = match stopping {
            Stopping::WhenSafe => signal_hook::flag::register(signal, Arc::clone(&flag)),
            Stopping::AtOnce => {
                signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::new(AtomicBool::new(true)))
            }
        };
    }
    flag
}

/// Takes as many open files as the system allows: a deep tree is read with one handle per level and thread.
pub(crate) fn raise_open_files_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
