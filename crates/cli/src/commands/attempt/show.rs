//! Lists, shows and compares attempts.

use crate::args::attempt::{AttemptArgs, CompareArgs, DiffAttemptsArgs, ListAttemptsArgs};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::patch::{Patch, Stat};
use crate::render::terminal::{columns, padded, printable, size, took};
use safepoint::model::attempt::{Attempt, AttemptKind, AttemptState};
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{Against, AttemptShown, Better, ChangedLines, CheckpointManager, RoomProcess, Workspace};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Shape of an attempt for programs.
pub(super) fn shape(shown: &AttemptShown) -> Value {
    let Attempt { id, number, name, kind, room, state, base, run, created_at, closed_at, .. } =
        &shown.attempt;
    let metrics = shown.result.as_ref().map(|result| result.metrics.clone()).unwrap_or_default();
    #[allow(clippy::cast_precision_loss, reason = "milliseconds of a command are far below the limit")]
    let seconds = run.milliseconds.map(|milliseconds| milliseconds as f64 / 1000.0);
    json!({
        "id": id,
        "number": number,
        "name": name,
        "kind": kind,
        "state": state,
        "room": json::bytes(room.as_os_str().as_bytes()),
        "base": base,
        "result": shown.result.as_ref().map(|result| result.id),
        "command": run.command,
        "exit_status": run.exit_status,
        "verified": run.verified,
        "tests": run.tests,
        "metrics": metrics,
        "changes": {
            "added": shown.changes.added,
            "modified": shown.changes.modified,
            "removed": shown.changes.removed,
        },
        "seconds": seconds,
        "disk_bytes": shown.layer_bytes,
        "processes": processes(&shown.processes),
        "created_at": created_at,
        "closed_at": closed_at,
    })
}

/// Shape of processes for programs.
pub(crate) fn processes(processes: &[RoomProcess]) -> Value {
    processes.iter().map(|process| json!({ "pid": process.pid, "name": process.name })).collect()
}

/// Prints attempts as a table. `best` is marked. The lines of closed ones are not counted.
pub(super) fn table(
    context: &Context,
    manager: &CheckpointManager,
    shown: &[AttemptShown],
    best: Option<&str>,
) {
    let out = &context.out;
    // The table is for people alone.
    if out.is_json() {
        return;
    }
    let metrics: BTreeSet<&String> = shown
        .iter()
        .filter_map(|shown| shown.result.as_ref())
        .flat_map(|result| result.metrics.keys())
        .collect();
    let mut head = vec!["NAME", "STATE", "EXIT", "VERIFY", "TESTS", "CHANGES", "LINES", "TIME", "DISK"];
    head.extend(metrics.iter().map(|name| name.as_str()));
    let mut rows: Vec<Vec<String>> = vec![head.into_iter().map(printable).collect()];
    for one in shown {
        let run = &one.attempt.run;
        let mark = if best == Some(one.attempt.name.as_str()) { " *" } else { "" };
        let state = match one.attempt.state {
            AttemptState::Open if !one.processes.is_empty() => "running".to_owned(),
            state => state.to_string(),
        };
        let disk =
            if one.attempt.kind == AttemptKind::Overlay { size(one.layer_bytes) } else { "copy".to_owned() };
        // A damaged checkpoint has no lines, and is no reason against the table.
        let lines = match one.attempt.state {
            AttemptState::Open => manager.attempts().lines(one, &context.progress).ok().flatten(),
            _ => None,
        };
        let mut row = vec![
            format!("{}{mark}", printable(&one.attempt.name)),
            state,
            run.exit_status.map_or("-".to_owned(), |status| status.to_string()),
            run.verified.map_or("-", |verified| if verified { "pass" } else { "fail" }).to_owned(),
            run.tests
                .map_or("-".to_owned(), |tests| format!("{}/{}", tests.passed, tests.passed + tests.failed)),
            format!("+{} ~{} -{}", one.changes.added, one.changes.modified, one.changes.removed),
            lines.map_or("-".to_owned(), |ChangedLines { added, removed }| format!("+{added} -{removed}")),
            run.milliseconds.map_or("-".to_owned(), |milliseconds| took(Duration::from_millis(milliseconds))),
            disk,
        ];
        let values = one.result.as_ref().map(|result| &result.metrics);
        row.extend(metrics.iter().map(|name| {
            values.and_then(|values| values.get(*name)).map_or("-".to_owned(), |value| format!("{value}"))
        }));
        rows.push(row);
    }
    let count = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..count).map(|at| rows.iter().map(|row| columns(&row[at])).max().unwrap_or(0)).collect();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| padded(cell, *width)).collect();
        let line = cells.join("  ").trim_end().to_owned();
        out.line(if number == 0 { out.colours.dim(line) } else { line });
    }
}

/// Returns the attempt with the best value of a metric.
pub(super) fn best<'s>(shown: &'s [AttemptShown], metric: &str, lowest: bool) -> Option<&'s AttemptShown> {
    AttemptShown::best(shown, metric, if lowest { Better::Lower } else { Better::Higher })
}

