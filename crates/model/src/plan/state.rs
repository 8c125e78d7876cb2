//! State of a plan, and the rules of its transitions.
//!
//! In: a plan and an event. Out: the new plan with its notable events, or the violated rule. There is no
//! clock here: the caller passes the time.
//!
//! A plan contains only live state, all of which a rollback restores, so that equal states have equal hashes.
//! Superseded decisions, invalidated subplans, errors and corrections are recorded separately.

pub use super::happening::Happening;
pub use super::rule::PlanRule;
use super::spec::{Milestones, PlanSpec, SandboxKind, StepSpec};
use crate::checkpoint::{Phase, word_type};
use crate::id::DecisionId;
use crate::{ModelError, ObjectId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

word_type! {
    /// State of a plan.
    PlanState, "plan state", {
        /// Being written.
        Draft = "draft",
        /// Ready to run.
        Ready = "ready",
        /// Running.
        Running = "running",
        /// Stopped; can be resumed.
        Paused = "paused",
        /// A step failed.
        Failed = "failed",
        /// Every step is done.
        Done = "done",
        /// Its result was applied; final.
        Applied = "applied",
        /// Cancelled; final.
        Cancelled = "cancelled",
    }
}

impl PlanState {
    /// Returns true if a plan may change from this state to another.
    pub fn may_become(self, next: PlanState) -> bool {
        use PlanState::{Applied, Cancelled, Done, Draft, Failed, Paused, Ready, Running};
        match (self, next) {
            (Draft, Ready)
            | (Ready | Paused | Failed, Running)
            | (Running, Paused | Failed | Done)
            | (Paused, Failed | Done)
            // A correction adds a step to a done plan.
            | (Done, Paused)
            | (Done, Applied) => true,
            (from, Cancelled) => !matches!(from, Applied | Cancelled),
            _ => false,
        }
    }

    /// Returns true for a final state.
    pub fn is_over(self) -> bool {
        matches!(self, PlanState::Applied | PlanState::Cancelled)
    }
}

word_type! {
    /// State of a step.
    StepState, "step state", {
        /// Not started.
        Pending = "pending",
        /// Running.
        Running = "running",
        /// Succeeded.
        Done = "done",
        /// Failed.
        Failed = "failed",
        /// Its process died during the step: its progress is unknown.
        Interrupted = "interrupted",
    }
}

/// Step with its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Ids from the top down, such as `api/handlers`.
    pub path: String,
    /// Specification without the steps below it, which follow it in the list.
    pub spec: StepSpec,
    /// Current state.
    pub state: StepState,
    /// Number of starts.
    pub attempts: u32,
    /// Time of the last start.
    pub started_at: Option<Timestamp>,
    /// Time of the last end.
    pub finished_at: Option<Timestamp>,
    /// Last error.
    pub error: Option<String>,
    /// Output value.
    pub output: Option<Value>,
    /// Printed output, as an object.
    pub log: Option<ObjectId>,
    /// Reason why a correction skipped it. It counts as done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl Step {
    fn new(path: String, spec: StepSpec) -> Self {
        Self {
            path,
            spec,
            state: StepState::Pending,
            attempts: 0,
            started_at: None,
            finished_at: None,
            error: None,
            output: None,
            log: None,
            skipped: None,
        }
    }

    /// Returns the path of the step above it.
    pub fn parent(&self) -> Option<&str> {
        self.path.rsplit_once('/').map(|(above, _)| above)
    }

    pub(super) fn is_below(&self, path: &str) -> bool {
        self.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Decision made during a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Id.
    pub id: DecisionId,
    /// Question.
    pub question: String,
    /// Chosen answer.
    pub choice: String,
    /// Rejected answers.
    pub alternatives: Vec<String>,
    /// Rationale.
    pub rationale: Option<String>,
    /// Decision that led to this one.
    pub parent: Option<DecisionId>,
    /// Other decisions that this one depends on.
    pub depends_on: Vec<DecisionId>,
    /// Step during which it was made.
    pub step: Option<String>,
    /// Time of the decision.
    pub made_at: Timestamp,
}

/// Working folder of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxRef {
    /// Kind of sandbox.
    pub kind: SandboxKind,
    /// Id of the sandbox, or `None` if the plan works in the workspace itself.
    pub id: Option<String>,
}

