//! UNDO and REDO: one more rollback, to what was there just before the one that it answers.

use crate::parts::Member;
use crate::parts::git::without_git_folder;
use crate::parts::kinds::chosen_as;
use crate::rollback::{DryRun, LaterChanges, Request, RollbackOptions, RolledBack};
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::checkpoint::PartKind;
use safepoint_model::rollback::{Action, Rollback, RollbackState, Verb};
use safepoint_model::{CheckpointId, ObjectId, Progress, RelPath, RollbackId, WorkspaceId};
use safepoint_store::Writer;

/// So often another command may come first.
const TRIES: usize = 8;

/// Rollbacks to undo and redo, in stack order.
#[derive(Debug, Default)]
struct Stacks<'a> {
    undo: Vec<&'a Rollback>,
    redo: Vec<&'a Rollback>,
}

/// Reads the stacks off the history. A rollback starts anew: what had been undone before it cannot be redone after it.
fn stacks(history: &[Rollback]) -> Stacks<'_> {
    let mut stacks = Stacks::default();
    for record in history.iter().filter(|record| is_done(record)) {
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

fn is_done(record: &Rollback) -> bool {
    matches!(record.state, RollbackState::Done | RollbackState::Settled)
}

/// The rollbacks that the next undo and the next redo would answer.
pub(crate) fn next_answers(history: &[Rollback]) -> Vec<&Rollback> {
    let stacks = stacks(history);
    [stacks.undo.last(), stacks.redo.last()].into_iter().flatten().copied().collect()
}

fn spares_changes(options: &RollbackOptions) -> bool {
    options.dry_run == DryRun::No && options.later_changes == LaterChanges::Refused
}

impl CheckpointManager {
    /// Undoes the last rollback of a workspace; one of several folders in all of them. Without a workspace it is the last one of several
    /// folders. With `paths` in the options only these paths are restored to just before it: that is a rollback of its own.
    ///
    /// # Errors
    /// [`Error::NothingToUndo`], also where the last rollback was not about these paths; [`Error::ChangedSinceRollback`] where files changed since and `options` do not say
    /// [`LaterChanges::Replaced`]; or as [`CheckpointManager::rollback`].
    pub fn undo<'w>(
        &self,
        at: impl Into<Option<&'w Workspace>>,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let at = at.into();
        match at.filter(|_| !options.paths.is_empty()) {
            Some(workspace) => self.undo_chosen(workspace, options, progress),
            None => self.answer(at, Verb::Undo, options, progress),
        }
    }

    /// Undoes the last rollback for the paths of `options` alone. This is a rollback of its own, to what was there just before; an undo
    /// takes it back.
    ///
    /// # Errors
    /// [`Error::NotInLastRollback`] where the last rollback was not about one of these paths; or as [`CheckpointManager::undo`].
    fn undo_chosen(
        &self,
        workspace: &Workspace,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let mark = self.recovery_mark();
        self.recover(workspace, progress)?;
        let (answered, before) = self.answered(workspace.id, Verb::Undo)?;
        let only_others = !answered.parts.is_empty() && !answered.parts.contains(&PartKind::Files);
        let is_other = |path: &&RelPath| {
            let apart = |one: &RelPath| !path.is_within(one) && !one.is_within(path);
            if answered.paths.is_empty() { only_others } else { answered.paths.iter().all(apart) }
        };
        let paths: Vec<RelPath> = options.paths.iter().filter(is_other).cloned().collect();
        if !paths.is_empty() {
            return Err(Error::NotInLastRollback { paths });
        }
        let mut request =
            Request::new(Verb::Rollback, Some(workspace.id), self.checkpoints().get(before)?, options);
        request.spares_changes = spares_changes(options);
        let done = self.roll_back(&request, progress)?;
        Ok(RolledBack { recovered: self.recovered_since(mark), ..done })
    }

    /// Does the rollback again that was last undone.
    ///
    /// # Errors
    /// [`Error::NothingToRedo`]; [`Error::ChangedSinceRollback`] as for [`CheckpointManager::undo`]; or as [`CheckpointManager::rollback`].
    pub fn redo<'w>(
        &self,
        at: impl Into<Option<&'w Workspace>>,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        self.answer(at.into(), Verb::Redo, options, progress)
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
                let none = if verb == Verb::Redo { Error::NothingToRedo } else { Error::NothingToUndo };
                let last = self.catalog.last_together()?.ok_or(none)?;
                self.workspaces().get(last)?
            }
        };
        // The rollback to undo may be one that a crash interrupted.
        let mark = self.recovery_mark();
        self.recover(workspace, progress)?;
        let mut tries = 1..=TRIES;
        loop {
            let (answered, before) = self.answered(workspace.id, verb)?;
            let mut options = options.clone();
            options.parts.clone_from(&answered.parts);
            options.paths = without_git_folder(answered.paths, &answered.parts);
            let at = answered.together.is_none().then_some(workspace.id);
            let mut request = Request::new(verb, at, self.checkpoints().get(before)?, &options);
            request.answers = Some(answered.id);
            request.spares_changes = spares_changes(&options);
            match self.roll_back(&request, progress) {
                Err(Error::AnsweredMeanwhile { .. }) if tries.next().is_some() => {}
                done => return Ok(RolledBack { recovered: self.recovered_since(mark), ..done? }),
            }
        }
    }

    /// Checks that the answered rollback is still the one to answer, now that its folders are held.
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

    /// Refuses to replace files that changed after the last rollback, undo or redo of their folder.
    pub(crate) fn spare_changes(
        &self,
        request: &Request<'_>,
        members: &[Member<'_>],
        records: &[Rollback],
        writer: &Writer<'_>,
    ) -> Result<(), Error> {
        if !request.spares_changes {
            return Ok(());
        }
        let mut paths = Vec::new();
        for (at, record) in records.iter().enumerate() {
            let history = self.catalog.rollbacks(record.workspace_id)?;
            let Some(last) = history.iter().rev().find(|record| is_done(record)) else { continue };
            let is_files = |member: &&Member<'_>| {
                member.folder == at && member.target.is_some() && member.part.kind() == PartKind::Files
            };
            for member in members.iter().filter(is_files) {
                paths.extend(self.changed_after(last, member, writer)?);
            }
        }
        if paths.is_empty() { Ok(()) } else { Err(Error::ChangedSinceRollback { verb: request.verb, paths }) }
    }

    /// Paths that are not as a rollback left them, and that going to the target would change: what it was about is as in its target, or
    /// as merged with it, all else as just before it.
    fn changed_after(
        &self,
        last: &Rollback,
        member: &Member<'_>,
        writer: &Writer<'_>,
    ) -> Result<Vec<RelPath>, Error> {
        let Some(target) = member.target else { return Ok(Vec::new()) };
        let files = chosen_as(self.workspaces().get(last.workspace_id)?.kind);
        let only_others = !last.parts.is_empty() && !last.parts.contains(&files);
        let all = last.paths.is_empty() && !only_others && last.verb != Verb::Apply;
        // It also made or removed the folders above chosen paths.
        let mut own: Vec<RelPath> = match all {
            true => Vec::new(),
            false => self.changed_paths(last)?.into_iter().map(|changed| changed.path).collect(),
        };
        own.sort_unstable();
        let about: &[RelPath] = if last.verb == Verb::Apply { &own } else { &last.paths };
        let is_about = |path: &RelPath| {
            all || own.binary_search(path).is_ok() || about.iter().any(|above| path.is_within(above))
        };
        let document = |checkpoint| self.files_before(checkpoint, last.workspace_id);
        let left = match self.left_by_keep(last, writer)? {
            Some(merged) => Some(merged),
            None => document(Some(last.to))?,
        };
        let mut changed = differing(left, member, writer);
        changed.retain(&is_about);
        if !all {
            let rest = differing(document(last.safety_checkpoint)?, member, writer);
            changed.extend(rest.into_iter().filter(|path| !is_about(path)));
        }
        if changed.is_empty() {
            return Ok(changed);
        }
        // Changed ignore rules can reveal files that were not touched: those stay.
        let replaced = differing(Some(target), member, writer);
        let touches = |path: &RelPath| replaced.iter().any(|one| one.is_within(path) || path.is_within(one));
        changed.retain(touches);
        changed.sort_unstable();
        changed.dedup();
        Ok(changed)
    }

    /// The rollback that is answered, and what was there just before it.
    fn answered(&self, workspace: WorkspaceId, verb: Verb) -> Result<(Rollback, CheckpointId), Error> {
        let history = self.catalog.rollbacks(workspace)?;
        let mut stacks = stacks(&history);
        let answered = match verb {
            Verb::Redo => stacks.redo.pop().ok_or(Error::NothingToRedo)?,
            _ => stacks.undo.pop().ok_or(Error::NothingToUndo)?,
        };
        // A rollback without a safety checkpoint changed nothing: what was there before is its target.
        Ok((answered.clone(), answered.safety_checkpoint.unwrap_or(answered.to)))
    }
}

/// Paths that a rollback of the captured files to this document would change. None where there is no document.
fn differing(document: Option<ObjectId>, member: &Member<'_>, writer: &Writer<'_>) -> Vec<RelPath> {
    let Some(document) = document else { return Vec::new() };
    // Only a change can be in the way of a state that was in place.
    let Ok(prepared) = member.part.prepare(member.captured.document, document, writer) else {
        return vec![RelPath::root()];
    };
    let paths = prepared.outline().map(|outline| outline.paths.clone()).unwrap_or_default();
    let changed = paths.into_iter().filter(|changed| changed.action != Action::Kept);
    changed.map(|changed| changed.path).collect()
}
