//! TOGETHER: checkpoints and rollbacks over many folders, as one.
//!
//! A checkpoint of an agent or of everything has a files part for each folder, named by the folder's workspace. A rollback of it is one
//! rollback per folder, all with the same `together`: the intents are one transaction and so is the commit, so that all of them are done
//! or none. What is in the catalog (plans, agents) is put back by that commit.

mod create;
mod places;
mod restore;

pub use create::CreatedTogether;
pub(crate) use places::Place;
pub use restore::RestoredTogether;
pub(crate) use restore::Wish;

use safepoint_model::WorkspaceId;
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};

/// What is taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whole {
    /// One agent.
    Agent(String),
    /// Every agent, every active plan, every workspace, and Safepoint's own settings.
    Framework,
}

/// The part of a checkpoint that holds the files of a workspace.
pub(crate) fn files_of(checkpoint: &Checkpoint, workspace: WorkspaceId) -> Option<&PartRecord> {
    let key = workspace.to_string();
    checkpoint.parts.iter().find(|part| part.kind == PartKind::Files && part.key == key)
}

/// Whether a checkpoint is one of many folders.
pub(crate) fn is_together(checkpoint: &Checkpoint) -> bool {
    checkpoint.workspace_id.is_none()
}
