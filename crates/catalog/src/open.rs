//! Opens the file as a connection that is safe to use.
//!
//! Safe means: a SQLite library without the WAL defect, a private file, a write-ahead log that is flushed at
//! every commit, foreign keys enforced, and the newest schema. Concurrent opening is safe.

use crate::{CatalogError, migrate};
use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use rusqlite::ffi::{SQLITE_CORRUPT, SQLITE_FULL};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chmodat, mknodat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use safepoint_planted::planted;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// SQLite before 3.51.3 can lose a commit when a WAL is reset (<https://sqlite.org/wal.html#walresetbug>).
const LIBRARY_MIN: i32 = 3_051_003;
const LIBRARY_MIN_TEXT: &str = "3.51.3";
/// Minimum page size of a database (<https://sqlite.org/fileformat.html>).
const PAGE_BYTES_MIN: i64 = 512;
/// Maximum wait of a statement for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of the log before it is checkpointed. The first process to open the file reads the whole
/// log, and a process for one command is always the first.
const LOG_BYTES_MAX: i64 = 1024 * 1024;

/// Minimum free space for mapping a file whose pages a full disk could refuse.
const HEADROOM_BYTES: u64 = 64 << 20;
/// Maximum space that a commit may need.
const PROBE_BYTES: usize = 64 << 10;
/// Maximum number of copies of a catalog that changes during the copy.
const COPIES_MAX: usize = 3;

/// Access mode of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Access {
    /// Reading and writing.
    #[default]
    Write,
    /// Reading only.
    Read,
}

/// Sharing mode of an open catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Shared with other processes through a mapped file (`-shm`).
    Shared,
    /// Exclusive: the content of that file is in memory, so that a full disk cannot break it. Other processes
    /// wait.
    Alone,
}

/// Returns the sharing mode for the free space: if a page of a mapped file is not available on write, the
/// kernel kills the process (SIGBUS).
pub(crate) fn locking(path: &Path) -> Locking {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_tight = rustix::fs::statvfs(above)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < HEADROOM_BYTES);
    if is_tight { Locking::Alone } else { Locking::Shared }
}

/// Returns the canonical path, in which only the last component may be a link.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (std::fs::canonicalize(above), path.file_name()) {
        (Ok(above), Some(name)) => above.join(name),
        _ => path.to_owned(),
    }
}

/// Opens the catalog; creates it if missing.
pub(crate) fn open(path: &Path, locking: Locking) -> Result<Connection, CatalogError> {
    check_library(rusqlite::version_number(), rusqlite::version())?;
    let failed = |source| CatalogError::Create { path: path.to_owned(), source };
    check_levels(path).map_err(failed)?;
    check_emptiness(path)?;
    keep_private(path).map_err(|errno| failed(errno.into()))?;
    let began = Instant::now();
    loop {
        match connect(path, locking) {
            // A failed exclusive open still blocks other processes; only closing the connection lets one of
            // them proceed.
            Err(error) if locking == Locking::Alone && error.is_busy() && began.elapsed() < BUSY_TIMEOUT => {
                sleep(uneven(began.elapsed()));
            }
            other => return other,
        }
    }
}

/// Returns a short delay that differs between processes.
fn uneven(elapsed: Duration) -> Duration {
    let number = u64::from(std::process::id()) ^ u64::from(elapsed.subsec_nanos());
    Duration::from_millis(1 + number % 16)
}

fn connect(path: &Path, locking: Locking) -> Result<Connection, CatalogError> {
    let failed = |error| CatalogError::open(path, error);
    // Without SQLITE_OPEN_URI: the path is never parsed as a URI.
    let flags = PLAIN | OpenFlags::SQLITE_OPEN_READ_WRITE;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    if locking == Locking::Alone {
        // Set before the first access: then the WAL index is on the heap (https://sqlite.org/wal.html#noshm).
        connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        // Acquires the lock.
        connection.query_row("PRAGMA user_version", (), |_| Ok(())).map_err(failed)?;
    }
    configure(&connection).map_err(failed)?;
    start_log(&connection, path)?;
    migrate::run(&mut connection, path)?;
    Ok(connection)
}

const PLAIN: OpenFlags = OpenFlags::SQLITE_OPEN_NO_MUTEX.union(OpenFlags::SQLITE_OPEN_NOFOLLOW);

/// Opens the catalog read-only. No file is created or changed.
///
/// It is read in place if SQLite can share it with writers. If the required files are missing, or the schema
/// is older, a copy in memory is read, including its log.
pub(crate) fn open_to_read(path: &Path) -> Result<Connection, CatalogError> {
    check_library(rusqlite::version_number(), rusqlite::version())?;
    check_levels(path).map_err(|source| CatalogError::Create { path: path.to_owned(), source })?;
    check_emptiness(path)?;
    let failed = |error| CatalogError::open(path, error);
    let is_shared = [log_of(path), beside(path, "-shm")].iter().all(|it| facts(it).is_some());
    let mut connection = match is_shared {
        true => in_place(path).map_err(failed)?,
        false => copy_at_rest(path)?,
    };
    if !migrate::is_latest(&connection, path)? {
        connection = copy(&connection).map_err(failed)?;
        migrate::run(&mut connection, path)?;
    }
    Ok(connection)
}

