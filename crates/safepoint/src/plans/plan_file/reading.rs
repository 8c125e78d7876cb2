//! Conversion of nodes to a plan. Keys are checked in text order, and all problems are kept, so that one run
//! reports them all.

use super::PlanFormat;
use super::error::{Place, PlanFileError, PlanFileProblem, PlanProblemKind};
use super::node::{Entry, Node, Shape};
use crate::spelling::{nearest, printable};
use safepoint_model::checkpoint::Phase;
use safepoint_model::plan::spec::{
    Milestone, Milestones, OnInterrupt, PROBLEMS_MAX, PlanSpec, SandboxKind, SpecProblem, StepSpec, is_slug,
};
use safepoint_model::{ModelError, Span};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Keys of a plan.
pub(super) const OF_PLAN: &[&str] =
    &["title", "id", "sandbox", "checkpoints", "on_interrupted", "steps", "context"];
/// Keys of `[sandbox]`.
pub(super) const OF_SANDBOX: &[&str] = &["kind"];
/// Keys of `[checkpoints]`.
pub(super) const OF_CHECKPOINTS: &[&str] = &["on", "every", "every_steps"];
/// Keys of a step.
pub(super) const OF_STEP: &[&str] = &[
    "id",
    "title",
    "run",
    "verify",
    "undo",
    "risky",
    "timeout",
    "retries",
    "on_interrupted",
    "on_interrupt",
    "idempotent",
    "phase",
    "parallel",
    "env",
    "steps",
];
/// `[[step]]` reads better in TOML, `"steps"` in JSON; both formats accept both.
const STEPS: &[&str] = &["steps", "step"];

/// Keys of a step in other tools.
const OTHER_WORDS: &[(&str, &str)] = &[
    ("command", "run"),
    ("cmd", "run"),
    ("script", "run"),
    ("exec", "run"),
    ("shell", "run"),
    ("name", "id"),
    ("description", "title"),
    ("label", "title"),
    ("test", "verify"),
    ("check", "verify"),
    ("validate", "verify"),
    ("rollback", "undo"),
    ("revert", "undo"),
    ("compensate", "undo"),
    ("attempts", "retries"),
    ("concurrency", "parallel"),
    ("environment", "env"),
    ("substeps", "steps"),
    ("subplan", "steps"),
    ("subplans", "steps"),
    ("tasks", "steps"),
    ("milestones", "checkpoints"),
];

const EXPECTED_STEPS: &str = "a list of steps, each a table: [[step]] in TOML, \"steps\": [{...}] in JSON";
const EXPECTED_COMMAND: &str = "a command as a text, such as \"make test\"";
const EXPECTED_TIME: &str = "a length of time such as \"10m\"";

/// Reads a plan and checks the rules.
pub(super) fn plan(text: &str, format: PlanFormat, root: &Node) -> Result<PlanSpec, PlanFileError> {
    let mut reader = Reader {
        text,
        format,
        problems: Vec::new(),
        path: Vec::new(),
        on_interrupted: OnInterrupt::default(),
    };
    let spec = reader.plan(root);
    if reader.problems.is_empty() {
        for problem in spec.check().err().unwrap_or_default() {
            reader.broken_rule(root, problem);
        }
    }
    if reader.problems.is_empty() {
        return Ok(spec);
    }
    reader.problems.sort_by_key(|problem| problem.place);
    Err(PlanFileError::Wrong(reader.problems))
}

struct Reader<'t> {
    text: &'t str,
    format: PlanFormat,
    problems: Vec<PlanFileProblem>,
    /// Names of the current step and its ancestors.
    path: Vec<String>,
    /// Choice for steps that name none.
    on_interrupted: OnInterrupt,
}

