//! CORRECT: back to the last clean checkpoint of a plan, or to before a decision; or on from here with another step or command.
//!
//! Going back is the rollback of plan and files, and nothing else; what a correction adds to it is in the same commit.

use crate::handles::Plans;
use crate::rollback::recover::Recovery;
use crate::rollback::{DryRun, Request, RollbackOptions, RolledBack};
use crate::{CheckpointManager, Error};
use safepoint_catalog::{PlanNote, PlanRecord, Transaction};
use safepoint_model::id::DecisionId;
use safepoint_model::plan::clean::{
    CleanCandidate, NoneClean, PlanEvent, first_unresolved, is_on_the_way, last_clean,
};
use safepoint_model::plan::correction::{StepEdit, StepPlace};
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::spec::StepSpec;
use safepoint_model::plan::state::{Decision, Happening, Plan, PlanRule, StepState};
use safepoint_model::rollback::Verb;
use safepoint_model::session::SessionCount;
use safepoint_model::{CheckpointId, Progress, RollbackId, Timestamp};
use safepoint_store::Depth;
use serde_json::{Value, json};

/// Target of a revert.
#[derive(Debug, Clone, Default)]
pub struct Revert {
    /// To before this decision; to the last clean checkpoint where there is none.
    pub decision: Option<DecisionId>,
    /// Guidance for the next attempt, kept as a decision.
    pub guidance: Option<String>,
}

/// A correction that goes on from the current state.
#[derive(Debug, Clone)]
pub enum Fix {
    /// One more step; before the step that is wrong where no place is given.
    Append {
        /// The step.
        spec: StepSpec,
        /// Its place.
        place: Option<StepPlace>,
    },
    /// Another command for a step that did not end well.
    Retry {
        /// The step; the one that is wrong where none is given.
        step: Option<String>,
        /// The command.
        run: String,
    },
    /// A step that did not end well is left out.
    Skip {
        /// The step; the one that is wrong where none is given.
        step: Option<String>,
        /// Reason.
        reason: String,
    },
    /// Another title, command or check for a step that did not end well.
    Edit {
        /// The step; the one that is wrong where none is given.
        step: Option<String>,
        /// The change.
        edit: StepEdit,
    },
}

impl Fix {
    /// Its name.
    pub fn mode(&self) -> &'static str {
        match self {
            Fix::Append { .. } => "append",
            Fix::Retry { .. } => "retry",
            Fix::Skip { .. } => "skip",
            Fix::Edit { .. } => "edit",
        }
    }

    /// Makes the correction. Returns the path of the step.
    fn apply(&self, plan: &mut Plan, now: Timestamp) -> Result<(String, Vec<Happening>), Error> {
        if plan.state.is_over() {
            return Err(PlanRule::Over(plan.state).into());
        }
        let broken = plan.broken().map(str::to_owned);
        let broken = broken.filter(|_| !plan.is_healthy());
        let broken = broken.ok_or_else(|| Error::PlanHealthy { id: plan.id.clone() })?;
        let chosen = |step: &Option<String>| step.clone().unwrap_or_else(|| broken.clone());
        Ok(match self {
            Fix::Append { spec, place } => {
                let place = place.clone().unwrap_or(StepPlace::Before(broken));
                (plan.insert(&place, spec)?, Vec::new())
            }
            Fix::Retry { step, run } => {
                let (path, run) = (chosen(step), Some(run.clone()));
                plan.edit(&path, &StepEdit { run, ..StepEdit::default() })?;
                (path, Vec::new())
            }
            Fix::Edit { step, edit } => {
                let path = chosen(step);
                plan.edit(&path, edit)?;
                (path, Vec::new())
            }
            Fix::Skip { step, reason } => {
                let path = chosen(step);
                let happened = plan.skip(&path, reason, now)?;
                (path, happened)
            }
        })
    }

    /// Adds what it changed to its record.
    fn note(&self, body: &mut Value) {
        match self {
            Fix::Append { .. } => {}
            Fix::Retry { run, .. } => body["run"] = json!(run),
            Fix::Skip { reason, .. } => body["reason"] = json!(reason),
            Fix::Edit { edit, .. } => {
                body["edit"] = json!({
                    "title": edit.title, "run": edit.run, "verify": edit.verify, "undo": edit.undo,
                });
            }
        }
    }
}

/// A correction that was made, or would be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Corrected {
    /// Count of the plan's corrections, including this one.
    pub attempt: u64,
    /// The plan as it is now.
    pub record: PlanRecord,
    /// Rollback target.
    pub checkpoint: Option<CheckpointId>,
    /// The rollback.
    pub restored: Option<RolledBack>,
    /// The step that was added or changed.
    pub step: Option<String>,
    /// Crash recovery that ran before.
    pub recovered: Recovery,
}

/// Additions of a correction to its rollback.
#[derive(Debug, Clone)]
pub(crate) struct Correction {
    /// Decisions that stay although they are newer than the checkpoint.
    stay: Vec<Decision>,
    /// Guidance from the user.
    guidance: Option<Decision>,
    attempt: u64,
    decision: Option<DecisionId>,
}

