//! Second comparison of directories after the walk: a directory that moves during the walk can be missed at
//! its old and its new place.
//!
//! Input: every directory as read, [`Seen`]. Output: the same, with changed directories read again, at most
//! [`READ_AGAIN_MAX`] times. A directory whose earlier names keep changing is reported as unsettled.
//!
//! The law: if a comparison of all directories finds no change, then at its start each directory held exactly
//! what was captured of it. A directory's ctime changes with every change of its names, unless two changes
//! fall into one clock tick. So a directory changed just before it was read is listed again after the tick.
//! The walk keeps no handles, and four bytes per entry.

use super::database::beside_others;
use super::ruling::{Above, Keep, Ruling};
use super::{Done, Folder, Found, Here, Item, Notes, Walk, What, file, is_out_of_handles, join, told_odd};
use crate::cache::Place;
use crate::error::WorkspaceError;
use crate::linux::{self, Facts, Names};
use crate::root::Root;
use crate::rules::Rules;
use crate::scan::{ScanOptions, unreadable};
use rayon::prelude::*;
use safepoint_model::coverage::Why;
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectId, RelPath};
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Maximum number of rereads of a directory; after that it is only checked, and reported if it changes.
const READ_AGAIN_MAX: u32 = 3;
/// Pauses before these checks. A single check may see an entry that moves between two directories in neither.
/// Several irregular checks match no rhythm.
const PAUSES_MS: [u64; 6] = [0, 1, 2, 3, 5, 8];

/// Maximum number of listings in a row in which a name is gone before it is classified.
const LISTINGS_MAX: u32 = 16;

/// Clock of file timestamps, with the start of the capture.
pub(super) struct Clock {
    started_ns: i64,
    /// Newest timestamp of a directory changed just before it was read.
    newest_ns: AtomicI64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { started_ns: file::now_ns(), newest_ns: AtomicI64::new(i64::MIN) }
    }

    /// Returns true if an entry existed before the capture began. Without a creation time, a directory counts
    /// as older, and a file is judged by its mtime.
    fn is_older(&self, facts: &Facts) -> bool {
        match facts.born_ns {
            0 => facts.file_type.is_dir() || facts.mtime_ns <= self.started_ns,
            born => born <= self.started_ns,
        }
    }

    /// Returns the mark of a captured entry.
    pub(super) fn mark(&self, facts: &Facts, trusted: bool) -> Mark {
        let flags = u32::from(trusted) * Mark::TRUSTED + u32::from(self.is_older(facts)) * Mark::OLDER;
        Mark(Mark::identity(facts) | flags)
    }

    /// Waits until another change of any directory read would change its timestamp.
    fn wait_for_tick(&self) {
        let newest = self.newest_ns.swap(i64::MIN, Ordering::Relaxed);
        linux::wait_for_tick(newest);
    }
}

/// Compact record of an entry: inode bits, trusted by the cache, older than the capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(u32);

impl Mark {
    const TRUSTED: u32 = 1;
    const OLDER: u32 = 2;
    const FLAGS: u32 = Self::TRUSTED | Self::OLDER;

    fn identity(facts: &Facts) -> u32 {
        let mixed = (facts.ino ^ facts.born_ns.cast_unsigned().rotate_left(32))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed >> 32) as u32) & !Self::FLAGS
    }

    fn is_of(self, facts: &Facts) -> bool {
        self.0 & !Self::FLAGS == Self::identity(facts)
    }

    fn is_same(self, other: Self) -> bool {
        self.0 & !Self::FLAGS == other.0 & !Self::FLAGS
    }

    fn is_trusted(self) -> bool {
        self.0 & Self::TRUSTED != 0
    }

    fn is_older(self) -> bool {
        self.0 & Self::OLDER != 0
    }
}

/// Identity and ctime of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    ino: u64,
    born_ns: i64,
    ctime_ns: i64,
    /// True if another change might leave the same timestamp.
    is_young: bool,
}

impl Stamp {
    /// Returns the stamp of a directory before its listing. `looked_at_ns` must be from before `facts`.
    pub(super) fn new(clock: &Clock, facts: &Facts, looked_at_ns: i64) -> Self {
        let Facts { ino, born_ns, ctime_ns, .. } = *facts;
        let is_young = !file::is_old_enough(facts, looked_at_ns);
        if is_young {
            clock.newest_ns.fetch_max(ctime_ns, Ordering::Relaxed);
        }
        Self { ino, born_ns, ctime_ns, is_young }
    }

