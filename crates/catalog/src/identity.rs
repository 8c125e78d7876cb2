//! Identity of the catalog, and its records in packs, from which it can be rebuilt.

use crate::fields::{Fields, integer};
use crate::{Catalog, CatalogError, Transaction, checkpoints, query};
use rusqlite::{Connection, params};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::{CheckpointId, ObjectId, Timestamp, WorkspaceId};
use serde_json::json;

/// End of a catalog's history, which distinguishes it from every other catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryHead {
    /// Identity, created with the catalog.
    pub id: String,
    /// Number of the catalog among those of its store.
    pub generation: u64,
    /// Number of the last event; zero before the first.
    pub seq: u64,
    /// Hash of the last event.
    pub hash: [u8; 32],
}

/// Checkpoint without a record in a pack.
#[derive(Debug, Clone, PartialEq)]
pub struct Unrecorded {
    /// Checkpoint.
    pub checkpoint: Checkpoint,
    /// Number of its commit event.
    pub event: u64,
}

/// Deleted or purged checkpoint, with its manifest from before the purge.
pub type Void = (CheckpointId, Option<ObjectId>);

impl Catalog {
    /// Returns the identity and the end of the history.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn head(&self) -> Result<HistoryHead, CatalogError> {
        self.read(head)
    }

    /// Returns the hash of an event.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn event_hash(&self, seq: u64) -> Result<Option<[u8; 32]>, CatalogError> {
        let seq = integer("the number of an event", seq)?;
        self.read(|connection| {
            let sql = "SELECT hash FROM events WHERE seq = ?1";
            query::first(connection, format_args!("event {seq}"), sql, [seq], |row| {
                Fields::new(row, "events", seq).get("hash")
            })
        })
    }

    /// Returns checkpoints without a record in a pack, oldest first, at most `limit`.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unrecorded(&self, limit: u64) -> Result<Vec<Unrecorded>, CatalogError> {
        let limit = integer("limit", limit)?;
        self.read(|connection| {
            let sql = "SELECT * FROM checkpoints WHERE record IS NULL ORDER BY seq LIMIT ?1";
            query::all(connection, "checkpoints without a record", sql, [limit], |row| {
                let event = Fields::with_id(row, "checkpoints").number_maybe("event")?.unwrap_or(1);
                Ok(Unrecorded { checkpoint: checkpoints::read(connection, row)?, event })
            })
        })
    }

    /// Returns every checkpoint record in a pack.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn records(&self) -> Result<Vec<(CheckpointId, ObjectId)>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT id, record FROM checkpoints WHERE record IS NOT NULL";
            query::all(connection, "records", sql, [], |row| {
                let fields = Fields::with_id(row, "checkpoints");
                Ok((fields.parse("id")?, fields.hash("record")?))
            })
        })
    }

    /// Returns deleted and purged checkpoints without a tombstone in a pack.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unwritten_tombstones(&self) -> Result<Vec<Void>, CatalogError> {
        let sql = "SELECT checkpoint_id AS id, integrity FROM tombstones WHERE document IS NULL";
        self.read(|connection| query::all(connection, "tombstones", sql, [], void))
    }

    /// Returns all deleted and purged checkpoints whose record may still be in a pack.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn tombstones(&self) -> Result<Vec<Void>, CatalogError> {
        let sql = "SELECT checkpoint_id AS id, integrity FROM tombstones";
        self.read(|connection| query::all(connection, "tombstones", sql, [], void))
    }

    /// Returns the void records.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn stale_records(&self) -> Result<Vec<ObjectId>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT checkpoint_id AS id, record FROM stale_records";
            query::all(connection, "old records", sql, [], |row| {
                Fields::with_id(row, "stale_records").hash("record")
            })
        })
    }
}