impl Reader<'_> {
    fn report(&mut self, at: usize, key: &str, kind: PlanProblemKind) {
        if self.problems.len() >= PROBLEMS_MAX {
            return;
        }
        let step = (!self.path.is_empty()).then(|| self.path.join("/"));
        self.problems.push(PlanFileProblem {
            place: Place::of(self.text, at),
            step,
            key: key.to_owned(),
            kind,
        });
    }

    fn wrong_type(&mut self, node: &Node, key: &str, expected: &'static str) {
        let found = match (node.type_word(), self.format) {
            ("a table", PlanFormat::Json) => "an object",
            (found, _) => found,
        };
        self.report(node.at, key, PlanProblemKind::Type { found, expected });
    }

    fn wrong_value(&mut self, node: &Node, key: &str, why: impl Into<String>) {
        self.report(node.at, key, PlanProblemKind::Value { why: why.into() });
    }

    fn twice(&mut self, at: usize, key: &str, first: usize, why: impl Into<String>) {
        let first = Some(Place::of(self.text, first));
        self.report(at, key, PlanProblemKind::Twice { first, why: why.into() });
    }

    /// Reports a broken rule of the model at its position in the text.
    fn broken_rule(&mut self, root: &Node, problem: SpecProblem) {
        let at = place_of(root, &problem.at, problem.key, problem.entry.as_deref());
        let key = match &problem.entry {
            Some(entry) => format!("{}.{}", problem.key, printable(entry)),
            None => problem.key.to_owned(),
        };
        self.path = if problem.at.is_empty() { Vec::new() } else { vec![problem.step] };
        match problem.first {
            Some(first) => self.twice(at, &key, place_of(root, &first, problem.key, None), problem.why),
            None => self.report(at, &key, PlanProblemKind::Value { why: problem.why }),
        }
    }

    fn plan(&mut self, root: &Node) -> PlanSpec {
        let mut spec = PlanSpec::new(String::new());
        let Shape::Table(entries) = &root.shape else {
            self.wrong_type(root, "plan", "an object with a title and steps");
            return spec;
        };
        if root.get(&["title"]).is_none() {
            self.report(root.at, "title", PlanProblemKind::Missing { why: "every plan has one" });
        }
        self.only_one_list_of_steps(entries);
        // It holds for the steps, wherever it stands.
        if let Some(node) = root.get(&["on_interrupted"]) {
            self.on_interrupted = self.interrupted(node, "on_interrupted");
        }
        for Entry { at, key, node } in entries {
            match key.as_str() {
                "on_interrupted" => {}
                "title" => spec.title = self.text(node, key, "a text").unwrap_or_default(),
                "id" => spec.id = self.text(node, key, "a text"),
                "sandbox" => spec.sandbox = self.sandbox(node),
                "checkpoints" => spec.checkpoints = self.checkpoints(node),
                "steps" | "step" => spec.steps = self.steps(node, key),
                "context" => spec.context = self.context(node),
                _ => self.unknown(*at, "", key, OF_PLAN),
            }
        }
        spec
    }

    fn only_one_list_of_steps(&mut self, entries: &[Entry]) {
        let mut lists = entries.iter().filter(|entry| STEPS.contains(&entry.key.as_str()));
        if let (Some(first), Some(second)) = (lists.next(), lists.next()) {
            let why = format!("it means the same as `{}`, which stands there already", first.key);
            self.twice(second.at, &second.key, first.at, why);
        }
    }

    fn sandbox(&mut self, node: &Node) -> SandboxKind {
        let mut kind = SandboxKind::default();
        for Entry { at, key, node } in self.table(node, "sandbox", "a table with a `kind`") {
            match key.as_str() {
                "kind" => {
                    let known: Vec<&str> = SandboxKind::ALL.iter().map(|word| word.as_str()).collect();
                    kind = self.word(node, "sandbox.kind", &known).unwrap_or_default();
                }
                _ => self.unknown(*at, "sandbox.", key, OF_SANDBOX),
            }
        }
        kind
    }

    fn checkpoints(&mut self, node: &Node) -> Milestones {
        let mut milestones = Milestones::default();
        for Entry { at, key, node } in
            self.table(node, "checkpoints", "a table such as { on = [\"before_step\"] }")
        {
            match key.as_str() {
                "on" => self.milestones(node, &mut milestones),
                "every" => milestones.every = self.time(node, "checkpoints.every"),
                "every_steps" => {
                    milestones.every_steps = self.number(node, "checkpoints.every_steps", u64::MAX);
                }
                _ => self.unknown(*at, "checkpoints.", key, OF_CHECKPOINTS),
            }
        }
        milestones
    }

    fn milestones(&mut self, node: &Node, milestones: &mut Milestones) {
        let key = "checkpoints.on";
        let Shape::List(items) = &node.shape else {
            return self.wrong_type(node, key, "a list of milestones, such as [\"before_step\"]");
        };
        let known: Vec<&str> = Milestone::ALL.iter().map(|word| word.as_str()).collect();
        let mut seen: BTreeMap<Milestone, usize> = BTreeMap::new();
        for item in items {
            let Some(milestone) = self.word(item, key, &known) else { continue };
            match seen.get(&milestone) {
                Some(first) => {
                    self.twice(item.at, key, *first, format!("\"{milestone}\" stands there already"));
                }
                None => drop(seen.insert(milestone, item.at)),
            }
        }
        milestones.on = seen.into_keys().collect();
    }

    fn context(&mut self, node: &Node) -> BTreeMap<String, serde_json::Value> {
        let mut context = BTreeMap::new();
        for Entry { key, node, .. } in self.table(node, "context", "a table of keys and values") {
            match node.to_json() {
                Ok(value) => drop(context.insert(key.clone(), value)),
                Err((unfit, why)) => self.wrong_value(unfit, &format!("context.{}", printable(key)), why),
            }
        }
        context
    }

    fn steps(&mut self, node: &Node, key: &str) -> Vec<StepSpec> {
        let Shape::List(items) = &node.shape else {
            self.wrong_type(node, key, EXPECTED_STEPS);
            return Vec::new();
        };
        let mut steps = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let name = match item.get(&["id"]).map(|node| &node.shape) {
                Some(Shape::Text(id)) if is_slug(id) => id.clone(),
                _ => format!("#{}", index + 1),
            };
            self.path.push(name);
            steps.push(self.step(item, key));
            self.path.pop();
        }
        steps
    }

    fn step(&mut self, node: &Node, list: &str) -> StepSpec {
        let mut step = StepSpec { on_interrupt: self.on_interrupted, ..StepSpec::default() };
        let Shape::Table(entries) = &node.shape else {
            self.wrong_type(node, list, EXPECTED_STEPS);
            return step;
        };
        if node.get(&["id"]).is_none() {
            let why = "a step has a name, such as \"migrate\"";
            self.report(node.at, "id", PlanProblemKind::Missing { why });
        }
        self.only_one_list_of_steps(entries);
        for Entry { at, key, node } in entries {
            match key.as_str() {
                "id" => step.id = self.text(node, key, "a text").unwrap_or_default(),
                "title" => step.title = self.text(node, key, "a text"),
                "run" => step.run = self.text(node, key, EXPECTED_COMMAND),
                "verify" => step.verify = self.text(node, key, EXPECTED_COMMAND),
                "undo" => step.undo = self.text(node, key, EXPECTED_COMMAND),
                "risky" => step.risky = self.choice(node, key),
                "timeout" => step.timeout = self.time(node, key),
                "retries" => step.retries = self.number(node, key, u32::MAX).unwrap_or_default(),
                "idempotent" => step.idempotent = self.choice(node, key),
                // The second is the spelling of older files.
                "on_interrupted" | "on_interrupt" => step.on_interrupt = self.interrupted(node, key),
                "phase" => {
                    let known: Vec<&str> = Phase::ALL.iter().map(|word| word.as_str()).collect();
                    step.phase = self.word(node, key, &known);
                }
                "parallel" => step.parallel = self.number(node, key, u32::MAX),
                "env" => step.env = self.env(node),
                "steps" | "step" => step.steps = self.steps(node, key),
                _ => self.unknown(*at, "", key, OF_STEP),
            }
        }
        step
    }

    fn interrupted(&mut self, node: &Node, key: &str) -> OnInterrupt {
        let known: Vec<&str> = OnInterrupt::ALL.iter().map(|word| word.as_str()).collect();
        self.word(node, key, &known).unwrap_or_default()
    }

    fn env(&mut self, node: &Node) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for Entry { key, node, .. } in self.table(node, "env", "a table of names and texts") {
            let text =
                self.text(node, &format!("env.{}", printable(key)), "a text; a number stands in quotes");
            env.insert(key.clone(), text.unwrap_or_default());
        }
        env
    }

    fn unknown(&mut self, at: usize, table: &str, key: &str, known: &'static [&'static str]) {
        let shown = printable(key);
        let name = format!("{table}{shown}");
        if known == OF_STEP && !OF_STEP.contains(&key) && OF_PLAN.contains(&key) {
            let why = "it belongs to the plan, above its first step; a step has none".to_owned();
            return self.report(at, &name, PlanProblemKind::Value { why });
        }
        let nearest = elsewhere(key, known)
            .or_else(|| other_word(key, known).map(str::to_owned))
            .or_else(|| nearest(&shown, known).map(str::to_owned));
        self.report(at, &name, PlanProblemKind::Unknown { nearest, known: known.join(", ") });
    }

    fn table<'n>(&mut self, node: &'n Node, key: &str, expected: &'static str) -> &'n [Entry] {
        match &node.shape {
            Shape::Table(entries) => entries,
            _ => {
                self.wrong_type(node, key, expected);
                &[]
            }
        }
    }

    fn text(&mut self, node: &Node, key: &str, expected: &'static str) -> Option<String> {
        match &node.shape {
            Shape::Text(text) => Some(text.clone()),
            _ => {
                self.wrong_type(node, key, expected);
                None
            }
        }
    }

    fn choice(&mut self, node: &Node, key: &str) -> bool {
        match node.shape {
            Shape::Bool(value) => value,
            _ => {
                self.wrong_type(node, key, "true or false");
                false
            }
        }
    }

    fn number<T: TryFrom<u64> + std::fmt::Display + Copy>(
        &mut self,
        node: &Node,
        key: &str,
        max: T,
    ) -> Option<T> {
        let number = match &node.shape {
            Shape::Number(number) if !number.is_f64() => number.as_u64(),
            Shape::Unfit { found: "a whole number", .. } => None,
            _ => {
                self.wrong_type(node, key, "a whole number");
                return None;
            }
        };
        let number = number.and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            self.wrong_value(node, key, format!("a number from 0 to {max} is expected"));
        }
        number
    }

    fn time(&mut self, node: &Node, key: &str) -> Option<Span> {
        let text = self.text(node, key, EXPECTED_TIME)?;
        let span = printable(&text).parse();
        span.map_err(|error: ModelError| self.wrong_value(node, key, error.to_string())).ok()
    }

    fn word<T: FromStr>(&mut self, node: &Node, key: &str, known: &[&str]) -> Option<T> {
        let text = self.text(node, key, "a word as a text")?;
        if let Ok(word) = text.parse() {
            return Some(word);
        }
        let given = printable(&text);
        let nearest = nearest(&given, known).map(str::to_owned);
        self.report(node.at, key, PlanProblemKind::Word { given, nearest, known: known.join(", ") });
        None
    }
}

/// Returns the full name of a correctly spelled key in the wrong table.
fn elsewhere(key: &str, known: &[&str]) -> Option<String> {
    let tables =
        [("", OF_PLAN), ("sandbox.", OF_SANDBOX), ("checkpoints.", OF_CHECKPOINTS), ("step.", OF_STEP)];
    let (table, _) = tables.into_iter().find(|(_, keys)| *keys != known && keys.contains(&key))?;
    Some(format!("{table}{key}"))
}

/// Returns our key for another tool's name.
fn other_word<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let (_, meant) = OTHER_WORDS.iter().find(|(other, _)| *other == key)?;
    known.iter().copied().find(|known| known == meant)
}

/// Offset of a key of a step or the plan, or of its nearest ancestor in the text.
fn place_of(root: &Node, steps: &[usize], key: &str, entry: Option<&str>) -> usize {
    let mut node = root;
    for index in steps {
        match node.get(STEPS).and_then(|list| list.item(*index)) {
            Some(step) => node = step,
            None => break,
        }
    }
    for name in key.split('.').chain(entry) {
        let names: &[&str] = if name == "steps" { STEPS } else { &[name] };
        match node.get(names) {
            Some(below) => node = below,
            None => break,
        }
    }
    node.at
}
