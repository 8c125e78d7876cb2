//! Plans in the way: those that work in a folder which a rollback changes, in one inside it or in one around it, whether the
//! checkpoint holds them or not.
//!
//! A plan that a runner drives is never rolled back under it, and neither are its files. An idle plan is restored with the files
//! where the checkpoint holds it; else it stays, and it is on record that its files went without it.

use super::carry::Going;
use super::effects::Effects;
use super::{DryRun, Request};
use crate::handles::Plans;
use crate::home::PlanLock;
use crate::parts::part::Outline;
use crate::places::Place;
use crate::{CheckpointManager, Error, Warning, Wish, process};
use safepoint_catalog::{PlanNote, PlanRecord, Transaction};
use safepoint_model::checkpoint::PartKind;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::rollback::{Action, Rollback};
use safepoint_model::{CheckpointId, RelPath, RollbackId, Timestamp, WorkspaceId};
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A plan that works where a rollback changes files.
#[derive(Debug, Clone)]
pub(crate) struct PlanInTheWay {
    pub(crate) plan: String,
    /// Each folder of the rollback that it works in, and the part of that folder: the root if it works in all of it.
    shared: Vec<(WorkspaceId, RelPath)>,
}

impl PlanInTheWay {
    /// Returns true if these changes of a folder are changes of the plan's files.
    pub(crate) fn is_changed_by(&self, folder: WorkspaceId, outline: &Outline) -> bool {
        let shared = self.shared.iter().filter(|(id, _)| *id == folder);
        let changed = || outline.paths.iter().filter(|changed| changed.action != Action::Kept);
        shared.map(|(_, part)| part).any(|part| changed().any(|changed| overlap(&changed.path, part)))
    }
}

/// Returns true if one path is the other or lies in it.
fn overlap(one: &RelPath, other: &RelPath) -> bool {
    one.is_within(other) || other.is_within(one)
}

impl CheckpointManager {
    /// The plans that work in a folder and are not over.
    pub(crate) fn plans_at(&self, workspace: WorkspaceId) -> Result<Vec<PlanRecord>, Error> {
        let mut ids: Vec<String> = Vec::new();
        ids.extend(self.catalog.plans(Some(workspace))?.into_iter().map(|plan| plan.id));
        ids.extend(self.catalog.plan_of_sandbox(workspace)?);
        let mut plans = Vec::new();
        for id in ids {
            let record = self.plans().get(&id)?;
            if !record.plan.state.is_over() && self.place_of(&record)?.id == workspace {
                plans.push(record);
            }
        }
        Ok(plans)
    }

    /// The plans that are not over and work where a rollback may change files.
    pub(super) fn plans_in_the_way(
        &self,
        request: &Request<'_>,
    ) -> Result<Vec<(PlanRecord, PlanInTheWay)>, Error> {
        let open: Vec<_> =
            self.catalog.plans(None)?.into_iter().filter(|plan| !plan.state.is_over()).collect();
        let mut found = Vec::new();
        if open.is_empty() {
            return Ok(found);
        }
        let places = self.scene(request, &mut Vec::new())?.places;
        for plan in open {
            let record = self.plans().get(&plan.id)?;
            let place = self.place_of(&record)?;
            let shared: Vec<_> = places
                .iter()
                .filter_map(|changed| {
                    Some((changed.workspace.id, request.shared(changed, place.root_path())?))
                })
                .collect();
            if !shared.is_empty() {
                found.push((record, PlanInTheWay { plan: plan.id, shared }));
            }
        }
        Ok(found)
    }

    /// Locks the plans in the way that are not restored: they cannot run, and no process of a dead runner writes any more. Notes these
    /// plans in the request; one whose runner this process descends from is not locked.
    pub(crate) fn hold_others(
        &self,
        request: &mut Request<'_>,
        going: &[&str],
        effects: &mut Effects,
    ) -> Result<Vec<PlanLock>, Error> {
        let mut locks = Vec::new();
        for (_, plan) in self.plans_in_the_way(request)? {
            if going.contains(&plan.plan.as_str()) {
                continue;
            }
            if !request.own_runs.contains(&plan.plan) {
                let (lock, dead) = match request.options.dry_run {
                    DryRun::Yes => (self.keep_still(&plan.plan)?, None),
                    DryRun::No => self.hold_plan(&plan.plan)?,
                };
                locks.push(lock);
                if let Some(dead) = dead.filter(|dead| dead.ended_processes > 0) {
                    let count = dead.ended_processes as u64;
                    effects.warnings.push(Warning::LeftoversEnded { count });
                }
            }
            request.left.push(plan);
        }
        Ok(locks)
    }

