//! Garbage collection: copies the live objects of mostly dead packs to other packs and deletes the old packs,
//! while captures run.
//!
//! In: the live objects, requested twice. Out: the freed space. The safety argument is in
//! `docs/decisions/0010-collecting-garbage.md`. A kill at any point loses nothing; the next collection starts
//! over.

use crate::frame::{self, Shape};
use crate::index::Place;
use crate::linux::Locked;
use crate::open;
use crate::pack::{self, PACK_HEAD_BYTES, Step};
use crate::weigh::Weighed;
use crate::{Store, StoreError, linux, recover};
use safepoint_model::ObjectId;
use safepoint_planted::planted;
use std::collections::HashSet;
use std::io;
use std::time::Duration;

const RETIRED_FILE: &str = "retired";
/// Maximum number of deleted packs whose names are kept. References to older packs must be checked
/// separately.
const RETIRED_MAX: usize = 4096;

/// Options of a garbage collection.
pub struct Collecting<'a> {
    /// Minimum percentage of dead bytes for a pack to be emptied.
    pub dead_percent: u64,
    /// Maximum time to wait for users of the store.
    pub patience: Duration,
    /// Returns true to stop the collection; polled regularly.
    pub stop: &'a dyn Fn() -> bool,
}

/// End state of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// All selected packs are deleted.
    #[default]
    Done,
    /// Another process is collecting.
    Busy,
    /// The wait for users timed out, or `stop` returned true. Completed work is kept.
    Stopped,
}

/// Result of a garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// End state.
    pub outcome: Outcome,
    /// Number of deleted packs.
    pub packs: u64,
    /// Number of deleted objects.
    pub objects: u64,
    /// Reduction of the total pack length.
    pub freed_bytes: u64,
    /// Dead bytes that remain in packs below the threshold.
    pub dead_bytes: u64,
    /// Selected packs that remain because they are being written to or contain damage.
    pub packs_left: u64,
}

/// Final treatment of an emptied pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The pack is deleted.
    Deleted,
    /// The pack is moved to quarantine for inspection.
    Quarantined,
}

/// Result of emptying one pack.
enum Emptied {
    Gone {
        objects: u64,
        freed_bytes: u64,
    },
    Left,
    /// The index was rebuilt after the dead objects were condemned in it.
    Rebuilt,
}

/// Packs to empty, and the token under which their dead objects were condemned.
struct Condemned {
    packs: Vec<Weighed>,
    token: i64,
}

impl Store {
    /// Frees the space of dead objects. `mark` adds every live object to the set; it is called again for
    /// objects recorded after the first call.
    ///
    /// # Errors
    /// When the store or `mark` fails. No live object is lost.
    pub fn collect<E: From<StoreError>>(
        &self,
        how: &Collecting<'_>,
        mark: &mut dyn FnMut(&mut HashSet<ObjectId>) -> Result<(), E>,
    ) -> Result<Collected, E> {
        let failed = |source| StoreError::Collect { path: self.dir().to_owned(), source };
        let Some(_right) = self.collector().map_err(failed)? else {
            return Ok(Collected { outcome: Outcome::Busy, ..Collected::default() });
        };
        self.follow_index()?;
        self.refresh()?;
        self.with_index(|index| index.absolve(None))?;
        let mut live = HashSet::new();
        mark(&mut live)?;
        let mut collected = Collected::default();
        let chosen = self.choose(&live, how.dead_percent, &mut collected)?;
        if chosen.is_empty() {
            return Ok(collected);
        }
        let token = new_token().map_err(failed)?;
        let dead: Vec<ObjectId> = chosen.iter().flat_map(|weighed| weighed.dead.iter().copied()).collect();
        self.with_index(|index| index.condemn(&dead, token))?;
        let condemned = Condemned { packs: chosen, token };
        let result = self.collect_condemned(how, &condemned, &mut live, mark, &mut collected);
        // On every outcome, objects that still exist become usable again.
        self.with_index(|index| index.absolve(None))?;
        result.map(|()| collected)
    }

