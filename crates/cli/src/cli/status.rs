//! `status`: answers "am I covered?" at a glance.

use crate::cli::Context;
use crate::cli::create::{SHOWN_MAX, left_out, more};
use crate::cli::fold::folded;
use crate::cli::output::{Printer, Reply};
use crate::cli::recover;
use crate::cli::terminal::{ago, counted, printable, size};
use crate::context::Surroundings;
use crate::json;
use crate::problem::Problem;
use safepoint::model::change::{Change, ChangeKind};
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::coverage::Coverage;
use safepoint::{CheckpointManager, Filter, RoleFilter, Workspace};
use serde_json::json;

pub(crate) fn run(context: &Context) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    look(context, &manager, &workspace)
        .map_err(|problem| context.surroundings.explain_gone(&workspace, problem))
}

fn look(context: &Context, manager: &CheckpointManager, workspace: &Workspace) -> Result<Reply, Problem> {
    let out = &context.out;
    let status = manager.status(workspace, &context.progress)?;
    recover::tell(out, &status.recovery);
    let all = Filter { workspace: Some(workspace.id), role: RoleFilter::Any, ..Filter::default() };
    let total = manager.summary(&all)?.total_checkpoints;
    let root = workspace.root_path().display().to_string();
    out.line(format!(
        "{}  {}",
        out.colours.bold(printable(&workspace.name)),
        out.colours.dim(printable(&root))
    ));
    let (coverage, warnings) = match &status.base {
        Some(base) => {
            covered(out, base, &status.changes);
            (status.coverage, status.warnings)
        }
        None => {
            let survey = manager.survey(workspace, &context.progress)?;
            let held = counted(survey.count, "file or folder", "files and folders");
            out.line(format!(
                "{} there is no checkpoint of its {held} yet.",
                out.colours.red("Not covered:")
            ));
            (survey.coverage, survey.warnings)
        }
    };
    warnings.iter().for_each(|warning| out.warn(printable(warning)));
    unsure(out, &coverage);
    left_out(out, &coverage);
    out.line(format!(
        "  store: {} here; {} for all workspaces in {}",
        counted(total, "checkpoint", "checkpoints"),
        size(status.usage.pack_bytes),
        printable(&manager.home().display().to_string())
    ));
    if status.base.is_none() || !status.changes.is_empty() {
        out.remark("Take a checkpoint now: safepoint create -m \"a label\"");
    }
    Ok(Reply::done(json!({
        "workspace": json::workspace(workspace),
        "covered": status.base.is_some() && status.changes.is_empty(),
        "base": status.base.as_ref().map(json::checkpoint),
        "changes": json::changes(&status.changes),
        "coverage": coverage,
        "checkpoints": total,
        "store": {
            "bytes": status.usage.pack_bytes,
            "packs": status.usage.packs,
            "objects": status.usage.objects,
        },
        "recovery": json::recovery(&status.recovery),
    })))
}

fn covered(out: &Printer, base: &Checkpoint, changes: &[Change]) {
    let label = base.label.as_deref().map(|label| format!(" \"{}\"", printable(label))).unwrap_or_default();
    let name = format!("{}{label}, {}", out.colours.bold(base.id), ago(Surroundings::now(), base.created_at));
    if changes.is_empty() {
        out.line(format!("{} nothing changed since {name}.", out.colours.green("Covered:")));
        return;
    }
    let count = counted(changes.len() as u64, "path", "paths");
    out.line(format!("{} {count} changed since {name}:", out.colours.yellow("Not covered:")));
    let lines = folded(changes.iter().map(|change| (&change.path, change.kind)));
    for line in lines.iter().take(SHOWN_MAX) {
        out.line(format!("    {}", change_line(out, &changes[line.item], &line.tail())));
    }
    more(out, lines.len());
}

/// A sign, the path, and what is below it.
pub(crate) fn change_line(out: &Printer, change: &Change, tail: &str) -> String {
    let (colours, path) = (out.colours, &change.path);
    match change.kind {
        ChangeKind::Added => colours.green(format!("+ {path}{tail}")),
        ChangeKind::Removed => colours.red(format!("- {path}{tail}")),
        ChangeKind::Modified => colours.yellow(format!("~ {path}")),
        ChangeKind::Type => colours.yellow(format!("~ {path} (another type)")),
        ChangeKind::Mode => colours.yellow(format!("~ {path} (mode, owner or attributes)")),
    }
}

fn unsure(out: &Printer, coverage: &Coverage) {
    for path in &coverage.unsettled {
        out.warn(format!("{path} changes all the while: a checkpoint of it may be a mixture of two moments"));
    }
}
