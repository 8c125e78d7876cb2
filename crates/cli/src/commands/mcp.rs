//! `mcp`: serves the commands to an agent. The protocol is in the crate `safepoint-mcp`; this file runs its calls with
//! the commands of this program, in one workspace.
//!
//! A model names checkpoints, plans and paths. Those of other workspaces are refused, even if the user may see them.

mod changes;

use crate::args::attempt::{AttemptCommand, CompareArgs, DropArgs, KeepArgs, OthersArg};
use crate::args::plan::{
    AddArgs, DecideArgs, FailArgs, FinishArgs, PlanArgs, PlanCommand, StepArgs, StepCommand,
};
use crate::args::{AgainArgs, Command, CreateArgs, Global, HistoryArgs, McpArgs, RollbackArgs, UndoArgs};
use crate::commands::{Context, dispatch, list};
use crate::context::{Surroundings, mcp_token, session_id};
use crate::problem::Problem;
use crate::render::exit;
use crate::render::json;
use crate::render::output::{Printer, Reply, Stage};
use crate::render::terminal::{Bars, printable};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::plan::state::PlanState;
use safepoint::model::{ObjectId, hash::ObjectKind};
use safepoint::{Access, CheckpointManager, Error, Failure, Filter, PlanSummary, RoleFilter, Workspace};
use safepoint_mcp::{
    Answer, Call, CallOrigin, Desk, Http, HttpError, Page, ServeError, StepAction, Watch, serve_stdio,
};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(crate) fn run(context: &Context, args: &McpArgs) -> Result<Reply, Problem> {
    let mut surroundings = context.surroundings.clone();
    if let Some(folder) = &args.workspace {
        let folder = surroundings.absolute(folder);
        surroundings.directory =
            folder.canonicalize().map_err(|error| Problem::unreadable(&folder, &error))?;
    }
    let folder = printable(&surroundings.directory.display().to_string());
    let desk = Arc::new(Commands { surroundings });
    let Some(address) = args.http else {
        serve_stdio(desk).map_err(|error| failed(&error))?;
        return Ok(Reply::done(Value::Null));
    };
    let http = Http::bind(address, mcp_token()).map_err(|error| unusable(&error))?;
    let data = json!({ "url": http.url(), "token": http.token() });
    let lines = [format!("Serving {folder} at {}", http.url()), format!("Token: {}", http.token())];
    context.out.announce("mcp", &data, &lines);
    http.serve(desk).map_err(|error| unusable(&error))?;
    Ok(Reply::done(data))
}

fn failed(error: &ServeError) -> Problem {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    Problem::not_served(printable(&error.to_string()), cause)
}

fn unusable(error: &HttpError) -> Problem {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match error {
        HttpError::NotLoopback(_) => Problem::usage(
            error.to_string(),
            "Only programs on this machine may connect: safepoint mcp --http 127.0.0.1:0",
        ),
        HttpError::WeakToken => Problem::usage(
            error.to_string(),
            "Leave SAFEPOINT_MCP_TOKEN unset to get a random token, or set 32 or more letters and digits.",
        ),
        _ => Problem::not_served(error.to_string(), cause),
    }
}

/// The commands of this program, for one workspace.
struct Commands {
    surroundings: Surroundings,
}

/// Workspace of a call.
struct Ground<'a> {
    context: &'a Context,
    manager: CheckpointManager,
    workspace: Workspace,
}

impl Desk for Commands {
    fn perform(&self, call: &Call, origin: &CallOrigin, watch: Box<dyn Watch>) -> Answer {
        let caller = origin.client.as_deref();
        let global = Global { json: true, quiet: true, ..Global::default() };
        let context = Context {
            surroundings: Surroundings {
                caller: caller.map(str::to_owned),
                access: access(call),
                session_id: self.session_of(origin),
                ..self.surroundings.clone()
            },
            out: Printer::new(&global, true, Stage::Lent),
            progress: Bars::for_client(watch),
            yes: matches!(call, Call::Undo { force: true, .. }),
        };
        let result = catch_unwind(AssertUnwindSafe(|| answer(context, call, caller)));
        let (result, messages) = result.unwrap_or_else(|_| {
            (Err(Problem::internal("the call ended unexpectedly".to_owned())), Vec::new())
        });
        match result {
            Ok(Reply { data, exit, failure }) => Answer { exit_code: exit, data, error: failure, messages },
            Err(Problem { failure, .. }) => {
                Answer { exit_code: exit::of(&failure), data: Value::Null, error: Some(failure), messages }
            }
        }
    }

