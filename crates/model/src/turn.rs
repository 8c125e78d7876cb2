//! Turns of agents: one prompt each, and the work that was done for it.

use crate::{CheckpointId, RelPath, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};

/// One prompt to an agent, and the work that was done for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Workspace.
    pub workspace_id: WorkspaceId,
    /// Number in its workspace, from 1; never used again.
    pub number: u64,
    /// Name of the agent.
    pub agent: String,
    /// Session of the agent.
    pub session_id: String,
    /// Id that the agent gave it.
    pub key: Option<String>,
    /// Prompt, shortened.
    pub prompt: String,
    /// Language model.
    pub model: Option<String>,
    /// Permission mode of the agent.
    pub permission_mode: Option<String>,
    /// Time of the prompt.
    pub opened_at: Timestamp,
    /// Time of the end.
    pub closed_at: Option<Timestamp>,
    /// Checkpoint before its first change.
    pub before: Option<CheckpointId>,
    /// Checkpoint at its end.
    pub after: Option<CheckpointId>,
    /// Number of tool calls that may have changed files.
    pub commands: u64,
    /// Paths added, modified and removed, once it is over.
    pub changes: Option<[u64; 3]>,
    /// Reason why a part of it has no checkpoint.
    pub not_covered: Option<String>,
    /// Paths that its tools named as their targets.
    pub named: Vec<RelPath>,
    /// Names of its tools that may change files.
    pub tools: Vec<String>,
    /// Subagents that worked for it.
    pub subagents: Vec<String>,
}
