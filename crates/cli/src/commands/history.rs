//! `history`: every rollback, undo, redo and correction, newest first, with those that were refused or failed.

use crate::args::HistoryArgs;
use crate::commands::Context;
use crate::commands::naming::Naming;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{briefly_ago, columns, moment, padded, printable, shortened};
use safepoint::Happened;
use safepoint::model::CheckpointId;
use serde_json::{Value, json};

/// Entries shown where no count is given.
const SHOWN: usize = 100;

pub(crate) fn run(context: &Context, args: &HistoryArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let around = context.surroundings.workspace_if_any(&manager)?;
    let mut history = manager.history(around.as_ref())?;
    if around.is_none() && history.is_empty() {
        context.surroundings.workspace(&manager)?;
    }
    let all = history.len();
    let limit = args.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let limit = limit.or((!context.out.is_json()).then_some(SHOWN));
    history.truncate(limit.unwrap_or(usize::MAX));
    if history.is_empty() {
        context.out.remark("No rollback, undo, redo or correction is on record.");
    } else {
        let naming = Naming::new(&context.out, &manager, around.as_ref())?;
        table(&context.out, naming, &history);
    }
    if args.limit.is_none() && all > history.len() {
        context.out.remark(format!("{} more: safepoint history -n {all}", all - history.len()));
    }
    let list: Value = history.iter().map(entry).collect();
    Ok(Reply::done(json!({ "history": list })))
}

const TITLES: [&str; 6] = ["WHEN", "WHAT", "BY", "FROM", "TO", "RESULT"];

/// Columns that a narrow terminal does without, first to last.
const DISPENSABLE: [usize; 2] = [3, 2];

fn table(out: &Printer, naming: Naming, history: &[Happened]) {
    let mut rows: Vec<[String; 6]> = history.iter().map(|it| row(naming, it)).collect();
    let fits = |shown: &[usize], rows: &[[String; 6]]| {
        let total: usize = shown.iter().map(|at| width_of(rows, *at) + 2).sum();
        naming.left_after(total.saturating_sub(3)) > 0
    };
    let mut shown: Vec<usize> = (0..TITLES.len()).collect();
    if !fits(&shown, &rows) {
        let now = Surroundings::now();
        rows.iter_mut().zip(history).for_each(|(row, it)| row[0] = briefly_ago(now, it.at));
    }
    for column in DISPENSABLE {
        if !fits(&shown, &rows) {
            shown.retain(|at| *at != column);
        }
    }
    // Names of plans and actors may have any length, so a line may still be cut.
    let line = |cells: &[String; 6]| {
        let cells = shown.iter().map(|at| padded(&cells[*at], width_of(&rows, *at)));
        shortened(cells.collect::<Vec<_>>().join("  ").trim_end(), naming.left_after(0))
    };
    out.remark(out.colours.dim(line(&TITLES.map(str::to_owned))));
    for (row, it) in rows.iter().zip(history) {
        out.line(line(row));
        if let Some(error) = &it.error {
            out.prose(format!("    {}", out.colours.red(printable(error))));
        }
    }
}

fn width_of(rows: &[[String; 6]], at: usize) -> usize {
    rows.iter().map(|row| columns(&row[at])).max().unwrap_or(0).max(TITLES[at].len())
}

fn row(naming: Naming, it: &Happened) -> [String; 6] {
    let id = |id: Option<CheckpointId>| id.map_or_else(|| "-".to_owned(), |id| naming.id(id));
    let plan = it.plan.as_ref().map(|plan| format!(" {}", printable(plan))).unwrap_or_default();
    [
        moment(it.at),
        format!("{}{plan}", it.verb),
        printable(&it.actor),
        id(it.from),
        id(it.to),
        it.result.to_owned(),
    ]
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
