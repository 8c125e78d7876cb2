//! Agents: registration and paths.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::agent::{Agent, AgentPath, AgentRecord};
use safepoint_model::{RelPath, Timestamp, WorkspaceId};
use serde_json::json;

impl Catalog {
    /// Returns every agent, in order of registration.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn agents(&self) -> Result<Vec<AgentRecord>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT name AS id, * FROM agents ORDER BY seq";
            query::all(connection, "the agents", sql, (), |row| read(connection, row))
        })
    }

    /// Returns the agent with this name.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn agent(&self, name: &str) -> Result<Option<AgentRecord>, CatalogError> {
        self.read(|connection| get(connection, name))
    }
}

impl Transaction<'_> {
    /// Returns the agent with this name.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn agent(&self, name: &str) -> Result<Option<AgentRecord>, CatalogError> {
        get(self.connection, name)
    }

    /// Inserts or updates an agent.
    ///
    /// # Errors
    /// When the rows cannot be written.
    pub fn save_agent(&self, agent: &Agent, what: &str, at: Timestamp) -> Result<(), CatalogError> {
        let subject = format_args!("agent {}", agent.name);
        let sql = "INSERT INTO agents (name, settings, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)
                   ON CONFLICT (name) DO UPDATE SET settings = ?2, updated_at = ?3";
        let params = params![agent.name, json("settings", &agent.settings)?, at.micros()];
        query::run(self.connection, subject, sql, params)?;
        let sql = "DELETE FROM agent_paths WHERE agent_seq = (SELECT seq FROM agents WHERE name = ?1)";
        query::run(self.connection, subject, sql, [&agent.name])?;
        for (position, path) in agent.paths.iter().enumerate() {
            let sql = "INSERT INTO agent_paths (agent_seq, position, kind, path)
                       SELECT seq, ?2, ?3, ?4 FROM agents WHERE name = ?1";
            let position = integer("position", position as u64)?;
            let params = params![agent.name, position, path.kind.as_str(), path.path.as_bytes()];
            query::run(self.connection, subject, sql, params)?;
        }
        self.append_event(at, "agent.saved", &agent.name, &json!({ "what": what }))
    }

    /// Binds an agent to a workspace, whatever it was bound to before.
    ///
    /// # Errors
    /// When the agent is not found, or the row cannot be written.
    pub fn bind_agent(&self, name: &str, workspace: WorkspaceId, at: Timestamp) -> Result<(), CatalogError> {
        let sql = "UPDATE agents SET workspace_id = ?2, updated_at = ?3 WHERE name = ?1";
        let params = params![name, workspace.to_string(), at.micros()];
        match query::run(self.connection, format_args!("agent {name}"), sql, params)? {
            0 => Err(CatalogError::missing("agent", name)),
            _ => self.append_event(at, "agent.bound", name, &json!({ "workspace_id": workspace })),
        }
    }

    /// Removes an agent; its files and checkpoints stay.
    ///
    /// # Errors
    /// When it is not found, or the row cannot be deleted.
    pub fn remove_agent(&self, name: &str, at: Timestamp) -> Result<(), CatalogError> {
        let sql = "DELETE FROM agents WHERE name = ?1";
        match query::run(self.connection, format_args!("agent {name}"), sql, [name])? {
            0 => Err(CatalogError::missing("agent", name)),
            _ => self.append_event(at, "agent.removed", name, &json!({})),
        }
    }
}

fn get(connection: &Connection, name: &str) -> Result<Option<AgentRecord>, CatalogError> {
    let sql = "SELECT name AS id, * FROM agents WHERE name = ?1";
    query::first(connection, format_args!("agent {name}"), sql, [name], |row| read(connection, row))
}

fn read(connection: &Connection, row: &Row<'_>) -> Result<AgentRecord, CatalogError> {
    let fields = Fields::with_id(row, "agents");
    let name: String = fields.get("name")?;
    let sql = "SELECT ?1 AS id, kind, path FROM agent_paths
               WHERE agent_seq = (SELECT seq FROM agents WHERE name = ?1) ORDER BY position";
    let paths = query::all(connection, format_args!("the paths of agent {name}"), sql, [&name], |row| {
        let fields = Fields::with_id(row, "agent_paths");
        let bytes: Vec<u8> = fields.get("path")?;
        let path = RelPath::new(bytes).map_err(|error| fields.damaged("path", error))?;
        Ok(AgentPath { kind: fields.parse("kind")?, path })
    })?;
    Ok(AgentRecord {
        agent: Agent { format: Agent::FORMAT, name, settings: fields.json("settings")?, paths },
        created_at: fields.time("created_at")?,
        updated_at: fields.time("updated_at")?,
        workspace_id: fields.parse_maybe("workspace_id")?,
    })
}