    /// Notes in a request the plans whose runners started this process. A step may roll back files; its plan is in the hands of the runner.
    /// So a request without a choice of parts is one for files, and one for a plan is refused.
    pub(super) fn note_own_runs(&self, request: &mut Request<'_>) -> Result<(), Error> {
        let mut runner = None;
        for (_, plan) in self.plans_in_the_way(request)? {
            let run = self.catalog.last_run(&plan.plan)?.filter(|run| run.ended_at.is_none());
            if let Some(run) = run.filter(|run| process::descends_from(run.pid))
                && self.plans().is_running(&plan.plan)?
            {
                runner = Some((plan.plan.clone(), run.pid));
                request.own_runs.push(plan.plan);
            }
        }
        match runner.filter(|_| request.options.wants(PartKind::Plan)) {
            Some((id, pid)) if request.names_plan() => {
                Err(Error::PlanRunning { id, pid: Some(pid), wish: Wish::Change })
            }
            Some(_) => {
                request.options.parts = vec![PartKind::Files];
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Puts on record, in the transaction that publishes a rollback, that the files of these plans went without them.
    pub(super) fn note_left(
        &self,
        transaction: &Transaction<'_>,
        request: &Request<'_>,
        all: &[Going<'_>],
        at: Timestamp,
    ) -> Result<(), Error> {
        if request.left.is_empty() {
            return Ok(());
        }
        let outlines: Vec<_> = all.iter().map(|going| (going.record.workspace_id, going.outline())).collect();
        let is_changed = |plan: &&PlanInTheWay| {
            outlines.iter().any(|(folder, outline)| plan.is_changed_by(*folder, outline))
        };
        let whole = |record: &Rollback| record.together.unwrap_or(record.id);
        let rollback = all.first().map(|going| whole(&going.record));
        let answered = request.answers.map(|id| transaction.rollback(id)).transpose()?.flatten();
        for PlanInTheWay { plan: id, .. } in request.left.iter().filter(is_changed) {
            let (mut checkpoint, mut verb) = (json!(request.to.id), json!(request.verb));
            let notes = transaction.plan_notes(id)?;
            let kind = match answered.as_ref().map(|answered| standing_before(&notes, whole(answered))) {
                _ if request.own_runs.contains(id) => PlanNoteKind::FilesRolledBackByStep,
                Some(Standing::Together) => PlanNoteKind::FilesReturned,
                Some(Standing::Apart(note)) => {
                    (checkpoint, verb) = (note.body["checkpoint"].clone(), note.body["verb"].clone());
                    PlanNoteKind::FilesRolledBack
                }
                Some(Standing::Unknown) | None => PlanNoteKind::FilesRolledBack,
            };
            let body = json!({ "checkpoint": checkpoint, "verb": verb, "rollback": rollback });
            transaction.note_plan(id, kind, &body, at)?;
        }
        Ok(())
    }
}

/// A plan and its files before a rollback of the files alone.
enum Standing<'n> {
    /// Both belonged together.
    Together,
    /// An earlier rollback had changed the files without the plan; the note of it.
    Apart(&'n PlanNote),
    /// The rollback did not change the files of the plan, or the plan did not exist yet.
    Unknown,
}

/// Returns the standing to which the undo or redo of a rollback returns a plan that stays as it is.
fn standing_before(notes: &[PlanNote], answered: RollbackId) -> Standing<'_> {
    let kinds = [PlanNoteKind::FilesRolledBack, PlanNoteKind::FilesReturned];
    let is_of_it = |note: &PlanNote| kinds.contains(&note.kind) && note.body["rollback"] == json!(answered);
    match notes.iter().rposition(is_of_it).map(|at| left_by(&notes[..at])) {
        None => Standing::Unknown,
        Some(None) => Standing::Together,
        Some(Some(note)) => Standing::Apart(note),
    }
}

/// Returns the note of the rollback that changed the files of a plan without the plan; nothing where both belong together.
fn left_by(notes: &[PlanNote]) -> Option<&PlanNote> {
    let of_files = [PlanNoteKind::FilesRolledBack, PlanNoteKind::FilesReturned, PlanNoteKind::RolledBack];
    let last = notes.iter().rfind(|note| of_files.contains(&note.kind));
    last.filter(|note| note.kind == PlanNoteKind::FilesRolledBack)
}

impl Plans<'_> {
    /// The checkpoint that the files of a plan went back to without the plan; nothing where the two belong together.
    ///
    /// # Errors
    /// When there is no such plan, or the catalog cannot be read.
    pub fn left_by_files(&self, id: &str) -> Result<Option<CheckpointId>, Error> {
        let notes = self.notes(id)?;
        Ok(left_by(&notes).and_then(|note| note.body["checkpoint"].as_str()?.parse().ok()))
    }
}

impl Request<'_> {
    /// Returns true if it asks for a plan, and not only for all that the checkpoint holds.
    fn names_plan(&self) -> bool {
        self.of_plan || self.correction.is_some() || self.options.parts.contains(&PartKind::Plan)
    }

    /// The part of a folder of the rollback that lies in a plan's folder, if files there may change. It is the root where the plan's folder
    /// is this one or around it.
    fn shared(&self, changed: &Place, plan: &Path) -> Option<RelPath> {
        let root = changed.workspace.root_path();
        if root.starts_with(plan) {
            return Some(RelPath::root());
        }
        let below = plan.strip_prefix(root).ok()?;
        let name = below.components().next()?.as_os_str();
        let part = RelPath::new(below.as_os_str().as_bytes()).ok()?;
        let is_part = changed.only.as_ref().is_none_or(|only| only.iter().any(|one: &OsString| one == name));
        let left = changed.leave.iter().any(|left| part.is_within(left));
        // Paths are those of the one workspace.
        let is_own = self.alone() == Some(changed.workspace.id);
        let options = &self.options;
        let chosen = options.paths.is_empty() || options.paths.iter().any(|path| overlap(path, &part));
        let spared = options.leave.iter().any(|left| part.is_within(left));
        (is_part && !left && (!is_own || (chosen && !spared))).then_some(part)
    }
}