/// Prevents writes to the `-shm` file, which SQLite makes if it can (<https://sqlite.org/wal.html#readonly>).
fn in_place(path: &Path) -> rusqlite::Result<Connection> {
    let uri = format!("file:{}?readonly_shm=1", percent_encoded(path));
    let flags = PLAIN | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    configure(&connection)?;
    Ok(connection)
}

/// Copies a catalog that no process has open to memory, including its log. Concurrent use is detected
/// afterwards: a writer first creates the sharing file, or changes the file facts.
fn copy_at_rest(path: &Path) -> Result<Connection, CatalogError> {
    let failed = |error| CatalogError::open(path, error);
    let look = || [path.to_owned(), log_of(path), beside(path, "-shm")].map(|path| facts(&path));
    for _ in 0..COPIES_MAX {
        let before = look();
        let has_log = before[1].is_some_and(|log| log.1 > 0);
        let options = if has_log { "" } else { "?immutable=1" };
        let uri = format!("file:{}{options}", percent_encoded(path));
        let flags = PLAIN | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        // Without locks, which would not help other processes, the WAL index can be on the heap.
        let source = Connection::open_with_flags_and_vfs(uri, flags, c"unix-none").map_err(failed)?;
        // Closing it would otherwise checkpoint and delete the log.
        source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
        source.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        let copied = copy(&source).map_err(failed);
        drop(source);
        if look() == before {
            return copied;
        }
    }
    let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    Err(failed(rusqlite::Error::SqliteFailure(busy, Some("it keeps changing".to_owned()))))
}

fn copy(source: &Connection) -> rusqlite::Result<Connection> {
    let mut copy = Connection::open_in_memory()?;
    Backup::new(source, &mut copy)?.run_to_completion(1_000, Duration::ZERO, None)?;
    configure(&copy)?;
    Ok(copy)
}

/// Encodes a path for a URI.
fn percent_encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let encode =
        |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
    path.as_os_str().as_bytes().iter().map(encode).collect()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn log_of(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// Inode, length and modification time of a file, which show a content change; `None` if it is missing. The
/// change time is useless: SQLite as root sets the owner of the log again.
type Facts = (u64, i64, (i64, i64));

fn facts(path: &Path) -> Option<Facts> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((stat.st_ino, stat.st_size, (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0))))
}

/// Refuses a catalog file, or one beside it, that is a link, a FIFO or another type, or has a foreign owner.
/// Runs before any file is opened. Allowed owners are the current user, the owner of the folder, and root.
fn check_levels(path: &Path) -> io::Result<()> {
    let around = path.parent().and_then(|above| statat(CWD, above, AtFlags::empty()).ok());
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = beside(path, suffix);
        let Ok(found) = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(io::Error::other(format!("{} is not a file", path.display())));
        }
        let third = found.st_uid != geteuid().as_raw()
            && found.st_uid != 0
            && around.is_some_and(|around| around.st_uid != found.st_uid);
        if third {
            let what = format!("{} belongs to user {}", path.display(), found.st_uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
    }
    Ok(())
}

/// Adds the cause that SQLite hides: it reports a full disk only if a write met it; a failed flush, creation
/// or mapping is an "I/O error". Tests it with an unnamed file.
pub(crate) fn explained(path: &Path, error: rusqlite::Error) -> rusqlite::Error {
    let unclear =
        matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure));
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let tried = || -> io::Result<()> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(CWD, above, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all_at(&[1; PROBE_BYTES], 0)?;
        file.sync_all()
    };
    let full = [Errno::NOSPC.raw_os_error(), Errno::DQUOT.raw_os_error()];
    let is_full = |error: io::Error| error.raw_os_error().is_some_and(|raw| full.contains(&raw));
    match unclear && tried().is_err_and(is_full) {
        true => {
            rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(SQLITE_FULL), Some(error.to_string()))
        }
        false => error,
    }
}

/// Returns the device and inode of a file.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    statat(CWD, path, AtFlags::empty()).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Keeps other processes from committing to a catalog until it is dropped.
#[derive(Debug)]
pub struct HeldFile {
    _connection: Connection,
}

/// Takes the write lock of a catalog in any state. Returns `None` if it is too damaged to be written.
pub fn hold_file(path: &Path) -> Option<HeldFile> {
    let flags = PLAIN | OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = Connection::open_with_flags(path, flags).ok()?;
    connection.busy_timeout(BUSY_TIMEOUT).ok()?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).ok()?;
    connection.execute_batch("BEGIN IMMEDIATE").ok()?;
    Some(HeldFile { _connection: connection })
}

/// Returns the version of the built-in SQLite.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

fn check_library(number: i32, text: &str) -> Result<(), CatalogError> {
    if number < LIBRARY_MIN {
        return Err(CatalogError::Library { found: text.to_owned(), needed: LIBRARY_MIN_TEXT });
    }
    Ok(())
}

