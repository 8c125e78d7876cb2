//! CAPPED: a refusal at the cap: how much is needed, how much is free, and what a user may delete for it.
//!
//! A writer stops at the first segment that does not fit, so the need is measured again: the files are read, and what the store lacks is
//! compressed and counted, but not stored.

use crate::config::Broken;
use crate::parts::files::FilesPart;
use crate::upkeep::cap_hit;
use crate::{CheckpointManager, Error};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::files::FilesDocument;
use safepoint_model::{CheckpointId, Progress, WorkspaceId};
use std::collections::HashSet;
use std::path::PathBuf;

/// Maximum number of checkpoints that a refusal names.
const DELETABLE_MAX: usize = 30;
/// Room for records and headers beside the content.
const RECORDS_BYTES: u64 = 64 << 10;

/// Refusal at the cap.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capped {
    /// Bytes to add.
    pub needed_bytes: u64,
    /// True knowledge of the need, or a lower bound.
    pub need: Need,
    /// Bytes that could be added.
    pub free_bytes: u64,
    /// Bytes needed beyond those.
    pub over_bytes: u64,
    /// The cap.
    pub cap_bytes: u64,
    /// Settings file that sets the cap.
    pub config: PathBuf,
    /// Checkpoints whose deletion makes room, oldest first. No undo and no unfinished work needs them.
    pub deletable: Vec<CheckpointId>,
    /// Those of them that are pinned.
    pub pinned: Vec<CheckpointId>,
    /// Bytes that the deletion of all of them frees.
    pub frees_bytes: u64,
}

/// Precision of the bytes that are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// All files were measured.
    Measured,
    /// More may follow.
    AtLeast,
}

impl Capped {
    /// True if the deletion of the named checkpoints makes enough room.
    pub fn suffices(&self) -> bool {
        self.frees_bytes > self.over_bytes
    }
}

/// Subject of a refusal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Refused {
    /// The workspace that was to be captured.
    pub(crate) workspace: Option<WorkspaceId>,
    /// The checkpoint to go to.
    pub(crate) target: Option<CheckpointId>,
}

/// Checkpoints that may be deleted for room.
#[derive(Default)]
struct Offer {
    ids: Vec<CheckpointId>,
    pinned: Vec<CheckpointId>,
    bytes: u64,
}

impl CheckpointManager {
    /// Converts a cap error into one with the bytes needed and free, and with checkpoints to delete.
    pub(crate) fn capped(&self, error: Error, refused: Refused, progress: &dyn Progress) -> Error {
        let (Some((hit_bytes, used_bytes, allowed_bytes)), Ok(cap)) = (cap_hit(&error), self.upkeep().cap())
        else {
            return error;
        };
        let measured = refused.workspace.and_then(|workspace| self.measure(workspace, progress).ok());
        let need = if measured.is_some() { Need::Measured } else { Need::AtLeast };
        let needed_bytes = hit_bytes.max(measured.unwrap_or(0));
        let over_bytes = (used_bytes + needed_bytes).saturating_sub(allowed_bytes);
        let offer = self.offer(over_bytes + RECORDS_BYTES, refused.target, progress).unwrap_or_default();
        Error::Capped(Box::new(Capped {
            needed_bytes,
            need,
            free_bytes: allowed_bytes.saturating_sub(used_bytes),
            over_bytes,
            cap_bytes: cap.cap_bytes,
            config: self.home().join("config.toml"),
            deletable: offer.ids,
            pinned: offer.pinned,
            frees_bytes: offer.bytes,
        }))
    }

    /// Bytes that the store lacks of the files of a workspace.
    fn measure(&self, workspace: WorkspaceId, progress: &dyn Progress) -> Result<u64, Error> {
        let workspace = &self.workspaces().get(workspace)?;
        let held = self.hold(workspace)?;
        let config = self.config_at(Some(&held.root), Broken::PassedOver)?;
        let part = FilesPart::new(self, &held.root, workspace, config.excludes);
        let before = self.files_before(workspace.head, workspace.id)?;
        let before = before.and_then(|document| FilesDocument::load(&self.store, document).ok());
        let measurer = self.store.measurer().counting();
        part.scan(&measurer, before.and_then(|document| document.tree()), progress)?;
        Ok(measurer.missing_bytes())
    }

    /// Checkpoints whose deletion frees this much: the oldest one that suffices alone, else the oldest ones together; pinned ones only
    /// where the others do not suffice.
    fn offer(
        &self,
        wanted_bytes: u64,
        target: Option<CheckpointId>,
        progress: &dyn Progress,
    ) -> Result<Offer, Error> {
        let space = self.upkeep().space(progress)?;
        let mut spared: HashSet<CheckpointId> = target.into_iter().collect();
        for workspace in self.catalog.workspaces()? {
            spared.extend(self.needed(&workspace)?.into_keys());
        }
        let may_go = |it: &&Checkpoint| !spared.contains(&it.id);
        let oldest_first = || space.checkpoints.iter().rev().map(|space| &space.checkpoint).filter(may_go);
        let alone = space.checkpoints.iter().rev().find(|space| {
            may_go(&&space.checkpoint) && !space.checkpoint.pinned && space.frees_bytes >= wanted_bytes
        });
        if let Some(alone) = alone {
            let (ids, bytes) = (vec![alone.checkpoint.id], alone.frees_bytes);
            return Ok(Offer { ids, pinned: Vec::new(), bytes });
        }
        let (unpinned, pinned): (Vec<&Checkpoint>, Vec<&Checkpoint>) =
            oldest_first().partition(|it| !it.pinned);
        let order: Vec<CheckpointId> =
            unpinned.iter().chain(&pinned).map(|it| it.id).take(DELETABLE_MAX).collect();
        let frees = |count: usize| self.upkeep().frees(&order[..count], progress);
        // The smallest number that suffices: each more frees at least as much.
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match frees(middle)? >= wanted_bytes {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let ids: Vec<CheckpointId> = order[..low].to_vec();
        let pinned = pinned.iter().map(|it| it.id).filter(|id| ids.contains(id)).collect();
        Ok(Offer { bytes: frees(low)?, ids, pinned })
    }
}
