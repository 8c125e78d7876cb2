//! Open catalog with consistent reads and atomic writes.
//!
//! One connection for writes and one for reads, each behind a lock, so that a read does not wait for a flush. A read
//! sees one snapshot of the database, even over several statements. A write is one IMMEDIATE transaction, so that
//! nothing it reads can change before it commits.

use crate::CatalogError;
use crate::open::{self, Access, Locking};
use rusqlite::{Connection, TransactionBehavior};
use safepoint_model::trace::{self, TraceLevel};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

/// Callback after each commit, with the number and the hash of the last event.
type AfterCommit = Box<dyn Fn(u64, [u8; 32]) + Send + Sync>;

/// Records of Safepoint in one file. Threads may share it and take turns.
pub struct Catalog {
    path: PathBuf,
    access: Access,
    /// Device and inode of the file that was opened.
    file: Option<(u64, u64)>,
    after_commit: OnceLock<AfterCommit>,
    connection: Mutex<Slot>,
    /// Connection of reads, so that they do not wait for a writer; opened at the first read.
    reader: Mutex<Option<Connection>>,
    /// Thread inside [`Catalog::write`]: a nested call would deadlock.
    writer: Mutex<Option<ThreadId>>,
}

/// Connection, while it is open.
#[derive(Debug)]
struct Slot {
    connection: Option<Connection>,
    /// Sharing mode. An exclusive connection is closed after each transaction.
    locking: Locking,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Transaction of [`Catalog::write`]: committed or rolled back as a whole.
#[derive(Debug)]
pub struct Transaction<'c> {
    pub(crate) connection: &'c Connection,
    /// Last appended event.
    pub(crate) last: Cell<Option<(u64, [u8; 32])>>,
}

/// Time at which a commit reaches the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    AtCommit,
    Later,
}

impl Flush {
    /// Sets it until the result is dropped.
    fn set(self, connection: &Connection) -> rusqlite::Result<Option<Unflushed<'_>>> {
        (self == Flush::Later).then(|| Unflushed::begin(connection)).transpose()
    }
}

/// Commits of this connection are not flushed as long as this exists.
struct Unflushed<'c>(&'c Connection);

impl<'c> Unflushed<'c> {
    fn begin(connection: &'c Connection) -> rusqlite::Result<Self> {
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(Self(connection))
    }
}

impl Drop for Unflushed<'_> {
    fn drop(&mut self) {
        // Cannot fail outside of a transaction, and a second failure would only cost flushes.
        let _ = open::flush_commits(self.0);
    }
}

impl Catalog {
    /// Opens the catalog in this file, and creates it if missing. The folder must exist.
    ///
    /// # Errors
    /// When the file cannot be opened, is damaged, belongs to another program, or was written by a newer
    /// Safepoint; when the SQLite library is too old to be safe.
    pub fn open(path: &Path) -> Result<Self, CatalogError> {
        let path = open::canonical(path);
        let locking = open::locking(&path);
        let connection = Some(open::open(&path, locking)?).filter(|_| locking == Locking::Shared);
        Ok(Self::with_slot(path, Access::Write, Slot { connection, locking }))
    }

    /// Opens the catalog in this file read-only. No file is created or changed.
    ///
    /// # Errors
    /// As for [`Catalog::open`], and when the file is missing.
    pub fn open_to_read(path: &Path) -> Result<Self, CatalogError> {
        let path = open::canonical(path);
        let slot = Slot { connection: Some(open::open_to_read(&path)?), locking: Locking::Shared };
        Ok(Self::with_slot(path, Access::Read, slot))
    }

    fn with_slot(path: PathBuf, access: Access, slot: Slot) -> Self {
        let (file, after_commit) = (open::identity(&path), OnceLock::new());
        let (connection, reader, writer) = (Mutex::new(slot), Mutex::new(None), Mutex::new(None));
        Self { path, access, file, after_commit, connection, reader, writer }
    }

    /// Sets the callback after each commit, with the number and the hash of the last event. Only the first
    /// call has an effect.
    pub fn after_commit(&self, call: impl Fn(u64, [u8; 32]) + Send + Sync + 'static) {
        let _ = self.after_commit.set(Box::new(call));
    }

    /// Returns true if the path still refers to the opened file.
    pub fn is_current(&self) -> bool {
        self.file.is_some() && self.file == open::identity(&self.path)
    }

    /// Checkpoints the whole log, so that the file alone is the catalog.
    ///
    /// # Errors
    /// When the log cannot be checkpointed.
    pub fn empty_log(&self) -> Result<(), CatalogError> {
        self.with(|connection| {
            let moved =
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
            match moved {
                Ok(0) => Ok(()),
                Ok(_) => Err(CatalogError::Replaced { path: self.path.clone() }),
                Err(source) => Err(CatalogError::Commit { path: self.path.clone(), source }),
            }
        })
    }

