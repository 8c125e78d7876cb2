//! Opening the file: in comes a path, out goes a connection that is safe to use.
//!
//! Safe means: a SQLite library without the WAL defect, a file that only its owner reads, a write-ahead log that is
//! flushed at every commit, foreign keys kept, and the newest schema. Opening twice at once is fine.

use crate::{CatalogError, migrate};
use rusqlite::config::DbConfig;
use rusqlite::ffi::SQLITE_CORRUPT;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{AtFlags, CWD, FileType, Mode, chmodat, mknodat, statat};
use rustix::io::Errno;
use safepoint_planted::planted;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// SQLite before 3.51.3 can lose a commit when a WAL is reset (<https://sqlite.org/wal.html#walresetbug>).
const LIBRARY_MIN: i32 = 3_051_003;
const LIBRARY_MIN_TEXT: &str = "3.51.3";
/// No database has smaller pages (<https://sqlite.org/fileformat.html>).
const PAGE_BYTES_MIN: i64 = 512;
/// How long a statement waits for another process before it gives up as busy.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// A longer log is moved into the file. The first one to open the file reads its log from end to end, and what lives for one command is
/// always the first.
const LOG_BYTES_MAX: i64 = 1024 * 1024;

/// Opens the catalog, making it where there is none.
pub(crate) fn open(path: &Path) -> Result<Connection, CatalogError> {
    check_library(rusqlite::version_number(), rusqlite::version())?;
    check_emptiness(path)?;
    keep_private(path)
        .map_err(|errno| CatalogError::Create { path: path.to_owned(), source: errno.into() })?;
    // Without SQLITE_OPEN_URI: a path is a path, whatever its letters.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection =
        Connection::open_with_flags(path, flags).map_err(|error| CatalogError::open(path, error))?;
    configure(&connection).map_err(|error| CatalogError::open(path, error))?;
    start_log(&connection, path)?;
    migrate::run(&mut connection, path)?;
    Ok(connection)
}

/// The version of the SQLite that is built in.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

fn check_library(number: i32, text: &str) -> Result<(), CatalogError> {
    if number < LIBRARY_MIN {
        return Err(CatalogError::Library { found: text.to_owned(), needed: LIBRARY_MIN_TEXT });
    }
    Ok(())
}

/// A file without a whole page beside a log that is not empty was cut short: a log begins after the file's first page is durable.
/// SQLite would take the file for a new one and delete the log, and with it all that is on record.
///
/// Where there is no file at all it is another matter: a power cut in the very first command may have kept the log's name alone.
fn check_emptiness(path: &Path) -> Result<(), CatalogError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let len = |path: &Path| statat(CWD, path, AtFlags::empty()).ok().map(|stat| stat.st_size);
    let is_short = len(path).is_some_and(|len| len < PAGE_BYTES_MIN);
    if !is_short || len(Path::new(&log)).is_none_or(|len| len == 0) {
        return Ok(());
    }
    let what = "the file was cut short: it is empty, although its log is not".to_owned();
    let corrupt = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(SQLITE_CORRUPT), Some(what));
    Err(CatalogError::open(path, corrupt))
}

/// Makes the file if it is not there, and takes it away from everyone but its owner. SQLite gives its log and its
/// shared memory the mode of the database.
///
/// The file is never opened here: closing any descriptor of it would drop the locks that other connections of this
/// process hold (fcntl(2), "advisory record locking"), so it is made by mknod(2).
fn keep_private(path: &Path) -> Result<(), Errno> {
    let owner_only = Mode::RUSR | Mode::WUSR;
    match mknodat(CWD, path, FileType::RegularFile, owner_only, 0) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => {
            let there = statat(CWD, path, AtFlags::empty())?;
            // Only ever a file's mode: a folder or a device that stands here by mistake is somebody else's.
            if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
                return Err(Errno::INVAL);
            }
            match Mode::from_raw_mode(there.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
                true => chmodat(CWD, path, owner_only, AtFlags::empty()),
                false => Ok(()),
            }
        }
        Err(other) => Err(other),
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    // Otherwise each new value is a reason to plan the same query again.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // A commit is one flush of the log. Copying the log at every exit would cost each short command three more.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let synchronous = if planted!("catalog-commit-not-synced") { "OFF" } else { "FULL" };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // See `shorten_log`.
    connection.pragma_update(None, "wal_autocheckpoint", 0)
}

/// Switches a fresh database to a write-ahead log; one that has it keeps it.
fn start_log(connection: &Connection, path: &Path) -> Result<(), CatalogError> {
    let began = Instant::now();
    loop {
        let mode = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get::<_, String>(0));
        match mode.map_err(|error| CatalogError::open(path, error)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => return Err(CatalogError::Journal { path: path.to_owned(), mode }),
            // The switch needs the file for itself, and SQLite does not wait where waiting might never end.
            Err(error) if error.is_busy() && began.elapsed() < BUSY_TIMEOUT => {
                sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Moves a long log into the file and cuts it. SQLite itself would copy and not cut, and the next process, which has to read all of it,
/// could not know that it was copied: it would grow for ever. Where somebody reads just now, a later one does it.
pub(crate) fn shorten_log(connection: &Connection, path: &Path) {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if statat(CWD, Path::new(&log), AtFlags::empty()).is_ok_and(|log| log.st_size > LOG_BYTES_MAX) {
        let _ = connection.busy_timeout(Duration::ZERO);
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = connection.busy_timeout(BUSY_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_with_the_defect_is_refused() {
        assert!(check_library(3_051_003, "3.51.3").is_ok());
        let error = check_library(3_051_002, "3.51.2").unwrap_err().to_string();
        assert!(error.contains("3.51.2") && error.contains("3.51.3"), "{error}");
    }

    #[test]
    fn a_file_that_was_emptied_beside_its_log_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog");
        drop(open(&path).unwrap());
        let log = folder.path().join("catalog-wal");
        assert!(std::fs::metadata(&log).unwrap().len() > 0);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        for len in [511, 1, 0] {
            file.set_len(len).unwrap();
            assert!(open(&path).unwrap_err().is_damaged(), "{len}");
            assert!(std::fs::metadata(&log).unwrap().len() > 0, "the log is kept");
        }
    }

    #[test]
    fn every_setting_holds() {
        let folder = tempfile::tempdir().unwrap();
        let connection = open(&folder.path().join("catalog")).unwrap();
        let number = |sql: &str| connection.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(number("PRAGMA synchronous"), 2);
        assert_eq!(number("PRAGMA foreign_keys"), 1);
        assert_eq!(number("PRAGMA busy_timeout"), 10_000);
        assert_eq!(number("PRAGMA trusted_schema"), 0);
        assert_eq!(number("PRAGMA wal_autocheckpoint"), 0);
        let mode: String = connection.query_row("PRAGMA journal_mode", (), |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }
}
