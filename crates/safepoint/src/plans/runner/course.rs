//! The course of a run: starts ready steps, records ended ones, and stops on request.

use super::command::{Ended, How, Task};
use super::{RunEvent, RunObserver, RunReport};
use crate::checkpoint::create::{CreateOptions, Created};
use crate::plans::Driver;
use crate::process::Stop;
use crate::remotes::lease::PlanLease;
use crate::warning::cause;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{PlanRecord, Workspace};
use safepoint_model::checkpoint::{Kind, Reason};
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::run::{Run, RunOutcome};
use safepoint_model::plan::state::{Happening, Plan, PlanRule, PlanState, Step, StepState};
use safepoint_model::progress::Unstoppable;
use safepoint_model::{ObjectId, Progress};
use safepoint_workspace::WorkspaceError;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Polling interval while commands run.
const TICK: Duration = Duration::from_millis(50);
/// Interval of checks for a paused or cancelled plan or a due checkpoint.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// Reason to start no step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Halt {
    Done,
    Failed(String, String),
    Paused,
    Waiting(String),
    Interrupted,
    Cancelled,
}

/// State of the run's driver.
pub(super) struct Tally {
    pub(super) report: RunReport,
    pub(super) looked: Instant,
    /// True once low disk space was reported.
    pub(super) low_on_disk: bool,
}

/// A run.
pub(super) struct Runner<'r> {
    pub(super) manager: &'r CheckpointManager,
    pub(super) id: &'r str,
    pub(super) run: Run,
    pub(super) place: Workspace,
    pub(super) observer: &'r dyn RunObserver,
    pub(super) progress: &'r dyn Progress,
    pub(super) until: Option<&'r str>,
    pub(super) leases: &'r [Arc<PlanLease>],
    /// True if commands must end for a reason that is not their fault.
    pub(super) ending: AtomicBool,
}

/// The steps that are under way.
type UnderWay = BTreeSet<String>;