impl Correction {
    /// The plan that is published: the one of the checkpoint, with what stays and what was said.
    pub(crate) fn edit(&self, plan: &mut Plan) {
        let new = |it: &&Decision| !plan.decisions.iter().any(|known| known.id == it.id);
        let stay: Vec<Decision> = self.stay.iter().filter(new).cloned().collect();
        plan.decisions.extend(stay);
        plan.decisions.extend(self.guidance.clone());
    }

    /// Returns true if it has guidance, which is a decision.
    pub(crate) fn has_guidance(&self) -> bool {
        self.guidance.is_some()
    }

    /// Puts the correction on record.
    pub(crate) fn note(
        &self,
        transaction: &Transaction<'_>,
        (plan, rollback): (&str, RollbackId),
        to: CheckpointId,
        at: Timestamp,
    ) -> Result<(), Error> {
        let body = json!({
            "mode": "revert",
            "rollback": rollback,
            "attempt": self.attempt,
            "checkpoint": to,
            "decision": self.decision,
            "guidance": self.guidance.as_ref().map(|it| &it.choice),
        });
        Ok(transaction.note_plan(plan, PlanNoteKind::Correction, &body, at)?)
    }
}

/// Events of a plan that concern errors.
fn events(notes: &[PlanNote]) -> Vec<PlanEvent> {
    let event = |note: &PlanNote| match note.kind {
        PlanNoteKind::Error => {
            let step = note.body["step"].as_str().unwrap_or_default().to_owned();
            Some(PlanEvent::Error { version: note.version, step })
        }
        PlanNoteKind::RolledBack => {
            note.body["to_version"].as_u64().map(|to| PlanEvent::BackTo { version: note.version, to })
        }
        _ => None,
    };
    notes.iter().filter_map(event).collect()
}

/// Failed choice of checkpoint.
enum Missed {
    None(NoneClean),
    Other(Error),
}

impl From<NoneClean> for Missed {
    fn from(none: NoneClean) -> Self {
        Missed::None(none)
    }
}

fn attempts(notes: &[PlanNote]) -> u64 {
    notes.iter().filter(|note| note.kind == PlanNoteKind::Correction).count() as u64
}

impl CheckpointManager {
    /// The checkpoint that would be the last clean one if all of them were whole.
    pub(crate) fn newest_clean(&self, id: &str) -> Result<Option<CheckpointId>, Error> {
        Ok(self.choose_clean(id, |_| Ok::<_, NoneClean>(true))?.ok())
    }

    /// The last clean checkpoint that `is_whole` accepts.
    fn choose_clean<E: From<NoneClean>>(
        &self,
        id: &str,
        is_whole: impl Fn(CheckpointId) -> Result<bool, E>,
    ) -> Result<Result<CheckpointId, E>, Error> {
        let plan = self.plans().get(id)?.plan;
        let events = events(&self.catalog.plan_notes(id)?);
        let candidates: Vec<CleanCandidate<CheckpointId>> = self
            .catalog
            .plan_checkpoints(id)?
            .into_iter()
            .filter(|it| is_on_the_way(&events, it.version))
            .map(|it| CleanCandidate { checkpoint: it.checkpoint, version: it.version, healthy: it.healthy })
            .collect();
        let is_done =
            |path: &str| plan.steps.iter().any(|step| step.path == path && step.state == StepState::Done);
        let error = first_unresolved(&events, is_done);
        Ok(last_clean(&candidates, error, is_whole))
    }

    fn is_whole(&self, checkpoint: CheckpointId) -> Result<bool, Error> {
        let checkpoint = self.checkpoints().get(checkpoint)?;
        Ok(self.upkeep().validate(Some(&checkpoint), Depth::Deep, &crate::Silent)?.is_valid())
    }

    /// The newest whole checkpoint of a plan in which a decision was not made yet.
    fn before_decision(&self, id: &str, decision: DecisionId) -> Result<CheckpointId, Error> {
        for candidate in self.catalog.plan_checkpoints(id)? {
            if self.is_whole(candidate.checkpoint)? {
                let plan = self.plans().at(candidate.checkpoint)?;
                if !plan.decisions.iter().any(|it| it.id == decision) {
                    return Ok(candidate.checkpoint);
                }
            }
        }
        Err(Error::NoneClean { id: id.to_owned(), source: NoneClean::AllAfter })
    }

    /// The rollback target of a correction, and the decisions that stay although they are newer.
    fn revert_to(
        &self,
        record: &PlanRecord,
        revert: &Revert,
    ) -> Result<(CheckpointId, Vec<Decision>), Error> {
        let id = &record.plan.id;
        crate::parts::plan::guard(record)?;
        self.plans().workspace(record)?;
        match &revert.decision {
            None if record.plan.is_healthy() => Err(Error::PlanHealthy { id: id.clone() }),
            None => Ok((self.plans().last_clean(id)?, Vec::new())),
            Some(decision) => {
                let goes = record.plan.depending_on(*decision)?;
                let stays = |it: &&Decision| !goes.contains(&it.id);
                let stay = record.plan.decisions.iter().filter(stays).cloned().collect();
                Ok((self.before_decision(id, *decision)?, stay))
            }
        }
    }

