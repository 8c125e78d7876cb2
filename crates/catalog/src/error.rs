//! Error of this crate: the attempted operation, its object and the reason.

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use safepoint_model::rollback::RollbackState;
use safepoint_model::{CheckpointId, RollbackId, WorkspaceId};
use std::error::Error as _;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Failure of a catalog operation.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// The SQLite library has a known defect that can damage a database.
    #[error("cannot use SQLite {found}: it may damage databases; at least {needed} is required")]
    Library {
        /// Version in use.
        found: String,
        /// Oldest safe version.
        needed: &'static str,
    },
    /// The file could not be created or made private.
    #[error("cannot prepare the catalog {path:?}")]
    Create {
        /// Path of the catalog.
        path: PathBuf,
        /// Underlying I/O error.
        source: std::io::Error,
    },
    /// The catalog was opened read-only.
    #[error("cannot write the catalog {path:?}: it is open read-only")]
    ReadOnly {
        /// Path of the catalog.
        path: PathBuf,
    },
    /// The file could not be opened as a database.
    #[error("cannot open the catalog {path:?}")]
    Open {
        /// Path of the catalog.
        path: PathBuf,
        /// Underlying SQLite error.
        source: rusqlite::Error,
    },
    /// The file system does not support a write-ahead log.
    #[error("cannot create a write-ahead log for the catalog {path:?}: the journal mode stays {mode:?}")]
    Journal {
        /// Path of the catalog.
        path: PathBuf,
        /// Journal mode that SQLite fell back to.
        mode: String,
    },
    /// The catalog was written by a newer Safepoint.
    #[error(
        "cannot open the catalog {path:?}: it has schema {found}; this version supports schemas up to {known}"
    )]
    Newer {
        /// Path of the catalog.
        path: PathBuf,
        /// Schema version found.
        found: i64,
        /// Newest supported schema version.
        known: i64,
    },
    /// The file is a database of another program.
    #[error("cannot open the catalog {path:?}: it is a database of another program")]
    Foreign {
        /// Path of the file.
        path: PathBuf,
    },
    /// The schema could not be migrated.
    #[error("cannot migrate the catalog {path:?}")]
    Migrate {
        /// Path of the catalog.
        path: PathBuf,
        /// Underlying migration error.
        source: Box<refinery::Error>,
    },
    /// Records could not be read.
    #[error("cannot read {what} from the catalog")]
    Read {
        /// Records concerned.
        what: String,
        /// Underlying SQLite error.
        source: rusqlite::Error,
    },
    /// Records could not be written.
    #[error("cannot write {what} to the catalog")]
    Write {
        /// Records concerned.
        what: String,
        /// Underlying SQLite error.
        source: rusqlite::Error,
    },
    /// A transaction could not begin.
    #[error("cannot begin a transaction in the catalog {path:?}")]
    Begin {
        /// Path of the catalog.
        path: PathBuf,
        /// Underlying SQLite error.
        source: rusqlite::Error,
    },
    /// A transaction could not be committed. After a disk failure, only reading again shows which state is
    /// valid.
    #[error("cannot commit to the catalog {path:?}")]
    Commit {
        /// Path of the catalog.
        path: PathBuf,
        /// Underlying SQLite error.
        source: rusqlite::Error,
    },
    /// The catalog was used from inside its own transaction.
    #[error("cannot use the catalog {path:?} from inside its own transaction")]
    Nested {
        /// Path of the catalog.
        path: PathBuf,
    },
    /// The file was replaced or deleted.
    #[error("cannot use the catalog {path:?}: its file was replaced during use")]
    Replaced {
        /// Path of the catalog.
        path: PathBuf,
    },
    /// The file is no longer a database.
    #[error("the catalog is damaged: {what} cannot be read")]
    DamagedFile {
        /// Attempted operation.
        what: String,
        /// Underlying SQLite error.
        source: rusqlite::Error,
    },
    /// A row cannot be parsed.
    #[error("the catalog is damaged: {table} {id}: {why}")]
    Damaged {
        /// Table.
        table: &'static str,
        /// Row.
        id: String,
        /// Column and problem.
        why: String,
    },
    /// A record to be changed or referenced is not found.
    #[error("{what} {id} not found in the catalog")]
    Missing {
        /// Kind of record.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// The id is in use.
    #[error("{what} {id} already exists in the catalog")]
    Taken {
        /// Kind of record.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// The folder is already registered.
    #[error("{root:?} is already registered as workspace {id}")]
    Registered {
        /// Folder.
        root: PathBuf,
        /// Its workspace.
        id: WorkspaceId,
    },
    /// The transition of a rollback is not allowed.
    #[error("rollback {id} cannot become {to}: it is {}", from.map_or("new", RollbackState::as_str))]
    Transition {
        /// Id of the rollback.
        id: RollbackId,
        /// Current state, or `None` for a new rollback.
        from: Option<RollbackState>,
        /// Requested state.
        to: RollbackState,
    },
    /// Another rollback of the workspace is unfinished.
    #[error("rollback {rollback} of workspace {workspace} is unfinished")]
    Unfinished {
        /// Workspace.
        workspace: WorkspaceId,
        /// Rollback that must be recovered first.
        rollback: RollbackId,
    },
    /// A checkpoint cannot be deleted, because an unfinished rollback may need it.
    #[error("checkpoint {checkpoint} is needed by the unfinished rollback {rollback}")]
    Needed {
        /// Checkpoint.
        checkpoint: CheckpointId,
        /// Id of the rollback.
        rollback: RollbackId,
    },
    /// A checkpoint cannot be deleted, because an open attempt needs it.
    #[error("checkpoint {checkpoint} is the base or the result of the open attempt {attempt}")]
    AttemptNeeds {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Name of the attempt.
        attempt: String,
    },
    /// A checkpoint cannot be deleted, because a plan's sandbox was created from it.
    #[error("checkpoint {checkpoint} is the base of the sandbox of plan {plan}")]
    SandboxBase {
        /// Checkpoint.
        checkpoint: CheckpointId,
        /// Plan.
        plan: String,
    },
    /// A value cannot be recorded.
    #[error("cannot record {what}: {why}")]
    Value {
        /// Value.
        what: String,
        /// Problem.
        why: String,
    },
}

impl CatalogError {
    /// Returns true if another process held the catalog too long; a later retry may succeed.
    pub fn is_busy(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    /// Returns true if the disk is full.
    pub fn is_full(&self) -> bool {
        // The shared-memory file is sized before use; a full disk shows there first.
        let is_full = |source: &std::io::Error| {
            matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        };
        matches!(self, Self::Create { source, .. } if is_full(source))
            || self.code() == Some(ErrorCode::DiskFull)
            || self.sqlite().and_then(rusqlite::Error::sqlite_error).map(|error| error.extended_code)
                == Some(SQLITE_IOERR_SHMSIZE)
    }

    /// Returns true if the catalog contains data that it cannot have written.
    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::DamagedFile { .. })
    }

    fn code(&self) -> Option<ErrorCode> {
        self.sqlite().and_then(rusqlite::Error::sqlite_error_code)
    }

    /// Returns the underlying SQLite error, at any depth.
    fn sqlite(&self) -> Option<&rusqlite::Error> {
        let mut source = self.source();
        while let Some(error) = source {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            source = error.source();
        }
        None
    }

    /// Returns true if a file would exceed its size limit (`ulimit -f`). SQLite does not report the system
    /// error; if a limit is set, it is taken as the cause of the failed write.
    pub fn is_too_long(&self) -> bool {
        self.code() == Some(ErrorCode::SystemIoFailure)
            && rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
    }

    pub(crate) fn open(path: &Path, source: rusqlite::Error) -> Self {
        let source = crate::open::explained(path, source);
        match is_corrupt(&source) {
            true => Self::DamagedFile { what: path.display().to_string(), source },
            false => Self::Open { path: path.to_owned(), source },
        }
    }

    pub(crate) fn migrate(path: &Path, source: refinery::Error) -> Self {
        Self::Migrate { path: path.to_owned(), source: Box::new(source) }
    }

    pub(crate) fn read(what: impl Display, source: rusqlite::Error) -> Self {
        match is_corrupt(&source) {
            true => Self::DamagedFile { what: what.to_string(), source },
            false => Self::Read { what: what.to_string(), source },
        }
    }

    pub(crate) fn write(what: impl Display, source: rusqlite::Error) -> Self {
        match is_corrupt(&source) {
            true => Self::DamagedFile { what: what.to_string(), source },
            false => Self::Write { what: what.to_string(), source },
        }
    }

    pub(crate) fn missing(what: &'static str, id: impl Display) -> Self {
        Self::Missing { what, id: id.to_string() }
    }
}

