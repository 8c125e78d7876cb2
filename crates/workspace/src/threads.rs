//! Thread pool with stacks for deeply nested folders.

use std::sync::{Arc, Mutex, PoisonError};

/// Address space only: unused stack costs nothing.
const STACK_BYTES: usize = 256 << 20;

/// Pool of one process, or `None` if it could not be created.
struct Pool {
    process: u32,
    threads: Option<Arc<rayon::ThreadPool>>,
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);

/// Runs parallel work on this pool, or on the default one if it cannot be created.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match pool() {
        Some(threads) => threads.install(work),
        None => work(),
    }
}

/// Returns the pool of this process. A forked child has none of its parent's threads, so it makes its own.
fn pool() -> Option<Arc<rayon::ThreadPool>> {
    let process = std::process::id();
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*pool {
        Some(known) if known.process == process => return known.threads.clone(),
        Some(_) => {
            // The end of the parent's pool would wait for threads that do not exist here.
            std::mem::forget(pool.take());
        }
        None => {}
    }
    let build = rayon::ThreadPoolBuilder::new().stack_size(STACK_BYTES).build();
    let threads = build.ok().map(Arc::new);
    *pool = Some(Pool { process, threads: threads.clone() });
    threads
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use std::time::{Duration, Instant};

    #[test]
    #[allow(unsafe_code, reason = "no safe function forks")]
    fn a_forked_child_has_threads_of_its_own() {
        let sum = || run(|| (0..10_000u64).into_par_iter().sum::<u64>());
        let expected = sum();
        // SAFETY: the child works, exits without destructors, and touches no lock that another thread may hold but POOL,
        // which only this test uses.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let code = i32::from(sum() != expected);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) };
        }
        let (began, mut status) = (Instant::now(), -1);
        // SAFETY: `status` outlives the call.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if began.elapsed() > Duration::from_secs(20) {
                // SAFETY: the child was not waited for yet, so the id is its own.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("the child hangs");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(status, 0);
    }
}
