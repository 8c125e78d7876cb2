//! UNDO and REDO: one more rollback, to what was there just before the one that it answers.

use crate::parts::git::git_folder;
use crate::rollback::{Request, RollbackOptions, RolledBack};
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::checkpoint::PartKind;
use safepoint_model::rollback::{Rollback, RollbackState, Verb};
use safepoint_model::{CheckpointId, Progress, RelPath, RollbackId, WorkspaceId};

/// So often another command may come first.
const TRIES: usize = 8;

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
    /// Takes the last rollback of a workspace back: everything that it was about is as it was just before. One of several folders is taken
    /// back in all of them. Without a workspace it is the last one of several folders.
    ///
    /// # Errors
    /// [`Error::NothingToUndo`]; or as [`CheckpointManager::rollback`].
    pub fn undo<'w>(
        &self,
        at: impl Into<Option<&'w Workspace>>,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        self.answer(at.into(), Verb::Undo, options, progress)
    }

    /// Does the rollback again that was last undone.
    ///
    /// # Errors
    /// [`Error::NothingToRedo`]; or as [`CheckpointManager::rollback`].
    pub fn redo<'w>(
        &self,
        at: impl Into<Option<&'w Workspace>>,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        self.answer(at.into(), Verb::Redo, options, progress)
    }

    /// Whether there was a rollback of several folders. [`CheckpointManager::undo`] takes the last one back where no workspace is named.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn has_gone_together(&self) -> Result<bool, Error> {
        Ok(self.catalog.last_together()?.is_some())
    }

    fn answer(
        &self,
        at: Option<&Workspace>,
        verb: Verb,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let workspace = &match at {
            Some(workspace) => workspace.clone(),
            None => {
                let last = self.catalog.last_together()?.ok_or(Error::NothingToUndo)?;
                self.workspace(last)?
            }
        };
        // What a crash left may be the very rollback that is to be undone.
        let recovered = self.recover(workspace, progress)?;
        let mut tries = 1..=TRIES;
        loop {
            let (answered, before) = self.answered(workspace.id, verb)?;
            let mut options = options.clone();
            options.parts.clone_from(&answered.parts);
            // The folder of a repository that went alone is on record as a path, and is a part.
            options.paths = answered.paths;
            options.paths.retain(|path| !answered.parts.contains(&PartKind::Git) || *path != git_folder());
            let at = answered.together.is_none().then_some(workspace.id);
            let mut request = Request::new(verb, at, self.checkpoint(before)?, &options);
            request.answers = Some(answered.id);
            match self.roll_back(&request, progress) {
                Err(Error::AnsweredMeanwhile { .. }) if tries.next().is_some() => {}
                done => {
                    let mut done = done?;
                    let mut first = recovered;
                    first.join(std::mem::take(&mut done.recovered));
                    done.recovered = first;
                    return Ok(done);
                }
            }
        }
    }

    /// Whether the rollback that is answered is still the one to answer, now that its folders are held.
    pub(crate) fn still_answers(&self, request: &Request<'_>) -> Result<(), Error> {
        let Some(rollback) = request.answers else { return Ok(()) };
        let Some(record) = self.catalog.rollback(rollback)? else { return Ok(()) };
        match self.answered(record.workspace_id, request.verb)?.0.id == rollback {
            true => Ok(()),
            false => Err(Error::AnsweredMeanwhile { rollback }),
        }
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
    fn answered(&self, workspace: WorkspaceId, verb: Verb) -> Result<(Rollback, CheckpointId), Error> {
        let history = self.catalog.rollbacks(workspace)?;
        let mut stacks = stacks(&history);
        let answered = match verb {
            Verb::Redo => stacks.redo.pop().ok_or(Error::NothingToRedo)?,
            _ => stacks.undo.pop().ok_or(Error::NothingToUndo)?,
        };
        Ok((answered.clone(), answered.safety_checkpoint.ok_or(Error::NothingToUndo)?))
    }
}
