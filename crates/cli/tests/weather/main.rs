//! Bad input and faults from the user's view: the real program in real folders.
//!
//! Every command succeeds, or fails with an exit code, a message and a hint; then every file is exactly as
//! before. `docs/weather.md` lists the tests by subject.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start the program")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod changing;
mod clocks;
mod disks;
mod files;
mod foreign;
mod homes;
mod ids;
mod layouts;
mod links;
mod names;
mod page;
mod place;
mod places;
mod readonly;
mod searches;
mod signals;
mod special;
mod strangers;
mod tight;
