//! The record of a session as a part of a checkpoint: its request, status and settings, restored by the transaction
//! that commits everything. Counters are never restored.

use crate::handles::Checkpoints;
use crate::parts::kinds::{Kind, RecordsBack, RecordsNow};
use crate::parts::part::{Captured, Left, Part, Prepared, PutBack};
use crate::parts::{Member, Nothing};
use crate::rollback::Request;
use crate::rollback::scene::Scene;
use crate::sessions::kept_form;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{Transaction, Workspace};
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::id::SessionId;
use safepoint_model::rollback::Verb;
use safepoint_model::session::{Session, SessionDocument, SessionStatus};
use safepoint_model::{ObjectId, ObjectSource, Progress, RollbackId, Timestamp, document};
use safepoint_store::Writer;

/// A restored session, or a preview of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionBack {
    /// Id.
    pub id: SessionId,
    /// Status before.
    pub from: SessionStatus,
    /// Status afterwards.
    pub to: SessionStatus,
}

/// Sessions, as a kind.
pub(crate) struct SessionParts;

impl Kind for SessionParts {
    fn capture_records<'m>(
        &self,
        records: &RecordsNow<'_, 'm>,
        members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        let manager = records.manager;
        if let Some(now) = manager.session_named(records.session)? {
            members.push(Member::new(SessionPart { manager, now, back: None }, 0, None));
        }
        Ok(())
    }

    /// A session has no folder of its own: the first one stands for it.
    fn stays_in(
        &self,
        _: &CheckpointManager,
        request: &Request<'_>,
        _: &Workspace,
        is_first: bool,
    ) -> Result<bool, Error> {
        Ok(is_first && request.options.parts.contains(&PartKind::Session))
    }

    fn find_records(
        &self,
        manager: &CheckpointManager,
        request: &Request<'_>,
        scene: &mut Scene,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), Error> {
        if request.options.wants(PartKind::Session) {
            scene.session = manager.session_to_go_back(request, warnings)?;
        }
        Ok(())
    }

    fn roll_back_records<'m>(&self, records: &RecordsBack<'_, 'm>, members: &mut Vec<Member<'m>>) {
        if let Some((now, target)) = records.scene.session.clone() {
            let part = SessionPart { manager: records.manager, now, back: Some(records.rollback) };
            members.push(Member::new(part, 0, Some(target)));
        }
    }
}

/// Returns true if a part holds a session.
pub(crate) fn is_session(part: &PartRecord) -> bool {
    part.kind == PartKind::Session
}

/// Returns true if two parts hold a session that a rollback restores to the same. What cannot be read is different.
pub(crate) fn same_session(source: &dyn ObjectSource, old: &PartRecord, new: &PartRecord) -> bool {
    let read = |part: &PartRecord| SessionDocument::load(source, part.document).ok();
    match (read(old), read(new)) {
        (Some(one), Some(other)) => is_session(old) && is_session(new) && one.restores_same(&other),
        _ => false,
    }
}

/// The part of a checkpoint that holds a session.
pub(crate) fn session_part(checkpoint: &Checkpoint) -> Option<&PartRecord> {
    checkpoint.parts.iter().find(|part| is_session(part))
}

/// The record of a session, as a part.
pub(crate) struct SessionPart<'m> {
    pub(crate) manager: &'m CheckpointManager,
    /// As it is.
    pub(crate) now: Session,
    /// The rollback that puts it back.
    pub(crate) back: Option<RollbackId>,
}

impl Part for SessionPart<'_> {
    fn kind(&self) -> PartKind {
        PartKind::Session
    }

    fn key(&self) -> String {
        self.now.id.to_uuid()
    }

    fn capture(&self, writer: &Writer<'_>, _: Option<ObjectId>, _: &dyn Progress) -> Result<Captured, Error> {
        Ok(Captured::document(document::store(writer, &SessionDocument::of(&self.now))?))
    }

    fn prepare<'p>(
        &'p self,
        _: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        let Some(rollback) = self.back else { return Ok(Box::new(Nothing)) };
        let then = SessionDocument::load(writer, target)?;
        let (now, at) = (self.now.clone(), self.manager.environment.now());
        Ok(Box::new(SessionRollback { then, now, rollback, at }))
    }

    fn resume<'p>(&'p self, _: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(Nothing))
    }
}

/// Rollback of a session.
struct SessionRollback {
    then: SessionDocument,
    /// As it is kept in the safety checkpoint.
    now: Session,
    rollback: RollbackId,
    at: Timestamp,
}

impl SessionRollback {
    fn current(&self, transaction: &Transaction<'_>) -> Result<Session, Error> {
        let changed = || Error::SessionChanged { id: self.then.id.to_uuid() };
        let session = transaction.session(self.then.id)?.ok_or_else(changed)?;
        match session.stands_at(&SessionDocument::of(&self.now)) {
            true => Ok(session),
            false => Err(changed()),
        }
    }
}

impl Prepared for SessionRollback {
    fn put_back(&self) -> Option<PutBack> {
        let differs = !self.now.stands_at(&self.then);
        let back = SessionBack { id: self.then.id, from: self.now.status, to: self.then.status };
        differs.then_some(PutBack::Session(back))
    }

    /// Counters may change; restored fields must match the safety checkpoint.
    fn intend(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
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
    /// The session in use, if it is on record.
    fn session_named(&self, id: Option<&str>) -> Result<Option<Session>, Error> {
        let named = id.and_then(|id| id.parse::<SessionId>().ok());
        Ok(named.map(|id| self.catalog.session(id)).transpose()?.flatten())
    }

    /// The session to restore with a checkpoint, in current state, and its target document; `None` if there is none, or if it is left
    /// as it is.
    fn session_to_go_back(
        &self,
        request: &Request<'_>,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<(Session, ObjectId)>, Error> {
        let by_name = request.options.parts.contains(&PartKind::Session);
        let Some(part) = session_part(&request.to) else {
            return match by_name {
                true => Err(Error::NoPart { checkpoint: request.to.id, part: PartKind::Session }),
                false => Ok(None),
            };
        };
        let then = SessionDocument::load(&self.store, part.document)?;
        let id = then.id.to_uuid();
        // Work for one session does not restore another. An undo restores all that its rollback moved.
        let asks = request.verb == Verb::Rollback && !by_name;
        let other = self.settings.session_id.as_deref().is_some_and(|own| kept_form(own) != id);
        if asks && other {
            warnings.push(Warning::OtherSession { session: then.id });
            return Ok(None);
        }
        match self.catalog.session(then.id)? {
            Some(now) => Ok(Some((now, part.document))),
            None if by_name => Err(Error::NoSession { id }),
            None => {
                warnings.push(Warning::SessionMissing { session: then.id });
                Ok(None)
            }
        }
    }
}

impl Checkpoints<'_> {
    /// The session as a checkpoint holds it.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn session_of(&self, checkpoint: &Checkpoint) -> Result<Option<SessionDocument>, Error> {
        let _using = self.manager.store.using()?;
        let part = session_part(checkpoint);
        Ok(part.map(|part| SessionDocument::load(&self.manager.store, part.document)).transpose()?)
    }
}
