//! Reads a SQLite database and its write-ahead log consistently while programs write to it.
//!
//! Input: the name of a file with a database header. Output: the results of it and its sidecar files. It is
//! read under the locks of a SQLite reader (`docs/decisions/0016`): the database cannot change then, and its
//! log can only grow. The locks are held briefly: the data goes into a copy, which is stored after they are
//! released. SQLite itself copies a larger database. Without locks the files are captured as they are and
//! reported as unsettled.

use super::file::{self, FileRead, Looked, Proof};
use super::{Done, Here, Item, Outcome, Sidecars, Walk, join};
use crate::error::WorkspaceError;
use crate::linux::{self, Facts, Lease, ofd};
use crate::sqlite::{self, INDEX, JOURNAL, LOG, Reading, beside};
use rustix::fd::{AsFd, OwnedFd};
use safepoint_model::content::Content;
use safepoint_model::coverage::Why;
use safepoint_model::tree::{Entry, Meta, Node};
use safepoint_model::{ObjectError, ObjectSink};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum wait for the locks of one database.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Maximum wait for all databases of a capture; after that each gets [`WAIT_MIN`].
const WAITS_MAX: Duration = Duration::from_secs(10);
const WAIT_MIN: Duration = Duration::from_millis(50);
/// A database that changes this often under its locks has a writer that ignores them.
const TRIES: u32 = 4;
/// Maximum size of a copy in memory.
const MEMORY_BYTES_MAX: u64 = 8 << 20;
/// Bytes copied between two checks of the time.
const STRETCH_BYTES: usize = 1 << 20;

/// File with possible sidecar files.
pub(super) struct Family<'a> {
    base: Item<'a>,
    others: Vec<Item<'a>>,
}

/// Time that this capture has waited for locks.
#[derive(Default)]
pub(crate) struct Waiting(AtomicU64);

impl Waiting {
    fn allowance(&self) -> Duration {
        let spent = Duration::from_millis(self.0.load(Ordering::Relaxed));
        if spent < WAITS_MAX { WAIT_MAX } else { WAIT_MIN }
    }

    fn spend(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Returns the positions of possible sidecar files, each with the position of its database.
pub(super) fn beside_others(names: &linux::Names) -> Vec<(usize, usize)> {
    let base = |name: &[u8]| names.find(sqlite::base_of(name)?);
    names.iter().enumerate().filter_map(|(at, name)| Some((base(name)?, at))).collect()
}

/// Locks of a reader, released on drop.
pub(crate) struct Held {
    main: OwnedFd,
    /// `None` without an index; then no process uses the log.
    index: Option<OwnedFd>,
    since: Instant,
}

impl Held {
    /// Tries to take the locks once; `None` if a writer holds them.
    fn try_take(dir: &OwnedFd, name: &[u8]) -> io::Result<Option<Self>> {
        let main = linux::open_file(dir, name)?;
        // A writer waiting for readers admits no new one.
        if !ofd::try_read_lock(&main, sqlite::PENDING)? {
            return Ok(None);
        }
        let shared = ofd::try_read_lock(&main, sqlite::SHARED)?;
        ofd::unlock(&main, sqlite::PENDING)?;
        if !shared {
            return Ok(None);
        }
        let since = Instant::now();
        // From here on the index can appear but not disappear: that requires an exclusive lock.
        let index = match linux::open_file(dir, &beside(name, INDEX)) {
            Ok(index) => Some(index),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(index) = &index
            && !(ofd::try_read_lock(index, sqlite::CHECKPOINT)?
                && ofd::try_read_lock(index, sqlite::READ_MARK)?)
        {
            return Ok(None);
        }
        Ok(Some(Self { main, index, since }))
    }

    /// Takes the locks, waiting for writers.
    pub(crate) fn take(dir: &OwnedFd, name: &[u8], waiting: &Waiting) -> io::Result<Option<Self>> {
        let (begun, allowance) = (Instant::now(), waiting.allowance());
        let held = loop {
            match Self::try_take(dir, name)? {
                None if begun.elapsed() < allowance => std::thread::sleep(Duration::from_millis(1)),
                held => break held,
            }
        };
        waiting.spend(begun.elapsed());
        Ok(held)
    }

    /// Returns true if a writer is active: the journal is its own and must not be rolled back.
    pub(crate) fn has_writer(&self) -> io::Result<bool> {
        ofd::is_write_locked(&self.main, sqlite::RESERVED)
    }
}

/// Data of a file read under the locks.
enum Copied {
    Stored(Content),
    Memory(Vec<u8>),
    File(File, u64),
}

/// File as it was under the locks.
struct Sample {
    name: Vec<u8>,
    copied: Copied,
    meta: Meta,
    facts: Facts,
    trusted: bool,
}

/// Reason that a database was not read.
enum Miss {
    /// A file changed despite the locks, or a new one must be locked too.
    Again,
    TooLong,
    Unreadable,
    Failed(WorkspaceError),
}

impl From<io::Error> for Miss {
    fn from(error: io::Error) -> Self {
        if file::is_out_of_handles(&error) {
            let path = safepoint_model::RelPath::root();
            return Miss::Failed(WorkspaceError::Read { path, source: error });
        }
        Miss::Unreadable
    }
}

impl From<ObjectError> for Miss {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Input(_) => Miss::Unreadable,
            error => Miss::Failed(error.into()),
        }
    }
}

impl<'c> Item<'c> {
    pub(super) fn name(&self) -> &[u8] {
        match self {
            Item::Gone => b"",
            Item::LeftOut(name, _) | Item::File { name, .. } => name,
            Item::Known(known) => known.cached.name,
            Item::Held(done) => &done.entry.name,
            Item::Directory(folder) => &folder.name,
            Item::Family(family) => family.base.name(),
        }
    }

