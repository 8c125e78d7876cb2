//! Sessions as records of the model, and their counters.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Filter, Transaction, filter, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::id::SessionId;
use safepoint_model::session::{Session, SessionCount, SessionStatus, Statistics};
use safepoint_model::{RollbackId, Timestamp};
use serde_json::json;

impl Catalog {
    /// Returns the session with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn session(&self, id: SessionId) -> Result<Option<Session>, CatalogError> {
        self.read(|connection| get(connection, id))
    }

    /// Returns every session, or those with a status, newest first, at most `limit`.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn sessions(
        &self,
        status: Option<SessionStatus>,
        limit: Option<u64>,
    ) -> Result<Vec<Session>, CatalogError> {
        // SQLite treats a negative limit as no limit.
        let limit = limit.map_or(Ok(-1), |limit| integer("limit", limit))?;
        self.read(|connection| {
            let sql = "SELECT * FROM sessions WHERE ?1 IS NULL OR status = ?1 ORDER BY seq DESC LIMIT ?2";
            let status = status.map(SessionStatus::as_str);
            query::all(connection, "the sessions", sql, params![status, limit], read)
        })
    }

    /// Returns a session with the matching checkpoints, newest first, from one snapshot.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn session_with(
        &self,
        id: SessionId,
        filter: &Filter,
    ) -> Result<Option<(Session, Vec<Checkpoint>)>, CatalogError> {
        self.read(|connection| {
            let Some(session) = get(connection, id)? else { return Ok(None) };
            Ok(Some((session, filter::list(connection, filter)?)))
        })
    }
}

impl Transaction<'_> {
    /// Returns the session with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn session(&self, id: SessionId) -> Result<Option<Session>, CatalogError> {
        get(self.connection, id)
    }

    /// Inserts a session.
    ///
    /// # Errors
    /// When the id is taken, or the row cannot be written.
    pub fn insert_session(&self, session: &Session) -> Result<(), CatalogError> {
        let id = session.id.to_uuid();
        if self.session(session.id)?.is_some() {
            return Err(CatalogError::Taken { what: "session", id });
        }
        let sql =
            "INSERT INTO sessions (id, created_at, request, status, paused_from, configuration, git_context,
                       tasks_completed, tasks_failed, decisions_made, checkpoints_created, error_recoveries,
                       updated_at, finished_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
        self.write_session(session, sql)?;
        let payload = json!({ "request": session.request, "status": session.status });
        self.append_event(session.created_at, "session.created", &id, &payload)
    }

    /// Replaces a session. `what` names the change, for the history.
    ///
    /// # Errors
    /// When the session is not found, or the row cannot be written.
    pub fn update_session(&self, session: &Session, what: &str) -> Result<(), CatalogError> {
        self.save_session(session)?;
        let payload = json!({ "what": what });
        self.append_event(session.updated_at, "session.updated", &session.id.to_uuid(), &payload)
    }

    /// Records a status change of a session. The model decides whether it is allowed.
    ///
    /// # Errors
    /// When the session is not found, or the row cannot be written.
    pub fn transition_session(&self, session: &Session, from: SessionStatus) -> Result<(), CatalogError> {
        self.save_session(session)?;
        let payload = json!({ "from": from, "to": session.status });
        self.append_event(session.updated_at, "session.transition", &session.id.to_uuid(), &payload)
    }

    /// Records that a rollback restored a session.
    ///
    /// # Errors
    /// When the session is not found, or the row cannot be written.
    pub fn put_session_back(
        &self,
        session: &Session,
        from: SessionStatus,
        rollback: RollbackId,
    ) -> Result<(), CatalogError> {
        self.save_session(session)?;
        let payload = json!({ "from": from, "to": session.status, "rollback": rollback });
        self.append_event(session.updated_at, "session.rolled_back", &session.id.to_uuid(), &payload)
    }

    /// Deletes a session. Its checkpoints stay, and still name it.
    ///
    /// # Errors
    /// When the session is not found, or the row cannot be deleted.
    pub fn delete_session(&self, id: SessionId, at: Timestamp) -> Result<(), CatalogError> {
        let id = id.to_uuid();
        let sql = "DELETE FROM sessions WHERE id = ?1";
        if query::run(self.connection, format_args!("session {id}"), sql, [&id])? == 0 {
            return Err(CatalogError::missing("session", id));
        }
        self.append_event(at, "session.deleted", &id, &json!({}))
    }

    /// Increments a counter of a session, in the transaction of the counted change. An unknown session is
    /// ignored.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn count_session(&self, id: &str, what: SessionCount, at: Timestamp) -> Result<(), CatalogError> {
        // An invalid session id names no session.
        let Ok(id) = id.parse::<SessionId>() else { return Ok(()) };
        let id = id.to_uuid();
        let sql = match what {
            SessionCount::TaskDone => {
                "UPDATE sessions SET tasks_completed = tasks_completed + 1, updated_at = ?2 WHERE id = ?1"
            }
            SessionCount::TaskFailed => {
                "UPDATE sessions SET tasks_failed = tasks_failed + 1, updated_at = ?2 WHERE id = ?1"
            }
            SessionCount::Decision => {
                "UPDATE sessions SET decisions_made = decisions_made + 1, updated_at = ?2 WHERE id = ?1"
            }
            SessionCount::Checkpoint => {
                "UPDATE sessions SET checkpoints_created = checkpoints_created + 1, updated_at = ?2 WHERE id = ?1"
            }
            SessionCount::Recovery => {
                "UPDATE sessions SET error_recoveries = error_recoveries + 1, updated_at = ?2 WHERE id = ?1"
            }
        };
        let known = query::run(self.connection, format_args!("session {id}"), sql, params![id, at.micros()])?;
        // The event of a checkpoint names its session and covers this, too.
        if known == 0 || what == SessionCount::Checkpoint {
            return Ok(());
        }
        self.append_event(at, "session.counted", &id, &json!({ "what": what }))
    }

    fn save_session(&self, session: &Session) -> Result<(), CatalogError> {
        let sql = "UPDATE sessions SET created_at = ?2, request = ?3, status = ?4, paused_from = ?5,
                       configuration = ?6, git_context = ?7, tasks_completed = ?8, tasks_failed = ?9,
                       decisions_made = ?10, checkpoints_created = ?11, error_recoveries = ?12, updated_at = ?13,
                       finished_at = ?14
                   WHERE id = ?1";
        match self.write_session(session, sql)? {
            0 => Err(CatalogError::missing("session", session.id.to_uuid())),
            _ => Ok(()),
        }
    }

    fn write_session(&self, session: &Session, sql: &'static str) -> Result<usize, CatalogError> {
        let id = session.id.to_uuid();
        let counted = &session.statistics;
        let params = params![
            id,
            session.created_at.micros(),
            session.request,
            session.status.as_str(),
            session.paused_from.map(SessionStatus::as_str),
            json("configuration", &session.configuration)?,
            session.git_context.as_ref().map(|context| json("git_context", context)).transpose()?,
            integer("tasks_completed", counted.tasks_completed)?,
            integer("tasks_failed", counted.tasks_failed)?,
            integer("decisions_made", counted.decisions_made)?,
            integer("checkpoints_created", counted.checkpoints_created)?,
            integer("error_recoveries", counted.error_recoveries)?,
            session.updated_at.micros(),
            session.finished_at.map(Timestamp::micros),
        ];
        query::run(self.connection, format_args!("session {id}"), sql, params)
    }
}

