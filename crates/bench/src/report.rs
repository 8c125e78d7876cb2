//! What a comparison found, and how it is told: a table, JSON, Markdown, plots.

pub(crate) mod markdown;
pub(crate) mod svg;
pub(crate) mod table;

use crate::failure::{Result, Tried};
use crate::machine::Machine;
use crate::numbers::Series;
use crate::works::Work;
use serde::Serialize;
use std::path::Path;

/// Everything that a comparison found. Its JSON is this value.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// What it was measured on.
    pub(crate) machine: Machine,
    /// The tree.
    pub(crate) tree: TreeFacts,
    /// How often each work was done.
    pub(crate) repeat: u32,
    /// The tools.
    pub(crate) tools: Vec<ToolFacts>,
    /// The works, each with all tools and its limit.
    pub(crate) works: Vec<WorkResult>,
    /// What the stores took on the disk.
    pub(crate) stores: Vec<StoreSize>,
    /// Whether what was put back is what was there.
    pub(crate) checks: Vec<Check>,
    /// A tiny project: flushes of Safepoint's checkpoint.
    pub(crate) flushes: Option<Flushes>,
}

/// The tree that was worked on.
#[derive(Debug, Serialize)]
pub(crate) struct TreeFacts {
    /// What it is called.
    pub(crate) name: String,
    pub(crate) files: usize,
    pub(crate) directories: usize,
    pub(crate) bytes: u64,
    /// The folder that was moved.
    pub(crate) moved: String,
    /// The folder that was deleted and put back, and how many files it has.
    pub(crate) deleted: (String, usize),
}

/// A tool that took part.
#[derive(Debug, Serialize)]
pub(crate) struct ToolFacts {
    pub(crate) name: String,
    pub(crate) version: String,
    /// What makes a checkpoint.
    pub(crate) checkpoint: String,
    /// What goes back.
    pub(crate) back: String,
    /// What it does not do.
    pub(crate) lacks: String,
    /// Why it could not go on, if it could not.
    pub(crate) failed: Option<String>,
}

/// One work by all tools.
#[derive(Debug, Serialize)]
pub(crate) struct WorkResult {
    pub(crate) work: Work,
    /// In words, with the numbers of this run.
    pub(crate) title: String,
    /// What the limit is.
    pub(crate) limit_is: String,
    pub(crate) limit: Option<Figures>,
    pub(crate) tools: Vec<ToolFigures>,
}

impl WorkResult {
    /// What a tool took.
    pub(crate) fn of(&self, tool: &str) -> Option<&ToolFigures> {
        self.tools.iter().find(|figures| figures.tool == tool)
    }
}

/// Measurements of one thing.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figures {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Each, in the order in which they were made.
    pub(crate) seconds: Vec<f64>,
}

impl Figures {
    /// The figures of a series that has any.
    pub(crate) fn of(series: &Series) -> Option<Self> {
        let ((min, max), median) = (series.spread()?, series.median()?);
        Some(Self { median, min, max, seconds: series.seconds.clone() })
    }
}

/// What one tool took for one work.
#[derive(Debug, Serialize)]
pub(crate) struct ToolFigures {
    pub(crate) tool: String,
    #[serde(flatten)]
    pub(crate) figures: Figures,
    /// The largest peak of all repetitions.
    pub(crate) peak_bytes: u64,
    /// Median to median.
    pub(crate) ratio_to_limit: Option<f64>,
}

/// What a tool's store took on the disk.
#[derive(Debug, Serialize)]
pub(crate) struct StoreSize {
    pub(crate) tool: String,
    /// After the first checkpoint.
    pub(crate) first_bytes: Option<u64>,
    /// After all works on the tree.
    pub(crate) end_bytes: Option<u64>,
    /// By how much one changed byte in a large file made it grow, in the middle.
    pub(crate) big_growth_bytes: Option<u64>,
}

/// Whether a tool put back what was there.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) tool: String,
    pub(crate) work: Work,
    pub(crate) repetition: u32,
    /// How many paths differ.
    pub(crate) differences: usize,
    /// The first of them.
    pub(crate) examples: Vec<String>,
}

/// The flushes of a checkpoint of a tiny project.
#[derive(Debug, Serialize)]
pub(crate) struct Flushes {
    /// How many Safepoint asks the kernel for.
    pub(crate) count: usize,
    /// So many small files written and flushed by a bare program.
    pub(crate) alone: Figures,
}

impl Report {
    /// Whether every tool put back what was there, and none failed.
    pub(crate) fn is_sound(&self) -> bool {
        self.checks.iter().all(|check| check.differences == 0)
            && self.tools.iter().all(|tool| tool.failed.is_none())
    }
}

/// Writes a value as JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).tried(|| "writing JSON".into())?;
    write_text(path, &(text + "\n"))
}

/// Writes a text file.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).tried(|| format!("writing {}", path.display()))
}
