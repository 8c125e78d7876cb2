//! Rollbacks: request, state and result.
//!
//! A record starts as `applying` or `refused`. `applying` becomes `done` (the commit) or `aborted`; `done`
//! becomes `settled`; no other transition is allowed. A workspace has at most one `applying` rollback.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, checkpoints, query, steps};
use rusqlite::{Connection, Row, named_params, params};
use safepoint_model::rollback::{Rescued, Rollback, RollbackState, SwapStep};
use safepoint_model::{CheckpointId, ObjectId, RelPath, RollbackId, Timestamp, WorkspaceId};
use serde_json::json;

/// Facts known at the end. An absent field keeps its recorded value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FinishFacts {
    /// Number of files and links restored or created.
    pub restored_files_count: Option<u64>,
    /// Number of files and links removed.
    pub removed_files_count: Option<u64>,
    /// Document that lists every changed path.
    pub changed_paths: Option<ObjectId>,
    /// Error, if it failed.
    pub error: Option<String>,
}

impl Catalog {
    /// Returns the workspaces with an unfinished multi-folder rollback.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unfinished_together(&self) -> Result<Vec<WorkspaceId>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT DISTINCT workspace_id AS id FROM rollbacks
                       WHERE state IN ('applying', 'done') AND together IS NOT NULL ORDER BY id";
            query::all(connection, "the multi-folder rollbacks", sql, (), |row| {
                Fields::with_id(row, "rollbacks").parse("id")
            })
        })
    }

    /// Returns a workspace of the last multi-folder rollback that was done.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_together(&self) -> Result<Option<WorkspaceId>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT workspace_id AS id FROM rollbacks
                       WHERE state IN ('applying', 'done', 'settled') AND together IS NOT NULL
                       AND NOT EXISTS (SELECT 1 FROM checkpoints c
                                       WHERE c.id = safety_checkpoint AND c.workspace_id IS NOT NULL)
                       ORDER BY seq DESC LIMIT 1";
            query::first(connection, "the multi-folder rollbacks", sql, (), |row| {
                Fields::with_id(row, "rollbacks").parse("id")
            })
        })
    }

    /// Returns the rollback with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn rollback(&self, id: RollbackId) -> Result<Option<Rollback>, CatalogError> {
        self.read(|connection| get(connection, id))
    }

    /// Returns every rollback of a workspace, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn rollbacks(&self, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
        self.read(|connection| list(connection, workspace))
    }

    /// Returns the rollbacks of a workspace that need recovery, oldest first: `applying`, or `done` and not
    /// settled.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
        self.read(|connection| unfinished(connection, workspace))
    }
}

