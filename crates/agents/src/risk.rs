//! Risk of a shell command, found in its syntax tree.
//!
//! In comes shell text by a model, out comes a reason for a checkpoint, or `None`. A command that cannot be
//! understood is risky. A risk only adds a checkpoint, so that a wrong guess costs little.
//!
//! No recursion follows the nesting of the text: the tree is walked by a cursor, and texts inside of a text
//! (`bash -c`, `eval`) are parsed to a fixed depth.

mod commands;
mod shell;
mod table;

pub use table::{RiskPattern, RiskPatternError};

use crate::note::one_line;

const LABEL_LETTERS_MAX: usize = 60;

/// Reason for a checkpoint before a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Risk {
    /// Label for the checkpoint, such as `before rm -rf build`.
    pub label: String,
    /// Kind.
    pub kind: RiskKind,
}

/// Kind of a risk, the gravest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RiskKind {
    /// Deletes files.
    Delete,
    /// Discards or rewrites work in git.
    Git,
    /// Changes a database or its schema.
    Database,
    /// Publishes or deploys.
    Deploy,
    /// Changes permissions or owners of whole trees.
    Permissions,
    /// Changes installed packages.
    Packages,
    /// Overwrites files.
    Overwrite,
    /// Matches a pattern of the user.
    Custom,
    /// Cannot be understood.
    Unknown,
}

/// Returns the gravest risk of a shell text, by the built-in table and the patterns of the user.
pub fn risk(text: &str, patterns: &[RiskPattern]) -> Option<Risk> {
    let found = shell::gravest(text, patterns)?;
    let label = format!("before {}", one_line(&found.text, LABEL_LETTERS_MAX));
    Some(Risk { label, kind: found.kind })
}