/// Whole state of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this document.
    pub format: u32,
    /// Id.
    pub id: String,
    /// Title.
    pub title: String,
    /// Current state.
    pub state: PlanState,
    /// Rules for automatic checkpoints.
    pub milestones: Milestones,
    /// Working folder.
    pub sandbox: SandboxRef,
    /// Steps, each followed by those below it.
    pub steps: Vec<Step>,
    /// Decisions, in order.
    pub decisions: Vec<Decision>,
    /// Context values by key.
    pub context: BTreeMap<String, Value>,
    /// Output values by key.
    pub outputs: BTreeMap<String, Value>,
}

/// Changes that a return to an earlier state undoes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TakenBack {
    /// Decisions made since.
    pub decisions: Vec<DecisionId>,
    /// Subplans started since.
    pub subplans: Vec<String>,
    /// Steps done since, newest first: restoring files does not undo their outside effects.
    pub steps: Vec<String>,
}

impl Plan {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Creates a plan with no step started.
    pub fn new(id: String, spec: &PlanSpec) -> Self {
        let mut steps = Vec::new();
        flatten("", &spec.steps, &mut steps);
        let state = if steps.is_empty() { PlanState::Draft } else { PlanState::Ready };
        Self {
            format: Self::FORMAT,
            id,
            title: spec.title.clone(),
            state,
            milestones: spec.checkpoints.clone(),
            sandbox: SandboxRef { kind: spec.sandbox, id: None },
            steps,
            decisions: Vec::new(),
            context: spec.context.clone(),
            outputs: BTreeMap::new(),
        }
    }

    /// Plan without its lists.
    #[must_use]
    pub fn head(&self) -> Plan {
        Plan {
            format: self.format,
            id: self.id.clone(),
            title: self.title.clone(),
            state: self.state,
            milestones: self.milestones.clone(),
            sandbox: self.sandbox.clone(),
            steps: Vec::new(),
            decisions: Vec::new(),
            context: BTreeMap::new(),
            outputs: BTreeMap::new(),
        }
    }

    /// Returns the number of done steps that contain no steps: the index of the current step.
    pub fn step_index(&self) -> u64 {
        let done = |at: &usize| self.steps[*at].state == StepState::Done && !self.has_below(*at);
        (0..self.steps.len()).filter(done).count() as u64
    }

    /// The phase of the work: that of the step that runs, else of the last one that ended.
    pub fn phase(&self) -> Option<Phase> {
        let known = || self.steps.iter().filter(|step| step.spec.phase.is_some());
        let running = known().find(|step| step.state == StepState::Running);
        let ended = || known().rev().find(|step| step.state != StepState::Pending);
        running.or_else(ended)?.spec.phase
    }

    /// Returns true if no step failed or was interrupted.
    pub fn is_healthy(&self) -> bool {
        let fine = |step: &Step| !matches!(step.state, StepState::Failed | StepState::Interrupted);
        self.state != PlanState::Failed && self.steps.iter().all(fine)
    }

    /// Returns the index of the step at a path.
    ///
    /// # Errors
    /// When it is unknown; the rule names the nearest.
    pub fn find(&self, path: &str) -> Result<usize, PlanRule> {
        self.steps.iter().position(|step| step.path == path).ok_or_else(|| PlanRule::NoStep {
            path: path.to_owned(),
            nearest: self
                .steps
                .iter()
                .filter(|step| step.path.ends_with(&format!("/{path}")))
                .map(|step| step.path.clone())
                .next(),
        })
    }

    pub(super) fn has_below(&self, at: usize) -> bool {
        self.steps.get(at + 1).is_some_and(|next| next.is_below(&self.steps[at].path))
    }

    /// Changes the state of the plan.
    ///
    /// # Errors
    /// When the transition is not allowed.
    pub fn go(&mut self, next: PlanState) -> Result<(), PlanRule> {
        if !self.state.may_become(next) {
            return Err(match self.state.is_over() {
                true => PlanRule::Over(self.state),
                false => PlanRule::Transition { from: self.state, to: next },
            });
        }
        let open = self.steps.iter().find(|step| step.state != StepState::Done);
        if let (PlanState::Done, Some(step)) = (next, open) {
            return Err(PlanRule::Open { path: step.path.clone(), state: step.state });
        }
        self.state = next;
        Ok(())
    }

