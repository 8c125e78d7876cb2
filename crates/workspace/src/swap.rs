//! Applies, syncs, verifies and undoes the steps of a rollback.
//!
//! Each step changes one path by one system call (two without exchange). The displaced entry lands in the
//! step's slot, even if another process wrote it. The undo decides for each step separately, from path and
//! slot, if it was done. So it works after a crash at any moment, for any order in which the disk kept the
//! steps, and after a crash of the undo itself.

use crate::compare::{self, CompareError};
use crate::error::WorkspaceError;
use crate::linux;
use crate::plan::owners;
use crate::stage::{self, SYNC_ONE_BY_ONE_MAX, Stage, StageWriter, Times, slot_name};
use crate::threads;
use rayon::prelude::*;
use rustix::fd::{AsFd, OwnedFd};
use safepoint_model::progress::{Activity, Silent};
use safepoint_model::rollback::{How, SwapStep};
use safepoint_model::trace::{self, TraceLevel};
use safepoint_model::tree::{Entry, Meta, Node};
use safepoint_model::{ObjectSource, Progress, RelPath};
use safepoint_planted::planted;
use std::collections::{BTreeSet, HashMap};
use std::io;

/// Path that another process changed after the rollback restored it. It is left unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meanwhile {
    /// Path in the workspace.
    pub path: RelPath,
}

/// Names of a step in the stage.
struct Slot {
    /// New content before, displaced content after the step.
    main: String,
    /// Displaced content if the file system cannot exchange.
    old: String,
    /// Entry displaced by the undo.
    extra: String,
}

impl Slot {
    fn of(slot: u64) -> Self {
        let main = slot_name(slot);
        Self { old: format!("{main}.old"), extra: format!("{main}.extra"), main }
    }
}

/// Path of the workspace: the open parent directory and the name.
struct Place {
    above: OwnedFd,
    name: Vec<u8>,
}

impl Place {
    fn at(&self) -> (&OwnedFd, &[u8]) {
        (&self.above, &self.name)
    }

