//! The page's server from the view of a client: the real program, spoken to in raw requests.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start the program")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod attempts;
mod contract;
mod door;
mod rollback;
mod server;
mod timeline;
