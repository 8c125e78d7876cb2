//! Record of a session in a checkpoint, and the part of it that a rollback restores.
//!
//! The request, status, configuration and git context are restored. Counters and the start time are not: they
//! record history.

use super::{Session, SessionStatus, Statistics};
use crate::id::SessionId;
use crate::{ObjectError, ObjectId, ObjectSource, Timestamp, document};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Content of the document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionDocument {
    /// Version of this document.
    pub format: u32,
    /// Id of the session.
    pub id: SessionId,
    /// Request.
    pub request: String,
    /// Status.
    pub status: SessionStatus,
    /// Status at which a paused session resumes.
    pub paused_from: Option<SessionStatus>,
    /// Configuration.
    pub configuration: Map<String, Value>,
    /// Git context.
    pub git_context: Option<Map<String, Value>>,
    /// Counters at that time, for information.
    pub statistics: Statistics,
    /// Start time.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// End time, if ended.
    pub finished_at: Option<Timestamp>,
}

impl SessionDocument {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Returns the document of a session.
    pub fn of(session: &Session) -> Self {
        let Session { request, configuration, git_context, .. } = session.clone();
        Self {
            format: Self::FORMAT,
            id: session.id,
            request,
            status: session.status,
            paused_from: session.paused_from,
            configuration,
            git_context,
            statistics: session.statistics,
            created_at: session.created_at,
            updated_at: session.updated_at,
            finished_at: session.finished_at,
        }
    }

    /// Loads a session.
    ///
    /// # Errors
    /// When it is missing, damaged, of a newer version, or contradictory.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let document: Self = document::load(source, id)?;
        match document.strange() {
            None => Ok(document),
            Some(what) => Err(ObjectError::Damaged { id, what }),
        }
    }

    /// Returns the contradiction in it, if any.
    fn strange(&self) -> Option<String> {
        let mut session = Session::new(self.id, self.request.clone(), self.created_at);
        (session.configuration, session.git_context) = (self.configuration.clone(), self.git_context.clone());
        let goes_on = match self.paused_from {
            Some(from) => {
                self.status == SessionStatus::Paused && !from.is_over() && from != SessionStatus::Paused
            }
            None => self.status != SessionStatus::Paused,
        };
        if self.format != Self::FORMAT {
            Some(format!("its format {} is unsupported", self.format))
        } else if !goes_on || self.finished_at.is_some() != self.status.is_over() {
            Some("its status contradicts itself".to_owned())
        } else {
            session.check().err().map(|error| error.to_string())
        }
    }
}

impl SessionDocument {
    /// Returns true if a rollback to one or the other restores the same. Counters and times of changes do not count.
    pub fn restores_same(&self, other: &Self) -> bool {
        let fields = |it: &Self| (it.id, it.status, it.paused_from, it.finished_at);
        fields(self) == fields(other)
            && self.request == other.request
            && self.configuration == other.configuration
            && self.git_context == other.git_context
    }
}

impl Session {
    /// Returns true if the session matches the restorable part of the document.
    pub fn stands_at(&self, then: &SessionDocument) -> bool {
        (self.status, self.paused_from, self.finished_at) == (then.status, then.paused_from, then.finished_at)
            && self.request == then.request
            && self.configuration == then.configuration
            && self.git_context == then.git_context
    }

