//! Hooks of the coding agents: recorded and hostile events, answers, notes and risks.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod events;
mod hostile;
mod notes;
mod risks;
mod schemas;
mod streams;