    /// Returns the path of the catalog.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in one transaction: committed and durable if it returns `Ok`, rolled back if it returns an
    /// error or panics. Inside, use the [`Transaction`]; the catalog itself refuses.
    ///
    /// # Errors
    /// The error of `work`; and when the transaction cannot begin or be committed.
    pub fn write<T, E: From<CatalogError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _span = trace::span("catalog", TraceLevel::Debug, || "transaction".to_owned());
        let value = self.write_ahead(work)?;
        // The commit is durable, whatever happens to the log.
        if open::has_long_log(&self.path) {
            let _ = self.with::<(), CatalogError>(|connection| {
                open::shorten_log(connection);
                Ok(())
            });
        }
        Ok(value)
    }

    /// Does the same for the first of two related transactions: the log is not checkpointed now. On a nearly
    /// full disk that could take the space that the second one needs.
    ///
    /// # Errors
    /// As for [`Catalog::write`].
    pub fn write_ahead<T, E: From<CatalogError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact(Flush::AtCommit, work)
    }

    /// Runs `work` in one transaction that may be lost in a power cut, but not by a killed process. The next durable
    /// commit makes it durable, too. For bookkeeping that appends no event.
    ///
    /// # Errors
    /// As for [`Catalog::write`].
    pub fn write_unflushed<T, E: From<CatalogError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact(Flush::Later, work)
    }

    fn transact<T, E: From<CatalogError>>(
        &self,
        flush: Flush,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.access == Access::Read {
            return Err(CatalogError::ReadOnly { path: self.path.clone() }.into());
        }
        let (value, last) = self.with(|connection| {
            let _flushes = flush.set(connection).map_err(|source| self.not_begun(source))?;
            let transaction =
                rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
                    .map_err(|source| self.not_begun(source))?;
            // Checked under the write lock, which a process that replaces the file also holds. A commit to an
            // unnamed file is lost.
            if !self.is_current() {
                return Err(CatalogError::Replaced { path: self.path.clone() }.into());
            }
            let (value, last) = {
                let _inside = Inside::enter(&self.writer);
                let transaction = Transaction { connection: &transaction, last: Cell::new(None) };
                (work(&transaction)?, transaction.last.get())
            };
            transaction.commit().map_err(|source| {
                let source = open::explained(&self.path, source);
                CatalogError::Commit { path: self.path.clone(), source }
            })?;
            Ok::<_, E>((value, last))
        })?;
        if let (Some(call), Some((seq, hash))) = (self.after_commit.get(), last) {
            call(seq, hash);
        }
        Ok(value)
    }

    /// Writes the whole file again, without what was deleted from it, and empties the log.
    ///
    /// # Errors
    /// When another process uses the file for too long, or it cannot be written.
    pub fn compact(&self) -> Result<(), CatalogError> {
        self.with(|connection| {
            connection.execute_batch("VACUUM").map_err(|error| CatalogError::write("the catalog", error))?;
            open::shorten_log(connection);
            Ok(())
        })
    }

    /// Runs reads on one snapshot.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, CatalogError>,
    ) -> Result<T, CatalogError> {
        self.read_with(work)
    }

    /// Runs reads on one snapshot, on a connection that no writer of this process holds.
    pub(crate) fn read_with<T, E: From<CatalogError>>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let on = |connection: &Connection| {
            let moment = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Deferred)
                .map_err(|source| self.not_begun(source))?;
            work(&moment)
        };
        if *unpoisoned(&self.writer) == Some(thread::current().id()) {
            return Err(CatalogError::Nested { path: self.path.clone() }.into());
        }
        // Near the end of the disk one connection holds the file, and readers take turns with it.
        if self.access == Access::Read || open::locking(&self.path) != Locking::Shared || !self.is_current() {
            return self.with(on);
        }
        let mut reader = unpoisoned(&self.reader);
        let connection = match reader.take() {
            Some(connection) => connection,
            None => open::open(&self.path, Locking::Shared)?,
        };
        let result = on(&connection);
        *reader = Some(connection);
        result
    }

    fn not_begun(&self, source: rusqlite::Error) -> CatalogError {
        CatalogError::Begin { path: self.path.clone(), source: open::explained(&self.path, source) }
    }

    /// Runs `act` on the connection. It is reopened if it is closed, or if its sharing mode no longer fits
    /// the free space.
    fn with<T, E: From<CatalogError>>(&self, act: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
        if *unpoisoned(&self.writer) == Some(thread::current().id()) {
            return Err(CatalogError::Nested { path: self.path.clone() }.into());
        }
        let mut slot = unpoisoned(&self.connection);
        if self.access == Access::Write {
            let locking = open::locking(&self.path);
            if slot.locking != locking {
                *unpoisoned(&self.reader) = None;
                *slot = Slot { connection: None, locking };
            }
        }
        let connection = match slot.connection.take() {
            Some(connection) => connection,
            None => open::open(&self.path, slot.locking)?,
        };
        let result = act(&connection);
        slot.connection = Some(connection).filter(|_| slot.locking == Locking::Shared);
        result
    }
}

