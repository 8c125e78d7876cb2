//! `run`: a checkpoint, then a program with the user's terminal; where it fails and that was asked for, the way back.
//!
//! With `--watch`, checkpoints follow the program's changes while it runs. Nothing is printed then: the terminal is the program's.
//!
//! Standard output is the program's alone. Its exit status is ours, in the form that shells give it.

#![allow(clippy::disallowed_methods, reason = "this command starts the program that the user names")]

mod watch;

use crate::args::RunArgs;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{printable, shortened};
use crate::signals::{Deferred, with_limit_as_given};
use crate::{commands::Context, commands::create, commands::recover, commands::rollback, render::exit};
use rustix::fd::AsFd;
use safepoint::model::checkpoint::{Checkpoint, Kind, Reason};
use safepoint::{CheckpointManager, CreateOptions, IfUnchanged, Progress, Workspace};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Labels that are made from a command are cut here.
const LABEL_LETTERS_MAX: usize = 60;

pub(crate) fn run(context: &Context, args: &RunArgs) -> Result<Reply, Problem> {
    if !context.surroundings.directory.is_dir() {
        return Err(Problem::usage(
            format!("there is no directory {}", context.surroundings.directory.display()),
            "Go to a folder that exists, or name one with -C.",
        ));
    }
    let manager = context.surroundings.open(None)?;
    let before = |problem: Problem| {
        problem
            .while_trying_to("take the checkpoint")
            .hint("The command was not run: it would not have been covered.")
    };
    let workspace = create::workspace(context, &manager).map_err(before)?;
    let checkpoint = cover(context, &manager, &workspace, args).map_err(before)?;
    if context.progress.interrupted() {
        return Err(Problem::interrupted("The checkpoint was taken; the command was not run."));
    }
    let session = checkpoint.session_id.as_deref().filter(|_| args.watch);
    let mut taken = Vec::new();
    let ran = match args.watch {
        false => start(context, &args.command, session, Child::wait),
        true => {
            let during = watch::Watching { manager: &manager, workspace: &workspace, args, session };
            let ran = start(context, &args.command, session, |child| during.wait(child, &mut taken));
            // A program that failed to start changed nothing.
            if ran.is_ok() {
                during.finish(context, &mut taken);
            }
            ran
        }
    };
    let ended = match ran {
        Ok(ended) => ended,
        Err(error) => return Ok(not_started(context, &checkpoint, args, &error)),
    };
    let rolled_back = match (ended.status == 0, args.rollback_on_fail) {
        (true, _) => Value::Null,
        (false, true) => go_back(context, &manager, &workspace, &checkpoint, &ended)?,
        (false, false) => {
            let id = checkpoint.id;
            context
                .out
                .note(format!("{}. Go back to before it with: safepoint rollback {id}", ended.sentence()));
            Value::Null
        }
    };
    let mut data = answer(&checkpoint, args, Some(&ended), &rolled_back);
    data["watched"] = json!(taken);
    Ok(Reply { data, exit: ended.status, failure: None })
}

/// The checkpoint before the command.
fn cover(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    args: &RunArgs,
) -> Result<Checkpoint, Problem> {
    let label = args.label.clone().filter(|label| !label.is_empty());
    let options = CreateOptions {
        label: Some(label.unwrap_or_else(|| format!("before {}", as_typed(&args.command)))),
        kind: Kind::Automatic,
        reason: Reason::PreRiskyOperation,
        session_id: match context.surroundings.session(None)? {
            None if args.watch => Some(context.surroundings.new_session()),
            session => session,
        },
        unchanged: if args.watch { IfUnchanged::Reused } else { IfUnchanged::Added },
        ..CreateOptions::default()
    };
    let created = manager
        .create(workspace, &options, &context.progress)
        .map_err(|error| context.failed(manager, workspace, error.into()))?;
    recover::tell(&context.out, &created.recovered);
    let label = printable(created.checkpoint.label.as_deref().unwrap_or_default());
    context.out.note(format!("Checkpoint {} \"{label}\"", created.checkpoint.id));
    create::tell_upkeep(&context.out, &created);
    Ok(created.checkpoint)
}

