//! What a plan is asked to be: its steps, its subplans, its sandbox, and when checkpoints are taken.
//!
//! Comes in: a value that somebody wrote, by hand or in code. Goes out: the same value, once [`PlanSpec::check`] finds nothing
//! against it, or every rule that it breaks with the step that breaks it. As JSON it is a plan file again (`docs/plan-files.md`).

use crate::checkpoint::{Phase, word_type};
use crate::{ModelError, Span};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;

/// How deep steps nest: few enough that a plan inside of an answer stays below the 128 levels that readers of JSON allow.
pub const STEP_DEPTH_MAX: usize = 48;
/// How many steps a plan has, all subplans counted.
pub const STEPS_MAX: usize = 100_000;
/// How deep a value of the context nests.
pub const CONTEXT_DEPTH_MAX: usize = 32;
/// After so many problems the rest is not looked for.
pub const PROBLEMS_MAX: usize = 100;

word_type! {
    /// Where the steps of a plan work.
    #[derive(Default)]
    SandboxKind, "sandbox", {
        /// In the workspace itself.
        #[default]
        InPlace = "in-place",
        /// In a private copy, taken over when the plan is applied.
        Copy = "copy",
    }
}

word_type! {
    /// A moment of a plan at which a checkpoint is taken (R2.2).
    Milestone, "milestone", {
        /// Before each step.
        BeforeStep = "before_step",
        /// After each step that went well.
        AfterStep = "after_step",
        /// Before a step that is marked as risky.
        BeforeRisky = "before_risky",
        /// When a subplan starts.
        BeforeSubplan = "before_subplan",
        /// When a subplan is complete.
        AfterSubplan = "after_subplan",
        /// When a step fails.
        OnError = "on_error",
        /// When the last step of a phase is done.
        PhaseComplete = "phase_complete",
    }
}

word_type! {
    /// What becomes of a step that was under way when its runner died.
    #[derive(Default)]
    OnInterrupt, "choice for an interrupted step", {
        /// It runs again.
        Rerun = "rerun",
        /// It counts as failed.
        Fail = "fail",
        /// It is reported as interrupted, and nothing goes on until somebody says how.
        #[default]
        Ask = "ask",
    }
}

/// When checkpoints are taken by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Milestones {
    /// At these moments; at none where it is empty.
    pub on: BTreeSet<Milestone>,
    /// Also whenever this much time has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// Also after so many steps.
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
    /// No checkpoint is taken by itself.
    pub const fn none() -> Self {
        Self { on: BTreeSet::new(), every: None, every_steps: None }
    }

    /// Whether this moment is one of them.
    pub fn has(&self, milestone: Milestone) -> bool {
        self.on.contains(&milestone)
    }
}

/// A plan as it is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// What people call it.
    pub title: String,
    /// What it is to be named by; a name is made up where there is none. A slug ([`is_slug`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Where its steps work.
    #[serde(default, with = "sandbox_table")]
    pub sandbox: SandboxKind,
    /// When checkpoints are taken.
    #[serde(default)]
    pub checkpoints: Milestones,
    /// What is to be done, in this order.
    #[serde(default)]
    pub steps: Vec<StepSpec>,
    /// What the steps are told: a key and a value of JSON.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, Value>,
}

/// One step, or a subplan where it has steps of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Its name among its siblings. A slug ([`is_slug`]).
    pub id: String,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The command that does it: a line for the shell. Without one, and without steps, somebody outside does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The command that tells whether it went well; in a subplan, after the last of its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
    /// The command that takes back what it did outside of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// Whether it may well go wrong.
    #[serde(default, skip_serializing_if = "is_default")]
    pub risky: bool,
    /// It counts as failed when it takes longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How often it is tried again after it failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
    /// What becomes of it when its runner dies.
    #[serde(default)]
    pub on_interrupt: OnInterrupt,
    /// Where in the work it belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// How many of its steps may be under way at once; one after the other where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    /// Variables that its commands get.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The steps that it is made of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepSpec>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The sandbox is a table with a `kind`, so that it can say more some day.
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
    /// A step with this name, and nothing else said.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }
}

