//! Maintenance: objects that records need, deletions since the last collection, and purged records.

use crate::fields::{Fields, json};
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::params;
use safepoint_model::checkpoint::{PartRecord, Role, Scope, Totals};
use safepoint_model::{CheckpointId, ObjectId, Timestamp, WorkspaceId};
use serde_json::json;

/// Fields of a checkpoint that change when a path is purged.
#[derive(Debug, Clone, PartialEq)]
pub struct Purged {
    /// New root hash.
    pub integrity: ObjectId,
    /// New parts.
    pub parts: Vec<PartRecord>,
    /// New totals.
    pub files: Totals,
}

/// Checkpoint, with the fields needed for retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aged {
    /// Id of the checkpoint.
    pub id: CheckpointId,
    /// Time of creation, by the clock.
    pub created_at: Timestamp,
    /// Purpose, if Safepoint made it for itself.
    pub role: Option<Role>,
    /// True if it is never pruned.
    pub pinned: bool,
    /// Scope.
    pub scope: Scope,
    /// Plan.
    pub plan_id: Option<String>,
    /// Occasion on which it was taken.
    pub occasion: Occasion,
}

/// Occasion on which a checkpoint was taken. Retention judges each alone, so that none displaces another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occasion {
    /// On request of a person, or anything else.
    Request,
    /// Before the first change of an agent's turn, or at its end.
    Turn,
    /// Another one for an agent: before a risky command, at the start of a session or of a subagent, for its todo list.
    Agent,
}

impl Catalog {
    /// Returns true if a workspace, or the multi-folder group, has a checkpoint older than this time. The
    /// cost does not depend on their number.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn has_older(&self, workspace: Option<WorkspaceId>, moment: Timestamp) -> Result<bool, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT id FROM checkpoints WHERE workspace_id IS ?1 AND created_at < ?2 LIMIT 1";
            let params = params![workspace.map(|id| id.to_string()), moment.micros()];
            Ok(query::first(connection, "the oldest checkpoint", sql, params, |_| Ok(()))?.is_some())
        })
    }

    /// Returns every checkpoint of a workspace, or of the multi-folder group, for retention, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn aged(&self, workspace: Option<WorkspaceId>) -> Result<Vec<Aged>, CatalogError> {
        self.read(|connection| {
            // The plan of a todo list is named after the agent and the session.
            let sql = "WITH listed AS (SELECT DISTINCT agent || '-' || substr(session_id, 1, 8) AS plan FROM turns
                           UNION SELECT agent || '-' || substr(session_id, 1, 8) FROM hook_sessions)
                       SELECT id, created_at, role, pinned, scope, plan_id,
                           kind = 'automatic' AND (EXISTS (SELECT 1 FROM turns WHERE before_id = checkpoints.id)
                               OR EXISTS (SELECT 1 FROM turns WHERE after_id = checkpoints.id)) AS of_turn,
                           kind = 'automatic' AND source_tool IN (SELECT agent FROM hook_sessions)
                               OR plan_id IS NOT NULL AND EXISTS (SELECT 1 FROM listed
                                   WHERE plan_id = plan OR plan_id LIKE plan || '-%') AS of_agent
                       FROM checkpoints WHERE workspace_id IS ?1 ORDER BY seq DESC";
            query::all(
                connection,
                "the ages of checkpoints",
                sql,
                [workspace.map(|id| id.to_string())],
                |row| {
                    let fields = Fields::with_id(row, "checkpoints");
                    Ok(Aged {
                        id: fields.parse("id")?,
                        created_at: fields.time("created_at")?,
                        role: fields.parse_maybe("role")?,
                        pinned: fields.flag("pinned")?,
                        scope: fields.parse("scope")?,
                        plan_id: fields.get("plan_id")?,
                        occasion: match (fields.flag("of_turn")?, fields.flag("of_agent")?) {
                            (true, _) => Occasion::Turn,
                            (false, true) => Occasion::Agent,
                            (false, false) => Occasion::Request,
                        },
                    })
                },
            )
        })
    }

    /// Returns every object named by a record other than a checkpoint.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn objects_of_records(&self) -> Result<Vec<ObjectId>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT id, changed_paths FROM rollbacks WHERE changed_paths IS NOT NULL";
            let found = query::all(connection, format_args!("the objects of rollbacks"), sql, [], |row| {
                Fields::with_id(row, "rollbacks").hash_maybe("changed_paths")
            })?;
            let mut objects: Vec<ObjectId> = found.into_iter().flatten().collect();
            let sql = "SELECT id, record FROM checkpoints WHERE record IS NOT NULL
                       UNION ALL SELECT checkpoint_id, document FROM tombstones WHERE document IS NOT NULL";
            objects.extend(query::all(connection, "records and tombstones", sql, [], |row| {
                Fields::with_id(row, "checkpoints").hash("record")
            })?);
            // Logs of steps, of the last and of earlier attempts.
            let sql = "SELECT plan_seq AS id, json_extract(body, '$.log') AS log FROM plan_items
                           WHERE kind = 'step' AND json_extract(body, '$.log') IS NOT NULL
                       UNION SELECT plan_seq, json_extract(body, '$.log') FROM plan_notes
                           WHERE json_extract(body, '$.log') IS NOT NULL";
            objects.extend(query::all(connection, "the logs of steps", sql, [], |row| {
                let id: i64 = row.get("id").unwrap_or_default();
                Fields::new(row, "plan_items", id).parse::<ObjectId>("log")
            })?);
            crate::ThreadRows { connection }.each_piece(&mut |id| objects.push(id))?;
            Ok(objects)
        })
    }

    /// Returns the number of checkpoints deleted since the last collection.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn deleted_since_gc(&self) -> Result<u64, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT only AS id, deleted_since_gc FROM upkeep";
            let found = query::first(
                connection,
                format_args!("the number of deleted checkpoints"),
                sql,
                [],
                |row| Fields::new(row, "upkeep", "1").number("deleted_since_gc"),
            )?;
            Ok(found.unwrap_or(0))
        })
    }
}

