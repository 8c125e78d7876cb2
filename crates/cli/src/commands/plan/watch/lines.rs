//! A run told line by line: which step begins, what it prints, how it ends, which checkpoints are taken.

use super::about;
use crate::commands::plan::look::sign;
use crate::render::output::Printer;
use crate::render::terminal::{printable, took};
use safepoint::RunEvent;
use safepoint::model::plan::state::StepState;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A line that does not end is told in pieces of this length.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Tells a run.
pub(super) struct Lines<'a> {
    out: &'a Printer,
    seen: Mutex<Seen>,
}

/// State seen so far.
#[derive(Default)]
struct Seen {
    /// Titles of steps.
    titles: BTreeMap<String, String>,
    /// When steps and subplans began.
    began: BTreeMap<String, Instant>,
    /// Running steps, each with its unfinished last line.
    under_way: BTreeMap<String, Vec<u8>>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(out: &'a Printer) -> Self {
        Self { out, seen: Mutex::default() }
    }

    /// The run is over. What was stopped has no end of its own.
    pub(super) fn finish(&self) {
        let mut seen = self.seen();
        for (step, rest) in std::mem::take(&mut seen.under_way) {
            self.quote(&seen, &step, &rest);
            let time = seen.began.get(&step).map(|began| took(began.elapsed())).unwrap_or_default();
            self.say(&format!(
                "{} {}  stopped after {time}",
                self.sign(StepState::Interrupted),
                printable(&step)
            ));
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sign(&self, state: StepState) -> String {
        sign(self.out.colours, state)
    }

    /// A line about the run.
    fn say(&self, line: &str) {
        self.out.remark(line);
        self.out.flush();
    }

    fn begins(&self, seen: &mut Seen, step: &str, what: &str) {
        let now = Instant::now();
        // A subplan begins with the first of its steps.
        let above = step.match_indices('/').map(|(at, _)| &step[..at]);
        for path in above.chain([step]) {
            seen.began.entry(path.to_owned()).or_insert(now);
        }
        seen.under_way.entry(step.to_owned()).or_default();
        let title =
            seen.titles.get(step).map(|title| format!("  {}", self.out.colours.dim(printable(title))));
        let title = title.unwrap_or_default();
        self.say(&format!("{} {}{what}{title}", self.sign(StepState::Running), printable(step)));
    }

    fn ends(&self, seen: &mut Seen, step: &str, state: StepState, how: &str) {
        if let Some(rest) = seen.under_way.remove(step) {
            self.quote(seen, step, &rest);
        }
        let time = seen.began.remove(step).map(|began| took(began.elapsed()));
        let (word, between, error) = match state {
            StepState::Done => ("done", "in", String::new()),
            _ => ("failed", "after", format!(": {}", self.out.colours.red(printable(how)))),
        };
        // A step that had been done before was not seen to begin.
        let time = time.map(|time| format!(" {between} {time}")).unwrap_or_default();
        self.say(&format!("{} {}  {word}{time}{error}", self.sign(state), printable(step)));
    }

    fn printed(&self, seen: &mut Seen, step: &str, bytes: &[u8]) {
        if self.out.is_json() {
            self.out.aside(bytes);
            return;
        }
        let mut open = seen.under_way.remove(step).unwrap_or_default();
        open.extend_from_slice(bytes);
        let mut rest = open.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end + 1);
            self.quote(seen, step, line);
            rest = after;
        }
        if rest.len() > LINE_BYTES_MAX {
            self.quote(seen, step, rest);
            rest = &[];
        }
        seen.under_way.insert(step.to_owned(), rest.to_vec());
        self.out.flush();
    }

    /// A line that a step printed; with its name, where several run side by side.
    fn quote(&self, seen: &Seen, step: &str, line: &[u8]) {
        if line.is_empty() || self.out.quiet {
            return;
        }
        let alone = seen.under_way.keys().all(|other| other == step);
        let who = if alone { String::new() } else { format!("{}: ", printable(step)) };
        self.out.quoted_line(&format!("    {who}"), line);
    }

    pub(super) fn happened(&self, event: &RunEvent<'_>) {
        let mut seen = self.seen();
        match event {
            RunEvent::Plan(plan) => {
                let titled =
                    plan.steps.iter().filter_map(|step| Some((step.path.clone(), step.spec.title.clone()?)));
                seen.titles = titled.collect();
            }
            RunEvent::Dead(dead) => self.out.note(format!("{}.", about(dead))),
            RunEvent::StepBegins(step) => self.begins(&mut seen, step, ""),
            RunEvent::Verifies(step) => self.begins(&mut seen, step, "  verify"),
            RunEvent::Printed(step, bytes) => self.printed(&mut seen, step, bytes),
            RunEvent::TriesAgain { step, attempt, error } => {
                if let Some(rest) = seen.under_way.insert((*step).to_owned(), Vec::new()) {
                    self.quote(&seen, step, &rest);
                }
                let (sign, error) = (self.sign(StepState::Failed), printable(error));
                self.say(&format!("{sign} {}  attempt {attempt} failed: {error}", printable(step)));
            }
            RunEvent::Done(step) => self.ends(&mut seen, step, StepState::Done, ""),
            RunEvent::Failed(step, error) => self.ends(&mut seen, step, StepState::Failed, error),
            RunEvent::Checkpoint(created) => {
                let label = created.checkpoint.label.as_deref().map(printable).unwrap_or_default();
                let id = created.checkpoint.id;
                self.say(&self.out.colours.dim(format!("    checkpoint {id} \"{label}\"")));
            }
        }
    }
}
