//! `rollback`: makes the workspace equal to a checkpoint, or shows what that would do. Without one it lists them.

mod effects;
mod elsewhere;
mod git;
mod strategies;

pub(crate) use effects::{tell as effects, warn as effects_left};
pub(crate) use git::line as git_line;

use crate::cli::args::RollbackArgs;
use crate::cli::create::{SHOWN_MAX, more};
use crate::cli::fold::folded;
use crate::cli::list::table;
use crate::cli::output::{Printer, Reply};
use crate::cli::terminal::{ago, counted, for_shell, printable};
use crate::cli::{Context, recover, together};
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::{json, signals};
use safepoint::model::RelPath;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::plan::state::{Plan, TakenBack};
use safepoint::model::rollback::{Action, ChangedPath, Strategy, Verb};
use safepoint::{
    Blocked, CheckpointManager, DryRun, FailedUndo, Filter, RestoreOptions, Restored, RoleFilter,
    SessionBack, Times, Workspace,
};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &RollbackArgs) -> Result<Reply, Problem> {
    if let Some(to) = &args.to {
        return elsewhere::run(context, args, to);
    }
    refuse_several_parts(args)?;
    let manager = context.surroundings.of_session(args.which.session_id.as_deref())?.open(None)?;
    let workspace = context.surroundings.workspace(&manager)?;
    let strategy = strategies::chosen(args)?;
    let session = args.which.session_id.as_deref();
    let named = |given: &str| context.checkpoint(&manager, Some(&workspace), given, session);
    let checkpoint = args.which.given().map(named).transpose()?;
    let options = options(context, &workspace, args)?;
    let together = checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.workspace_id.is_none());
    let ground = strategies::Ground { context, manager: &manager, workspace: &workspace };
    if strategy == Strategy::Progressive {
        git::refuse(args)?;
        context.recover_first(&manager, &workspace)?;
        return match checkpoint.as_ref().filter(|_| together) {
            Some(from) => ground.progressive_together(from, args, &options),
            None => ground.progressive(checkpoint.as_ref(), args, &options),
        };
    }
    let Some(checkpoint) = checkpoint else { return choose(context, &manager, &workspace) };
    let options = git::options(args, &checkpoint, options)?;
    context.recover_first(&manager, &workspace)?;
    let goes_together = together && options.paths.is_empty();
    match (strategy, goes_together) {
        (Strategy::Staged, true) => return ground.staged_together(&checkpoint, args, &options),
        (Strategy::Staged, false) => return ground.staged(&checkpoint, args, &options),
        _ => {}
    }
    // Undo commands of a plan's steps may run: they are not to stay behind.
    signals::listen_for_another();
    if goes_together {
        let restored = manager.restore_together(checkpoint.id, &options, &context.progress)?;
        return together::answer(context, &manager, Verb::Rollback, &restored, options.dry_run);
    }
    let restored = manager
        .restore(&workspace, checkpoint.id, &options, &context.progress)
        .map_err(|error| context.surroundings.explain_gone(&workspace, error.into()))?;
    Ok(answer(context, &manager, &restored, options.dry_run))
}

/// Back to a checkpoint, everything of it, and told.
pub(crate) fn back_to(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
    checkpoint: &Checkpoint,
) -> Result<Value, Problem> {
    context.recover_first(manager, workspace)?;
    let options = RestoreOptions::default();
    let restored = manager
        .restore(workspace, checkpoint.id, &options, &context.progress)
        .map_err(|error| context.surroundings.explain_gone(workspace, error.into()))?;
    tell(context, manager, &restored, options.dry_run);
    Ok(shape(manager, &restored, options.dry_run))
}

fn refuse_several_parts(args: &RollbackArgs) -> Result<(), Problem> {
    match args.parts.as_slice() {
        [] | [_] => Ok(()),
        _ => Err(Problem::usage("one part can be chosen at a time", "Name one, or none for all of them.")),
    }
}

fn options(context: &Context, workspace: &Workspace, args: &RollbackArgs) -> Result<RestoreOptions, Problem> {
    let paths = args.paths.iter().map(|path| context.surroundings.path_in(workspace, path));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    let paths = outermost(paths);
    let part = args.parts.first().copied();
    Ok(RestoreOptions { paths, part, ..plain_options(args.dry_run, args.keep_times, args.skip_failed_undo) })
}

/// The paths without those that lie in another one: they come with it.
fn outermost(mut paths: Vec<RelPath>) -> Vec<RelPath> {
    paths.sort();
    let mut chosen: Vec<RelPath> = Vec::new();
    for path in paths {
        if !chosen.iter().any(|above| path.is_within(above)) {
            chosen.push(path);
        }
    }
    chosen
}

