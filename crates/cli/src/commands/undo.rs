//! `undo` and `redo`: one more rollback, to where the last one came from.

use crate::args::{AgainArgs, UndoArgs};
use crate::commands::Context;
use crate::commands::rollback::{answer, outermost, plain_options, tell};
use crate::problem::Problem;
use crate::render::consent;
use crate::render::output::Reply;
use crate::render::terminal::{for_shell, printable};
use crate::signals;
use safepoint::model::RelPath;
use safepoint::model::rollback::Verb;
use safepoint::{CheckpointManager, DryRun, Error, LaterChanges, RollbackOptions, RolledBack, Workspace};
use serde_json::json;

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
    let done = done.map_err(|error| {
        let nothing = matches!(error, Error::NothingToUndo);
        let problem = ground.explain(error);
        match args.paths.first() {
            Some(path) if nothing => {
                let path = for_shell(&path.to_string_lossy());
                problem.hint(format!("Only this path: safepoint rollback @ -- {path}"))
            }
            _ => problem,
        }
    })?;
    let mut reply = answer(context, &ground.manager, &done, options.dry_run);
    reply.data["left_changed_since"] = json!([]);
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
            None if manager.has_gone_together()? => None,
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
            out.remark(format!("Left as they are, because they changed after turn {number}:"));
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
        reply.data["left_changed_since"] = json!(undone.left);
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
            Some(workspace) if !options.paths.is_empty() => {
                self.manager.undo_paths(workspace, options, progress)
            }
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

    fn explain(&self, error: Error) -> Problem {
        match &self.workspace {
            Some(workspace) => self.context.failed(&self.manager, workspace, error.into()),
            None => error.into(),
        }
    }
}
