//! `rpc`: serves client libraries over standard input and output: JSON-RPC in frames with attached bytes. The protocol is in
//! `docs/rpc.md`.
//!
//! One client, one home, one call at a time. It ends with its input, so that no child outlives its host, and after a signal once
//! the call that runs is answered. A call that was answered is durable.

mod frame;
mod input;
mod threads;

use crate::args::Command;
use crate::args::attempt::AttemptCommand;
use crate::args::plan::PlanCommand;
use crate::commands::{Context, dispatch};
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply, Stage};
use crate::render::terminal::{Bars, printable};
use crate::signals::InputUntilStop;
use frame::{Attached, Frame, NoFrame};
use input::{Folder, Hello, Words};
use safepoint::{CheckpointManager, Silent};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Version of the protocol.
const PROTOCOL: u32 = 1;

const NOT_JSON: i64 = -32700;
const NO_REQUEST: i64 = -32600;
const NO_METHOD: i64 = -32601;
/// The call failed; `data` has the failure.
const FAILED: i64 = -32000;
/// The client did not begin with `initialize`, or has another protocol.
const NO_HANDSHAKE: i64 = -32001;

/// Result of a method.
type Outcome = Result<Value, Problem>;

/// Connection to a client.
struct Server<'c> {
    context: &'c Context,
    /// Name of the client, once it has introduced itself.
    client: Option<String>,
    manager: Option<CheckpointManager>,
}

/// Continuation after an answer.
#[derive(PartialEq, Eq)]
enum Then {
    Next,
    End,
}

pub(crate) fn run(context: &Context) -> Result<Reply, Problem> {
    let mut server = Server { context, client: None, manager: None };
    let input = InputUntilStop::listen()
        .map_err(|error| Problem::internal(format!("cannot listen for signals: {error}")))?;
    let (mut input, mut output) = (BufReader::new(input), io::stdout().lock());
    while !input.get_ref().is_over() {
        let (answer, attached, then) = match frame::read(&mut input) {
            Ok(frame) => server.answer(&frame),
            Err(NoFrame::End) => break,
            Err(NoFrame::Refused(why)) => {
                (refusal(&Value::Null, NO_REQUEST, &why), Attached::default(), Then::Next)
            }
            Err(NoFrame::Torn(why)) => {
                (refusal(&Value::Null, NOT_JSON, &why), Attached::default(), Then::End)
            }
        };
        // A client that is gone reads no answer; what it asked for is done.
        let sent = frame::write(&mut output, &answer, &attached.0);
        if sent.is_err() || then == Then::End {
            break;
        }
    }
    let _ = output.flush();
    Ok(Reply::done(Value::Null))
}

