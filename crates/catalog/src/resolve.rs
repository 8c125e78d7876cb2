//! Resolution of checkpoint references: none, one, or a list to choose from.
//!
//! The text is compared, never interpreted: `%` and `_` are ordinary characters.

use crate::{Catalog, CatalogError, Transaction, checkpoints, query};
use rusqlite::{Connection, Params, params};
use safepoint_model::WorkspaceId;
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::reference::Reference;

/// Result of a resolution.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolved {
    /// Exactly one checkpoint.
    One(Box<Checkpoint>),
    /// No checkpoint.
    None,
    /// Several checkpoints: the newest twenty at most, newest first.
    Ambiguous(Vec<Checkpoint>),
}

impl Catalog {
    /// Resolves a reference. `@` and labels are those of the workspace, or of all if none is given.
    ///
    /// `@` and `@~N` skip checkpoints that Safepoint made for itself. An exact label wins over an id prefix;
    /// a label in the workspace wins over one of a multi-folder checkpoint. An id is looked up in the
    /// workspace first, then everywhere.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn resolve(
        &self,
        workspace: Option<WorkspaceId>,
        reference: &Reference,
    ) -> Result<Resolved, CatalogError> {
        self.read(|connection| resolve(connection, workspace, reference))
    }
}

impl Transaction<'_> {
    /// Resolves a reference like [`Catalog::resolve`].
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn resolve(
        &self,
        workspace: Option<WorkspaceId>,
        reference: &Reference,
    ) -> Result<Resolved, CatalogError> {
        resolve(self.connection, workspace, reference)
    }
}

fn resolve(
    connection: &Connection,
    workspace: Option<WorkspaceId>,
    reference: &Reference,
) -> Result<Resolved, CatalogError> {
    let workspace = workspace.map(|id| id.to_string());
    match reference {
        Reference::Newest { back } => newest(connection, workspace.as_deref(), *back),
        Reference::Here => find(
            connection,
            "SELECT * FROM checkpoints WHERE id = (SELECT head FROM workspaces WHERE id = ?1)",
            [workspace.as_deref()],
        ),
        Reference::Id(id) => {
            Ok(checkpoints::get(connection, *id)?.map_or(Resolved::None, |found| Resolved::One(found.into())))
        }
        Reference::Name { text, prefix } => {
            let labelled = by_label(connection, workspace.as_deref(), text)?;
            let Some(prefix) = prefix.as_deref().filter(|_| labelled == Resolved::None) else {
                return Ok(labelled);
            };
            match by_prefix(connection, workspace.as_deref(), prefix)? {
                Resolved::None => by_prefix(connection, None, prefix),
                found => Ok(found),
            }
        }
    }
}

fn newest(connection: &Connection, workspace: Option<&str>, back: u64) -> Result<Resolved, CatalogError> {
    // A number beyond SQLite's range exceeds the number of checkpoints.
    let Ok(back) = i64::try_from(back) else { return Ok(Resolved::None) };
    match workspace {
        Some(workspace) => find(
            connection,
            "SELECT * FROM checkpoints WHERE workspace_id = ?1 AND role IS NULL
             ORDER BY seq DESC LIMIT 1 OFFSET ?2",
            params![workspace, back],
        ),
        None => find(
            connection,
            "SELECT * FROM checkpoints WHERE role IS NULL ORDER BY seq DESC LIMIT 1 OFFSET ?1",
            [back],
        ),
    }
}

fn by_label(connection: &Connection, workspace: Option<&str>, label: &str) -> Result<Resolved, CatalogError> {
    let own = find(
        connection,
        "SELECT * FROM checkpoints WHERE label = ?1 AND (?2 IS NULL OR workspace_id = ?2)
         ORDER BY seq DESC LIMIT 20",
        params![label, workspace],
    )?;
    if own != Resolved::None {
        return Ok(own);
    }
    find(
        connection,
        "SELECT * FROM checkpoints WHERE label = ?1 AND workspace_id IS NULL ORDER BY seq DESC LIMIT 20",
        [label],
    )
}

fn by_prefix(
    connection: &Connection,
    workspace: Option<&str>,
    prefix: &str,
) -> Result<Resolved, CatalogError> {
    find(
        connection,
        "SELECT * FROM checkpoints WHERE id >= ?1 AND substr(id, 1, length(?1)) = ?1
            AND (?2 IS NULL OR workspace_id = ?2)
         ORDER BY seq DESC LIMIT 20",
        params![prefix, workspace],
    )
}

fn find(connection: &Connection, sql: &'static str, params: impl Params) -> Result<Resolved, CatalogError> {
    let mut found =
        query::all(connection, "checkpoints by name", sql, params, |row| checkpoints::read(connection, row))?;
    Ok(match (found.pop(), found.is_empty()) {
        (None, _) => Resolved::None,
        (Some(one), true) => Resolved::One(Box::new(one)),
        (Some(oldest), false) => {
            found.push(oldest);
            Resolved::Ambiguous(found)
        }
    })
}
