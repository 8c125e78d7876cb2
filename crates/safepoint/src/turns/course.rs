//! Course of a turn: its prompt, its calls, its end. In come facts of hooks, out come rows and checkpoints.
//!
//! Hooks come twice, late, in another order and not at all, and are killed anywhere. A turn is known by the id that its agent gives
//! it. Whatever fails, a prompt closes the turn before it and opens the next one. A call whose hook did not finish marks its turn as
//! not covered.

use super::attribution::Attribution;
use super::{ChangingCall, NewTurn, before};
use crate::handles::Turns;
use crate::home::Share;
use crate::{Against, CreateOptions, Error, IfUnchanged};
use safepoint_catalog::Workspace;
use safepoint_model::change::ChangeKind;
use safepoint_model::checkpoint::{Checkpoint, Kind, Reason};
use safepoint_model::progress::Progress;
use safepoint_model::turn::Turn;
use safepoint_model::{RelPath, Span};
use std::collections::BTreeSet;
use std::time::Duration;

/// Age after which an event may come again and counts as new.
const EVENTS_KEPT: Span = Span::from_days(1);
/// Tools and subagents of a turn that are recorded.
const TOOLS_MAX: usize = 50;
/// Paths that tools of a turn named, and that are recorded.
const NAMED_MAX: usize = 1_000;

/// Reason of a turn with a call whose hook did not finish.
const UNFINISHED: &str = "the hook of a call did not finish";
/// Reason of a turn whose first checkpoint is gone before its end.
const BEFORE_GONE: &str = "the checkpoint before it was deleted";

/// A turn that a prompt opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct BegunTurn {
    /// The turn.
    pub turn: Turn,
    /// Reason why the turn before it was closed without a checkpoint.
    pub earlier: Option<Error>,
}

/// Action if a session has no open turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingTurn {
    /// One is opened: the event belongs to a turn whose prompt did not arrive.
    Opened,
    /// Nothing: the event belongs to no turn.
    Ignored,
}

