//! RUN: the steps of a plan as commands in its sandbox, one after another or side by side, and on from where it stopped.
//!
//! One thread drives the plan: it alone changes its records and takes checkpoints. Each command has a thread that watches it. That a
//! step is done is on record before anything else happens, so that it never runs twice; one that was under way when the runner died is
//! found by the next command, because the run has no recorded end and no process holds the plan.

mod command;
mod course;
mod interrupted;

use crate::checkpoint::create::Created;
use crate::handles::Plans;
use crate::plans::guard::DeadRun;
use crate::process::Stop;
use crate::remotes::lease::PlanLease;
use crate::rollback::recover::Recovery;
use crate::{CheckpointManager, Error, Warning};
use course::{Halt, Runner, Tally};
use safepoint_catalog::PlanRecord;
use safepoint_model::id::RunId;
use safepoint_model::plan::run::{Run, RunOutcome};
use safepoint_model::plan::state::{Plan, PlanRule, PlanState, Step, StepState};
use safepoint_model::{CheckpointId, ObjectKind, ObjectSource, Progress};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// User's answer about an interrupted step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// It can run again.
    Rerun,
    /// It was done.
    Done,
    /// It failed.
    Fail,
}

/// Run options.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Stop once this step or subplan is done.
    pub until: Option<String>,
    /// Answer for interrupted steps; each step's own if none.
    pub interrupted: Option<Interrupted>,
    /// True if a person can be asked: then [`Error::StepInterrupted`] comes before a check of the step.
    pub can_ask: bool,
    /// Leases of the lines that the plan is published on: commands end when one is lost.
    pub leases: Vec<Arc<PlanLease>>,
}

/// Something that happens in a run.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// The plan's current state.
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
        /// The step.
        step: &'a str,
        /// Failed attempt, from one.
        attempt: u32,
        /// Its failure.
        error: &'a str,
    },
    /// A step or a subplan is done.
    Done(&'a str),
    /// A step or a subplan failed.
    Failed(&'a str, &'a str),
    /// A checkpoint was taken.
    Checkpoint(&'a Created),
}

/// Observer of a run. Called from many threads.
pub trait RunObserver: Sync {
    /// Something happened.
    fn happened(&self, _event: &RunEvent<'_>) {}
    /// Returns the stop request.
    fn stop(&self) -> Stop {
        Stop::No
    }
}

/// Result of a run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunReport {
    /// The plan as it is now.
    pub record: PlanRecord,
    /// Outcome.
    pub outcome: RunOutcome,
    /// At which step, where it did not come to the end.
    pub step: Option<String>,
    /// Failure of that step.
    pub error: Option<String>,
    /// Steps that were done in this run, in order.
    pub done: Vec<String>,
    /// Checkpoints that were taken, in order.
    pub checkpoints: Vec<CheckpointId>,
    /// Remains of the previous runner, if it died.
    pub dead: Option<DeadRun>,
    /// Warnings for users.
    pub warnings: Vec<Warning>,
    /// Crash recovery that ran before it and before its checkpoints.
    pub recovered: Recovery,
}

/// Start or continuation of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    Anew,
    Again,
}

