//! RUN: the steps of a plan as commands in its sandbox, one after another or side by side, and on from where it stopped.
//!
//! One thread drives the plan: it alone changes its records and takes checkpoints. Each command has a thread that watches it. That a
//! step is done is on record before anything else happens, so that it never runs twice; one that was under way when the runner died is
//! found by the next command, because the run has no end on record and nobody holds the plan.

mod command;

use crate::create::{CreateOptions, Created};
use crate::guard::DeadRun;
use crate::plans::Driver;
use crate::process::Stop;
use crate::{CheckpointManager, Error};
use command::{Ended, How, Task};
use safepoint_catalog::{PlanRecord, Workspace};
use safepoint_model::checkpoint::{Kind, Reason};
use safepoint_model::plan::run::{Run, RunOutcome};
use safepoint_model::plan::spec::OnInterrupt;
use safepoint_model::plan::state::{Happening, Plan, PlanRule, PlanState, Step, StepState};
use safepoint_model::progress::Activity;
use safepoint_model::{CheckpointId, ObjectId, ObjectKind, ObjectSource, Progress};
use safepoint_workspace::WorkspaceError;
use serde_json::json;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How often the one who drives looks around while commands run.
const TICK: Duration = Duration::from_millis(50);
/// How often it asks whether somebody paused or cancelled the plan, or a checkpoint is due.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// What somebody knows about a step that was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// It can run again.
    Rerun,
    /// It was done.
    Done,
    /// It failed.
    Fail,
}

/// How far to go.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Stop once this step or subplan is done.
    pub until: Option<String>,
    /// What becomes of interrupted steps; what each says itself where nothing is said.
    pub interrupted: Option<Interrupted>,
}

