//! STAGED and PROGRESSIVE: a rollback that is tried first, and one that looks for the newest state that is good.

use crate::effects::in_words;
use crate::folders::{is_together, within};
use crate::process::{self, Exit, Job, Log, Stop};
use crate::rollback::{DryRun, RollbackOptions, RolledBack};
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Filter, Workspace};
use safepoint_model::checkpoint::{Checkpoint, PartKind, Scope};
use safepoint_model::rollback::Strategy;
use safepoint_model::{CheckpointId, Progress, WorkspaceId};
use safepoint_store::Depth;
use safepoint_workspace::{WorkspaceError, write_tree};
use std::path::{Path, PathBuf};

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
    pub outline: RolledBack,
    /// What the user's command said, where there was one.
    pub check: Option<Check>,
}

/// How a staged rollback ended.
#[derive(Debug)]
pub enum StagedEnd {
    /// It was done.
    Done(Box<RolledBack>, Box<Staged>),
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
    pub restored: Option<RolledBack>,
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

/// Where a rollback takes place.
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

    /// Writes the target into a folder where nothing is. Gives the folder for the user's command.
    fn write_out(&self, to: &Checkpoint, into: &Path, progress: &dyn Progress) -> Result<PathBuf, Error> {
        if let Some(here) = self.at {
            let place = into.join(name_of(here));
            self.manager.write_files(to, here.id, &place, progress)?;
            return Ok(place);
        }
        let mut directory = into.to_owned();
        for part in to.parts.iter().filter(|part| part.kind == PartKind::Files) {
            // What came by an import and is of another place does not go back.
            let Ok(id) = part.key.parse() else { continue };
            let workspace = self.manager.workspace(id)?;
            let mut place = into.join(name_of(&workspace));
            if place.exists() {
                place = into.join(format!("{}-{}", name_of(&workspace), workspace.id));
            }
            self.manager.write_files(to, workspace.id, &place, progress)?;
            if workspace.id == self.here.id {
                directory = place;
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

    /// Builds the target beside the workspace, checks it there, shows what would happen to `agreed`, and does it where that says yes.
    ///
    /// What is checked: every byte of the checkpoint, its plan, space and obstacles; then the user's command, in the folder of the target.
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
        let checkpoint = self.checkpoint(to)?;
        let ground = Ground::new(self, here, &checkpoint, options);
        let options = RollbackOptions { strategy: Some(Strategy::Staged), ..options.clone() };
        let dry = RollbackOptions { dry_run: DryRun::Yes, ..options.clone() };
        let validation = self.validate(Some(&checkpoint), Depth::Deep, progress)?;
        if let Some(damaged) = validation.damaged.first() {
            return Err(Error::NotWhole { checkpoint: to, what: damaged.what.clone() });
        }
        let outline = ground.go(to, &dry, progress)?;
        let check = match command {
            None => None,
            Some(command) => {
                let scratch = self
                    .home
                    .make_scratch(&CheckpointId::from_bits(self.environment.new_id()).to_string())
                    .map_err(|source| Error::Home { path: self.home().to_owned(), source })?;
                let directory = ground.write_out(&checkpoint, scratch.path(), progress)?;
                let place = Look { directory: &directory, target: scratch.path(), command };
                Some(self.check_state(&checkpoint, &place, printed, progress)?)
            }
        };
        let staged = Staged { outline, check };
        let passed = staged.check.as_ref().is_none_or(Check::is_passed);
        if !passed || options.dry_run == DryRun::Yes || !agreed(&staged) {
            return Ok(StagedEnd::Left(Box::new(staged)));
        }
        let restored = ground.go(to, &options, progress)?;
        Ok(StagedEnd::Done(Box::new(restored), Box::new(staged)))
    }

    /// Goes back until the user's command passes in `here`. Each stop is a rollback like any other; where none passes, everything is as it
    /// was. Where it begins with a checkpoint of several folders, it goes over those of the same scope and of the same agents.
    ///
    /// # Errors
    /// As [`CheckpointManager::rollback`]; also then everything is as it was, unless the error says otherwise.
    pub fn rollback_until(
        &self,
        here: &Workspace,
        until: &Until,
        options: &RollbackOptions,
        printed: Printed<'_>,
        progress: &dyn Progress,
    ) -> Result<Progressed, Error> {
        let candidates = self.candidates(here, until.from)?;
        let many = candidates.first().is_some_and(is_together);
        let ground = Ground { manager: self, here, at: (!many).then_some(here) };
        let mut walk = Walk {
            manager: self,
            ground: &ground,
            command: &until.command,
            options: RollbackOptions { strategy: Some(Strategy::Progressive), ..options.clone() },
            tried: Vec::new(),
            began_at: None,
            progress,
        };
        let found = match until.search {
            Search::Stepwise => walk.stepwise(&candidates, printed),
            Search::Bisect => walk.bisect(&candidates, printed),
        };
        let restored = match found {
            Ok(Some(restored)) => Some(restored),
            Ok(None) => {
                walk.return_to_begin()?;
                None
            }
            Err(error) => {
                walk.return_to_begin()?;
                return Err(error);
            }
        };
        Ok(Progressed { restored, tried: walk.tried, began_at: walk.began_at })
    }

    /// The checkpoints that a search goes over, newest first.
    fn candidates(&self, here: &Workspace, from: Option<CheckpointId>) -> Result<Vec<Checkpoint>, Error> {
        let first = from.map(|id| self.catalog.checkpoint(id)).transpose()?.flatten();
        let mut candidates = match first.as_ref().filter(|first| is_together(first)) {
            None => self.list(&Filter { workspace: Some(here.id), ..Filter::default() })?,
            Some(first) => {
                let mut all = self.list(&Filter { scope: Some(first.scope), ..Filter::default() })?;
                let agents = |checkpoint: &Checkpoint| -> Vec<String> {
                    let agents = checkpoint.parts.iter().filter(|part| part.kind == PartKind::Agent);
                    agents.map(|part| part.key.clone()).collect()
                };
                let alike = |it: &Checkpoint| first.scope == Scope::Framework || agents(it) == agents(first);
                all.retain(|it| is_together(it) && alike(it));
                all
            }
        };
        if let Some(from) = from {
            let at = candidates.iter().position(|it| it.id == from);
            candidates.drain(..at.ok_or(Error::OtherWorkspace { checkpoint: from })?);
        }
        Ok(candidates)
    }

    /// What a user's command says about a state in a folder.
    fn check_state(
        &self,
        checkpoint: &Checkpoint,
        look: &Look<'_>,
        printed: Printed<'_>,
        progress: &dyn Progress,
    ) -> Result<Check, Error> {
        let variables = [
            process::variable("SAFEPOINT_CHECKPOINT_ID", checkpoint.id.to_string()),
            process::variable("SAFEPOINT_HOME", self.home()),
            process::variable("SAFEPOINT_TARGET", look.target),
        ];
        let job = Job {
            line: look.command,
            directory: look.directory,
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

/// A user's command, and where it looks.
struct Look<'a> {
    command: &'a str,
    directory: &'a Path,
    /// Where all of the state lies.
    target: &'a Path,
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
    ground: &'w Ground<'w>,
    command: &'w str,
    options: RollbackOptions,
    tried: Vec<Check>,
    /// What was there before the first stop.
    began_at: Option<CheckpointId>,
    progress: &'w dyn Progress,
}

impl Walk<'_> {
    /// Goes to a state and asks. Gives the rollback, and whether the state is good.
    fn stop_at(&mut self, to: &Checkpoint, printed: Printed<'_>) -> Result<(RolledBack, bool), Error> {
        let restored = self.go(to)?;
        let directory = self.ground.here.root_path();
        let look = Look { command: self.command, directory, target: directory };
        let check = self.manager.check_state(to, &look, printed, self.progress)?;
        let passed = check.is_passed();
        self.tried.push(check);
        Ok((restored, passed))
    }

    fn go(&mut self, to: &Checkpoint) -> Result<RolledBack, Error> {
        let restored = self.ground.go(to.id, &self.options, self.progress)?;
        self.began_at = self.began_at.or(restored.safety_checkpoint);
        Ok(restored)
    }

    fn stepwise(&mut self, all: &[Checkpoint], printed: Printed<'_>) -> Result<Option<RolledBack>, Error> {
        for checkpoint in all {
            let (restored, passed) = self.stop_at(checkpoint, printed)?;
            if passed {
                return Ok(Some(restored));
            }
        }
        Ok(None)
    }

    /// The newest good one lies before the first that is known to be good, and behind the last that is known not to be.
    fn bisect(&mut self, all: &[Checkpoint], printed: Printed<'_>) -> Result<Option<RolledBack>, Error> {
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
        self.ground.go(began_at, &self.options, &crate::Silent).map(drop)
    }
}
