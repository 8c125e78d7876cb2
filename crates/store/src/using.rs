//! Users of the store: captures and readers that a collection must wait for.
//!
//! In: nothing. Out: a guard whose lock the kernel releases with the process. Two lock files alternate: users
//! that start after a switch do not delay a collection that waits for earlier users.

use crate::linux::{self, Locked, Shared};
use crate::store::Slot;
use crate::{Store, StoreAccess, StoreError};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const EPOCH_FILE: &str = "epoch";
const COLLECT_FILE: &str = "collect";
/// Interval between tries of a busy lock.
const POLL: Duration = Duration::from_millis(5);

/// Guard that marks the store as in use. No object that existed when it was taken is collected.
pub struct Using {
    /// `None` in a read-only store that has no lock files.
    _shared: Option<Shared>,
    slot: Arc<Mutex<Slot>>,
}

impl Drop for Using {
    fn drop(&mut self) {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).leave();
    }
}

/// Guard with the exclusive right to collect.
pub struct Collector {
    _locked: Option<Locked>,
}

impl Store {
    /// Keeps other processes from collecting. Waits for a running collection; must not be called by a user of
    /// the store.
    ///
    /// # Errors
    /// When the lock file cannot be locked.
    pub fn hold_collector(&self) -> Result<Collector, StoreError> {
        Ok(Collector { _locked: self.collector_waiting()? })
    }

    /// Marks the store as in use. Must be taken before the first read, and held until the found objects are
    /// recorded.
    ///
    /// # Errors
    /// When the lock files cannot be locked.
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
            // Another process switched the files or tested the lock.
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn in_use(&self, shared: Option<Shared>) -> Using {
        let slot = self.slot();
        slot.lock().unwrap_or_else(PoisonError::into_inner).enter();
        Using { _shared: shared, slot }
    }

    /// Opens a lock file; creates it if missing, except in a read-only store.
    fn lockable(&self, name: &str) -> io::Result<Option<File>> {
        let path = self.dir().join(name);
        match self.access() {
            StoreAccess::Write => linux::open_or_create(&path).map(Some),
            StoreAccess::Read => linux::open_if_any(&path),
        }
    }

    fn epoch(&self) -> io::Result<u64> {
        let text = linux::read_small(&self.dir().join(EPOCH_FILE))?.unwrap_or_default();
        Ok(text.trim().parse().unwrap_or(0))
    }

    /// Returns the right to collect, or `None` if another process has it.
    pub(crate) fn collector(&self) -> io::Result<Option<Locked>> {
        if self.access() == StoreAccess::Read {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        linux::try_lock(linux::open_or_create(&self.dir().join(COLLECT_FILE))?)
    }

    /// Waits for the right to collect. Must not be called by a user of the store: the holder may be waiting
    /// for it.
    pub(crate) fn collector_waiting(&self) -> Result<Option<Locked>, StoreError> {
        self.lockable(COLLECT_FILE)
            .and_then(|file| file.map(linux::lock).transpose())
            .map_err(|source| StoreError::Open { path: self.dir().to_owned(), source })
    }

    /// Waits for all users that started before this call. Returns false if `patience` is over or `stop`
    /// returns true. The caller must hold the right to collect.
    pub(crate) fn wait_for_users(&self, patience: Duration, stop: &dyn Fn() -> bool) -> io::Result<bool> {
        let epoch = self.epoch()?;
        let (old, new) = (turn(epoch), turn(epoch.wrapping_add(1)));
        let until = Instant::now() + patience;
        // Users of an earlier turn may remain if the wait for them was not completed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Locking;

    /// On a nearly full disk the index keeps other processes out, so that it must not stay open.
    #[test]
    fn an_index_that_keeps_others_out_is_closed_when_the_last_user_ends() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (first, second) = (store.using().unwrap(), store.using().unwrap());
        store.slot().lock().unwrap().reopen(dir.path(), Locking::Alone);
        drop(first);
        assert!(store.slot().lock().unwrap().is_open());
        drop(second);
        assert!(!store.slot().lock().unwrap().is_open());
    }
}
