//! Who uses the store: captures and readers, so that a collection can wait for those that began before it.
//!
//! In: nothing. Out: a guard, whose lock the kernel ends with the process. Two files take turns: those who come after the turn
//! do not keep anybody waiting who waits for those before it.

use crate::linux::{self, Locked, Shared};
use crate::store::Slot;
use crate::{Access, Store, StoreError};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const EPOCH_FILE: &str = "epoch";
const COLLECT_FILE: &str = "collect";
/// How often a lock that somebody holds is tried again.
const POLL: Duration = Duration::from_millis(5);

/// The store is in use, for as long as this lives. Nothing that was there when it began will be collected.
pub struct Using {
    /// Nothing in a store that nothing is written to and that was never in use.
    _shared: Option<Shared>,
    slot: Arc<Mutex<Slot>>,
}

impl Drop for Using {
    fn drop(&mut self) {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).leave();
    }
}

/// The right to collect, for as long as this lives.
pub struct Collector {
    _locked: Option<Locked>,
}

impl Store {
    /// Keeps every other process from collecting. Waits for one that does; not for who uses the store itself.
    ///
    /// # Errors
    /// When the file that stands for it cannot be locked.
    pub fn hold_collector(&self) -> Result<Collector, StoreError> {
        Ok(Collector { _locked: self.collector_waiting()? })
    }

    /// Begins to use the store. To be taken before the first look at what it holds, and kept until what was found is on record.
    ///
    /// # Errors
    /// When the files that stand for it cannot be locked.
    pub fn using(&self) -> Result<Using, StoreError> {
        self.try_using().map_err(|source| StoreError::Open { path: self.dir().to_owned(), source })
    }

    fn try_using(&self) -> io::Result<Using> {
        loop {
            let epoch = self.epoch()?;
            let shared = match self.lockable(turn(epoch))? {
                Some(file) => linux::try_lock_shared(file)?,
                None => return Ok(self.in_use(None)),
            };
            if shared.is_some() && self.epoch()? == epoch {
                return Ok(self.in_use(shared));
            }
            // Somebody turned meanwhile, or looked whether anybody is here.
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn in_use(&self, shared: Option<Shared>) -> Using {
        let slot = self.slot();
        slot.lock().unwrap_or_else(PoisonError::into_inner).enter();
        Using { _shared: shared, slot }
    }

    /// A file for its lock; made where it is missing, unless nothing is to be written.
    fn lockable(&self, name: &str) -> io::Result<Option<File>> {
        let path = self.dir().join(name);
        match self.access() {
            Access::Write => linux::open_or_create(&path).map(Some),
            Access::Read => linux::open_if_any(&path),
        }
    }

    fn epoch(&self) -> io::Result<u64> {
        let text = linux::read_small(&self.dir().join(EPOCH_FILE))?.unwrap_or_default();
        Ok(text.trim().parse().unwrap_or(0))
    }

    /// The right to collect; nothing where somebody has it.
    pub(crate) fn collector(&self) -> io::Result<Option<Locked>> {
        if self.access() == Access::Read {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        linux::try_lock(linux::open_or_create(&self.dir().join(COLLECT_FILE))?)
    }

    /// The same, once whoever has it has ended. Not for who uses the store: the other may be waiting for that to end.
    pub(crate) fn collector_waiting(&self) -> Result<Option<Locked>, StoreError> {
        self.lockable(COLLECT_FILE)
            .and_then(|file| file.map(linux::lock).transpose())
            .map_err(|source| StoreError::Open { path: self.dir().to_owned(), source })
    }

    /// Waits until everyone has ended who used the store when this was called. Says whether all have: not when `patience` is over
    /// or `stop` says so. Only for who has the right to collect.
    pub(crate) fn wait_for_users(&self, patience: Duration, stop: &dyn Fn() -> bool) -> io::Result<bool> {
        let epoch = self.epoch()?;
        let (old, new) = (turn(epoch), turn(epoch.wrapping_add(1)));
        let until = Instant::now() + patience;
        // Somebody may still be there from the turn before the last, where that one was not waited for to the end.
        if !self.wait_for(new, until, stop)? {
            return Ok(false);
        }
        linux::put_file(self.dir(), EPOCH_FILE, format!("{}\n", epoch.wrapping_add(1)).as_bytes())?;
        self.wait_for(old, until, stop)
    }

    fn wait_for(&self, turn: &str, until: Instant, stop: &dyn Fn() -> bool) -> io::Result<bool> {
        while linux::try_lock(linux::open_or_create(&self.dir().join(turn))?)?.is_none() {
            if Instant::now() > until || stop() {
                return Ok(false);
            }
            std::thread::sleep(POLL);
        }
        Ok(true)
    }
}

fn turn(epoch: u64) -> &'static str {
    if epoch.is_multiple_of(2) { "using-0" } else { "using-1" }
}
