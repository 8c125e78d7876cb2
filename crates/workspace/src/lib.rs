//! Reads a folder, and changes it crash-atomically.
//!
//! Input: a folder and an object store. Output: trees in that store; or the folder changed, step by step, so
//! that after any crash and one recovery it is exactly the old or exactly the new tree. This crate is the
//! only writer in the user's folder. It knows neither the store nor the catalog.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests set up folders"))]

mod build;
mod bulk;
mod cache;
mod compare;
mod copy;
mod error;
mod foreign;
#[doc(hidden)]
pub mod fuzzing;
mod homes;
mod linux;
mod notice;
mod parcel;
mod plan;
mod probe;
mod replica;
mod room;
mod root;
mod rules;
mod scan;
mod settle;
mod sparse;
mod sqlite;
mod stage;
mod swap;
#[cfg(test)]
mod swap_tests;
mod threads;
mod write;
mod writers;

pub use build::{build_tree, drop_folders, make_folders};
pub use bulk::{Bulk, BulkLimits, BulkyFolder, bulk};
pub use cache::{CacheHead, CacheWriter, NextCache, NoCacheHead, StatCache};
pub use copy::{Copied, copy_tree, remove_tree};
pub use error::{Intruder, Obstacle, WorkspaceError};
pub use foreign::{Foreign, ForeignEntry, ForeignFile};
pub use homes::{is_in_a_home, is_made_up};
pub use notice::Notice;
pub use parcel::Parcel;
pub use plan::{Blocked, CapturedAccess, LostAccess, LostAccessKind, RollbackPlan, plan};
pub use probe::{Capabilities, Lack};
pub use replica::{Destination, Replica, ReplicaDraft, free_bytes};
pub use room::{
    LayerRollback, LayerState, Outside, RoomEntry, RoomFolder, RoomLock, RoomMount, RoomProcess, RoomRefused,
    enter_room, has_mounts_below, marked_processes, room_mounts, room_processes,
};
pub use root::{Lock, OWN_FOLDER, Root, SmallFile};
pub use rules::{Patterns, check_patterns, leave_out_too};
pub use scan::{
    DEPTH_MAX, LARGE_FILE_BYTES, LargeFiles, LayerBase, Scan, ScanOptions, Sidecars, Snapshot, What, scan,
};
pub use settle::{Ended, Finding, Settled};
pub use sqlite::{DatabaseCopies, database_family};
pub use stage::{Stage, StageOptions, Times};
pub use swap::Meanwhile;
pub use write::write_tree;
pub use writers::Waiting;