    /// Returns true for a file to capture.
    fn is_file(&self) -> bool {
        match self {
            Item::File { .. } => true,
            Item::Known(known) => known.is_file,
            _ => false,
        }
    }

    fn is_known(&self) -> bool {
        matches!(self, Item::Known(_))
    }
}

impl Walk<'_> {
    /// Groups files with their possible sidecar files. A sidecar left out by a rule is still part of its
    /// database, and the sidecars of a left-out database are left out too.
    pub(super) fn gather<'c>(
        &self,
        here: &Here<'_>,
        items: &mut [Item<'c>],
        beside: &[(usize, usize)],
    ) -> Result<(), WorkspaceError> {
        for &(base, at) in beside {
            if matches!(items[base], Item::LeftOut(_, Why::Ignored)) && items[at].is_file() {
                let name = items[at].name().to_vec();
                let is_kept =
                    here.keep.entry(self.source, &name)?.is_some() || self.covers(&join(&here.path, &name)?);
                if !is_kept && sqlite::is_sidecar_at(&here.fd, &name) {
                    items[at] = Item::LeftOut(name, Why::Ignored);
                }
                continue;
            }
            let joins =
                items[at].is_file() || matches!(items[at], Item::LeftOut(_, Why::Ignored) | Item::Gone);
            if items[base].is_file() {
                let base_item = std::mem::replace(&mut items[base], Item::Gone);
                items[base] = Item::Family(Box::new(Family { base: base_item, others: Vec::new() }));
            }
            if joins && base != at {
                let other = std::mem::replace(&mut items[at], Item::Gone);
                match &mut items[base] {
                    Item::Family(family) => family.others.push(other),
                    _ => items[at] = other,
                }
            }
        }
        Ok(())
    }

