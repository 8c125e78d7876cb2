//! Workspaces: registered folders and their current checkpoints.
//!
//! At most one live workspace per root. A removed one keeps its row, because checkpoints belong to it.

use crate::fields::Fields;
use crate::{Catalog, CatalogError, Transaction, checkpoints, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::agent::WorkspaceKind;
use safepoint_model::{CheckpointId, Timestamp, WorkspaceId};
use safepoint_planted::planted;
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Registered folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Id.
    pub id: WorkspaceId,
    /// Absolute path of the folder: bytes.
    pub root: Vec<u8>,
    /// Name for people.
    pub name: String,
    /// Time of registration.
    pub created_at: Timestamp,
    /// Checkpoint that it was last captured as or restored to, unless deleted.
    pub head: Option<CheckpointId>,
    /// Time of removal, if removed.
    pub removed_at: Option<Timestamp>,
    /// Purpose.
    pub kind: WorkspaceKind,
}

impl Workspace {
    /// Returns the folder as a path.
    pub fn root_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.root))
    }
}

impl Catalog {
    /// Returns every live workspace, in order of registration.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn workspaces(&self) -> Result<Vec<Workspace>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM workspaces WHERE removed_at IS NULL ORDER BY seq";
            query::all(connection, "the workspaces", sql, (), read)
        })
    }

    /// Returns the workspace with this id, live or removed.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn workspace(&self, id: WorkspaceId) -> Result<Option<Workspace>, CatalogError> {
        self.read(|connection| get(connection, id))
    }

    /// Returns the live workspace in this folder.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn workspace_at(&self, root: &[u8]) -> Result<Option<Workspace>, CatalogError> {
        self.read(|connection| at(connection, root))
    }
}