impl Transaction<'_> {
    /// Returns the rollback with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn rollback(&self, id: RollbackId) -> Result<Option<Rollback>, CatalogError> {
        get(self.connection, id)
    }

    /// Returns every rollback of a workspace, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn rollbacks(&self, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
        list(self.connection, workspace)
    }

    /// Does the same as [`Catalog::unfinished`].
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
        unfinished(self.connection, workspace)
    }

    /// Inserts a rollback: its intent with its steps, or its refusal.
    ///
    /// # Errors
    /// When its initial state is another one, another rollback of the workspace is still `applying`, a
    /// required checkpoint is not found, or the rows cannot be written.
    pub fn insert_rollback(&self, rollback: &Rollback, steps: &[SwapStep]) -> Result<(), CatalogError> {
        let kind = match rollback.state {
            RollbackState::Applying => {
                self.may_apply(rollback)?;
                "rollback.began"
            }
            RollbackState::Refused => "rollback.refused",
            to => return Err(CatalogError::Transition { id: rollback.id, from: None, to }),
        };
        self.insert_rollback_row(rollback)?;
        steps::insert(self.connection, rollback.id, self.connection.last_insert_rowid(), steps)?;
        let payload = json!({
            "workspace_id": rollback.workspace_id,
            "verb": rollback.verb,
            "answers": rollback.answers,
            "from": rollback.from,
            "to": rollback.to,
            "safety_checkpoint": rollback.safety_checkpoint,
            "strategy": rollback.strategy,
            "actor": rollback.actor,
            "together": rollback.together,
            "parts": rollback.parts,
            "steps": steps.len(),
            "error": rollback.error,
        });
        self.append_event(rollback.created_at, kind, &rollback.id.to_string(), &payload)?;
        self.add_rescued(rollback.id, &rollback.rescued, rollback.created_at)
    }

    /// Recovery restores one old state: so only one intent is allowed, and its checkpoints must exist.
    fn may_apply(&self, rollback: &Rollback) -> Result<(), CatalogError> {
        let other = unfinished(self.connection, rollback.workspace_id)?
            .into_iter()
            .find(|other| other.state == RollbackState::Applying);
        if let Some(other) = other {
            return Err(CatalogError::Unfinished { workspace: rollback.workspace_id, rollback: other.id });
        }
        checkpoints::must_exist(self.connection, rollback.to)?;
        rollback.safety_checkpoint.map_or(Ok(()), |id| checkpoints::must_exist(self.connection, id))
    }

    fn insert_rollback_row(&self, rollback: &Rollback) -> Result<(), CatalogError> {
        query::run(
            self.connection,
            format_args!("rollback {}", rollback.id),
            "INSERT INTO rollbacks (id, workspace_id, verb, answers, from_checkpoint, to_checkpoint,
                safety_checkpoint, strategy, paths, state, created_at, finished_at, actor, restored_files_count,
                removed_files_count, changed_paths, error, together, parts)
             VALUES (:id, :workspace_id, :verb, :answers, :from, :to, :safety, :strategy, :paths, :state,
                :created_at, :finished_at, :actor, :restored, :removed, :changed_paths, :error, :together, :parts)",
            named_params! {
                ":id": rollback.id.to_string(),
                ":workspace_id": rollback.workspace_id.to_string(),
                ":verb": rollback.verb.as_str(),
                ":answers": rollback.answers.map(|id| id.to_string()),
                ":from": rollback.from.map(|id| id.to_string()),
                ":to": rollback.to.to_string(),
                ":safety": rollback.safety_checkpoint.map(|id| id.to_string()),
                ":strategy": rollback.strategy.as_str(),
                ":paths": json("paths", &rollback.paths)?,
                ":state": rollback.state.as_str(),
                ":created_at": rollback.created_at.micros(),
                ":finished_at": rollback.finished_at.map(Timestamp::micros),
                ":actor": rollback.actor,
                ":restored": integer("restored_files_count", rollback.restored_files_count)?,
                ":removed": integer("removed_files_count", rollback.removed_files_count)?,
                ":changed_paths": rollback.changed_paths.as_ref().map(|hash| hash.as_bytes()),
                ":error": rollback.error,
                ":together": rollback.together.map(|id| id.to_string()),
                ":parts": json("parts", &rollback.parts)?,
            },
        )?;
        Ok(())
    }

    /// Changes the state of a rollback. `at` becomes its end time, except when it settles: it ended before.
    ///
    /// # Errors
    /// When the rollback is not found, the transition is not allowed, or the row cannot be written.
    pub fn finish_rollback(
        &self,
        id: RollbackId,
        state: RollbackState,
        at: Timestamp,
        facts: &FinishFacts,
    ) -> Result<(), CatalogError> {
        let from = self.rollback_state(id)?;
        let kind = match (from, state) {
            (RollbackState::Applying, RollbackState::Done) => "rollback.done",
            (RollbackState::Applying, RollbackState::Aborted) => "rollback.aborted",
            (RollbackState::Done, RollbackState::Settled) => "rollback.settled",
            (from, to) => return Err(CatalogError::Transition { id, from: Some(from), to }),
        };
        let count = |what, number: Option<u64>| number.map(|number| integer(what, number)).transpose();
        query::run(
            self.connection,
            format_args!("rollback {id}"),
            "UPDATE rollbacks SET state = :state,
                finished_at = CASE :state WHEN 'settled' THEN finished_at ELSE :at END,
                restored_files_count = coalesce(:restored, restored_files_count),
                removed_files_count = coalesce(:removed, removed_files_count),
                changed_paths = coalesce(:changed_paths, changed_paths),
                error = coalesce(:error, error)
             WHERE id = :id",
            named_params! {
                ":id": id.to_string(),
                ":state": state.as_str(),
                ":at": at.micros(),
                ":restored": count("restored_files_count", facts.restored_files_count)?,
                ":removed": count("removed_files_count", facts.removed_files_count)?,
                ":changed_paths": facts.changed_paths.as_ref().map(|hash| hash.as_bytes()),
                ":error": facts.error,
            },
        )?;
        if cfg!(debug_assertions) {
            assert_eq!(self.rollback_state(id)?, state, "the state of rollback {id}");
        }
        let payload = json!({
            "restored_files_count": facts.restored_files_count,
            "removed_files_count": facts.removed_files_count,
            "changed_paths": facts.changed_paths,
            "error": facts.error,
        });
        self.append_event(at, kind, &id.to_string(), &payload)
    }

    /// Deletes an aborted rollback: a probe of a search. A rollback with rescued edits stays, because it
    /// names their origin.
    ///
    /// # Errors
    /// When the rollback is not found, it is in another state, or the rows cannot be written.
    pub fn forget_rollback(&self, id: RollbackId, at: Timestamp) -> Result<(), CatalogError> {
        match self.rollback_state(id)? {
            RollbackState::Aborted if rescued(self.connection, id)?.is_empty() => {}
            RollbackState::Aborted => return Ok(()),
            state => return Err(CatalogError::Transition { id, from: Some(state), to: state }),
        }
        for sql in [
            "DELETE FROM rollback_steps WHERE rollback_seq = (SELECT seq FROM rollbacks WHERE id = ?1)",
            "DELETE FROM rollbacks WHERE id = ?1",
        ] {
            query::run(self.connection, format_args!("rollback {id}"), sql, [id.to_string()])?;
        }
        self.append_event(at, "rollback.forgotten", &id.to_string(), &json!({}))
    }

    /// Adds rescued edits to those already recorded.
    ///
    /// # Errors
    /// When the rollback is not found, or the rows cannot be written.
    pub fn add_rescued(
        &self,
        id: RollbackId,
        rescued: &[Rescued],
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        self.rollback_state(id)?;
        for one in rescued {
            query::run(
                self.connection,
                format_args!("the edits rescued by rollback {id}"),
                "INSERT INTO rescued (rollback_id, position, path, checkpoint_id, why)
                 SELECT ?1, coalesce(max(position) + 1, 0), ?2, ?3, ?4 FROM rescued WHERE rollback_id = ?1",
                params![id.to_string(), one.path.as_bytes(), one.checkpoint.to_string(), one.why],
            )?;
            let payload = json!({ "path": one.path, "checkpoint": one.checkpoint, "why": one.why });
            self.append_event(at, "rollback.rescued", &id.to_string(), &payload)?;
        }
        Ok(())
    }

    /// Returns the state of an existing rollback.
    pub(crate) fn rollback_state(&self, id: RollbackId) -> Result<RollbackState, CatalogError> {
        let sql = "SELECT id, state FROM rollbacks WHERE id = ?1";
        query::first(self.connection, format_args!("rollback {id}"), sql, [id.to_string()], |row| {
            Fields::with_id(row, "rollbacks").parse("state")
        })?
        .ok_or_else(|| CatalogError::missing("rollback", id))
    }
}