fn refusal(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

/// Reads the parameters of a method.
fn params<T: DeserializeOwned>(given: Value) -> Result<T, Problem> {
    let given = if given.is_null() { json!({}) } else { given };
    serde_json::from_value(given).map_err(|error| {
        Problem::usage(
            format!("the parameters are invalid: {}", printable(&error.to_string())),
            "The methods and their parameters are in docs/rpc.md.",
        )
    })
}

impl Server<'_> {
    fn answer(&mut self, frame: &Frame) -> (Value, Attached, Then) {
        let mut attached = Attached::default();
        let Ok(request) = serde_json::from_slice::<Value>(&frame.json) else {
            return (refusal(&Value::Null, NOT_JSON, "the frame is not JSON"), attached, Then::Next);
        };
        let id = request["id"].clone();
        let is_id = id.is_u64() || id.as_str().is_some_and(|id| id.len() <= 64);
        let Some(method) = request["method"].as_str().filter(|_| is_id && request["jsonrpc"] == "2.0") else {
            return (refusal(&Value::Null, NO_REQUEST, "the frame is not a request"), attached, Then::Next);
        };
        let given = request["params"].clone();
        if method == "initialize" {
            let (answer, then) = self.initialize(&id, given);
            return (answer, attached, then);
        }
        if self.client.is_none() {
            return (refusal(&id, NO_HANDSHAKE, "the first call must be initialize"), attached, Then::Next);
        }
        let done = catch_unwind(AssertUnwindSafe(|| self.call(method, given, frame, &mut attached)));
        let answer = match done {
            Ok(Some(Ok(result))) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Ok(Some(Err(problem))) => failed(&id, &problem),
            Ok(None) => refusal(&id, NO_METHOD, &format!("there is no method {method:?}")),
            Err(_) => failed(&id, &Problem::internal("the call ended unexpectedly".to_owned())),
        };
        if answer["error"].is_object() {
            attached = Attached::default();
        }
        (answer, attached, Then::Next)
    }

    fn initialize(&mut self, id: &Value, given: Value) -> (Value, Then) {
        let hello: Hello = match params(given) {
            Ok(hello) => hello,
            Err(problem) => return (failed(id, &problem), Then::Next),
        };
        if hello.protocol != PROTOCOL {
            let why = format!(
                "the client speaks protocol {}, and safepoint {} speaks {PROTOCOL}",
                hello.protocol,
                env!("CARGO_PKG_VERSION")
            );
            return (refusal(id, NO_HANDSHAKE, &why), Then::End);
        }
        self.client = Some(hello.client);
        let home = self.context.surroundings.home.display().to_string();
        let result = json!({ "protocol": PROTOCOL, "version": env!("CARGO_PKG_VERSION"), "home": home });
        (json!({ "jsonrpc": "2.0", "id": id, "result": result }), Then::Next)
    }

    fn call(
        &mut self,
        method: &str,
        given: Value,
        frame: &Frame,
        attached: &mut Attached,
    ) -> Option<Outcome> {
        match method {
            "command" => Some(params(given).and_then(|words| self.command(words))),
            "open" => Some(params(given).and_then(|folder| self.open(&folder))),
            "ping" => Some(Ok(Value::Null)),
            _ if method.starts_with("threads.") => match self.manager() {
                Ok(manager) => threads::call(manager, method, given, frame, attached),
                Err(problem) => Some(Err(problem)),
            },
            _ => None,
        }
    }

    /// Returns the open home.
    fn manager(&mut self) -> Result<&CheckpointManager, Problem> {
        if self.manager.is_none() {
            self.manager = Some(self.context.surroundings.open(self.client.as_deref())?);
        }
        self.manager.as_ref().ok_or_else(|| Problem::internal("the home is not open".to_owned()))
    }

    /// Registers a folder, or finds its workspace, and finishes what a crash left in it.
    fn open(&mut self, folder: &Folder) -> Outcome {
        let path = self.context.surroundings.absolute(folder.path.as_ref());
        let manager = self.manager()?;
        let workspace = match manager.workspaces().around(&path) {
            Ok(Some(workspace)) => workspace,
            _ => manager.workspaces().register(&path)?,
        };
        let recovery = manager.recover(&workspace, &Silent)?;
        Ok(json!({ "workspace": json::workspace(&workspace), "recovered": json::recovery(&recovery) }))
    }

    /// Runs a command line. The result is that of `--json`.
    fn command(&self, words: Words) -> Outcome {
        let typed: Vec<OsString> =
            ["safepoint".to_owned()].into_iter().chain(words.args).map(OsString::from).collect();
        let mut arguments = crate::args::parse(&typed).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            Problem::usage(printable(first), "`safepoint help` lists the commands, and each has `--help`.")
        })?;
        let command = &arguments.command;
        if !may_be_called(command) {
            return Err(Problem::usage(
                format!("`{}` cannot be called by a client", command.row().name),
                "Run it in a shell.",
            ));
        }
        arguments.global.home = Some(self.context.surroundings.home.clone());
        arguments.global.json = true;
        let own = &self.context.surroundings;
        let access = command.row().access();
        let surroundings = Surroundings {
            home_owner: own.home_owner,
            caller: self.client.clone(),
            ..Surroundings::read(&arguments.global, access)?
        };
        let context = Context {
            surroundings,
            out: Printer::new(&arguments.global, true, Stage::Lent),
            progress: Bars::for_client(Box::new(Silent)),
            yes: arguments.global.yes,
        };
        let result = dispatch(&context, command);
        let messages = context.out.take_messages();
        let Reply { data, exit, failure } = result?;
        Ok(json!({ "data": data, "exit_code": exit, "error": failure, "messages": messages }))
    }
}

/// Returns true for commands that neither own the terminal nor run programs whose output would mix with frames.
fn may_be_called(command: &Command) -> bool {
    match command {
        Command::Plan(plan) => !matches!(plan, PlanCommand::Run(_) | PlanCommand::Resume(_)),
        Command::Attempt(attempt) => !matches!(attempt, AttemptCommand::Exec(_)),
        _ => matches!(
            command,
            Command::Init(_)
                | Command::Create(_)
                | Command::List(_)
                | Command::Show(_)
                | Command::Diff(_)
                | Command::Status
                | Command::History(_)
                | Command::Summary(_)
                | Command::Rollback(_)
                | Command::Undo(_)
                | Command::Redo(_)
                | Command::Session(_)
                | Command::Agent(_)
                | Command::Workspace(_)
                | Command::Emergency(_)
                | Command::Metric(_)
                | Command::Delete(_)
                | Command::Pin(_)
                | Command::Unpin(_)
                | Command::Prune(_)
                | Command::Gc(_)
                | Command::Usage
                | Command::Validate(_)
                | Command::Recover(_)
                | Command::Export(_)
                | Command::Import(_)
                | Command::Version
        ),
    }
}

fn failed(id: &Value, problem: &Problem) -> Value {
    let failure = json::value(&problem.failure);
    let message = &problem.failure.message;
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": FAILED, "message": message, "data": failure } })
}
