//! RECOVER: finishes or undoes what a crash left. Every verb does it first; it may itself be killed and done again.

use crate::parts::files::FilesPart;
use crate::parts::git::{GitCapture, GitPart};
use crate::parts::part::{Left, Part, Prepared};
use crate::rollback::carry::Settling;
use crate::warning::cause;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{FinishFacts, Workspace};
use safepoint_model::rollback::{Rescued, Rollback, RollbackState};
use safepoint_model::{Progress, RelPath, RollbackId};
use safepoint_planted::planted;
use safepoint_workspace::{Ended, Root, Stage, WorkspaceError};
use std::sync::PoisonError;
use std::time::Duration;

/// Result of a recovery.
#[derive(Debug, Clone, PartialEq, Default)]
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

    pub(crate) fn join(&mut self, other: Recovery) {
        let known = self.waiting.clone();
        self.undone.extend(other.undone);
        self.settled.extend(other.settled);
        self.rescued.extend(other.rescued);
        // A file waits until its writer ends, so each recovery names it.
        self.waiting.extend(other.waiting.into_iter().filter(|path| !known.contains(path)));
        self.released.extend(other.released);
        self.foreign.extend(other.foreign);
        self.warnings.extend(other.warnings);
    }

    pub(crate) fn add(&mut self, settling: Settling) {
        self.rescued.extend(settling.rescued);
        self.waiting.extend(settling.waiting);
        self.warnings.extend(settling.warnings);
    }
}

impl CheckpointManager {
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
            self.recovered.lock().unwrap_or_else(PoisonError::into_inner).join(recovery.clone());
        }
        Ok(recovery)
    }

    /// Returns the results of all recoveries since the last call. After a verb that failed this is the only way to them; the result of one that
    /// succeeded carries its own.
    pub fn take_recovered(&self) -> Recovery {
        std::mem::take(&mut *self.recovered.lock().unwrap_or_else(PoisonError::into_inner))
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
        self.sweep_sandboxes(workspace.id)?;
        // Leftovers of a killed search only cost space, so a failure waits for the next command.
        let _ = self.home.sweep_scratch();
        // Nothing is captured here, so no pattern matters, and no wrong line in a configuration stands in the way.
        let mut part = FilesPart::new(self, root, workspace, Vec::new());
        let unfinished = self.catalog.unfinished(workspace.id)?;
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
        let git =
            GitPart { manager: self, workspace: files.workspace, capture: GitCapture::None, moving: None };
        // Nothing is undone where something of it could not be.
        let outside = self.outside_left(files.workspace, record)?;
        let mut prepared = self.resume(&[files, &git], record)?;
        for (part, note) in &outside {
            prepared.push(part.resume(Left {
                rollback: record.id,
                steps: Vec::new(),
                note: note.clone(),
            })?);
        }
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

    /// Takes up what a crash left of these parts.
    pub(crate) fn resume<'p>(
        &self,
        parts: &[&'p dyn Part],
        record: &Rollback,
    ) -> Result<Vec<Box<dyn Prepared + 'p>>, Error> {
        let steps = self.catalog.steps(record.id)?;
        let left = Left { rollback: record.id, steps, note: Vec::new() };
        parts.iter().map(|part| part.resume(left.clone())).collect()
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
        let outside = match self.outside_left(files.workspace, record) {
            // The rollback is done; a program that is not here has nothing that others wait for.
            Err(Error::UnknownPart { .. }) => Vec::new(),
            outside => outside?,
        };
        let mut prepared = self.resume(&[files], record)?;
        for (part, note) in &outside {
            prepared.push(part.resume(Left {
                rollback: record.id,
                steps: Vec::new(),
                note: note.clone(),
            })?);
        }
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
                let mut prepared = self.resume(&[part], &record)?;
                recovery.add(self.settle_once(&record, &mut prepared, ended, progress)?);
            }
        }
        Ok(())
    }
}
