//! Copies of SQLite databases that are too large to read under a lock.
//!
//! SQLite makes such a copy through its backup API, in a separate process. The walk of a capture opens and
//! closes files, and each close drops the POSIX locks by which SQLite reads (`docs/decisions/0016`).
//! [`Settings::database_helper`](crate::Settings::database_helper) names the program to run.

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

/// Pause between two steps, so that a waiting program gets its lock.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes copied per step; without a write-ahead log, no program can commit during a step.
const STRETCH_BYTES: u64 = 32 << 20;
/// Maximum restarts when other programs commit to the database during the copy.
const RESTARTS_MAX: u32 = 20;
/// Time that SQLite waits for a lock.
const BUSY_MAX: Duration = Duration::from_secs(2);
/// Header offset of the write and read versions: 2 with a write-ahead log.
const VERSIONS_AT: u64 = 18;

/// Makes copies in the home's scratch folder.
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
            // The handle stays valid for the new process, even if the directory was renamed.
            .current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!("the program that copies databases failed: {status}")));
        }
        // The folder is deleted; the handle stays valid.
        File::open(&copy)
    }
}

/// Reason why a database was not copied.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// SQLite failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Other programs kept it locked.
    #[error("other programs write to it all the time")]
    Busy,
}

/// Copies all committed data of a database with SQLite's backup API, while programs go on writing to it.
/// Changes neither the database nor its side files: a log stays as it is, and a journal of a dead writer is
/// refused.
///
/// Needs a process that does nothing else with the database.
///
/// # Errors
/// Fails if it cannot be opened, stays busy, or the copy cannot be written.
pub fn back_up_database(from: &Path, to: &Path) -> Result<(), BackupError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let source = Connection::open_with_flags(from, flags)?;
    // The last connection to close checkpoints the log; a copy must not.
    source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    source.busy_timeout(BUSY_MAX)?;
    let text = |pragma: &str| source.pragma_query_value(None, pragma, |row| row.get::<_, String>(0));
    let has_log = text("journal_mode")? == "wal";
    let page_bytes: u64 = source.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))?.into();
    let mut copy = Connection::open(to)?;
    copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")?;
    if has_log {
        // With a log, readers block no commit, and see one snapshot for the whole transaction.
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
    // The copy has no log; restore the database's log mode.
    let versions: [u8; 2] = if has_log { [2, 2] } else { [1, 1] };
    OpenOptions::new().write(true).open(to)?.write_all_at(&versions, VERSIONS_AT)?;
    Ok(())
}
