//! Laws of the catalog, through its public interface.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test fails by panicking")]

mod checkpoints;
mod concurrency;
mod crashes;
mod damage;
mod events;
mod files;
mod plans;
mod records;
mod resolve;
mod rollbacks;
mod runs;
mod sessions;
mod speed;
mod transactions;
mod upkeep;
