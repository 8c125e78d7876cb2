//! ROLLBACK, as design section 3 has it: hold, recover, safety, plan, stage, intent, apply, sync, verify, publish, settle.
//!
//! A rollback of one folder is one of a set with one member. The transaction of PUBLISH is the only commit point: any error before it puts
//! everything back, everywhere, and a crash before it makes the next command do so. Of what kind a part is does not matter here.

pub(crate) mod build;
pub(crate) mod carry;
pub(crate) mod effects;
pub(crate) mod history;
mod in_the_way;
mod memory;
pub(crate) mod recover;
pub(crate) mod release;
pub(crate) mod rescue;
mod scene;
pub(crate) mod search;
pub(crate) mod strategy;
pub(crate) mod undo;

use crate::parts::files::Thrift;
use crate::parts::git::{GitMoved, GitReset};
use crate::parts::part::{Outline, PutBack};
use crate::parts::plan::guard;
use crate::parts::session::SessionBack;
use crate::parts::{Member, seal};
use crate::places::Place;
use crate::plans::apply::Taking;
use crate::plans::correct::Correction;
use crate::plans::sandbox::Missing;
use crate::rollback::effects::{Effects, FailedUndo, NotUndone, Undone};
use crate::rollback::recover::Recovery;
use crate::upkeep::cap_hit;
use crate::{CheckpointManager, Error, Warning};
use carry::{Deed, Going};
use safepoint_catalog::{Transaction, Workspace};
use safepoint_model::checkpoint::{Checkpoint, Kind, PartKind, PartRecord, Reason, Role};
use safepoint_model::plan::state::TakenBack;
use safepoint_model::rollback::{Rollback, RollbackState, Strategy, Verb};
use safepoint_model::session::SessionCount;
use safepoint_model::{CheckpointId, Progress, RelPath, RollbackId, Timestamp, WorkspaceId, document};
use safepoint_store::Writer;
use safepoint_workspace::{Times, drop_folders, make_folders};
use scene::{Ground, Scene};
use serde::Serialize;
use std::path::PathBuf;

/// Execution or preview only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DryRun {
    /// Do it.
    #[default]
    No,
    /// Show it.
    Yes,
}

/// Handling of parts that may not be rolled back, in a rollback of several folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strict {
    /// They are left alone and reported.
    #[default]
    No,
    /// They refuse the rollback.
    Yes,
}

/// A part of the checkpoint that a rollback left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum LeftAlone {
    /// A plan whose result was taken over, with its sandbox.
    PlanApplied {
        /// The plan.
        plan: String,
    },
    /// A folder of agents that was changed outside of this workspace since.
    ChangedElsewhere {
        /// The folder.
        folder: String,
        /// The agents that it belongs to.
        agents: Vec<String>,
        /// The newest checkpoint that holds the change.
        checkpoint: CheckpointId,
    },
    /// An agent that is bound to another workspace now, or to none.
    NotBound {
        /// The agent.
        agent: String,
    },
}

/// Rollback options.
#[derive(Debug, Clone, Default)]
pub struct RollbackOptions {
    /// Only these paths; everything where there are none.
    pub paths: Vec<RelPath>,
    /// Only parts of these kinds; all that the checkpoint holds where none is named.
    pub parts: Vec<PartKind>,
    /// Do it or show it.
    pub dry_run: DryRun,
    /// Time stamps of restored files.
    pub times: Times,
    /// Strategy to record; derived from the other options if `None`.
    pub strategy: Option<Strategy>,
    /// Handling of a failed undo command of a plan's step.
    pub failed_undo: FailedUndo,
    /// Handling of a missing sandbox of the plan.
    pub missing_sandbox: Missing,
    /// Reset of branch and index to the checkpoint's commit.
    pub git: GitReset,
    /// Handling of parts that may not be restored.
    pub strict: Strict,
    /// Result of an undo or redo where files changed after the last rollback, undo or redo.
    pub later_changes: LaterChanges,
}

