//! Plans that are driven from outside: their steps and decisions, and the checkpoints that are due during the work.
//!
//! Every change is one transaction: the plan is read, a rule of the model is applied, and what differs is written. A checkpoint that is
//! due before something is taken before it is on record, one that is due after it afterwards.

pub(crate) mod apply;
pub(crate) mod correct;
pub(crate) mod guard;
pub(crate) mod plan_file;
pub(crate) mod room;
pub(crate) mod runner;
pub(crate) mod sandbox;

use crate::checkpoint::create::{CreateOptions, Created, Subject};
use crate::handles::Plans;
use crate::parts::plan::guard;
use crate::rollback::recover::Recovery;
use crate::rollback::{DryRun, Request, RollbackOptions, RolledBack};
use crate::{CheckpointManager, Error};
use safepoint_catalog::{PlanCheckpoint, PlanNote, PlanRecord, PlanSummary, Transaction, Workspace};
use safepoint_model::checkpoint::{Checkpoint, Kind, PartKind, PartRecord, Reason};
use safepoint_model::id::DecisionId;
use safepoint_model::plan::document;
use safepoint_model::plan::spec::{PlanSpec, StepSpec, is_slug};
use safepoint_model::plan::state::{Decision, Happening, Plan, PlanRule, PlanState, StepState};
use safepoint_model::rollback::Verb;
use safepoint_model::session::SessionCount;
use safepoint_model::{CheckpointId, Progress, Timestamp};
use serde_json::Value;

/// Retries when another process changes the plan.
const TRIES: u32 = 4;

/// Driver of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A user or agent that reports.
    Outside,
    /// The runner.
    Runner,
}

/// A decision that is about to be made.
#[derive(Debug, Clone, Default)]
pub struct NewDecision {
    /// Question.
    pub question: String,
    /// Chosen option.
    pub choice: String,
    /// Rejected options.
    pub alternatives: Vec<String>,
    /// Rationale.
    pub rationale: Option<String>,
    /// The decision that led to this one.
    pub parent: Option<DecisionId>,
    /// Other decisions that this one depends on.
    pub depends_on: Vec<DecisionId>,
    /// The step during which it is made.
    pub step: Option<String>,
}

/// Result of a step's change of state.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepMoved {
    /// The plan as it is now.
    pub record: PlanRecord,
    /// Events, in order.
    pub happened: Vec<Happening>,
    /// Checkpoints that were due.
    pub checkpoints: Vec<Created>,
    /// Crash recovery that ran before.
    pub recovered: Recovery,
}

