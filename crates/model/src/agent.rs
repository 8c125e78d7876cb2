//! Agents: what is registered of one, and what a checkpoint keeps of it.

use crate::checkpoint::word_type;
use crate::plan::spec::is_slug;
use crate::{ModelError, ObjectError, ObjectId, ObjectSource, RelPath, Timestamp, document};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

word_type! {
    /// What a path of an agent holds.
    AgentPathKind, "kind of an agent's path", {
        /// How it is set up.
        Config = "config",
        /// What it remembers.
        Memory = "memory",
    }
}

word_type! {
    /// What a registered folder is for.
    #[derive(Default)]
    WorkspaceKind, "kind of workspace", {
        /// Somebody works there.
        #[default]
        Project = "project",
        /// An agent's configuration or memory lies there, or Safepoint's own.
        Agent = "agent",
    }
}

/// A file or a folder of an agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentPath {
    /// What it holds.
    pub kind: AgentPathKind,
    /// Where it is, from the root of the system on.
    pub path: RelPath,
}

/// An agent, as it is registered and as a checkpoint keeps it. The files themselves are parts of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Version of this document.
    pub format: u32,
    /// Its name.
    pub name: String,
    /// What was set by key.
    pub settings: Map<String, Value>,
    /// What belongs to it, in the order of registration.
    pub paths: Vec<AgentPath>,
}

impl Agent {
    /// The version that is written today.
    pub const FORMAT: u32 = 1;

    /// An agent with nothing but a name.
    ///
    /// # Errors
    /// When the name is none: what plans are named by is what agents are named by.
    pub fn new(name: &str) -> Result<Self, ModelError> {
        if !is_slug(name) {
            let why = format!(
                "{name:?} is not up to 64 of a-z, 0-9, `.`, `_` and `-`, the first a letter or a digit"
            );
            return Err(ModelError::Value { what: "the name of an agent", why });
        }
        Ok(Self { format: Self::FORMAT, name: name.to_owned(), settings: Map::new(), paths: Vec::new() })
    }

    /// Reads one back.
    ///
    /// # Errors
    /// When it is missing, damaged or of a newer version.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let agent: Self = document::load(source, id)?;
        match agent.format == Self::FORMAT && is_slug(&agent.name) {
            true => Ok(agent),
            false => Err(ObjectError::Damaged { id, what: "it is no agent that is known today".to_owned() }),
        }
    }
}

/// An agent, and when it was registered and changed.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRecord {
    /// The agent.
    pub agent: Agent,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
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
