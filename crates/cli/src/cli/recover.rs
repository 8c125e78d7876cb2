//! `recover`: shows what a crash left, after it was finished or undone.

use crate::cli::Context;
use crate::cli::output::{Printer, Reply};
use crate::cli::terminal::printable;
use crate::json;
use crate::problem::Problem;
use safepoint::Recovery;
use safepoint::model::RollbackId;
use serde_json::json;

pub(crate) fn run(context: &Context) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let recovery = manager
        .recover(&workspace, &context.progress)
        .map_err(|error| context.surroundings.explain_gone(&workspace, error.into()))?;
    let out = &context.out;
    if recovery.is_empty() {
        out.line("Nothing was left to recover.");
    }
    recovery.undone.iter().for_each(|id| out.line(undone(*id)));
    for id in &recovery.settled {
        out.line(format!("Rollback {id} was done; what it left behind is cleared away."));
    }
    findings(out, &recovery);
    Ok(Reply::done(json!({ "recovery": json::recovery(&recovery) })))
}

fn undone(id: RollbackId) -> String {
    format!("Rollback {id} was cut short; it is undone, and everything is as it was before it.")
}

/// Says what recovery did by the way, if it is worth knowing.
pub(crate) fn tell(out: &Printer, recovery: &Recovery) {
    recovery.undone.iter().for_each(|id| out.note(undone(*id)));
    findings(out, recovery);
}

fn findings(out: &Printer, recovery: &Recovery) {
    for rescued in &recovery.rescued {
        let (path, id) = (&rescued.path, rescued.checkpoint);
        out.warn(format!(
            "{path}: {}; that version is kept: safepoint cat {id} {path}",
            printable(&rescued.why)
        ));
    }
    for path in &recovery.waiting {
        out.note(format!(
            "{path} is still open in another program; it is looked at again by the next command"
        ));
    }
    recovery.warnings.iter().for_each(|warning| out.warn(printable(warning)));
}
