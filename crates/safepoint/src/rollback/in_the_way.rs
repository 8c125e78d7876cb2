//! Plans in the way: those that work in a folder which a rollback changes, whether the checkpoint holds them or not.
//!
//! A plan that a runner drives is never rolled back under it, and neither are its files. An idle plan is restored with the files
//! where the checkpoint holds it; else it stays, and it is on record that its files went without it.

use super::Request;
use crate::handles::Plans;
use crate::home::PlanLock;
use crate::{CheckpointManager, Error, process};
use safepoint_catalog::{PlanRecord, Transaction};
use safepoint_model::checkpoint::PartKind;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::rollback::Verb;
use safepoint_model::{CheckpointId, Timestamp, WorkspaceId};
use serde_json::json;

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

    /// Locks the plans that work in a folder of a rollback and are not restored with it: they cannot run. Notes these plans in the
    /// request; one whose runner this process descends from is let be.
    pub(crate) fn hold_others(
        &self,
        request: &mut Request<'_>,
        going: &[&str],
    ) -> Result<Vec<PlanLock>, Error> {
        let mut locks = Vec::new();
        for workspace in request.folders() {
            for plan in self.plans_at(workspace)? {
                let id = plan.plan.id;
                if going.contains(&id.as_str()) {
                    continue;
                }
                if request.own_run.as_ref() != Some(&id) {
                    locks.push(self.keep_still(&id)?);
                }
                request.left.push(id);
            }
        }
        Ok(locks)
    }

    /// The plan whose runner started this process, where it works in a folder of the rollback.
    pub(crate) fn own_run(&self, request: &Request<'_>) -> Result<Option<String>, Error> {
        for workspace in request.folders() {
            for plan in self.plans_at(workspace)? {
                let run = self.catalog.last_run(&plan.plan.id)?.filter(|run| run.ended_at.is_none());
                if run.is_some_and(|run| process::descends_from(run.pid))
                    && self.plans().is_running(&plan.plan.id)?
                {
                    return Ok(Some(plan.plan.id));
                }
            }
        }
        Ok(None)
    }

    /// Puts on record, in the transaction that publishes a rollback, that the files of these plans went without them.
    pub(super) fn note_left(
        &self,
        transaction: &Transaction<'_>,
        request: &Request<'_>,
        at: Timestamp,
    ) -> Result<(), Error> {
        for id in &request.left {
            let kind = match request.verb {
                _ if request.own_run.as_ref() == Some(id) => PlanNoteKind::FilesRolledBackByStep,
                Verb::Undo => PlanNoteKind::FilesReturned,
                Verb::Rollback | Verb::Redo | Verb::Apply => PlanNoteKind::FilesRolledBack,
            };
            let body = json!({ "checkpoint": request.to.id, "verb": request.verb });
            transaction.note_plan(id, kind, &body, at)?;
        }
        Ok(())
    }
}

impl Plans<'_> {
    /// The checkpoint that the files of a plan went back to without the plan; nothing where the two belong together.
    ///
    /// # Errors
    /// When there is no such plan, or the catalog cannot be read.
    pub fn left_by_files(&self, id: &str) -> Result<Option<CheckpointId>, Error> {
        let notes = self.notes(id)?;
        let of_files = [PlanNoteKind::FilesRolledBack, PlanNoteKind::FilesReturned, PlanNoteKind::RolledBack];
        let last = notes.iter().rfind(|note| of_files.contains(&note.kind));
        let left = last.filter(|note| note.kind == PlanNoteKind::FilesRolledBack);
        Ok(left.and_then(|note| note.body["checkpoint"].as_str()?.parse().ok()))
    }
}

impl Request<'_> {
    /// The folders that it may change.
    fn folders(&self) -> Vec<WorkspaceId> {
        match self.alone() {
            Some(alone) => vec![alone],
            None => {
                let files = self.to.parts.iter().filter(|part| part.kind == PartKind::Files);
                files.filter_map(|part| part.key.parse().ok()).collect()
            }
        }
    }
}
