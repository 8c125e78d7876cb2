//! `try`, `attempt` and `metric`: work in rooms of its own, compared, kept or dropped.

mod run;
mod show;
mod trying;

pub(crate) use run::{ENTER, enter, helper};
pub(crate) use show::processes;
pub(crate) use trying::attempt_to as try_command;

use crate::args::attempt::{AttemptCommand, DropArgs, ExecArgs, KeepArgs, MetricArgs, OthersArg, StartArgs};
use crate::commands::Context;
use crate::commands::rollback::{shape, tell};
use crate::commands::{create, recover};
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::{counted, printable};
use safepoint::model::RelPath;
use safepoint::model::attempt::{Attempt, AttemptKind, AttemptState};
use safepoint::{
    AttemptKept, AttemptStarted, CheckpointManager, DryRun, KeepAttempt, Others, RoomProcess, Sharing,
    StartAttempt, Workspace,
};
use serde_json::{Value, json};
use std::path::Path;

pub(crate) fn run(context: &Context, command: &AttemptCommand) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    match command {
        AttemptCommand::Start(args) => start(context, &manager, args),
        AttemptCommand::Exec(args) => exec(context, &manager, args),
        AttemptCommand::List(args) => show::list(context, &manager, args),
        AttemptCommand::Show(args) => show::show(context, &manager, args),
        AttemptCommand::Diff(args) => show::diff(context, &manager, args),
        AttemptCommand::Compare(args) => show::compare(context, &manager, args),
        AttemptCommand::Keep(args) => {
            let project = context.surroundings.workspace(&manager)?;
            let attempt = manager.attempts().find(&project, &args.name)?;
            keep(context, &manager, &project, (&attempt, args))
        }
        AttemptCommand::Drop(args) => drop_named(context, &manager, args),
    }
}

fn start(context: &Context, manager: &CheckpointManager, args: &StartArgs) -> Result<Reply, Problem> {
    let project = create::workspace(context, manager)?;
    let sharing = if args.copy { Sharing::Copy } else { Sharing::Best };
    let options = StartAttempt { name: args.name.clone(), sharing };
    let started = begin(context, manager, &project, &options)?;
    let name = &started.attempt.name;
    context.out.line(format!("Started attempt {}.", context.out.colours.bold(printable(name))));
    context.out.remark(format!("Work in it: safepoint attempt exec {name} -- bash"));
    let shown = manager.attempts().show(&project, &started.attempt)?;
    Ok(Reply::done(json!({ "attempt": show::shape(&shown), "refused": started.refused })))
}

/// Starts an attempt and reports a copy.
fn begin(
    context: &Context,
    manager: &CheckpointManager,
    project: &Workspace,
    options: &StartAttempt,
) -> Result<AttemptStarted, Problem> {
    let started = manager
        .attempts()
        .start(project, options, &context.progress)
        .map_err(|error| context.failed(manager, project, error.into()))?;
    recover::tell(&context.out, &started.recovered);
    if started.attempt.kind != AttemptKind::Overlay {
        let why = started.refused.last().map(|why| format!(": {}", printable(why))).unwrap_or_default();
        context.out.warn_as(
            "attempt_is_a_copy",
            format!(
                "the attempt is a copy at another path, {}{why}",
                printable(&started.attempt.room.join("tree").to_string_lossy())
            ),
        );
    }
    Ok(started)
}

fn exec(context: &Context, manager: &CheckpointManager, args: &ExecArgs) -> Result<Reply, Problem> {
    let project = context.surroundings.workspace(manager)?;
    let attempt = manager.attempts().find(&project, &args.name)?;
    let ran = run::alone(context, manager, (&project, &attempt), (&args.command, &args.room))?;
    let finished = run::finish(context, manager, (&project, &attempt), &ran.record)?;
    run::tell_processes(&context.out, &finished.processes, &attempt.name);
    let shown = manager.attempts().show(&project, &finished.attempt)?;
    Ok(Reply { data: json!({ "attempt": show::shape(&shown) }), exit: ran.status, failure: None })
}

/// Takes an attempt over, or shows what that would do.
fn keep(
    context: &Context,
    manager: &CheckpointManager,
    project: &Workspace,
    (attempt, args): (&Attempt, &KeepArgs),
) -> Result<Reply, Problem> {
    let dry_run = if args.dry_run { DryRun::Yes } else { DryRun::No };
    let others = match args.others {
        OthersArg::Drop => Others::Dropped,
        OthersArg::Open => Others::Open,
    };
    let options = KeepAttempt { others, dry_run, expect: None };
    let kept = manager
        .attempts()
        .keep(project, attempt, &options, &context.progress)
        .map_err(|error| context.failed(manager, project, error.into()))?;
    tell_kept(context, manager, &kept, dry_run);
    Ok(Reply::rolled_back(kept_shape(manager, project, &kept, dry_run)?))
}

/// Shape of a kept attempt for programs.
pub(crate) fn kept_shape(
    manager: &CheckpointManager,
    project: &Workspace,
    kept: &AttemptKept,
    dry_run: DryRun,
) -> Result<Value, Problem> {
    let shown = manager.attempts().show(project, &kept.attempt)?;
    let rollback = kept.restored.as_ref().map(|restored| shape(manager, restored, dry_run));
    Ok(json!({
        "attempt": show::shape(&shown),
        "rollback": rollback,
        "merged": kept.merged,
        "changed_in_project": kept.changed_in_project,
        "dropped": kept.dropped,
        "ended": show::processes(&kept.ended),
    }))
}

