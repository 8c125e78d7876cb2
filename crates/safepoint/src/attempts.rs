//! Attempts: work on a project in a room of its own, with a line of checkpoints of its own; kept whole, or dropped.
//!
//! The page `docs/decisions/0024-attempts.md` has the order of the effects. In: a project, and what to do. Out: records,
//! and a command to start; the caller runs it and waits for it.

pub(crate) mod capture;
pub(crate) mod counts;
pub(crate) mod keep;
mod merge;
pub(crate) mod rooms;
pub(crate) mod start;

use crate::checkpoint::lines::ChangedLines;
use crate::handles::{Attempts, Workspaces};
use crate::{Against, CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::attempt::{Attempt, AttemptKind, AttemptState, check_metric};
use safepoint_model::checkpoint::{Checkpoint, Totals};
use safepoint_model::{CheckpointId, Progress, RelPath, WorkspaceId};
use safepoint_workspace::{RoomFolder, RoomMount, RoomProcess, room_processes};
use std::ffi::OsStr;
use std::path::Path;

/// Attempt with what is known of it now.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AttemptShown {
    /// Its record.
    pub attempt: Attempt,
    /// Newest checkpoint of what it made.
    pub result: Option<Checkpoint>,
    /// Differences between its base and that checkpoint.
    pub changes: Totals,
    /// Disk space of its layer, in bytes.
    pub layer_bytes: u64,
    /// Processes in its room.
    pub processes: Vec<RoomProcess>,
}

/// Order of the values of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Better {
    /// The highest value is the best.
    #[default]
    Higher,
    /// The lowest value is the best.
    Lower,
}

impl AttemptShown {
    /// Returns true if the command and the check of the attempt were successful.
    pub fn passes(&self) -> bool {
        self.attempt.run.exit_status == Some(0) && self.attempt.run.verified != Some(false)
    }

    /// Returns the attempt with the best value of a metric; of equal ones the first. One that does not pass is never the best.
    pub fn best<'s>(shown: &'s [Self], metric: &str, better: Better) -> Option<&'s Self> {
        let value = |shown: &Self| shown.result.as_ref()?.metrics.get(metric).copied();
        let rated =
            shown.iter().filter(|shown| shown.passes()).filter_map(|shown| Some((shown, value(shown)?)));
        let best = rated.reduce(|best, next| {
            let is_better = match better {
                Better::Higher => next.1 > best.1,
                Better::Lower => next.1 < best.1,
            };
            if is_better { next } else { best }
        });
        best.map(|(shown, _)| shown)
    }
}

/// Attempt that this process is in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InAttempt {
    /// Its record.
    pub attempt: Attempt,
    /// Path of the project, where its overlay is mounted.
    pub project: std::path::PathBuf,
}

impl CheckpointManager {
    /// Returns the places of an attempt's room.
    pub(crate) fn room_of(&self, attempt: &Attempt, project: &Workspace) -> RoomFolder {
        let name = project.root_path().file_name().unwrap_or(OsStr::new(""));
        RoomFolder::new(&attempt.room, name)
    }

    /// Refuses a command about the project from inside an attempt.
    pub(crate) fn refuse_inside(&self) -> Result<(), Error> {
        match self.inside.last() {
            None => Ok(()),
            Some(RoomMount { attempt, .. }) => {
                let known = attempt.parse().ok().map(|id| self.catalog.attempt(id)).transpose()?.flatten();
                let name = known.map_or_else(|| attempt.clone(), |attempt| attempt.name);
                Err(Error::InsideAttempt { name })
            }
        }
    }
}

