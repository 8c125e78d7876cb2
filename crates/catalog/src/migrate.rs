//! Schema: numbered migrations, and the version of a database.
//!
//! In: an open connection. Out: the newest schema. Each migration sets `PRAGMA user_version` to its number,
//! inside the one transaction that all of them share. A crash leaves the old schema or the new, and a current
//! database is recognised by its header alone.

use crate::CatalogError;
use rusqlite::Connection;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

mod embedded {
    refinery::embed_migrations!("migrations");
}
use embedded::migrations;

/// Number of the newest migration.
pub(crate) const LATEST: i64 = 18;
/// "SPCT" in the header identifies our databases.
const APPLICATION_ID: i64 = 0x5350_4354;
/// Maximum wait for other processes that migrate the same database.
const PATIENCE: Duration = Duration::from_secs(10);

/// Migrates the database to the newest schema.
pub(crate) fn run(connection: &mut Connection, path: &Path) -> Result<(), CatalogError> {
    let began = Instant::now();
    loop {
        let before = version(connection, path)?;
        if before == LATEST {
            return Ok(());
        }
        // All in one transaction: otherwise a crash could come between a migration and its record.
        let Err(error) = migrations::runner().set_grouped(true).run(connection) else { continue };
        // Another process may have migrated concurrently; its result is used, and ours was rolled back.
        let error = CatalogError::migrate(path, error);
        let theirs = version(connection, path)? != before;
        let wait = error.is_busy() && began.elapsed() < PATIENCE;
        if !theirs && !wait {
            return Err(error);
        }
        sleep(Duration::from_millis(5));
    }
}

/// Returns true if the database has the newest schema.
pub(crate) fn is_latest(connection: &Connection, path: &Path) -> Result<bool, CatalogError> {
    Ok(version(connection, path)? == LATEST)
}

/// Returns the schema version of the database, or zero if it is empty.
fn version(connection: &Connection, path: &Path) -> Result<i64, CatalogError> {
    let Header { version, application, tables } =
        header(connection).map_err(|error| CatalogError::open(path, error))?;
    let ours = match version {
        0 => application == 0 && tables == 0,
        _ => application == APPLICATION_ID,
    };
    match version {
        _ if !ours => Err(CatalogError::Foreign { path: path.to_owned() }),
        _ if version > LATEST => {
            Err(CatalogError::Newer { path: path.to_owned(), found: version, known: LATEST })
        }
        _ => Ok(version),
    }
}

/// Header fields read before a database is trusted.
struct Header {
    version: i64,
    application: i64,
    /// Number of tables and indexes, except the migration table.
    tables: i64,
}

fn header(connection: &Connection) -> rusqlite::Result<Header> {
    // One snapshot for all three: another process may be creating the tables.
    let moment = connection.unchecked_transaction()?;
    let number = |sql| moment.query_row(sql, (), |row| row.get(0));
    let version = number("PRAGMA user_version")?;
    let application = number("PRAGMA application_id")?;
    let tables = match version {
        0 => number("SELECT count(*) FROM sqlite_schema WHERE tbl_name <> 'refinery_schema_history'")?,
        _ => 0,
    };
    Ok(Header { version, application, tables })
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