impl CheckpointManager {
    fn drive(
        &self,
        id: &str,
        begin: Begin,
        options: &RunOptions,
        observer: &dyn RunObserver,
        progress: &dyn Progress,
    ) -> Result<RunReport, Error> {
        let mark = self.recovery_mark();
        let (_lock, dead) = self.take_plan(id)?;
        if let Some(dead) = &dead {
            observer.happened(&RunEvent::Dead(dead));
        }
        self.interrupt_stale(id)?;
        let record = self.plans().get(id)?;
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
            recovered: Recovery::default(),
        };
        match (begin, state) {
            (_, PlanState::Applied | PlanState::Cancelled) => return Err(PlanRule::Over(state).into()),
            (Begin::Again, PlanState::Done) => return Ok(report(record, RunOutcome::Done)),
            (Begin::Anew, PlanState::Ready)
            | (Begin::Again, PlanState::Running | PlanState::Paused | PlanState::Failed) => {}
            _ => return Err(Error::NotReady { id: id.to_owned(), state }),
        }
        self.recover_plan(id, progress)?;
        let record = self.with_sandbox(id, progress)?;
        let place = self.plans().workspace(&record)?;
        let mut tally =
            Tally { report: report(record, RunOutcome::Broken), looked: Instant::now(), low_on_disk: false };
        if let Some(failed) = self.answer_interrupted(id, options, (observer, progress), &mut tally)? {
            tally.report.step = Some(failed.0);
            tally.report.error = Some(failed.1);
            tally.report.outcome = RunOutcome::Failed;
            tally.report.record = self.plans().get(id)?;
            tally.report.recovered = self.recovered_since(mark);
            return Ok(tally.report);
        }
        let record = self.plans().get(id)?;
        if record.plan.state == PlanState::Done {
            // The step that was interrupted was the last one.
            (tally.report.outcome, tally.report.record) = (RunOutcome::Done, record);
            tally.report.recovered = self.recovered_since(mark);
            return Ok(tally.report);
        }
        let run = Run {
            id: RunId::from_bits(self.environment.new_id()),
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
            leases: &options.leases,
            ending: AtomicBool::new(false),
        };
        runner.tell_plan(&self.plans().get(id)?.plan);
        let halt = std::panic::catch_unwind(AssertUnwindSafe(|| runner.course(&mut tally)));
        match halt {
            Ok(halt) => {
                let report = runner.finish(halt, tally)?;
                Ok(RunReport { recovered: self.recovered_since(mark), ..report })
            }
            // A defect of this program must not cost anybody's work.
            Err(panic) => {
                let _ = runner.finish(Ok(Halt::Interrupted), tally);
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// Interrupts steps that are recorded as running. No other process runs the plan, so the record is stale: it came with a rollback
    /// to a checkpoint that was taken beside a step about to begin.
    fn interrupt_stale(&self, id: &str) -> Result<(), Error> {
        let plan = self.plans().get(id)?.plan;
        let is_stale = |step: &Step| step.state == StepState::Running && step.spec.run.is_some();
        if plan.state.is_over() || !plan.steps.iter().any(is_stale) {
            return Ok(());
        }
        let now = self.environment.now();
        self.plans().change(id, "its runner is gone", |plan| Ok(plan.interrupt(now))).map(drop)
    }
}

impl Plans<'_> {
    /// Runs a plan that has not begun, to its end or until a step fails.
    ///
    /// # Errors
    /// When another process runs it, it has begun already, or Safepoint itself fails. That a step fails is no error.
    pub fn run(
        &self,
        id: &str,
        options: &RunOptions,
        observer: &dyn RunObserver,
        progress: &dyn Progress,
    ) -> Result<RunReport, Error> {
        self.manager.drive(id, Begin::Anew, options, observer, progress)
    }

    /// Goes on with a plan that stopped: after a pause, a failure, a rollback, or the death of its runner. What is done is not done again.
    ///
    /// # Errors
    /// [`Error::StepInterrupted`] when an interrupted step has no answer; or as [`Plans::run`].
    pub fn resume(
        &self,
        id: &str,
        options: &RunOptions,
        observer: &dyn RunObserver,
        progress: &dyn Progress,
    ) -> Result<RunReport, Error> {
        self.manager.drive(id, Begin::Again, options, observer, progress)
    }

    /// Returns the output of a step so far: while it runs, or of its last attempt.
    ///
    /// # Errors
    /// When there is no such step, or its output cannot be read.
    pub fn output(&self, plan: &Plan, path: &str) -> Result<Option<Vec<u8>>, Error> {
        plan.find(path)?;
        let home = &self.manager.home;
        let failed = |source| Error::Home { path: home.path().to_owned(), source };
        match home.read_output(&plan.id, path).map_err(failed)? {
            Some(live) => Ok(Some(live)),
            None => self.printed_by(plan, path),
        }
    }

    /// Returns the kept part of a step's last output; none if it printed nothing.
    ///
    /// # Errors
    /// When there is no such step, or what it printed cannot be read.
    pub fn printed_by(&self, plan: &Plan, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let _using = self.manager.store.using()?;
        let log = plan.steps[plan.find(path)?].log;
        Ok(log.map(|log| self.manager.store.get(ObjectKind::Chunk, log)).transpose()?)
    }
}
