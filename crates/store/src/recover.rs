//! Recovery of the part of a pack that the index does not cover.
//!
//! In: a pack whose length differs from the index. Out: rows for its sound segments, and the end of the last
//! one. Only the holder of the pack's lock recovers: an active writer indexes its own part. Idempotent and
//! safe to kill: rows are added in one transaction after their bytes are durable.

use crate::frame::Shape;
use crate::index::{Index, PackRows};
use crate::linux::Locked;
use crate::open::{self, index_error};
use crate::pack::{self, Found, PACK_HEAD_BYTES, Step};
use crate::store::Store;
use crate::validate::Report;
use crate::{Depth, StoreAccess, StoreError, linux};
use safepoint_planted::planted;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// Result of scanning the end of a pack.
pub(crate) struct Tail {
    /// End of the last kept segment.
    pub(crate) end: u64,
    segments: Vec<Kept>,
    /// True if the disk could not be read to the end, so that nothing may be cut off.
    pub(crate) unreadable: bool,
}

/// Segment to be kept.
struct Kept {
    start: u64,
    /// True if the whole segment is unchanged.
    sound: bool,
    /// Readable objects in it.
    rows: Vec<(u64, Shape)>,
}

impl Tail {
    /// Drops unsound segments at the end: behind the indexed length they are appends torn by a power cut.
    /// Without an index they may be damaged committed data, and are kept.
    fn without_torn_end(mut self) -> Self {
        while let Some(torn) = self.segments.pop_if(|kept| !kept.sound) {
            self.end = torn.start;
        }
        self
    }

    /// Returns the readable objects.
    pub(crate) fn rows(self) -> Vec<(u64, Shape)> {
        self.segments.into_iter().flat_map(|kept| kept.rows).collect()
    }

    /// Returns the rows for the index, or `None` if there is nothing new.
    pub(crate) fn into_rows(self, name: &str, indexed: Option<u64>) -> Option<PackRows> {
        let from = indexed.unwrap_or(0);
        let news = self.end > from.max(PACK_HEAD_BYTES);
        news.then(|| PackRows { name: name.to_owned(), from, to: self.end, rows: self.rows() })
    }
}

/// Adds rows for all unindexed segments. If nothing changed, this costs one directory listing.
pub(crate) fn refresh(dir: &Path, index: &mut Index) -> Result<(), StoreError> {
    let packs = open::list_packs(dir)?;
    let known = index.packs().map_err(|source| index_error(dir, source))?;
    let mut known: HashMap<String, u64> = known.into_iter().collect();
    for (name, len) in packs {
        let indexed = known.remove(&name);
        let is_shorter = indexed.is_some_and(|indexed| len < indexed);
        if is_shorter || len > indexed.unwrap_or(PACK_HEAD_BYTES) {
            match catch_up(dir, index, &name) {
                // A pack that cannot be read must not prevent opening the store; validation reports it.
                Err(StoreError::ReadPack { .. } | StoreError::SyncPack { .. }) => {}
                other => other?,
            }
        }
    }
    for name in known.into_keys() {
        // It may have been created after the folder was listed.
        if linux::identity(&open::pack_path(dir, &name)).is_none() {
            index.forget_pack(&name).map_err(|source| index_error(dir, source))?;
        }
    }
    Ok(())
}

/// Indexes the end of a pack, or deletes the rows of a lost end, unless a writer holds the pack.
fn catch_up(dir: &Path, index: &mut Index, name: &str) -> Result<(), StoreError> {
    let Some(file) = lock_pack(dir, name)? else { return Ok(()) };
    let indexed = index.indexed_bytes(name).map_err(|source| index_error(dir, source))?;
    let path = open::pack_path(dir, name);
    let len = file.metadata().map_err(|source| StoreError::ReadPack { path, source })?.len();
    if indexed.is_some_and(|indexed| len < indexed) {
        // A row for missing bytes must not keep the next capture from storing them again.
        return index.forget_behind(name, len).map_err(|source| index_error(dir, source));
    }
    let tail = scan(dir, name, &file, indexed)?;
    if let Some(rows) = tail.into_rows(name, indexed) {
        index.record(&[rows]).map_err(|source| index_error(dir, source))?;
    }
    Ok(())
}

