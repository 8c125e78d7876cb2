//! ROLLBACK, as design section 3 has it: lock, recover, safety, plan, stage, intent, apply, sync, verify, publish, settle.
//!
//! The transaction of PUBLISH is the only commit point. Any error before it puts everything back, and a crash before it makes the
//! next command do so. What a part is does not matter here.

use crate::apply::Taking;
use crate::carry::{Deed, Member};
use crate::config::Broken;
use crate::correct::Correction;
use crate::create::{CreateOptions, Draft, files_part, link_plan};
use crate::effects::{Effects, FailedUndo, NotUndone, Undone};
use crate::manager::Held;
use crate::part::{Chosen, Outline, Part, Prepared};
use crate::parts::files::FilesPart;
use crate::parts::git::{Asked, GitMoved, GitPlan, GitReset, Uncommitted, WithGit, git_folder};
use crate::parts::plan::{PlanRollback, WithRecords, plan_part};
use crate::parts::session::{SessionBack, SessionRollback, add_session};
use crate::sandbox::Missing;
use crate::together::{files_of, is_together};
use crate::{CheckpointManager, Error};
use safepoint_catalog::{FinishFacts, Transaction, Workspace};
use safepoint_model::change::Absent;
use safepoint_model::checkpoint::{Checkpoint, Kind, PartKind, PartRecord, Reason, Role};
use safepoint_model::plan::state::TakenBack;
use safepoint_model::rollback::{Rescued, Rollback, RollbackState, Strategy, Verb};
use safepoint_model::session::SessionCount;
use safepoint_model::{CheckpointId, Progress, RelPath, RollbackId, Timestamp, WorkspaceId, document};
use safepoint_planted::planted;
use safepoint_store::Writer;
use safepoint_workspace::{Ended, Times};

/// Whether to do it or only to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DryRun {
    /// Do it.
    #[default]
    No,
    /// Show it.
    Yes,
}

/// How to roll back.
#[derive(Debug, Clone, Default)]
pub struct RestoreOptions {
    /// Only these paths; everything where there are none.
    pub paths: Vec<RelPath>,
    /// Only this part; all that the checkpoint holds where none is named.
    pub part: Option<PartKind>,
    /// Do it or show it.
    pub dry_run: DryRun,
    /// Which time restored files carry.
    pub times: Times,
    /// How it goes about it, for the record; by what is chosen where nothing is said.
    pub strategy: Option<Strategy>,
    /// What becomes of it when an undo command of a plan's step fails.
    pub failed_undo: FailedUndo,
    /// What becomes of it when the sandbox of the plan is gone.
    pub missing_sandbox: Missing,
    /// Whether branch and index move to the commit that the checkpoint is.
    pub git: GitReset,
    /// What becomes of that when something is not committed.
    pub uncommitted: Uncommitted,
}

/// What a rollback did, or would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// Its record. For a dry run it is not on record anywhere.
    pub rollback: Rollback,
    /// What changed.
    pub outline: Outline,
    /// Paths that somebody changed after the rollback had put them in place; they are as that somebody made them.
    pub changed_meanwhile: Vec<RelPath>,
    /// Displaced files that a program has, or may have, open for writing: they are kept, and checked again by the next command.
    pub waiting: Vec<RelPath>,
    /// What users should know about this file system, and about what could not be cleared away.
    pub warnings: Vec<String>,
    /// Whether every touched path was read back.
    pub verified: bool,
    /// What of a plan it took back, where it was about one.
    pub taken_back: Option<TakenBack>,
    /// Commands that took back what steps did outside of the files.
    pub undone: Vec<Undone>,
    /// What steps did outside of the files and was not taken back.
    pub effects_not_undone: Vec<NotUndone>,
    /// What it moved in the repository, where it was asked to.
    pub git: Option<GitMoved>,
    /// The session that it put back, where that made a difference.
    pub session: Option<SessionBack>,
}

impl Restored {
    /// The same, with what was done about effects outside of the files.
    pub(crate) fn with(self, effects: Effects) -> Self {
        let Effects { undone, not_undone, warnings } = effects;
        let warnings = self.warnings.into_iter().chain(warnings).collect();
        Self { undone, effects_not_undone: not_undone, warnings, ..self }
    }
}

/// What is asked, whichever verb asks it.
pub(crate) struct Request<'a> {
    pub(crate) verb: Verb,
    pub(crate) answers: Option<RollbackId>,
    pub(crate) to: Checkpoint,
    pub(crate) options: &'a RestoreOptions,
    /// What a correction adds to it.
    pub(crate) correction: Option<&'a Correction>,
    /// The result of a plan that is taken over.
    pub(crate) taking: Option<&'a Taking>,
}

