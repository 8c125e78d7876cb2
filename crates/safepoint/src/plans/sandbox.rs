//! SANDBOX: where a plan works. A copy is a workspace of its own in Safepoint's home, so that checkpoints and rollbacks of it are those
//! of any workspace.

use crate::checkpoint::create::CreateOptions;
use crate::handles::Plans;
use crate::home::Home;
use crate::plans::room::{Seat, note_sandbox};
use crate::{CheckpointManager, Error, process};
use safepoint_catalog::{PlanRecord, Workspace};
use safepoint_model::checkpoint::{Kind, Reason};
use safepoint_model::id::RunId;
use safepoint_model::plan::run::{Sandbox, SandboxState};
use safepoint_model::plan::spec::SandboxKind;
use safepoint_model::{CheckpointId, Progress};
use safepoint_workspace::{Root, copy_tree, remove_tree};
use std::ffi::OsString;
use std::path::Path;

/// Handling of a missing sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// It is refused.
    #[default]
    Refused,
    /// It is made again, and filled by the rollback.
    MadeAgain,
}

impl CheckpointManager {
    /// The same, where a folder that is gone does not matter.
    pub(crate) fn place_of(&self, record: &PlanRecord) -> Result<Workspace, Error> {
        match self.plans().sandbox(record)? {
            Some(sandbox) => self.workspaces().get(sandbox.workspace_id),
            None => self.workspaces().get(record.workspace_id),
        }
    }

    /// Sees to it that a plan has its sandbox before anything happens there.
    pub(crate) fn with_sandbox(&self, id: &str, progress: &dyn Progress) -> Result<PlanRecord, Error> {
        let record = self.plans().get(id)?;
        if record.plan.sandbox.kind == SandboxKind::InPlace || record.plan.sandbox.id.is_some() {
            return Ok(record);
        }
        let project = self.workspaces().get(record.workspace_id)?;
        // The project is locked during the copy, so no other process makes the same sandbox. The store is not held: the checkpoint
        // of the copy may find that space is to be freed.
        let root = Root::open(project.root_path())?;
        let _lock = root.lock(self.settings.lock_wait)?;
        self.recover_held(&project, &root, progress)?.refuse_foreign(&project)?;
        let record = self.plans().get(id)?;
        if record.plan.sandbox.id.is_some() {
            return Ok(record);
        }
        if record.plan.sandbox.kind == SandboxKind::Overlay
            && let Some(record) = self.make_overlay(id, (&root, &project), progress)?
        {
            return Ok(record);
        }
        let path = self.home.sandbox(id, &project.name);
        let failed = |source| Error::Home { path: path.clone(), source };
        self.home.make_sandbox_folder(id).map_err(failed)?;
        // An unrecorded copy was left half-done by a crash.
        remove_tree(&path)?;
        copy_tree(&root, &path, &self.own_folders(&root), progress)?;
        let place = self.workspaces().register_anyway(&path)?;
        let options = CreateOptions {
            label: Some(format!("what plan {id} begins with")),
            kind: Kind::Automatic,
            reason: Reason::SafeState,
            ..CreateOptions::default()
        };
        let base = self.create(&place, &options, progress)?.checkpoint.id;
        let sandbox = Sandbox {
            id: CheckpointId::from_bits(self.environment.new_id()).to_string(),
            kind: SandboxKind::Copy,
            path,
            workspace_id: place.id,
            base,
            state: SandboxState::Ready,
            created_at: self.environment.now(),
        };
        let at = self.environment.now();
        self.catalog.write(|transaction| note_sandbox(transaction, id, &sandbox, at))
    }

