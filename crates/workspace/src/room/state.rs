//! Layer that shows another state of a project: what a rollback would make of it, for a command in the room alone.
//!
//! Input: the plan of the rollback. Output: an upper directory with the new content, and whiteouts for what the rollback
//! removes. Everything else comes from the project, which is only read.

use super::{RoomFolder, bare};
use crate::error::WorkspaceError;
use crate::linux;
use crate::plan::{RollbackPlan, owners};
use crate::root::{Root, own_path};
use crate::stage::{self, StageWriter, Times};
use crate::threads;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, XattrFlags};
use safepoint_model::rollback::{How, SwapStep};
use safepoint_model::tree::{Entry, Meta, Node};
use safepoint_model::{ObjectSource, Progress, RelPath};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// State of a project that a layer is to show.
#[derive(Debug, Clone, Copy)]
pub struct LayerState<'a> {
    /// The project.
    pub project: &'a Root,
    /// Rollback to the state; `None` for the current one.
    pub plan: Option<&'a RollbackPlan>,
    /// Paths that the room does not show.
    pub hidden: &'a [RelPath],
    /// Timestamps of restored files.
    pub times: Times,
}

impl RoomFolder {
    /// Makes the layer show a state. What earlier commands wrote is deleted; none may run in the room.
    ///
    /// # Errors
    /// Fails if an object is missing or damaged, an entry cannot be written, or the run is interrupted.
    pub fn show(
        &self,
        state: &LayerState<'_>,
        source: &dyn ObjectSource,
        progress: &dyn Progress,
    ) -> Result<(), WorkspaceError> {
        let made = |source| WorkspaceError::MakeCopy { path: self.path().to_owned(), source };
        let layer = self.make_layer_again(state.project).map_err(made)?;
        let writer = StageWriter::new(source, state.times, progress);
        let mut showing = Showing { project: state.project, layer, writer, metas: BTreeMap::new() };
        let own = own_path();
        for path in state.hidden.iter().chain([&own]) {
            showing.hide(path)?;
        }
        let steps = state.plan.map_or(&[][..], |plan| plan.steps.as_slice());
        threads::run(|| {
            for step in steps {
                if progress.interrupted() {
                    return Err(WorkspaceError::Interrupted);
                }
                showing.step(step)?;
            }
            showing.finish()
        })
    }

    fn make_layer_again(&self, project: &Root) -> io::Result<OwnedFd> {
        let room = linux::open_folder(self.path())?;
        for name in [super::LAYER, super::WORK] {
            stage::remove_tree(&room, name.as_bytes())?;
        }
        self.make_layer(&room, project)?;
        linux::open_dir(&room, super::LAYER.as_bytes())
    }

    /// Creates the upper directory, with the rights of the project's root, and the directory that the kernel needs beside it.
    pub(super) fn make_layer(&self, room: &OwnedFd, project: &Root) -> io::Result<()> {
        linux::make_dir(room, super::LAYER.as_bytes())?;
        linux::make_dir(room, super::WORK.as_bytes())?;
        let layer = linux::open_dir(room, super::LAYER.as_bytes())?;
        let root = linux::open_dir(project.fd(), b".")?;
        let wanted = linux::read_meta(&root, &linux::facts_of(&root)?)?.meta;
        linux::set_meta(&layer, &bare(&linux::facts_of(&layer)?), &wanted, owners())
    }
}

/// Returns true if another file system is mounted below a folder: an overlay over the folder would not show it.
pub fn has_mounts_below(folder: &Path) -> bool {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return true };
    super::mounts::parse(&table)
        .iter()
        .any(|mounted| mounted.point != folder && mounted.point.starts_with(folder))
}

/// Layer that is being written.
struct Showing<'a> {
    project: &'a Root,
    layer: OwnedFd,
    writer: StageWriter<'a>,
    /// Final metadata of directories, set last: writing in them may need rights that it removes.
    metas: BTreeMap<RelPath, Meta>,
}

impl Showing<'_> {
    fn step(&mut self, step: &SwapStep) -> Result<(), WorkspaceError> {
        let path = &step.path;
        let Some(entry) = step.new.as_ref().map(|new| &new.entry) else { return self.hide(path) };
        if let (How::Meta, Node::Directory(_)) = (step.how, &entry.node) {
            self.directory(path)?;
            self.metas.insert(path.clone(), entry.meta.clone());
            return Ok(());
        }
        let Some((above, name)) = path.split_last() else { return Ok(()) };
        let dir = self.directory(&above)?;
        match linux::open_dir_at(self.project.fd(), path) {
            // The directory of the project must not shine through.
            Ok(_) if matches!(entry.node, Node::Directory(_)) => self.opaque(&dir, name, path, entry),
            _ => self.writer.entry(&dir, name, path, entry),
        }
    }

    /// Writes a directory that replaces one of the project.
    fn opaque(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        entry: &Entry,
    ) -> Result<(), WorkspaceError> {
        let make = || {
            linux::make_dir(dir, name)?;
            let made = linux::open_dir(dir, name)?;
            let mark = if linux::is_root() { "trusted.overlay.opaque" } else { "user.overlay.opaque" };
            rustix::fs::fsetxattr(&made, mark, b"y", XattrFlags::empty())?;
            Ok(made)
        };
        let made = make().map_err(|source| failed(path, source))?;
        self.writer.fill(&made, entry)
    }

    /// Puts a whiteout at a path. Without an entry of the project there is nothing to hide.
    fn hide(&mut self, path: &RelPath) -> Result<(), WorkspaceError> {
        let Some((above, name)) = path.split_last() else { return Ok(()) };
        let is_there = linux::open_dir_at(self.project.fd(), &above)
            .and_then(|dir| linux::facts_if_any(&dir, name))
            .is_ok_and(|facts| facts.is_some());
        if !is_there {
            return Ok(());
        }
        let dir = self.directory(&above)?;
        rustix::fs::mknodat(&dir, name, FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|error| failed(path, error.into()))
    }

    /// Opens a directory of the layer. One that is missing gets the metadata of that in the project.
    fn directory(&mut self, path: &RelPath) -> Result<OwnedFd, WorkspaceError> {
        match linux::open_dir_at(std::os::fd::AsFd::as_fd(&self.layer), path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(|source| failed(path, source)),
        }
        let Some((above, name)) = path.split_last() else {
            return Err(failed(path, io::ErrorKind::NotFound.into()));
        };
        let dir = self.directory(&above)?;
        let make = || {
            linux::make_dir(&dir, name)?;
            let made = linux::open_dir(&dir, name)?;
            linux::drop_acls(&made)?;
            let original = linux::open_dir_at(self.project.fd(), path)?;
            Ok((made, linux::read_meta(&original, &linux::facts_of(&original)?)?.meta))
        };
        let (made, meta) = make().map_err(|source| failed(path, source))?;
        self.metas.insert(path.clone(), meta);
        Ok(made)
    }

    /// Sets the metadata of directories, deepest first.
    fn finish(&self) -> Result<(), WorkspaceError> {
        for (path, wanted) in self.metas.iter().rev() {
            let set = || {
                let dir = linux::open_dir_at(std::os::fd::AsFd::as_fd(&self.layer), path)?;
                let now = linux::read_meta(&dir, &linux::facts_of(&dir)?)?;
                linux::set_meta(&dir, &now.meta, wanted, owners())
            };
            set().map_err(|source| failed(path, source))?;
        }
        Ok(())
    }
}

fn failed(path: &RelPath, source: io::Error) -> WorkspaceError {
    WorkspaceError::Copy { path: path.clone(), source }
}
