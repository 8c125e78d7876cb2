//! SPACE: what takes it, and what deleting would free.

use crate::upkeep::Cap;
use crate::upkeep::mark::each_object;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Filter, RoleFilter, Workspace};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::{ObjectId, Progress};
use safepoint_store::Usage;
use std::collections::{HashMap, HashSet};

/// Where the space is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Space {
    /// What everything in the home takes on the disk.
    pub home_bytes: u64,
    /// What it may take.
    pub cap: Cap,
    /// What the store holds.
    pub store: Usage,
    /// Of the packs, what nobody needs: a thorough collection frees it. Of a damaged checkpoint only a part can be known, so that
    /// this may be too much where there is one.
    pub dead_bytes: u64,
    /// Of the packs, what several checkpoints need.
    pub shared_bytes: u64,
    /// By workspace.
    pub workspaces: Vec<WorkspaceSpace>,
    /// By checkpoint, newest first.
    pub checkpoints: Vec<CheckpointSpace>,
}

/// What deleting all checkpoints of a workspace would free.
#[derive(Debug, Clone)]
pub struct WorkspaceSpace {
    /// Which.
    pub workspace: Workspace,
    /// How many checkpoints it has, those that Safepoint made for itself included.
    pub checkpoints: u64,
    /// How much is needed by them alone.
    pub frees_bytes: u64,
}

/// What deleting a checkpoint would free.
#[derive(Debug, Clone)]
pub struct CheckpointSpace {
    /// Which.
    pub checkpoint: Checkpoint,
    /// How much is needed by it alone.
    pub frees_bytes: u64,
    /// It is damaged, so that only a part could be counted.
    pub damaged: bool,
}

/// Who needs an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    One(usize),
    Several,
}

impl CheckpointManager {
    /// Looks at what every checkpoint needs, and counts.
    ///
    /// # Errors
    /// When store or catalog fail, or somebody interrupts.
    pub fn space(&self, progress: &dyn Progress) -> Result<Space, Error> {
        let _using = self.store.using()?;
        let all = Filter { role: RoleFilter::Any, ..Filter::default() };
        let checkpoints = self.catalog.checkpoints(&all)?;
        let workspaces = self.catalog.workspaces()?;
        let of_workspace = |checkpoint: &Checkpoint| {
            workspaces.iter().position(|workspace| Some(workspace.id) == checkpoint.workspace_id)
        };
        let by_checkpoint: Vec<usize> = (0..checkpoints.len()).collect();
        let by_workspace: Vec<usize> = checkpoints
            .iter()
            .map(|checkpoint| of_workspace(checkpoint).unwrap_or(workspaces.len()))
            .collect();
        let (owners, damaged) = self.owners(&checkpoints, &by_checkpoint, progress)?;
        let mut sizes = HashMap::with_capacity(owners.len());
        for id in owners.keys() {
            sizes.insert(*id, self.store.stored_bytes(*id)?.unwrap_or(0));
        }
        let frees = sum(&owners, &sizes, checkpoints.len());
        let (workspace_owners, _) = self.owners(&checkpoints, &by_workspace, progress)?;
        let workspace_frees = sum(&workspace_owners, &sizes, workspaces.len() + 1);
        let needed_bytes: u64 = sizes.values().sum();
        let mut live: HashSet<ObjectId> = owners.into_keys().collect();
        live.extend(self.catalog.objects_of_records()?);
        Ok(Space {
            home_bytes: self.home.disk_bytes()?,
            cap: self.cap()?,
            store: self.store.usage()?,
            dead_bytes: self.store.dead_bytes(&live)?,
            shared_bytes: needed_bytes.saturating_sub(frees.iter().sum()),
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

    /// Who needs each object, where each checkpoint counts as one of the given groups; and which checkpoints are damaged.
    fn owners(
        &self,
        checkpoints: &[Checkpoint],
        groups: &[usize],
        progress: &dyn Progress,
    ) -> Result<(HashMap<ObjectId, Owner>, Vec<bool>), Error> {
        let mut owners: HashMap<ObjectId, Owner> = HashMap::new();
        let mut damaged = vec![false; checkpoints.len()];
        for (at, (checkpoint, group)) in checkpoints.iter().zip(groups).enumerate() {
            let walked = each_object(self, checkpoint, progress, &mut |id| match owners.get(&id) {
                None => {
                    owners.insert(id, Owner::One(*group));
                    true
                }
                // What is below it was visited for the same ones already, or belongs to several already.
                Some(Owner::Several) => false,
                Some(Owner::One(other)) if other == group => false,
                // Below it, everything now belongs to several, too.
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

fn sum(owners: &HashMap<ObjectId, Owner>, sizes: &HashMap<ObjectId, u64>, groups: usize) -> Vec<u64> {
    let mut sums = vec![0; groups];
    for (id, owner) in owners {
        if let (Owner::One(group), Some(size)) = (owner, sizes.get(id)) {
            sums[*group] += size;
        }
    }
    sums
}
