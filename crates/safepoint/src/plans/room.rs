//! Rooms of plans: the sandbox of a plan is an attempt, whose layer holds every change of its steps.
//!
//! A step enters the room as a command of an attempt does. Between two steps nothing is mounted: so a rollback changes the layer
//! from outside, once no process is in the room. Whether a workspace is such a sandbox is asked of the catalog.

use crate::attempts::rooms::{NewRoom, processes_of, variables};
use crate::{CheckpointManager, Error, process};
use safepoint_catalog::{PlanRecord, Transaction, Workspace};
use safepoint_model::attempt::{Attempt, AttemptKind, AttemptState};
use safepoint_model::id::AttemptId;
use safepoint_model::plan::run::{Sandbox, SandboxState};
use safepoint_model::plan::spec::SandboxKind;
use safepoint_model::{Progress, Timestamp};
use safepoint_workspace::{Outside, RoomEntry, RoomFolder, RoomLock, RoomProcess, Root, has_mounts_below};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time in which the processes of a step that has just ended leave the room.
const LEAVING: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(10);

/// Sandbox of a plan that is an overlay.
pub(crate) struct PlanRoom {
    pub(crate) attempt: Attempt,
    pub(crate) folder: RoomFolder,
    pub(crate) project: Workspace,
}

/// Place in which the commands of a plan run.
pub(crate) struct Seat {
    /// Their current directory.
    pub(crate) directory: PathBuf,
    /// Words of a program that becomes their shell in the room; none to start it directly.
    pub(crate) through: Vec<OsString>,
    /// More variables for them.
    pub(crate) variables: Vec<(OsString, OsString)>,
    room: Option<RoomFolder>,
}

impl Seat {
    /// Returns the reason why the last command could not enter.
    pub(crate) fn refused(&self) -> Option<String> {
        let refused = self.room.as_ref()?.take_refused()?;
        Some(format!("cannot {}: {}", refused.step, refused.source))
    }
}

impl CheckpointManager {
    /// Returns the room of a workspace, if that is the sandbox of a plan and an overlay.
    pub(crate) fn room_of_plan(&self, workspace: &Workspace) -> Result<Option<PlanRoom>, Error> {
        if self.overlay_room(workspace)?.is_none() || self.catalog.plan_of_sandbox(workspace.id)?.is_none() {
            return Ok(None);
        }
        let Some(attempt) = self.catalog.attempt_at(workspace.id)? else { return Ok(None) };
        let project = self.workspaces().get(attempt.workspace_id)?;
        let folder = self.room_of(&attempt, &project);
        Ok(Some(PlanRoom { attempt, folder, project }))
    }

    /// Returns the place in which the commands of a plan run that works in this workspace.
    pub(crate) fn seat_in(&self, place: &Workspace) -> Result<Seat, Error> {
        let Some(PlanRoom { attempt, folder, project }) = self.room_of_plan(place)? else {
            let directory = place.root_path().to_owned();
            return Ok(Seat { directory, through: Vec::new(), variables: Vec::new(), room: None });
        };
        if self.settings.room_helper.is_empty() {
            let step = "start a program that enters its namespace: none is set".to_owned();
            return Err(Error::Room { name: attempt.name, step, source: io::ErrorKind::Unsupported.into() });
        }
        let directory = project.root_path().to_owned();
        let entry = RoomEntry {
            attempt: attempt.id.to_string(),
            project: directory.clone(),
            room: folder.clone(),
            directory: directory.clone(),
            outside: Outside::Real,
            command: Vec::new(),
        };
        let own = variables(&attempt).map(|(name, value)| process::variable(name, value));
        let temporary = process::variable("TMPDIR", folder.tmp());
        Ok(Seat {
            directory,
            through: self.room_words(&entry),
            variables: own.into_iter().chain([temporary]).collect(),
            room: Some(folder),
        })
    }

