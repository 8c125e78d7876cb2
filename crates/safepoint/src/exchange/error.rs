//! Errors of layouts.

use safepoint_model::RelPath;
use safepoint_model::checkpoint::Scope;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Reason to reject a layout, or a checkpoint for one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The folder cannot be opened.
    #[error("cannot open the folder {}", path.display())]
    Open {
        /// Folder.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The folder has no metadata.
    #[error("{} has no metadata.json in it", path.display())]
    NotALayout {
        /// Folder.
        path: PathBuf,
    },
    /// The version is unsupported.
    #[error("the layout has the version {found}, and {known} is what is known here")]
    Version {
        /// Version found.
        found: u64,
        /// Supported version.
        known: u32,
    },
    /// A file cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// File.
        file: RelPath,
        /// Cause.
        source: io::Error,
    },
    /// An entry is invalid.
    #[error("{file}: {why}")]
    Bad {
        /// File or folder.
        file: RelPath,
        /// Reason.
        why: String,
    },
    /// The layout spans several folders but one workspace was expected, or the reverse.
    #[error("it is a checkpoint of scope {scope}, and another sort was to be imported")]
    Scope {
        /// Scope found.
        scope: Scope,
    },
    /// The layout holds the files of no workspace or of several.
    #[error("it holds the files of {found} workspaces, and a checkpoint is made of one")]
    Workspaces {
        /// Count.
        found: usize,
    },
    /// The checkpoint exceeds a limit of layouts.
    #[error("the checkpoint is too large for a layout: {what}")]
    TooLarge {
        /// Limit.
        what: &'static str,
    },
}

impl LayoutError {
    pub(super) fn bad(file: &RelPath, why: impl Into<String>) -> Self {
        Self::Bad { file: file.clone(), why: why.into() }
    }

    pub(super) fn read(file: &RelPath) -> impl Fn(io::Error) -> Self {
        let file = file.clone();
        move |source| Self::Read { file: file.clone(), source }
    }
}
