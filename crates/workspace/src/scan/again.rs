//! Directories compared again after the whole walk: one that moves during the walk can be missed at its old place and at its new one.
//!
//! Comes in: every directory as it was read, [`Seen`]. Goes out: the same, read again where it changed, at most [`READ_AGAIN_MAX`] times; one
//! whose earlier names will not hold still is reported as unsettled.
//!
//! The law: where a comparison of all directories finds none changed, there is one moment, its beginning, at which each held what was
//! captured of it. A directory's change time moves with each change of its names, unless two changes fall into one tick of the clock. So a
//! directory that was changed just before it was read is listed once more, after the tick. No handle is kept from the walk, and of each entry
//! four bytes.

use super::database::beside_others;
use super::ruling::{Above, Keep, Ruling};
use super::{Done, Folder, Found, Here, Item, Notes, Walk, file, is_out_of_handles, join, told_odd};
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

/// A directory that still changes after it was read again this many times is only looked at, and then reported or not.
const READ_AGAIN_MAX: u32 = 3;
/// The pauses before these looks. What moves between two directories may be in neither at a single look, so there are several, and no rhythm
/// fits all of them.
const PAUSES_MS: [u64; 6] = [0, 1, 2, 3, 5, 8];

/// The clock that stamps files, and when the capture began on it.
pub(super) struct Clock {
    started_coarse_ns: i64,
    started_ns: i64,
    /// The newest stamp of a directory that was changed just before it was read.
    newest_ns: AtomicI64,
}

impl Clock {
    pub(super) fn start() -> Self {
        let (started_coarse_ns, started_ns) = (linux::coarse_now_ns(), file::now_ns());
        Self { started_coarse_ns, started_ns, newest_ns: AtomicI64::new(i64::MIN) }
    }

    /// Whether something was there before the capture began. Where the file system does not keep when it was made, a directory counts as if it
    /// was, and a file by its last change.
    fn is_older(&self, facts: &Facts) -> bool {
        match facts.born_ns {
            0 => facts.file_type.is_dir() || facts.mtime_ns <= self.started_coarse_ns,
            born => born <= self.started_coarse_ns,
        }
    }

    /// The mark of an entry that is captured.
    pub(super) fn mark(&self, facts: &Facts, trusted: bool) -> Mark {
        let flags = u32::from(trusted) * Mark::TRUSTED + u32::from(self.is_older(facts)) * Mark::OLDER;
        Mark(Mark::identity(facts) | flags)
    }

    /// Waits until another change of any directory that was read would show in its stamp.
    fn wait_for_tick(&self) {
        let newest = self.newest_ns.swap(i64::MIN, Ordering::Relaxed);
        linux::wait_for_tick(newest);
    }
}

/// What is kept of an entry: which inode it was, whether the cache may vouch for it, whether it is older than the capture.
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

/// Which directory it was, and when it last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    ino: u64,
    born_ns: i64,
    ctime_ns: i64,
    /// Another change might leave the same stamp.
    is_young: bool,
}

impl Stamp {
    /// The stamp of a directory that is about to be listed. The time is from before the facts.
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

/// A directory as it was read: its tree, and what it takes to notice a change and to read it again without reading its files again.
pub(super) struct Seen {
    /// Nothing for the root.
    pub(super) name: Box<[u8]>,
    pub(super) tree: ObjectId,
    /// From before it was listed.
    stamp: Stamp,
    ruling: Ruling,
    pub(super) block: Option<Place>,
    /// How large that block is, with all those below it.
    pub(super) block_bytes: u64,
    /// Something is not as the cache had it.
    pub(super) fresh: bool,
    /// It is the one that is at its place; set when it is compared.
    is_there: bool,
    /// Something that is older than the capture left it or came to it between the last two readings.
    is_restless: bool,
    /// Entries and bytes in files, without those of the directories below.
    count: u64,
    bytes: u64,
    notes: Option<Box<Notes>>,
    /// What is new about the directory itself, for the one above.
    pub(super) meta: Option<Box<Meta>>,
    /// One for each entry of the tree.
    marks: Box<[Mark]>,
    /// The directories in it, sorted by name.
    below: Vec<Seen>,
}

/// What comparing a directory gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Same,
    Changed,
    /// It is not at its place, or cannot be captured any more.
    Lost,
}

/// How a file is related to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kin {
    None,
    /// All of the database is as it was read.
    Whole,
    /// The same, and this file beside it was left out.
    LeftOut,
    /// Something of the database is not as it was read.
    Broken,
}

