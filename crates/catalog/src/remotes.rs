//! Remotes: their addresses, the line that each workspace publishes to, and what was published.
//!
//! No outbox is kept: a checkpoint that has no row in `remote_published` is to be published. So `create` writes
//! nothing for remotes, and nothing can be lost between the two.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, checkpoints, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::{CheckpointId, LineId, ObjectId, RelPath, Timestamp, WorkspaceId};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Configured remote. It has no credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRemote {
    /// Name.
    pub name: String,
    /// Project.
    pub project: String,
    /// Address of the records.
    pub records: String,
    /// Address of the bytes.
    pub bytes: String,
    /// File with the age identity, if the remote is encrypted.
    pub identity: Option<PathBuf>,
    /// Time of its addition.
    pub added_at: Timestamp,
}

/// Line of a workspace on a remote.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredLine {
    /// Line.
    pub line: LineId,
    /// State at the last answer of the remote; `None` before the first.
    pub state: Option<Value>,
    /// Last published checkpoint and its manifest on this machine.
    pub base: Option<(CheckpointId, ObjectId)>,
    /// Push that is under way.
    pub pending: Option<Value>,
}

/// Place of a published checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedAt {
    /// Checkpoint.
    pub checkpoint: CheckpointId,
    /// Line.
    pub line: LineId,
    /// Sequence number of its push.
    pub seq: u64,
}

impl Catalog {
    /// Returns all remotes by name.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn remotes(&self) -> Result<Vec<StoredRemote>, CatalogError> {
        self.read(|connection| {
            query::all(connection, "the remotes", "SELECT * FROM remotes ORDER BY id", (), read_remote)
        })
    }

    /// Returns the remote with this name.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn remote(&self, name: &str) -> Result<Option<StoredRemote>, CatalogError> {
        self.read(|connection| get(connection, name))
    }

    /// Returns the line of a workspace on a remote.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn remote_line(
        &self,
        remote: &str,
        workspace: WorkspaceId,
    ) -> Result<Option<StoredLine>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM remote_lines WHERE remote = ?1 AND workspace_id = ?2";
            let params = params![remote, workspace.to_string()];
            query::first(connection, format_args!("the line on remote {remote}"), sql, params, read_line)
        })
    }

    /// Returns the checkpoints of a workspace that a remote lacks, oldest first, at most `limit`. Safety and rescue
    /// checkpoints, and those of a sandbox of a plan, are not published.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unpublished(
        &self,
        remote: &str,
        workspace: WorkspaceId,
        limit: u64,
    ) -> Result<Vec<Checkpoint>, CatalogError> {
        let sql = "SELECT * FROM checkpoints c WHERE workspace_id = ?2 AND role IS NULL AND NOT EXISTS
                       (SELECT 1 FROM remote_published p WHERE p.remote = ?1 AND p.checkpoint_id = c.id)
                   AND EXISTS (SELECT 1 FROM checkpoint_parts f
                       WHERE f.checkpoint_id = c.id AND f.kind = 'files' AND f.key = c.workspace_id)
                   ORDER BY seq LIMIT ?3";
        let params = params![remote, workspace.to_string(), integer("limit", limit)?];
        self.read(|connection| {
            query::all(connection, "the unpublished checkpoints", sql, params, |row| {
                checkpoints::read(connection, row)
            })
        })
    }

    /// Returns the published checkpoints of a workspace, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn published(&self, remote: &str, workspace: WorkspaceId) -> Result<Vec<PublishedAt>, CatalogError> {
        let sql = "SELECT p.checkpoint_id AS id, p.line AS line, p.number AS number
                   FROM remote_published p JOIN checkpoints c ON c.id = p.checkpoint_id
                   WHERE p.remote = ?1 AND c.workspace_id = ?2 ORDER BY c.seq";
        self.read(|connection| {
            query::all(
                connection,
                "the published checkpoints",
                sql,
                params![remote, workspace.to_string()],
                read_published,
            )
        })
    }
}

