//! `plan rollback`: rolls a plan and its files back together. Without a checkpoint it lists them, and asks on a terminal.

use super::{Opened, checkpoint};
use crate::args::plan::PlanRollbackArgs;
use crate::commands::list::folded;
use crate::commands::naming::Naming;
use crate::commands::rollback::{Asked, Ground, place_of, plain_options, shape, tell};
use crate::context::can_move_the_cursor;
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use crate::{commands::Context, commands::pick, render::consent};
use crate::{render::json, signals};
use checkpoint::Numbers;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::rollback::Strategy;
use safepoint::{DryRun, Missing, RollbackOptions, RolledBack};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &PlanRollbackArgs) -> Result<Reply, Problem> {
    let mut opened = Opened::new(context, &args.plan.plan)?;
    let strategy = strategy(args)?;
    if strategy == Strategy::Progressive {
        let from = args.checkpoint.as_deref().map(|given| checkpoint::find(&opened, given)).transpose()?;
        return asking(context, args, &mut opened, from.as_ref());
    }
    let to = match &args.checkpoint {
        Some(given) => checkpoint::find(&opened, given)?,
        None => match choose(context, &opened)? {
            Choice::One(checkpoint) => *checkpoint,
            Choice::None(reply) => return Ok(reply),
        },
    };
    if strategy == Strategy::Staged {
        return asking(context, args, &mut opened, Some(&to));
    }
    // Undo commands of steps may run: they are not to stay behind.
    signals::listen_for_another();
    let options = options(args);
    if args.checkpoint.is_none() && !args.dry_run && !context.yes {
        let dry = RollbackOptions { dry_run: DryRun::Yes, ..options.clone() };
        let shown = back(context, &opened, &to, &dry)?;
        tell(context, &opened.manager, &shown, dry.dry_run);
        consent::ask(context, "Do this?")?;
    }
    let restored = back(context, &opened, &to, &options)?;
    tell(context, &opened.manager, &restored, options.dry_run);
    let record = opened.manager.plans().get(opened.id())?;
    opened.renew(record)?;
    let rollback = shape(&opened.manager, &restored, options.dry_run);
    Ok(Reply::rolled_back(json!({ "plan": opened.json(), "rollback": rollback })))
}

fn options(args: &PlanRollbackArgs) -> RollbackOptions {
    RollbackOptions {
        missing_sandbox: if args.recreate_sandbox { Missing::MadeAgain } else { Missing::Refused },
        parts: args.parts.clone(),
        ..plain_options(args.dry_run, args.keep_times, args.undo_commands.chosen())
    }
}

/// The strategy that the flags mean together.
fn strategy(args: &PlanRollbackArgs) -> Result<Strategy, Problem> {
    let implied = match (&args.until, &args.verify, args.parts.is_empty()) {
        (Some(_), ..) => Strategy::Progressive,
        (None, Some(_), _) => Strategy::Staged,
        (None, None, false) => Strategy::Selective,
        (None, None, true) => Strategy::Immediate,
    };
    match (args.strategy, implied) {
        (None, implied) => Ok(implied),
        (Some(given), implied) if given == implied => Ok(given),
        // A staged rollback needs no command: it shows the difference and asks.
        (Some(Strategy::Staged), Strategy::Immediate | Strategy::Selective) => Ok(Strategy::Staged),
        (Some(Strategy::Progressive), _) => Err(Problem::usage(
            "--strategy progressive has no command to run",
            "Name it, as in: --until \"make test\"",
        )),
        (Some(Strategy::Selective), _) => {
            Err(Problem::usage("nothing is selected", "Choose with --part plan or --part files."))
        }
        (Some(given), implied) => Err(Problem::usage(
            format!("--strategy {given} contradicts the other flags, which mean {implied}"),
            "Leave one of them out.",
        )),
    }
}

/// A rollback that asks a command or the user first.
fn asking(
    context: &Context,
    args: &PlanRollbackArgs,
    opened: &mut Opened,
    checkpoint: Option<&Checkpoint>,
) -> Result<Reply, Problem> {
    // Rollbacks that are never allowed are refused first.
    if let Some(to) = checkpoint.cloned().or_else(|| checkpoint::all(opened).ok()?.into_iter().next()) {
        let dry = RollbackOptions { dry_run: DryRun::Yes, ..options(args) };
        back(context, opened, &to, &dry)?;
    }
    let place = opened.manager.plans().workspace(&opened.record)?;
    let ground = Ground { context, manager: &opened.manager, workspace: &place };
    let asked = Asked {
        verify: args.verify.as_deref(),
        until: args.until.as_deref(),
        bisect: args.bisect,
        place: place_of(args.in_place, args.copy),
        plan: Some(&args.plan.plan),
    };
    let mut reply = match (args.until.is_some(), checkpoint) {
        (false, Some(to)) => ground.staged(to, &asked, &options(args))?,
        _ => ground.progressive(checkpoint, &asked, &options(args))?,
    };
    let record = opened.manager.plans().get(opened.id())?;
    opened.renew(record)?;
    reply.data["plan"] = opened.json();
    Ok(reply)
}

fn back(
    context: &Context,
    opened: &Opened,
    to: &Checkpoint,
    options: &RollbackOptions,
) -> Result<RolledBack, Problem> {
    opened
        .manager
        .plans()
        .rollback(opened.id(), to.id, options, &context.progress)
        .map_err(|error| opened.explain(context, error))
}

/// Choice from the list.
enum Choice {
    One(Box<Checkpoint>),
    None(Reply),
}

fn choose(context: &Context, opened: &Opened) -> Result<Choice, Problem> {
    let checkpoints = checkpoint::all(opened)?;
    // Programs get all of them.
    let shown = folded(checkpoints.clone(), opened.place.head);
    let id = opened.id();
    let asks = pick::can_pick(context) && !shown.is_empty();
    if asks && can_move_the_cursor() {
        if let Some(chosen) = pick::pick(context, &opened.manager, Some(&opened.place), &shown)? {
            return Ok(Choice::One(Box::new(chosen)));
        }
        context.out.remark(format!("Plan {} stays as it is.", printable(id)));
        let list: Value = checkpoints.iter().map(json::checkpoint).collect();
        let data = json!({ "plan": opened.json(), "rollback": null, "checkpoints": list });
        return Ok(Choice::None(Reply::done(data)));
    }
    let numbers = if asks { Numbers::Yes } else { Numbers::No };
    let naming = Naming::among(&context.out, &opened.manager, Some(&opened.workspace), &shown)?;
    checkpoint::table(&context.out, naming, &shown, numbers);
    checkpoint::tell_hidden(context, opened, checkpoints.len() - shown.len());
    if asks {
        let typed = consent::line(context, "Go back to which? A number, an id, or Enter for none:")?;
        let number = typed.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        if let Some(chosen) = number.and_then(|number| shown.get(number)) {
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
            format!("Choose one, as in: safepoint plan rollback {id} @ --dry-run")
        });
    }
    let list: Value = checkpoints.iter().map(json::checkpoint).collect();
    let data = json!({ "plan": opened.json(), "rollback": null, "checkpoints": list });
    Ok(Choice::None(Reply::done(data)))
}