/// What undo and redo choose, too.
pub(crate) fn plain_options(dry_run: bool, keep_times: bool, skip_failed_undo: bool) -> RestoreOptions {
    RestoreOptions {
        paths: Vec::new(),
        part: None,
        dry_run: if dry_run { DryRun::Yes } else { DryRun::No },
        times: if keep_times { Times::Recorded } else { Times::Present },
        failed_undo: if skip_failed_undo { FailedUndo::IsSkipped } else { FailedUndo::Stops },
        ..RestoreOptions::default()
    }
}

fn choose(context: &Context, manager: &CheckpointManager, workspace: &Workspace) -> Result<Reply, Problem> {
    let filter = Filter { workspace: Some(workspace.id), role: RoleFilter::Any, ..Filter::default() };
    let checkpoints = manager.list(&filter)?;
    table(context, manager, Some(workspace), &checkpoints)?;
    context.out.remark(if checkpoints.is_empty() {
        "There is nothing to roll back to yet. Take one: safepoint create"
    } else {
        "Choose one: safepoint rollback ID (add --dry-run to see what it would do)"
    });
    let list: Value = checkpoints.iter().map(json::checkpoint).collect();
    Ok(Reply::done(json!({ "rollback": null, "checkpoints": list })))
}

/// Tells what a rollback, an undo or a redo did.
pub(crate) fn answer(
    context: &Context,
    manager: &CheckpointManager,
    restored: &Restored,
    dry_run: DryRun,
) -> Reply {
    tell(context, manager, restored, dry_run);
    Reply::rolled_back(json!({ "rollback": shape(manager, restored, dry_run) }))
}

/// The same for programs.
pub(crate) fn shape(manager: &CheckpointManager, restored: &Restored, dry_run: DryRun) -> Value {
    json::rollback(restored, dry_run, plan_of(manager, restored).map(|plan| plan.state))
}

/// The plan as it was put back. That it cannot be read hides nothing of what was done.
fn plan_of(manager: &CheckpointManager, restored: &Restored) -> Option<Plan> {
    restored.taken_back.as_ref()?;
    manager.plan_at(restored.rollback.to).ok()
}

pub(crate) fn tell(context: &Context, manager: &CheckpointManager, restored: &Restored, dry_run: DryRun) {
    let out = &context.out;
    // Only for its label and age: that it cannot be read hides nothing.
    let target = manager.checkpoint(restored.rollback.to).ok();
    if !out.quiet {
        headline(out, restored, target.as_ref(), dry_run);
        if let (Some(back), Some(plan)) = (&restored.taken_back, plan_of(manager, restored)) {
            out.line(format!("  {}", plan_line(&plan, back, dry_run)));
        }
        restored.git.iter().for_each(|moved| out.line(format!("  {}", git::line(moved))));
        restored.session.iter().for_each(|back| out.line(format!("  {}", session_line(back, dry_run))));
        effects::tell(out, &restored.undone, &restored.effects_not_undone, dry_run);
        paths(out, restored);
    }
    effects::warn(out, &restored.effects_not_undone);
    advise(out, restored);
    if dry_run == DryRun::No && !differs_nowhere(restored) {
        let undo = |verb| again(context, manager, restored, verb);
        match restored.rollback.verb {
            Verb::Undo => out.remark(format!("Do it again with: {}", undo("redo"))),
            Verb::Rollback | Verb::Redo | Verb::Apply => {
                out.remark(format!("Take it back with: {}", undo("undo")));
            }
        }
    }
}

/// The command that answers a rollback, from where the user is.
fn again(context: &Context, manager: &CheckpointManager, restored: &Restored, verb: &str) -> String {
    let id = restored.rollback.workspace_id;
    let here = context.surroundings.workspace_if_any(manager).ok().flatten();
    match manager.workspace(id) {
        Ok(place) if here.is_none_or(|here| here.id != id) => {
            format!("safepoint -C {} {verb}", for_shell(&place.root_path().to_string_lossy()))
        }
        _ => format!("safepoint {verb}"),
    }
}