    fn is_of(&self, facts: &Facts) -> bool {
        facts.file_type.is_dir() && (self.ino, self.born_ns) == (facts.ino, facts.born_ns)
    }

    fn is_unchanged(&self, facts: &Facts) -> bool {
        self.is_of(facts) && self.ctime_ns == facts.ctime_ns
    }
}

/// Directory as read: its tree, and the data to detect a change and to reread it without rereading its files.
pub(super) struct Seen {
    /// Empty for the root.
    pub(super) name: Box<[u8]>,
    pub(super) tree: ObjectId,
    /// Taken before the listing.
    stamp: Stamp,
    ruling: Ruling,
    pub(super) block: Option<Place>,
    /// Bytes of that block and all blocks below it.
    pub(super) block_bytes: u64,
    /// True if an entry differs from the cache.
    pub(super) fresh: bool,
    /// True if the directory is still at its path; set by the comparison.
    is_there: bool,
    /// True if an entry older than the capture left or entered between the last two reads.
    is_restless: bool,
    /// Entries and file bytes, without subdirectories.
    count: u64,
    bytes: u64,
    notes: Option<Box<Notes>>,
    /// New metadata of the directory itself, for its parent.
    pub(super) meta: Option<Box<Meta>>,
    /// Mark of each tree entry.
    marks: Box<[Mark]>,
    /// Subdirectories, sorted by name.
    below: Vec<Seen>,
}

/// Result of comparing a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Same,
    Changed,
    /// Not at its path, or no longer capturable.
    Lost,
}

/// Relation of a file to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kin {
    None,
    /// The whole database is unchanged.
    Whole,
    /// The whole database is unchanged, and this sidecar was left out.
    LeftOut,
    /// A part of the database changed.
    Broken,
}

/// Names of a directory, classified.
struct Listing<'a> {
    /// Taken before the listing.
    stamp: Stamp,
    items: Vec<Item<'a>>,
    /// True if each listed name was still there when it was classified.
    is_whole: bool,
    /// True if the directory did not change since it was read.
    is_unchanged: bool,
}

/// Action for a changed directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    ReadAgain,
    /// Report it if its earlier names keep changing.
    Judge,
}

impl Seen {
    pub(super) fn new(tree: ObjectId, stamp: Stamp, ruling: Ruling, found: Found) -> Self {
        let Found { count, bytes, notes, block, block_bytes, fresh, below, marks } = found;
        Self {
            name: Box::default(),
            tree,
            stamp,
            ruling,
            block,
            block_bytes,
            fresh,
            is_there: true,
            is_restless: false,
            count,
            bytes,
            notes: (notes != Notes::default()).then(|| Box::new(notes)),
            meta: None,
            marks: marks.into_boxed_slice(),
            below,
        }
    }

    /// Sums entries, file bytes and reports of this directory and all below.
    pub(super) fn sum_up(self) -> (u64, u64, Notes) {
        let mut sum = (0, 0, Notes::default());
        self.add_to(&mut sum);
        sum
    }

    fn add_to(self, sum: &mut (u64, u64, Notes)) {
        sum.0 += self.count;
        sum.1 += self.bytes;
        if let Some(notes) = self.notes {
            sum.2.skipped.extend(notes.skipped);
            sum.2.unsettled.extend(notes.unsettled);
            sum.2.warnings.extend(notes.warnings);
            sum.2.opaque.extend(notes.opaque);
        }
        self.below.into_iter().for_each(|below| below.add_to(sum));
    }

    /// Returns the captured entries; none if they cannot be read back.
    fn entries(&self, walk: &Walk<'_>) -> Vec<Entry> {
        let entries = Tree::load(walk.source, self.tree).map(Tree::into_entries).unwrap_or_default();
        if entries.len() == self.marks.len() { entries } else { Vec::new() }
    }
}

fn find(entries: &[Entry], name: &[u8]) -> Option<usize> {
    entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()
}

