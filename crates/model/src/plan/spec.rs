//! Plan specification: steps, subplans, sandbox, and checkpoint milestones.
//!
//! In: a value written by hand or in code. Out: the same value if [`PlanSpec::check`] accepts it, or every
//! violated rule with its step. Its JSON form is a plan file (`docs/plan-files.md`).

use crate::checkpoint::{Phase, word_type};
use crate::{ModelError, Span};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;

/// Maximum nesting of steps: a plan inside a response stays below the 128 levels that JSON parsers allow.
pub const STEP_DEPTH_MAX: usize = 48;
/// Maximum number of steps, including subplans.
pub const STEPS_MAX: usize = 100_000;
/// Maximum nesting of a context value.
pub const CONTEXT_DEPTH_MAX: usize = 32;
/// Maximum number of reported problems.
pub const PROBLEMS_MAX: usize = 100;

word_type! {
    /// Working folder of the steps.
    #[derive(Default)]
    SandboxKind, "sandbox", {
        /// The workspace itself.
        #[default]
        InPlace = "in-place",
        /// A private copy; its result is applied on request.
        Copy = "copy",
        /// An overlay at the project's own path; its result is applied on request. A copy where no overlay can be mounted.
        Overlay = "overlay",
    }
}

word_type! {
    /// Event of a plan at which a checkpoint is taken (R2.2).
    Milestone, "milestone", {
        /// Before each step.
        BeforeStep = "before_step",
        /// After each successful step.
        AfterStep = "after_step",
        /// Before a step marked as risky.
        BeforeRisky = "before_risky",
        /// At the start of a subplan.
        BeforeSubplan = "before_subplan",
        /// After a completed subplan.
        AfterSubplan = "after_subplan",
        /// After a failed step.
        OnError = "on_error",
        /// After the last step of a phase.
        PhaseComplete = "phase_complete",
    }
}

word_type! {
    /// Treatment of a step whose runner died.
    #[derive(Default)]
    OnInterrupt, "choice for an interrupted step", {
        /// Run it again.
        Rerun = "rerun",
        /// Mark it as failed.
        Fail = "fail",
        /// Count it as done.
        Done = "done",
        /// Ask the user. Without a terminal its check decides: done if it passes, run again if it fails. An idempotent step runs again.
        /// Any other step is reported as interrupted and waits for a decision.
        #[default]
        Ask = "ask",
    }
}

/// Rules for automatic checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Milestones {
    /// At these events; may be empty.
    pub on: BTreeSet<Milestone>,
    /// Also after this much time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// Also after this many steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_steps: Option<u64>,
}

impl Default for Milestones {
    /// Before each step, after each subplan, and on an error.
    fn default() -> Self {
        let on = [Milestone::BeforeStep, Milestone::AfterSubplan, Milestone::OnError];
        Self { on: BTreeSet::from(on), ..Self::none() }
    }
}

impl Milestones {
    /// Takes no automatic checkpoint.
    pub const fn none() -> Self {
        Self { on: BTreeSet::new(), every: None, every_steps: None }
    }

    /// Returns true if this event is included.
    pub fn has(&self, milestone: Milestone) -> bool {
        self.on.contains(&milestone)
    }
}

/// Plan as specified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// Title for people.
    pub title: String,
    /// Id, a slug ([`is_slug`]); generated if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Working folder of its steps.
    #[serde(default, with = "sandbox_table")]
    pub sandbox: SandboxKind,
    /// Rules for automatic checkpoints.
    #[serde(default)]
    pub checkpoints: Milestones,
    /// Steps, in this order.
    #[serde(default)]
    pub steps: Vec<StepSpec>,
    /// Values for the steps: keys with JSON values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, Value>,
}

/// Step, or a subplan if it contains steps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Name among its siblings, a slug ([`is_slug`]).
    pub id: String,
    /// Title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Shell command that performs it. Without a command and without steps it is done outside the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Command that verifies it; in a subplan, after its last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
    /// Command that undoes its effects outside the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// True if it is likely to fail.
    #[serde(default, skip_serializing_if = "is_default")]
    pub risky: bool,
    /// Maximum duration; a longer run fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Maximum number of retries after a failure.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
    /// Treatment if its runner dies.
    #[serde(default)]
    pub on_interrupt: OnInterrupt,
    /// True if it may run twice: then it runs again when its runner dies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub idempotent: bool,
    /// Phase of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Maximum number of its steps that run in parallel [default: 1].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    /// Environment variables for its commands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Steps that it contains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepSpec>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The sandbox is a table with a `kind`, so that keys can be added later.
