//! `plan list` and `plan show`.

use super::{Opened, titled};
use crate::args::plan::{PlanArgs, PlanListArgs};
use crate::commands::Context;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::json::plan::state_of;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{Colours, ago, counted, moment, printable, shortened, width};
use safepoint::PlanSummary;
use safepoint::model::attempt::Attempt;
use safepoint::model::plan::spec::SandboxKind;
use safepoint::model::plan::state::{Plan, StepState};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) fn list(context: &Context, args: &PlanListArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = if args.all { None } else { Some(context.surroundings.workspace(&manager)?) };
    let plans = manager.plans().list(workspace.as_ref())?;
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
    let left = if out.terminal { width().saturating_sub(title.len() - "TITLE".len()) } else { usize::MAX };
    out.remark(out.colours.dim(title));
    for plan in plans {
        let name = out.colours.bold(format!("{:id$}", plan.id));
        let (word, age) = (plan.state.as_str(), ago(now, plan.updated_at));
        let plan_title = shortened(&printable(&plan.title), left);
        out.line(format!("{name}  {word:state$}  {age:when$}  {plan_title}"));
    }
}

pub(crate) fn show(context: &Context, args: &PlanArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan)?;
    opened.warn_of_files(context)?;
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
    if has_died(&opened)? {
        fact("stopped", format!("its process died; go on with: safepoint plan resume {}", plan.id));
    }
    if !plan.decisions.is_empty() {
        let count = plan.decisions.len();
        fact("decisions", format!("{count}; `safepoint plan tree {}` shows them", plan.id));
    }
    values(&plan.context).into_iter().for_each(|text| fact("knows", text));
    values(&plan.outputs).into_iter().for_each(|text| fact("gave", text));
    fact("works in", place(&opened));
    let changed = opened.record.updated_at;
    fact("changed", format!("{}, {}", moment(changed), ago(Surroundings::now(), changed)));
    Ok(Reply::done(json!({ "plan": opened.json() })))
}

/// Returns true if the last run has no end and no process, as after `kill -9`.
fn has_died(opened: &Opened) -> Result<bool, Problem> {
    let plans = opened.manager.plans();
    let is_open = plans.runs(opened.id())?.last().is_some_and(|run| run.ended_at.is_none());
    Ok(is_open && !plans.is_running(opened.id())?)
}

/// Folder of a plan.
fn place(opened: &Opened) -> String {
    let path = printable(&opened.place.root_path().to_string_lossy());
    match (&opened.sandbox, opened.record.plan.sandbox.kind) {
        (None, SandboxKind::InPlace) => path,
        (None, SandboxKind::Copy) => "a copy, which is made when its first step begins".to_owned(),
        (None, SandboxKind::Overlay) => "an overlay, which is made when its first step begins".to_owned(),
        (Some(sandbox), _) => match state_of(sandbox) {
            "missing" => {
                format!(
                    "{path}, a sandbox that is missing; a rollback with --recreate-sandbox creates it again"
                )
            }
            "applied" => format!("{path}, a copy whose result was taken over"),
            _ => match opened.overlay() {
                Some(attempt) => format!("an overlay; enter it with: {}", entering(&attempt)),
                None => format!("{path}, a copy of the project{}", opened.not_overlay()),
            },
        },
    }
}

/// Command that enters an overlay.
pub(crate) fn entering(attempt: &Attempt) -> String {
    format!("safepoint attempt exec {} -- sh", printable(&attempt.name))
}

fn values(values: &BTreeMap<String, Value>) -> Vec<String> {
    values
        .iter()
        .map(|(key, value)| format!("{} = {}", printable(key), printable(&value.to_string())))
        .collect()
}

/// Count of steps without substeps.
pub(crate) fn leaves(plan: &Plan) -> u64 {
    let is_above = |at: usize| {
        plan.steps.get(at + 1).is_some_and(|next| next.parent() == Some(plan.steps[at].path.as_str()))
    };
    (0..plan.steps.len()).filter(|at| !is_above(*at)).count() as u64
}

/// Sign for the state of a step.
pub(crate) fn sign(colours: Colours, state: StepState) -> String {
    match state {
        StepState::Pending => "[ ]".to_owned(),
        StepState::Running => colours.cyan("[>]"),
        StepState::Done => colours.green("[x]"),
        StepState::Failed => colours.red("[!]"),
        StepState::Interrupted => colours.yellow("[?]"),
    }
}

/// The steps, each below the one that holds it.
pub(crate) fn steps(out: &Printer, plan: &Plan) {
    let colours = out.colours;
    for step in &plan.steps {
        let indent = "    ".repeat(step.path.matches('/').count());
        let mark = sign(colours, step.state);
        let mut line = format!("  {indent}{mark} {}", step.spec.id);
        if let Some(title) = &step.spec.title {
            line.push_str(&format!("  {}", colours.dim(printable(title))));
        }
        if step.state != StepState::Pending && step.state != StepState::Done {
            line.push_str(&format!("  {}", step.state));
        }
        if let Some(reason) = &step.skipped {
            line.push_str(&format!("  skipped: {}", printable(reason)));
        }
        if let Some(error) = &step.error {
            line.push_str(&format!(": {}", colours.red(printable(error))));
        }
        out.line(line);
    }
}