impl Walk<'_> {
    /// Compares every directory with its capture until none changed or the attempts are used up.
    pub(super) fn compare_again(
        &self,
        root: &Root,
        options: &ScanOptions<'_>,
        rules: &Rules,
        seen: &mut Seen,
    ) -> Result<(), WorkspaceError> {
        let failed = |source| unreadable(&RelPath::root(), source);
        let readings = (0..READ_AGAIN_MAX).map(|_| (Then::ReadAgain, 0));
        for (then, pause_ms) in readings.chain(PAUSES_MS.map(|pause_ms| (Then::Judge, pause_ms))) {
            std::thread::sleep(Duration::from_millis(pause_ms));
            self.clock.wait_for_tick();
            let started_ns = file::now_ns();
            let here = Here {
                fd: linux::open_place(root.fd(), b".").map_err(failed)?,
                path: RelPath::root(),
                depth: 0,
                rules: rules.clone(),
                keep: Keep::new(Above::Root(options.keep)),
                below: self.below_root(),
                only_kept: false,
                cached: None,
                started_ns,
                is_counted: true,
            };
            let facts = linux::facts_of(&here.fd).map_err(failed)?;
            match self.again(here, &facts, seen, then)? {
                After::Same => break,
                After::Changed => {}
                After::Lost => return Err(failed(io::Error::other("it can no longer be listed"))),
            }
        }
        Ok(())
    }

    /// Compares an open directory and all below it.
    fn again(
        &self,
        mut here: Here<'_>,
        facts: &Facts,
        seen: &mut Seen,
        then: Then,
    ) -> Result<After, WorkspaceError> {
        if self.progress.interrupted() {
            return Err(WorkspaceError::Interrupted);
        }
        let is_unchanged = seen.stamp.is_unchanged(facts);
        let mut below = std::mem::take(&mut seen.below);
        let mut below_is_same = true;
        if !below.is_empty() {
            let inside = seen.ruling.rules(&here.rules).clone();
            let outside = std::mem::replace(&mut here.rules, inside);
            below_is_same = self.all_below(&here, &mut below, then)?;
            here.rules = outside;
        }
        seen.below = below;
        match then {
            _ if is_unchanged && below_is_same && !seen.stamp.is_young => Ok(After::Same),
            Then::ReadAgain => self.read_again(here, seen, below_is_same),
            Then::Judge => self.judge(here, seen),
        }
    }

    /// Compares the subdirectories; returns true if all are unchanged.
    fn all_below(&self, here: &Here<'_>, below: &mut [Seen], then: Then) -> Result<bool, WorkspaceError> {
        let compare = |seen: &mut Seen| {
            let after = self.one_below(here, seen, then)?;
            seen.is_there = after != After::Lost;
            Ok(after == After::Same)
        };
        if below.iter().filter(|seen| !seen.below.is_empty()).count() > 1 {
            return below.par_iter_mut().map(compare).try_reduce(|| true, |a, b| Ok(a && b));
        }
        let mut all = true;
        for seen in below {
            all &= compare(seen)?;
        }
        Ok(all)
    }

    fn one_below(&self, above: &Here<'_>, seen: &mut Seen, then: Then) -> Result<After, WorkspaceError> {
        let is_it = |facts: &Facts| facts.place == self.place && seen.stamp.is_of(facts);
        // Most directories have no subdirectories: one call is enough.
        if seen.below.is_empty() && !seen.stamp.is_young {
            match linux::facts_if_any(&above.fd, &seen.name) {
                Ok(Some(facts)) if !is_it(&facts) => return Ok(After::Lost),
                Ok(Some(facts)) if seen.stamp.is_unchanged(&facts) => return Ok(After::Same),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Ok(After::Lost),
            }
        }
        let path = join(&above.path, &seen.name)?;
        let fd = match linux::open_place(&above.fd, &seen.name) {
            Ok(fd) => fd,
            Err(error) if is_out_of_handles(&error) => return Err(unreadable(&path, error)),
            Err(_) => return Ok(After::Lost),
        };
        let facts = match linux::facts_of(&fd) {
            Ok(facts) if is_it(&facts) => facts,
            _ => return Ok(After::Lost),
        };
        let name = seen.name.clone();
        let here = Here {
            fd,
            path,
            depth: above.depth + 1,
            rules: above.rules.clone(),
            keep: Keep::new(Above::Below(&above.keep, &name)),
            below: Keep::new(Above::Below(&above.below, &name)),
            only_kept: seen.ruling.only_kept.0,
            cached: None,
            started_ns: above.started_ns,
            is_counted: true,
        };
        self.again(here, &facts, seen, then)
    }

    /// Lists a directory again and reads its new entries. Unchanged entries are reused.
    fn read_again(
        &self,
        mut here: Here<'_>,
        seen: &mut Seen,
        below_is_same: bool,
    ) -> Result<After, WorkspaceError> {
        here.started_ns = file::now_ns();
        here.fd = match linux::open_dir(&here.fd, b".") {
            Ok(fd) => fd,
            Err(error) if is_out_of_handles(&error) => return Err(unreadable(&here.path, error)),
            Err(_) => return Ok(After::Lost),
        };
        let (Ok(facts), Ok(names)) = (linux::facts_of(&here.fd), linux::names(&here.fd)) else {
            return Ok(After::Lost);
        };
        let Ok(read) = linux::read_meta(&here.fd, &facts) else { return Ok(After::Lost) };
        let meta = read.meta;
        let stamp = Stamp::new(&self.clock, &facts, here.started_ns);
        let outside = (here.rules.clone(), here.only_kept);
        let mut found = Found::default();
        let ruling = self.rule(&mut here, &names, &mut found)?.ok().filter(|ruling| *ruling == seen.ruling);
        let Some(ruling) = ruling else {
            (here.rules, here.only_kept) = outside;
            return self.read_anew(here, &names, seen, (stamp, meta));
        };
        let entries = seen.entries(self);
        let beside = beside_others(&names);
        let items = names.iter().map(|name| self.classify(&here, name, None));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        let is_restless = self.is_restless(seen, &entries, &items);
        let families = self.families(&here, &items, &beside, seen, &entries)?;
        let mut items = self.take_over(&here, items, seen, (&entries, &families))?;
        self.gather(&here, &mut items, &beside)?;
        let outcomes = self.work(&here, items)?;
        let tree = self.collect(&here, outcomes, None, &mut found)?;
        let mut now = Seen::new(tree, stamp, ruling, found);
        let held_still = linux::facts_of(&here.fd).is_ok_and(|after| seen.stamp.is_unchanged(&after));
        let is_same = held_still
            && below_is_same
            && seen.stamp.is_unchanged(&facts)
            && (now.tree, &now.notes) == (seen.tree, &seen.notes);
        if is_same {
            seen.below = now.below;
            return Ok(After::Same);
        }
        now.name = std::mem::take(&mut seen.name);
        now.meta = Some(Box::new(meta));
        now.is_restless = is_restless;
        *seen = now;
        Ok(After::Changed)
    }

    /// Walks a directory whose rules changed.
    fn read_anew(
        &self,
        here: Here<'_>,
        names: &Names,
        seen: &mut Seen,
        (stamp, meta): (Stamp, Meta),
    ) -> Result<After, WorkspaceError> {
        let Ok(mut now) = self.directory(here, names, stamp)? else { return Ok(After::Lost) };
        now.name = std::mem::take(&mut seen.name);
        now.meta = Some(Box::new(meta));
        // The parent's block contains the new reference.
        now.fresh = true;
        *seen = now;
        Ok(After::Changed)
    }

    /// Groups items that may be a database with sidecar files: they are reused all or none, because they were
    /// read at one moment.
    fn families(
        &self,
        here: &Here<'_>,
        items: &[Item<'_>],
        beside: &[(usize, usize)],
        seen: &Seen,
        entries: &[Entry],
    ) -> Result<Vec<Kin>, WorkspaceError> {
        let mut kin = vec![Kin::None; items.len()];
        if beside.is_empty() {
            return Ok(kin);
        }
        let skipped = seen.notes.as_ref().map_or(&[][..], |notes| &notes.skipped);
        let mut broken = Vec::new();
        for &(base, at) in beside {
            let is_base = self.as_read(here, &items[base], seen, entries)?.is_some();
            let path = join(&here.path, items[at].name()).ok();
            let was_left_out =
                skipped.iter().any(|it| it.why == Why::DatabaseSidecar && Some(&it.path) == path.as_ref());
            kin[base] = Kin::Whole;
            kin[at] = if was_left_out { Kin::LeftOut } else { Kin::Whole };
            if !is_base || !(was_left_out || self.as_read(here, &items[at], seen, entries)?.is_some()) {
                broken.push(base);
            }
        }
        for &(base, at) in beside.iter().filter(|(base, _)| broken.contains(base)) {
            (kin[base], kin[at]) = (Kin::Broken, Kin::Broken);
        }
        Ok(kin)
    }

    /// Returns the position of a file's entry if it is unchanged and was settled.
    fn as_read(
        &self,
        here: &Here<'_>,
        item: &Item<'_>,
        seen: &Seen,
        entries: &[Entry],
    ) -> Result<Option<usize>, WorkspaceError> {
        let Item::File { name, facts } = item else { return Ok(None) };
        let Some(at) = find(entries, name).filter(|at| is_still(&entries[*at], seen.marks[*at], facts))
        else {
            return Ok(None);
        };
        let path = join(&here.path, name)?;
        let was_unsettled = seen.notes.as_ref().is_some_and(|notes| notes.unsettled.contains(&path));
        Ok(Some(at).filter(|_| !was_unsettled))
    }

    /// Reuses earlier results for the items.
    fn take_over<'c>(
        &self,
        here: &Here<'_>,
        items: Vec<Item<'c>>,
        seen: &mut Seen,
        (entries, families): (&[Entry], &[Kin]),
    ) -> Result<Vec<Item<'c>>, WorkspaceError> {
        let mut below: Vec<Option<Seen>> = std::mem::take(&mut seen.below).into_iter().map(Some).collect();
        let names: Vec<Box<[u8]>> = below.iter().flatten().map(|below| below.name.clone()).collect();
        // A warning about an entry stays when its result is reused.
        let warnings = seen.notes.as_ref().map_or(&[][..], |notes| &notes.warnings);
        let was_odd = |name: &[u8]| -> Result<bool, WorkspaceError> {
            Ok(!warnings.is_empty() && warnings.contains(&told_odd(&join(&here.path, name)?)))
        };
        let taken = items.into_iter().zip(families).map(|(item, kin)| match item {
            item @ Item::File { .. } if *kin == Kin::Broken => Ok(item),
            Item::File { name, .. } if *kin == Kin::LeftOut => Ok(Item::LeftOut(name, Why::DatabaseSidecar)),
            Item::File { name, facts } => {
                let item = Item::File { name, facts };
                let Some(at) = self.as_read(here, &item, seen, entries)? else { return Ok(item) };
                let trusted =
                    seen.marks[at].is_trusted() && file::is_old_enough(&facts, self.clock.started_ns);
                let odd = was_odd(&entries[at].name)?;
                Ok(Item::held(entries[at].clone(), facts, trusted, (None, odd)))
            }
            Item::Directory(folder) => {
                let is_it = |below: &mut Seen| {
                    let is_same_rule = below.ruling.only_kept.0 == folder.only_kept;
                    below.is_there && below.stamp.is_of(&folder.facts) && is_same_rule
                };
                let slot = names.binary_search_by(|other| (**other).cmp(folder.name.as_slice())).ok();
                let found = slot.and_then(|slot| below[slot].take_if(is_it));
                let Some(mut found) = found else { return Ok(Item::Directory(folder)) };
                let meta = match found.meta.take() {
                    Some(meta) => *meta,
                    None => match find(entries, &folder.name) {
                        Some(at) => entries[at].meta.clone(),
                        None => return Ok(Item::Directory(folder)),
                    },
                };
                let Folder { name, facts, .. } = *folder;
                let trusted =
                    found.stamp.is_unchanged(&facts) && file::is_old_enough(&facts, self.clock.started_ns);
                let odd = was_odd(&name)?;
                let entry = Entry { name, meta, node: Node::Directory(found.tree) };
                Ok(Item::held(entry, facts, trusted, (Some(found), odd)))
            }
            other => Ok(other),
        });
        taken.collect()
    }

    /// Returns true if an entry older than the capture left or entered the directory since it was read.
    fn is_restless(&self, seen: &Seen, entries: &[Entry], items: &[Item<'_>]) -> bool {
        let was_left_out = |name: &[u8]| {
            let skipped = seen.notes.iter().flat_map(|notes| &notes.skipped);
            skipped.into_iter().any(|skipped| skipped.path.names().last() == Some(name))
        };
        let mut is_there = vec![false; entries.len()];
        for (name, mark) in items.iter().filter_map(|item| item.captured(&self.clock)) {
            let known = find(entries, name);
            known.into_iter().for_each(|at| is_there[at] = true);
            let is_known = known.map_or_else(|| was_left_out(name), |at| seen.marks[at].is_same(mark));
            if !is_known && mark.is_older() {
                return true;
            }
        }
        // Without the captured entries, assume a change.
        entries.len() != seen.marks.len()
            || is_there.iter().zip(&seen.marks).any(|(is_there, mark)| !is_there && mark.is_older())
    }

    /// Reports a directory that changed again if its older entries keep changing. New files alone are no
    /// reason.
    fn judge(&self, mut here: Here<'_>, seen: &mut Seen) -> Result<After, WorkspaceError> {
        here.rules = seen.ruling.rules(&here.rules).clone();
        here.only_kept = seen.ruling.only_kept.1;
        let Some(listing) = self.list_whole(&here, seen)? else { return Ok(After::Lost) };
        let Listing { stamp, items, is_whole, is_unchanged } = listing;
        let was_restless = std::mem::take(&mut seen.is_restless) && !is_unchanged;
        if was_restless || !is_whole || self.is_restless(seen, &seen.entries(self), &items) {
            let unsettled = &mut seen.notes.get_or_insert_default().unsettled;
            if !unsettled.contains(&here.path) {
                unsettled.push(here.path);
            }
        }
        seen.stamp = stamp;
        Ok(if is_unchanged { After::Same } else { After::Changed })
    }

    /// Lists a directory until each listed name is still there when it is classified. An entry that changes its
    /// name in between would be seen under neither name. Returns `None` if the directory cannot be listed.
    fn list_whole<'c>(&self, here: &Here<'_>, seen: &Seen) -> Result<Option<Listing<'c>>, WorkspaceError> {
        let mut tries = LISTINGS_MAX;
        loop {
            tries -= 1;
            let started = file::now_ns();
            let opened = linux::open_dir(&here.fd, b".");
            let looked =
                opened.and_then(|fd| Ok((linux::facts_of(&fd)?, linux::names(&fd)?, linux::facts_of(&fd)?)));
            let Ok((before, names, after)) = looked else { return Ok(None) };
            let items = names.iter().map(|name| self.classify(here, name, None));
            let items = items.collect::<Result<Vec<_>, _>>()?;
            let is_unchanged = seen.stamp.is_unchanged(&before) && seen.stamp.is_unchanged(&after);
            let is_of_git_alone = self.what == What::Git && here.depth == 0;
            let is_whole = is_of_git_alone || !items.iter().any(|item| matches!(item, Item::Gone));
            if is_whole || tries == 0 {
                let stamp = Stamp::new(&self.clock, &before, started);
                return Ok(Some(Listing { stamp, items, is_whole, is_unchanged }));
            }
        }
    }
}

