//! The one error of this crate: what was attempted, on what, and why it failed.

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use safepoint_model::rollback::RollbackState;
use safepoint_model::{CheckpointId, RollbackId, WorkspaceId};
use std::error::Error as _;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why the catalog could not do what was asked.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// The SQLite library has a known defect that can damage a database.
    #[error("SQLite {found} may damage databases: at least {needed} is needed")]
    Library {
        /// The version that runs.
        found: String,
        /// The oldest version that is safe.
        needed: &'static str,
    },
    /// The file could not be made, or not be kept to its owner.
    #[error("cannot prepare the catalog {path:?}")]
    Create {
        /// The catalog's file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The catalog was opened for reading alone.
    #[error("cannot write the catalog {path:?}: it was opened read-only")]
    ReadOnly {
        /// The catalog's file.
        path: PathBuf,
    },
    /// The file is there and could not be opened as a database.
    #[error("cannot open the catalog {path:?}")]
    Open {
        /// The catalog's file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file system cannot hold a write-ahead log.
    #[error("cannot keep a write-ahead log beside the catalog {path:?}: the journal mode stays {mode:?}")]
    Journal {
        /// The catalog's file.
        path: PathBuf,
        /// The journal that SQLite fell back to.
        mode: String,
    },
    /// The catalog was written by a newer Safepoint.
    #[error("the catalog {path:?} has schema {found}, and this program knows schemas up to {known}")]
    Newer {
        /// The catalog's file.
        path: PathBuf,
        /// The schema that it has.
        found: i64,
        /// The newest schema that is known here.
        known: i64,
    },
    /// The file is a database of some other program.
    #[error("{path:?} is a database, but not a catalog of Safepoint")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The schema could not be brought up to date.
    #[error("cannot bring the catalog {path:?} up to date")]
    Migrate {
        /// The catalog's file.
        path: PathBuf,
        /// What the migration said.
        source: Box<refinery::Error>,
    },
    /// Records could not be read.
    #[error("cannot read {what} from the catalog")]
    Read {
        /// Which records.
        what: String,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// Records could not be written.
    #[error("cannot write {what} to the catalog")]
    Write {
        /// Which records.
        what: String,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A transaction could not begin.
    #[error("cannot begin a transaction in the catalog {path:?}")]
    Begin {
        /// The catalog's file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A transaction could not be committed. After a failing disk, only reading again tells which state is true.
    #[error("cannot commit to the catalog {path:?}")]
    Commit {
        /// The catalog's file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The catalog was used again from inside its own transaction.
    #[error("the catalog {path:?} was used from inside its own transaction")]
    Nested {
        /// The catalog's file.
        path: PathBuf,
    },
    /// Another file has taken the catalog's name, or the file was deleted.
    #[error("the catalog {path:?} was replaced while it was in use")]
    Replaced {
        /// The catalog's file.
        path: PathBuf,
    },
    /// The file is not a database any more.
    #[error("the catalog is damaged: {what} cannot be read")]
    DamagedFile {
        /// What was being done.
        what: String,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A row is there and cannot be understood.
    #[error("the catalog is damaged: {table} {id}: {why}")]
    Damaged {
        /// The table.
        table: &'static str,
        /// The row.
        id: String,
        /// Column, and what is wrong with it.
        why: String,
    },
    /// Something that is to be changed or pointed at is not on record.
    #[error("there is no {what} {id} in the catalog")]
    Missing {
        /// What kind of record.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// The id is in use.
    #[error("there is a {what} {id} in the catalog already")]
    Taken {
        /// What kind of record.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// The folder is registered already.
    #[error("{root:?} is already registered as workspace {id}")]
    Registered {
        /// The folder.
        root: PathBuf,
        /// The workspace that it is.
        id: WorkspaceId,
    },
    /// A rollback cannot go from the one state to the other.
    #[error("rollback {id} cannot become {to}: it is {}", from.map_or("new", RollbackState::as_str))]
    Transition {
        /// The rollback.
        id: RollbackId,
        /// Its state; nothing for one that is not on record yet.
        from: Option<RollbackState>,
        /// The state that was asked for.
        to: RollbackState,
    },
    /// Another rollback of the workspace has not come to an end.
    #[error("rollback {rollback} of workspace {workspace} is not finished")]
    Unfinished {
        /// The workspace.
        workspace: WorkspaceId,
        /// The rollback that must be recovered first.
        rollback: RollbackId,
    },
    /// A checkpoint cannot be deleted, because a rollback that is not finished may need it.
    #[error("checkpoint {checkpoint} is needed by rollback {rollback}, which is not finished")]
    Needed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The rollback.
        rollback: RollbackId,
    },
    /// A checkpoint cannot be deleted, because a plan's sandbox was made from it.
    #[error("checkpoint {checkpoint} is what the sandbox of plan {plan} was made from")]
    SandboxBase {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The plan.
        plan: String,
    },
    /// A value cannot be recorded.
    #[error("cannot record {what}: {why}")]
    Value {
        /// Which value.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

impl CatalogError {
    /// Whether another process held the catalog for too long: trying again later may work.
    pub fn is_busy(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        // The shared-memory file is sized before it is used, which is where a full disk shows first.
        let is_full = |source: &std::io::Error| {
            matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        };
        matches!(self, Self::Create { source, .. } if is_full(source))
            || self.code() == Some(ErrorCode::DiskFull)
            || self.sqlite().and_then(rusqlite::Error::sqlite_error).map(|error| error.extended_code)
                == Some(SQLITE_IOERR_SHMSIZE)
    }

    /// Whether the catalog holds something that it cannot have written.
    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::DamagedFile { .. })
    }

    fn code(&self) -> Option<ErrorCode> {
        self.sqlite().and_then(rusqlite::Error::sqlite_error_code)
    }

    /// What SQLite said, however deep below.
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

    /// Whether a file may not become so long (`ulimit -f`). SQLite keeps the system's reason to itself; a limit that is set is the one
    /// that a failed write has met.
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
