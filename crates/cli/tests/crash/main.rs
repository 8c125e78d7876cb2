//! Crash safety of the real binary, by loops over every point instead of examples.
//!
//! - `kill`: SIGKILL at every state-changing system call of a command, and again at every one of the
//!   recovery.
//! - `power`: records every command, replays it on a simulated disk without unsynced data, cut at every
//!   operation.
//! - `fault`: every state-changing call fails, once or permanently.
//! - `foreign`: a command is killed, and another home is used.
//! - `hooks`: hooks of agents, killed everywhere.
//! - `settings`: install and uninstall, killed everywhere.
//! - `remotes`: push, clone, fetch and upkeep of a remote, killed everywhere.
//! - `upkeep`: prune, gc, purge and repair, killed everywhere, with concurrent captures.
//! - `blocks`: real disks with ext4, xfs and btrfs lose power at every request; as root, on request.
//! - `crowd`: several concurrent processes with random operations, some killed at random.
//!
//! The oracle is independent of the crash: plain copies of the trees, compared byte by byte.

#![allow(clippy::disallowed_methods, reason = "tests set up folders")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

/// Step between points: each for a checkpoint and a rollback, others for those that are built on the same
/// rollback. A search is many rollbacks, so neighbours are similar. SAFEPOINT_PROOF=full tries each.
fn stride(act: scene::Act) -> usize {
    use scene::Act;
    match act {
        _ if is_full() => 1,
        Act::Create | Act::Rollback => 1,
        Act::Undo | Act::RollbackMany => 3,
        Act::Migrate | Act::SaveState | Act::RollbackThread => 3,
        Act::HardReset | Act::RollbackRepository => 5,
        Act::RollbackPlan | Act::CorrectPlan | Act::ApplyPlan | Act::KeepAttempt => 7,
        Act::RollbackBound | Act::RollbackWithRepository | Act::RollbackTogether => 7,
        Act::Search | Act::SearchInPlace => 11,
        Act::SearchInOverlay => 13,
    }
}

/// Returns true if everything is to be tried, regardless of time.
pub(crate) fn is_full() -> bool {
    std::env::var_os("SAFEPOINT_PROOF").is_some_and(|proof| proof == "full")
}

mod blocks;
mod crowd;
mod fault;
mod foreign;
mod hooks;
mod kill;
mod ordinary;
mod power;
mod remotes;
mod scene;
mod settings;
mod upkeep;
