//! A run as a live view: the tree of steps at the bottom, redrawn; what the steps print scrolls above it.
//!
//! One thread draws, ten times a second, whatever there is to show by then: a step that prints a lot does not wait for the terminal.

use super::about;
use super::cut::{Row, cut};
use crate::commands::plan::look::{leaves, sign};
use crate::render::terminal::{
    Colours, columns as columns_of, counted, harmless, one_line, printable, screen, shortened, took, verb,
};
use safepoint::model::plan::state::{Plan, Step, StepState};
use safepoint::{Activity, RunEvent};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Redraw interval.
const TICK: Duration = Duration::from_millis(100);
/// Maximum output lines shown between two redraws; more would be unreadable.
const LINES_MAX: usize = 500;
/// A line that does not end is shown in pieces of this length.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Work of the run itself that is shorter is not mentioned.
const PATIENCE: Duration = Duration::from_millis(500);
/// Letters of a checkpoint's id that are enough to tell it apart here.
const ID_LETTERS: usize = 10;

pub(super) struct Live {
    shared: Arc<Shared>,
    drawer: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    view: Mutex<View>,
    over: Condvar,
    colours: Colours,
}

/// State shown.
#[derive(Default)]
struct View {
    plan: Option<Plan>,
    /// When steps and subplans began, and how long they took.
    clocks: BTreeMap<String, Clock>,
    /// The attempt that is under way, where it is not the first.
    attempts: BTreeMap<String, u32>,
    /// The last checkpoint of each step.
    checkpoints: BTreeMap<String, String>,
    /// The last line of each step, as far as it was printed.
    open: BTreeMap<String, Vec<u8>>,
    /// Work of the run itself, its start, and its progress.
    work: Option<(Activity, Instant, u64)>,
    /// Lines that are to scroll by.
    above: Vec<String>,
    left_out: usize,
    began: Option<Instant>,
    /// Count of rows on the screen.
    drawn: usize,
    over: bool,
}

#[derive(Clone, Copy)]
struct Clock {
    began: Instant,
    took: Option<Duration>,
}

impl Live {
    pub(super) fn new(colours: Colours) -> Self {
        let shared = Arc::new(Shared { view: Mutex::default(), over: Condvar::new(), colours });
        let drawing = Arc::clone(&shared);
        let drawer = std::thread::spawn(move || drawing.keep_drawing());
        Self { shared, drawer: Mutex::new(Some(drawer)) }
    }

    /// Draws now.
    pub(super) fn settle(&self) {
        self.shared.draw(&mut self.shared.view());
    }

    /// Takes the view off the screen. Gives the tree as it is now.
    pub(super) fn finish(&self) -> Vec<String> {
        let mut view = self.shared.view();
        view.over = true;
        self.shared.over.notify_all();
        let open = std::mem::take(&mut view.open);
        open.iter().for_each(|(step, rest)| view.quote(step, rest, self.shared.colours));
        let tree = self.shared.tree(&view, screen().rows.saturating_sub(6));
        view.plan = None;
        view.work = None;
        self.shared.draw(&mut view);
        drop(view);
        let drawer = self.drawer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It only draws; there is nothing in it to fail.
        let _ = drawer.map(JoinHandle::join);
        tree
    }

    /// The run itself works on something, or has ended that.
    pub(super) fn works(&self, activity: Option<Activity>) {
        self.shared.view().work = activity.map(|activity| (activity, Instant::now(), 0));
    }

    pub(super) fn advance(&self, entries: u64) {
        if let Some((_, _, count)) = &mut self.shared.view().work {
            *count += entries;
        }
    }

    pub(super) fn happened(&self, event: &RunEvent<'_>) {
        let mut view = self.shared.view();
        let colours = self.shared.colours;
        match event {
            RunEvent::Plan(plan) => {
                view.began.get_or_insert_with(Instant::now);
                view.plan = Some((*plan).clone());
            }
            RunEvent::Dead(dead) => view.say(&format!("{}.", about(dead)), colours),
            RunEvent::StepBegins(step) | RunEvent::Verifies(step) => view.begins(step),
            RunEvent::Printed(step, bytes) => view.printed(step, bytes, colours),
            RunEvent::TriesAgain { step, attempt, error } => {
                view.attempts.insert((*step).to_owned(), attempt + 1);
                let (sign, step) = (sign(colours, StepState::Failed), printable(step));
                view.say(&format!("{sign} {step}  attempt {attempt} failed: {}", printable(error)), colours);
            }
            RunEvent::Done(step) => view.ends(step, colours),
            RunEvent::Failed(step, error) => {
                view.ends(step, colours);
                let (sign, step) = (sign(colours, StepState::Failed), printable(step));
                view.say(&format!("{sign} {step}  failed: {}", colours.red(printable(error))), colours);
            }
            RunEvent::Checkpoint(created) => {
                let label = created.checkpoint.label.as_deref().unwrap_or_default();
                let id: String = created.checkpoint.id.to_string().chars().take(ID_LETTERS).collect();
                view.taken(label, &id);
            }
        }
    }
}

impl View {
    fn say(&mut self, line: &str, colours: Colours) {
        self.above(one_line(line, colours).into_owned());
    }

    /// A line above the tree, harmless already.
    fn above(&mut self, line: String) {
        match self.above.len() < LINES_MAX {
            true => self.above.push(line),
            false => self.left_out += 1,
        }
    }

    fn begins(&mut self, step: &str) {
        let began = Instant::now();
        // A subplan begins with the first of its steps.
        let above = step.match_indices('/').map(|(at, _)| &step[..at]);
        for path in above.chain([step]) {
            let clock = self.clocks.entry(path.to_owned()).or_insert(Clock { began, took: None });
            clock.took = None;
        }
    }

