//! Calls that write: to the workspace, to the home, or by the recovery that comes first.

use super::{Ground, dispatched, look};
use crate::args::attempt::{AttemptCommand, DropArgs};
use crate::args::{Command, CreateArgs};
use crate::commands::attempt::{kept_shape, processes};
use crate::commands::rollback::{plain_options, shape};
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::terminal::printable;
use safepoint::model::checkpoint::PartKind;
use safepoint::model::rollback::{Rollback, RollbackState, Verb};
use safepoint::model::{CheckpointId, ObjectId, RelPath};
use safepoint::{
    Against, AttemptKept, Check, DryRun, Error, FailedUndo, Fix, Interrupted, KeepAttempt, LaterChanges,
    NewDecision, Others, Pinned, Probed, Revert, RollbackOptions, RolledBack, RunEvent, RunObserver,
    RunOptions, Search, SearchWatch, Stop, TryIn, Until, Verdict,
};
use safepoint_web::{Bound, Call, Find, PreviewOf, Watch, Wish};
use serde_json::{Value, json};

/// Name of this client on a checkpoint.
const TOOL: &str = "ui";

/// Takes a checkpoint of the folder, and registers it if necessary.
pub(super) fn create(surroundings: &Surroundings, label: Option<String>) -> Result<Value, Problem> {
    let label = label.filter(|label| !label.is_empty());
    let args = CreateArgs::labelled(label, Some(TOOL.to_owned()));
    let made = dispatched(surroundings, &Command::Create(args))?;
    let mut checkpoint = made["checkpoint"].clone();
    if let Some(fields) = checkpoint.as_object_mut() {
        fields.remove("coverage");
    }
    Ok(json!({ "checkpoint": checkpoint, "unchanged": made["unchanged"] }))
}

/// Result of a dry run or a rollback, with the paths that it left alone.
struct Done {
    done: RolledBack,
    left: Vec<RelPath>,
    attempt: Option<u64>,
}

