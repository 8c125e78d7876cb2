//! GUARD: a plan that a live process runs is not changed under it, and what a dead one left is put in order first.

use crate::error::Wish;
use crate::handles::Plans;
use crate::home::{PlanLock, Share};
use crate::{CheckpointManager, CreateOptions, Error, process};
use safepoint_model::CheckpointId;
use safepoint_model::plan::run::{Run, RunOutcome};
use std::time::Duration;

/// Remains of a dead runner, after cleanup.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeadRun {
    /// Steps that were under way.
    pub interrupted: Vec<String>,
    /// Count of their live processes that were ended.
    pub ended_processes: usize,
    /// Checkpoint of the state found.
    pub checkpoint: Option<CheckpointId>,
}

impl CheckpointManager {
    /// Takes a plan in order to run it.
    pub(crate) fn take_plan(&self, id: &str) -> Result<(PlanLock, Option<DeadRun>), Error> {
        self.lock_plan(id, Share::Alone, self.settings.lock_wait, Wish::Run)
    }

    /// Ensures that no process runs a plan while it is read.
    pub(crate) fn keep_still(&self, id: &str) -> Result<PlanLock, Error> {
        self.try_lock(id, Share::WithOthers, Duration::ZERO, Wish::Change)
    }

    /// Takes a plan in order to change it as a whole.
    pub(crate) fn hold_plan(&self, id: &str) -> Result<(PlanLock, Option<DeadRun>), Error> {
        self.lock_plan(id, Share::WithOthers, Duration::ZERO, Wish::Change)
    }

    fn lock_plan(
        &self,
        id: &str,
        share: Share,
        wait: Duration,
        wish: Wish,
    ) -> Result<(PlanLock, Option<DeadRun>), Error> {
        let lock = self.try_lock(id, share, wait, wish)?;
        let dead = self.bury(id)?;
        Ok((lock, dead))
    }

    fn try_lock(&self, id: &str, share: Share, wait: Duration, wish: Wish) -> Result<PlanLock, Error> {
        self.plans().get(id)?;
        let failed = |source| Error::Home { path: self.home().to_owned(), source };
        match self.home.lock_plan(id, share, wait).map_err(failed)? {
            Some(lock) => Ok(lock),
            None => {
                let pid = self.catalog.last_run(id)?.filter(|run| run.ended_at.is_none()).map(|run| run.pid);
                Err(Error::PlanRunning { id: id.to_owned(), pid, wish })
            }
        }
    }

    /// The plan is ours, so a run without an end is one whose process died.
    fn bury(&self, id: &str) -> Result<Option<DeadRun>, Error> {
        let Some(run) = self.catalog.last_run(id)?.filter(|run| run.ended_at.is_none()) else {
            return Ok(None);
        };
        let ended_processes = process::end_leftovers(run.id);
        let now = self.environment.now();
        let interrupted = self.catalog.write::<_, Error>(|transaction| {
            let mut record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.to_owned() })?;
            let before = record.plan.clone();
            let interrupted =
                if record.plan.state.is_over() { Vec::new() } else { record.plan.interrupt(now) };
            if record.plan != before {
                transaction.save_plan(&record.plan, "the runner died", now)?;
            }
            transaction.end_run(id, run.id, RunOutcome::Killed, now)?;
            Ok(interrupted)
        })?;
        // The state it left is kept in any case. If that fails, the next operation reports why.
        let label = match interrupted.as_slice() {
            [] => "the runner died".to_owned(),
            steps => format!("the runner died during {}", steps.join(", ")),
        };
        let emergency = self.plans().checkpoint(id, &CreateOptions::emergency(label), &crate::Silent);
        let checkpoint = emergency.ok().map(|created| created.checkpoint.id);
        Ok(Some(DeadRun { interrupted, ended_processes, checkpoint }))
    }
}

impl Plans<'_> {
    /// True if a live process runs a plan.
    ///
    /// # Errors
    /// When there is no such plan, or Safepoint's home cannot be used.
    pub fn is_running(&self, id: &str) -> Result<bool, Error> {
        match self.manager.keep_still(id) {
            Ok(_) => Ok(false),
            Err(Error::PlanRunning { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Every run of a plan, oldest first.
    ///
    /// # Errors
    /// When there is no such plan, or the catalog cannot be read.
    pub fn runs(&self, id: &str) -> Result<Vec<Run>, Error> {
        self.get(id)?;
        Ok(self.manager.catalog.runs(id)?)
    }
}
