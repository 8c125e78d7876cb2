//! `plan log`: what happened to a plan, and what its steps printed.

use super::Opened;
use crate::args::plan::LogArgs;
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{moment, printable};
use safepoint::model::Timestamp;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::plan::note::PlanNoteKind;
use safepoint::model::plan::run::{Run, RunOutcome};
use safepoint::{Error, PlanNote};
use serde_json::{Value, json};
use std::io::Write;

pub(crate) fn run(context: &Context, args: &LogArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan.plan)?;
    match &args.step {
        Some(step) => printed(context, &opened, step),
        None => history(context, &opened),
    }
}

/// Last output of a step: raw, except on a terminal.
fn printed(context: &Context, opened: &Opened, step: &str) -> Result<Reply, Problem> {
    opened.record.plan.find(step).map_err(Error::from)?;
    let printed = opened.manager.plans().printed_by(&opened.record.plan, step)?;
    let out = &context.out;
    match &printed {
        None => out.note(format!("Step {} printed nothing, or was not run by Safepoint.", printable(step))),
        Some(bytes) if out.terminal => {
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                out.quoted_line("", line);
            }
        }
        // A closed output is reported at the end.
        Some(bytes) if !out.is_json() => drop(out.bytes().write_all(bytes)),
        Some(_) => {}
    }
    Ok(Reply::done(json!({ "step": step, "printed": printed.as_deref().map(json::bytes) })))
}

/// Event, ordered by the plan's versions, not by the clock.
enum Entry {
    Note(PlanNote),
    Checkpoint(Box<Checkpoint>, u64),
    RunBegan(Run, u64),
    RunEnded(Run, u64),
}

impl Entry {
    fn at(&self) -> Timestamp {
        match self {
            Entry::Note(note) => note.at,
            Entry::Checkpoint(checkpoint, _) => checkpoint.created_at,
            Entry::RunBegan(run, _) => run.started_at,
            Entry::RunEnded(run, _) => run.ended_at.unwrap_or(run.started_at),
        }
    }

    fn version(&self) -> u64 {
        match self {
            Entry::Note(note) => note.version,
            Entry::Checkpoint(_, version) | Entry::RunBegan(_, version) | Entry::RunEnded(_, version) => {
                *version
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Entry::Note(note) => json::plan::note(note),
            Entry::Checkpoint(checkpoint, version) => json::plan::noted(checkpoint, *version),
            Entry::RunBegan(run, version) => json::plan::run_began(run, *version),
            Entry::RunEnded(run, version) => json::plan::run_ended(run, *version),
        }
    }

    fn told(&self) -> String {
        match self {
            Entry::Note(note) => told(note),
            Entry::Checkpoint(checkpoint, _) => {
                let label = checkpoint.label.as_deref().map(|label| format!(" \"{}\"", printable(label)));
                format!("checkpoint {}{}", checkpoint.id, label.unwrap_or_default())
            }
            Entry::RunBegan(run, _) => format!("run by process {}", run.pid),
            Entry::RunEnded(run, _) => match run.outcome {
                Some(RunOutcome::Killed) => "that run had died".to_owned(),
                Some(RunOutcome::Broken) => "the run could not go on".to_owned(),
                outcome => {
                    format!("the run ended: {}", outcome.map_or("its result is unknown", RunOutcome::as_str))
                }
            },
        }
    }
}

fn history(context: &Context, opened: &Opened) -> Result<Reply, Problem> {
    let (manager, out, id) = (&opened.manager, &context.out, opened.id());
    // Notes of a version come with it; a checkpoint of that version comes after it. The clock is not used.
    let mut entries: Vec<Entry> = manager.plans().notes(id)?.into_iter().map(Entry::Note).collect();
    for taken in manager.plans().checkpoints(id)?.into_iter().rev() {
        entries
            .push(Entry::Checkpoint(Box::new(manager.checkpoints().get(taken.checkpoint)?), taken.version));
    }
    entries.sort_by_key(|entry| (entry.version(), matches!(entry, Entry::Checkpoint(..))));
    manager.plans().runs(id)?.iter().for_each(|run| place(&mut entries, run));
    if entries.is_empty() {
        out.remark("Nothing went wrong yet, and no checkpoint was taken.");
    }
    for entry in &entries {
        out.line(format!("{}  {}", out.colours.dim(moment(entry.at())), entry.told()));
    }
    let log: Value = entries.iter().map(Entry::json).collect();
    Ok(Reply::done(json!({ "log": log })))
}

/// Puts the beginning and the end of a run where they belong by their time: a run has no version of its own.
fn place(entries: &mut Vec<Entry>, run: &Run) {
    let mut put = |at: Timestamp, entry: &dyn Fn(u64) -> Entry| {
        let place = entries.iter().rposition(|other| other.at() < at).map_or(0, |before| before + 1);
        let version = place.checked_sub(1).map_or(0, |before| entries[before].version());
        entries.insert(place, entry(version));
    };
    put(run.started_at, &|version| Entry::RunBegan(run.clone(), version));
    if let Some(ended) = run.ended_at {
        put(ended, &|version| Entry::RunEnded(run.clone(), version));
    }
}

/// A note in words.
fn told(note: &PlanNote) -> String {
    let text = |key: &str| printable(note.body[key].as_str().unwrap_or_default());
    let words = |key: &str| -> Vec<String> {
        let all = note.body[key].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().map(|it| printable(it.as_str().or(it["choice"].as_str()).unwrap_or_default())).collect()
    };
    match note.kind {
        PlanNoteKind::Error => format!("step {} failed: {}", text("step"), text("error")),
        PlanNoteKind::Attempt => {
            format!("attempt {} of step {} failed: {}", note.body["attempt"], text("step"), text("error"))
        }
        PlanNoteKind::Undone => match text("error").as_str() {
            "" => format!("undo command of step {} was run: {}", text("step"), text("command")),
            error => format!("undo command of step {} failed: {error}", text("step")),
        },
        PlanNoteKind::Applied => format!("applied: the result is checkpoint {}", text("result")),
        PlanNoteKind::Superseded => format!("decisions superseded: {}", words("decisions").join(", ")),
        PlanNoteKind::Invalidated => format!("subplans invalidated: {}", words("subplans").join(", ")),
        PlanNoteKind::RolledBack => match words("steps").join(", ").as_str() {
            "" => format!("rollback {}", text("rollback")),
            steps => format!("rollback {}, steps undone: {steps}", text("rollback")),
        },
        PlanNoteKind::FilesRolledBack => {
            format!("its files were rolled back to checkpoint {} without it", text("checkpoint"))
        }
        PlanNoteKind::FilesRolledBackByStep => {
            format!("a step rolled the files back to checkpoint {}", text("checkpoint"))
        }
        PlanNoteKind::FilesReturned => {
            "its files are again as before they were rolled back without it".to_owned()
        }
        PlanNoteKind::Correction => match (text("mode").as_str(), text("step")) {
            ("retry", step) => format!("corrected: step {step} gets another command: {}", text("run")),
            ("skip", step) => format!("corrected: step {step} is skipped: {}", text("reason")),
            ("edit", step) => format!("corrected: step {step} is changed"),
            (_, step) if step.is_empty() => {
                format!("corrected by going back to checkpoint {}", text("checkpoint"))
            }
            (_, step) => format!("corrected by one more step: {step}"),
        },
        PlanNoteKind::CorrectionRefused => format!("correction refused: {}", text("error")),
    }
}
