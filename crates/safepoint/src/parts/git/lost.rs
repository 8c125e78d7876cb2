//! A repository that checkpoints know and that is missing now.

use crate::config::Broken;
use crate::parts::git::GitCapture;
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_git::{Head, short_name};
use safepoint_model::CheckpointId;
use safepoint_model::checkpoint::PartKind;
use safepoint_workspace::Root;
use serde::Serialize;

/// A repository that was captured and is missing now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostRepository {
    /// Newest checkpoint that holds its state.
    pub checkpoint: CheckpointId,
    /// Newest checkpoint that holds all of its folder, from which a rollback restores it.
    pub whole: Option<CheckpointId>,
    /// Branch of HEAD in the state.
    pub branch: Option<String>,
    /// Commit of HEAD in the state.
    pub commit: Option<String>,
}

impl CheckpointManager {
    /// The repository that a workspace had and that is missing. Nothing where its state is not to be captured, or where there is one.
    ///
    /// # Errors
    /// When the configuration, the catalog or the recorded state cannot be read.
    pub fn lost_repository(&self, workspace: &Workspace) -> Result<Option<LostRepository>, Error> {
        let root = workspace.root_path();
        // A folder that is gone as a whole has another report.
        let is_there = root.ancestors().any(|above| above.join(".git").symlink_metadata().is_ok());
        if is_there || !root.is_dir() {
            return Ok(None);
        }
        let key = workspace.id.to_string();
        let whole = self.catalog.newest_with_part(PartKind::GitFolder, &key)?;
        let state = self.catalog.newest_with_part(PartKind::Git, &key)?;
        let Some(checkpoint) = state.or(whole) else { return Ok(None) };
        let folder = Root::open(root)?;
        if self.config_at(Some(&folder), Broken::PassedOver)?.git == GitCapture::None {
            return Ok(None);
        }
        let _using = self.store.using()?;
        let head = self.noted(&self.checkpoints().get(checkpoint)?, workspace.id).ok().map(|(head, _)| head);
        let branch = head.as_ref().and_then(Head::branch).map(short_name);
        let commit = head.as_ref().and_then(|head| Some(head.commit()?.to_string()));
        Ok(Some(LostRepository { checkpoint, whole, branch, commit }))
    }
}
