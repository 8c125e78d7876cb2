//! Transitions of a plan: steps start, end, fail and are interrupted, and subplans with them.

use super::happening::Happening;
use super::rule::PlanRule;
use super::state::{Plan, PlanState, Step, StepState, ancestors};
use crate::Timestamp;
use serde_json::Value;

/// Condition for ending a subplan with its last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Climb {
    /// Always.
    All,
    /// Only without a verify command.
    UntilVerify,
}

impl Plan {
    /// Starts a step.
    ///
    /// # Errors
    /// When it may not start; see [`PlanRule`].
    pub fn start(&mut self, path: &str, now: Timestamp) -> Result<Vec<Happening>, PlanRule> {
        let happened = self.starts(path)?;
        if self.state != PlanState::Running {
            self.go(PlanState::Running)?;
        }
        for above in ancestors(path).map(str::to_owned).collect::<Vec<_>>() {
            let at = self.find(&above)?;
            if self.steps[at].state != StepState::Running {
                self.begin(at, now);
            }
        }
        let at = self.find(path)?;
        self.begin(at, now);
        Ok(happened)
    }

    fn begin(&mut self, at: usize, now: Timestamp) {
        let step = &mut self.steps[at];
        step.state = StepState::Running;
        step.attempts += 1;
        step.started_at = Some(now);
        step.finished_at = None;
        step.error = None;
        step.output = None;
        step.log = None;
        step.skipped = None;
    }

    /// Retries a failed step that has not ended.
    ///
    /// # Errors
    /// When it is not running.
    pub fn retry(&mut self, path: &str) -> Result<(), PlanRule> {
        let at = self.find(path)?;
        match self.steps[at].state {
            StepState::Running => self.steps[at].attempts += 1,
            from => {
                let path = path.to_owned();
                return Err(PlanRule::StepTransition { path, from, to: StepState::Running });
            }
        }
        Ok(())
    }

    fn running(&self, path: &str, to: StepState) -> Result<usize, PlanRule> {
        self.not_over()?;
        let at = self.find(path)?;
        if self.has_below(at) {
            return Err(PlanRule::Subplan { path: path.to_owned() });
        }
        match self.steps[at].state {
            // The user may know how an interrupted step ended.
            StepState::Running | StepState::Interrupted => Ok(at),
            from => Err(PlanRule::StepTransition { path: path.to_owned(), from, to }),
        }
    }

    /// Ends a step successfully, and with it the subplans that it completes, and possibly the plan.
    ///
    /// # Errors
    /// When it was not running.
    pub fn finish(
        &mut self,
        path: &str,
        output: Option<Value>,
        now: Timestamp,
    ) -> Result<Vec<Happening>, PlanRule> {
        self.end_well(path, output, now, Climb::All)
    }

    /// Does the same, but a subplan with a verify command is not done before that command succeeds: see
    /// [`Plan::to_verify`].
    ///
    /// # Errors
    /// When it was not running.
    pub fn finish_unverified(
        &mut self,
        path: &str,
        output: Option<Value>,
        now: Timestamp,
    ) -> Result<Vec<Happening>, PlanRule> {
        self.end_well(path, output, now, Climb::UntilVerify)
    }

    fn end_well(
        &mut self,
        path: &str,
        output: Option<Value>,
        now: Timestamp,
        climb: Climb,
    ) -> Result<Vec<Happening>, PlanRule> {
        let at = self.running(path, StepState::Done)?;
        self.end(at, StepState::Done, now);
        self.steps[at].output = output;
        self.steps[at].error = None;
        let mut happened = vec![Happening::StepDone { path: path.to_owned() }];
        happened.extend(self.phase_done(at));
        self.climb(path, now, climb, &mut happened)?;
        Ok(happened)
    }

    /// Ends the completed subplans around a step, and the plan.
    fn climb(
        &mut self,
        path: &str,
        now: Timestamp,
        climb: Climb,
        happened: &mut Vec<Happening>,
    ) -> Result<(), PlanRule> {
        let above: Vec<String> = ancestors(path).map(str::to_owned).collect();
        for above in above.into_iter().rev() {
            let at = self.find(&above)?;
            if !self.all_done_below(&above) {
                self.calm(at);
                continue;
            }
            if climb == Climb::UntilVerify && self.steps[at].spec.verify.is_some() {
                break;
            }
            self.end(at, StepState::Done, now);
            self.steps[at].error = None;
            happened.push(Happening::SubplanDone { path: above });
            happened.extend(self.phase_done(at));
        }
        if self.steps.iter().all(|step| step.state == StepState::Done) {
            if !self.state.may_become(PlanState::Done) {
                self.go(PlanState::Running)?;
            }
            self.go(PlanState::Done)?;
            happened.push(Happening::PlanDone);
        }
        Ok(())
    }

    /// The same, where a subplan with a check is not done before that passes.
    pub(super) fn climb_unverified(
        &mut self,
        path: &str,
        now: Timestamp,
        happened: &mut Vec<Happening>,
    ) -> Result<(), PlanRule> {
        self.climb(path, now, Climb::UntilVerify, happened)
    }

