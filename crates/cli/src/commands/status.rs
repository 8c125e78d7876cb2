//! `status`: answers "am I covered?" at a glance.

use crate::commands::create::{SHOWN_MAX, is_lack, left_out, more};
use crate::commands::naming::Naming;
use crate::commands::position::PartialRollback;
use crate::commands::recover;
use crate::commands::{Context, lost};
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::fold::folded;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, counted, printable, size};
use safepoint::model::RelPath;
use safepoint::model::change::{Change, ChangeKind};
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::coverage::{Coverage, Skipped};
use safepoint::{CheckpointManager, Filter, RoleFilter, Workspace};
use serde::Serialize;
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
    let total = manager.checkpoints().list_ids(&all)?.len() as u64;
    let (coverage, warnings) = match &status.base {
        Some(_) => (status.coverage, status.warnings),
        None => {
            let survey = manager.survey(workspace, &context.progress)?;
            (survey.coverage, survey.warnings)
        }
    };
    let lacks = coverage.skipped.iter().filter(|skipped| is_lack(skipped));
    let lacks: Vec<&Skipped> = lacks.chain(&status.uncovered).collect();
    let verdict = Verdict::new(status.base.as_ref(), &status.changes, &lacks);
    let naming = Naming::new(out, manager, Some(workspace))?;
    let partial = PartialRollback::last(manager, workspace);
    let name = match (&status.base, &partial) {
        (Some(base), Some(partial)) => {
            format!("{}, the state before the last {}", out.colours.bold(naming.id(base.id)), partial.verb())
        }
        (Some(base), None) => name(out, naming, base),
        (None, _) => String::new(),
    };
    out.prose(verdict.sentence(out, (status.base.as_ref(), &name), &status.changes, &lacks));
    let typed = |path: &RelPath| context.surroundings.typed_path(workspace, path);
    changed(out, &status.changes, &typed);
    if let Some(partial) = &partial {
        let (verb, restored) = (partial.verb(), partial.restored(naming, &typed));
        out.prose(format!("  The last {verb} {restored}; all else is as before it."));
        out.prose("  Compare with the newest checkpoint: safepoint diff @");
    }
    not_in_it(out, &status.uncovered, &typed);
    warnings.iter().for_each(|warning| out.warn(printable(warning)));
    let lost = lost::report(out, manager, workspace);
    unsure(out, &coverage, &typed);
    left_out(out, &coverage, &typed);
    out.line(format!(
        "  workspace: {} in {}",
        printable(&workspace.name),
        printable(&workspace.root_path().display().to_string())
    ));
    let agents: Vec<String> =
        manager.agents().bound_to(workspace.id)?.into_iter().map(|record| record.agent.name).collect();
    if !agents.is_empty() {
        out.line(format!("  agents: {}", agents.join(", ")));
    }
    out.prose(format!(
        "  store: {} here; {} for all workspaces in {}",
        counted(total, "checkpoint", "checkpoints"),
        size(status.usage.pack_bytes),
        printable(&manager.home().display().to_string())
    ));
    if verdict == Verdict::Changed || !status.uncovered.is_empty() {
        out.remark("Take a checkpoint now: safepoint create -m \"a label\"");
    }
    Ok(Reply::done(json!({
        "workspace": json::workspace(workspace),
        "agents": agents,
        "verdict": verdict,
        "covered": status.base.is_some() && status.changes.is_empty() && status.uncovered.is_empty(),
        "base": status.base.as_ref().map(json::checkpoint),
        "changes": json::changes(&status.changes),
        "coverage": coverage,
        "uncovered": status.uncovered,
        "checkpoints": total,
        "store": {
            "bytes": status.usage.pack_bytes,
            "packs": status.usage.packs,
            "objects": status.usage.objects,
        },
        "recovery": json::recovery(&status.recovery),
        "lost_repository": lost,
        "after_partial_rollback": partial,
        "catalog": manager.upkeep().catalog_standing().as_str(),
    })))
}

