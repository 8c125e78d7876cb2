//! `plan correct`: back to the last clean checkpoint or to before a decision, or one more step for what is wrong.

use super::{Opened, keeps_the_rules};
use crate::args::plan::{CorrectArgs, CorrectMode};
use crate::commands::Context;
use crate::commands::rollback::{plain_options, shape, tell};
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::signals;
use safepoint::model::plan::spec::{PlanSpec, StepSpec};
use safepoint::model::plan::state::{Plan, PlanState};
use safepoint::{Corrected, DryRun, Revert};
use serde_json::{Value, json};

/// An id of a step has at most so many letters.
const ID_CHARS_MAX: usize = 40;

pub(crate) fn run(context: &Context, args: &CorrectArgs) -> Result<Reply, Problem> {
    let opened = Opened::new(context, &args.plan.plan)?;
    match args.mode {
        CorrectMode::Revert => revert(context, args, opened),
        CorrectMode::Append => append(context, args, opened),
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
        opened.manager.plan_workspace(&opened.record)?;
    }
    opened.recover_first(context)?;
    signals::listen_for_another();
    let options = plain_options(args.dry_run, false, args.undo_commands.chosen());
    let revert = Revert { decision: args.decision.clone(), guidance: args.guidance.clone() };
    let corrected = opened
        .manager
        .correct_by_revert(&args.plan.plan, &revert, &options, &context.progress)
        .map_err(|error| opened.explain(context, error))?;
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

fn append(context: &Context, args: &CorrectArgs, mut opened: Opened) -> Result<Reply, Problem> {
    let Some(title) = &args.step else {
        return Err(Problem::usage("--mode append needs a step", "Name it: --step TITLE --run CMD"));
    };
    if args.decision.is_some() {
        return Err(Problem::usage(
            "--decision goes back, and --mode append changes nothing that is done",
            "Use --mode revert to go back to before a decision.",
        ));
    }
    let step = StepSpec {
        title: Some(title.clone()),
        run: args.run.clone(),
        ..StepSpec::new(new_id(&opened.record.plan, title))
    };
    let spec = PlanSpec { steps: vec![step.clone()], ..PlanSpec::new("any") };
    keeps_the_rules(&spec, "docs/plan-files.md lists the rules.")?;
    if args.dry_run {
        // The rules are asked on a copy.
        let path = opened.record.plan.append(None, &step).map_err(safepoint::Error::from)?;
        context.out.remark(format!("Would add step {path}. Nothing was changed."));
        let correction = json!({ "mode": "append", "attempt": null, "checkpoint": null, "step": path, "decision": null, "guidance": args.guidance });
        opened = Opened::new(context, &args.plan.plan)?;
        return Ok(Reply::done(json!({ "plan": opened.json(), "correction": correction, "rollback": null })));
    }
    let corrected = opened.manager.correct_by_append(&args.plan.plan, &step, args.guidance.as_deref())?;
    if let Some(path) = &corrected.step {
        let attempt = corrected.attempt;
        context.out.remark(format!("Correction {attempt}: added step {}", context.out.colours.bold(path)));
    }
    opened.renew(corrected.record.clone())?;
    let correction = shape_correction(args, &corrected);
    Ok(Reply::done(json!({ "plan": opened.json(), "correction": correction, "rollback": null })))
}

fn shape_correction(args: &CorrectArgs, corrected: &Corrected) -> Value {
    json!({
        "mode": if args.mode == CorrectMode::Revert { "revert" } else { "append" },
        "attempt": corrected.attempt,
        "checkpoint": corrected.checkpoint,
        "step": corrected.step,
        "decision": args.decision,
        "guidance": args.guidance,
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
    let is_free = |id: &String| plan.find(id).is_err();
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
