//! Text tables, and the rows of a comparison.

use super::{Report, WorkResult};
use crate::numbers::{bytes, seconds};

/// Title, heads, and rows of cells.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn new(title: impl Into<String>, heads: &[&str]) -> Self {
        let heads = heads.iter().map(ToString::to_string).collect();
        Self { title: title.into(), heads, rows: Vec::new() }
    }

    /// Formats for a terminal: the first column left-aligned, the others right-aligned.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<&Vec<String>> = std::iter::once(&self.heads).chain(&self.rows).collect();
        let width = |column: usize| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = format!("{}\n", self.title);
        for line in lines {
            let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            text += &format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
        text
    }

    /// Formats as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> = self.heads.iter().map(|_| "---".to_owned()).collect();
        let mut text = format!("**{}**\n\n{}", self.title, line(&self.heads));
        text += &line(&rule).replace(' ', "");
        for row in &self.rows {
            text += &line(row);
        }
        text
    }
}

/// Returns the tables of a comparison.
pub(crate) fn tables(report: &Report) -> Vec<Table> {
    let mut all = vec![times(report), ratios(report), memory(report), stores(report)];
    all.extend([checks(report), tools(report)]);
    all.retain(|table| !table.rows.is_empty());
    all
}

fn tool_names(report: &Report) -> Vec<&str> {
    report.tools.iter().map(|tool| tool.name.as_str()).collect()
}

fn per_tool(
    report: &Report,
    title: &str,
    more: &[&str],
    cell: impl Fn(&WorkResult, &str) -> String,
) -> Table {
    let heads = [&["work"], more, tool_names(report).as_slice()].concat();
    let mut table = Table::new(title, &heads);
    for work in &report.works {
        let mut row = vec![work.title.clone()];
        row.extend(
            more.iter()
                .map(|_| work.limit.as_ref().map_or_else(|| "n/a".into(), |limit| seconds(limit.median))),
        );
        row.extend(tool_names(report).iter().map(|tool| cell(work, tool)));
        table.rows.push(row);
    }
    table
}

fn times(report: &Report) -> Table {
    per_tool(report, "Time: median (shortest to longest)", &["limit"], |work, tool| {
        work.of(tool).map_or_else(
            || "n/a".into(),
            |took| {
                let of = &took.figures;
                format!("{} ({} to {})", seconds(of.median), seconds(of.min), seconds(of.max))
            },
        )
    })
}

fn ratios(report: &Report) -> Table {
    let mut table = per_tool(report, "Ratio to the limit", &[], |work, tool| {
        let ratio = work.of(tool).and_then(|took| took.ratio_to_limit);
        ratio.map_or_else(|| "n/a".into(), |ratio| format!("{ratio:.2}"))
    });
    table.heads.push("limit is".into());
    for (row, work) in table.rows.iter_mut().zip(&report.works) {
        row.push(if work.limit.is_some() { work.limit_is.clone() } else { "n/a".into() });
    }
    table
}

fn memory(report: &Report) -> Table {
    per_tool(report, "Peak memory", &[], |work, tool| {
        work.of(tool).map_or_else(|| "n/a".into(), |took| bytes(took.peak_bytes))
    })
}

fn stores(report: &Report) -> Table {
    let heads = ["store on disk", "after the first", "after all works", "1 byte in the large file"];
    let mut table = Table::new("Store", &heads);
    let cell = |size: Option<u64>| size.map_or_else(|| "n/a".into(), bytes);
    for store in &report.stores {
        let sizes = [store.first_bytes, store.end_bytes, store.big_growth_bytes];
        table.rows.push(std::iter::once(store.tool.clone()).chain(sizes.map(cell)).collect());
    }
    table
}

fn checks(report: &Report) -> Table {
    let mut table = Table::new(
        "Restored exactly: paths that differ",
        &["tool", "checks", "paths that differ", "for example"],
    );
    for tool in tool_names(report) {
        let own: Vec<_> = report.checks.iter().filter(|check| check.tool == tool).collect();
        if own.is_empty() {
            continue;
        }
        let differences: usize = own.iter().map(|check| check.differences).sum();
        let example = own.iter().find_map(|check| check.examples.first().cloned()).unwrap_or_default();
        table.rows.push(vec![tool.into(), own.len().to_string(), differences.to_string(), example]);
    }
    table
}

fn tools(report: &Report) -> Table {
    let mut table = Table::new("Tools", &["tool", "version", "checkpoint", "restore", "missing"]);
    for tool in &report.tools {
        let lacks = match &tool.failed {
            Some(why) => format!("FAILED: {why}"),
            None => tool.lacks.clone(),
        };
        let cells = [&tool.name, &tool.version, &tool.checkpoint, &tool.back, &lacks];
        table.rows.push(cells.map(Clone::clone).to_vec());
    }
    table
}

/// Returns the lines above the tables.
pub(crate) fn heading(report: &Report) -> Vec<String> {
    let tree = &report.tree;
    let mut lines = vec![
        format!("Machine: {}", report.machine.words()),
        format!(
            "Tree: {}, {} files, {} folders, {}; moved: {}; deleted and restored: {} ({} files)",
            tree.name,
            tree.files,
            tree.directories,
            bytes(tree.bytes),
            tree.moved,
            tree.deleted.0,
            tree.deleted.1
        ),
        format!("Each work {} times, tools in turns.", report.repeat),
    ];
    if let Some(flushes) = &report.flushes {
        lines.push(format!(
            "A tiny project: Safepoint requests {} flushes; a bare program that writes and flushes as many small files takes {} \
             ({} to {}).",
            flushes.count,
            seconds(flushes.alone.median),
            seconds(flushes.alone.min),
            seconds(flushes.alone.max)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("T", &["a", "bb"]);
        table.rows.push(vec!["long".into(), "1".into()]);
        assert_eq!(table.text(), "T\n  a     bb\n  long   1\n");
        assert_eq!(table.markdown(), "**T**\n\n| a | bb |\n|---|---|\n| long | 1 |\n");
    }
}
