//! ROLLBACK: hold, recover, safety, plan, stage, intent, apply, sync, verify, publish, settle.
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
pub(crate) mod scene;
pub(crate) mod search;
pub(crate) mod strategy;
pub(crate) mod undo;
pub(crate) mod unusable;

use crate::manager::Held;
use crate::parts::files::Thrift;
use crate::parts::git::{GitMoved, GitReset};
use crate::parts::kinds::KINDS;
use crate::parts::part::{Outline, PutBack};
use crate::parts::session::SessionBack;
use crate::parts::thread::ThreadBack;
use crate::parts::{Member, seal};
use crate::places::Place;
use crate::plans::apply::TakeOver;
use crate::plans::correct::Correction;
use crate::plans::sandbox::Missing;
use crate::rollback::effects::{Effects, FailedUndo, NotUndone, Undone};
use crate::rollback::recover::Recovery;
use crate::threads::StateKey;
use crate::threads::save::PreparedSave;
use crate::upkeep::cap_hit;
use crate::upkeep::capped::Refused;
use crate::{CheckpointManager, Error, Warning};
use carry::{Deed, Going};
use in_the_way::PlanInTheWay;
use safepoint_catalog::{Transaction, Workspace};
use safepoint_model::checkpoint::{Checkpoint, Kind, PartKind, Reason, Role};
use safepoint_model::plan::state::TakenBack;
use safepoint_model::rollback::{Action, ChangedPath, Rollback, RollbackState, Strategy, Verb};
use safepoint_model::session::SessionCount;
use safepoint_model::{
    CheckpointId, ObjectId, ObjectKind, Progress, RelPath, RollbackId, Timestamp, WorkspaceId, document,
};
use safepoint_store::Writer;
use safepoint_workspace::{Times, drop_folders, make_folders};
use scene::{Ground, Scene};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use unusable::FolderProblem;

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
#[non_exhaustive]
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
    /// A plan whose sandbox is missing, with the files of that sandbox.
    SandboxMissing {
        /// The plan.
        plan: String,
        /// The missing folder.
        folder: String,
    },
    /// A folder that cannot be opened, with what belongs to it.
    FolderUnusable {
        /// The folder.
        folder: String,
        /// Reason.
        why: FolderProblem,
        /// The plans that work in it.
        plans: Vec<String>,
        /// The agents that have files in it.
        agents: Vec<String>,
    },
}

/// Rollback options.
#[derive(Debug, Clone, Default)]
pub struct RollbackOptions {
    /// Only these paths; everything where there are none.
    pub paths: Vec<RelPath>,
    /// Paths to leave as they are, with everything below.
    pub leave: Vec<RelPath>,
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
    /// [`RolledBack::present`] of a preview. The rollback is refused with [`Error::StalePreview`] if the current state
    /// is another one.
    pub expect_present: Option<ObjectId>,
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
    /// Fingerprint of the state before: equal for a preview and for the rollback if nothing changed between them.
    pub present: ObjectId,
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
    /// Restored threads whose heads moved.
    pub threads: Vec<ThreadBack>,
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
            && self.threads.is_empty()
            && self.agents.is_empty()
            && self.others.is_empty()
    }
}

/// Folders that a rollback made again. They are removed unless they are kept.
#[derive(Default)]
struct MadeFolders(Vec<Vec<PathBuf>>);

impl MadeFolders {
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        self.0.iter().for_each(|made| drop_folders(made));
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
    /// The result that is taken over.
    pub(crate) taking: Option<&'a dyn TakeOver>,
    /// Plans that work in its folders and stay as they are.
    pub(crate) left: Vec<PlanInTheWay>,
    /// The plans of which a step asks for it.
    pub(crate) own_runs: Vec<String>,
    /// True if it is a rollback of a plan, whose state must be restored with its files.
    pub(crate) of_plan: bool,
    /// True if it must not replace files that changed after the last rollback.
    pub(crate) spares_changes: bool,
    /// Extent of the safety checkpoint.
    pub(crate) thrift: Thrift,
    /// Changes that a preview showed, if nothing else may be changed.
    pub(crate) shown: Option<Arc<Shown>>,
    /// State of a thread to go to, instead of the threads of the checkpoint, and one to be saved after it.
    pub(crate) state: Option<(StateKey, Option<Arc<PreparedSave>>)>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(
        verb: Verb,
        at: Option<WorkspaceId>,
        to: Checkpoint,
        options: &RollbackOptions,
    ) -> Self {
        let options = options.clone();
        let (left, own_runs, of_plan, spares_changes) = (Vec::new(), Vec::new(), false, false);
        let (answers, correction, taking) = (None, None, None);
        let thrift = Thrift::Usual;
        Self {
            verb,
            answers,
            to,
            at,
            options,
            correction,
            taking,
            left,
            own_runs,
            of_plan,
            spares_changes,
            thrift,
            shown: None,
            state: None,
        }
    }

