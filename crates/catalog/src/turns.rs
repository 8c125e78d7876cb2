//! Turns of agents, and the bookkeeping of their hooks.
//!
//! None of these rows is an event of the history, and none is flushed by itself: an agent waits for each of its
//! hooks. After a power cut the last rows may be missing. The checkpoints that they name are durable before.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::turn::Turn;
use safepoint_model::{RollbackId, Timestamp, WorkspaceId};

impl Catalog {
    /// Returns the turns of a workspace, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn turns(&self, workspace: WorkspaceId, limit: Option<u64>) -> Result<Vec<Turn>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT seq AS id, * FROM turns WHERE workspace_id = ?1 ORDER BY number DESC LIMIT ?2";
            let limit = limit.map_or(Ok(-1), |limit| integer("limit", limit))?;
            query::all(connection, "the turns", sql, params![workspace.to_string(), limit], read)
        })
    }

    /// Returns the turn with this number.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn turn(&self, workspace: WorkspaceId, number: u64) -> Result<Option<Turn>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT seq AS id, * FROM turns WHERE workspace_id = ?1 AND number = ?2";
            let params = params![workspace.to_string(), integer("number", number)?];
            query::first(connection, format_args!("turn {number}"), sql, params, read)
        })
    }

    /// Returns the open turn of a session.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn open_turn(&self, workspace: WorkspaceId, session: &str) -> Result<Option<Turn>, CatalogError> {
        self.read(|connection| open_turn(connection, workspace, session))
    }

    /// Returns true if hooks of an agent's session ran in the workspace since this time.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn has_recent_hooks(&self, workspace: WorkspaceId, since: Timestamp) -> Result<bool, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT session_id AS id FROM hook_sessions WHERE workspace_id = ?1 AND seen_at >= ?2 LIMIT 1";
            let params = params![workspace.to_string(), since.micros()];
            Ok(query::first(connection, "the hooks", sql, params, |_| Ok(()))?.is_some())
        })
    }

    /// Returns the time of the last event of an agent's hooks.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hook_seen(&self, agent: &str) -> Result<Option<Timestamp>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT agent AS id, max(seen_at) AS seen_at FROM hook_sessions WHERE agent = ?1 GROUP BY agent";
            query::first(connection, "the hooks", sql, [agent], |row| {
                Fields::with_id(row, "hook_sessions").time("seen_at")
            })
        })
    }
}

