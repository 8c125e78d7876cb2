//! Turns of agents, and the bookkeeping of their hooks.
//!
//! None of these rows is an event of the history, and none is flushed by itself: an agent waits for each of its
//! hooks. After a power cut the last rows may be missing. The checkpoints that they name are durable before.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::turn::Turn;
use safepoint_model::{CheckpointId, RollbackId, Timestamp, WorkspaceId};

/// Turn with the places of its checkpoints in commit order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedTurn {
    /// The turn.
    pub turn: Turn,
    /// Place of the checkpoint before it.
    pub before: u64,
    /// Place of the checkpoint at its end, if it has one.
    pub after: Option<u64>,
}

/// Time of a checkpoint, with its place in commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointTime {
    /// Place.
    pub place: u64,
    /// Checkpoint.
    pub id: CheckpointId,
    /// Time.
    pub created_at: Timestamp,
}

impl Catalog {
    /// Returns the turns of a workspace, or those of one session in it, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn turns(
        &self,
        workspace: WorkspaceId,
        session: Option<&str>,
        limit: Option<u64>,
    ) -> Result<Vec<Turn>, CatalogError> {
        self.read(|connection| {
            let sql =
                "SELECT seq AS id, * FROM turns WHERE workspace_id = ?1 AND (?2 IS NULL OR session_id = ?2)
                       ORDER BY number DESC LIMIT ?3";
            let limit = limit.map_or(Ok(-1), |limit| integer("limit", limit))?;
            query::all(connection, "the turns", sql, params![workspace.to_string(), session, limit], read)
        })
    }

    /// Returns the turns of a workspace that ended after a place in commit order, or have no checkpoint at their end, newest first.
    /// Turns whose first checkpoint was deleted are left out.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn turns_since(&self, workspace: WorkspaceId, place: u64) -> Result<Vec<PlacedTurn>, CatalogError> {
        // The checkpoints since then come first, so that the costs are theirs.
        let sql = "SELECT turns.seq AS id, turns.*, b.seq AS before_place, a.seq AS after_place
                   FROM turns JOIN checkpoints b ON b.id = turns.before_id
                       LEFT JOIN checkpoints a ON a.id = turns.after_id
                   WHERE turns.workspace_id = ?1 AND turns.number IN (
                       SELECT t.number FROM checkpoints c INDEXED BY checkpoints_page
                           CROSS JOIN turns t ON t.after_id = c.id
                       WHERE c.workspace_id = ?1 AND c.seq > ?2 AND t.workspace_id = ?1
                       UNION SELECT number FROM turns
                       WHERE workspace_id = ?1 AND after_id IS NULL AND before_id IS NOT NULL)
                   ORDER BY turns.number DESC";
        self.read(|connection| {
            let params = params![workspace.to_string(), integer("seq", place)?];
            query::all(connection, "the turns", sql, params, |row| {
                let turn = read(row)?;
                let fields = Fields::with_id(row, "turns");
                let (before, after) = (fields.number("before_place")?, fields.number_maybe("after_place")?);
                Ok(PlacedTurn { turn, before, after })
            })
        })
    }

    /// Returns the turns of a workspace that begin or end at one of these checkpoints, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn turns_with(
        &self,
        workspace: WorkspaceId,
        checkpoints: &[CheckpointId],
    ) -> Result<Vec<Turn>, CatalogError> {
        let sql = "SELECT seq AS id, * FROM turns WHERE workspace_id = ?1 AND number IN (
                       SELECT number FROM turns
                       WHERE workspace_id = ?1 AND after_id IN (SELECT value FROM json_each(?2))
                       UNION SELECT number FROM turns
                       WHERE workspace_id = ?1 AND before_id IN (SELECT value FROM json_each(?2)))
                   ORDER BY number DESC";
        let list = json("ids", &checkpoints)?;
        self.read(|connection| {
            query::all(connection, "the turns", sql, params![workspace.to_string(), list], read)
        })
    }

    /// Returns the times of the checkpoints of a workspace from a place on, in commit order.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn checkpoint_times(
        &self,
        workspace: WorkspaceId,
        place: u64,
    ) -> Result<Vec<CheckpointTime>, CatalogError> {
        let sql = "SELECT id, seq, created_at FROM checkpoints INDEXED BY checkpoints_page
                   WHERE workspace_id = ?1 AND seq >= ?2 ORDER BY seq";
        self.read(|connection| {
            let params = params![workspace.to_string(), integer("seq", place)?];
            query::all(connection, "the times of checkpoints", sql, params, |row| {
                let fields = Fields::with_id(row, "checkpoints");
                Ok(CheckpointTime {
                    place: fields.number("seq")?,
                    id: fields.parse("id")?,
                    created_at: fields.time("created_at")?,
                })
            })
        })
    }

    /// Returns the checkpoints of a workspace in commit order, each with its parent.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn checkpoint_parents(
        &self,
        workspace: WorkspaceId,
    ) -> Result<Vec<(CheckpointId, Option<CheckpointId>)>, CatalogError> {
        let sql = "SELECT id, parent FROM checkpoints INDEXED BY checkpoints_page WHERE workspace_id = ?1 ORDER BY seq";
        self.read(|connection| {
            query::all(connection, "the parents of checkpoints", sql, [workspace.to_string()], |row| {
                let fields = Fields::with_id(row, "checkpoints");
                Ok((fields.parse("id")?, fields.parse_maybe("parent")?))
            })
        })
    }

    /// Returns the open turns of a workspace, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn open_turns(&self, workspace: WorkspaceId) -> Result<Vec<Turn>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT seq AS id, * FROM turns WHERE workspace_id = ?1 AND closed_at IS NULL ORDER BY number";
            query::all(connection, "the open turns", sql, [workspace.to_string()], read)
        })
    }

    /// Returns the newest turn of a session with the id that the agent gave it.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn turn_with_key(
        &self,
        workspace: WorkspaceId,
        session: &str,
        key: &str,
    ) -> Result<Option<Turn>, CatalogError> {
        self.read(|connection| {
            let sql =
                "SELECT seq AS id, * FROM turns WHERE workspace_id = ?1 AND session_id = ?2 AND key = ?3
                       ORDER BY number DESC LIMIT 1";
            query::first(connection, "a turn", sql, params![workspace.to_string(), session, key], read)
        })
    }

    /// Returns the rollbacks of a workspace that a session was not told about yet, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hook_notes(&self, workspace: WorkspaceId, session: &str) -> Result<Vec<RollbackId>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT rollback_id AS id, rollback_id FROM hook_notes
                       JOIN rollbacks ON rollbacks.id = hook_notes.rollback_id
                       WHERE session_id = ?1 AND workspace_id = ?2 ORDER BY rollbacks.seq";
            query::all(connection, "notes for agents", sql, params![session, workspace.to_string()], |row| {
                Fields::with_id(row, "hook_notes").parse("rollback_id")
            })
        })
    }

    /// Returns true if an event with this key was recorded.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn knows_hook_event(&self, key: &str) -> Result<bool, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT key AS id FROM hook_events WHERE key = ?1";
            Ok(query::first(connection, "an event of an agent", sql, [key], |_| Ok(()))?.is_some())
        })
    }

    /// Returns the session of the newest event whose key is a session, in UUID form, and this.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn session_of_hook_event(&self, rest: &str) -> Result<Option<String>, CatalogError> {
        self.read(|connection| {
            let sql =
                "SELECT key AS id, substr(key, 1, 36) AS session FROM hook_events WHERE substr(key, 37) = ?1
                       ORDER BY at DESC LIMIT 1";
            query::first(connection, "an event of an agent", sql, [rest], |row| {
                Fields::with_id(row, "hook_events").get("session")
            })
        })
    }

    /// Returns the turns of a workspace with a number below this one, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn turns_before(
        &self,
        workspace: WorkspaceId,
        before: Option<u64>,
        limit: u64,
    ) -> Result<Vec<Turn>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT seq AS id, * FROM turns WHERE workspace_id = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3";
            let before = before.map_or(Ok(i64::MAX), |before| integer("number", before))?;
            let params = params![workspace.to_string(), before, integer("limit", limit)?];
            query::all(connection, "the turns", sql, params, read)
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

    /// Inserts a turn of another machine, unless it is here. Its number stays, if it is above all of this workspace.
    ///
    /// # Errors
    /// When the row cannot be read or written.
    pub fn restore_turn(&self, turn: &Turn) -> Result<(), CatalogError> {
        let sql =
            "SELECT seq AS id FROM turns WHERE workspace_id = ?1 AND session_id = ?2 AND opened_at = ?3";
        let params = params![turn.workspace_id.to_string(), turn.session_id, turn.opened_at.micros()];
        if query::first(self.connection, "a turn", sql, params, |_| Ok(()))?.is_some() {
            return Ok(());
        }
        let number = self.insert_turn(turn, turn.number.saturating_sub(1))?;
        self.update_turn(&Turn { number, ..turn.clone() })
    }

    /// Inserts a turn and returns its number, which is above `used` and all numbers in the catalog. The number in `turn` is
    /// ignored.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn insert_turn(&self, turn: &Turn, used: u64) -> Result<u64, CatalogError> {
        let sql = "INSERT INTO turns (workspace_id, number, agent, session_id, key, prompt, model, permission_mode, opened_at)
                   SELECT ?1, max(coalesce(max(number), 0), ?9) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM turns WHERE workspace_id = ?1";
        let params = params![
            turn.workspace_id.to_string(),
            turn.agent,
            turn.session_id,
            turn.key,
            turn.prompt,
            turn.model,
            turn.permission_mode,
            turn.opened_at.micros(),
            integer("number", used)?,
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
                   not_covered = ?8, named = ?9, tools = ?10, subagents = ?11, key = ?12, prompt = ?13, model = ?14,
                   permission_mode = ?15 WHERE workspace_id = ?1 AND number = ?2";
        let params = params![
            turn.workspace_id.to_string(),
            integer("number", turn.number)?,
            turn.closed_at.map(Timestamp::micros),
            turn.before.map(|id| id.to_string()),
            turn.after.map(|id| id.to_string()),
            integer("commands", turn.commands)?,
            turn.changes.map(|changes| json("changes", &changes)).transpose()?,
            turn.not_covered,
            json("named", &turn.named)?,
            json("tools", &turn.tools)?,
            json("subagents", &turn.subagents)?,
            turn.key,
            turn.prompt,
            turn.model,
            turn.permission_mode,
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

    /// Deletes notes for a session, once it was told.
    ///
    /// # Errors
    /// When the rows cannot be deleted.
    pub fn delete_hook_notes(&self, session: &str, rollbacks: &[RollbackId]) -> Result<(), CatalogError> {
        let sql = "DELETE FROM hook_notes WHERE session_id = ?1 AND rollback_id = ?2";
        rollbacks.iter().try_for_each(|rollback| {
            let params = params![session, rollback.to_string()];
            query::run(self.connection, "notes for agents", sql, params).map(|_| ())
        })
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
        named: fields.json("named")?,
        tools: fields.json("tools")?,
        subagents: fields.json("subagents")?,
    })
}
