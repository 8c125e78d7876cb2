//! KEEP and DROP: the result of an attempt goes into the project by the protocol of a rollback, or it is closed as it is.
//!
//! The commit of the rollback also closes the attempt, and the others that are not to go on. Their states are captured before.

use super::capture::AttemptFinished;
use super::is_below_any;
use super::merge::{Merged, Merging, Three};
use super::rooms::{OwnRefs, end_processes, lock_rooms, processes_of};
use crate::handles::Attempts;
use crate::plans::apply::TakeOver;
use crate::rollback::{Request, RollbackOptions, RolledBack};
use crate::{CheckpointManager, DryRun, Error};
use safepoint_catalog::{Transaction, Workspace};
use safepoint_model::attempt::{Attempt, AttemptState};
use safepoint_model::change::deltas;
use safepoint_model::checkpoint::{Checkpoint, PartKind};
use safepoint_model::files::FilesDocument;
use safepoint_model::rollback::{Expected, Rollback, Verb};
use safepoint_model::tree::{Entry, Owners};
use safepoint_model::{CheckpointId, ObjectId, Progress, RelPath, Timestamp, document};
use safepoint_store::Writer;
use safepoint_workspace::RoomProcess;
use std::sync::{Mutex, PoisonError};

/// Handling of the other open attempts of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Others {
    /// They are dropped.
    #[default]
    Dropped,
    /// They go on.
    Open,
}

/// Options of a keep.
#[derive(Debug, Clone, Default)]
pub struct KeepAttempt {
    /// Handling of the other open attempts.
    pub others: Others,
    /// Do it or show it.
    pub dry_run: DryRun,
    /// [`AttemptKept::result`] and [`RolledBack::present`] of a preview. The keep is refused with [`Error::StalePreview`] if one of them
    /// is another one now.
    pub expect: Option<(CheckpointId, ObjectId)>,
}

/// An attempt whose result is in the project.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttemptKept {
    /// Its record.
    pub attempt: Attempt,
    /// The checkpoint that was taken over.
    pub result: Checkpoint,
    /// Changes to the project; none if the attempt changed nothing.
    pub restored: Option<RolledBack>,
    /// Text files of which the lines of both sides were taken.
    pub merged: Vec<RelPath>,
    /// Paths that changed in the project since the start, and stay as they are.
    pub changed_in_project: Vec<RelPath>,
    /// Names of the other attempts that were dropped.
    pub dropped: Vec<String>,
    /// Processes that were ended.
    pub ended: Vec<RoomProcess>,
    /// Rooms that could not be deleted yet, with the reason.
    pub left: Vec<(std::path::PathBuf, String)>,
}

/// The result of an attempt that is being taken over.
struct Keeping {
    attempt: Attempt,
    base: ObjectId,
    others: Vec<Attempt>,
    at: Timestamp,
    merged: Mutex<Merged>,
}

/// A result that was taken over, or could be.
struct Taken {
    keeping: Keeping,
    /// Topmost paths that the attempt changed.
    paths: Vec<RelPath>,
    restored: Option<RolledBack>,
}

impl TakeOver for Keeping {
    fn kind(&self) -> PartKind {
        PartKind::Plan
    }

    fn key(&self) -> String {
        format!("attempt {}", self.attempt.id)
    }

    fn label(&self) -> String {
        format!("before attempt {} is kept", self.attempt.name)
    }

    fn fit(&self, writer: &Writer<'_>, now: ObjectId, result: ObjectId) -> Result<Option<Entry>, Error> {
        let (root, merged) = merge(writer, self.base, result, now)?;
        if !merged.conflicts.is_empty() {
            return Err(Error::AttemptConflict { name: self.attempt.name.clone(), paths: merged.conflicts });
        }
        *self.merged.lock().unwrap_or_else(PoisonError::into_inner) = merged;
        Ok(root)
    }

    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        still_open(transaction, &self.attempt)
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        still_open(transaction, &self.attempt)?;
        transaction.close_attempt(self.attempt.id, AttemptState::Kept, self.at)?;
        for other in &self.others {
            if still_open(transaction, other).is_ok() {
                transaction.close_attempt(other.id, AttemptState::Dropped, self.at)?;
            }
        }
        Ok(())
    }
}

/// Merges the result of an attempt with the state of the project. The same documents always have the same root.
fn merge(
    writer: &Writer<'_>,
    base: ObjectId,
    result: ObjectId,
    now: ObjectId,
) -> Result<(Option<Entry>, Merged), Error> {
    let root = |document| FilesDocument::load(writer, document).map(|document| document.root_entry());
    let (base, ours, theirs) = (root(base)?, root(result)?, root(now)?);
    let mut merging = Merging { store: writer, merged: Merged::default() };
    let three = Three { base: Some(&base), ours: Some(&ours), theirs: Some(&theirs) };
    let root = merging.entry(&RelPath::root(), three)?;
    Ok((root, merging.merged))
}