/// Detects a truncated file: without a whole page beside a log that is not empty. A log begins after the
/// first page of the file is durable. SQLite would treat the file as new and delete the log with all records.
///
/// A missing file is different: a power cut in the first command may have kept only the name of the log.
fn check_emptiness(path: &Path) -> Result<(), CatalogError> {
    let len = |path: &Path| facts(path).map(|facts| facts.1);
    let is_short = len(path).is_some_and(|len| len < PAGE_BYTES_MIN);
    if !is_short || len(&log_of(path)).is_none_or(|len| len == 0) {
        return Ok(());
    }
    let what = "the file was truncated: it is empty, but its log is not".to_owned();
    let corrupt = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(SQLITE_CORRUPT), Some(what));
    Err(CatalogError::open(path, corrupt))
}

/// Creates the file if missing, and makes it private. SQLite gives its log and its shared memory the mode of
/// the database.
///
/// The file is never opened here: closing any descriptor of it would drop the locks of other connections of
/// this process (fcntl(2), "advisory record locking"), so it is created by mknod(2).
fn keep_private(path: &Path) -> Result<(), Errno> {
    let owner_only = Mode::RUSR | Mode::WUSR;
    match mknodat(CWD, path, FileType::RegularFile, owner_only, 0) {
        Ok(()) => hand_over(path),
        Err(Errno::EXIST) => {
            let there = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
            // Only for regular files: a folder or a device in this place is not ours to change.
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

/// Changes the owner of a file that root created to the owner of its folder, so that the catalog stays usable
/// Makes each commit of a connection durable.
pub(crate) fn flush_commits(connection: &Connection) -> rusqlite::Result<()> {
    let synchronous = if planted!("catalog-commit-not-synced") { "OFF" } else { "FULL" };
    connection.pragma_update(None, "synchronous", synchronous)
}

/// for its owner.
fn hand_over(path: &Path) -> Result<(), Errno> {
    let Some(above) = path.parent().filter(|_| geteuid().is_root()) else { return Ok(()) };
    let above = statat(CWD, above, AtFlags::empty())?;
    match above.st_uid {
        0 => Ok(()),
        _ => {
            let (owner, group) = (Uid::from_raw(above.st_uid), Gid::from_raw(above.st_gid));
            rustix::fs::chownat(CWD, path, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)
        }
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    // Otherwise each new value causes the same query to be planned again.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // A commit is one flush of the log. Checkpointing the log at every exit would cost each short command
    // three more.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    flush_commits(connection)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // See `shorten_log`.
    connection.pragma_update(None, "wal_autocheckpoint", 0)
}

/// Switches a new database to a write-ahead log.
fn start_log(connection: &Connection, path: &Path) -> Result<(), CatalogError> {
    let began = Instant::now();
    loop {
        let mode = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get::<_, String>(0));
        match mode.map_err(|error| CatalogError::open(path, error)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => return Err(CatalogError::Journal { path: path.to_owned(), mode }),
            // The switch needs exclusive access, and SQLite does not wait if that could deadlock.
            Err(error) if error.is_busy() && began.elapsed() < BUSY_TIMEOUT => {
                sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Checkpoints and truncates a long log. SQLite itself copies without truncating, and the next process, which
/// reads all of it, could not know that it was copied: it would grow without limit. If another process is
/// reading, a later call does it.
pub(crate) fn shorten_log(connection: &Connection) {
    let _ = connection.busy_timeout(Duration::ZERO);
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    let _ = connection.busy_timeout(BUSY_TIMEOUT);
}

/// Returns true if the log is long enough to be checkpointed.
pub(crate) fn has_long_log(path: &Path) -> bool {
    facts(&log_of(path)).is_some_and(|log| log.1 > LOG_BYTES_MAX)
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
        drop(open(&path, Locking::Shared).unwrap());
        let log = folder.path().join("catalog-wal");
        assert!(std::fs::metadata(&log).unwrap().len() > 0);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        for len in [511, 1, 0] {
            file.set_len(len).unwrap();
            assert!(open(&path, Locking::Shared).unwrap_err().is_damaged(), "{len}");
            assert!(std::fs::metadata(&log).unwrap().len() > 0, "the log is kept");
        }
    }

    #[test]
    fn every_setting_holds() {
        let folder = tempfile::tempdir().unwrap();
        let connection = open(&folder.path().join("catalog"), Locking::Shared).unwrap();
        let number = |sql: &str| connection.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(number("PRAGMA synchronous"), 2);
        assert_eq!(number("PRAGMA foreign_keys"), 1);
        assert_eq!(number("PRAGMA busy_timeout"), 10_000);
        assert_eq!(number("PRAGMA trusted_schema"), 0);
        assert_eq!(number("PRAGMA wal_autocheckpoint"), 0);
        assert_eq!(number("PRAGMA mmap_size"), 0, "no page of it is mapped");
        let mode: String = connection.query_row("PRAGMA journal_mode", (), |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }
}
