//! Checkpoints as records of the model.
//!
//! `seq` grows with every insert and is never reused: it is the commit order.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, attempts, query, rollbacks, runs};
use rusqlite::{Connection, Row, named_params, params};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::session::SessionCount;
use safepoint_model::{CheckpointId, ObjectId, Timestamp, WorkspaceId};
use safepoint_planted::planted;
use serde_json::json;

/// Pin state of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// Never pruned.
    Yes,
    /// May be pruned.
    No,
}

/// A part, as a checkpoint holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPart {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The workspace of the checkpoint; nothing for one of several folders.
    pub workspace_id: Option<WorkspaceId>,
    /// The document.
    pub document: ObjectId,
}

impl Catalog {
    /// Returns the checkpoint with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn checkpoint(&self, id: CheckpointId) -> Result<Option<Checkpoint>, CatalogError> {
        self.read(|connection| get(connection, id))
    }

    /// Returns the position of a checkpoint, or of the last one without an id, in commit order; `None` if it
    /// is not found.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn checkpoint_order(&self, id: Option<CheckpointId>) -> Result<Option<u64>, CatalogError> {
        let sql = "SELECT seq FROM checkpoints WHERE ?1 IS NULL OR id = ?1 ORDER BY seq DESC LIMIT 1";
        let id = id.map(|id| id.to_string());
        self.read(|connection| {
            query::first(connection, "the order of checkpoints", sql, params![id], |row| {
                Fields::new(row, "checkpoints", "order").number("seq")
            })
        })
    }

    /// Newest checkpoint that holds a part of this kind and key. One that Safepoint made for itself counts where no other does.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn newest_with_part(&self, kind: PartKind, key: &str) -> Result<Option<CheckpointId>, CatalogError> {
        let sql = "SELECT c.id AS id FROM checkpoint_parts p JOIN checkpoints c ON c.id = p.checkpoint_id
                   WHERE p.kind = ?1 AND p.key = ?2 ORDER BY c.role IS NOT NULL, c.seq DESC LIMIT 1";
        let params = params![kind.as_str(), key];
        self.read(|connection| {
            query::first(connection, "the newest checkpoint with a part", sql, params, |row| {
                Fields::with_id(row, "checkpoints").parse("id")
            })
        })
    }

    /// Versions of a part in this checkpoint and later ones, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn parts_since(
        &self,
        from: CheckpointId,
        kind: PartKind,
        key: &str,
    ) -> Result<Vec<HeldPart>, CatalogError> {
        let sql = "SELECT c.id AS id, c.workspace_id AS workspace_id, p.document AS document
                   FROM checkpoint_parts p JOIN checkpoints c ON c.id = p.checkpoint_id
                   WHERE p.kind = ?2 AND p.key = ?3
                   AND c.seq >= (SELECT seq FROM checkpoints WHERE id = ?1) ORDER BY c.seq DESC";
        let params = params![from.to_string(), kind.as_str(), key];
        self.read(|connection| {
            query::all(connection, "the parts of checkpoints", sql, params, |row| {
                let fields = Fields::with_id(row, "checkpoint_parts");
                Ok(HeldPart {
                    checkpoint: fields.parse("id")?,
                    workspace_id: fields.parse_maybe("workspace_id")?,
                    document: fields.hash("document")?,
                })
            })
        })
    }
}

