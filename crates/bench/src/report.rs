//! Result of a comparison, printed as a table, JSON, Markdown or plots.

pub(crate) mod markdown;
pub(crate) mod svg;
pub(crate) mod table;

use crate::failure::{Result, Tried};
use crate::machine::Machine;
use crate::numbers::Series;
use crate::works::Work;
use serde::Serialize;
use std::path::Path;

/// Result of a comparison; also its JSON form.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Machine.
    pub(crate) machine: Machine,
    /// Tree.
    pub(crate) tree: TreeFacts,
    /// Repetitions of each work.
    pub(crate) repeat: u32,
    /// Tools.
    pub(crate) tools: Vec<ToolFacts>,
    /// Works, each with all tools and its limit.
    pub(crate) works: Vec<WorkResult>,
    /// Sizes of the stores on disk.
    pub(crate) stores: Vec<StoreSize>,
    /// Comparisons of restored trees with the originals.
    pub(crate) checks: Vec<Check>,
    /// Flushes of a Safepoint checkpoint of the tiny project.
    pub(crate) flushes: Option<Flushes>,
}

/// Tree that was worked on.
#[derive(Debug, Serialize)]
pub(crate) struct TreeFacts {
    /// Name.
    pub(crate) name: String,
    pub(crate) files: usize,
    pub(crate) directories: usize,
    pub(crate) bytes: u64,
    /// Folder that was moved.
    pub(crate) moved: String,
    /// Folder that was deleted and restored, with its number of files.
    pub(crate) deleted: (String, usize),
}

/// Tool that took part.
#[derive(Debug, Serialize)]
pub(crate) struct ToolFacts {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Checkpoint command.
    pub(crate) checkpoint: String,
    /// Restore command.
    pub(crate) back: String,
    /// Missing features.
    pub(crate) lacks: String,
    /// Reason for its elimination, if any.
    pub(crate) failed: Option<String>,
}

/// Work by all tools.
#[derive(Debug, Serialize)]
pub(crate) struct WorkResult {
    pub(crate) work: Work,
    /// Title, with the numbers of this run.
    pub(crate) title: String,
    /// Description of the limit.
    pub(crate) limit_is: String,
    pub(crate) limit: Option<Figures>,
    pub(crate) tools: Vec<ToolFigures>,
}

impl WorkResult {
    /// Returns the figures of a tool.
    pub(crate) fn of(&self, tool: &str) -> Option<&ToolFigures> {
        self.tools.iter().find(|figures| figures.tool == tool)
    }
}

/// Measurements of one quantity.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figures {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Times in order.
    pub(crate) seconds: Vec<f64>,
}

impl Figures {
    /// Returns the figures of a non-empty series.
    pub(crate) fn of(series: &Series) -> Option<Self> {
        let ((min, max), median) = (series.spread()?, series.median()?);
        Some(Self { median, min, max, seconds: series.seconds.clone() })
    }
}

/// Figures of one tool for one work.
#[derive(Debug, Serialize)]
pub(crate) struct ToolFigures {
    pub(crate) tool: String,
    #[serde(flatten)]
    pub(crate) figures: Figures,
    /// Largest peak of all repetitions.
    pub(crate) peak_bytes: u64,
    /// Ratio of the medians.
    pub(crate) ratio_to_limit: Option<f64>,
}

/// Size of a tool's store on disk.
#[derive(Debug, Serialize)]
pub(crate) struct StoreSize {
    pub(crate) tool: String,
    /// After the first checkpoint.
    pub(crate) first_bytes: Option<u64>,
    /// After all works on the tree.
    pub(crate) end_bytes: Option<u64>,
    /// Median growth after one changed byte in a large file.
    pub(crate) big_growth_bytes: Option<u64>,
}

/// Comparison of a restored tree with the original.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) tool: String,
    pub(crate) work: Work,
    pub(crate) repetition: u32,
    /// Number of differing paths.
    pub(crate) differences: usize,
    /// First differences.
    pub(crate) examples: Vec<String>,
}

/// Flushes of a checkpoint of the tiny project.
#[derive(Debug, Serialize)]
pub(crate) struct Flushes {
    /// Flushes that Safepoint requests from the kernel.
    pub(crate) count: usize,
    /// Same number of small files written and flushed by a bare program.
    pub(crate) alone: Figures,
}

impl Report {
    /// Returns true if every tool restored the tree exactly and none failed.
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
