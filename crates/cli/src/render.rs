//! Rendering: everything that a person or a script reads.
//!
//! In: typed results. Out: text, tables, progress bars, prompts and JSON. Text from outside is escaped here and nowhere else.

pub(crate) mod consent;
pub(crate) mod exit;
pub(crate) mod fold;
pub(crate) mod graph;
pub(crate) mod json;
pub(crate) mod output;
pub(crate) mod pager;
pub(crate) mod patch;
pub(crate) mod terminal;
pub(crate) mod warning;
pub(crate) mod wrap;