    fn collect_condemned<E: From<StoreError>>(
        &self,
        how: &Collecting<'_>,
        condemned: &Condemned,
        live: &mut HashSet<ObjectId>,
        mark: &mut dyn FnMut(&mut HashSet<ObjectId>) -> Result<(), E>,
        collected: &mut Collected,
    ) -> Result<(), E> {
        let failed = |source| StoreError::Collect { path: self.dir().to_owned(), source };
        if !planted!("collect-does-not-wait")
            && !self.wait_for_users(how.patience, how.stop).map_err(failed)?
        {
            collected.outcome = Outcome::Stopped;
            return Ok(());
        }
        if !planted!("collect-marks-once") {
            mark(live)?;
        }
        self.with_index(|index| index.absolve(Some(live)))?;
        for Weighed { name, .. } in &condemned.packs {
            if (how.stop)() {
                collected.outcome = Outcome::Stopped;
                return Ok(());
            }
            match self.empty_pack(name, condemned.token, live)? {
                Emptied::Gone { objects, freed_bytes } => {
                    collected.packs += 1;
                    collected.objects += objects;
                    collected.freed_bytes += freed_bytes;
                }
                Emptied::Left => collected.packs_left += 1,
                Emptied::Rebuilt => {
                    collected.outcome = Outcome::Stopped;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the packs with enough dead bytes, oldest first.
    fn choose(
        &self,
        live: &HashSet<ObjectId>,
        dead_percent: u64,
        collected: &mut Collected,
    ) -> Result<Vec<Weighed>, StoreError> {
        let worth = |weighed: &Weighed| {
            weighed.dead_bytes > 0 && weighed.dead_bytes * 100 >= weighed.used_bytes * dead_percent
        };
        let (mut chosen, others): (Vec<_>, Vec<_>) = self.weigh(live)?.into_iter().partition(worth);
        chosen.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        collected.dead_bytes = others.iter().map(|weighed| weighed.dead_bytes).sum();
        Ok(chosen)
    }

    /// Moves the objects of a pack that are not condemned to other packs, and deletes the pack.
    fn empty_pack(&self, name: &str, token: i64, live: &HashSet<ObjectId>) -> Result<Emptied, StoreError> {
        let Some(file) = recover::lock_pack(self.dir(), name)? else { return Ok(Emptied::Left) };
        // A replaced index no longer has the name but still has the token.
        self.follow_index()?;
        if self.with_index(|index| index.collection())? != Some(token) {
            return Ok(Emptied::Rebuilt);
        }
        if !self.accounts_for(name, &file, live)? {
            return Ok(Emptied::Left);
        }
        let (kept, objects) = self.with_index(|index| index.of_pack(name))?;
        let before = file_len(&file);
        let writer = self.writer()?.beyond_limit();
        let mut frame = Vec::new();
        let mut scratch = Vec::new();
        for Place { at, shape, .. } in &kept {
            let read = pack::read_frame(&file, *at, shape.stored_len, &mut frame);
            if read.is_err() || frame::decode(shape, &frame, &mut scratch).is_err() {
                // Damaged objects are left to `repair`, which reports the loss.
                return Ok(Emptied::Left);
            }
            writer.copy(*shape, &frame)?;
        }
        if planted!("collect-deletes-before-copy") {
            self.part_with(name, Fate::Deleted)?;
            let written = writer.finish()?;
            return Ok(Emptied::Gone { objects, freed_bytes: before.saturating_sub(written.stored_bytes) });
        }
        let written = writer.finish()?;
        self.part_with(name, Fate::Deleted)?;
        Ok(Emptied::Gone { objects, freed_bytes: before.saturating_sub(written.stored_bytes) })
    }

    /// Returns true if the index finds every live object of a pack. An object that was damaged when the index
    /// was built has no row, and its remains must not be deleted with the pack.
    fn accounts_for(&self, name: &str, file: &Locked, live: &HashSet<ObjectId>) -> Result<bool, StoreError> {
        let indexed = self.with_index(|index| index.indexed_bytes(name))?.unwrap_or(PACK_HEAD_BYTES);
        let (len, mut at) = (file_len(file), PACK_HEAD_BYTES);
        loop {
            at = match pack::next(file, at, len) {
                Ok(None) => return Ok(true),
                Ok(Some(Step::Segment(found))) => {
                    for entry in found.entries.iter().filter(|entry| live.contains(&entry.shape.id)) {
                        if self.with_index(|index| index.find(entry.shape.id))?.is_none() {
                            return Ok(false);
                        }
                    }
                    found.end()
                }
                // A gap behind the indexed length is a torn tail; before it, committed data is destroyed.
                Ok(Some(Step::Gap { to })) if at >= indexed => to,
                Ok(Some(Step::Gap { .. })) | Err(_) => return Ok(false),
            };
        }
    }

    /// Moves a damaged pack to quarantine after its readable objects were copied to another pack. Returns the
    /// number of copied objects, or `None` if the pack is being written to.
    ///
    /// # Errors
    /// When the store fails; the pack is not moved.
    pub fn quarantine(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let failed = |source| StoreError::Collect { path: self.dir().to_owned(), source };
        let Some(_right) = self.collector().map_err(failed)? else { return Ok(None) };
        let Some(file) = recover::lock_pack(self.dir(), name)? else { return Ok(None) };
        let writer = self.writer()?.beyond_limit();
        let mut moved = 0;
        let (mut frame, mut scratch) = (Vec::new(), Vec::new());
        for (at, shape) in readable(&file) {
            let elsewhere = self.with_index(|index| index.find(shape.id))?.filter(|place| place.pack != name);
            if let Some(place) = elsewhere
                && matches!(self.read_place(&place), Ok(Ok(_)))
            {
                continue;
            }
            let read = pack::read_frame(&file, at, shape.stored_len, &mut frame);
            if read.is_ok() && frame::decode(&shape, &frame, &mut scratch).is_ok() {
                writer.copy(shape, &frame)?;
                moved += 1;
            }
        }
        writer.finish()?;
        self.part_with(name, Fate::Quarantined)?;
        Ok(Some(moved))
    }

    /// Returns the quarantine folder.
    pub fn quarantine_dir(&self) -> std::path::PathBuf {
        self.dir().join("quarantine")
    }

    /// Deletes or quarantines a pack that no row refers to. The caller holds its lock.
    fn part_with(&self, name: &str, fate: Fate) -> Result<(), StoreError> {
        let failed = |source| StoreError::Collect { path: self.pack_path(name), source };
        self.with_index(|index| index.forget_pack(name))?;
        let packs = open::packs_dir(self.dir());
        match fate {
            Fate::Deleted => {
                self.retire(name).map_err(failed)?;
                linux::remove(&packs, &linux::pack_file(name)).map_err(failed)?;
            }
            Fate::Quarantined => {
                linux::move_into(&packs, &linux::pack_file(name), &self.quarantine_dir()).map_err(failed)?;
            }
        }
        self.close(name);
        Ok(())
    }

    fn retire(&self, name: &str) -> io::Result<()> {
        let mut names = self.retired()?;
        names.push(name.to_owned());
        let skip = names.len().saturating_sub(RETIRED_MAX);
        linux::put_file(self.dir(), RETIRED_FILE, (names[skip..].join("\n") + "\n").as_bytes())
    }

    /// Returns the names of emptied and deleted packs. Their live objects are in other packs.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn retired(&self) -> io::Result<Vec<String>> {
        let text = linux::read_small(&self.dir().join(RETIRED_FILE))?.unwrap_or_default();
        Ok(text.lines().map(str::to_owned).collect())
    }
}

fn file_len(file: &Locked) -> u64 {
    file.metadata().map_or(0, |meta| meta.len())
}

/// Returns every object listed by the readable segments of a pack.
fn readable(file: &Locked) -> Vec<(u64, Shape)> {
    let (len, mut at, mut out) = (file_len(file), PACK_HEAD_BYTES, Vec::new());
    while let Ok(Some(step)) = pack::next(file, at, len) {
        at = match step {
            Step::Gap { to } => to,
            Step::Segment(found) => {
                out.extend(found.entries.iter().map(|entry| (found.frame_at(entry), entry.shape)));
                found.end()
            }
        };
    }
    out
}

fn new_token() -> io::Result<i64> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(i64::from_le_bytes(bytes))
}
