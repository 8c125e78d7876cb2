//! The scene of a rollback: its folders, the target of each, and the plans, sessions and agents to restore.

use super::{DryRun, Request};
use crate::checkpoint::create::files_part;
use crate::config::Broken;
use crate::folders::{files_of, is_together};
use crate::manager::Held;
use crate::parts::Member;
use crate::parts::agent::AgentPart;
use crate::parts::files::FilesPart;
use crate::parts::git::{GitCapture, GitFolderPart, GitPart, GitPlan, git_folder};
use crate::parts::plan::{PlanPart, guard};
use crate::parts::session::SessionPart;
use crate::places::Place;
use crate::plans::apply::TakingPart;
use crate::warning::cause;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{PlanRecord, Workspace};
use safepoint_model::agent::{Agent, AgentRecord, WorkspaceKind};
use safepoint_model::change::Absent;
use safepoint_model::checkpoint::{PartKind, PartRecord, Role};
use safepoint_model::rollback::{Rollback, Verb};
use safepoint_model::session::Session;
use safepoint_model::{ObjectId, Progress, RollbackId, WorkspaceId};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Scope of a rollback.
#[derive(Default)]
pub(crate) struct Scene {
    /// The folders, in the order of their ids.
    pub(crate) places: Vec<Place>,
    /// Target of the files of each; `None` if they stay as they are.
    pub(crate) targets: Vec<Option<ObjectId>>,
    /// Plans in current state, each with its target document.
    pub(crate) plans: Vec<(PlanRecord, ObjectId)>,
    /// Agents in current state, each with its target document.
    pub(super) agents: Vec<(Agent, ObjectId)>,
    /// Agents of a workspace, as the checkpoint holds them.
    pub(super) bound: Vec<AgentRecord>,
    /// The session in current state, with its target document.
    session: Option<(Session, ObjectId)>,
}

/// Context of a rollback.
pub(crate) struct Ground<'m> {
    pub(crate) request: &'m Request<'m>,
    pub(crate) held: &'m [Held],
    pub(crate) progress: &'m dyn Progress,
}

impl Ground<'_> {
    /// True if a folder holds the memory of agents of the one workspace to roll back.
    fn is_memory(&self, at: usize) -> bool {
        at > 0 && self.request.alone().is_some()
    }
}

impl CheckpointManager {
    /// Collects the targets.
    pub(crate) fn scene(&self, request: &Request<'_>, warnings: &mut Vec<Warning>) -> Result<Scene, Error> {
        let _using = self.store.using()?;
        let mut scene = match request.alone() {
            Some(alone) => self.scene_of_one(request, alone)?,
            None => self.scene_of_many(request)?,
        };
        for part in request.to.parts.iter().filter(|part| part.kind == PartKind::Plan) {
            if request.options.wants(PartKind::Plan) {
                let now = self.plans().get(&part.key)?;
                guard(&now)?;
                scene.plans.push((now, part.document));
            }
        }
        if request.options.wants(PartKind::Session) {
            scene.session = self.session_to_go_back(request, warnings)?;
        }
        Ok(scene)
    }

    fn scene_of_one(&self, request: &Request<'_>, alone: WorkspaceId) -> Result<Scene, Error> {
        let workspace = self.workspaces().get(alone)?;
        let target = self.target_part(alone, request)?;
        let missing = |part: &&PartKind| match part {
            PartKind::Agent => is_together(&request.to) || request.to.count(PartKind::Agent) == 0,
            PartKind::Plan => request.to.count(PartKind::Plan) == 0,
            _ => false,
        };
        if let Some(part) = request.options.parts.iter().find(missing) {
            return Err(Error::NoPart { checkpoint: request.to.id, part: *part });
        }
        let target = request.options.wants(PartKind::Files).then_some(target.document);
        let place = Place { workspace, only: None, leave: Vec::new() };
        let mut scene = Scene { places: vec![place], targets: vec![target], ..Scene::default() };
        if request.takes_memory() {
            self.add_memory(request, &mut scene)?;
        }
        Ok(scene)
    }

    /// The files of a workspace in the checkpoint, if restorable there.
    fn target_part(&self, workspace: WorkspaceId, request: &Request<'_>) -> Result<PartRecord, Error> {
        let (to, options) = (&request.to, &request.options);
        let checkpoint = to.id;
        if is_together(to) {
            // Chosen paths of one folder may go back alone.
            return match (options.paths.is_empty(), files_of(to, workspace)) {
                (_, None) => Err(Error::OtherWorkspace { checkpoint }),
                (true, _) => Err(Error::GoesTogether { checkpoint }),
                (false, Some(part)) => Ok(part.clone()),
            };
        }
        if to.workspace_id != Some(workspace) && request.taking.is_none() {
            return Err(Error::OtherWorkspace { checkpoint });
        }
        if to.role == Some(Role::Rescue) && options.paths.is_empty() {
            return Err(Error::OnlyRescued { checkpoint });
        }
        files_part(to).cloned().ok_or(Error::NoFiles { checkpoint })
    }

