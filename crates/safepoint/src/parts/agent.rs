//! An agent as a part of a checkpoint: its registration, restored by the transaction that commits everything. Its files are parts
//! of their own.

use crate::parts::Nothing;
use crate::parts::part::{Captured, Left, Part, Prepared, PutBack};
use crate::{CheckpointManager, Error};
use safepoint_catalog::Transaction;
use safepoint_model::agent::Agent;
use safepoint_model::checkpoint::PartKind;
use safepoint_model::{ObjectId, Progress, Timestamp, WorkspaceId, document};
use safepoint_store::Writer;

/// An agent, as a part.
pub(crate) struct AgentPart<'m> {
    pub(crate) manager: &'m CheckpointManager,
    /// As it is. One that is not registered any more is what the checkpoint says of it.
    pub(crate) now: Agent,
    /// The workspace to bind it to where it is not registered any more.
    pub(crate) bind: Option<WorkspaceId>,
}

impl Part for AgentPart<'_> {
    fn kind(&self) -> PartKind {
        PartKind::Agent
    }

    fn key(&self) -> String {
        self.now.name.clone()
    }

    fn capture(&self, writer: &Writer<'_>, _: Option<ObjectId>, _: &dyn Progress) -> Result<Captured, Error> {
        Ok(Captured::document(document::store(writer, &self.now)?))
    }

    fn prepare<'p>(
        &'p self,
        _: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error> {
        let then = Agent::load(writer, target)?;
        Ok(Box::new(AgentRollback { then, at: self.manager.environment.now(), bind: self.bind }))
    }

    fn resume<'p>(&'p self, _: Left) -> Result<Box<dyn Prepared + 'p>, Error> {
        Ok(Box::new(Nothing))
    }
}

/// Rollback of an agent.
struct AgentRollback {
    then: Agent,
    at: Timestamp,
    bind: Option<WorkspaceId>,
}

impl Prepared for AgentRollback {
    fn put_back(&self) -> Option<PutBack> {
        Some(PutBack::Agent(self.then.name.clone()))
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let name = &self.then.name;
        let bind = self.bind.filter(|_| transaction.agent(name).is_ok_and(|known| known.is_none()));
        transaction.save_agent(&self.then, "rolled back", self.at)?;
        Ok(bind.map_or(Ok(()), |workspace| transaction.bind_agent(name, workspace, self.at))?)
    }
}
