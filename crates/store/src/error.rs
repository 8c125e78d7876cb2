//! What can go wrong with the store itself. A missing or a damaged object is not among it: that is an answer.

use safepoint_model::ObjectError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why the store could not do what it was asked for. No variant leaves anything half done that counts.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The folder could not be opened or made.
    #[error("cannot open the store {}", path.display())]
    Open {
        /// What was opened.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The store was opened for reading alone.
    #[error("cannot write the store {}: it was opened read-only", path.display())]
    ReadOnly {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is open to other users, and could not be closed to them.
    #[error("cannot make the store {} private", path.display())]
    MakePrivate {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The folder was written by a newer version of this software.
    #[error("the store {} has format {found}; this version knows formats up to {known}", path.display())]
    NewerFormat {
        /// The folder.
        path: PathBuf,
        /// The number that stands there.
        found: u64,
        /// The newest number that is understood.
        known: u64,
    },
    /// The file that names the format says something else.
    #[error("{} does not name the format of a store", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// The packs could not be listed.
    #[error("cannot list the packs in {}", path.display())]
    ListPacks {
        /// The folder of the packs.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A new pack could not be made.
    #[error("cannot create the pack {}", path.display())]
    CreatePack {
        /// The pack.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The store would become larger than it may.
    #[error(
        "the store may hold {allowed_bytes} bytes and holds {used_bytes}; at least {needed_bytes} more are needed"
    )]
    Full {
        /// How much was to be added when it was refused; more may have followed.
        needed_bytes: u64,
        /// How much is in the packs.
        used_bytes: u64,
        /// How much may be in the packs.
        allowed_bytes: u64,
    },
    /// What is needed to delete packs could not be read, written or locked.
    #[error("cannot clear {} of what nobody needs", path.display())]
    Collect {
        /// The store, or the pack.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A pack could not be locked, cut to its valid length, or appended to.
    #[error("cannot append to the pack {}", path.display())]
    AppendPack {
        /// The pack.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A pack could not be read.
    #[error("cannot read the pack {}", path.display())]
    ReadPack {
        /// The pack.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What was written to a pack is not what reads back from it.
    #[error("the pack {} does not read back as it was written", path.display())]
    VerifyPack {
        /// The pack.
        path: PathBuf,
    },
    /// A pack, or the folder that names it, could not be made durable.
    #[error("cannot make {} durable", path.display())]
    SyncPack {
        /// The pack or the folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The index failed.
    #[error("the index {} failed", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The bytes could not be compressed.
    #[error("cannot compress an object")]
    Compress(#[source] io::Error),
    /// The object is larger than any that is kept.
    #[error("an object of {bytes} bytes is larger than the store keeps")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// An earlier step of this writer failed, and so nothing that it took counts.
    #[error("an earlier write failed; nothing of this capture was kept")]
    WriterFailed,
}

impl StoreError {
    /// Whether the disk, or the user's share of it, is full.
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

    /// Whether another process held the index for too long: trying again later may work.
    pub fn is_busy(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        matches!(self, Self::Index { source, .. }
            if matches!(source.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked)))
    }

    /// Whether a file may not become so long (`ulimit -f`, or the file system).
    pub fn is_too_long(&self) -> bool {
        match self {
            Self::Open { source, .. }
            | Self::CreatePack { source, .. }
            | Self::AppendPack { source, .. }
            | Self::Collect { source, .. }
            | Self::SyncPack { source, .. } => source.kind() == io::ErrorKind::FileTooLarge,
            // SQLite keeps the system's reason to itself; a limit that is set is the one that a failed write has met.
            Self::Index { source, .. } => {
                source.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure)
                    && rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
            }
            _ => false,
        }
    }

    /// Whether the index is no database any more, so that only the packs can tell.
    pub(crate) fn is_corrupt_index(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Index { source, .. } => {
                matches!(source.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
                    // Our statements are right, so that it is the tables that are wrong.
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
        assert_eq!(inner.to_string(), "an object of 7 bytes is larger than the store keeps");
    }
}