/// The answer to "am I covered?".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// Everything is in a checkpoint.
    Covered,
    /// Nothing changed, but some things are in no checkpoint.
    Partly,
    /// There is a checkpoint, and something is different since.
    Changed,
    /// There is no checkpoint.
    Never,
}

impl Verdict {
    fn new(base: Option<&Checkpoint>, changes: &[Change], lacks: &[&Skipped]) -> Self {
        match base {
            None => Verdict::Never,
            Some(_) if !changes.is_empty() => Verdict::Changed,
            Some(_) if !lacks.is_empty() => Verdict::Partly,
            Some(_) => Verdict::Covered,
        }
    }

    fn sentence(
        self,
        out: &Printer,
        (base, name): (Option<&Checkpoint>, &str),
        changes: &[Change],
        lacks: &[&Skipped],
    ) -> String {
        let age = base.map(|base| ago(Surroundings::now(), base.created_at)).unwrap_or_default();
        let colours = out.colours;
        match self {
            Verdict::Covered => format!("{} everything is in {name}, {age}.", colours.green("Covered:")),
            Verdict::Partly => {
                let lacks = counted(lacks.len() as u64, "path", "paths");
                format!("{} everything but {lacks} is in {name}, {age}.", colours.yellow("Partly covered:"))
            }
            Verdict::Changed => {
                let count = counted(changes.len() as u64, "change", "changes");
                // Changes since a partial rollback may be in the checkpoint that it took them from.
                let where_else =
                    if base.is_some_and(|base| base.role.is_some()) { "" } else { ", not in a checkpoint" };
                format!("{} since {name}, {age}{where_else}:", colours.yellow(count))
            }
            Verdict::Never => {
                format!("{} no checkpoint yet; `safepoint create` takes one.", colours.red("Not covered:"))
            }
        }
    }
}

fn name(out: &Printer, naming: Naming, base: &Checkpoint) -> String {
    let label = match naming.name(base) {
        label if label.is_empty() => label,
        label => format!(" \"{label}\""),
    };
    format!("{}{label}", out.colours.bold(naming.id(base.id)))
}

fn changed(out: &Printer, changes: &[Change], typed: &dyn Fn(&RelPath) -> String) {
    let lines = folded(changes.iter().map(|change| (&change.path, change.kind)));
    for line in lines.iter().take(SHOWN_MAX) {
        let change = &changes[line.item];
        out.line(format!("    {}", change_line(out, change, &typed(&change.path), &line.tail())));
    }
    more(out, lines.len());
}

/// A sign, the path, and what is below it.
pub(crate) fn change_line(out: &Printer, change: &Change, path: &str, tail: &str) -> String {
    let colours = out.colours;
    match change.kind {
        ChangeKind::Added => colours.green(format!("+ {path}{tail}")),
        ChangeKind::Removed => colours.red(format!("- {path}{tail}")),
        ChangeKind::Modified => colours.yellow(format!("~ {path}")),
        ChangeKind::Type => colours.yellow(format!("~ {path} (another type)")),
        ChangeKind::Mode => colours.yellow(format!("~ {path} (mode, owner or attributes)")),
    }
}

/// Prints paths missing from the checkpoint, although nothing in it changed.
fn not_in_it(out: &Printer, uncovered: &[Skipped], typed: &dyn Fn(&RelPath) -> String) {
    if uncovered.is_empty() {
        return;
    }
    out.line("  not in it, and in the next one:");
    for Skipped { path, why } in uncovered.iter().take(SHOWN_MAX) {
        out.line(format!("    {}  {}", out.colours.yellow(typed(path)), out.colours.dim(why)));
    }
    more(out, uncovered.len());
}

fn unsure(out: &Printer, coverage: &Coverage, typed: &dyn Fn(&RelPath) -> String) {
    for path in &coverage.unsettled {
        let path = typed(path);
        out.warn(format!("{path} changes all the while: a checkpoint of it may be a mixture of two moments"));
    }
}
