//! SESSIONS: a user's request, its status, its counters, and its log.
//!
//! A session is a record beside the checkpoints that name it: deleting it takes no checkpoint away, and a checkpoint may name one that
//! is not registered. Each count is part of the transaction that it counts, so that it is neither lost nor counted twice.

use crate::handles::Sessions;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Filter, RoleFilter, Summary, Transaction};
use safepoint_git::{Repository, short_name};
use safepoint_model::Timestamp;
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::id::SessionId;
use safepoint_model::plan::state::Happening;
use safepoint_model::session::{Session, SessionChange, SessionCount, SessionStatus};
use serde_json::{Map, Value, json};
use std::path::Path;

/// A session that is about to begin.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// The user's request.
    pub request: String,
    /// Its id; a new one where none is given.
    pub id: Option<SessionId>,
    /// Settings.
    pub configuration: Map<String, Value>,
    /// Git context.
    pub git_context: Option<Map<String, Value>>,
}

/// The log of a session (R7.5), at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SessionLog {
    /// The session.
    pub session: Session,
    /// When this was put together.
    pub generated_at: Timestamp,
    /// The checkpoints that name it, newest first. Those that Safepoint made for itself are only counted.
    pub checkpoints: Vec<Checkpoint>,
    /// Sums over them.
    pub summary: Summary,
}

/// A session's id in the one form in which checkpoints keep it. What is no id stays as it is: it names no session on record.
pub(crate) fn kept_form(id: &str) -> String {
    id.parse::<SessionId>().map_or_else(|_| id.to_owned(), SessionId::to_uuid)
}

fn all_of(id: SessionId) -> Filter {
    Filter { session_id: Some(id.to_uuid()), role: RoleFilter::Any, ..Filter::default() }
}

fn no_session(id: SessionId) -> Error {
    Error::NoSession { id: id.to_uuid() }
}

