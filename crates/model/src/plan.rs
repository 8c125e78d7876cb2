//! Plans: what is to be done, in steps and subplans.

pub mod clean;
pub mod document;
pub mod spec;
pub mod state;