impl CheckpointManager {
    /// Returns the state in which a keep left the project: merged again from the states before, as it may be that of no checkpoint.
    /// `None` if the rollback kept no attempt, or one of the states is deleted.
    pub(crate) fn left_by_keep(
        &self,
        rollback: &Rollback,
        writer: &Writer<'_>,
    ) -> Result<Option<ObjectId>, Error> {
        let attempts = match rollback.verb {
            Verb::Apply => self.catalog.attempts(rollback.workspace_id)?,
            _ => return Ok(None),
        };
        let is_kept = |it: &Attempt| it.state == AttemptState::Kept && it.result == Some(rollback.to);
        let Some(attempt) = attempts.into_iter().find(is_kept) else { return Ok(None) };
        let files = |checkpoint| self.files_before(checkpoint, rollback.workspace_id);
        let states =
            (files(Some(attempt.base))?, files(Some(rollback.to))?, files(rollback.safety_checkpoint)?);
        let (Some(base), Some(result), Some(before)) = states else { return Ok(None) };
        let (Some(root), _) = merge(writer, base, result, before)? else { return Ok(None) };
        let kept = FilesDocument { root: Expected { entry: root }, ..FilesDocument::load(writer, result)? };
        Ok(Some(document::store(writer, &kept)?))
    }
}

/// Refuses an attempt that another command closed.
pub(super) fn still_open(transaction: &Transaction<'_>, attempt: &Attempt) -> Result<(), Error> {
    let name = || attempt.name.clone();
    let now = transaction.attempt(attempt.id)?.ok_or_else(|| Error::NoAttempt { name: name() })?;
    match now.state {
        AttemptState::Open => Ok(()),
        state => Err(Error::AttemptClosed { name: name(), state }),
    }
}

