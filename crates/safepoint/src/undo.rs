//! UNDO and REDO: one more rollback, to what was there just before the one that it answers.

use crate::restore::{Request, RestoreOptions, Restored};
use crate::together::{RestoredTogether, Wish};
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::checkpoint::PartKind;
use safepoint_model::rollback::{Rollback, RollbackState, Strategy, Verb};
use safepoint_model::{CheckpointId, Progress, RelPath, RollbackId, WorkspaceId};

/// What can be undone and redone, last first to go.
#[derive(Debug, Default)]
struct Stacks<'a> {
    undo: Vec<&'a Rollback>,
    redo: Vec<&'a Rollback>,
}

/// Reads the stacks off the history. A rollback starts anew: what had been undone before it cannot be redone after it.
fn stacks(history: &[Rollback]) -> Stacks<'_> {
    let mut stacks = Stacks::default();
    let done = |record: &&Rollback| matches!(record.state, RollbackState::Done | RollbackState::Settled);
    for record in history.iter().filter(done) {
        match record.verb {
            Verb::Rollback | Verb::Apply => {
                stacks.undo.push(record);
                stacks.redo.clear();
            }
            Verb::Undo => {
                stacks.undo.pop();
                stacks.redo.push(record);
            }
            Verb::Redo => {
                stacks.redo.pop();
                stacks.undo.push(record);
            }
        }
    }
    stacks
}

/// The rollbacks that the next undo and the next redo would answer.
pub(crate) fn next_answers(history: &[Rollback]) -> Vec<&Rollback> {
    let stacks = stacks(history);
    [stacks.undo.last(), stacks.redo.last()].into_iter().flatten().copied().collect()
}

impl CheckpointManager {
    /// Takes the last rollback back: the workspace, or the paths that were chosen then, is as it was just before.
    ///
    /// # Errors
    /// [`Error::NothingToUndo`]; or as [`CheckpointManager::restore`].
    pub fn undo(
        &self,
        workspace: &Workspace,
        options: &RestoreOptions,
        progress: &dyn Progress,
    ) -> Result<Restored, Error> {
        self.answer(workspace, Verb::Undo, options, progress)
    }

    /// Does the rollback again that was last undone.
    ///
    /// # Errors
    /// [`Error::NothingToRedo`]; or as [`CheckpointManager::restore`].
    pub fn redo(
        &self,
        workspace: &Workspace,
        options: &RestoreOptions,
        progress: &dyn Progress,
    ) -> Result<Restored, Error> {
        self.answer(workspace, Verb::Redo, options, progress)
    }

    fn answer(
        &self,
        workspace: &Workspace,
        verb: Verb,
        options: &RestoreOptions,
        progress: &dyn Progress,
    ) -> Result<Restored, Error> {
        // What a crash left may be the very rollback that is to be undone.
        self.recover(workspace, progress)?;
        let (answered, before) = self.answered(workspace, verb)?;
        if answered.together.is_some() {
            return Err(Error::GoesTogether { checkpoint: before });
        }
        let options = RestoreOptions { paths: answered.paths.clone(), ..options.clone() };
        let to = self.checkpoint(before)?;
        let asked = Request {
            verb,
            answers: Some(answered.id),
            to,
            options: &options,
            correction: None,
            taking: None,
        };
        let records = || self.record_of(workspace, &asked).into_iter().collect();
        let (restored, effects) = self.with_effects(&asked.to, &options, &records, progress, |options| {
            self.restore_within_cap(workspace, options, progress, || {
                let held = self.hold(workspace)?;
                self.recover_held(workspace, &held.root, progress)?.refuse_foreign(workspace)?;
                // Somebody else may have undone it meanwhile.
                let (answered, before) = self.answered(workspace, verb)?;
                let part = match self.was_git_alone(&answered)? {
                    true => Some(PartKind::Git),
                    false => self.record_alone(&answered, before)?,
                };
                let options = RestoreOptions { paths: answered.paths.clone(), part, ..options.clone() };
                let request = Request {
                    verb,
                    answers: Some(answered.id),
                    to: self.checkpoint(before)?,
                    options: &options,
                    correction: None,
                    taking: None,
                };
                self.restore_held(workspace, &held, &request, progress)
            })
        })?;
        Ok(restored.with(effects))
    }

    /// The part that a rollback put back alone, where that was a record and no files: its safety checkpoint holds what it moved.
    fn record_alone(&self, answered: &Rollback, safety: CheckpointId) -> Result<Option<PartKind>, Error> {
        if answered.strategy != Strategy::Selective || !answered.paths.is_empty() {
            return Ok(None);
        }
        let parts = self.checkpoint(safety)?.parts;
        let records = [PartKind::Plan, PartKind::Session];
        Ok(records.into_iter().find(|kind| parts.iter().any(|part| part.kind == *kind)))
    }

    /// Takes the last rollback of many folders back, or does it again: the one that a workspace's history ends with.
    ///
    /// # Errors
    /// [`Error::NothingToUndo`] and [`Error::NothingToRedo`]; [`Error::NotTogether`] when the last one was of this workspace alone; or as
    /// [`CheckpointManager::restore_together`].
    pub fn answer_together(
        &self,
        workspace: &Workspace,
        verb: Verb,
        options: &RestoreOptions,
        progress: &dyn Progress,
    ) -> Result<RestoredTogether, Error> {
        self.recover(workspace, progress)?;
        let (answered, before) = self.answered(workspace, verb)?;
        if answered.together.is_none() {
            return Err(Error::NotTogether { rollback: answered.id });
        }
        let to = self.checkpoint(before)?;
        let part = self.was_git_alone(&answered)?.then_some(PartKind::Git);
        let options = RestoreOptions { part, ..options.clone() };
        self.restore_wish(&Wish { verb, answers: Some(answered.id), to: &to, options: &options }, progress)
    }

    /// The paths of a workspace that a rollback changed which is answered now, sorted. Where it was one of many folders, each has its own
    /// record.
    pub(crate) fn covered(
        &self,
        workspace: WorkspaceId,
        answers: Option<RollbackId>,
    ) -> Result<Vec<RelPath>, Error> {
        let answered = answers.map(|id| self.catalog.rollback(id)).transpose()?.flatten();
        let Some(answered) = answered else { return Ok(Vec::new()) };
        let record = match answered.together {
            Some(_) if answered.workspace_id != workspace => {
                let mut records = self.catalog.rollbacks(workspace)?.into_iter();
                records.find(|record| record.together == answered.together)
            }
            _ => Some(answered),
        };
        let changed = record.map(|record| self.changed_paths(&record)).transpose()?.unwrap_or_default();
        let mut paths: Vec<RelPath> = changed.into_iter().map(|changed| changed.path).collect();
        paths.sort_unstable();
        Ok(paths)
    }

    /// The rollback that is answered, and what was there just before it.
    fn answered(&self, workspace: &Workspace, verb: Verb) -> Result<(Rollback, CheckpointId), Error> {
        let history = self.catalog.rollbacks(workspace.id)?;
        let mut stacks = stacks(&history);
        let answered = match verb {
            Verb::Redo => stacks.redo.pop().ok_or(Error::NothingToRedo)?,
            _ => stacks.undo.pop().ok_or(Error::NothingToUndo)?,
        };
        Ok((answered.clone(), answered.safety_checkpoint.ok_or(Error::NothingToUndo)?))
    }
}
