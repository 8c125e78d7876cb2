//! The scene of a rollback: its folders, the target of each, and the plans, sessions and agents to restore.

use super::{DryRun, Request};
use crate::checkpoint::create::files_part;
use crate::config::Broken;
use crate::folders::{files_of, is_together};
use crate::manager::Held;
use crate::parts::Member;
use crate::parts::files::FilesPart;
use crate::parts::git::GitCapture;
use crate::parts::kinds::{FolderBack, KINDS, RecordsBack, chosen_as};
use crate::parts::thread::ThreadGoal;
use crate::places::Place;
use crate::{CheckpointManager, Error, Warning};
use safepoint_catalog::{PlanRecord, Workspace};
use safepoint_model::agent::{Agent, AgentRecord, WorkspaceKind};
use safepoint_model::change::Absent;
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord, Role};
use safepoint_model::rollback::{Rollback, Verb};
use safepoint_model::session::Session;
use safepoint_model::thread::ThreadKey;
use safepoint_model::{ObjectId, Progress, WorkspaceId};
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
    pub(crate) agents: Vec<(Agent, ObjectId)>,
    /// Agents of a workspace, as the checkpoint holds them.
    pub(super) bound: Vec<AgentRecord>,
    /// The session in current state, with its target document.
    pub(crate) session: Option<(Session, ObjectId)>,
    /// Threads, each with its goal and target document.
    pub(crate) threads: Vec<(ThreadKey, ThreadGoal, ObjectId)>,
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
        for kind in KINDS {
            kind.find_records(self, request, &mut scene, warnings)?;
        }
        Ok(scene)
    }

    fn scene_of_one(&self, request: &Request<'_>, alone: WorkspaceId) -> Result<Scene, Error> {
        let workspace = self.workspaces().get(alone)?;
        let target = self.target_part(alone, request)?;
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
        for (place, document) in self.places_held(to)? {
            let goes = options.wants(chosen_as(place.workspace.kind));
            if goes || self.stays(request, &place.workspace, scene.places.is_empty())? {
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

    /// The folders that a checkpoint of several holds, in the order of their ids, each with its document.
    pub(super) fn places_held(&self, to: &Checkpoint) -> Result<Vec<(Place, ObjectId)>, Error> {
        let stamp = to.created_at;
        let agents = self.agents_held(to)?.into_iter().map(|(agent, _)| AgentRecord {
            agent,
            created_at: stamp,
            updated_at: stamp,
            workspace_id: None,
        });
        let agents: Vec<_> = agents.collect();
        let folders = to.parts.iter().filter(|part| part.kind == PartKind::Files);
        let mut folders =
            folders.map(|part| Ok((part.key.parse()?, part.document))).collect::<Result<Vec<_>, Error>>()?;
        folders.sort_unstable_by_key(|(id, _): &(WorkspaceId, _)| *id);
        let roots: Vec<PathBuf> = folders
            .iter()
            .map(|(id, _)| Ok(self.workspaces().get(*id)?.root_path().to_owned()))
            .collect::<Result<_, Error>>()?;
        let place = |(id, document)| Ok((self.place_for(id, &agents, &roots)?, document));
        folders.into_iter().map(place).collect()
    }

    /// Returns true if the files of a folder stay as they are while another part of it is restored.
    fn stays(&self, request: &Request<'_>, folder: &Workspace, is_first: bool) -> Result<bool, Error> {
        for kind in KINDS {
            if kind.stays_in(self, request, folder, is_first)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns every part to capture for the safety checkpoint, those to restore with their targets, and the settings that were ignored
    /// because they are invalid.
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
            let (files, git, passed) = self.files_to_go_back(ground, &scene.places[at], at)?;
            passed_over.extend(passed);
            lacking.extend(files.capabilities.lacking());
            if ground.is_memory(at) {
                members.push(Member::new(files, at, scene.targets[at]));
                continue;
            }
            let mut folder = FolderBack {
                manager: self,
                request: ground.request,
                files,
                target: scene.targets[at],
                git,
                record,
                at,
                progress: ground.progress,
                warnings: &mut said,
            };
            // The files are the first, as they take the steps of the others.
            let first = members.len();
            for kind in KINDS {
                kind.roll_back_folder(&mut folder, &mut members)?;
            }
            members.insert(first, Member::new(folder.files, at, folder.target));
        }
        warnings.extend(passed_over.iter().map(|why: &String| Warning::SettingsIgnored { why: why.clone() }));
        warnings.extend(said);
        warnings.extend(lacking.into_iter().map(Warning::FileSystemLacks));
        let Some(first) = records.first() else { return Ok((members, passed_over)) };
        let rollback = first.together.unwrap_or(first.id);
        let records = RecordsBack { manager: self, request: ground.request, scene, rollback };
        KINDS.iter().for_each(|kind| kind.roll_back_records(&records, &mut members));
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
            files.left.clone_from(&options.leave);
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
            WorkspaceKind::Agent | WorkspaceKind::Attempt => GitCapture::None,
        };
        Ok((files, capture, config.passed_over.into_iter().collect()))
    }
}