impl CheckpointManager {
    /// The state of the repository around a folder, as a session notes it; nothing where there is none that can be read.
    pub fn git_context(folder: &Path) -> Option<Map<String, Value>> {
        let repository = Repository::around(folder).ok()??;
        let head = repository.head().ok()?;
        let top = repository.top().to_string_lossy().into_owned();
        let fields = [
            ("branch", json!(head.branch().map(short_name))),
            ("commit", json!(head.commit().map(|commit| commit.to_string()))),
            ("top", json!(top)),
        ];
        Some(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// A session that no record describes, as far as the checkpoints tell that name it, newest first. Its git context is that of the oldest
    /// one in a repository, as a recorded session has that of its beginning.
    fn named_by(&self, id: SessionId, checkpoints: &[Checkpoint]) -> Result<Session, Error> {
        let (Some(newest), Some(oldest)) = (checkpoints.first(), checkpoints.last()) else {
            return Err(no_session(id));
        };
        let mut session = Session::new(id, String::new(), oldest.created_at);
        session.updated_at = newest.created_at;
        session.statistics.checkpoints_created = checkpoints.len() as u64;
        session.git_context = checkpoints.iter().rev().find_map(|checkpoint| self.git_context_of(checkpoint));
        Ok(session)
    }

    /// The state of the repository around a workspace when a checkpoint of it was taken, in the fields of [`Self::git_context`].
    fn git_context_of(&self, checkpoint: &Checkpoint) -> Option<Map<String, Value>> {
        let workspace = self.workspaces().get(checkpoint.workspace_id?).ok()?;
        let _using = self.store.using().ok()?;
        let (head, _) = self.noted(checkpoint, workspace.id).ok()?;
        let fields = [
            ("branch", json!(head.branch().map(short_name))),
            ("commit", json!(head.commit().map(|commit| commit.to_string()))),
            ("top", json!(workspace.root_path().to_string_lossy())),
        ];
        Some(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Counts something for the session that this manager works for, if it works for one.
    pub(crate) fn count(
        &self,
        transaction: &Transaction<'_>,
        what: SessionCount,
        at: Timestamp,
    ) -> Result<(), Error> {
        match &self.settings.session_id {
            Some(session) => Ok(transaction.count_session(session, what, at)?),
            None => Ok(()),
        }
    }

    /// Counts the steps that ended. A subplan is done with its steps and counts for nothing more; that its own check fails counts as a failure.
    pub(crate) fn count_steps(
        &self,
        transaction: &Transaction<'_>,
        happened: &[Happening],
        at: Timestamp,
    ) -> Result<(), Error> {
        for happening in happened {
            match happening {
                Happening::StepDone { .. } => self.count(transaction, SessionCount::TaskDone, at)?,
                Happening::StepFailed { .. } => self.count(transaction, SessionCount::TaskFailed, at)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Sessions<'_> {
    /// Records a session. Checkpoints that named it before count from the beginning.
    ///
    /// # Errors
    /// When the id is taken, the request is empty or something does not fit, or the catalog fails.
    pub fn create(&self, new: NewSession) -> Result<Session, Error> {
        let id = new.id.unwrap_or_else(|| SessionId::from_bits(self.manager.environment.new_id()));
        let mut session = Session::new(id, new.request, self.manager.environment.now());
        session.configuration = new.configuration;
        session.git_context = new.git_context;
        session.check()?;
        self.manager.catalog.write(|transaction| {
            session.statistics.checkpoints_created = transaction.checkpoints(&all_of(id))?.len() as u64;
            transaction.insert_session(&session)?;
            Ok(session)
        })
    }

    /// The session with this id.
    ///
    /// # Errors
    /// When there is none, or the catalog cannot be read.
    pub fn get(&self, id: SessionId) -> Result<Session, Error> {
        self.manager.catalog.session(id)?.ok_or_else(|| no_session(id))
    }

    /// The session with this id. One that only checkpoints name is put together from them.
    ///
    /// # Errors
    /// When neither a record nor a checkpoint has the id, or the catalog cannot be read.
    pub fn known(&self, id: SessionId) -> Result<Session, Error> {
        match self.manager.catalog.session(id)? {
            Some(session) => Ok(session),
            None => self.manager.named_by(id, &self.manager.catalog.checkpoints(&all_of(id))?),
        }
    }

    /// Every session, or those of a status, newest first; at most so many.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list(&self, status: Option<SessionStatus>, limit: Option<u64>) -> Result<Vec<Session>, Error> {
        Ok(self.manager.catalog.sessions(status, limit)?)
    }

    /// Changes request, configuration or git context: all that is asked for, or nothing.
    ///
    /// # Errors
    /// When there is no such session, a value is not one that can be kept, or the catalog fails.
    pub fn update(&self, id: SessionId, changes: Vec<SessionChange>) -> Result<Session, Error> {
        let at = self.manager.environment.now();
        let mut what: Vec<&str> = changes.iter().map(field_of).collect();
        what.dedup();
        let what = what.join(", ");
        self.manager.catalog.write(|transaction| {
            let mut session = transaction.session(id)?.ok_or_else(|| no_session(id))?;
            for change in changes {
                session.change(change, at)?;
            }
            transaction.update_session(&session, &what)?;
            Ok(session)
        })
    }

    /// A session goes to another status.
    ///
    /// # Errors
    /// When there is no such session, it cannot go there from where it is, or the catalog fails.
    pub fn transition(&self, id: SessionId, to: SessionStatus) -> Result<Session, Error> {
        let at = self.manager.environment.now();
        self.manager.catalog.write(|transaction| {
            let mut session = transaction.session(id)?.ok_or_else(|| no_session(id))?;
            let from = session.status;
            session.go(to, at)?;
            transaction.transition_session(&session, from)?;
            Ok(session)
        })
    }

    /// Forgets a session, and returns what it was. Its checkpoints stay.
    ///
    /// # Errors
    /// When there is no such session, or the catalog fails.
    pub fn delete(&self, id: SessionId) -> Result<Session, Error> {
        let at = self.manager.environment.now();
        self.manager.catalog.write(|transaction| {
            let session = transaction.session(id)?.ok_or_else(|| no_session(id))?;
            transaction.delete_session(id, at)?;
            Ok(session)
        })
    }

    /// The log of a session: its record, its checkpoints, and sums over them.
    ///
    /// # Errors
    /// When there is no such session, or the catalog cannot be read.
    pub fn export(&self, id: SessionId) -> Result<SessionLog, Error> {
        let generated_at = self.manager.environment.now();
        let (session, checkpoints) = match self.manager.catalog.session_with(id, &all_of(id))? {
            Some(found) => found,
            None => {
                let checkpoints = self.manager.catalog.checkpoints(&all_of(id))?;
                (self.manager.named_by(id, &checkpoints)?, checkpoints)
            }
        };
        let summary = Summary::of(&checkpoints);
        let checkpoints = checkpoints.into_iter().filter(|it| it.role.is_none()).collect();
        Ok(SessionLog { session, generated_at, checkpoints, summary })
    }
}

fn field_of(change: &SessionChange) -> &'static str {
    match change {
        SessionChange::Request(_) => "request",
        SessionChange::Configuration(_) | SessionChange::ConfigurationKey { .. } => "configuration",
        SessionChange::GitContext(_) => "git_context",
        SessionChange::Count { .. } => "statistics",
    }
}