    /// Makes an empty folder for a sandbox that is gone, where that is wanted; the rollback fills it. Says whether it did.
    pub(crate) fn make_sandbox_again(&self, record: &PlanRecord, missing: Missing) -> Result<bool, Error> {
        match self.plans().workspace(record) {
            Err(Error::SandboxMissing { id, path }) if missing == Missing::MadeAgain => {
                let sandbox = self.plans().sandbox(record)?;
                if let Some(sandbox) = sandbox.filter(|it| it.kind == SandboxKind::Overlay) {
                    self.make_room_again(&sandbox)?;
                    return Ok(true);
                }
                let failed = |source| Error::Home { path: path.clone(), source };
                self.home.make_empty_sandbox(&id, &path).map_err(failed)?;
                self.copy_git_folder(record, &path)?;
                Ok(true)
            }
            other => other.map(|_| false),
        }
    }

    /// Copies the project's `.git` into a sandbox that is made again: checkpoints do not hold it.
    fn copy_git_folder(&self, record: &PlanRecord, sandbox: &Path) -> Result<(), Error> {
        let git = self.workspaces().get(record.workspace_id)?.root_path().join(".git");
        if !git.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            return Ok(());
        }
        copy_tree(&Root::open(&git)?, &sandbox.join(".git"), &[], &crate::Silent)?;
        Ok(())
    }

    /// Removes a folder that was made for a rollback which was refused then.
    pub(crate) fn drop_sandbox_again(&self, record: &PlanRecord) {
        if let Ok(Some(sandbox)) = self.plans().sandbox(record) {
            if let Ok(Some(attempt)) = self.attempt_of_sandbox(&sandbox) {
                let _ = self.home.remove_room(&attempt.id.to_string());
                return;
            }
            let _ = remove_tree(&sandbox.path.join(".git"));
            Home::drop_empty(&sandbox.path);
        }
    }

    /// Environment variables for a step's commands.
    pub(crate) fn variables_for(
        &self,
        record: &PlanRecord,
        step: &str,
        seat: &Seat,
        run: Option<RunId>,
    ) -> Result<Vec<(OsString, OsString)>, Error> {
        let plan = &record.plan;
        plan.find(step)?;
        let around =
            |path: &str| step == path || step.strip_prefix(path).is_some_and(|it| it.starts_with('/'));
        // A subplan's variables apply to its steps, unless overridden.
        let mut variables: Vec<(OsString, OsString)> = plan
            .steps
            .iter()
            .filter(|it| around(&it.path))
            .flat_map(|it| &it.spec.env)
            .map(|(name, value)| process::variable(name, value))
            .collect();
        variables.extend([
            process::variable("SAFEPOINT_PLAN_ID", &plan.id),
            process::variable("SAFEPOINT_STEP_ID", step),
            process::variable("SAFEPOINT_SANDBOX", &seat.directory),
            process::variable("SAFEPOINT_HOME", self.home()),
        ]);
        variables.extend(seat.variables.iter().cloned());
        variables.extend(
            self.settings.session_id.as_ref().map(|id| process::variable("SAFEPOINT_SESSION_ID", id)),
        );
        variables.extend(run.map(|run| process::variable(process::RUN_VARIABLE, run.to_string())));
        Ok(variables)
    }
}

impl Plans<'_> {
    /// The sandbox of a plan, where it has one that is not the workspace itself.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn sandbox(&self, record: &PlanRecord) -> Result<Option<Sandbox>, Error> {
        match &record.plan.sandbox.id {
            Some(id) => Ok(self.manager.catalog.sandbox(id)?),
            None => Ok(None),
        }
    }

    /// The workspace that a plan works in.
    ///
    /// # Errors
    /// [`Error::SandboxMissing`] when its folder is gone; or when the catalog cannot be read.
    pub fn workspace(&self, record: &PlanRecord) -> Result<Workspace, Error> {
        let Some(sandbox) = self.sandbox(record)? else {
            return self.manager.workspaces().get(record.workspace_id);
        };
        if !sandbox.path.is_dir() {
            return Err(Error::SandboxMissing { id: record.plan.id.clone(), path: sandbox.path });
        }
        self.manager.workspaces().get(sandbox.workspace_id)
    }
}