    fn is_dry(&self) -> bool {
        self.options.dry_run == DryRun::Yes
    }

    /// The folder that it is about, where that is one.
    pub(crate) fn alone(&self) -> Option<WorkspaceId> {
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
        let mark = self.recovery_mark();
        let mut done = self.try_to_roll_back(request, progress);
        if let Ok(done) = &mut done {
            done.recovered = self.recovered_since(mark);
        }
        if let Err(error) = &done
            && !request.is_dry()
        {
            self.note_refusal(&self.records_of(request).unwrap_or_default(), error);
        }
        done
    }

    fn try_to_roll_back(&self, request: &Request<'_>, progress: &dyn Progress) -> Result<RolledBack, Error> {
        let mut request = self.of_here(request)?;
        // The locks keep the plans idle.
        let mut effects = Effects::default();
        let (_locks, plans) = self.hold_plans(&request, &mut effects)?;
        let going: Vec<&str> = plans.iter().map(|(plan, _)| plan.plan.id.as_str()).collect();
        let _others = self.hold_others(&mut request, &going, &mut effects)?;
        let request = &request;
        let has_commands = self.has_commands_to_run(&plans, request)?;
        let mut going = request.clone();
        if has_commands {
            // Nothing is taken back for a rollback that could not be.
            let dry = RollbackOptions { dry_run: DryRun::Yes, ..request.options.clone() };
            let seen = self.go(&Request { options: dry, ..request.clone() }, None, progress)?;
            if going.options.expect_present.take().is_some() {
                // The dry run compared the state. The undo commands change it: then the paths are compared.
                going.shown = Some(Arc::new(shown(&seen)));
            }
        }
        self.take_back_effects(&plans, &request.options, progress, &mut effects)?;
        self.renew_limits()?;
        let request = &going;
        let mut done = match self.go(request, None, progress) {
            Err(error) if cap_hit(&error).is_some() => self.go_within_cap(request, error, progress)?,
            done => done?,
        };
        let Effects { undone, not_undone, warnings } = effects;
        (done.undone, done.effects_not_undone) = (undone, not_undone);
        done.warnings.extend(warnings);
        let folders = &done.folders;
        let is_changed = |plan: &&PlanInTheWay| {
            folders.iter().any(|folder| plan.is_changed_by(folder.record.workspace_id, &folder.outline))
        };
        done.plans_left = request.left.iter().filter(is_changed).map(|left| left.plan.clone()).collect();
        Ok(done)
    }

    /// Does a rollback whose safety checkpoint does not fit under the cap: one of the chosen paths alone is taken; then older
    /// checkpoints make room.
    fn go_within_cap(
        &self,
        request: &Request<'_>,
        hit: Error,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let thrifty = Request { thrift: Thrift::ChosenOnly, ..request.clone() };
        let (request, hit) = match request.options.paths.is_empty() {
            true => (request, hit),
            false => match self.go(&thrifty, None, progress) {
                Err(error) if cap_hit(&error).is_some() => (&thrifty, error),
                done => return done,
            },
        };
        // The checkpoint to go back to is not one to delete.
        let refused = Refused { workspace: request.alone(), target: Some(request.to.id) };
        let room = self.make_room_for(hit, refused, request.options.dry_run, progress)?;
        let done = self.go(request, None, progress);
        let mut done = done.map_err(|error| self.capped(error, refused, progress))?;
        // Pruned checkpoints are reported.
        done.warnings.extend(room.warnings);
        if !room.pruned.is_empty() {
            done.warnings.push(Warning::PrunedForRoom { count: room.pruned.len() as u64 });
        }
        Ok(done)
    }

