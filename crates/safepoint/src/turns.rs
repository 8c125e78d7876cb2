//! Turns of agents: a checkpoint before the first change of each, one at its end, and the way back.

mod attribution;
mod course;
mod effects;
mod told;

pub use attribution::{SharedPath, TurnWork};
pub use course::{BegunTurn, MissingTurn};
pub use effects::{Extent, RollbackEffects, TouchedTurn};
pub use told::{SeenSession, SessionMoment};

use crate::handles::Turns;
use crate::rollback::{LaterChanges, RollbackOptions, RolledBack};
use crate::{Against, Error};
use attribution::Attribution;
use safepoint_catalog::{Transaction, Workspace};
use safepoint_model::change::ChangeKind;
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::progress::Progress;
use safepoint_model::rollback::Rollback;
use safepoint_model::tree::Node;
use safepoint_model::turn::Turn;
use safepoint_model::{RelPath, Span, Timestamp};
use std::collections::BTreeSet;

/// Age after which a session without events is not told of rollbacks.
const RECENT: Span = Span::from_days(30);
/// Facts about a prompt.
#[derive(Debug, Clone, Default)]
pub struct NewTurn {
    /// Name of the agent.
    pub agent: String,
    /// Session of the agent.
    pub session_id: String,
    /// Id that the agent gave it.
    pub key: Option<String>,
    /// Prompt, shortened.
    pub prompt: String,
    /// Language model.
    pub model: Option<String>,
    /// Permission mode of the agent.
    pub permission_mode: Option<String>,
}

/// Call of a tool that may change files.
#[derive(Debug, Clone, Default)]
pub struct ChangingCall {
    /// Id of the call in its session, if the agent gives one.
    pub id: Option<String>,
    /// Name of the tool.
    pub tool: String,
    /// Label of a checkpoint of its own, if the call is risky.
    pub risk: Option<String>,
    /// Paths that it names as its targets.
    pub paths: Vec<RelPath>,
    /// Subagent that makes the call.
    pub subagent: Option<String>,
}

/// Side of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnSide {
    /// State before its first change.
    Before,
    /// State at its end.
    After,
}

/// Result of undoing one turn.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TurnUndone {
    /// The turn.
    pub turn: Turn,
    /// The rollback of its paths.
    pub done: RolledBack,
    /// Paths that the turn changed, and that another turn changed, or that changed since. They stay as they are.
    pub left: Vec<SharedPath>,
}