impl Ground<'_> {
    pub(super) fn work(&self, call: &Call) -> Result<Value, Problem> {
        match call {
            Call::Present => {
                // Its own recovery is kept for the notice on the page.
                // If it fails, so does the comparison, and reports it.
                let _ = self.manager.recover(&self.workspace, self.watch);
                self.command(&Command::Status)
            }
            Call::Diff { from, to, skip, limit } => self.diff((from, to), *skip, *limit),
            Call::Pin(id) => self.pin(id, Pinned::Yes),
            Call::Unpin(id) => self.pin(id, Pinned::No),
            Call::Delete { ids, dry_run } => self.delete(ids, *dry_run),
            Call::Preview(wish) => self.preview(wish),
            Call::Confirm(bound) => self.confirm(bound),
            Call::UndoOf(id) => self.undo_of(id),
            Call::DropAttempt(name) => {
                let names = vec![name.clone()];
                self.command(&Command::Attempt(AttemptCommand::Drop(DropArgs {
                    names,
                    delete_commits: false,
                })))
            }
            Call::CorrectInPlace { plan, guidance } => self.correct_in_place(plan, guidance.as_deref()),
            Call::Resume { plan, interrupted } => self.resume(plan, interrupted.as_deref()),
            Call::FindGood(find) => self.find_good(find),
            _ => Err(Problem::internal("a call was not understood".to_owned())),
        }
    }

    fn pin(&self, id: &str, pinned: Pinned) -> Result<Value, Problem> {
        let checkpoint = self.manager.checkpoints().pin(self.checkpoint(id)?.id, pinned)?;
        Ok(json!({ "checkpoint": crate::render::json::checkpoint(&checkpoint) }))
    }

    fn delete(&self, ids: &[String], dry_run: bool) -> Result<Value, Problem> {
        let mut known: Vec<CheckpointId> = Vec::new();
        for id in ids {
            known.push(self.checkpoint(id)?.id);
        }
        known.sort_unstable();
        known.dedup();
        let frees = match dry_run {
            true => Some(self.manager.upkeep().frees(&known, self.watch)?),
            false => {
                self.manager.checkpoints().delete(&known)?;
                None
            }
        };
        Ok(json!({ "dry_run": dry_run, "checkpoints": known, "frees_bytes": frees }))
    }

    fn options(&self, wish: &Wish) -> Result<RollbackOptions, Problem> {
        let mut parts = Vec::new();
        for part in &wish.parts {
            parts.push(match part.as_str() {
                "files" => PartKind::Files,
                "plan" => PartKind::Plan,
                "session" => PartKind::Session,
                "agent" => PartKind::Agent,
                "git" => PartKind::Git,
                _ => {
                    return Err(Problem::usage(
                        "this kind of part is not known",
                        "Choose files, plan, session, agent or git.",
                    ));
                }
            });
        }
        let failed = if wish.skips_failed_undo { FailedUndo::IsSkipped } else { FailedUndo::default() };
        Ok(RollbackOptions {
            paths: wish.paths.iter().map(|path| look::path(path)).collect::<Result<_, _>>()?,
            leave: wish.leave.iter().map(|path| look::path(path)).collect::<Result<_, _>>()?,
            parts,
            later_changes: if wish.replaces_later { LaterChanges::Replaced } else { LaterChanges::Refused },
            ..plain_options(false, false, failed)
        })
    }

    /// Does what is wished, or shows it.
    fn go(&self, wish: &Wish, to: Option<CheckpointId>, options: &RollbackOptions) -> Result<Done, Problem> {
        let (manager, workspace) = (&self.manager, &self.workspace);
        let alone = |done| Done { done, left: Vec::new(), attempt: None };
        Ok(match wish.of {
            PreviewOf::Rollback => {
                let to = to.ok_or_else(|| Problem::internal("the target is missing".to_owned()))?;
                alone(manager.rollback(workspace, to, options, self.watch)?)
            }
            PreviewOf::Undo => alone(manager.undo(workspace, options, self.watch)?),
            PreviewOf::Redo => alone(manager.redo(workspace, options, self.watch)?),
            PreviewOf::Turn(number) => {
                let undone = manager.turns().undo(workspace, number, options, self.watch)?;
                let left = undone.left.into_iter().map(|left| left.path).collect();
                Done { done: undone.done, left, attempt: None }
            }
            PreviewOf::Plan => {
                let (Some(plan), Some(to)) = (&wish.plan, to) else {
                    return Err(Problem::internal("the target is missing".to_owned()));
                };
                alone(manager.plans().rollback(plan, to, options, self.watch)?)
            }
            PreviewOf::Correct => {
                let (Some(plan), Some(to)) = (&wish.plan, to) else {
                    return Err(Problem::internal("the target is missing".to_owned()));
                };
                let (done, attempt) = self.revert(plan, to, wish.guidance.as_deref(), options)?;
                Done { done, left: Vec::new(), attempt }
            }
            PreviewOf::Keep => return Err(Problem::internal("a keep is no plain rollback".to_owned())),
        })
    }

    /// Corrects a plan by a rollback, or shows it. Returns the number of the attempt.
    fn revert(
        &self,
        plan: &str,
        to: CheckpointId,
        guidance: Option<&str>,
        options: &RollbackOptions,
    ) -> Result<(RolledBack, Option<u64>), Problem> {
        let plans = self.manager.plans();
        if plans.last_clean(plan).ok() == Some(to) {
            let revert = Revert { decision: None, guidance: guidance.map(str::to_owned) };
            let corrected = plans.correct_by_revert(plan, &revert, options, self.watch)?;
            let missing = || Problem::internal("the correction rolled nothing back".to_owned());
            return Ok((corrected.restored.ok_or_else(missing)?, Some(corrected.attempt)));
        }
        // Another checkpoint than the clean one: a rollback, and the guidance as a decision.
        let done = plans.rollback(plan, to, options, self.watch)?;
        if let (Some(guidance), DryRun::No) = (guidance, options.dry_run) {
            plans.decide(plan, guidance_as_decision(guidance))?;
        }
        Ok((done, None))
    }

    fn preview(&self, wish: &Wish) -> Result<Value, Problem> {
        if wish.of == PreviewOf::Keep {
            return self.preview_keep(wish);
        }
        if let Some(plan) = &wish.plan {
            self.known_plan(plan)?;
        }
        let to = match (&wish.to, &wish.plan) {
            (Some(to), _) => Some(self.checkpoint(to)?.id),
            (None, Some(plan)) => Some(self.manager.plans().last_clean(plan)?),
            (None, None) => None,
        };
        let options = RollbackOptions { dry_run: DryRun::Yes, ..self.options(wish)? };
        let Done { done, left, .. } = self.go(wish, to, &options)?;
        self.previewed(wish.of, &done, &left)
    }

    fn previewed(&self, of: PreviewOf, done: &RolledBack, left: &[RelPath]) -> Result<Value, Problem> {
        let target = self.manager.checkpoints().get(done.to).ok();
        Ok(json!({
            "verb": match of {
                PreviewOf::Rollback => "rollback",
                PreviewOf::Undo => "undo",
                PreviewOf::Redo => "redo",
                PreviewOf::Turn(_) => "turn",
                PreviewOf::Plan => "plan",
                PreviewOf::Correct => "correct",
                PreviewOf::Keep => "keep",
            },
            "to": target.map(|target| self.row(target)).transpose()?,
            "rollback": shape(&self.manager, done, DryRun::Yes),
            "left": left,
            "overwritten": self.overwritten(done)?,
            "attempt": null,
            "position": self.workspace.head,
            "present": done.present,
            "goes_to": done.to,
        }))
    }

    /// Takes an attempt over, or shows it. The others stay open.
    fn keep(
        &self,
        wish: &Wish,
        dry_run: DryRun,
        expect: Option<(CheckpointId, ObjectId)>,
    ) -> Result<AttemptKept, Problem> {
        let attempt = self.manager.attempts().find(&self.workspace, wish.attempt.as_deref().unwrap_or(""))?;
        let options = KeepAttempt { others: Others::Open, dry_run, expect };
        Ok(self.manager.attempts().keep(&self.workspace, &attempt, &options, self.watch)?)
    }

    fn preview_keep(&self, wish: &Wish) -> Result<Value, Problem> {
        let kept = self.keep(wish, DryRun::Yes, None)?;
        let name = &kept.attempt.name;
        let Some(done) = &kept.restored else {
            return Err(Problem::usage(
                format!("attempt {} changed nothing", printable(name)),
                "There is nothing to keep; drop it instead.",
            ));
        };
        let running = self.manager.attempts().processes(&kept.attempt);
        let mut answer = self.previewed(wish.of, done, &[])?;
        answer["attempt"] = json!({
            "name": name,
            "merged": kept.merged,
            "changed_in_project": kept.changed_in_project,
            "ends": processes(&running),
        });
        Ok(answer)
    }

    /// Paths that changed since the position of the workspace, and that a rollback replaces.
    fn overwritten(&self, done: &RolledBack) -> Result<Vec<RelPath>, Problem> {
        let Some(head) = self.workspace.head.and_then(|head| self.manager.checkpoints().get(head).ok())
        else {
            return Ok(Vec::new());
        };
        let since = match self.manager.diff(&self.workspace, &head, &Against::Present, self.watch) {
            // A position without files says nothing about them.
            Err(Error::NoFiles { .. }) => return Ok(Vec::new()),
            since => since?,
        };
        let replaced: std::collections::HashSet<_> =
            done.outline().paths.iter().map(|changed| &changed.path).collect();
        let paths = since.changes.into_iter().map(|change| change.path);
        Ok(paths.filter(|path| replaced.contains(path)).collect())
    }

    fn confirm(&self, bound: &Bound) -> Result<Value, Problem> {
        let present: ObjectId = bound.present.parse().map_err(|_| Error::StalePreview)?;
        if bound.wish.of == PreviewOf::Keep {
            let result = bound.to.parse().map_err(|_| Error::StalePreview)?;
            let kept = self.keep(&bound.wish, DryRun::No, Some((result, present)))?;
            return kept_shape(&self.manager, &self.workspace, &kept, DryRun::No);
        }
        let to = Some(self.checkpoint(&bound.to)?.id);
        let options = RollbackOptions { expect_present: Some(present), ..self.options(&bound.wish)? };
        let Done { done, attempt, .. } = self.go(&bound.wish, to, &options)?;
        let mut answer = json!({ "rollback": shape(&self.manager, &done, DryRun::No) });
        if let (PreviewOf::Correct, Some(plan)) = (bound.wish.of, &bound.wish.plan) {
            answer["plan"] = self.plan_value(plan)?;
            answer["correction"] = json!({
                "mode": "revert", "attempt": attempt, "checkpoint": done.to, "guidance": bound.wish.guidance,
            });
        }
        Ok(answer)
    }

    /// Undoes this rollback, if it is the last one.
    fn undo_of(&self, id: &str) -> Result<Value, Problem> {
        let all = self.manager.rollbacks(&self.workspace)?;
        let is_done =
            |record: &&Rollback| matches!(record.state, RollbackState::Done | RollbackState::Settled);
        let last = all.iter().rev().find(is_done).ok_or(Error::NothingToUndo)?;
        let is_it =
            last.id.to_string() == id || last.together.is_some_and(|together| together.to_string() == id);
        if !is_it || last.verb == Verb::Undo {
            return Err(Error::StalePreview.into());
        }
        let options = plain_options(false, false, FailedUndo::default());
        let done = self.manager.undo(&self.workspace, &options, self.watch)?;
        Ok(json!({ "rollback": shape(&self.manager, &done, DryRun::No) }))
    }

    fn correct_in_place(&self, plan: &str, guidance: Option<&str>) -> Result<Value, Problem> {
        self.known_plan(plan)?;
        let plans = self.manager.plans();
        let record = plans.get(plan)?.plan;
        let healthy = || Error::PlanHealthy { id: plan.to_owned() };
        let broken = record.broken().map(str::to_owned).ok_or_else(healthy)?;
        let at = record.find(&broken).map_err(Error::from)?;
        let run = record.steps[at].spec.run.clone().ok_or_else(healthy)?;
        let fix = Fix::Retry { step: Some(broken), run };
        let corrected = plans.correct_in_place(plan, &fix, guidance, DryRun::No)?;
        let correction = json!({
            "mode": "in_place", "attempt": corrected.attempt, "step": corrected.step, "guidance": guidance,
        });
        Ok(json!({ "plan": self.plan_value(plan)?, "rollback": null, "correction": correction }))
    }

    fn resume(&self, plan: &str, interrupted: Option<&str>) -> Result<Value, Problem> {
        self.known_plan(plan)?;
        let interrupted = match interrupted {
            Some("rerun") => Some(Interrupted::Rerun),
            Some("done") => Some(Interrupted::Done),
            Some("fail") => Some(Interrupted::Fail),
            _ => None,
        };
        let options = RunOptions { interrupted, ..RunOptions::default() };
        let observer = Told { watch: self.watch };
        let record = self.manager.plans().get(plan)?;
        let report = match record.plan.state {
            safepoint::model::plan::state::PlanState::Ready => {
                self.manager.plans().run(plan, &options, &observer, self.watch)?
            }
            _ => self.manager.plans().resume(plan, &options, &observer, self.watch)?,
        };
        Ok(
            json!({ "outcome": report.outcome, "step": report.step, "error": report.error, "done": report.done }),
        )
    }

    fn find_good(&self, find: &Find) -> Result<Value, Problem> {
        let configured = self.manager.config(None)?.test.map(|test| test.line);
        let command = find.command.clone().or(configured).ok_or_else(|| {
            Problem::usage(
                "no check is configured",
                "Set the test command in config.toml: [checks] test = \"cargo test\"",
            )
        })?;
        let until = Until {
            command,
            from: find.from.as_ref().map(|from| Ok::<_, Problem>(self.checkpoint(from)?.id)).transpose()?,
            search: if find.bisects { Search::Bisect } else { Search::Stepwise },
            place: TryIn::Overlay,
            plan: None,
        };
        let tried = |check: &Check| {
            json!({
                "checkpoint": check.checkpoint, "passed": check.is_passed(), "skipped": check.skipped,
                "failure": check.failure,
            })
        };
        let mut probed = |probed: Probed<'_>| {
            self.watch.item(match probed {
                Probed::Current(verdict) => current(verdict),
                Probed::Candidate(check) => tried(check),
            });
        };
        let mut watch = SearchWatch { printed: &mut |_| {}, probed: &mut probed };
        let options = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
        let found = self.manager.rollback_until(&self.workspace, &until, &options, &mut watch, self.watch)?;
        Ok(json!({
            "checkpoint": found.restored.map(|done| done.to),
            "current": found.current.as_ref().map(current),
        }))
    }
}

