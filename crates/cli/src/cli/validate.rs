//! `validate`: whether checkpoints are whole, and which of them can be restored.

use crate::cli::args::ValidateArgs;
use crate::cli::create::{SHOWN_MAX, more};
use crate::cli::output::{Printer, Reply};
use crate::cli::terminal::{counted, printable, size};
use crate::cli::{Context, exit};
use crate::json;
use crate::problem::Problem;
use safepoint::{DamagedPart, Depth, Failure, FailureKind, Validation};

pub(crate) fn run(context: &Context, args: &ValidateArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let checkpoint = match &args.id {
        Some(given) => {
            let workspace = context.surroundings.workspace_if_any(&manager)?;
            Some(context.checkpoint(&manager, workspace.as_ref(), given, None)?)
        }
        None => None,
    };
    let depth = if args.deep { Depth::Deep } else { Depth::Quick };
    let validation = manager.validate(checkpoint.as_ref(), depth, &context.progress)?;
    let errors: Vec<String> =
        validation.errors.iter().cloned().chain(validation.damaged.iter().map(sentence)).collect();
    tell(&context.out, &validation, &errors, depth);
    let data = json::validation(&validation, &errors);
    if validation.is_valid() {
        return Ok(Reply::done(data));
    }
    let failure = Failure {
        code: "damaged",
        kind: FailureKind::Damaged,
        message: format!("{} found", counted(errors.len() as u64, "problem was", "problems were")),
        causes: errors,
        hints: vec![format!(
            "{} can still be restored whole.",
            counted(validation.restorable.len() as u64, "checkpoint", "checkpoints")
        )],
    };
    Ok(Reply { data, exit: exit::code(failure.kind), failure: Some(failure) })
}

/// One finding, in words.
pub(crate) fn sentence(damage: &DamagedPart) -> String {
    let object = damage.object.map(|object| format!("object {object}: ")).unwrap_or_default();
    let path = damage.path.as_ref().map(|path| format!("{path}: ")).unwrap_or_default();
    let checkpoint = damage.checkpoint.map(|id| format!("checkpoint {id}: ")).unwrap_or_default();
    format!("{checkpoint}{path}{object}{}", damage.what)
}

fn tell(out: &Printer, validation: &Validation, errors: &[String], depth: Depth) {
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
        out.line(format!("{} {how} ({checked})", out.colours.green("Valid:")));
        if depth == Depth::Quick {
            out.remark("Read every byte, too, with --deep.");
        }
        return;
    }
    out.line(format!(
        "{} {} ({checked})",
        out.colours.red("Damaged:"),
        counted(errors.len() as u64, "problem", "problems")
    ));
    errors.iter().take(SHOWN_MAX).for_each(|error| out.line(format!("    {}", printable(error))));
    more(out, errors.len());
    let whole = validation.restorable.len();
    out.line(format!(
        "{whole} of {} can still be restored whole.",
        counted(validation.checkpoints, "checkpoint", "checkpoints")
    ));
}
