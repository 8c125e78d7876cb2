//! Appends segments to packs, after cutting off the torn tail that a crash left.
//!
//! In: sealed segments. Out: their positions, durable after [`Appender::sync`]. The kernel lock on a pack is
//! held while it is appended to. Only bytes behind the last committed segment are cut off.

use crate::linux::Locked;
use crate::open;
use crate::pack::{self, PACK_HEAD, PACK_HEAD_BYTES};
use crate::segment::Sealed;
use crate::store::Store;
use crate::{StoreError, linux, recover};
use safepoint_model::trace::{self, TraceLevel};
use safepoint_planted::planted;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Pack that is locked for appending.
pub(crate) struct OpenPack {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<Locked>,
    /// Offset of the first byte appended by this writer.
    pub(crate) start: u64,
    /// Offset behind the last byte appended by this writer.
    pub(crate) end: u64,
    /// True while the directory entry of the pack may not be durable.
    fresh: bool,
}

/// Packs that one writer appends to; the last one has room.
#[derive(Default)]
pub(crate) struct Appender {
    pub(crate) packs: Vec<OpenPack>,
    /// Allows writes beyond the size limit: they make the store smaller, or keep the only copy of user data.
    pub(crate) beyond_limit: bool,
    /// Allows writes into the reserve.
    pub(crate) from_reserve: bool,
}

/// Position of an appended segment.
pub(crate) struct Spot {
    /// Number of the pack within the appender.
    pub(crate) pack: usize,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<Locked>,
    pub(crate) at: u64,
}

impl Appender {
    /// Appends a segment; `last` marks the writer's final segment.
    pub(crate) fn append(
        &mut self,
        store: &Store,
        sealed: &mut Sealed,
        last: bool,
    ) -> Result<Spot, StoreError> {
        let limits = store.limits();
        if self.packs.last().is_none_or(|pack| pack.end >= limits.pack_bytes) {
            self.packs.push(acquire(store)?);
        }
        self.check_room(store, sealed.bytes().len() as u64)?;
        let number = self.packs.len() - 1;
        let pack = &mut self.packs[number];
        let end = pack.end + sealed.bytes().len() as u64;
        assert!(
            PACK_HEAD_BYTES <= pack.start && pack.start <= pack.end,
            "nothing that counts is overwritten"
        );
        sealed.close(last || end >= limits.pack_bytes);
        pack.file
            .write_all_at(sealed.bytes(), pack.end)
            .map_err(|source| StoreError::AppendPack { path: pack.path.clone(), source })?;
        let spot = Spot { pack: number, path: pack.path.clone(), file: pack.file.clone(), at: pack.end };
        pack.end = end;
        debug_assert!(
            spot.file.metadata().is_ok_and(|facts| facts.len() >= end),
            "the pack holds the segment"
        );
        Ok(spot)
    }

    /// Refuses a write that would exceed the size limit. Other processes append concurrently, so the sizes
    /// are read each time.
    fn check_room(&self, store: &Store, more: u64) -> Result<(), StoreError> {
        let limits = store.limits();
        let Some(allowed_bytes) = limits.bytes else { return Ok(()) };
        let allowed_bytes = match (self.beyond_limit, self.from_reserve) {
            (true, _) => u64::MAX,
            (false, true) => allowed_bytes.saturating_add(limits.reserve_bytes),
            (false, false) => allowed_bytes,
        };
        let used_bytes: u64 = open::list_packs(store.dir())?.iter().map(|(_, len)| len).sum();
        if used_bytes.saturating_add(more) > allowed_bytes && !planted!("store-cap-ignored") {
            let own: u64 = self.packs.iter().map(|pack| pack.end - pack.start).sum();
            return Err(StoreError::Full {
                needed_bytes: own + more,
                used_bytes: used_bytes - own,
                allowed_bytes,
            });
        }
        Ok(())
    }

    /// Makes all appended bytes durable. Must not be retried after a failure: the kernel may have dropped the
    /// pages and would then report success.
    pub(crate) fn sync(&self, store: &Store) -> Result<(), StoreError> {
        for pack in &self.packs {
            if planted!("store-pack-not-synced") {
                continue;
            }
            let synced = {
                let grown = pack.end - pack.start;
                let _span = trace::span("store", TraceLevel::Debug, || {
                    format!("flush pack {} with {grown} new bytes", pack.name)
                });
                pack.file.sync_data()
            };
            if planted!("store-sync-failure-ignored") {
                continue;
            }
            synced.map_err(|source| StoreError::SyncPack { path: pack.path.clone(), source })?;
        }
        if self.packs.iter().any(|pack| pack.fresh) && !planted!("store-pack-name-not-synced") {
            let path = open::packs_dir(store.dir());
            linux::sync_dir(&path).map_err(|source| StoreError::SyncPack { path, source })?;
        }
        Ok(())
    }

