//! Reading rows of threads.

use crate::fields::{Fields, integer};
use crate::{CatalogError, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::content::decode_pieces;
use safepoint_model::thread::{Thread, ThreadKey};
use safepoint_model::{CheckpointId, ObjectId, Timestamp, WorkspaceId};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Row of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadRow {
    /// Number in the catalog.
    pub seq: u64,
    /// Thread.
    pub thread: Thread,
    /// Document of its part for the current version, if it was captured.
    pub document: Option<ObjectId>,
    /// True if a state was replaced or deleted since the last capture.
    pub is_rewritten: bool,
}

/// Row of a state. Values are named by their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct StateRow {
    /// Number in the catalog, in commit order.
    pub seq: u64,
    /// Number of its thread.
    pub thread_seq: u64,
    /// Thread.
    pub thread: ThreadKey,
    /// Namespace.
    pub namespace: String,
    /// Id in the namespace.
    pub id: String,
    /// Id of the state that it follows.
    pub parent: Option<String>,
    /// Run that saved it.
    pub run_id: Option<String>,
    /// Metadata.
    pub metadata: Map<String, Value>,
    /// Value of its body.
    pub body: u64,
    /// Version and value of each channel.
    pub channels: BTreeMap<String, (String, Option<u64>)>,
    /// Checkpoint with its files.
    pub files: Option<CheckpointId>,
    /// True if that checkpoint is gone.
    pub files_pruned: bool,
    /// True if it is not listed.
    pub hidden: bool,
    /// True if it is the head of its namespace.
    pub is_head: bool,
    /// Time of the save.
    pub created_at: Timestamp,
}

/// Row of a value: its bytes, or its pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueRow {
    /// Number in the catalog.
    pub seq: u64,
    /// Name of the encoding.
    pub encoding: String,
    /// Length.
    pub size: u64,
    /// Hash of all bytes.
    pub hash: ObjectId,
    /// The bytes, packed, if it is short; with a base, the difference to it.
    pub bytes: Option<Vec<u8>>,
    /// Earlier value that it continues, and the number of pieces that both begin with.
    pub base: Option<(u64, u64)>,
    /// Number of values that a reader of this one visits before it.
    pub depth: u64,
    /// List of the pieces that follow.
    pub pieces: Option<Vec<u8>>,
}

impl ValueRow {
    /// Returns true if its bytes are the difference to its base.
    pub fn is_delta(&self) -> bool {
        self.base.is_some() && self.bytes.is_some()
    }
}

/// Row of a pending write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRow {
    /// Task.
    pub task_id: String,
    /// Position among the writes of the task.
    pub index: i64,
    /// Channel.
    pub channel: String,
    /// Value.
    pub value: u64,
    /// Path of the task in its graph.
    pub task_path: String,
}

/// Conditions on listed states.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StateQuery {
    /// Workspace of the threads, or `None` for those of the home.
    pub workspace: Option<WorkspaceId>,
    /// Thread; all if `None`.
    pub thread: Option<String>,
    /// Namespace; all if `None`.
    pub namespace: Option<String>,
    /// Id of the state; all if `None`.
    pub id: Option<String>,
    /// Only states with a smaller id.
    pub before: Option<String>,
    /// Only states after this one in the list: its id and its number.
    pub after: Option<(String, u64)>,
    /// Metadata that a state must have, by key.
    pub metadata: Map<String, Value>,
    /// Maximum number of states.
    pub limit: Option<u64>,
    /// True if heads alone are wanted.
    pub heads_only: bool,
}

/// Rows of threads in one snapshot.
#[derive(Debug, Clone, Copy)]
pub struct ThreadRows<'c> {
    pub(crate) connection: &'c Connection,
}

/// Owner of threads as a column has it.
pub(crate) fn owner(workspace: Option<WorkspaceId>) -> String {
    workspace.map(|id| id.to_string()).unwrap_or_default()
}

macro_rules! states {
    ($($condition:literal),*) => {
        concat!(
            "SELECT s.*, t.workspace_id AS workspace_id, t.id AS thread_id,
                 h.state_seq IS NOT NULL AS is_head, s.files IS NOT NULL AND c.id IS NULL AS files_pruned
             FROM thread_state s JOIN thread t ON t.seq = s.thread_seq
             LEFT JOIN thread_head h ON h.thread_seq = s.thread_seq AND h.ns = s.ns AND h.state_seq = s.seq
             LEFT JOIN checkpoints c ON c.id = s.files ",
            $($condition),*
        )
    };
}

