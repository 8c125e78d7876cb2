//! `rollback` by the strategies that ask somebody first: a command of the user's, and the user.

use super::{shape, tell};
use crate::cli::Context;
use crate::cli::args::RollbackArgs;
use crate::cli::consent;
use crate::cli::exit;
use crate::cli::output::Reply;
use crate::cli::terminal::printable;
use crate::problem::Problem;
use crate::signals;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::rollback::Strategy;
use safepoint::{
    Check, CheckpointManager, DryRun, Error, Progressed, RollbackOptions, Search, Staged, StagedEnd, Trial,
    Until, Workspace,
};
use serde_json::{Value, json};

/// What the flags mean together.
pub(super) fn chosen(args: &RollbackArgs) -> Result<Strategy, Problem> {
    let selects = !args.paths.is_empty() || !args.parts.is_empty();
    let implied = match (&args.until, &args.verify, selects) {
        (Some(_), ..) => Some(Strategy::Progressive),
        (None, Some(_), _) => Some(Strategy::Staged),
        (None, None, true) => Some(Strategy::Selective),
        (None, None, false) => None,
    };
    let wrong = |what: &str, hint: &str| Err(Problem::usage(what, hint));
    match (args.strategy, implied) {
        (Some(Strategy::Progressive), None | Some(Strategy::Selective)) if args.until.is_none() => {
            wrong("--strategy progressive has no command to ask", "Name it: --until CMD")
        }
        (_, Some(Strategy::Progressive)) if selects || args.verify.is_some() => wrong(
            "--until goes back everything, one checkpoint at a time",
            "Leave --path, --part and --verify out.",
        ),
        (Some(Strategy::Selective), None) => {
            wrong("nothing is selected", "Choose with --path PATH or --part files.")
        }
        (Some(Strategy::Immediate), Some(Strategy::Selective)) if !args.paths.is_empty() => wrong(
            "--path chooses a part, and --strategy immediate means everything",
            "Leave one of them out.",
        ),
        (Some(Strategy::Immediate), Some(Strategy::Staged | Strategy::Progressive)) => {
            wrong("--strategy immediate asks no command", "Leave --verify and --until out, or the strategy.")
        }
        (Some(Strategy::Staged), _) => Ok(Strategy::Staged),
        (given, implied) => Ok(implied.or(given).unwrap_or(Strategy::Immediate)),
    }
}

/// Where a rollback takes place, and who is told.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) context: &'a Context,
    pub(super) manager: &'a CheckpointManager,
    pub(super) workspace: &'a Workspace,
}

impl Ground<'_> {
    /// Tried beside the workspace, shown, and done where the user agrees.
    pub(super) fn staged(
        self,
        to: &Checkpoint,
        args: &RollbackArgs,
        options: &RollbackOptions,
    ) -> Result<Reply, Problem> {
        let Ground { context, manager, workspace } = self;
        let dry = options.dry_run == DryRun::Yes;
        if !context.yes && !dry && !consent::can_ask(context) {
            return Err(Problem::usage(
                "a staged rollback asks before it is done, and there is no terminal to ask on",
                "If you mean it, say so with --yes.",
            ));
        }
        signals::listen_for_another();
        let mut asked = Ok(());
        let mut agreed = |staged: &Staged| {
            tell(context, manager, &staged.outline, DryRun::Yes);
            asked = consent::ask(context, "Roll back to this?");
            asked.is_ok()
        };
        let mut printed = |bytes: &[u8]| show(context, bytes);
        let trial = Trial { command: args.verify.as_deref(), agreed: &mut agreed, printed: &mut printed };
        let end = manager
            .rollback_staged(workspace, to.id, options, trial, &context.progress)
            .map_err(|error| context.surroundings.explain_gone(workspace, error.into()))?;
        asked?;
        match end {
            StagedEnd::Done(restored, staged) => {
                tell(context, manager, &restored, DryRun::No);
                let rollback = shape(manager, &restored, DryRun::No);
                Ok(Reply::rolled_back(json!({ "rollback": rollback, "checks": checks(&staged.check) })))
            }
            StagedEnd::Left(staged) => {
                let rollback = shape(manager, &staged.outline, DryRun::Yes);
                let data = json!({ "rollback": rollback, "checks": checks(&staged.check) });
                match staged.check.as_ref().and_then(|check| check.failure.clone()) {
                    Some(why) => {
                        let error = Error::CheckFailed { checkpoint: to.id, why };
                        Ok(failed(context, "roll back", data, error.into()))
                    }
                    None => {
                        tell(context, manager, &staged.outline, DryRun::Yes);
                        Ok(Reply::done(data))
                    }
                }
            }
        }
    }

    /// Back until the user's command passes.
    pub(super) fn progressive(
        self,
        from: Option<&Checkpoint>,
        args: &RollbackArgs,
        options: &RollbackOptions,
    ) -> Result<Reply, Problem> {
        let Ground { context, manager, workspace } = self;
        if options.dry_run == DryRun::Yes {
            return Err(Problem::usage(
                "a progressive rollback cannot be shown without doing it",
                "Look at single checkpoints with `safepoint rollback ID --verify CMD --dry-run`.",
            ));
        }
        signals::listen_for_another();
        let until = Until {
            command: args.until.clone().unwrap_or_default(),
            from: from.map(|checkpoint| checkpoint.id),
            search: if args.bisect { Search::Bisect } else { Search::Stepwise },
        };
        let mut printed = |bytes: &[u8]| show(context, bytes);
        let Progressed { restored, tried, began_at } = manager
            .rollback_until(workspace, &until, options, &mut printed, &context.progress)
            .map_err(|error| context.surroundings.explain_gone(workspace, error.into()))?;
        let out = &context.out;
        for check in &tried {
            let word = match &check.failure {
                None => out.colours.green("passes"),
                Some(why) => format!("{} ({})", out.colours.red("fails"), printable(why)),
            };
            out.remark(format!("  {}  {word}", check.checkpoint));
        }
        let told: Vec<Value> = tried.iter().map(check).collect();
        match restored {
            Some(restored) => {
                tell(context, manager, &restored, DryRun::No);
                if let Some(began_at) = began_at {
                    out.remark(format!("Where it began: safepoint rollback {began_at}"));
                }
                let data = json!({ "rollback": shape(manager, &restored, DryRun::No), "checks": told });
                Ok(Reply::rolled_back(data))
            }
            None => {
                let data = json!({ "rollback": null, "checks": told });
                Ok(failed(context, "roll back", data, Error::NonePassed { tried: told.len() }.into()))
            }
        }
    }
}

fn failed(context: &Context, attempt: &'static str, data: Value, problem: Problem) -> Reply {
    context.out.tell(attempt, &problem);
    Reply { data, exit: exit::of(&problem.failure), failure: Some(problem.failure) }
}

fn checks(check_of: &Option<Check>) -> Value {
    check_of.iter().map(check).collect()
}

fn check(check: &Check) -> Value {
    json!({ "checkpoint": check.checkpoint, "passed": check.is_passed(), "failure": check.failure })
}

/// What a command prints is for people to see, and never part of the answer.
fn show(context: &Context, bytes: &[u8]) {
    context.out.aside(bytes);
}