    fn try_in_place(&self, id: &str, fix: &Fix, guidance: Option<&str>) -> Result<Corrected, Error> {
        let at = self.environment.now();
        let guidance = guidance.map(|text| self.guidance(text));
        self.catalog.write(|transaction| {
            let mut record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.to_owned() })?;
            let attempt = attempts(&transaction.plan_notes(id)?) + 1;
            let (step, happened) = fix.apply(&mut record.plan, at)?;
            let said: Option<Value> = guidance.as_ref().map(|it| json!(it.choice));
            if let Some(decision) = guidance {
                record.plan.decide(decision)?;
                self.count(transaction, SessionCount::Decision, at)?;
            }
            let what = format!("correction: {} {step}", fix.mode());
            record.version = transaction.save_plan(&record.plan, &what, at)?;
            record.updated_at = at;
            let mut body = json!({
                "mode": fix.mode(), "attempt": attempt, "step": step, "guidance": said,
                "actor": self.environment.actor(),
            });
            fix.note(&mut body);
            transaction.note_plan(id, PlanNoteKind::Correction, &body, at)?;
            self.count_steps(transaction, &happened, at)?;
            let (restored, step, recovered) = (None, Some(step), Recovery::default());
            Ok(Corrected { attempt, record, checkpoint: None, restored, step, recovered })
        })
    }

    fn guidance(&self, text: &str) -> Decision {
        Decision {
            id: DecisionId::from_bits(self.environment.new_id()),
            question: "What is to be done differently?".to_owned(),
            choice: text.to_owned(),
            alternatives: Vec::new(),
            rationale: None,
            parent: None,
            depends_on: Vec::new(),
            step: None,
            made_at: self.environment.now(),
        }
    }
}

impl Plans<'_> {
    /// The last clean checkpoint of a plan: the newest whole one that was taken before the first error that is not resolved, while the
    /// plan was healthy.
    ///
    /// # Errors
    /// [`Error::NoneClean`] when there is none.
    pub fn last_clean(&self, id: &str) -> Result<CheckpointId, Error> {
        let found = self
            .manager
            .choose_clean(id, |checkpoint| self.manager.is_whole(checkpoint).map_err(Missed::Other))?;
        found.map_err(|missed| match missed {
            Missed::None(source) => Error::NoneClean { id: id.to_owned(), source },
            Missed::Other(error) => error,
        })
    }

    /// Rolls back to the last clean checkpoint, or to before a decision with all its dependents; the other decisions stay.
    ///
    /// # Errors
    /// When there is no such checkpoint or decision; or as [`Plans::rollback`].
    pub fn correct_by_revert(
        &self,
        id: &str,
        revert: &Revert,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<Corrected, Error> {
        let record = self.get(id)?;
        let (to, stay) = self.manager.revert_to(&record, revert).inspect_err(|error| {
            if options.dry_run == DryRun::No {
                self.manager.note_refused_correction(id, "revert", error);
            }
        })?;
        let attempt = attempts(&self.manager.catalog.plan_notes(id)?) + 1;
        let guidance = revert.guidance.as_ref().map(|text| self.manager.guidance(text));
        let correction = Correction { stay, guidance, attempt, decision: revert.decision };
        let workspace = self.manager.place_of(&record)?;
        let request =
            Request::new(Verb::Rollback, Some(workspace.id), self.manager.checkpoints().get(to)?, options);
        let restored =
            self.manager.roll_back(&Request { correction: Some(&correction), ..request }, progress)?;
        let (record, recovered) = (self.get(id)?, restored.recovered.clone());
        let (checkpoint, restored) = (Some(to), Some(restored));
        Ok(Corrected { attempt, record, checkpoint, restored, step: None, recovered })
    }

    /// Corrects a plan that is not healthy without going back, or shows it: nothing that is done changes.
    ///
    /// # Errors
    /// [`Error::PlanHealthy`]; when there is no such step, the rules of a plan forbid it, or the plan is over.
    pub fn correct_in_place(
        &self,
        id: &str,
        fix: &Fix,
        guidance: Option<&str>,
        dry_run: DryRun,
    ) -> Result<Corrected, Error> {
        let _lock = self.manager.hold_plan(id)?;
        if dry_run == DryRun::Yes {
            let mut record = self.get(id)?;
            let attempt = attempts(&self.manager.catalog.plan_notes(id)?) + 1;
            let step = Some(fix.apply(&mut record.plan, self.manager.environment.now())?.0);
            let recovered = Recovery::default();
            return Ok(Corrected { attempt, record, checkpoint: None, restored: None, step, recovered });
        }
        self.manager
            .try_in_place(id, fix, guidance)
            .inspect_err(|error| self.manager.note_refused_correction(id, fix.mode(), error))
    }
}
