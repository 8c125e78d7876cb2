//! Laws of the store, through its public interface.
#![allow(clippy::disallowed_methods, reason = "tests damage files on purpose")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test should fail loudly")]

mod collect;
mod concurrency;
mod content;
mod crash;
mod damage;
mod index;
mod kit;
mod laws;
