//! SOON: publishing without being asked. After a checkpoint, a program is started that publishes and ends itself; nothing waits for it.
//!
//! One program per workspace: it holds a lock. It looks for checkpoints once more after it released the lock, and a checkpoint is
//! committed before the lock is tried: so either this program sees the checkpoint, or another one is started.

#![allow(clippy::disallowed_methods, reason = "this module starts the program that publishes")]

use crate::CheckpointManager;
use crate::config::Broken;
use crate::handles::Remotes;
use crate::home::{PlanLock, Share};
use crate::{Error, Workspace};
use safepoint_catalog::PublishedAt;
use safepoint_model::{CheckpointId, WorkspaceId};
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Proof that no other process publishes a workspace without being asked.
#[derive(Debug)]
pub struct Publisher {
    _lock: PlanLock,
}

impl CheckpointManager {
    /// Starts the program that publishes, if the configuration asks for it and the workspace was published before. A failure costs
    /// nothing: the next checkpoint or push publishes this one, too.
    pub(crate) fn publish_soon(&self, workspace: Option<WorkspaceId>) {
        let [program, arguments @ ..] = self.settings.publish_helper.as_slice() else { return };
        let Some(id) = workspace.filter(|id| self.catalog.has_remote_line(*id).unwrap_or(false)) else {
            return;
        };
        let every = self.config_at(None, Broken::PassedOver).ok().and_then(|config| config.remote.every);
        let Some(every) = every else { return };
        let Ok(Some(workspace)) = self.catalog.workspace(id) else { return };
        if !matches!(self.lock_publisher(id), Ok(Some(_))) {
            return;
        }
        let mut command = Command::new(program);
        command.args(arguments).arg(every.to_string()).current_dir(workspace.root_path());
        // Ctrl-C is meant for the command that took the checkpoint.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if let Ok(mut child) = started {
            // A process that lives on must not keep the ended one.
            let reap = move || child.wait().map(drop);
            let _ = std::thread::Builder::new().stack_size(64 << 10).spawn(reap);
        }
    }

    fn lock_publisher(&self, workspace: WorkspaceId) -> io::Result<Option<PlanLock>> {
        self.home.lock_plan(&format!("publish.{workspace}"), Share::Alone, Duration::ZERO)
    }
}

impl Remotes<'_> {
    /// Becomes the process that publishes a workspace without being asked; `None` if another one is.
    ///
    /// # Errors
    /// When Safepoint's home cannot be used.
    pub fn publisher(&self, workspace: &Workspace) -> Result<Option<Publisher>, Error> {
        let failed = |source| Error::Home { path: self.manager.home().to_owned(), source };
        let lock = self.manager.lock_publisher(workspace.id).map_err(failed)?;
        Ok(lock.map(|lock| Publisher { _lock: lock }))
    }

    /// Returns true if a remote lacks a checkpoint or a purge of a workspace.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn is_behind(&self, name: &str, workspace: &Workspace) -> Result<bool, Error> {
        let catalog = &self.manager.catalog;
        let lacks = !catalog.unpublished(name, workspace.id, 1)?.is_empty();
        Ok(lacks || !catalog.remote_purges(name, workspace.id)?.is_empty())
    }

    /// Returns the place of a checkpoint on a remote, as this machine knows it.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn place_of(&self, name: &str, checkpoint: CheckpointId) -> Result<Option<PublishedAt>, Error> {
        Ok(self.manager.catalog.published_at(name, checkpoint)?)
    }
}