fn headline(out: &Printer, restored: &Restored, target: Option<&Checkpoint>, dry_run: DryRun) {
    let record = &restored.rollback;
    let id = out.colours.bold(record.to);
    let label =
        target.and_then(|target| target.label.as_deref()).map(|label| format!(" \"{}\"", printable(label)));
    let age = target.map(|target| format!(", taken {}", ago(Surroundings::now(), target.created_at)));
    let name = format!("{id}{}{}", label.unwrap_or_default(), age.unwrap_or_default());
    let git_alone = restored.git.as_ref().is_some_and(|git| !git.files);
    let chosen = match record.paths.is_empty() {
        _ if git_alone => "git ",
        true => "",
        false => "the chosen paths ",
    };
    if differs_nowhere(restored) {
        out.line(match record.verb {
            Verb::Rollback => format!("Nothing differs from {name}."),
            Verb::Undo => "Nothing differs from what was there just before the last rollback.".to_owned(),
            Verb::Redo => "Nothing differs from what was there before the undo.".to_owned(),
            Verb::Apply => "The project is what the plan made already.".to_owned(),
        });
        return;
    }
    let done = dry_run == DryRun::No;
    let all = match record.paths.is_empty() {
        _ if git_alone => "git is",
        true => "everything is",
        false => "the chosen paths are",
    };
    out.line(match (record.verb, done) {
        (Verb::Rollback, true) => format!("Rolled back {chosen}to {name}"),
        (Verb::Rollback, false) => format!("Would roll back {chosen}to {name}"),
        (Verb::Undo, true) => format!("Undid the last rollback: {all} as just before it"),
        (Verb::Undo, false) => "Would undo the last rollback".to_owned(),
        (Verb::Redo, true) => format!("Redid the rollback that was undone: {all} as after it"),
        (Verb::Redo, false) => "Would redo the rollback that was undone".to_owned(),
        (Verb::Apply, true) => format!("Took over what the plan made, {name}"),
        (Verb::Apply, false) => format!("Would take over what the plan made, {name}"),
    });
    let put = if record.verb == Verb::Apply { "written" } else { "put back" };
    let counts = format!(
        "{} {put}, {} removed",
        counted(restored.outline.restored, "file", "files"),
        counted(restored.outline.removed, "file", "files")
    );
    match dry_run {
        DryRun::Yes if git_alone => out.line("  a dry run: nothing was changed"),
        DryRun::No if git_alone => {}
        DryRun::Yes => out.line(format!("  {counts}; a dry run: nothing was changed")),
        DryRun::No => out.line(format!("  {counts}, read back and verified, in {} ms", out.elapsed_ms())),
    }
}

/// Whether there was nothing to do.
fn differs_nowhere(restored: &Restored) -> bool {
    restored.outline.paths.is_empty()
        && restored.taken_back.is_none()
        && restored.git.is_none()
        && restored.session.is_none()
}

/// What becomes of a session.
fn session_line(back: &SessionBack, dry_run: DryRun) -> String {
    let is = if dry_run == DryRun::Yes { "would be" } else { "is" };
    let (id, to) = (back.id.to_uuid(), back.to);
    match back.from == to {
        true => format!("session {id} {is} as it was, {to}"),
        false => format!("session {id} {is} {to} again, from {}", back.from),
    }
}

/// What becomes of a plan, and what of it is taken back.
fn plan_line(plan: &Plan, back: &TakenBack, dry_run: DryRun) -> String {
    let is = if dry_run == DryRun::Yes { "would be" } else { "is" };
    let mut line = format!("plan {} {is} {} again", plan.id, plan.state);
    let mut say = |what: String| line.push_str(&format!("; {what}"));
    if !back.decisions.is_empty() {
        say(format!("{} superseded", counted(back.decisions.len() as u64, "decision", "decisions")));
    }
    if !back.subplans.is_empty() {
        say(format!("{} invalidated", counted(back.subplans.len() as u64, "subplan", "subplans")));
    }
    match back.steps.as_slice() {
        [] => {}
        [only] => say(format!("step taken back: {only}")),
        few if few.len() <= 4 => say(format!("steps taken back: {}", few.join(", "))),
        many => say(format!("{} steps taken back", many.len())),
    }
    line
}

fn paths(out: &Printer, restored: &Restored) {
    let colours = out.colours;
    let (changed, taken) = (&restored.outline.paths, restored.rollback.verb == Verb::Apply);
    let lines = folded(changed.iter().map(|changed| (&changed.path, changed.action)));
    for line in lines.iter().take(SHOWN_MAX) {
        let ChangedPath { path, action } = &changed[line.item];
        let (sign, word) = match action {
            Action::Created if taken => (colours.green("+"), "new"),
            Action::Created => (colours.green("+"), "put back"),
            Action::Restored if taken => (colours.yellow("~"), "changed"),
            Action::Restored => (colours.yellow("~"), "restored"),
            Action::Removed => (colours.red("-"), "removed"),
            Action::Kept => ("=".to_owned(), "kept: it holds things that were never captured"),
        };
        out.line(format!("    {sign} {path}{}  {}", line.tail(), colours.dim(word)));
    }
    more(out, lines.len());
}

/// A path that was not put back.
pub(crate) fn stays(blocked: &Blocked) -> String {
    format!("{} is not put back and stays as it is: {}", blocked.path, blocked.why)
}

/// What people have to know.
fn advise(out: &Printer, restored: &Restored) {
    restored.warnings.iter().for_each(|warning| out.warn(printable(warning)));
    restored.outline.blocked.iter().for_each(|blocked| out.warn(stays(blocked)));
    for rescued in &restored.rollback.rescued {
        let (path, id) = (&rescued.path, rescued.checkpoint);
        out.warn(format!(
            "{path}: {}; that version is kept: safepoint cat {id} {path}",
            printable(&rescued.why)
        ));
    }
    for path in &restored.changed_meanwhile {
        out.warn(format!("{path} was changed by another program meanwhile and is as that program made it"));
    }
    recover::waiting(&restored.waiting, |text| out.warn(text));
}
