//! Folders that cannot be rolled back as they are: in a rollback of several folders they are left alone and reported, with the plans
//! that work there and the agents whose files they hold.

use super::LeftAlone;
use crate::agents::agent_path;
use crate::{CheckpointManager, Error};
use safepoint_catalog::Workspace;
use safepoint_model::WorkspaceId;
use safepoint_model::checkpoint::{Checkpoint, PartKind};
use serde::Serialize;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

/// The reason why a folder cannot be rolled back as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FolderProblem {
    /// It is a file now, or its path leads through one.
    NotAFolder,
    /// This user may not read it.
    Unreadable,
}

impl fmt::Display for FolderProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAFolder => "it is not a folder",
            Self::Unreadable => "permission denied",
        })
    }
}

impl CheckpointManager {
    /// Removes from a target of several folders those that cannot be opened. If that is all of them, the error of the first is reported.
    pub(super) fn leave_unusable(&self, to: &mut Checkpoint) -> Result<Vec<LeftAlone>, Error> {
        let folders = to.parts.iter().filter(|part| part.kind == PartKind::Files);
        let ids: Vec<WorkspaceId> = folders.filter_map(|part| part.key.parse().ok()).collect();
        let mut unusable = Vec::new();
        for id in &ids {
            let workspace = self.workspaces().get(*id)?;
            unusable.extend(problem_of(workspace.root_path()).map(|why| (workspace, why)));
        }
        if unusable.len() == ids.len() {
            return Ok(Vec::new());
        }
        unusable.into_iter().map(|(workspace, why)| self.leave_folder(to, &workspace, why)).collect()
    }

    fn leave_folder(
        &self,
        to: &mut Checkpoint,
        workspace: &Workspace,
        why: FolderProblem,
    ) -> Result<LeftAlone, Error> {
        let _using = self.store.using()?;
        let (root, key) = (workspace.root_path(), workspace.id.to_string());
        let (mut plans, mut agents) = (Vec::new(), Vec::new());
        for part in to.parts.iter().filter(|part| part.kind == PartKind::Plan) {
            let Some(record) = self.catalog.plan(&part.key)? else { continue };
            if self.place_of(&record)?.id == workspace.id {
                plans.push(part.key.clone());
            }
        }
        for (agent, _) in self.agents_held(to)? {
            if agent.paths.iter().map(agent_path).any(|path| path.starts_with(root)) {
                agents.push(agent.name);
            }
        }
        to.parts.retain(|part| match part.kind {
            PartKind::Plan => !plans.contains(&part.key),
            PartKind::Agent => !agents.contains(&part.key),
            _ => part.key != key,
        });
        let folder = root.to_string_lossy().into_owned();
        Ok(LeftAlone::FolderUnusable { folder, why, plans, agents })
    }
}

/// Returns the reason why a folder cannot be opened; `None` if it can, or if it is missing and can be made again.
fn problem_of(root: &Path) -> Option<FolderProblem> {
    match root.metadata() {
        Ok(found) if found.is_dir() => match root.read_dir() {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Some(FolderProblem::Unreadable),
            _ => None,
        },
        Ok(_) => Some(FolderProblem::NotAFolder),
        Err(error) => match error.kind() {
            ErrorKind::NotADirectory => Some(FolderProblem::NotAFolder),
            ErrorKind::PermissionDenied => Some(FolderProblem::Unreadable),
            // A link to nothing.
            _ => root.symlink_metadata().is_ok().then_some(FolderProblem::NotAFolder),
        },
    }
}
