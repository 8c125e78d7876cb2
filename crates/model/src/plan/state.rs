//! The state of a plan, and the rules by which it changes.
//!
//! Comes in: a plan as it is, and what happened. Goes out: the plan as it is then, with what has to be noted about it; or the rule that
//! forbids it. There is no clock here: whoever calls says when it was.
//!
//! A plan is what is live: what a rollback puts back is the whole of it, so that equal states have equal hashes. What is kept for the
//! record alone (superseded decisions, invalidated subplans, errors, corrections) is not part of it.

pub use super::happening::Happening;
pub use super::rule::PlanRule;
use super::spec::{Milestones, PlanSpec, SandboxKind, StepSpec};
use crate::checkpoint::word_type;
use crate::{ModelError, ObjectId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

word_type! {
    /// Where a plan is in its life.
    PlanState, "plan state", {
        /// Being written.
        Draft = "draft",
        /// Can be run.
        Ready = "ready",
        /// Under way.
        Running = "running",
        /// Stopped, to go on later.
        Paused = "paused",
        /// A step failed.
        Failed = "failed",
        /// Every step is done.
        Done = "done",
        /// Its result was taken over; nothing changes any more.
        Applied = "applied",
        /// Given up; nothing changes any more.
        Cancelled = "cancelled",
    }
}

impl PlanState {
    /// Whether a plan may go from this state to another.
    pub fn may_become(self, next: PlanState) -> bool {
        use PlanState::{Applied, Cancelled, Done, Draft, Failed, Paused, Ready, Running};
        match (self, next) {
            (Draft, Ready)
            | (Ready | Paused | Failed, Running)
            | (Running, Paused | Failed | Done)
            | (Paused, Failed | Done)
            // A correction adds a step to what was done.
            | (Done, Paused)
            | (Done, Applied) => true,
            (from, Cancelled) => !matches!(from, Applied | Cancelled),
            _ => false,
        }
    }

    /// Whether nothing changes any more.
    pub fn is_over(self) -> bool {
        matches!(self, PlanState::Applied | PlanState::Cancelled)
    }
}

word_type! {
    /// Where a step is.
    StepState, "step state", {
        /// Not begun.
        Pending = "pending",
        /// Under way.
        Running = "running",
        /// Finished well.
        Done = "done",
        /// Finished badly.
        Failed = "failed",
        /// Its process died while it was under way: nobody knows how far it came.
        Interrupted = "interrupted",
    }
}

/// What a step is, and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The ids from the top down to it, such as `api/handlers`.
    pub path: String,
    /// What it is, without the steps below it, which follow it in the list.
    pub spec: StepSpec,
    /// Where it is.
    pub state: StepState,
    /// How often it was begun.
    pub attempts: u32,
    /// When it was last begun.
    pub started_at: Option<Timestamp>,
    /// When it last ended.
    pub finished_at: Option<Timestamp>,
    /// Why it last failed.
    pub error: Option<String>,
    /// What it gave back.
    pub output: Option<Value>,
    /// What it printed, as an object.
    pub log: Option<ObjectId>,
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
        }
    }

    /// The path of the step above it.
    pub fn parent(&self) -> Option<&str> {
        self.path.rsplit_once('/').map(|(above, _)| above)
    }

    pub(super) fn is_below(&self, path: &str) -> bool {
        self.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// A decision that was made on the way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// A ULID.
    pub id: String,
    /// What was asked.
    pub question: String,
    /// What was chosen.
    pub choice: String,
    /// What else could have been.
    pub alternatives: Vec<String>,
    /// Why.
    pub rationale: Option<String>,
    /// The decision that led to this one.
    pub parent: Option<String>,
    /// Other decisions that this one depends on.
    pub depends_on: Vec<String>,
    /// The step during which it was made.
    pub step: Option<String>,
    /// When.
    pub made_at: Timestamp,
}

/// Where a plan works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxRef {
    /// What kind of place.
    pub kind: SandboxKind,
    /// Its number in the registry of sandboxes; nothing where the plan works in the workspace itself.
    pub id: Option<String>,
}

/// A plan, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this document.
    pub format: u32,
    /// What it is called.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// Where it is.
    pub state: PlanState,
    /// When checkpoints are taken.
    pub milestones: Milestones,
    /// Where it works.
    pub sandbox: SandboxRef,
    /// Its steps, each followed by those below it.
    pub steps: Vec<Step>,
    /// Its decisions, in the order in which they were made.
    pub decisions: Vec<Decision>,
    /// What it knows.
    pub context: BTreeMap<String, Value>,
    /// What it gave.
    pub outputs: BTreeMap<String, Value>,
}

/// What a return to an earlier state takes back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TakenBack {
    /// Decisions that were made since.
    pub decisions: Vec<String>,
    /// Subplans that were begun since.
    pub subplans: Vec<String>,
    /// Steps that ended well since, newest first: what they did outside is not undone by files alone.
    pub steps: Vec<String>,
}

impl Plan {
    /// The version that is written today.
    pub const FORMAT: u32 = 1;

    /// A plan of which nothing is done.
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

