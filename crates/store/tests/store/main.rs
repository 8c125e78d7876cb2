//! The laws of the store, seen from outside.
#![allow(clippy::disallowed_methods, reason = "tests damage files on purpose")]

mod concurrency;
mod content;
mod crash;
mod damage;
mod index;
mod kit;
mod laws;