impl Attempts<'_> {
    /// Takes the result of an attempt over into the project, and closes the attempt.
    ///
    /// # Errors
    /// [`Error::AttemptConflict`] when both sides changed a path in ways that cannot be merged; or as
    /// [`CheckpointManager::rollback`](crate::CheckpointManager::rollback). Project and attempts are as they were then.
    pub fn keep(
        &self,
        project: &Workspace,
        attempt: &Attempt,
        options: &KeepAttempt,
        progress: &dyn Progress,
    ) -> Result<AttemptKept, Error> {
        let manager = self.manager;
        manager.refuse_inside()?;
        self.must_be_open(attempt)?;
        manager.refuse_of_plan(attempt)?;
        let is_dry = options.dry_run == DryRun::Yes;
        let others: Vec<Attempt> = match options.others {
            Others::Open => Vec::new(),
            Others::Dropped => {
                let mut all = manager.catalog.attempts(project.id)?;
                all.retain(|other| other.state == AttemptState::Open && other.id != attempt.id);
                let of_plans: Vec<bool> = all
                    .iter()
                    .map(|other| Ok(manager.open_plan_of(other)?.is_some()))
                    .collect::<Result<_, Error>>()?;
                let free = all.into_iter().zip(of_plans).filter(|(_, is_of_plan)| !is_of_plan);
                free.map(|(other, _)| other).collect()
            }
        };
        let is_busy = |attempt: &Attempt| !processes_of(attempt).is_empty();
        if !is_dry && (is_busy(attempt) || others.iter().any(is_busy)) {
            // What is refused now ends no process.
            others.iter().try_for_each(|other| self.capture_last(project, other, progress))?;
            let finished = self.finish(project, attempt, &attempt.run, progress)?;
            self.take_over(project, (finished, Vec::new()), (DryRun::Yes, options.expect), progress)?;
        }
        let (mut ended, mut locks) = (Vec::new(), Vec::new());
        if !is_dry {
            // No process enters before the rooms are deleted, or the keep is refused.
            locks = lock_rooms(others.iter().chain([attempt]));
            ended = others.iter().chain([attempt]).flat_map(end_processes).collect();
            others.iter().try_for_each(|other| self.capture_last(project, other, progress))?;
        }
        let finished = self.finish(project, attempt, &attempt.run, progress)?;
        let result = finished.result.clone();
        let Taken { keeping, paths, restored } =
            self.take_over(project, (finished, others), (options.dry_run, options.expect), progress)?;
        let Merged { texts, theirs, .. } =
            keeping.merged.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut left = Vec::new();
        if !is_dry {
            for closed in keeping.others.iter().chain([&keeping.attempt]) {
                left.extend(manager.remove_room(closed, OwnRefs::Kept).map(|why| (closed.room.clone(), why)));
            }
        }
        drop(locks);
        let attempt = self.again(&keeping.attempt)?;
        Ok(AttemptKept {
            attempt,
            result,
            restored,
            merged: texts,
            changed_in_project: theirs.into_iter().filter(|path| !is_below_any(path, &paths)).collect(),
            dropped: keeping.others.into_iter().map(|other| other.name).collect(),
            ended,
            left,
        })
    }

    /// Takes a result over into the project and closes its attempt, with the others. A dry run only checks it.
    fn take_over(
        &self,
        project: &Workspace,
        (finished, others): (AttemptFinished, Vec<Attempt>),
        (dry_run, expect): (DryRun, Option<(CheckpointId, ObjectId)>),
        progress: &dyn Progress,
    ) -> Result<Taken, Error> {
        let manager = self.manager;
        let AttemptFinished { attempt, result, .. } = finished;
        if expect.is_some_and(|(expected, _)| expected != result.id) {
            return Err(Error::StalePreview);
        }
        let (base, made) =
            (manager.files_of_checkpoint(attempt.base)?, manager.files_of_checkpoint(result.id)?);
        let paths = self.changed_paths(base, made)?;
        let at = manager.environment.now();
        let keeping = Keeping { attempt, base, others, at, merged: Mutex::default() };
        let restored = match paths.is_empty() {
            true if dry_run == DryRun::Yes => None,
            true => {
                manager.catalog.write::<(), Error>(|transaction| keeping.publish(transaction))?;
                None
            }
            false => {
                let options = RollbackOptions {
                    paths: paths.clone(),
                    dry_run,
                    expect_present: expect.map(|(_, present)| present),
                    ..RollbackOptions::default()
                };
                let request = Request::new(Verb::Apply, Some(project.id), result, &options);
                Some(manager.roll_back(&Request { taking: Some(&keeping), ..request }, progress)?)
            }
        };
        Ok(Taken { keeping, paths, restored })
    }

    /// Closes an attempt. Its last state is a checkpoint first. Returns the processes that were ended, and the reason why its room stays,
    /// if it does.
    ///
    /// # Errors
    /// When it is closed, or its state cannot be captured; it stays open then.
    pub fn drop(
        &self,
        project: &Workspace,
        attempt: &Attempt,
        progress: &dyn Progress,
    ) -> Result<(Attempt, Vec<RoomProcess>, Option<String>), Error> {
        let manager = self.manager;
        manager.refuse_inside()?;
        self.must_be_open(attempt)?;
        manager.refuse_of_plan(attempt)?;
        // No process enters before the room is deleted: what it wrote would be in no checkpoint.
        let _locks = lock_rooms([attempt]);
        let ended = end_processes(attempt);
        self.capture_last(project, attempt, progress)?;
        let at = manager.environment.now();
        manager.catalog.write::<(), Error>(|transaction| {
            still_open(transaction, attempt)?;
            Ok(transaction.close_attempt(attempt.id, AttemptState::Dropped, at)?)
        })?;
        let left = manager.remove_room(attempt, OwnRefs::Kept);
        Ok((self.again(attempt)?, ended, left))
    }

    /// Deletes the room of an attempt that is closed, also with commits that only its `.git` has. Returns why it stays, if it does.
    ///
    /// # Errors
    /// When the catalog cannot be read, or this process is inside an attempt.
    pub fn delete_room(&self, attempt: &Attempt) -> Result<Option<String>, Error> {
        let manager = self.manager;
        manager.refuse_inside()?;
        let attempt = self.again(attempt)?;
        if attempt.state == AttemptState::Open {
            return Ok(Some("the attempt is open".to_owned()));
        }
        let _locks = lock_rooms([&attempt]);
        Ok(manager.remove_room(&attempt, OwnRefs::Deleted))
    }

    /// Captures the last state of an attempt. One whose room is missing has none, and one that another command closed has it already.
    fn capture_last(
        &self,
        project: &Workspace,
        attempt: &Attempt,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        match self.finish(project, attempt, &attempt.run, progress) {
            Ok(_) | Err(Error::RoomMissing { .. } | Error::AttemptClosed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn again(&self, attempt: &Attempt) -> Result<Attempt, Error> {
        let found = self.manager.catalog.attempt(attempt.id)?;
        found.ok_or_else(|| Error::NoAttempt { name: attempt.name.clone() })
    }

    /// Returns the topmost paths that differ between two states.
    fn changed_paths(&self, old: ObjectId, new: ObjectId) -> Result<Vec<RelPath>, Error> {
        let store = &self.manager.store;
        let _using = store.using()?;
        let (old, new) = (FilesDocument::load(store, old)?, FilesDocument::load(store, new)?);
        let (Some(old_tree), Some(new_tree)) = (old.tree(), new.tree()) else { return Ok(Vec::new()) };
        let found = deltas(store, old_tree, new_tree, Owners::Compared)?;
        let mut paths: Vec<RelPath> = found.iter().map(|delta| delta.path().clone()).collect();
        if !old.root_entry().meta.same_but_times(&new.root_entry().meta, Owners::Compared) {
            paths.push(RelPath::root());
        }
        Ok(paths)
    }
}