impl CheckpointManager {
    /// Makes the workspace equal to a checkpoint: all of it or, with paths, these.
    ///
    /// # Errors
    /// Whatever the error, the workspace is exactly as it was, except for [`Error::Unfinished`], which the next command mends.
    pub fn restore(
        &self,
        workspace: &Workspace,
        to: CheckpointId,
        options: &RestoreOptions,
        progress: &dyn Progress,
    ) -> Result<Restored, Error> {
        self.restore_by(workspace, to, options, None, progress)
    }

    /// The same, with what a correction adds to it.
    pub(crate) fn restore_by(
        &self,
        workspace: &Workspace,
        to: CheckpointId,
        options: &RestoreOptions,
        correction: Option<&Correction>,
        progress: &dyn Progress,
    ) -> Result<Restored, Error> {
        let checkpoint = self.checkpoint(to)?;
        let asked = Request {
            verb: Verb::Rollback,
            answers: None,
            to: checkpoint,
            options,
            correction,
            taking: None,
        };
        let records = || self.record_of(workspace, &asked).into_iter().collect();
        let (restored, effects) = self.with_effects(&asked.to, options, &records, progress, |options| {
            self.restore_within_cap(workspace, options, progress, || {
                let held = self.hold(workspace)?;
                self.recover_held(workspace, &held.root, progress)?.refuse_foreign(workspace)?;
                // Somebody may have purged something of it meanwhile.
                let request = Request { to: self.checkpoint(to)?, options, ..asked };
                self.restore_held(workspace, &held, &request, progress)
            })
        })?;
        Ok(restored.with(effects))
    }

    /// The safety checkpoint may run into the cap. That others were pruned for it is said.
    pub(crate) fn restore_within_cap(
        &self,
        workspace: &Workspace,
        options: &RestoreOptions,
        progress: &dyn Progress,
        act: impl FnMut() -> Result<Restored, Error>,
    ) -> Result<Restored, Error> {
        let (mut restored, pruned) = self.within_cap(workspace, options.dry_run, progress, act)?;
        if !pruned.is_empty() {
            restored
                .warnings
                .push(format!("old checkpoints pruned to make room under the cap: {}", pruned.len()));
        }
        Ok(restored)
    }

    pub(crate) fn restore_held(
        &self,
        workspace: &Workspace,
        held: &Held,
        request: &Request<'_>,
        progress: &dyn Progress,
    ) -> Result<Restored, Error> {
        let mut record = self.record_of(workspace, request)?;
        let result = self.try_restore(workspace, held, request, &mut record, progress);
        match &result {
            Err(error) if request.options.dry_run == DryRun::No => self.note_refusal(&[record], error),
            _ => {}
        }
        result
    }

    /// The record of this rollback, before anything is known about how it goes.
    pub(crate) fn record_of(&self, workspace: &Workspace, request: &Request<'_>) -> Result<Rollback, Error> {
        let Request { verb, answers, options, .. } = *request;
        let selective = !options.paths.is_empty() || options.part.is_some() || options.git_alone();
        let implied = if selective { Strategy::Selective } else { Strategy::Immediate };
        let blank = self.blank_record(workspace.id, verb, answers, request.to.id)?;
        let strategy = options.strategy.unwrap_or(implied);
        Ok(Rollback { strategy, paths: options.paths.clone(), ..blank })
    }

    /// A record with nothing in it but what every one has.
    pub(crate) fn blank_record(
        &self,
        workspace: WorkspaceId,
        verb: Verb,
        answers: Option<RollbackId>,
        to: CheckpointId,
    ) -> Result<Rollback, Error> {
        Ok(Rollback {
            id: RollbackId::from_bits(self.environment.new_id()),
            workspace_id: workspace,
            together: None,
            verb,
            answers,
            from: self.workspace(workspace)?.head,
            to,
            safety_checkpoint: None,
            strategy: Strategy::Immediate,
            paths: Vec::new(),
            state: RollbackState::Applying,
            created_at: self.environment.now(),
            finished_at: None,
            actor: self.environment.actor(),
            restored_files_count: 0,
            removed_files_count: 0,
            changed_paths: None,
            rescued: Vec::new(),
            error: None,
        })
    }

