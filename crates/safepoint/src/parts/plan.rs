//! A plan as a part of a checkpoint: its state as a document, put back by the transaction that commits everything.

use crate::correct::Correction;
use crate::part::{Outline, Prepared};
use crate::restore::Request;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{PlanRecord, Transaction};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::plan::document;
use safepoint_model::plan::state::{Plan, PlanState, TakenBack};
use safepoint_model::rollback::Step;
use safepoint_model::{
    CheckpointId, ObjectError, ObjectSink, ObjectSource, Progress, RelPath, RollbackId, Timestamp,
};
use safepoint_planted::planted;
use safepoint_store::Writer;
use safepoint_workspace::{Ended, Finding};
use serde_json::json;

/// The part of a checkpoint that holds a plan.
pub(crate) fn plan_part(checkpoint: &Checkpoint) -> Option<&PartRecord> {
    checkpoint.parts.iter().find(|part| part.kind == PartKind::Plan)
}

/// Keeps a plan as it is, and notes in the checkpoint what it was.
pub(crate) fn capture(sink: &dyn ObjectSink, plan: &Plan) -> Result<PartRecord, ObjectError> {
    let document = document::store(sink, plan)?;
    Ok(PartRecord { kind: PartKind::Plan, key: plan.id.clone(), document })
}

/// What a rollback does to a plan.
pub(crate) struct PlanRollback {
    then: Plan,
    to: CheckpointId,
    correction: Option<Correction>,
    now: PlanRecord,
    rollback: RollbackId,
    at: Timestamp,
}

impl PlanRollback {
    /// Works out what a checkpoint's plan means for the plan as it is; nothing where it holds none.
    pub(crate) fn prepare(
        manager: &CheckpointManager,
        source: &dyn ObjectSource,
        request: &Request<'_>,
        rollback: RollbackId,
    ) -> Result<Option<Self>, Error> {
        let Some(part) = plan_part(&request.to) else { return Ok(None) };
        let now = manager.plan(&part.key)?;
        let mut prepared = Self::to_part(manager, source, part, request.to.id, rollback, now)?;
        if let Some(correction) = request.correction {
            correction.edit(&mut prepared.then);
            prepared.correction = Some(correction.clone());
        }
        Ok(Some(prepared))
    }

    /// The same for a part that is known.
    pub(crate) fn to_part(
        manager: &CheckpointManager,
        source: &dyn ObjectSource,
        part: &PartRecord,
        to: CheckpointId,
        rollback: RollbackId,
        now: PlanRecord,
    ) -> Result<Self, Error> {
        guard(&now)?;
        let then = document::load(source, part.document)?;
        Ok(Self { then, to, correction: None, now, rollback, at: manager.environment.now() })
    }

    /// The plan as it is before the rollback.
    pub(crate) fn now(&self) -> &PlanRecord {
        &self.now
    }

    /// What it takes back.
    pub(crate) fn taken_back(&self) -> TakenBack {
        self.now.plan.taken_back_by(&self.then)
    }
}

/// Nobody may have changed a plan since it was looked at.
pub(crate) fn unchanged(transaction: &Transaction<'_>, then: &PlanRecord) -> Result<(), Error> {
    let id = &then.plan.id;
    match transaction.plan_version(id)? == then.version {
        true => Ok(()),
        false => Err(Error::PlanChanged { id: id.clone() }),
    }
}

impl Records for PlanRollback {
    /// Checked once more with what the database says at the moment of the commit: nobody may have changed the plan since it was
    /// kept in the safety checkpoint.
    fn check(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let id = &self.now.plan.id;
        let record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.clone() })?;
        guard(&record)?;
        unchanged(transaction, &self.now)
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.check(transaction)?;
        let id = &self.then.id;
        let back = self.taken_back();
        transaction.save_plan(&self.then, &format!("rollback {}", self.rollback), self.at)?;
        let superseded: Vec<_> =
            self.now.plan.decisions.iter().filter(|it| back.decisions.contains(&it.id)).collect();
        if !superseded.is_empty() {
            let body = json!({ "rollback": self.rollback, "decisions": superseded });
            transaction.note_plan(id, "superseded", &body, self.at)?;
        }
        if !back.subplans.is_empty() {
            let body = json!({ "rollback": self.rollback, "subplans": back.subplans });
            transaction.note_plan(id, "invalidated", &body, self.at)?;
        }
        let to_version = transaction.plan_checkpoint_version(self.to)?;
        let body = json!({
            "rollback": self.rollback, "checkpoint": self.to, "to_version": to_version, "steps": back.steps,
        });
        transaction.note_plan(id, "rolled_back", &body, self.at)?;
        match &self.correction {
            Some(correction) => correction.note(transaction, id, self.to, self.at),
            None => Ok(()),
        }
    }
}

/// What may never be rolled back (R5.5).
pub(crate) fn guard(record: &PlanRecord) -> Result<(), Error> {
    match record.plan.state {
        PlanState::Applied if !planted!("guard-rolls-back-what-was-applied") => {
            Err(Error::PlanApplied { id: record.plan.id.clone() })
        }
        _ => Ok(()),
    }
}

/// What lives in the catalog and is put back, or moved on, by the commit that publishes the files.
pub(crate) trait Records {
    /// Whether it may still be, as the catalog has it at this moment.
    fn check(&self, transaction: &Transaction<'_>) -> Result<(), Error>;

    /// Writes it, in the transaction that commits everything.
    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error>;
}

/// The files of a workspace and what the catalog holds about the work there, as one.
pub(crate) struct WithRecords<'p> {
    pub(crate) files: Box<dyn Prepared + 'p>,
    pub(crate) records: Box<dyn Records + 'p>,
}

impl Prepared for WithRecords<'_> {
    fn outline(&self) -> &Outline {
        self.files.outline()
    }

    fn steps(&self) -> &[Step] {
        self.files.steps()
    }

    fn stage(&mut self, id: RollbackId, progress: &dyn Progress) -> Result<(), Error> {
        self.files.stage(id, progress)
    }

    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.files.intend(transaction)?;
        self.records.check(transaction)
    }

    fn apply(&mut self, progress: &dyn Progress) -> Result<Vec<RelPath>, Error> {
        self.files.apply(progress)
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.files.publish(transaction)?;
        self.records.publish(transaction)
    }

    fn undo(&mut self) -> Result<(), Error> {
        self.files.undo()
    }

    fn settle(
        &mut self,
        ended: Ended,
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<Finding>, Error> {
        self.files.settle(ended, writer, progress)
    }

    fn clear(&mut self) -> Result<bool, Error> {
        self.files.clear()
    }
}