    pub(super) fn not_over(&self) -> Result<(), PlanRule> {
        if self.state.is_over() { Err(PlanRule::Over(self.state)) } else { Ok(()) }
    }

    /// Returns the next steps that may start, in order, up to the allowed parallelism.
    pub fn next(&self) -> Vec<&str> {
        let may = |at: &usize| !self.has_below(*at) && self.may_start(*at).is_ok();
        (0..self.steps.len()).filter(may).map(|at| self.steps[at].path.as_str()).collect()
    }

    /// Returns the events of starting a step: the pending subplans around it, and the step.
    ///
    /// # Errors
    /// When the step may not start.
    pub fn starts(&self, path: &str) -> Result<Vec<Happening>, PlanRule> {
        let at = self.find(path)?;
        self.may_start(at)?;
        let step = &self.steps[at];
        let mut begin: Vec<Happening> = ancestors(path)
            .filter(|above| self.state_of(above) == Some(StepState::Pending))
            .map(|above| Happening::SubplanStarts { path: above.to_owned() })
            .collect();
        begin.push(Happening::StepStarts { path: path.to_owned(), risky: step.spec.risky });
        Ok(begin)
    }

    pub(super) fn state_of(&self, path: &str) -> Option<StepState> {
        self.steps.iter().find(|step| step.path == path).map(|step| step.state)
    }

    fn may_start(&self, at: usize) -> Result<(), PlanRule> {
        self.not_over()?;
        let step = &self.steps[at];
        if !matches!(self.state, PlanState::Running) && !self.state.may_become(PlanState::Running) {
            return Err(PlanRule::Transition { from: self.state, to: PlanState::Running });
        }
        if self.has_below(at) {
            return Err(PlanRule::Subplan { path: step.path.clone() });
        }
        if matches!(step.state, StepState::Running | StepState::Done) {
            let (path, from) = (step.path.clone(), step.state);
            return Err(PlanRule::StepTransition { path, from, to: StepState::Running });
        }
        // At each level, earlier steps must be done unless they run in parallel.
        for level in ancestors(&step.path).chain([step.path.as_str()]) {
            self.may_start_beside(&step.path, level)?;
        }
        Ok(())
    }

    /// Checks that the siblings of `level`, which is `path` or above it, allow it to start.
    fn may_start_beside(&self, path: &str, level: &str) -> Result<(), PlanRule> {
        let above = level.rsplit_once('/').map(|(above, _)| above);
        let parallel = above
            .and_then(|above| self.steps.iter().find(|step| step.path == above))
            .and_then(|step| step.spec.parallel)
            .map_or(1, |parallel| parallel as usize);
        let beside = || self.steps.iter().filter(move |step| step.parent() == above);
        let before = beside().take_while(|step| step.path != level);
        let mut open = before.filter(|step| step.state != StepState::Done);
        if parallel == 1 {
            return match open.next() {
                Some(first) => Err(PlanRule::TooEarly { path: path.to_owned(), first: first.path.clone() }),
                None => Ok(()),
            };
        }
        let running = beside().filter(|step| step.state == StepState::Running && step.path != level).count();
        match running >= parallel {
            true => Err(PlanRule::TooMany { path: path.to_owned(), running, allowed: parallel }),
            false => Ok(()),
        }
    }

    /// Adds a decision.
    ///
    /// # Errors
    /// When it refers to an unknown decision or step, its id is taken, or the plan is final.
    pub fn decide(&mut self, decision: Decision) -> Result<(), PlanRule> {
        self.not_over()?;
        let known = |id: DecisionId| self.decisions.iter().any(|decision| decision.id == id);
        if known(decision.id) {
            return Err(PlanRule::DecisionTaken { id: decision.id });
        }
        if let Some(id) = decision.parent.iter().chain(&decision.depends_on).find(|id| !known(**id)) {
            return Err(PlanRule::NoDecision { id: id.to_string() });
        }
        if let Some(step) = &decision.step {
            self.find(step)?;
        }
        self.decisions.push(decision);
        Ok(())
    }

    /// Sets or removes a context value.
    ///
    /// # Errors
    /// When the plan is final.
    pub fn set_context(&mut self, key: &str, value: Option<Value>) -> Result<(), PlanRule> {
        self.not_over()?;
        match value {
            Some(value) => self.context.insert(key.to_owned(), value),
            None => self.context.remove(key),
        };
        Ok(())
    }

