//! The schema: one line of numbered migrations, and where a database stands on it.
//!
//! In comes an open connection, out goes one with the newest schema. Each migration sets `PRAGMA user_version` to
//! its own number, inside the one transaction that all of them share: a crash leaves the old schema or the new,
//! and a database that is up to date is recognised by reading its header alone.

use crate::CatalogError;
use rusqlite::Connection;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

mod embedded {
    refinery::embed_migrations!("migrations");
}
use embedded::migrations;

/// The number of the newest migration.
pub(crate) const LATEST: i64 = 9;
/// "SPCT" in the header tells our databases from others.
const APPLICATION_ID: i64 = 0x5350_4354;
/// How long to wait for others that are bringing the same database up to date.
const PATIENCE: Duration = Duration::from_secs(10);

/// Brings the database up to date.
pub(crate) fn run(connection: &mut Connection, path: &Path) -> Result<(), CatalogError> {
    let began = Instant::now();
    loop {
        let before = version(connection, path)?;
        if before == LATEST {
            return Ok(());
        }
        // All in one transaction: otherwise a crash could come between a migration and the note that it was done.
        let Err(error) = migrations::runner().set_grouped(true).run(connection) else { continue };
        // Somebody else may have done the same at this moment; then theirs counts, and ours was undone.
        let error = CatalogError::migrate(path, error);
        let theirs = version(connection, path)? != before;
        let wait = error.is_busy() && began.elapsed() < PATIENCE;
        if !theirs && !wait {
            return Err(error);
        }
        sleep(Duration::from_millis(5));
    }
}

/// Whether the database is up to date.
pub(crate) fn is_latest(connection: &Connection, path: &Path) -> Result<bool, CatalogError> {
    Ok(version(connection, path)? == LATEST)
}

/// Where the database stands; zero for an empty one.
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

/// What is read of a database before it is trusted.
struct Header {
    version: i64,
    application: i64,
    /// Tables and indexes, the migrations' own list apart.
    tables: i64,
}

fn header(connection: &Connection) -> rusqlite::Result<Header> {
    // One moment for all three: somebody may be making the tables just now.
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
