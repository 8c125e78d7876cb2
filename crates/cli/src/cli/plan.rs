//! `plan`: plans that somebody outside drives, their decisions and checkpoints, and the way back.

mod checkpoint;
mod correct;
mod facts;
mod look;
mod new;
mod rollback;
mod step;
mod tree;

use crate::cli::Context;
use crate::cli::args::plan::PlanCommand;
use crate::cli::output::Reply;
use crate::cli::terminal::printable;
use crate::json;
use crate::problem::Problem;
use safepoint::model::plan::spec::{PlanSpec, SandboxKind};
use safepoint::model::plan::state::PlanState;
use safepoint::{CheckpointManager, PlanRecord, Workspace};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, command: &PlanCommand) -> Result<Reply, Problem> {
    match command {
        PlanCommand::New(args) => new::run(context, args),
        PlanCommand::List(args) => look::list(context, args),
        PlanCommand::Show(args) => look::show(context, args),
        PlanCommand::Tree(args) => tree::run(context, args),
        PlanCommand::Log(args) => look::log(context, args),
        PlanCommand::Step(command) => step::run(context, command),
        PlanCommand::Decide(args) => facts::decide(context, args),
        PlanCommand::Context(command) => facts::context(context, command),
        PlanCommand::Output(command) => facts::output(context, command),
        PlanCommand::Checkpoint(command) => checkpoint::run(context, command),
        PlanCommand::Rollback(args) => rollback::run(context, args),
        PlanCommand::Correct(args) => correct::run(context, args),
        PlanCommand::Pause(args) => go(context, &args.plan, PlanState::Paused),
        PlanCommand::Cancel(args) => go(context, &args.plan, PlanState::Cancelled),
        PlanCommand::Apply(args) => go(context, &args.plan, PlanState::Applied),
    }
}

/// A plan that was named, and where it works.
struct Opened {
    manager: CheckpointManager,
    record: PlanRecord,
    workspace: Workspace,
}

impl Opened {
    fn new(context: &Context, id: &str) -> Result<Self, Problem> {
        let manager = context.surroundings.open(None)?;
        let record = manager.plan(id)?;
        let workspace = manager.workspace(record.workspace_id)?;
        Ok(Self { manager, record, workspace })
    }

    fn json(&self) -> Value {
        json::plan::plan(&self.record, &self.workspace)
    }
}

/// A plan goes to another state.
fn go(context: &Context, id: &str, next: PlanState) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, id)?;
    if next == PlanState::Applied && opened.record.plan.sandbox.kind == SandboxKind::Copy {
        return Err(Problem::not_available(
            "applying a plan with a copy sandbox",
            "Plans with the sandbox kind \"in-place\" can be applied.",
        ));
    }
    (opened.record, ()) = opened.manager.change_plan(id, next.as_str(), |plan| plan.go(next))?;
    let name = context.out.colours.bold(&opened.record.plan.id);
    context.out.remark(match next {
        PlanState::Paused => format!("Paused plan {name}: it goes on with its next step."),
        PlanState::Cancelled => {
            format!("Cancelled plan {name}: a rollback to one of its checkpoints brings it back.")
        }
        _ => format!("Applied plan {name}: its result stays, and it is not rolled back any more."),
    });
    Ok(Reply::done(json!({ "plan": opened.json() })))
}

/// A value that was typed as JSON. `what` is what it is for.
fn json_value(what: &str, text: &str) -> Result<Value, Problem> {
    serde_json::from_str(text).map_err(|error| {
        Problem::usage(
            format!("{what} is not JSON: {error}"),
            "Texts stand in double quotes inside of those of the shell, as in '\"done\"'.",
        )
    })
}

/// A plan keeps what a plan file may hold, and nothing else.
fn fits(key: &str, value: &Value) -> Result<(), Problem> {
    let context = [(key.to_owned(), value.clone())].into_iter().collect();
    let spec = PlanSpec { context, ..PlanSpec::new("any") };
    match spec.check() {
        Ok(()) => Ok(()),
        Err(problems) => {
            let first = problems.into_iter().next().map(|problem| problem.why);
            Err(Problem::usage(first.unwrap_or_default(), "docs/plan-files.md lists the rules."))
        }
    }
}

fn keeps_the_rules(spec: &PlanSpec, hint: &str) -> Result<(), Problem> {
    match spec.check() {
        Ok(()) => Ok(()),
        Err(problems) => {
            let first = problems.first().map(ToString::to_string);
            Err(Problem::usage(first.unwrap_or_default(), hint))
        }
    }
}

/// `limits "Add rate limiting"`, for people.
fn titled(context: &Context, record: &PlanRecord) -> String {
    format!("{} \"{}\"", context.out.colours.bold(&record.plan.id), printable(&record.plan.title))
}