    fn scene_of_many(&self, request: &Request<'_>) -> Result<Scene, Error> {
        let (to, options) = (&request.to, &request.options);
        let mut scene = Scene::default();
        let stamp = to.created_at;
        let mut agents = Vec::new();
        for part in to.parts.iter().filter(|part| part.kind == PartKind::Agent) {
            let agent = Agent::load(&self.store, part.document)?;
            if options.wants(PartKind::Agent) {
                // One that is not registered any more has nothing to go back to but what the checkpoint says.
                let now = self.catalog.agent(&agent.name)?;
                scene.agents.push((now.map_or_else(|| agent.clone(), |now| now.agent), part.document));
            }
            agents.push(AgentRecord { agent, created_at: stamp, updated_at: stamp, workspace_id: None });
        }
        let folders = to.parts.iter().filter(|part| part.kind == PartKind::Files);
        let mut folders =
            folders.map(|part| Ok((part.key.parse()?, part.document))).collect::<Result<Vec<_>, Error>>()?;
        folders.sort_unstable_by_key(|(id, _): &(WorkspaceId, _)| *id);
        let roots: Vec<PathBuf> = folders
            .iter()
            .map(|(id, _)| Ok(self.workspaces().get(*id)?.root_path().to_owned()))
            .collect::<Result<_, Error>>()?;
        for (id, document) in folders {
            let place = self.place_for(id, &agents, &roots)?;
            let goes = options.wants(match place.workspace.kind {
                WorkspaceKind::Agent => PartKind::Agent,
                WorkspaceKind::Project => PartKind::Files,
            });
            // A session has no folder of its own: the first of them stands for it.
            let stands = scene.places.is_empty() && options.parts.contains(&PartKind::Session);
            if goes || stands || self.stays(request, id)? {
                scene.targets.push(goes.then_some(document));
                scene.places.push(place);
            }
        }
        if scene.places.is_empty() {
            let part = options.parts.first().copied().unwrap_or(PartKind::Files);
            return Err(Error::NoPart { checkpoint: to.id, part });
        }
        Ok(scene)
    }

    /// True if the files of a workspace stay as they are while another part of it is restored.
    fn stays(&self, request: &Request<'_>, id: WorkspaceId) -> Result<bool, Error> {
        let (to, options) = (&request.to, &request.options);
        let key = id.to_string();
        let git =
            |part: &PartRecord| part.key == key && matches!(part.kind, PartKind::Git | PartKind::GitFolder);
        if options.parts.contains(&PartKind::Git) && to.parts.iter().any(git) {
            return Ok(true);
        }
        for part in to.parts.iter().filter(|part| part.kind == PartKind::Plan) {
            let here = |plan: &PlanRecord| Ok::<_, Error>(self.place_of(plan)?.id == id);
            if options.parts.contains(&PartKind::Plan) && here(&self.plans().get(&part.key)?)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Every part that is captured for the safety checkpoint, those that go back with their targets. Gives, too, the settings that could
    /// not be understood and were passed over.
    pub(crate) fn members_of<'m>(
        &'m self,
        ground: &Ground<'m>,
        scene: &'m Scene,
        records: &mut [Rollback],
        warnings: &mut Vec<Warning>,
    ) -> Result<(Vec<Member<'m>>, Vec<String>), Error> {
        let mut members = Vec::new();
        let (mut passed_over, mut said, mut lacking) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (at, record) in records.iter_mut().enumerate() {
            let (files, capture, passed) = self.files_to_go_back(ground, &scene.places[at], at)?;
            passed_over.extend(passed);
            lacking.extend(files.capabilities.lacking());
            if ground.is_memory(at) {
                members.push(Member::new(files, at, scene.targets[at]));
                continue;
            }
            let git =
                self.plan_git_of(ground.request, files.workspace, record.id, ground.progress, &mut said)?;
            let workspace = files.workspace;
            self.add_folder(
                &mut members,
                (files, scene.targets[at]),
                (git, capture, ground.request.to.integrity),
                record,
                at,
            );
            let Request { to, options, .. } = ground.request;
            let outside = self.outside_to_go_back(workspace, to, |kind| options.wants(kind), &mut said)?;
            members.extend(outside.into_iter().map(|(part, target)| Member::new(part, at, target)));
        }
        warnings.extend(passed_over.iter().map(|why: &String| Warning::SettingsIgnored { why: why.clone() }));
        warnings.extend(said);
        warnings.extend(lacking.into_iter().map(Warning::FileSystemLacks));
        let Some(first) = records.first() else { return Ok((members, passed_over)) };
        self.add_others(&mut members, ground.request, scene, first.together.unwrap_or(first.id));
        Ok((members, passed_over))
    }

    /// The files of a folder, as the part to restore; how much of its repository is noted; and settings that were ignored.
    fn files_to_go_back<'m>(
        &'m self,
        ground: &Ground<'m>,
        place: &'m Place,
        at: usize,
    ) -> Result<(FilesPart<'m>, GitCapture, Vec<String>), Error> {
        let Request { options, to, answers, verb, taking, .. } = ground.request;
        let root = &ground.held[at].root;
        let config = self.config_at(Some(root), Broken::PassedOver)?;
        let mut files = place.part(self, &ground.held[at], config.excludes);
        files.times = options.times;
        files.covered = self.covered(place.workspace.id, *answers)?;
        files.access = self.access_of(to.id)?;
        if !ground.is_memory(at) {
            files.chosen.clone_from(&options.paths);
        }
        (files.taking, files.thrift) = (*taking, ground.request.thrift);
        // A restored path that is missing again at the time of the undo is not a user error.
        files.absent = if *verb == Verb::Rollback { Absent::Refused } else { Absent::Fine };
        if options.dry_run == DryRun::No {
            files.capabilities = self.probe(root)?;
        } else {
            root.check_own_folder()?;
        }
        let capture = match place.workspace.kind {
            WorkspaceKind::Project => config.git,
            WorkspaceKind::Agent => GitCapture::None,
        };
        Ok((files, capture, config.passed_over.into_iter().collect()))
    }

