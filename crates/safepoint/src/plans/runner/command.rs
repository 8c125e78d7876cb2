//! One command of a step, as often as it may be tried.

use super::RunEvent;
use super::course::{Outcome, Runner};
use crate::home::LiveOutput;
use crate::process::{self, Exit, Job, Log};
use crate::remotes::lease::PlanLease;
use crate::rollback::effects::in_words;
use crate::{CheckpointManager, Error};
use safepoint_catalog::PlanRecord;
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::state::Plan;
use safepoint_model::{Span, Timestamp};
use serde_json::json;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Command to run.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) path: String,
    pub(super) how: How,
}

/// Kind of command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// The step's command, then its check.
    Run,
    /// A subplan's check.
    Verify,
}

/// A task that is over.
pub(super) struct Ended {
    pub(super) task: Task,
    pub(super) outcome: Result<Outcome, Error>,
    pub(super) log: Log,
    /// Readable by others until the log is on record.
    pub(super) _live: Option<LiveOutput>,
}

impl Runner<'_> {
    /// Carries a task out, to its good or bad end.
    pub(super) fn carry_out(&self, record: &PlanRecord, task: Task) -> Ended {
        let (mut log, mut live) = (Log::default(), None);
        let outcome = self.attempts(record, &task, &mut log, &mut live);
        Ended { task, outcome, log, _live: live }
    }

    fn attempts(
        &self,
        record: &PlanRecord,
        task: &Task,
        log: &mut Log,
        live: &mut Option<LiveOutput>,
    ) -> Result<Outcome, Error> {
        let spec = record.plan.steps[record.plan.find(&task.path)?].spec.clone();
        let lines: Vec<(&str, &str)> = match task.how {
            How::Run => [("", spec.run.as_deref()), ("verify: ", spec.verify.as_deref())]
                .into_iter()
                .collect::<Vec<_>>(),
            How::Verify => vec![("verify: ", spec.verify.as_deref())],
        }
        .into_iter()
        .filter_map(|(what, line)| line.map(|line| (what, line)))
        .collect();
        let retries = if task.how == How::Run { spec.retries } else { 0 };
        for attempt in 1.. {
            // The old one ends first: both have one name.
            *live = None;
            *live = self.manager.home.begin_output(self.id, &task.path).ok();
            match self.attempt(record, task, &lines, (log, live))? {
                Outcome::Bad(error) if attempt <= retries => {
                    let step = task.path.as_str();
                    self.observer.happened(&RunEvent::TriesAgain { step, attempt, error: &error });
                    self.manager.note_attempt(self.id, step, attempt, &error, std::mem::take(log))?;
                }
                outcome => return Ok(outcome),
            }
        }
        Ok(Outcome::Stopped)
    }

    fn attempt(
        &self,
        record: &PlanRecord,
        task: &Task,
        lines: &[(&str, &str)],
        (log, live): (&mut Log, &mut Option<LiveOutput>),
    ) -> Result<Outcome, Error> {
        let seat = self.manager.seat_in(&self.place)?;
        let mut variables = self.manager.variables_for(record, &task.path, &seat, Some(self.run.id))?;
        variables.extend(fence_of(self.leases));
        let limit = limit(&record.plan, &task.path, self.manager.environment.now());
        let deadline = limit.as_ref().and_then(|(left, _)| Instant::now().checked_add(*left));
        for (what, line) in lines {
            self.observer.happened(&match *what {
                "" => RunEvent::StepBegins(&task.path),
                _ => RunEvent::Verifies(&task.path),
            });
            let job = Job {
                line,
                directory: &seat.directory,
                variables: &variables,
                deadline,
                open_files: self.manager.settings.open_files,
                through: &seat.through,
            };
            let mut printed = |bytes: &[u8]| {
                log.push(bytes);
                live.iter_mut().for_each(|live| live.push(bytes));
                self.observer.happened(&RunEvent::Printed(&task.path, bytes));
            };
            match process::run(&job, &|| self.stop(), &mut printed) {
                Ok(exit) if exit.is_good() => {}
                Ok(Exit::Stopped) => return Ok(Outcome::Stopped),
                Ok(exit) => {
                    if let Some(refused) = seat.refused() {
                        return Ok(Outcome::Bad(format!("{what}{refused}")));
                    }
                    let allowed = limit.as_ref().map(|(_, text)| text.clone());
                    return Ok(Outcome::Bad(format!("{what}{}", in_words(exit, allowed, log))));
                }
                Err(error) => return Ok(Outcome::Bad(format!("{what}it cannot be started: {error}"))),
            }
        }
        Ok(Outcome::Good)
    }
}

/// Returns the variable with the fence of the first lease.
fn fence_of(leases: &[Arc<PlanLease>]) -> Option<(OsString, OsString)> {
    let fence = leases.iter().find_map(|lease| lease.fence())?;
    Some(process::variable("SAFEPOINT_FENCE", fence.to_string()))
}

/// Returns a step's remaining time by its own and its subplans' timeouts, and their text.
fn limit(plan: &Plan, path: &str, now: Timestamp) -> Option<(Duration, String)> {
    let own = plan.steps.iter().filter(|step| step.path == path);
    let own = own.filter_map(|step| step.spec.timeout).map(|span| (micros(span), span.to_string()));
    let around = plan
        .steps
        .iter()
        .filter(|step| path.strip_prefix(&step.path).is_some_and(|rest| rest.starts_with('/')));
    let around = around.filter_map(|step| {
        let (span, began) = (step.spec.timeout?, step.started_at?);
        let passed = u64::try_from(now.micros().saturating_sub(began.micros())).unwrap_or(0);
        let left = micros(span).saturating_sub(Duration::from_micros(passed));
        Some((left, format!("{span} for {}", step.path)))
    });
    own.chain(around).min()
}

fn micros(span: Span) -> Duration {
    Duration::from_micros(span.micros())
}

impl CheckpointManager {
    /// Puts an attempt that failed on record, and that another one follows.
    fn note_attempt(&self, id: &str, path: &str, attempt: u32, error: &str, log: Log) -> Result<(), Error> {
        let _using = self.store.using()?;
        let log = self.keep_log(log)?;
        let at = self.environment.now();
        self.catalog.write(|transaction| {
            let mut record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.to_owned() })?;
            record.plan.retry(path)?;
            transaction.save_plan(&record.plan, &format!("step {path} tried again"), at)?;
            let body = json!({ "step": path, "attempt": attempt, "error": error, "log": log });
            Ok(transaction.note_plan(id, PlanNoteKind::Attempt, &body, at)?)
        })
    }
}
