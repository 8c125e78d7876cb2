//! Layer that shows another state of a project: what a rollback would make of it, for a command in the room alone.
//!
//! Input: the plan of the rollback. Output: an upper directory with the new content, and whiteouts for what the rollback
//! removes. Everything else comes from the project, which is only read.

use super::layers::LayerRollback;
use super::{RoomFolder, bare};
use crate::compare::{self, CompareError};
use crate::error::WorkspaceError;
use crate::linux;
use crate::plan::{RollbackPlan, owners};
use crate::root::{Root, own_path};
use crate::stage::{self, StageWriter, Times};
use crate::threads;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode};
use safepoint_model::change;
use safepoint_model::rollback::{How, SwapStep};
use safepoint_model::tree::{Entry, Meta, Node};
use safepoint_model::{ObjectId, ObjectSource, Progress, RelPath};
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
        let mut showing =
            Showing { project: state.project, layer, writer, captured: None, metas: BTreeMap::new() };
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
pub(super) struct Showing<'a> {
    project: &'a Root,
    layer: OwnedFd,
    writer: StageWriter<'a>,
    /// Trees below the layer and of the current state, and their objects, if the layer lies upon a captured state.
    captured: Option<(ObjectId, ObjectId, &'a dyn ObjectSource)>,
    /// Final metadata of directories, set last: writing in them may need rights that it removes. With the time of a directory in which
    /// nothing changes.
    metas: BTreeMap<RelPath, (Meta, Option<i64>)>,
}

impl<'a> Showing<'a> {
    /// Layer of a rollback, which lies upon a captured state.
    pub(super) fn of_layer(
        wanted: &LayerRollback<'a>,
        layer: OwnedFd,
        source: &'a dyn ObjectSource,
        progress: &'a dyn Progress,
    ) -> Self {
        let writer = StageWriter::new(source, wanted.times, progress);
        let captured = Some((wanted.base, wanted.now, source));
        Self { project: wanted.project, layer, writer, captured, metas: BTreeMap::new() }
    }

    /// Notes the metadata of a directory that the layer has already.
    pub(super) fn keep(&mut self, path: &RelPath, meta: Meta, mtime_ns: i64) {
        self.metas.insert(path.clone(), (meta, Some(mtime_ns)));
    }

