//! Crash tests of a real program: kills, failing calls, and the disks that a power cut may leave, for a
//! program and its folders.
//!
//! * [`trace`] runs a program under ptrace: lists its state-changing system calls, kills it at any of them,
//!   or makes any of them fail.
//! * [`mod@record`] runs it once and records every change it made.
//! * [`disk`] replays a recording into a model of a disk that forgets unsynced data, and lays out the states
//!   after a power cut.
//! * [`blocks`] cuts the power of real file systems: it records the requests to their disks.
//! * [`tree`] reads a folder into a comparable value.
//! * [`memory`] reports the memory of programs.
//! * [`proxy`] breaks the connection to a server between requests.
//! * [`servers`] starts PostgreSQL and S3 servers.
//!
//! # The three loops
//!
//! `check` asserts the law: the next command works, and the workspace is exactly as before or exactly as
//! after.
//!
//! ```no_run
//! # use std::io; use std::path::PathBuf; use safepoint_testkit::*;
//! # fn reset() -> io::Result<()> { Ok(()) }
//! # fn check(must_be_new: bool, about: &dyn std::fmt::Debug) -> io::Result<()> { Ok(()) }
//! # fn loops(program: Program, roots: Vec<PathBuf>) -> io::Result<()> {
//! // Killed at every call.
//! for k in 1.. {
//!     reset()?; // Lay out the start again: copy_tree, or Disk::crash + lay_out.
//!     let end = kill_at(&program, k)?;
//!     check(end.is_success(), &end)?;
//!     if !matches!(end, End::Killed { .. }) {
//!         break;
//!     }
//! }
//! // Every call failing, once and forever.
//! reset()?;
//! let count = calls(&program)?.0.len() as u64;
//! for (k, how) in (1..=count).flat_map(|k| [(k, Fail::Once), (k, Fail::Forever)]) {
//!     reset()?;
//!     let end = fail_at(&program, k, 28 /* ENOSPC */, how)?;
//!     check(end.is_success(), &end)?;
//! }
//! // A power cut at every point.
//! reset()?;
//! let start = Disk::load(&roots)?; // First load, then record.
//! let recording = record(&program, &roots)?;
//! every_cut(&start, &recording, 20, 1, |cut| {
//!     cut.image.lay_out()?;
//!     check(cut.last, &cut)
//! })?;
//! # Ok(()) }
//! ```
//!
//! Linux only; tracing works on `x86_64` and returns an error elsewhere.

#![allow(clippy::disallowed_methods, reason = "the testkit lays out disks and starts programs")]
#![cfg(target_os = "linux")]
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

pub mod blocks;
pub mod disk;
pub mod memory;
pub mod op;
pub mod proxy;
pub mod record;
pub mod servers;
pub mod trace;
pub mod tree;

pub use disk::{Crash, Cut, Disk, Image, crash_states, every_cut};
pub use op::{Change, FileId, Op, Recording, Slot};
pub use record::record;
pub use trace::{Action, Call, End, Fail, Program, calls, drive, fail_at, kill_at, kill_at_or_send};
pub use tree::{TreeImage, copy_tree};
