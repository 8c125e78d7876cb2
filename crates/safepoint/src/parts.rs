//! The kinds of parts there are.

pub(crate) mod files;
pub(crate) mod git;
pub(crate) mod plan;
pub(crate) mod session;