    fn exit_code(&self, failure: &Failure) -> u8 {
        exit::of(failure)
    }
}

impl Commands {
    /// Session of a call: that of the environment, else the agent's, by its id or by the tool call that a hook covered.
    fn session_of(&self, origin: &CallOrigin) -> Option<String> {
        let own = self.surroundings.session_id.clone();
        own.or_else(|| session_id(origin.session.as_deref()?).ok()).or_else(|| {
            let manager = self.surroundings.open(None).ok()?;
            manager.turns().session_of_call(origin.tool_use.as_deref()?).ok()?
        })
    }
}

/// Access to the home: reading works on a read-only home, too.
fn access(call: &Call) -> Access {
    match call {
        Call::Checkpoint { .. }
        | Call::Step { .. }
        | Call::Decide { .. }
        | Call::Rollback { .. }
        | Call::Undo { .. }
        | Call::Redo { .. }
        // Its dry run captures the attempt.
        | Call::Keep { .. }
        | Call::Drop { .. } => Access::Write,
        _ => Access::Read,
    }
}

fn answer(mut context: Context, call: &Call, caller: Option<&str>) -> (Result<Reply, Problem>, Vec<Value>) {
    let result = match call {
        // It registers the workspace if necessary.
        Call::Checkpoint { label } => {
            let tool = caller.unwrap_or("mcp").to_owned();
            dispatch(&context, &Command::Create(CreateArgs::labelled(label.clone(), Some(tool))))
        }
        _ => in_workspace(&mut context, call),
    };
    let messages = context.out.take_messages();
    (result, messages)
}

fn in_workspace(context: &mut Context, call: &Call) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    // Paths of a model are relative to the top, wherever the server was started.
    context.surroundings.directory = workspace.root_path().to_path_buf();
    let ground = Ground { context, manager, workspace };
    match call {
        Call::Status => dispatch(context, &Command::Status),
        Call::Checkpoints(page) => ground.checkpoints(*page),
        Call::History(page) => {
            dispatch(context, &Command::History(HistoryArgs { limit: Some(page.rows_max as u64) }))
        }
        Call::Changes { from, to, paths, page, patch_bytes_max } => {
            ground.changes((from.as_deref(), to.as_deref()), paths, *page, *patch_bytes_max)
        }
        Call::FileAt { checkpoint, path, bytes_max } => ground.file_at(checkpoint, path, *bytes_max),
        Call::Plan { id } => ground.plan(id.as_deref()),
        Call::Preview { to, paths } => ground.roll_back(to, paths, true),
        Call::Rollback { to, paths } => ground.roll_back(to, paths, false),
        Call::Undo { dry_run, .. } => {
            let again = AgainArgs { dry_run: *dry_run, ..AgainArgs::default() };
            ground.alone(&Command::Undo(UndoArgs { again, ..UndoArgs::default() }), *dry_run)
        }
        Call::Redo { dry_run } => {
            let args = AgainArgs { dry_run: *dry_run, ..AgainArgs::default() };
            ground.alone(&Command::Redo(args), *dry_run)
        }
        Call::Step { plan, id, action } => ground.step(plan.as_deref(), id, action),
        Call::Decide { plan, question, choice, why, alternatives, step } => {
            let plan = PlanArgs { plan: ground.active_plan(plan.as_deref())? };
            let args = DecideArgs {
                plan,
                question: question.clone(),
                choice: choice.clone(),
                why: why.clone(),
                alternatives: alternatives.clone(),
                parent: None,
                depends_on: Vec::new(),
                step: step.clone(),
            };
            dispatch(context, &Command::Plan(PlanCommand::Decide(args)))
        }
        Call::Attempts | Call::Keep { .. } | Call::Drop { .. } => attempt(context, call),
        Call::Tree { base } => ground.tree(base.as_deref()),
        Call::Stamp => ground.stamp(),
        Call::Checkpoint { .. } => Err(Problem::internal("a call was not understood".to_owned())),
    }
}