    /// The plan without its lists.
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

    /// How many steps without steps of their own are done: the number of the step it is at.
    pub fn step_index(&self) -> u64 {
        let done = |at: &usize| self.steps[*at].state == StepState::Done && !self.has_below(*at);
        (0..self.steps.len()).filter(done).count() as u64
    }

    /// Whether no step failed or was interrupted.
    pub fn is_healthy(&self) -> bool {
        let fine = |step: &Step| !matches!(step.state, StepState::Failed | StepState::Interrupted);
        self.state != PlanState::Failed && self.steps.iter().all(fine)
    }

    /// The step at a path.
    ///
    /// # Errors
    /// When there is none; the rule names the nearest.
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

    /// Moves the plan to another state.
    ///
    /// # Errors
    /// When it may not go there.
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

    /// The next steps that may begin, in order: as many as may run side by side.
    pub fn next(&self) -> Vec<&str> {
        let may = |at: &usize| !self.has_below(*at) && self.may_start(*at).is_ok();
        (0..self.steps.len()).filter(may).map(|at| self.steps[at].path.as_str()).collect()
    }

    /// What begins when a step begins: the subplans around it that have not, and the step.
    ///
    /// # Errors
    /// When the step may not begin.
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
        // At each level: what comes before must be done, as far as it does not run side by side.
        for level in ancestors(&step.path).chain([step.path.as_str()]) {
            self.may_start_beside(&step.path, level)?;
        }
        Ok(())
    }

    /// Whether the steps beside `level`, which is `path` or above it, let it go on.
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
    /// When what it refers to is not there, its id is taken, or the plan is over.
    pub fn decide(&mut self, decision: Decision) -> Result<(), PlanRule> {
        self.not_over()?;
        let known = |id: &String| self.decisions.iter().any(|decision| decision.id == *id);
        if known(&decision.id) {
            return Err(PlanRule::DecisionTaken { id: decision.id });
        }
        if let Some(id) = decision.parent.iter().chain(&decision.depends_on).find(|id| !known(id)) {
            return Err(PlanRule::NoDecision { id: id.clone() });
        }
        if let Some(step) = &decision.step {
            self.find(step)?;
        }
        self.decisions.push(decision);
        Ok(())
    }

    /// Sets what the plan knows under a key, or forgets it.
    ///
    /// # Errors
    /// When the plan is over.
    pub fn set_context(&mut self, key: &str, value: Option<Value>) -> Result<(), PlanRule> {
        self.not_over()?;
        match value {
            Some(value) => self.context.insert(key.to_owned(), value),
            None => self.context.remove(key),
        };
        Ok(())
    }

    /// Sets what the plan gave under a key.
    ///
    /// # Errors
    /// When the plan is over.
    pub fn set_output(&mut self, key: &str, value: Value) -> Result<(), PlanRule> {
        self.not_over()?;
        self.outputs.insert(key.to_owned(), value);
        Ok(())
    }

    /// Adds steps behind those that are there, below a step or at the top. A plan that was done is not any more.
    ///
    /// # Errors
    /// When one of the same path is there, the step above is not, or the plan is over.
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
        // What is above was done with the steps that it had.
        for above in ancestors(&path).map(str::to_owned).collect::<Vec<_>>() {
            let at = self.find(&above)?;
            if self.steps[at].state == StepState::Done {
                self.steps[at].state = StepState::Pending;
            }
        }
        Ok(path)
    }

    /// The decision and all that depends on it, in the order in which they were made.
    ///
    /// # Errors
    /// When there is no such decision.
    pub fn depending_on(&self, id: &str) -> Result<Vec<String>, PlanRule> {
        if !self.decisions.iter().any(|decision| decision.id == id) {
            return Err(PlanRule::NoDecision { id: id.to_owned() });
        }
        let mut found = vec![id.to_owned()];
        // What a decision refers to was there before it, so one pass is enough.
        for decision in &self.decisions {
            let refers =
                decision.parent.iter().chain(&decision.depends_on).any(|other| found.contains(other));
            if refers && !found.contains(&decision.id) {
                found.push(decision.id.clone());
            }
        }
        Ok(found)
    }

    /// What going from this state back to an earlier one takes back.
    pub fn taken_back_by(&self, then: &Plan) -> TakenBack {
        let had = |id: &str| then.decisions.iter().any(|decision| decision.id == id);
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
            decisions: self.decisions.iter().filter(|it| !had(&it.id)).map(|it| it.id.clone()).collect(),
            subplans,
            steps: steps.into_iter().map(|(_, step)| step.path.clone()).collect(),
        }
    }
}

/// Each step, followed by those below it, which it no longer holds itself.
fn flatten(prefix: &str, specs: &[StepSpec], out: &mut Vec<Step>) {
    for spec in specs {
        let path = format!("{prefix}{}", spec.id);
        let alone = StepSpec { steps: Vec::new(), ..spec.clone() };
        out.push(Step::new(path.clone(), alone));
        flatten(&format!("{path}/"), &spec.steps, out);
    }
}

/// The paths above a path, from the top down.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests;