impl Turns<'_> {
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

    /// Opens a turn. An open one of the same session is closed first, with a checkpoint if files changed; if that fails, without
    /// one. A prompt that arrives twice, or after the first call of its turn, belongs to the turn that is there.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn begin(
        &self,
        workspace: &Workspace,
        new: &NewTurn,
        progress: &dyn Progress,
    ) -> Result<BegunTurn, Error> {
        // A prompt waits for no capture of another hook for ever: then the turn before it has no checkpoint at its end.
        let (_alone, busy) = match self.alone(workspace) {
            Ok(alone) => (Some(alone), None),
            Err(error) => (None, Some(error)),
        };
        if let Some(mut turn) = self.known(workspace, new)? {
            learn_prompt(&mut turn, new);
            self.save(&turn)?;
            return Ok(BegunTurn { turn, earlier: None });
        }
        let earlier = self.close(workspace, &new.session_id, busy, progress)?;
        Ok(BegunTurn { turn: self.insert(workspace, new)?, earlier })
    }

    /// Records that the turn of a session goes on under another id of the agent, as after a notification to itself.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn go_on(&self, workspace: &Workspace, new: &NewTurn) -> Result<(), Error> {
        let _alone = self.alone(workspace)?;
        let last = self.last(workspace, &new.session_id)?;
        match last.filter(|turn| new.key.is_some() && turn.key != new.key) {
            Some(turn) => self.save(&Turn { key: new.key.clone(), ..turn }),
            None => Ok(()),
        }
    }

    /// Returns the turn that a prompt belongs to, if it is on record: it has the same id, or nothing was done since the same prompt.
    fn known(&self, workspace: &Workspace, new: &NewTurn) -> Result<Option<Turn>, Error> {
        if let Some(key) = &new.key
            && let Some(turn) = self.manager.catalog.turn_with_key(workspace.id, &new.session_id, key)?
        {
            return Ok(Some(turn));
        }
        let open = self.manager.catalog.open_turn(workspace.id, &new.session_id)?;
        Ok(open.filter(|turn| {
            let is_idle = turn.commands == 0 && turn.before.is_none() && turn.not_covered.is_none();
            let is_same = is_same_key(turn.key.as_deref(), new.key.as_deref());
            is_idle && is_same && turn.prompt == new.prompt
        }))
    }

    fn last(&self, workspace: &Workspace, session: &str) -> Result<Option<Turn>, Error> {
        Ok(self.manager.catalog.turns(workspace.id, Some(session), Some(1))?.pop())
    }

    /// Closes the open turn of a session, whatever fails. Returns the reason if it has no checkpoint at its end.
    fn close(
        &self,
        workspace: &Workspace,
        session: &str,
        busy: Option<Error>,
        progress: &dyn Progress,
    ) -> Result<Option<Error>, Error> {
        let Some(mut turn) = self.manager.catalog.open_turn(workspace.id, session)? else { return Ok(None) };
        let done = match busy {
            Some(error) => Err(error),
            None => self.finish(workspace, &mut turn, progress),
        };
        let Err(error) = done else { return Ok(None) };
        turn.not_covered.get_or_insert_with(|| error.to_string());
        turn.closed_at = Some(self.manager.environment.now());
        self.save(&turn)?;
        Ok(Some(error))
    }

    fn insert(&self, workspace: &Workspace, new: &NewTurn) -> Result<Turn, Error> {
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
            named: Vec::new(),
            tools: Vec::new(),
            subagents: Vec::new(),
        };
        // Also kept beside the catalog, so that numbers go on after a repair that builds a new one.
        let used = self.manager.home.last_turn(workspace.id);
        turn.number = self
            .manager
            .catalog
            .write_unflushed(|transaction| Ok::<_, Error>(transaction.insert_turn(&turn, used)?))?;
        let _ = self.manager.home.keep_last_turn(workspace.id, turn.number);
        Ok(turn)
    }

    /// Returns the turn that a call belongs to. One that is over is opened again for a call with its id, or of its subagent.
    fn turn_of(
        &self,
        workspace: &Workspace,
        new: &NewTurn,
        call: &ChangingCall,
        progress: &dyn Progress,
    ) -> Result<Turn, Error> {
        let catalog = &self.manager.catalog;
        let known = |key: &Option<String>| match key {
            Some(key) => catalog.turn_with_key(workspace.id, &new.session_id, key),
            None => Ok(None),
        };
        if let Some(turn) = catalog.open_turn(workspace.id, &new.session_id)? {
            // A late call of an earlier turn falls into the time of this one.
            let is_of_it = call.subagent.is_some()
                || is_same_key(turn.key.as_deref(), new.key.as_deref())
                || known(&new.key)?.is_some();
            if is_of_it {
                return Ok(turn);
            }
            self.close(workspace, &new.session_id, None, progress)?;
            return self.insert(workspace, new);
        }
        let last = self.last(workspace, &new.session_id)?;
        let is_of_last = |turn: &Turn| call.subagent.is_some() || (new.key.is_some() && turn.key == new.key);
        if let Some(turn) = last.filter(is_of_last) {
            return Ok(Turn { closed_at: None, after: None, changes: None, ..turn });
        }
        let prompt = known(&new.key)?.map_or_else(|| new.prompt.clone(), |turn| turn.prompt);
        self.insert(workspace, &NewTurn { prompt, ..new.clone() })
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
        call: &ChangingCall,
        progress: &dyn Progress,
    ) -> Result<Turn, Error> {
        let _alone = self.alone(workspace)?;
        let mut turn = self.turn_of(workspace, new, call, progress)?;
        // An earlier call went on without a checkpoint. The state before it is that of the last one.
        let is_missed = turn.before.is_none() && (turn.commands > 0 || turn.not_covered.is_some());
        let last = self.manager.workspaces().get(workspace.id)?.head.filter(|_| is_missed);
        if is_missed {
            turn.not_covered.get_or_insert_with(|| UNFINISHED.to_owned());
        }
        turn.commands += 1;
        add(&mut turn.tools, Some(&call.tool).filter(|tool| !tool.is_empty()), TOOLS_MAX);
        add(&mut turn.subagents, call.subagent.as_ref(), TOOLS_MAX);
        add(&mut turn.named, &call.paths, NAMED_MAX);
        if turn.before.is_none() || call.risk.is_some() {
            let label = call.risk.clone().unwrap_or_else(|| before_label(&turn));
            // What was learned of the turn so far stays, even if the checkpoint fails.
            self.save(&turn)?;
            let taken = self.take(workspace, &turn, label, Reason::PreRiskyOperation, progress)?;
            turn.before.get_or_insert(last.unwrap_or(taken.id));
        }
        let (at, covered) = (self.manager.environment.now(), covered_key(&turn.session_id, call));
        self.manager.catalog.write_unflushed(|transaction| {
            if let Some(key) = &covered {
                transaction.is_new_hook_event(key, at, before(at, EVENTS_KEPT))?;
            }
            Ok::<_, Error>(transaction.update_turn(&turn)?)
        })?;
        Ok(turn)
    }

    /// Records what is learned of the open turn of a session besides its calls: paths and subagents.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn learn(&self, workspace: &Workspace, session: &str, call: &ChangingCall) -> Result<(), Error> {
        let _alone = self.alone(workspace)?;
        let Some(turn) = self.manager.catalog.open_turn(workspace.id, session)? else { return Ok(()) };
        let mut learned = turn.clone();
        add(&mut learned.subagents, call.subagent.as_ref(), TOOLS_MAX);
        add(&mut learned.named, &call.paths, NAMED_MAX);
        if learned == turn { Ok(()) } else { self.save(&learned) }
    }

    /// Records the end of a call that may have changed files. Returns true if no checkpoint covers it because its hook did not
    /// finish, and its turn was not marked before.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn returned(&self, workspace: &Workspace, session: &str, call: &ChangingCall) -> Result<bool, Error> {
        self.learn(workspace, session, call)?;
        let is_covered = |turn: &Turn| match covered_key(session, call) {
            _ if turn.before.is_none() => Ok(false),
            Some(key) => self.manager.catalog.knows_hook_event(&key),
            None => Ok(true),
        };
        let open = || self.manager.catalog.open_turn(workspace.id, session);
        match open()? {
            Some(turn) if turn.not_covered.is_none() && !is_covered(&turn)? => {}
            _ => return Ok(false),
        }
        let _alone = self.alone(workspace)?;
        let Some(mut turn) = open()?.filter(|turn| turn.not_covered.is_none()) else { return Ok(false) };
        turn.not_covered = Some(UNFINISHED.to_owned());
        self.save(&turn)?;
        Ok(true)
    }

    /// Closes the open turn of a session, with a checkpoint if files changed. Returns none if no turn is open, or if `key` names
    /// another turn that is on record.
    ///
    /// # Errors
    /// When the workspace cannot be captured or the catalog cannot be written. The turn stays open.
    pub fn end(
        &self,
        workspace: &Workspace,
        session: &str,
        key: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<Option<Turn>, Error> {
        let _alone = self.alone(workspace)?;
        let Some(mut turn) = self.manager.catalog.open_turn(workspace.id, session)? else { return Ok(None) };
        if let Some(key) = key.filter(|key| !is_same_key(turn.key.as_deref(), Some(key)))
            && self.manager.catalog.turn_with_key(workspace.id, session, key)?.is_some()
        {
            return Ok(None);
        }
        self.finish(workspace, &mut turn, progress)?;
        Ok(Some(turn))
    }

    /// Takes the checkpoint at the end of a turn, and closes the turn. One whose changes cannot be counted is closed, too.
    fn finish(&self, workspace: &Workspace, turn: &mut Turn, progress: &dyn Progress) -> Result<(), Error> {
        let position = self.manager.workspaces().get(workspace.id)?.head;
        let after = self.take(workspace, turn, label(turn), Reason::TaskGroupComplete, progress)?;
        turn.before = turn.before.or(position);
        turn.after = Some(after.id);
        match self.count(workspace, turn, progress) {
            Ok(changes) => turn.changes = Some(changes),
            Err(Error::NoCheckpoint { .. }) => {
                turn.not_covered.get_or_insert_with(|| BEFORE_GONE.to_owned());
            }
            Err(error) => {
                turn.not_covered.get_or_insert_with(|| error.to_string());
            }
        }
        turn.closed_at = Some(self.manager.environment.now());
        self.save(turn)
    }

    /// Records why the open turn of a session lacks a checkpoint. Returns false if a reason was recorded before.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn not_covered(
        &self,
        workspace: &Workspace,
        new: &NewTurn,
        missing: MissingTurn,
        why: &str,
    ) -> Result<bool, Error> {
        let mut turn = match self.manager.catalog.open_turn(workspace.id, &new.session_id)? {
            Some(turn) => turn,
            None if missing == MissingTurn::Ignored => return Ok(true),
            None => self.insert(workspace, new)?,
        };
        let first = turn.not_covered.is_none();
        if first {
            turn.not_covered = Some(why.to_owned());
            self.save(&turn)?;
        }
        Ok(first)
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
        let changes =
            self.manager.diff(workspace, &before, &Against::Checkpoint(Box::new(after)), progress)?.changes;
        let attribution = Attribution::of(self, workspace, turn, progress)?;
        let (own, shared) = attribution.divide(turn, changes.iter().map(|change| change.path.clone()))?;
        let own: BTreeSet<RelPath> =
            own.into_iter().chain(shared.into_iter().map(|shared| shared.path)).collect();
        let mut counts = [0; 3];
        for change in changes.iter().filter(|change| own.contains(&change.path)) {
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

/// Returns true unless both ids are known and differ.
fn is_same_key(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

/// Key of the fact that a call was covered.
fn covered_key(session: &str, call: &ChangingCall) -> Option<String> {
    call.id.as_ref().map(|id| format!("{session}{}", covered_of_any(id)))
}

/// The part of that key behind the session.
pub(super) fn covered_of_any(call: &str) -> String {
    format!(" covered {call}")
}

/// Adds what a prompt says to a turn that its first call opened.
fn learn_prompt(turn: &mut Turn, new: &NewTurn) {
    if turn.prompt.is_empty() {
        turn.prompt.clone_from(&new.prompt);
    }
    turn.key = turn.key.take().or_else(|| new.key.clone());
    turn.model = turn.model.take().or_else(|| new.model.clone());
    turn.permission_mode = turn.permission_mode.take().or_else(|| new.permission_mode.clone());
}

/// Adds values that a list lacks, up to a number.
fn add<'v, T: Clone + PartialEq + 'v>(
    list: &mut Vec<T>,
    values: impl IntoIterator<Item = &'v T>,
    max: usize,
) {
    for value in values {
        if list.len() < max && !list.contains(value) {
            list.push(value.clone());
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