mod sandbox_table {
    use super::{Deserialize, Deserializer, SandboxKind, Serialize, Serializer};

    #[derive(Default, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Table {
        kind: SandboxKind,
    }

    pub(super) fn serialize<S: Serializer>(kind: &SandboxKind, serializer: S) -> Result<S::Ok, S::Error> {
        Table { kind: *kind }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SandboxKind, D::Error> {
        Table::deserialize(deserializer).map(|table| table.kind)
    }
}

impl StepSpec {
    /// Creates a step with this name and defaults.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }
}

/// Returns true if a text can name a plan or a step: 1 to 64 of `a-z`, `0-9`, `.`, `_` and `-`, beginning
/// with a letter or a digit.
pub fn is_slug(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 64
        && bytes.first().is_some_and(|byte| word(*byte))
        && bytes.iter().all(|byte| word(*byte) || b"._-".contains(byte))
}

/// Returns true if a text can name an environment variable of a step. Names reserved for Safepoint are
/// refused.
pub fn is_env_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && !text.starts_with("SAFEPOINT_")
}

/// Rule that a plan violates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecProblem {
    /// Indexes of the step at each level; empty for the plan itself.
    pub at: Vec<usize>,
    /// Path of the step, such as `api/handlers`.
    pub step: String,
    /// Key, such as `timeout` or `checkpoints.every`.
    pub key: &'static str,
    /// Entry of that key, if it has entries.
    pub entry: Option<String>,
    /// Earlier step with the same name.
    pub first: Option<Vec<usize>>,
    /// Rule.
    pub why: String,
}

impl fmt::Display for SpecProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}", self.key)?;
        if let Some(entry) = &self.entry {
            write!(f, ".{}", entry.escape_debug())?;
        }
        f.write_str("`")?;
        if !self.at.is_empty() {
            write!(f, " in step `{}`", self.step)?;
        }
        write!(f, ": {}", self.why)
    }
}

impl PlanSpec {
    /// Creates a plan with this title and defaults.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            id: None,
            sandbox: SandboxKind::default(),
            checkpoints: Milestones::default(),
            steps: Vec::new(),
            context: BTreeMap::new(),
        }
    }

    /// Checks every rule.
    ///
    /// # Errors
    /// The violated rules, in the order of the steps, at most [`PROBLEMS_MAX`].
    pub fn check(&self) -> Result<(), Vec<SpecProblem>> {
        let mut check = Check::default();
        check.plan(self);
        check.steps(&self.steps);
        if check.problems.is_empty() { Ok(()) } else { Err(check.problems) }
    }
}

/// Check of a plan, at its current step.
#[derive(Default)]
struct Check<'s> {
    problems: Vec<SpecProblem>,
    at: Vec<usize>,
    ids: Vec<&'s str>,
    steps_seen: usize,
}

const SLUG: &str = "a name must have 1 to 64 of the characters a-z, 0-9, `.`, `_` and `-`, and begin with a letter or a digit";
const SOME_TIME: &str = "must be at least 1s";

impl<'s> Check<'s> {
    fn report(&mut self, key: &'static str, why: impl Into<String>) {
        self.report_entry(key, None, why);
    }

    fn report_entry(&mut self, key: &'static str, entry: Option<&str>, why: impl Into<String>) {
        if self.is_enough() {
            return;
        }
        self.problems.push(SpecProblem {
            at: self.at.clone(),
            step: self.path(),
            key,
            entry: entry.map(str::to_owned),
            first: None,
            why: why.into(),
        });
    }

    fn is_enough(&self) -> bool {
        self.problems.len() >= PROBLEMS_MAX || self.steps_seen > STEPS_MAX
    }

    /// Returns the path of the current step; a step without a valid name is numbered.
    fn path(&self) -> String {
        let name = |(id, index): (&&str, &usize)| match is_slug(id) {
            true => (*id).to_owned(),
            false => format!("#{}", index + 1),
        };
        self.ids.iter().zip(&self.at).map(name).collect::<Vec<_>>().join("/")
    }

