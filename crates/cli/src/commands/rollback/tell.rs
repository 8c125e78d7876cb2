//! Reports a rollback, an undo or a redo to people and to programs: of one folder or of several.

use super::{effects, git};
use crate::commands::Context;
use crate::commands::create::{SHOWN_MAX, more};
use crate::commands::recover;
use crate::context::Surroundings;
use crate::render::fold::folded;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, counted, for_shell, printable};
use crate::render::warning;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::plan::state::{Plan, TakenBack};
use safepoint::model::rollback::{Action, ChangedPath, Verb};
use safepoint::model::{CheckpointId, WorkspaceId};
use safepoint::{Blocked, CheckpointManager, DryRun, FolderRolledBack, LeftAlone, RolledBack, SessionBack};
use serde_json::{Value, json};

/// Tells what a rollback, an undo or a redo did.
pub(crate) fn answer(
    context: &Context,
    manager: &CheckpointManager,
    done: &RolledBack,
    dry_run: DryRun,
) -> Reply {
    tell(context, manager, done, dry_run);
    Reply::rolled_back(json!({ "rollback": shape(manager, done, dry_run) }))
}

/// The same for programs.
pub(crate) fn shape(manager: &CheckpointManager, done: &RolledBack, dry_run: DryRun) -> Value {
    json::rollback(done, dry_run, plan_of(manager, done).map(|plan| plan.state))
}

/// The restored plan. A read error hides nothing of what was done.
fn plan_of(manager: &CheckpointManager, done: &RolledBack) -> Option<Plan> {
    let (id, _) = done.plans.first().filter(|_| !done.is_together())?;
    manager.plans().held(done.to, id).ok()
}

/// The same for people.
pub(crate) fn tell(context: &Context, manager: &CheckpointManager, done: &RolledBack, dry_run: DryRun) {
    let out = &context.out;
    // Includes recovery in folders other than the current one.
    recover::tell(out, &done.recovered);
    // What other verbs of this command recovered before.
    recover::tell(out, &manager.take_recovered());
    let view = View { out, manager, done, dry_run };
    if !out.quiet {
        match done.is_together() {
            true => view.folders(),
            false => view.folder(),
        }
    }
    effects::warn(out, &done.effects_not_undone);
    view.advise();
    if dry_run == DryRun::No && (done.is_together() || !done.is_empty()) {
        out.remark(match (done.verb, done.is_together()) {
            (Verb::Undo, _) => format!("Do it again with: {}", view.again(context, "redo")),
            (_, true) => format!("Undo all of it with: {}", view.again(context, "undo")),
            (_, false) => format!("Undo it with: {}", view.again(context, "undo")),
        });
    }
}

/// A part that stays as it is, why, and how to take it all the same.
fn left_alone(left: &LeftAlone, to: CheckpointId) -> String {
    match left {
        LeftAlone::PlanApplied { plan } => {
            format!("plan {} was applied and stays as it is", printable(plan))
        }
        LeftAlone::ChangedElsewhere { folder, agents, checkpoint } => format!(
            "{} was changed outside of this workspace (checkpoint {checkpoint}) and stays as it is, with agent {}; to roll it back: safepoint rollback {to} --part agent",
            printable(folder),
            agents.join(", ")
        ),
        LeftAlone::NotBound { agent } => format!(
            "agent {agent} is not bound to this workspace any more and stays as it is; to roll it back: safepoint rollback {to} --part agent"
        ),
        LeftAlone::SandboxMissing { plan, folder } => {
            let (plan, folder) = (printable(plan), printable(folder));
            format!(
                "plan {plan} was not rolled back: its sandbox {folder} is missing; to restore both: safepoint plan rollback {plan} --recreate-sandbox"
            )
        }
        LeftAlone::FolderUnusable { folder, why, plans, agents } => {
            let plans = plans.iter().map(|plan| format!("plan {}", printable(plan)));
            let agents = agents.iter().map(|agent| format!("agent {}", printable(agent)));
            let with: Vec<String> = plans.chain(agents).collect();
            let with = if with.is_empty() { String::new() } else { format!(", with {}", with.join(", ")) };
            format!(
                "{} was not rolled back{with}: {why}; once that is fixed: safepoint rollback {to}",
                printable(folder)
            )
        }
        _ => "a part of the checkpoint was not rolled back".to_owned(),
    }
}

/// Report and printer.
struct View<'a> {
    out: &'a Printer,
    manager: &'a CheckpointManager,
    done: &'a RolledBack,
    dry_run: DryRun,
}

