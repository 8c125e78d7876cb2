//! Runs of a plan, and their sandboxes.

use super::spec::SandboxKind;
use crate::checkpoint::word_type;
use crate::id::RunId;
use crate::{CheckpointId, ModelError, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

word_type! {
    /// Result of a run.
    RunOutcome, "outcome of a run", {
        /// Every step is done.
        Done = "done",
        /// A step failed.
        Failed = "failed",
        /// The requested end was reached.
        Paused = "paused",
        /// The next step must be done outside the runner.
        Waiting = "waiting",
        /// The run was asked to stop during a step.
        Interrupted = "interrupted",
        /// The plan was cancelled during the run.
        Cancelled = "cancelled",
        /// The run could not continue for a reason outside the plan.
        Broken = "broken",
        /// Its process died; recorded by a later command.
        Killed = "killed",
    }
}

word_type! {
    /// State of a sandbox.
    SandboxState, "sandbox state", {
        /// Ready for use.
        Ready = "ready",
        /// Its result was applied, and it is about to be deleted.
        Applied = "applied",
        /// Its result was applied, and it is kept because it has unique content.
        Kept = "kept",
        /// Its result was applied, and it is deleted.
        Removed = "removed",
    }
}

/// Run of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Id, passed to the steps in their environment.
    pub id: RunId,
    /// Process id.
    pub pid: u32,
    /// Start time.
    pub started_at: Timestamp,
    /// End time, if known.
    pub ended_at: Option<Timestamp>,
    /// Outcome, if ended.
    pub outcome: Option<RunOutcome>,
}

/// Working folder of a plan other than the workspace itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Id.
    pub id: String,
    /// Kind of sandbox.
    pub kind: SandboxKind,
    /// Folder of the sandbox.
    pub path: PathBuf,
    /// Workspace that is registered for it.
    pub workspace_id: WorkspaceId,
    /// Checkpoint that it was created from; later changes are its result.
    pub base: CheckpointId,
    /// State.
    pub state: SandboxState,
    /// Time of creation.
    pub created_at: Timestamp,
}
