//! SPACE: disk usage, and effects of deletion.

use crate::handles::Upkeep;
use crate::upkeep::Cap;
use crate::upkeep::mark::each_object;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Filter, RoleFilter, Workspace};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::{CheckpointId, ObjectId, Progress};
use safepoint_store::Usage;
use std::collections::{HashMap, HashSet};

/// Disk usage.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Space {
    /// Disk usage of the home.
    pub home_bytes: u64,
    /// Cap of the home.
    pub cap: Cap,
    /// Usage of the store.
    pub store: Usage,
    /// Unreferenced bytes in packs, freed by a thorough collection. An overestimate if a checkpoint is
    /// damaged, because only a part of its references is known.
    pub dead_bytes: u64,
    /// Bytes in packs that several checkpoints share.
    pub shared_bytes: u64,
    /// Usage of the rooms of attempts.
    pub attempts: AttemptSpace,
    /// Usage by workspace.
    pub workspaces: Vec<WorkspaceSpace>,
    /// Usage by checkpoint, newest first.
    pub checkpoints: Vec<CheckpointSpace>,
}

/// Disk usage of the rooms of attempts, wherever they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttemptSpace {
    /// Number of rooms.
    pub rooms: u64,
    /// Bytes of layers. They count for the cap.
    pub layer_bytes: u64,
    /// Bytes of copies, with content that they share with the project. They do not count for the cap.
    pub copy_bytes: u64,
}

/// Space that deleting all checkpoints of a workspace would free.
#[derive(Debug, Clone)]
pub struct WorkspaceSpace {
    /// Workspace.
    pub workspace: Workspace,
    /// Number of its checkpoints, including automatic ones.
    pub checkpoints: u64,
    /// Bytes that only they need.
    pub frees_bytes: u64,
}

/// Space that deleting a checkpoint would free.
#[derive(Debug, Clone)]
pub struct CheckpointSpace {
    /// Checkpoint.
    pub checkpoint: Checkpoint,
    /// Bytes that only it needs.
    pub frees_bytes: u64,
    /// True if it is damaged, so that the count is partial.
    pub damaged: bool,
}

/// Owner of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    One(usize),
    Several,
}

impl CheckpointManager {
    /// Returns the owner of each object, by checkpoint group, and the damaged checkpoints.
    fn owners(
        &self,
        checkpoints: &[Checkpoint],
        groups: &[usize],
        progress: &dyn Progress,
    ) -> Result<(HashMap<ObjectId, Owner>, Vec<bool>), Error> {
        let mut owners: HashMap<ObjectId, Owner> = HashMap::new();
        let mut damaged = vec![false; checkpoints.len()];
        for (at, (checkpoint, group)) in checkpoints.iter().zip(groups).enumerate() {
            let walked = each_object(&self.store, checkpoint, progress, &mut |id| match owners.get(&id) {
                None => {
                    owners.insert(id, Owner::One(*group));
                    true
                }
                // Its children have this owner or several already.
                Some(Owner::Several) => false,
                Some(Owner::One(other)) if other == group => false,
                // Its children now have several owners, too.
                Some(Owner::One(_)) => {
                    owners.insert(id, Owner::Several);
                    true
                }
            });
            match walked {
                Err(Error::Object(_)) => damaged[at] = true,
                other => other?,
            }
        }
        Ok((owners, damaged))
    }
}

impl Upkeep<'_> {
    /// Computes the space that deleting these checkpoints together would free.
    ///
    /// # Errors
    /// As [`Upkeep::space`].
    pub fn frees(&self, ids: &[CheckpointId], progress: &dyn Progress) -> Result<u64, Error> {
        let _using = self.manager.store.using()?;
        let all = Filter { role: RoleFilter::Any, ..Filter::default() };
        let checkpoints = self.manager.catalog.checkpoints(&all)?;
        let chosen: HashSet<&CheckpointId> = ids.iter().collect();
        let groups: Vec<usize> =
            checkpoints.iter().map(|checkpoint| usize::from(!chosen.contains(&checkpoint.id))).collect();
        let (owners, _) = self.manager.owners(&checkpoints, &groups, progress)?;
        let mut frees = 0;
        for (id, owner) in owners {
            if owner == Owner::One(0) {
                frees += self.manager.store.stored_bytes(id)?.unwrap_or(0);
            }
        }
        Ok(frees)
    }

    /// Computes the usage of every checkpoint.
    ///
    /// # Errors
    /// Fails if store or catalog fail, or on interrupt.
    pub fn space(&self, progress: &dyn Progress) -> Result<Space, Error> {
        let _using = self.manager.store.using()?;
        let all = Filter { role: RoleFilter::Any, ..Filter::default() };
        let checkpoints = self.manager.catalog.checkpoints(&all)?;
        let workspaces = self.manager.catalog.workspaces()?;
        let of_workspace = |checkpoint: &Checkpoint| {
            workspaces.iter().position(|workspace| Some(workspace.id) == checkpoint.workspace_id)
        };
        let by_checkpoint: Vec<usize> = (0..checkpoints.len()).collect();
        let by_workspace: Vec<usize> = checkpoints
            .iter()
            .map(|checkpoint| of_workspace(checkpoint).unwrap_or(workspaces.len()))
            .collect();
        let (owners, damaged) = self.manager.owners(&checkpoints, &by_checkpoint, progress)?;
        let mut sizes = HashMap::with_capacity(owners.len());
        for id in owners.keys() {
            sizes.insert(*id, self.manager.store.stored_bytes(*id)?.unwrap_or(0));
        }
        let frees = sum(&owners, &sizes, checkpoints.len());
        let (workspace_owners, _) = self.manager.owners(&checkpoints, &by_workspace, progress)?;
        let workspace_frees = sum(&workspace_owners, &sizes, workspaces.len() + 1);
        let needed_bytes: u64 = sizes.values().sum();
        let mut live: HashSet<ObjectId> = owners.into_keys().collect();
        live.extend(self.manager.catalog.objects_of_records()?);
        Ok(Space {
            home_bytes: self.manager.home.disk_bytes()?,
            cap: self.cap()?,
            store: self.manager.store.usage()?,
            dead_bytes: self.manager.store.dead_bytes(&live)?,
            shared_bytes: needed_bytes.saturating_sub(frees.iter().sum()),
            attempts: self.manager.attempt_space()?,
            workspaces: workspaces
                .into_iter()
                .enumerate()
                .map(|(at, workspace)| WorkspaceSpace {
                    workspace,
                    checkpoints: by_workspace.iter().filter(|of| **of == at).count() as u64,
                    frees_bytes: workspace_frees[at],
                })
                .collect(),
            checkpoints: checkpoints
                .into_iter()
                .enumerate()
                .map(|(at, checkpoint)| CheckpointSpace {
                    checkpoint,
                    frees_bytes: frees[at],
                    damaged: damaged[at],
                })
                .collect(),
        })
    }
}

fn sum(owners: &HashMap<ObjectId, Owner>, sizes: &HashMap<ObjectId, u64>, groups: usize) -> Vec<u64> {
    let mut sums = vec![0; groups];
    for (id, owner) in owners {
        if let (Owner::One(group), Some(size)) = (owner, sizes.get(id)) {
            sums[*group] += size;
        }
    }
    sums
}
