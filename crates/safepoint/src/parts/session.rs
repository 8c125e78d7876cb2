//! The record of a session as a part of a checkpoint: what it was asked for, how far it was and how it worked, put back by the transaction
//! that commits everything. What was counted is never put back.

use crate::parts::plan::Records;
use crate::restore::{Request, RestoreOptions};
use crate::sessions::kept_form;
use crate::{CheckpointManager, Error};
use safepoint_catalog::Transaction;
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind, PartRecord};
use safepoint_model::id::SessionId;
use safepoint_model::rollback::Verb;
use safepoint_model::session::{Session, SessionDocument, SessionStatus};
use safepoint_model::{ObjectSource, RollbackId, Timestamp, document};
use safepoint_store::Writer;

/// A session that was put back, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionBack {
    /// Which.
    pub id: SessionId,
    /// How far it was before.
    pub from: SessionStatus,
    /// How far it is afterwards.
    pub to: SessionStatus,
}

/// The part of a checkpoint that holds a session.
pub(crate) fn session_part(checkpoint: &Checkpoint) -> Option<&PartRecord> {
    checkpoint.parts.iter().find(|part| part.kind == PartKind::Session)
}

impl RestoreOptions {
    /// Whether a session goes along.
    pub(crate) fn with_session(&self) -> bool {
        self.paths.is_empty() && !self.git_alone() && matches!(self.part, None | Some(PartKind::Session))
    }

    /// Whether the files stay as they are, whatever the checkpoint holds.
    pub(crate) fn without_files(&self) -> bool {
        matches!(self.part, Some(PartKind::Plan | PartKind::Session))
    }
}

/// What a rollback does to a session.
pub(crate) struct SessionRollback {
    then: SessionDocument,
    /// As it is kept in the safety checkpoint.
    now: Session,
    rollback: RollbackId,
    at: Timestamp,
}

impl SessionRollback {
    /// Works out what a checkpoint's session means for the session as it is; nothing where it holds none, or it is left as it is.
    pub(crate) fn prepare(
        manager: &CheckpointManager,
        source: &dyn ObjectSource,
        request: &Request<'_>,
        rollback: RollbackId,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Self>, Error> {
        let by_name = request.options.part == Some(PartKind::Session);
        let Some(part) = session_part(&request.to) else {
            return match by_name {
                true => Err(Error::NoPart { checkpoint: request.to.id, part: PartKind::Session }),
                false => Ok(None),
            };
        };
        let then = SessionDocument::load(source, part.document)?;
        let id = then.id.to_uuid();
        // Whoever works for one session does not mean another. What a rollback moved, its undo moves back.
        let asks = request.verb == Verb::Rollback && !by_name;
        let other = manager.settings.session_id.as_deref().is_some_and(|own| kept_form(own) != id);
        if asks && other {
            warnings.push(format!(
                "session {id} of the checkpoint is left as it is, since this is another one; --part session puts it back"
            ));
            return Ok(None);
        }
        match manager.catalog.session(then.id)? {
            Some(now) => Ok(Some(Self { then, now, rollback, at: manager.environment.now() })),
            None if by_name => Err(Error::NoSession { id }),
            None => {
                warnings.push(format!("session {id} is not on record any more, and is not put back"));
                Ok(None)
            }
        }
    }

    /// The session as it is before the rollback.
    pub(crate) fn now(&self) -> &Session {
        &self.now
    }

    /// What it does, where it does anything.
    pub(crate) fn back(&self) -> Option<SessionBack> {
        let differs = !self.now.stands_at(&self.then);
        differs.then_some(SessionBack { id: self.then.id, from: self.now.status, to: self.then.status })
    }

    fn current(&self, transaction: &Transaction<'_>) -> Result<Session, Error> {
        let changed = || Error::SessionChanged { id: self.then.id.to_uuid() };
        let session = transaction.session(self.then.id)?.ok_or_else(changed)?;
        match session.stands_at(&SessionDocument::of(&self.now)) {
            true => Ok(session),
            false => Err(changed()),
        }
    }
}

impl Records for SessionRollback {
    /// What is counted may go on; what comes back must be what the safety checkpoint holds.
    fn check(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        self.current(transaction).map(drop)
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let mut session = self.current(transaction)?;
        if session.stands_at(&self.then) {
            return Ok(());
        }
        let from = session.status;
        session.put_back(&self.then, self.at);
        Ok(transaction.put_session_back(&session, from, self.rollback)?)
    }
}

impl CheckpointManager {
    /// Keeps the session that a checkpoint names, if it is on record.
    pub(crate) fn note_session(&self, checkpoint: &mut Checkpoint, writer: &Writer<'_>) -> Result<(), Error> {
        let named = checkpoint.session_id.as_deref().and_then(|id| id.parse::<SessionId>().ok());
        match named.map(|id| self.catalog.session(id)).transpose()?.flatten() {
            Some(session) => add_session(checkpoint, &session, writer),
            None => Ok(()),
        }
    }

    /// The session as a checkpoint holds it.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn session_of(&self, checkpoint: &Checkpoint) -> Result<Option<SessionDocument>, Error> {
        let _using = self.store.using()?;
        let part = session_part(checkpoint);
        Ok(part.map(|part| SessionDocument::load(&self.store, part.document)).transpose()?)
    }
}

/// Adds a session to a checkpoint that is about to be committed.
pub(crate) fn add_session(
    checkpoint: &mut Checkpoint,
    session: &Session,
    writer: &Writer<'_>,
) -> Result<(), Error> {
    let document = document::store(writer, &SessionDocument::of(session))?;
    let mut parts = checkpoint.parts.clone();
    parts.push(PartRecord { kind: PartKind::Session, key: session.id.to_uuid(), document });
    let manifest = Manifest::new(parts);
    checkpoint.integrity = document::store(writer, &manifest)?;
    checkpoint.parts = manifest.parts;
    Ok(())
}
