//! SEARCH: looks for the newest checkpoint in which the user's command passes, and rolls back to it.
//!
//! Comes in: candidates, newest first, and a command. Goes out: one real rollback, or none. Candidates are tried in an overlay over the
//! folder (`overlay.rs`), in copies of the folders (`copies.rs`), or in the folders themselves (`in_place.rs`). A probe runs no undo command, leaves no record and counts as nothing.

mod copies;
mod in_place;
mod overlay;

use crate::folders::is_together;
use crate::places::Place;
use crate::rollback::recover::Recovery;
use crate::rollback::strategy::{Check, Look, Printed, Verdict};
use crate::rollback::{RollbackOptions, RolledBack};
use crate::{CheckpointManager, Error, Failure, FailureKind};
use copies::Copies;
use in_place::InPlace;
use overlay::Overlay;
use safepoint_catalog::{Filter, RoleFilter, Workspace};
use safepoint_model::agent::{Agent, AgentRecord};
use safepoint_model::checkpoint::{Checkpoint, PartKind, Role, Scope};
use safepoint_model::coverage::Skipped;
use safepoint_model::rollback::Strategy;
use safepoint_model::{CheckpointId, Progress, WorkspaceId};
use safepoint_workspace::WorkspaceError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Order in which candidates are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Search {
    /// One checkpoint back at a time.
    #[default]
    Stepwise,
    /// Binary search: checkpoints older than one that passes are assumed to pass.
    Bisect,
}

/// Place in which candidates are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TryIn {
    /// An overlay at the path of the workspace, where the machine allows one; else a copy. The workspace is untouched until the answer is
    /// known.
    #[default]
    Overlay,
    /// A copy of the workspace, with ignored files and `.git`. The workspace is untouched until the answer is known.
    Copy,
    /// The workspace itself, for commands that need its path. It is restored after each candidate.
    Workspace,
}

/// Search criteria.
#[derive(Debug, Clone)]
pub struct Until {
    /// Shell command that passes where the state is good.
    pub command: String,
    /// First candidate. Without one the search tries the current state and then begins with the newest checkpoint.
    pub from: Option<CheckpointId>,
    /// Order in which candidates are tried.
    pub search: Search,
    /// Place in which they are tried.
    pub place: TryIn,
    /// Only checkpoints of this plan are candidates.
    pub plan: Option<String>,
}

/// Result of a search.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Progressed {
    /// The rollback to the newest candidate that passes; for a dry run, its preview. Nothing where none passes, or the current state does.
    pub restored: Option<RolledBack>,
    /// Result of the command in the current state; nothing where the search began at a named checkpoint.
    pub current: Option<Verdict>,
    /// Candidates in the order in which they were tried.
    pub tried: Vec<Check>,
    /// Place in which they were tried.
    pub tried_in: TryIn,
    /// Paths that the overlay or the copy lacks, such as sockets and mounts, by folder.
    pub left_out: Vec<(PathBuf, Skipped)>,
    /// In place: the check changed captured files of the workspace, and a separate rollback put them back.
    pub check_changed_files: bool,
    /// Crash recovery that ran before.
    pub recovered: Recovery,
}

/// One result of a search, as soon as it is known.
#[derive(Debug, Clone, Copy)]
pub enum Probed<'a> {
    /// The current state.
    Current(&'a Verdict),
    /// A candidate.
    Candidate(&'a Check),
}

/// Callbacks of a search.
pub struct SearchWatch<'a> {
    /// Gets what the command prints.
    pub printed: Printed<'a>,
    /// Gets each result.
    pub probed: &'a mut dyn FnMut(Probed<'_>),
}

/// Place in which the user's command runs.
struct Seat<'a> {
    directory: &'a Path,
    /// Folder that holds the whole state.
    target: &'a Path,
    /// Words of a program that becomes the shell of the command; none to start it directly.
    through: &'a [OsString],
}