fn get(connection: &Connection, id: RollbackId) -> Result<Option<Rollback>, CatalogError> {
    let sql = "SELECT * FROM rollbacks WHERE id = ?1";
    query::first(connection, format_args!("rollback {id}"), sql, [id.to_string()], |row| {
        read(connection, row)
    })
}

fn list(connection: &Connection, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
    let what = format_args!("the rollbacks of workspace {workspace}");
    let sql = "SELECT * FROM rollbacks WHERE workspace_id = ?1 ORDER BY seq";
    query::all(connection, what, sql, [workspace.to_string()], |row| read(connection, row))
}

fn unfinished(connection: &Connection, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
    let what = format_args!("the unfinished rollbacks of workspace {workspace}");
    let sql =
        "SELECT * FROM rollbacks WHERE state IN ('applying', 'done') AND workspace_id = ?1 ORDER BY seq";
    query::all(connection, what, sql, [workspace.to_string()], |row| read(connection, row))
}

/// Returns an unfinished rollback that names this checkpoint.
pub(crate) fn unfinished_with(
    connection: &Connection,
    id: CheckpointId,
) -> Result<Option<RollbackId>, CatalogError> {
    let what = format_args!("the rollbacks that need checkpoint {id}");
    let sql = "SELECT id FROM rollbacks WHERE state IN ('applying', 'done')
          AND (?1 IN (from_checkpoint, to_checkpoint, safety_checkpoint)
               OR EXISTS (SELECT 1 FROM rescued WHERE rollback_id = rollbacks.id AND checkpoint_id = ?1))";
    query::first(connection, what, sql, [id.to_string()], |row| Fields::with_id(row, "rollbacks").parse("id"))
}

fn read(connection: &Connection, row: &Row<'_>) -> Result<Rollback, CatalogError> {
    let fields = Fields::with_id(row, "rollbacks");
    let id = fields.parse("id")?;
    Ok(Rollback {
        id,
        workspace_id: fields.parse("workspace_id")?,
        together: fields.parse_maybe("together")?,
        verb: fields.parse("verb")?,
        answers: fields.parse_maybe("answers")?,
        from: fields.parse_maybe("from_checkpoint")?,
        to: fields.parse("to_checkpoint")?,
        safety_checkpoint: fields.parse_maybe("safety_checkpoint")?,
        strategy: fields.parse("strategy")?,
        parts: fields.json("parts")?,
        paths: fields.json("paths")?,
        state: fields.parse("state")?,
        created_at: fields.time("created_at")?,
        finished_at: fields.time_maybe("finished_at")?,
        actor: fields.get("actor")?,
        restored_files_count: fields.number("restored_files_count")?,
        removed_files_count: fields.number("removed_files_count")?,
        changed_paths: fields.hash_maybe("changed_paths")?,
        rescued: rescued(connection, id)?,
        error: fields.get("error")?,
    })
}

fn rescued(connection: &Connection, id: RollbackId) -> Result<Vec<Rescued>, CatalogError> {
    let what = format_args!("the edits rescued by rollback {id}");
    let sql = "SELECT * FROM rescued WHERE rollback_id = ?1 ORDER BY position";
    query::all(connection, what, sql, [id.to_string()], |row| {
        let fields = Fields::new(row, "rescued", id);
        let path = fields.get::<Vec<u8>>("path")?;
        Ok(Rescued {
            path: RelPath::new(path).map_err(|error| fields.damaged("path", error))?,
            checkpoint: fields.parse("checkpoint_id")?,
            why: fields.get("why")?,
        })
    })
}
