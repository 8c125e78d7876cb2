//! Boundary between the HTTP API and the commands: calls go out, answers come back.

use safepoint::{Failure, Progress};
use serde_json::Value;

/// State of a workspace. Ids are untrusted texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Checkpoint.
    Checkpoint(String),
    /// Parent of the other side of a comparison.
    Parent,
    /// Current state.
    Present,
}

/// File of a state. The path is untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// State.
    pub state: State,
    /// Path in the workspace.
    pub path: Vec<u8>,
}

/// Selection of checkpoints that Safepoint makes for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// Listed with the others.
    Listed,
    /// Left out.
    LeftOut,
}

/// Page of the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Only checkpoints before this place.
    pub before: Option<u64>,
    /// Only checkpoints at this place or after it.
    pub from: Option<u64>,
    /// Rows to skip.
    pub skip: u64,
    /// Rows to return.
    pub limit: u64,
    /// Only of this session.
    pub session: Option<String>,
    /// Only by this agent or tool.
    pub agent: Option<String>,
    /// Only of this plan.
    pub plan: Option<String>,
    /// Checkpoints that Safepoint makes for itself.
    pub own: Own,
}

/// Subject of a preview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviewOf {
    /// Rollback to a checkpoint.
    Rollback,
    /// Undo of the last rollback.
    Undo,
    /// Redo of the last undo.
    Redo,
    /// Undo of one turn.
    Turn(u64),
    /// Rollback of a plan.
    Plan,
    /// Correction of a plan by a rollback.
    Correct,
    /// Taking over of an attempt.
    Keep,
}

/// Rollback to preview, then to confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Subject.
    pub of: PreviewOf,
    /// Checkpoint.
    pub to: Option<String>,
    /// Plan.
    pub plan: Option<String>,
    /// Attempt.
    pub attempt: Option<String>,
    /// Only these paths, if any.
    pub paths: Vec<Vec<u8>>,
    /// Paths to leave as they are.
    pub leave: Vec<Vec<u8>>,
    /// Only parts of these kinds, if any.
    pub parts: Vec<String>,
    /// Guidance for the next attempt of a plan.
    pub guidance: Option<String>,
    /// True to replace paths that changed since.
    pub replaces_later: bool,
    /// True to go on after an undo command that fails.
    pub skips_failed_undo: bool,
}

/// Previewed rollback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// As it was previewed.
    pub wish: Wish,
    /// Checkpoint that the preview went to; that of the result of an attempt.
    pub to: String,
    /// Fingerprint of the state that the preview showed.
    pub present: String,
}

/// Comparison of letters in a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// Upper and lower case differ.
    Exact,
    /// Upper and lower case are equal.
    AnyCase,
}

/// Search for the newest state that a check passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Find {
    /// Command, or `None` for the test command of the configuration.
    pub command: Option<String>,
    /// True for a binary search.
    pub bisects: bool,
    /// First candidate.
    pub from: Option<String>,
}