/// Returns the locked pack, or `None` if another process holds the lock or the pack is gone.
pub(crate) fn lock_pack(dir: &Path, name: &str) -> Result<Option<Locked>, StoreError> {
    let path = open::pack_path(dir, name);
    let lock = || -> io::Result<Option<Locked>> {
        let Some(file) = linux::try_lock(linux::open_write(&path)?)? else { return Ok(None) };
        Ok(linux::is_named(&file, &path)?.then_some(file))
    };
    match lock() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map_err(|source| StoreError::ReadPack { path: path.clone(), source }),
    }
}

/// Reads a pack from its indexed length. The returned segments are durable.
pub(crate) fn scan(dir: &Path, name: &str, file: &File, indexed: Option<u64>) -> Result<Tail, StoreError> {
    let path = open::pack_path(dir, name);
    let from = indexed.unwrap_or(0).max(PACK_HEAD_BYTES);
    let len = file.metadata().map_err(|source| StoreError::ReadPack { path: path.clone(), source })?.len();
    if len > from && !planted!("store-tail-not-synced") {
        file.sync_data().map_err(|source| StoreError::SyncPack { path, source })?;
        if indexed.is_none() {
            let path = open::packs_dir(dir);
            linux::sync_dir(&path).map_err(|source| StoreError::SyncPack { path, source })?;
        }
        linux::drop_cache(file, from);
    }
    Ok(tail(file, len, indexed))
}

/// Does the same without a flush: returns what the next writer keeps and where it cuts.
pub(crate) fn tail(file: &File, len: u64, indexed: Option<u64>) -> Tail {
    let from = indexed.unwrap_or(0).max(PACK_HEAD_BYTES);
    let tail = read_tail(file, from, len);
    assert!(from <= tail.end && tail.end <= len.max(from), "nothing before the index's end is cut off");
    if indexed.is_some() { tail.without_torn_end() } else { tail }
}

/// Returns the rows of a pack for an index in memory. Nothing is locked or flushed; bytes that a writer is
/// appending may be missing.
pub(crate) fn rows_to_read(name: &str, file: &File) -> io::Result<Option<PackRows>> {
    let tail = read_tail(file, PACK_HEAD_BYTES, file.metadata()?.len());
    Ok(tail.into_rows(name, None))
}