fn tell_kept(context: &Context, manager: &CheckpointManager, kept: &AttemptKept, dry_run: DryRun) {
    let out = &context.out;
    match &kept.restored {
        Some(restored) => tell(context, manager, restored, dry_run),
        None => out.line("The attempt changed nothing."),
    }
    let listed = |paths: &[RelPath]| -> String {
        let mut names: Vec<String> = paths.iter().take(5).map(ToString::to_string).collect();
        if paths.len() > 5 {
            names.push(format!("and {} more", paths.len() - 5));
        }
        names.join(", ")
    };
    if !kept.merged.is_empty() {
        out.remark(format!("Merged with changes of the project: {}", listed(&kept.merged)));
    }
    if !kept.changed_in_project.is_empty() {
        out.remark(format!(
            "Changed in the project since the start, and left: {}",
            listed(&kept.changed_in_project)
        ));
    }
    tell_ended(context, &kept.ended);
    if dry_run == DryRun::No {
        let name = printable(&kept.attempt.name);
        let dropped = match kept.dropped.len() {
            0 => String::new(),
            count => format!(" Dropped {}.", counted(count as u64, "other", "others")),
        };
        out.remark(format!("Kept attempt {name}.{dropped}"));
    }
    for (room, why) in &kept.left {
        tell_left(context, room, why);
    }
}

fn tell_ended(context: &Context, ended: &[RoomProcess]) {
    if !ended.is_empty() {
        let names: Vec<String> =
            ended.iter().map(|process| format!("{} ({})", printable(&process.name), process.pid)).collect();
        context.out.note(format!("Ended {}.", names.join(", ")));
    }
}

fn drop_named(context: &Context, manager: &CheckpointManager, args: &DropArgs) -> Result<Reply, Problem> {
    let project = context.surroundings.workspace(manager)?;
    let attempts: Vec<Attempt> = args
        .names
        .iter()
        .map(|name| Ok(manager.attempts().find(&project, name)?))
        .collect::<Result<_, Problem>>()?;
    let mut shapes = Vec::new();
    for attempt in &attempts {
        let attempt = match args.delete_commits && attempt.state != AttemptState::Open {
            true => attempt.clone(),
            false => drop_one(context, manager, &project, (attempt, args.delete_commits))?,
        };
        if args.delete_commits {
            delete_room(context, manager, &attempt)?;
        }
        shapes.push(show::shape(&manager.attempts().show(&project, &attempt)?));
    }
    Ok(Reply::done(json!({ "attempts": shapes })))
}

fn drop_one(
    context: &Context,
    manager: &CheckpointManager,
    project: &Workspace,
    (attempt, deletes_commits): (&Attempt, bool),
) -> Result<Attempt, Problem> {
    let (attempt, ended, left) = manager
        .attempts()
        .drop(project, attempt, &context.progress)
        .map_err(|error| context.failed(manager, project, error.into()))?;
    tell_ended(context, &ended);
    let result = attempt.result.map(|id| format!("; its last state is checkpoint {id}")).unwrap_or_default();
    context.out.line(format!("Dropped attempt {}{result}.", printable(&attempt.name)));
    if let Some(why) = left.filter(|_| !deletes_commits) {
        tell_left(context, &attempt.room, &why);
    }
    Ok(attempt)
}

/// Deletes the room of a closed attempt with the commits that only it has.
fn delete_room(context: &Context, manager: &CheckpointManager, attempt: &Attempt) -> Result<(), Problem> {
    match manager.attempts().delete_room(attempt)? {
        None => context.out.remark(format!("Deleted {}.", printable(&attempt.room.to_string_lossy()))),
        Some(why) => tell_left(context, &attempt.room, &why),
    }
    Ok(())
}

fn tell_left(context: &Context, room: &Path, why: &str) {
    context.out.warn(format!("cannot delete {} yet: {}", printable(&room.to_string_lossy()), printable(why)));
}

/// Notes metrics for the next checkpoint of where the command runs.
pub(crate) fn metric(context: &Context, args: &MetricArgs) -> Result<Reply, Problem> {
    let mut metrics = Vec::new();
    for typed in &args.metrics {
        let parsed =
            typed.split_once('=').and_then(|(name, number)| Some((name, number.parse::<f64>().ok()?)));
        let Some((name, number)) = parsed else {
            return Err(Problem::usage(
                format!("{typed:?} is no metric"),
                "Write a name and a number, such as accuracy=0.93",
            ));
        };
        metrics.push((name.to_owned(), number));
    }
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    manager.attempts().note_metrics(workspace.id, &metrics)?;
    let attempt = manager.attempts().around()?.map(|inside| inside.attempt.name);
    let noted: serde_json::Map<String, Value> =
        metrics.into_iter().map(|(name, number)| (name, json!(number))).collect();
    Ok(Reply::done(json!({ "metrics": noted, "attempt": attempt })))
}
