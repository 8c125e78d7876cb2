//! `plan step`: a step begins, is done, failed; or is added.

use super::look::entering;
use super::{Opened, fits, json_value, keeps_the_rules};
use crate::args::plan::{AddArgs, StepArgs, StepCommand};
use crate::commands::Context;
use crate::commands::create::tell_upkeep;
use crate::commands::recover;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use safepoint::model::plan::spec::{PlanSpec, StepSpec};
use safepoint::model::plan::state::{Happening, Plan, StepState};
use safepoint::{CheckpointManager, Created, Error, StepMoved};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, command: &StepCommand) -> Result<Reply, Problem> {
    let progress = &context.progress;
    match command {
        StepCommand::Start(args) => moved(context, args, "started", |manager| {
            manager.plans().start_step(&args.plan.plan, &args.step, progress)
        }),
        StepCommand::Finish(args) => {
            let output = args.output.as_deref().map(|text| json_value("the output", text)).transpose()?;
            output.as_ref().map_or(Ok(()), |output| fits("output", output))?;
            let (plan, step) = (&args.step.plan.plan, &args.step.step);
            moved(context, &args.step, "done", |manager| {
                manager.plans().finish_step(plan, step, output, progress)
            })
        }
        StepCommand::Fail(args) => {
            let (plan, step) = (&args.step.plan.plan, &args.step.step);
            moved(context, &args.step, "failed", |manager| {
                manager.plans().fail_step(plan, step, &args.error, progress)
            })
        }
        StepCommand::Add(args) => add(context, args),
    }
}

fn moved(
    context: &Context,
    args: &StepArgs,
    word: &str,
    verb: impl FnOnce(&CheckpointManager) -> Result<StepMoved, Error>,
) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, &args.plan.plan)?;
    // A wrong step is told before the workspace is looked at.
    opened.record.plan.find(&args.step).map_err(Error::from)?;
    let moved = verb(&opened.manager).map_err(|error| explain(context, &opened, &args.step, error))?;
    recover::tell(&context.out, &moved.recovered);
    let had_sandbox = opened.sandbox.is_some();
    opened.renew(moved.record)?;
    let out = &context.out;
    out.remark(format!("Step {} {word}", out.colours.bold(printable(&args.step))));
    moved.happened.iter().filter_map(told).for_each(|text| out.remark(format!("  {text}")));
    for Created { checkpoint, .. } in &moved.checkpoints {
        let label = checkpoint.label.as_deref().map(printable).unwrap_or_default();
        out.remark(format!("  checkpoint {} \"{label}\"", checkpoint.id));
    }
    if word == "started" && opened.sandbox.is_some() {
        let path = printable(&opened.place.root_path().to_string_lossy());
        out.remark(match opened.overlay() {
            Some(attempt) => format!("  work in its overlay: {}", entering(&attempt)),
            None if had_sandbox => format!("  work in {path}"),
            None => format!("  work in {path}, a copy that was made now{}", opened.not_overlay()),
        });
    }
    moved.checkpoints.iter().for_each(|created| tell_upkeep(out, created));
    let taken: Value = moved
        .checkpoints
        .iter()
        .map(|created| json::checkpoint_with_coverage(&created.checkpoint, &created.coverage))
        .collect();
    Ok(Reply::done(json!({ "plan": opened.json(), "step": args.step, "checkpoints": taken })))
}

/// Describes an event.
fn told(happening: &Happening) -> Option<String> {
    match happening {
        Happening::SubplanStarts { path } => Some(format!("subplan {path} begins")),
        Happening::SubplanDone { path } => Some(format!("subplan {path} is done")),
        Happening::PhaseDone { phase } => Some(format!("phase {phase} is done")),
        Happening::PlanDone => Some("every step of the plan is done".to_owned()),
        Happening::StepStarts { .. } | Happening::StepDone { .. } | Happening::StepFailed { .. } => None,
    }
}

/// That a checkpoint could not be taken after a step does not make the step undone, and must not seem to.
fn explain(context: &Context, before: &Opened, step: &str, error: Error) -> Problem {
    // A change that a rule forbids was not made; another process brought the step to that state.
    let by_rule = matches!(error, Error::Plan(_));
    let problem = before.explain(context, error);
    let state = |plan: &Plan| plan.find(step).ok().map(|at| plan.steps[at].state);
    let now = before.manager.plans().get(&before.record.plan.id).ok().and_then(|record| state(&record.plan));
    match now {
        Some(now @ (StepState::Done | StepState::Failed))
            if !by_rule && Some(now) != state(&before.record.plan) =>
        {
            problem.silent_about_change().hint(format!(
                "Step {step} is {now} all the same: only the checkpoint after it was not taken."
            ))
        }
        _ => problem,
    }
}

fn add(context: &Context, args: &AddArgs) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, &args.plan.plan)?;
    let spec = StepSpec { title: args.title.clone(), run: args.run.clone(), ..StepSpec::new(&args.step) };
    let hint = "docs/plan-files.md lists the rules; a step is put below another one with --below.";
    keeps_the_rules(&around(&opened.record.plan, args.below.as_deref(), &spec), hint)?;
    let (record, path) = opened.manager.plans().append_step(&args.plan.plan, args.below.as_deref(), &spec)?;
    opened.record = record;
    context.out.remark(format!("Added step {}", context.out.colours.bold(&path)));
    Ok(Reply::done(json!({ "plan": opened.json(), "step": path })))
}

/// As much of the plan as says whether the step may be where it is to be.
fn around(plan: &Plan, below: Option<&str>, spec: &StepSpec) -> PlanSpec {
    let mut spec = spec.clone();
    let mut above = below;
    while let Some(path) = above {
        let known = plan.find(path).ok().map(|at| plan.steps[at].spec.clone()).unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or(path);
        spec = StepSpec { id: name.to_owned(), steps: vec![spec], ..known };
        above = path.rsplit_once('/').map(|(above, _)| above);
    }
    PlanSpec { steps: vec![spec], ..PlanSpec::new("any") }
}