/// Result of an undo or redo where files changed after the last rollback, undo or redo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaterChanges {
    /// [`Error::ChangedSinceRollback`].
    #[default]
    Refused,
    /// They are replaced, and kept in the safety checkpoint.
    Replaced,
}

impl RollbackOptions {
    /// Returns true if parts of this kind are restored. Paths choose files; git must be named.
    pub(crate) fn wants(&self, kind: PartKind) -> bool {
        let named = self.parts.contains(&kind);
        match kind {
            PartKind::Files => {
                self.git != GitReset::Mixed && (self.parts.is_empty() || named || !self.paths.is_empty())
            }
            PartKind::Git => named || self.git != GitReset::No,
            PartKind::GitFolder => self.parts.contains(&PartKind::Git),
            PartKind::Plan | PartKind::Session | PartKind::Agent | PartKind::Outside(_) => {
                named || (self.parts.is_empty() && self.paths.is_empty() && self.git != GitReset::Mixed)
            }
        }
    }

    /// Chosen part kinds to record.
    fn chosen(&self) -> Vec<PartKind> {
        match self.git {
            GitReset::Mixed => vec![PartKind::Git],
            GitReset::No | GitReset::Hard => self.parts.clone(),
        }
    }
}

/// Result or preview of a rollback in one folder.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FolderRolledBack {
    /// Its record. For a dry run it is not on record anywhere.
    pub record: Rollback,
    /// Changes.
    pub outline: Outline,
    /// Changes to the repository, if requested.
    pub git: Option<GitMoved>,
    /// Paths that another process changed after the rollback had restored them; those changes are kept.
    pub changed_meanwhile: Vec<RelPath>,
}

/// Result or preview of a rollback.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RolledBack {
    /// Id shared by the records of its folders; that of the record if there is one folder.
    pub id: RollbackId,
    /// Verb.
    pub verb: Verb,
    /// Target.
    pub to: CheckpointId,
    /// State before. `None` for a dry run.
    pub safety_checkpoint: Option<CheckpointId>,
    /// The workspace that it is about; nothing where it is about several folders.
    pub workspace: Option<WorkspaceId>,
    /// Each folder, at least one. That of the workspace comes first, and after it those with the memory of its agents.
    pub folders: Vec<FolderRolledBack>,
    /// Restored plans, with what was undone in each.
    pub plans: Vec<(String, TakenBack)>,
    /// Plans that work on files which it changed, and stay as they are: their state does not fit their files any more.
    pub plans_left: Vec<String>,
    /// Parts of the checkpoint that stay as they are.
    pub left_alone: Vec<LeftAlone>,
    /// Restored sessions that differed.
    pub sessions: Vec<SessionBack>,
    /// Restored agents.
    pub agents: Vec<String>,
    /// Restored parts of other programs.
    pub others: Vec<(PartKind, String)>,
    /// Commands that took back what steps did outside of the files.
    pub undone: Vec<Undone>,
    /// Effects of steps outside of the files that were not undone.
    pub effects_not_undone: Vec<NotUndone>,
    /// Displaced files that a program has, or may have, open for writing: they are kept, and checked again by the next command.
    pub waiting: Vec<RelPath>,
    /// Warnings about file systems, and about files that could not be deleted.
    pub warnings: Vec<Warning>,
    /// True if every touched path was read back.
    pub verified: bool,
    /// Crash recovery that ran before.
    pub recovered: Recovery,
}

impl RolledBack {
    /// The record of the folder, or of the first of several.
    pub fn record(&self) -> &Rollback {
        &self.folders[0].record
    }

    /// Changes in the folder, or in the first of several.
    pub fn outline(&self) -> &Outline {
        &self.folders[0].outline
    }

    /// True if it spans several folders, rolled back as a whole.
    pub fn is_together(&self) -> bool {
        self.workspace.is_none()
    }

