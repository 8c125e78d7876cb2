//! Plans: what is to be done, in steps and subplans.

pub mod spec;
