//! `plan list`, `plan show` and `plan log`.

use super::{Opened, titled};
use crate::cli::Context;
use crate::cli::args::plan::{PlanArgs, PlanListArgs};
use crate::cli::output::{Printer, Reply};
use crate::cli::terminal::{ago, counted, moment, printable};
use crate::context::Surroundings;
use crate::json;
use crate::problem::Problem;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::plan::spec::SandboxKind;
use safepoint::model::plan::state::{Plan, StepState};
use safepoint::{PlanNote, PlanSummary};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) fn list(context: &Context, args: &PlanListArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = if args.all { None } else { Some(context.surroundings.workspace(&manager)?) };
    let plans = manager.plans(workspace.as_ref())?;
    if plans.is_empty() {
        context.out.remark("There are no plans yet. Make one: safepoint plan new plan.toml");
    } else {
        table(&context.out, &plans);
    }
    Ok(Reply::done(json!({ "plans": plans })))
}

fn table(out: &Printer, plans: &[PlanSummary]) {
    let widest = |column: &dyn Fn(&PlanSummary) -> usize| plans.iter().map(column).max().unwrap_or(0);
    let now = Surroundings::now();
    let id = widest(&|plan| plan.id.len()).max("PLAN".len());
    let state = widest(&|plan| plan.state.as_str().len()).max("STATE".len());
    let when = widest(&|plan| ago(now, plan.updated_at).len()).max("CHANGED".len());
    let title = format!("{:id$}  {:state$}  {:when$}  TITLE", "PLAN", "STATE", "CHANGED");
    out.remark(out.colours.dim(title));
    for plan in plans {
        let name = out.colours.bold(format!("{:id$}", plan.id));
        let (word, age) = (plan.state.as_str(), ago(now, plan.updated_at));
        out.line(format!("{name}  {word:state$}  {age:when$}  {}", printable(&plan.title)));
    }
}

pub(crate) fn show(context: &Context, args: &PlanArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan)?;
    let (out, plan) = (&context.out, &opened.record.plan);
    let name = titled(context, &opened.record);
    let (done, all) = (plan.step_index(), leaves(plan));
    out.line(format!("Plan {name} is {}, {done} of {} done", plan.state, counted(all, "step", "steps")));
    steps(out, plan);
    let fact = |name: &str, text: String| {
        out.line(format!("  {} {text}", out.colours.dim(format!("{name:<9}"))));
    };
    let next = plan.next();
    if !next.is_empty() {
        fact("next", next.join(", "));
    }
    if !plan.decisions.is_empty() {
        let count = plan.decisions.len();
        fact("decisions", format!("{count}; `safepoint plan tree {}` shows them", plan.id));
    }
    values(&plan.context).into_iter().for_each(|text| fact("knows", text));
    values(&plan.outputs).into_iter().for_each(|text| fact("gave", text));
    let root = opened.workspace.root_path();
    fact(
        "works in",
        match plan.sandbox.kind {
            SandboxKind::InPlace => printable(&root.to_string_lossy()),
            SandboxKind::Copy => "a copy, which is not available yet".to_owned(),
        },
    );
    let changed = opened.record.updated_at;
    fact("changed", format!("{}, {}", moment(changed), ago(Surroundings::now(), changed)));
    Ok(Reply::done(json!({ "plan": opened.json() })))
}

fn values(values: &BTreeMap<String, Value>) -> Vec<String> {
    values
        .iter()
        .map(|(key, value)| format!("{} = {}", printable(key), printable(&value.to_string())))
        .collect()
}

/// How many steps have none below them.
fn leaves(plan: &Plan) -> u64 {
    let is_above = |at: usize| {
        plan.steps.get(at + 1).is_some_and(|next| next.parent() == Some(plan.steps[at].path.as_str()))
    };
    (0..plan.steps.len()).filter(|at| !is_above(*at)).count() as u64
}

/// The steps, each below the one that holds it.
pub(crate) fn steps(out: &Printer, plan: &Plan) {
    let colours = out.colours;
    for step in &plan.steps {
        let indent = "    ".repeat(step.path.matches('/').count());
        let mark = match step.state {
            StepState::Pending => "[ ]".to_owned(),
            StepState::Running => colours.cyan("[>]"),
            StepState::Done => colours.green("[x]"),
            StepState::Failed => colours.red("[!]"),
            StepState::Interrupted => colours.yellow("[?]"),
        };
        let mut line = format!("  {indent}{mark} {}", step.spec.id);
        if let Some(title) = &step.spec.title {
            line.push_str(&format!("  {}", colours.dim(printable(title))));
        }
        if step.state != StepState::Pending && step.state != StepState::Done {
            line.push_str(&format!("  {}", step.state));
        }
        if let Some(error) = &step.error {
            line.push_str(&format!(": {}", colours.red(printable(error))));
        }
        out.line(line);
    }
}

pub(crate) fn log(context: &Context, args: &PlanArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan)?;
    let (manager, out) = (&opened.manager, &context.out);
    // What was noted at a version came with it; a checkpoint at that version came after it. The clock has no say.
    let mut entries: Vec<(u64, Entry)> = Vec::new();
    for note in manager.plan_notes(&args.plan)? {
        entries.push((note.version, Entry::Note(note)));
    }
    for taken in manager.plan_checkpoints(&args.plan)?.into_iter().rev() {
        entries.push((taken.version, Entry::Checkpoint(Box::new(manager.checkpoint(taken.checkpoint)?))));
    }
    entries.sort_by_key(|(version, entry)| (*version, matches!(entry, Entry::Checkpoint(_))));
    if entries.is_empty() {
        out.remark("Nothing went wrong yet, and no checkpoint was taken.");
    }
    for (_, entry) in &entries {
        let (at, text) = match entry {
            Entry::Note(note) => (note.at, told(note)),
            Entry::Checkpoint(checkpoint) => {
                let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
                (checkpoint.created_at, format!("checkpoint {}{}", checkpoint.id, label.unwrap_or_default()))
            }
        };
        out.line(format!("{}  {text}", out.colours.dim(moment(at))));
    }
    let log: Value = entries
        .iter()
        .map(|(version, entry)| match entry {
            Entry::Note(note) => json::plan::note(note),
            Entry::Checkpoint(checkpoint) => json::plan::noted(checkpoint, *version),
        })
        .collect();
    Ok(Reply::done(json!({ "log": log })))
}

enum Entry {
    Note(PlanNote),
    Checkpoint(Box<Checkpoint>),
}

/// A note in words.
fn told(note: &PlanNote) -> String {
    let text = |key: &str| printable(note.body[key].as_str().unwrap_or_default());
    let words = |key: &str| -> Vec<String> {
        let all = note.body[key].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().map(|it| printable(it.as_str().or(it["choice"].as_str()).unwrap_or_default())).collect()
    };
    match note.kind.as_str() {
        "error" => format!("step {} failed: {}", text("step"), text("error")),
        "superseded" => format!("decisions superseded: {}", words("decisions").join(", ")),
        "invalidated" => format!("subplans invalidated: {}", words("subplans").join(", ")),
        "rolled_back" => match words("steps").join(", ").as_str() {
            "" => format!("rollback {}", text("rollback")),
            steps => format!("rollback {}, taken back: {steps}", text("rollback")),
        },
        "correction" => match text("step").as_str() {
            "" => format!("corrected by going back to checkpoint {}", text("checkpoint")),
            step => format!("corrected by one more step: {step}"),
        },
        other => format!("{}: {}", printable(other), printable(&note.body.to_string())),
    }
}
