//! `plan rollback`: a plan and its files go back together. Without a checkpoint it lists them, and asks where somebody can answer.

use super::{Opened, checkpoint};
use crate::args::plan::PlanRollbackArgs;
use crate::commands::rollback::{plain_options, shape, tell};
use crate::context::can_move_the_cursor;
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use crate::{commands::Context, commands::pick, render::consent};
use crate::{render::json, signals};
use checkpoint::Numbers;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{DryRun, Missing, RollbackOptions, RolledBack};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &PlanRollbackArgs) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, &args.plan.plan)?;
    let to = match &args.checkpoint {
        Some(given) => checkpoint::find(&opened, given)?,
        None => match choose(context, &opened)? {
            Choice::One(checkpoint) => *checkpoint,
            Choice::None(reply) => return Ok(reply),
        },
    };
    opened.recover_first(context)?;
    // Undo commands of steps may run: they are not to stay behind.
    signals::listen_for_another();
    let options = RollbackOptions {
        missing_sandbox: if args.recreate_sandbox { Missing::MadeAgain } else { Missing::Refused },
        ..plain_options(args.dry_run, args.keep_times, args.undo_commands.chosen())
    };
    if args.checkpoint.is_none() && !args.dry_run && !context.yes {
        let dry = RollbackOptions { dry_run: DryRun::Yes, ..options.clone() };
        let shown = back(context, &opened, &to, &dry)?;
        tell(context, &opened.manager, &shown, dry.dry_run);
        consent::ask(context, "Do this?")?;
    }
    let restored = back(context, &opened, &to, &options)?;
    tell(context, &opened.manager, &restored, options.dry_run);
    let record = opened.manager.plan(opened.id())?;
    opened.renew(record)?;
    let rollback = shape(&opened.manager, &restored, options.dry_run);
    Ok(Reply::rolled_back(json!({ "plan": opened.json(), "rollback": rollback })))
}

fn back(
    context: &Context,
    opened: &Opened,
    to: &Checkpoint,
    options: &RollbackOptions,
) -> Result<RolledBack, Problem> {
    opened
        .manager
        .rollback_plan(opened.id(), to.id, options, &context.progress)
        .map_err(|error| opened.explain(context, error))
}

/// What was chosen from the list.
enum Choice {
    One(Box<Checkpoint>),
    None(Reply),
}

fn choose(context: &Context, opened: &Opened) -> Result<Choice, Problem> {
    let checkpoints = checkpoint::all(opened)?;
    let id = opened.id();
    let asks = pick::can_pick(context) && !checkpoints.is_empty();
    if asks && can_move_the_cursor() {
        if let Some(chosen) = pick::pick(context, &opened.manager, Some(&opened.place), &checkpoints)? {
            return Ok(Choice::One(Box::new(chosen)));
        }
        context.out.remark(format!("Plan {} stays as it is.", printable(id)));
        let list: Value = checkpoints.iter().map(json::checkpoint).collect();
        let data = json!({ "plan": opened.json(), "rollback": null, "checkpoints": list });
        return Ok(Choice::None(Reply::done(data)));
    }
    let numbers = if asks { Numbers::Yes } else { Numbers::No };
    checkpoint::table(&context.out, &checkpoints, numbers);
    if asks {
        let typed = consent::line(context, "Go back to which? A number, an id, or Enter for none:")?;
        let number = typed.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        if let Some(chosen) = number.and_then(|number| checkpoints.get(number)) {
            return Ok(Choice::One(Box::new(chosen.clone())));
        }
        if !typed.is_empty() {
            let found = checkpoint::find(opened, &typed);
            return found.map(|found| Choice::One(Box::new(found)));
        }
        context.out.remark(format!("Plan {} stays as it is.", printable(id)));
    } else {
        context.out.remark(if checkpoints.is_empty() {
            format!("There is nothing to roll back to yet. Take one: safepoint plan checkpoint create {id}")
        } else {
            format!(
                "Choose one: safepoint plan rollback {id} CHECKPOINT (add --dry-run to see what it would do)"
            )
        });
    }
    let list: Value = checkpoints.iter().map(json::checkpoint).collect();
    let data = json!({ "plan": opened.json(), "rollback": null, "checkpoints": list });
    Ok(Choice::None(Reply::done(data)))
}
