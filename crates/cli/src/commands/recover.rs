//! `recover`: shows what a crash left, after it was finished or undone; with `--release`, gives up what waits for other programs.

use crate::args::RecoverArgs;
use crate::commands::create::SHOWN_MAX;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{counted, printable};
use crate::render::warning;
use crate::{commands::Context, render::consent, render::exit};
use safepoint::model::{RelPath, RollbackId};
use safepoint::{CheckpointManager, Recovery, Workspace};
use serde_json::json;
use std::collections::BTreeSet;

pub(crate) fn run(context: &Context, args: &RecoverArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let recovery = match args.release {
        true => release(context, &manager, &workspace)?,
        false => manager
            .recover(&workspace, &context.progress)
            .map_err(|error| context.surroundings.explain_gone(&workspace, error.into()))?,
    };
    let out = &context.out;
    if recovery.is_empty() {
        out.line("Nothing was left to recover.");
    }
    recovery.undone.iter().for_each(|id| out.line(undone(*id)));
    for id in &recovery.settled {
        out.line(format!("Rollback {id} was done; what it left behind is cleared away."));
    }
    listed(recovery.released.iter().map(|path| format!("{path} was stored and deleted")), |text| {
        out.line(text);
    });
    findings(out, &recovery);
    waiting(&recovery.waiting, |text| out.warn(text));
    let data = json!({ "recovery": json::recovery(&recovery) });
    let exit = match recovery.foreign.is_empty() {
        true => exit::of_waiting(&recovery.waiting),
        false => exit::IN_PART,
    };
    Ok(Reply { data, exit, failure: None })
}

/// Stores what waits, asks, and deletes it.
fn release(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
) -> Result<Recovery, Problem> {
    if !context.yes && !consent::can_ask(context) {
        return Err(Problem::usage(
            "--release deletes files that a program may still write to, and there is no terminal to ask on",
            "Run `safepoint recover` to see them, or confirm with: safepoint recover --release --yes",
        ));
    }
    let gone = |error: safepoint::Error| context.surroundings.explain_gone(workspace, error.into());
    let stored = manager.upkeep().store_waiting(workspace, &context.progress).map_err(gone)?;
    let recovery = &stored.recovery;
    if recovery.waiting.is_empty() {
        return Ok(stored.recovery);
    }
    let files = counted(recovery.waiting.len() as u64, "displaced file", "displaced files");
    let places: BTreeSet<String> =
        recovery.rescued.iter().map(|rescued| rescued.checkpoint.to_string()).collect();
    let places: Vec<String> = places.into_iter().collect();
    let question = format!(
        "{files} stored in checkpoint {}.\nDelete the originals? What a program writes to them from now on is lost.",
        places.join(", ")
    );
    consent::ask(context, &question)?;
    manager.upkeep().release(workspace, stored, &context.progress).map_err(gone)
}

fn undone(id: RollbackId) -> String {
    format!("Rollback {id} was cut short; it is undone; everything is restored as before it.")
}

/// Reports what recovery did before a command, once, and keeps it for the JSON result.
pub(crate) fn tell(out: &Printer, recovery: &Recovery) {
    let recovery = &out.recovered(recovery);
    recovery.undone.iter().for_each(|id| out.note(undone(*id)));
    findings(out, recovery);
    waiting(&recovery.waiting, |text| out.note(text));
}

fn findings(out: &Printer, recovery: &Recovery) {
    for rescued in &recovery.rescued {
        let (path, id) = (&rescued.path, rescued.checkpoint);
        out.warn(format!(
            "{path}: {}; that version is kept: safepoint cat {id} {path}",
            printable(&rescued.why)
        ));
    }
    warning::warn(out, &recovery.warnings);
}

/// Names displaced files that a program has, or may have, open.
pub(crate) fn waiting(paths: &[RelPath], say: impl Fn(String)) {
    let waits = |path: &RelPath| {
        format!(
            "{path} is or may be open for writing in another program; its displaced version is kept in .safepoint"
        )
    };
    listed(paths.iter().map(waits), &say);
    if !paths.is_empty() {
        say("check again with: safepoint recover; store and delete it with: safepoint recover --release"
            .to_owned());
    }
}

/// The first lines of a list, and how many more there are.
fn listed(lines: impl ExactSizeIterator<Item = String>, say: impl Fn(String)) {
    let all = lines.len();
    lines.take(SHOWN_MAX).for_each(&say);
    if all > SHOWN_MAX {
        say(format!("and {} more; --json shows all", all - SHOWN_MAX));
    }
}