impl Transaction<'_> {
    /// Returns the open turn of a session.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn open_turn(&self, workspace: WorkspaceId, session: &str) -> Result<Option<Turn>, CatalogError> {
        open_turn(self.connection, workspace, session)
    }

    /// Inserts a turn and returns its number. The number in `turn` is ignored.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn insert_turn(&self, turn: &Turn) -> Result<u64, CatalogError> {
        let sql = "INSERT INTO turns (workspace_id, number, agent, session_id, key, prompt, model, permission_mode, opened_at)
                   SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM turns WHERE workspace_id = ?1";
        let params = params![
            turn.workspace_id.to_string(),
            turn.agent,
            turn.session_id,
            turn.key,
            turn.prompt,
            turn.model,
            turn.permission_mode,
            turn.opened_at.micros(),
        ];
        query::run(self.connection, "a turn", sql, params)?;
        let sql = "SELECT seq AS id, max(number) AS number FROM turns WHERE workspace_id = ?1";
        let number = query::first(self.connection, "a turn", sql, [turn.workspace_id.to_string()], |row| {
            Fields::with_id(row, "turns").number("number")
        })?;
        Ok(number.unwrap_or_default())
    }

    /// Updates what is learned of a turn after its prompt.
    ///
    /// # Errors
    /// When the row is missing or cannot be written.
    pub fn update_turn(&self, turn: &Turn) -> Result<(), CatalogError> {
        let sql =
            "UPDATE turns SET closed_at = ?3, before_id = ?4, after_id = ?5, commands = ?6, changes = ?7,
                   not_covered = ?8 WHERE workspace_id = ?1 AND number = ?2";
        let params = params![
            turn.workspace_id.to_string(),
            integer("number", turn.number)?,
            turn.closed_at.map(Timestamp::micros),
            turn.before.map(|id| id.to_string()),
            turn.after.map(|id| id.to_string()),
            integer("commands", turn.commands)?,
            turn.changes.map(|changes| json("changes", &changes)).transpose()?,
            turn.not_covered,
        ];
        match query::run(self.connection, format_args!("turn {}", turn.number), sql, params)? {
            0 => Err(CatalogError::missing("turn", turn.number)),
            _ => Ok(()),
        }
    }

    /// Records that a hook of this session ran. `ended` is true if the session is over.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn note_hook(
        &self,
        workspace: WorkspaceId,
        session: &str,
        agent: &str,
        at: Timestamp,
        ended: bool,
    ) -> Result<(), CatalogError> {
        let sql = "INSERT INTO hook_sessions (session_id, workspace_id, agent, seen_at, ended_at) VALUES (?1, ?2, ?3, ?4, ?5)
                   ON CONFLICT (session_id, workspace_id) DO UPDATE SET seen_at = ?4, ended_at = ?5";
        let params =
            params![session, workspace.to_string(), agent, at.micros(), ended.then_some(at.micros())];
        query::run(self.connection, "a session of an agent", sql, params).map(|_| ())
    }

    /// Returns true if an event with this key was not recorded before. Keys older than `forget` are forgotten.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn is_new_hook_event(
        &self,
        key: &str,
        at: Timestamp,
        forget: Timestamp,
    ) -> Result<bool, CatalogError> {
        let what = "an event of an agent";
        query::run(self.connection, what, "DELETE FROM hook_events WHERE at < ?1", [forget.micros()])?;
        let sql = "INSERT INTO hook_events (key, at) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING";
        Ok(query::run(self.connection, what, sql, params![key, at.micros()])? > 0)
    }

    /// Leaves a note about a rollback for each session whose hooks ran in the workspace since this time. One that is over can be
    /// resumed, and remembers the undone work.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn leave_hook_notes(
        &self,
        workspace: WorkspaceId,
        rollback: RollbackId,
        since: Timestamp,
    ) -> Result<(), CatalogError> {
        let sql = "INSERT INTO hook_notes (session_id, rollback_id)
                   SELECT session_id, ?2 FROM hook_sessions
                   WHERE workspace_id = ?1 AND seen_at >= ?3
                   ON CONFLICT DO NOTHING";
        let params = params![workspace.to_string(), rollback.to_string(), since.micros()];
        query::run(self.connection, "notes for agents", sql, params).map(|_| ())
    }

    /// Removes and returns the rollbacks that a session was not told about yet, oldest first.
    ///
    /// # Errors
    /// When the rows cannot be read or deleted.
    pub fn take_hook_notes(&self, session: &str) -> Result<Vec<RollbackId>, CatalogError> {
        let what = "notes for agents";
        let sql = "SELECT rollback_id AS id, rollback_id FROM hook_notes WHERE session_id = ?1 ORDER BY rollback_id";
        let found = query::all(self.connection, what, sql, [session], |row| {
            Fields::with_id(row, "hook_notes").parse("rollback_id")
        })?;
        query::run(self.connection, what, "DELETE FROM hook_notes WHERE session_id = ?1", [session])?;
        Ok(found)
    }
}

fn open_turn(
    connection: &Connection,
    workspace: WorkspaceId,
    session: &str,
) -> Result<Option<Turn>, CatalogError> {
    let sql =
        "SELECT seq AS id, * FROM turns WHERE session_id = ?1 AND workspace_id = ?2 AND closed_at IS NULL
               ORDER BY number DESC LIMIT 1";
    query::first(connection, "the open turn", sql, params![session, workspace.to_string()], read)
}

fn read(row: &Row<'_>) -> Result<Turn, CatalogError> {
    let number: i64 = row.get("id").unwrap_or_default();
    let fields = Fields::new(row, "turns", number);
    let changes: Option<String> = fields.get("changes")?;
    Ok(Turn {
        workspace_id: fields.parse("workspace_id")?,
        number: fields.number("number")?,
        agent: fields.get("agent")?,
        session_id: fields.get("session_id")?,
        key: fields.get("key")?,
        prompt: fields.get("prompt")?,
        model: fields.get("model")?,
        permission_mode: fields.get("permission_mode")?,
        opened_at: fields.time("opened_at")?,
        closed_at: fields.time_maybe("closed_at")?,
        before: fields.parse_maybe("before_id")?,
        after: fields.parse_maybe("after_id")?,
        commands: fields.number("commands")?,
        changes: changes.map(|_| fields.json("changes")).transpose()?,
        not_covered: fields.get("not_covered")?,
    })
}