    /// Returns the request with the parts that are registered here, and with the plan whose step asks for it.
    fn of_here<'a>(&self, request: &Request<'a>) -> Result<Request<'a>, Error> {
        let mut request = request.clone();
        request.to = self.that_goes_back(&request, &request.to)?.0;
        self.note_own_runs(&mut request)?;
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
        let _others = self.hold_others(&mut request, &[], &mut Effects::default())?;
        self.go(&request, Some(look), progress).map(drop)
    }

    /// Locks the folders, captures the current state, and does the rollback; with a `look`, only for as long as that takes.
    fn go(
        &self,
        request: &Request<'_>,
        look: Option<&mut dyn FnMut() -> Result<(), Error>>,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        let places = self.scene(request, &mut Vec::new())?.places;
        let (held, made) = self.hold_making(request, &places, progress)?;
        let _still = match request.is_dry() {
            true => Vec::new(),
            // Before the capture: what a process wrote after it would be lost.
            false => self.still_rooms(places.iter().map(|place| &place.workspace))?,
        };
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
        let present = fingerprint(&members);
        if request.options.expect_present.is_some_and(|expected| expected != present) {
            return Err(Error::StalePreview);
        }
        let leaving = self.leave_memory(request, &scene, &mut members, &writer)?;
        self.spare_changes(request, &members, &records, &writer)?;
        let caches: Vec<_> = members.iter_mut().map(|member| member.captured.cache.take()).collect();
        let mut safety = self.safety_for(request, &scene, &members, &writer)?;
        safety.warnings.extend(passed_over);
        leaving.renumber(&mut records, &mut members);
        left_alone.extend(leaving.told);
        let mut going = self.prepare_all(request, &members, &records, (&safety, &writer))?;
        let mut done = RolledBack { left_alone, present, ..told(request, &going, warnings) };
        if let Some(path) = request.shown.as_ref().and_then(|shown| unshown(shown, &done)) {
            return Err(Error::ChangedDuringUndo { path });
        }
        if request.is_dry() {
            return Ok(done);
        }
        if look.is_none() && is_idle(request, &done) {
            self.record_idle(&mut going, request, &mut done)?;
            made.keep();
            return Ok(done);
        }
        for (going, folder) in going.iter_mut().zip(&done.folders) {
            going.record.changed_paths = Some(document::store(&writer, &folder.outline.paths)?);
        }
        let plans: Vec<_> = scene.plans.iter().map(|(record, _)| record).collect();
        let stored = self.finish_with_record(writer, &mut safety, &plans)?;
        let deed = Deed { request, safety: &safety, stored: &stored, members: &members };
        self.stage(&mut going, &safety, progress)?;
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
        made.keep();
        Ok(done)
    }

    /// Returns a checkpoint without the parts that are not rolled back here, and those of several folders that may not be.
    fn that_goes_back(
        &self,
        request: &Request<'_>,
        to: &Checkpoint,
    ) -> Result<(Checkpoint, Vec<LeftAlone>), Error> {
        let options = &request.options;
        let mut here = self.only_of_here(to, options)?;
        let mut left = Vec::new();
        if request.alone().is_none() && options.strict == Strict::No {
            for kind in KINDS {
                left.extend(kind.leave_alone(self, options, &mut here)?);
            }
            left.extend(self.leave_unusable(&mut here)?);
        }
        Ok((here, left))
    }

    /// Locks the folders and finishes or undoes what a crash left in them. Then it makes deleted folders again, and locks them: of several
    /// folders all, of a workspace those with the memory of its agents.
    fn hold_making(
        &self,
        request: &Request<'_>,
        places: &[Place],
        progress: &dyn Progress,
    ) -> Result<(Vec<Held>, MadeFolders), Error> {
        let mut gone = Vec::new();
        let own = usize::from(request.alone().is_some());
        for (at, Place { workspace, .. }) in places.iter().enumerate().skip(own) {
            let is_gone =
                request.options.strict == Strict::No && workspace.root_path().symlink_metadata().is_err();
            // A sandbox lies in the home, which has folders of its own.
            if is_gone && self.catalog.plan_of_sandbox(workspace.id)?.is_none() {
                gone.push(at);
            }
        }
        let (there, missing): (Vec<_>, Vec<_>) =
            places.iter().cloned().enumerate().partition(|(at, _)| !gone.contains(at));
        let (there_at, there): (Vec<usize>, Vec<Place>) = there.into_iter().unzip();
        let (missing_at, missing): (Vec<usize>, Vec<Place>) = missing.into_iter().unzip();
        let mut held: Vec<(usize, Held)> =
            there_at.into_iter().zip(self.hold_all(&there, progress)?.0).collect();
        let mut made = MadeFolders::default();
        for place in &missing {
            made.0.push(make_folders(place.workspace.root_path())?);
        }
        held.extend(missing_at.into_iter().zip(self.hold_all(&missing, progress)?.0));
        held.sort_by_key(|(at, _)| *at);
        Ok((held.into_iter().map(|(_, held)| held).collect(), made))
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
            Some(taking) => taking.label(),
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
                let is_whole = record.paths.is_empty() && request.options.leave.is_empty();
                if member.part.kind() == PartKind::Files && is_whole {
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

    /// Counts a completed rollback, and leaves a note about it to agents.
    fn count_rolled_back(
        &self,
        transaction: &Transaction<'_>,
        request: &Request<'_>,
        all: &[Going<'_>],
        at: Timestamp,
    ) -> Result<(), Error> {
        self.note_left(transaction, request, all, at)?;
        Self::leave_hook_notes(transaction, all.iter().map(|going| &going.record), at)?;
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

/// Returns the hash of what was captured, part by part.
fn fingerprint(members: &[Member<'_>]) -> ObjectId {
    let mut text = Vec::new();
    for member in members {
        let document = member.captured.document.map_or_else(String::new, |id| id.to_string());
        for field in [member.part.kind().as_str(), &member.part.key(), &document] {
            // With its length, so that no text can pass for two.
            text.extend_from_slice(&(field.len() as u64).to_le_bytes());
            text.extend_from_slice(field.as_bytes());
        }
    }
    ObjectId::of(ObjectKind::Document, &text)
}

/// Actions of a preview on the paths of each folder.
pub(crate) type Shown = BTreeMap<(WorkspaceId, RelPath), Action>;

fn shown(seen: &RolledBack) -> Shown {
    let folders = seen.folders.iter();
    let rows = folders.flat_map(|folder| {
        let workspace = folder.record.workspace_id;
        folder.outline.paths.iter().map(move |it| ((workspace, it.path.clone()), it.action))
    });
    rows.collect()
}

/// Returns the first path that a rollback would change and that the preview did not show.
fn unshown(shown: &Shown, done: &RolledBack) -> Option<RelPath> {
    done.folders.iter().find_map(|folder| {
        let is_new = |it: &&ChangedPath| {
            let at = (folder.record.workspace_id, it.path.clone());
            it.action != Action::Kept && shown.get(&at) != Some(&it.action)
        };
        folder.outline.paths.iter().find(is_new).map(|it| it.path.clone())
    })
}

/// Returns true if a rollback changes nothing: then it needs no safety checkpoint.
fn is_idle(request: &Request<'_>, done: &RolledBack) -> bool {
    let blocked = done.folders.iter().any(|folder| !folder.outline.blocked.is_empty());
    done.is_empty() && !blocked && request.taking.is_none() && request.correction.is_none()
}

/// Report of a rollback before it is done.
fn told(request: &Request<'_>, going: &[Going<'_>], warnings: Vec<Warning>) -> RolledBack {
    let first = &going[0].record;
    let mut told = RolledBack {
        id: first.together.unwrap_or(first.id),
        verb: request.verb,
        to: request.to.id,
        safety_checkpoint: None,
        present: ObjectId::from_bytes([0; 32]),
        workspace: request.alone(),
        folders: Vec::new(),
        plans: Vec::new(),
        plans_left: Vec::new(),
        left_alone: Vec::new(),
        sessions: Vec::new(),
        threads: Vec::new(),
        agents: Vec::new(),
        others: Vec::new(),
        undone: Vec::new(),
        effects_not_undone: Vec::new(),
        waiting: Vec::new(),
        warnings,
        verified: false,
        // The verb fills it in at its end.
        recovered: Recovery::default(),
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
                PutBack::Thread(back) => told.threads.push(back),
                PutBack::Agent(name) => told.agents.push(name),
                PutBack::Outside { kind, key } => told.others.push((kind, key)),
            }
        }
        told.folders.push(folder);
    }
    told
}