/// Something that happens in a run.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// How the plan stands now.
    Plan(&'a Plan),
    /// The runner before had died.
    Dead(&'a DeadRun),
    /// A command begins.
    StepBegins(&'a str),
    /// The command that checks a step or a subplan begins.
    Verifies(&'a str),
    /// A command printed something.
    Printed(&'a str, &'a [u8]),
    /// An attempt failed, and another one follows.
    TriesAgain {
        /// Which step.
        step: &'a str,
        /// Which attempt that was, from one.
        attempt: u32,
        /// How it failed.
        error: &'a str,
    },
    /// A step or a subplan is done.
    Done(&'a str),
    /// A step or a subplan failed.
    Failed(&'a str, &'a str),
    /// A checkpoint was taken.
    Checkpoint(&'a Created),
}

/// Somebody who watches a run. Called from many threads.
pub trait RunObserver: Sync {
    /// Something happened.
    fn happened(&self, _event: &RunEvent<'_>) {}
    /// Whether the run is to stop.
    fn stop(&self) -> Stop {
        Stop::No
    }
}

/// How a run went.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// The plan as it is now.
    pub record: PlanRecord,
    /// How it ended.
    pub outcome: RunOutcome,
    /// At which step, where it did not come to the end.
    pub step: Option<String>,
    /// How that step failed.
    pub error: Option<String>,
    /// Steps that were done in this run, in order.
    pub done: Vec<String>,
    /// Checkpoints that were taken, in order.
    pub checkpoints: Vec<CheckpointId>,
    /// What the runner before had left, where it died.
    pub dead: Option<DeadRun>,
    /// What users should know.
    pub warnings: Vec<String>,
}

/// Whether a plan begins or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    Anew,
    Again,
}

/// Why nothing new begins.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Halt {
    Done,
    Failed(String, String),
    Paused,
    Waiting(String),
    Interrupted,
    Cancelled,
}

impl CheckpointManager {
    /// Runs a plan that has not begun, to its end or until a step fails.
    ///
    /// # Errors
    /// When another process runs it, it has begun already, or Safepoint itself fails. That a step fails is no error.
    pub fn run_plan(
        &self,
        id: &str,
        options: &RunOptions,
        observer: &dyn RunObserver,
        progress: &dyn Progress,
    ) -> Result<RunReport, Error> {
        self.drive(id, Begin::Anew, options, observer, progress)
    }

    /// Goes on with a plan that stopped: after a pause, a failure, a rollback, or the death of its runner. What is done is not done again.
    ///
    /// # Errors
    /// [`Error::StepInterrupted`] when nobody said what becomes of a step that was under way; or as [`CheckpointManager::run_plan`].
    pub fn resume_plan(
        &self,
        id: &str,
        options: &RunOptions,
        observer: &dyn RunObserver,
        progress: &dyn Progress,
    ) -> Result<RunReport, Error> {
        self.drive(id, Begin::Again, options, observer, progress)
    }

    /// What a step printed the last time, as much of it as is kept; nothing where it printed nothing.
    ///
    /// # Errors
    /// When there is no such step, or what it printed cannot be read.
    pub fn printed_by(&self, plan: &Plan, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let _using = self.store.using()?;
        let log = plan.steps[plan.find(path)?].log;
        Ok(log.map(|log| self.store.get(ObjectKind::Chunk, log)).transpose()?)
    }

    fn drive(
        &self,
        id: &str,
        begin: Begin,
        options: &RunOptions,
        observer: &dyn RunObserver,
        progress: &dyn Progress,
    ) -> Result<RunReport, Error> {
        let (_lock, dead) = self.take_plan(id)?;
        if let Some(dead) = &dead {
            observer.happened(&RunEvent::Dead(dead));
        }
        self.interrupt_stale(id)?;
        let record = self.plan(id)?;
        if let Some(until) = &options.until {
            record.plan.find(until)?;
        }
        let state = record.plan.state;
        let report = |record, outcome| RunReport {
            record,
            outcome,
            step: None,
            error: None,
            done: Vec::new(),
            checkpoints: Vec::new(),
            dead: dead.clone(),
            warnings: Vec::new(),
        };
        match (begin, state) {
            (_, PlanState::Applied | PlanState::Cancelled) => return Err(PlanRule::Over(state).into()),
            (Begin::Again, PlanState::Done) => return Ok(report(record, RunOutcome::Done)),
            (Begin::Anew, PlanState::Ready)
            | (Begin::Again, PlanState::Running | PlanState::Paused | PlanState::Failed) => {}
            _ => return Err(Error::NotReady { id: id.to_owned(), state }),
        }
        let record = self.with_sandbox(id, progress)?;
        let place = self.plan_workspace(&record)?;
        let mut tally =
            Tally { report: report(record, RunOutcome::Broken), looked: Instant::now(), low_on_disk: false };
        if let Some(failed) = self.answer_interrupted(id, options, progress, &mut tally)? {
            tally.report.step = Some(failed.0);
            tally.report.error = Some(failed.1);
            tally.report.outcome = RunOutcome::Failed;
            tally.report.record = self.plan(id)?;
            return Ok(tally.report);
        }
        let run = Run {
            id: CheckpointId::from_bits(self.environment.new_id()).to_string(),
            pid: std::process::id(),
            started_at: self.environment.now(),
            ended_at: None,
            outcome: None,
        };
        self.catalog.write::<(), Error>(|transaction| {
            let mut record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.to_owned() })?;
            if record.plan.state != PlanState::Running {
                record.plan.go(PlanState::Running)?;
                transaction.save_plan(&record.plan, "run", run.started_at)?;
            }
            Ok(transaction.insert_run(id, &run)?)
        })?;
        let runner = Runner {
            manager: self,
            id,
            run,
            place,
            observer,
            progress,
            until: options.until.as_deref(),
            ending: AtomicBool::new(false),
        };
        runner.tell_plan(&self.plan(id)?.plan);
        let halt = std::panic::catch_unwind(AssertUnwindSafe(|| runner.course(&mut tally)));
        match halt {
            Ok(halt) => runner.finish(halt, tally),
            // A defect of this program must not cost anybody's work.
            Err(panic) => {
                let _ = runner.finish(Ok(Halt::Interrupted), tally);
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// Nobody else runs the plan, so a command that is under way on record is not: it was when the checkpoint was taken that somebody
    /// went back to, beside a step that was about to begin.
    fn interrupt_stale(&self, id: &str) -> Result<(), Error> {
        let plan = self.plan(id)?.plan;
        let is_stale = |step: &Step| step.state == StepState::Running && step.spec.run.is_some();
        if plan.state.is_over() || !plan.steps.iter().any(is_stale) {
            return Ok(());
        }
        let now = self.environment.now();
        self.change_plan(id, "nobody runs it", |plan| Ok(plan.interrupt(now))).map(drop)
    }

    /// What becomes of steps that were under way when a runner died. Says which of them failed, and how.
    fn answer_interrupted(
        &self,
        id: &str,
        options: &RunOptions,
        progress: &dyn Progress,
        tally: &mut Tally,
    ) -> Result<Option<(String, String)>, Error> {
        let plan = self.plan(id)?.plan;
        let interrupted: Vec<_> = plan
            .steps
            .iter()
            .filter(|step| step.state == StepState::Interrupted && step.spec.run.is_some())
            .map(|step| {
                let said = match step.spec.on_interrupt {
                    OnInterrupt::Rerun => Some(Interrupted::Rerun),
                    OnInterrupt::Fail => Some(Interrupted::Fail),
                    OnInterrupt::Ask => None,
                };
                (step.path.clone(), options.interrupted.or(said))
            })
            .collect();
        let asked: Vec<String> =
            interrupted.iter().filter(|(_, said)| said.is_none()).map(|(path, _)| path.clone()).collect();
        if !asked.is_empty() {
            return Err(Error::StepInterrupted { id: id.to_owned(), steps: asked });
        }
        let mut failed = None;
        for (path, said) in interrupted {
            match said {
                Some(Interrupted::Done) => {
                    let now = self.environment.now();
                    let what = format!("step {path} had been done");
                    self.move_plan(id, &what, |plan| plan.finish_unverified(&path, None, now))?;
                    tally.report.done.push(path);
                }
                Some(Interrupted::Fail) => {
                    let error = "it was interrupted".to_owned();
                    let moved = self.fail_step_by(id, &path, &error, None, progress)?;
                    tally.report.checkpoints.extend(moved.checkpoints.iter().map(|it| it.checkpoint.id));
                    failed.get_or_insert((path, error));
                }
                _ => {}
            }
        }
        Ok(failed)
    }
}

/// What the one who drives keeps in mind.
struct Tally {
    report: RunReport,
    looked: Instant,
    /// Whether it was told that little room is left.
    low_on_disk: bool,
}

/// A run.
struct Runner<'r> {
    manager: &'r CheckpointManager,
    id: &'r str,
    run: Run,
    place: Workspace,
    observer: &'r dyn RunObserver,
    progress: &'r dyn Progress,
    until: Option<&'r str>,
    /// Whether commands are to end because of something that is not their fault.
    ending: AtomicBool,
}

/// The steps that are under way.
type UnderWay = BTreeSet<String>;

impl Runner<'_> {
    fn tell_plan(&self, plan: &Plan) {
        self.observer.happened(&RunEvent::Plan(plan));
    }

    /// Whether commands are to end.
    fn stop(&self) -> Stop {
        match self.observer.stop() {
            Stop::No if self.ending.load(Ordering::SeqCst) => Stop::Soon,
            stop => stop,
        }
    }

    /// From step to step, until nothing begins any more and nothing is under way.
    fn course(&self, tally: &mut Tally) -> Result<Halt, Error> {
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
                    // What fails here is told, whatever was the reason to stop before.
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
            let record = self.manager.plan(self.id)?;
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
                // Somebody paused or cancelled it a moment ago: the next look says which.
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
        let Ended { task: Task { path, how }, outcome, log } = ended;
        let manager = self.manager;
        let using = manager.store.using()?;
        let log = manager.keep_log(log)?;
        let now = manager.environment.now();
        let moved = match (outcome?, how) {
            (Outcome::Stopped, How::Verify) => return Ok(Some(Halt::Interrupted)),
            (Outcome::Stopped, How::Run) => {
                // It stays under way on record until the run ends: then it counts as interrupted.
                let kept = manager.change_plan(self.id, &format!("step {path} stopped"), |plan| {
                    keep_log_of(plan, &path, log)
                });
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
                // Whoever wants to stop now gets the checkpoint of the failure all the same.
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

    /// Whether somebody wants it to stop, and whether a checkpoint is due.
    fn look_around(&self, tally: &mut Tally) -> Result<Option<Halt>, Error> {
        if self.stop() != Stop::No {
            return Ok(Some(Halt::Interrupted));
        }
        if tally.looked.elapsed() < LOOK_AROUND {
            return Ok(None);
        }
        tally.looked = Instant::now();
        let record = self.manager.plan(self.id)?;
        match record.plan.state {
            PlanState::Applied | PlanState::Cancelled => return Ok(Some(Halt::Cancelled)),
            PlanState::Paused => return Ok(Some(Halt::Paused)),
            _ => {}
        }
        if !tally.low_on_disk && self.is_low_on_disk() {
            // Once: there is little room for it, and none for many.
            tally.low_on_disk = true;
            let warning = "little room is left on the disk: an emergency checkpoint was taken";
            tally.report.warnings.push(warning.to_owned());
            let options = CreateOptions::emergency("little room is left on the disk");
            let created = self.manager.checkpoint_plan(self.id, &options, self.progress)?;
            self.tell_checkpoints(&[created], tally);
        }
        if self.manager.is_time(&record)? {
            let options = CreateOptions {
                label: Some("on the way".to_owned()),
                kind: Kind::Workflow,
                reason: Reason::SafeState,
                ..CreateOptions::default()
            };
            let created = self.manager.checkpoint_plan(self.id, &options, self.progress)?;
            self.tell_checkpoints(&[created], tally);
        }
        Ok(None)
    }

    /// Whether the disk of the sandbox or of the home has less room than it should.
    fn is_low_on_disk(&self) -> bool {
        let low = |path: &Path| {
            rustix::fs::statvfs(path).is_ok_and(|disk| {
                disk.f_bavail.saturating_mul(disk.f_frsize) < self.manager.settings.low_disk_bytes
            })
        };
        low(self.place.root_path()) || low(self.manager.home())
    }

    /// Puts the end of the run on record.
    fn finish(&self, halt: Result<Halt, Error>, mut tally: Tally) -> Result<RunReport, Error> {
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
        let now = manager.environment.now();
        let ended = manager.catalog.write::<_, Error>(|transaction| {
            let mut record =
                transaction.plan(self.id)?.ok_or_else(|| Error::NoPlan { id: self.id.to_owned() })?;
            let before = record.plan.clone();
            let interrupted = match record.plan.state.is_over() {
                true => Vec::new(),
                // Whoever waits, was paused or stopped does not run any more.
                false => record.plan.interrupt(now),
            };
            if record.plan != before {
                transaction.save_plan(&record.plan, outcome.as_str(), now)?;
            }
            transaction.end_run(self.id, &self.run.id, outcome, now)?;
            Ok(interrupted)
        });
        // Why it stopped says more than that the end could not be put on record: the next command sees a run without an end.
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
        tally.report.record = manager.plan(self.id)?;
        self.tell_plan(&tally.report.record.plan);
        Ok(tally.report)
    }

    /// What there is when somebody stops a run is kept, whatever it is.
    fn emergency(&self, tally: &mut Tally) {
        let label = match &tally.report.step {
            Some(step) => format!("stopped during {step}"),
            None => "stopped".to_owned(),
        };
        let options = CreateOptions::emergency(label);
        match self.manager.checkpoint_plan(self.id, &options, &Unstoppable(self.progress)) {
            Ok(created) => self.tell_checkpoints(&[created], tally),
            Err(error) => {
                tally.report.warnings.push(format!("the emergency checkpoint could not be taken: {error}"));
            }
        }
    }
}

/// How a command went.
#[derive(Debug)]
enum Outcome {
    Good,
    Bad(String),
    Stopped,
}

/// Sets what a step printed.
fn keep_log_of(plan: &mut Plan, path: &str, log: Option<ObjectId>) -> Result<(), PlanRule> {
    let at = plan.find(path)?;
    if log.is_some() {
        plan.steps[at].log = log;
    }
    Ok(())
}

/// Progress that is shown and never interrupts: the checkpoint because of a Ctrl-C does not stop because of it.
struct Unstoppable<'p>(&'p dyn Progress);

impl Progress for Unstoppable<'_> {
    fn begin(&self, activity: Activity, total: Option<u64>) {
        self.0.begin(activity, total);
    }

    fn advance(&self, entries: u64, bytes: u64) {
        self.0.advance(entries, bytes);
    }

    fn end(&self) {
        self.0.end();
    }
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
        self.fail_by(id, path, error, log, progress, |plan, now| plan.fail(path, error, now))
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
        self.fail_by(id, path, error, log, progress, |plan, now| plan.refuted(path, error, now))
    }

    fn fail_by(
        &self,
        id: &str,
        path: &str,
        error: &str,
        log: Option<ObjectId>,
        progress: &dyn Progress,
        rule: impl FnOnce(&mut Plan, safepoint_model::Timestamp) -> Result<Vec<Happening>, PlanRule>,
    ) -> Result<crate::StepMoved, Error> {
        let now = self.environment.now();
        let (record, happened) = self.catalog.write(|transaction| {
            let mut record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.to_owned() })?;
            let happened = rule(&mut record.plan, now)?;
            keep_log_of(&mut record.plan, path, log)?;
            record.version = transaction.save_plan(&record.plan, &format!("step {path} failed"), now)?;
            record.updated_at = now;
            let body = json!({ "step": path, "error": error, "log": log });
            transaction.note_plan(id, "error", &body, now)?;
            self.count_steps(transaction, &happened, now)?;
            Ok::<_, Error>((record, happened))
        })?;
        self.after(record, happened, progress)
    }
}