    /// Sets an output value.
    ///
    /// # Errors
    /// When the plan is final.
    pub fn set_output(&mut self, key: &str, value: Value) -> Result<(), PlanRule> {
        self.not_over()?;
        self.outputs.insert(key.to_owned(), value);
        Ok(())
    }

    /// Adds steps behind the existing ones, below a step or at the top. A done plan becomes unfinished.
    ///
    /// # Errors
    /// When the path is taken, the step above is unknown, or the plan is final.
    pub fn append(&mut self, above: Option<&str>, spec: &StepSpec) -> Result<String, PlanRule> {
        self.not_over()?;
        let prefix = above.map_or_else(String::new, |above| format!("{above}/"));
        let path = format!("{prefix}{}", spec.id);
        if self.find(&path).is_ok() {
            return Err(PlanRule::StepTaken { path });
        }
        let behind = match above {
            Some(above) => {
                let at = self.find(above)?;
                let below = self.steps[at + 1..].iter().take_while(|step| step.is_below(above)).count();
                at + 1 + below
            }
            None => self.steps.len(),
        };
        let mut added = Vec::new();
        flatten(&prefix, std::slice::from_ref(spec), &mut added);
        self.steps.splice(behind..behind, added);
        match self.state {
            PlanState::Draft => self.go(PlanState::Ready)?,
            PlanState::Done => self.go(PlanState::Paused)?,
            _ => {}
        }
        self.reopen_above(&path)?;
        Ok(path)
    }

    /// Reopens the subplans above a new step: they were done with their earlier steps.
    pub(super) fn reopen_above(&mut self, path: &str) -> Result<(), PlanRule> {
        for above in ancestors(path).map(str::to_owned).collect::<Vec<_>>() {
            let at = self.find(&above)?;
            if self.steps[at].state == StepState::Done {
                self.steps[at].state = StepState::Pending;
            }
        }
        Ok(())
    }

    /// Returns the decision and all that depend on it, in order.
    ///
    /// # Errors
    /// When the decision is unknown.
    pub fn depending_on(&self, id: DecisionId) -> Result<Vec<DecisionId>, PlanRule> {
        if !self.decisions.iter().any(|decision| decision.id == id) {
            return Err(PlanRule::NoDecision { id: id.to_string() });
        }
        let mut found = vec![id];
        // A decision refers only to earlier ones, so one pass is enough.
        for decision in &self.decisions {
            let refers =
                decision.parent.iter().chain(&decision.depends_on).any(|other| found.contains(other));
            if refers && !found.contains(&decision.id) {
                found.push(decision.id);
            }
        }
        Ok(found)
    }

    /// Returns the changes that a return to an earlier state undoes.
    pub fn taken_back_by(&self, then: &Plan) -> TakenBack {
        let had = |id: DecisionId| then.decisions.iter().any(|decision| decision.id == id);
        let was = |path: &str| then.state_of(path).unwrap_or(StepState::Pending);
        let mut steps: Vec<(Option<Timestamp>, &Step)> = Vec::new();
        let mut subplans = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            if self.has_below(at) {
                if step.state != StepState::Pending && was(&step.path) == StepState::Pending {
                    subplans.push(step.path.clone());
                }
            } else if step.state != StepState::Pending && was(&step.path) != step.state {
                steps.push((step.finished_at.or(step.started_at), step));
            }
        }
        steps.sort_by_key(|(when, _)| std::cmp::Reverse(*when));
        TakenBack {
            decisions: self.decisions.iter().map(|it| it.id).filter(|id| !had(*id)).collect(),
            subplans,
            steps: steps.into_iter().map(|(_, step)| step.path.clone()).collect(),
        }
    }
}

/// Flattens each step, followed by those below it, which it no longer contains.
pub(super) fn flatten(prefix: &str, specs: &[StepSpec], out: &mut Vec<Step>) {
    for spec in specs {
        let path = format!("{prefix}{}", spec.id);
        let alone = StepSpec { steps: Vec::new(), ..spec.clone() };
        out.push(Step::new(path.clone(), alone));
        flatten(&format!("{path}/"), &spec.steps, out);
    }
}

/// Returns the paths above a path, from the top down.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests;
