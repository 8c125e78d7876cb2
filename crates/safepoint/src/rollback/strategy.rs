//! STAGED: a rollback that is tried first. Also the check that a search (`search.rs`) runs in each candidate.

use crate::config::Broken;
use crate::folders::{is_together, within};
use crate::parts::kinds::chosen_as;
use crate::places::Place;
use crate::process::{self, Exit, Job, Log, Stop};
use crate::rollback::effects::in_words;
use crate::rollback::{DryRun, RollbackOptions, RolledBack};
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::checkpoint::{Checkpoint, PartKind};
use safepoint_model::rollback::Strategy;
use safepoint_model::{CheckpointId, Progress, WorkspaceId};
use safepoint_store::Depth;
use safepoint_workspace::{Snapshot, WorkspaceError, write_tree};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Result of a user's command on a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The checkpoint whose state it was.
    pub checkpoint: CheckpointId,
    /// Reason for a failure or a skip; `None` if it passed.
    pub failure: Option<String>,
    /// The state could not be built, so that nothing was checked.
    pub skipped: bool,
}

/// Result of a user's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Exit status 0.
    Passed,
    /// Anything else, in words.
    Failed(String),
}

impl Verdict {
    /// True if it passed.
    pub fn is_passed(&self) -> bool {
        *self == Verdict::Passed
    }

    /// The failure, if any.
    pub fn into_failure(self) -> Option<String> {
        match self {
            Verdict::Passed => None,
            Verdict::Failed(why) => Some(why),
        }
    }
}

impl Check {
    /// True if it passed.
    pub fn is_passed(&self) -> bool {
        self.failure.is_none()
    }
}

/// A rollback that was tried beside the workspace and is about to be done.
#[derive(Debug, Clone)]
pub struct Staged {
    /// Preview.
    pub outline: RolledBack,
    /// Result of the user's command, if any.
    pub check: Option<Check>,
}

/// Result of a staged rollback.
#[derive(Debug)]
pub enum StagedEnd {
    /// It was done.
    Done(Box<RolledBack>, Box<Staged>),
    /// The user's command failed, or the user declined: nothing has changed.
    Left(Box<Staged>),
}

/// Callback for a check's output.
pub type Printed<'a> = &'a mut dyn FnMut(&[u8]);

/// Conditions for a staged rollback.
pub struct Trial<'a> {
    /// The user's command, in the folder of the target.
    pub command: Option<&'a str>,
    /// Callback that confirms the preview.
    pub agreed: &'a mut dyn FnMut(&Staged) -> bool,
    /// Callback for the command's output.
    pub printed: Printed<'a>,
}

/// Scope of a rollback.
struct Ground<'m> {
    manager: &'m CheckpointManager,
    /// The folder in which the user's command looks at what is there.
    here: &'m Workspace,
    /// The one folder that it is about; all that the checkpoint holds where there is none.
    at: Option<&'m Workspace>,
}

impl<'m> Ground<'m> {
    /// Several folders go back together; chosen paths are those of one.
    fn new(
        manager: &'m CheckpointManager,
        here: &'m Workspace,
        to: &Checkpoint,
        options: &RollbackOptions,
    ) -> Self {
        let many = is_together(to) && options.paths.is_empty();
        Self { manager, here, at: (!many).then_some(here) }
    }

