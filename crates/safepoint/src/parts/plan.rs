//! A plan as a part of a checkpoint: its state as a document, restored by the transaction that commits everything.

use crate::parts::kinds::{Kind, RecordsBack, RecordsNow};
use crate::parts::part::{Captured, Left, Part, Prepared, PutBack};
use crate::parts::{Member, Nothing};
use crate::plans::apply::TakingPart;
use crate::plans::correct::Correction;
use crate::rollback::scene::Scene;
use crate::rollback::{LeftAlone, Request, RollbackOptions};
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{PlanCheckpoint, PlanRecord, Transaction, Workspace};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord, Scope};
use safepoint_model::plan::document;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::state::{Plan, PlanState};
use safepoint_model::{CheckpointId, ObjectId, Progress, RollbackId, Timestamp};
use safepoint_planted::planted;
use safepoint_store::Writer;
use serde_json::json;

/// Plans, as a kind.
pub(crate) struct PlanParts;

impl Kind for PlanParts {
    fn capture_records<'m>(
        &self,
        records: &RecordsNow<'_, 'm>,
        members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        for (number, now) in records.plans.iter().cloned().enumerate() {
            let is_of_it = number < records.own_plans;
            let part = PlanPart { manager: records.manager, now, back: None, correction: None, is_of_it };
            members.push(Member::new(part, 0, None));
        }
        Ok(())
    }

    /// Removes plans that were applied or whose sandbox is missing, each with its sandbox.
    fn leave_alone(
        &self,
        manager: &CheckpointManager,
        options: &RollbackOptions,
        target: &mut Checkpoint,
    ) -> Result<Vec<LeftAlone>, Error> {
        let mut left = Vec::new();
        if options.parts.contains(&PartKind::Plan) {
            return Ok(left);
        }
        let plans: Vec<_> = plans_of(target).cloned().collect();
        for part in plans {
            let Some(record) = manager.catalog.plan(&part.key)? else { continue };
            let sandbox = manager.plans().sandbox(&record)?;
            let plan = part.key.clone();
            let why = match &sandbox {
                _ if guard(&record).is_err() => LeftAlone::PlanApplied { plan },
                Some(sandbox) if !sandbox.path.is_dir() => {
                    let folder = sandbox.path.to_string_lossy().into_owned();
                    LeftAlone::SandboxMissing { plan, folder }
                }
                _ => continue,
            };
            let sandbox = sandbox.map(|sandbox| sandbox.workspace_id.to_string());
            let before = target.parts.len();
            target
                .parts
                .retain(|it| *it != part && sandbox.as_ref().is_none_or(|sandbox| it.key != *sandbox));
            if options.wants(PartKind::Plan) || target.parts.len() + 1 < before {
                left.push(why);
            }
        }
        Ok(left)
    }

    fn stays_in(
        &self,
        manager: &CheckpointManager,
        request: &Request<'_>,
        folder: &Workspace,
        _: bool,
    ) -> Result<bool, Error> {
        if !request.options.parts.contains(&PartKind::Plan) {
            return Ok(false);
        }
        for part in plans_of(&request.to) {
            if manager.place_of(&manager.plans().get(&part.key)?)?.id == folder.id {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn find_records(
        &self,
        manager: &CheckpointManager,
        request: &Request<'_>,
        scene: &mut Scene,
        _: &mut Vec<Warning>,
    ) -> Result<(), Error> {
        let (to, options) = (&request.to, &request.options);
        let is_missing = to.count(PartKind::Plan) == 0;
        if request.alone().is_some() && is_missing && options.parts.contains(&PartKind::Plan) {
            return Err(Error::NoPart { checkpoint: to.id, part: PartKind::Plan });
        }
        for part in plans_of(to).filter(|_| options.wants(PartKind::Plan)) {
            let now = manager.plans().get(&part.key)?;
            guard(&now)?;
            manager.plans().workspace(&now)?;
            scene.plans.push((now, part.document));
        }
        Ok(())
    }

    fn roll_back_records<'m>(&self, records: &RecordsBack<'_, 'm>, members: &mut Vec<Member<'m>>) {
        let (manager, request) = (records.manager, records.request);
        for (now, target) in records.scene.plans.iter().cloned() {
            let back = Some((records.rollback, request.to.id));
            let correction = request.correction.cloned();
            let is_of_it = request.to.plan_id.as_ref() == Some(&now.plan.id);
            let part = PlanPart { manager, now, back, correction, is_of_it };
            members.push(Member::new(part, 0, Some(target)));
        }
        if let Some(taking) = request.taking {
            members.push(Member::new(TakingPart(taking), 0, Some(request.to.integrity)));
        }
    }
}

fn plans_of(checkpoint: &Checkpoint) -> impl Iterator<Item = &PartRecord> {
    checkpoint.parts.iter().filter(|part| part.kind == PartKind::Plan)
}

/// The part of a checkpoint that holds the plan which it is of; of everything, the first of its plans.
pub(crate) fn plan_part(checkpoint: &Checkpoint) -> Option<&PartRecord> {
    let mut plans = plans_of(checkpoint);
    match &checkpoint.plan_id {
        Some(id) => plans.find(|part| part.key == *id),
        None => plans.next().filter(|_| checkpoint.workspace_id.is_none()),
    }
}

/// A plan, as a part.
pub(crate) struct PlanPart<'m> {
    pub(crate) manager: &'m CheckpointManager,
    /// The plan as it is.
    pub(crate) now: PlanRecord,
    /// The rollback that puts it back, and where that goes.
    pub(crate) back: Option<(RollbackId, CheckpointId)>,
    /// Correction to add.
    pub(crate) correction: Option<Correction>,
    /// True if the checkpoint is one of this plan, and not only one of its folder.
    pub(crate) is_of_it: bool,
}

