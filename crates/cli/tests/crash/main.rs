//! Crash safety of the real binary, by loops over every point and not by examples.
//!
//! - `kill`: SIGKILL at every state-changing system call of a verb, and again at every one of the recovery that follows.
//! - `power`: every verb is recorded, replayed onto a simulated disk that forgets what was not synced, and cut at every operation.
//! - `fault`: every state-changing call fails, once or from then on.
//! - `foreign`: a verb is killed, and somebody comes with another home.
//! - `upkeep`: pruning, collecting, purging and repairing, killed everywhere, with captures beside them.
//! - `blocks`: the power of real disks with ext4, xfs and btrfs, cut at every request; as root, when asked for.
//! - `crowd`: several processes at once, doing whatever comes, some killed at random.
//!
//! The oracle is outside of what crashes: plain copies of the trees, compared byte by byte.

#![allow(clippy::disallowed_methods, reason = "tests set up folders")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

/// A search is many rollbacks, one after another: neighbouring points meet much the same. With SAFEPOINT_PROOF=full each is tried.
fn stride(act: scene::Act) -> usize {
    match act {
        scene::Act::Search | scene::Act::SearchInPlace if !is_full() => 5,
        _ => 1,
    }
}

/// Whether everything is to be tried, however long it takes.
pub(crate) fn is_full() -> bool {
    std::env::var_os("SAFEPOINT_PROOF").is_some_and(|proof| proof == "full")
}

mod blocks;
mod crowd;
mod fault;
mod foreign;
mod kill;
mod ordinary;
mod power;
mod scene;
mod upkeep;
