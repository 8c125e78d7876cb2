//! `try`: attempts that are started, run, checked and compared; then kept, dropped, or left for later.

use super::run::{Ran, StopOthers, alone, beside, finish, prepared, print_lines, tell_processes, verify};
use super::{begin, drop_one, keep, show};
use crate::args::attempt::{KeepArgs, OthersArg, TryArgs};
use crate::commands::{Context, create};
use crate::problem::Problem;
use crate::render::consent::{can_ask, line};
use crate::render::exit::code;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use safepoint::model::attempt::Attempt;
use safepoint::{AttemptShown, CheckpointManager, FailureKind, Sharing, StartAttempt, Workspace};
use serde_json::{Value, json};
use std::sync::mpsc::channel;

/// Decision about the attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Choice {
    Keep(String),
    Discard,
    Later,
}

pub(crate) fn attempt_to(context: &Context, args: &TryArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let project = create::workspace(context, &manager)?;
    let attempts = start_all(context, &manager, &project, args)?;
    let (status, is_stopped) = match attempts.as_slice() {
        [one] => {
            let ran = run_one(context, &manager, &project, (one, args))?;
            (Some(ran.status), ran.is_stopped)
        }
        several => {
            run_several(context, &manager, &project, (several, args))?;
            (None, false)
        }
    };
    let ids: Vec<_> = attempts.iter().map(|attempt| attempt.id).collect();
    let mut shown = manager.attempts().list(&project)?;
    shown.retain(|shown| ids.contains(&shown.attempt.id));
    let best = best_of(&shown, args);
    show::table(context, &manager, &shown, best.as_deref().filter(|_| shown.len() > 1));
    // The command may have handled a Ctrl-C itself; a person who is asked then decides.
    let mut is_stopped = context.progress.was_asked_to_stop() || is_stopped && (args.keep || args.discard);
    let choice = match is_stopped {
        true => Choice::Later,
        false => match choose(context, &manager, &shown, (args, best.as_deref())) {
            Err(_) if context.progress.was_asked_to_stop() => {
                is_stopped = true;
                Choice::Later
            }
            choice => choice?,
        },
    };
    let mut kept = Value::Null;
    let mut rollback = Value::Null;
    match &choice {
        Choice::Keep(name) => {
            rollback = keep_one_of(context, &manager, &project, (&shown, name))?;
            kept = json!(name);
        }
        Choice::Discard => {
            for one in &shown {
                drop_one(context, &manager, &project, (&one.attempt, false))?;
            }
        }
        Choice::Later => {
            if is_stopped {
                context.out.warn_as("interrupted", "interrupted: no attempt was kept or dropped");
            }
            tell_later(context, &shown, best.as_deref());
        }
    }
    let mut after = manager.attempts().list(&project)?;
    after.retain(|shown| ids.contains(&shown.attempt.id));
    let some_passed = after.iter().any(|shown| shown.passes());
    let failed_check = after.len() == 1 && after[0].attempt.run.verified == Some(false);
    let exit = match status {
        Some(status) if status != 0 => status,
        _ if is_stopped => code(FailureKind::Interrupted),
        Some(_) => u8::from(failed_check),
        None => u8::from(!some_passed),
    };
    let shapes: Vec<Value> = after.iter().map(show::shape).collect();
    let data = json!({ "attempts": shapes, "kept": kept, "best": best, "rollback": rollback });
    Ok(Reply { data, exit, failure: None })
}

fn start_all(
    context: &Context,
    manager: &CheckpointManager,
    project: &Workspace,
    args: &TryArgs,
) -> Result<Vec<Attempt>, Problem> {
    let sharing = if args.copy { Sharing::Copy } else { Sharing::Best };
    let mut attempts = Vec::new();
    for number in 1..=args.attempts {
        let name = args.name.as_ref().map(|name| match args.attempts {
            1 => name.clone(),
            _ => format!("{name}-{number}"),
        });
        match begin(context, manager, project, &StartAttempt { name, sharing }) {
            Ok(started) => attempts.push(started.attempt),
            Err(problem) => return Err(drop_unused(context, manager, project, &attempts, problem)),
        }
    }
    // The options may be refused: a copy has no read-only file system around it.
    for attempt in &attempts {
        if let Err(problem) = prepared(context, manager, (project, attempt), (&args.command, &args.room)) {
            return Err(drop_unused(context, manager, project, &attempts, problem));
        }
    }
    Ok(attempts)
}

