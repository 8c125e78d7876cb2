//! RECOVER: finishes or undoes what a crash left. Every verb does it first; it may itself be killed and done again.

use crate::parts::files::FilesPart;
use crate::parts::kinds::{KINDS, LeftPart};
use crate::parts::part::{Left, Part, Prepared};
use crate::plans::room::PlanRoom;
use crate::rollback::carry::Settling;
use crate::warning::cause;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{FinishFacts, Workspace};
use safepoint_model::agent::WorkspaceKind;
use safepoint_model::rollback::{Rescued, Rollback, RollbackState};
use safepoint_model::{Progress, RelPath, RollbackId};
use safepoint_planted::planted;
use safepoint_workspace::{Ended, Root, Stage, WorkspaceError};
use std::collections::VecDeque;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

/// Recoveries that are remembered for verbs under way.
const KEPT_MAX: usize = 256;

/// Result of a recovery.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Rollbacks that were under way and are undone now.
    pub undone: Vec<RollbackId>,
    /// Rollbacks that were done and whose displaced files are gone now.
    pub settled: Vec<RollbackId>,
    /// Edits that were found displaced.
    pub rescued: Vec<Rescued>,
    /// Displaced files that a program has, or may have, open for writing.
    pub waiting: Vec<RelPath>,
    /// Displaced files that were stored and deleted although a program may have had them open.
    pub released: Vec<RelPath>,
    /// Rollbacks that another home began in this workspace and did not finish: it may be half old and half new.
    pub foreign: Vec<RollbackId>,
    /// Failures.
    pub warnings: Vec<Warning>,
}

impl Recovery {
    /// True if there was nothing to do.
    pub fn is_empty(&self) -> bool {
        self.undone.is_empty()
            && self.settled.is_empty()
            && self.rescued.is_empty()
            && self.waiting.is_empty()
            && self.released.is_empty()
            && self.foreign.is_empty()
            && self.warnings.is_empty()
    }

    /// Refuses a workspace that another home may have left half old and half new.
    pub(crate) fn refuse_foreign(self, workspace: &Workspace) -> Result<Self, Error> {
        match self.foreign.first() {
            Some(rollback) => {
                Err(Error::ForeignRollback { path: workspace.root_path().to_owned(), rollback: *rollback })
            }
            None => Ok(self),
        }
    }

    /// Adds what another recovery did and this one does not name.
    pub fn join(&mut self, other: Recovery) {
        // A file waits until its writer ends, and a foreign rollback until its home ends it, so each recovery names them.
        add_new(&mut self.undone, other.undone);
        add_new(&mut self.settled, other.settled);
        add_new(&mut self.rescued, other.rescued);
        add_new(&mut self.waiting, other.waiting);
        add_new(&mut self.released, other.released);
        add_new(&mut self.foreign, other.foreign);
        add_new(&mut self.warnings, other.warnings);
    }

    /// Returns what another recovery does not name.
    #[must_use]
    pub fn without(&self, known: &Recovery) -> Recovery {
        let mut new = self.clone();
        new.undone.retain(|one| !known.undone.contains(one));
        new.settled.retain(|one| !known.settled.contains(one));
        new.rescued.retain(|one| !known.rescued.contains(one));
        new.waiting.retain(|one| !known.waiting.contains(one));
        new.released.retain(|one| !known.released.contains(one));
        new.foreign.retain(|one| !known.foreign.contains(one));
        new.warnings.retain(|one| !known.warnings.contains(one));
        new
    }

    pub(crate) fn add(&mut self, settling: Settling) {
        self.rescued.extend(settling.rescued);
        self.waiting.extend(settling.waiting);
        self.warnings.extend(settling.warnings);
    }
}

/// Deletes layers that no rollback under way needs.
fn drop_stale_layers(room: &PlanRoom, unfinished: &[Rollback]) -> Result<(), Error> {
    // A room that is missing has none.
    for id in room.folder.staged_layers().unwrap_or_default() {
        if !unfinished.iter().any(|record| record.id == id) {
            room.folder.drop_staged_layer(id)?;
        }
    }
    Ok(())
}

fn add_new<T: PartialEq>(list: &mut Vec<T>, new: Vec<T>) {
    for one in new {
        if !list.contains(&one) {
            list.push(one);
        }
    }
}

/// Recoveries of this process that did something, each with its number.
#[derive(Debug, Default)]
pub(crate) struct RecoveryLog {
    next: u64,
    /// Number of the first that [`CheckpointManager::take_recovered`] did not return yet.
    taken: u64,
    kept: VecDeque<(u64, Recovery)>,
}

impl RecoveryLog {
    fn add(&mut self, recovery: Recovery) {
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((self.next, recovery));
        self.next += 1;
    }

    fn since(&self, mark: u64) -> Recovery {
        let mut all = Recovery::default();
        self.kept.iter().filter(|(number, _)| *number >= mark).for_each(|(_, one)| all.join(one.clone()));
        all
    }
}

