//! Plans: work in steps and subplans.

pub mod clean;
pub mod correction;
mod course;
pub mod document;
mod happening;

pub mod note;
mod rule;
pub mod run;
pub mod spec;
pub mod state;
