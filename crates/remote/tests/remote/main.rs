//! Tests of the remote against real servers. Without a server, its tests pass, and a line on standard error
//! names what was left out.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start servers")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod access;
mod bytes;
mod faults;
mod flaky;
mod histories;
mod machine;
mod publish;
mod teeth;
mod upkeep;
mod world;
