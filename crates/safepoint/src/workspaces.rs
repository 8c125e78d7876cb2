//! Registered folders: listing, moving and forgetting them, and recognising one that was moved with `mv`.
//!
//! In: paths. Out: rows of the catalog. No file of a workspace is read or changed, except for the inodes at its top.

use crate::Error;
use crate::config::Broken;
use crate::handles::Workspaces;
use crate::manager::canonical;
use safepoint_catalog::{Filter, RoleFilter, Workspace};
use safepoint_model::Progress;
use safepoint_workspace::{Bulk, BulkLimits, Notice, Root, What};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Workspaces<'_> {
    /// Measures the folder of a workspace, if a capture of it would be large. Reads no file content.
    ///
    /// # Errors
    /// When the folder cannot be opened, its configuration is invalid, or the run is interrupted.
    pub fn bulk(
        &self,
        workspace: &Workspace,
        limits: BulkLimits,
        progress: &dyn Progress,
    ) -> Result<Option<Bulk>, Error> {
        let root = Root::open(workspace.root_path())?;
        let config = self.manager.config_at(Some(&root), Broken::Refused)?;
        let own = self.manager.own_folders(&root);
        Ok(safepoint_workspace::bulk(&root, &config.excludes, &own, limits, progress)?)
    }

    /// Watches the folder of a workspace while `act` runs. Hints only: a capture decides what changed.
    ///
    /// # Errors
    /// When the folder cannot be opened or watched.
    pub fn watched<T>(
        &self,
        workspace: &Workspace,
        act: impl FnOnce(&mut Notice<'_>) -> T,
    ) -> Result<T, Error> {
        let root = Root::open(workspace.root_path())?;
        let mut notice = Notice::open(&root, self.manager.own_folders(&root))?;
        Ok(act(&mut notice))
    }

    /// Appends patterns to the `.safepointignore` of a workspace.
    ///
    /// # Errors
    /// When a pattern is invalid or the file cannot be written.
    pub fn leave_out(&self, workspace: &Workspace, patterns: &[String]) -> Result<(), Error> {
        Ok(safepoint_workspace::leave_out_too(&Root::open(workspace.root_path())?, patterns)?)
    }

    /// Returns the registered workspace with exactly this root. The folder itself may be gone.
    ///
    /// # Errors
    /// When no workspace has this root, or the catalog cannot be read.
    pub fn at(&self, root: &Path) -> Result<Workspace, Error> {
        let found = self.manager.catalog.workspace_at(root.as_os_str().as_bytes())?;
        found.ok_or_else(|| Error::NoWorkspace { path: root.to_owned() })
    }

    /// Counts the checkpoints of a workspace, of every role.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn count_checkpoints(&self, workspace: &Workspace) -> Result<u64, Error> {
        let filter = Filter { workspace: Some(workspace.id), role: RoleFilter::Any, ..Filter::default() };
        Ok(self.manager.checkpoints().list_ids(&filter)?.len() as u64)
    }

    /// Records that the folder of a workspace was moved. Its checkpoints, plans and sessions follow it. A workspace that was registered
    /// at the new path and has no checkpoint is replaced.
    ///
    /// # Errors
    /// [`Error::StillThere`] if the old folder exists, [`Error::HasCheckpoints`] if the new one has its own history, or when the new folder
    /// cannot be opened or the catalog fails.
    pub fn move_to(&self, old: &Workspace, new: &Path) -> Result<Workspace, Error> {
        let new = canonical(new)?;
        if old.root_path().symlink_metadata().is_ok() && old.root_path() != new {
            return Err(Error::StillThere { path: old.root_path().to_owned() });
        }
        Root::open(&new)?;
        let root = new.as_os_str().as_bytes();
        let name = new.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
        let occupied = self.manager.catalog.workspace_at(root)?.filter(|other| other.id != old.id);
        if let Some(other) = &occupied
            && self.count_checkpoints(other)? > 0
        {
            return Err(Error::HasCheckpoints { old: old.root_path().to_owned(), path: new });
        }
        let at = self.manager.environment.now();
        self.manager.catalog.write::<(), Error>(|transaction| {
            if let Some(other) = &occupied {
                transaction.remove_workspace(other.id, at)?;
            }
            if old.root != root {
                transaction.move_workspace(old.id, root, &name, at)?;
            }
            Ok(())
        })?;
        self.get(old.id)
    }

    /// Takes a workspace off the list. Its files and its checkpoints stay; registering the folder again brings it back with them.
    ///
    /// # Errors
    /// When it is not on the list, or the catalog fails.
    pub fn forget(&self, workspace: &Workspace) -> Result<(), Error> {
        let at = self.manager.environment.now();
        self.manager
            .catalog
            .write::<(), Error>(|transaction| Ok(transaction.remove_workspace(workspace.id, at)?))
    }

    /// Returns the registered workspace whose folder is gone and whose files are in this folder now: it was moved with `mv`.
    ///
    /// # Errors
    /// When the folder cannot be opened, or the catalog cannot be read.
    pub fn moved_from(&self, folder: &Path) -> Result<Option<Workspace>, Error> {
        let root = Root::open(&canonical(folder)?)?;
        let is_moved = |workspace: &Workspace| {
            workspace.root_path().symlink_metadata().is_err()
                && self
                    .manager
                    .home
                    .read_cache(workspace.id, What::Files)
                    .is_some_and(|(_, cache)| cache.describes(&root))
        };
        Ok(self.list()?.into_iter().find(is_moved))
    }
}
