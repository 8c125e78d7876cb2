//! Recovery: what a pack holds beyond what the index knows of it.
//!
//! In: a pack whose length differs from the index. Out: rows for the segments that are sound, and the end of the
//! last one. Only who holds the pack's lock looks: a writer that still holds it will index its part itself.
//! Idempotent, and may itself be killed: rows appear after their bytes are durable, in one transaction.

use crate::frame::Shape;
use crate::index::{Index, PackRows};
use crate::open::{self, index_error};
use crate::pack::{self, Found, PACK_HEAD_BYTES, Step};
use crate::store::Store;
use crate::validate::Report;
use crate::{Depth, StoreError, linux};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// What a scan of the end of a pack found.
pub(crate) struct Tail {
    /// The end of the last segment that is kept.
    pub(crate) end: u64,
    segments: Vec<Kept>,
    /// Whether the disk could not be read to the end, so that nothing may be cut off.
    pub(crate) unreadable: bool,
}

/// A segment that is kept.
struct Kept {
    start: u64,
    /// Whether all of it is as it was written.
    sound: bool,
    /// The objects in it that can be read.
    rows: Vec<(u64, Shape)>,
}

impl Tail {
    /// Gives up what is not sound at the very end: behind what the index covers, that is an append which a power
    /// cut tore. Where there is no index it may as well be damage to something that counted, and stays.
    fn without_torn_end(mut self) -> Self {
        while let Some(torn) = self.segments.pop_if(|kept| !kept.sound) {
            self.end = torn.start;
        }
        self
    }

    /// The objects that can be read.
    pub(crate) fn rows(self) -> Vec<(u64, Shape)> {
        self.segments.into_iter().flat_map(|kept| kept.rows).collect()
    }

    /// What the index is to be told; nothing where there is nothing new.
    pub(crate) fn into_rows(self, name: &str, indexed: Option<u64>) -> Option<PackRows> {
        let from = indexed.unwrap_or(0);
        let news = self.end > from.max(PACK_HEAD_BYTES);
        news.then(|| PackRows { name: name.to_owned(), from, to: self.end, rows: self.rows() })
    }
}

/// Brings the index up to what the packs hold. Costs a list of the folder where nothing is to be done.
pub(crate) fn refresh(dir: &Path, index: &mut Index) -> Result<(), StoreError> {
    let packs = open::list_packs(dir)?;
    let known = index.packs().map_err(|source| index_error(dir, source))?;
    let mut known: HashMap<String, u64> = known.into_iter().collect();
    for (name, len) in packs {
        let indexed = known.remove(&name).unwrap_or(PACK_HEAD_BYTES);
        if len > indexed {
            catch_up(dir, index, &name)?;
        }
    }
    for name in known.into_keys() {
        // It may have been made after the folder was listed.
        if linux::identity(&open::pack_path(dir, &name)).is_none() {
            index.forget_pack(&name).map_err(|source| index_error(dir, source))?;
        }
    }
    Ok(())
}

/// Indexes the end of a pack, unless a writer is at it.
fn catch_up(dir: &Path, index: &mut Index, name: &str) -> Result<(), StoreError> {
    let Some(file) = lock_pack(dir, name)? else { return Ok(()) };
    let indexed = index.indexed_bytes(name).map_err(|source| index_error(dir, source))?;
    let tail = scan(dir, name, &file, indexed)?;
    if let Some(rows) = tail.into_rows(name, indexed) {
        index.record(&[rows]).map_err(|source| index_error(dir, source))?;
    }
    Ok(())
}

/// The pack with its lock held; nothing where someone else holds it or it is gone.
fn lock_pack(dir: &Path, name: &str) -> Result<Option<File>, StoreError> {
    let path = open::pack_path(dir, name);
    let locked = linux::open_write(&path).and_then(|file| Ok(linux::try_lock(&file)?.then_some(file)));
    match locked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map_err(|source| StoreError::ReadPack { path, source }),
    }
}

/// Reads a pack from where the index ends. What it returns is durable.
pub(crate) fn scan(dir: &Path, name: &str, file: &File, indexed: Option<u64>) -> Result<Tail, StoreError> {
    let path = open::pack_path(dir, name);
    let from = indexed.unwrap_or(0).max(PACK_HEAD_BYTES);
    let len = file.metadata().map_err(|source| StoreError::ReadPack { path: path.clone(), source })?.len();
    if len > from {
        file.sync_data().map_err(|source| StoreError::SyncPack { path, source })?;
        if indexed.is_none() {
            let path = open::packs_dir(dir);
            linux::sync_dir(&path).map_err(|source| StoreError::SyncPack { path, source })?;
        }
        linux::drop_cache(file, from);
    }
    let tail = read_tail(file, from, len);
    Ok(if indexed.is_some() { tail.without_torn_end() } else { tail })
}

/// Which segments between `from` and `len` are kept: those before the first gap, and those behind it if a writer
/// finished there. A gap in what nobody finished is what a crash left of it.
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
    /// Builds the index anew from the packs alone, and says how they are. Packs that a writer is at keep the rows
    /// they have.
    ///
    /// # Errors
    /// When the packs cannot be listed, or the index fails.
    pub fn rebuild_index(&self) -> Result<Report, StoreError> {
        for (name, _) in open::list_packs(self.dir())? {
            let Some(file) = lock_pack(self.dir(), &name)? else { continue };
            let tail = scan(self.dir(), &name, &file, None)?;
            self.with_index(|index| index.forget_pack(&name))?;
            if let Some(rows) = tail.into_rows(&name, None) {
                self.with_index(|index| index.record(std::slice::from_ref(&rows)))?;
            }
        }
        self.refresh()?;
        self.validate(Depth::Quick, &|_, _| {})
    }
}
