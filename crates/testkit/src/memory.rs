//! How much memory a program took: nothing comes in, out comes the peak of those that were waited for.

use nix::sys::resource::{UsageWho, getrusage};
use std::io;

/// The most memory that any program took which this process started and waited for, in bytes.
///
/// The kernel keeps the largest of all; a test that wants to know about one program gets an upper bound.
pub fn peak_bytes_of_children() -> io::Result<u64> {
    // getrusage(2): in kilobytes.
    let kilobytes = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    Ok(u64::try_from(kilobytes).unwrap_or(0) * 1024)
}
