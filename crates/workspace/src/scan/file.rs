//! Reads one file into the sink, and notices when it changes meanwhile.

use crate::error::WorkspaceError;
use crate::linux::{self, Attributes, Facts, Lease};
use crate::{sparse, sqlite};
use rustix::fd::OwnedFd;
use safepoint_model::content::Content;
use safepoint_model::tree::Meta;
use safepoint_model::{ObjectError, ObjectSink, RelPath};
use safepoint_planted::planted;
use std::io;
use std::time::{Duration, SystemTime};

/// A file that still changes after this many readings is unsettled.
const TRIES: u32 = 3;
/// The kernel stamps files with a clock that ticks, at the slowest, every ten milliseconds: a second write within the same
/// tick leaves the same stamp.
const TICK_NS: i64 = 50_000_000;
/// Some file systems keep whole or even seconds only.
const COARSE_TICK_NS: i64 = 2_500_000_000;

/// What came of reading a file.
pub(super) enum FileRead {
    Gone,
    Unreadable,
    /// It is no longer a file.
    AnotherType,
    /// It is a SQLite database, of which nothing was read yet.
    Database,
    Read {
        content: Content,
        meta: Meta,
        facts: Facts,
        trusted: bool,
        settled: bool,
        /// Nothing shows whether it changes from now on: it is read again each time.
        unproven: bool,
        /// An ACL or a capability of it cannot be kept.
        odd: bool,
    },
}

/// Why stamps show every change from now on, if they do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// Nobody can write: whoever comes later leaves a new stamp.
    NoWriter,
    /// Whoever can write has to leave a new stamp, because all pages were written back.
    WrittenBack,
    /// A process has it open for writing.
    Writer,
    /// There may be a writer, and it need not leave a stamp.
    Missing,
}

impl Proof {
    /// Asked before the reading: a store during it would else go unnoticed if its writer ended before the question.
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

    /// Whether a file that was left alone for this long holds what its stamps say.
    fn is_enough(self, facts: &Facts, read_at_ns: i64) -> bool {
        match self {
            Self::NoWriter => is_old_enough(facts, read_at_ns),
            // A call of write(2) sets its stamp when it begins, and may take longer than a tick.
            Self::WrittenBack => facts.ctime_ns.saturating_add(COARSE_TICK_NS) < read_at_ns,
            Self::Writer | Self::Missing => false,
        }
    }
}

/// Whether it is this process that lacks something, and not the file.
pub(crate) fn is_out_of_handles(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// The present, on the clock that stamps files.
pub(super) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Whether a later change would surely show in the stamps. Stamps in the future are never old enough.
pub(super) fn is_old_enough(facts: &Facts, read_at_ns: i64) -> bool {
    let whole_seconds = facts.ctime_ns % 1_000_000_000 == 0;
    let tick = if whole_seconds { COARSE_TICK_NS } else { TICK_NS };
    facts.ctime_ns.saturating_add(tick) < read_at_ns
}

/// Reads a file, again if it changed under the reading.
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

/// Reads an open file once, whatever it holds.
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

/// A file after it was read.
pub(super) struct Looked {
    pub(super) meta: Meta,
    pub(super) facts: Facts,
    /// Nothing shows that it was written to since before.
    pub(super) same: bool,
    /// A later write will show.
    pub(super) trusted: bool,
    /// An ACL or a capability of it cannot be kept.
    pub(super) odd: bool,
}

/// Looks at an open file after it was read; nothing where that cannot be done. The proof is from before the reading.
pub(super) fn look(fd: &OwnedFd, before: &Facts, started: i64, proof: Proof) -> Option<Looked> {
    let after = linux::facts_of(fd).ok()?;
    let Attributes { meta, odd } = linux::read_meta(fd, &after).ok()?;
    // A shared mapping can change pages without a new stamp. While a process has the file open for writing, stamps
    // prove nothing, unless its pages were written back; once none has, the first store through a new mapping sets a new one.
    let same = before.same_file_state(&after) || planted!("scan-does-not-look-twice");
    let trusted = same && proof.is_enough(&after, started);
    Some(Looked { meta, facts: after, same, trusted, odd })
}