    fn try_restore(
        &self,
        workspace: &Workspace,
        held: &Held,
        request: &Request<'_>,
        record: &mut Rollback,
        progress: &dyn Progress,
    ) -> Result<Restored, Error> {
        let mut target = self.target_part(workspace, request)?;
        if let Some(part) = request.options.part.filter(|part| *part == PartKind::Agent) {
            return Err(Error::NoPart { checkpoint: request.to.id, part });
        }
        let mut git_warnings = Vec::new();
        let asked =
            Asked { workspace, verb: request.verb, to: &request.to, options: request.options, id: record.id };
        let git = self.plan_git(&asked, progress, &mut git_warnings)?;
        let config = self.config_at(Some(&held.root), Broken::PassedOver)?;
        let mut part = FilesPart::new(self, &held.root, workspace, config.excludes);
        part.times = request.options.times;
        part.covered = self.covered(workspace.id, request.answers)?;
        part.access = self.access_of(request.to.id)?;
        // What a plan made is compared with all of the project.
        if request.taking.is_none() {
            part.chosen = request.options.paths.clone();
        }
        if request.options.dry_run == DryRun::No {
            part.capabilities = self.probe(&held.root)?;
        } else {
            held.root.check_own_folder()?;
        }
        // SAFETY and PLAN. Neither touches the workspace, so both are kept by one flush, once it is known that the plan can be
        // carried out.
        let writer = self.store.writer()?;
        let safety = CreateOptions {
            label: Some(match request.taking {
                Some(taking) => format!("before plan {} is applied", taking.plan_id()),
                None => format!("before {} to {}", request.verb, request.to.id),
            }),
            kind: Kind::Automatic,
            reason: Reason::PreRiskyOperation,
            ..CreateOptions::default()
        };
        let mut safety = self.draft(workspace, &part, Some(&target), &safety, &writer, progress)?;
        let mut noted = self.note_git(&part, config.git, git.as_ref(), &writer, progress)?;
        noted.add_to(&mut safety.checkpoint, &writer)?;
        if git.as_ref().is_some_and(|git| !git.takes_files()) {
            target.document = safety.captured.document;
        }
        let (mut taken_back, mut plan_now) = (None, None);
        // A path that was put back once and is gone again by the time of the undo is no mistake of the user's.
        let absent = if request.verb == Verb::Rollback { Absent::Refused } else { Absent::Fine };
        let chosen = Chosen { paths: &request.options.paths, absent };
        if request.options.part == Some(PartKind::Plan) && plan_part(&request.to).is_none() {
            return Err(Error::NoPart { checkpoint: request.to.id, part: PartKind::Plan });
        }
        // Where only the plan or the session goes back, the files go nowhere.
        let wanted = if request.options.without_files() { safety.captured.document } else { target.document };
        let git_part = part.git_folder();
        let mut prepared = match (&git, noted.folder) {
            (Some(GitPlan::Folder(target, _)), Some(now)) => {
                record.paths = vec![git_folder()];
                let chosen = Chosen { paths: &record.paths, absent: Absent::Fine };
                git_part.prepare(now, *target, chosen, &writer)?
            }
            _ => part.prepare(safety.captured.document, wanted, chosen, &writer)?,
        };
        if request.options.with_plan()
            && request.taking.is_none()
            && let Some(plan) = PlanRollback::prepare(self, &writer, request, record.id)?
        {
            // The plan as it is belongs to what an undo brings back.
            self.add_plan(&mut safety.checkpoint, plan.now(), &writer)?;
            taken_back = Some(plan.taken_back());
            plan_now = Some(plan.now().clone());
            prepared = Box::new(WithRecords { files: prepared, records: Box::new(plan) });
        }
        let mut session_back = None;
        if request.options.with_session()
            && request.taking.is_none()
            && let Some(session) =
                SessionRollback::prepare(self, &writer, request, record.id, &mut git_warnings)?
        {
            add_session(&mut safety.checkpoint, session.now(), &writer)?;
            session_back = session.back();
            prepared = Box::new(WithRecords { files: prepared, records: Box::new(session) });
        }
        if let Some(taking) = request.taking {
            taking.check(&writer, safety.captured.document, target.document)?;
            prepared = Box::new(WithRecords { files: prepared, records: Box::new(taking) });
        }
        match &git {
            Some(GitPlan::Move(moving)) => prepared = Box::new(WithGit { files: prepared, moving }),
            None if request.options.with_plan() && request.verb == Verb::Rollback => {
                git_warnings.extend(self.git_moved_since(workspace, &request.to));
            }
            _ => {}
        }
        let outline = prepared.outline().clone();
        record.restored_files_count = outline.restored;
        record.removed_files_count = outline.removed;
        let mut restored = Restored {
            rollback: record.clone(),
            outline,
            changed_meanwhile: Vec::new(),
            waiting: Vec::new(),
            warnings: config.passed_over.clone().into_iter().chain(git_warnings).collect(),
            verified: false,
            taken_back,
            undone: Vec::new(),
            effects_not_undone: Vec::new(),
            git: git.as_ref().map(GitPlan::moved),
            session: session_back,
        };
        let lacking = part.capabilities.warnings();
        restored.warnings.extend(lacking.iter().map(|warning| (*warning).to_owned()));
        restored.warnings.extend(restored.outline.warnings.iter().cloned());
        if request.options.dry_run == DryRun::Yes {
            return Ok(restored);
        }
        record.changed_paths = Some(document::store(&writer, &restored.outline.paths)?);
        safety.checkpoint.role = Some(Role::Safety);
        safety.checkpoint.warnings.extend(config.passed_over);
        let plans: Vec<_> = plan_now.iter().collect();
        let stored = self.finish_with_record(writer, &mut safety.checkpoint, &plans)?;
        // A workspace of which only a part was put back is nearest to what it was just before.
        let all = record.paths.is_empty() && !request.options.git_alone() && !request.options.without_files();
        let Draft { checkpoint: safety, mut captured } = safety;
        let head = if all { request.to.id } else { safety.id };
        let deed = Deed {
            safety: &safety,
            stored: &stored,
            intend: &|transaction| plan_now.iter().try_for_each(|plan| link_plan(transaction, &safety, plan)),
            publish: &|transaction, at| self.count_restored(transaction, request, at),
        };
        let mut members = [Member { prepared, record: record.clone(), head }];
        let beside = || {
            self.keep_cache(&safety, &mut captured.cache);
            self.keep_cache(&safety, &mut noted.cache);
        };
        let carried = self.carry_out(&mut members, &deed, beside, progress)?;
        restored.changed_meanwhile = carried.meanwhile.into_iter().map(|(_, path)| path).collect();
        restored.waiting = carried.waiting;
        restored.warnings.extend(carried.warnings);
        restored.verified = true;
        let [Member { record: done, .. }] = members;
        restored.rollback = done;
        Ok(restored)
    }