    /// Cuts off the appended bytes if the disk allows it; otherwise the next writer does.
    pub(crate) fn abandon(&mut self) {
        for pack in self.packs.drain(..) {
            let _ = pack.file.set_len(pack.start);
        }
    }
}

/// Returns an unlocked pack with room, or a new pack.
fn acquire(store: &Store) -> Result<OpenPack, StoreError> {
    for (name, len) in open::list_packs(store.dir())? {
        if len >= store.limits().pack_bytes {
            continue;
        }
        if let Some(pack) = reopen(store, name)? {
            return Ok(pack);
        }
    }
    loop {
        if let Some(pack) = create(store)? {
            return Ok(pack);
        }
    }
}

/// Locks an existing pack if it is free and sound enough to be appended to.
fn reopen(store: &Store, name: String) -> Result<Option<OpenPack>, StoreError> {
    let path = store.pack_path(&name);
    let failed = |source| StoreError::AppendPack { path: path.clone(), source };
    let Ok(file) = linux::open_write(&path) else { return Ok(None) };
    let Some(file) = linux::try_lock(file).map_err(failed)? else { return Ok(None) };
    if !linux::is_named(&file, &path).map_err(failed)? {
        return Ok(None);
    }
    let len = file.metadata().map_err(failed)?.len();
    // Read under the lock: the previous holder wrote its rows before it released the lock.
    let indexed = store.with_index(|index| index.indexed_bytes(&name))?;
    // A pack that lost bytes is not changed, even if it is empty: index rows still describe its content.
    if indexed.is_some_and(|indexed| indexed > len) {
        return Ok(None);
    }
    if len < PACK_HEAD_BYTES {
        return start(name, path, file).map(Some);
    }
    if !pack::has_head(&file).map_err(failed)? {
        return Ok(None);
    }
    // A pack that cannot be read is not used.
    let Ok(tail) = recover::scan(store.dir(), &name, &file, indexed) else { return Ok(None) };
    if tail.unreadable || tail.end >= store.limits().pack_bytes {
        return Ok(None);
    }
    let end = tail.end;
    if let Some(rows) = tail.into_rows(&name, indexed) {
        store.with_index(|index| index.record(std::slice::from_ref(&rows)))?;
    }
    if end < len {
        file.set_len(end).map_err(failed)?;
    }
    Ok(Some(OpenPack { name, path, file: Arc::new(file), start: end, end, fresh: indexed.is_none() }))
}

/// Creates a pack. Returns `None` if another writer took the new file first.
fn create(store: &Store) -> Result<Option<OpenPack>, StoreError> {
    let dir = open::packs_dir(store.dir());
    let name = linux::new_name().map_err(|source| StoreError::CreatePack { path: dir, source })?;
    let path = store.pack_path(&name);
    let file =
        linux::create(&path).map_err(|source| StoreError::CreatePack { path: path.clone(), source })?;
    claim(name, path, file)
}

/// Locks a new pack file. Before that, another writer may have locked the empty file, appended a committed
/// segment, and released it. Only a file that is still empty may be initialized.
fn claim(name: String, path: PathBuf, file: File) -> Result<Option<OpenPack>, StoreError> {
    let failed = |source| StoreError::CreatePack { path: path.clone(), source };
    let Some(file) = linux::try_lock(file).map_err(failed)? else { return Ok(None) };
    let is_empty = file.metadata().map_err(failed)?.len() == 0;
    if !is_empty || !linux::is_named(&file, &path).map_err(failed)? {
        return Ok(None);
    }
    start(name, path, file).map(Some)
}

/// Initializes an empty pack.
fn start(name: String, path: PathBuf, file: Locked) -> Result<OpenPack, StoreError> {
    let (start, end) = (PACK_HEAD_BYTES, PACK_HEAD_BYTES);
    match file.write_all_at(&PACK_HEAD, 0) {
        Ok(()) => Ok(OpenPack { name, path, file: Arc::new(file), start, end, fresh: true }),
        Err(source) => Err(StoreError::CreatePack { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safepoint_model::{ObjectKind, ObjectSink, ObjectSource};

    #[test]
    fn a_new_pack_that_another_writer_used_first_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (name, path) = ("new".to_owned(), store.pack_path("new"));
        let file = linux::create(&path).unwrap();
        let writer = store.writer().unwrap();
        let id = writer.put(ObjectKind::Chunk, b"acknowledged").unwrap();
        writer.finish().unwrap();
        assert_eq!(store.pack_lengths().unwrap().len(), 1, "the writer took the new pack");
        if let Some(pack) = claim(name, path, file).unwrap() {
            pack.file.write_all_at(&[7; 200], pack.end).unwrap();
        }
        assert_eq!(store.get(ObjectKind::Chunk, id).unwrap(), b"acknowledged");
    }
}
