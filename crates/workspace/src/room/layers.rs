//! Rollback of a layer: a new one is written beside the old one, and one rename exchanges the two. Nothing is mounted meanwhile.
//!
//! Input: the steps of the rollback, as for a folder. Output: a layer in which the overlay shows what the steps make. Entries
//! that no step touches are hard links to those of the old layer, so that what checkpoints do not hold, such as ignored
//! files, stays, and costs nothing. The new layer carries the id of its rollback in an attribute that the kernel hides: so
//! recovery knows after any crash which of the two lies in place.

use super::RoomFolder;
use super::state::Showing;
use crate::error::WorkspaceError;
use crate::linux;
use crate::root::Root;
use crate::stage::{self, Times};
use crate::threads;
use rustix::fd::OwnedFd;
use rustix::fs::AtFlags;
use safepoint_model::rollback::SwapStep;
use safepoint_model::trace::{self, TraceLevel};
use safepoint_model::{ObjectId, ObjectSource, Progress, RelPath, RollbackId};
use std::io;

/// Beginning of the names of layers that are, or were, being exchanged.
const STAGED: &str = "layer-";

/// Rollback of a layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerRollback<'a> {
    /// The project, below the layer.
    pub project: &'a Root,
    /// Tree of the state on which the layer lies.
    pub base: ObjectId,
    /// Tree of the current state.
    pub now: ObjectId,
    /// Steps to the new state.
    pub steps: &'a [SwapStep],
    /// Timestamps of restored files.
    pub times: Times,
}

fn staged_name(id: RollbackId) -> String {
    format!("{STAGED}{id}")
}

impl RoomFolder {
    /// Writes the layer of a rollback beside the current one, durably. No process may be in the room.
    ///
    /// # Errors
    /// Fails if an object is missing or damaged, an entry cannot be written, or the run is interrupted. The current layer is unchanged.
    pub fn stage_layer(
        &self,
        id: RollbackId,
        wanted: &LayerRollback<'_>,
        source: &dyn ObjectSource,
        progress: &dyn Progress,
    ) -> Result<(), WorkspaceError> {
        let _span = trace::span("workspace", TraceLevel::Debug, || {
            format!("write a layer with {} steps", wanted.steps.len())
        });
        let staged = self.write_layer(id, wanted, source, progress);
        if staged.is_err() {
            // The next recovery removes the rest.
            let _ = self.drop_staged_layer(id);
        }
        staged
    }