impl Transaction<'_> {
    /// Returns the workspace with this id, live or removed.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn workspace(&self, id: WorkspaceId) -> Result<Option<Workspace>, CatalogError> {
        get(self.connection, id)
    }

    /// Returns the live workspace in this folder.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn workspace_at(&self, root: &[u8]) -> Result<Option<Workspace>, CatalogError> {
        at(self.connection, root)
    }

    /// Registers a folder.
    ///
    /// # Errors
    /// When the folder is already registered, or the row cannot be written.
    pub fn register_workspace(&self, workspace: &Workspace) -> Result<(), CatalogError> {
        if workspace.removed_at.is_none()
            && let Some(other) = at(self.connection, &workspace.root)?
        {
            return Err(CatalogError::Registered { root: PathBuf::from(other.root_path()), id: other.id });
        }
        query::run(
            self.connection,
            format_args!("workspace {}", workspace.id),
            "INSERT INTO workspaces (id, root, name, created_at, head, removed_at, kind)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                workspace.id.to_string(),
                workspace.root,
                workspace.name,
                workspace.created_at.micros(),
                workspace.head.map(|id| id.to_string()),
                workspace.removed_at.map(Timestamp::micros),
                workspace.kind.as_str(),
            ],
        )?;
        let payload = json!({ "root": workspace.root_path().to_string_lossy(), "name": workspace.name });
        self.append_event(workspace.created_at, "workspace.registered", &workspace.id.to_string(), &payload)
    }

    /// Sets the purpose of a workspace.
    ///
    /// # Errors
    /// When it is not found, or the row cannot be written.
    pub fn set_workspace_kind(&self, id: WorkspaceId, kind: WorkspaceKind) -> Result<(), CatalogError> {
        let sql = "UPDATE workspaces SET kind = ?2 WHERE id = ?1";
        let params = params![id.to_string(), kind.as_str()];
        match query::run(self.connection, format_args!("workspace {id}"), sql, params)? {
            0 => Err(CatalogError::missing("workspace", id)),
            _ => Ok(()),
        }
    }

    /// Removes a workspace; its checkpoints stay.
    ///
    /// # Errors
    /// When it is not found, or the row cannot be written.
    pub fn remove_workspace(&self, id: WorkspaceId, at: Timestamp) -> Result<(), CatalogError> {
        let changed = query::run(
            self.connection,
            format_args!("workspace {id}"),
            "UPDATE workspaces SET removed_at = ?2 WHERE id = ?1 AND removed_at IS NULL",
            params![id.to_string(), at.micros()],
        )?;
        if changed == 0 {
            return Err(CatalogError::missing("workspace", id));
        }
        self.append_event(at, "workspace.removed", &id.to_string(), &json!({}))
    }

    /// Puts a removed workspace of this folder back on the list, the one that was removed last.
    ///
    /// # Errors
    /// When the catalog cannot be read or written.
    pub fn revive_workspace(&self, root: &[u8], at: Timestamp) -> Result<Option<Workspace>, CatalogError> {
        let sql = "SELECT * FROM workspaces WHERE root = ?1 AND removed_at IS NOT NULL AND kind = ?2
            ORDER BY removed_at DESC, seq DESC";
        let params = params![root, WorkspaceKind::Project.as_str()];
        let Some(known) = query::first(self.connection, "a removed workspace", sql, params, read)? else {
            return Ok(None);
        };
        let what = format_args!("workspace {}", known.id);
        let sql = "UPDATE workspaces SET removed_at = NULL WHERE id = ?1";
        query::run(self.connection, what, sql, [known.id.to_string()])?;
        self.append_event(at, "workspace.revived", &known.id.to_string(), &json!({}))?;
        Ok(Some(Workspace { removed_at: None, ..known }))
    }

    /// Records that the folder of a live workspace has another path now.
    ///
    /// # Errors
    /// When another live workspace has that path, this one is not on the list, or the row cannot be written.
    pub fn move_workspace(
        &self,
        id: WorkspaceId,
        root: &[u8],
        name: &str,
        at: Timestamp,
    ) -> Result<(), CatalogError> {
        if let Some(other) = self.workspace_at(root)? {
            return Err(CatalogError::Registered { root: PathBuf::from(other.root_path()), id: other.id });
        }
        let changed = query::run(
            self.connection,
            format_args!("workspace {id}"),
            "UPDATE workspaces SET root = ?2, name = ?3 WHERE id = ?1 AND removed_at IS NULL",
            params![id.to_string(), root, name],
        )?;
        if changed == 0 {
            return Err(CatalogError::missing("workspace", id));
        }
        let payload = json!({ "root": String::from_utf8_lossy(root), "name": name });
        self.append_event(at, "workspace.moved", &id.to_string(), &payload)
    }

    /// Returns the checkpoint that the workspace was last captured as or restored to.
    ///
    /// # Errors
    /// When the workspace is not found, or the catalog cannot be read.
    pub fn head(&self, id: WorkspaceId) -> Result<Option<CheckpointId>, CatalogError> {
        get(self.connection, id)?
            .map(|workspace| workspace.head)
            .ok_or_else(|| CatalogError::missing("workspace", id))
    }

    /// Sets the current checkpoint of a workspace. The event of the cause covers this, too.
    ///
    /// # Errors
    /// When the workspace or the checkpoint is not found, or the row cannot be written.
    pub fn set_head(&self, id: WorkspaceId, head: CheckpointId) -> Result<(), CatalogError> {
        checkpoints::must_exist(self.connection, head)?;
        if planted!("catalog-head-not-moved") {
            return Ok(());
        }
        let changed = query::run(
            self.connection,
            format_args!("workspace {id}"),
            "UPDATE workspaces SET head = ?2 WHERE id = ?1",
            params![id.to_string(), head.to_string()],
        )?;
        if changed == 0 {
            return Err(CatalogError::missing("workspace", id));
        }
        if cfg!(debug_assertions) {
            let now = get(self.connection, id)?.and_then(|workspace| workspace.head);
            assert_eq!(now, Some(head), "the head of workspace {id}");
        }
        Ok(())
    }
}

fn get(connection: &Connection, id: WorkspaceId) -> Result<Option<Workspace>, CatalogError> {
    let what = format_args!("workspace {id}");
    query::first(connection, what, "SELECT * FROM workspaces WHERE id = ?1", [id.to_string()], read)
}

fn at(connection: &Connection, root: &[u8]) -> Result<Option<Workspace>, CatalogError> {
    let sql = "SELECT * FROM workspaces WHERE root = ?1 AND removed_at IS NULL";
    query::first(connection, "the workspace of a folder", sql, [root], read)
}

fn read(row: &Row<'_>) -> Result<Workspace, CatalogError> {
    let fields = Fields::with_id(row, "workspaces");
    Ok(Workspace {
        id: fields.parse("id")?,
        root: fields.get("root")?,
        name: fields.get("name")?,
        created_at: fields.time("created_at")?,
        head: fields.parse_maybe("head")?,
        removed_at: fields.time_maybe("removed_at")?,
        kind: fields.parse("kind")?,
    })
}
