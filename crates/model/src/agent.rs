//! Agents: the registered state, and the state in a checkpoint.

use crate::checkpoint::word_type;
use crate::plan::spec::is_slug;
use crate::{ModelError, ObjectError, ObjectId, ObjectSource, RelPath, Timestamp, WorkspaceId, document};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

word_type! {
    /// Content of an agent's path.
    AgentPathKind, "kind of an agent's path", {
        /// Configuration.
        Config = "config",
        /// Memory.
        Memory = "memory",
    }
}

word_type! {
    /// Purpose of a registered folder.
    #[derive(Default)]
    WorkspaceKind, "kind of workspace", {
        /// Folder of a project.
        #[default]
        Project = "project",
        /// Configuration or memory of an agent, or Safepoint's own home.
        Agent = "agent",
        /// Project in the room of an attempt.
        Attempt = "attempt",
    }
}

/// File or folder of an agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentPath {
    /// Kind of content.
    pub kind: AgentPathKind,
    /// Path from the file system root.
    pub path: RelPath,
}

/// Agent, as registered and as stored in a checkpoint. Its files are separate parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Version of this document.
    pub format: u32,
    /// Name.
    pub name: String,
    /// Settings by key.
    pub settings: Map<String, Value>,
    /// Paths of the agent, in order of registration.
    pub paths: Vec<AgentPath>,
}

impl Agent {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Creates an agent without settings or paths.
    ///
    /// # Errors
    /// When the name is invalid; agents are named like plans.
    pub fn new(name: &str) -> Result<Self, ModelError> {
        if !is_slug(name) {
            let why = format!(
                "{name:?} must have 1 to 64 of the characters a-z, 0-9, `.`, `_` and `-`, and begin with a letter or a digit"
            );
            return Err(ModelError::Value { what: "agent name", why });
        }
        Ok(Self { format: Self::FORMAT, name: name.to_owned(), settings: Map::new(), paths: Vec::new() })
    }

    /// Loads an agent.
    ///
    /// # Errors
    /// When it is missing, damaged or of a newer version.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let agent: Self = document::load(source, id)?;
        match agent.format == Self::FORMAT && is_slug(&agent.name) {
            true => Ok(agent),
            false => Err(ObjectError::Damaged { id, what: "it is not a known agent document".to_owned() }),
        }
    }
}

/// Agent with its times of registration and change.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRecord {
    /// Agent.
    pub agent: Agent,
    /// Time of registration.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// The workspace that it is bound to: checkpoints of that workspace hold it.
    pub workspace_id: Option<WorkspaceId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_name_and_nothing_else() {
        assert_eq!(Agent::new("claude-code").unwrap().name, "claude-code");
        for bad in ["", "../x", "A", "a/b", "a b", "'; DROP TABLE agents"] {
            assert!(Agent::new(bad).is_err(), "{bad}");
        }
    }
}
