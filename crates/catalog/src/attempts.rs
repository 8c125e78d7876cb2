//! Attempts, and metrics that wait for a checkpoint.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::attempt::{Attempt, AttemptRun, AttemptState};
use safepoint_model::id::AttemptId;
use safepoint_model::{CheckpointId, Timestamp, WorkspaceId};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

impl Catalog {
    /// Returns the attempts of a project, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn attempts(&self, project: WorkspaceId) -> Result<Vec<Attempt>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM attempts WHERE workspace_id = ?1 ORDER BY seq";
            query::all(connection, "the attempts", sql, [project.to_string()], read)
        })
    }

    /// Returns the attempts whose rooms exist or may exist, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn attempts_with_rooms(&self) -> Result<Vec<Attempt>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM attempts WHERE is_removed = 0 ORDER BY seq";
            query::all(connection, "the attempts", sql, (), read)
        })
    }

    /// Returns the attempt with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, CatalogError> {
        self.read(|connection| get(connection, id))
    }

    /// Returns the attempt with this workspace of its own.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn attempt_at(&self, place: WorkspaceId) -> Result<Option<Attempt>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM attempts WHERE place_id = ?1";
            query::first(connection, format_args!("workspace {place}"), sql, [place.to_string()], read)
        })
    }

    /// Returns the metrics that wait for the next checkpoint of a workspace.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn waiting_metrics(&self, workspace: WorkspaceId) -> Result<BTreeMap<String, f64>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT name AS id, value FROM metrics WHERE workspace_id = ?1";
            let all = query::all(connection, "the metrics", sql, [workspace.to_string()], |row| {
                let fields = Fields::with_id(row, "metrics");
                Ok((fields.get::<String>("id")?, fields.get::<f64>("value")?))
            })?;
            Ok(all.into_iter().collect())
        })
    }
}

