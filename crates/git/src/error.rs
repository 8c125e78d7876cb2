//! What can go wrong with a repository. Nothing was changed then, unless it says otherwise.

use safepoint_model::ObjectError;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why something cannot be done with a repository.
#[derive(Debug, Error)]
pub enum GitError {
    /// Something of it cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something of it cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It has no files of its own.
    #[error("{} is a bare repository: it has no files", path.display())]
    Bare {
        /// Where.
        path: PathBuf,
    },
    /// It is of a sort that is not handled.
    #[error("the repository at {} is not supported: {what}", path.display())]
    Unsupported {
        /// Where.
        path: PathBuf,
        /// What about it.
        what: String,
    },
    /// A `.git` leads to a repository that knows nothing of this folder.
    #[error("{} leads to {}, which does not lead back: it is not followed", path.display(), git_dir.display())]
    Stranger {
        /// The `.git`.
        path: PathBuf,
        /// Where it leads.
        git_dir: PathBuf,
    },
    /// Something of it is not what git writes.
    #[error("the repository at {} is damaged: {what}", path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It is in the middle of something.
    #[error("a {operation} is under way in the repository")]
    UnderWay {
        /// Of what.
        operation: crate::Operation,
    },
    /// Another git is at work, or was and died.
    #[error("another git is at work: {} is there", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// Somebody moved something meanwhile.
    #[error("{name} was changed by another program meanwhile")]
    Moved {
        /// What.
        name: String,
    },
    /// A tag of the name is there, for something else.
    #[error("there is a tag {name} already, and it names something else")]
    TagTaken {
        /// Which.
        name: String,
    },
    /// There is no branch to move.
    #[error("HEAD is detached: there is no branch to move")]
    Detached,
    /// The branch is checked out by another worktree too.
    #[error("{name} is checked out in another worktree")]
    Elsewhere {
        /// Which.
        name: String,
    },
    /// The commit is not there.
    #[error("commit {id} is not in the repository any more")]
    NoCommit {
        /// Which.
        id: String,
    },
    /// Somebody asked to stop.
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

    #[allow(clippy::needless_pass_by_value, reason = "errors of others, at the end of their way")]
    pub(crate) fn damaged(path: &Path, what: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.to_string() }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), what: what.into() }
    }
}