/// Runs a call about attempts.
fn attempt(context: &Context, call: &Call) -> Result<Reply, Problem> {
    let command = match call {
        Call::Keep { attempt, drops_others, dry_run } => AttemptCommand::Keep(KeepArgs {
            name: attempt.clone(),
            others: if *drops_others { OthersArg::Drop } else { OthersArg::Open },
            dry_run: *dry_run,
        }),
        Call::Drop { attempt } => {
            AttemptCommand::Drop(DropArgs { names: vec![attempt.clone()], delete_commits: false })
        }
        _ => AttemptCommand::Compare(CompareArgs { best: None, lowest: false }),
    };
    dispatch(context, &Command::Attempt(command))
}

/// Fingerprint of a value.
fn digest(value: &Value) -> String {
    ObjectId::of(ObjectKind::Document, value.to_string().as_bytes()).to_string()
}

impl Ground<'_> {
    /// Finds a checkpoint of this workspace; those of others are refused.
    fn checkpoint(&self, given: &str) -> Result<Checkpoint, Problem> {
        let found = self.context.checkpoint(&self.manager, Some(&self.workspace), given, None)?;
        match found.workspace_id {
            Some(id) if id != self.workspace.id => Err(Error::OtherWorkspace { checkpoint: found.id }.into()),
            _ => Ok(found),
        }
    }

    fn checkpoints(&self, page: Page) -> Result<Reply, Problem> {
        let filter =
            Filter { workspace: Some(self.workspace.id), role: RoleFilter::Any, ..Filter::default() };
        let all = list::folded(self.manager.checkpoints().list(&filter)?, self.workspace.head);
        let ids: Value = all.iter().map(|it| json!(it.id)).collect();
        let rows: Value = all.iter().skip(page.skip).take(page.rows_max).map(|it| self.row(it)).collect();
        Ok(Reply::done(json!({ "checkpoints": rows, "total": all.len(), "digest": digest(&ids) })))
    }

    /// Checkpoint as a row of a list.
    fn row(&self, it: &Checkpoint) -> Value {
        json!({
            "id": it.id,
            "label": it.label,
            "created_at": it.created_at,
            "kind": it.kind,
            "reason": it.reason,
            "role": it.role,
            "plan_id": it.plan_id,
            "session_id": it.session_id,
            "source_tool": it.source_tool,
            "pinned": it.pinned,
            "files": it.files,
            "position": self.workspace.head == Some(it.id),
        })
    }

    fn file_at(&self, checkpoint: &str, path: &OsString, bytes_max: usize) -> Result<Reply, Problem> {
        let checkpoint = self.checkpoint(checkpoint)?;
        let path = self.context.surroundings.path_in(&self.workspace, path)?;
        let mut start = Start { bytes: Vec::new(), bytes_max, size: 0 };
        self.manager.checkpoints().cat(
            &safepoint::within(&checkpoint, self.workspace.id),
            &path,
            &mut start,
        )?;
        let mut data = json!({
            "checkpoint": checkpoint.id,
            "path": path,
            "size": start.size,
            "cut": start.size > start.bytes.len() as u64,
        });
        match text(&start.bytes) {
            Some(text) => data["text"] = json!(text),
            None => data["base64"] = json!(STANDARD.encode(&start.bytes)),
        }
        Ok(Reply::done(data))
    }

    fn roll_back(&self, to: &str, paths: &[String], dry_run: bool) -> Result<Reply, Problem> {
        let checkpoint = self.checkpoint(to)?;
        if checkpoint.workspace_id.is_none() && paths.is_empty() {
            return Err(Error::GoesTogether { checkpoint: checkpoint.id }.into());
        }
        let args = RollbackArgs {
            checkpoint_id: Some(checkpoint.id.to_string()),
            paths: paths.iter().map(OsString::from).collect(),
            dry_run,
            ..RollbackArgs::default()
        };
        dispatch(self.context, &Command::Rollback(args))
    }

    /// Runs an undo or a redo that stays in this workspace.
    fn alone(&self, command: &Command, dry_run: bool) -> Result<Reply, Problem> {
        let reply = dispatch(self.context, command)?;
        if dry_run && !reply.data["rollback"]["together"].is_null() {
            let problem = Problem::usage(
                "the last rollback spans several folders, and an agent may change only its own",
                "The user can undo it: safepoint undo",
            );
            return Err(problem);
        }
        Ok(reply)
    }

    /// Plans of this workspace.
    fn plans(&self) -> Result<Vec<PlanSummary>, Problem> {
        Ok(self.manager.plans().list(Some(&self.workspace))?)
    }

    /// Returns the id of the named plan of this workspace, or of the only active one.
    fn active_plan(&self, given: Option<&str>) -> Result<String, Problem> {
        let plans = self.plans()?;
        if let Some(given) = given {
            let known = plans.iter().any(|plan| plan.id == given);
            return match known {
                true => Ok(given.to_owned()),
                false => Err(Error::NoPlan { id: given.to_owned() }.into()),
            };
        }
        let active: Vec<&PlanSummary> = plans.iter().filter(|plan| is_active(plan)).collect();
        match active.as_slice() {
            [plan] => Ok(plan.id.clone()),
            [] => Err(Problem::usage("no plan is active", "Make one: safepoint plan new --title TITLE")),
            several => {
                let ids: Vec<&str> = several.iter().map(|plan| plan.id.as_str()).collect();
                Err(Problem::usage("several plans are active", &format!("Name one: {}", ids.join(", "))))
            }
        }
    }

    fn plan(&self, given: Option<&str>) -> Result<Reply, Problem> {
        let plans = self.plans()?;
        // A plan that is done can still be read.
        let newest = plans.iter().filter(|plan| !plan.state.is_over()).max_by_key(|plan| plan.updated_at);
        let id = match given {
            Some(given) => Some(self.active_plan(Some(given))?),
            None => newest.map(|plan| plan.id.clone()),
        };
        let mut data = json!({ "plan": null, "plans": plans });
        if let Some(plan) = id {
            let shown = dispatch(self.context, &Command::Plan(PlanCommand::Show(PlanArgs { plan })))?;
            data["plan"] = shown.data["plan"].clone();
        }
        Ok(Reply::done(data))
    }

    fn step(&self, plan: Option<&str>, id: &str, action: &StepAction) -> Result<Reply, Problem> {
        let plan = PlanArgs { plan: self.active_plan(plan)? };
        let command = match action {
            StepAction::Add(title) => StepCommand::Add(AddArgs {
                plan,
                step: id.rsplit('/').next().unwrap_or(id).to_owned(),
                title: title.clone(),
                // A model names no commands that Safepoint would run.
                run: None,
                below: id.rsplit_once('/').map(|(above, _)| above.to_owned()),
            }),
            StepAction::Start => StepCommand::Start(StepArgs { plan, step: id.to_owned() }),
            StepAction::Finish(output) => StepCommand::Finish(FinishArgs {
                step: StepArgs { plan, step: id.to_owned() },
                output: output.as_ref().map(ToString::to_string),
            }),
            StepAction::Fail(error) => StepCommand::Fail(FailArgs {
                step: StepArgs { plan, step: id.to_owned() },
                error: error.clone(),
            }),
        };
        dispatch(self.context, &Command::Plan(PlanCommand::Step(command)))
    }

    /// Fingerprint of the records, for subscribers.
    fn stamp(&self) -> Result<Reply, Problem> {
        let filter =
            Filter { workspace: Some(self.workspace.id), role: RoleFilter::Any, ..Filter::default() };
        let ids = json!([self.manager.checkpoints().list_ids(&filter)?, self.workspace.head]);
        let rollbacks: Value =
            self.manager.rollbacks(&self.workspace)?.iter().map(json::rollback_record).collect();
        let plans = json::value(self.plans()?);
        Ok(Reply::done(json!({ "timeline": digest(&json!([ids, rollbacks])), "plans": digest(&plans) })))
    }
}

fn is_active(plan: &PlanSummary) -> bool {
    !plan.state.is_over() && plan.state != PlanState::Done
}

/// Text of bytes that may end inside a character.
fn text(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
    .filter(|text| !text.contains('\0'))
}

/// Writer that keeps the start and counts the rest.
struct Start {
    bytes: Vec<u8>,
    bytes_max: usize,
    size: u64,
}

impl Write for Start {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.bytes_max.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