impl CheckpointManager {
    fn recoveries(&self) -> MutexGuard<'_, RecoveryLog> {
        self.recovered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the next recovery, for [`CheckpointManager::recovered_since`] at the end of a verb.
    pub(crate) fn recovery_mark(&self) -> u64 {
        self.recoveries().next
    }

    /// Results of the recoveries from this number on. A verb that calls other verbs reports theirs, too.
    pub(crate) fn recovered_since(&self, mark: u64) -> Recovery {
        self.recoveries().since(mark)
    }

    /// Finishes or undoes what a crash left where a plan works and in its project. A missing folder has nothing left.
    pub(crate) fn recover_plan(&self, id: &str, progress: &dyn Progress) -> Result<(), Error> {
        let record = self.plans().get(id)?;
        let (project, place) = (self.workspaces().get(record.workspace_id)?, self.place_of(&record)?);
        let is_copy = place.id != project.id;
        // In the room of an attempt the path of the project is that of the overlay.
        let is_hidden = |workspace: &Workspace| {
            workspace.kind == WorkspaceKind::Project
                && self.inside.iter().any(|mount| workspace.root_path().starts_with(&mount.project))
        };
        for workspace in std::iter::once(&project).chain(is_copy.then_some(&place)) {
            if !is_hidden(workspace) && workspace.root_path().is_dir() {
                self.recover(workspace, progress)?;
            }
        }
        Ok(())
    }

    /// Finishes or undoes what a crash left in a workspace.
    ///
    /// # Errors
    /// When a path cannot be restored; the call can be repeated.
    pub fn recover(&self, workspace: &Workspace, progress: &dyn Progress) -> Result<Recovery, Error> {
        let held = self.hold(workspace)?;
        self.recover_held(workspace, &held.root, progress)
    }

    pub(crate) fn recover_held(
        &self,
        workspace: &Workspace,
        root: &Root,
        progress: &dyn Progress,
    ) -> Result<Recovery, Error> {
        let recovery = self.recover_all(workspace, root, progress)?;
        if !recovery.is_empty() {
            self.recoveries().add(recovery.clone());
        }
        Ok(recovery)
    }

    /// Returns the results of all recoveries since the last call. After a verb that failed this is the only way to them; the result of one that
    /// succeeded carries its own.
    pub fn take_recovered(&self) -> Recovery {
        let mut log = self.recoveries();
        let all = log.since(log.taken);
        log.taken = log.next;
        all
    }

    fn recover_all(
        &self,
        workspace: &Workspace,
        root: &Root,
        progress: &dyn Progress,
    ) -> Result<Recovery, Error> {
        if !self.is_writable() {
            return self.left_unfinished(workspace);
        }
        let mut recovery = self.recover_one(workspace, root, progress)?;
        // The first command recovers multi-folder rollbacks as a whole. A process that holds a folder has already recovered it.
        for id in self.catalog.unfinished_together()?.into_iter().filter(|id| *id != workspace.id) {
            let other = self.workspaces().get(id)?;
            let found = Root::open(other.root_path()).and_then(|root| {
                let lock = root.lock(Duration::ZERO)?;
                Ok((root, lock))
            });
            match found {
                Ok((root, _lock)) => recovery.join(self.recover_one(&other, &root, progress)?),
                Err(WorkspaceError::Busy { .. }) => {}
                Err(error) => recovery.warnings.push(Warning::FolderNotRecovered {
                    root: other.root_path().to_owned(),
                    why: cause(error),
                }),
            }
        }
        Ok(recovery)
    }

    /// Pending recovery. A read-only home is recovered by the next writer.
    fn left_unfinished(&self, workspace: &Workspace) -> Result<Recovery, Error> {
        let applying = |record: &Rollback| record.state == RollbackState::Applying;
        let mut recovery = Recovery::default();
        if self.catalog.unfinished(workspace.id)?.iter().any(applying) {
            recovery.warnings.push(Warning::HalfDone);
        }
        Ok(recovery)
    }

    fn recover_one(
        &self,
        workspace: &Workspace,
        root: &Root,
        progress: &dyn Progress,
    ) -> Result<Recovery, Error> {
        let mut recovery = Recovery::default();
        if planted!("recovery-left-out") {
            return Ok(recovery);
        }
        let room = self.room_of_plan(workspace)?;
        if room.is_some() && !self.inside.is_empty() {
            // Its layer may be mounted. A rollback of it that was interrupted keeps everything out.
            return Ok(recovery);
        }
        self.sweep_sandboxes(workspace.id)?;
        self.sweep_rooms()?;
        // Leftovers of a killed search only cost space, so a failure waits for the next command.
        let _ = self.home.sweep_scratch();
        // Nothing is captured here, so no pattern matters, and no wrong line in a configuration stands in the way.
        let mut part = FilesPart::new(self, root, workspace, Vec::new());
        let unfinished = self.catalog.unfinished(workspace.id)?;
        if let Some(room) = &room {
            drop_stale_layers(room, &unfinished)?;
        }
        let (staged, applied) = Stage::leftovers(root)?;
        if unfinished.is_empty() && staged.is_empty() && applied.is_empty() {
            root.tidy()?;
            return Ok(recovery);
        }
        part.capabilities = self.probe(root)?;
        for record in unfinished {
            match record.state {
                RollbackState::Applying => {
                    self.undo_crashed(&part, &record, progress, &mut recovery)?;
                }
                _ => self.settle_crashed(&part, &record, progress, &mut recovery)?,
            }
        }
        self.sweep(&part, root, progress, &mut recovery)?;
        Ok(recovery)
    }

