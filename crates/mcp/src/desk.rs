//! Boundary between the protocol and the commands: calls go out, answers come back.

use crate::CallOrigin;
use safepoint::{Failure, Progress};
use serde_json::Value;
use std::ffi::OsString;

/// Range of rows in a long list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Rows to skip.
    pub skip: usize,
    /// Maximum number of rows.
    pub rows_max: usize,
}

/// Change of a step in a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum StepAction {
    /// The step starts.
    Start,
    /// The step is done, with its output if any.
    Finish(Option<Value>),
    /// The step failed, with the error.
    Fail(String),
    /// The step is appended to the plan.
    Add(Option<String>),
}

/// Work for the [`Desk`]. All texts come from a model and are untrusted.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Changes since the newest checkpoint, and coverage.
    Status,
    /// Checkpoints of the workspace, newest first.
    Checkpoints(Page),
    /// Rollbacks, undos and redos, newest first.
    History(Page),
    /// Differences between two checkpoints, or a checkpoint and the current state.
    Changes {
        /// Older checkpoint; the position if `None`.
        from: Option<String>,
        /// Newer checkpoint; the current state if `None`.
        to: Option<String>,
        /// Only these paths, if any.
        paths: Vec<String>,
        /// Rows to return.
        page: Page,
        /// Maximum size of the patch.
        patch_bytes_max: usize,
    },
    /// Content of a file in a checkpoint.
    FileAt {
        /// Checkpoint.
        checkpoint: String,
        /// Path in the workspace.
        path: OsString,
        /// Maximum number of bytes to return.
        bytes_max: usize,
    },
    /// Plans of the workspace and one of them whole: the named one, otherwise the active one.
    Plan {
        /// Id of the plan.
        id: Option<String>,
    },
    /// Effect of a rollback, without doing it.
    Preview {
        /// Checkpoint.
        to: String,
        /// Only these paths, if any.
        paths: Vec<String>,
    },
    /// New checkpoint.
    Checkpoint {
        /// Label.
        label: String,
    },
    /// Change of a step.
    Step {
        /// Plan; the active one if `None`.
        plan: Option<String>,
        /// Step.
        id: String,
        /// Change.
        action: StepAction,
    },
    /// New decision of a plan.
    Decide {
        /// Plan; the active one if `None`.
        plan: Option<String>,
        /// Question.
        question: String,
        /// Choice.
        choice: String,
        /// Reason.
        why: Option<String>,
        /// Other choices.
        alternatives: Vec<String>,
        /// Step that it belongs to.
        step: Option<String>,
    },
    /// Rollback to a checkpoint.
    Rollback {
        /// Id of the checkpoint.
        to: String,
        /// Only these paths, if any.
        paths: Vec<String>,
    },
    /// Undo of the last rollback.
    Undo {
        /// Shows the effect only.
        dry_run: bool,
        /// Replaces files that changed since.
        force: bool,
    },
    /// Redo of the last undo.
    Redo {
        /// Shows the effect only.
        dry_run: bool,
    },
    /// Open attempts of the workspace, compared.
    Attempts,
    /// Takes the result of an attempt over.
    Keep {
        /// Name or number of the attempt.
        attempt: String,
        /// Drops the other open attempts.
        drops_others: bool,
        /// Shows the effect only.
        dry_run: bool,
    },
    /// Closes an attempt.
    Drop {
        /// Name or number of the attempt.
        attempt: String,
    },
    /// Fingerprint of the workspace: `data.tree`. `data.base` is the checkpoint it was compared with, and
    /// `data.changed` the number of changes since.
    Tree {
        /// Checkpoint; the position if `None`.
        base: Option<String>,
    },
    /// Fingerprint of the records: `data.timeline` and `data.plans`.
    Stamp,
}

/// Result of a [`Call`], as in the JSON output of the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Exit code of the same command.
    pub exit_code: u8,
    /// Data; null on failure.
    pub data: Value,
    /// Failure.
    pub error: Option<Failure>,
    /// Warnings and notes.
    pub messages: Vec<Value>,
}

/// Receiver of progress, with a stop request.
pub trait Watch: Progress + Send {}

impl<T: Progress + Send> Watch for T {}

/// Workspace, with the commands that work on it.
pub trait Desk: Send + Sync + 'static {
    /// Runs a call to its end.
    fn perform(&self, call: &Call, origin: &CallOrigin, watch: Box<dyn Watch>) -> Answer;

    /// Exit code of a failure.
    fn exit_code(&self, failure: &Failure) -> u8;
}
