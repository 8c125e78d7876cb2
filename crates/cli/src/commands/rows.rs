//! Rows of the last list as names of checkpoints: `:3`. They are remembered for each terminal, in the cache of
//! Safepoint's home.

use crate::problem::Problem;
use crate::render::terminal::counted;
use rustix::fs::Stat;
use rustix::process::geteuid;
use safepoint::CheckpointManager;
use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::Checkpoint;
use serde::{Deserialize, Serialize};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// So many rows are remembered.
const ROWS_MAX: usize = 1_000;
/// Longer files are not ours.
const BYTES_MAX: u64 = 64 * 1024;
/// Fields of proc_pid_stat(5), counted from the one after the name in brackets.
const SESSION: usize = 3;
const START_TIME: usize = 19;

/// A terminal and the session of processes on it.
#[derive(Debug, PartialEq, Eq)]
struct Terminal {
    device: u64,
    session: Session,
}

/// A session of processes. Its number and that of its terminal are used again after its end, so the boot and the
/// start count, too.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    /// None: it began outside this container, or `/proc` is not mounted.
    id: Option<u32>,
    boot: String,
    /// Start of its first process; when the terminal appeared, if that process cannot be seen.
    started: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    session: Session,
    rows: Vec<CheckpointId>,
}

impl Terminal {
    /// The terminal of this process, if it has one.
    fn of_process() -> Option<Self> {
        let (output, errors, input) = (io::stdout(), io::stderr(), io::stdin());
        let stat = stat(&output).or_else(|| stat(&errors)).or_else(|| stat(&input))?;
        // Not by getsid(2): it answers 0 where the session began outside this container.
        let id = number_in_stat("self", SESSION).and_then(|id| u32::try_from(id).ok()).filter(|id| *id > 0);
        let started = id.and_then(|id| number_in_stat(&id.to_string(), START_TIME));
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let session = Session {
            id,
            boot: boot.trim().to_owned(),
            // Use of a terminal changes its other two times, but not this one.
            started: started.unwrap_or(stat.st_ctime.cast_unsigned()),
        };
        Some(Self { device: stat.st_rdev, session })
    }

    fn file(&self, home: &Path) -> PathBuf {
        home.join("cache").join(format!("terminal-{:x}", self.device))
    }
}

fn stat(stream: &(impl AsFd + IsTerminal)) -> Option<Stat> {
    stream.is_terminal().then(|| rustix::fs::fstat(stream).ok()).flatten()
}

/// Returns a field of `/proc/PID/stat`, counted from the one after the name in brackets.
fn number_in_stat(pid: &str, field: usize) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(field)?.parse().ok()
}

/// Remembers the rows that were just shown. That they cannot be remembered is no reason to fail.
pub(crate) fn remember(home: &Path, rows: &[CheckpointId]) {
    let Some(terminal) = Terminal::of_process() else { return };
    // A home of another user is only read.
    if std::fs::metadata(home).is_ok_and(|found| found.uid() == geteuid().as_raw()) {
        let file = terminal.file(home);
        let rows = rows.iter().take(ROWS_MAX).copied().collect();
        let _ = write(&file, &Remembered { session: terminal.session, rows });
    }
}

fn write(file: &Path, remembered: &Remembered) -> io::Result<()> {
    let mut new = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(file))?;
    new.write_all(&serde_json::to_vec(remembered)?)?;
    new.persist(file)?;
    Ok(())
}

/// Returns the checkpoint in a row of the last list on this terminal; nothing if `given` names no row.
pub(crate) fn named(manager: &CheckpointManager, given: &str) -> Result<Option<Checkpoint>, Problem> {
    let digits = given.strip_prefix(':').filter(|digits| !digits.is_empty());
    let Some(digits) = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) else {
        return Ok(None);
    };
    let hint = "Name the checkpoint by its id: safepoint list";
    let Some(terminal) = Terminal::of_process() else {
        let message = format!("{given:?} is a row of the last list, and there is no terminal");
        return Err(Problem::usage(message, hint));
    };
    let Some(rows) = read(&terminal, manager.home()) else {
        let message = format!("{given:?} is a row of the last list, and none was shown on this terminal");
        return Err(Problem::usage(message, "Show it: safepoint list"));
    };
    let row = digits.parse::<usize>().ok().and_then(|row| row.checked_sub(1));
    let Some(id) = row.and_then(|row| rows.get(row)) else {
        let count = counted(rows.len() as u64, "row", "rows");
        return Err(Problem::usage(format!("{given:?}: the last list has {count}"), hint));
    };
    Ok(Some(manager.checkpoints().get(*id)?))
}

fn read(terminal: &Terminal, home: &Path) -> Option<Vec<CheckpointId>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(terminal.file(home)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let remembered: Remembered = serde_json::from_slice(&bytes).ok()?;
    (remembered.session == terminal.session).then_some(remembered.rows)
}
