//! Opening the file: in comes a path, out goes a connection that is safe to use.
//!
//! Safe means: a SQLite library without the WAL defect, a file that only its owner reads, a write-ahead log that is
//! flushed at every commit, foreign keys kept, and the newest schema. Opening twice at once is fine.

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
/// No database has smaller pages (<https://sqlite.org/fileformat.html>).
const PAGE_BYTES_MIN: i64 = 512;
/// How long a statement waits for another process before it gives up as busy.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// A longer log is moved into the file. The first one to open the file reads its log from end to end, and what lives for one command is
/// always the first.
const LOG_BYTES_MAX: i64 = 1024 * 1024;

/// With less room than this, no file is mapped that a full disk could take the pages of.
const HEADROOM_BYTES: u64 = 64 << 20;
/// As much as a commit may need.
const PROBE_BYTES: usize = 64 << 10;
/// So often a catalog that nobody should be writing to is copied again because it changed.
const COPIES_MAX: usize = 3;

/// What may be done with a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Access {
    /// Everything.
    #[default]
    Write,
    /// Reading alone.
    Read,
}

/// Who else may have the catalog open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Other processes, through a mapped file beside it (`-shm`).
    Shared,
    /// Nobody: what is in that file otherwise is in memory, so that a full disk cannot take it away. Others wait.
    Alone,
}

/// How the catalog is to be shared, by how much room there is: where a page of a mapped file cannot be had when it is written to, the
/// kernel ends the process (SIGBUS).
pub(crate) fn locking(path: &Path) -> Locking {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_tight = rustix::fs::statvfs(above)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < HEADROOM_BYTES);
    if is_tight { Locking::Alone } else { Locking::Shared }
}

/// The file as the system names it: then no name in its path is a link but perhaps the last.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (std::fs::canonicalize(above), path.file_name()) {
        (Ok(above), Some(name)) => above.join(name),
        _ => path.to_owned(),
    }
}

/// Opens the catalog, making it where there is none.
pub(crate) fn open(path: &Path, locking: Locking) -> Result<Connection, CatalogError> {
    check_library(rusqlite::version_number(), rusqlite::version())?;
    let failed = |source| CatalogError::Create { path: path.to_owned(), source };
    check_levels(path).map_err(failed)?;
    check_emptiness(path)?;
    keep_private(path).map_err(|errno| failed(errno.into()))?;
    let began = Instant::now();
    loop {
        match connect(path, locking) {
            // Who fails to get the file alone still keeps others from it: only closing it lets one of them go on.
            Err(error) if locking == Locking::Alone && error.is_busy() && began.elapsed() < BUSY_TIMEOUT => {
                sleep(uneven(began.elapsed()));
            }
            other => return other,
        }
    }
}

/// A short while, another one for each process.
fn uneven(elapsed: Duration) -> Duration {
    let number = u64::from(std::process::id()) ^ u64::from(elapsed.subsec_nanos());
    Duration::from_millis(1 + number % 16)
}

fn connect(path: &Path, locking: Locking) -> Result<Connection, CatalogError> {
    let failed = |error| CatalogError::open(path, error);
    // Without SQLITE_OPEN_URI: a path is a path, whatever its letters.
    let flags = PLAIN | OpenFlags::SQLITE_OPEN_READ_WRITE;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    if locking == Locking::Alone {
        // Before anything looks at the file: then the index of the log is on the heap (https://sqlite.org/wal.html#noshm).
        connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        // Takes it.
        connection.query_row("PRAGMA user_version", (), |_| Ok(())).map_err(failed)?;
    }
    configure(&connection).map_err(failed)?;
    start_log(&connection, path)?;
    migrate::run(&mut connection, path)?;
    Ok(connection)
}

const PLAIN: OpenFlags = OpenFlags::SQLITE_OPEN_NO_MUTEX.union(OpenFlags::SQLITE_OPEN_NOFOLLOW);

/// Opens the catalog for reading alone. No file is made or changed, wherever it lies.
///
/// Where SQLite can share it with those who write it, it is read in place. Where it cannot, because the files that this takes are
/// missing, or where its schema is older, a copy in memory is read: with all that its log holds.
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

