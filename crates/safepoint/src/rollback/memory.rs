//! The memory of agents that are bound to a workspace, in a rollback of that workspace.
//!
//! It is rolled back with the files, unless another workspace or another scope captured a change of it that this workspace did not: then it
//! is left and reported. Agents that share a folder are rolled back together or left together.

use super::scene::Scene;
use super::{LeftAlone, Request};
use crate::agents::agent_path;
use crate::checkpoint::create::memory_parts;
use crate::folders::is_together;
use crate::parts::Member;
use crate::{CheckpointManager, Error};
use safepoint_model::agent::{Agent, AgentRecord};
use safepoint_model::change::deltas;
use safepoint_model::checkpoint::PartKind;
use safepoint_model::files::FilesDocument;
use safepoint_model::rollback::{Rollback, Verb};
use safepoint_model::tree::Owners;
use safepoint_model::{CheckpointId, ObjectError, ObjectId, ObjectSource, WorkspaceId};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Memory that stays as it is.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Folders, by their place in the scene.
    folders: BTreeSet<usize>,
    agents: BTreeSet<String>,
    pub(super) told: Vec<LeftAlone>,
}

impl Request<'_> {
    /// Returns true if the memory of bound agents is rolled back, too.
    pub(crate) fn takes_memory(&self) -> bool {
        let of_one = self.alone().is_some() && !is_together(&self.to) && self.taking.is_none();
        of_one && self.options.wants(PartKind::Agent)
    }

    /// Folders of memory that it may change, in the order of their ids.
    pub(super) fn memory_folders(&self) -> Vec<WorkspaceId> {
        match self.takes_memory() {
            true => memory_parts(&self.to).into_iter().map(|(id, _)| id).collect(),
            false => Vec::new(),
        }
    }
}

impl CheckpointManager {
    /// Adds the agents of a checkpoint of one workspace, and the folders outside of it that hold their memory.
    pub(super) fn add_memory(&self, request: &Request<'_>, scene: &mut Scene) -> Result<(), Error> {
        let to = &request.to;
        for (agent, _) in self.agents_held(to)? {
            let (created_at, updated_at) = (to.created_at, to.created_at);
            scene.bound.push(AgentRecord { agent, created_at, updated_at, workspace_id: request.alone() });
        }
        let folders = memory_parts(to);
        let mut roots: Vec<PathBuf> =
            scene.places.iter().map(|place| place.workspace.root_path().to_owned()).collect();
        for (id, _) in &folders {
            roots.push(self.workspaces().get(*id)?.root_path().to_owned());
        }
        for (id, part) in folders {
            scene.places.push(self.place_of_agents(self.workspaces().get(id)?, &scene.bound, &roots));
            scene.targets.push(Some(part.document));
        }
        Ok(())
    }

    /// Excludes memory that was captured elsewhere since, and agents that are no longer bound.
    pub(super) fn leave_memory(
        &self,
        request: &Request<'_>,
        scene: &Scene,
        members: &mut Vec<Member<'_>>,
        source: &dyn ObjectSource,
    ) -> Result<Leaving, Error> {
        let mut leaving = Leaving::default();
        let asked = request.verb != Verb::Rollback || request.options.parts.contains(&PartKind::Agent);
        let Some(alone) = request.alone().filter(|_| request.takes_memory() && !asked) else {
            return Ok(leaving);
        };
        for Agent { name, .. } in scene.bound.iter().map(|record| &record.agent) {
            let now = self.catalog.agent(name)?;
            if now.is_none_or(|now| now.workspace_id != Some(alone)) {
                leaving.agents.insert(name.clone());
                leaving.told.push(LeftAlone::NotBound { agent: name.clone() });
            }
        }
        for member in members.iter().filter(|member| member.folder > 0) {
            let place = &scene.places[member.folder].workspace;
            let Some(now) = member.captured.document else { continue };
            if let Some(checkpoint) = self.changed_elsewhere(request, (alone, place.id), now, source)? {
                leaving.folders.insert(member.folder);
                let folder = place.root_path().to_string_lossy().into_owned();
                let agents = owners(scene, place.root_path());
                leaving.told.push(LeftAlone::ChangedElsewhere { folder, agents, checkpoint });
            }
        }
        leaving.spread(scene);
        members.retain(|member| !leaving.holds(member));
        Ok(leaving)
    }

    /// Newest checkpoint of another workspace or scope with a change of the folder that this workspace has not captured; `None` if the
    /// folder is as this workspace captured it last.
    fn changed_elsewhere(
        &self,
        request: &Request<'_>,
        (alone, folder): (WorkspaceId, WorkspaceId),
        now: ObjectId,
        source: &dyn ObjectSource,
    ) -> Result<Option<CheckpointId>, Error> {
        let held = self.catalog.parts_since(request.to.id, PartKind::Files, &folder.to_string())?;
        let Some(own) = held.iter().position(|part| part.workspace_id == Some(alone)) else {
            return Ok(None);
        };
        if is_same(source, held[own].document, now)? {
            return Ok(None);
        }
        for part in &held[..own] {
            if !is_same(source, held[own].document, part.document)? {
                return Ok(Some(part.checkpoint));
            }
        }
        Ok(None)
    }
}

impl Leaving {
    /// Extends the exclusion to agents that share a folder with an excluded one.
    fn spread(&mut self, scene: &Scene) {
        loop {
            let before = (self.folders.len(), self.agents.len());
            for (at, place) in scene.places.iter().enumerate().skip(1) {
                let owners = owners(scene, place.workspace.root_path());
                if self.folders.contains(&at) || owners.iter().any(|name| self.agents.contains(name)) {
                    self.folders.insert(at);
                    self.agents.extend(owners);
                }
            }
            if before == (self.folders.len(), self.agents.len()) {
                return;
            }
        }
    }

    fn holds(&self, member: &Member<'_>) -> bool {
        let agent = member.part.kind() == PartKind::Agent && self.agents.contains(&member.part.key());
        agent || self.folders.contains(&member.folder)
    }

    /// Removes the records of excluded folders and renumbers the others.
    pub(super) fn renumber(&self, records: &mut Vec<Rollback>, members: &mut [Member<'_>]) {
        if self.folders.is_empty() {
            return;
        }
        for member in members {
            member.folder -= self.folders.range(..member.folder).count();
        }
        let mut at = 0;
        records.retain(|_| {
            at += 1;
            !self.folders.contains(&(at - 1))
        });
        if let [only] = records.as_mut_slice() {
            only.together = None;
        }
    }
}

/// Agents with a path in a folder: the folder itself, or a file in it.
fn owners(scene: &Scene, root: &Path) -> Vec<String> {
    let has = |agent: &Agent| {
        agent.paths.iter().map(agent_path).any(|path| path == root || path.parent() == Some(root))
    };
    let agents = scene.bound.iter().map(|record| &record.agent);
    agents.filter(|agent| has(agent)).map(|agent| agent.name.clone()).collect()
}

/// Returns true if two documents describe the same content.
fn is_same(source: &dyn ObjectSource, one: ObjectId, other: ObjectId) -> Result<bool, ObjectError> {
    if one == other {
        return Ok(true);
    }
    let tree = |id| Ok::<_, ObjectError>(FilesDocument::load(source, id)?.tree());
    match (tree(one)?, tree(other)?) {
        (Some(one), Some(other)) => Ok(deltas(source, one, other, Owners::Compared)?.is_empty()),
        (one, other) => Ok(one == other),
    }
}
