//! Sessions: a request, its status, and its statistics.
//!
//! A session moves forward from phase to phase. It may pause anywhere and resumes at the same status;
//! completed and failed are final.

mod document;

pub use document::SessionDocument;

use crate::checkpoint::word_type;
use crate::id::SessionId;
use crate::plan::spec::{CONTEXT_DEPTH_MAX, is_shallow};
use crate::{ModelError, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

/// Maximum length of a request.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of the configuration and of the git context, as JSON.
pub const SETTINGS_BYTES_MAX: usize = 256 * 1024;

word_type! {
    /// Status of a session (R7.1).
    SessionStatus, "session status", {
        /// Starting.
        Initializing = "initializing",
        /// Planning the work.
        Planning = "planning",
        /// Splitting the work into tasks.
        GeneratingTasks = "generating_tasks",
        /// Doing the work.
        Implementing = "implementing",
        /// Checking the work.
        Validating = "validating",
        /// Reporting the work.
        GeneratingReport = "generating_report",
        /// Completed.
        Completed = "completed",
        /// Failed.
        Failed = "failed",
        /// Paused; can be resumed.
        Paused = "paused",
    }
}

impl SessionStatus {
    /// Returns true for a final status.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// Returns the allowed next statuses, the usual one first. A paused session resumes at `paused_from`.
    pub fn may_become(self, paused_from: Option<Self>) -> Vec<Self> {
        let mut next = match self {
            Self::Initializing => vec![Self::Planning],
            Self::Planning => vec![Self::GeneratingTasks],
            Self::GeneratingTasks => vec![Self::Implementing],
            Self::Implementing => vec![Self::Validating],
            Self::Validating => vec![Self::GeneratingReport, Self::Implementing],
            Self::GeneratingReport => vec![Self::Completed],
            Self::Completed | Self::Failed => return Vec::new(),
            Self::Paused => paused_from.into_iter().collect(),
        };
        next.push(Self::Failed);
        if self != Self::Paused {
            next.push(Self::Paused);
        }
        next
    }
}

/// Rule that refuses a change of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionRule {
    /// The transition is not allowed.
    #[error("session {id} is {from} and cannot become {to}", id = id.to_uuid())]
    Transition {
        /// Id of the session.
        id: SessionId,
        /// Current state.
        from: SessionStatus,
        /// Requested state.
        to: SessionStatus,
        /// Allowed next statuses.
        allowed: Vec<SessionStatus>,
    },
}

/// Event counted by a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionCount {
    /// Completed task.
    TaskDone,
    /// Failed task.
    TaskFailed,
    /// Decision.
    Decision,
    /// Checkpoint.
    Checkpoint,
    /// Rollback, undo or redo.
    Recovery,
}

/// Counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Completed tasks.
    pub tasks_completed: u64,
    /// Failed tasks.
    pub tasks_failed: u64,
    /// Decisions made.
    pub decisions_made: u64,
    /// Checkpoints taken, including deleted ones.
    pub checkpoints_created: u64,
    /// Rollbacks, undos and redos.
    pub error_recoveries: u64,
}

/// Record of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Id, shown in UUID form.
    pub id: SessionId,
    /// Request.
    pub request: String,
    /// Status.
    pub status: SessionStatus,
    /// Status at which a paused session resumes.
    pub paused_from: Option<SessionStatus>,
    /// Configuration, as set by the agent.
    pub configuration: Map<String, Value>,
    /// Git context, as set by the agent.
    pub git_context: Option<Map<String, Value>>,
    /// Counters.
    pub statistics: Statistics,
    /// Start time.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// End time.
    pub finished_at: Option<Timestamp>,
}

/// Requested change.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionChange {
    /// New request.
    Request(String),
    /// New configuration.
    Configuration(Map<String, Value>),
    /// One value in the configuration; missing parent objects are created.
    ConfigurationKey {
        /// Keys, outermost first.
        path: Vec<String>,
        /// New value.
        value: Value,
    },
    /// New git context, or `None`.
    GitContext(Option<Map<String, Value>>),
    /// A count that another program reports.
    Count {
        /// Name of the count: `tasks_completed`, `tasks_failed` or `decisions_made`.
        name: String,
        /// Its change.
        change: CountChange,
    },
}

/// A change of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountChange {
    /// So many more.
    More(u64),
    /// So many in all.
    Total(u64),
}

fn refuse(what: &'static str, why: impl Into<String>) -> ModelError {
    ModelError::Value { what, why: why.into() }
}

impl Session {
    /// Creates a session.
    pub fn new(id: SessionId, request: String, at: Timestamp) -> Self {
        Self {
            id,
            request,
            status: SessionStatus::Initializing,
            paused_from: None,
            configuration: Map::new(),
            git_context: None,
            statistics: Statistics::default(),
            created_at: at,
            updated_at: at,
            finished_at: None,
        }
    }

