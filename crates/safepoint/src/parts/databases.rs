//! Copies of SQLite databases that are too large to be read while they are locked.
//!
//! SQLite makes such a copy itself, through its backup API, in a process that does nothing else: the walk of a capture opens and closes files, and with
//! any handle that a process closes it loses the POSIX locks by which SQLite reads (`docs/decisions/0016`). The library does not know which
//! program that is: [`Settings::database_helper`](crate::Settings::database_helper) says it.

#![allow(clippy::disallowed_methods, reason = "this module starts the program that copies databases")]

use crate::environment::Environment;
use crate::home::Home;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use safepoint_model::CheckpointId;
use safepoint_workspace::DatabaseCopies;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Between two stretches a program that waits for a lock gets it.
const PAUSE: Duration = Duration::from_millis(1);
/// So much is copied in one stretch, while nobody can commit to a database without a write-ahead log.
const STRETCH_BYTES: u64 = 32 << 20;
/// A database to which others commit while it is copied is copied anew so often.
const RESTARTS_MAX: u32 = 20;
/// How long SQLite waits for one lock.
const BUSY_MAX: Duration = Duration::from_secs(2);
/// Where the header has the versions for writing and reading: 2 where there is a write-ahead log.
const VERSIONS_AT: u64 = 18;

/// Keeps copies in the home's folder for what is only looked at.
pub(crate) struct Copies<'a> {
    pub(crate) home: &'a Home,
    pub(crate) held_max: Duration,
    pub(crate) helper: &'a [OsString],
    pub(crate) environment: &'a dyn Environment,
}

impl fmt::Debug for Copies<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("helper", &self.helper).finish_non_exhaustive()
    }
}

impl DatabaseCopies for Copies<'_> {
    fn held_max(&self) -> Duration {
        self.held_max
    }

    fn file(&self) -> io::Result<File> {
        self.home.scratch_file()
    }

    fn back_up(&self, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
        let Some((program, arguments)) = self.helper.split_first() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let scratch =
            self.home.make_scratch(&CheckpointId::from_bits(self.environment.new_id()).to_string())?;
        let copy = scratch.path().join("copy");
        let status = Command::new(program)
            .args(arguments)
            .arg(Path::new(".").join(name))
            .arg(&copy)
            // The new process still has the handle when it enters the directory, whatever the directory is called by now.
            .current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!("the program that copies databases failed: {status}")));
        }
        // The folder goes, and the handle stays.
        File::open(&copy)
    }
}

/// Why a database was not copied.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// SQLite failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Others had it locked all the while.
    #[error("other programs write to it all the time")]
    Busy,
}

/// Copies a database with SQLite's backup API, with everything that was committed to it, while programs go on writing to it. Neither the
/// database nor what lies beside it is changed: a log stays as it is, and a journal of a writer that died is refused.
///
/// To be called in a process that does nothing else with the database.
///
/// # Errors
/// When it cannot be opened, others write to it all the time, or the copy cannot be written.
pub fn back_up_database(from: &Path, to: &Path) -> Result<(), BackupError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let source = Connection::open_with_flags(from, flags)?;
    // Whoever closes a database last moves its log into it; that is not for us to do.
    source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    source.busy_timeout(BUSY_MAX)?;
    let text = |pragma: &str| source.pragma_query_value(None, pragma, |row| row.get::<_, String>(0));
    let has_log = text("journal_mode")? == "wal";
    let page_bytes: u64 = source.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))?.into();
    let mut copy = Connection::open(to)?;
    copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")?;
    if has_log {
        // With a log, readers keep nobody from committing, and see one moment for as long as they read.
        source.execute_batch("BEGIN")?;
        source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    }
    let stretch = i32::try_from((STRETCH_BYTES / page_bytes).max(1)).unwrap_or(i32::MAX);
    let (mut restarts, mut left) = (0, i32::MAX);
    {
        let backup = Backup::new(&source, &mut copy)?;
        loop {
            match backup.step(stretch)? {
                StepResult::Done => break,
                StepResult::More => {}
                _ => restarts += 1,
            }
            let now = backup.progress().remaining;
            restarts += u32::from(now > left);
            left = now;
            if restarts > RESTARTS_MAX {
                return Err(BackupError::Busy);
            }
            if !has_log {
                sleep(PAUSE);
            }
        }
    }
    copy.close().map_err(|(_, error)| error)?;
    source.close().map_err(|(_, error)| error)?;
    // A copy is made without a log; that the database has one is kept.
    let versions: [u8; 2] = if has_log { [2, 2] } else { [1, 1] };
    OpenOptions::new().write(true).open(to)?.write_all_at(&versions, VERSIONS_AT)?;
    Ok(())
}
