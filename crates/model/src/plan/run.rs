//! Runs of a plan, and the places where they happen.

use super::spec::SandboxKind;
use crate::checkpoint::word_type;
use crate::{CheckpointId, ModelError, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

word_type! {
    /// How a run of a plan ended.
    RunOutcome, "outcome of a run", {
        /// Every step is done.
        Done = "done",
        /// A step failed.
        Failed = "failed",
        /// It was to go so far and no further.
        Paused = "paused",
        /// Somebody outside has to do the next step.
        Waiting = "waiting",
        /// It was asked to stop while a step was under way.
        Interrupted = "interrupted",
        /// The plan was given up meanwhile.
        Cancelled = "cancelled",
        /// It could not go on, for a reason that is not the plan's.
        Broken = "broken",
        /// Its process died; noted by whoever found out.
        Killed = "killed",
    }
}

word_type! {
    /// What became of a sandbox.
    SandboxState, "sandbox state", {
        /// It is there, to be worked in.
        Ready = "ready",
        /// Its result was taken over, and it is about to be deleted.
        Applied = "applied",
        /// Its result was taken over, and it stays because it holds what nobody else has.
        Kept = "kept",
        /// Its result was taken over, and it is gone.
        Removed = "removed",
    }
}

/// One run of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// A ULID. Its steps get it in their environment.
    pub id: String,
    /// The process.
    pub pid: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended, as far as is known.
    pub ended_at: Option<Timestamp>,
    /// How.
    pub outcome: Option<RunOutcome>,
}

/// A place where a plan works that is not the workspace itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// A ULID.
    pub id: String,
    /// What kind of place.
    pub kind: SandboxKind,
    /// Where.
    pub path: PathBuf,
    /// The workspace that it is.
    pub workspace_id: WorkspaceId,
    /// What it was when it was made: what changed since is the result.
    pub base: CheckpointId,
    /// What became of it.
    pub state: SandboxState,
    /// When it was made.
    pub created_at: Timestamp,
}
