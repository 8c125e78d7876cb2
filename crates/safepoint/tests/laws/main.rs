//! Laws of the library, on real folders.

#![allow(clippy::disallowed_methods, reason = "tests set up folders")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod access;
mod bench;
mod bindings;
mod configuration;
mod conversations;
mod coverage;
mod damage;
mod databases;
mod effects;
mod fallback;
mod framework;
mod glossary;
mod histories;
mod hostile;
mod in_the_way;
mod interrupts;
mod layouts;
mod names;
mod obstacles;
mod plans;
mod progress;
mod purge;
mod rebuild;
mod records;
mod recovery;
mod repair;
mod runner;
mod sandboxes;
mod searches;
mod session_parts;
mod sessions;
mod space;
mod sparse;
mod strategies;
mod success;
mod threads;
mod together;
mod turns;
mod undoing;
mod upkeep;
mod versions;
mod walls;
mod wholes;
mod writers;