/// Whether a text can name a plan or a step: up to 64 of `a-z`, `0-9`, `.`, `_` and `-`, the first a letter or a digit.
pub fn is_slug(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 64
        && bytes.first().is_some_and(|byte| word(*byte))
        && bytes.iter().all(|byte| word(*byte) || b"._-".contains(byte))
}

/// Whether a text can name a variable that a step gets. Those of Safepoint itself are not a step's to set.
pub fn is_env_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && !text.starts_with("SAFEPOINT_")
}

/// A rule that a plan breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecProblem {
    /// Which step: its place among the plan's steps, then among that one's, and so on. Empty where it is the plan itself.
    pub at: Vec<usize>,
    /// The same in names, such as `api/handlers`.
    pub step: String,
    /// Which key of it, such as `timeout` or `checkpoints.every`.
    pub key: &'static str,
    /// Which entry of that key, where it has entries.
    pub entry: Option<String>,
    /// The step that has the same name and came first.
    pub first: Option<Vec<usize>>,
    /// The rule.
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
    /// A plan with this title, and nothing else said.
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

    /// Whether it keeps every rule.
    ///
    /// # Errors
    /// Each rule that it breaks, in the order of the steps, [`PROBLEMS_MAX`] of them at most.
    pub fn check(&self) -> Result<(), Vec<SpecProblem>> {
        let mut check = Check::default();
        check.plan(self);
        check.steps(&self.steps);
        if check.problems.is_empty() { Ok(()) } else { Err(check.problems) }
    }
}

/// The look at a plan, at one of its steps.
#[derive(Default)]
struct Check<'s> {
    problems: Vec<SpecProblem>,
    at: Vec<usize>,
    ids: Vec<&'s str>,
    steps_seen: usize,
}

const SLUG: &str =
    "a name has 1 to 64 of the characters a-z, 0-9, `.`, `_` and `-`, and begins with a letter or a digit";
const SOME_TIME: &str = "it is at least 1s";

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

    /// The step at hand in names; one that has no proper name is counted.
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
            self.report("checkpoints.every_steps", "it is at least 1");
        }
        for (key, value) in &plan.context {
            if key.is_empty() || key.contains('\0') {
                self.report_entry("context", Some(key), "a key is a text without NUL, and not empty");
            }
            if !is_shallow(value, CONTEXT_DEPTH_MAX) {
                let why = format!("a value nests at most {CONTEXT_DEPTH_MAX} deep");
                self.report_entry("context", Some(key), why);
            }
        }
    }

    fn steps(&mut self, steps: &'s [StepSpec]) {
        if self.at.len() >= STEP_DEPTH_MAX && !steps.is_empty() {
            return self.report("steps", format!("steps nest at most {STEP_DEPTH_MAX} deep"));
        }
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, step) in steps.iter().enumerate() {
            if self.is_enough() {
                return;
            }
            self.at.push(index);
            self.ids.push(&step.id);
            if self.steps_seen == STEPS_MAX {
                self.report("steps", format!("a plan has at most {STEPS_MAX} steps"));
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
        self.report("id", "another step beside it has this name");
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
            self.report("run", "a step runs a command or has steps of its own, not both");
        }
        if step.timeout == Some(Span::ZERO) {
            self.report("timeout", SOME_TIME);
        }
        match step.parallel {
            Some(_) if step.steps.is_empty() => {
                self.report("parallel", "only a step with steps of its own has some to run side by side");
            }
            Some(0) => self.report("parallel", "it is at least 1"),
            _ => {}
        }
        for (name, value) in &step.env {
            if name.starts_with("SAFEPOINT_") {
                self.report_entry(
                    "env",
                    Some(name),
                    "variables that begin with SAFEPOINT_ are set by Safepoint alone",
                );
            } else if !is_env_name(name) {
                self.report_entry(
                    "env",
                    Some(name),
                    "a variable's name is made of letters, digits and `_`, and begins with no digit",
                );
            }
            if value.contains('\0') {
                self.report_entry("env", Some(name), "a text holds no NUL");
            }
        }
    }

    fn text(&mut self, key: &'static str, text: Option<&String>, if_empty: &str) {
        match text {
            Some(text) if text.trim().is_empty() => self.report(key, if_empty),
            Some(text) if text.contains('\0') => self.report(key, "a text holds no NUL"),
            _ => {}
        }
    }
}

/// Whether lists and objects nest no deeper than this.
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