    /// Captures a file with its possible sidecar files.
    pub(super) fn family<'c>(
        &self,
        here: &Here<'_>,
        family: Family<'c>,
    ) -> Result<Outcome<'c>, WorkspaceError> {
        let Family { base, others } = family;
        let name = base.name().to_vec();
        let is = |item: &Item<'_>, sidecar: &[u8]| item.name().strip_prefix(&*name) == Some(sidecar);
        let index = others.iter().any(|item| is(item, INDEX));
        let known = base.is_known() && others.iter().all(Item::is_known);
        let unchanged = known && !index && self.is_still(here, &base);
        if unchanged || !sqlite::is_database_at(&here.fd, &name) {
            let all = std::iter::once(base).chain(others);
            return Ok(Outcome::Several(all.map(|item| self.finish(here, item)).collect::<Result<_, _>>()?));
        }
        let idle = |item: &Item<'_>| {
            item.is_known()
                || is(item, INDEX)
                || (is(item, JOURNAL) && self.is_played_back(here, item.name()))
        };
        let mut wanted = self.sidecars == Sidecars::All;
        for item in &others {
            wanted |= self.is_kept(here, item.name())?;
        }
        if wanted || !base.is_known() || !others.iter().all(idle) || !self.is_still(here, &base) {
            return self.database(here, &name);
        }
        let mut outcomes = vec![self.finish(here, base)?];
        for item in others {
            outcomes.push(match item {
                Item::Known(known) if !known.cached.name.ends_with(INDEX) => Outcome::Known(known),
                item => Outcome::LeftOut(item.name().to_vec(), Why::DatabaseSidecar),
            });
        }
        Ok(Outcome::Several(outcomes))
    }

    /// Returns true if a file is unchanged since before its sidecar files were checked.
    fn is_still(&self, here: &Here<'_>, item: &Item<'_>) -> bool {
        match item {
            Item::Known(known) => linux::facts_if_any(&here.fd, known.cached.name)
                .is_ok_and(|facts| facts.is_some_and(|it| known.cached.is_hit(&it))),
            _ => false,
        }
    }

    fn is_played_back(&self, here: &Here<'_>, name: &[u8]) -> bool {
        linux::open_file(&here.fd, name).is_ok_and(|fd| !sqlite::is_journal(&fd))
    }

    /// Returns true if a sidecar file is in the tree to keep.
    fn is_kept(&self, here: &Here<'_>, name: &[u8]) -> Result<bool, WorkspaceError> {
        Ok((name.ends_with(INDEX) || name.ends_with(JOURNAL))
            && here.keep.entry(self.source, name)?.is_some())
    }

    /// Captures a database and its sidecar files.
    pub(super) fn database<'c>(&self, here: &Here<'_>, name: &[u8]) -> Result<Outcome<'c>, WorkspaceError> {
        let mut why = "it changes despite its locks";
        for _ in 0..TRIES {
            let tried = match self.at_rest(here, name) {
                Ok(None) => self.locked(here, name),
                other => other,
            };
            match tried {
                Ok(Some(outcomes)) => return Ok(Outcome::Several(outcomes)),
                Err(Miss::Again) => continue,
                Err(Miss::TooLong) => match self.backed_up(here, name)? {
                    Some(outcomes) => return Ok(Outcome::Several(outcomes)),
                    None => why = "reading takes too long, and SQLite made no copy",
                },
                Err(Miss::Failed(error)) => return Err(error),
                Ok(None) => why = "another program keeps it locked",
                Err(Miss::Unreadable) => why = "it cannot be locked",
            }
            break;
        }
        self.as_it_is(here, name, why)
    }

    /// Reads a large database in place, without locks that block programs, if no program has it open for
    /// writing. Returns `None` if it is small, has a writer, or that is unknown.
    fn at_rest<'c>(&self, here: &Here<'_>, name: &[u8]) -> Result<Option<Vec<Outcome<'c>>>, Miss> {
        let started = file::now_ns();
        let main = linux::open_file(&here.fd, name)?;
        let before = linux::facts_of(&main)?;
        let is_quiet = |facts: &Facts, fd: &OwnedFd| {
            file::is_old_enough(facts, started) && linux::try_lease(fd, facts.uid) == Lease::NoWriter
        };
        if self.copies.is_none()
            || before.size <= MEMORY_BYTES_MAX
            || self.sidecars == Sidecars::All
            || !is_quiet(&before, &main)
        {
            return Ok(None);
        }
        let sidecars = [LOG, JOURNAL, INDEX].map(|sidecar| beside(name, sidecar));
        let facts = || -> io::Result<Vec<_>> {
            let all = std::iter::once(name).chain(sidecars.iter().map(Vec::as_slice));
            all.map(|name| linux::facts_if_any(&here.fd, name)).collect()
        };
        let all = facts()?;
        let mut samples = vec![self.sample(name, &main, &before, (started, Proof::NoWriter), None)?];
        let mut outcomes = Vec::new();
        for (sidecar, known) in sidecars.iter().zip(&all[1..]) {
            let Some(known) = known.filter(|known| known.file_type.is_file()) else { continue };
            let fd = linux::open_file(&here.fd, sidecar)?;
            let wanted = sidecar.ends_with(LOG)
                || (sidecar.ends_with(JOURNAL) && sqlite::is_journal(&fd))
                || self.is_kept(here, sidecar).map_err(Miss::Failed)?;
            if !wanted {
                outcomes.push(Outcome::LeftOut(sidecar.clone(), Why::DatabaseSidecar));
            } else if is_quiet(&known, &fd) {
                samples.push(self.sample(sidecar, &fd, &known, (started, Proof::NoWriter), None)?);
            } else {
                return Ok(None);
            }
        }
        if linux::try_lease(&main, before.uid) != Lease::NoWriter || facts()? != all {
            return Err(Miss::Again);
        }
        outcomes.extend(self.store(samples)?);
        Ok(Some(outcomes))
    }

    /// Reads a database under its locks; `None` if they cannot be taken.
    fn locked<'c>(&self, here: &Here<'_>, name: &[u8]) -> Result<Option<Vec<Outcome<'c>>>, Miss> {
        let started = file::now_ns();
        // Before the locks, because a proof may write the file back. Later writes are too recent to be
        // trusted.
        let proof = |name: &[u8]| match open_if_file(&here.fd, name) {
            Ok(Some((fd, facts))) => (started, Proof::of(&fd, &facts)),
            _ => (started, Proof::Missing),
        };
        let (log, journal, index) = (beside(name, LOG), beside(name, JOURNAL), beside(name, INDEX));
        let (main_proof, log_proof, journal_proof) = (proof(name), proof(&log), proof(&journal));
        let Some(held) = Held::take(&here.fd, name, &self.waiting)? else { return Ok(None) };
        let before = linux::facts_of(&held.main)?;
        let is_same = |name: &[u8], facts: &Facts| -> io::Result<bool> {
            Ok(linux::facts_if_any(&here.fd, name)?.is_some_and(|now| now.ino == facts.ino))
        };
        if !before.file_type.is_file() || !is_same(name, &before)? {
            return Err(Miss::Again);
        }
        let limited = self.copies.filter(|_| self.sidecars == Sidecars::Needed);
        let until = limited.map(|copies| held.since + copies.held_max());
        let main = self.sample(name, &held.main, &before, main_proof, until)?;
        let mut outcomes = Vec::new();
        let mut samples = Vec::new();
        if let Some((fd, facts)) = open_if_file(&here.fd, &log)? {
            samples.push(self.log(&log, &fd, &facts, log_proof, until)?);
            if !is_same(&log, &facts)? {
                return Err(Miss::Again);
            }
        }
        if let Some((fd, facts)) = open_if_file(&here.fd, &journal)? {
            let all = self.sidecars == Sidecars::All || self.is_kept(here, &journal).map_err(Miss::Failed)?;
            // Without a writer, a valid journal is hot: its writer died, and the next program that opens the
            // database needs it.
            let hot = || -> io::Result<bool> {
                Ok(!ofd::is_write_locked(&held.main, sqlite::RESERVED)? && sqlite::is_journal(&fd))
            };
            let sample = match all || hot()? {
                true => Some(self.sample(&journal, &fd, &facts, journal_proof, until)?),
                false => None,
            };
            match sample {
                Some(sample) if all || hot()? => samples.push(sample),
                _ => outcomes.push(Outcome::LeftOut(journal, Why::DatabaseSidecar)),
            }
        }
        if let Some((fd, facts)) = open_if_file(&here.fd, &index)? {
            if held.index.is_none() {
                return Err(Miss::Again);
            }
            if self.sidecars == Sidecars::All || self.is_kept(here, &index).map_err(Miss::Failed)? {
                samples.push(self.sample(&index, &fd, &facts, (started, Proof::Missing), until)?);
            } else {
                outcomes.push(Outcome::LeftOut(index, Why::DatabaseSidecar));
            }
        }
        // These locks exclude writers.
        let after = linux::facts_of(&held.main)?;
        if !before.same_file_state(&after) {
            return Err(Miss::Again);
        }
        drop(held);
        samples.push(main);
        outcomes.extend(self.store(samples)?);
        Ok(Some(outcomes))
    }

    /// Reads the log, which may grow. If it was restarted just before the lock, its next frame changes the
    /// header, and frames of both runs may have been read: then it is read again, because it cannot restart
    /// twice.
    fn log(
        &self,
        name: &[u8],
        fd: &OwnedFd,
        facts: &Facts,
        (started, proof): (i64, Proof),
        until: Option<Instant>,
    ) -> Result<Sample, Miss> {
        for _ in 0..TRIES {
            let header = sqlite::start_of::<32>(fd)?;
            let now = linux::facts_of(fd)?;
            let mut sample = self.sample(name, fd, &now, (started, proof), until)?;
            if sqlite::start_of::<32>(fd)? == header {
                sample.trusted &= facts.same_file_state(&sample.facts);
                return Ok(sample);
            }
        }
        Err(Miss::Again)
    }

    /// Reads an open file: directly into the sink, or into a copy if there is a deadline.
    fn sample(
        &self,
        name: &[u8],
        fd: &OwnedFd,
        before: &Facts,
        (started, proof): (i64, Proof),
        until: Option<Instant>,
    ) -> Result<Sample, Miss> {
        let copied = match (until, self.copies) {
            (Some(until), Some(copies)) if before.size > MEMORY_BYTES_MAX => {
                copy_to_file(fd, before.size, copies.file()?, until)?
            }
            (Some(until), _) => copy_to_memory(fd, before.size, until)?,
            (None, _) => {
                let mut reading = Reading { fd, at: 0, end: before.size };
                Copied::Stored(self.sink.put_content(before.size, &mut reading)?)
            }
        };
        let Looked { meta, facts, trusted, .. } =
            file::look(fd, before, started, proof).ok_or(Miss::Unreadable)?;
        Ok(Sample { name: name.to_vec(), copied, meta, facts, trusted })
    }

    /// Stores the samples.
    fn store<'c>(&self, samples: Vec<Sample>) -> Result<Vec<Outcome<'c>>, Miss> {
        let one = |sample: Sample| -> Result<Outcome<'c>, Miss> {
            let Sample { name, copied, meta, facts, trusted } = sample;
            let content = copied.store(self.sink)?;
            let trusted = trusted && content.size == facts.size;
            Ok(done(Entry { name, meta, node: Node::File(content) }, facts, trusted, false))
        };
        samples.into_iter().map(one).collect()
    }

    /// Captures a database that takes too long to lock from a copy made by SQLite, which includes its log.
    /// Returns `None` if SQLite made no copy.
    fn backed_up<'c>(
        &self,
        here: &Here<'_>,
        name: &[u8],
    ) -> Result<Option<Vec<Outcome<'c>>>, WorkspaceError> {
        let started = file::now_ns();
        let Some(copies) = self.copies else { return Ok(None) };
        let Ok(Some((fd, facts))) = open_if_file(&here.fd, name) else { return Ok(None) };
        let Ok(copy) = copies.back_up(here.fd.as_fd(), OsStr::from_bytes(name)) else { return Ok(None) };
        let (Ok(size), Some(seen)) = (
            copy.metadata().map(|metadata| metadata.len()),
            file::look(&fd, &facts, started, Proof::Missing),
        ) else {
            return Ok(None);
        };
        let content = Copied::File(copy, size).store(self.sink)?;
        let entry = Entry { name: name.to_vec(), meta: seen.meta, node: Node::File(content) };
        let mut outcomes = vec![done(entry, seen.facts, false, false)];
        for sidecar in sqlite::SIDECARS {
            let sidecar = beside(name, sidecar);
            if let Ok(Some(_)) = open_if_file(&here.fd, &sidecar) {
                outcomes.push(Outcome::LeftOut(sidecar, Why::DatabaseSidecar));
            }
        }
        Ok(Some(outcomes))
    }

    /// Captures a database that cannot be locked, with log and journal, possibly inconsistent.
    fn as_it_is<'c>(&self, here: &Here<'_>, name: &[u8], why: &str) -> Result<Outcome<'c>, WorkspaceError> {
        let path = join(&here.path, name)?;
        let mut outcomes = Vec::new();
        let index = beside(name, INDEX);
        let all = self.sidecars == Sidecars::All || self.is_kept(here, &index)?;
        if !all && matches!(open_if_file(&here.fd, &index), Ok(Some(_))) {
            outcomes.push(Outcome::LeftOut(index.clone(), Why::DatabaseSidecar));
        }
        let index = all.then_some(index);
        for name in [name.to_vec(), beside(name, JOURNAL), beside(name, LOG)].into_iter().chain(index) {
            let started = file::now_ns();
            let opened = match open_if_file(&here.fd, &name) {
                Ok(opened) => opened,
                Err(error) => match Miss::from(error) {
                    Miss::Failed(error) => return Err(error),
                    _ => {
                        outcomes.push(Outcome::LeftOut(name, Why::Unreadable));
                        continue;
                    }
                },
            };
            let Some((fd, facts)) = opened else { continue };
            outcomes.push(match file::read_open(self.sink, fd, &facts, started)? {
                FileRead::Read { content, meta, facts, .. } => {
                    done(Entry { name, meta, node: Node::File(content) }, facts, false, true)
                }
                _ => Outcome::LeftOut(name, Why::Unreadable),
            });
        }
        let is_done = |outcome: &Outcome<'_>| matches!(outcome, Outcome::Done(_));
        if outcomes.iter().any(is_done) {
            let lack = "its files in the checkpoint may be inconsistent";
            outcomes.push(Outcome::Told(format!("cannot read {path} consistently: {why}; {lack}")));
        }
        Ok(Outcome::Several(outcomes))
    }
}

