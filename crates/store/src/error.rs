//! Errors of the store itself. A missing or damaged object is not an error but a result.

use safepoint_model::ObjectError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Failure of a store operation. No variant leaves a partial change that is committed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The folder could not be opened or created.
    #[error("cannot open the store {}", path.display())]
    Open {
        /// Opened path.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The store was opened read-only.
    #[error("cannot write the store {}: it is open read-only", path.display())]
    ReadOnly {
        /// Folder of the store.
        path: PathBuf,
    },
    /// The folder is accessible to other users, and its permissions could not be changed.
    #[error("cannot make the store {} private", path.display())]
    MakePrivate {
        /// Folder of the store.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The folder was written by a newer version.
    #[error("cannot open the store {}: it has format {found}; this version supports formats up to {known}", path.display())]
    NewerFormat {
        /// Folder of the store.
        path: PathBuf,
        /// Format number found in the folder.
        found: u64,
        /// Newest supported format number.
        known: u64,
    },
    /// The format file has other content.
    #[error("cannot read the format of the store: {} is invalid", path.display())]
    NotAStore {
        /// Format file.
        path: PathBuf,
    },
    /// The packs could not be listed.
    #[error("cannot list the packs in {}", path.display())]
    ListPacks {
        /// Folder of the packs.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// A new pack could not be created.
    #[error("cannot create the pack {}", path.display())]
    CreatePack {
        /// Path of the pack.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The store would exceed its size limit.
    #[error("cannot add {needed_bytes} bytes to the store: it holds {used_bytes} of {allowed_bytes} bytes")]
    Full {
        /// Bytes to be added at the time of refusal; more may have followed.
        needed_bytes: u64,
        /// Bytes in the packs.
        used_bytes: u64,
        /// Maximum bytes in the packs.
        allowed_bytes: u64,
    },
    /// Files needed for garbage collection could not be read, written or locked.
    #[error("cannot collect garbage in {}", path.display())]
    Collect {
        /// Path of the store or pack.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// A pack could not be locked, cut to its valid length, or appended to.
    #[error("cannot append to the pack {}", path.display())]
    AppendPack {
        /// Path of the pack.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// A pack could not be read.
    #[error("cannot read the pack {}", path.display())]
    ReadPack {
        /// Path of the pack.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The bytes read back from a pack differ from the written bytes.
    #[error("cannot verify the pack {}: the bytes read back differ from those written", path.display())]
    VerifyPack {
        /// Path of the pack.
        path: PathBuf,
    },
    /// A pack or its folder could not be made durable.
    #[error("cannot make {} durable", path.display())]
    SyncPack {
        /// Path of the pack or folder.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The index failed.
    #[error("cannot use the index {}", path.display())]
    Index {
        /// Path of the index.
        path: PathBuf,
        /// Underlying SQLite error.
        source: rusqlite::Error,
    },
    /// The bytes could not be compressed.
    #[error("cannot compress an object")]
    Compress(#[source] io::Error),
    /// The object exceeds the maximum object size.
    #[error("cannot store an object of {bytes} bytes: it exceeds the maximum object size")]
    TooLarge {
        /// Length of the object.
        bytes: usize,
    },
    /// An earlier step of this writer failed; none of its objects is committed.
    #[error("cannot write to the store: an earlier write failed; nothing of this capture was kept")]
    WriterFailed,
}

impl StoreError {
    /// Returns true if the disk or the user's quota is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Open { source, .. }
            | Self::CreatePack { source, .. }
            | Self::AppendPack { source, .. }
            | Self::Collect { source, .. }
            | Self::SyncPack { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Self::Index { source, .. } => source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            _ => false,
        }
    }

    /// Returns true if another process held the index too long; a later retry may succeed.
    pub fn is_busy(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        matches!(self, Self::Index { source, .. }
            if matches!(source.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked)))
    }

    /// Returns true if a file would exceed the size limit (`ulimit -f`, or the file system).
    pub fn is_too_long(&self) -> bool {
        match self {
            Self::Open { source, .. }
            | Self::CreatePack { source, .. }
            | Self::AppendPack { source, .. }
            | Self::Collect { source, .. }
            | Self::SyncPack { source, .. } => source.kind() == io::ErrorKind::FileTooLarge,
            // SQLite does not report the system error; if a limit is set, it is taken as the cause of the
            // failed write.
            Self::Index { source, .. } => {
                source.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure)
                    && rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
            }
            _ => false,
        }
    }

    /// Returns true if the index is not a valid database, so that only the packs are reliable.
    pub(crate) fn is_corrupt_index(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Index { source, .. } => {
                matches!(source.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
                    // Our statements are valid, so the tables must be wrong.
                    || source.sqlite_error().is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_ERROR)
                    || matches!(
                        source,
                        rusqlite::Error::InvalidColumnType(..)
                            | rusqlite::Error::IntegralValueOutOfRange(..)
                            | rusqlite::Error::FromSqlConversionFailure(..)
                    )
            }
            _ => false,
        }
    }
}

impl From<StoreError> for ObjectError {
    fn from(error: StoreError) -> Self {
        ObjectError::Store(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_recognised_and_nothing_else_is() {
        let path = PathBuf::from("p");
        let append = |kind: io::ErrorKind| StoreError::AppendPack { path: path.clone(), source: kind.into() };
        assert!(append(io::ErrorKind::StorageFull).is_full());
        assert!(append(io::ErrorKind::QuotaExceeded).is_full());
        assert!(!append(io::ErrorKind::PermissionDenied).is_full());
        assert!(!StoreError::WriterFailed.is_full());
        let sqlite = |code| StoreError::Index {
            path: path.clone(),
            source: rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None),
        };
        assert!(sqlite(rusqlite::ffi::SQLITE_FULL).is_full());
        assert!(!sqlite(rusqlite::ffi::SQLITE_BUSY).is_full());
        assert!(sqlite(rusqlite::ffi::SQLITE_CORRUPT).is_corrupt_index());
        assert!(!sqlite(rusqlite::ffi::SQLITE_FULL).is_corrupt_index());
    }

    #[test]
    fn the_error_travels_inside_an_object_error() {
        let error = ObjectError::from(StoreError::TooLarge { bytes: 7 });
        let ObjectError::Store(inner) = error else { panic!("another variant") };
        assert!(inner.downcast_ref::<StoreError>().is_some());
        assert_eq!(
            inner.to_string(),
            "cannot store an object of 7 bytes: it exceeds the maximum object size"
        );
    }
}