/// Returns the segments between `from` and `len` to keep: those before the first gap, and those behind it if
/// a writer finished there. Otherwise the gap is the remains of an unfinished append.
pub(crate) fn read_tail(file: &File, from: u64, len: u64) -> Tail {
    let mut tail = Tail { end: from, segments: Vec::new(), unreadable: false };
    let (mut at, mut gap, mut waiting) = (from, false, Vec::new());
    loop {
        match pack::next(file, at, len) {
            Ok(None) => return tail,
            Ok(Some(Step::Gap { to })) => (at, gap) = (to, true),
            Ok(Some(Step::Segment(found))) => {
                at = found.end();
                let finished = found.head.closing;
                waiting.push(found);
                if (finished || !gap) && keep(file, &mut tail, &mut waiting).is_err() {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    tail.unreadable = true;
    tail
}

fn keep(file: &File, tail: &mut Tail, segments: &mut Vec<Found>) -> io::Result<()> {
    for found in segments.drain(..) {
        let sound = found.fault.is_none() && found.payload_is_sound(file)?;
        let entries = if sound { found.entries.clone() } else { found.intact_entries(file)? };
        let rows = entries.iter().map(|entry| (found.frame_at(entry), entry.shape)).collect();
        tail.segments.push(Kept { start: found.start, sound, rows });
        tail.end = found.end();
    }
    Ok(())
}

impl Store {
    /// Rebuilds the index from the packs alone and reports their state. Packs held by a writer keep their
    /// rows. Each pack is read first and its rows are replaced in one transaction: a concurrent reader finds
    /// the old or the new rows, never none.
    ///
    /// # Errors
    /// When the packs cannot be listed, or the index fails.
    pub fn rebuild_index(&self) -> Result<Report, StoreError> {
        if self.access() == StoreAccess::Read {
            return Err(StoreError::ReadOnly { path: self.dir().to_owned() });
        }
        let right = self.collector_waiting()?;
        self.follow_index()?;
        for (name, _) in open::list_packs(self.dir())? {
            let Some(file) = lock_pack(self.dir(), &name)? else { continue };
            let tail = scan(self.dir(), &name, &file, None)?;
            let rows = tail.into_rows(&name, None);
            self.with_index(|index| match &rows {
                Some(rows) => index.replace_pack(rows),
                None => index.forget_pack(&name),
            })?;
        }
        self.refresh()?;
        drop(right);
        self.validate(Depth::Quick, &|_, _| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Codec;
    use crate::segment::Entry;
    use crate::segment::tests::{forged, segment};
    use crate::{Health, linux};
    use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSource};
    use std::os::unix::fs::FileExt;

    fn plant(dir: &Path, segments: &[Vec<u8>]) {
        let file = linux::create(&open::pack_path(dir, "planted")).unwrap();
        file.write_all_at(&[&pack::PACK_HEAD[..], &segments.concat()].concat(), 0).unwrap();
    }

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        (dir, store)
    }

    #[test]
    fn hostile_numbers_with_right_hashes_are_damage_and_nothing_worse() {
        let good = Shape {
            kind: ObjectKind::Chunk,
            codec: Codec::Raw,
            stored_len: 4,
            raw_len: 4,
            id: ObjectId::of(ObjectKind::Chunk, b"good"),
        };
        let entry = |offset, shape| Entry { shape, offset };
        let bad = |stored_len, raw_len, codec| Shape { stored_len, raw_len, codec, ..good };
        let lies = [
            vec![entry(1, good)],
            vec![entry(u32::MAX, good)],
            vec![entry(0, good), entry(0, good), entry(2, good)],
            vec![entry(0, bad(u32::MAX, u32::MAX, Codec::Raw))],
            vec![entry(0, bad(8, 256 << 20, Codec::Zstd))],
            vec![entry(0, bad(8, u32::MAX, Codec::Zstd))],
            vec![entry(0, bad(0, 0, Codec::Raw))],
            vec![],
        ];
        for lie in lies {
            let (dir, empty) = store();
            drop(empty);
            plant(dir.path(), &[forged(b"good1234", &lie), segment(&[b"neighbour"], true)]);
            let store = Store::open(dir.path()).unwrap();
            match store.get(ObjectKind::Chunk, good.id) {
                Ok(bytes) => assert_eq!(bytes, b"good"),
                Err(ObjectError::Damaged { .. } | ObjectError::Missing { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            assert!(!store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged.is_empty(), "{lie:?}");
            let neighbour = ObjectId::of(ObjectKind::Chunk, b"neighbour");
            assert_eq!(store.get(ObjectKind::Chunk, neighbour).unwrap(), b"neighbour");
        }
    }

    #[test]
    fn a_forged_name_is_found_out_when_it_is_read() {
        let (dir, store) = store();
        let id = ObjectId::of(ObjectKind::Chunk, b"good");
        let shape = Shape { kind: ObjectKind::Chunk, codec: Codec::Raw, stored_len: 4, raw_len: 4, id };
        plant(dir.path(), &[forged(b"evil", &[Entry { shape, offset: 0 }])]);
        store.refresh().unwrap();
        assert_eq!(store.check(Depth::Quick, id).unwrap(), Health::Intact);
        assert!(matches!(store.check(Depth::Deep, id).unwrap(), Health::Damaged(_)));
        assert!(matches!(store.get(ObjectKind::Chunk, id), Err(ObjectError::Damaged { .. })));
        assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged[0].object, Some(id));
    }

    #[test]
    fn what_is_behind_a_hole_is_kept_only_if_somebody_finished_there() {
        let (dir, store) = store();
        let hole = vec![0; 500];
        let (one, open_end, closed) =
            (segment(&[b"one"], false), segment(&[b"two"], false), segment(&[b"three"], true));
        plant(dir.path(), &[one.clone(), hole.clone(), open_end.clone()]);
        let file = linux::open_write(&open::pack_path(dir.path(), "planted")).unwrap();
        let tail = scan(dir.path(), "planted", &file, None).unwrap();
        assert_eq!((tail.end, tail.unreadable), (16 + one.len() as u64, false));
        let bytes = [&one[..], &hole, &open_end, &closed, &hole].concat();
        file.write_all_at(&bytes, 16).unwrap();
        let tail = scan(dir.path(), "planted", &file, None).unwrap();
        assert_eq!(tail.end, 16 + (bytes.len() - hole.len()) as u64);
        assert_eq!(tail.rows().len(), 3);
        drop(store);
    }

    #[test]
    fn a_pack_that_cannot_be_read_is_not_to_be_cut() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&segment(&[b"one"], true), 0).unwrap();
        let tail = read_tail(&file, 0, 10_000);
        assert!(tail.unreadable);
    }
}