impl Transaction<'_> {
    /// Returns the identity and the end of the history.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn head_of_history(&self) -> Result<HistoryHead, CatalogError> {
        head(self.connection)
    }

    /// Records that this catalog replaces another one.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn set_generation(&self, generation: u64) -> Result<(), CatalogError> {
        let generation = integer("generation", generation)?;
        let sql = "UPDATE identity SET generation = ?1 WHERE only = 1";
        query::run(self.connection, "the identity", sql, [generation]).map(drop)
    }

    /// Sets the record of a checkpoint, unless the checkpoint changed since the record was created.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn set_record(&self, of: &Checkpoint, record: ObjectId) -> Result<(), CatalogError> {
        let sql = "UPDATE checkpoints SET record = ?2 WHERE id = ?1 AND record IS NULL AND pinned = ?3
                   AND commit_sha IS ?4 AND integrity = ?5";
        let integrity = of.integrity.as_bytes();
        let params = params![of.id.to_string(), record.as_bytes(), of.pinned, of.commit_sha, integrity];
        query::run(self.connection, format_args!("the record of {}", of.id), sql, params)?;
        // The same bytes may have been void before.
        let sql = "DELETE FROM stale_records WHERE record = ?1";
        query::run(self.connection, "old records", sql, [record.as_bytes()]).map(drop)
    }

    /// Clears the record of a checkpoint, so that a new one is written.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn renew_record(&self, id: CheckpointId) -> Result<(), CatalogError> {
        let what = format_args!("the record of {id}");
        let sql = "INSERT OR IGNORE INTO stale_records (record, checkpoint_id)
                   SELECT record, id FROM checkpoints WHERE id = ?1 AND record IS NOT NULL";
        query::run(self.connection, what, sql, [id.to_string()])?;
        let sql = "UPDATE checkpoints SET record = NULL WHERE id = ?1 AND record IS NOT NULL";
        query::run(self.connection, what, sql, [id.to_string()]).map(drop)
    }

    /// Records that a checkpoint was deleted, or that the content of this manifest was purged from it.
    pub(crate) fn bury(&self, id: CheckpointId, integrity: Option<ObjectId>) -> Result<(), CatalogError> {
        let sql = "INSERT OR IGNORE INTO tombstones (checkpoint_id, integrity) VALUES (?1, ?2)";
        let params = params![id.to_string(), bytes_of(integrity)];
        query::run(self.connection, format_args!("the tombstone of {id}"), sql, params).map(drop)
    }

    /// Records that these tombstones are in a pack.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn set_tombstones(&self, voids: &[Void], document: ObjectId) -> Result<(), CatalogError> {
        let sql = "UPDATE tombstones SET document = ?3 WHERE checkpoint_id = ?1 AND integrity = ?2";
        for (id, integrity) in voids {
            let params = params![id.to_string(), bytes_of(*integrity), document.as_bytes()];
            query::run(self.connection, format_args!("the tombstone of {id}"), sql, params)?;
        }
        Ok(())
    }

    /// Deletes void records that are in no pack, and tombstones that no record needs. Returns true if one of
    /// these is in a pack.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn forget_stale(&self, gone: &[ObjectId]) -> Result<bool, CatalogError> {
        for record in gone {
            let sql = "DELETE FROM stale_records WHERE record = ?1";
            query::run(self.connection, "old records", sql, [record.as_bytes()])?;
        }
        let sql = "DELETE FROM tombstones WHERE document IS NULL
                   AND checkpoint_id NOT IN (SELECT checkpoint_id FROM stale_records)";
        query::run(self.connection, "tombstones", sql, [])?;
        let sql =
            "DELETE FROM tombstones WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM stale_records)";
        Ok(query::run(self.connection, "tombstones", sql, [])? > 0)
    }

    /// Moves all records of one workspace to another, and removes the first. If the second has no current
    /// checkpoint, it takes that of the first.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn merge_workspace(
        &self,
        from: WorkspaceId,
        to: WorkspaceId,
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let what = format_args!("workspace {from}");
        let ids = params![from.to_string(), to.to_string()];
        for sql in [
            "INSERT OR IGNORE INTO stale_records (record, checkpoint_id)
                 SELECT record, id FROM checkpoints WHERE workspace_id = ?1 AND ?2 IS NOT NULL AND record IS NOT NULL",
            "UPDATE checkpoints SET workspace_id = ?2, record = NULL WHERE workspace_id = ?1",
            "UPDATE rollbacks SET workspace_id = ?2 WHERE workspace_id = ?1",
            "UPDATE plans SET workspace_id = ?2 WHERE workspace_id = ?1",
            "UPDATE sandboxes SET workspace_id = ?2 WHERE workspace_id = ?1",
            "UPDATE agents SET workspace_id = ?2 WHERE workspace_id = ?1",
            "UPDATE OR IGNORE attempts SET workspace_id = ?2 WHERE workspace_id = ?1",
            "UPDATE attempts SET place_id = ?2 WHERE place_id = ?1",
            "UPDATE OR IGNORE thread SET workspace_id = ?2 WHERE workspace_id = ?1",
            "UPDATE workspaces SET head = coalesce((SELECT head FROM workspaces f WHERE f.id = ?1), head) WHERE id = ?2",
        ] {
            query::run(self.connection, what, sql, ids)?;
        }
        self.append_event(at, "workspace.merged", &from.to_string(), &json!({ "into": to }))
    }

    /// Sets the version of a restored plan.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn raise_plan_version(&self, id: &str, version: u64) -> Result<(), CatalogError> {
        let version = integer("version", version)?;
        let sql = "UPDATE plans SET version = max(version, ?2) WHERE id = ?1";
        query::run(self.connection, format_args!("plan {id}"), sql, params![id, version]).map(drop)
    }
}

fn bytes_of(integrity: Option<ObjectId>) -> Vec<u8> {
    integrity.map(|id| id.as_bytes().to_vec()).unwrap_or_default()
}

fn void(row: &rusqlite::Row<'_>) -> Result<Void, CatalogError> {
    let fields = Fields::with_id(row, "tombstones");
    let bytes: Vec<u8> = fields.get("integrity")?;
    let integrity = match bytes.as_slice() {
        [] => None,
        bytes => {
            let bytes = bytes.try_into().map_err(|_| fields.damaged("integrity", "not a hash"))?;
            Some(ObjectId::from_bytes(bytes))
        }
    };
    Ok((fields.parse("id")?, integrity))
}

fn head(connection: &Connection) -> Result<HistoryHead, CatalogError> {
    let sql = "SELECT id, generation, seq, hash FROM identity, event_head";
    query::first(connection, "the identity", sql, (), |row| {
        let fields = Fields::with_id(row, "identity");
        Ok(HistoryHead {
            id: fields.get("id")?,
            generation: fields.number("generation")?,
            seq: fields.number("seq")?,
            hash: fields.get("hash")?,
        })
    })?
    .ok_or_else(|| CatalogError::Damaged {
        table: "identity",
        id: "1".to_owned(),
        why: "the row is missing".to_owned(),
    })
}
