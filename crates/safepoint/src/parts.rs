//! The kinds of parts there are.

pub(crate) mod files;