    fn write_layer(
        &self,
        id: RollbackId,
        wanted: &LayerRollback<'_>,
        source: &dyn ObjectSource,
        progress: &dyn Progress,
    ) -> Result<(), WorkspaceError> {
        let name = staged_name(id);
        let open = || -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
            let room = linux::open_folder(self.path())?;
            linux::make_dir(&room, name.as_bytes())?;
            let new = linux::open_dir(&room, name.as_bytes())?;
            linux::drop_acls(&new)?;
            // Now, because the final mode may forbid it.
            linux::set_writer(&new, &id.to_string())?;
            let old = linux::open_dir(&room, super::LAYER.as_bytes())?;
            Ok((room, old, new))
        };
        let (room, old, new) = open().map_err(|source| failed(&RelPath::root(), source))?;
        let copied = linux::open_dir(&new, b".").map_err(|source| failed(&RelPath::root(), source))?;
        let mut showing = Showing::of_layer(wanted, copied, source, progress);
        threads::run(|| {
            link_all(&old, &new, &RelPath::root(), &mut showing, progress)?;
            wanted.steps.iter().try_for_each(|step| {
                if progress.interrupted() {
                    return Err(WorkspaceError::Interrupted);
                }
                showing.step(step)
            })?;
            showing.finish()
        })?;
        // Also files that are only linked: the kernel may not have written what a command left in them.
        linux::sync_all(&room).map_err(WorkspaceError::Sync)
    }

    /// Puts the staged layer in place of the current one, durably.
    ///
    /// # Errors
    /// Fails if the rename or the disk fails: the caller must undo it.
    pub fn exchange_layer(&self, id: RollbackId) -> Result<(), WorkspaceError> {
        let exchange = || {
            let room = linux::open_folder(self.path())?;
            linux::exchange((&room, super::LAYER.as_bytes()), (&room, staged_name(id).as_bytes()))?;
            Ok(room)
        };
        let room = exchange().map_err(|source| WorkspaceError::Swap { path: RelPath::root(), source })?;
        linux::sync(&room).map_err(WorkspaceError::Sync)
    }

    /// Puts the old layer back in place, if the staged one is there. Safe to repeat.
    ///
    /// # Errors
    /// Fails if the room cannot be read, or the rename fails; the call can be repeated.
    pub fn restore_layer(&self, id: RollbackId) -> Result<(), WorkspaceError> {
        let back = || {
            let room = linux::open_folder(self.path())?;
            let layer = linux::open_dir(&room, super::LAYER.as_bytes())?;
            if linux::is_written_by(&layer, &id.to_string())? {
                linux::exchange((&room, super::LAYER.as_bytes()), (&room, staged_name(id).as_bytes()))?;
            }
            linux::sync(&room)
        };
        back().map_err(|source| WorkspaceError::PutBack { path: RelPath::root(), source })
    }

    /// Deletes the layer that was staged for a rollback, or displaced by it.
    ///
    /// # Errors
    /// Fails if an entry cannot be deleted; the next recovery tries again.
    pub fn drop_staged_layer(&self, id: RollbackId) -> Result<(), WorkspaceError> {
        let remove = || stage::remove_tree(&linux::open_folder(self.path())?, staged_name(id).as_bytes());
        threads::run(remove).map_err(|source| failed(&RelPath::root(), source))
    }

    /// Returns the rollbacks that left a layer beside the current one.
    ///
    /// # Errors
    /// Fails if the room cannot be read.
    pub fn staged_layers(&self) -> io::Result<Vec<RollbackId>> {
        let listed = linux::list(&linux::open_folder(self.path())?)?;
        let id = |entry: linux::Listed| {
            String::from_utf8_lossy(&entry.name).strip_prefix(STAGED).and_then(|id| id.parse().ok())
        };
        Ok(listed.into_iter().filter_map(id).collect())
    }

    /// Returns true if a rollback is under way or was interrupted: which layer is the true one is for recovery to say.
    pub(super) fn has_staged_layers(&self) -> bool {
        self.staged_layers().is_ok_and(|staged| !staged.is_empty())
    }
}

/// Fills a new directory with links to the entries of an old one.
fn link_all(
    old: &OwnedFd,
    new: &OwnedFd,
    path: &RelPath,
    showing: &mut Showing<'_>,
    progress: &dyn Progress,
) -> Result<(), WorkspaceError> {
    if progress.interrupted() {
        return Err(WorkspaceError::Interrupted);
    }
    let look = || -> io::Result<_> {
        let facts = linux::facts_of(old)?;
        if linux::hides_lower(old) {
            linux::hide_lower(new)?;
        }
        Ok((linux::read_meta(old, &facts)?.meta, facts.mtime_ns, linux::list(old)?))
    };
    let (meta, mtime_ns, listed) = look().map_err(|source| failed(path, source))?;
    showing.keep(path, meta, mtime_ns);
    for entry in listed {
        let below = path.join(&entry.name).map_err(|error| failed(path, io::Error::other(error)))?;
        let link = || -> io::Result<Option<(OwnedFd, OwnedFd)>> {
            if !linux::facts_at(old, &entry.name)?.file_type.is_dir() {
                rustix::fs::linkat(old, &entry.name, new, &entry.name, AtFlags::empty())?;
                return Ok(None);
            }
            linux::make_dir(new, &entry.name)?;
            let made = linux::open_dir(new, &entry.name)?;
            linux::drop_acls(&made)?;
            Ok(Some((open_closed(old, &entry.name)?, made)))
        };
        if let Some((old, new)) = link().map_err(|source| failed(&below, source))? {
            link_all(&old, &new, &below, showing, progress)?;
        }
    }
    Ok(())
}

/// Opens a directory of the layer. One without the rights for it, which only an ordinary user meets, gets them for that moment.
fn open_closed(dir: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    let opened = linux::open_dir(dir, name);
    if !opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        return opened;
    }
    let path = linux::open_path(dir, name)?;
    let mode = linux::facts_of(&path)?.mode;
    linux::set_mode(&path, mode | 0o700)?;
    let opened = linux::open_dir(dir, name);
    linux::set_mode(&path, mode)?;
    opened
}

pub(super) fn failed(path: &RelPath, source: io::Error) -> WorkspaceError {
    WorkspaceError::Stage { path: path.clone(), source }
}