    /// True if there was nothing to do.
    pub fn is_empty(&self) -> bool {
        let still = |folder: &FolderRolledBack| folder.outline.paths.is_empty() && folder.git.is_none();
        self.folders.iter().all(still)
            && self.plans.is_empty()
            && self.sessions.is_empty()
            && self.agents.is_empty()
            && self.others.is_empty()
    }
}

/// A request, for any verb.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub(crate) verb: Verb,
    pub(crate) answers: Option<RollbackId>,
    pub(crate) to: Checkpoint,
    /// The one folder that it is about; all that the checkpoint holds where none is named.
    pub(crate) at: Option<WorkspaceId>,
    pub(crate) options: RollbackOptions,
    /// Correction to add.
    pub(crate) correction: Option<&'a Correction>,
    /// The result of a plan that is taken over.
    pub(crate) taking: Option<&'a Taking>,
    /// Plans that work in its folders and stay as they are.
    pub(crate) left: Vec<String>,
    /// The plan of which a step asks for it.
    pub(crate) own_run: Option<String>,
    /// True if it must not replace files that changed after the last rollback.
    pub(crate) spares_changes: bool,
    /// Extent of the safety checkpoint.
    pub(crate) thrift: Thrift,
}

impl<'a> Request<'a> {
    pub(crate) fn new(
        verb: Verb,
        at: Option<WorkspaceId>,
        to: Checkpoint,
        options: &RollbackOptions,
    ) -> Self {
        let options = options.clone();
        let (left, own_run, spares_changes) = (Vec::new(), None, false);
        let (answers, correction, taking) = (None, None, None);
        let thrift = Thrift::Usual;
        Self { verb, answers, to, at, options, correction, taking, left, own_run, spares_changes, thrift }
    }

    fn is_dry(&self) -> bool {
        self.options.dry_run == DryRun::Yes
    }

    /// The folder that it is about, where that is one.
    fn alone(&self) -> Option<WorkspaceId> {
        self.at.or(self.to.workspace_id)
    }
}