fn is_corrupt(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn busy_full_and_damaged_are_told_apart() {
        let busy = CatalogError::write("x", failure(ffi::SQLITE_BUSY_SNAPSHOT));
        assert!(busy.is_busy() && !busy.is_full() && !busy.is_damaged());
        assert!(CatalogError::read("x", failure(ffi::SQLITE_LOCKED)).is_busy());
        for code in [ffi::SQLITE_FULL, SQLITE_IOERR_SHMSIZE] {
            let full = CatalogError::Commit { path: "c".into(), source: failure(code) };
            assert!(full.is_full() && !full.is_busy(), "{code}");
        }
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB] {
            assert!(CatalogError::open(Path::new("c"), failure(code)).is_damaged());
            assert!(CatalogError::read("x", failure(code)).is_damaged());
            assert!(CatalogError::write("x", failure(code)).is_damaged());
        }
        assert!(!CatalogError::read("x", failure(ffi::SQLITE_IOERR)).is_full());
        assert!(!CatalogError::missing("checkpoint", "x").is_busy());
    }

    #[test]
    fn a_text_never_repeats_its_source() {
        let error = CatalogError::open(Path::new("/c"), failure(ffi::SQLITE_CANTOPEN));
        assert_eq!(error.to_string(), "cannot open the catalog \"/c\"");
        assert!(error.source().is_some());
        let id = RollbackId::from_bits(0);
        let error = CatalogError::Transition { id, from: None, to: RollbackState::Done };
        assert_eq!(error.to_string(), format!("rollback {id} cannot become done: it is new"));
    }
}
