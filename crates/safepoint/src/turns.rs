//! Turns of agents: a checkpoint before the first change of each, one at its end, and the way back.

use crate::handles::Turns;
use crate::home::Share;
use crate::rollback::{LaterChanges, RollbackOptions, RolledBack};
use crate::sessions::NewSession;
use crate::{Against, CreateOptions, Error, IfUnchanged};
use safepoint_catalog::Workspace;
use safepoint_model::change::ChangeKind;
use safepoint_model::checkpoint::{Checkpoint, Kind, Reason};
use safepoint_model::id::SessionId;
use safepoint_model::progress::Progress;
use safepoint_model::rollback::Rollback;
use safepoint_model::tree::Node;
use safepoint_model::turn::Turn;
use safepoint_model::{RelPath, Span, Timestamp};
use std::time::Duration;

/// Age after which a session without events is not told of rollbacks.
const RECENT: Span = Span::from_days(30);
/// Age after which an event may come again and counts as new.
const EVENTS_KEPT: Span = Span::from_days(1);

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
    /// Paths that the turn changed, and that changed again since. They stay as they are.
    pub left: Vec<RelPath>,
}

impl Turns<'_> {
    /// Returns the turns of a workspace, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list(&self, workspace: &Workspace, limit: Option<u64>) -> Result<Vec<Turn>, Error> {
        Ok(self.manager.catalog.turns(workspace.id, limit)?)
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
    /// [`Error::NoTurn`]; [`Error::TurnNotCovered`] if there is no such checkpoint, or it was pruned.
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
        let gone = || Error::TurnNotCovered { number };
        match self.manager.checkpoints().get(id.ok_or_else(gone)?) {
            Err(Error::NoCheckpoint { .. }) => Err(gone()),
            found => found,
        }
    }

    /// Records an event of an agent's hooks. Returns false if an event with this key was recorded before: agents report some twice.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn saw(
        &self,
        workspace: &Workspace,
        session: &str,
        agent: &str,
        key: Option<&str>,
        ended: bool,
    ) -> Result<bool, Error> {
        let at = self.manager.environment.now();
        let forget = before(at, EVENTS_KEPT);
        self.manager.catalog.write_unflushed(|transaction| {
            transaction.note_hook(workspace.id, session, agent, at, ended)?;
            Ok(match key {
                Some(key) => transaction.is_new_hook_event(key, at, forget)?,
                None => true,
            })
        })
    }

    /// Returns the time of the last event of an agent's hooks.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_seen(&self, agent: &str) -> Result<Option<Timestamp>, Error> {
        Ok(self.manager.catalog.hook_seen(agent)?)
    }

    /// Opens a turn. An open one of the same session is closed first, with a checkpoint if files changed.
    ///
    /// # Errors
    /// When the workspace cannot be captured or the catalog cannot be written.
    pub fn begin(
        &self,
        workspace: &Workspace,
        new: &NewTurn,
        progress: &dyn Progress,
    ) -> Result<Turn, Error> {
        self.end(workspace, &new.session_id, progress)?;
        self.insert(workspace, new)
    }

    fn insert(&self, workspace: &Workspace, new: &NewTurn) -> Result<Turn, Error> {
        self.record_session(new);
        let mut turn = Turn {
            workspace_id: workspace.id,
            number: 0,
            agent: new.agent.clone(),
            session_id: new.session_id.clone(),
            key: new.key.clone(),
            prompt: new.prompt.clone(),
            model: new.model.clone(),
            permission_mode: new.permission_mode.clone(),
            opened_at: self.manager.environment.now(),
            closed_at: None,
            before: None,
            after: None,
            commands: 0,
            changes: None,
            not_covered: None,
        };
        turn.number = self
            .manager
            .catalog
            .write_unflushed(|transaction| Ok::<_, Error>(transaction.insert_turn(&turn)?))?;
        Ok(turn)
    }

    /// Puts the session of a turn on record. A turn does not fail for it.
    fn record_session(&self, new: &NewTurn) {
        let Ok(id) = new.session_id.parse::<SessionId>() else { return };
        if matches!(self.manager.sessions().get(id), Err(Error::NoSession { .. })) {
            let (request, id) = (new.prompt.clone(), Some(id));
            let _ = self.manager.sessions().create(NewSession { request, id, ..NewSession::default() });
        }
    }

    /// Takes the checkpoint before the first change of a turn, or before a risky command. Concurrent calls of one turn wait for
    /// one checkpoint. Without an open turn, one is opened.
    ///
    /// # Errors
    /// When the workspace cannot be captured or the catalog cannot be written.
    pub fn cover(
        &self,
        workspace: &Workspace,
        new: &NewTurn,
        risk: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<Turn, Error> {
        let _alone = self.alone(workspace)?;
        let mut turn = match self.manager.catalog.open_turn(workspace.id, &new.session_id)? {
            Some(turn) => turn,
            None => self.insert(workspace, new)?,
        };
        turn.commands += 1;
        if turn.before.is_none() || risk.is_some() {
            let label = risk.map_or_else(|| before_label(&turn), str::to_owned);
            let taken = self.take(workspace, &turn, label, Reason::PreRiskyOperation, progress)?;
            turn.before.get_or_insert(taken.id);
        }
        self.save(&turn)?;
        Ok(turn)
    }

    /// Closes the open turn of a session, with a checkpoint if files changed. Returns none if no turn is open.
    ///
    /// # Errors
    /// When the workspace cannot be captured or the catalog cannot be written.
    pub fn end(
        &self,
        workspace: &Workspace,
        session: &str,
        progress: &dyn Progress,
    ) -> Result<Option<Turn>, Error> {
        let _alone = self.alone(workspace)?;
        let Some(mut turn) = self.manager.catalog.open_turn(workspace.id, session)? else { return Ok(None) };
        let position = self.manager.workspaces().get(workspace.id)?.head;
        let after = self.take(workspace, &turn, label(&turn), Reason::TaskGroupComplete, progress)?;
        turn.before = turn.before.or(position);
        turn.after = Some(after.id);
        turn.changes = Some(self.count(workspace, &turn, progress)?);
        turn.closed_at = Some(self.manager.environment.now());
        self.save(&turn)?;
        Ok(Some(turn))
    }

    /// Records why the open turn of a session lacks a checkpoint. Returns false if that was recorded before.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn not_covered(&self, workspace: &Workspace, new: &NewTurn, why: &str) -> Result<bool, Error> {
        let mut turn = match self.manager.catalog.open_turn(workspace.id, &new.session_id)? {
            Some(turn) => turn,
            None => self.insert(workspace, new)?,
        };
        let first = turn.not_covered.is_none();
        turn.not_covered.get_or_insert_with(|| why.to_owned());
        self.save(&turn)?;
        Ok(first)
    }

    /// Removes and returns the rollbacks of the workspace that a session was not told about yet.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn take_notes(&self, workspace: &Workspace, session: &str) -> Result<Vec<Rollback>, Error> {
        let ids = self
            .manager
            .catalog
            .write_unflushed(|transaction| Ok::<_, Error>(transaction.take_hook_notes(session)?))?;
        let all = self.manager.rollbacks(workspace)?;
        Ok(all.into_iter().filter(|rollback| ids.contains(&rollback.id)).collect())
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
        let turn = self.get(workspace, number)?;
        let before = self.checkpoint(workspace, number, TurnSide::Before)?;
        let after = self.checkpoint(workspace, number, TurnSide::After)?;
        let since: Vec<RelPath> = self
            .manager
            .diff(workspace, &after, &Against::Present, progress)?
            .changes
            .into_iter()
            .map(|change| change.path)
            .collect();
        let changed =
            self.manager.diff(workspace, &before, &Against::Checkpoint(Box::new(after)), progress)?.changes;
        let (mut paths, mut left) = (Vec::new(), Vec::new());
        for change in changed {
            let is_folder = [&change.old, &change.new]
                .into_iter()
                .flatten()
                .any(|entry| matches!(entry.node, Node::Directory(_)));
            // A folder goes back with all that is in it.
            let is_later =
                since.iter().any(|path| *path == change.path || (is_folder && path.is_within(&change.path)));
            match is_later && options.later_changes == LaterChanges::Refused {
                true if is_folder && change.kind != ChangeKind::Removed => {}
                true => left.push(change.path),
                false => paths.push(change.path),
            }
        }
        match (paths.is_empty(), left.is_empty()) {
            (true, true) => return Err(Error::NothingToUndo),
            (true, false) => return Err(Error::TurnOvertaken { number, paths: left }),
            _ => {}
        }
        let options = RollbackOptions { paths, ..options.clone() };
        let done = self.manager.rollback(workspace, before.id, &options, progress)?;
        Ok(TurnUndone { turn, done, left })
    }

    fn take(
        &self,
        workspace: &Workspace,
        turn: &Turn,
        label: String,
        reason: Reason,
        progress: &dyn Progress,
    ) -> Result<Checkpoint, Error> {
        let options = CreateOptions {
            label: Some(label),
            kind: Kind::Automatic,
            reason,
            session_id: Some(turn.session_id.clone()),
            source_tool: Some(turn.agent.clone()),
            unchanged: IfUnchanged::ReusedOfAnySession,
            ..CreateOptions::default()
        };
        Ok(self.manager.create(workspace, &options, progress)?.checkpoint)
    }

    /// Counts the paths that a turn added, modified and removed.
    fn count(&self, workspace: &Workspace, turn: &Turn, progress: &dyn Progress) -> Result<[u64; 3], Error> {
        let (Some(before), Some(after)) = (turn.before, turn.after) else { return Ok([0; 3]) };
        if before == after {
            return Ok([0; 3]);
        }
        let (before, after) =
            (self.manager.checkpoints().get(before)?, self.manager.checkpoints().get(after)?);
        let mut counts = [0; 3];
        for change in
            self.manager.diff(workspace, &before, &Against::Checkpoint(Box::new(after)), progress)?.changes
        {
            counts[match change.kind {
                ChangeKind::Added => 0,
                ChangeKind::Removed => 2,
                _ => 1,
            }] += 1;
        }
        Ok(counts)
    }

    fn save(&self, turn: &Turn) -> Result<(), Error> {
        self.manager.catalog.write_unflushed(|transaction| Ok(transaction.update_turn(turn)?))
    }

    /// Excludes other hooks of the workspace until the result is dropped.
    fn alone(&self, workspace: &Workspace) -> Result<impl Sized, Error> {
        let name = format!("turns.{}", workspace.id);
        let wait: Duration = self.manager.settings.lock_wait;
        let home = &self.manager.home;
        let failed = |source| Error::Home { path: home.path().to_owned(), source };
        home.lock_plan(&name, Share::Alone, wait).map_err(failed)?.ok_or_else(|| Error::TurnBusy)
    }
}

impl crate::CheckpointManager {
    /// Leaves a note about a finished rollback for each recent session in one of its folders. A rollback does not fail for it.
    pub(crate) fn leave_hook_notes(&self, done: &RolledBack) {
        let since = before(self.environment.now(), RECENT);
        for record in done.folders.iter().map(|folder| &folder.record) {
            if self.catalog.has_recent_hooks(record.workspace_id, since).unwrap_or(false) {
                let _ = self.catalog.write_unflushed(|transaction| {
                    transaction.leave_hook_notes(record.workspace_id, record.id, since)
                });
            }
        }
    }
}

/// Label of the checkpoint at the end of a turn.
fn label(turn: &Turn) -> String {
    match turn.prompt.is_empty() {
        true => format!("turn {}", turn.number),
        false => turn.prompt.clone(),
    }
}

fn before_label(turn: &Turn) -> String {
    match turn.prompt.is_empty() {
        true => format!("before turn {}", turn.number),
        false => format!("before turn {}: {}", turn.number, turn.prompt),
    }
}

fn before(at: Timestamp, age: Span) -> Timestamp {
    Timestamp::from_micros(at.micros().saturating_sub(age.micros().cast_signed()))
}
