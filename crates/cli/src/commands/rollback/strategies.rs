//! `rollback` by the strategies that ask first: a command of the user's, or the user.

use super::{shape, tell};
use crate::args::RollbackArgs;
use crate::commands::{Context, recover};
use crate::problem::Problem;
use crate::render::consent;
use crate::render::exit;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use crate::signals;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::coverage::Skipped;
use safepoint::model::rollback::Strategy;
use safepoint::{
    Check, CheckpointManager, DryRun, Error, Probed, Progressed, RollbackOptions, Search, SearchWatch,
    Staged, StagedEnd, Trial, TryIn, Until, Verdict, Workspace,
};
use serde_json::{Value, json};

/// Strategy by the flags.
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
            wrong("--strategy progressive has no command to run", "Name it, as in: --until \"make test\"")
        }
        (_, Some(Strategy::Progressive)) if selects || args.verify.is_some() => wrong(
            "--until rolls back everything, one checkpoint at a time",
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

/// The commands that a rollback asks, as typed.
pub(crate) struct Asked<'a> {
    pub(crate) verify: Option<&'a str>,
    pub(crate) until: Option<&'a str>,
    pub(crate) bisect: bool,
    pub(crate) place: TryIn,
    /// Only checkpoints of this plan are tried.
    pub(crate) plan: Option<&'a str>,
}

impl<'a> From<&'a RollbackArgs> for Asked<'a> {
    fn from(args: &'a RollbackArgs) -> Self {
        let (verify, until) = (args.verify.as_deref(), args.until.as_deref());
        Self { verify, until, bisect: args.bisect, place: place_of(args.in_place, args.copy), plan: None }
    }
}

/// Place in which candidates are tried, by the flags.
pub(crate) fn place_of(in_place: bool, copy: bool) -> TryIn {
    match (in_place, copy) {
        (true, _) => TryIn::Workspace,
        (false, true) => TryIn::Copy,
        (false, false) => TryIn::Overlay,
    }
}

/// Context of a rollback.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) context: &'a Context,
    pub(crate) manager: &'a CheckpointManager,
    pub(crate) workspace: &'a Workspace,
}

impl Ground<'_> {
    /// Tried beside the workspace, shown, and done where the user agrees.
    pub(crate) fn staged(
        self,
        to: &Checkpoint,
        asked: &Asked<'_>,
        options: &RollbackOptions,
    ) -> Result<Reply, Problem> {
        let Ground { context, manager, workspace } = self;
        let dry = options.dry_run == DryRun::Yes;
        if !context.yes && !dry && !consent::can_ask(context) {
            return Err(Problem::usage(
                "a staged rollback asks before it is done, and there is no terminal to ask on",
                "Confirm with --yes.",
            ));
        }
        signals::listen_for_another();
        let mut answered = Ok(());
        let mut agreed = |staged: &Staged| {
            tell(context, manager, &staged.outline, DryRun::Yes);
            answered = consent::ask(context, "Roll back to this?");
            answered.is_ok()
        };
        let mut printed = |bytes: &[u8]| show(context, bytes);
        let trial = Trial { command: asked.verify, agreed: &mut agreed, printed: &mut printed };
        let end = manager
            .rollback_staged(workspace, to.id, options, trial, &context.progress)
            .map_err(|error| context.failed(manager, workspace, error.into()))?;
        recover::tell(&context.out, &manager.take_recovered());
        answered?;
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
                        let command = asked.verify.unwrap_or_default().to_owned();
                        let error = Error::CheckFailed { checkpoint: to.id, command, why };
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

    /// Rolls back to the newest checkpoint in which the user's command passes.
    pub(crate) fn progressive(
        self,
        from: Option<&Checkpoint>,
        asked: &Asked<'_>,
        options: &RollbackOptions,
    ) -> Result<Reply, Problem> {
        let Ground { context, manager, workspace } = self;
        signals::listen_for_another();
        let until = Until {
            command: asked.until.unwrap_or_default().to_owned(),
            from: from.map(|checkpoint| checkpoint.id),
            search: if asked.bisect { Search::Bisect } else { Search::Stepwise },
            place: asked.place,
            plan: asked.plan.map(str::to_owned),
        };
        let mut watch = SearchWatch {
            printed: &mut |bytes: &[u8]| show(context, bytes),
            probed: &mut |probed: Probed<'_>| context.out.remark(probe_line(context, probed)),
        };
        let found = manager
            .rollback_until(workspace, &until, options, &mut watch, &context.progress)
            .map_err(|error| context.failed(manager, workspace, error.into()))?;
        recover::tell(&context.out, &found.recovered);
        let mut data = searched(&found);
        let Progressed { restored, current, tried, left_out, check_changed_files, .. } = found;
        let out = &context.out;
        for (folder, Skipped { path, why }) in left_out.iter().take(LEFT_OUT_MAX) {
            out.warn(format!("{}/{path} is missing where the check ran: {why}", folder.display()));
        }
        if check_changed_files {
            out.warn("the check changed files in the workspace; a rollback restored them");
        }
        if let Some(restored) = restored {
            tell(context, manager, &restored, options.dry_run);
            data["rollback"] = shape(manager, &restored, options.dry_run);
            return Ok(match options.dry_run {
                DryRun::Yes => Reply::done(data),
                DryRun::No => Reply::rolled_back(data),
            });
        }
        if current.is_some_and(|current| current.is_passed()) {
            out.line("The check passes in the current state: nothing to roll back.");
            return Ok(Reply::done(data));
        }
        Ok(failed(context, "roll back", data, Error::NonePassed { tried: tried.len() }.into()))
    }
}

