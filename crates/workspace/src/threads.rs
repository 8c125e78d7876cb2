//! Thread pool with stacks for deeply nested folders.

use std::sync::OnceLock;

/// Address space only: unused stack costs nothing.
const STACK_BYTES: usize = 256 << 20;

/// Runs parallel work on this pool, or on the default one if it cannot be created.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    static THREADS: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
    let build = || rayon::ThreadPoolBuilder::new().stack_size(STACK_BYTES).build().ok();
    match THREADS.get_or_init(build) {
        Some(threads) => threads.install(work),
        None => work(),
    }
}
