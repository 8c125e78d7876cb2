//! Simulated disk that forgets unsynced data: from folders and the ops of a [`Recording`] to [`Image`]s, the
//! possible contents after a power cut at this point.
//!
//! # The fault model
//!
//! As weak as POSIX allows and real file systems have been seen to be:
//!
//! * Writes and truncates of a file are pending until `fsync` or `fdatasync` of that file, or
//!   `syncfs`/`sync`. Any subset of the pending ones may have reached the disk, in any order. A lost one
//!   leaves the old bytes, or zeros beyond the old end. In [`Crash::Random`] a write may also be torn: at
//!   multiples of 512 if it overwrites, of 4096 if it appends; and a lost append may have left its length
//!   behind, as zeros.
//! * Modes, extended attributes and times are pending until `fsync` of the file (not `fdatasync`), or
//!   `syncfs`/`sync`.
//! * Changes of names (create, mkdir, link, symlink, unlink, rmdir, rename, exchange) are each atomic, even
//!   across two folders. They are pending until `fsync` or `fdatasync` of a folder they touch, or
//!   `syncfs`/`sync`. `fsync` of a new file does **not** make its name durable, unless [`Disk::strict_names`]
//!   is off.
//! * Pending changes of names may persist in any subset that is closed under dependency. A change depends on
//!   the earlier ones of the same names, on the mkdir of its folders, and on everything in a folder it
//!   removes. A move of a folder depends on earlier moves of folders (else folders could end up inside
//!   themselves).
//! * A name that persists without its file's data gives the file as far as it was synced: empty, if never.
//!
//! Not modelled: bad sectors, reordering around a sync that reported success, syncs that fail, owners.

mod image;
mod pending;
mod state;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::op::{FileId, Op, Recording};
use crate::record::{first_id, merged_roots};
pub use image::Image;
pub(crate) use pending::Dice;
use pending::Pending;
use state::State;

/// Maximum number of pending ops to lose or keep one by one; above it, a sample is used.
const ONE_BY_ONE: usize = 64;

/// Fate of the pending ops at a power cut. Numbers are positions among the pending ops, from 0 up to
/// [`Disk::pending`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// None persists.
    LoseAll,
    /// All persist.
    KeepAll,
    /// All persist except this one and its dependents.
    LoseOne(usize),
    /// Only this one and its dependencies persist.
    KeepOne(usize),
    /// Names and attributes without data: a write-back that stopped after the journal.
    NamesOnly,
    /// Data and attributes without names.
    DataOnly,
    /// Random subset; the same seed gives the same subset.
    Random(u64),
}

/// Simulated disk: durable state and pending ops.
#[derive(Clone)]
pub struct Disk {
    roots: Vec<(PathBuf, FileId)>,
    durable: State,
    /// Durable state and all pending ops: the program's view.
    volatile: State,
    pending: Vec<Pending>,
    /// True: `fsync` of a file leaves its name pending. False: it also commits the names, as common file
    /// systems do.
    pub strict_names: bool,
}

impl Disk {
    /// Loads the roots as durable state.
    pub fn load(roots: &[PathBuf]) -> io::Result<Disk> {
        let mut durable = State::default();
        let mut ids = Vec::new();
        for root in merged_roots(roots)? {
            let id = first_id(&std::fs::metadata(&root)?);
            durable.load(&root)?;
            ids.push((root, id));
        }
        let volatile = durable.clone();
        Ok(Disk { roots: ids, durable, volatile, pending: Vec::new(), strict_names: true })
    }

