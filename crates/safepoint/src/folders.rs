//! Contents of a multi-folder checkpoint, by folder.
//!
//! A checkpoint of an agent or of everything has a files part for each folder, named by the folder's
//! workspace. Its rollback has one record per folder, all with the same `together`. The intents are one
//! transaction and so is the commit, so all folders roll back or none. That commit also restores the catalog
//! state: plans, sessions and agents.

use crate::Error;
use crate::checkpoint::create::files_part;
use crate::handles::Checkpoints;
use safepoint_model::WorkspaceId;
use safepoint_model::checkpoint::{Checkpoint, PartKind, PartRecord};
use safepoint_model::coverage::Coverage;
use safepoint_model::files::FilesDocument;
use serde::Serialize;

/// Folder in a multi-folder checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldFolder {
    /// Key in the checkpoint.
    pub key: String,
    /// Local workspace, or `None` if it belongs to another machine.
    pub workspace_id: Option<WorkspaceId>,
    /// Path, now or formerly, or `None` if unknown.
    pub root: Option<String>,
    /// Number of entries.
    pub count: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// Omitted entries.
    #[serde(skip)]
    pub coverage: Coverage,
}

impl Checkpoints<'_> {
    /// The folders of a checkpoint of many; of one of a single workspace those outside of it, with the memory of its agents.
    ///
    /// # Errors
    /// Fails if a document is missing or damaged.
    pub fn folders_of(&self, checkpoint: &Checkpoint) -> Result<Vec<HeldFolder>, Error> {
        let _using = self.manager.store.using()?;
        let mut folders = Vec::new();
        let parts = checkpoint.parts.iter().filter(|part| part.kind == PartKind::Files);
        for part in parts.filter(|part| Some(*part) != files_part(checkpoint)) {
            let workspace_id = part.key.parse().ok();
            let document = FilesDocument::load(&self.manager.store, part.document)?;
            let here = workspace_id.map(|id| self.manager.catalog.workspace(id)).transpose()?.flatten();
            let here = here.map(|workspace| workspace.root_path().to_string_lossy().into_owned());
            let away = document.elsewhere.as_ref().map(|place| format!("/{}", place.root));
            folders.push(HeldFolder {
                key: part.key.clone(),
                workspace_id,
                root: here.or(away),
                count: document.count,
                bytes: document.bytes,
                coverage: document.coverage(&self.manager.store)?,
            });
        }
        Ok(folders)
    }
}

impl HeldFolder {
    /// Returns a view of the checkpoint limited to this folder, for reading only.
    pub fn alone(&self, checkpoint: &Checkpoint) -> Checkpoint {
        let mut seen = checkpoint.clone();
        seen.workspace_id = Some(self.workspace_id.unwrap_or(WorkspaceId::from_bits(0)));
        seen.parts.retain(|part| part.key == self.key);
        seen
    }
}

/// Returns the files part of a workspace in a checkpoint.
pub(crate) fn files_of(checkpoint: &Checkpoint, workspace: WorkspaceId) -> Option<&PartRecord> {
    let key = workspace.to_string();
    checkpoint.parts.iter().find(|part| part.kind == PartKind::Files && part.key == key)
}

/// Returns a view of a multi-folder checkpoint limited to one workspace. Others are returned unchanged.
pub fn within(checkpoint: &Checkpoint, workspace: WorkspaceId) -> Checkpoint {
    let mut seen = checkpoint.clone();
    if is_together(checkpoint) && files_of(checkpoint, workspace).is_some() {
        let key = workspace.to_string();
        seen.workspace_id = Some(workspace);
        seen.parts.retain(|part| part.key == key);
    }
    seen
}

/// Returns true if a checkpoint spans several folders.
pub(crate) fn is_together(checkpoint: &Checkpoint) -> bool {
    checkpoint.workspace_id.is_none()
}
