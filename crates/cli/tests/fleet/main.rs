//! Remotes that are hostile, broken or away, and the real binary: forged packs, wrong credentials, a full bucket, servers
//! that die, networks that are cut.
//!
//! Without PostgreSQL or SeaweedFS a line on standard error names what was left out; `.ci/fleet --install` installs them.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start servers")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod forge;
mod packs;
mod servers;
mod world;