/// Drops attempts in which nothing ran, and names them in the failure.
fn drop_unused(
    context: &Context,
    manager: &CheckpointManager,
    project: &Workspace,
    attempts: &[Attempt],
    problem: Problem,
) -> Problem {
    // An interrupt stopped the start, and not what cleans up after it.
    context.progress.ignore_stop();
    let dropped = |attempt: &&Attempt| manager.attempts().drop(project, attempt, &context.progress).is_ok();
    let (dropped, left): (Vec<&Attempt>, Vec<&Attempt>) = attempts.iter().partition(dropped);
    let names = |attempts: &[&Attempt]| {
        attempts.iter().map(|attempt| attempt.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let problem = match dropped.as_slice() {
        [] => problem,
        some => problem.hint(format!("Nothing ran. Dropped again: {}", names(some))),
    };
    match left.as_slice() {
        [] => problem,
        some => problem.hint(format!("Still open; drop them: safepoint attempt drop {}", names(some))),
    }
}

/// Takes one attempt over into the project, then drops the others of this command. Attempts of other commands go on. Returns the shape
/// of the rollback.
fn keep_one_of(
    context: &Context,
    manager: &CheckpointManager,
    project: &Workspace,
    (shown, name): (&[AttemptShown], &str),
) -> Result<Value, Problem> {
    let attempt = manager.attempts().find(project, name)?;
    let keep_args = KeepArgs { name: name.to_owned(), others: OthersArg::Open, dry_run: false };
    let reply = keep(context, manager, project, (&attempt, &keep_args))?;
    for other in shown.iter().filter(|other| other.attempt.id != attempt.id) {
        // The keep is done, whatever becomes of the others.
        if let Err(problem) = drop_one(context, manager, project, (&other.attempt, false)) {
            let name = &other.attempt.name;
            context.out.warn(format!("cannot drop attempt {name}: {}", problem.failure.message));
            context.out.remark(format!("Drop it: safepoint attempt drop {name}"));
        }
    }
    Ok(reply.data["rollback"].clone())
}

/// Runs one attempt with the user's terminal.
fn run_one(
    context: &Context,
    manager: &CheckpointManager,
    project: &Workspace,
    (attempt, args): (&Attempt, &TryArgs),
) -> Result<Ran, Problem> {
    let mut ran = match alone(context, manager, (project, attempt), (&args.command, &args.room)) {
        Ok(ran) => ran,
        Err(problem) => {
            // Nothing ran in it, so nothing is lost.
            let _ = manager.attempts().drop(project, attempt, &context.progress);
            return Err(problem);
        }
    };
    if let Some(line) = args.verify.as_ref().filter(|_| ran.status == 0) {
        let (say, said) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || print_lines(&context.out, &said));
            let stop = StopOthers::default();
            let result = verify(
                context,
                manager,
                (project, attempt),
                (line, &args.room),
                (&say, &stop),
                &mut ran.record,
            );
            drop(say);
            result
        })?;
    }
    let finished = finish(context, manager, (project, attempt), &ran.record)?;
    tell_processes(&context.out, &finished.processes, &attempt.name);
    Ok(ran)
}