pub(super) fn list(
    context: &Context,
    manager: &CheckpointManager,
    args: &ListAttemptsArgs,
) -> Result<Reply, Problem> {
    let project = context.surroundings.workspace(manager)?;
    let mut shown = manager.attempts().list(&project)?;
    shown.retain(|shown| args.all || shown.attempt.state == AttemptState::Open);
    if shown.is_empty() {
        context.out.remark("No attempt is open. Start one: safepoint try -- CMD");
    } else {
        table(context, manager, &shown, None);
    }
    let shapes: Vec<Value> = shown.iter().map(shape).collect();
    Ok(Reply::done(json!({ "attempts": shapes })))
}

pub(super) fn show(
    context: &Context,
    manager: &CheckpointManager,
    args: &AttemptArgs,
) -> Result<Reply, Problem> {
    let project = context.surroundings.workspace(manager)?;
    let attempt = manager.attempts().find(&project, &args.name)?;
    let shown = manager.attempts().show(&project, &attempt)?;
    let out = &context.out;
    out.line(format!("{}  {}, {}", out.colours.bold(printable(&attempt.name)), attempt.state, attempt.kind));
    out.line(format!("  base      {}", attempt.base));
    if let Some(result) = &shown.result {
        out.line(format!("  result    {}", result.id));
    }
    if !attempt.run.command.is_empty() {
        out.line(format!("  command   {}", printable(&attempt.run.command.join(" "))));
    }
    if let Some(status) = attempt.run.exit_status {
        out.line(format!("  exit      {status}"));
    }
    let changes = &shown.changes;
    out.line(format!("  changes   +{} ~{} -{}", changes.added, changes.modified, changes.removed));
    for (name, value) in shown.result.iter().flat_map(|result| &result.metrics) {
        out.line(format!("  metric    {}={value}", printable(name)));
    }
    for process in &shown.processes {
        out.line(format!("  process   {} ({})", printable(&process.name), process.pid));
    }
    out.line(format!("  room      {}", printable(&attempt.room.to_string_lossy())));
    Ok(Reply::done(json!({ "attempt": shape(&shown) })))
}

/// Returns the newest checkpoint of an attempt.
fn newest(manager: &CheckpointManager, attempt: &Attempt) -> Result<Checkpoint, Problem> {
    match manager.attempts().newest(attempt)? {
        Some(newest) => Ok(newest),
        None => Ok(manager.checkpoints().get(attempt.base)?),
    }
}

pub(super) fn diff(
    context: &Context,
    manager: &CheckpointManager,
    args: &DiffAttemptsArgs,
) -> Result<Reply, Problem> {
    let project = context.surroundings.workspace(manager)?;
    let first = manager.attempts().find(&project, &args.old)?;
    let other = args.new.as_ref().map(|name| manager.attempts().find(&project, name)).transpose()?;
    let (old, new) = match &other {
        Some(other) => (newest(manager, &first)?, newest(manager, other)?),
        None => (manager.checkpoints().get(first.base)?, newest(manager, &first)?),
    };
    changes(context, manager, (&first, &old, &new), (args.stat, args.name_only))
}

/// Prints the differences between two checkpoints of attempts.
pub(super) fn changes(
    context: &Context,
    manager: &CheckpointManager,
    (attempt, old, new): (&Attempt, &Checkpoint, &Checkpoint),
    (stat, name_only): (bool, bool),
) -> Result<Reply, Problem> {
    let out = &context.out;
    let place: Workspace = manager.workspaces().get(attempt.place_id)?;
    let against = Against::Checkpoint(Box::new(new.clone()));
    let comparison = manager.diff(&place, old, &against, &context.progress)?;
    if name_only {
        comparison.changes.iter().for_each(|change| out.line(&change.path));
    } else if stat {
        Stat::new(&comparison)?.print(out);
    } else if !out.is_json() {
        Patch { comparison: &comparison, out }.print()?;
    }
    Ok(Reply::done(json!({ "from": old.id, "to": new.id, "changes": json::changes(&comparison.changes) })))
}

pub(super) fn compare(
    context: &Context,
    manager: &CheckpointManager,
    args: &CompareArgs,
) -> Result<Reply, Problem> {
    let project = context.surroundings.workspace(manager)?;
    let mut shown = manager.attempts().list(&project)?;
    shown.retain(|shown| shown.attempt.state == AttemptState::Open);
    let best = args.best.as_deref().and_then(|metric| best(&shown, metric, args.lowest));
    let best = best.map(|best| best.attempt.name.clone());
    match shown.is_empty() {
        true => context.out.remark("No attempt is open. Start one: safepoint try -- CMD"),
        false => table(context, manager, &shown, best.as_deref()),
    }
    let mut shapes = Vec::new();
    for one in &shown {
        let mut fields = shape(one);
        let lines = manager.attempts().lines(one, &context.progress)?;
        let lines =
            lines.map(|ChangedLines { added, removed }| json!({ "added": added, "removed": removed }));
        json::set(&mut fields, "lines", json!(lines));
        shapes.push(fields);
    }
    Ok(Reply::done(json!({ "attempts": shapes, "best": best })))
}
