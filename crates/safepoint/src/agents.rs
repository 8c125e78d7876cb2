//! AGENTS: who is registered, and which files and folders are theirs.

use crate::handles::Agents;
use crate::{CheckpointManager, Error};
use safepoint_model::agent::{Agent, AgentPath, AgentPathKind, AgentRecord};
use safepoint_model::{ModelError, RelPath, WorkspaceId};
use safepoint_workspace::is_made_up;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Absolute form of the path.
pub fn agent_path(path: &AgentPath) -> PathBuf {
    Path::new("/").join(OsStr::from_bytes(path.path.as_bytes()))
}

impl CheckpointManager {
    fn save_registered(
        &self,
        new: Agent,
        paths: Vec<AgentPath>,
        workspace: Option<WorkspaceId>,
    ) -> Result<AgentRecord, Error> {
        let (name, at) = (new.name.clone(), self.environment.now());
        self.catalog.write(|transaction| {
            let mut agent = transaction.agent(&name)?.map_or(new, |record| record.agent);
            for path in paths {
                if !agent.paths.contains(&path) {
                    agent.paths.push(path);
                }
            }
            transaction.save_agent(&agent, "registered", at)?;
            if let Some(workspace) = workspace {
                transaction.bind_agent(&name, workspace, at)?;
            }
            transaction.agent(&name)?.ok_or_else(|| Error::NoAgent { name: name.clone() })
        })
    }
}

impl Agents<'_> {
    /// Registers an agent, or adds paths to one that is registered. The paths need not exist yet.
    ///
    /// # Errors
    /// When the name is none, a path is not absolute or climbs, or the catalog fails.
    pub fn register(&self, name: &str, config: &[PathBuf], memory: &[PathBuf]) -> Result<AgentRecord, Error> {
        self.manager.save_registered(Agent::new(name)?, from_roots(config, memory)?, None)
    }

    /// Registers an agent as [`Agents::register`] does and binds it to the workspace in a folder, which is registered where
    /// it is not yet. Checkpoints of that workspace hold the agent's configuration and memory from now on. An agent is bound to one
    /// workspace at a time.
    ///
    /// # Errors
    /// As [`Agents::register`] and [`Workspaces::register`](crate::Workspaces::register); nothing is registered then.
    pub fn register_at(
        &self,
        name: &str,
        config: &[PathBuf],
        memory: &[PathBuf],
        folder: &Path,
    ) -> Result<AgentRecord, Error> {
        let (new, paths) = (Agent::new(name)?, from_roots(config, memory)?);
        self.manager.save_registered(new, paths, Some(self.manager.workspaces().register(folder)?.id))
    }

    /// The agents that are bound to a workspace, in the order of registration.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn bound_to(&self, workspace: WorkspaceId) -> Result<Vec<AgentRecord>, Error> {
        let mut agents = self.list()?;
        agents.retain(|record| record.workspace_id == Some(workspace));
        Ok(agents)
    }

    /// Every registered agent.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list(&self) -> Result<Vec<AgentRecord>, Error> {
        Ok(self.manager.catalog.agents()?)
    }

    /// The agent of this name.
    ///
    /// # Errors
    /// When there is none, or the catalog cannot be read.
    pub fn get(&self, name: &str) -> Result<AgentRecord, Error> {
        self.manager.catalog.agent(name)?.ok_or_else(|| Error::NoAgent { name: name.to_owned() })
    }

    /// Sets what an agent has under a key; `null` takes it away.
    ///
    /// # Errors
    /// When there is no such agent, or the catalog fails.
    pub fn set(&self, name: &str, key: &str, value: Value) -> Result<AgentRecord, Error> {
        let at = self.manager.environment.now();
        self.manager.catalog.write(|transaction| {
            let missing = || Error::NoAgent { name: name.to_owned() };
            let mut agent = transaction.agent(name)?.ok_or_else(missing)?.agent;
            match value {
                Value::Null => agent.settings.remove(key),
                value => agent.settings.insert(key.to_owned(), value),
            };
            transaction.save_agent(&agent, key, at)?;
            transaction.agent(name)?.ok_or_else(missing)
        })
    }

    /// Takes an agent off the list. Its files and its checkpoints stay.
    ///
    /// # Errors
    /// When there is no such agent, or the catalog fails.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.get(name)?;
        let at = self.manager.environment.now();
        Ok(self.manager.catalog.write(|transaction| transaction.remove_agent(name, at))?)
    }
}

/// The paths of an agent, each from the root on.
fn from_roots(config: &[PathBuf], memory: &[PathBuf]) -> Result<Vec<AgentPath>, Error> {
    let config = config.iter().map(|path| (AgentPathKind::Config, path));
    let memory = memory.iter().map(|path| (AgentPathKind::Memory, path));
    config.chain(memory).map(|(kind, path)| Ok(AgentPath { kind, path: from_root(path)? })).collect()
}

/// An absolute path, from the root on. The folders that exist are named as the system names them, so that no link leads elsewhere later.
fn from_root(path: &Path) -> Result<RelPath, Error> {
    let plain = path.is_absolute() && path.components().all(|it| !matches!(it, Component::ParentDir));
    if !plain || path == Path::new("/") {
        let why = format!("{path:?} is not absolute, has .. in it, or is the root of the system");
        return Err(ModelError::Value { what: "agent path", why }.into());
    }
    // A file is chosen among its neighbours by a pattern, and patterns are text: one that cannot be written would be left out unseen.
    if path.file_name().is_some_and(|name| name.to_str().is_none()) {
        let why = format!("{path:?} has a name that is not UTF-8; register the folder that it is in");
        return Err(ModelError::Value { what: "agent path", why }.into());
    }
    // A path that does not exist yet has an existing ancestor.
    let there = path.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
    let whole = std::fs::canonicalize(there)
        .map_err(|source| Error::Home { path: there.to_owned(), source })?
        .join(rest);
    if is_made_up(&whole) {
        let why = "it is on a virtual file system and cannot be captured";
        return Err(Error::RefusedRoot { path: whole, why });
    }
    let below = whole.strip_prefix("/").unwrap_or(&whole);
    Ok(RelPath::new(below.as_os_str().as_bytes())?)
}