macro_rules! listed {
    ($first:literal) => {
        states!(
            $first,
            " AND s.hidden = 0 AND (?2 IS NULL OR s.ns = ?2) AND (?3 IS NULL OR s.id < ?3)
              AND (?4 IS NULL OR (s.id, s.seq) < (?4, ?5)) AND (?8 IS NULL OR s.id = ?8)
              AND NOT EXISTS (SELECT 1 FROM json_each(?6) f WHERE NOT EXISTS (
                  SELECT 1 FROM json_each(s.metadata) m WHERE m.key = f.key AND m.value IS f.value
                  AND (m.type = f.type OR (m.type IN ('integer', 'real') AND f.type IN ('integer', 'real')))))
              ORDER BY s.id DESC, s.seq DESC LIMIT ?7"
        )
    };
}

impl ThreadRows<'_> {
    /// Returns the thread with this key.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn thread(&self, key: &ThreadKey) -> Result<Option<ThreadRow>, CatalogError> {
        let sql = "SELECT * FROM thread WHERE workspace_id = ?1 AND id = ?2";
        let params = params![owner(key.workspace), key.id];
        query::first(self.connection, "a thread", sql, params, read_thread)
    }

    /// Returns the threads of a workspace or of the home, sorted by id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn threads(&self, workspace: Option<WorkspaceId>) -> Result<Vec<ThreadRow>, CatalogError> {
        let sql = "SELECT * FROM thread WHERE workspace_id = ?1 ORDER BY id";
        query::all(self.connection, "the threads", sql, [owner(workspace)], read_thread)
    }

    /// Returns all threads, in the order of their first save.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn all_threads(&self) -> Result<Vec<ThreadRow>, CatalogError> {
        query::all(self.connection, "the threads", "SELECT * FROM thread ORDER BY seq", [], read_thread)
    }

    /// Returns the document of a thread in the newest checkpoint that holds it, among the last 64.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_document(&self, key: &ThreadKey) -> Result<Option<ObjectId>, CatalogError> {
        let sql = "SELECT c.id AS id, p.document AS document
                   FROM (SELECT id, seq FROM checkpoints ORDER BY seq DESC LIMIT 64) c
                   JOIN checkpoint_parts p ON p.checkpoint_id = c.id
                   WHERE p.kind = 'thread' AND p.key = ?1 ORDER BY c.seq DESC LIMIT 1";
        query::first(self.connection, "the document of a thread", sql, [key.part_key()], |row| {
            Fields::with_id(row, "checkpoint_parts").hash("document")
        })
    }

    /// Returns the threads whose time to live ended before this moment.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn expired(&self, now: Timestamp) -> Result<Vec<ThreadRow>, CatalogError> {
        let sql =
            "SELECT * FROM thread WHERE ttl IS NOT NULL AND updated_at + ttl < ?1 ORDER BY updated_at, seq";
        query::all(self.connection, "the threads", sql, [now.micros()], read_thread)
    }

    /// Returns a state by its id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn state(
        &self,
        thread_seq: u64,
        namespace: &str,
        id: &str,
    ) -> Result<Option<StateRow>, CatalogError> {
        let sql = states!("WHERE s.thread_seq = ?1 AND s.ns = ?2 AND s.id = ?3");
        let params = params![integer("seq", thread_seq)?, namespace, id];
        query::first(self.connection, "a state", sql, params, read_state)
    }

    /// Returns true if there is a state with this id.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn has_state(&self, thread_seq: u64, namespace: &str, id: &str) -> Result<bool, CatalogError> {
        let sql = "SELECT seq FROM thread_state WHERE thread_seq = ?1 AND ns = ?2 AND id = ?3";
        let params = params![integer("seq", thread_seq)?, namespace, id];
        Ok(query::first(self.connection, "a state", sql, params, |_| Ok(()))?.is_some())
    }

    /// Returns the head of a namespace.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn head(&self, thread_seq: u64, namespace: &str) -> Result<Option<StateRow>, CatalogError> {
        let sql = states!(
            "WHERE s.seq = (SELECT state_seq FROM thread_head WHERE thread_seq = ?1 AND ns = ?2) AND s.thread_seq = ?1"
        );
        let params = params![integer("seq", thread_seq)?, namespace];
        query::first(self.connection, "a head", sql, params, read_state)
    }

    /// Returns the heads of a thread, sorted by namespace.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn heads(&self, thread_seq: u64) -> Result<Vec<StateRow>, CatalogError> {
        let sql = states!("WHERE s.thread_seq = ?1 AND h.state_seq IS NOT NULL ORDER BY s.ns");
        query::all(self.connection, "the heads", sql, [integer("seq", thread_seq)?], read_state)
    }

    /// Returns all states of a thread, hidden ones too, in commit order.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn states(&self, thread_seq: u64) -> Result<Vec<StateRow>, CatalogError> {
        let sql = states!("WHERE s.thread_seq = ?1 ORDER BY s.seq");
        query::all(self.connection, "the states", sql, [integer("seq", thread_seq)?], read_state)
    }

    /// Returns matching states, largest id first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list(&self, wanted: &StateQuery) -> Result<Vec<StateRow>, CatalogError> {
        // SQLite treats a negative limit as no limit.
        let limit = wanted.limit.map_or(Ok(-1), |limit| integer("limit", limit))?;
        let (after, number) = match &wanted.after {
            Some((id, seq)) => (Some(id), integer("seq", *seq)?),
            None => (None, 0),
        };
        let filter = crate::fields::json("metadata", &wanted.metadata)?;
        let rest = |first: &dyn rusqlite::ToSql| {
            let params =
                params![first, wanted.namespace, wanted.before, after, number, filter, limit, wanted.id];
            // Each has an index: an optional condition would hide it from SQLite.
            let sql = match (&wanted.thread, &wanted.id, wanted.heads_only) {
                (Some(_), _, true) => listed!("WHERE s.thread_seq = ?1 AND h.state_seq IS NOT NULL"),
                (None, _, true) => listed!("WHERE t.workspace_id = ?1 AND h.state_seq IS NOT NULL"),
                (Some(_), Some(_), false) => listed!("WHERE s.thread_seq = ?1 AND s.id = ?8"),
                (None, Some(_), false) => listed!("WHERE t.workspace_id = ?1 AND s.id = ?8"),
                (Some(_), None, false) => listed!("WHERE s.thread_seq = ?1"),
                (None, None, false) => listed!("WHERE t.workspace_id = ?1"),
            };
            query::all(self.connection, "the states", sql, params, read_state)
        };
        match &wanted.thread {
            Some(id) => {
                let key = ThreadKey { workspace: wanted.workspace, id: id.clone() };
                match self.thread(&key)? {
                    Some(thread) => rest(&integer("seq", thread.seq)?),
                    None => Ok(Vec::new()),
                }
            }
            None => rest(&owner(wanted.workspace)),
        }
    }

    /// Returns the states of these runs, in commit order. `runs` is bound as one JSON list.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn states_of_runs(
        &self,
        workspace: Option<WorkspaceId>,
        runs: &[String],
    ) -> Result<Vec<StateRow>, CatalogError> {
        let runs = crate::fields::json("runs", &runs)?;
        let sql = states!(
            "WHERE t.workspace_id = ?1 AND s.run_id IN (SELECT value FROM json_each(?2)) ORDER BY s.seq"
        );
        query::all(self.connection, "the states", sql, params![owner(workspace), runs], read_state)
    }

    /// Returns the writes for a state, by task and index.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn writes(
        &self,
        thread_seq: u64,
        namespace: &str,
        state: &str,
    ) -> Result<Vec<WriteRow>, CatalogError> {
        let sql =
            "SELECT rowid AS id, * FROM thread_write WHERE thread_seq = ?1 AND ns = ?2 AND state_id = ?3
                   ORDER BY task_id, idx";
        let params = params![integer("seq", thread_seq)?, namespace, state];
        query::all(self.connection, "the writes", sql, params, |row| {
            let number: i64 = row.get("id").unwrap_or_default();
            let fields = Fields::new(row, "thread_write", number);
            Ok(WriteRow {
                task_id: fields.get("task_id")?,
                index: fields.get("idx")?,
                channel: fields.get("channel")?,
                value: fields.number("value")?,
                task_path: fields.get("task_path")?,
            })
        })
    }

    /// Returns the namespace and state of every write of a thread, once each.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn written_states(&self, thread_seq: u64) -> Result<Vec<(String, String)>, CatalogError> {
        let sql = "SELECT min(rowid) AS id, ns, state_id FROM thread_write WHERE thread_seq = ?1
                   GROUP BY ns, state_id ORDER BY ns, state_id";
        query::all(self.connection, "the writes", sql, [integer("seq", thread_seq)?], |row| {
            let number: i64 = row.get("id").unwrap_or_default();
            let fields = Fields::new(row, "thread_write", number);
            Ok((fields.get("ns")?, fields.get("state_id")?))
        })
    }

    /// Returns a value by its number.
    ///
    /// # Errors
    /// When the row is missing or damaged.
    pub fn value(&self, seq: u64) -> Result<ValueRow, CatalogError> {
        let sql = "SELECT * FROM thread_value WHERE seq = ?1";
        let found = query::first(self.connection, "a value", sql, [integer("seq", seq)?], read_value)?;
        found.ok_or_else(|| CatalogError::Damaged {
            table: "thread_value",
            id: seq.to_string(),
            why: "the row is missing".to_owned(),
        })
    }

    /// Returns the last value of a channel, of any version.
    ///
    /// # Errors
    /// When the row is damaged.
    pub fn last_value(
        &self,
        thread_seq: u64,
        namespace: &str,
        channel: &str,
    ) -> Result<Option<ValueRow>, CatalogError> {
        let sql = "SELECT * FROM thread_value WHERE seq = (SELECT max(seq) FROM thread_value
                       WHERE thread_seq = ?1 AND ns = ?2 AND channel = ?3)";
        let params = params![integer("seq", thread_seq)?, namespace, channel];
        query::first(self.connection, "a value", sql, params, read_value)
    }

    /// Returns the number of the last value of a version of a channel.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn value_of(
        &self,
        thread_seq: u64,
        namespace: &str,
        channel: &str,
        version: &str,
    ) -> Result<Option<u64>, CatalogError> {
        let sql = "SELECT max(seq) AS seq FROM thread_value
                   WHERE thread_seq = ?1 AND ns = ?2 AND channel = ?3 AND version = ?4";
        let params = params![integer("seq", thread_seq)?, namespace, channel, version];
        let found = query::first(self.connection, "a value", sql, params, |row| {
            Fields::new(row, "thread_value", channel).number_maybe("seq")
        })?;
        Ok(found.flatten())
    }

    /// Returns the numbers and bases of all values of a thread, ascending.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn value_bases(&self, thread_seq: u64) -> Result<Vec<(u64, Option<u64>)>, CatalogError> {
        let sql = "SELECT seq, base FROM thread_value WHERE thread_seq = ?1 ORDER BY seq";
        query::all(self.connection, "the values", sql, [integer("seq", thread_seq)?], |row| {
            let fields = numbered(row, "thread_value");
            Ok((fields.number("seq")?, fields.number_maybe("base")?))
        })
    }

    /// Returns the packed bytes of a piece that is in no pack yet.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn chunk(&self, id: ObjectId) -> Result<Option<Vec<u8>>, CatalogError> {
        let sql = "SELECT bytes FROM thread_chunk WHERE id = ?1";
        query::first(self.connection, "a piece", sql, [id.as_bytes().as_slice()], |row| {
            Fields::new(row, "thread_chunk", id).get("bytes")
        })
    }

    /// Returns the ids of all pieces that are in no pack yet.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn chunks(&self) -> Result<Vec<ObjectId>, CatalogError> {
        let sql = "SELECT id FROM thread_chunk";
        query::all(self.connection, "the pieces", sql, [], |row| {
            Fields::new(row, "thread_chunk", "").hash("id")
        })
    }

    /// Returns the bytes of all pieces that are in no pack yet.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn chunk_bytes(&self) -> Result<u64, CatalogError> {
        let sql = "SELECT coalesce(sum(length(bytes)), 0) AS bytes FROM thread_chunk";
        let found = query::first(self.connection, "the pieces", sql, [], |row| {
            Fields::new(row, "thread_chunk", "").number("bytes")
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Visits the pieces of every value.
    ///
    /// # Errors
    /// When a row is damaged.
    pub fn each_piece(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<(), CatalogError> {
        let sql = "SELECT seq, pieces FROM thread_value WHERE pieces IS NOT NULL";
        query::all(self.connection, "the values", sql, [], |row| {
            let fields = numbered(row, "thread_value");
            let bytes: Vec<u8> = fields.get("pieces")?;
            let pieces = decode_pieces(&bytes).map_err(|error| fields.damaged("pieces", error))?;
            pieces.iter().for_each(|piece| visit(piece.id));
            Ok(())
        })
        .map(drop)
    }

    /// Returns the numbers of all values, ascending.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn value_numbers(&self) -> Result<Vec<u64>, CatalogError> {
        let sql = "SELECT seq FROM thread_value ORDER BY seq";
        query::all(self.connection, "the values", sql, [], |row| numbered(row, "thread_value").number("seq"))
    }
}

fn numbered<'r>(row: &'r Row<'r>, table: &'static str) -> Fields<'r> {
    let seq: i64 = row.get("seq").unwrap_or_default();
    Fields::new(row, table, seq)
}

