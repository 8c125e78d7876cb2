//! `undo` and `redo`: one more rollback, to where the last one came from.

use crate::args::{AgainArgs, UndoArgs};
use crate::commands::rollback::{answer, outermost, plain_options, tell, tell_conversation};
use crate::commands::{Context, advice};
use crate::problem::Problem;
use crate::render::consent;
use crate::render::output::Reply;
use crate::render::terminal::{for_shell, printable};
use crate::signals;
use safepoint::model::RelPath;
use safepoint::model::rollback::Verb;
use safepoint::{
    CheckpointManager, DryRun, Error, LaterChanges, RollbackOptions, RolledBack, SharedPath, Workspace,
};
use serde_json::{Value, json};
use std::ffi::OsString;

/// So many paths are shown above the question.
const SHOWN_MAX: usize = 12;

pub(crate) fn undo(context: &Context, args: &UndoArgs) -> Result<Reply, Problem> {
    let ground = Ground::open(context)?;
    if let Some(number) = args.turn {
        return ground.undo_turn(number, args);
    }
    let options = RollbackOptions {
        paths: ground.paths(args)?,
        later_changes: if context.yes { LaterChanges::Replaced } else { LaterChanges::Refused },
        ..plain_options(args.again.dry_run, args.again.keep_times, args.again.undo_commands.chosen())
    };
    let done = ground.heeding(Verb::Undo, &options)?;
    let done = done.map_err(|error| match &error {
        Error::NothingToUndo => ground.nothing_to_undo(ground.explain(error), (&args.paths, &[])),
        Error::NotInLastRollback { paths } => {
            let is_other = |typed: &OsString| ground.names_one_of(typed, paths);
            let (other, own): (Vec<_>, Vec<_>) = args.paths.iter().cloned().partition(is_other);
            ground.nothing_to_undo(ground.explain(error), (&other, &own))
        }
        _ => of_paths(ground.explain(error), &args.paths),
    })?;
    let mut reply = answer(context, &ground.manager, &done, options.dry_run);
    reply.data["left_changed_since"] = json!([]);
    reply.data["left_by_turn"] = json!([]);
    Ok(reply)
}

pub(crate) fn redo(context: &Context, args: &AgainArgs) -> Result<Reply, Problem> {
    let ground = Ground::open(context)?;
    let options = RollbackOptions {
        later_changes: if context.yes { LaterChanges::Replaced } else { LaterChanges::Refused },
        ..plain_options(args.dry_run, args.keep_times, args.undo_commands.chosen())
    };
    let done = ground.heeding(Verb::Redo, &options)?;
    let done = done.map_err(|error| ground.explain(error))?;
    Ok(answer(context, &ground.manager, &done, options.dry_run))
}

/// The workspace that it is about, and who is told.
struct Ground<'a> {
    context: &'a Context,
    manager: CheckpointManager,
    /// Nothing where it is the last rollback of several folders.
    workspace: Option<Workspace>,
}

impl<'a> Ground<'a> {
    fn open(context: &'a Context) -> Result<Self, Problem> {
        let manager = context.surroundings.open(None)?;
        // Without a workspace, it is the last multi-folder rollback.
        let workspace = match context.surroundings.workspace_if_any(&manager)? {
            None if !manager.history(None)?.is_empty() => None,
            _ => Some(context.surroundings.workspace(&manager)?),
        };
        // Undo commands of a plan's steps may run: they are not to stay behind.
        signals::listen_for_another();
        Ok(Self { context, manager, workspace })
    }

    fn paths(&self, args: &UndoArgs) -> Result<Vec<RelPath>, Problem> {
        if args.paths.is_empty() {
            return Ok(Vec::new());
        }
        let surroundings = &self.context.surroundings;
        let workspace = surroundings.workspace(&self.manager)?;
        let paths = args.paths.iter().map(|path| surroundings.path_in(&workspace, path));
        Ok(outermost(paths.collect::<Result<_, _>>()?))
    }

    /// Undoes one turn of an agent. Paths that changed since are named.
    fn undo_turn(&self, number: u64, args: &UndoArgs) -> Result<Reply, Problem> {
        let workspace = self.context.surroundings.workspace(&self.manager)?;
        let options = RollbackOptions {
            later_changes: if args.all { LaterChanges::Replaced } else { LaterChanges::Refused },
            ..plain_options(args.again.dry_run, args.again.keep_times, args.again.undo_commands.chosen())
        };
        let undone = self.manager.turns().undo(&workspace, number, &options, &self.context.progress);
        let undone = undone.map_err(|error| self.explain(error))?;
        let mut reply = answer(self.context, &self.manager, &undone.done, options.dry_run);
        if !undone.left.is_empty() {
            let out = &self.context.out;
            out.remark(format!(
                "Left as they are, because another turn changed them or they changed after turn {number}:"
            ));
            undone
                .left
                .iter()
                .take(SHOWN_MAX)
                .for_each(|path| out.remark(format!("    {}", printable(&path.to_string()))));
            if undone.left.len() > SHOWN_MAX {
                out.remark(format!("    and {} more", undone.left.len() - SHOWN_MAX));
            }
            out.remark(format!("Take them, too: safepoint undo --turn {number} --all"));
        }
        if options.dry_run == DryRun::No {
            tell_conversation(&self.context.out, &self.manager, &undone.turn);
        }
        reply.data["left_changed_since"] = undone.left.iter().map(|left| json!(left.path)).collect();
        reply.data["left_by_turn"] = undone.left.iter().map(by_turn).collect();
        Ok(reply)
    }