impl Part for PlanPart<'_> {
    fn kind(&self) -> PartKind {
        PartKind::Plan
    }

    fn key(&self) -> String {
        self.now.plan.id.clone()
    }

    fn capture(&self, writer: &Writer<'_>, _: Option<ObjectId>, _: &dyn Progress) -> Result<Captured, Error> {
        Ok(Captured::document(document::store(writer, &self.now.plan)?))
    }

    /// A checkpoint that was asked for by a plan is one of that plan.
    fn describe(&self, checkpoint: &mut Checkpoint) {
        if !self.is_of_it {
            return;
        }
        let plan = &self.now.plan;
        // The same plan gives the same document, so that its name is the hash of the state.
        let is_this = |part: &&PartRecord| part.kind == PartKind::Plan && part.key == plan.id;
        let state = checkpoint.parts.iter().find(is_this).map(|part| part.document);
        checkpoint.plan_id = Some(plan.id.clone());
        checkpoint.scope = Scope::Workflow;
        checkpoint.sandbox_ref = plan.sandbox.id.clone();
        checkpoint.step_index = Some(plan.step_index());
        (checkpoint.state_hash, checkpoint.state_snapshot) = (state, state);
        checkpoint.decision_id = plan.decisions.last().map(|decision| decision.id.to_string());
        checkpoint.phase = checkpoint.phase.or_else(|| plan.phase());
        let progress = &mut checkpoint.progress;
        if (progress.tasks_completed, progress.decisions_made) == (0, 0) {
            progress.tasks_completed = plan.step_index();
            progress.decisions_made = plan.decisions.len() as u64;
        }
    }

    /// A plan that changed since is another state than the one that was kept.
    fn commit(&self, transaction: &Transaction<'_>, checkpoint: &Checkpoint) -> Result<(), Error> {
        unchanged(transaction, &self.now)?;
        if checkpoint.plan_id.as_ref() == Some(&self.now.plan.id) {
            let (version, healthy) = (self.now.version, self.now.plan.is_healthy());
            let link = PlanCheckpoint { checkpoint: checkpoint.id, version, healthy };
            transaction.link_plan_checkpoint(&self.now.plan.id, &link)?;
        }
        Ok(())
    }

    fn prepare<'p>(
        &'p self,
        _: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        let Some((rollback, to)) = self.back else { return Ok(Box::new(Nothing)) };
        guard(&self.now)?;
        let mut then = document::load(writer, target)?;
        let (now, at) = (self.now.clone(), self.manager.environment.now());
        let correction = self.correction.clone();
        correction.iter().for_each(|correction| correction.edit(&mut then));
        Ok(Box::new(PlanRollback { then, to, correction, now, rollback, at }))
    }

    fn resume<'p>(&'p self, _: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(Nothing))
    }
}

/// Rollback of a plan.
struct PlanRollback {
    then: Plan,
    to: CheckpointId,
    correction: Option<Correction>,
    now: PlanRecord,
    rollback: RollbackId,
    at: Timestamp,
}

/// Checks that a plan did not change since it was read.
pub(crate) fn unchanged(transaction: &Transaction<'_>, then: &PlanRecord) -> Result<(), Error> {
    let id = &then.plan.id;
    match transaction.plan_version(id)? == then.version {
        true => Ok(()),
        false => Err(Error::PlanChanged { id: id.clone() }),
    }
}

impl Prepared for PlanRollback {
    fn put_back(&self) -> Option<PutBack> {
        let taken_back = self.now.plan.taken_back_by(&self.then);
        Some(PutBack::Plan { id: self.now.plan.id.clone(), taken_back })
    }

    /// Checks once more, against the database at the moment of the commit, that the plan did not change since it was
    /// kept in the safety checkpoint.
    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let id = &self.now.plan.id;
        let record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.clone() })?;
        guard(&record)?;
        unchanged(transaction, &self.now)
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.intend(transaction)?;
        let id = &self.then.id;
        let back = self.now.plan.taken_back_by(&self.then);
        transaction.save_plan(&self.then, &format!("rollback {}", self.rollback), self.at)?;
        let superseded: Vec<_> =
            self.now.plan.decisions.iter().filter(|it| back.decisions.contains(&it.id)).collect();
        if !superseded.is_empty() {
            let body = json!({ "rollback": self.rollback, "decisions": superseded });
            transaction.note_plan(id, PlanNoteKind::Superseded, &body, self.at)?;
        }
        if !back.subplans.is_empty() {
            let body = json!({ "rollback": self.rollback, "subplans": back.subplans });
            transaction.note_plan(id, PlanNoteKind::Invalidated, &body, self.at)?;
        }
        let to_version = transaction.plan_checkpoint_version(self.to)?;
        let body = json!({
            "rollback": self.rollback, "checkpoint": self.to, "to_version": to_version, "steps": back.steps,
        });
        transaction.note_plan(id, PlanNoteKind::RolledBack, &body, self.at)?;
        match &self.correction {
            Some(correction) => correction.note(transaction, (id, self.rollback), self.to, self.at),
            None => Ok(()),
        }
    }
}

/// Refuses an applied plan (R5.5).
pub(crate) fn guard(record: &PlanRecord) -> Result<(), Error> {
    match record.plan.state {
        PlanState::Applied if !planted!("guard-rolls-back-what-was-applied") => {
            Err(Error::PlanApplied { id: record.plan.id.clone() })
        }
        _ => Ok(()),
    }
}