impl CheckpointManager {
    /// The same, with more that belongs into the transaction.
    fn change_plan_and<T>(
        &self,
        id: &str,
        what: &str,
        change: impl FnOnce(&mut Plan) -> Result<T, PlanRule>,
        and: impl FnOnce(&Transaction<'_>, &T, Timestamp) -> Result<(), Error>,
    ) -> Result<(PlanRecord, T), Error> {
        let at = self.environment.now();
        self.catalog.write(|transaction| {
            let mut record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.to_owned() })?;
            let value = change(&mut record.plan)?;
            record.version = transaction.save_plan(&record.plan, what, at)?;
            record.updated_at = at;
            and(transaction, &value, at)?;
            Ok((record, value))
        })
    }

    /// Moves a plan on by a rule of the model, and counts the steps that ended with it.
    pub(crate) fn move_plan(
        &self,
        id: &str,
        what: &str,
        change: impl FnOnce(&mut Plan) -> Result<Vec<Happening>, PlanRule>,
    ) -> Result<(PlanRecord, Vec<Happening>), Error> {
        self.change_plan_and(id, what, change, |transaction, happened, at| {
            self.count_steps(transaction, happened, at)
        })
    }

    pub(crate) fn start_step_by(
        &self,
        id: &str,
        path: &str,
        driver: Driver,
        progress: &dyn Progress,
    ) -> Result<StepMoved, Error> {
        // Others may drive the plan as well: then it is looked at anew.
        for _ in 0..TRIES {
            match self.try_start_step(id, path, driver, progress) {
                Err(Error::PlanChanged { .. }) => {}
                other => return other,
            }
        }
        self.try_start_step(id, path, driver, progress)
    }

    fn try_start_step(
        &self,
        id: &str,
        path: &str,
        driver: Driver,
        progress: &dyn Progress,
    ) -> Result<StepMoved, Error> {
        let record = self.plans().get(id)?;
        let coming = record.plan.starts(path)?;
        let mut checkpoints = Vec::new();
        if let Some(first) = coming.iter().find(|it| it.is_due(&record.plan.milestones)) {
            checkpoints.push(self.milestone(&record, first, Some(record.version), progress)?);
        } else if self.is_time(&record)? {
            checkpoints.push(self.milestone(&record, &coming[0], Some(record.version), progress)?);
        }
        let now = self.environment.now();
        let (record, happened) =
            self.plans().change(id, &format!("step {path} started"), |plan| match (driver, plan.state) {
                // A runner does not continue a plan that a user paused.
                (Driver::Runner, from) if from != PlanState::Running => {
                    Err(PlanRule::Transition { from, to: PlanState::Running })
                }
                _ => plan.start(path, now),
            })?;
        Ok(StepMoved { record, happened, checkpoints, recovered: Recovery::default() })
    }

    /// Takes the checkpoints that are due once something happened: one, however much of it was a milestone.
    pub(crate) fn after(
        &self,
        record: PlanRecord,
        happened: Vec<Happening>,
        progress: &dyn Progress,
    ) -> Result<StepMoved, Error> {
        let milestones = &record.plan.milestones;
        // The most telling one comes last: a subplan that is done says more than its last step.
        let due = happened.iter().rfind(|it| it.is_due(milestones));
        let done = record.plan.step_index();
        let counted = milestones.every_steps.is_some_and(|every| done > 0 && done.is_multiple_of(every));
        let ended_well = matches!(happened.first(), Some(Happening::StepDone { .. }));
        let first = match due {
            Some(due) => Some(due),
            None if (counted && ended_well) || self.is_time(&record)? => happened.first(),
            None => None,
        };
        let checkpoints = match first {
            Some(happening) => vec![self.milestone(&record, happening, None, progress)?],
            None => Vec::new(),
        };
        Ok(StepMoved { record, happened, checkpoints, recovered: Recovery::default() })
    }

    /// Returns true if the plan's last checkpoint is older than its interval allows.
    pub(crate) fn is_time(&self, record: &PlanRecord) -> Result<bool, Error> {
        let Some(every) = record.plan.milestones.every else { return Ok(false) };
        let last = self.catalog.plan_checkpoints(&record.plan.id)?.first().copied();
        let last = match last {
            Some(last) => self.checkpoints().get(last.checkpoint)?.created_at,
            None => record.created_at,
        };
        let age = self.environment.now().micros().saturating_sub(last.micros());
        Ok(u64::try_from(age).is_ok_and(|age| age >= every.micros()))
    }

    /// Takes the checkpoint that time makes due between the steps of a plan that is driven from outside. A runner takes its own. A failure
    /// costs the change nothing: the next change tries again.
    fn tend_time(&self, record: &PlanRecord) {
        let id = &record.plan.id;
        if record.plan.state != PlanState::Running || !self.is_time(record).unwrap_or(false) {
            return;
        }
        let Ok(_still) = self.keep_still(id) else { return };
        let options = CreateOptions {
            label: Some("during the plan".to_owned()),
            kind: Kind::Workflow,
            reason: Reason::SafeState,
            ..CreateOptions::default()
        };
        let _ = self.plans().checkpoint(id, &options, &crate::Silent);
    }

    fn milestone(
        &self,
        record: &PlanRecord,
        happening: &Happening,
        version: Option<u64>,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let (label, reason, kind) = match happening {
            Happening::StepStarts { path, risky: true } => {
                (format!("before {path}"), Reason::PreRiskyOperation, Kind::Workflow)
            }
            Happening::StepStarts { path, .. } => {
                (format!("before {path}"), Reason::SafeState, Kind::Workflow)
            }
            Happening::SubplanStarts { path } => {
                (format!("before subplan {path}"), Reason::SafeState, Kind::Workflow)
            }
            Happening::StepDone { path } => (format!("after {path}"), Reason::SafeState, Kind::Workflow),
            Happening::SubplanDone { path } => {
                (format!("after subplan {path}"), Reason::TaskGroupComplete, Kind::Workflow)
            }
            Happening::StepFailed { path } => {
                (format!("{path} failed"), Reason::ErrorRecovery, Kind::Emergency)
            }
            Happening::PhaseDone { phase } => {
                (format!("phase {phase} done"), Reason::PhaseComplete, Kind::Workflow)
            }
            Happening::PlanDone => ("all steps done".to_owned(), Reason::PhaseComplete, Kind::Workflow),
        };
        let plan_id = Some(record.plan.id.clone());
        let options = CreateOptions { label: Some(label), kind, reason, plan_id, ..CreateOptions::default() };
        let workspace = self.plans().workspace(record)?;
        // Without a fixed version, later changes may be included, but none during the checkpoint.
        let tries = if version.is_none() { TRIES } else { 0 };
        for _ in 0..tries {
            match self.create_at(&Subject::from(&workspace), &options, version, progress) {
                Err(Error::PlanChanged { .. }) => {}
                other => return other,
            }
        }
        self.create_at(&Subject::from(&workspace), &options, version, progress)
    }

    /// The guards of a rollback of a plan. Returns whether its sandbox was made again, and its folder.
    pub(crate) fn may_roll_back(
        &self,
        record: &PlanRecord,
        checkpoint: &Checkpoint,
        options: &RollbackOptions,
    ) -> Result<(bool, Workspace), Error> {
        let id = &record.plan.id;
        if checkpoint.plan_id.as_ref() != Some(id) {
            return Err(Error::OtherPlan { checkpoint: checkpoint.id, id: id.clone() });
        }
        // Its sandbox may be gone because it was applied.
        guard(record)?;
        let made = self.make_sandbox_again(record, options.missing_sandbox)?;
        Ok((made, self.place_of(record)?))
    }
}