/// The command as one line, cut where it is long.
fn as_typed(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    shortened(&words.join(" "), LABEL_LETTERS_MAX)
}

/// Exit of the command.
pub(super) struct Ended {
    /// As shells say it: 128 and the signal's number for one that was killed.
    pub(super) status: u8,
    signal: Option<i32>,
    /// True if it was asked to stop while it ran.
    pub(super) is_stopped: bool,
}

impl Ended {
    pub(super) fn new(status: ExitStatus) -> Self {
        let signal = status.signal();
        let number = status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1);
        Self { status: u8::try_from(number).unwrap_or(u8::MAX), signal, is_stopped: false }
    }

    fn sentence(&self) -> String {
        match self.signal {
            Some(signal) => format!("The command was killed by signal {signal}"),
            None => format!("The command failed with status {}", self.status),
        }
    }
}

/// Runs the command until `wait` returns its status, with our terminal and in our process group.
fn start(
    context: &Context,
    words: &[OsString],
    session: Option<&str>,
    wait: impl FnOnce(&mut Child) -> io::Result<ExitStatus>,
) -> io::Result<Ended> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&context.surroundings.directory);
    if let Some(session) = session {
        command.env("SAFEPOINT_SESSION_ID", session);
    }
    wait_for(context, command, wait)
}

/// Runs a prepared command until `wait` returns its status, with our terminal and in our process group.
pub(super) fn wait_for(
    context: &Context,
    mut command: Command,
    wait: impl FnOnce(&mut Child) -> io::Result<ExitStatus>,
) -> io::Result<Ended> {
    if context.out.is_json() {
        command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
    }
    let mut deferred = Deferred::begin()?;
    let mut child = with_limit_as_given(|| command.spawn())?;
    // Without a handle signals are not handed on; the child runs all the same, and so we wait for it.
    let _ = deferred.to(&child);
    let status = context.out.waiting(|| wait(&mut child));
    drop(deferred);
    let is_stopped = context.progress.was_asked_to_stop();
    context.progress.forget_stop();
    Ok(Ended { is_stopped, ..Ended::new(status?) })
}

/// Starts a program with one argument, and lets it go on without a terminal.
pub(super) fn start_detached(program: &Path, argument: &Path) -> io::Result<()> {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0);
    let mut child = with_limit_as_given(|| command.spawn())?;
    // It is waited for, so that no process without a parent is left.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Nothing was run, so there is nothing to go back from.
fn not_started(context: &Context, checkpoint: &Checkpoint, args: &RunArgs, error: &io::Error) -> Reply {
    let problem = Problem::command(args.command.first().map_or(OsStr::new(""), OsString::as_os_str), error);
    context.out.tell("run the command", &problem);
    let data = answer(checkpoint, args, None, &Value::Null);
    Reply { data, exit: exit::of(&problem.failure), failure: Some(problem.failure) }
}

fn go_back(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    checkpoint: &Checkpoint,
    ended: &Ended,
) -> Result<Value, Problem> {
    // A second signal is about the command, too, and not about what restores the files.
    context.progress.ignore_stop();
    context.out.note(format!("{}.", ended.sentence()));
    rollback::back_to(context, manager, workspace, checkpoint).map_err(|problem| {
        let again = format!("{}. Try again with: safepoint rollback {}", ended.sentence(), checkpoint.id);
        problem.silent_about_change().while_trying_to("roll back after the command").hint(again)
    })
}

fn answer(checkpoint: &Checkpoint, args: &RunArgs, ended: Option<&Ended>, rolled_back: &Value) -> Value {
    let command: Vec<Value> = args.command.iter().map(|word| json::bytes(word.as_bytes())).collect();
    json!({
        "checkpoint": json::checkpoint(checkpoint),
        "command": command,
        "exit_status": ended.map(|ended| ended.status),
        "signal": ended.and_then(|ended| ended.signal),
        "rollback": rolled_back,
        "watched": [],
    })
}