    /// Undoes or redoes. Where files changed since, it shows them and asks, if the user can be asked.
    fn heeding(&self, verb: Verb, options: &RollbackOptions) -> Result<Result<RolledBack, Error>, Problem> {
        Ok(match self.answer(verb, options) {
            Err(Error::ChangedSinceRollback { paths, .. }) if consent::can_ask(self.context) => {
                let options = RollbackOptions { later_changes: LaterChanges::Replaced, ..options.clone() };
                self.ask(verb, &paths, &options)?;
                self.answer(verb, &options)
            }
            done => done,
        })
    }

    fn answer(&self, verb: Verb, options: &RollbackOptions) -> Result<RolledBack, Error> {
        let progress = &self.context.progress;
        match &self.workspace {
            workspace if verb == Verb::Redo => self.manager.redo(workspace.as_ref(), options, progress),
            workspace => self.manager.undo(workspace.as_ref(), options, progress),
        }
    }

    /// Shows what it does, names the files that changed since, and asks.
    fn ask(&self, verb: Verb, paths: &[RelPath], options: &RollbackOptions) -> Result<(), Problem> {
        let (last, anyway) = match verb {
            Verb::Redo => ("undo", "Redo"),
            _ => ("rollback", "Undo"),
        };
        let dry = RollbackOptions { dry_run: DryRun::Yes, ..options.clone() };
        let shown = self.answer(verb, &dry).map_err(|error| self.explain(error))?;
        tell(self.context, &self.manager, &shown, dry.dry_run);
        let mut about = vec![format!("These files changed since the last {last} and would be replaced:")];
        about
            .extend(paths.iter().take(SHOWN_MAX).map(|path| format!("    {}", printable(&path.to_string()))));
        if paths.len() > SHOWN_MAX {
            about.push(format!("    and {} more", paths.len() - SHOWN_MAX));
        }
        let question = format!("{anyway} anyway? The current state is kept in a safety checkpoint.");
        consent::ask_about(self.context, &about, &question)
    }

    /// Returns true if a path as typed is one of these or lies in one.
    fn names_one_of(&self, typed: &OsString, paths: &[RelPath]) -> bool {
        let Some(workspace) = &self.workspace else { return false };
        let path = self.context.surroundings.path_in(workspace, typed);
        path.is_ok_and(|path| paths.iter().any(|one| path.is_within(one)))
    }

    /// The problem of an undo that has nothing to answer for these paths, with the checkpoint to return to, if there is one. The undo of
    /// the other paths is possible.
    fn nothing_to_undo(&self, mut problem: Problem, (paths, others): (&[OsString], &[OsString])) -> Problem {
        let Some(workspace) = &self.workspace else { return problem };
        if workspace.head.is_none() {
            problem.failure.message = format!(
                "{}, and {} has no checkpoint yet",
                problem.failure.message,
                workspace.root_path().display()
            );
            problem.failure.hints = advice::elsewhere().map(str::to_owned).to_vec();
            return problem;
        }
        if paths.is_empty() {
            return problem;
        }
        let hint =
            format!("Restore it from the newest checkpoint: safepoint rollback @ -- {}", for_paths(paths));
        problem.failure.hints = vec![hint];
        match others.is_empty() {
            true => problem,
            false => problem.hint(format!("Undo the others: safepoint undo -- {}", for_paths(others))),
        }
    }

    fn explain(&self, error: Error) -> Problem {
        match &self.workspace {
            Some(workspace) => self.context.failed(&self.manager, workspace, error.into()),
            None => error.into(),
        }
    }
}

/// The problem with hints that are about the typed paths alone: without them a pasted command would undo everything.
fn of_paths(mut problem: Problem, paths: &[OsString]) -> Problem {
    if problem.failure.code == "changed_since_rollback" && !paths.is_empty() {
        for hint in &mut problem.failure.hints {
            *hint = format!("{hint} -- {}", for_paths(paths));
        }
    }
    problem
}

/// Typed paths, quoted for a shell.
fn for_paths(paths: &[OsString]) -> String {
    let quoted: Vec<String> = paths.iter().map(|path| for_shell(&path.to_string_lossy())).collect();
    quoted.join(" ")
}

/// A path that stays, with the turn that changed it, too.
fn by_turn(left: &SharedPath) -> Value {
    let (turn, agent) = left.turn.clone().unzip();
    json!({ "path": left.path, "turn": turn, "agent": agent })
}