fn done<'c>(entry: Entry, facts: Facts, trusted: bool, unsettled: bool) -> Outcome<'c> {
    Outcome::Done(Box::new(Done { entry, facts, trusted, unsettled, below: None, fresh: true, odd: false }))
}

/// Opens a regular file; `None` if it is missing or of another type.
fn open_if_file(dir: &OwnedFd, name: &[u8]) -> io::Result<Option<(OwnedFd, Facts)>> {
    let fd = match linux::open_file(dir, name) {
        Ok(fd) => fd,
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ELOOP) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let facts = linux::facts_of(&fd)?;
    Ok(facts.file_type.is_file().then_some((fd, facts)))
}

fn copy_to_memory(fd: &OwnedFd, size: u64, until: Instant) -> Result<Copied, Miss> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    copy(fd, size, until, &mut |stretch, _| {
        bytes.extend_from_slice(stretch);
        Ok(())
    })?;
    Ok(Copied::Memory(bytes))
}

fn copy_to_file(fd: &OwnedFd, size: u64, file: File, until: Instant) -> Result<Copied, Miss> {
    // With reflinks the copy shares the blocks and takes no time.
    if rustix::fs::ioctl_ficlone(&file, fd).is_ok() {
        return Ok(Copied::File(file, size));
    }
    let len = copy(fd, size, until, &mut |stretch, at| file.write_all_at(stretch, at))?;
    Ok(Copied::File(file, len))
}

/// Copies a file in stretches and returns its length.
fn copy(
    fd: &OwnedFd,
    size: u64,
    until: Instant,
    write: &mut dyn FnMut(&[u8], u64) -> io::Result<()>,
) -> Result<u64, Miss> {
    let mut buffer = vec![0; STRETCH_BYTES.min(usize::try_from(size).unwrap_or(STRETCH_BYTES))];
    let mut reading = Reading { fd, at: 0, end: size };
    while reading.at < size {
        if Instant::now() >= until {
            return Err(Miss::TooLong);
        }
        let at = reading.at;
        match reading.read(&mut buffer)? {
            0 => break,
            len => write(&buffer[..len], at)?,
        }
    }
    Ok(reading.at)
}

impl Copied {
    fn store(self, sink: &dyn ObjectSink) -> Result<Content, ObjectError> {
        match self {
            Copied::Stored(content) => Ok(content),
            Copied::Memory(bytes) => sink.put_content(bytes.len() as u64, &mut bytes.as_slice()),
            Copied::File(mut file, size) => {
                file.rewind().map_err(ObjectError::Input)?;
                sink.put_content(size, &mut file.take(size))
            }
        }
    }
}
