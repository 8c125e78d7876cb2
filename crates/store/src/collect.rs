//! Collecting: packs in which much is dead are emptied into others and deleted, while captures go on.
//!
//! In: what is live, asked for twice. Out: what was freed. Why nothing that anybody needs can go is in
//! `docs/decisions/0010-collecting-garbage.md`. Killed at any instant it has lost nothing, and the next one begins anew.

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
/// So many names of deleted packs are remembered. What relies on an older one has to look for itself.
const RETIRED_MAX: usize = 4096;

/// How to collect.
pub struct Collecting<'a> {
    /// A pack is emptied when so many percent of it are dead.
    pub dead_percent: u64,
    /// How long to wait for those who use the store.
    pub patience: Duration,
    /// Asked now and then whether to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// How a collection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// All packs that should go are gone.
    #[default]
    Done,
    /// Somebody else collects.
    Busy,
    /// Somebody used the store for longer than one wanted to wait, or one was told to stop. What was done until then is done.
    Stopped,
}

/// What a collection did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// How it ended.
    pub outcome: Outcome,
    /// Packs that are gone.
    pub packs: u64,
    /// Objects that are gone.
    pub objects: u64,
    /// By how much the packs together are shorter.
    pub freed_bytes: u64,
    /// What is dead and stays, in packs where it is too little to be worth the copying.
    pub dead_bytes: u64,
    /// Packs that should have gone and stay: somebody writes to them, or something in them is damaged.
    pub packs_left: u64,
}

/// What becomes of a pack once it is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is deleted.
    Deleted,
    /// It is put aside, for people to look at.
    Quarantined,
}

/// What became of one pack.
enum Emptied {
    Gone {
        objects: u64,
        freed_bytes: u64,
    },
    Left,
    /// The index is another one than the one in which the dead were condemned.
    Rebuilt,
}

/// Packs to empty, and the token under which the dead objects in them were condemned.
struct Condemned {
    packs: Vec<Weighed>,
    token: i64,
}

impl Store {
    /// Frees the space of objects that nobody needs. `mark` adds to the set every object that somebody needs; it is called a second
    /// time for what was put on record since the first.
    ///
    /// # Errors
    /// When the store or `mark` fails. Nothing that is needed is gone then.
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
        // Whatever happened: what is still there may be used again.
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

    /// The packs in which enough is dead, oldest first.
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

    /// Moves what is not condemned out of a pack, and deletes it.
    fn empty_pack(&self, name: &str, token: i64, live: &HashSet<ObjectId>) -> Result<Emptied, StoreError> {
        let Some(file) = recover::lock_pack(self.dir(), name)? else { return Ok(Emptied::Left) };
        // An index that others replaced is not the one with the name any more, and still has the token.
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
                // What is damaged is for `repair`, which says what is lost.
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

    /// Whether the index leads to every live object of a pack. It does not lead to one that was damaged when the index was built, and
    /// what is left of that must not go with the pack.
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
                // Behind what counted it is what a crash left; before, something that counted is destroyed.
                Ok(Some(Step::Gap { to })) if at >= indexed => to,
                Ok(Some(Step::Gap { .. })) | Err(_) => return Ok(false),
            };
        }
    }

    /// Puts a damaged pack aside; what can be read in it is moved to another first. Says how many objects were, or nothing where
    /// somebody writes to it.
    ///
    /// # Errors
    /// When the store fails; the pack is still there then.
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

    /// Where packs are put aside.
    pub fn quarantine_dir(&self) -> std::path::PathBuf {
        self.dir().join("quarantine")
    }

    /// Lets go of a pack that nothing leads to any more. Its lock is held.
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

    /// The names of packs that were emptied and deleted: what was in them and is needed is elsewhere.
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

/// Every object in a pack that its segments name, as far as the disk gives them.
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
