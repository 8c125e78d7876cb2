//! EFFECTS: what steps did outside of the files, and the commands that take it back before a rollback.
//!
//! The commands run newest first, before anything else changes, and after it is known that the rollback could be carried out. Each is on
//! record, so that none which worked is run twice when the rollback is tried again.

use crate::home::PlanLock;
use crate::parts::plan::guard;
use crate::process::{self, Exit, Job, Log, Stop};
use crate::rollback::{DryRun, Request, RollbackOptions};
use crate::upkeep::cap_hit;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::PlanRecord;
use safepoint_model::checkpoint::PartKind;
use safepoint_model::plan::document;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::state::{Plan, Step};
use safepoint_model::{ObjectId, ObjectKind, ObjectSink, Progress};
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant};

/// Handling of undo commands, and of a rollback when one of them fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailedUndo {
    /// It stops, and nothing else changes.
    #[default]
    Stops,
    /// It goes on, and what was not undone is reported.
    IsSkipped,
    /// No undo command is run at all, and what was not undone is reported.
    NoneRuns,
}

/// A command that took a step's effects back, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// Of which plan.
    pub plan: String,
    /// The step.
    pub step: String,
    /// The command.
    pub command: String,
    /// True if it was run now; false if it had succeeded before, or in a preview.
    pub ran: bool,
}

/// Effects of a step that were not taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotUndone {
    /// Of which plan.
    pub plan: String,
    /// The step.
    pub step: String,
    /// Reason.
    pub why: NotUndoneReason,
}

/// The reason why the effects of a step were not undone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotUndoneReason {
    /// The step has no undo command.
    NoCommand,
    /// The caller asked that no undo command be run.
    NotRun,
    /// The undo command failed.
    Failed {
        /// Its exit and the last line that it printed.
        how: String,
    },
}

impl NotUndoneReason {
    /// Returns the stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoCommand => "no_undo_command",
            Self::NotRun => "undo_not_run",
            Self::Failed { .. } => "undo_failed",
        }
    }
}

/// A plan as it is, and as it was.
pub(crate) type NowAndThen = (PlanRecord, Plan);

/// Handled effects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Effects {
    pub(crate) undone: Vec<Undone>,
    pub(crate) not_undone: Vec<NotUndone>,
    pub(crate) warnings: Vec<Warning>,
}

impl CheckpointManager {
    /// The plans to restore from a checkpoint, in current and stored state. Locks keep them unchanged.
    pub(crate) fn hold_plans(
        &self,
        request: &Request<'_>,
        effects: &mut Effects,
    ) -> Result<(Vec<PlanLock>, Vec<NowAndThen>), Error> {
        let (mut locks, mut plans) = (Vec::new(), Vec::new());
        if !request.options.wants(PartKind::Plan) {
            return Ok((locks, plans));
        }
        for part in request.to.parts.iter().filter(|part| part.kind == PartKind::Plan) {
            let (lock, dead) = match request.options.dry_run {
                DryRun::Yes => (self.keep_still(&part.key)?, None),
                DryRun::No => self.hold_plan(&part.key)?,
            };
            locks.push(lock);
            if let Some(dead) = dead.filter(|dead| dead.ended_processes > 0) {
                let count = dead.ended_processes as u64;
                effects.warnings.push(Warning::LeftoversEnded { count });
            }
            let record = self.plans().get(&part.key)?;
            guard(&record)?;
            let _using = self.store.using()?;
            plans.push((record, document::load(&self.store, part.document)?));
        }
        Ok((locks, plans))
    }

