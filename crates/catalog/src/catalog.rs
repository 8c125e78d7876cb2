//! The open catalog: reads at one moment, writes all or nothing.
//!
//! One connection behind a lock. A read sees one moment of the database, also when it takes several statements.
//! A write is one IMMEDIATE transaction, so that what it reads cannot change before it commits.

use crate::{CatalogError, open};
use rusqlite::{Connection, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The records of Safepoint, in one file. May be shared between threads, which then take turns.
#[derive(Debug)]
pub struct Catalog {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// The thread inside [`Catalog::write`]: it would wait for itself if it came again.
    writer: Mutex<Option<ThreadId>>,
}

/// What may be done inside [`Catalog::write`]. All of it happens, or nothing.
#[derive(Debug)]
pub struct Transaction<'c> {
    pub(crate) connection: &'c Connection,
}

impl Catalog {
    /// Opens the catalog in this file, and makes it where there is none. The folder must be there.
    ///
    /// # Errors
    /// When the file cannot be opened, is damaged, belongs to another program, or was written by a newer Safepoint;
    /// when the SQLite library is too old to be safe.
    pub fn open(path: &Path) -> Result<Self, CatalogError> {
        let connection = Mutex::new(open::open(path)?);
        Ok(Self { path: path.to_owned(), connection, writer: Mutex::new(None) })
    }

    /// Where the catalog is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in one transaction: committed and durable when it returns `Ok`, undone when it returns an error
    /// or panics. Inside, use the [`Transaction`]; the catalog itself refuses.
    ///
    /// # Errors
    /// What `work` returns; and when the transaction cannot begin or be committed.
    pub fn write<T, E: From<CatalogError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let value = self.write_ahead(work)?;
        // It is on record already, whatever becomes of the log.
        if let Ok(connection) = self.lock() {
            open::shorten_log(&connection, &self.path);
        }
        Ok(value)
    }

    /// The same for the first of two transactions that belong together: the log is not moved into the file now. On a disk that is
    /// nearly full that may take the room which the second one needs.
    ///
    /// # Errors
    /// As for [`Catalog::write`].
    pub fn write_ahead<T, E: From<CatalogError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let connection = self.lock()?;
        let transaction = rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)
            .map_err(|source| CatalogError::Begin { path: self.path.clone(), source })?;
        let value = {
            let _inside = Inside::enter(&self.writer);
            work(&Transaction { connection: &transaction })?
        };
        transaction.commit().map_err(|source| CatalogError::Commit { path: self.path.clone(), source })?;
        Ok(value)
    }

    /// Reads at one moment.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, CatalogError>,
    ) -> Result<T, CatalogError> {
        let connection = self.lock()?;
        let moment = rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Deferred)
            .map_err(|source| CatalogError::Begin { path: self.path.clone(), source })?;
        work(&moment)
    }

    fn lock(&self) -> Result<MutexGuard<'_, Connection>, CatalogError> {
        if *unpoisoned(&self.writer) == Some(thread::current().id()) {
            return Err(CatalogError::Nested { path: self.path.clone() });
        }
        Ok(unpoisoned(&self.connection))
    }
}

/// A panic in somebody's `work` has undone its transaction by the time the lock is free: what is behind is whole.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, this thread is inside the catalog's transaction.
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
mod tests {
    use super::*;
    use safepoint_model::Timestamp;
    use serde_json::json;

    fn append(catalog: &Catalog, text: &str) -> Result<(), CatalogError> {
        catalog.write(|t| t.append_event(Timestamp::from_micros(0), "test", "x", &json!(text)))
    }

    #[test]
    fn a_catalog_that_others_hold_is_busy() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&folder.path().join("catalog")).unwrap();
        unpoisoned(&catalog.connection).busy_timeout(std::time::Duration::from_millis(1)).unwrap();
        let other = open::open(catalog.path()).unwrap();
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
        unpoisoned(&catalog.connection).pragma_update(None, "max_page_count", 1).unwrap();
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