/// Returns true if a file is the one read before and was not written since.
fn is_still(entry: &Entry, mark: Mark, facts: &Facts) -> bool {
    let Node::File(content) = entry.node else { return false };
    mark.is_of(facts)
        && (content.size, entry.meta.mtime_ns) == (facts.size, facts.mtime_ns)
        && (entry.meta.mode, entry.meta.uid, entry.meta.gid) == (facts.mode, facts.uid, facts.gid)
}

impl Item<'_> {
    /// Returns an item that needs no reading.
    pub(super) fn held(
        entry: Entry,
        facts: Facts,
        trusted: bool,
        (below, odd): (Option<Seen>, bool),
    ) -> Self {
        Item::Held(Box::new(Done { entry, facts, trusted, unsettled: false, below, fresh: true, odd }))
    }

    /// Returns the name and mark of a captured item.
    fn captured(&self, clock: &Clock) -> Option<(&[u8], Mark)> {
        let (name, facts) = match self {
            Item::Gone | Item::LeftOut(..) | Item::Family(_) => return None,
            Item::Known(known) => return Some((known.cached.name, known.mark)),
            Item::File { name, facts } => (name, facts),
            Item::Directory(folder) => (&folder.name, &folder.facts),
            Item::Held(done) => (&done.entry.name, &done.facts),
        };
        Some((name, clock.mark(facts, true)))
    }
}
