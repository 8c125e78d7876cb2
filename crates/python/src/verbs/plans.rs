//! Plans: their steps, their checkpoints, and corrections.

use super::checkpoints::Options as CreateFields;
use super::rollbacks::Options as RollbackFields;
use super::{read, workspace};
use crate::failure::Refusal;
use crate::shapes;
use safepoint::model::plan::correction::StepPlace;
use safepoint::model::plan::spec::StepSpec;
use safepoint::model::retention::{Candidate, KeepReason, Policy, RetentionVerdict, decide};
use safepoint::{
    CheckpointManager, Corrected, DryRun, Environment, Filter, Fix, NewDecision, PlanFile, Policies,
    Progress, Revert, RoleFilter, SystemEnvironment,
};
use safepoint_model::id::DecisionId;
use safepoint_model::{CheckpointId, Span};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    workspace: String,
    file: String,
}

pub(super) fn create(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Create { workspace: id, file } = read(arguments)?;
    let file = PlanFile::parse(file.as_bytes(), None).map_err(safepoint::Error::from)?;
    Ok(shapes::plan(&manager.plans().create(&workspace(manager, &id)?, &file.spec)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    plan: String,
}

pub(super) fn show(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let One { plan } = read(arguments)?;
    Ok(shapes::plan(&manager.plans().get(&plan)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Those {
    workspace: Option<String>,
}

pub(super) fn list(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Those { workspace: id } = read(arguments)?;
    let at = id.map(|id| workspace(manager, &id)).transpose()?;
    Ok(shapes::value(manager.plans().list(at.as_ref())?))
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", tag = "to", deny_unknown_fields)]
enum Move {
    Started { plan: String, step: String },
    Done { plan: String, step: String, output: Option<Value> },
    Failed { plan: String, step: String, error: String },
}

pub(super) fn move_step(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let plans = manager.plans();
    let moved = match read(arguments)? {
        Move::Started { plan, step } => plans.start_step(&plan, &step, progress)?,
        Move::Done { plan, step, output } => plans.finish_step(&plan, &step, output, progress)?,
        Move::Failed { plan, step, error } => plans.fail_step(&plan, &step, &error, progress)?,
    };
    let mut fields = shapes::plan(&moved.record);
    fields["checkpoints"] = moved.checkpoints.iter().map(|it| shapes::checkpoint(&it.checkpoint)).collect();
    Ok(fields)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decide {
    plan: String,
    question: String,
    choice: String,
    #[serde(default)]
    alternatives: Vec<String>,
    rationale: Option<String>,
}

pub(super) fn make_decision(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Decide { plan, question, choice, alternatives, rationale } = read(arguments)?;
    let new = NewDecision { question, choice, alternatives, rationale, ..NewDecision::default() };
    let (_, id) = manager.plans().decide(&plan, new)?;
    Ok(json!(id))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    plan: String,
    options: CreateFields,
}

pub(super) fn checkpoint(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Checkpoint { plan, options } = read(arguments)?;
    Ok(shapes::created(&manager.plans().checkpoint(&plan, &options.into(), progress)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    checkpoint: CheckpointId,
}

pub(super) fn state(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let State { checkpoint } = read(arguments)?;
    Ok(shapes::value(manager.plans().at(checkpoint)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rollback {
    plan: String,
    to: CheckpointId,
    options: RollbackFields,
}

pub(super) fn rollback(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let Rollback { plan, to, options } = read(arguments)?;
    Ok(shapes::rolled_back(&manager.plans().rollback(&plan, to, &options.into(), progress)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prune {
    plan: String,
    keep_last: u64,
    keep_within_seconds: u64,
    thin_daily_for_seconds: u64,
    dry_run: bool,
}

/// Applies a policy to the checkpoints of one plan. Those that unfinished work needs stay.
pub(super) fn prune(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let asked: Prune = read(arguments)?;
    let record = manager.plans().get(&asked.plan)?;
    let nothing = Policy { keep_last: 0, keep_within: Span::ZERO, thin_daily_for: Span::ZERO };
    let strictest = Policies { general: nothing, of: BTreeMap::new() };
    let place = manager.plans().workspace(&record)?;
    let judged = manager.upkeep().prune(&place, &strictest, DryRun::Yes)?;
    let needed: HashMap<CheckpointId, _> = judged
        .iter()
        .filter_map(|one| match one.verdict {
            RetentionVerdict::Keep(KeepReason::Needed(needed)) => Some((one.checkpoint.id, needed)),
            _ => None,
        })
        .collect();
    let filter = Filter { plan_id: Some(asked.plan), role: RoleFilter::Any, ..Filter::default() };
    let all = manager.checkpoints().list(&filter)?;
    let candidates: Vec<Candidate> = all
        .iter()
        .map(|one| Candidate {
            id: one.id,
            created_at: one.created_at,
            role: one.role,
            pinned: one.pinned,
            needed: needed.get(&one.id).copied(),
        })
        .collect();
    let span = Span::from_seconds;
    let policy = Policy {
        keep_last: asked.keep_last,
        keep_within: span(asked.keep_within_seconds),
        thin_daily_for: span(asked.thin_daily_for_seconds),
    };
    let verdicts = decide(&candidates, &policy, SystemEnvironment::default().now());
    let dropped: Vec<CheckpointId> =
        verdicts.iter().filter(|(_, verdict)| !verdict.is_keep()).map(|(id, _)| *id).collect();
    if !asked.dry_run && !dropped.is_empty() {
        manager.checkpoints().delete(&dropped)?;
    }
    Ok(json!(dropped))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevertTo {
    plan: String,
    decision: Option<DecisionId>,
    guidance: Option<String>,
    options: RollbackFields,
}

pub(super) fn revert(
    manager: &CheckpointManager,
    arguments: Value,
    progress: &dyn Progress,
) -> Result<Value, Refusal> {
    let RevertTo { plan, decision, guidance, options } = read(arguments)?;
    let revert = Revert { decision, guidance };
    Ok(corrected(&manager.plans().correct_by_revert(&plan, &revert, &options.into(), progress)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Append {
    plan: String,
    step: StepSpec,
    before: Option<String>,
    after: Option<String>,
    guidance: Option<String>,
}

pub(super) fn append(
    manager: &CheckpointManager,
    arguments: Value,
    _: &dyn Progress,
) -> Result<Value, Refusal> {
    let Append { plan, step: spec, before, after, guidance } = read(arguments)?;
    let place = match (before, after) {
        (Some(_), Some(_)) => return Err(Refusal::usage("a step goes before or after another, not both")),
        (Some(step), None) => Some(StepPlace::Before(step)),
        (None, Some(step)) => Some(StepPlace::After(step)),
        (None, None) => None,
    };
    let fix = Fix::Append { spec, place };
    Ok(corrected(&manager.plans().correct_in_place(&plan, &fix, guidance.as_deref(), DryRun::No)?))
}

fn corrected(corrected: &Corrected) -> Value {
    json!({
        "attempt": corrected.attempt,
        "plan": shapes::plan(&corrected.record),
        "checkpoint": corrected.checkpoint,
        "restored": corrected.restored.as_ref().map(shapes::rolled_back),
        "step": corrected.step,
    })
}