/// What to do about a directory that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    ReadAgain,
    /// Report it, if its earlier names do not hold still.
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

    /// Entries, bytes in files and what is to be reported, of this directory and all below.
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
        }
        self.below.into_iter().for_each(|below| below.add_to(sum));
    }

    /// The entries that were captured; none where they cannot be read back.
    fn entries(&self, walk: &Walk<'_>) -> Vec<Entry> {
        let entries = Tree::load(walk.source, self.tree).map(Tree::into_entries).unwrap_or_default();
        if entries.len() == self.marks.len() { entries } else { Vec::new() }
    }
}

fn find(entries: &[Entry], name: &[u8]) -> Option<usize> {
    entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()
}

impl Walk<'_> {
    /// Compares every directory with what was read of it, until none changed or there were enough attempts.
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
                only_kept: false,
                cached: None,
                started_ns,
                is_counted: true,
            };
            let facts = linux::facts_of(&here.fd).map_err(failed)?;
            match self.again(here, &facts, seen, then)? {
                After::Same => break,
                After::Changed => {}
                After::Lost => return Err(failed(io::Error::other("it cannot be listed any more"))),
            }
        }
        Ok(())
    }

    /// Compares a directory that is open, and all below it.
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

    /// Compares the directories in a directory; gives whether all are as they were.
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
        // Most directories hold no other: one call is enough.
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
            only_kept: seen.ruling.only_kept.0,
            cached: None,
            started_ns: above.started_ns,
            is_counted: true,
        };
        self.again(here, &facts, seen, then)
    }

    /// Lists a directory again, and reads what is new in it. What is there still is taken over as it was read.
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

    /// Walks a directory in which other rules hold now.
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
        // The block above names another one.
        now.fresh = true;
        *seen = now;
        Ok(After::Changed)
    }

    /// What becomes of items that may be a database and the files beside it: they are taken over all or none, because they were read at one
    /// moment.
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

    /// Which entry is a file as it was read; nothing where it is another one now or was unsettled.
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

    /// Finds for each item what was read of it before.
    fn take_over<'c>(
        &self,
        here: &Here<'_>,
        items: Vec<Item<'c>>,
        seen: &mut Seen,
        (entries, families): (&[Entry], &[Kin]),
    ) -> Result<Vec<Item<'c>>, WorkspaceError> {
        let mut below: Vec<Option<Seen>> = std::mem::take(&mut seen.below).into_iter().map(Some).collect();
        let names: Vec<Box<[u8]>> = below.iter().flatten().map(|below| below.name.clone()).collect();
        // What was told about an entry when it was read is told still.
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

    /// Whether something that is older than the capture left the directory or came to it since it was read.
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
        // Where nothing can be read back, nothing is known.
        entries.len() != seen.marks.len()
            || is_there.iter().zip(&seen.marks).any(|(is_there, mark)| !is_there && mark.is_older())
    }

    /// Reports a directory that changed once more, if what was in it before the capture does not hold still. New files alone are no reason.
    fn judge(&self, mut here: Here<'_>, seen: &mut Seen) -> Result<After, WorkspaceError> {
        here.rules = seen.ruling.rules(&here.rules).clone();
        here.only_kept = seen.ruling.only_kept.1;
        let started = file::now_ns();
        let opened = linux::open_dir(&here.fd, b".");
        let looked =
            opened.and_then(|fd| Ok((linux::facts_of(&fd)?, linux::names(&fd)?, linux::facts_of(&fd)?)));
        let Ok((before, names, after)) = looked else { return Ok(After::Lost) };
        let items = names.iter().map(|name| self.classify(&here, name, None));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        let is_unchanged = seen.stamp.is_unchanged(&before) && seen.stamp.is_unchanged(&after);
        let is_restless = std::mem::take(&mut seen.is_restless) && !is_unchanged;
        if is_restless || self.is_restless(seen, &seen.entries(self), &items) {
            let unsettled = &mut seen.notes.get_or_insert_default().unsettled;
            if !unsettled.contains(&here.path) {
                unsettled.push(here.path);
            }
        }
        seen.stamp = Stamp::new(&self.clock, &before, started);
        Ok(if is_unchanged { After::Same } else { After::Changed })
    }
}

/// Whether a file is the one that was read, and was not written to since.
fn is_still(entry: &Entry, mark: Mark, facts: &Facts) -> bool {
    let Node::File(content) = entry.node else { return false };
    mark.is_of(facts)
        && (content.size, entry.meta.mtime_ns) == (facts.size, facts.mtime_ns)
        && (entry.meta.mode, entry.meta.uid, entry.meta.gid) == (facts.mode, facts.uid, facts.gid)
}

impl Item<'_> {
    /// What needs no more reading.
    pub(super) fn held(
        entry: Entry,
        facts: Facts,
        trusted: bool,
        (below, odd): (Option<Seen>, bool),
    ) -> Self {
        Item::Held(Box::new(Done { entry, facts, trusted, unsettled: false, below, fresh: true, odd }))
    }

    /// The name and the mark of an item that is captured.
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
