//! Tables of `attempts`, and its figures as JSON.

use super::own::{Limits, series};
use super::{COUNTS, Checks, Times};
use crate::args::Attempts;
use crate::failure::{Result, Tried};
use crate::machine::Machine;
use crate::numbers::{Series, bytes, seconds};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Goal of the start and of a result: seconds more than the limit.
const MORE_SECONDS_MAX: f64 = 0.05;
/// Goal of a keep: times the rollback.
const TIMES_MAX: f64 = 1.3;

/// Circumstances of a run.
pub(super) struct Facts<'a> {
    pub(super) ground: &'a Path,
    pub(super) tree: &'a Path,
    /// Folder that is ignored by git.
    pub(super) ignored: &'a Path,
    pub(super) skipped: &'a [String],
}

/// Row with a goal.
struct Goal {
    title: String,
    beside: String,
    pairs: (Series, Series),
    /// Difference or ratio in each repetition.
    compared: Series,
    is_ratio: bool,
}

impl Goal {
    fn new(title: String, beside: String, pairs: &[(f64, f64)], is_ratio: bool) -> Self {
        let compare = |(figure, limit): &(f64, f64)| if is_ratio { figure / limit } else { figure - limit };
        let compared = Series { seconds: pairs.iter().map(compare).collect() };
        Self { title, beside, pairs: series(pairs), compared, is_ratio }
    }

    fn is_met(&self) -> bool {
        let limit = if self.is_ratio { TIMES_MAX } else { MORE_SECONDS_MAX };
        self.compared.median().is_some_and(|median| median <= limit)
    }

    fn line(&self) -> String {
        let compared = |value: f64| match self.is_ratio {
            true => format!("{value:.2}"),
            false => format!("{}{}", if value < 0.0 { "-" } else { "" }, seconds(value.abs())),
        };
        let goal =
            if self.is_ratio { format!("{TIMES_MAX} times") } else { seconds(MORE_SECONDS_MAX) + " more" };
        format!(
            "| {} | {} | {}: {} | {} | {} | {} |",
            self.title,
            spread(&self.pairs.0, seconds),
            self.beside,
            spread(&self.pairs.1, seconds),
            spread(&self.compared, compared),
            goal,
            if self.is_met() { "met" } else { "missed" }
        )
    }

    fn json(&self) -> Value {
        json!({
            "measure": self.title, "beside": self.beside, "seconds": self.pairs.0.seconds,
            "limit_seconds": self.pairs.1.seconds, "compared": self.compared.seconds,
            "kind": if self.is_ratio { "ratio" } else { "difference" }, "met": self.is_met(),
        })
    }
}

/// Median with minimum and maximum.
fn spread(series: &Series, shown: impl Fn(f64) -> String) -> String {
    match (series.median(), series.spread()) {
        (Some(median), Some((min, max))) => format!("{} ({} to {})", shown(median), shown(min), shown(max)),
        _ => "n/a".to_owned(),
    }
}

fn goals(limits: &Limits) -> Vec<Goal> {
    let flushes = format!("its {} flushes", limits.flushes.1);
    let mut goals = vec![
        Goal::new(
            "start to the first instruction".into(),
            "checkpoint of nothing".into(),
            &limits.start,
            false,
        ),
        Goal::new(format!("result of {} edits", COUNTS[0]), flushes, &limits.result, false),
    ];
    for (count, pairs) in COUNTS.iter().zip(&limits.keep) {
        goals.push(Goal::new(format!("keep of {count} edits"), "rollback".into(), pairs, true));
    }
    goals
}

/// Prints the tables, and writes the files that were asked for.
pub(super) fn report(
    facts: &Facts<'_>,
    args: &Attempts,
    (limits, names, times): (&Limits, &[(String, &str)], &[Times]),
    checks: &Checks,
) -> Result<()> {
    let machine = Machine::this(facts.ground)?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let goals = goals(limits);
    let mut lines = vec![
        format!("Machine: {}; load at the end: {}  ", machine.words(), load.join(" ")),
        format!(
            "Tree: {}, {} files, {}; ignored by git: {}  ",
            facts.tree.file_name().unwrap_or_default().display(),
            checks.original.files().len(),
            bytes(checks.original.bytes()),
            facts.ignored.display()
        ),
        format!(
            "{} repetitions, by turns; {} flushes until the first instruction, {} from the last one to the result  ",
            args.repeat, limits.flushes.0, limits.flushes.1
        ),
        format!("{} comparisons with a plain copy: {} failed", checks.made, checks.failed.len()),
        String::new(),
        "| measure | Safepoint | limit | difference or ratio | goal | |".into(),
        "|---|---|---|---|---|---|".into(),
    ];
    lines.extend(goals.iter().map(Goal::line));
    lines.extend([
        String::new(),
        "| way | start | result of 10 edits | keep | result of 1,000 edits | keep | missing |".into(),
        "|---|---|---|---|---|---|---|".into(),
    ]);
    for ((name, lacks), times) in names.iter().zip(times) {
        let cells = [&times.start, &times.result[0], &times.keep[0], &times.result[1], &times.keep[1]];
        let cells: Vec<String> = cells.iter().map(|series| spread(series, seconds)).collect();
        lines.push(format!("| {name} | {} | {lacks} |", cells.join(" | ")));
    }
    lines.extend(facts.skipped.iter().map(|why| format!("\nSkipped: {why}")));
    let text = lines.join("\n") + "\n";
    println!("{text}");
    if let Some(path) = &args.markdown {
        fs::write(path, &text).tried(|| format!("writing {}", path.display()))?;
    }
    if let Some(path) = &args.json {
        let ways = names.iter().zip(times).map(|((name, _), times)| {
            let tasks = COUNTS.iter().enumerate().map(|(at, count)| {
                json!({ "edits": count, "result": times.result[at].seconds, "keep": times.keep[at].seconds })
            });
            json!({ "way": name, "start": times.start.seconds, "tasks": tasks.collect::<Vec<_>>() })
        });
        let report = json!({
            "machine": machine, "load": load, "files": checks.original.files().len(), "repeat": args.repeat,
            "flushes": { "start": limits.flushes.0, "result": limits.flushes.1 },
            "goals": goals.iter().map(Goal::json).collect::<Vec<_>>(), "ways": ways.collect::<Vec<_>>(),
            "skipped": facts.skipped, "checks": checks.made, "failed": checks.failed,
        });
        fs::write(path, report.to_string()).tried(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