    fn exists(&self) -> io::Result<bool> {
        Ok(linux::facts_if_any(&self.above, &self.name)?.is_some())
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

impl Stage<'_> {
    fn place(&self, path: &RelPath) -> io::Result<Place> {
        match path.split_last() {
            Some((above, name)) => {
                Ok(Place { above: linux::open_dir_at(self.root.fd(), &above)?, name: name.to_vec() })
            }
            None => Ok(Place { above: linux::open_dir(self.root.fd(), b".")?, name: b".".to_vec() }),
        }
    }

    /// Returns true if another process removed or replaced a parent directory. A replacement counts only for
    /// an interrupted rollback: in a running one it may be temporary, and the next command checks again.
    fn is_no_place(&self, error: &io::Error) -> bool {
        let replaced = error.kind() == io::ErrorKind::NotADirectory
            || matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EXDEV));
        is_absent(error) || (self.found && replaced)
    }

    fn slot<'a>(&'a self, name: &'a str) -> (&'a OwnedFd, &'a [u8]) {
        (&self.fd, name.as_bytes())
    }

    fn in_slot(&self, name: &str) -> io::Result<bool> {
        Ok(linux::facts_if_any(&self.fd, name.as_bytes())?.is_some())
    }

    fn move_to(&self, from: (&OwnedFd, &[u8]), to: (&OwnedFd, &[u8])) -> io::Result<()> {
        if planted!("swap-moves-over-others") {
            return Ok(rustix::fs::renameat(from.0, from.1, to.0, to.1)?);
        }
        if self.capabilities.no_replace {
            linux::move_no_replace(from, to)
        } else {
            linux::move_no_replace_by_link(from, to)
        }
    }

    /// Applies all steps. After an error some may be done: the caller must undo them.
    ///
    /// # Errors
    /// Fails if a step fails.
    pub fn apply(&self, steps: &[SwapStep]) -> Result<(), WorkspaceError> {
        assert!(self.is_armed(), "recovery could not tell displaced content from copies");
        for step in steps {
            self.forward(step).map_err(|source| WorkspaceError::Swap { path: step.path.clone(), source })?;
        }
        Ok(())
    }

    fn forward(&self, step: &SwapStep) -> io::Result<()> {
        let place = self.place(&step.path)?;
        let How::Swap { slot } = step.how else {
            return set_meta(&place, step.new.as_ref().map(|new| &new.entry));
        };
        let slot = Slot::of(slot);
        match (&step.old, &step.new) {
            (Some(_), Some(_)) => self.replace(&place, &slot),
            (None, Some(_)) => match self.move_to(self.slot(&slot.main), place.at()) {
                // Another process created the path: the entry is displaced, and found in the slot later.
                Err(error) if is_taken(&error) => self.replace(&place, &slot),
                other => other,
            },
            // Even if the path was empty: an entry created since is displaced, and found in the slot later.
            (_, None) => match self.move_to(place.at(), self.slot(&slot.main)) {
                Err(error) if is_absent(&error) => Ok(()),
                other => other,
            },
        }
    }

    fn replace(&self, place: &Place, slot: &Slot) -> io::Result<()> {
        if self.capabilities.exchange {
            return match linux::exchange(place.at(), self.slot(&slot.main)) {
                Err(error) if is_absent(&error) => self.move_to(self.slot(&slot.main), place.at()),
                other => other,
            };
        }
        match self.move_to(place.at(), self.slot(&slot.old)) {
            Err(error) if is_absent(&error) => {}
            other => other?,
        }
        self.move_to(self.slot(&slot.main), place.at())
    }

    /// Syncs every path that the steps touched.
    ///
    /// # Errors
    /// Fails if the disk reports an error. That is final: the written data is not trustworthy.
    pub fn sync(&self, steps: &[SwapStep]) -> Result<(), WorkspaceError> {
        let synced = self.sync_touched(steps).map_err(WorkspaceError::Sync);
        if planted!("swap-sync-failure-ignored") { Ok(()) } else { synced }
    }

    fn sync_touched(&self, steps: &[SwapStep]) -> io::Result<()> {
        if steps.len() > SYNC_ONE_BY_ONE_MAX {
            if planted!("swap-of-many-not-synced") {
                return Ok(());
            }
            return linux::sync_all(&self.fd);
        }
        let mut above = BTreeSet::new();
        for step in steps {
            match (step.how, step.path.split_last()) {
                (How::Swap { .. }, Some((path, _))) => {
                    above.insert(path);
                }
                _ => self.sync_meta(&step.path)?,
            }
        }
        if planted!("swap-folders-not-synced") {
            return Ok(());
        }
        for path in above {
            match linux::open_dir_at(self.root.fd(), &path) {
                Ok(fd) => linux::sync(&fd)?,
                // It was removed concurrently: it has no content to sync.
                Err(error) if self.is_no_place(&error) => {}
                Err(error) => return Err(error),
            }
        }
        linux::sync(&self.fd)?;
        linux::sync(&self.own)
    }

    fn sync_meta(&self, path: &RelPath) -> io::Result<()> {
        if planted!("swap-modes-not-synced") {
            return Ok(());
        }
        let place = match self.place(path) {
            Err(error) if self.is_no_place(&error) => return Ok(()),
            other => other?,
        };
        match linux::open_file(&place.above, &place.name) {
            Ok(fd) => linux::sync(&fd),
            // A directory that cannot be opened cannot be synced alone.
            Err(_) => linux::sync_all(&self.fd),
        }
    }

    /// Reads back every path that the steps touched.
    ///
    /// # Errors
    /// Returns [`WorkspaceError::Verify`] if a path has other content than was restored and no process wrote
    /// to it.
    pub fn verify(
        &self,
        steps: &[SwapStep],
        source: &dyn ObjectSource,
        progress: &dyn Progress,
    ) -> Result<Vec<Meanwhile>, WorkspaceError> {
        if planted!("verify-left-out") {
            return Ok(Vec::new());
        }
        let _span = trace::span("workspace", TraceLevel::Debug, || format!("verify {} steps", steps.len()));
        progress.begin(Activity::Verifying, Some(steps.len() as u64));
        // The final mode of a directory is set after all swaps; earlier mode steps only add rights.
        let last_swap = steps.iter().rposition(|step| step.how != How::Meta).unwrap_or(0);
        let finals: HashMap<&RelPath, &Entry> = steps[last_swap.min(steps.len())..]
            .iter()
            .filter(|step| step.how == How::Meta)
            .filter_map(|step| Some((&step.path, &step.new.as_ref()?.entry)))
            .collect();
        let bytes = |step: &SwapStep| match (&step.new, step.how) {
            (Some(new), How::Swap { .. }) => stage::file_bytes(&new.entry),
            _ => 0,
        };
        progress.expect(steps.iter().map(bytes).sum());
        let check = |step: &SwapStep| {
            let checked = self.check(step, &finals, source);
            progress.advance(1, bytes(step));
            checked
        };
        let checked: Result<Vec<_>, WorkspaceError> = threads::run(|| steps.par_iter().map(check).collect());
        progress.end();
        Ok(checked?.into_iter().flatten().collect())
    }

    fn check(
        &self,
        step: &SwapStep,
        finals: &HashMap<&RelPath, &Entry>,
        source: &dyn ObjectSource,
    ) -> Result<Option<Meanwhile>, WorkspaceError> {
        let unreadable = |source| WorkspaceError::Read { path: step.path.clone(), source };
        let meanwhile = || Ok(Some(Meanwhile { path: step.path.clone() }));
        let place = match self.place(&step.path) {
            Ok(place) => place,
            // The parent directory was removed or replaced after the rollback.
            Err(_) => return meanwhile(),
        };
        match (&step.new, step.how) {
            (Some(new), How::Swap { .. }) => {
                let wanted = finals.get(&step.path).copied().unwrap_or(&new.entry);
                match compare::matches(source, &place.above, &place.name, wanted, owners()) {
                    Ok(true) => Ok(None),
                    Ok(false) if self.is_damage(&place).map_err(unreadable)? => {
                        Err(WorkspaceError::Verify { path: step.path.clone() })
                    }
                    Ok(false) => meanwhile(),
                    Err(CompareError::Io(error)) if is_absent(&error) => meanwhile(),
                    Err(CompareError::Io(error)) => Err(unreadable(error)),
                    Err(CompareError::Object(error)) => Err(error.into()),
                }
            }
            (None, How::Swap { .. }) if place.exists().map_err(unreadable)? => meanwhile(),
            (Some(new), How::Meta) if finals.get(&step.path) == Some(&&new.entry) => {
                match has_meta(&place, &new.entry) {
                    Ok(true) => Ok(None),
                    Ok(false) => meanwhile(),
                    Err(error) => Err(unreadable(error)),
                }
            }
            _ => Ok(None),
        }
    }

    /// Returns true if a file differs from the staged one but was not written since.
    fn is_damage(&self, place: &Place) -> io::Result<bool> {
        let Some(facts) = linux::facts_if_any(&place.above, &place.name)? else { return Ok(false) };
        Ok(self.staged.get(&facts.ino) == Some(&(facts.mtime_ns, facts.size)))
    }

    /// Undoes the steps: every path is as before the first step, as far as the steps changed it.
    ///
    /// # Errors
    /// Fails if a path cannot be restored; the others are, and the next recovery continues.
    pub fn undo(&self, steps: &[SwapStep], source: &dyn ObjectSource) -> Result<(), WorkspaceError> {
        let mut first_error = None;
        for step in steps.iter().rev().skip(usize::from(planted!("way-back-skips-a-step"))) {
            if let Err(error) = self.backward(step, source) {
                first_error.get_or_insert(error);
            }
        }
        match first_error {
            Some(error) => Err(error),
            None if planted!("way-back-not-synced") => Ok(()),
            None => self.sync(steps),
        }
    }

    fn backward(&self, step: &SwapStep, source: &dyn ObjectSource) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::PutBack { path: step.path.clone(), source };
        let place = match self.place(&step.path) {
            Ok(place) => place,
            // Another process removed the parent directory: there is no place to restore to, and the slot's
            // content will be rescued.
            Err(error) if self.is_no_place(&error) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let How::Swap { slot } = step.how else {
            return set_meta(&place, step.old.as_ref().map(|old| &old.entry)).map_err(failed);
        };
        let slot = Slot::of(slot);
        self.end_half_moves(&place, &slot, step).map_err(failed)?;
        let result = match (&step.old, &step.new) {
            (None, Some(new)) => self.unmake(&place, &slot, &new.entry, source),
            (Some(old), None) => self.bring_back(&place, &slot, &old.entry, &step.path, source),
            (Some(old), Some(new)) => {
                self.change_back(&place, &slot, (&old.entry, &new.entry), &step.path, source)
            }
            (None, None) => match self.in_slot(&slot.main).map_err(failed)? {
                true => self.swap_back(&place, &slot),
                false => Ok(()),
            },
        };
        result.map_err(|error| match error {
            Back::Io(source) => failed(source),
            Back::Other(error) => error,
        })
    }

    /// Completes a move by hard link that a crash interrupted, leaving both names. The undo knows which of
    /// the two is the old name.
    fn end_half_moves(&self, place: &Place, slot: &Slot, step: &SwapStep) -> io::Result<()> {
        let doubled = |name: &str| -> io::Result<bool> {
            let here = linux::facts_if_any(&place.above, &place.name)?;
            let there = linux::facts_if_any(&self.fd, name.as_bytes())?;
            Ok(
                matches!((here, there), (Some(here), Some(there)) if here.ino == there.ino && !here.file_type.is_dir()),
            )
        };
        if doubled(&slot.old)? {
            linux::remove_file(&self.fd, slot.old.as_bytes())?;
        }
        if doubled(&slot.main)? {
            match step.new {
                Some(_) => linux::remove_file(&place.above, &place.name)?,
                None => linux::remove_file(&self.fd, slot.main.as_bytes())?,
            }
        }
        if doubled(&slot.extra)? {
            linux::remove_file(&place.above, &place.name)?;
        }
        Ok(())
    }

    /// Moves a created path back into its slot.
    fn unmake(&self, place: &Place, slot: &Slot, new: &Entry, source: &dyn ObjectSource) -> Result<(), Back> {
        if self.in_slot(&slot.old)? {
            return self.take_old_out(place, slot);
        }
        if !self.in_slot(&slot.main)? {
            return match self.move_to(place.at(), self.slot(&slot.main)) {
                Err(error) if is_absent(&error) => Ok(()),
                other => Ok(other?),
            };
        }
        if self.holds_new(slot, new, source)? {
            return Ok(());
        }
        // The slot holds a displaced entry of another process.
        self.swap_back(place, slot)
    }

    /// Moves a removed path out of its slot.
    fn bring_back(
        &self,
        place: &Place,
        slot: &Slot,
        old: &Entry,
        path: &RelPath,
        source: &dyn ObjectSource,
    ) -> Result<(), Back> {
        if self.in_slot(&slot.main)? {
            return self.swap_back(place, slot);
        }
        if !place.exists()? {
            self.rebuild(place, slot, old, path, source)?;
        }
        Ok(())
    }

    /// Restores the old content of a replaced path.
    fn change_back(
        &self,
        place: &Place,
        slot: &Slot,
        (old, new): (&Entry, &Entry),
        path: &RelPath,
        source: &dyn ObjectSource,
    ) -> Result<(), Back> {
        if self.in_slot(&slot.old)? {
            return self.take_old_out(place, slot);
        }
        if !self.in_slot(&slot.main)? {
            // The new entry took an empty place, or the old one was already moved back.
            if compare_io(compare::matches(source, &place.above, &place.name, old, owners()))? {
                return Ok(());
            }
            if place.exists()? {
                self.move_to(place.at(), self.slot(&slot.main))?;
            }
            return self.rebuild(place, slot, old, path, source);
        }
        if self.holds_new(slot, new, source)? {
            return Ok(());
        }
        self.swap_back(place, slot)
    }

    fn holds_new(&self, slot: &Slot, new: &Entry, source: &dyn ObjectSource) -> Result<bool, Back> {
        compare_io(compare::matches(source, &self.fd, slot.main.as_bytes(), new, owners()))
    }

    /// Exchanges slot and path.
    fn swap_back(&self, place: &Place, slot: &Slot) -> Result<(), Back> {
        if self.capabilities.exchange {
            return match linux::exchange(place.at(), self.slot(&slot.main)) {
                Err(error) if is_absent(&error) => Ok(self.move_to(self.slot(&slot.main), place.at())?),
                other => Ok(other?),
            };
        }
        if place.exists()? {
            self.move_to(place.at(), self.slot(&slot.extra))?;
        }
        Ok(self.move_to(self.slot(&slot.main), place.at())?)
    }

    /// Restores the old entry from its separate slot.
    fn take_old_out(&self, place: &Place, slot: &Slot) -> Result<(), Back> {
        if place.exists()? {
            let free = if self.in_slot(&slot.main)? { &slot.extra } else { &slot.main };
            self.move_to(place.at(), self.slot(free))?;
        }
        Ok(self.move_to(self.slot(&slot.old), place.at())?)
    }

    /// Writes the old content again from the safety checkpoint's objects if no slot holds it.
    fn rebuild(
        &self,
        place: &Place,
        slot: &Slot,
        old: &Entry,
        path: &RelPath,
        source: &dyn ObjectSource,
    ) -> Result<(), Back> {
        let name = format!("{}.rebuilt", slot.main);
        crate::stage::remove_tree(&self.fd, name.as_bytes())?;
        let writer = StageWriter::new(source, Times::Recorded, &Silent);
        writer.entry(&self.fd, name.as_bytes(), path, old).map_err(Back::Other)?;
        drop(writer);
        linux::sync_all(self.fd.as_fd())?;
        Ok(self.move_to(self.slot(&name), place.at())?)
    }
}