    /// Locks those of these workspaces that are rooms of plans: no process enters them until the locks are dropped.
    ///
    /// # Errors
    /// [`Error::RoomInUse`] if a process is in one: a layer must not be changed while it is mounted.
    pub(crate) fn still_rooms<'w>(
        &self,
        workspaces: impl Iterator<Item = &'w Workspace>,
    ) -> Result<Vec<RoomLock>, Error> {
        let mut locks = Vec::new();
        for workspace in workspaces {
            let Some(PlanRoom { attempt, folder, .. }) = self.room_of_plan(workspace)? else { continue };
            self.refuse_inside()?;
            let missing = |_| Error::RoomMissing { name: attempt.name.clone(), path: attempt.room.clone() };
            locks.push(folder.lock().map_err(missing)?);
            let processes = left_in(&attempt);
            if !processes.is_empty() {
                return Err(Error::RoomInUse { name: attempt.name, processes });
            }
        }
        Ok(locks)
    }

    /// Makes an overlay for a plan, with everything that belongs to it in one transaction. The caller holds the project.
    /// `None` if no overlay can be had here.
    pub(super) fn make_overlay(
        &self,
        id: &str,
        (root, project): (&Root, &Workspace),
        progress: &dyn Progress,
    ) -> Result<Option<PlanRecord>, Error> {
        let is_possible =
            self.inside.is_empty() && self.own_folders(root).is_empty() && !has_mounts_below(root.path());
        if !is_possible {
            return Ok(None);
        }
        let attempt_id = AttemptId::from_bits(self.environment.new_id());
        let NewRoom { draft, folder, kind, .. } = self.make_attempt_room(attempt_id, root, false)?;
        if kind != Some(AttemptKind::Overlay) {
            self.home.remove_room(&attempt_id.to_string())?;
            return Ok(None);
        }
        let mut made = None;
        let mut note = |transaction: &Transaction<'_>, attempt: &Attempt| -> Result<(), Error> {
            let sandbox = Sandbox {
                id: attempt.id.to_string(),
                kind: SandboxKind::Overlay,
                path: folder.tree(),
                workspace_id: attempt.place_id,
                base: attempt.base,
                state: SandboxState::Ready,
                created_at: attempt.created_at,
            };
            made = Some(note_sandbox(transaction, id, &sandbox, attempt.created_at)?);
            Ok(())
        };
        let name = self.name_of_overlay(project, &format!("plan-{id}"))?;
        let begun = self.begin_in_room((attempt_id, &folder, name), (root, project), &mut note, progress);
        drop(draft);
        begun?;
        Ok(made)
    }

    /// Returns a name for an attempt; nothing, for one that is made up, if an open attempt has it.
    fn name_of_overlay(&self, project: &Workspace, name: &str) -> Result<String, Error> {
        let all = self.catalog.attempts(project.id)?;
        let is_taken = all.iter().any(|other| other.state == AttemptState::Open && other.name == name);
        Ok(if is_taken { String::new() } else { name.to_owned() })
    }

    /// Makes the room of a plan again, without any change in it.
    pub(super) fn make_room_again(&self, sandbox: &Sandbox) -> Result<(), Error> {
        let Some(attempt) = self.attempt_of_sandbox(sandbox)? else { return Ok(()) };
        if attempt.state != AttemptState::Open {
            return Err(Error::AttemptClosed { name: attempt.name, state: attempt.state });
        }
        let failed = |source| Error::Home { path: self.home().to_owned(), source };
        let (project, id) = (self.workspaces().get(attempt.workspace_id)?, attempt.id.to_string());
        self.home.remove_room(&id)?;
        let draft = self.home.make_attempt_folder(&id).map_err(failed)?;
        if let Some(beside) = attempt.room.parent().filter(|_| attempt.room != draft.path()) {
            crate::home::Home::make_room_beside(&draft, &id, beside).map_err(failed)?;
        }
        Ok(self.room_of(&attempt, &project).make(&Root::open(project.root_path())?)?)
    }

    /// Returns the attempt of an overlay.
    pub(super) fn attempt_of_sandbox(&self, sandbox: &Sandbox) -> Result<Option<Attempt>, Error> {
        match (sandbox.kind, sandbox.id.parse()) {
            (SandboxKind::Overlay, Ok(id)) => Ok(self.catalog.attempt(id)?),
            _ => Ok(None),
        }
    }

    /// Refuses an attempt that is the sandbox of an open plan: the plan decides about it.
    pub(crate) fn refuse_of_plan(&self, attempt: &Attempt) -> Result<(), Error> {
        match self.open_plan_of(attempt)? {
            Some(plan) => Err(Error::AttemptOfPlan { name: attempt.name.clone(), plan }),
            None => Ok(()),
        }
    }

    /// Returns the open plan whose sandbox an attempt is.
    pub(crate) fn open_plan_of(&self, attempt: &Attempt) -> Result<Option<String>, Error> {
        let plan = self.catalog.plan_of_sandbox(attempt.place_id)?;
        let record = plan.map(|id| self.plans().get(&id)).transpose()?;
        Ok(record.filter(|record| !record.plan.state.is_over()).map(|record| record.plan.id))
    }

    /// Recovers the workspace of an attempt that is the sandbox of a plan, before a process enters it.
    pub(crate) fn recover_room(&self, attempt: &Attempt) -> Result<(), Error> {
        let place = self.workspaces().get(attempt.place_id)?;
        if self.inside.is_empty() && self.room_of_plan(&place)?.is_some() {
            self.recover(&place, &crate::Silent)?;
        }
        Ok(())
    }
}

/// Puts a new sandbox of a plan on record.
pub(super) fn note_sandbox(
    transaction: &Transaction<'_>,
    id: &str,
    sandbox: &Sandbox,
    at: Timestamp,
) -> Result<PlanRecord, Error> {
    let mut record = transaction.plan(id)?.ok_or_else(|| Error::NoPlan { id: id.to_owned() })?;
    record.plan.sandbox.id = Some(sandbox.id.clone());
    transaction.insert_sandbox(id, sandbox)?;
    record.version = transaction.save_plan(&record.plan, "sandbox made", at)?;
    record.updated_at = at;
    Ok(record)
}

/// Returns the processes in a room, without those that are about to leave it.
fn left_in(attempt: &Attempt) -> Vec<RoomProcess> {
    let since = Instant::now();
    loop {
        let found = processes_of(attempt);
        if found.is_empty() || since.elapsed() > LEAVING {
            return found;
        }
        sleep(TICK);
    }
}

/// Returns the room whose tree a path is, by its shape.
pub(crate) fn room_around(tree: &Path) -> Option<&Path> {
    let above = tree.parent()?;
    (above.file_name() == Some(OsStr::new("tree"))).then(|| above.parent()).flatten()
}
