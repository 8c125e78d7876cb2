//! `history`: every rollback, undo, redo and correction, newest first, with those that were refused or failed.

use crate::args::HistoryArgs;
use crate::commands::Context;
use crate::commands::naming::Naming;
use crate::problem::Problem;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{moment, printable};
use safepoint::Happened;
use safepoint::model::CheckpointId;
use serde_json::{Value, json};

/// Entries shown where no count is given.
const SHOWN: usize = 100;

pub(crate) fn run(context: &Context, args: &HistoryArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let mut history = manager.history(&workspace)?;
    let all = history.len();
    let limit = args.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let limit = limit.or((!context.out.is_json()).then_some(SHOWN));
    history.truncate(limit.unwrap_or(usize::MAX));
    if history.is_empty() {
        context.out.remark("No rollback, undo, redo or correction is on record.");
    } else {
        let naming = Naming::new(&context.out, &manager, Some(&workspace))?;
        table(&context.out, naming, &history);
    }
    if args.limit.is_none() && all > history.len() {
        context.out.remark(format!("{} more: safepoint history -n {all}", all - history.len()));
    }
    let list: Value = history.iter().map(entry).collect();
    Ok(Reply::done(json!({ "history": list })))
}

fn table(out: &Printer, naming: Naming, history: &[Happened]) {
    let id = |id: Option<CheckpointId>| id.map_or_else(|| "-".to_owned(), |id| naming.id(id));
    let rows: Vec<[String; 6]> = history
        .iter()
        .map(|it| {
            let plan = it.plan.as_ref().map(|plan| format!(" {}", printable(plan))).unwrap_or_default();
            [
                moment(it.at),
                format!("{}{plan}", it.verb),
                printable(&it.actor),
                id(it.from),
                id(it.to),
                it.result.to_owned(),
            ]
        })
        .collect();
    let titles = ["WHEN", "WHAT", "BY", "FROM", "TO", "RESULT"];
    let widths: Vec<usize> = (0..titles.len())
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0).max(titles[at].len()))
        .collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    out.remark(out.colours.dim(line(&titles.map(str::to_owned))));
    for (row, it) in rows.iter().zip(history) {
        out.line(line(row));
        if let Some(error) = &it.error {
            out.line(format!("    {}", out.colours.red(printable(error))));
        }
    }
}

fn entry(it: &Happened) -> Value {
    json!({
        "id": it.id,
        "verb": it.verb,
        "plan": it.plan,
        "actor": it.actor,
        "at": it.at,
        "from": it.from,
        "to": it.to,
        "strategy": it.strategy,
        "result": it.result,
        "error": it.error,
    })
}
