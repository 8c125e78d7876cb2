//! Coding agents: their hook events and answers, their settings files, and the risk of a shell command.

pub mod agent;
pub mod install;

pub use agent::Agent;