/// Reason that a path could not be restored.
enum Back {
    Io(io::Error),
    Other(WorkspaceError),
}

impl From<io::Error> for Back {
    fn from(error: io::Error) -> Self {
        Back::Io(error)
    }
}

fn compare_io(result: Result<bool, CompareError>) -> Result<bool, Back> {
    result.map_err(|error| match error {
        CompareError::Io(error) => Back::Io(error),
        CompareError::Object(error) => Back::Other(error.into()),
    })
}

/// Returns true if the entry at a path has the expected mode, attributes and, if compared, owner.
fn has_meta(place: &Place, wanted: &Entry) -> io::Result<bool> {
    let fd = match linux::open_path(&place.above, &place.name) {
        Err(error) if is_absent(&error) => return Ok(false),
        other => other?,
    };
    let now = linux::read_meta_by_path(&fd, &linux::facts_of(&fd)?)?.meta;
    let has = |meta: &Meta| now.same_but_times(meta, owners());
    Ok(has(&wanted.meta) || has(&linux::attainable(&fd, &wanted.meta)))
}

/// Sets mode, owner and attributes of the entry at a path, unless another process replaced it.
fn set_meta(place: &Place, wanted: Option<&Entry>) -> io::Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let fd = match linux::open_path(&place.above, &place.name) {
        Err(error) if is_absent(&error) => return Ok(()),
        other => other?,
    };
    let facts = linux::facts_of(&fd)?;
    let same_type = match wanted.node {
        Node::File(_) => facts.file_type.is_file(),
        Node::Directory(_) => facts.file_type.is_dir(),
        Node::Symlink(_) => false,
    };
    if !same_type {
        return Ok(());
    }
    let now = linux::read_meta_by_path(&fd, &facts)?.meta;
    linux::set_meta(&fd, &now, &wanted.meta, owners())
}
