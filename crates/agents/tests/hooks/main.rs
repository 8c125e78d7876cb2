//! Hooks of the coding agents: recorded and hostile events, answers, notes and risks.

#![allow(clippy::disallowed_methods, reason = "tests read the recorded streams")]

mod events;
mod hostile;
mod notes;
mod risks;
mod schemas;
mod streams;