    /// Restores the restorable part of the document.
    pub fn put_back(&mut self, then: &SessionDocument, at: Timestamp) {
        self.request.clone_from(&then.request);
        (self.status, self.paused_from, self.finished_at) = (then.status, then.paused_from, then.finished_at);
        self.configuration.clone_from(&then.configuration);
        self.git_context.clone_from(&then.git_context);
        self.updated_at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKind;
    use crate::object::ObjectSink;
    use crate::object::tests::Memory;
    use crate::session::SessionCount;
    use proptest::prelude::*;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_763_193_600_000_000 + seconds * 1_000_000)
    }

    fn session() -> Session {
        let mut session = Session::new(SessionId::from_bits(7), "Add rate limiting".to_owned(), at(0));
        session.configuration.insert("model".to_owned(), json!({ "size": "large" }));
        session.git_context = Some(Map::from_iter([("branch".to_owned(), json!("main"))]));
        session.go(SessionStatus::Planning, at(1)).unwrap();
        session
    }

    fn keep(memory: &Memory, value: &Value) -> ObjectId {
        document::store(memory, value).unwrap()
    }

    #[test]
    fn what_was_said_comes_back_and_what_happened_stays() {
        let memory = Memory::default();
        let mut session = session();
        session.count(SessionCount::TaskDone, at(2));
        let then = SessionDocument::of(&session);
        let id = document::store(&memory, &then).unwrap();
        assert_eq!(SessionDocument::load(&memory, id).unwrap(), then);
        assert!(session.stands_at(&then));
        let before = session.clone();
        session.go(SessionStatus::Failed, at(3)).unwrap();
        session.request = "Else".to_owned();
        session.configuration.clear();
        session.git_context = None;
        session.count(SessionCount::Recovery, at(4));
        assert!(!session.stands_at(&then) && !SessionDocument::of(&session).restores_same(&then));
        session.put_back(&then, at(9));
        assert!(session.stands_at(&then));
        assert!(SessionDocument::of(&session).restores_same(&then) && SessionDocument::of(&session) != then);
        assert_eq!((session.request, session.status), (before.request, SessionStatus::Planning));
        assert_eq!((session.configuration, session.git_context), (before.configuration, before.git_context));
        assert_eq!((session.finished_at, session.updated_at, session.created_at), (None, at(9), at(0)));
        assert_eq!((session.statistics.tasks_completed, session.statistics.error_recoveries), (1, 1));
    }

    #[test]
    fn documents_that_say_what_cannot_be_are_damage() {
        let memory = Memory::default();
        let good = serde_json::to_value(SessionDocument::of(&session())).unwrap();
        assert!(SessionDocument::load(&memory, keep(&memory, &good)).is_ok());
        let mut deep = json!(0);
        for _ in 0..60 {
            deep = json!([deep]);
        }
        for (key, value) in [
            ("format", json!(2)),
            ("id", json!("../../x")),
            ("request", json!("")),
            ("request", json!("a\0b")),
            ("request", json!("x".repeat(70_000))),
            ("status", json!("king")),
            ("status", json!("paused")),
            ("status", json!("completed")),
            ("paused_from", json!("planning")),
            ("finished_at", json!("2026-01-01T00:00:00.000000Z")),
            ("configuration", json!([])),
            ("configuration", json!({ "deep": deep })),
            ("configuration", json!({ "long": "x".repeat(300_000) })),
            ("git_context", json!("main")),
            ("statistics", json!({ "tasks_completed": -1 })),
            ("created_at", json!("yesterday")),
            ("more", json!(1)),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            let error = SessionDocument::load(&memory, keep(&memory, &bad)).unwrap_err();
            assert!(matches!(error, ObjectError::Damaged { .. }), "{key}: {error}");
        }
        for paused in ["paused", "completed", "failed"] {
            let mut bad = good.clone();
            (bad["status"], bad["paused_from"]) = (json!("paused"), json!(paused));
            assert!(SessionDocument::load(&memory, keep(&memory, &bad)).is_err(), "{paused}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_stumble(cut in 0usize..400, flip in 0usize..400, to in any::<u8>()) {
            let memory = Memory::default();
            let mut bytes = document::encode(&SessionDocument::of(&session())).unwrap();
            let at = flip % bytes.len();
            bytes[at] = to;
            bytes.truncate(bytes.len().saturating_sub(cut % 40));
            let id = memory.put(ObjectKind::Document, &bytes).unwrap();
            // Any content is a valid session or is reported as damage.
            if let Ok(document) = SessionDocument::load(&memory, id) {
                prop_assert!(document.strange().is_none());
            }
        }
    }
}
