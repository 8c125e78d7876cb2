//! `rollback` by the strategies that ask somebody first: a command of the user's, and the user.

use super::{shape, tell};
use crate::cli::args::RollbackArgs;
use crate::cli::consent;
use crate::cli::exit;
use crate::cli::output::Reply;
use crate::cli::terminal::printable;
use crate::cli::{Context, together};
use crate::problem::Problem;
use crate::signals;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::rollback::{Strategy, Verb};
use safepoint::{
    Check, CheckpointManager, DryRun, Error, Printed, Progressed, RestoreOptions, Restored, RestoredTogether,
    Search, Staged, StagedEnd, Trial, Until, Workspace,
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

/// A rollback that people and programs are told about: one of a workspace, or one of many folders.
trait Told {
    fn tell(&self, ground: Ground<'_>, dry_run: DryRun) -> Result<(), Problem>;
    fn shape(&self, ground: Ground<'_>, dry_run: DryRun) -> Value;
}

impl Told for Restored {
    fn tell(&self, ground: Ground<'_>, dry_run: DryRun) -> Result<(), Problem> {
        tell(ground.context, ground.manager, self, dry_run);
        Ok(())
    }

    fn shape(&self, ground: Ground<'_>, dry_run: DryRun) -> Value {
        shape(ground.manager, self, dry_run)
    }
}

impl Told for RestoredTogether {
    fn tell(&self, ground: Ground<'_>, dry_run: DryRun) -> Result<(), Problem> {
        together::tell(ground.context, ground.manager, Verb::Rollback, self, dry_run)
    }

    fn shape(&self, _: Ground<'_>, dry_run: DryRun) -> Value {
        together::shape(self, Verb::Rollback, dry_run)
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
        options: &RestoreOptions,
    ) -> Result<Reply, Problem> {
        let Ground { context, manager, workspace } = self;
        self.try_out(to, args, options, |trial| {
            manager.restore_staged(workspace, to.id, options, trial, &context.progress)
        })
    }

    /// The same for all the folders of a checkpoint.
    pub(super) fn staged_together(
        self,
        to: &Checkpoint,
        args: &RollbackArgs,
        options: &RestoreOptions,
    ) -> Result<Reply, Problem> {
        let Ground { context, manager, workspace } = self;
        self.try_out(to, args, options, |trial| {
            manager.restore_staged_together(workspace, to.id, options, trial, &context.progress)
        })
    }

    fn try_out<R: Told>(
        self,
        to: &Checkpoint,
        args: &RollbackArgs,
        options: &RestoreOptions,
        act: impl FnOnce(Trial<'_, R>) -> Result<StagedEnd<R>, Error>,
    ) -> Result<Reply, Problem> {
        let Ground { context, workspace, .. } = self;
        let dry = options.dry_run == DryRun::Yes;
        if !context.yes && !dry && !consent::can_ask(context) {
            return Err(Problem::usage(
                "a staged rollback asks before it is done, and there is no terminal to ask on",
                "If you mean it, say so with --yes.",
            ));
        }
        signals::listen_for_another();
        let mut asked = Ok(());
        let mut agreed = |staged: &Staged<R>| {
            asked = staged
                .outline
                .tell(self, DryRun::Yes)
                .and_then(|()| consent::ask(context, "Roll back to this?"));
            asked.is_ok()
        };
        let mut printed = |bytes: &[u8]| show(context, bytes);
        let trial = Trial { command: args.verify.as_deref(), agreed: &mut agreed, printed: &mut printed };
        let end = act(trial).map_err(|error| context.surroundings.explain_gone(workspace, error.into()))?;
        asked?;
        match end {
            StagedEnd::Done(restored, staged) => {
                restored.tell(self, DryRun::No)?;
                let rollback = restored.shape(self, DryRun::No);
                Ok(Reply::rolled_back(json!({ "rollback": rollback, "checks": checks(&staged.check) })))
            }
            StagedEnd::Left(staged) => {
                let rollback = staged.outline.shape(self, DryRun::Yes);
                let data = json!({ "rollback": rollback, "checks": checks(&staged.check) });
                match staged.check.as_ref().and_then(|check| check.failure.clone()) {
                    Some(why) => {
                        let error = Error::CheckFailed { checkpoint: to.id, why };
                        Ok(failed(context, "roll back", data, error.into()))
                    }
                    None => {
                        staged.outline.tell(self, DryRun::Yes)?;
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
        options: &RestoreOptions,
    ) -> Result<Reply, Problem> {
        let Ground { context, manager, workspace } = self;
        self.go_back(from, args, options, |until, printed| {
            manager.restore_until(workspace, until, options, printed, &context.progress)
        })
    }

    /// The same over checkpoints of many folders.
    pub(super) fn progressive_together(
        self,
        from: &Checkpoint,
        args: &RollbackArgs,
        options: &RestoreOptions,
    ) -> Result<Reply, Problem> {
        let Ground { context, manager, workspace } = self;
        self.go_back(Some(from), args, options, |until, printed| {
            manager.restore_until_together(workspace, from, until, options, printed, &context.progress)
        })
    }

    fn go_back<R: Told>(
        self,
        from: Option<&Checkpoint>,
        args: &RollbackArgs,
        options: &RestoreOptions,
        act: impl FnOnce(&Until, Printed<'_>) -> Result<Progressed<R>, Error>,
    ) -> Result<Reply, Problem> {
        let Ground { context, workspace, .. } = self;
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
        let Progressed { restored, tried, began_at } = act(&until, &mut printed)
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
                restored.tell(self, DryRun::No)?;
                if let Some(began_at) = began_at {
                    out.remark(format!("Where it began: safepoint rollback {began_at}"));
                }
                let data = json!({ "rollback": restored.shape(self, DryRun::No), "checks": told });
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
