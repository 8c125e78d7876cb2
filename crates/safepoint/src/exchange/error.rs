//! What can be wrong with a layout.

use safepoint_model::RelPath;
use safepoint_model::checkpoint::Scope;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A folder that is no layout, or not a sound one; or a checkpoint that cannot be one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The folder cannot be opened.
    #[error("cannot open the folder {}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing that says what the folder is.
    #[error("{} has no metadata.json in it", path.display())]
    NotALayout {
        /// Which.
        path: PathBuf,
    },
    /// It is in a version that is not known here.
    #[error("the layout has the version {found}, and {known} is what is known here")]
    Version {
        /// What it says.
        found: u64,
        /// What is known.
        known: u32,
    },
    /// A file in it cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// Which.
        file: RelPath,
        /// Why.
        source: io::Error,
    },
    /// Something in it is not as it must be.
    #[error("{file}: {why}")]
    Bad {
        /// Which file or folder.
        file: RelPath,
        /// What is wrong with it.
        why: String,
    },
    /// It is one of several folders where one of one workspace was wanted, or the other way round.
    #[error("it is a checkpoint of scope {scope}, and another sort was to be imported")]
    Scope {
        /// Which.
        scope: Scope,
    },
    /// It holds no files, or those of several workspaces.
    #[error("it holds the files of {found} workspaces, and a checkpoint is made of one")]
    Workspaces {
        /// How many.
        found: usize,
    },
    /// The checkpoint has more in it than a layout can hold.
    #[error("the checkpoint is too large for a layout: {what}")]
    TooLarge {
        /// Which limit it is.
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
