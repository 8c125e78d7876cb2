//! Candidates in copies: one copy of each folder, moved from candidate to candidate. The folders themselves are only read.

use super::{RunCheck, Scoped, Seat, Stand, TryIn};
use crate::config::Broken;
use crate::folders::{files_of, is_together, within};
use crate::home::Scratch;
use crate::manager::Held;
use crate::places::Place;
use crate::rollback::RollbackOptions;
use crate::rollback::strategy::{Verdict, name_of};
use crate::{CheckpointManager, Error};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::coverage::{Skipped, Why};
use safepoint_model::{CheckpointId, Progress, WorkspaceId};
use safepoint_workspace::{Destination, Replica, ReplicaDraft, Times, free_bytes, plan};
use std::path::{Path, PathBuf};

/// Copies of all folders of a search.
pub(super) struct Copies<'m> {
    manager: &'m CheckpointManager,
    here: WorkspaceId,
    times: Times,
    folders: Vec<Folder>,
    scratch: Scratch,
}

/// One folder and its copy.
struct Folder {
    place: Place,
    replica: Replica,
}

impl<'m> Copies<'m> {
    /// Copies every folder, once it is known that there is space for all of them.
    pub(super) fn make(
        manager: &'m CheckpointManager,
        scope: Scoped,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let Scoped { here, mut places, .. } = scope;
        let here = here.id;
        // A folder in another one comes after it, and its copy goes into the other's copy.
        places.sort_by(|one, other| one.workspace.root.cmp(&other.workspace.root));
        let scratch = manager.scratch_for(&places)?;
        let mut copies = Self { manager, here, times: options.times, folders: Vec::new(), scratch };
        let (mut drafts, mut needed_bytes) = (Vec::new(), 0u64);
        for place in &places {
            let Held { root, .. } = manager.hold_recovered(&place.workspace, progress)?;
            root.check_own_folder()?;
            let mut own = manager.own_folders(&root);
            own.extend(place.leave.iter().cloned());
            let draft = ReplicaDraft::new(root, own, place.only.clone())?;
            needed_bytes = needed_bytes.saturating_add(draft.bytes_in(copies.scratch.path())?);
            drafts.push(draft);
        }
        let free_bytes = free_bytes(copies.scratch.path())?;
        if needed_bytes > free_bytes {
            let path = copies.scratch.path().parent().unwrap_or(Path::new("/")).to_owned();
            return Err(Error::NoRoomToTry { path, needed_bytes, free_bytes });
        }
        for (place, draft) in places.into_iter().zip(drafts) {
            let _held = manager.hold_recovered(&place.workspace, progress)?;
            let replica = draft.make(&copies.path_for(&place), progress)?;
            copies.folders.push(Folder { place, replica });
        }
        Ok(copies)
    }

    /// Path for the copy of a folder: inside the copy of its parent folder, or beside the others.
    fn path_for(&self, place: &Place) -> PathBuf {
        let root = place.workspace.root_path();
        let around = self.folders.iter().rev().find_map(|other| {
            let below = root.strip_prefix(other.place.workspace.root_path()).ok()?;
            let path = other.replica.path().join(below);
            path.parent().is_some_and(Path::is_dir).then_some(path)
        });
        around.unwrap_or_else(|| {
            let path = self.scratch.path().join(name_of(&place.workspace));
            match path.exists() {
                true => {
                    self.scratch.path().join(format!("{}-{}", name_of(&place.workspace), place.workspace.id))
                }
                false => path,
            }
        })
    }

    /// The directory in which the check runs.
    fn directory(&self) -> &Path {
        let here = self.folders.iter().find(|folder| folder.place.workspace.id == self.here);
        here.map_or(self.scratch.path(), |folder| folder.replica.path())
    }
}

impl Folder {
    /// Makes the copy what the folder would be after a rollback to a checkpoint; what the folder is, where that holds nothing of it.
    fn move_to(
        &mut self,
        manager: &CheckpointManager,
        to: &Checkpoint,
        times: Times,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let workspace = &self.place.workspace;
        let held = manager.hold_recovered(workspace, progress)?;
        let config = manager.config_at(Some(&held.root), Broken::PassedOver)?;
        let part = self.place.part(manager, &held, config.excludes);
        let measurer = manager.store.measurer();
        if is_together(to) && files_of(to, workspace.id).is_none() {
            let now = part.scan(&measurer, None, progress)?.snapshot;
            let destination = Destination { now: &now, target: None, times };
            return Ok(self.replica.move_to(&measurer, &destination, progress)?);
        }
        let target = manager.snapshot_of(&within(to, workspace.id))?;
        let now = part.scan_before(&measurer, target.tree(), progress)?.snapshot;
        let access = manager.access_of(to.id)?;
        let plan = plan(&held.root, &measurer, &now, (&target, access), &part.capabilities)?;
        let destination = Destination { now: &now, target: Some((&target, &plan)), times };
        Ok(self.replica.move_to(&measurer, &destination, progress)?)
    }
}

impl Stand for Copies<'_> {
    fn current(&mut self, check: RunCheck<'_>, _: &dyn Progress) -> Result<Verdict, Error> {
        check(&Seat { directory: self.directory(), target: self.scratch.path(), through: &[] })
    }

    fn candidate(
        &mut self,
        to: &Checkpoint,
        check: RunCheck<'_>,
        progress: &dyn Progress,
    ) -> Result<Verdict, Error> {
        let (manager, times) = (self.manager, self.times);
        self.folders.iter_mut().try_for_each(|folder| folder.move_to(manager, to, times, progress))?;
        check(&Seat { directory: self.directory(), target: self.scratch.path(), through: &[] })
    }

    fn place(&self) -> TryIn {
        TryIn::Copy
    }

    fn left_out(&self) -> Vec<(PathBuf, Skipped)> {
        let mut left_out = Vec::new();
        for Folder { place, replica } in &self.folders {
            let missing = replica.left_out().iter().filter(|skipped| skipped.why != Why::OwnFolder);
            let root = place.workspace.root_path();
            left_out.extend(missing.map(|skipped| (root.to_owned(), skipped.clone())));
        }
        left_out
    }

    fn finish(self: Box<Self>) -> Result<bool, Error> {
        Ok(false)
    }
}

impl CheckpointManager {
    /// Takes a workspace for this process, with what a crash left put in order.
    pub(in crate::rollback) fn hold_recovered(
        &self,
        workspace: &safepoint_catalog::Workspace,
        progress: &dyn Progress,
    ) -> Result<Held, Error> {
        let held = self.hold(workspace)?;
        self.recover_held(workspace, &held.root, progress)?.refuse_foreign(workspace)?;
        Ok(held)
    }

    /// An empty folder for the copies: in the home; beside the folder, where only that lies on the same file system and in no workspace.
    fn scratch_for(&self, places: &[Place]) -> Result<Scratch, Error> {
        let name = CheckpointId::from_bits(self.environment.new_id()).to_string();
        let failed = |source| Error::Home { path: self.home().to_owned(), source };
        if let [place] = places
            && let Some(beside) = crate::home::folder_beside(place.workspace.root_path(), self.home())
            && self.workspaces().around(&beside)?.is_none()
            && let Ok(scratch) = self.home.make_scratch_in(&name, &beside)
        {
            return Ok(scratch);
        }
        self.home.make_scratch(&name).map_err(failed)
    }
}