fn key(fields: &Fields<'_>, column: &str) -> Result<ThreadKey, CatalogError> {
    let workspace: String = fields.get("workspace_id")?;
    let workspace = match workspace.is_empty() {
        true => None,
        false => Some(fields.parse("workspace_id")?),
    };
    let id: String = fields.get(column)?;
    ThreadKey::new(workspace, &id).map_err(|error| fields.damaged(column, error))
}

fn read_thread(row: &Row<'_>) -> Result<ThreadRow, CatalogError> {
    let fields = numbered(row, "thread");
    let thread = Thread {
        key: key(&fields, "id")?,
        serializer: fields.get("serializer")?,
        version: fields.number("version")?,
        created_at: fields.time("created_at")?,
        updated_at: fields.time("updated_at")?,
        ttl_micros: fields.number_maybe("ttl")?,
    };
    let is_rewritten = fields.get::<Option<Vec<u8>>>("document")?.is_some_and(|bytes| bytes.is_empty());
    let document = if is_rewritten { None } else { fields.hash_maybe("document")? };
    Ok(ThreadRow { seq: fields.number("seq")?, thread, document, is_rewritten })
}

fn read_state(row: &Row<'_>) -> Result<StateRow, CatalogError> {
    let fields = numbered(row, "thread_state");
    Ok(StateRow {
        seq: fields.number("seq")?,
        thread_seq: fields.number("thread_seq")?,
        thread: key(&fields, "thread_id")?,
        namespace: fields.get("ns")?,
        id: fields.get("id")?,
        parent: fields.get("parent")?,
        run_id: fields.get("run_id")?,
        metadata: fields.json("metadata")?,
        body: fields.number("body")?,
        channels: fields.json("channels")?,
        files: fields.parse_maybe("files")?,
        files_pruned: fields.flag("files_pruned")?,
        hidden: fields.flag("hidden")?,
        is_head: fields.flag("is_head")?,
        created_at: fields.time("created_at")?,
    })
}

fn read_value(row: &Row<'_>) -> Result<ValueRow, CatalogError> {
    let fields = numbered(row, "thread_value");
    let shared = fields.number("shared")?;
    let (bytes, pieces): (Option<Vec<u8>>, Option<Vec<u8>>) = (fields.get("bytes")?, fields.get("pieces")?);
    if bytes.is_some() == pieces.is_some() {
        return Err(fields.damaged("bytes", "a value has either bytes or pieces"));
    }
    let seq = fields.number("seq")?;
    let base = fields.number_maybe("base")?;
    // Bases come first, so that no chain has a cycle.
    if base.is_some_and(|base| base >= seq) {
        return Err(fields.damaged("base", "it is not an earlier value"));
    }
    Ok(ValueRow {
        seq,
        encoding: fields.get("encoding")?,
        size: fields.number("size")?,
        hash: fields.hash("hash")?,
        bytes,
        base: base.map(|base| (base, shared)),
        depth: fields.number("depth")?,
        pieces,
    })
}
