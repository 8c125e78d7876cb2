//! `plan`: plans that are run or driven from outside, their decisions and checkpoints, and the way back.

mod apply;
mod checkpoint;
mod correct;
mod facts;
mod log;
mod look;
mod new;
mod rollback;
mod run;
mod step;
mod tree;
mod watch;

use crate::args::plan::PlanCommand;
use crate::commands::{Context, remote};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use safepoint::model::attempt::Attempt;
use safepoint::model::id::DecisionId;
use safepoint::model::plan::note::PlanNoteKind;
use safepoint::model::plan::run::Sandbox;
use safepoint::model::plan::spec::{PlanSpec, SandboxKind};
use safepoint::model::plan::state::{PlanRule, PlanState};
use safepoint::model::rollback::Verb;
use safepoint::{CheckpointManager, Error, PlanRecord, Workspace};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, command: &PlanCommand) -> Result<Reply, Problem> {
    match command {
        PlanCommand::New(args) => new::run(context, args),
        PlanCommand::List(args) => look::list(context, args),
        PlanCommand::Show(args) => look::show(context, args),
        PlanCommand::Tree(args) => tree::run(context, args),
        PlanCommand::Log(args) => log::run(context, args),
        PlanCommand::Run(args) => run::run(context, args),
        PlanCommand::Resume(args) => run::resume(context, args),
        PlanCommand::Takeover(args) => remote::takeover(context, args),
        PlanCommand::Step(command) => step::run(context, command),
        PlanCommand::Decide(args) => facts::decide(context, args),
        PlanCommand::Context(command) => facts::context(context, command),
        PlanCommand::Output(command) => facts::output(context, command),
        PlanCommand::Checkpoint(command) => checkpoint::run(context, command),
        PlanCommand::Rollback(args) => rollback::run(context, args),
        PlanCommand::Correct(args) => correct::run(context, args),
        PlanCommand::Pause(args) => go(context, &args.plan, PlanState::Paused),
        PlanCommand::Cancel(args) => go(context, &args.plan, PlanState::Cancelled),
        PlanCommand::Apply(args) => apply::run(context, args),
    }
}

/// A plan that was named, and where it works.
struct Opened {
    manager: CheckpointManager,
    record: PlanRecord,
    /// The project.
    workspace: Workspace,
    /// The copy that it works in, once it is made.
    sandbox: Option<Sandbox>,
    /// Its workspace: the copy, or the project.
    place: Workspace,
}

impl Opened {
    fn new(context: &Context, id: &str) -> Result<Self, Problem> {
        let manager = context.surroundings.open(None)?;
        let record = manager.plans().get(id)?;
        Self::of(manager, record)
    }

    fn of(manager: CheckpointManager, record: PlanRecord) -> Result<Self, Problem> {
        let workspace = manager.workspaces().get(record.workspace_id)?;
        let place = workspace.clone();
        let mut opened = Self { manager, record, workspace, sandbox: None, place };
        opened.look_again()?;
        Ok(opened)
    }

    /// Something happened to the plan: it may work in a copy by now.
    fn renew(&mut self, record: PlanRecord) -> Result<(), Problem> {
        self.record = record;
        self.look_again()
    }

    fn look_again(&mut self) -> Result<(), Problem> {
        self.sandbox = self.manager.plans().sandbox(&self.record)?;
        if let Some(sandbox) = &self.sandbox {
            self.place = self.manager.workspaces().get(sandbox.workspace_id)?;
        }
        Ok(())
    }

    /// Returns the attempt that its sandbox is, if that is an overlay.
    fn overlay(&self) -> Option<Attempt> {
        self.sandbox.as_ref().filter(|sandbox| sandbox.kind == SandboxKind::Overlay)?;
        self.manager.attempts().of_place(self.place.id).ok().flatten()
    }

    /// Reason for a copy where an overlay was wanted.
    fn not_overlay(&self) -> &'static str {
        let is_copy = self.sandbox.as_ref().is_some_and(|sandbox| sandbox.kind == SandboxKind::Copy);
        match is_copy && self.record.plan.sandbox.kind == SandboxKind::Overlay {
            true => ", because no overlay can be mounted here; `safepoint doctor` shows the reason",
            false => "",
        }
    }

    /// Says where the files of the plan went back without it.
    fn warn_of_files(&self, context: &Context) -> Result<(), Problem> {
        let id = self.id();
        if let Some(checkpoint) = self.manager.plans().left_by_files(id)? {
            let notes = self.manager.plans().notes(id)?;
            let last = notes.iter().rfind(|note| note.kind == PlanNoteKind::FilesRolledBack);
            let back =
                if last.is_some_and(|note| note.body["verb"] == json!(Verb::Undo)) { "redo" } else { "undo" };
            context.out.warn(format!(
                "the files of plan {id} were rolled back to {checkpoint}, and the plan was not: what its steps say is done may be gone. \
                 Take the rollback back with `safepoint {back}`, or roll the plan back, too: safepoint plan rollback {id}"
            ));
        }
        Ok(())
    }

    /// Explains a failure: a missing folder is not the end.
    fn explain(&self, context: &Context, error: Error) -> Problem {
        context.failed(&self.manager, &self.place, error.into())
    }

    fn id(&self) -> &str {
        &self.record.plan.id
    }

    fn json(&self) -> Value {
        json::plan::plan(&self.record, &self.workspace, self.sandbox.as_ref())
    }
}

/// A plan goes to another state.
fn go(context: &Context, id: &str, next: PlanState) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, id)?;
    let is_run = opened.manager.plans().is_running(id)?;
    let (record, ()) = opened.manager.plans().change(id, next.as_str(), |plan| plan.go(next))?;
    opened.renew(record)?;
    let name = context.out.colours.bold(opened.id());
    context.out.remark(match (next, is_run) {
        (PlanState::Paused, true) => {
            format!("Paused plan {name}: its run stops once the step that is under way has ended.")
        }
        (PlanState::Paused, false) => format!("Paused plan {name}: it goes on with its next step."),
        (_, true) => {
            format!("Cancelled plan {name}: its run ends now. A rollback to one of its checkpoints brings it back.")
        }
        (_, false) => format!("Cancelled plan {name}: a rollback to one of its checkpoints brings it back."),
    });
    Ok(Reply::done(json!({ "plan": opened.json() })))
}

/// Reads the id of a decision. Any other text names no decision of the plan.
fn decision_id(given: &str) -> Result<DecisionId, Problem> {
    let unknown = || Error::Plan(PlanRule::NoDecision { id: given.to_owned() });
    Ok(given.parse().map_err(|_| unknown())?)
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