    fn plan(&mut self, plan: &PlanSpec) {
        self.text("title", Some(&plan.title), "the title is empty");
        if plan.id.as_deref().is_some_and(|id| !is_slug(id)) {
            self.report("id", SLUG);
        }
        if plan.checkpoints.every == Some(Span::ZERO) {
            self.report("checkpoints.every", SOME_TIME);
        }
        if plan.checkpoints.every_steps == Some(0) {
            self.report("checkpoints.every_steps", "must be at least 1");
        }
        for (key, value) in &plan.context {
            if key.is_empty() || key.contains('\0') {
                self.report_entry("context", Some(key), "a key must not be empty or contain NUL");
            }
            if !is_shallow(value, CONTEXT_DEPTH_MAX) {
                let why = format!("values may nest at most {CONTEXT_DEPTH_MAX} levels deep");
                self.report_entry("context", Some(key), why);
            }
        }
    }

    fn steps(&mut self, steps: &'s [StepSpec]) {
        if self.at.len() >= STEP_DEPTH_MAX && !steps.is_empty() {
            return self.report("steps", format!("steps may nest at most {STEP_DEPTH_MAX} levels deep"));
        }
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, step) in steps.iter().enumerate() {
            if self.is_enough() {
                return;
            }
            self.at.push(index);
            self.ids.push(&step.id);
            if self.steps_seen == STEPS_MAX {
                self.report("steps", format!("a plan may have at most {STEPS_MAX} steps"));
            }
            self.steps_seen += 1;
            if let Some(first) = seen.get(step.id.as_str()) {
                self.twice(*first);
            } else {
                seen.insert(&step.id, index);
            }
            self.step(step);
            self.steps(&step.steps);
            self.ids.pop();
            self.at.pop();
        }
    }

    fn twice(&mut self, first: usize) {
        let before = self.problems.len();
        self.report("id", "a sibling step has the same name");
        if let (Some(problem), Some((_, above))) = (self.problems.get_mut(before), self.at.split_last()) {
            problem.first = Some(above.iter().copied().chain([first]).collect());
        }
    }

    fn step(&mut self, step: &StepSpec) {
        if !is_slug(&step.id) {
            self.report("id", SLUG);
        }
        self.text("title", step.title.as_ref(), "the title is empty");
        self.text("run", step.run.as_ref(), "the command is empty");
        self.text("verify", step.verify.as_ref(), "the command is empty");
        self.text("undo", step.undo.as_ref(), "the command is empty");
        if step.run.is_some() && !step.steps.is_empty() {
            self.report("run", "a step runs a command or contains steps, not both");
        }
        if step.timeout == Some(Span::ZERO) {
            self.report("timeout", SOME_TIME);
        }
        match step.parallel {
            Some(_) if step.steps.is_empty() => {
                self.report("parallel", "only a step that contains steps can run them in parallel");
            }
            Some(0) => self.report("parallel", "must be at least 1"),
            _ => {}
        }
        for (name, value) in &step.env {
            if name.starts_with("SAFEPOINT_") {
                self.report_entry("env", Some(name), "variables that begin with SAFEPOINT_ are reserved");
            } else if !is_env_name(name) {
                self.report_entry(
                    "env",
                    Some(name),
                    "a variable name has letters, digits and `_`, and does not begin with a digit",
                );
            }
            if value.contains('\0') {
                self.report_entry("env", Some(name), "text must not contain NUL");
            }
        }
    }

    fn text(&mut self, key: &'static str, text: Option<&String>, if_empty: &str) {
        match text {
            Some(text) if text.trim().is_empty() => self.report(key, if_empty),
            Some(text) if text.contains('\0') => self.report(key, "text must not contain NUL"),
            _ => {}
        }
    }
}

/// Returns true if lists and objects nest at most this deep.
pub(crate) fn is_shallow(value: &Value, depth_max: usize) -> bool {
    match (value, depth_max) {
        (Value::Array(_) | Value::Object(_), 0) => false,
        (Value::Array(items), depth) => items.iter().all(|item| is_shallow(item, depth - 1)),
        (Value::Object(map), depth) => map.values().all(|item| is_shallow(item, depth - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