    /// Plans the repository change of one folder.
    fn plan_git_of(
        &self,
        request: &Request<'_>,
        workspace: &Workspace,
        id: RollbackId,
        progress: &dyn Progress,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<GitPlan>, Error> {
        let many = request.alone().is_none();
        let mut said = Vec::new();
        let plan = match self.plan_git(workspace, request, id, progress, &mut said) {
            // A repository that reaches beyond its workspace, or is gone, cannot go back with the other folders.
            Err(error @ (Error::PartOfRepository { .. } | Error::NoRepository { .. })) if many => {
                said.push(Warning::GitNotMoved { why: cause(error) });
                None
            }
            plan => plan?,
        };
        if plan.is_none() && request.options.wants(PartKind::Plan) && request.verb == Verb::Rollback {
            said.extend(self.git_moved_since(workspace, &request.to));
        }
        let root = workspace.root_path();
        warnings
            .extend(said.into_iter().map(|said| if many { said.in_folder(root.to_owned()) } else { said }));
        Ok(plan)
    }

    /// The parts of one folder.
    fn add_folder<'m>(
        &'m self,
        members: &mut Vec<Member<'m>>,
        (files, target): (FilesPart<'m>, Option<ObjectId>),
        (git, capture, whole): (Option<GitPlan>, GitCapture, ObjectId),
        record: &mut Rollback,
        at: usize,
    ) {
        let target = target.filter(|_| git.as_ref().is_none_or(GitPlan::takes_files));
        let (moving, replaced) = match git {
            Some(GitPlan::Move(moving)) => (Some(moving), None),
            Some(GitPlan::Folder(document, moved)) => {
                if target.is_none() {
                    record.paths = vec![git_folder()];
                }
                (None, Some((document, moved)))
            }
            None => (None, None),
        };
        let workspace = files.workspace;
        let folder = GitFolderPart { files: files.git_folder(), capture, replaced };
        let replaced = folder.replaced.as_ref().map(|(document, _)| *document);
        // The move itself holds its target.
        let moved = moving.is_some().then_some(whole);
        members.push(Member::new(files, at, target));
        members.push(Member::new(folder, at, replaced));
        members.push(Member::new(GitPart { manager: self, workspace, capture, moving }, at, moved));
    }

    /// The parts that live in the catalog. They go with the first folder.
    fn add_others<'m>(
        &'m self,
        members: &mut Vec<Member<'m>>,
        request: &Request<'m>,
        scene: &Scene,
        rollback: RollbackId,
    ) {
        for (now, target) in &scene.plans {
            let (now, back) = (now.clone(), Some((rollback, request.to.id)));
            let correction = request.correction.cloned();
            let is_of_it = request.to.plan_id.as_ref() == Some(&now.plan.id);
            let part = PlanPart { manager: self, now, back, correction, is_of_it };
            members.push(Member::new(part, 0, Some(*target)));
        }
        if let Some((now, target)) = scene.session.clone() {
            let session = SessionPart { manager: self, now, back: Some(rollback) };
            members.push(Member::new(session, 0, Some(target)));
        }
        for (now, target) in scene.agents.iter().cloned() {
            members.push(Member::new(
                AgentPart { manager: self, now, bind: request.alone() },
                0,
                Some(target),
            ));
        }
        if let Some(taking) = request.taking {
            members.push(Member::new(TakingPart(taking), 0, Some(request.to.integrity)));
        }
    }
}
