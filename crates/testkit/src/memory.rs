//! Peak memory of child processes.

use nix::sys::resource::{UsageWho, getrusage};
use std::io;

/// Returns the peak memory, in bytes, of any child process that was waited for.
///
/// The kernel keeps the maximum of all children, so it is an upper bound for each.
pub fn peak_bytes_of_children() -> io::Result<u64> {
    // getrusage(2): in kilobytes.
    let kilobytes = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    Ok(u64::try_from(kilobytes).unwrap_or(0) * 1024)
}