/// Work for the [`Desk`]. All texts come from a client and are untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// The workspace, and its last good checkpoint.
    Workspace,
    /// Page of checkpoints.
    Checkpoints(Listing),
    /// One checkpoint.
    Checkpoint(String),
    /// Rollbacks, newest first.
    Rollbacks {
        /// Rows to return.
        limit: u64,
    },
    /// Changed paths over the timeline.
    Strip {
        /// Number of buckets.
        buckets: u64,
    },
    /// One folder.
    Tree {
        /// Folder.
        place: Place,
        /// Rows to skip.
        skip: u64,
        /// Rows to return.
        limit: u64,
    },
    /// Changed paths between two states.
    Diff {
        /// Older state.
        from: State,
        /// Newer state.
        to: State,
        /// Rows to skip.
        skip: u64,
        /// Rows to return.
        limit: u64,
    },
    /// Versions of a path.
    History {
        /// Path.
        path: Vec<u8>,
        /// Only before this place.
        before: Option<u64>,
        /// Rows to return.
        limit: u64,
    },
    /// Newest state of a path with this line.
    Line {
        /// Path.
        path: Vec<u8>,
        /// Text in the line.
        text: String,
    },
    /// Plans of the workspace.
    Plans,
    /// One plan.
    Plan(String),
    /// Output of a step.
    Output {
        /// Plan.
        plan: String,
        /// Step.
        step: String,
        /// Bytes to skip.
        after: u64,
    },
    /// Sessions.
    Sessions,
    /// Turns, newest first.
    Turns {
        /// Only with a smaller number.
        before: Option<u64>,
        /// Rows to return.
        limit: u64,
    },
    /// Agents.
    Agents,
    /// Attempts, the oldest first.
    Attempts,
    /// Disk usage, with the checkpoints of which deletion frees most.
    Usage {
        /// Checkpoints to return.
        limit: u64,
    },
    /// Current state beside the position.
    Present,
    /// Events after this number.
    Events {
        /// Number of the last known event.
        after: u64,
        /// Rows to return.
        limit: u64,
    },
    /// Number of the last event.
    LastEvent,
    /// New checkpoint.
    Create {
        /// Label.
        label: Option<String>,
    },
    /// Pinning.
    Pin(String),
    /// Unpinning.
    Unpin(String),
    /// Deletion, or its effect alone.
    Delete {
        /// Checkpoints.
        ids: Vec<String>,
        /// True to show the effect alone.
        dry_run: bool,
    },
    /// Effect of a rollback.
    Preview(Wish),
    /// Previewed rollback.
    Confirm(Bound),
    /// Undo of exactly this rollback.
    UndoOf(String),
    /// Closing of an attempt; its last state is a checkpoint first.
    DropAttempt(String),
    /// Another attempt of the failed step of a plan, from the current state.
    CorrectInPlace {
        /// Plan.
        plan: String,
        /// Guidance for the next attempt.
        guidance: Option<String>,
    },
    /// Run of a plan from where it stopped.
    Resume {
        /// Plan.
        plan: String,
        /// Answer for an interrupted step: `rerun`, `done` or `fail`.
        interrupted: Option<String>,
    },
    /// Text search in every version.
    Search {
        /// Text.
        text: String,
        /// Only at this path or below.
        path: Vec<u8>,
        /// Comparison of letters.
        letters: Letters,
        /// Maximum number of results.
        limit: u64,
    },
    /// Search for a good state.
    FindGood(Find),
}

impl Call {
    /// Returns true if the call writes: to the home, to the workspace, or by a recovery.
    pub fn writes(&self) -> bool {
        match self {
            Call::Present
            | Call::Create { .. }
            | Call::Pin(_)
            | Call::Unpin(_)
            | Call::Delete { .. }
            | Call::Preview(_)
            | Call::Confirm(_)
            | Call::UndoOf(_)
            | Call::DropAttempt(_)
            | Call::CorrectInPlace { .. }
            | Call::Resume { .. }
            | Call::FindGood(_) => true,
            // The current state can be read after a recovery only.
            Call::Diff { from, to, .. } => [from, to].contains(&&State::Present),
            Call::Tree { place, .. } => place.state == State::Present,
            _ => false,
        }
    }
}

/// Kind of a [`Blob`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobKind {
    /// File.
    File,
    /// Symbolic link; its bytes are the target.
    Symlink,
    /// Directory, without bytes.
    Directory,
}

/// Entry of a state, with its content.
#[derive(Debug, Clone, PartialEq)]
pub struct Blob {
    /// Kind.
    pub kind: BlobKind,
    /// Entry, as in the JSON output of the command line.
    pub entry: Value,
    /// Size of the content.
    pub size: u64,
    /// Content, or `None` if it is larger than requested.
    pub bytes: Option<Vec<u8>>,
}

/// Receiver of progress and of results as they come, with a stop request.
pub trait Watch: Progress + Send {
    /// One result.
    fn item(&self, item: Value);
}

/// Workspace, with the commands that work on it.
pub trait Desk: Send + Sync + 'static {
    /// Runs a call to its end.
    ///
    /// # Errors
    /// The failure of the same command.
    fn perform(&self, call: &Call, watch: &dyn Watch) -> Result<Value, Failure>;

    /// Reads the entry at a place, if there is one.
    ///
    /// # Errors
    /// If the state or the content cannot be read.
    fn read(&self, place: &Place, bytes_max: u64) -> Result<Option<Blob>, Failure>;
}