    /// Applies an op: a change becomes pending, a sync makes changes durable.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Fsync { file, .. } => {
                let named = !self.strict_names;
                self.commit(|p| p.is_of(*file) || p.is_in(*file) || (named && p.names(*file)));
            }
            // Entries are the data of a folder; SQLite syncs folders this way.
            Op::Fdatasync { file, .. } => {
                self.commit(|p| p.is_data_of(*file) || p.is_in(*file));
            }
            Op::Syncfs { dev, .. } => self.commit(|p| p.is_on(*dev)),
            Op::Sync => self.commit(|_| true),
            change => {
                let pending = Pending::new(change, &self.volatile);
                // The inode itself exists, with or without a name.
                self.durable.bear(change);
                self.volatile.bear(change);
                self.volatile.apply(change);
                if !matches!(change, Op::Orphan { .. }) {
                    self.pending.push(pending);
                }
            }
        }
    }

    /// Returns the number of changes that a power cut could undo.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the changes that a power cut could undo, in order.
    pub fn pending_ops(&self) -> impl Iterator<Item = &Op> {
        self.pending.iter().map(|p| &p.op)
    }

    fn commit(&mut self, chosen: impl Fn(&Pending) -> bool) {
        let mut keep: Vec<bool> = self.pending.iter().map(chosen).collect();
        pending::with_needed(&self.pending, &mut keep);
        let mut rest = Vec::new();
        for (p, keep) in std::mem::take(&mut self.pending).into_iter().zip(keep) {
            match keep {
                true => self.durable.apply(&p.op),
                false => rest.push(p),
            }
        }
        self.pending = rest;
    }

    /// Returns the content of the disk after a power cut now.
    pub fn crash(&self, how: &Crash) -> Image {
        let count = self.pending.len();
        let state = match *how {
            Crash::LoseAll => self.durable.clone(),
            Crash::KeepAll => self.volatile.clone(),
            Crash::LoseOne(lost) => {
                let mut keep: Vec<bool> = (0..count).map(|i| i != lost).collect();
                pending::without_orphaned(&self.pending, &mut keep);
                self.with(&keep)
            }
            Crash::KeepOne(kept) => {
                let mut keep: Vec<bool> = (0..count).map(|i| i == kept).collect();
                pending::with_needed(&self.pending, &mut keep);
                self.with(&keep)
            }
            Crash::NamesOnly => self.with(&self.pending.iter().map(|p| !p.is_data()).collect::<Vec<_>>()),
            Crash::DataOnly => self.with(&self.pending.iter().map(|p| !p.is_name()).collect::<Vec<_>>()),
            Crash::Random(seed) => self.random(&mut Dice::new(seed)),
        };
        Image::new(&self.roots, &state)
    }

    fn with(&self, keep: &[bool]) -> State {
        let mut state = self.durable.clone();
        for (p, _) in self.pending.iter().zip(keep).filter(|(_, keep)| **keep) {
            state.apply(&p.op);
        }
        state
    }

    fn random(&self, dice: &mut Dice) -> State {
        // Some cuts come early in the write-back, some late.
        let quarters = 1 + dice.below(3);
        let mut keep: Vec<bool> = self.pending.iter().map(|_| dice.below(4) < quarters).collect();
        pending::without_orphaned(&self.pending, &mut keep);
        let mut state = self.durable.clone();
        for (p, keep) in self.pending.iter().zip(keep) {
            match keep {
                true if dice.below(4) == 0 => state.apply_torn(&p.op, dice),
                true => state.apply(&p.op),
                false if dice.below(4) == 0 => state.apply_length_only(&p.op),
                false => {}
            }
        }
        state
    }
}

/// Returns at most [`ONE_BY_ONE`] of `count` positions: the newest, because the others were the newest at
/// earlier points, and a spread over the rest.
fn sample(count: usize) -> impl Iterator<Item = usize> {
    let rest = match count <= ONE_BY_ONE {
        true => 0,
        false => count - ONE_BY_ONE / 2,
    };
    let step = rest.div_ceil(ONE_BY_ONE / 2).max(1);
    (0..rest).step_by(step).chain(rest..count)
}

/// Returns the states that a power cut now may leave: all lost, all kept, names or data only, each single op
/// lost or kept (sampled if there are many), and `randoms` random ones; each different image once.
pub fn crash_states(disk: &Disk, randoms: u32, seed: u64) -> Vec<(Crash, Image)> {
    let mut hows = vec![Crash::LoseAll, Crash::KeepAll];
    if disk.pending() > 0 {
        hows.extend(sample(disk.pending()).map(Crash::LoseOne));
        hows.extend(sample(disk.pending()).map(Crash::KeepOne));
        hows.extend([Crash::NamesOnly, Crash::DataOnly]);
        let seeds = (0..randoms).map(|i| seed.wrapping_mul(1_000_003).wrapping_add(i.into()));
        hows.extend(seeds.map(Crash::Random));
    }
    let mut seen = HashSet::new();
    let images = hows.into_iter().map(|how| (how, disk.crash(&how)));
    images.filter(|(_, image)| seen.insert(image.digest())).collect()
}

/// Power cut to try: after `done` ops of the recording.
pub struct Cut<'a> {
    pub done: usize,
    /// Op before the cut.
    pub after: Option<&'a Op>,
    /// True at the end of the recording: then only the new state is valid.
    pub last: bool,
    pub how: Crash,
    pub image: &'a Image,
}

impl fmt::Debug for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { done, after, how, image, .. } = self;
        write!(f, "cut after {done} ops ({after:?}), {how:?}, leaving {image:?}")
    }
}

/// Replays a recording and calls `check` for the power cuts at every point, from before the first op until
/// after the last. Repeated images are skipped, except at the end, where more is required. Returns the number
/// of images tried.
pub fn every_cut(
    start: &Disk,
    recording: &Recording,
    randoms: u32,
    seed: u64,
    mut check: impl FnMut(&Cut<'_>) -> io::Result<()>,
) -> io::Result<usize> {
    let mut disk = start.clone();
    let mut seen = HashSet::new();
    let mut tried = 0;
    let count = recording.ops.len();
    for done in 0..=count {
        let after = done.checked_sub(1).and_then(|i| recording.ops.get(i));
        if let Some(op) = after {
            disk.apply(op);
        }
        let last = done == count;
        for (how, image) in crash_states(&disk, randoms, seed.wrapping_add(done as u64)) {
            if seen.insert(image.digest()) || last {
                tried += 1;
                check(&Cut { done, after, last, how, image: &image })?;
            }
        }
    }
    Ok(tried)
}
