//! One rollback of many folders: every one is captured and prepared, then all of them are carried out as one.

use super::create::Before;
use super::{Place, Whole, files_of};
use crate::carry::{Carried, Deed, Member};
use crate::config::Broken;
use crate::create::Urgency;
use crate::effects::{Effects, NotUndone, Undone};
use crate::manager::Held;
use crate::part::{Captured, Chosen, Outline, Part, Prepared};
use crate::parts::files::FilesPart;
use crate::parts::git::{Asked, GitCapture, GitMoved, GitPlan, Noted, WithGit, git_folder};
use crate::parts::plan::{PlanRollback, Records, guard};
use crate::restore::{DryRun, RestoreOptions};
use crate::{CheckpointManager, Error};
use safepoint_catalog::{PlanRecord, Transaction};
use safepoint_model::agent::{Agent, AgentRecord, WorkspaceKind};
use safepoint_model::change::Absent;
use safepoint_model::checkpoint::{Checkpoint, Kind, PartKind, PartRecord, Reason, Role, Scope};
use safepoint_model::rollback::{Rollback, Strategy, Verb};
use safepoint_model::session::SessionCount;
use safepoint_model::{CheckpointId, Progress, RelPath, RollbackId, Timestamp, WorkspaceId, document};
use safepoint_store::Writer;
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
    /// What it moved in repositories, where it was asked to.
    pub git: Vec<(WorkspaceId, GitMoved)>,
    /// Commands that took back what steps did outside of the files.
    pub undone: Vec<Undone>,
    /// What steps did outside of the files and was not taken back.
    pub effects_not_undone: Vec<NotUndone>,
    /// Paths that somebody changed after they had been put in place.
    pub changed_meanwhile: Vec<(WorkspaceId, RelPath)>,
    /// Displaced files that a program still has open for writing.
    pub waiting: Vec<RelPath>,
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

