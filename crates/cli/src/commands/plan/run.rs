//! `plan run` and `plan resume`: the steps of a plan as commands, to the end or as far as it goes.

use super::watch::Watch;
use super::{Opened, look, titled};
use crate::args::plan::{ResumeArgs, RunArgs, WhenInterrupted};
use crate::commands::{recover, remote};
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::{counted, printable};
use crate::render::warning;
use crate::{commands::Context, render::consent, render::exit};
use crate::{render::json, signals};
use safepoint::model::plan::run::RunOutcome;
use safepoint::model::plan::state::{Plan, StepState};
use safepoint::{Error, Interrupted, Plans, Progress, RunObserver, RunOptions, RunReport};
use serde_json::json;

pub(crate) fn run(context: &Context, args: &RunArgs) -> Result<Reply, Problem> {
    let options = RunOptions { until: args.until.clone(), ..RunOptions::default() };
    drive(context, &args.plan.plan, &options, |plans, id, options, watch, progress| {
        plans.run(id, options, watch, progress)
    })
}

pub(crate) fn resume(context: &Context, args: &ResumeArgs) -> Result<Reply, Problem> {
    let interrupted = args.interrupted.map(|said| match said {
        WhenInterrupted::Rerun => Interrupted::Rerun,
        WhenInterrupted::Done => Interrupted::Done,
        WhenInterrupted::Fail => Interrupted::Fail,
    });
    let can_ask = consent::can_ask(context);
    let options = RunOptions { until: args.run.until.clone(), interrupted, can_ask, ..RunOptions::default() };
    drive(context, &args.run.plan.plan, &options, |plans, id, options, watch, progress| {
        plans.resume(id, options, watch, progress)
    })
}

type Verb = fn(&Plans<'_>, &str, &RunOptions, &dyn RunObserver, &dyn Progress) -> Result<RunReport, Error>;

fn drive(context: &Context, id: &str, options: &RunOptions, verb: Verb) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, id)?;
    opened.warn_of_files(context)?;
    let leases = remote::leases(context, &opened.manager, &opened.record)?;
    let options = &RunOptions { leases, ..options.clone() };
    signals::listen_for_another();
    let watch = Watch::new(context);
    let run = |options: &RunOptions| verb(&opened.manager.plans(), id, options, &watch, &watch);
    let report = match run(options) {
        Err(Error::StepInterrupted { id, steps }) if consent::can_ask(context) => {
            watch.settle();
            match what_becomes_of(context, &steps)? {
                Some(said) => run(&RunOptions { interrupted: Some(said), ..options.clone() }),
                None => Err(Error::StepInterrupted { id, steps }),
            }
        }
        other => other,
    };
    let tree = watch.finish();
    let report = report.map_err(|error| match watch.ran() {
        false => opened.explain(context, error),
        true => opened
            .explain(context, error)
            .silent_about_change()
            .hint(format!("What is done stays done. Go on with: safepoint plan resume {id}")),
    })?;
    let had_sandbox = opened.sandbox.is_some();
    opened.renew(report.record.clone())?;
    if !had_sandbox && !opened.not_overlay().is_empty() {
        context.out.warn(format!("the plan works in a copy{}", opened.not_overlay()));
    }
    tree.iter().for_each(|row| context.out.line(row));
    recover::tell(&context.out, &report.recovered);
    warning::warn(&context.out, &report.warnings);
    let problem = close(context, &opened, &report);
    if let Some(problem) = &problem {
        context.out.flush();
        context.out.tell(&attempt(id), problem);
    }
    let interrupted = interrupted(&report);
    Ok(Reply {
        data: json!({ "plan": opened.json(), "run": json::plan::run(&report, &interrupted) }),
        exit: problem.as_ref().map_or(exit::DONE, |problem| exit::of(&problem.failure)),
        failure: problem.map(|problem| problem.failure),
    })
}

fn attempt(id: &str) -> String {
    format!("finish plan {id:?}")
}

/// Asks what becomes of steps that were interrupted.
fn what_becomes_of(context: &Context, steps: &[String]) -> Result<Option<Interrupted>, Problem> {
    let names: Vec<String> = steps.iter().map(|step| printable(step)).collect();
    let question = format!(
        "Step {} was interrupted; its progress is unknown. Run it again (r), count it as done (d), count it as failed (f), or leave it (Enter)?",
        names.join(", ")
    );
    Ok(match consent::line(context, &question)?.to_lowercase().as_str() {
        "r" | "rerun" => Some(Interrupted::Rerun),
        "d" | "done" => Some(Interrupted::Done),
        "f" | "fail" => Some(Interrupted::Fail),
        _ => None,
    })
}

/// Steps that were under way when the run stopped, or when the one before it died.
fn interrupted(report: &RunReport) -> Vec<String> {
    let mut steps = report.dead.as_ref().map(|dead| dead.interrupted.clone()).unwrap_or_default();
    let now = report.record.plan.steps.iter().filter(|step| {
        step.state == StepState::Interrupted && step.spec.run.is_some() && !steps.contains(&step.path)
    });
    let now: Vec<String> = now.map(|step| step.path.clone()).collect();
    steps.extend(now);
    steps
}

/// Says how it ended and what comes next. Gives what went wrong, if it did.
fn close(context: &Context, opened: &Opened, report: &RunReport) -> Option<Problem> {
    let plan = &opened.record.plan;
    let id = &plan.id;
    let out = &context.out;
    let step = report.step.as_deref().unwrap_or_default();
    let (done, all) = (plan.step_index(), look::leaves(plan));
    let all = counted(all, "step", "steps");
    out.remark(format!("Plan {} is {}, {done} of {all} done", titled(context, &opened.record), plan.state));
    match report.outcome {
        RunOutcome::Done => {
            out.remark(format!("Take its result over with: safepoint plan apply {id}"));
            None
        }
        RunOutcome::Paused => {
            let next = plan.next().first().map(|next| format!(" with step {}", printable(next)));
            out.remark(format!("It goes on{}: safepoint plan resume {id}", next.unwrap_or_default()));
            None
        }
        RunOutcome::Waiting => {
            out.remark(waits(opened, plan, step));
            None
        }
        RunOutcome::Failed => {
            let error = report.error.as_deref().unwrap_or_default();
            let place = match opened.overlay() {
                Some(attempt) => format!("its overlay ({})", look::entering(&attempt)),
                None => opened.place.root_path().to_string_lossy().into_owned(),
            };
            Some(Problem::step_failed(id, step, error, &place))
        }
        RunOutcome::Cancelled => Some(Problem::cancelled(id)),
        RunOutcome::Interrupted | RunOutcome::Broken | RunOutcome::Killed => {
            Some(Problem::run_stopped(id, report.step.as_deref()))
        }
    }
}

/// Hint for a step done outside.
fn waits(opened: &Opened, plan: &Plan, step: &str) -> String {
    let id = &plan.id;
    if step.is_empty() {
        return format!("It waits for a report from outside; then: safepoint plan resume {id}");
    }
    let place = match opened.overlay() {
        Some(attempt) => Some(format!(" with `{}`", look::entering(&attempt))),
        None => opened.sandbox.as_ref().map(|sandbox| format!(" in {}", sandbox.path.display())),
    };
    let running = plan.find(step).is_ok_and(|at| plan.steps[at].state == StepState::Running);
    let start = if running { String::new() } else { format!("`safepoint plan step start {id} {step}`, ") };
    format!(
        "It waits for step {}: say {start}do it{}, say `safepoint plan step finish {id} {step}`, then `safepoint plan resume {id}`.",
        printable(step),
        printable(&place.unwrap_or_default())
    )
}