    /// True if a command must run to undo effects of a step outside of the files.
    pub(crate) fn has_commands_to_run(
        &self,
        plans: &[NowAndThen],
        request: &Request<'_>,
    ) -> Result<bool, Error> {
        if request.options.dry_run == DryRun::Yes || request.options.failed_undo == FailedUndo::NoneRuns {
            return Ok(false);
        }
        for (record, step) in newest_first(plans) {
            if step.spec.undo.is_some() && !self.is_undone(&record.plan.id, step)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn take_back_effects(
        &self,
        plans: &[NowAndThen],
        options: &RollbackOptions,
        progress: &dyn Progress,
        effects: &mut Effects,
    ) -> Result<(), Error> {
        for (record, step) in newest_first(plans) {
            let (plan, path) = (&record.plan.id, &step.path);
            let left = |why| NotUndone { plan: plan.clone(), step: path.clone(), why };
            let Some(command) = &step.spec.undo else {
                effects.not_undone.push(left(NotUndoneReason::NoCommand));
                continue;
            };
            if options.failed_undo == FailedUndo::NoneRuns {
                effects.not_undone.push(left(NotUndoneReason::NotRun));
                continue;
            }
            let mut undone =
                Undone { plan: plan.clone(), step: path.clone(), command: command.clone(), ran: false };
            if options.dry_run == DryRun::No && !self.is_undone(plan, step)? {
                undone.ran = true;
                if let Err(how) = self.run_undo(record, step, command, progress)? {
                    match options.failed_undo {
                        FailedUndo::Stops => {
                            return Err(Error::UndoFailed { step: path.clone(), why: how });
                        }
                        FailedUndo::IsSkipped | FailedUndo::NoneRuns => {
                            effects.not_undone.push(left(NotUndoneReason::Failed { how }));
                            continue;
                        }
                    }
                }
            }
            effects.undone.push(undone);
        }
        Ok(())
    }

    /// True if the last effects of a step were undone already.
    fn is_undone(&self, plan: &str, step: &Step) -> Result<bool, Error> {
        let begun = json!(step.started_at);
        let notes = self.catalog.plan_notes(plan)?;
        Ok(notes.iter().any(|note| {
            note.kind == PlanNoteKind::Undone
                && note.body["step"] == json!(step.path)
                && note.body["started_at"] == begun
                && note.body["error"].is_null()
        }))
    }

    /// Runs an undo command and puts it on record. The inner error is how it failed.
    fn run_undo(
        &self,
        record: &PlanRecord,
        step: &Step,
        command: &str,
        progress: &dyn Progress,
    ) -> Result<Result<(), String>, Error> {
        let place = self.plans().workspace(record)?;
        let seat = self.seat_in(&place)?;
        let variables = self.variables_for(record, &step.path, &seat, None)?;
        let timeout = step.spec.timeout.map(|span| Duration::from_micros(span.micros()));
        let job = Job {
            line: command,
            directory: &seat.directory,
            variables: &variables,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            open_files: self.settings.open_files,
            through: &seat.through,
        };
        let mut log = Log::default();
        let stop = || if progress.interrupted() { Stop::Soon } else { Stop::No };
        let ended = process::run(&job, &stop, &mut |bytes: &[u8]| log.push(bytes));
        let outcome = match ended {
            Ok(exit) if exit.is_good() => Ok(()),
            Ok(exit) => {
                let in_words = || in_words(exit, step.spec.timeout.map(|span| span.to_string()), &log);
                Err(seat.refused().unwrap_or_else(in_words))
            }
            Err(error) => Err(format!("it cannot be started: {error}")),
        };
        let _using = self.store.using()?;
        let kept = self.keep_log(log)?;
        let at = self.environment.now();
        let body = json!({
            "step": step.path, "command": command, "started_at": step.started_at,
            "error": outcome.as_ref().err(), "log": kept,
        });
        self.catalog
            .write(|transaction| transaction.note_plan(&record.plan.id, PlanNoteKind::Undone, &body, at))?;
        Ok(outcome)
    }

    /// Stores printed output; `None` if empty, or if the store is full. The caller keeps the store in use until the id is on record.
    pub(crate) fn keep_log(&self, log: Log) -> Result<Option<ObjectId>, Error> {
        let bytes = log.into_bytes();
        if bytes.is_empty() {
            return Ok(None);
        }
        let keep = || -> Result<ObjectId, Error> {
            let writer = self.store.writer()?;
            let id = writer.put(ObjectKind::Chunk, &bytes)?;
            writer.finish()?;
            Ok(id)
        };
        match keep() {
            // Printed output is worth less than the data under the cap.
            Err(error) if cap_hit(&error).is_some() => Ok(None),
            kept => kept.map(Some),
        }
    }
}

/// The steps that a rollback takes back, of all plans, with the plan of each.
fn newest_first(plans: &[NowAndThen]) -> Vec<(&PlanRecord, &Step)> {
    let mut steps = Vec::new();
    for (record, then) in plans {
        for path in record.plan.taken_back_by(then).steps {
            steps.extend(record.plan.steps.iter().find(|step| step.path == path).map(|step| (record, step)));
        }
    }
    if plans.len() > 1 {
        steps.sort_by_key(|(_, step)| std::cmp::Reverse(step.started_at));
    }
    steps
}

/// Failure of a command, with its last line of output.
pub(crate) fn in_words(exit: Exit, limit: Option<String>, log: &Log) -> String {
    let how = match exit {
        Exit::Status(code) => format!("exit status {code}"),
        Exit::Signal(signal) => format!("killed by signal {signal}"),
        Exit::TimedOut => format!("it took longer than {}", limit.unwrap_or_else(|| "it may".to_owned())),
        Exit::Stopped => "stopped".to_owned(),
    };
    match log.last_lines(1) {
        line if line.is_empty() => how,
        line => format!("{how}: {line}"),
    }
}
