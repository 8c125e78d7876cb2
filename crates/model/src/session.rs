//! Sessions: what somebody asked for, how far it is, and what was counted on the way.
//!
//! A session goes forward from phase to phase. It may pause anywhere and goes on where it paused; what is completed or failed is over.

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

/// No request is longer than this.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Neither configuration nor git context is longer than this, as JSON.
pub const SETTINGS_BYTES_MAX: usize = 256 * 1024;

word_type! {
    /// How far a session is (R7.1).
    SessionStatus, "session status", {
        /// It begins.
        Initializing = "initializing",
        /// What to do is being found out.
        Planning = "planning",
        /// The work is being cut into tasks.
        GeneratingTasks = "generating_tasks",
        /// It is being done.
        Implementing = "implementing",
        /// It is being checked.
        Validating = "validating",
        /// What was done is being told.
        GeneratingReport = "generating_report",
        /// It is done.
        Completed = "completed",
        /// It did not work.
        Failed = "failed",
        /// It waits, to go on where it was.
        Paused = "paused",
    }
}

impl SessionStatus {
    /// Whether nothing follows it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// What may follow it, the usual way first. `paused_from` is where a paused one goes on.
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

/// Why something may not happen to a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionRule {
    /// It cannot go from where it is to where it was to go.
    #[error("session {id} is {from} and cannot become {to}", id = id.to_uuid())]
    Transition {
        /// Which.
        id: SessionId,
        /// Where it is.
        from: SessionStatus,
        /// Where it was to go.
        to: SessionStatus,
        /// Where it can go.
        allowed: Vec<SessionStatus>,
    },
}

/// Something that a session counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionCount {
    /// A task is done.
    TaskDone,
    /// A task failed.
    TaskFailed,
    /// A decision was made.
    Decision,
    /// A checkpoint was taken.
    Checkpoint,
    /// A rollback, an undo or a redo was done.
    Recovery,
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Tasks that are done.
    pub tasks_completed: u64,
    /// Tasks that failed.
    pub tasks_failed: u64,
    /// Decisions that were made.
    pub decisions_made: u64,
    /// Checkpoints that were taken, also those that are deleted by now.
    pub checkpoints_created: u64,
    /// Rollbacks, undos and redos that were done.
    pub error_recoveries: u64,
}

/// The record of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Its name; people and programs see it in UUID form.
    pub id: SessionId,
    /// What somebody asked for.
    pub request: String,
    /// How far it is.
    pub status: SessionStatus,
    /// Where it goes on, if it is paused.
    pub paused_from: Option<SessionStatus>,
    /// How it works, as whoever drives it wants to remember it.
    pub configuration: Map<String, Value>,
    /// Where it works in git, as far as somebody said.
    pub git_context: Option<Map<String, Value>>,
    /// What was counted.
    pub statistics: Statistics,
    /// When it began.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was over.
    pub finished_at: Option<Timestamp>,
}

/// A change that somebody asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionChange {
    /// Another request.
    Request(String),
    /// Another configuration.
    Configuration(Map<String, Value>),
    /// One value in the configuration; objects on the way to it are made.
    ConfigurationKey {
        /// The keys, outermost first.
        path: Vec<String>,
        /// What it is to be.
        value: Value,
    },
    /// Another git context, or none.
    GitContext(Option<Map<String, Value>>),
}

fn refuse(what: &'static str, why: impl Into<String>) -> ModelError {
    ModelError::Value { what, why: why.into() }
}

impl Session {
    /// A session that begins.
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

    /// Goes to another status.
    ///
    /// # Errors
    /// When it may not; nothing has changed then.
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

    /// Changes what may be changed by hand.
    ///
    /// # Errors
    /// When the value is not one that can be kept. The session is not to be used then.
    pub fn change(&mut self, change: SessionChange, at: Timestamp) -> Result<(), ModelError> {
        match change {
            SessionChange::Request(request) => self.request = request,
            SessionChange::Configuration(configuration) => self.configuration = configuration,
            SessionChange::ConfigurationKey { path, value } => set(&mut self.configuration, &path, value)?,
            SessionChange::GitContext(context) => self.git_context = context,
        }
        self.updated_at = at;
        self.check()
    }

    /// Whether it can be kept.
    ///
    /// # Errors
    /// The first thing that is empty, too long or too deep.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.request.trim().is_empty() {
            return Err(refuse("request", "it is empty"));
        }
        if self.request.contains('\0') {
            return Err(refuse("request", "a text holds no NUL"));
        }
        if self.request.len() > REQUEST_BYTES_MAX {
            let why = format!("it has {} bytes, and at most {REQUEST_BYTES_MAX} fit", self.request.len());
            return Err(refuse("request", why));
        }
        settings_fit("configuration", &self.configuration)?;
        self.git_context.as_ref().map_or(Ok(()), |context| settings_fit("git context", context))
    }

    /// One more of something.
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

    /// How long it took, or takes so far. A clock that went back counts as none.
    pub fn duration_micros(&self, now: Timestamp) -> u64 {
        let end = self.finished_at.unwrap_or(now);
        u64::try_from(end.micros().saturating_sub(self.created_at.micros())).unwrap_or(0)
    }
}

/// Sets what lies at the end of the path.
fn set(object: &mut Map<String, Value>, path: &[String], value: Value) -> Result<(), ModelError> {
    let (last, above) = match path {
        [] => return Err(refuse("configuration", "no key is named")),
        path if path.iter().any(String::is_empty) => return Err(refuse("configuration", "a key is empty")),
        [above @ .., last] => (last, above),
    };
    let mut object = object;
    for (depth, key) in above.iter().enumerate() {
        let below = object.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(below) = below else {
            let why = format!("{} is no object, so nothing can be set in it", path[..=depth].join("."));
            return Err(refuse("configuration", why));
        };
        object = below;
    }
    object.insert(last.clone(), value);
    Ok(())
}

/// What nests deeper could be written and not be read again.
fn settings_fit(what: &'static str, settings: &Map<String, Value>) -> Result<(), ModelError> {
    if !settings.values().all(|value| is_shallow(value, CONTEXT_DEPTH_MAX)) {
        return Err(refuse(what, format!("a value nests at most {CONTEXT_DEPTH_MAX} deep")));
    }
    let bytes = serde_json::to_vec(settings).map_err(|error| refuse(what, error.to_string()))?.len();
    if bytes > SETTINGS_BYTES_MAX {
        return Err(refuse(what, format!("it has {bytes} bytes, and at most {SETTINGS_BYTES_MAX} fit")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