/// Runs the user's command in a place.
type RunCheck<'a> = &'a mut dyn FnMut(&Seat<'_>) -> Result<Verdict, Error>;

/// Place in which states are tried.
trait Stand {
    /// Runs the check in the current state.
    fn current(&mut self, check: RunCheck<'_>, progress: &dyn Progress) -> Result<Verdict, Error>;

    /// Runs the check in the state of a candidate.
    fn candidate(
        &mut self,
        to: &Checkpoint,
        check: RunCheck<'_>,
        progress: &dyn Progress,
    ) -> Result<Verdict, Error>;

    /// The kind of place that this is.
    fn place(&self) -> TryIn;

    /// Paths that are missing where the check runs.
    fn left_out(&self) -> Vec<(PathBuf, Skipped)> {
        Vec::new()
    }

    /// Leaves the folders as they were before the search. Says whether a check had changed captured files of them.
    fn finish(self: Box<Self>) -> Result<bool, Error>;
}

impl CheckpointManager {
    /// Rolls back to the newest checkpoint in which the user's command passes in `here`. One rollback, one record; where none passes nothing
    /// changes. Where it begins with a checkpoint of several folders, it tries those of the same scope and of the same agents.
    ///
    /// # Errors
    /// [`Error::NoRoomToTry`] when there is too little space for a copy; or as [`CheckpointManager::rollback`]. Nothing has changed then,
    /// unless the error says otherwise.
    pub fn rollback_until(
        &self,
        here: &Workspace,
        until: &Until,
        options: &RollbackOptions,
        watch: &mut SearchWatch<'_>,
        progress: &dyn Progress,
    ) -> Result<Progressed, Error> {
        let mark = self.recovery_mark();
        if let Some(room) = self.room_of_plan(here)? {
            return Err(Error::SearchInOverlay { name: room.attempt.name });
        }
        let candidates = self.candidates(here, until)?;
        let options = RollbackOptions { strategy: Some(Strategy::Progressive), ..options.clone() };
        // Without candidates only the current state is tried.
        let first = candidates.first();
        let at = first.is_none_or(|first| !is_together(first)).then_some(here);
        // Probes count nowhere. A search that ends without a rollback is one refused attempt, at its first candidate.
        let refused = |error: &Error| {
            first.iter().for_each(|first| self.note_refused_rollback(at, first, &options, error));
        };
        let (mut result, found) =
            self.search(here, &candidates, (until, &options), watch, progress).inspect_err(refused)?;
        match found {
            // A failure of this one is on record already.
            Some(to) => result.restored = Some(self.rollback(at, to, &options, progress)?),
            None if result.current.as_ref().is_some_and(Verdict::is_passed) => {}
            None => refused(&Error::NonePassed { tried: result.tried.len() }),
        }
        result.recovered = self.recovered_since(mark);
        Ok(result)
    }

    /// Tries the candidates. Gives what was tried, and the newest in which the command passes.
    fn search(
        &self,
        here: &Workspace,
        candidates: &[Checkpoint],
        (until, options): (&Until, &RollbackOptions),
        watch: &mut SearchWatch<'_>,
        progress: &dyn Progress,
    ) -> Result<(Progressed, Option<CheckpointId>), Error> {
        let mut result = Progressed::default();
        let at = candidates.first().is_none_or(|first| !is_together(first)).then_some(here);
        let scope = self.scope_of(here, at, candidates)?;
        let overlay = match until.place {
            TryIn::Overlay => Overlay::make(self, &scope, options, progress)?,
            TryIn::Copy | TryIn::Workspace => None,
        };
        let stand: Box<dyn Stand + '_> = match (overlay, until.place) {
            (Some(overlay), _) => Box::new(overlay),
            (None, TryIn::Workspace) => Box::new(InPlace::begin(self, scope, options, progress)?),
            (None, TryIn::Overlay | TryIn::Copy) => Box::new(Copies::make(self, scope, options, progress)?),
        };
        result.tried_in = stand.place();
        result.left_out = stand.left_out();
        let mut walk = Walk { manager: self, stand, until, tried: Vec::new(), watch, progress };
        let found = walk.find(candidates, &mut result.current);
        result.tried = walk.tried;
        // The folders are as they were, and the space of copies is free again, before anything else happens.
        result.check_changed_files = walk.stand.finish()?;
        Ok((result, found?))
    }

    /// The checkpoints that a search goes over, newest first.
    fn candidates(&self, here: &Workspace, until: &Until) -> Result<Vec<Checkpoint>, Error> {
        let from = until.from;
        let first = from.map(|id| self.catalog.checkpoint(id)).transpose()?.flatten();
        if let Some(Checkpoint { id, role: Some(Role::Rescue), .. }) = first {
            return Err(Error::OnlyRescued { checkpoint: id });
        }
        // The first may be one that Safepoint took for itself; the others are not.
        let role = if first.is_some() { RoleFilter::Any } else { RoleFilter::Asked };
        let mut candidates = match first.as_ref().filter(|first| is_together(first)) {
            None => {
                let plan_id = until.plan.clone();
                let workspace = Some(here.id);
                self.checkpoints().list(&Filter { workspace, plan_id, role, ..Filter::default() })?
            }
            Some(first) => {
                let scope = Some(first.scope);
                let mut all = self.checkpoints().list(&Filter { scope, role, ..Filter::default() })?;
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
            candidates.retain(|it| it.id == from || it.role.is_none());
        }
        Ok(candidates)
    }

    /// The folders that a search over these checkpoints is about, in the order of their ids: the one, or all that they hold files of.
    fn scope_of(
        &self,
        here: &Workspace,
        at: Option<&Workspace>,
        checkpoints: &[Checkpoint],
    ) -> Result<Scoped, Error> {
        if let Some(at) = at {
            let place = Place { workspace: at.clone(), only: None, leave: Vec::new() };
            let (here, agents) = (here.clone(), Vec::new());
            return Ok(Scoped { here, at: Some(at.id), scope: Scope::Project, places: vec![place], agents });
        }
        let _using = self.store.using()?;
        let (mut agents, mut ids): (Vec<AgentRecord>, Vec<WorkspaceId>) = (Vec::new(), Vec::new());
        for checkpoint in checkpoints {
            for part in &checkpoint.parts {
                match part.kind {
                    // A part that was imported from another machine has no folder here.
                    PartKind::Files => ids.extend(part.key.parse::<WorkspaceId>()),
                    // One that is damaged is reported when its checkpoint is tried.
                    PartKind::Agent => agents.extend(Agent::load(&self.store, part.document).map(|agent| {
                        let (created_at, updated_at) = (checkpoint.created_at, checkpoint.created_at);
                        AgentRecord { agent, created_at, updated_at, workspace_id: checkpoint.workspace_id }
                    })),
                    _ => {}
                }
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let workspaces: Vec<Workspace> =
            ids.into_iter().map(|id| self.workspaces().get(id)).collect::<Result<_, _>>()?;
        let there: Vec<&Workspace> =
            workspaces.iter().filter(|workspace| workspace.root_path().is_dir()).collect();
        let roots: Vec<PathBuf> = there.iter().map(|workspace| workspace.root_path().to_owned()).collect();
        let places = there.iter().map(|workspace| self.place_for(workspace.id, &agents, &roots));
        let places = places.collect::<Result<_, _>>()?;
        let agents = agents.into_iter().map(|record| record.agent).collect();
        let scope = checkpoints.first().map_or(Scope::Framework, |first| first.scope);
        Ok(Scoped { here: here.clone(), at: None, scope, places, agents })
    }
}

/// The folders that a search is about.
struct Scoped {
    /// The workspace in whose folder the check runs, if it is one of them.
    here: Workspace,
    /// The one that it is about; nothing where candidates hold several folders.
    at: Option<WorkspaceId>,
    /// Scope of the candidates.
    scope: Scope,
    places: Vec<Place>,
    /// Agents of the candidates, as they were.
    agents: Vec<Agent>,
}

/// A search under way.
struct Walk<'w, 'p> {
    manager: &'w CheckpointManager,
    stand: Box<dyn Stand + 'w>,
    until: &'w Until,
    tried: Vec<Check>,
    watch: &'w mut SearchWatch<'p>,
    progress: &'w dyn Progress,
}

impl Walk<'_, '_> {
    /// The newest candidate that passes.
    fn find(
        &mut self,
        candidates: &[Checkpoint],
        current: &mut Option<Verdict>,
    ) -> Result<Option<CheckpointId>, Error> {
        if self.until.from.is_none() {
            let verdict = current.insert(self.run(None)?);
            (self.watch.probed)(Probed::Current(verdict));
            if verdict.is_passed() {
                return Ok(None);
            }
        }
        match self.until.search {
            Search::Stepwise => self.stepwise(candidates),
            Search::Bisect => self.bisect(candidates),
        }
    }

    fn run(&mut self, to: Option<&Checkpoint>) -> Result<Verdict, Error> {
        let Self { manager, stand, until, watch, progress, .. } = self;
        let mut check = |seat: &Seat<'_>| {
            let Seat { directory, target, through } = *seat;
            let look = Look { command: &until.command, directory, target, through };
            manager.check_state(to.map(|to| to.id), &look, watch.printed, *progress)
        };
        match to {
            None => stand.current(&mut check, *progress),
            Some(to) => stand.candidate(to, &mut check, *progress),
        }
    }

    /// Tries a candidate. Nothing where it cannot be tried.
    fn passes(&mut self, to: &Checkpoint) -> Result<Option<bool>, Error> {
        let check = match self.run(Some(to)) {
            Ok(verdict) => Check { checkpoint: to.id, failure: verdict.into_failure(), skipped: false },
            Err(error) if is_about_candidate(&error) => {
                Check { checkpoint: to.id, failure: Some(told(&error)), skipped: true }
            }
            Err(error) => return Err(error),
        };
        (self.watch.probed)(Probed::Candidate(&check));
        let passes = (!check.skipped).then_some(check.failure.is_none());
        self.tried.push(check);
        Ok(passes)
    }

    fn stepwise(&mut self, candidates: &[Checkpoint]) -> Result<Option<CheckpointId>, Error> {
        for candidate in candidates {
            if self.passes(candidate)? == Some(true) {
                return Ok(Some(candidate.id));
            }
        }
        Ok(None)
    }

    /// The newest that passes is older than the last that is known to fail, and not older than the first that is known to pass.
    fn bisect(&mut self, candidates: &[Checkpoint]) -> Result<Option<CheckpointId>, Error> {
        let mut left: Vec<&Checkpoint> = candidates.iter().collect();
        let mut good = loop {
            let Some(oldest) = left.last() else { return Ok(None) };
            match self.passes(oldest)? {
                Some(true) => break left.len() - 1,
                Some(false) => return Ok(None),
                None => left.pop(),
            };
        };
        let mut bad = 0;
        while bad < good {
            let middle = bad + (good - bad) / 2;
            match self.passes(left[middle])? {
                Some(true) => good = middle,
                Some(false) => bad = middle + 1,
                None => {
                    left.remove(middle);
                    good -= 1;
                }
            }
        }
        Ok(Some(left[good].id))
    }
}

/// True if an error concerns one candidate, and not the search.
fn is_about_candidate(error: &Error) -> bool {
    match error {
        Error::Workspace(WorkspaceError::Obstructed(_)) | Error::NoFiles { .. } | Error::Elsewhere { .. } => {
            true
        }
        Error::RolledBackHalfway { source, .. } => is_about_candidate(source),
        Error::Unfinished { .. } => false,
        _ => Failure::from(error).kind == FailureKind::Damaged,
    }
}

/// An error in one line.
fn told(error: &Error) -> String {
    let Failure { message, causes, .. } = Failure::from(error);
    std::iter::once(message).chain(causes).collect::<Vec<_>>().join(": ")
}