fn get(connection: &Connection, id: SessionId) -> Result<Option<Session>, CatalogError> {
    let id = id.to_uuid();
    let what = format_args!("session {id}");
    query::first(connection, what, "SELECT * FROM sessions WHERE id = ?1", [&id], read)
}

fn read(row: &Row<'_>) -> Result<Session, CatalogError> {
    let fields = Fields::with_id(row, "sessions");
    let session = Session {
        id: fields.parse("id")?,
        request: fields.get("request")?,
        status: fields.parse("status")?,
        paused_from: fields.parse_maybe("paused_from")?,
        configuration: fields.json("configuration")?,
        git_context: match fields.get::<Option<String>>("git_context")? {
            Some(_) => Some(fields.json("git_context")?),
            None => None,
        },
        statistics: Statistics {
            tasks_completed: fields.number("tasks_completed")?,
            tasks_failed: fields.number("tasks_failed")?,
            decisions_made: fields.number("decisions_made")?,
            checkpoints_created: fields.number("checkpoints_created")?,
            error_recoveries: fields.number("error_recoveries")?,
        },
        created_at: fields.time("created_at")?,
        updated_at: fields.time("updated_at")?,
        finished_at: fields.time_maybe("finished_at")?,
    };
    let waits = session.status == SessionStatus::Paused;
    match session.paused_from {
        Some(from) if !waits || from.is_over() || from == SessionStatus::Paused => Err(fields.damaged(
            "paused_from",
            format_args!("the status is {}, not paused from {from}", session.status),
        )),
        None if waits => {
            Err(fields.damaged("paused_from", "the status is paused without a status to resume"))
        }
        _ => Ok(session),
    }
}
