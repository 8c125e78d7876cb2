//! `plan correct`: back to the last clean checkpoint or to before a decision, or on from here with another step or command.

use super::{Opened, decision_id, keeps_the_rules};
use crate::args::plan::{CorrectArgs, CorrectMode};
use crate::commands::Context;
use crate::commands::recover;
use crate::commands::rollback::{plain_options, shape, tell};
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use crate::signals;
use safepoint::model::plan::correction::{StepEdit, StepPlace};
use safepoint::model::plan::spec::{PlanSpec, StepSpec};
use safepoint::model::plan::state::{Plan, PlanState};
use safepoint::{Corrected, DryRun, Fix, Revert};
use serde_json::{Value, json};

/// An id of a step has at most so many letters.
const ID_CHARS_MAX: usize = 40;

pub(crate) fn run(context: &Context, args: &CorrectArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan.plan)?;
    match args.mode {
        CorrectMode::Revert => revert(context, args, opened),
        _ => fix(context, args, opened),
    }
}

fn revert(context: &Context, args: &CorrectArgs, mut opened: Opened) -> Result<Reply, Problem> {
    if args.step.is_some() || args.run.is_some() {
        return Err(Problem::usage(
            "--step and --run add a step, and --mode revert adds none",
            "Use --mode append to add a step.",
        ));
    }
    // A copy that is gone is told as such, unless it is gone because the plan was applied.
    if opened.record.plan.state != PlanState::Applied {
        opened.manager.plans().workspace(&opened.record)?;
    }
    signals::listen_for_another();
    let options = plain_options(args.dry_run, false, args.undo_commands.chosen());
    let decision = args.decision.as_deref().map(decision_id).transpose()?;
    let revert = Revert { decision, guidance: args.guidance.clone() };
    let corrected = opened
        .manager
        .plans()
        .correct_by_revert(&args.plan.plan, &revert, &options, &context.progress)
        .map_err(|error| opened.explain(context, error))?;
    recover::tell(&context.out, &corrected.recovered);
    let rollback = corrected.restored.as_ref().map(|restored| {
        tell(context, &opened.manager, restored, options.dry_run);
        shape(&opened.manager, restored, options.dry_run)
    });
    let id = &args.plan.plan;
    if options.dry_run == DryRun::No {
        let attempt = corrected.attempt;
        context.out.remark(format!("Correction {attempt} of plan {id}"));
    }
    opened.renew(corrected.record.clone())?;
    let correction = shape_correction(args, &corrected);
    Ok(Reply::rolled_back(json!({ "plan": opened.json(), "correction": correction, "rollback": rollback })))
}

/// A correction that goes on from the current state.
fn fix(context: &Context, args: &CorrectArgs, mut opened: Opened) -> Result<Reply, Problem> {
    let fix = chosen(args, &opened.record.plan)?;
    let dry_run = if args.dry_run { DryRun::Yes } else { DryRun::No };
    let id = &args.plan.plan;
    let corrected = opened
        .manager
        .plans()
        .correct_in_place(id, &fix, args.guidance.as_deref(), dry_run)
        .map_err(|error| opened.explain(context, error))?;
    let path = corrected.step.as_deref().unwrap_or_default();
    let name = context.out.colours.bold(printable(path));
    let (would, did) = match fix {
        Fix::Append { .. } => ("add", "added"),
        Fix::Retry { .. } => ("give another command to", "gave another command to"),
        Fix::Skip { .. } => ("skip", "skipped"),
        Fix::Edit { .. } => ("change", "changed"),
    };
    let mut correction = shape_correction(args, &corrected);
    match dry_run {
        DryRun::Yes => {
            context.out.remark(format!("Would {would} step {name}. Nothing was changed."));
            correction["attempt"] = Value::Null;
        }
        DryRun::No => {
            context.out.remark(format!("Correction {}: {did} step {name}", corrected.attempt));
            context.out.remark(format!("It goes on with: safepoint plan resume {id}"));
            opened.renew(corrected.record.clone())?;
        }
    }
    Ok(Reply::done(json!({ "plan": opened.json(), "correction": correction, "rollback": null })))
}

fn wrong(what: &str, hint: &str) -> Problem {
    Problem::usage(what, hint)
}

