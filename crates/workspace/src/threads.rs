//! Threads of our own, with stacks for deeply nested folders.

use std::sync::OnceLock;

/// Address space only: what is not used costs nothing.
const STACK_BYTES: usize = 256 << 20;

/// Runs parallel work on these threads; on the usual ones where the system does not give us any.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    static THREADS: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
    let build = || rayon::ThreadPoolBuilder::new().stack_size(STACK_BYTES).build().ok();
    match THREADS.get_or_init(build) {
        Some(threads) => threads.install(work),
        None => work(),
    }
}
