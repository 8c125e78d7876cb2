//! Checkpoints: creating, comparing, finding and recording them.
//!
//! In: a workspace and options. Out: one sealed manifest, one row in the catalog, one record document in the store.

pub(crate) mod compare;
pub(crate) mod create;
pub(crate) mod find;
pub(crate) mod git;
pub(crate) mod lines;
pub(crate) mod pages;
pub(crate) mod records;
pub(crate) mod versions;
