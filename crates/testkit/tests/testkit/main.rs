//! The testkit's own tests: small programs in, counts, kills, faults and
//! disks after a power cut out.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;
mod disk;
mod record;
mod trace;
mod tree;