    /// Clears the interrupted state of subplans without an interrupted step.
    fn calm(&mut self, at: usize) {
        let path = self.steps[at].path.clone();
        let still = |step: &Step| step.is_below(&path) && step.state == StepState::Interrupted;
        let leaf = |at: usize| !self.has_below(at);
        if self.steps[at].state == StepState::Interrupted
            && !(0..self.steps.len()).any(|below| leaf(below) && still(&self.steps[below]))
        {
            self.steps[at].state = StepState::Running;
        }
    }

    pub(super) fn all_done_below(&self, path: &str) -> bool {
        let mut below = self.steps.iter().filter(|step| step.parent() == Some(path));
        below.all(|step| step.state == StepState::Done)
    }

    /// Returns the subplans whose steps are all done and whose verify command must run now.
    pub fn to_verify(&self) -> Vec<&str> {
        let waits = |at: &usize| {
            let step = &self.steps[*at];
            self.has_below(*at) && step.state != StepState::Done && self.all_done_below(&step.path)
        };
        (0..self.steps.len()).filter(waits).map(|at| self.steps[at].path.as_str()).collect()
    }

    fn waiting(&self, path: &str, to: StepState) -> Result<usize, PlanRule> {
        self.not_over()?;
        let at = self.find(path)?;
        match self.to_verify().contains(&path) {
            true => Ok(at),
            false => Err(PlanRule::StepTransition { path: path.to_owned(), from: self.steps[at].state, to }),
        }
    }

    /// Records that the verify command of a subplan succeeded: it is done.
    ///
    /// # Errors
    /// When not all of its steps are done, or it is done already.
    pub fn verified(&mut self, path: &str, now: Timestamp) -> Result<Vec<Happening>, PlanRule> {
        let at = self.waiting(path, StepState::Done)?;
        self.end(at, StepState::Done, now);
        self.steps[at].error = None;
        let mut happened = vec![Happening::SubplanDone { path: path.to_owned() }];
        happened.extend(self.phase_done(at));
        self.climb(path, now, Climb::UntilVerify, &mut happened)?;
        Ok(happened)
    }

    /// Records that the verify command of a subplan failed.
    ///
    /// # Errors
    /// As for [`Plan::verified`].
    pub fn refuted(&mut self, path: &str, error: &str, now: Timestamp) -> Result<Vec<Happening>, PlanRule> {
        let at = self.waiting(path, StepState::Failed)?;
        Ok(self.end_badly(at, error, now))
    }

    /// A phase ends with its last step.
    fn phase_done(&self, at: usize) -> Option<Happening> {
        let phase = self.steps[at].spec.phase?;
        let mut of_phase = self.steps.iter().filter(|step| step.spec.phase == Some(phase));
        of_phase.all(|step| step.state == StepState::Done).then_some(Happening::PhaseDone { phase })
    }

    fn end(&mut self, at: usize, state: StepState, now: Timestamp) {
        let step = &mut self.steps[at];
        step.state = state;
        step.finished_at = Some(now);
    }

    /// Fails a step, and with it the subplans around it, and the plan.
    ///
    /// # Errors
    /// When it was not running.
    pub fn fail(&mut self, path: &str, error: &str, now: Timestamp) -> Result<Vec<Happening>, PlanRule> {
        let at = self.running(path, StepState::Failed)?;
        Ok(self.end_badly(at, error, now))
    }

    fn end_badly(&mut self, at: usize, error: &str, now: Timestamp) -> Vec<Happening> {
        let path = self.steps[at].path.clone();
        self.end(at, StepState::Failed, now);
        self.steps[at].error = Some(error.to_owned());
        for at in 0..self.steps.len() {
            if ancestors(&path).any(|above| above == self.steps[at].path) {
                self.end(at, StepState::Failed, now);
            }
        }
        if self.state.may_become(PlanState::Failed) {
            self.state = PlanState::Failed;
        }
        vec![Happening::StepFailed { path }]
    }

    /// Marks the steps that a dead runner was executing as interrupted: their progress is unknown. Returns
    /// these steps. Steps executed outside the runner continue.
    pub fn interrupt(&mut self, now: Timestamp) -> Vec<String> {
        let run = |at: &usize| {
            let step = &self.steps[*at];
            step.state == StepState::Running && step.spec.run.is_some()
        };
        let under_way: Vec<usize> = (0..self.steps.len()).filter(run).collect();
        let mut interrupted = Vec::new();
        for at in under_way {
            let path = self.steps[at].path.clone();
            self.steps[at].error = Some("its process ended during the step".to_owned());
            self.end(at, StepState::Interrupted, now);
            for above in 0..self.steps.len() {
                if self.steps[above].state == StepState::Running
                    && ancestors(&path).any(|it| it == self.steps[above].path)
                {
                    self.end(above, StepState::Interrupted, now);
                }
            }
            interrupted.push(path);
        }
        if self.state == PlanState::Running {
            self.state = PlanState::Paused;
        }
        interrupted
    }
}
