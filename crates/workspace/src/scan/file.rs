//! Reads one file into the sink and detects concurrent changes.

use crate::error::WorkspaceError;
use crate::linux::{self, Attributes, Facts, Lease};
use crate::{sparse, sqlite};
use rustix::fd::OwnedFd;
use safepoint_model::content::Content;
use safepoint_model::tree::Meta;
use safepoint_model::{ObjectError, ObjectSink, RelPath};
use safepoint_planted::planted;
use std::io;
use std::time::Duration;

/// A file that still changes after this many reads is unsettled.
const TRIES: u32 = 3;
/// Timestamp resolution: the kernel's clock ticks at least every ten milliseconds, and a second write within
/// a tick leaves the same timestamp.
const TICK_NS: i64 = 50_000_000;
/// Some file systems keep only whole or even seconds.
const COARSE_TICK_NS: i64 = 2_500_000_000;

/// Result of reading a file.
pub(super) enum FileRead {
    Gone,
    Unreadable,
    /// No longer a file.
    AnotherType,
    /// SQLite database; nothing was read yet.
    Database,
    Read {
        content: Content,
        meta: Meta,
        facts: Facts,
        trusted: bool,
        settled: bool,
        /// No proof shows later changes: every capture reads it again.
        unproven: bool,
        /// True if an ACL or a capability cannot be stored.
        odd: bool,
    },
}

/// Proof that timestamps show every later change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// No process can write: a later writer sets a new timestamp.
    NoWriter,
    /// Every writer sets a new timestamp, because all pages were written back.
    WrittenBack,
    /// A process has it open for writing.
    Writer,
    /// A writer may exist and need not set a timestamp.
    Missing,
}

impl Proof {
    /// Call it before the read: a store during the read would go unnoticed if its writer ended before this
    /// check.
    pub(super) fn of(fd: &OwnedFd, facts: &Facts) -> Self {
        match linux::try_lease(fd, facts.uid) {
            Lease::NoWriter => Self::NoWriter,
            Lease::Writer => Self::Writer,
            Lease::Unknown if linux::file_system(fd).stamps_stores && linux::write_back(fd).is_ok() => {
                Self::WrittenBack
            }
            Lease::Unknown => Self::Missing,
        }
    }

    /// Returns true if a file unchanged for this long has the content that its timestamps imply.
    fn is_enough(self, facts: &Facts, read_at_ns: i64) -> bool {
        match self {
            Self::NoWriter => is_old_enough(facts, read_at_ns),
            // write(2) sets the timestamp when it begins, and may take longer than a tick.
            Self::WrittenBack => facts.ctime_ns.saturating_add(COARSE_TICK_NS) < read_at_ns,
            Self::Writer | Self::Missing => false,
        }
    }
}

/// Returns true if this process lacks resources, as opposed to a bad file.
pub(crate) fn is_out_of_handles(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Current time on the clock of file timestamps. A finer clock would be wrong: it goes on while a paused
/// machine gives every change the same timestamp.
pub(super) fn now_ns() -> i64 {
    linux::coarse_now_ns()
}

/// Returns true if a later change would change the timestamps. Future timestamps are never old enough.
pub(super) fn is_old_enough(facts: &Facts, read_at_ns: i64) -> bool {
    let whole_seconds = facts.ctime_ns % 1_000_000_000 == 0;
    let tick = if whole_seconds { COARSE_TICK_NS } else { TICK_NS };
    facts.ctime_ns.saturating_add(tick) < read_at_ns
}

/// Reads a file; repeats if it changed during the read.
pub(super) fn read(sink: &dyn ObjectSink, dir: &OwnedFd, name: &[u8]) -> Result<FileRead, WorkspaceError> {
    let mut tries_left = TRIES;
    loop {
        tries_left -= 1;
        match read_once(sink, dir, name)? {
            FileRead::Read { settled: false, .. } if tries_left > 0 => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return Ok(other),
        }
    }
}

fn read_once(sink: &dyn ObjectSink, dir: &OwnedFd, name: &[u8]) -> Result<FileRead, WorkspaceError> {
    let started = now_ns();
    let fd = match linux::open_file(dir, name) {
        Ok(fd) => fd,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileRead::Gone),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(FileRead::AnotherType),
        Err(error) if is_out_of_handles(&error) => {
            return Err(WorkspaceError::Read { path: RelPath::root(), source: error });
        }
        Err(_) => return Ok(FileRead::Unreadable),
    };
    let Ok(before) = linux::facts_of(&fd) else { return Ok(FileRead::Unreadable) };
    if !before.file_type.is_file() {
        return Ok(FileRead::AnotherType);
    }
    if sqlite::is_database(&fd, before.size) {
        return Ok(FileRead::Database);
    }
    read_open(sink, fd, &before, started)
}

/// Reads an open file once, of any content.
pub(super) fn read_open(
    sink: &dyn ObjectSink,
    fd: OwnedFd,
    before: &Facts,
    started: i64,
) -> Result<FileRead, WorkspaceError> {
    let proof = Proof::of(&fd, before);
    let (content, fd) = sparse::put_fd(sink, fd, before);
    let content = match content {
        Ok(content) => content,
        Err(ObjectError::Input(_)) => return Ok(FileRead::Unreadable),
        Err(error) => return Err(error.into()),
    };
    let Some(Looked { meta, facts, same, trusted, odd }) = look(&fd, before, started, proof) else {
        return Ok(FileRead::Unreadable);
    };
    let settled = same && content.size == facts.size;
    let unproven = proof == Proof::Missing;
    Ok(FileRead::Read { content, meta, facts, trusted: trusted && settled, settled, unproven, odd })
}

/// State of a file after the read.
pub(super) struct Looked {
    pub(super) meta: Meta,
    pub(super) facts: Facts,
    /// No evidence of a write since `before`.
    pub(super) same: bool,
    /// A later write will be visible.
    pub(super) trusted: bool,
    /// True if an ACL or a capability cannot be stored.
    pub(super) odd: bool,
}

/// Checks an open file after it was read; `None` if the check fails. `proof` is from before the read.
pub(super) fn look(fd: &OwnedFd, before: &Facts, started: i64, proof: Proof) -> Option<Looked> {
    let after = linux::facts_of(fd).ok()?;
    let Attributes { meta, odd } = linux::read_meta(fd, &after).ok()?;
    // A shared mapping can change pages without a new timestamp. While a process has the file open for
    // writing, timestamps prove nothing unless its pages were written back; without writers, the first store
    // through a new mapping sets a new one.
    let same = before.same_file_state(&after) || planted!("scan-does-not-look-twice");
    let trusted = same && proof.is_enough(&after, started);
    Some(Looked { meta, facts: after, same, trusted, odd })
}