    fn ends(&mut self, step: &str, colours: Colours) {
        if let Some(rest) = self.open.remove(step) {
            self.quote(step, &rest, colours);
        }
        if let Some(clock) = self.clocks.get_mut(step) {
            clock.took = Some(clock.began.elapsed());
        }
    }

    fn printed(&mut self, step: &str, bytes: &[u8], colours: Colours) {
        let mut open = self.open.remove(step).unwrap_or_default();
        open.extend_from_slice(bytes);
        let mut rest = open.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end + 1);
            self.quote(step, line, colours);
            rest = after;
        }
        if rest.len() > LINE_BYTES_MAX {
            self.quote(step, rest, colours);
            rest = &[];
        }
        self.open.insert(step.to_owned(), rest.to_vec());
    }

    fn quote(&mut self, step: &str, line: &[u8], colours: Colours) {
        if !line.is_empty() {
            let who = colours.dim(format!("{}:", printable(step)));
            self.above(format!("{who} {}", harmless(line, colours)));
        }
    }

    /// Whose checkpoint it is, its label says: it is one of ours.
    fn taken(&mut self, label: &str, id: &str) {
        let before = ["before subplan ", "after subplan ", "before ", "after ", "stopped during "];
        let named = before.iter().find_map(|prefix| label.strip_prefix(prefix));
        let named = named.or_else(|| label.strip_suffix(" failed"));
        let Some(plan) = &self.plan else { return };
        let steps: Vec<String> = match named.filter(|path| plan.find(path).is_ok()) {
            Some(path) => vec![path.to_owned()],
            None => {
                let runs = |step: &&Step| step.state == StepState::Running && step.spec.run.is_some();
                plan.steps.iter().filter(runs).map(|step| step.path.clone()).collect()
            }
        };
        self.checkpoints.extend(steps.into_iter().map(|step| (step, id.to_owned())));
    }
}

impl Shared {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_drawing(&self) {
        let mut view = self.view();
        while !view.over {
            self.draw(&mut view);
            let waited = self.over.wait_timeout(view, TICK);
            view = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes what is new above, and the tree below it, over the one that is there.
    fn draw(&self, view: &mut View) {
        let size = screen();
        let mut rows = self.tree(view, (size.rows / 2).max(4));
        rows.extend(self.summary(view, size.columns));
        let mut text = match view.drawn {
            0 => String::new(),
            drawn => format!("\r\u{1b}[{drawn}A\u{1b}[J"),
        };
        for line in view.above.drain(..) {
            text.push_str(&line);
            text.push('\n');
        }
        if view.left_out > 0 {
            let count = counted(view.left_out as u64, "line", "lines");
            text.push_str(&self.colours.dim(format!("... {count} more; `safepoint plan log` shows them\n")));
            view.left_out = 0;
        }
        for row in &rows {
            text.push_str(&one_line(row, self.colours));
            text.push('\n');
        }
        view.drawn = rows.len();
        // A failed write must not stop the run.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    fn summary(&self, view: &View, columns: usize) -> Option<String> {
        let work = view.work.filter(|(_, since, _)| since.elapsed() >= PATIENCE);
        let work = work.map(|(activity, _, count)| format!("{} {count}", verb(activity)));
        let Some(plan) = &view.plan else { return work.map(|work| shortened(&work, columns)) };
        let time = view.began.map(|began| took(began.elapsed())).unwrap_or_default();
        let done =
            format!("{} of {} done, {time}", plan.step_index(), counted(leaves(plan), "step", "steps"));
        let work = work.map(|work| format!("; {work}")).unwrap_or_default();
        Some(self.colours.dim(shortened(&format!("  {done}{work}"), columns)))
    }

    /// The steps, as many as there is room for.
    fn tree(&self, view: &View, rows_max: usize) -> Vec<String> {
        let Some(plan) = &view.plan else { return Vec::new() };
        let columns = screen().columns;
        let row = |row: &Row<'_>| match row {
            Row::More(count) => self.colours.dim(format!("  ... {count} more")),
            Row::Step(step, below) => self.row(view, step, *below, columns),
        };
        cut(plan, rows_max.max(4)).iter().map(row).collect()
    }

    fn row(&self, view: &View, step: &Step, below: usize, columns: usize) -> String {
        let indent = "    ".repeat(step.path.matches('/').count().min(8));
        let mut facts = Vec::new();
        facts.extend(step.spec.title.as_deref().map(printable));
        facts.extend((below > 0).then(|| counted(below as u64, "step", "steps")));
        let shown = !matches!(step.state, StepState::Pending);
        let clock = view.clocks.get(&step.path).filter(|_| shown);
        facts.extend(clock.map(|clock| took(clock.took.unwrap_or_else(|| clock.began.elapsed()))));
        let attempt = view.attempts.get(&step.path).copied().unwrap_or(step.attempts);
        facts.extend((attempt > 1).then(|| format!("attempt {attempt}")));
        facts.extend(view.checkpoints.get(&step.path).map(|id| format!("checkpoint {id}")));
        let name = printable(&step.spec.id);
        let used = 2 + indent.len() + 4;
        let line = shortened(&name, columns.saturating_sub(used));
        let left = columns.saturating_sub(used + columns_of(&line) + 2);
        let facts = match shortened(&facts.join("  "), left) {
            none if none.is_empty() => none,
            some => format!("  {}", self.colours.dim(some)),
        };
        format!("  {indent}{} {line}{facts}", sign(self.colours, step.state))
    }
}
