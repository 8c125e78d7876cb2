//! Housekeeping: what objects the records need, what was deleted since the last collection, and records that lose a path.

use crate::fields::{Fields, json};
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::params;
use safepoint_model::checkpoint::{PartRecord, Role, Scope, Totals};
use safepoint_model::{CheckpointId, ObjectId, Timestamp, WorkspaceId};
use serde_json::json;

/// What of a checkpoint changes when a path is taken out of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Purged {
    /// The new root hash.
    pub integrity: ObjectId,
    /// The new parts.
    pub parts: Vec<PartRecord>,
    /// The new totals.
    pub files: Totals,
}

/// A checkpoint, as far as retention looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aged {
    /// Which.
    pub id: CheckpointId,
    /// When it was made, as far as the clock knew.
    pub created_at: Timestamp,
    /// What Safepoint itself made it for.
    pub role: Option<Role>,
    /// Never pruned.
    pub pinned: bool,
    /// What it is one of.
    pub scope: Scope,
    /// The plan that it is one of.
    pub plan_id: Option<String>,
}

impl Catalog {
    /// Whether a workspace, or what is taken together, has a checkpoint that was made before this moment. Costs the same however many it has.
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

    /// Every checkpoint of a workspace, or of what is taken together, as retention looks at it, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn aged(&self, workspace: Option<WorkspaceId>) -> Result<Vec<Aged>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT id, created_at, role, pinned, scope, plan_id FROM checkpoints
                       WHERE workspace_id IS ?1 ORDER BY seq DESC";
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
                    })
                },
            )
        })
    }

    /// Every object that a record other than a checkpoint names.
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
            // What steps printed, the last time and before.
            let sql = "SELECT plan_seq AS id, json_extract(body, '$.log') AS log FROM plan_items
                           WHERE kind = 'step' AND json_extract(body, '$.log') IS NOT NULL
                       UNION SELECT plan_seq, json_extract(body, '$.log') FROM plan_notes
                           WHERE json_extract(body, '$.log') IS NOT NULL";
            objects.extend(query::all(connection, "what steps printed", sql, [], |row| {
                let id: i64 = row.get("id").unwrap_or_default();
                Fields::new(row, "plan_items", id).parse::<ObjectId>("log")
            })?);
            Ok(objects)
        })
    }

    /// How many checkpoints were deleted since the last collection.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn deleted_since_gc(&self) -> Result<u64, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT only AS id, deleted_since_gc FROM upkeep";
            let found = query::first(connection, format_args!("what was deleted"), sql, [], |row| {
                Fields::new(row, "upkeep", "1").number("deleted_since_gc")
            })?;
            Ok(found.unwrap_or(0))
        })
    }
}

impl Transaction<'_> {
    /// Counts a checkpoint that was deleted.
    pub(crate) fn count_deleted(&self) -> Result<(), CatalogError> {
        let sql = "UPDATE upkeep SET deleted_since_gc = deleted_since_gc + 1";
        query::run(self.connection, format_args!("what was deleted"), sql, []).map(drop)
    }

    /// Notes that what nobody needs was collected, and how much it freed.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn note_collected(&self, freed_bytes: u64, at: Timestamp) -> Result<(), CatalogError> {
        let sql = "UPDATE upkeep SET deleted_since_gc = 0";
        query::run(self.connection, format_args!("what was collected"), sql, [])?;
        // The steps of a rollback that ended are asked for only where a power cut brought its stage back, and a later rollback has
        // made the deletion of that durable.
        let sql = "DELETE FROM rollback_steps WHERE rollback_seq IN (
                       SELECT seq FROM rollbacks r WHERE state IN ('settled', 'aborted') AND EXISTS (
                           SELECT 1 FROM rollbacks later WHERE later.workspace_id = r.workspace_id
                               AND later.seq > r.seq AND later.state = 'settled'))";
        query::run(self.connection, format_args!("the steps of old rollbacks"), sql, [])?;
        self.append_event(at, "store.collected", "store", &json!({ "freed_bytes": freed_bytes }))
    }

    /// Gives a checkpoint other content: what it was without some paths.
    ///
    /// # Errors
    /// When there is no such checkpoint, or the rows cannot be written.
    pub fn purge_checkpoint(
        &self,
        id: CheckpointId,
        purged: &Purged,
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let what = format_args!("checkpoint {id}");
        if let Some(before) = self.checkpoint(id)? {
            self.bury(id, Some(before.integrity))?;
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