/// Paths missing in a copy are listed up to this many.
const LEFT_OUT_MAX: usize = 5;

/// A search for programs, without its rollback.
fn searched(found: &Progressed) -> Value {
    let left_out = found.left_out.iter().map(|(folder, skipped)| {
        json!({ "folder": folder.to_string_lossy(), "path": skipped.path, "why": skipped.why })
    });
    json!({
        "rollback": null,
        "checks": found.tried.iter().map(check).collect::<Vec<_>>(),
        "current": found.current.as_ref().map(verdict),
        "check_changed_files": found.check_changed_files,
        "tried_in": match found.tried_in {
            TryIn::Overlay => "overlay",
            TryIn::Copy => "copy",
            TryIn::Workspace => "workspace",
        },
        "left_out": left_out.collect::<Vec<_>>(),
    })
}

/// One result of a search.
fn probe_line(context: &Context, probed: Probed<'_>) -> String {
    let colours = context.out.colours;
    let fails = |why: &str| format!("{} ({})", colours.red("fails"), printable(why));
    match probed {
        Probed::Current(Verdict::Passed) => format!("  {CURRENT:26}  {}", colours.green("passes")),
        Probed::Current(Verdict::Failed(why)) => format!("  {CURRENT:26}  {}", fails(why)),
        Probed::Candidate(check) => {
            let word = match &check.failure {
                None => colours.green("passes"),
                Some(why) if check.skipped => format!("{} ({})", colours.yellow("skipped"), printable(why)),
                Some(why) => fails(why),
            };
            format!("  {}  {word}", check.checkpoint)
        }
    }
}

const CURRENT: &str = "current state";

fn verdict(verdict: &Verdict) -> Value {
    let failure = match verdict {
        Verdict::Passed => None,
        Verdict::Failed(why) => Some(why),
    };
    json!({ "passed": verdict.is_passed(), "failure": failure })
}

fn failed(context: &Context, attempt: &'static str, data: Value, problem: Problem) -> Reply {
    context.out.tell(attempt, &problem);
    Reply { data, exit: exit::of(&problem.failure), failure: Some(problem.failure) }
}

fn checks(check_of: &Option<Check>) -> Value {
    check_of.iter().map(check).collect()
}

fn check(check: &Check) -> Value {
    let Check { checkpoint, failure, skipped } = check;
    json!({ "checkpoint": checkpoint, "passed": check.is_passed(), "failure": failure, "skipped": skipped })
}

/// Shows a command's output to people; it is never part of the answer.
fn show(context: &Context, bytes: &[u8]) {
    context.out.aside(bytes);
}