fn current(verdict: &Verdict) -> Value {
    json!({
        "checkpoint": null, "passed": verdict.is_passed(), "skipped": false,
        "failure": verdict.clone().into_failure(),
    })
}

fn guidance_as_decision(guidance: &str) -> NewDecision {
    NewDecision {
        question: "guidance".to_owned(),
        choice: guidance.to_owned(),
        alternatives: Vec::new(),
        rationale: None,
        parent: None,
        depends_on: Vec::new(),
        step: None,
    }
}

/// Tells a run as items of a job.
struct Told<'a> {
    watch: &'a dyn Watch,
}

impl RunObserver for Told<'_> {
    fn happened(&self, event: &RunEvent<'_>) {
        let item = match event {
            RunEvent::StepBegins(step) => json!({ "event": "begins", "step": step }),
            RunEvent::Verifies(step) => json!({ "event": "verifies", "step": step }),
            RunEvent::Printed(step, bytes) => {
                json!({ "event": "printed", "step": step, "text": String::from_utf8_lossy(bytes) })
            }
            RunEvent::TriesAgain { step, attempt, error } => {
                json!({ "event": "tries_again", "step": step, "attempt": attempt, "error": error })
            }
            RunEvent::Done(step) => json!({ "event": "done", "step": step }),
            RunEvent::Failed(step, error) => json!({ "event": "failed", "step": step, "error": error }),
            RunEvent::Checkpoint(created) => {
                json!({ "event": "checkpoint", "checkpoint": created.checkpoint.id })
            }
            RunEvent::Plan(_) | RunEvent::Dead(_) => return,
        };
        self.watch.item(item);
    }

    fn stop(&self) -> Stop {
        if self.watch.interrupted() { Stop::Soon } else { Stop::No }
    }
}