impl Turns<'_> {
    /// Returns the turns of a workspace, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list(&self, workspace: &Workspace, limit: Option<u64>) -> Result<Vec<Turn>, Error> {
        Ok(self.manager.catalog.turns(workspace.id, None, limit)?)
    }

    /// Returns the turns of a session in a workspace, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list_of(
        &self,
        workspace: &Workspace,
        session: &str,
        limit: Option<u64>,
    ) -> Result<Vec<Turn>, Error> {
        Ok(self.manager.catalog.turns(workspace.id, Some(session), limit)?)
    }

    /// Returns the turn with this number.
    ///
    /// # Errors
    /// [`Error::NoTurn`]; and when the catalog cannot be read.
    pub fn get(&self, workspace: &Workspace, number: u64) -> Result<Turn, Error> {
        self.manager.catalog.turn(workspace.id, number)?.ok_or(Error::NoTurn { number })
    }

    /// Returns the checkpoint before or after a turn.
    ///
    /// # Errors
    /// [`Error::NoTurn`]; [`Error::TurnOpen`] if the turn has not reached that side; [`Error::TurnNotCovered`] if there is no such
    /// checkpoint, or it was pruned.
    pub fn checkpoint(
        &self,
        workspace: &Workspace,
        number: u64,
        side: TurnSide,
    ) -> Result<Checkpoint, Error> {
        let turn = self.get(workspace, number)?;
        let id = match side {
            TurnSide::Before => turn.before,
            TurnSide::After => turn.after,
        };
        if id.is_none() && turn.closed_at.is_none() {
            return Err(Error::TurnOpen { number });
        }
        let gone = || Error::TurnNotCovered { number };
        match self.manager.checkpoints().get(id.ok_or_else(gone)?) {
            Err(Error::NoCheckpoint { .. }) => Err(gone()),
            found => found,
        }
    }

    /// Returns the time of the last event of an agent's hooks.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_seen(&self, agent: &str) -> Result<Option<Timestamp>, Error> {
        Ok(self.manager.catalog.hook_seen(agent)?)
    }

    /// Restores the paths that a turn changed to their state before it. Paths that changed since stay, unless
    /// `options.later_changes` says otherwise.
    ///
    /// # Errors
    /// [`Error::NothingToUndo`] if the turn changed nothing; [`Error::TurnOvertaken`] if all of its paths changed since; or as
    /// [`Turns::checkpoint`] and [`CheckpointManager::rollback`](crate::CheckpointManager::rollback).
    pub fn undo(
        &self,
        workspace: &Workspace,
        number: u64,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<TurnUndone, Error> {
        let mark = self.manager.recovery_mark();
        let turn = self.get(workspace, number)?;
        let before = self.checkpoint(workspace, number, TurnSide::Before)?;
        let after = self.checkpoint(workspace, number, TurnSide::After)?;
        let attribution = Attribution::of(self, workspace, &turn, progress)?;
        let since = self.manager.diff(workspace, &after, &Against::Present, progress)?.changes;
        let removed: BTreeSet<&RelPath> = since
            .iter()
            .filter(|change| change.kind == ChangeKind::Removed)
            .map(|change| &change.path)
            .collect();
        let since: Vec<&RelPath> = since.iter().map(|change| &change.path).collect();
        let changed =
            self.manager.diff(workspace, &before, &Against::Checkpoint(Box::new(after)), progress)?.changes;
        let every = changed.iter().map(|change| change.path.clone());
        let (own, shared) = attribution.divide(&turn, every)?;
        let theirs: Vec<RelPath> = changed
            .iter()
            .map(|change| &change.path)
            .filter(|path| !own.contains(path) && !shared.iter().any(|other| other.path == **path))
            .cloned()
            .collect();
        let is_all = options.later_changes != LaterChanges::Refused;
        let (mut paths, mut later, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for change in changed {
            let is_folder = [&change.old, &change.new]
                .into_iter()
                .flatten()
                .any(|entry| matches!(entry.node, Node::Directory(_)));
            // A folder goes back with all that is in it.
            let holds = |path: &RelPath| *path == change.path || (is_folder && path.is_within(&change.path));
            let stays = is_folder && change.kind != ChangeKind::Removed;
            let other = shared.iter().find(|other| holds(&other.path));
            match other {
                // What the turn made is gone already.
                _ if change.kind == ChangeKind::Added && removed.contains(&change.path) => {}
                _ if theirs.contains(&change.path) || (stays && theirs.iter().any(holds)) => {}
                _ if is_all => paths.push(change.path),
                None if !since.iter().any(|path| holds(path)) => paths.push(change.path),
                _ if stays => {}
                Some(other) => left.push(SharedPath { path: change.path, turn: other.turn.clone() }),
                None => later.push(change.path),
            }
        }
        left.extend(attribution.later(&turn, later)?);
        left.sort_by(|one, other| one.path.cmp(&other.path));
        match (paths.is_empty(), left.is_empty()) {
            (true, true) => return Err(Error::NothingToUndo),
            (true, false) => return Err(Error::TurnOvertaken { number, paths: left }),
            _ => {}
        }
        let options = RollbackOptions { paths, ..options.clone() };
        let mut done = self.manager.rollback(workspace, before.id, &options, progress)?;
        done.recovered = self.manager.recovered_since(mark);
        Ok(TurnUndone { turn, done, left })
    }

    /// Returns the work of other sessions that a rollback to a side of a turn undoes.
    ///
    /// # Errors
    /// As [`Turns::checkpoint`]; and when checkpoints cannot be compared.
    pub fn work_of_others(
        &self,
        workspace: &Workspace,
        number: u64,
        side: TurnSide,
        progress: &dyn Progress,
    ) -> Result<Vec<TurnWork>, Error> {
        let turn = self.get(workspace, number)?;
        let since = self.checkpoint(workspace, number, side)?;
        self.work_since(workspace, &turn.session_id, since.id, progress)
    }
}

impl crate::CheckpointManager {
    /// Leaves a note about rollbacks of folders for each recent session in them. It is a part of the transaction that finishes the
    /// rollbacks: after a crash it is there exactly if they are done.
    pub(crate) fn leave_hook_notes<'r>(
        transaction: &Transaction<'_>,
        records: impl IntoIterator<Item = &'r Rollback>,
        at: Timestamp,
    ) -> Result<(), Error> {
        for record in records {
            transaction.leave_hook_notes(record.workspace_id, record.id, before(at, RECENT))?;
        }
        Ok(())
    }
}

fn before(at: Timestamp, age: Span) -> Timestamp {
    Timestamp::from_micros(at.micros().saturating_sub(age.micros().cast_signed()))
}