    fn go(
        &self,
        to: CheckpointId,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<RolledBack, Error> {
        self.manager.rollback(self.at, to, options, progress)
    }

    /// Runs the user's command on the result of the rollback, in a folder beside the workspace.
    fn try_out(
        &self,
        to: &Checkpoint,
        options: &RollbackOptions,
        (command, printed): (&str, Printed<'_>),
        progress: &dyn Progress,
    ) -> Result<Check, Error> {
        let manager = self.manager;
        let scratch = manager
            .home
            .make_scratch(&CheckpointId::from_bits(manager.environment.new_id()).to_string())
            .map_err(|source| Error::Home { path: manager.home().to_owned(), source })?;
        let directory = self.write_out((to, options), scratch.path(), progress)?;
        let place = Look { directory: &directory, target: scratch.path(), command, through: &[] };
        let verdict = manager.check_state(Some(to.id), &place, printed, progress)?;
        Ok(Check { checkpoint: to.id, failure: verdict.into_failure(), skipped: false })
    }

    /// Writes the result of the rollback into a folder where nothing is. Gives the folder for the user's command.
    fn write_out(
        &self,
        (to, options): (&Checkpoint, &RollbackOptions),
        into: &Path,
        progress: &dyn Progress,
    ) -> Result<PathBuf, Error> {
        let manager = self.manager;
        if let Some(here) = self.at {
            let path = into.join(name_of(here));
            let place = Place { workspace: here.clone(), only: None, leave: Vec::new() };
            let goes = options.wants(PartKind::Files);
            manager.write_result(to, (&place, goes), options, &path, progress)?;
            return Ok(path);
        }
        let mut directory = into.to_owned();
        // Imported parts of other machines are not restored.
        for (place, _) in manager.places_held(&manager.only_of_here(to, options)?)? {
            let workspace = &place.workspace;
            let goes = options.wants(chosen_as(workspace.kind));
            if !goes && !workspace.root_path().is_dir() {
                continue;
            }
            let mut path = into.join(name_of(workspace));
            if path.exists() {
                path = into.join(format!("{}-{}", name_of(workspace), workspace.id));
            }
            manager.write_result(to, (&place, goes), options, &path, progress)?;
            if workspace.id == self.here.id {
                directory = path;
            }
        }
        Ok(directory)
    }
}

impl CheckpointManager {
    /// Writes what a checkpoint holds of a workspace into a folder where nothing is.
    ///
    /// # Errors
    /// When something is there, the checkpoint holds no files of it, or something of it is missing or damaged.
    pub fn write_files(
        &self,
        checkpoint: &Checkpoint,
        workspace: WorkspaceId,
        to: &Path,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let _using = self.store.using()?;
        let snapshot = self.snapshot_of(&within(checkpoint, workspace))?;
        let times = safepoint_workspace::Times::Recorded;
        Ok(write_tree(&self.store, &snapshot.root, to, times, progress)?)
    }

    /// Writes what a rollback would make of a folder into a folder where nothing is: the captured state of now, if it does not go back.
    fn write_result(
        &self,
        to: &Checkpoint,
        (place, goes): (&Place, bool),
        options: &RollbackOptions,
        into: &Path,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let workspace = &place.workspace;
        if goes && options.paths.is_empty() && options.leave.is_empty() {
            return self.write_files(to, workspace.id, into, progress);
        }
        let _using = self.store.using()?;
        // The writer never finishes: the store keeps nothing of the current state.
        let writer = self.store.writer()?.from_reserve();
        let root = {
            let held = self.hold_recovered(workspace, progress)?;
            let config = self.config_at(Some(&held.root), Broken::PassedOver)?;
            let mut part = place.part(self, &held, config.excludes);
            part.chosen.clone_from(&options.paths);
            part.left.clone_from(&options.leave);
            let target = goes.then(|| self.snapshot_of(&within(to, workspace.id))).transpose()?;
            let tree = target.as_ref().and_then(Snapshot::tree);
            let now = part.scan_before(&writer, tree, progress)?.snapshot;
            match target {
                Some(target) => part.chosen_root(&writer, &now, &target)?,
                None => now.root,
            }
        };
        let times = safepoint_workspace::Times::Recorded;
        Ok(write_tree(&writer, &root, into, times, progress)?)
    }

    /// Builds the result beside the workspace, checks it there, shows what would happen to `agreed`, and does it where that says yes.
    ///
    /// Checks every byte of the checkpoint, its plan, space and obstacles; then runs the user's command in the folder of the result: of
    /// chosen paths and parts, the current state with these restored.
    /// Of several folders it looks at what `here` would be, where that is one of them, and finds all of them beside each other in
    /// `$SAFEPOINT_TARGET`.
    ///
    /// # Errors
    /// When a check of Safepoint itself fails, or as [`CheckpointManager::rollback`]. Nothing has changed then.
    pub fn rollback_staged(
        &self,
        here: &Workspace,
        to: CheckpointId,
        options: &RollbackOptions,
        trial: Trial<'_>,
        progress: &dyn Progress,
    ) -> Result<StagedEnd, Error> {
        let Trial { command, agreed, printed } = trial;
        let mark = self.recovery_mark();
        let checkpoint = self.checkpoints().get(to)?;
        let ground = Ground::new(self, here, &checkpoint, options);
        let options = RollbackOptions { strategy: Some(Strategy::Staged), ..options.clone() };
        let dry = RollbackOptions { dry_run: DryRun::Yes, ..options.clone() };
        // The rollback itself records its own refusals.
        let refused = |error: &Error| self.note_refused_rollback(ground.at, &checkpoint, &options, error);
        let mut look = || {
            let validation = self.upkeep().validate(Some(&checkpoint), Depth::Deep, progress)?;
            if let Some(damaged) = validation.damaged.first() {
                return Err(Error::NotWhole { checkpoint: to, what: damaged.what.clone() });
            }
            let outline = ground.go(to, &dry, progress)?;
            let tried = command
                .map(|command| ground.try_out(&checkpoint, &options, (command, &mut *printed), progress));
            Ok(Staged { outline, check: tried.transpose()? })
        };
        let mut staged = look().inspect_err(refused)?;
        staged.outline.recovered = self.recovered_since(mark);
        let failure = staged.check.as_ref().and_then(|check| check.failure.clone());
        let command = command.unwrap_or_default().to_owned();
        let failed = failure.map(|why| Error::CheckFailed { checkpoint: to, command, why });
        failed.iter().for_each(refused);
        if failed.is_some() || options.dry_run == DryRun::Yes || !agreed(&staged) {
            return Ok(StagedEnd::Left(Box::new(staged)));
        }
        let mut restored = ground.go(to, &options, progress)?;
        restored.recovered = self.recovered_since(mark);
        Ok(StagedEnd::Done(Box::new(restored), Box::new(staged)))
    }

    /// Runs a user's command on a state in a folder.
    pub(crate) fn check_state(
        &self,
        checkpoint: Option<CheckpointId>,
        look: &Look<'_>,
        printed: Printed<'_>,
        progress: &dyn Progress,
    ) -> Result<Verdict, Error> {
        let mut variables = vec![
            process::variable("SAFEPOINT_HOME", self.home()),
            process::variable("SAFEPOINT_TARGET", look.target),
            // A copy of a linked worktree shares its repository: looking at it must not write there (git(1)).
            process::variable("GIT_OPTIONAL_LOCKS", "0"),
        ];
        variables.extend(checkpoint.map(|id| process::variable("SAFEPOINT_CHECKPOINT_ID", id.to_string())));
        let job = Job {
            line: look.command,
            directory: look.directory,
            variables: &variables,
            deadline: None,
            open_files: self.settings.open_files,
            through: look.through,
        };
        let mut log = Log::default();
        let stop = || if progress.interrupted() { Stop::Soon } else { Stop::No };
        let ended = process::run(&job, &stop, &mut |bytes: &[u8]| {
            log.push(bytes);
            printed(bytes);
        });
        match ended {
            Ok(exit) if exit.is_good() => Ok(Verdict::Passed),
            Ok(Exit::Stopped) => Err(WorkspaceError::Interrupted.into()),
            Ok(exit) => Ok(Verdict::Failed(in_words(exit, None, &log))),
            Err(error) => Ok(Verdict::Failed(format!("it cannot be started: {error}"))),
        }
    }
}

/// A user's command, and where it looks.
pub(crate) struct Look<'a> {
    pub(crate) command: &'a str,
    pub(crate) directory: &'a Path,
    /// Folder of the whole state.
    pub(crate) target: &'a Path,
    /// Words of a program that becomes the shell of the command; none to start it directly.
    pub(crate) through: &'a [OsString],
}

/// A name for the folder of a target, as its commands may print it.
pub(crate) fn name_of(workspace: &Workspace) -> &str {
    match workspace.name.as_str() {
        "/" | "" | "." | ".." => "project",
        name => name,
    }
}