    pub(super) fn step(&mut self, step: &SwapStep) -> Result<(), WorkspaceError> {
        let path = &step.path;
        let Some(entry) = step.new.as_ref().map(|new| &new.entry) else { return self.hide(path) };
        if let (How::Meta, Node::Directory(_)) = (step.how, &entry.node) {
            self.directory(path)?;
            self.metas.insert(path.clone(), (entry.meta.clone(), None));
            return Ok(());
        }
        let Some((above, name)) = path.split_last() else { return Ok(()) };
        let dir = self.directory(&above)?;
        self.clear(&dir, path, name)?;
        match &entry.node {
            // A directory below the layer must not shine through.
            Node::Directory(_) if !self.is_covered(&above) => self.opaque(&dir, name, path, entry)?,
            _ => self.writer.entry(&dir, name, path, entry)?,
        }
        let Some((.., source)) = self.captured else { return Ok(()) };
        if let (How::Meta, Node::File(_), Some(old)) = (step.how, &entry.node, &step.old) {
            let set = || linux::set_times_to(linux::open_file(&dir, name)?, old.entry.meta.mtime_ns);
            // A file that may not be read keeps the time of its copy.
            let _ = set();
        }
        match compare::matches(source, &dir, name, entry, owners()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(WorkspaceError::Verify { path: path.clone() }),
            Err(CompareError::Object(error)) => Err(error.into()),
            // It was written as one that this user may not read.
            Err(CompareError::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            Err(CompareError::Io(error)) => Err(failed(path, error)),
        }
    }

    /// Writes a directory that replaces one below the layer.
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
            linux::hide_lower(&made)?;
            Ok(made)
        };
        let made = make().map_err(|source| failed(path, source))?;
        self.writer.fill(&made, entry)
    }

    /// Removes what the layer has at a path.
    fn clear(&mut self, dir: &OwnedFd, path: &RelPath, name: &[u8]) -> Result<(), WorkspaceError> {
        if self.metas.contains_key(path) {
            self.metas.retain(|other, _| !other.is_within(path));
        }
        if let Some((_, mtime_ns)) = path.split_last().and_then(|(above, _)| self.metas.get_mut(&above)) {
            *mtime_ns = None;
        }
        stage::remove_tree(dir, name).map_err(|source| failed(path, source))
    }

    /// Returns true if nothing below the layer shines through in a directory.
    fn is_covered(&self, path: &RelPath) -> bool {
        let mut at = Some(path.clone());
        while let Some(path) = at {
            let dir = linux::open_dir_at(self.layer.as_fd(), &path);
            if dir.is_ok_and(|dir| linux::hides_lower(&dir)) {
                return true;
            }
            at = path.split_last().map(|(above, _)| above);
        }
        false
    }

    /// Returns true if there is an entry below the layer. The project may have changed since its state was captured.
    fn is_below(&self, path: &RelPath) -> Result<bool, WorkspaceError> {
        let Some((above, name)) = path.split_last() else { return Ok(true) };
        if self.is_covered(&above) {
            return Ok(false);
        }
        let in_project = linux::open_dir_at(self.project.fd(), &above)
            .and_then(|dir| linux::facts_if_any(&dir, name))
            .is_ok_and(|facts| facts.is_some());
        match self.captured {
            Some((base, _, source)) if !in_project => Ok(change::find(source, base, path)?.is_some()),
            _ => Ok(in_project),
        }
    }

    /// Puts a whiteout at a path. Without an entry below there is nothing to hide.
    pub(super) fn hide(&mut self, path: &RelPath) -> Result<(), WorkspaceError> {
        let Some((above, name)) = path.split_last() else { return Ok(()) };
        let is_below = self.is_below(path)?;
        let in_layer = linux::open_dir_at(self.layer.as_fd(), &above)
            .and_then(|dir| linux::facts_if_any(&dir, name))
            .is_ok_and(|facts| facts.is_some());
        if !is_below && !in_layer {
            return Ok(());
        }
        let dir = self.directory(&above)?;
        self.clear(&dir, path, name)?;
        if !is_below {
            return Ok(());
        }
        rustix::fs::mknodat(&dir, name, FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|error| failed(path, error.into()))
    }

    /// Opens a directory of the layer. One that is missing gets the metadata of that in the current state.
    fn directory(&mut self, path: &RelPath) -> Result<OwnedFd, WorkspaceError> {
        match linux::open_dir_at(self.layer.as_fd(), path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(|source| failed(path, source)),
        }
        let Some((above, name)) = path.split_last() else {
            return Err(failed(path, io::ErrorKind::NotFound.into()));
        };
        let dir = self.directory(&above)?;
        let captured = match self.captured {
            Some((_, now, source)) => change::find(source, now, path)?.map(|entry| entry.meta),
            None => None,
        };
        let make = || {
            linux::make_dir(&dir, name)?;
            let made = linux::open_dir(&dir, name)?;
            linux::drop_acls(&made)?;
            if let Some(meta) = captured {
                return Ok((made, meta));
            }
            let original = linux::open_dir_at(self.project.fd(), path)?;
            Ok((made, linux::read_meta(&original, &linux::facts_of(&original)?)?.meta))
        };
        let (made, meta) = make().map_err(|source| failed(path, source))?;
        self.metas.insert(path.clone(), (meta, None));
        Ok(made)
    }

    /// Sets the metadata of directories, deepest first.
    pub(super) fn finish(&self) -> Result<(), WorkspaceError> {
        for (path, (wanted, mtime_ns)) in self.metas.iter().rev() {
            let set = || {
                let dir = linux::open_dir_at(self.layer.as_fd(), path)?;
                let now = linux::read_meta(&dir, &linux::facts_of(&dir)?)?;
                linux::set_meta(&dir, &now.meta, wanted, owners())?;
                mtime_ns.map_or(Ok(()), |mtime_ns| linux::set_times_to(&dir, mtime_ns))
            };
            set().map_err(|source| failed(path, source))?;
        }
        Ok(())
    }
}

fn failed(path: &RelPath, source: io::Error) -> WorkspaceError {
    WorkspaceError::Copy { path: path.clone(), source }
}
