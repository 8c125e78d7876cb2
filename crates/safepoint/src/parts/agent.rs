//! An agent as a part of a checkpoint: its registration, restored by the transaction that commits everything. Its files are parts
//! of their own.

use crate::folders::is_together;
use crate::parts::kinds::{Kind, RecordsBack, RecordsNow};
use crate::parts::part::{Captured, Left, Part, Prepared, PutBack};
use crate::parts::{Member, Nothing};
use crate::rollback::Request;
use crate::rollback::scene::Scene;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::Transaction;
use safepoint_model::agent::{Agent, AgentRecord};
use safepoint_model::checkpoint::{Checkpoint, PartKind};
use safepoint_model::{ObjectId, Progress, Timestamp, WorkspaceId, document};
use safepoint_store::Writer;

/// Agents, as a kind.
pub(crate) struct AgentParts;

impl Kind for AgentParts {
    fn capture_records<'m>(
        &self,
        records: &RecordsNow<'_, 'm>,
        members: &mut Vec<Member<'m>>,
    ) -> Result<(), Error> {
        for AgentRecord { agent, .. } in records.agents {
            let part = AgentPart { manager: records.manager, now: agent.clone(), bind: None };
            members.push(Member::new(part, 0, None));
        }
        Ok(())
    }

    fn find_records(
        &self,
        manager: &CheckpointManager,
        request: &Request<'_>,
        scene: &mut Scene,
        _: &mut Vec<Warning>,
    ) -> Result<(), Error> {
        let to = &request.to;
        let is_missing = is_together(to) || to.count(PartKind::Agent) == 0;
        if request.alone().is_some() && is_missing && request.options.parts.contains(&PartKind::Agent) {
            return Err(Error::NoPart { checkpoint: to.id, part: PartKind::Agent });
        }
        let goes = match request.alone() {
            Some(_) => request.takes_memory(),
            None => request.options.wants(PartKind::Agent),
        };
        if goes {
            for (held, document) in manager.agents_held(to)? {
                // An agent that is no longer registered is as the checkpoint has it.
                let now = manager.catalog.agent(&held.name)?.map_or(held, |now| now.agent);
                scene.agents.push((now, document));
            }
        }
        Ok(())
    }

    fn roll_back_records<'m>(&self, records: &RecordsBack<'_, 'm>, members: &mut Vec<Member<'m>>) {
        for (now, target) in records.scene.agents.iter().cloned() {
            let part = AgentPart { manager: records.manager, now, bind: records.request.alone() };
            members.push(Member::new(part, 0, Some(target)));
        }
    }
}

impl CheckpointManager {
    /// Agents in a checkpoint, each with its document.
    pub(crate) fn agents_held(&self, checkpoint: &Checkpoint) -> Result<Vec<(Agent, ObjectId)>, Error> {
        let parts = checkpoint.parts.iter().filter(|part| part.kind == PartKind::Agent);
        parts.map(|part| Ok((Agent::load(&self.store, part.document)?, part.document))).collect()
    }
}

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