impl CheckpointManager {
    /// Makes everything equal to a checkpoint: all that it holds or, by `options`, chosen parts and paths of it.
    ///
    /// With a workspace it is about that one alone. Without one it is about all the folders that the checkpoint holds.
    ///
    /// # Errors
    /// On any error everything is exactly as it was, except for [`Error::Unfinished`], which the next command repairs.
    pub fn rollback<'w>(
        &self,
        at: impl Into<Option<&'w Workspace>>,
        to: CheckpointId,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let at = at.into().map(|workspace| workspace.id);
        self.roll_back(&Request::new(Verb::Rollback, at, self.checkpoints().get(to)?, options), progress)
    }

    /// Does what is asked, or shows it: takes back what steps did outside of the files, then goes. A refusal is put on record.
    pub(crate) fn roll_back(
        &self,
        request: &Request<'_>,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let done = self.try_to_roll_back(request, progress);
        if !request.is_dry() {
            match &done {
                Ok(done) => self.leave_hook_notes(done),
                Err(error) => self.note_refusal(&self.records_of(request).unwrap_or_default(), error),
            }
        }
        done
    }

    fn try_to_roll_back(&self, request: &Request<'_>, progress: &dyn Progress) -> Result<RolledBack, Error> {
        let mut request = self.of_here(request)?;
        if request.own_run.is_some() && request.options.wants(PartKind::Plan) {
            // A step may roll back files; the plan is in the hands of its runner.
            request.options.parts = vec![PartKind::Files];
        }
        // The locks keep the plans idle.
        let mut effects = Effects::default();
        let (_locks, plans) = self.hold_plans(&request, &mut effects)?;
        let going: Vec<&str> = plans.iter().map(|(plan, _)| plan.plan.id.as_str()).collect();
        let _others = self.hold_others(&mut request, &going)?;
        let request = &request;
        if self.has_commands_to_run(&plans, request)? {
            // Nothing is taken back for a rollback that could not be.
            let dry = RollbackOptions { dry_run: DryRun::Yes, ..request.options.clone() };
            self.go(&Request { options: dry, ..request.clone() }, progress)?;
        }
        self.take_back_effects(&plans, &request.options, progress, &mut effects)?;
        self.renew_limits()?;
        let mut done = self.go_within_cap(request, progress)?;
        let Effects { undone, not_undone, warnings } = effects;
        (done.undone, done.effects_not_undone) = (undone, not_undone);
        done.warnings.extend(warnings);
        if done.folders.iter().any(|folder| !folder.outline.paths.is_empty()) {
            done.plans_left.clone_from(&request.left);
        }
        Ok(done)
    }

    /// Does the rollback. If the safety checkpoint does not fit under the cap, one of the chosen paths alone is taken; then older
    /// checkpoints make room.
    fn go_within_cap(&self, request: &Request<'_>, progress: &dyn Progress) -> Result<RolledBack, Error> {
        let hit = |done: &Result<RolledBack, Error>| matches!(done, Err(error) if cap_hit(error).is_some());
        let mut done = self.go(request, progress);
        let thrifty = Request { thrift: Thrift::ChosenOnly, ..request.clone() };
        let is_selective = !request.options.paths.is_empty();
        if hit(&done) && is_selective {
            done = self.go(&thrifty, progress);
        }
        match done {
            // That others were pruned for it is said.
            Err(error) if cap_hit(&error).is_some() => {
                let room = self.make_room_for(error, request.alone(), request.options.dry_run, progress)?;
                let request = if is_selective { &thrifty } else { request };
                let mut done = self.go(request, progress).map_err(|error| self.capped(error, progress))?;
                done.warnings.extend(room.warnings);
                if !room.pruned.is_empty() {
                    done.warnings.push(Warning::PrunedForRoom { count: room.pruned.len() as u64 });
                }
                Ok(done)
            }
            other => other,
        }
    }

    /// Returns the request with the parts that are registered here, and with the plan whose step asks for it.
    fn of_here<'a>(&self, request: &Request<'a>) -> Result<Request<'a>, Error> {
        let mut request = request.clone();
        request.to = self.that_goes_back(&request, &request.to)?.0;
        request.own_run = self.own_run(&request)?;
        Ok(request)
    }

    /// Puts the state that is asked for in place while `look` runs, and then everything back. Nothing of it stays on record.
    pub(crate) fn probe_state(
        &self,
        request: &Request<'_>,
        look: &mut dyn FnMut() -> Result<(), Error>,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        self.renew_limits()?;
        let mut request = self.of_here(request)?;
        // The files of a running plan must not change, not even for a trial.
        let _others = self.hold_others(&mut request, &[])?;
        self.go_by(&request, Some(look), progress).map(drop)
    }

    /// Locks the folders, captures the current state, and does the rollback.
    fn go(&self, request: &Request<'_>, progress: &dyn Progress) -> Result<RolledBack, Error> {
        self.go_by(request, None, progress)
    }

    /// The same; where there is a `look`, only for as long as that takes.
    fn go_by(
        &self,
        request: &Request<'_>,
        look: Option<&mut dyn FnMut() -> Result<(), Error>>,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let places = self.scene(request, &mut Vec::new())?.places;
        let made = self.make_missing(request, &places)?;
        let is_kept = !request.is_dry() && look.is_none();
        let done = self.go_held(request, &places, look, progress);
        if !is_kept || done.is_err() {
            made.iter().for_each(|made| drop_folders(made));
        }
        done
    }

    /// The same once the folders are there.
    fn go_held(
        &self,
        request: &Request<'_>,
        places: &[Place],
        look: Option<&mut dyn FnMut() -> Result<(), Error>>,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let (held, recovered) = self.hold_all(places, progress)?;
        self.still_answers(request)?;
        // Another process may have purged parts of it before the lock.
        let (to, mut left_alone) = self.that_goes_back(request, &self.checkpoints().get(request.to.id)?)?;
        let request = &Request { to, ..request.clone() };
        let mut warnings = Vec::new();
        let scene = self.scene(request, &mut warnings)?;
        let mut records = self.records_of(request)?;
        records.retain(|record| scene.places.iter().any(|place| place.workspace.id == record.workspace_id));
        let ground = Ground { request, held: &held, progress };
        let (mut members, passed_over) = self.members_of(&ground, &scene, &mut records, &mut warnings)?;
        // SAFETY and PLAN. Neither touches a folder, so both are kept by one flush, once it is known that the plan can be carried out.
        let writer = self.store.writer()?.from_reserve();
        self.capture(&mut members, &writer, progress)?;
        let leaving = self.leave_memory(request, &scene, &mut members, &writer)?;
        self.spare_changes(request, &members, &records, &writer)?;
        let caches: Vec<_> = members.iter_mut().map(|member| member.captured.cache.take()).collect();
        let mut safety = self.safety_for(request, &scene, &members, &writer)?;
        safety.warnings.extend(passed_over);
        leaving.renumber(&mut records, &mut members);
        left_alone.extend(leaving.told);
        let mut going = self.prepare_all(request, &members, &records, (&safety, &writer))?;
        let mut done = RolledBack { left_alone, ..told(request, &going, warnings, recovered) };
        if request.is_dry() {
            return Ok(done);
        }
        if look.is_none() && is_idle(request, &done) {
            self.record_idle(&mut going, request, &mut done)?;
            return Ok(done);
        }
        for (going, folder) in going.iter_mut().zip(&done.folders) {
            going.record.changed_paths = Some(document::store(&writer, &folder.outline.paths)?);
        }
        let plans: Vec<_> = scene.plans.iter().map(|(record, _)| record).collect();
        let stored = self.finish_with_record(writer, &mut safety, &plans)?;
        let deed = Deed { request, safety: &safety, stored: &stored, members: &members };
        if let Some(look) = look {
            self.try_out(&mut going, &deed, look, progress)?;
            return Ok(done);
        }
        let beside = || caches.into_iter().for_each(|mut cache| self.keep_cache(&safety, &mut cache));
        let carried = self.carry_out(&mut going, &deed, beside, progress)?;
        for (folder, going) in done.folders.iter_mut().zip(going) {
            folder.record = going.record;
        }
        for (workspace, path) in carried.meanwhile {
            let here = done.folders.iter_mut().find(|folder| folder.record.workspace_id == workspace);
            here.into_iter().for_each(|folder| folder.changed_meanwhile.push(path.clone()));
        }
        (done.verified, done.safety_checkpoint) = (true, Some(safety.id));
        done.waiting = carried.waiting;
        done.warnings.extend(carried.warnings);
        Ok(done)
    }

    /// A checkpoint without what does not go back here, and what of it is left alone: of several folders, plans that were applied, with
    /// their sandboxes.
    fn that_goes_back(
        &self,
        request: &Request<'_>,
        to: &Checkpoint,
    ) -> Result<(Checkpoint, Vec<LeftAlone>), Error> {
        let options = &request.options;
        let mut here = self.only_of_here(to, options)?;
        let mut left = Vec::new();
        let by_name = options.parts.contains(&PartKind::Plan);
        if request.alone().is_some() || options.strict == Strict::Yes || by_name {
            return Ok((here, left));
        }
        for part in to.parts.iter().filter(|part| part.kind == PartKind::Plan) {
            // A plan of another place is not among the parts any more.
            let Some(record) = self.catalog.plan(&part.key)? else { continue };
            if guard(&record).is_ok() {
                continue;
            }
            let sandbox = self.plans().sandbox(&record)?.map(|sandbox| sandbox.workspace_id.to_string());
            let is_of_it =
                |it: &PartRecord| it == part || sandbox.as_ref().is_some_and(|sandbox| it.key == *sandbox);
            let before = here.parts.len();
            here.parts.retain(|it| !is_of_it(it));
            if options.wants(PartKind::Plan) || here.parts.len() + 1 < before {
                left.push(LeftAlone::PlanApplied { plan: part.key.clone() });
            }
        }
        Ok((here, left))
    }

    /// Makes folders again that were deleted: of several folders all, of a workspace those with the memory of its agents.
    fn make_missing(&self, request: &Request<'_>, places: &[Place]) -> Result<Vec<Vec<PathBuf>>, Error> {
        let mut made = Vec::new();
        let own = usize::from(request.alone().is_some());
        for Place { workspace, .. } in
            places.iter().skip(own).filter(|_| request.options.strict == Strict::No)
        {
            let path = workspace.root_path();
            let is_sandbox = self.catalog.plan_of_sandbox(workspace.id)?.is_some();
            // A sandbox lies in the home, which has folders of its own.
            if is_sandbox || path.symlink_metadata().is_ok() {
                continue;
            }
            match make_folders(path) {
                Ok(folders) => made.push(folders),
                Err(error) => {
                    made.iter().for_each(|made: &Vec<PathBuf>| drop_folders(made));
                    return Err(error.into());
                }
            }
        }
        Ok(made)
    }

    /// The current state, as the checkpoint for an undo.
    fn safety_for(
        &self,
        request: &Request<'_>,
        scene: &Scene,
        members: &[Member<'_>],
        writer: &Writer<'_>,
    ) -> Result<Checkpoint, Error> {
        let (id, verb) = (request.to.id, request.verb);
        let alone = request.alone();
        let mut safety = self.blank(alone);
        if alone.is_none() {
            safety.scope = request.to.scope;
        }
        safety.label = Some(match request.taking {
            Some(taking) => format!("before plan {} is applied", taking.plan_id()),
            None => format!("before {verb} to {id}"),
        });
        (safety.kind, safety.reason) = (Kind::Automatic, Reason::PreRiskyOperation);
        safety.role = Some(Role::Safety);
        safety.session_id = self.settings.session_id.as_ref().map(|id| crate::sessions::kept_form(id));
        safety.parent =
            alone.map(|id| self.workspaces().get(id)).transpose()?.and_then(|workspace| workspace.head);
        seal(&mut safety, members, &scene.places, writer)?;
        Ok(safety)
    }

    /// Prepares every part to restore, folder by folder.
    fn prepare_all<'p>(
        &self,
        request: &Request<'_>,
        members: &'p [Member<'_>],
        records: &[Rollback],
        (safety, writer): (&Checkpoint, &Writer<'_>),
    ) -> Result<Vec<Going<'p>>, Error> {
        let mut all = Vec::new();
        for (at, record) in records.iter().enumerate() {
            let mut going = Going { prepared: Vec::new(), record: record.clone(), head: safety.id };
            for member in members.iter().filter(|member| member.folder == at) {
                let Some(target) = member.target else { continue };
                going.prepared.push(member.part.prepare(member.captured.document, target, writer)?);
                // After a partial restore, a workspace is closest to its state just before.
                if member.part.kind() == PartKind::Files && record.paths.is_empty() {
                    going.head = request.to.id;
                }
            }
            if let Some((first, others)) = going.prepared.split_first_mut() {
                others.iter_mut().for_each(|other| first.take_steps(other.give_steps()));
            }
            let outline = going.outline();
            going.record.restored_files_count = outline.restored;
            going.record.removed_files_count = outline.removed;
            all.push(going);
        }
        Ok(all)
    }

    /// The records of a rollback, one for each folder, before anything is known about how it goes.
    pub(crate) fn records_of(&self, request: &Request<'_>) -> Result<Vec<Rollback>, Error> {
        if let Some(alone) = request.alone() {
            let mut records = vec![self.record_of(request, alone, None)?];
            let together = Some(records[0].id);
            for id in request.memory_folders() {
                records[0].together = together;
                records.push(self.record_of(request, id, together)?);
            }
            return Ok(records);
        }
        let together = Some(RollbackId::from_bits(self.environment.new_id()));
        let folders = request.to.parts.iter().filter(|part| part.kind == PartKind::Files);
        let mut ids: Vec<WorkspaceId> = folders.filter_map(|part| part.key.parse().ok()).collect();
        ids.sort_unstable();
        ids.into_iter().map(|id| self.record_of(request, id, together)).collect()
    }

    fn record_of(
        &self,
        request: &Request<'_>,
        workspace: WorkspaceId,
        together: Option<RollbackId>,
    ) -> Result<Rollback, Error> {
        let Request { verb, answers, options, to, .. } = request;
        let parts = options.chosen();
        // Paths are those of the workspace itself.
        let is_memory = request.alone().is_some_and(|alone| alone != workspace);
        let paths = if is_memory { Vec::new() } else { options.paths.clone() };
        let implied = match options.paths.is_empty() && parts.is_empty() {
            true => Strategy::Immediate,
            false => Strategy::Selective,
        };
        Ok(Rollback {
            id: RollbackId::from_bits(self.environment.new_id()),
            workspace_id: workspace,
            together,
            verb: *verb,
            answers: *answers,
            from: self.workspaces().get(workspace)?.head,
            to: to.id,
            safety_checkpoint: None,
            strategy: options.strategy.unwrap_or(implied),
            parts,
            paths,
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

    /// Counts a completed rollback.
    fn count_rolled_back(
        &self,
        transaction: &Transaction<'_>,
        request: &Request<'_>,
        changed: bool,
        at: Timestamp,
    ) -> Result<(), Error> {
        if changed {
            self.note_left(transaction, request, at)?;
        }
        if request.taking.is_none() {
            transaction.count_rollback(request.to.id)?;
            self.count(transaction, SessionCount::Recovery, at)?;
        }
        if request.correction.is_some_and(Correction::has_guidance) {
            self.count(transaction, SessionCount::Decision, at)?;
        }
        Ok(())
    }
}

/// Returns true if a rollback changes nothing: then it needs no safety checkpoint.
fn is_idle(request: &Request<'_>, done: &RolledBack) -> bool {
    let blocked = done.folders.iter().any(|folder| !folder.outline.blocked.is_empty());
    done.is_empty() && !blocked && request.taking.is_none() && request.correction.is_none()
}

/// Report of a rollback before it is done.
fn told(
    request: &Request<'_>,
    going: &[Going<'_>],
    warnings: Vec<Warning>,
    recovered: Recovery,
) -> RolledBack {
    let first = &going[0].record;
    let mut told = RolledBack {
        id: first.together.unwrap_or(first.id),
        verb: request.verb,
        to: request.to.id,
        safety_checkpoint: None,
        workspace: request.alone(),
        folders: Vec::new(),
        plans: Vec::new(),
        plans_left: Vec::new(),
        left_alone: Vec::new(),
        sessions: Vec::new(),
        agents: Vec::new(),
        others: Vec::new(),
        undone: Vec::new(),
        effects_not_undone: Vec::new(),
        waiting: Vec::new(),
        warnings,
        verified: false,
        recovered,
    };
    for going in going {
        let outline = going.outline();
        told.warnings.extend(outline.lost.iter().cloned().map(Warning::AccessNotRestored));
        let mut folder = FolderRolledBack {
            record: going.record.clone(),
            outline,
            git: None,
            changed_meanwhile: Vec::new(),
        };
        for back in going.prepared.iter().filter_map(|prepared| prepared.put_back()) {
            match back {
                PutBack::Git(moved) => folder.git = Some(moved),
                PutBack::Plan { id, taken_back } => told.plans.push((id, taken_back)),
                PutBack::Session(back) => told.sessions.push(back),
                PutBack::Agent(name) => told.agents.push(name),
                PutBack::Outside { kind, key } => told.others.push((kind, key)),
            }
        }
        told.folders.push(folder);
    }
    told
}