impl Transaction<'_> {
    /// Counts a deleted checkpoint.
    pub(crate) fn count_deleted(&self) -> Result<(), CatalogError> {
        let sql = "UPDATE upkeep SET deleted_since_gc = deleted_since_gc + 1";
        query::run(self.connection, format_args!("the number of deleted checkpoints"), sql, []).map(drop)
    }

    /// Records a garbage collection and the freed bytes.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn note_collected(&self, freed_bytes: u64, at: Timestamp) -> Result<(), CatalogError> {
        let sql = "UPDATE upkeep SET deleted_since_gc = 0";
        query::run(self.connection, format_args!("the garbage collection"), sql, [])?;
        // The steps of an ended rollback are needed only if a power cut brought its stage back; a later
        // rollback has made the deletion of the stage durable.
        let sql = "DELETE FROM rollback_steps WHERE rollback_seq IN (
                       SELECT seq FROM rollbacks r WHERE state IN ('settled', 'aborted') AND EXISTS (
                           SELECT 1 FROM rollbacks later WHERE later.workspace_id = r.workspace_id
                               AND later.seq > r.seq AND later.state = 'settled'))";
        query::run(self.connection, format_args!("the steps of old rollbacks"), sql, [])?;
        self.append_event(at, "store.collected", "store", &json!({ "freed_bytes": freed_bytes }))
    }

    /// Replaces the content of a checkpoint by one without the purged paths.
    ///
    /// # Errors
    /// When the checkpoint is not found, or the rows cannot be written.
    pub fn purge_checkpoint(
        &self,
        id: CheckpointId,
        purged: &Purged,
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let what = format_args!("checkpoint {id}");
        if let Some(before) = self.checkpoint(id)? {
            self.bury(id, Some(before.integrity))?;
            let stays = |part: &PartRecord| {
                purged.parts.iter().any(|other| (other.kind, &other.key) == (part.kind, &part.key))
            };
            for part in before.parts.iter().filter(|part| !stays(part)) {
                let sql = "DELETE FROM checkpoint_parts WHERE checkpoint_id = ?1 AND kind = ?2 AND key = ?3";
                query::run(
                    self.connection,
                    what,
                    sql,
                    params![id.to_string(), part.kind.as_str(), part.key],
                )?;
            }
        }
        self.renew_record(id)?;
        let sql = "UPDATE checkpoints SET integrity = ?2, files = ?3 WHERE id = ?1";
        let files = json("files", &purged.files)?;
        let changed = query::run(
            self.connection,
            what,
            sql,
            params![id.to_string(), purged.integrity.as_bytes(), files],
        )?;
        if changed == 0 {
            return Err(CatalogError::missing("checkpoint", id));
        }
        for part in &purged.parts {
            let sql = "UPDATE checkpoint_parts SET document = ?4 WHERE checkpoint_id = ?1 AND kind = ?2 AND key = ?3";
            let document = part.document.as_bytes();
            let params = params![id.to_string(), part.kind.as_str(), part.key, document];
            query::run(self.connection, what, sql, params)?;
        }
        let payload = json!({ "integrity": purged.integrity });
        self.append_event(at, "checkpoint.purged", &id.to_string(), &payload)
    }
}