    fn undo_crashed(
        &self,
        files: &FilesPart<'_>,
        record: &Rollback,
        progress: &dyn Progress,
        recovery: &mut Recovery,
    ) -> Result<(), Error> {
        // Nothing is undone if a part of it cannot be.
        let left = self.left_by(files.workspace, record)?;
        let mut prepared = self.resume(files, &left, record)?;
        for prepared in &mut prepared {
            let left = prepared.undo();
            let left =
                left.map_err(|source| Error::Unfinished { rollback: record.id, source: Box::new(source) })?;
            recovery.warnings.extend(left);
        }
        let facts =
            FinishFacts { error: Some("the process ended half-way".to_owned()), ..FinishFacts::default() };
        let at = self.environment.now();
        self.catalog.write(|transaction| {
            transaction.finish_rollback(record.id, RollbackState::Aborted, at, &facts)
        })?;
        recovery.undone.push(record.id);
        recovery.add(self.settle_once(record, &mut prepared, Ended::Undone, progress)?);
        Ok(())
    }

    /// Parts of an interrupted rollback of a folder besides its files.
    pub(crate) fn left_by<'m>(
        &'m self,
        folder: &'m Workspace,
        record: &Rollback,
    ) -> Result<Vec<LeftPart<'m>>, Error> {
        let mut left = Vec::new();
        for kind in KINDS {
            left.extend(kind.left_by(self, folder, record)?);
        }
        Ok(left)
    }

    /// Continues an interrupted rollback of the files and of these parts.
    pub(crate) fn resume<'p>(
        &self,
        files: &'p FilesPart<'_>,
        parts: &'p [LeftPart<'_>],
        record: &Rollback,
    ) -> Result<Vec<Box<dyn Prepared + 'p>>, Error> {
        let (rollback, steps) = (record.id, self.catalog.steps(record.id)?);
        let mut prepared = vec![files.resume(Left { rollback, steps, note: Vec::new() })?];
        for LeftPart { part, note } in parts {
            prepared.push(part.resume(Left { rollback, steps: Vec::new(), note: note.clone() })?);
        }
        Ok(prepared)
    }

    fn settle_crashed(
        &self,
        files: &FilesPart<'_>,
        record: &Rollback,
        progress: &dyn Progress,
        recovery: &mut Recovery,
    ) -> Result<(), Error> {
        if planted!("recovery-leaves-what-was-displaced") {
            return Ok(());
        }
        let left = self.left_by(files.workspace, record)?;
        let mut prepared = self.resume(files, &left, record)?;
        let settling = self.settle_once(record, &mut prepared, Ended::Done, progress)?;
        if settling.waiting.is_empty() && settling.warnings.is_empty() {
            recovery.settled.push(record.id);
        }
        recovery.add(settling);
        Ok(())
    }

    /// Stages whose rollback is not, or no longer, under way.
    fn sweep(
        &self,
        part: &FilesPart<'_>,
        root: &Root,
        progress: &dyn Progress,
        recovery: &mut Recovery,
    ) -> Result<(), Error> {
        let (staged, applied) = Stage::leftovers(root)?;
        for id in staged.iter().chain(&applied).copied() {
            let record = self.catalog.rollback(id)?;
            let ended = match record.as_ref().map(|record| record.state) {
                // It ended, and deleting its stage was interrupted or forgotten by the disk.
                Some(RollbackState::Aborted) => Ended::Undone,
                Some(RollbackState::Settled) => Ended::Done,
                // Waiting files were just checked.
                Some(RollbackState::Applying | RollbackState::Done) => continue,
                // No intent was recorded, so it holds copies only; the workspace is locked, so no process fills it.
                Some(RollbackState::Refused) | None
                    if staged.contains(&id) || planted!("recovery-deletes-what-it-does-not-know") =>
                {
                    if let Some(stage) = Stage::open(root, id, part.capabilities)? {
                        stage.discard()?;
                    }
                    continue;
                }
                Some(RollbackState::Refused) | None => {
                    recovery.foreign.push(id);
                    recovery.warnings.push(Warning::ForeignRollback { rollback: id });
                    continue;
                }
            };
            if let Some(record) = record {
                let mut prepared = self.resume(part, &[], &record)?;
                recovery.add(self.settle_once(&record, &mut prepared, ended, progress)?);
            }
        }
        Ok(())
    }
}