impl Runner<'_> {
    pub(super) fn tell_plan(&self, plan: &Plan) {
        self.observer.happened(&RunEvent::Plan(plan));
    }

    /// Stop request for commands.
    pub(super) fn stop(&self) -> Stop {
        match self.observer.stop() {
            Stop::No if self.ending.load(Ordering::SeqCst) || self.leases.iter().any(|it| it.must_stop()) => {
                Stop::Soon
            }
            stop => stop,
        }
    }

    /// From step to step, until nothing begins any more and nothing is under way.
    pub(super) fn course(&self, tally: &mut Tally) -> Result<Halt, Error> {
        std::thread::scope(|threads| {
            let (sender, receiver) = channel();
            let mut under_way = UnderWay::new();
            let mut halt: Option<Result<Halt, Error>> = None;
            loop {
                if halt.is_none() {
                    halt = self.begin(threads, &sender, &mut under_way, tally).transpose();
                }
                if under_way.is_empty()
                    && let Some(halt) = halt
                {
                    return halt;
                }
                let found = match receiver.recv_timeout(TICK) {
                    Ok(ended) => {
                        under_way.remove(&ended.task.path);
                        self.take_note(ended, tally)
                    }
                    Err(RecvTimeoutError::Timeout) => self.look_around(tally),
                    // The sender is ours, so this cannot be.
                    Err(RecvTimeoutError::Disconnected) => return Ok(Halt::Interrupted),
                };
                match (found.transpose(), &halt) {
                    // An error here is reported, even after another reason to stop.
                    (Some(Err(error)), _) => halt = Some(Err(error)),
                    (Some(Ok(why)), None) => halt = Some(Ok(why)),
                    _ => {}
                }
                if matches!(halt, Some(Err(_) | Ok(Halt::Cancelled))) {
                    self.ending.store(true, Ordering::SeqCst);
                }
            }
        })
    }

    /// Begins whatever may begin now.
    fn begin<'scope, 'env>(
        &'env self,
        threads: &'scope Scope<'scope, 'env>,
        sender: &Sender<Ended>,
        under_way: &mut UnderWay,
        tally: &mut Tally,
    ) -> Result<Option<Halt>, Error> {
        loop {
            if self.stop() != Stop::No {
                return Ok(Some(Halt::Interrupted));
            }
            let record = self.manager.plans().get(self.id)?;
            let plan = &record.plan;
            match plan.state {
                PlanState::Paused => return Ok(Some(Halt::Paused)),
                PlanState::Applied | PlanState::Cancelled => return Ok(Some(Halt::Cancelled)),
                PlanState::Done => return Ok(Some(Halt::Done)),
                _ => {}
            }
            if let Some(until) = self.until
                && plan.steps[plan.find(until)?].state == StepState::Done
            {
                return Ok(Some(Halt::Paused));
            }
            if let Some(path) = plan.to_verify().into_iter().find(|path| !under_way.contains(*path)) {
                let task = Task { path: path.to_owned(), how: How::Verify };
                under_way.insert(task.path.clone());
                self.spawn(threads, sender, record.clone(), task);
                continue;
            }
            let next: Vec<&str> = plan.next().into_iter().filter(|path| !under_way.contains(*path)).collect();
            let runs = |path: &&&str| plan.find(path).is_ok_and(|at| plan.steps[at].spec.run.is_some());
            let Some(path) = next.iter().find(runs) else {
                if !under_way.is_empty() {
                    return Ok(None);
                }
                let outside = |step: &&Step| {
                    step.state == StepState::Running
                        && !plan.steps.iter().any(|it| it.parent() == Some(&step.path))
                };
                let waits = next.first().map(|path| (*path).to_owned());
                let waits = waits.or_else(|| plan.steps.iter().find(outside).map(|step| step.path.clone()));
                return Ok(Some(Halt::Waiting(waits.unwrap_or_default())));
            };
            match self.manager.start_step_by(self.id, path, Driver::Runner, self.progress) {
                Ok(moved) => {
                    self.tell_checkpoints(&moved.checkpoints, tally);
                    self.tell_plan(&moved.record.plan);
                    let task = Task { path: (*path).to_owned(), how: How::Run };
                    under_way.insert(task.path.clone());
                    self.spawn(threads, sender, moved.record, task);
                }
                Err(Error::Workspace(WorkspaceError::Interrupted)) => return Ok(Some(Halt::Interrupted)),
                // The plan was just paused or cancelled: the next look says which.
                Err(Error::Plan(PlanRule::Transition { .. } | PlanRule::Over(_))) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn spawn<'scope, 'env>(
        &'env self,
        threads: &'scope Scope<'scope, 'env>,
        sender: &Sender<Ended>,
        record: PlanRecord,
        task: Task,
    ) {
        let sender = sender.clone();
        threads.spawn(move || {
            let ended = self.carry_out(&record, task);
            // The other end lives as long as anything is under way.
            let _ = sender.send(ended);
        });
    }

    fn tell_checkpoints(&self, created: &[Created], tally: &mut Tally) {
        for created in created {
            tally.report.checkpoints.push(created.checkpoint.id);
            tally.report.warnings.extend(created.warnings.iter().cloned());
            self.observer.happened(&RunEvent::Checkpoint(created));
        }
    }

    /// Puts on record how a command ended.
    fn take_note(&self, ended: Ended, tally: &mut Tally) -> Result<Option<Halt>, Error> {
        let Ended { task: Task { path, how }, outcome, log, _live } = ended;
        let manager = self.manager;
        let using = manager.store.using()?;
        let log = manager.keep_log(log)?;
        let now = manager.environment.now();
        let moved = match (outcome?, how) {
            (Outcome::Stopped, How::Verify) => return Ok(Some(Halt::Interrupted)),
            (Outcome::Stopped, How::Run) => {
                // It stays under way on record until the run ends: then it counts as interrupted.
                let kept = manager
                    .plans()
                    .change(self.id, &format!("step {path} stopped"), |plan| keep_log_of(plan, &path, log));
                return match kept {
                    Err(Error::Plan(PlanRule::Over(_))) | Ok(_) => Ok(Some(Halt::Interrupted)),
                    Err(error) => Err(error),
                };
            }
            (Outcome::Good, _) => {
                let (record, happened) =
                    match manager.move_plan(self.id, &format!("step {path} done"), |plan| {
                        let happened = match how {
                            How::Run => plan.finish_unverified(&path, None, now)?,
                            How::Verify => plan.verified(&path, now)?,
                        };
                        keep_log_of(plan, &path, log)?;
                        Ok(happened)
                    }) {
                        Err(Error::Plan(PlanRule::Over(_))) => return Ok(Some(Halt::Cancelled)),
                        other => other?,
                    };
                for happening in &happened {
                    if let Happening::StepDone { path } | Happening::SubplanDone { path } = happening {
                        self.observer.happened(&RunEvent::Done(path));
                    }
                }
                tally.report.done.push(path);
                drop(using);
                manager.after(record, happened, self.progress)
            }
            (Outcome::Bad(error), how) => {
                self.observer.happened(&RunEvent::Failed(&path, &error));
                // A stop request does not prevent the checkpoint of the failure.
                let progress = Unstoppable(self.progress);
                let moved = match how {
                    How::Run => manager.fail_step_by(self.id, &path, &error, log, &progress),
                    How::Verify => manager.refute_subplan(self.id, &path, &error, log, &progress),
                };
                match moved {
                    Err(Error::Plan(PlanRule::Over(_))) => return Ok(Some(Halt::Cancelled)),
                    Ok(moved) => {
                        self.tell_checkpoints(&moved.checkpoints, tally);
                        self.tell_plan(&moved.record.plan);
                        return Ok(Some(Halt::Failed(path, error)));
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        match moved {
            Ok(moved) => {
                self.tell_checkpoints(&moved.checkpoints, tally);
                self.tell_plan(&moved.record.plan);
                Ok(None)
            }
            Err(Error::Workspace(WorkspaceError::Interrupted)) => Ok(Some(Halt::Interrupted)),
            Err(error) => Err(error),
        }
    }

    /// Checks for stop requests and due checkpoints.
    fn look_around(&self, tally: &mut Tally) -> Result<Option<Halt>, Error> {
        if self.stop() != Stop::No {
            return Ok(Some(Halt::Interrupted));
        }
        if tally.looked.elapsed() < LOOK_AROUND {
            return Ok(None);
        }
        tally.looked = Instant::now();
        let record = self.manager.plans().get(self.id)?;
        match record.plan.state {
            PlanState::Applied | PlanState::Cancelled => return Ok(Some(Halt::Cancelled)),
            PlanState::Paused => return Ok(Some(Halt::Paused)),
            _ => {}
        }
        if !tally.low_on_disk && self.is_low_on_disk() {
            // Once: there is little room for it, and none for many.
            tally.low_on_disk = true;
            tally.report.warnings.push(Warning::LowDiskSpace);
            let options = CreateOptions::emergency("low disk space");
            let created = self.manager.plans().checkpoint(self.id, &options, self.progress)?;
            self.tell_checkpoints(&[created], tally);
        }
        if self.manager.is_time(&record)? {
            let options = CreateOptions {
                label: Some("during the run".to_owned()),
                kind: Kind::Workflow,
                reason: Reason::SafeState,
                ..CreateOptions::default()
            };
            let created = self.manager.plans().checkpoint(self.id, &options, self.progress)?;
            self.tell_checkpoints(&[created], tally);
        }
        Ok(None)
    }

    /// Returns true if the disk of the sandbox or of the home is low on space.
    fn is_low_on_disk(&self) -> bool {
        let low = |path: &Path| {
            rustix::fs::statvfs(path).is_ok_and(|disk| {
                disk.f_bavail.saturating_mul(disk.f_frsize) < self.manager.settings.low_disk_bytes
            })
        };
        low(self.place.root_path()) || low(self.manager.home())
    }

    /// Puts the end of the run on record.
    pub(super) fn finish(&self, halt: Result<Halt, Error>, mut tally: Tally) -> Result<RunReport, Error> {
        let manager = self.manager;
        let outcome = match &halt {
            Ok(Halt::Done) => RunOutcome::Done,
            Ok(Halt::Failed(..)) => RunOutcome::Failed,
            Ok(Halt::Paused) => RunOutcome::Paused,
            Ok(Halt::Waiting(_)) => RunOutcome::Waiting,
            Ok(Halt::Interrupted) => RunOutcome::Interrupted,
            Ok(Halt::Cancelled) => RunOutcome::Cancelled,
            Err(_) => RunOutcome::Broken,
        };
        for lease in self.leases {
            let lost = lease.lost().map(|why| Warning::LeaseLost { remote: lease.remote().to_owned(), why });
            tally.report.warnings.extend(lost);
        }
        let now = manager.environment.now();
        let ended = manager.catalog.write::<_, Error>(|transaction| {
            let mut record =
                transaction.plan(self.id)?.ok_or_else(|| Error::NoPlan { id: self.id.to_owned() })?;
            let before = record.plan.clone();
            let interrupted = match record.plan.state.is_over() {
                true => Vec::new(),
                // A waiting, paused or stopped plan no longer runs.
                false => record.plan.interrupt(now),
            };
            if record.plan != before {
                transaction.save_plan(&record.plan, outcome.as_str(), now)?;
            }
            transaction.end_run(self.id, self.run.id, outcome, now)?;
            Ok(interrupted)
        });
        // The stop's error matters more than a failed record of the end: the next command sees a run without an end.
        let halt = halt?;
        let interrupted = ended?;
        match halt {
            Halt::Failed(step, error) => {
                tally.report.step = Some(step);
                tally.report.error = Some(error);
            }
            Halt::Waiting(step) => tally.report.step = Some(step),
            Halt::Interrupted => {
                tally.report.step = interrupted.first().cloned();
                self.emergency(&mut tally);
            }
            Halt::Done | Halt::Paused | Halt::Cancelled => {}
        }
        tally.report.outcome = outcome;
        tally.report.record = manager.plans().get(self.id)?;
        self.tell_plan(&tally.report.record.plan);
        Ok(tally.report)
    }

    /// Takes an emergency checkpoint of a stopped run.
    fn emergency(&self, tally: &mut Tally) {
        let label = match &tally.report.step {
            Some(step) => format!("stopped during {step}"),
            None => "stopped".to_owned(),
        };
        let options = CreateOptions::emergency(label);
        match self.manager.plans().checkpoint(self.id, &options, &Unstoppable(self.progress)) {
            Ok(created) => self.tell_checkpoints(&[created], tally),
            Err(error) => {
                tally.report.warnings.push(Warning::NoEmergencyCheckpoint { why: cause(error) });
            }
        }
    }
}

/// A command's outcome.
#[derive(Debug)]
pub(super) enum Outcome {
    Good,
    Bad(String),
    Stopped,
}

/// A step that failed, the reason, and what it printed.
struct FailedStep<'a> {
    path: &'a str,
    error: &'a str,
    log: Option<ObjectId>,
}

/// Sets what a step printed.
fn keep_log_of(plan: &mut Plan, path: &str, log: Option<ObjectId>) -> Result<(), PlanRule> {
    let at = plan.find(path)?;
    if log.is_some() {
        plan.steps[at].log = log;
    }
    Ok(())
}

impl CheckpointManager {
    /// A step failed: the error is kept for the record, and the checkpoints that are due are taken.
    pub(crate) fn fail_step_by(
        &self,
        id: &str,
        path: &str,
        error: &str,
        log: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<crate::StepMoved, Error> {
        let failed = FailedStep { path, error, log };
        self.fail_by(id, &failed, progress, |plan, now| plan.fail(path, error, now))
    }

    /// The command of a subplan said that it did not go well.
    fn refute_subplan(
        &self,
        id: &str,
        path: &str,
        error: &str,
        log: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<crate::StepMoved, Error> {
        let failed = FailedStep { path, error, log };
        self.fail_by(id, &failed, progress, |plan, now| plan.refuted(path, error, now))
    }

    fn fail_by(
        &self,
        id: &str,
        failed: &FailedStep<'_>,
        progress: &dyn Progress,
        rule: impl FnOnce(&mut Plan, safepoint_model::Timestamp) -> Result<Vec<Happening>, PlanRule>,
    ) -> Result<crate::StepMoved, Error> {
        let FailedStep { path, error, log } = *failed;
        let now = self.environment.now();
        let (record, happened) = self.catalog.write(|transaction| {
            let mut record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.to_owned() })?;
            let happened = rule(&mut record.plan, now)?;
            keep_log_of(&mut record.plan, path, log)?;
            record.version = transaction.save_plan(&record.plan, &format!("step {path} failed"), now)?;
            record.updated_at = now;
            let body = json!({ "step": path, "error": error, "log": log });
            transaction.note_plan(id, PlanNoteKind::Error, &body, now)?;
            self.count_steps(transaction, &happened, now)?;
            Ok::<_, Error>((record, happened))
        })?;
        self.after(record, happened, progress)
    }
}