impl Wish<'_> {
    /// Whether parts of this kind go back.
    fn wants(&self, kind: PartKind) -> bool {
        self.options.part.is_none_or(|part| part == kind)
    }
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
        let records = || self.records_for(wish, RollbackId::from_bits(self.environment.new_id()));
        let ((mut restored, pruned), effects) =
            self.with_effects(wish.to, wish.options, &records, progress, |options| {
                let wish = Wish { options, ..*wish };
                self.within_cap(&any, options.dry_run, progress, || self.restore_all(&wish, progress))
            })?;
        if !pruned.is_empty() {
            let count = pruned.len();
            restored.warnings.push(format!("old checkpoints pruned to make room under the cap: {count}"));
        }
        let Effects { undone, not_undone, warnings } = effects;
        restored.warnings.extend(warnings);
        (restored.undone, restored.effects_not_undone) = (undone, not_undone);
        Ok(restored)
    }

    fn restore_all(&self, wish: &Wish<'_>, progress: &dyn Progress) -> Result<RestoredTogether, Error> {
        let together = RollbackId::from_bits(self.environment.new_id());
        let mut records = Vec::new();
        let result = self.scene(wish).and_then(|scene| {
            for place in &scene.places {
                records.push(self.member_record(wish, together, place.workspace.id)?);
            }
            self.try_restore_all(wish, &scene, together, &mut records, progress)
        });
        match &result {
            Err(error) if wish.options.dry_run == DryRun::No && records.is_empty() => {
                self.note_refusal(&self.records_for(wish, together), error);
            }
            Err(error) if wish.options.dry_run == DryRun::No => self.note_refusal(&records, error),
            _ => {}
        }
        result
    }

    fn try_restore_all(
        &self,
        wish: &Wish<'_>,
        scene: &Scene,
        together: RollbackId,
        records: &mut [Rollback],
        progress: &dyn Progress,
    ) -> Result<RestoredTogether, Error> {
        let held = self.hold_all(&scene.places, progress)?;
        let writer = self.store.writer()?;
        let urgency = Urgency::Emergency;
        let before = Before { targets: &scene.targets, answers: wish.answers };
        let mut captured = self.capture_all(&scene.places, &held, &before, urgency, &writer, progress)?;
        let folders = self.folders(wish, scene, &held)?;
        let mut warnings = Vec::new();
        let mut gits = Vec::new();
        for (folder, record) in folders.iter().zip(records.iter()) {
            let git = self.plan_git_of(wish, &folder.files, record.id, progress, &mut warnings)?;
            let noted = self.note_git(&folder.files, folder.capture, git.as_ref(), &writer, progress)?;
            gits.push((git, noted));
        }
        let mut safety = self.safety_of(wish, scene, &captured, &writer)?;
        gits.iter().try_for_each(|(_, noted)| noted.add_to(&mut safety, &writer))?;
        let head = if wish.options.part.is_none_or(moves_head) { wish.to.id } else { safety.id };
        let mut members = Vec::new();
        for (at, folder) in folders.iter().enumerate() {
            let record = &mut records[at];
            let mut prepared =
                folder.prepare(&captured[at], &scene.targets[at], &gits[at], record, &writer)?;
            if let Some(GitPlan::Move(moving)) = &gits[at].0 {
                prepared = Box::new(WithGit { files: prepared, moving });
            }
            let outline = prepared.outline();
            warnings.extend(outline.warnings.iter().cloned());
            record.restored_files_count = outline.restored;
            record.removed_files_count = outline.removed;
            record.changed_paths = Some(document::store(&writer, &outline.paths)?);
            members.push(Member { prepared, record: record.clone(), head });
        }
        let backs = self.records_of(wish, scene, &writer, together)?;
        let moved = members.iter().zip(&gits);
        let moved = moved.filter_map(|(it, (git, _))| Some((it.record.workspace_id, git.as_ref()?.moved())));
        let mut restored = RestoredTogether {
            id: together,
            to: wish.to.id,
            safety_checkpoint: None,
            places: Vec::new(),
            plans: scene.plans.iter().map(|(record, _)| record.plan.id.clone()).collect(),
            agents: scene.agents.iter().map(|agent| agent.name.clone()).collect(),
            git: moved.collect(),
            undone: Vec::new(),
            effects_not_undone: Vec::new(),
            changed_meanwhile: Vec::new(),
            waiting: Vec::new(),
            warnings,
            verified: false,
        };
        if wish.options.dry_run == DryRun::Yes {
            restored.places = members.iter().map(told).collect();
            return Ok(restored);
        }
        let plans: Vec<&PlanRecord> = scene.plans.iter().map(|(record, _)| record).collect();
        let stored = self.finish_with_record(writer, &mut safety, &plans)?;
        let deed = Deed {
            safety: &safety,
            stored: &stored,
            intend: &|transaction| backs.iter().try_for_each(|back| back.check(transaction)),
            publish: &|transaction, at| {
                backs.iter().try_for_each(|back| back.publish(transaction))?;
                transaction.count_rollback(wish.to.id)?;
                self.count(transaction, SessionCount::Recovery, at)
            },
        };
        let mut caches: Vec<_> = captured.iter_mut().map(|captured| captured.cache.take()).collect();
        let beside = || caches.iter_mut().for_each(|cache| self.keep_cache(&safety, cache));
        let Carried { meanwhile, waiting, warnings } =
            self.carry_out(&mut members, &deed, beside, progress)?;
        (restored.verified, restored.safety_checkpoint) = (true, Some(safety.id));
        (restored.changed_meanwhile, restored.waiting) = (meanwhile, waiting);
        restored.warnings.extend(warnings);
        restored.places = members.iter().map(told).collect();
        Ok(restored)
    }

    /// Every folder as a part, with what of its repository is noted.
    fn folders<'m>(
        &'m self,
        wish: &Wish<'_>,
        scene: &'m Scene,
        held: &'m [Held],
    ) -> Result<Vec<Folder<'m>>, Error> {
        let mut folders = Vec::new();
        for (place, held) in scene.places.iter().zip(held) {
            let config = self.config_at(Some(&held.root), Broken::PassedOver)?;
            let mut files = place.part(self, held, config.excludes);
            files.times = wish.options.times;
            files.access = self.access_of(wish.to.id)?;
            if wish.options.dry_run == DryRun::No {
                files.capabilities = self.probe(&held.root)?;
            }
            let capture = match place.workspace.kind {
                WorkspaceKind::Project => config.git,
                WorkspaceKind::Agent => GitCapture::None,
            };
            folders.push(Folder { git: files.git_folder(), files, capture });
        }
        Ok(folders)
    }

    /// What becomes of the repository of one folder.
    fn plan_git_of(
        &self,
        wish: &Wish<'_>,
        files: &FilesPart<'_>,
        id: RollbackId,
        progress: &dyn Progress,
        warnings: &mut Vec<String>,
    ) -> Result<Option<GitPlan>, Error> {
        let Wish { verb, to, options, .. } = *wish;
        let workspace = files.workspace;
        let root = workspace.root_path().display();
        let mut said = Vec::new();
        let plan = match self.plan_git(&Asked { workspace, verb, to, options, id }, progress, &mut said) {
            // A repository that reaches beyond its workspace, or is gone, cannot go back with it.
            Err(error @ (Error::PartOfRepository { .. } | Error::NoRepository { .. })) => {
                said.push(format!("git is left as it is: {error}"));
                None
            }
            plan => plan?,
        };
        if plan.is_none() && options.part.is_none() && verb == Verb::Rollback {
            said.extend(self.git_moved_since(workspace, to));
        }
        warnings.extend(said.into_iter().map(|warning| format!("{root}: {warning}")));
        Ok(plan)
    }

    /// What there is to go back to.
    fn scene(&self, wish: &Wish<'_>) -> Result<Scene, Error> {
        let to = wish.to;
        let mut scene = Scene::default();
        let _using = self.store.using()?;
        let of_kind = |kind: PartKind| to.parts.iter().filter(move |part| part.kind == kind);
        for record in of_kind(PartKind::Agent) {
            scene.all_agents.push(Agent::load(&self.store, record.document)?);
        }
        if wish.wants(PartKind::Agent) {
            scene.agents.clone_from(&scene.all_agents);
        }
        for record in of_kind(PartKind::Plan).filter(|_| wish.wants(PartKind::Plan)) {
            let now = self.plan(&record.key)?;
            guard(&now)?;
            scene.plans.push((now, record.clone()));
        }
        let mut ids: Vec<WorkspaceId> =
            of_kind(PartKind::Files).map(|part| part.key.parse()).collect::<Result<_, _>>()?;
        ids.sort_unstable();
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
        for id in ids {
            let place = self.place_for(id, &agents, &roots)?;
            let kind = match place.workspace.kind {
                WorkspaceKind::Agent => PartKind::Agent,
                WorkspaceKind::Project => PartKind::Files,
            };
            let target = files_of(to, id).ok_or(Error::NoFiles { checkpoint: to.id })?;
            if wish.wants(kind) {
                scene.targets.push(Some(target.clone()));
                scene.places.push(place);
            } else if self.stays(wish, &scene, id)? {
                scene.targets.push(None);
                scene.places.push(place);
            }
        }
        if scene.places.is_empty() {
            let part = wish.options.part.unwrap_or(PartKind::Files);
            return Err(Error::NoPart { checkpoint: to.id, part });
        }
        Ok(scene)
    }

    /// Whether the files of a workspace stay as they are while something else goes back that belongs to it.
    fn stays(&self, wish: &Wish<'_>, scene: &Scene, id: WorkspaceId) -> Result<bool, Error> {
        let key = id.to_string();
        Ok(match wish.options.part {
            Some(PartKind::Git) => wish
                .to
                .parts
                .iter()
                .any(|part| part.key == key && matches!(part.kind, PartKind::Git | PartKind::GitFolder)),
            Some(PartKind::Plan) => {
                for (record, _) in &scene.plans {
                    if self.place_of(record)?.id == id {
                        return Ok(true);
                    }
                }
                false
            }
            _ => false,
        })
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

    /// The records of a rollback that did not come as far as to know its folders.
    fn records_for(&self, wish: &Wish<'_>, together: RollbackId) -> Vec<Rollback> {
        let folders = wish.to.parts.iter().filter(|part| part.kind == PartKind::Files);
        let ids = folders.filter_map(|part| part.key.parse().ok());
        ids.filter_map(|id| self.member_record(wish, together, id).ok()).collect()
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
        let blank = self.blank_record(workspace, wish.verb, wish.answers, wish.to.id)?;
        Ok(Rollback { together: Some(together), strategy, ..blank })
    }
}

