//! Errors of a repository. Nothing was changed unless the variant says otherwise.

use safepoint_model::ObjectError;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Failure of a repository operation.
#[derive(Debug, Error)]
pub enum GitError {
    /// A file of the repository cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path concerned.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// A file of the repository cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Path concerned.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The repository has no work tree.
    #[error("cannot use {}: it is a bare repository without files", path.display())]
    Bare {
        /// Path of the repository.
        path: PathBuf,
    },
    /// The repository has an unsupported format.
    #[error("the repository at {} is not supported: {what}", path.display())]
    Unsupported {
        /// Path of the repository.
        path: PathBuf,
        /// Unsupported property.
        what: String,
    },
    /// A `.git` file refers to a repository that does not refer back.
    #[error("cannot follow {}: {} does not refer back to it", path.display(), git_dir.display())]
    Stranger {
        /// Path of the `.git` file.
        path: PathBuf,
        /// Referenced folder.
        git_dir: PathBuf,
    },
    /// A file of the repository has invalid content.
    #[error("the repository at {} is damaged: {what}", path.display())]
    Damaged {
        /// Path of the repository.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// A git operation is in progress.
    #[error("cannot use the repository: a {operation} is in progress")]
    UnderWay {
        /// Operation in progress.
        operation: crate::Operation,
    },
    /// Another git process is running, or died.
    #[error("cannot change the repository: another git process holds {}", path.display())]
    Locked {
        /// Path of the lock.
        path: PathBuf,
    },
    /// Another program changed the repository concurrently.
    #[error("{name} was changed by another program during the operation")]
    Moved {
        /// Changed ref or file.
        name: String,
    },
    /// The tag exists and names another object.
    #[error("cannot create tag {name}: it already names another object")]
    TagTaken {
        /// Name of the tag.
        name: String,
    },
    /// HEAD is on no branch.
    #[error("HEAD is detached: no branch to move")]
    Detached,
    /// The branch is also checked out in another worktree.
    #[error("{name} is checked out in another worktree")]
    Elsewhere {
        /// Name of the tag.
        name: String,
    },
    /// The commit is missing.
    #[error("commit {id} not found in the repository")]
    NoCommit {
        /// Id of the commit.
        id: String,
    },
    /// The operation was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// An object of Safepoint's own store is missing or damaged.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl GitError {
    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }

    pub(crate) fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }

    #[allow(clippy::needless_pass_by_value, reason = "maps foreign errors by value")]
    pub(crate) fn damaged(path: &Path, what: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.to_string() }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), what: what.into() }
    }
}
