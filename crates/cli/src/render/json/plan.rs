//! Plans, as programs read them.

use super::{bytes, checkpoint, fill, set, value};
use crate::render::warning;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::plan::run::{Run, Sandbox, SandboxState};
use safepoint::model::plan::spec::SandboxKind;
use safepoint::model::plan::state::{Decision, Plan, PlanState, Step};
use safepoint::{PlanNote, PlanRecord, RunReport, Workspace};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;

/// A plan whole. Its steps are nested; each has the keys of a plan file, and how far it is.
pub(crate) fn plan(record: &PlanRecord, workspace: &Workspace, sandbox: Option<&Sandbox>) -> Value {
    let plan = &record.plan;
    let mut milestones = value(&plan.milestones);
    fill(&mut milestones, &["every", "every_steps"]);
    json!({
        "id": plan.id,
        "title": plan.title,
        "state": plan.state,
        "step_index": plan.step_index(),
        "steps": steps(plan),
        "decisions": plan.decisions,
        "context": plan.context,
        "outputs": plan.outputs,
        "sandbox": place(plan, workspace, sandbox),
        "checkpoints": milestones,
        "version": record.version,
        "workspace_id": record.workspace_id,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    })
}

fn place(plan: &Plan, workspace: &Workspace, sandbox: Option<&Sandbox>) -> Value {
    let (path, state) = match (sandbox, plan.sandbox.kind, plan.state) {
        (Some(sandbox), ..) => (bytes(sandbox.path.as_os_str().as_bytes()), state_of(sandbox)),
        (None, SandboxKind::Copy | SandboxKind::Overlay, _) => (Value::Null, "none"),
        (None, SandboxKind::InPlace, PlanState::Applied) => (bytes(&workspace.root), "applied"),
        (None, SandboxKind::InPlace, _) => (bytes(&workspace.root), "ready"),
    };
    // An overlay that cannot be mounted here is a copy.
    let kind = sandbox.map_or(plan.sandbox.kind, |sandbox| sandbox.kind);
    json!({ "kind": kind, "path": path, "state": state })
}

/// State of a sandbox: `ready`, `missing` or `applied`.
pub(crate) fn state_of(sandbox: &Sandbox) -> &'static str {
    match sandbox.state {
        SandboxState::Applied | SandboxState::Kept | SandboxState::Removed => "applied",
        SandboxState::Ready if sandbox.path.is_dir() => "ready",
        SandboxState::Ready => "missing",
    }
}

/// The steps of a plan, each with those below it.
pub(crate) fn steps(plan: &Plan) -> Value {
    Value::Array(nested(&mut plan.steps.iter().peekable(), 0))
}

fn nested<'p>(steps: &mut std::iter::Peekable<impl Iterator<Item = &'p Step>>, depth: usize) -> Vec<Value> {
    let mut found = Vec::new();
    while let Some(next) = steps.next_if(|next| next.path.matches('/').count() == depth) {
        let mut fields = step(next);
        set(&mut fields, "steps", Value::Array(nested(steps, depth + 1)));
        found.push(fields);
    }
    found
}

/// Keys of a plan file that a step may lack.
const STEP: &[&str] =
    &["run", "verify", "undo", "risky", "timeout", "retries", "phase", "parallel", "env", "idempotent"];

fn step(step: &Step) -> Value {
    let mut fields = value(&step.spec);
    set(&mut fields, "title", json!(step.spec.title));
    set(&mut fields, "path", json!(step.path));
    set(&mut fields, "state", json!(step.state));
    set(&mut fields, "attempts", json!(step.attempts));
    set(&mut fields, "started_at", json!(step.started_at));
    set(&mut fields, "finished_at", json!(step.finished_at));
    set(&mut fields, "error", json!(step.error));
    set(&mut fields, "output", json!(step.output));
    set(&mut fields, "log", json!(step.log));
    set(&mut fields, "skipped", json!(step.skipped));
    fill(&mut fields, STEP);
    fields
}

/// A decision in the tree of them: how deep it is, and the rollback that took it back, if one did.
pub(crate) fn placed(decision: &Decision, depth: usize, superseded_by: Option<&str>) -> Value {
    let mut fields = value(decision);
    set(&mut fields, "depth", json!(depth));
    set(&mut fields, "superseded_by", json!(superseded_by));
    fields
}

/// One thing that happened to a plan.
pub(crate) fn note(note: &PlanNote) -> Value {
    json!({
        "kind": note.kind, "at": note.at, "version": note.version, "note": note.body, "checkpoint": null,
    })
}

/// A checkpoint among what happened to a plan.
pub(crate) fn noted(record: &Checkpoint, version: u64) -> Value {
    json!({
        "kind": "checkpoint", "at": record.created_at, "version": version, "note": null,
        "checkpoint": checkpoint(record),
    })
}

/// That a run of a plan began, among what happened to it.
pub(crate) fn run_began(run: &Run, version: u64) -> Value {
    json!({
        "kind": "run", "at": run.started_at, "version": version, "note": { "run": run.id, "pid": run.pid },
        "checkpoint": null,
    })
}

/// End of a run.
pub(crate) fn run_ended(run: &Run, version: u64) -> Value {
    json!({
        "kind": "run_ended", "at": run.ended_at, "version": version,
        "note": { "run": run.id, "outcome": run.outcome }, "checkpoint": null,
    })
}

/// Result of a run. `interrupted` are the steps under way when it stopped, or when the one before it died.
pub(crate) fn run(report: &RunReport, interrupted: &[String]) -> Value {
    json!({
        "outcome": report.outcome,
        "step": report.step,
        "error": report.error,
        "done": report.done,
        "checkpoints": report.checkpoints,
        "interrupted": interrupted,
        "ended_processes": report.dead.as_ref().map_or(0, |dead| dead.ended_processes),
        "warnings": warning::texts(&report.warnings),
    })
}
