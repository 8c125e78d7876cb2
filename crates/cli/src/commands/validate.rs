//! `validate`: checks checkpoints and lists the restorable ones; without an id, also checks the current
//! workspace.

mod state;

use crate::args::ValidateArgs;
use crate::commands::create::{SHOWN_MAX, more};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{counted, printable, size};
use crate::{commands::Context, render::exit};
use safepoint::{DamagedPart, Depth, Failure, FailureKind, Validation};
use state::State;
pub(crate) use state::{Tests, tested};
use std::collections::HashMap;

pub(crate) fn run(context: &Context, args: &ValidateArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let workspace = context.surroundings.workspace_if_any(&manager)?;
    let checkpoint = match &args.id {
        Some(given) => Some(context.checkpoint(&manager, workspace.as_ref(), given, None)?),
        None => None,
    };
    let depth = if args.deep { Depth::Deep } else { Depth::Quick };
    let validation = manager.upkeep().validate(checkpoint.as_ref(), depth, &context.progress)?;
    let wrong: Vec<String> =
        validation.errors.iter().cloned().chain(validation.damaged.iter().map(sentence)).collect();
    // A folder that is not registered is not valid, however the store is.
    let subject = if workspace.is_none() && checkpoint.is_none() { "Store:" } else { "Valid:" };
    tell(&context.out, &validation, &wrong, (depth, subject));
    if validation.unfinished_bytes > 0 {
        context.out.line(format!(
            "Unfinished: {} that a killed process left; the next checkpoint removes it.",
            size(validation.unfinished_bytes)
        ));
    }
    let state = match workspace.filter(|_| checkpoint.is_none()) {
        Some(workspace) => state::look(context, &manager, &workspace)?,
        None if checkpoint.is_none() => state::unregistered(context, &manager),
        None => State::default(),
    };
    if depth == Depth::Quick && wrong.is_empty() {
        context.out.remark("Read every byte, too, with --deep.");
    }
    let errors: Vec<String> = wrong.iter().cloned().chain(state.errors()).collect();
    let data =
        json::validation(&validation, &errors, &state.warnings, state.tests_passing, state.git.as_ref());
    let failure =
        if wrong.is_empty() { state.into_failure() } else { Some(damage(&validation, wrong, &state)) };
    let exit = failure.as_ref().map_or(exit::DONE, exit::of);
    Ok(Reply { data, exit, failure })
}

fn damage(validation: &Validation, wrong: Vec<String>, state: &State) -> Failure {
    Failure {
        code: "damaged",
        kind: FailureKind::Damaged,
        message: format!("{} found", counted(wrong.len() as u64, "problem was", "problems were")),
        causes: wrong.into_iter().chain(state.errors()).collect(),
        hints: vec![
            format!(
                "{} can still be restored whole.",
                counted(validation.restorable.len() as u64, "checkpoint", "checkpoints")
            ),
            "`safepoint repair` repairs what can be repaired.".to_owned(),
        ],
    }
}

/// Formats one finding.
pub(crate) fn sentence(damage: &DamagedPart) -> String {
    let object = damage.object.map(|object| format!("object {object}: ")).unwrap_or_default();
    let path = damage.path.as_ref().map(|path| format!("{path}: ")).unwrap_or_default();
    let checkpoint = damage.checkpoint.map(|id| format!("checkpoint {id}: ")).unwrap_or_default();
    format!("{checkpoint}{path}{object}{}", damage.what)
}

fn tell(out: &Printer, validation: &Validation, errors: &[String], (depth, subject): (Depth, &str)) {
    let how = match depth {
        Depth::Quick => "everything is there",
        Depth::Deep => "every byte is as it was written",
    };
    let checked = format!(
        "{}, {}, {}",
        counted(validation.checkpoints, "checkpoint", "checkpoints"),
        counted(validation.objects, "object", "objects"),
        size(validation.bytes)
    );
    if errors.is_empty() {
        out.line(format!("{} {how} ({checked})", out.colours.green(subject)));
        return;
    }
    out.line(format!(
        "{} {} ({checked})",
        out.colours.red("Damaged:"),
        counted(errors.len() as u64, "problem", "problems")
    ));
    let lines: Vec<String> = validation.errors.iter().cloned().chain(grouped(&validation.damaged)).collect();
    lines.iter().take(SHOWN_MAX).for_each(|line| out.line(format!("    {}", printable(line))));
    more(out, lines.len());
    let whole = validation.restorable.len();
    out.line(format!(
        "{whole} of {} can still be restored whole.",
        counted(validation.checkpoints, "checkpoint", "checkpoints")
    ));
    out.remark("Repair the damage: safepoint repair");
}

/// Length of a shortened hash.
const HASH_LETTERS: usize = 12;

/// Formats findings: damage shared by several checkpoints is one line.
fn grouped(damaged: &[DamagedPart]) -> Vec<String> {
    let mut groups: Vec<(&DamagedPart, u64)> = Vec::new();
    let mut known = HashMap::new();
    for damage in damaged {
        let same = (&damage.path, damage.object, &damage.what, damage.checkpoint.is_some());
        let at = *known.entry(same).or_insert_with(|| {
            groups.push((damage, 0));
            groups.len() - 1
        });
        groups[at].1 += 1;
    }
    groups.iter().map(|(damage, count)| group(damage, *count)).collect()
}

fn group(damage: &DamagedPart, count: u64) -> String {
    let object =
        damage.object.map(|object| object.to_string().chars().take(HASH_LETTERS).collect::<String>());
    let thing = match (&damage.path, object) {
        (Some(path), _) => format!("{path}: "),
        (None, Some(object)) => format!("object {object}: "),
        (None, None) => String::new(),
    };
    let place = match damage.checkpoint {
        Some(id) if count == 1 => format!(" (in checkpoint {id})"),
        Some(_) => format!(" (in {count} checkpoints)"),
        None => String::new(),
    };
    format!("{thing}{}{place}", damage.what)
}
