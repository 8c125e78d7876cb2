//! STAGED and PROGRESSIVE: a rollback that is tried first, and one that looks for the newest state that is good.

use crate::create::files_part;
use crate::effects::in_words;
use crate::process::{self, Exit, Job, Log, Stop};
use crate::restore::{DryRun, RestoreOptions, Restored};
use crate::{CheckpointManager, Error, parts};
use safepoint_catalog::{Filter, Workspace};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::rollback::Strategy;
use safepoint_model::{CheckpointId, Progress};
use safepoint_store::Depth;
use safepoint_workspace::{WorkspaceError, write_tree};
use std::path::Path;

/// What a user's command said about a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The checkpoint whose state it was.
    pub checkpoint: CheckpointId,
    /// How it failed; nothing where it passed.
    pub failure: Option<String>,
}

impl Check {
    /// Whether it passed.
    pub fn is_passed(&self) -> bool {
        self.failure.is_none()
    }
}

/// A rollback that was tried beside the workspace and is about to be done.
#[derive(Debug, Clone)]
pub struct Staged {
    /// What it would do.
    pub outline: Restored,
    /// What the user's command said, where there was one.
    pub check: Option<Check>,
}

/// How a staged rollback ended.
#[derive(Debug)]
pub enum StagedEnd {
    /// It was done.
    Done(Box<Restored>, Box<Staged>),
    /// The user's command did not pass, or somebody did not want it: nothing has changed.
    Left(Box<Staged>),
}

/// How a progressive rollback looks for the newest good state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Search {
    /// One step back at a time.
    #[default]
    Stepwise,
    /// By halves: where one is good, all before it are taken to be.
    Bisect,
}

/// How a progressive rollback ended.
#[derive(Debug)]
pub struct Progressed {
    /// The rollback to the newest good state; nothing where none was, and everything is as it was.
    pub restored: Option<Restored>,
    /// What was tried, in order.
    pub tried: Vec<Check>,
    /// What was there before.
    pub began_at: Option<CheckpointId>,
}

/// Somebody who sees what a check prints.
pub type Printed<'a> = &'a mut dyn FnMut(&[u8]);

/// What a staged rollback has to pass before it is done.
pub struct Trial<'a> {
    /// The user's command, in the folder of the target.
    pub command: Option<&'a str>,
    /// Whoever sees what would happen and says whether it is to.
    pub agreed: &'a mut dyn FnMut(&Staged) -> bool,
    /// Whoever sees what the command prints.
    pub printed: Printed<'a>,
}

/// What a progressive rollback looks for.
#[derive(Debug, Clone)]
pub struct Until {
    /// The user's command: it passes where the state is good.
    pub command: String,
    /// Where to begin; with the newest checkpoint where nothing is said.
    pub from: Option<CheckpointId>,
    /// How to look.
    pub search: Search,
}

impl CheckpointManager {
    /// Writes what a checkpoint holds of a workspace into a folder where nothing is.
    ///
    /// # Errors
    /// When something is there, the checkpoint holds no files, or something of it is missing or damaged.
    pub fn write_files(
        &self,
        checkpoint: &Checkpoint,
        to: &Path,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let _using = self.store.using()?;
        let part = files_part(checkpoint).ok_or(Error::NoFiles { checkpoint: checkpoint.id })?;
        let snapshot = parts::files::snapshot(&self.store, part.document)?;
        let times = safepoint_workspace::Times::Recorded;
        Ok(write_tree(&self.store, &snapshot.root, to, times, progress)?)
    }

    /// Builds the target beside the workspace, checks it there, shows what would happen to `agreed`, and does it where that says yes.
    ///
    /// What is checked: every byte of the checkpoint, its plan, space and obstacles; then the user's command, in the folder of the target.
    ///
    /// # Errors
    /// When a check of Safepoint itself fails, or as [`CheckpointManager::restore`]. Nothing has changed then.
    pub fn restore_staged(
        &self,
        workspace: &Workspace,
        to: CheckpointId,
        options: &RestoreOptions,
        trial: Trial<'_>,
        progress: &dyn Progress,
    ) -> Result<StagedEnd, Error> {
        let Trial { command, agreed, printed } = trial;
        let checkpoint = self.checkpoint(to)?;
        let options = RestoreOptions { strategy: Some(Strategy::Staged), ..options.clone() };
        let dry = RestoreOptions { dry_run: DryRun::Yes, ..options.clone() };
        let validation = self.validate(Some(&checkpoint), Depth::Deep, progress)?;
        if let Some(damaged) = validation.damaged.first() {
            return Err(Error::NotWhole { checkpoint: to, what: damaged.what.clone() });
        }
        let outline = self.restore(workspace, to, &dry, progress)?;
        let check = match command {
            None => None,
            Some(command) => {
                let scratch = self
                    .home
                    .make_scratch(&CheckpointId::from_bits(self.environment.new_id()).to_string())
                    .map_err(|source| Error::Home { path: self.home().to_owned(), source })?;
                let place = scratch.path().join(name_of(workspace));
                self.write_files(&checkpoint, &place, progress)?;
                Some(self.check_state(&checkpoint, &place, command, printed, progress)?)
            }
        };
        let staged = Staged { outline, check };
        let passed = staged.check.as_ref().is_none_or(Check::is_passed);
        if !passed || options.dry_run == DryRun::Yes || !agreed(&staged) {
            return Ok(StagedEnd::Left(Box::new(staged)));
        }
        let restored = self.restore(workspace, to, &options, progress)?;
        Ok(StagedEnd::Done(Box::new(restored), Box::new(staged)))
    }