impl Transaction<'_> {
    /// Returns the checkpoint with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn checkpoint(&self, id: CheckpointId) -> Result<Option<Checkpoint>, CatalogError> {
        get(self.connection, id)
    }

    /// Inserts a checkpoint, and counts it for its session. Every object that it names must be durable.
    ///
    /// # Errors
    /// When the id is taken, the workspace is unknown, or the row cannot be written.
    pub fn insert_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), CatalogError> {
        self.restore_checkpoint(checkpoint)?;
        match &checkpoint.session_id {
            Some(session) => self.count_session(session, SessionCount::Checkpoint, checkpoint.created_at),
            None => Ok(()),
        }
    }

    /// Makes a checkpoint the newest one: a rebuild puts all of them into commit order.
    ///
    /// # Errors
    /// When the checkpoint is not found, or the row cannot be written.
    pub fn move_checkpoint_last(&self, id: CheckpointId) -> Result<(), CatalogError> {
        let changed = query::run(
            self.connection,
            format_args!("checkpoint {id}"),
            "UPDATE checkpoints SET seq = (SELECT max(seq) + 1 FROM checkpoints) WHERE id = ?1",
            params![id.to_string()],
        )?;
        match changed {
            0 => Err(CatalogError::missing("checkpoint", id)),
            _ => Ok(()),
        }
    }

    /// Inserts a checkpoint that was recorded before: it is not counted for its session again.
    ///
    /// # Errors
    /// As for [`Transaction::insert_checkpoint`].
    pub fn restore_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), CatalogError> {
        self.insert_row(checkpoint)?;
        for (position, part) in (0i64..).zip(&checkpoint.parts) {
            query::run(
                self.connection,
                format_args!("checkpoint {}", checkpoint.id),
                "INSERT INTO checkpoint_parts (checkpoint_id, position, kind, key, document)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    checkpoint.id.to_string(),
                    position,
                    part.kind.as_str(),
                    part.key,
                    part.document.as_bytes()
                ],
            )?;
        }
        let payload = json!({
            "workspace_id": checkpoint.workspace_id,
            "label": checkpoint.label,
            "kind": checkpoint.kind,
            "reason": checkpoint.reason,
            "role": checkpoint.role,
            "plan_id": checkpoint.plan_id,
            "session_id": checkpoint.session_id,
            "parent": checkpoint.parent,
            "integrity": checkpoint.integrity,
        });
        self.append_event(checkpoint.created_at, "checkpoint.created", &checkpoint.id.to_string(), &payload)
    }

    fn insert_row(&self, checkpoint: &Checkpoint) -> Result<(), CatalogError> {
        query::run(
            self.connection,
            format_args!("checkpoint {}", checkpoint.id),
            "INSERT INTO checkpoints (id, workspace_id, created_at, label, kind, reason, scope, phase, role, plan_id,
                session_id, step_index, state_hash, state_snapshot, progress, sandbox_ref, source_tool, decision_id,
                commit_sha, commit_message, tags, pinned, rollback_used, rollback_count, size_bytes, files, parent,
                integrity, warnings, metrics, event)
             VALUES (:id, :workspace_id, :created_at, :label, :kind, :reason, :scope, :phase, :role, :plan_id,
                :session_id, :step_index, :state_hash, :state_snapshot, :progress, :sandbox_ref, :source_tool,
                :decision_id, :commit_sha, :commit_message, :tags, :pinned, :rollback_used, :rollback_count,
                :size_bytes, :files, :parent, :integrity, :warnings, :metrics, (SELECT seq + 1 FROM event_head))",
            named_params! {
                ":id": checkpoint.id.to_string(),
                ":workspace_id": checkpoint.workspace_id.map(|id| id.to_string()),
                ":created_at": checkpoint.created_at.micros(),
                ":label": checkpoint.label,
                ":kind": checkpoint.kind.as_str(),
                ":reason": checkpoint.reason.as_str(),
                ":scope": checkpoint.scope.as_str(),
                ":phase": checkpoint.phase.map(|phase| phase.as_str()),
                ":role": checkpoint.role.map(|role| role.as_str()),
                ":plan_id": checkpoint.plan_id,
                ":session_id": checkpoint.session_id,
                ":step_index": checkpoint.step_index.map(|index| integer("step_index", index)).transpose()?,
                ":state_hash": checkpoint.state_hash.as_ref().map(|hash| hash.as_bytes()),
                ":state_snapshot": checkpoint.state_snapshot.as_ref().map(|hash| hash.as_bytes()),
                ":progress": json("progress", &checkpoint.progress)?,
                ":sandbox_ref": checkpoint.sandbox_ref,
                ":source_tool": checkpoint.source_tool,
                ":decision_id": checkpoint.decision_id,
                ":commit_sha": checkpoint.commit_sha,
                ":commit_message": checkpoint.commit_message,
                ":tags": json("tags", &checkpoint.tags)?,
                ":pinned": checkpoint.pinned,
                ":rollback_used": checkpoint.rollback_used,
                ":rollback_count": integer("rollback_count", checkpoint.rollback_count)?,
                ":size_bytes": integer("size_bytes", checkpoint.size_bytes)?,
                ":files": json("files", &checkpoint.files)?,
                ":parent": checkpoint.parent.map(|id| id.to_string()),
                ":integrity": checkpoint.integrity.as_bytes(),
                ":warnings": json("warnings", &checkpoint.warnings)?,
                ":metrics": json("metrics", &checkpoint.metrics)?,
            },
        )?;
        Ok(())
    }

    /// Pins or unpins a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint is not found, or the row cannot be written.
    pub fn set_pinned(&self, id: CheckpointId, pinned: Pinned, at: Timestamp) -> Result<(), CatalogError> {
        let sql = "UPDATE checkpoints SET pinned = ?2 WHERE id = ?1";
        self.change(id, sql, params![id.to_string(), pinned == Pinned::Yes])?;
        self.renew_record(id)?;
        let kind = match pinned {
            Pinned::Yes => "checkpoint.pinned",
            Pinned::No => "checkpoint.unpinned",
        };
        self.append_event(at, kind, &id.to_string(), &json!({}))
    }

    /// Records the git commit of a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint is not found, or the row cannot be written.
    pub fn set_commit(
        &self,
        id: CheckpointId,
        sha: &str,
        message: &str,
        tags: &[String],
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let sql = "UPDATE checkpoints SET commit_sha = ?2, commit_message = ?3, tags = ?4 WHERE id = ?1";
        self.change(id, sql, params![id.to_string(), sha, message, json("tags", &tags)?])?;
        self.renew_record(id)?;
        self.append_event(
            at,
            "checkpoint.committed",
            &id.to_string(),
            &json!({ "commit_sha": sha, "tags": tags }),
        )
    }

    /// Counts a rollback to this checkpoint. The event of the rollback covers this, too.
    ///
    /// # Errors
    /// When the checkpoint is not found, or the row cannot be written.
    pub fn count_rollback(&self, id: CheckpointId) -> Result<(), CatalogError> {
        let sql =
            "UPDATE checkpoints SET rollback_used = 1, rollback_count = rollback_count + 1 WHERE id = ?1";
        self.change(id, sql, [id.to_string()])
    }

    /// Deletes a checkpoint; a workspace at it moves to its parent, if any. Rollbacks and events still name
    /// it.
    ///
    /// # Errors
    /// When the checkpoint is not found, an unfinished rollback may need it, or the row cannot be written.
    pub fn delete_checkpoint(&self, id: CheckpointId, at: Timestamp) -> Result<(), CatalogError> {
        if let Some(rollback) = rollbacks::unfinished_with(self.connection, id)?
            && !planted!("catalog-deletes-what-is-needed")
        {
            return Err(CatalogError::Needed { checkpoint: id, rollback });
        }
        if let Some(plan) = runs::sandbox_from(self.connection, id)? {
            return Err(CatalogError::SandboxBase { checkpoint: id, plan });
        }
        if let Some(attempt) = attempts::needing(self.connection, id)? {
            return Err(CatalogError::AttemptNeeds { checkpoint: id, attempt });
        }
        // A workspace that was at it is now closest to its parent.
        let sql = "UPDATE workspaces SET head = (SELECT parent FROM checkpoints c WHERE c.id = ?1
                       AND EXISTS (SELECT 1 FROM checkpoints p WHERE p.id = c.parent))
                   WHERE head = ?1";
        query::run(
            self.connection,
            format_args!("the workspaces at checkpoint {id}"),
            sql,
            [id.to_string()],
        )?;
        self.renew_record(id)?;
        self.change(id, "DELETE FROM checkpoints WHERE id = ?1", [id.to_string()])?;
        self.bury(id, None)?;
        self.count_deleted()?;
        self.append_event(at, "checkpoint.deleted", &id.to_string(), &json!({}))
    }

    fn change(
        &self,
        id: CheckpointId,
        sql: &'static str,
        params: impl rusqlite::Params,
    ) -> Result<(), CatalogError> {
        match query::run(self.connection, format_args!("checkpoint {id}"), sql, params)? {
            0 => Err(CatalogError::missing("checkpoint", id)),
            _ => Ok(()),
        }
    }
}