/// Not even the file beside it is written, which SQLite would do where it may (<https://sqlite.org/wal.html#readonly>).
fn in_place(path: &Path) -> rusqlite::Result<Connection> {
    let uri = format!("file:{}?readonly_shm=1", percent_encoded(path));
    let flags = PLAIN | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    configure(&connection)?;
    Ok(connection)
}

/// A copy in memory of a catalog that no process has open, with what is in its log. That nobody had is seen afterwards: who writes
/// makes the file first by which it is shared, or leaves other facts behind.
fn copy_at_rest(path: &Path) -> Result<Connection, CatalogError> {
    let failed = |error| CatalogError::open(path, error);
    let look = || [path.to_owned(), log_of(path), beside(path, "-shm")].map(|path| facts(&path));
    for _ in 0..COPIES_MAX {
        let before = look();
        let has_log = before[1].is_some_and(|log| log.1 > 0);
        let options = if has_log { "" } else { "?immutable=1" };
        let uri = format!("file:{}{options}", percent_encoded(path));
        let flags = PLAIN | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        // Without locks, which would be of no use to others, the index of the log can be on the heap.
        let source = Connection::open_with_flags_and_vfs(uri, flags, c"unix-none").map_err(failed)?;
        // Closing it would otherwise move the log into the file, and delete it.
        source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
        source.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        let copied = copy(&source).map_err(failed);
        drop(source);
        if look() == before {
            return copied;
        }
    }
    let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    Err(failed(rusqlite::Error::SqliteFailure(busy, Some("it changes all the while".to_owned()))))
}

fn copy(source: &Connection) -> rusqlite::Result<Connection> {
    let mut copy = Connection::open_in_memory()?;
    Backup::new(source, &mut copy)?.run_to_completion(1_000, Duration::ZERO, None)?;
    configure(&copy)?;
    Ok(copy)
}

/// A path as it stands in a URI.
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

/// Inode, length and time of a file, by which a change of its content is seen; nothing where there is none. SQLite under root sets the
/// owner that the log has already, so that the time of the last change of anything says nothing.
type Facts = (u64, i64, (i64, i64));

fn facts(path: &Path) -> Option<Facts> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((stat.st_ino, stat.st_size, (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0))))
}

/// Refuses a link, a FIFO or anything else in the place of the file or of one beside it, and what belongs to a third user. Nothing is
/// opened before that. Ours, that of whoever owns the folder, and root's are not a third user's.
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

/// Says what SQLite keeps to itself: it tells of a full disk only where a write met it; a flush, a new file or a mapping is an "I/O
/// error". Tried with a file without a name.
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

/// Device and inode of a file.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    statat(CWD, path, AtFlags::empty()).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Keeps every other process from committing to a catalog, as long as it lives.
#[derive(Debug)]
pub struct HeldFile {
    _connection: Connection,
}

/// Takes the write lock of a catalog, whatever state it is in; nothing where it is too damaged for anyone to write to it.
pub fn hold_file(path: &Path) -> Option<HeldFile> {
    let flags = PLAIN | OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = Connection::open_with_flags(path, flags).ok()?;
    connection.busy_timeout(BUSY_TIMEOUT).ok()?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).ok()?;
    connection.execute_batch("BEGIN IMMEDIATE").ok()?;
    Some(HeldFile { _connection: connection })
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
    let len = |path: &Path| facts(path).map(|facts| facts.1);
    let is_short = len(path).is_some_and(|len| len < PAGE_BYTES_MIN);
    if !is_short || len(&log_of(path)).is_none_or(|len| len == 0) {
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
        Ok(()) => hand_over(path),
        Err(Errno::EXIST) => {
            let there = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
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

/// Gives what root has just made to the owner of the folder that it is in: the catalog stays usable for its owner.
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
pub(crate) fn shorten_log(connection: &Connection) {
    let _ = connection.busy_timeout(Duration::ZERO);
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    let _ = connection.busy_timeout(BUSY_TIMEOUT);
}

/// Whether the log is long enough for that.
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