    /// Goes back until the user's command passes. Each stop is a rollback like any other; where none passes, everything is as it was.
    ///
    /// # Errors
    /// As [`CheckpointManager::restore`]; also then everything is as it was, unless the error says otherwise.
    pub fn restore_until(
        &self,
        workspace: &Workspace,
        until: &Until,
        options: &RestoreOptions,
        printed: Printed<'_>,
        progress: &dyn Progress,
    ) -> Result<Progressed, Error> {
        let filter = Filter { workspace: Some(workspace.id), ..Filter::default() };
        let mut candidates = self.list(&filter)?;
        if let Some(from) = until.from {
            let at = candidates.iter().position(|it| it.id == from);
            candidates.drain(..at.ok_or(Error::OtherWorkspace { checkpoint: from })?);
        }
        let mut walk = Walk {
            manager: self,
            workspace,
            command: &until.command,
            options: RestoreOptions { strategy: Some(Strategy::Progressive), ..options.clone() },
            tried: Vec::new(),
            began_at: None,
            progress,
        };
        let found = match until.search {
            Search::Stepwise => walk.stepwise(&candidates, printed),
            Search::Bisect => walk.bisect(&candidates, printed),
        };
        match found {
            Ok(Some(restored)) => {
                Ok(Progressed { restored: Some(restored), tried: walk.tried, began_at: walk.began_at })
            }
            Ok(None) => {
                walk.return_to_begin()?;
                Ok(Progressed { restored: None, tried: walk.tried, began_at: walk.began_at })
            }
            Err(error) => {
                walk.return_to_begin()?;
                Err(error)
            }
        }
    }

    /// What a user's command says about a state in a folder.
    fn check_state(
        &self,
        checkpoint: &Checkpoint,
        place: &Path,
        command: &str,
        printed: Printed<'_>,
        progress: &dyn Progress,
    ) -> Result<Check, Error> {
        let variables = [
            process::variable("SAFEPOINT_CHECKPOINT_ID", checkpoint.id.to_string()),
            process::variable("SAFEPOINT_HOME", self.home()),
        ];
        let job = Job {
            line: command,
            directory: place,
            variables: &variables,
            deadline: None,
            open_files: self.settings.open_files,
        };
        let mut log = Log::default();
        let stop = || if progress.interrupted() { Stop::Soon } else { Stop::No };
        let ended = process::run(&job, &stop, &mut |bytes: &[u8]| {
            log.push(bytes);
            printed(bytes);
        });
        let failure = match ended {
            Ok(exit) if exit.is_good() => None,
            Ok(Exit::Stopped) => return Err(WorkspaceError::Interrupted.into()),
            Ok(exit) => Some(in_words(exit, None, &log)),
            Err(error) => Some(format!("it cannot be started: {error}")),
        };
        Ok(Check { checkpoint: checkpoint.id, failure })
    }
}

/// A name for the folder of a target, as its commands may print it.
fn name_of(workspace: &Workspace) -> &str {
    match workspace.name.as_str() {
        "/" | "" | "." | ".." => "project",
        name => name,
    }
}

/// The way back, stop by stop.
struct Walk<'w> {
    manager: &'w CheckpointManager,
    workspace: &'w Workspace,
    command: &'w str,
    options: RestoreOptions,
    tried: Vec<Check>,
    /// What was there before the first stop.
    began_at: Option<CheckpointId>,
    progress: &'w dyn Progress,
}

impl Walk<'_> {
    /// Goes to a state and asks. Gives the rollback, and whether the state is good.
    fn stop_at(&mut self, checkpoint: &Checkpoint, printed: Printed<'_>) -> Result<(Restored, bool), Error> {
        let restored = self.go(checkpoint)?;
        let place = self.workspace.root_path();
        let check = self.manager.check_state(checkpoint, place, self.command, printed, self.progress)?;
        let passed = check.is_passed();
        self.tried.push(check);
        Ok((restored, passed))
    }

    fn go(&mut self, checkpoint: &Checkpoint) -> Result<Restored, Error> {
        let restored = self.manager.restore(self.workspace, checkpoint.id, &self.options, self.progress)?;
        self.began_at = self.began_at.or(restored.rollback.safety_checkpoint);
        Ok(restored)
    }

    fn stepwise(&mut self, all: &[Checkpoint], printed: Printed<'_>) -> Result<Option<Restored>, Error> {
        for checkpoint in all {
            let (restored, passed) = self.stop_at(checkpoint, printed)?;
            if passed {
                return Ok(Some(restored));
            }
        }
        Ok(None)
    }

    /// The newest good one lies before the first that is known to be good, and behind the last that is known not to be.
    fn bisect(&mut self, all: &[Checkpoint], printed: Printed<'_>) -> Result<Option<Restored>, Error> {
        let Some(oldest) = all.len().checked_sub(1) else { return Ok(None) };
        let (mut restored, passed) = self.stop_at(&all[oldest], printed)?;
        if !passed {
            return Ok(None);
        }
        let (mut bad, mut good, mut here) = (0, oldest, oldest);
        while bad < good {
            let middle = bad + (good - bad) / 2;
            let (stop, passed) = self.stop_at(&all[middle], printed)?;
            (restored, here) = (stop, middle);
            if passed {
                good = middle;
            } else {
                bad = middle + 1;
            }
        }
        if here != good {
            restored = self.go(&all[good])?;
        }
        Ok(Some(restored))
    }

    /// Everything as it was before the first stop.
    fn return_to_begin(&self) -> Result<(), Error> {
        let Some(began_at) = self.began_at else { return Ok(()) };
        let silent = crate::Silent;
        self.manager.restore(self.workspace, began_at, &self.options, &silent).map(drop)
    }
}