pub(crate) fn get(connection: &Connection, id: CheckpointId) -> Result<Option<Checkpoint>, CatalogError> {
    let what = format_args!("checkpoint {id}");
    let sql = "SELECT * FROM checkpoints WHERE id = ?1";
    query::first(connection, what, sql, [id.to_string()], |row| read(connection, row))
}

/// Fails unless the checkpoint exists.
pub(crate) fn must_exist(connection: &Connection, id: CheckpointId) -> Result<(), CatalogError> {
    let what = format_args!("checkpoint {id}");
    let sql = "SELECT 1 FROM checkpoints WHERE id = ?1";
    query::first(connection, what, sql, [id.to_string()], |_| Ok(()))?
        .ok_or_else(|| CatalogError::missing("checkpoint", id))
}

/// Reads a row of `checkpoints` with its parts.
pub(crate) fn read(connection: &Connection, row: &Row<'_>) -> Result<Checkpoint, CatalogError> {
    let fields = Fields::with_id(row, "checkpoints");
    let id = fields.parse("id")?;
    Ok(Checkpoint {
        id,
        workspace_id: fields.parse_maybe("workspace_id")?,
        created_at: fields.time("created_at")?,
        label: fields.get("label")?,
        kind: fields.parse("kind")?,
        reason: fields.parse("reason")?,
        scope: fields.parse("scope")?,
        phase: fields.parse_maybe("phase")?,
        role: fields.parse_maybe("role")?,
        plan_id: fields.get("plan_id")?,
        session_id: fields.get("session_id")?,
        step_index: fields.number_maybe("step_index")?,
        state_hash: fields.hash_maybe("state_hash")?,
        state_snapshot: fields.hash_maybe("state_snapshot")?,
        progress: fields.json("progress")?,
        sandbox_ref: fields.get("sandbox_ref")?,
        source_tool: fields.get("source_tool")?,
        decision_id: fields.get("decision_id")?,
        commit_sha: fields.get("commit_sha")?,
        commit_message: fields.get("commit_message")?,
        tags: fields.json("tags")?,
        pinned: fields.flag("pinned")?,
        rollback_used: fields.flag("rollback_used")?,
        rollback_count: fields.number("rollback_count")?,
        size_bytes: fields.number("size_bytes")?,
        files: fields.json("files")?,
        parent: fields.parse_maybe("parent")?,
        integrity: fields.hash("integrity")?,
        parts: parts(connection, id)?,
        warnings: fields.json("warnings")?,
        metrics: fields.json("metrics")?,
    })
}

fn parts(connection: &Connection, id: CheckpointId) -> Result<Vec<PartRecord>, CatalogError> {
    let what = format_args!("the parts of checkpoint {id}");
    let sql = "SELECT * FROM checkpoint_parts WHERE checkpoint_id = ?1 ORDER BY position";
    query::all(connection, what, sql, [id.to_string()], |row| {
        let fields = Fields::new(row, "checkpoint_parts", id);
        Ok(PartRecord {
            kind: fields.parse("kind")?,
            key: fields.get("key")?,
            document: fields.hash("document")?,
        })
    })
}