impl View<'_> {
    fn is_dry(&self) -> bool {
        self.dry_run == DryRun::Yes
    }

    /// A rollback of one folder: every path.
    fn folder(&self) {
        let Self { out, manager, done, .. } = self;
        // Only for its label and age: that it cannot be read hides nothing.
        self.headline(manager.checkpoints().get(done.to).ok().as_ref());
        for (id, back) in &done.plans {
            if let Ok(plan) = manager.plans().held(done.to, id) {
                out.line(format!("  {}", self.plan_line(&plan, back)));
            }
        }
        for folder in &done.folders {
            folder.git.iter().for_each(|moved| out.prose(format!("  {}", git::line(moved))));
            let kept = folder.git.as_ref().filter(|moved| moved.files && !self.is_dry());
            let kept = kept.and_then(|moved| moved.uncommitted.as_ref()).zip(folder.record.safety_checkpoint);
            if let Some((what, safety)) = kept {
                out.line(format!("  uncommitted changes ({what}) are in the safety checkpoint {safety}"));
            }
        }
        for folder in done.folders.iter().skip(1).filter(|folder| !folder.outline.paths.is_empty()) {
            self.counts(folder);
        }
        self.listed("agents", &done.agents.iter().map(String::as_str).collect::<Vec<_>>());
        self.sessions();
        effects::tell(out, &done.undone, &done.effects_not_undone, self.dry_run);
        self.paths();
    }

    /// A rollback of several folders: a line for each.
    fn folders(&self) {
        let Self { out, done, .. } = self;
        let rolled = if self.is_dry() { "Would roll back" } else { "Rolled back" };
        let folders = counted(done.folders.len() as u64, "folder", "folders");
        out.line(format!("{rolled} {folders} to {} ({})", out.colours.bold(done.to), done.verb));
        done.folders.iter().for_each(|folder| self.counts(folder));
        self.listed("plans", &done.plans.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>());
        self.listed("agents", &done.agents.iter().map(String::as_str).collect::<Vec<_>>());
        self.sessions();
        for folder in &done.folders {
            if let Some(moved) = &folder.git {
                out.prose(format!("  {}  {}", self.root(folder.record.workspace_id), git::line(moved)));
            }
        }
        effects::tell(out, &done.undone, &done.effects_not_undone, self.dry_run);
        match self.is_dry() {
            true => out.line("  a dry run: nothing was changed"),
            false => out.line(format!("  read back and verified, in {} ms", out.worked_ms())),
        }
    }

    /// Prints the counts of one of several folders.
    fn counts(&self, folder: &FolderRolledBack) {
        let outline = &folder.outline;
        let counts = format!("{} restored, {} removed", outline.restored, outline.removed);
        let root = self.root(folder.record.workspace_id);
        self.out.line(format!("  {root}  {}", self.out.colours.dim(counts)));
    }

    fn listed(&self, what: &str, names: &[&str]) {
        if !names.is_empty() {
            self.out.line(format!("  {what} restored: {}", names.join(", ")));
        }
    }

    /// Path of a workspace, for people. A read error hides nothing of what was done.
    fn root(&self, workspace: WorkspaceId) -> String {
        match self.manager.workspaces().get(workspace) {
            Ok(workspace) => printable(&workspace.root_path().to_string_lossy()),
            Err(_) => workspace.to_string(),
        }
    }

    /// The command that answers it, from where the user is.
    fn again(&self, context: &Context, verb: &str) -> String {
        let here = context.surroundings.workspace_if_any(self.manager).ok().flatten();
        let touched = |id| self.done.folders.iter().any(|folder| folder.record.workspace_id == id);
        // Outside of a workspace, the last rollback of several folders is meant.
        let nowhere = here.is_none() && self.done.is_together();
        if nowhere || here.is_some_and(|here| touched(here.id)) {
            return format!("safepoint {verb}");
        }
        match self.manager.workspaces().get(self.done.record().workspace_id) {
            Ok(place) => format!("safepoint -C {} {verb}", for_shell(&place.root_path().to_string_lossy())),
            Err(_) => format!("safepoint {verb}"),
        }
    }

    fn headline(&self, target: Option<&Checkpoint>) {
        let Self { out, done, .. } = self;
        let (record, outline) = (done.record(), done.outline());
        let id = out.colours.bold(record.to);
        let label = target.and_then(|target| target.label.as_deref());
        let label = label.map(|label| format!(" \"{}\"", printable(label)));
        let age = target.map(|target| format!(", taken {}", ago(Surroundings::now(), target.created_at)));
        let name = format!("{id}{}{}", label.unwrap_or_default(), age.unwrap_or_default());
        let is_of_plan = target.is_none_or(|target| target.plan_id.is_some());
        let maker = if is_of_plan { "the plan" } else { "the attempt" };
        let git_alone = done.folders[0].git.as_ref().is_some_and(|git| !git.files);
        let (chosen, all) = match record.paths.is_empty() {
            _ if git_alone => ("git ", "git is"),
            true => ("", "everything is"),
            false => ("the chosen paths ", "the chosen paths are"),
        };
        if done.is_empty() {
            out.line(match record.verb {
                Verb::Rollback => format!("Nothing differs from {name}."),
                Verb::Undo => "Nothing differs from what was there just before the last rollback.".to_owned(),
                Verb::Redo => "Nothing differs from what was there before the undo.".to_owned(),
                Verb::Apply => format!("The project already holds the result of {maker}."),
            });
            return;
        }
        out.prose(match (record.verb, self.dry_run) {
            (Verb::Rollback, DryRun::No) => format!("Rolled back {chosen}to {name}"),
            (Verb::Rollback, DryRun::Yes) => format!("Would roll back {chosen}to {name}"),
            (Verb::Undo, DryRun::No) => format!("Undid the last rollback: {all} as just before it"),
            (Verb::Undo, DryRun::Yes) => "Would undo the last rollback".to_owned(),
            (Verb::Redo, DryRun::No) => format!("Redid the rollback that was undone: {all} as after it"),
            (Verb::Redo, DryRun::Yes) => "Would redo the rollback that was undone".to_owned(),
            (Verb::Apply, DryRun::No) => format!("Applied the result of {maker}, {name}"),
            (Verb::Apply, DryRun::Yes) => format!("Would apply the result of {maker}, {name}"),
        });
        let put = if record.verb == Verb::Apply { "written" } else { "restored" };
        let counts = format!(
            "{} {put}, {} removed",
            counted(outline.restored, "file", "files"),
            counted(outline.removed, "file", "files")
        );
        match self.dry_run {
            DryRun::Yes if git_alone => out.line("  a dry run: nothing was changed"),
            DryRun::No if git_alone => {}
            DryRun::Yes => out.line(format!("  {counts}; a dry run: nothing was changed")),
            DryRun::No => out.line(format!("  {counts}, read back and verified, in {} ms", out.worked_ms())),
        }
    }

    fn sessions(&self) {
        for back in &self.done.threads {
            let id = printable(&back.key.id);
            for (from, to) in back.heads.values() {
                let told =
                    |id: &Option<String>| id.as_deref().map_or_else(|| "no state".to_owned(), printable);
                self.out.line(format!("  thread {id}: from {} to {}", told(from), told(to)));
            }
        }
        let is = if self.is_dry() { "would be" } else { "is" };
        for SessionBack { id, from, to } in &self.done.sessions {
            let id = id.to_uuid();
            self.out.line(match from == to {
                true => format!("  session {id} {is} as it was, {to}"),
                false => format!("  session {id} {is} {to} again, from {from}"),
            });
        }
    }

    /// New state of a plan, and its undone parts.
    fn plan_line(&self, plan: &Plan, back: &TakenBack) -> String {
        let is = if self.is_dry() { "would be" } else { "is" };
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
            [only] => say(format!("step undone: {only}")),
            few if few.len() <= 4 => say(format!("steps undone: {}", few.join(", "))),
            many => say(format!("{} steps undone", many.len())),
        }
        line
    }

    fn paths(&self) {
        let (out, colours) = (self.out, self.out.colours);
        let (changed, taken) = (&self.done.outline().paths, self.done.verb == Verb::Apply);
        let lines = folded(changed.iter().map(|changed| (&changed.path, changed.action)));
        for line in lines.iter().take(SHOWN_MAX) {
            let ChangedPath { path, action } = &changed[line.item];
            let (sign, word) = match action {
                Action::Created if taken => (colours.green("+"), "new"),
                Action::Created => (colours.green("+"), "created"),
                Action::Restored if taken => (colours.yellow("~"), "changed"),
                Action::Restored => (colours.yellow("~"), "restored"),
                Action::Removed => (colours.red("-"), "removed"),
                Action::Kept => ("=".to_owned(), "kept: it holds things that were never captured"),
            };
            out.line(format!("    {sign} {path}{}  {}", line.tail(), colours.dim(word)));
        }
        more(out, lines.len());
    }

    /// Prints the warnings.
    fn advise(&self) {
        let Self { out, done, .. } = self;
        warning::warn(out, &done.warnings);
        for (at, folder) in done.folders.iter().enumerate() {
            let place = match done.is_together() || at > 0 {
                true => format!("{}: ", self.root(folder.record.workspace_id)),
                false => String::new(),
            };
            for Blocked { path, why, .. } in &folder.outline.blocked {
                out.warn(format!("{place}{path} is not restored and stays as it is: {why}"));
            }
            for rescued in &folder.record.rescued {
                let (path, id) = (&rescued.path, rescued.checkpoint);
                out.warn(format!(
                    "{place}{path}: {}; that version is kept: safepoint cat {id} {path}",
                    printable(&rescued.why)
                ));
            }
            for path in &folder.changed_meanwhile {
                out.warn(format!(
                    "{place}{path} was changed by another program during the rollback and keeps that change"
                ));
            }
        }
        done.left_alone.iter().for_each(|left| out.warn(left_alone(left, done.to)));
        for plan in &done.plans_left {
            let id = printable(plan);
            out.warn(format!(
                "plan {id} works on these files and stays as it is; to see where it stands: safepoint plan show {id}"
            ));
        }
        recover::waiting(&done.waiting, |text| out.warn(text));
    }
}