    /// Changes the status.
    ///
    /// # Errors
    /// When the transition is not allowed; the session is unchanged.
    pub fn go(&mut self, to: SessionStatus, at: Timestamp) -> Result<(), SessionRule> {
        let allowed = self.status.may_become(self.paused_from);
        if !allowed.contains(&to) {
            return Err(SessionRule::Transition { id: self.id, from: self.status, to, allowed });
        }
        self.paused_from = (to == SessionStatus::Paused).then_some(self.status);
        self.status = to;
        self.updated_at = at;
        self.finished_at = to.is_over().then_some(at);
        Ok(())
    }

    /// Applies a requested change.
    ///
    /// # Errors
    /// When the value cannot be stored. The session must be discarded then.
    pub fn change(&mut self, change: SessionChange, at: Timestamp) -> Result<(), ModelError> {
        match change {
            SessionChange::Request(request) => self.request = request,
            SessionChange::Configuration(configuration) => self.configuration = configuration,
            SessionChange::ConfigurationKey { path, value } => set(&mut self.configuration, &path, value)?,
            SessionChange::GitContext(context) => self.git_context = context,
            SessionChange::Count { name, change } => {
                let field = match name.as_str() {
                    "tasks_completed" => &mut self.statistics.tasks_completed,
                    "tasks_failed" => &mut self.statistics.tasks_failed,
                    "decisions_made" => &mut self.statistics.decisions_made,
                    _ => return Err(refuse("count", "it counts by itself")),
                };
                *field = match change {
                    CountChange::More(more) => field.saturating_add(more),
                    CountChange::Total(total) => total,
                };
                if i64::try_from(*field).is_err() {
                    return Err(refuse("count", "it is too large"));
                }
            }
        }
        self.updated_at = at;
        self.check()
    }

    /// True if it is on record. A session that only checkpoints name has no request.
    pub fn is_recorded(&self) -> bool {
        !self.request.is_empty()
    }

    /// Checks that it can be stored.
    ///
    /// # Errors
    /// The first value that is empty, too long or too deep.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.request.trim().is_empty() {
            return Err(refuse("request", "it is empty"));
        }
        if self.request.contains('\0') {
            return Err(refuse("request", "text must not contain NUL"));
        }
        if self.request.len() > REQUEST_BYTES_MAX {
            let why = format!("it has {} bytes; the maximum is {REQUEST_BYTES_MAX}", self.request.len());
            return Err(refuse("request", why));
        }
        settings_fit("configuration", &self.configuration)?;
        self.git_context.as_ref().map_or(Ok(()), |context| settings_fit("git context", context))
    }

    /// Increments a counter.
    pub fn count(&mut self, what: SessionCount, at: Timestamp) {
        let field = match what {
            SessionCount::TaskDone => &mut self.statistics.tasks_completed,
            SessionCount::TaskFailed => &mut self.statistics.tasks_failed,
            SessionCount::Decision => &mut self.statistics.decisions_made,
            SessionCount::Checkpoint => &mut self.statistics.checkpoints_created,
            SessionCount::Recovery => &mut self.statistics.error_recoveries,
        };
        *field = field.saturating_add(1);
        self.updated_at = at;
    }

    /// Returns the duration so far, or zero if the clock was set back.
    pub fn duration_micros(&self, now: Timestamp) -> u64 {
        let end = self.finished_at.unwrap_or(now);
        u64::try_from(end.micros().saturating_sub(self.created_at.micros())).unwrap_or(0)
    }
}

/// Sets the value at the end of the path.
fn set(object: &mut Map<String, Value>, path: &[String], value: Value) -> Result<(), ModelError> {
    let (last, above) = match path {
        [] => return Err(refuse("configuration", "the key is missing")),
        path if path.iter().any(String::is_empty) => return Err(refuse("configuration", "a key is empty")),
        [above @ .., last] => (last, above),
    };
    let mut object = object;
    for (depth, key) in above.iter().enumerate() {
        let below = object.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(below) = below else {
            let why = format!("{} is not an object", path[..=depth].join("."));
            return Err(refuse("configuration", why));
        };
        object = below;
    }
    object.insert(last.clone(), value);
    Ok(())
}

/// Deeper nesting could be written but not read.
fn settings_fit(what: &'static str, settings: &Map<String, Value>) -> Result<(), ModelError> {
    if !settings.values().all(|value| is_shallow(value, CONTEXT_DEPTH_MAX)) {
        return Err(refuse(what, format!("values may nest at most {CONTEXT_DEPTH_MAX} levels deep")));
    }
    let bytes = serde_json::to_vec(settings).map_err(|error| refuse(what, error.to_string()))?.len();
    if bytes > SETTINGS_BYTES_MAX {
        return Err(refuse(what, format!("it has {bytes} bytes; the maximum is {SETTINGS_BYTES_MAX}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