/// A panic in `work` has rolled back its transaction before the lock is free: the value is consistent.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks this thread as inside the catalog's transaction.
struct Inside<'m>(&'m Mutex<Option<ThreadId>>);

impl<'m> Inside<'m> {
    fn enter(writer: &'m Mutex<Option<ThreadId>>) -> Self {
        *unpoisoned(writer) = Some(thread::current().id());
        Self(writer)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *unpoisoned(self.0) = None;
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests remove the files beside a catalog")]
mod tests {
    use super::*;
    use safepoint_model::Timestamp;
    use serde_json::json;

    fn append(catalog: &Catalog, text: &str) -> Result<(), CatalogError> {
        catalog.write(|t| t.append_event(Timestamp::from_micros(0), "test", "x", &json!(text)))
    }

    fn on(catalog: &Catalog, act: impl FnOnce(&Connection)) {
        let done = catalog.with::<(), CatalogError>(|connection| {
            act(connection);
            Ok(())
        });
        done.unwrap();
    }

    /// With too little space for mapped files, one process at a time has the catalog and the others wait.
    #[test]
    fn a_catalog_that_is_held_alone_maps_nothing_and_lets_others_in_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog");
        drop(Catalog::open(&path).unwrap());
        std::fs::remove_file(folder.path().join("catalog-shm")).unwrap();
        let alone = open::open(&path, Locking::Alone).unwrap();
        alone.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
        assert!(!folder.path().join("catalog-shm").exists(), "the WAL index is on the heap");
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || append(&Catalog::open(&path).unwrap(), "second").unwrap()
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!waiting.is_finished(), "it waits");
        drop(alone);
        waiting.join().unwrap();
        let catalog = Catalog {
            connection: Mutex::new(Slot { connection: None, locking: Locking::Alone }),
            ..Catalog::open(&path).unwrap()
        };
        assert_eq!(catalog.events(0, 9).unwrap().len(), 1);
    }

    #[test]
    fn a_catalog_that_is_only_read_is_left_as_it_is_and_gives_what_its_log_holds() {
        for missing in [&[][..], &["-shm"], &["-shm", "-wal"]] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("cat ?#%log");
            let catalog = Catalog::open(&path).unwrap();
            append(&catalog, "one").unwrap();
            if missing.contains(&"-wal") {
                on(&catalog, open::shorten_log);
            }
            drop(catalog);
            for suffix in missing {
                std::fs::remove_file(folder.path().join(format!("cat ?#%log{suffix}"))).unwrap();
            }
            let look = || -> Vec<_> {
                let mut files: Vec<_> = std::fs::read_dir(folder.path())
                    .unwrap()
                    .map(|entry| entry.unwrap().path())
                    .map(|path| (std::fs::read(&path).unwrap(), path))
                    .collect();
                files.sort();
                files
            };
            let before = look();
            let catalog = Catalog::open_to_read(&path).unwrap();
            assert_eq!(catalog.events(0, 9).unwrap().len(), 1, "{missing:?}");
            assert!(matches!(append(&catalog, "two"), Err(CatalogError::ReadOnly { .. })), "{missing:?}");
            drop(catalog);
            assert_eq!(look(), before, "{missing:?}");
        }
    }

    #[test]
    fn a_catalog_that_is_only_read_follows_whoever_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog");
        let writer = Catalog::open(&path).unwrap();
        let reader = Catalog::open_to_read(&path).unwrap();
        for count in 1..4 {
            append(&writer, "x").unwrap();
            assert_eq!(reader.events(0, 9).unwrap().len(), count);
        }
        assert!(Catalog::open_to_read(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_catalog_that_others_hold_is_busy() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&folder.path().join("catalog")).unwrap();
        on(&catalog, |connection| connection.busy_timeout(std::time::Duration::from_millis(1)).unwrap());
        let other = open::open(catalog.path(), Locking::Shared).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let error = append(&catalog, "").unwrap_err();
        assert!(error.is_busy() && matches!(error, CatalogError::Begin { .. }), "{error:?}");
        assert_eq!(catalog.events(0, 9).unwrap(), []);
        other.execute_batch("ROLLBACK").unwrap();
        append(&catalog, "").unwrap();
    }

    #[test]
    fn a_full_disk_is_recognised_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&folder.path().join("catalog")).unwrap();
        append(&catalog, "before").unwrap();
        on(&catalog, |connection| connection.pragma_update(None, "max_page_count", 1).unwrap());
        let error = append(&catalog, &"x".repeat(100_000)).unwrap_err();
        assert!(error.is_full(), "{error:?}");
        let check = catalog.verify_events().unwrap();
        assert_eq!((check.whole, check.broken), (1, None));
    }

    #[test]
    fn a_catalog_moves_between_threads_and_is_shared() {
        fn shared<T: Send + Sync>() {}
        shared::<Catalog>();
    }
}