/// Whether a folder is equal to the checkpoint afterwards, or only something that belongs to it.
fn moves_head(part: PartKind) -> bool {
    matches!(part, PartKind::Files | PartKind::Agent)
}

fn told(member: &Member<'_>) -> (Rollback, Outline) {
    (member.record.clone(), member.prepared.outline().clone())
}

/// One folder as a part.
struct Folder<'m> {
    files: FilesPart<'m>,
    /// The folder of its repository.
    git: FilesPart<'m>,
    capture: GitCapture,
}

impl Folder<'_> {
    fn prepare(
        &self,
        now: &Captured,
        target: &Option<PartRecord>,
        (git, noted): &(Option<GitPlan>, Noted),
        record: &mut Rollback,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + '_>, Error> {
        // A path that was put back once and is gone again by the time of the undo is no mistake of the user's.
        let absent = Absent::Fine;
        if let (Some(GitPlan::Folder(target, _)), Some(now)) = (git, noted.folder) {
            record.paths = vec![git_folder()];
            return self.git.prepare(now, *target, Chosen { paths: &record.paths, absent }, writer);
        }
        let target = target.as_ref().map_or(now.document, |target| target.document);
        self.files.prepare(now.document, target, Chosen { paths: &[], absent }, writer)
    }
}

/// What a rollback of many folders is about.
#[derive(Default)]
struct Scene {
    places: Vec<Place>,
    /// What each goes back to; nothing where its files stay as they are.
    targets: Vec<Option<PartRecord>>,
    plans: Vec<(PlanRecord, PartRecord)>,
    /// Agents that are put back.
    agents: Vec<Agent>,
    /// Agents whose folders are known by them.
    all_agents: Vec<Agent>,
}