impl Catalog {
    /// Returns the lines that another writer took over from this home, the last one first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn left_lines(&self, remote: &str, workspace: WorkspaceId) -> Result<Vec<LineId>, CatalogError> {
        let sql = "SELECT line AS id FROM remote_left WHERE remote = ?1 AND workspace_id = ?2
                   ORDER BY left_at DESC, line DESC";
        self.read(|connection| {
            query::all(
                connection,
                "the lines that were left",
                sql,
                params![remote, workspace.to_string()],
                |row| Fields::with_id(row, "remote_left").parse("id"),
            )
        })
    }

    /// Returns the lines on which checkpoints with a plan were published, as far as this home knows.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn lines_of_plan(&self, remote: &str, plan: &str) -> Result<Vec<LineId>, CatalogError> {
        let sql = "SELECT DISTINCT p.line AS id
                   FROM remote_published p JOIN checkpoint_parts f ON f.checkpoint_id = p.checkpoint_id
                   WHERE p.remote = ?1 AND f.kind = 'plan' AND f.key = ?2 ORDER BY p.line";
        self.read(|connection| {
            query::all(connection, "the lines of a plan", sql, params![remote, plan], |row| {
                Fields::with_id(row, "remote_published").parse("id")
            })
        })
    }

    /// Returns the ids of the checkpoints of a workspace that a remote lacks, as [`Catalog::unpublished`].
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn unpublished_ids(
        &self,
        remote: &str,
        workspace: WorkspaceId,
    ) -> Result<Vec<CheckpointId>, CatalogError> {
        let sql = "SELECT id FROM checkpoints c WHERE workspace_id = ?2 AND role IS NULL AND NOT EXISTS
                       (SELECT 1 FROM remote_published p WHERE p.remote = ?1 AND p.checkpoint_id = c.id)
                   AND EXISTS (SELECT 1 FROM checkpoint_parts f
                       WHERE f.checkpoint_id = c.id AND f.kind = 'files' AND f.key = c.workspace_id)";
        self.read(|connection| {
            let params = params![remote, workspace.to_string()];
            query::all(connection, "the unpublished checkpoints", sql, params, |row| {
                Fields::with_id(row, "checkpoints").parse("id")
            })
        })
    }

    /// Returns true if a workspace was published, to any remote.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn has_remote_line(&self, workspace: WorkspaceId) -> Result<bool, CatalogError> {
        let sql = "SELECT 1 FROM remote_lines WHERE workspace_id = ?1 AND state IS NOT NULL";
        self.read(|connection| {
            let found = query::first(connection, "the lines", sql, [workspace.to_string()], |_| Ok(()))?;
            Ok(found.is_some())
        })
    }

    /// Returns the place of a checkpoint on a remote.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn published_at(
        &self,
        remote: &str,
        checkpoint: CheckpointId,
    ) -> Result<Option<PublishedAt>, CatalogError> {
        let sql = "SELECT checkpoint_id AS id, line, number FROM remote_published
                   WHERE remote = ?1 AND checkpoint_id = ?2";
        self.read(|connection| {
            let params = params![remote, checkpoint.to_string()];
            query::first(connection, format_args!("checkpoint {checkpoint}"), sql, params, read_published)
        })
    }

    /// Returns the purges that a remote has not carried out yet, with their numbers, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn remote_purges(
        &self,
        remote: &str,
        workspace: WorkspaceId,
    ) -> Result<Vec<(i64, Vec<RelPath>)>, CatalogError> {
        let sql =
            "SELECT seq AS id, paths FROM remote_purges WHERE remote = ?1 AND workspace_id = ?2 ORDER BY seq";
        self.read(|connection| {
            query::all(connection, "the pending purges", sql, params![remote, workspace.to_string()], |row| {
                let fields = Fields::new(row, "remote_purges", remote);
                Ok((fields.get("id")?, fields.json("paths")?))
            })
        })
    }
}