/// Runs several attempts side by side. Each is captured at its end, also after a request to stop.
fn run_several(
    context: &Context,
    manager: &CheckpointManager,
    project: &Workspace,
    (attempts, args): (&[Attempt], &TryArgs),
) -> Result<(), Problem> {
    let (say, said) = channel();
    let stop = StopOthers::default();
    let ran: Vec<Result<_, Problem>> = std::thread::scope(|scope| {
        scope.spawn(move || print_lines(&context.out, &said));
        let running: Vec<_> = attempts
            .iter()
            .map(|attempt| {
                let (say, stop) = (say.clone(), &stop);
                scope.spawn(move || {
                    let place = (project, attempt);
                    let (mut ran, _) =
                        beside(context, manager, place, (&args.command, &args.room), (&say, stop))?;
                    if let Some(line) = args.verify.as_ref().filter(|_| ran.status == 0) {
                        let check = (line.as_str(), &args.room);
                        verify(context, manager, place, check, (&say, stop), &mut ran.record)?;
                    }
                    if args.until_pass && ran.status == 0 && ran.record.verified != Some(false) {
                        stop.ask();
                    }
                    Ok(ran.record)
                })
            })
            .collect();
        let lost = || Err(Problem::internal("a thread of an attempt failed".to_owned()));
        let ran = running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect();
        drop(say);
        ran
    });
    let mut first = None;
    for (attempt, ran) in attempts.iter().zip(ran) {
        let captured = ran.and_then(|record| finish(context, manager, (project, attempt), &record));
        match captured {
            Ok(finished) => tell_processes(&context.out, &finished.processes, &attempt.name),
            Err(problem) => {
                context.out.warn(format!("{}: {}", printable(&attempt.name), problem.failure.message));
                first.get_or_insert(problem);
            }
        }
    }
    let captured = manager.attempts().list(project)?;
    let some_ran = captured.iter().any(|shown| {
        attempts.iter().any(|attempt| attempt.id == shown.attempt.id) && shown.attempt.result.is_some()
    });
    match first {
        Some(problem) if !some_ran => {
            let names: Vec<&str> = attempts.iter().map(|attempt| attempt.name.as_str()).collect();
            let hint =
                format!("The attempts stay open; drop them: safepoint attempt drop {}", names.join(" "));
            Err(problem.hint(hint))
        }
        _ => Ok(()),
    }
}

/// Returns the attempt to keep: that with the best value of the metric, or the one that passes with the fewest failed tests.
fn best_of(shown: &[AttemptShown], args: &TryArgs) -> Option<String> {
    if let Some(metric) = &args.best {
        return show::best(shown, metric, args.lowest).map(|best| best.attempt.name.clone());
    }
    let passing = shown.iter().filter(|shown| shown.passes());
    let rank = |shown: &&AttemptShown| {
        let tests = shown.attempt.run.tests.unwrap_or_default();
        (tests.failed, u64::MAX - tests.passed, shown.attempt.number)
    };
    passing.min_by_key(rank).map(|best| best.attempt.name.clone())
}

fn choose(
    context: &Context,
    manager: &CheckpointManager,
    shown: &[AttemptShown],
    (args, best): (&TryArgs, Option<&str>),
) -> Result<Choice, Problem> {
    if args.discard {
        return Ok(Choice::Discard);
    }
    if args.keep {
        return Ok(best.map_or(Choice::Later, |best| Choice::Keep(best.to_owned())));
    }
    if args.later || !can_ask(context) {
        return Ok(Choice::Later);
    }
    loop {
        let several = "Name to keep, (d)iscard all, la(t)er";
        let question = if shown.len() == 1 { "(k)eep, (d)iscard, (l)ook, la(t)er?" } else { several };
        match (line(context, question)?.as_str(), shown) {
            ("k" | "keep", [one]) => return Ok(Choice::Keep(one.attempt.name.clone())),
            ("l" | "look", [one]) => {
                if let Some(result) = &one.result {
                    let base = manager.checkpoints().get(one.attempt.base)?;
                    show::changes(context, manager, (&one.attempt, &base, result), (false, false))?;
                }
            }
            ("d" | "discard", _) => return Ok(Choice::Discard),
            ("t" | "later" | "", _) => return Ok(Choice::Later),
            (name, _) if shown.iter().any(|shown| shown.attempt.name == name) => {
                return Ok(Choice::Keep(name.to_owned()));
            }
            _ => {}
        }
    }
}

fn tell_later(context: &Context, shown: &[AttemptShown], best: Option<&str>) {
    if let [one] = shown {
        let name = &one.attempt.name;
        context.out.remark(format!("See it: safepoint attempt diff {name}"));
        context.out.remark(format!("Keep it: safepoint attempt keep {name}"));
        context.out.remark(format!("Close it: safepoint attempt drop {name}"));
    } else {
        context.out.remark("Compare them: safepoint attempt compare");
        if let Some(name) = best.or(shown.first().map(|first| first.attempt.name.as_str())) {
            context.out.remark(format!("Keep one: safepoint attempt keep {name}"));
        }
    }
}
