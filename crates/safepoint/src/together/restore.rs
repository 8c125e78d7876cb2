//! One rollback of many folders: every stage, then all intents in one transaction, every swap, then one commit.

use super::{Place, Whole, files_of};
use crate::config::Broken;
use crate::create::Urgency;
use crate::home::PlanLock;
use crate::part::{Captured, Chosen, Outline, Part, Prepared};
use crate::parts::plan::{PlanRollback, Records};
use crate::restore::{DryRun, RestoreOptions};
use crate::{CheckpointManager, Error};
use safepoint_catalog::{FinishFacts, PlanRecord, Transaction};
use safepoint_model::agent::{Agent, AgentRecord};
use safepoint_model::change::Absent;
use safepoint_model::checkpoint::{Checkpoint, Kind, PartKind, PartRecord, Reason, Role, Scope};
use safepoint_model::plan;
use safepoint_model::rollback::{Rollback, RollbackState, Strategy, Verb};
use safepoint_model::{CheckpointId, Progress, RelPath, RollbackId, Timestamp, WorkspaceId, document};
use safepoint_store::Writer;
use safepoint_workspace::Ended;
use std::path::PathBuf;

/// What a rollback of many folders did, or would do.
#[derive(Debug, Clone)]
pub struct RestoredTogether {
    /// What its records have in common.
    pub id: RollbackId,
    /// Where it went.
    pub to: CheckpointId,
    /// What was there before.
    pub safety_checkpoint: Option<CheckpointId>,
    /// Each folder's record and what changed in it.
    pub places: Vec<(Rollback, Outline)>,
    /// Plans that were put back.
    pub plans: Vec<String>,
    /// Agents that were put back.
    pub agents: Vec<String>,
    /// Paths that somebody changed after they had been put in place.
    pub changed_meanwhile: Vec<(WorkspaceId, RelPath)>,
    /// What users should know.
    pub warnings: Vec<String>,
    /// Whether every touched path was read back.
    pub verified: bool,
}

/// What is asked.
pub(crate) struct Wish<'a> {
    pub(crate) verb: Verb,
    pub(crate) answers: Option<RollbackId>,
    pub(crate) to: &'a Checkpoint,
    pub(crate) options: &'a RestoreOptions,
}

/// An agent that is put back by the commit.
struct AgentBack {
    then: Agent,
    at: Timestamp,
}

impl Records for AgentBack {
    fn check(&self, _: &Transaction<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        Ok(transaction.save_agent(&self.then, "rolled back", self.at)?)
    }
}

impl CheckpointManager {
    /// Goes back to a checkpoint of many folders: all of them, with their plans and agents, or nothing.
    ///
    /// # Errors
    /// Whatever the error, everything is as it was, except for [`Error::Unfinished`], which the next command mends.
    pub fn restore_together(
        &self,
        to: CheckpointId,
        options: &RestoreOptions,
        progress: &dyn Progress,
    ) -> Result<RestoredTogether, Error> {
        let to = self.checkpoint(to)?;
        let wish = Wish { verb: Verb::Rollback, answers: None, to: &to, options };
        self.restore_wish(&wish, progress)
    }

    pub(crate) fn restore_wish(
        &self,
        wish: &Wish<'_>,
        progress: &dyn Progress,
    ) -> Result<RestoredTogether, Error> {
        let Some(any) = self.catalog.workspaces()?.into_iter().next() else {
            return Err(Error::NoFiles { checkpoint: wish.to.id });
        };
        let to = self.only_of_here(wish.to, wish.options.part)?;
        let wish = &Wish { to: &to, ..*wish };
        let dry_run = wish.options.dry_run;
        let (restored, pruned) =
            self.within_cap(&any, dry_run, progress, || self.restore_all(wish, progress))?;
        let mut restored = restored;
        if !pruned.is_empty() {
            let count = pruned.len();
            restored.warnings.push(format!("old checkpoints pruned to make room under the cap: {count}"));
        }
        Ok(restored)
    }

