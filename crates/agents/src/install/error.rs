//! Failures of `install` and `uninstall`. Each is found before any file is changed, except `Write`.

use std::io;
use std::path::PathBuf;

/// Failure to install or uninstall.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A settings file is invalid.
    #[error("cannot parse {}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Message of the parser.
        reason: String,
    },
    /// A settings file has a value of an unexpected type, a duplicate key, or a foreign entry of our name.
    #[error("cannot edit {}: {reason}", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// The value and its problem.
        reason: String,
    },
    /// A settings file must not be touched.
    #[error("cannot use {}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Another program changed a file between reading and writing.
    #[error("cannot write {}: another program is changing it", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

impl InstallError {
    /// The file of the failure.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        match self {
            Self::Invalid { path, .. }
            | Self::Unexpected { path, .. }
            | Self::Refused { path, .. }
            | Self::Read { path, .. }
            | Self::Write { path, .. }
            | Self::Busy { path } => path,
        }
    }
}