    /// What a rollback that is done counts as.
    fn count_restored(
        &self,
        transaction: &Transaction<'_>,
        request: &Request<'_>,
        at: Timestamp,
    ) -> Result<(), Error> {
        if request.taking.is_none() {
            transaction.count_rollback(request.to.id)?;
            self.count(transaction, SessionCount::Recovery, at)?;
        }
        if request.correction.is_some_and(Correction::has_guidance) {
            self.count(transaction, SessionCount::Decision, at)?;
        }
        Ok(())
    }

    /// What the checkpoint holds of this workspace, if it may be restored here.
    fn target_part(&self, workspace: &Workspace, request: &Request<'_>) -> Result<PartRecord, Error> {
        let checkpoint = request.to.id;
        if is_together(&request.to) {
            // Chosen paths of one folder may go back alone.
            return match (request.options.paths.is_empty(), files_of(&request.to, workspace.id)) {
                (_, None) => Err(Error::OtherWorkspace { checkpoint }),
                (true, _) => Err(Error::GoesTogether { checkpoint }),
                (false, Some(part)) => Ok(part.clone()),
            };
        }
        if request.to.workspace_id != Some(workspace.id) && request.taking.is_none() {
            return Err(Error::OtherWorkspace { checkpoint });
        }
        if request.to.role == Some(Role::Rescue) && request.options.paths.is_empty() {
            return Err(Error::OnlyRescued { checkpoint });
        }
        files_part(&request.to).cloned().ok_or(Error::NoFiles { checkpoint })
    }
}

/// What settling gave.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    pub(crate) rescued: Vec<Rescued>,
    pub(crate) waiting: Vec<RelPath>,
    pub(crate) warnings: Vec<String>,
}

impl CheckpointManager {
    /// Looks at what was displaced, keeps what somebody edited, and deletes the rest.
    pub(crate) fn settle_once(
        &self,
        record: &Rollback,
        prepared: &mut dyn Prepared,
        ended: Ended,
        progress: &dyn Progress,
    ) -> Result<Settling, Error> {
        let writer: Writer<'_> = self.store.writer()?.beyond_limit();
        let findings = prepared.settle(ended, &writer, progress)?;
        let mut settling = Settling::default();
        let early = if planted!("settle-deletes-before-the-record") { Some(prepared.clear()?) } else { None };
        if !planted!("settle-keeps-no-record") {
            self.keep_rescued(record, findings, writer, &mut settling)?;
        }
        let complete = early.map_or_else(|| prepared.clear(), Ok)?;
        if complete && ended == Ended::Done && record.state != RollbackState::Settled {
            let at = self.environment.now();
            self.catalog.write(|transaction| {
                transaction.finish_rollback(record.id, RollbackState::Settled, at, &FinishFacts::default())
            })?;
        }
        Ok(settling)
    }
}