    fn restore_all(&self, wish: &Wish<'_>, progress: &dyn Progress) -> Result<RestoredTogether, Error> {
        let (scene, locks) = self.scene(wish)?;
        let held = self.hold_all(&scene.places, progress)?;
        let together = RollbackId::from_bits(self.environment.new_id());
        let writer = self.store.writer()?;
        let targets = &scene.targets;
        let captured =
            self.capture_all(&scene.places, &held, targets, Urgency::Emergency, &writer, progress)?;
        let mut parts = Vec::new();
        for (place, id) in scene.places.iter().zip(&held) {
            let config = self.config_at(Some(&id.root), Broken::PassedOver)?;
            let mut part = place.part(self, id, config.excludes);
            part.times = wish.options.times;
            if wish.options.dry_run == DryRun::No {
                part.capabilities = self.probe(&id.root)?;
            }
            parts.push(part);
        }
        // A path that was put back once and is gone again by the time of the undo is no mistake of the user's.
        let chosen = Chosen { paths: &[], absent: Absent::Fine };
        let mut members = Vec::new();
        for ((part, captured), target) in parts.iter().zip(&captured).zip(targets) {
            let prepared = part.prepare(captured.document, target.document, chosen, &writer)?;
            let record = self.member_record(wish, together, part.workspace.id)?;
            members.push(Member { prepared, record });
        }
        let records = self.records_of(wish, &scene, &writer, together)?;
        let safety = self.safety_of(wish, &scene, &captured, &writer)?;
        let mut restored = RestoredTogether {
            id: together,
            to: wish.to.id,
            safety_checkpoint: None,
            places: Vec::new(),
            plans: scene.plans.iter().map(|(record, _)| record.plan.id.clone()).collect(),
            agents: scene.agents.iter().map(|agent| agent.name.clone()).collect(),
            changed_meanwhile: Vec::new(),
            warnings: scene.warnings.clone(),
            verified: false,
        };
        for member in &mut members {
            let outline = member.prepared.outline();
            member.record.restored_files_count = outline.restored;
            member.record.removed_files_count = outline.removed;
            member.record.changed_paths = Some(document::store(&writer, &outline.paths)?);
        }
        if wish.options.dry_run == DryRun::Yes {
            restored.places = members.iter().map(Member::told).collect();
            return Ok(restored);
        }
        let mut safety = safety;
        safety.size_bytes = writer.finish()?.stored_bytes;
        let done = self.carry_out(wish, &safety, &mut members, &records, progress);
        drop(locks);
        match done {
            Ok(meanwhile) => restored.changed_meanwhile = meanwhile,
            Err(error) => return Err(error),
        }
        (restored.verified, restored.safety_checkpoint) = (true, Some(safety.id));
        for member in &mut members {
            match self.settle_once(&member.record, &mut *member.prepared, Ended::Done, progress) {
                Ok(settling) => restored.warnings.extend(settling.warnings),
                Err(error) => restored.warnings.push(format!("what was displaced is still kept: {error}")),
            }
            if let Some(record) = self.catalog.rollback(member.record.id)? {
                member.record = record;
            }
        }
        restored.places = members.iter().map(Member::told).collect();
        Ok(restored)
    }

