//! Tests of the testkit: counts, kills, faults, and disks after a power cut, with small programs.

#![allow(clippy::disallowed_methods, reason = "tests set up folders")]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod blocks;
mod common;
mod disk;
mod record;
mod trace;
mod tree;