impl Transaction<'_> {
    /// Records that another writer took over a line.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn leave_line(
        &self,
        remote: &str,
        workspace: WorkspaceId,
        line: LineId,
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let sql = "INSERT OR REPLACE INTO remote_left (remote, workspace_id, line, left_at) VALUES (?1, ?2, ?3, ?4)";
        let params = params![remote, workspace.to_string(), line.to_string(), at.micros()];
        query::run(self.connection, format_args!("line {line}"), sql, params)?;
        let payload = json!({ "remote": remote, "workspace_id": workspace });
        self.append_event(at, "line.left", &line.to_string(), &payload)
    }

    /// Records a purge that a remote has to carry out.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn insert_remote_purge(
        &self,
        remote: &str,
        workspace: WorkspaceId,
        paths: &[RelPath],
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let sql = "INSERT INTO remote_purges (remote, workspace_id, paths, at) VALUES (?1, ?2, ?3, ?4)";
        let params = params![remote, workspace.to_string(), json("paths", &paths)?, at.micros()];
        query::run(self.connection, format_args!("a purge on remote {remote}"), sql, params).map(drop)
    }

    /// Records that a remote carried out purges.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn end_remote_purges(&self, numbers: &[i64]) -> Result<(), CatalogError> {
        for number in numbers {
            let sql = "DELETE FROM remote_purges WHERE seq = ?1";
            query::run(self.connection, format_args!("purge {number}"), sql, [number])?;
        }
        Ok(())
    }

    /// Adds a remote.
    ///
    /// # Errors
    /// When the name is taken, or the row cannot be written.
    pub fn insert_remote(&self, remote: &StoredRemote) -> Result<(), CatalogError> {
        if get(self.connection, &remote.name)?.is_some() {
            return Err(CatalogError::Taken { what: "remote", id: remote.name.clone() });
        }
        let sql = "INSERT INTO remotes (id, project, records, bytes, identity, added_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let params = params![
            remote.name,
            remote.project,
            remote.records,
            remote.bytes,
            remote.identity.as_ref().map(|path| path.as_os_str().as_bytes()),
            remote.added_at.micros(),
        ];
        query::run(self.connection, format_args!("remote {}", remote.name), sql, params)?;
        let payload = json!({ "project": remote.project });
        self.append_event(remote.added_at, "remote.added", &remote.name, &payload)
    }

    /// Removes a remote with all that is known of it here. Nothing on the remote changes.
    ///
    /// # Errors
    /// When it is missing, or the rows cannot be written.
    pub fn remove_remote(&self, name: &str, at: Timestamp) -> Result<(), CatalogError> {
        for sql in [
            "DELETE FROM remote_lines WHERE remote = ?1",
            "DELETE FROM remote_published WHERE remote = ?1",
            "DELETE FROM remote_left WHERE remote = ?1",
            "DELETE FROM remote_purges WHERE remote = ?1",
        ] {
            query::run(self.connection, format_args!("remote {name}"), sql, [name])?;
        }
        let sql = "DELETE FROM remotes WHERE id = ?1";
        match query::run(self.connection, format_args!("remote {name}"), sql, [name])? {
            0 => Err(CatalogError::missing("remote", name)),
            _ => self.append_event(at, "remote.removed", name, &json!({})),
        }
    }

    /// Writes the line of a workspace on a remote.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn set_remote_line(
        &self,
        remote: &str,
        workspace: WorkspaceId,
        line: &StoredLine,
    ) -> Result<(), CatalogError> {
        let text = |value: &Option<Value>| value.as_ref().map(|it| json("a line", it)).transpose();
        let sql = "INSERT OR REPLACE INTO remote_lines (remote, workspace_id, id, state, base, base_content, pending)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let params = params![
            remote,
            workspace.to_string(),
            line.line.to_string(),
            text(&line.state)?,
            line.base.map(|(id, _)| id.to_string()),
            line.base.map(|(_, content)| *content.as_bytes()),
            text(&line.pending)?,
        ];
        query::run(self.connection, format_args!("the line on remote {remote}"), sql, params).map(drop)
    }

    /// Records that checkpoints are published.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn note_published(
        &self,
        remote: &str,
        published: &[PublishedAt],
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        let sql = "INSERT OR REPLACE INTO remote_published (remote, checkpoint_id, line, number)
                   VALUES (?1, ?2, ?3, ?4)";
        for PublishedAt { checkpoint, line, seq } in published {
            let params =
                params![remote, checkpoint.to_string(), line.to_string(), integer("sequence number", *seq)?];
            query::run(self.connection, format_args!("checkpoint {checkpoint}"), sql, params)?;
            let payload = json!({ "remote": remote, "line": line, "seq": seq });
            self.append_event(at, "checkpoint.published", &checkpoint.to_string(), &payload)?;
        }
        Ok(())
    }
}

fn get(connection: &Connection, name: &str) -> Result<Option<StoredRemote>, CatalogError> {
    let sql = "SELECT * FROM remotes WHERE id = ?1";
    query::first(connection, format_args!("remote {name}"), sql, [name], read_remote)
}

fn read_remote(row: &Row<'_>) -> Result<StoredRemote, CatalogError> {
    let fields = Fields::with_id(row, "remotes");
    let identity: Option<Vec<u8>> = fields.get("identity")?;
    Ok(StoredRemote {
        name: fields.get("id")?,
        project: fields.get("project")?,
        records: fields.get("records")?,
        bytes: fields.get("bytes")?,
        identity: identity.map(|path| PathBuf::from(OsString::from_vec(path))),
        added_at: fields.time("added_at")?,
    })
}

fn read_published(row: &Row<'_>) -> Result<PublishedAt, CatalogError> {
    let fields = Fields::with_id(row, "remote_published");
    Ok(PublishedAt {
        checkpoint: fields.parse("id")?,
        line: fields.parse("line")?,
        seq: fields.number("number")?,
    })
}

fn read_line(row: &Row<'_>) -> Result<StoredLine, CatalogError> {
    let fields = Fields::with_id(row, "remote_lines");
    let value = |column| match fields.get::<Option<String>>(column)? {
        Some(_) => fields.json(column).map(Some),
        None => Ok(None),
    };
    let base: Option<CheckpointId> = fields.parse_maybe("base")?;
    Ok(StoredLine {
        line: fields.parse("id")?,
        state: value("state")?,
        base: base.zip(fields.hash_maybe("base_content")?),
        pending: value("pending")?,
    })
}
