//! Builds a captured tree in a new or empty folder: writes it, syncs it, reads it back and compares it.
//!
//! Input: a tree and a folder. Output: the folder with the whole tree, or no trace of it.

use crate::copy::split;
use crate::error::WorkspaceError;
use crate::plan::{Limits, owners};
use crate::root::Root;
use crate::scan::{ScanOptions, scan};
use crate::stage::{self, StageWriter, Times};
use crate::{linux, threads};
use rustix::fd::OwnedFd;
use safepoint_model::progress::Activity;
use safepoint_model::tree::{Entry, Meta, Node};
use safepoint_model::{ObjectError, ObjectSink, ObjectSource, Progress, RelPath, change};
use std::io;
use std::path::{Path, PathBuf};

/// Builds everything below a directory entry in a folder. `objects` supplies the captured objects and
/// receives those read back.
///
/// # Errors
/// Fails if the folder is not empty, an object is missing or damaged, an entry cannot be written or reads
/// back differently, or the run is interrupted.
pub fn build_tree<S: ObjectSink + ObjectSource>(
    objects: &S,
    root: &Entry,
    to: &Path,
    progress: &dyn Progress,
) -> Result<(), WorkspaceError> {
    let failed = |source| WorkspaceError::MakeCopy { path: to.to_owned(), source };
    to.parent().map_or(Ok(()), make_missing).map_err(failed)?;
    let (above, name) = split(to).map_err(failed)?;
    let is_new = linux::facts_if_any(&above, name).map_err(failed)?.is_none();
    if is_new {
        linux::make_dir(&above, name).map_err(failed)?;
    }
    let fd = linux::open_dir(&above, name).map_err(failed)?;
    if !linux::list(&fd).map_err(failed)?.is_empty() {
        return Err(failed(io::ErrorKind::DirectoryNotEmpty.into()));
    }
    let built = write(objects, root, &fd, progress).and_then(|()| compare(objects, root, to, progress));
    if built.is_err() {
        // The first error matters more than an error of the clean-up.
        // A handle lists its names once, so this is a new one.
        let _ = linux::open_dir(&above, name).and_then(|fd| threads::run(|| clear(&fd)));
        if is_new {
            let _ = linux::remove_dir(&above, name);
        }
    }
    built
}

/// Creates a missing folder and its missing parents, and makes them durable. Returns the created folders,
/// outermost first. A path whose existing part contains a symbolic link is refused.
///
/// # Errors
/// Fails if a folder cannot be created; those already created are removed again.
pub fn make_folders(path: &Path) -> Result<Vec<PathBuf>, WorkspaceError> {
    let failed = |source| WorkspaceError::Open { path: path.to_owned(), source };
    let missing: Vec<&Path> =
        path.ancestors().take_while(|above| above.symlink_metadata().is_err()).collect();
    let there = missing.last().and_then(|outermost| outermost.parent()).unwrap_or(path);
    if there.canonicalize().map_err(failed)? != there {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let mut made = Vec::new();
    for folder in missing.into_iter().rev() {
        let done = split(folder).and_then(|(above, name)| {
            linux::make_dir(&above, name)?;
            made.push(folder.to_owned());
            linux::sync(linux::open_dir(&above, b".")?)
        });
        if let Err(source) = done {
            drop_folders(&made);
            return Err(failed(source));
        }
    }
    Ok(made)
}

/// Removes the folders that [`make_folders`] created, innermost first, while they are empty.
pub fn drop_folders(made: &[PathBuf]) {
    for folder in made.iter().rev() {
        let removed = split(folder).and_then(|(above, name)| linux::remove_dir(&above, name));
        if removed.is_err() {
            return;
        }
    }
}

/// Creates a folder and its missing parents.
fn make_missing(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), make_missing)?;
    let (above, name) = split(path)?;
    linux::make_dir(above, name)
}

fn write(
    objects: &dyn ObjectSource,
    root: &Entry,
    fd: &OwnedFd,
    progress: &dyn Progress,
) -> Result<(), WorkspaceError> {
    progress.begin(Activity::Copying, None);
    let written = threads::run(|| StageWriter::new(objects, Times::Recorded, progress).fill(fd, root));
    progress.end();
    written?;
    linux::sync_all(fd).map_err(WorkspaceError::Sync)
}

/// Reads everything back and compares content.
fn compare<S: ObjectSink + ObjectSource>(
    objects: &S,
    root: &Entry,
    to: &Path,
    progress: &dyn Progress,
) -> Result<(), WorkspaceError> {
    let Node::Directory(wanted) = root.node else {
        return Err(ObjectError::Store("the root of a snapshot is not a directory".into()).into());
    };
    let options = ScanOptions { keep: Some(wanted), ..ScanOptions::default() };
    let folder = Root::open(to)?;
    let limits = Limits::of(&folder);
    let found = scan(&folder, objects, &options, progress)?.snapshot;
    let Node::Directory(tree) = found.root.node else { return Ok(()) };
    // An attribute that the file system cannot keep is no difference.
    let has = |now: &Meta, wanted: &Meta| now.same_but_times(&limits.attainable(wanted), owners());
    let differs = |delta: &&change::Delta| match delta {
        change::Delta::Meta { old, new, .. } if has(&old.meta, &new.meta) => false,
        delta => !found.coverage.leaves_out(delta.path()),
    };
    match change::deltas(objects, tree, wanted, owners())?.iter().find(differs) {
        Some(delta) => Err(WorkspaceError::Verify { path: delta.path().clone() }),
        None if !has(&found.root.meta, &root.meta) => Err(WorkspaceError::Verify { path: RelPath::root() }),
        None => Ok(()),
    }
}

fn clear(fd: &OwnedFd) -> io::Result<()> {
    for entry in linux::list(fd)? {
        match linux::facts_at(fd, &entry.name)?.file_type.is_dir() {
            true => stage::remove_tree(fd, &entry.name)?,
            false => linux::remove_file(fd, &entry.name)?,
        }
    }
    Ok(())
}