    /// STAGE, INTENT, APPLY, PUBLISH over all members.
    fn carry_out(
        &self,
        wish: &Wish<'_>,
        safety: &Checkpoint,
        members: &mut [Member<'_>],
        records: &[Box<dyn Records + '_>],
        progress: &dyn Progress,
    ) -> Result<Vec<(WorkspaceId, RelPath)>, Error> {
        let staged =
            members.iter_mut().try_for_each(|member| member.prepared.stage(member.record.id, progress));
        if let Err(error) = staged {
            return Err(self.abort_all(members, error, progress));
        }
        for member in members.iter_mut() {
            member.record.safety_checkpoint = Some(safety.id);
        }
        let intent = self.catalog.write::<(), Error>(|transaction| {
            records.iter().try_for_each(|record| record.check(transaction))?;
            transaction.insert_checkpoint(safety)?;
            for member in members.iter() {
                member.prepared.intend(transaction)?;
                transaction.insert_rollback(&member.record, member.prepared.steps())?;
            }
            Ok(())
        });
        if let Err(error) = intent {
            return Err(self.abort_all(members, error, progress));
        }
        let mut meanwhile = Vec::new();
        for at in 0..members.len() {
            let id = members[at].record.workspace_id;
            match members[at].prepared.apply(progress) {
                Ok(paths) => meanwhile.extend(paths.into_iter().map(|path| (id, path))),
                Err(error) => return Err(self.abort_all(members, error, progress)),
            }
        }
        let at = self.environment.now();
        let published = self.catalog.write::<(), Error>(|transaction| {
            for member in members.iter() {
                let record = &member.record;
                let facts = FinishFacts {
                    restored_files_count: Some(record.restored_files_count),
                    removed_files_count: Some(record.removed_files_count),
                    changed_paths: record.changed_paths,
                    error: None,
                };
                member.prepared.publish(transaction)?;
                transaction.finish_rollback(record.id, RollbackState::Done, at, &facts)?;
                transaction.set_head(record.workspace_id, wish.to.id)?;
            }
            records.iter().try_for_each(|record| record.publish(transaction))?;
            Ok(transaction.count_rollback(wish.to.id)?)
        });
        match published {
            Ok(()) => Ok(meanwhile),
            Err(error) => Err(self.abort_all(members, error, progress)),
        }
    }

    /// Puts everything back, everywhere, and says so on record.
    fn abort_all(&self, members: &mut [Member<'_>], cause: Error, progress: &dyn Progress) -> Error {
        let mut unfinished = None;
        for member in members.iter_mut() {
            if let Err(error) = member.prepared.undo() {
                unfinished.get_or_insert((member.record.id, error));
            }
        }
        let first = members.first().map_or(RollbackId::from_bits(0), |member| member.record.id);
        if let Some((rollback, error)) = unfinished {
            return Error::Unfinished { rollback, source: Box::new(error) };
        }
        let facts = FinishFacts { error: Some(cause.to_string()), ..FinishFacts::default() };
        let at = self.environment.now();
        let aborted = self.catalog.write(|transaction| {
            for member in members.iter() {
                // The intent itself may be what failed.
                if transaction.rollback(member.record.id)?.is_some() {
                    transaction.finish_rollback(member.record.id, RollbackState::Aborted, at, &facts)?;
                }
            }
            Ok::<_, safepoint_catalog::CatalogError>(())
        });
        if let Err(error) = aborted {
            return Error::Unfinished { rollback: first, source: Box::new(error.into()) };
        }
        for member in members.iter_mut() {
            // What cannot be cleared away now, the next command clears away.
            let _ = self.settle_once(&member.record, &mut *member.prepared, Ended::Undone, progress);
        }
        Error::RolledBackHalfway { rollback: first, source: Box::new(cause) }
    }

    /// What there is to go back to, and who may not change meanwhile.
    fn scene(&self, wish: &Wish<'_>) -> Result<(Scene, Vec<PlanLock>), Error> {
        let to = wish.to;
        let part = wish.options.part;
        let wants = |kind: PartKind| part.is_none_or(|part| part == kind);
        let mut scene = Scene::default();
        let mut locks = Vec::new();
        let _using = self.store.using()?;
        for record in to.parts.iter().filter(|part| part.kind == PartKind::Agent) {
            scene.all_agents.push(Agent::load(&self.store, record.document)?);
        }
        if wants(PartKind::Agent) {
            scene.agents.clone_from(&scene.all_agents);
        }
        for record in to.parts.iter().filter(|part| part.kind == PartKind::Plan && wants(PartKind::Plan)) {
            locks.push(match wish.options.dry_run {
                DryRun::Yes => self.keep_still(&record.key)?,
                DryRun::No => self.hold_plan(&record.key)?.0,
            });
            let now = self.plan(&record.key)?;
            crate::parts::plan::guard(&now)?;
            let then = plan::document::load(&self.store, record.document)?;
            scene.warnings.extend(not_undone(&now, &then));
            scene.plans.push((now, record.clone()));
        }
        let ids = to.parts.iter().filter(|part| part.kind == PartKind::Files).map(|part| part.key.parse());
        let ids: Vec<WorkspaceId> = ids.collect::<Result<_, _>>()?;
        let roots: Vec<PathBuf> = ids
            .iter()
            .map(|id| Ok(self.workspace(*id)?.root_path().to_owned()))
            .collect::<Result<_, Error>>()?;
        let stamp = to.created_at;
        let agents: Vec<AgentRecord> = scene
            .all_agents
            .iter()
            .map(|agent| AgentRecord { agent: agent.clone(), created_at: stamp, updated_at: stamp })
            .collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        for id in sorted {
            let place = self.place_for(id, &agents, &roots)?;
            let kind = match place.workspace.kind {
                safepoint_model::agent::WorkspaceKind::Agent => PartKind::Agent,
                safepoint_model::agent::WorkspaceKind::Project => PartKind::Files,
            };
            if !wants(kind) {
                continue;
            }
            let target = files_of(to, id).ok_or(Error::NoFiles { checkpoint: to.id })?;
            scene.targets.push(target.clone());
            scene.places.push(place);
        }
        Ok((scene, locks))
    }

    fn records_of<'m>(
        &'m self,
        wish: &Wish<'_>,
        scene: &Scene,
        writer: &Writer<'_>,
        together: RollbackId,
    ) -> Result<Vec<Box<dyn Records + 'm>>, Error> {
        let mut records: Vec<Box<dyn Records + 'm>> = Vec::new();
        for (now, part) in &scene.plans {
            let back = PlanRollback::to_part(self, writer, part, wish.to.id, together, now.clone())?;
            records.push(Box::new(back));
        }
        let at = self.environment.now();
        for agent in &scene.agents {
            records.push(Box::new(AgentBack { then: agent.clone(), at }));
        }
        Ok(records)
    }

    /// The present, as one checkpoint: what an undo brings back.
    fn safety_of(
        &self,
        wish: &Wish<'_>,
        scene: &Scene,
        captured: &[Captured],
        writer: &Writer<'_>,
    ) -> Result<Checkpoint, Error> {
        let files = scene.places.iter().zip(captured).map(|(place, captured)| PartRecord {
            kind: PartKind::Files,
            key: place.workspace.id.to_string(),
            document: captured.document,
        });
        let mut parts: Vec<PartRecord> = files.collect();
        for (record, _) in &scene.plans {
            parts.push(crate::parts::plan::capture(writer, &record.plan)?);
        }
        for agent in &scene.agents {
            // One that is not registered any more has nothing to go back to but what the checkpoint says.
            let now = self.catalog.agent(&agent.name)?.map_or_else(|| agent.clone(), |record| record.agent);
            let document = document::store(writer, &now)?;
            parts.push(PartRecord { kind: PartKind::Agent, key: now.name, document });
        }
        let whole = match wish.to.scope {
            Scope::Agent => Whole::Agent(String::new()),
            _ => Whole::Framework,
        };
        let mut safety = self.blank_whole(&whole, writer, parts)?;
        safety.label = Some(format!("before {} to {}", wish.verb, wish.to.id));
        (safety.kind, safety.reason) = (Kind::Automatic, Reason::PreRiskyOperation);
        safety.role = Some(Role::Safety);
        safety.session_id = self.settings.session_id.clone();
        for captured in captured {
            safety.files.count += captured.totals.count;
            safety.files.bytes += captured.totals.bytes;
        }
        Ok(safety)
    }

    fn member_record(
        &self,
        wish: &Wish<'_>,
        together: RollbackId,
        workspace: WorkspaceId,
    ) -> Result<Rollback, Error> {
        let strategy = match (wish.options.strategy, wish.options.part) {
            (Some(strategy), _) => strategy,
            (None, Some(_)) => Strategy::Selective,
            (None, None) => Strategy::Immediate,
        };
        Ok(Rollback {
            id: RollbackId::from_bits(self.environment.new_id()),
            workspace_id: workspace,
            together: Some(together),
            verb: wish.verb,
            answers: wish.answers,
            from: self.workspace(workspace)?.head,
            to: wish.to.id,
            safety_checkpoint: None,
            strategy,
            paths: Vec::new(),
            state: RollbackState::Applying,
            created_at: self.environment.now(),
            finished_at: None,
            actor: self.environment.actor(),
            restored_files_count: 0,
            removed_files_count: 0,
            changed_paths: None,
            rescued: Vec::new(),
            error: None,
        })
    }
}

/// What steps did outside of the files stays: their undo commands are run by a rollback of the plan itself.
fn not_undone(now: &PlanRecord, then: &plan::state::Plan) -> Option<String> {
    let steps = now.plan.taken_back_by(then).steps;
    let id = &now.plan.id;
    (!steps.is_empty()).then(|| {
        format!(
            "what steps of plan {id} did outside of the files stays, and no undo command is run: {}",
            steps.join(", ")
        )
    })
}

/// One folder of a rollback.
struct Member<'p> {
    prepared: Box<dyn Prepared + 'p>,
    record: Rollback,
}

impl Member<'_> {
    fn told(&self) -> (Rollback, Outline) {
        (self.record.clone(), self.prepared.outline().clone())
    }
}

/// What a rollback of many folders is about.
#[derive(Default)]
struct Scene {
    places: Vec<Place>,
    /// What each goes back to.
    targets: Vec<PartRecord>,
    plans: Vec<(PlanRecord, PartRecord)>,
    /// Agents that are put back.
    agents: Vec<Agent>,
    /// Agents whose folders are known by them.
    all_agents: Vec<Agent>,
    warnings: Vec<String>,
}