/// Fix by the flags.
fn chosen(args: &CorrectArgs, plan: &Plan) -> Result<Fix, Problem> {
    if args.decision.is_some() {
        return Err(wrong(
            "--decision goes with --mode revert",
            "Use --mode revert to roll back to before a decision.",
        ));
    }
    let appends = args.mode == CorrectMode::Append;
    if !appends && (args.before.is_some() || args.after.is_some()) {
        return Err(wrong("--before and --after place a new step", "Use --mode append to add a step."));
    }
    if appends && args.at.is_some() {
        return Err(wrong(
            "--at chooses a step that is there",
            "Place the new step with --before or --after.",
        ));
    }
    if args.reason.is_some() && args.mode != CorrectMode::Skip {
        return Err(wrong("--reason goes with --mode skip", "Use --guidance TEXT to record a decision."));
    }
    let step = args.at.clone();
    let edit = StepEdit {
        title: args.step.clone(),
        run: args.run.clone(),
        verify: args.verify.clone(),
        undo: args.undo.clone(),
    };
    match args.mode {
        CorrectMode::Append => Ok(Fix::Append { spec: new_step(args, plan)?, place: place(args) }),
        CorrectMode::Skip if edit != StepEdit::default() => {
            Err(wrong("a step that is skipped runs nothing", "Use --mode edit to change it."))
        }
        CorrectMode::Skip => match &args.reason {
            Some(reason) if !reason.trim().is_empty() => Ok(Fix::Skip { step, reason: reason.clone() }),
            _ => Err(wrong("--mode skip needs a reason", "Give it: --reason TEXT")),
        },
        CorrectMode::Retry => match &args.run {
            Some(run) if !run.trim().is_empty() => Ok(Fix::Retry { step, run: run.clone() }),
            _ => Err(wrong("--mode retry needs a command", "Give it: --run CMD")),
        },
        CorrectMode::Edit | CorrectMode::Revert => match edit == StepEdit::default() {
            true => {
                Err(wrong("--mode edit needs a change", "Give one: --run CMD, --verify CMD or --step TITLE"))
            }
            false => Ok(Fix::Edit { step, edit }),
        },
    }
}

fn place(args: &CorrectArgs) -> Option<StepPlace> {
    let before = args.before.clone().map(StepPlace::Before);
    before.or_else(|| args.after.clone().map(StepPlace::After))
}

fn new_step(args: &CorrectArgs, plan: &Plan) -> Result<StepSpec, Problem> {
    let Some(title) = &args.step else {
        return Err(wrong("--mode append needs a step", "Name it: --step TITLE --run CMD"));
    };
    let step = StepSpec {
        title: Some(title.clone()),
        run: args.run.clone(),
        verify: args.verify.clone(),
        undo: args.undo.clone(),
        ..StepSpec::new(new_id(plan, title))
    };
    let spec = PlanSpec { steps: vec![step.clone()], ..PlanSpec::new("any") };
    keeps_the_rules(&spec, "docs/plan-files.md lists the rules.")?;
    Ok(step)
}

fn shape_correction(args: &CorrectArgs, corrected: &Corrected) -> Value {
    json!({
        "mode": match args.mode {
            CorrectMode::Revert => "revert",
            CorrectMode::Append => "append",
            CorrectMode::Retry => "retry",
            CorrectMode::Skip => "skip",
            CorrectMode::Edit => "edit",
        },
        "attempt": corrected.attempt,
        "checkpoint": corrected.checkpoint,
        "step": corrected.step,
        "decision": args.decision,
        "guidance": args.guidance,
        "reason": args.reason,
    })
}

/// An id for a step of this title that no step at the top has.
fn new_id(plan: &Plan, title: &str) -> String {
    let mut id = String::new();
    for letter in title.chars().flat_map(char::to_lowercase) {
        match letter {
            'a'..='z' | '0'..='9' => id.push(letter),
            _ if id.ends_with('-') || id.is_empty() => {}
            _ => id.push('-'),
        }
    }
    id.truncate(ID_CHARS_MAX);
    let id = match id.trim_end_matches('-') {
        "" => "correction",
        id => id,
    };
    // The last part of every path counts: a correction may come anywhere.
    let taken = |id: &str| plan.steps.iter().any(|step| step.path.rsplit('/').next() == Some(id));
    let is_free = |id: &String| !taken(id);
    let numbered = (2..).map(|number: u32| format!("{id}-{number}"));
    std::iter::once(id.to_owned()).chain(numbered).find(is_free).unwrap_or_else(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_becomes_an_id_that_is_free() {
        let steps = vec![StepSpec::new("fix-the-lock"), StepSpec::new("correction")];
        let plan = Plan::new("p".to_owned(), &PlanSpec { steps, ..PlanSpec::new("Plan") });
        assert_eq!(new_id(&plan, "Fix the lock!"), "fix-the-lock-2");
        assert_eq!(new_id(&plan, "  Möre  "), "m-re");
        assert_eq!(new_id(&plan, "???"), "correction-2");
        assert_eq!(new_id(&plan, &"x".repeat(100)).len(), ID_CHARS_MAX);
    }
}
