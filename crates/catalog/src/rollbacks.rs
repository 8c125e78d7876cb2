//! Rollbacks: what was asked, where it stands, and how it ended.
//!
//! A record is born `applying` or `refused`. `applying` becomes `done` (the commit) or `aborted`; `done` becomes
//! `settled`; nothing else changes. A workspace has at most one that is `applying`.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, checkpoints, query, steps};
use rusqlite::{Connection, Row, named_params, params};
use safepoint_model::rollback::{Rescued, Rollback, RollbackState, Step};
use safepoint_model::{CheckpointId, ObjectId, RelPath, RollbackId, Timestamp, WorkspaceId};
use serde_json::json;

/// What is known at the end. What is left out stays as it is on record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FinishFacts {
    /// Files and links that were put back or made.
    pub restored_files_count: Option<u64>,
    /// Files and links that were taken away.
    pub removed_files_count: Option<u64>,
    /// The document that lists every changed path.
    pub changed_paths: Option<ObjectId>,
    /// Why it failed, for one that did.
    pub error: Option<String>,
}

impl Catalog {
    /// The workspaces in which a rollback that goes together with others is not finished.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unfinished_together(&self) -> Result<Vec<WorkspaceId>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT DISTINCT workspace_id AS id FROM rollbacks
                       WHERE state IN ('applying', 'done') AND together IS NOT NULL ORDER BY id";
            query::all(connection, "the rollbacks of many", sql, (), |row| {
                Fields::with_id(row, "rollbacks").parse("id")
            })
        })
    }

    /// A workspace of the last rollback that went together with others and was carried out.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_together(&self) -> Result<Option<WorkspaceId>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT workspace_id AS id FROM rollbacks
                       WHERE state IN ('applying', 'done', 'settled') AND together IS NOT NULL
                       ORDER BY seq DESC LIMIT 1";
            query::first(connection, "the rollbacks of many", sql, (), |row| {
                Fields::with_id(row, "rollbacks").parse("id")
            })
        })
    }

    /// The rollback with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn rollback(&self, id: RollbackId) -> Result<Option<Rollback>, CatalogError> {
        self.read(|connection| get(connection, id))
    }

    /// Every rollback of a workspace, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn rollbacks(&self, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
        self.read(|connection| list(connection, workspace))
    }

    /// The rollbacks of a workspace that recovery must look at, oldest first: `applying`, or `done` and not settled.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
        self.read(|connection| unfinished(connection, workspace))
    }
}

impl Transaction<'_> {
    /// The rollback with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn rollback(&self, id: RollbackId) -> Result<Option<Rollback>, CatalogError> {
        get(self.connection, id)
    }

    /// Every rollback of a workspace, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn rollbacks(&self, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
        list(self.connection, workspace)
    }

    /// As [`Catalog::unfinished`].
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Rollback>, CatalogError> {
        unfinished(self.connection, workspace)
    }

    /// Records the intent of a rollback with its steps, or that one was refused.
    ///
    /// # Errors
    /// When it is born in another state, another one of the workspace is still `applying`, a checkpoint that it
    /// needs is not on record, or the rows cannot be written.
    pub fn insert_rollback(&self, rollback: &Rollback, steps: &[Step]) -> Result<(), CatalogError> {
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

    /// Recovery goes back to one old state: so there is one intent at a time, and its checkpoints are on record.
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

    /// Moves a rollback on. `at` becomes the moment it ended, except when it settles: that ended before.
    ///
    /// # Errors
    /// When there is no such rollback, it cannot go from its state to this one, or the row cannot be written.
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
        let payload = json!({
            "restored_files_count": facts.restored_files_count,
            "removed_files_count": facts.removed_files_count,
            "changed_paths": facts.changed_paths,
            "error": facts.error,
        });
        self.append_event(at, kind, &id.to_string(), &payload)
    }

    /// Takes a rollback that was put back off the record: a probe of a search. One that rescued edits stays, because it says whose they are.
    ///
    /// # Errors
    /// When there is no such rollback, it is in another state, or the rows cannot be written.
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

    /// Records edits that were found meanwhile, after those that are on record.
    ///
    /// # Errors
    /// When there is no such rollback, or the rows cannot be written.
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
                format_args!("what rollback {id} rescued"),
                "INSERT INTO rescued (rollback_id, position, path, checkpoint_id, why)
                 SELECT ?1, coalesce(max(position) + 1, 0), ?2, ?3, ?4 FROM rescued WHERE rollback_id = ?1",
                params![id.to_string(), one.path.as_bytes(), one.checkpoint.to_string(), one.why],
            )?;
            let payload = json!({ "path": one.path, "checkpoint": one.checkpoint, "why": one.why });
            self.append_event(at, "rollback.rescued", &id.to_string(), &payload)?;
        }
        Ok(())
    }

    /// The state of a rollback that must be on record.
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

/// A rollback that is not finished and names this checkpoint.
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
    let what = format_args!("what rollback {id} rescued");
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
