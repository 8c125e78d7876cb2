//! Bad input and bad weather, met as a user meets it: through the real program, in real folders.
//!
//! Whatever happens, a command ends well, or with an exit code, a sentence and advice; and then every file is exactly as it was.
//! `docs/weather.md` lists the tests by what they are about.

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