impl Attempts<'_> {
    /// Returns the attempt of a project with this name, or number. An open one comes before those that are closed.
    ///
    /// # Errors
    /// [`Error::NoAttempt`], or when the catalog cannot be read.
    pub fn find(&self, project: &Workspace, name: &str) -> Result<Attempt, Error> {
        let all = self.manager.catalog.attempts(project.id)?;
        let is_it = |attempt: &&Attempt| attempt.name == name || attempt.number.to_string() == name;
        let open = all.iter().find(|attempt| attempt.state == AttemptState::Open && is_it(attempt));
        let found = open.or_else(|| all.iter().rev().find(is_it));
        found.cloned().ok_or_else(|| Error::NoAttempt { name: name.to_owned() })
    }

    /// Returns the attempts of a project, oldest first, each with its result and what is running in it.
    ///
    /// # Errors
    /// When the catalog or a checkpoint cannot be read.
    pub fn list(&self, project: &Workspace) -> Result<Vec<AttemptShown>, Error> {
        let all = self.manager.catalog.attempts(project.id)?;
        let open = |id: &str| {
            all.iter().any(|attempt| attempt.state == AttemptState::Open && attempt.id.to_string() == id)
        };
        let running = match all.iter().any(|attempt| attempt.state == AttemptState::Open) {
            true => room_processes(&open),
            false => Vec::new(),
        };
        all.iter().map(|attempt| self.shown(project, attempt, &running)).collect()
    }

    /// Returns the number of open attempts of a project.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn open_count(&self, project: &Workspace) -> Result<usize, Error> {
        let all = self.manager.catalog.attempts(project.id)?;
        Ok(all.iter().filter(|attempt| attempt.state == AttemptState::Open).count())
    }

    /// Returns one attempt with its result and what is running in it.
    ///
    /// # Errors
    /// When the catalog or a checkpoint cannot be read.
    pub fn show(&self, project: &Workspace, attempt: &Attempt) -> Result<AttemptShown, Error> {
        let id = attempt.id.to_string();
        self.shown(project, attempt, &room_processes(&|other| other == id))
    }

    /// Returns the newest state of an attempt that is on record: its result, or a checkpoint that was taken in it since, such as
    /// those of a plan. `None` if it has only its base.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn newest(&self, attempt: &Attempt) -> Result<Option<Checkpoint>, Error> {
        let catalog = &self.manager.catalog;
        let position = match attempt.state {
            AttemptState::Open => catalog.workspace(attempt.place_id)?.and_then(|place| place.head),
            _ => None,
        };
        let is_base = |id: &CheckpointId| attempt.result.is_none() && *id == attempt.base;
        let newest = position.or(attempt.result).filter(|id| !is_base(id));
        Ok(newest.map(|id| catalog.checkpoint(id)).transpose()?.flatten())
    }

    fn shown(
        &self,
        project: &Workspace,
        attempt: &Attempt,
        running: &[(String, RoomProcess)],
    ) -> Result<AttemptShown, Error> {
        let id = attempt.id.to_string();
        let result = self.newest(attempt)?;
        let changes = match &result {
            Some(result) => self.manager.changes_of(attempt, result)?,
            None => Totals::default(),
        };
        let room = self.manager.room_of(attempt, project);
        Ok(AttemptShown {
            attempt: attempt.clone(),
            changes,
            layer_bytes: if attempt.is_removed { 0 } else { room.layer_bytes() },
            processes: match attempt.kind {
                AttemptKind::Overlay => {
                    let own = running.iter().filter(|(of, _)| *of == id);
                    own.map(|(_, process)| process.clone()).collect()
                }
                _ if attempt.state == AttemptState::Open => rooms::processes_of(attempt),
                _ => Vec::new(),
            },
            result,
        })
    }

    /// Counts the lines that an attempt added and removed. `None` without a result.
    ///
    /// # Errors
    /// When the catalog or a checkpoint cannot be read.
    pub fn lines(
        &self,
        shown: &AttemptShown,
        progress: &dyn Progress,
    ) -> Result<Option<ChangedLines>, Error> {
        let Some(result) = &shown.result else { return Ok(None) };
        let place = self.manager.workspaces().get(shown.attempt.place_id)?;
        let base = self.manager.checkpoints().get(shown.attempt.base)?;
        let against = Against::Checkpoint(Box::new(result.clone()));
        self.manager.diff(&place, &base, &against, progress)?.lines().map(Some)
    }

    /// Returns the attempt that works in this workspace, if it is that of one.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn of_place(&self, place: WorkspaceId) -> Result<Option<Attempt>, Error> {
        Ok(self.manager.catalog.attempt_at(place)?)
    }

    /// Returns the attempt that this process is in, recognised by its mount.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn around(&self) -> Result<Option<InAttempt>, Error> {
        for mount in self.manager.inside.iter().rev() {
            let Ok(id) = mount.attempt.parse() else { continue };
            if let Some(attempt) = self.manager.catalog.attempt(id)? {
                return Ok(Some(InAttempt { attempt, project: mount.project.clone() }));
            }
        }
        Ok(None)
    }

    /// Notes metrics for the next checkpoint of a workspace.
    ///
    /// # Errors
    /// When a name or a value is invalid, or the catalog cannot be written.
    pub fn note_metrics(&self, workspace: WorkspaceId, metrics: &[(String, f64)]) -> Result<(), Error> {
        metrics.iter().try_for_each(|(name, value)| check_metric(name, *value))?;
        self.manager.catalog.write(|transaction| {
            metrics.iter().try_for_each(|(name, value)| transaction.note_metric(workspace, name, *value))
        })?;
        Ok(())
    }
}

impl Workspaces<'_> {
    /// Returns the workspace of the attempt in whose room a path lies.
    pub(crate) fn of_room(&self, path: &Path) -> Result<Option<Workspace>, Error> {
        for mount in self.manager.inside.iter().rev() {
            if !path.starts_with(&mount.project) && !path.starts_with(&mount.tree) {
                continue;
            }
            let known = mount.attempt.parse().ok().map(|id| self.manager.catalog.attempt(id)).transpose()?;
            return match known.flatten() {
                Some(attempt) => self.get(attempt.place_id).map(Some),
                // An attempt of another home: the project is not to be touched.
                None => Err(Error::InsideAttempt { name: mount.attempt.clone() }),
            };
        }
        Ok(None)
    }
}

/// Returns true if a path is one of these or lies below one.
pub(crate) fn is_below_any(path: &RelPath, above: &[RelPath]) -> bool {
    above.iter().any(|above| path.is_within(above))
}
