//! Changing rows of threads, inside a transaction.

use super::rows::owner;
use super::{StateRow, ThreadRow, ValueRow, WriteRow};
use crate::fields::{integer, json};
use crate::{CatalogError, Transaction, query};
use rusqlite::{Connection, params};
use safepoint_model::thread::Thread;
use safepoint_model::{ObjectId, Timestamp};
use serde_json::json;

/// Result for a write whose task and index are recorded already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExistingWrites {
    /// The recorded one stays.
    #[default]
    Kept,
    /// It is replaced.
    Replaced,
}

/// Changes of threads in one transaction.
#[derive(Debug, Clone, Copy)]
pub struct ThreadEdit<'t> {
    pub(crate) transaction: &'t Transaction<'t>,
    pub(crate) connection: &'t Connection,
}

impl ThreadEdit<'_> {
    fn last(&self) -> Result<u64, CatalogError> {
        u64::try_from(self.connection.last_insert_rowid())
            .map_err(|_| CatalogError::missing("row", self.connection.last_insert_rowid()))
    }

    /// Inserts a thread and returns its number.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn insert_thread(&self, thread: &Thread) -> Result<u64, CatalogError> {
        let sql = "INSERT INTO thread (workspace_id, id, serializer, version, ttl, created_at, updated_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let params = params![
            owner(thread.key.workspace),
            thread.key.id,
            thread.serializer,
            integer("version", thread.version)?,
            thread.ttl_micros.map(|ttl| integer("ttl", ttl)).transpose()?,
            thread.created_at.micros(),
            thread.updated_at.micros(),
        ];
        query::run(self.connection, "a thread", sql, params)?;
        self.last()
    }

    /// Records a change of a thread: its next version, without a document.
    ///
    /// # Errors
    /// When the row is missing or cannot be written.
    pub fn touch_thread(&self, seq: u64, at: Timestamp) -> Result<(), CatalogError> {
        let sql = "UPDATE thread SET version = version + 1, updated_at = ?2,
                       document = CASE WHEN length(document) = 0 THEN document END WHERE seq = ?1";
        match query::run(self.connection, "a thread", sql, params![integer("seq", seq)?, at.micros()])? {
            0 => Err(CatalogError::missing("thread", seq)),
            _ => Ok(()),
        }
    }

    /// Notes that a state was replaced or deleted: what older documents say about its descendants is not true any more.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn forget_chain(&self, seq: u64) -> Result<(), CatalogError> {
        let sql = "UPDATE thread SET document = X'' WHERE seq = ?1";
        query::run(self.connection, "a thread", sql, [integer("seq", seq)?]).map(drop)
    }

    /// Sets the serializer and the time to live of a thread, where given.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn set_thread(
        &self,
        seq: u64,
        serializer: Option<&str>,
        ttl_micros: Option<u64>,
    ) -> Result<(), CatalogError> {
        let sql =
            "UPDATE thread SET serializer = coalesce(?2, serializer), ttl = coalesce(?3, ttl) WHERE seq = ?1";
        let ttl = ttl_micros.map(|ttl| integer("ttl", ttl)).transpose()?;
        query::run(self.connection, "a thread", sql, params![integer("seq", seq)?, serializer, ttl]).map(drop)
    }

    /// Records the document of a thread, if it still has this version.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn set_thread_document(
        &self,
        seq: u64,
        version: u64,
        document: ObjectId,
    ) -> Result<(), CatalogError> {
        let sql = "UPDATE thread SET document = ?3 WHERE seq = ?1 AND version = ?2";
        let params =
            params![integer("seq", seq)?, integer("version", version)?, document.as_bytes().as_slice()];
        query::run(self.connection, "a thread", sql, params).map(drop)
    }

    /// Inserts a state, or replaces the one with its id, and returns its number. The thread, its number and the
    /// flags of `state` say where it belongs.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn insert_state(&self, state: &StateRow) -> Result<u64, CatalogError> {
        let sql = "INSERT INTO thread_state
                       (thread_seq, ns, id, parent, run_id, metadata, body, channels, files, hidden, created_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                   ON CONFLICT (thread_seq, ns, id) DO UPDATE SET parent = ?4, run_id = ?5, metadata = ?6,
                       body = ?7, channels = ?8, files = ?9, hidden = ?10, created_at = ?11
                   RETURNING seq";
        let params = params![
            integer("seq", state.thread_seq)?,
            state.namespace,
            state.id,
            state.parent,
            state.run_id,
            json("metadata", &state.metadata)?,
            integer("body", state.body)?,
            json("channels", &state.channels)?,
            state.files.map(|id| id.to_string()),
            state.hidden,
            state.created_at.micros(),
        ];
        let found = query::first(self.connection, "a state", sql, params, |row| {
            row.get::<_, i64>(0).map_err(|error| CatalogError::read("a state", error))
        })?;
        found.and_then(|seq| u64::try_from(seq).ok()).ok_or_else(|| CatalogError::missing("state", &state.id))
    }

    /// Moves the head of a namespace.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn set_thread_head(
        &self,
        thread_seq: u64,
        namespace: &str,
        state_seq: u64,
    ) -> Result<(), CatalogError> {
        let sql = "INSERT INTO thread_head (thread_seq, ns, state_seq) VALUES (?1, ?2, ?3)
                   ON CONFLICT (thread_seq, ns) DO UPDATE SET state_seq = ?3";
        let params = params![integer("seq", thread_seq)?, namespace, integer("seq", state_seq)?];
        query::run(self.connection, "a head", sql, params).map(drop)
    }

    /// Removes the head of a namespace. Its states stay.
    ///
    /// # Errors
    /// When the row cannot be deleted.
    pub fn remove_thread_head(&self, thread_seq: u64, namespace: &str) -> Result<(), CatalogError> {
        let sql = "DELETE FROM thread_head WHERE thread_seq = ?1 AND ns = ?2";
        query::run(self.connection, "a head", sql, params![integer("seq", thread_seq)?, namespace]).map(drop)
    }

    /// Inserts a value and returns its number. The number in `value` is ignored. `channel` names the channel and its
    /// version.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn insert_value(
        &self,
        thread_seq: u64,
        namespace: &str,
        channel: Option<(&str, &str)>,
        value: &ValueRow,
    ) -> Result<u64, CatalogError> {
        let sql = "INSERT INTO thread_value
                       (thread_seq, ns, channel, version, encoding, size, hash, bytes, base, shared, depth, pieces)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        let params = params![
            integer("seq", thread_seq)?,
            namespace,
            channel.map(|(name, _)| name),
            channel.map(|(_, version)| version),
            value.encoding,
            integer("size", value.size)?,
            value.hash.as_bytes().as_slice(),
            value.bytes,
            value.base.map(|(base, _)| integer("base", base)).transpose()?,
            integer("shared", value.base.map_or(0, |(_, shared)| shared))?,
            integer("depth", value.depth)?,
            value.pieces,
        ];
        query::run(self.connection, "a value", sql, params)?;
        self.last()
    }

    /// Returns true if a write of this task and index is recorded.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn has_write(
        &self,
        thread_seq: u64,
        (namespace, state): (&str, &str),
        (task, index): (&str, i64),
    ) -> Result<bool, CatalogError> {
        let sql = "SELECT rowid AS id FROM thread_write
                   WHERE thread_seq = ?1 AND ns = ?2 AND state_id = ?3 AND task_id = ?4 AND idx = ?5";
        let params = params![integer("seq", thread_seq)?, namespace, state, task, index];
        Ok(query::first(self.connection, "a write", sql, params, |_| Ok(()))?.is_some())
    }

    /// Inserts or replaces a write for a state.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn insert_write(
        &self,
        thread_seq: u64,
        namespace: &str,
        state: &str,
        write: &WriteRow,
    ) -> Result<(), CatalogError> {
        let sql =
            "INSERT INTO thread_write (thread_seq, ns, state_id, task_id, idx, channel, value, task_path)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                   ON CONFLICT (thread_seq, ns, state_id, task_id, idx)
                   DO UPDATE SET channel = ?6, value = ?7, task_path = ?8";
        let params = params![
            integer("seq", thread_seq)?,
            namespace,
            state,
            write.task_id,
            write.index,
            write.channel,
            integer("value", write.value)?,
            write.task_path,
        ];
        query::run(self.connection, "a write", sql, params).map(drop)
    }

    /// Deletes the writes for a state.
    ///
    /// # Errors
    /// When the rows cannot be deleted.
    pub fn delete_writes(&self, thread_seq: u64, namespace: &str, state: &str) -> Result<(), CatalogError> {
        let sql = "DELETE FROM thread_write WHERE thread_seq = ?1 AND ns = ?2 AND state_id = ?3";
        let params = params![integer("seq", thread_seq)?, namespace, state];
        query::run(self.connection, "the writes", sql, params).map(drop)
    }

    /// Adds a piece, packed, if it is not there.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn insert_chunk(&self, id: ObjectId, bytes: &[u8]) -> Result<(), CatalogError> {
        let sql = "INSERT INTO thread_chunk (id, bytes) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING";
        query::run(self.connection, "a piece", sql, params![id.as_bytes().as_slice(), bytes]).map(drop)
    }

    /// Deletes a piece that is in a pack, or that no value names.
    ///
    /// # Errors
    /// When the row cannot be deleted.
    pub fn delete_chunk(&self, id: ObjectId) -> Result<(), CatalogError> {
        let sql = "DELETE FROM thread_chunk WHERE id = ?1";
        query::run(self.connection, "a piece", sql, [id.as_bytes().as_slice()]).map(drop)
    }

    /// Hides a state or shows it again.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn hide_state(&self, seq: u64) -> Result<(), CatalogError> {
        let sql = "UPDATE thread_state SET hidden = 1 WHERE seq = ?1";
        query::run(self.connection, "a state", sql, [integer("seq", seq)?]).map(drop)
    }

    /// Deletes a state and its writes. Its head must have moved before.
    ///
    /// # Errors
    /// When the rows cannot be deleted.
    pub fn delete_state(&self, state: &StateRow) -> Result<(), CatalogError> {
        self.delete_writes(state.thread_seq, &state.namespace, &state.id)?;
        let sql = "DELETE FROM thread_state WHERE seq = ?1";
        query::run(self.connection, "a state", sql, [integer("seq", state.seq)?]).map(drop)
    }

    /// Deletes a value that no row names.
    ///
    /// # Errors
    /// When the row cannot be deleted.
    pub fn delete_value(&self, seq: u64) -> Result<(), CatalogError> {
        let sql = "DELETE FROM thread_value WHERE seq = ?1";
        query::run(self.connection, "a value", sql, [integer("seq", seq)?]).map(drop)
    }

    /// Deletes a thread with all its rows.
    ///
    /// # Errors
    /// When the rows cannot be deleted.
    pub fn delete_thread(&self, thread: &ThreadRow, at: Timestamp) -> Result<(), CatalogError> {
        let seq = integer("seq", thread.seq)?;
        for sql in [
            "DELETE FROM thread_head WHERE thread_seq = ?1",
            "DELETE FROM thread_write WHERE thread_seq = ?1",
            "DELETE FROM thread_state WHERE thread_seq = ?1",
            // Bases are deleted with their values.
            "UPDATE thread_value SET base = NULL WHERE thread_seq = ?1 AND base IS NOT NULL",
            "DELETE FROM thread_value WHERE thread_seq = ?1",
            "DELETE FROM thread WHERE seq = ?1",
        ] {
            query::run(self.connection, "a thread", sql, [seq])?;
        }
        self.note(thread, "thread.deleted", at, 0)
    }

    /// Appends an event about a thread.
    ///
    /// # Errors
    /// When the event cannot be written.
    pub fn note(
        &self,
        thread: &ThreadRow,
        kind: &str,
        at: Timestamp,
        states: usize,
    ) -> Result<(), CatalogError> {
        let key = &thread.thread.key;
        let payload = json!({ "thread": key.id, "workspace_id": key.workspace, "states": states });
        self.transaction.append_event(at, kind, &key.id, &payload)
    }
}
