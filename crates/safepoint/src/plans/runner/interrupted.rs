//! Steps that were under way when a runner died: asked about, checked, run again, or left to the user.

use super::course::Tally;
use super::{Interrupted, RunEvent, RunObserver, RunOptions};
use crate::process::{self, Job, Stop};
use crate::{CheckpointManager, Error};
use safepoint_model::Progress;
use safepoint_model::plan::spec::OnInterrupt;
use safepoint_model::plan::state::{Step, StepState};
use std::time::{Duration, Instant};

impl CheckpointManager {
    /// Decides about steps that were under way when a runner died. Returns the one that failed by that, and how.
    pub(super) fn answer_interrupted(
        &self,
        id: &str,
        options: &RunOptions,
        (observer, progress): (&dyn RunObserver, &dyn Progress),
        tally: &mut Tally,
    ) -> Result<Option<(String, String)>, Error> {
        let plan = self.plans().get(id)?.plan;
        let interrupted =
            plan.steps.iter().filter(|step| step.state == StepState::Interrupted && step.spec.run.is_some());
        let (mut answers, mut asked) = (Vec::new(), Vec::new());
        for step in interrupted {
            let said = match (options.interrupted, step.spec.on_interrupt) {
                (Some(said), _) => Some(said),
                (None, OnInterrupt::Rerun) => Some(Interrupted::Rerun),
                (None, OnInterrupt::Fail) => Some(Interrupted::Fail),
                (None, OnInterrupt::Done) => Some(Interrupted::Done),
                (None, OnInterrupt::Ask) if options.can_ask => None,
                (None, OnInterrupt::Ask) => self.judge(id, step, observer)?,
            };
            match said {
                Some(said) => answers.push((step.path.clone(), said)),
                None => asked.push(step.path.clone()),
            }
        }
        if !asked.is_empty() {
            return Err(Error::StepInterrupted { id: id.to_owned(), steps: asked });
        }
        let mut failed = None;
        for (path, said) in answers {
            match said {
                Interrupted::Done => {
                    let now = self.environment.now();
                    let what = format!("step {path} had been done");
                    self.move_plan(id, &what, |plan| plan.finish_unverified(&path, None, now))?;
                    observer.happened(&RunEvent::Done(&path));
                    tally.report.done.push(path);
                }
                Interrupted::Fail => {
                    let error = "it was interrupted".to_owned();
                    let moved = self.fail_step_by(id, &path, &error, None, progress)?;
                    tally.report.checkpoints.extend(moved.checkpoints.iter().map(|it| it.checkpoint.id));
                    failed.get_or_insert((path, error));
                }
                Interrupted::Rerun => {}
            }
        }
        Ok(failed)
    }

    /// The answer for a step without asking the user: its check decides, and an idempotent step runs again.
    fn judge(&self, id: &str, step: &Step, observer: &dyn RunObserver) -> Result<Option<Interrupted>, Error> {
        let Some(line) = &step.spec.verify else {
            return Ok(step.spec.idempotent.then_some(Interrupted::Rerun));
        };
        let record = self.plans().get(id)?;
        let place = self.plans().workspace(&record)?;
        let seat = self.seat_in(&place)?;
        let variables = self.variables_for(&record, &step.path, &seat, None)?;
        let limit = step.spec.timeout.map(|span| Duration::from_micros(span.micros()));
        observer.happened(&RunEvent::Verifies(&step.path));
        let job = Job {
            line,
            directory: &seat.directory,
            variables: &variables,
            deadline: limit.and_then(|limit| Instant::now().checked_add(limit)),
            open_files: self.settings.open_files,
            through: &seat.through,
        };
        let mut printed = |bytes: &[u8]| observer.happened(&RunEvent::Printed(&step.path, bytes));
        let passed = process::run(&job, &|| observer.stop(), &mut printed).is_ok_and(|exit| exit.is_good());
        match passed {
            true => Ok(Some(Interrupted::Done)),
            // A check that was stopped says nothing.
            false if observer.stop() != Stop::No => Ok(None),
            false => Ok(Some(Interrupted::Rerun)),
        }
    }
}