impl Transaction<'_> {
    /// Returns the attempt with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, CatalogError> {
        get(self.connection, id)
    }

    /// Inserts an attempt and returns its number. The number in `attempt` is ignored; an empty name becomes `try-` and the number.
    ///
    /// # Errors
    /// When an open attempt of the project has the name, or the row cannot be written.
    pub fn insert_attempt(&self, attempt: &Attempt) -> Result<u64, CatalogError> {
        let sql = "SELECT coalesce(max(number), 0) + 1 AS id FROM attempts WHERE workspace_id = ?1";
        let number =
            query::first(self.connection, "an attempt", sql, [attempt.workspace_id.to_string()], |row| {
                Fields::with_id(row, "attempts").number("id")
            })?;
        let number = number.unwrap_or(1);
        let sql = "INSERT INTO attempts (id, workspace_id, place_id, number, name, kind, room, state, base, result, run, created_at)
                   VALUES (?1, ?2, ?3, ?4, iif(?5 = '', 'try-' || ?4, ?5), ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        let params = params![
            attempt.id.to_string(),
            attempt.workspace_id.to_string(),
            attempt.place_id.to_string(),
            integer("number", number)?,
            attempt.name,
            attempt.kind.as_str(),
            attempt.room.as_os_str().as_bytes(),
            attempt.state.as_str(),
            attempt.base.to_string(),
            attempt.result.map(|id| id.to_string()),
            json("run", &attempt.run)?,
            attempt.created_at.micros(),
        ];
        query::run(self.connection, format_args!("attempt {}", attempt.name), sql, params)?;
        let payload =
            json!({ "workspace": attempt.workspace_id, "name": attempt.name, "kind": attempt.kind });
        self.append_event(attempt.created_at, "attempt.started", &attempt.id.to_string(), &payload)?;
        Ok(number)
    }

    /// Returns true if an open attempt of a project has this name.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn has_open_attempt(&self, project: WorkspaceId, name: &str) -> Result<bool, CatalogError> {
        let sql = "SELECT id FROM attempts WHERE workspace_id = ?1 AND name = ?2 AND state = 'open'";
        let params = params![project.to_string(), name];
        Ok(query::first(self.connection, "the attempts", sql, params, |_| Ok(()))?.is_some())
    }

    /// Updates the last command of an attempt, and the checkpoint of its result.
    ///
    /// # Errors
    /// When it is missing, or the row cannot be written.
    pub fn update_attempt(
        &self,
        id: AttemptId,
        run: &AttemptRun,
        result: Option<CheckpointId>,
    ) -> Result<(), CatalogError> {
        let sql = "UPDATE attempts SET run = ?2, result = coalesce(?3, result) WHERE id = ?1";
        let params = params![id.to_string(), json("run", run)?, result.map(|id| id.to_string())];
        self.change_attempt(id, sql, params)
    }

    /// Closes an attempt.
    ///
    /// # Errors
    /// When it is missing, or the row cannot be written.
    pub fn close_attempt(
        &self,
        id: AttemptId,
        state: AttemptState,
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let sql = "UPDATE attempts SET state = ?2, closed_at = ?3 WHERE id = ?1";
        self.change_attempt(id, sql, params![id.to_string(), state.as_str(), at.micros()])?;
        self.append_event(at, "attempt.closed", &id.to_string(), &json!({ "state": state }))
    }

    /// Records that the room of an attempt is deleted.
    ///
    /// # Errors
    /// When it is missing, or the row cannot be written.
    pub fn note_room_removed(&self, id: AttemptId) -> Result<(), CatalogError> {
        let sql = "UPDATE attempts SET is_removed = 1 WHERE id = ?1";
        self.change_attempt(id, sql, params![id.to_string()])
    }

    fn change_attempt(
        &self,
        id: AttemptId,
        sql: &'static str,
        params: impl rusqlite::Params,
    ) -> Result<(), CatalogError> {
        match query::run(self.connection, format_args!("attempt {id}"), sql, params)? {
            0 => Err(CatalogError::missing("attempt", id)),
            _ => Ok(()),
        }
    }

    /// Notes a metric for the next checkpoint of a workspace. A later value replaces an earlier one.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn note_metric(&self, workspace: WorkspaceId, name: &str, value: f64) -> Result<(), CatalogError> {
        let sql = "INSERT OR REPLACE INTO metrics (workspace_id, name, value) VALUES (?1, ?2, ?3)";
        query::run(self.connection, "a metric", sql, params![workspace.to_string(), name, value]).map(drop)
    }

    /// Removes metrics that a checkpoint has taken. A value that changed since waits for the next.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn take_metrics(
        &self,
        workspace: WorkspaceId,
        taken: &BTreeMap<String, f64>,
    ) -> Result<(), CatalogError> {
        let sql = "DELETE FROM metrics WHERE workspace_id = ?1 AND name = ?2 AND value = ?3";
        for (name, value) in taken {
            query::run(self.connection, "a metric", sql, params![workspace.to_string(), name, value])?;
        }
        Ok(())
    }
}

/// Returns the open attempt that needs a checkpoint.
pub(crate) fn needing(
    connection: &Connection,
    checkpoint: CheckpointId,
) -> Result<Option<String>, CatalogError> {
    let sql = "SELECT name AS id FROM attempts WHERE state = 'open' AND (base = ?1 OR result = ?1)";
    let what = format_args!("the attempts that need checkpoint {checkpoint}");
    query::first(connection, what, sql, [checkpoint.to_string()], |row| {
        Fields::with_id(row, "attempts").get("id")
    })
}

fn get(connection: &Connection, id: AttemptId) -> Result<Option<Attempt>, CatalogError> {
    let sql = "SELECT * FROM attempts WHERE id = ?1";
    query::first(connection, format_args!("attempt {id}"), sql, [id.to_string()], read)
}

fn read(row: &Row<'_>) -> Result<Attempt, CatalogError> {
    let fields = Fields::with_id(row, "attempts");
    Ok(Attempt {
        id: fields.parse("id")?,
        workspace_id: fields.parse("workspace_id")?,
        place_id: fields.parse("place_id")?,
        number: fields.number("number")?,
        name: fields.get("name")?,
        kind: fields.parse("kind")?,
        room: PathBuf::from(OsString::from_vec(fields.get("room")?)),
        state: fields.parse("state")?,
        base: fields.parse("base")?,
        result: fields.parse_maybe("result")?,
        run: fields.json("run")?,
        created_at: fields.time("created_at")?,
        closed_at: fields.time_maybe("closed_at")?,
        is_removed: fields.flag("is_removed")?,
    })
}