impl Plans<'_> {
    /// Records a new plan of a workspace.
    ///
    /// # Errors
    /// When the id is taken or not one, or the catalog fails.
    pub fn create(&self, workspace: &Workspace, spec: &PlanSpec) -> Result<PlanRecord, Error> {
        let id = match &spec.id {
            Some(id) if is_slug(id) => id.clone(),
            Some(id) => return Err(Error::BadPlanId { id: id.clone() }),
            None => safepoint_model::CheckpointId::from_bits(self.manager.environment.new_id())
                .to_string()
                .to_lowercase(),
        };
        let (plan, at) = (Plan::new(id, spec), self.manager.environment.now());
        self.manager.catalog.write(|transaction| {
            transaction.insert_plan(&plan, workspace.id, at)?;
            transaction.plan(&plan.id)?.ok_or_else(|| Error::NoPlan { id: plan.id.clone() })
        })
    }

    /// The plan of this id.
    ///
    /// # Errors
    /// When there is none, or the catalog cannot be read.
    pub fn get(&self, id: &str) -> Result<PlanRecord, Error> {
        self.manager.catalog.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.to_owned() })
    }

    /// Every plan, or those of a workspace, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list(&self, workspace: Option<&Workspace>) -> Result<Vec<PlanSummary>, Error> {
        Ok(self.manager.catalog.plans(workspace.map(|workspace| workspace.id))?)
    }

    /// Returns the recorded notes of a plan: errors, superseded decisions, invalidated subplans.
    ///
    /// # Errors
    /// When there is no such plan, or the catalog cannot be read.
    pub fn notes(&self, id: &str) -> Result<Vec<PlanNote>, Error> {
        self.get(id)?;
        Ok(self.manager.catalog.plan_notes(id)?)
    }

    /// The checkpoints of a plan, newest first, each with the version that the plan had.
    ///
    /// # Errors
    /// When there is no such plan, or the catalog cannot be read.
    pub fn checkpoints(&self, id: &str) -> Result<Vec<PlanCheckpoint>, Error> {
        self.get(id)?;
        Ok(self.manager.catalog.plan_checkpoints(id)?)
    }

    /// Changes a plan by a rule of the model, in one transaction. `what` is for the history.
    ///
    /// # Errors
    /// When there is no such plan, the rule says no, or the catalog fails. Nothing has changed then.
    pub fn change<T>(
        &self,
        id: &str,
        what: &str,
        change: impl FnOnce(&mut Plan) -> Result<T, PlanRule>,
    ) -> Result<(PlanRecord, T), Error> {
        self.manager.change_plan_and(id, what, change, |_, _, _| Ok(()))
    }

    /// A step begins. Checkpoints that are due before it are taken first.
    ///
    /// # Errors
    /// When there is no such plan or step, it may not begin now, or a checkpoint that is due fails: the step has not begun then.
    pub fn start_step(&self, id: &str, path: &str, progress: &dyn Progress) -> Result<StepMoved, Error> {
        let _lock = self.manager.hold_plan(id)?;
        self.get(id)?.plan.starts(path)?;
        self.recovering(id, progress, || {
            self.manager.with_sandbox(id, progress)?;
            self.manager.start_step_by(id, path, Driver::Outside, progress)
        })
    }

    /// A step is done.
    ///
    /// # Errors
    /// When there is no such plan or step, or it was not under way. That a checkpoint which is due afterwards fails is an error, too; the
    /// step is done all the same.
    pub fn finish_step(
        &self,
        id: &str,
        path: &str,
        output: Option<Value>,
        progress: &dyn Progress,
    ) -> Result<StepMoved, Error> {
        let _lock = self.manager.hold_plan(id)?;
        self.get(id)?.plan.find(path)?;
        self.recovering(id, progress, || {
            let now = self.manager.environment.now();
            let (record, happened) = self
                .manager
                .move_plan(id, &format!("step {path} done"), |plan| plan.finish(path, output, now))?;
            self.manager.after(record, happened, progress)
        })
    }

    /// Moves a step after a recovery of the folders of its plan.
    fn recovering(
        &self,
        id: &str,
        progress: &dyn Progress,
        act: impl FnOnce() -> Result<StepMoved, Error>,
    ) -> Result<StepMoved, Error> {
        let mark = self.manager.recovery_mark();
        self.manager.recover_plan(id, progress)?;
        let moved = act()?;
        Ok(StepMoved { recovered: self.manager.recovered_since(mark), ..moved })
    }

    /// A step failed. The error is kept for the record.
    ///
    /// # Errors
    /// As for [`Plans::finish_step`].
    pub fn fail_step(
        &self,
        id: &str,
        path: &str,
        error: &str,
        progress: &dyn Progress,
    ) -> Result<StepMoved, Error> {
        let _lock = self.manager.hold_plan(id)?;
        self.get(id)?.plan.find(path)?;
        self.recovering(id, progress, || self.manager.fail_step_by(id, path, error, None, progress))
    }

    /// Leaves out a step that is not done; a running one is stopped first. It counts as done, with the reason.
    ///
    /// # Errors
    /// When there is no such plan or step, the step is done, or steps below it are not.
    pub fn skip_step(&self, id: &str, path: &str, reason: &str) -> Result<PlanRecord, Error> {
        let _lock = self.manager.hold_plan(id)?;
        let now = self.manager.environment.now();
        let (record, _) = self.change(id, &format!("step {path} left out"), |plan| {
            if plan.steps.iter().any(|step| step.path == path && step.state == StepState::Running) {
                plan.fail(path, reason, now)?;
            }
            plan.skip(path, reason, now)
        })?;
        Ok(record)
    }

    /// Takes a checkpoint of a plan and of the files it works on, at one moment.
    ///
    /// # Errors
    /// When there is no such plan; or as [`CheckpointManager::create`].
    pub fn checkpoint(
        &self,
        id: &str,
        options: &CreateOptions,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let mark = self.manager.recovery_mark();
        let record = self.manager.with_sandbox(id, progress)?;
        let workspace = self.workspace(&record)?;
        let options = CreateOptions { plan_id: Some(id.to_owned()), ..options.clone() };
        let created = self.manager.create(&workspace, &options, progress)?;
        Ok(Created { recovered: self.manager.recovered_since(mark), ..created })
    }

    /// The plan as a checkpoint holds it.
    ///
    /// # Errors
    /// When it holds none, or it is missing or damaged.
    pub fn at(&self, checkpoint: CheckpointId) -> Result<Plan, Error> {
        let _using = self.manager.store.using()?;
        let checkpoint = self.manager.checkpoints().get(checkpoint)?;
        let missing = Error::NoPlanInCheckpoint { checkpoint: checkpoint.id };
        let part = crate::parts::plan::plan_part(&checkpoint).ok_or(missing)?;
        Ok(document::load(&self.manager.store, part.document)?)
    }

    /// One of the plans that a checkpoint holds.
    ///
    /// # Errors
    /// When it does not hold it, or it is missing or damaged.
    pub fn held(&self, checkpoint: CheckpointId, id: &str) -> Result<Plan, Error> {
        let _using = self.manager.store.using()?;
        let checkpoint = self.manager.checkpoints().get(checkpoint)?;
        let is_it = |part: &&PartRecord| part.kind == PartKind::Plan && part.key == id;
        let part = checkpoint.parts.iter().find(is_it);
        let part = part.ok_or(Error::NoPlanInCheckpoint { checkpoint: checkpoint.id })?;
        Ok(document::load(&self.manager.store, part.document)?)
    }

    /// Puts a plan and its files back to a checkpoint of it, both or neither.
    ///
    /// # Errors
    /// When the checkpoint is not one of this plan, the plan was applied, or as [`CheckpointManager::rollback`].
    pub fn rollback(
        &self,
        id: &str,
        to: CheckpointId,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let mark = self.manager.recovery_mark();
        let record = self.get(id)?;
        let checkpoint = self.manager.checkpoints().get(to)?;
        let (made, workspace) = self
            .manager
            .may_roll_back(&record, &checkpoint, options)
            .inspect_err(|error| self.manager.note_refused_plan(&record, &checkpoint, options, error))?;
        let request = Request::new(Verb::Rollback, Some(workspace.id), checkpoint, options);
        let restored = self.manager.roll_back(&Request { of_plan: true, ..request }, progress);
        if made && (restored.is_err() || options.dry_run == DryRun::Yes) {
            self.manager.drop_sandbox_again(&record);
        }
        Ok(RolledBack { recovered: self.manager.recovered_since(mark), ..restored? })
    }

    /// Records a decision. Returns its id.
    ///
    /// # Errors
    /// When what it refers to is not there, or the plan is over.
    pub fn decide(&self, id: &str, new: NewDecision) -> Result<(PlanRecord, DecisionId), Error> {
        let NewDecision { question, choice, alternatives, rationale, parent, depends_on, step } = new;
        let decision = Decision {
            id: DecisionId::from_bits(self.manager.environment.new_id()),
            question,
            choice,
            alternatives,
            rationale,
            parent,
            depends_on,
            step,
            made_at: self.manager.environment.now(),
        };
        let made = decision.id;
        let (record, ()) = self.manager.change_plan_and(
            id,
            "decision made",
            |plan| plan.decide(decision),
            |transaction, (), at| self.manager.count(transaction, SessionCount::Decision, at),
        )?;
        self.manager.tend_time(&record);
        Ok((record, made))
    }

    /// Sets what a plan knows under a key, or forgets it.
    ///
    /// # Errors
    /// When there is no such plan, or it is over.
    pub fn set_context(&self, id: &str, key: &str, value: Option<Value>) -> Result<PlanRecord, Error> {
        let changed = self.change(id, &format!("context {key}"), |plan| plan.set_context(key, value))?.0;
        self.manager.tend_time(&changed);
        Ok(changed)
    }

    /// Sets what a plan gave under a key.
    ///
    /// # Errors
    /// When there is no such plan, or it is over.
    pub fn set_output(&self, id: &str, key: &str, value: Value) -> Result<PlanRecord, Error> {
        let changed = self.change(id, &format!("output {key}"), |plan| plan.set_output(key, value))?.0;
        self.manager.tend_time(&changed);
        Ok(changed)
    }

    /// Adds a step behind those that are there, below another one or at the top. Returns its path.
    ///
    /// # Errors
    /// When one of the same path is there, the step above is not, or the plan is over.
    pub fn append_step(
        &self,
        id: &str,
        above: Option<&str>,
        spec: &StepSpec,
    ) -> Result<(PlanRecord, String), Error> {
        self.change(id, &format!("step {} added", spec.id), |plan| plan.append(above, spec))
    }
}
