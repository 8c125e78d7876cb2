//! Side effects of plan steps outside of the files: those undone, and those not.

use crate::render::output::Printer;
use crate::render::terminal::printable;
use crate::render::warning::reason;
use safepoint::{DryRun, NotUndone, NotUndoneReason, Undone};

/// So many steps are named in a sentence.
const STEPS_NAMED: usize = 6;

/// Prints undo commands and effects that stay.
pub(crate) fn tell(out: &Printer, undone: &[Undone], not_undone: &[NotUndone], dry_run: DryRun) {
    for Undone { step, command, ran, .. } in undone {
        let what = match (dry_run, ran) {
            (DryRun::Yes, _) => "undo command that would run",
            (DryRun::No, true) => "undo command run",
            (DryRun::No, false) => "undo command that had been run before",
        };
        out.line(format!("  {what}, step {}: {}", printable(step), printable(command)));
    }
    let steps: Vec<String> =
        not_undone.iter().filter(|it| !failed(it)).map(|it| printable(&it.step)).collect();
    if steps.is_empty() {
        return;
    }
    let mut named = steps.iter().take(STEPS_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if steps.len() > STEPS_NAMED {
        named.push_str(&format!(" and {} more", steps.len() - STEPS_NAMED));
    }
    let were = if dry_run == DryRun::Yes { "would not be" } else { "were not" };
    out.line(format!("  no undo command: side effects outside the workspace {were} undone: {named}"));
}

/// Warns of failed undo commands.
pub(crate) fn warn(out: &Printer, not_undone: &[NotUndone]) {
    for NotUndone { step, why, .. } in not_undone.iter().filter(|it| failed(it)) {
        let because = printable(&reason(why));
        let text = format!(
            "side effects of step {} outside the workspace were not undone: {because}",
            printable(step)
        );
        out.warn_as(why.code(), text);
    }
}

/// Returns true if an undo command failed.
fn failed(not_undone: &NotUndone) -> bool {
    not_undone.why != NotUndoneReason::NoCommand
}
