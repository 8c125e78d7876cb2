//! Output folder: built under a draft name and deleted unless it is finished.
//!
//! Input: the destination and its content. Output: a new, durable folder under an unused name. Nothing is
//! replaced. A kill leaves the folder under its draft name, which marks it as incomplete.

use crate::copy::split;
use crate::error::WorkspaceError;
use crate::linux;
use crate::stage::{self, Times};
use crate::{threads, write};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use safepoint_model::tree::Entry;
use safepoint_model::{ObjectSource, Progress, RelPath};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Output folder under construction.
#[derive(Debug)]
pub struct Parcel {
    /// Parent folder.
    above: OwnedFd,
    above_path: PathBuf,
    /// Name until it is complete.
    draft: String,
    fd: OwnedFd,
    /// Parent folders created for it, the outermost first.
    made: Vec<PathBuf>,
    finished: bool,
}

impl Parcel {
    /// Creates a folder in `dir`/`below`, both created if missing. `draft` is its name until it is complete.
    ///
    /// # Errors
    /// Fails if a folder cannot be created or its name is taken.
    pub fn begin(dir: &Path, below: &str, draft: &str) -> Result<Self, WorkspaceError> {
        let mut made = Vec::new();
        match Self::open(dir, below, draft, &mut made) {
            Ok((above, fd)) => {
                let (above_path, draft) = (dir.join(below), draft.to_owned());
                Ok(Self { above, above_path, draft, fd, made, finished: false })
            }
            Err(source) => {
                take_away(&made);
                Err(WorkspaceError::MakeCopy { path: dir.join(below), source })
            }
        }
    }

    fn open(dir: &Path, below: &str, draft: &str, made: &mut Vec<PathBuf>) -> io::Result<(OwnedFd, OwnedFd)> {
        let missing: Vec<&Path> = dir.ancestors().take_while(|path| is_missing(path)).collect();
        for path in missing.into_iter().rev() {
            let (above, name) = split(path)?;
            make(&above, name, path, made)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let outer = rustix::fs::open(dir, flags, Mode::empty())?;
        make(&outer, below.as_bytes(), &dir.join(below), made)?;
        let above = linux::open_dir(&outer, below.as_bytes())?;
        linux::make_dir(&above, draft.as_bytes())?;
        let fd = linux::open_dir(&above, draft.as_bytes())?;
        linux::drop_acls(&fd)?;
        Ok((above, fd))
    }

    fn failed(&self, path: &RelPath) -> impl Fn(io::Error) -> WorkspaceError {
        let path = path.clone();
        move |source| WorkspaceError::Copy { path: path.clone(), source }
    }

    fn above(&self, path: &RelPath) -> io::Result<(OwnedFd, Vec<u8>)> {
        let (above, name) = path.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((linux::open_dir_at(self.fd.as_fd(), &above)?, name.to_vec()))
    }

    /// Creates a folder in it.
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub fn folder(&self, path: &RelPath) -> Result<(), WorkspaceError> {
        let made = self.above(path).and_then(|(above, name)| linux::make_dir(above, &name));
        made.map_err(self.failed(path))
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn file(&self, path: &RelPath, bytes: &[u8]) -> Result<(), WorkspaceError> {
        self.open_file(path)?.write_all(bytes).map_err(self.failed(path))
    }

    /// Creates a file in it for the caller to write.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub fn open_file(&self, path: &RelPath) -> Result<std::fs::File, WorkspaceError> {
        let file = self.above(path).and_then(|(above, name)| linux::create_file(above, &name));
        file.map(std::fs::File::from).map_err(self.failed(path))
    }

    /// Writes a captured tree into a new folder in it.
    ///
    /// # Errors
    /// See [`crate::write_tree`].
    pub fn tree(
        &self,
        path: &RelPath,
        source: &dyn ObjectSource,
        root: &Entry,
        progress: &dyn Progress,
    ) -> Result<(), WorkspaceError> {
        let (above, name) = self.above(path).map_err(self.failed(path))?;
        write::write_below(source, root, (&above, &name), Times::Recorded, progress)
    }

    /// Makes everything durable and renames the folder to the first unused name of `names`. Returns its path.
    ///
    /// # Errors
    /// Fails if the folder cannot be synced or renamed; then it is deleted.
    pub fn finish(mut self, names: impl Iterator<Item = String>) -> Result<PathBuf, WorkspaceError> {
        linux::sync_all(&self.fd).map_err(WorkspaceError::Sync)?;
        for name in names {
            match self.rename(&name) {
                Ok(()) => {
                    self.draft = name;
                    linux::sync(&self.above).map_err(WorkspaceError::Sync)?;
                    self.finished = true;
                    return Ok(self.above_path.join(&self.draft));
                }
                Err(error) if is_taken(&error) => {}
                Err(source) => {
                    return Err(WorkspaceError::MakeCopy { path: self.above_path.join(name), source });
                }
            }
        }
        let source = io::ErrorKind::AlreadyExists.into();
        Err(WorkspaceError::MakeCopy { path: self.above_path.clone(), source })
    }

    fn rename(&self, name: &str) -> io::Result<()> {
        let (from, to) = ((&self.above, self.draft.as_bytes()), (&self.above, name.as_bytes()));
        match linux::move_no_replace(from, to) {
            Err(error) if cannot_move(&error) => linux::move_no_replace_by_link(from, to),
            other => other,
        }
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if !self.finished {
            // The name of a folder that cannot be deleted marks it as incomplete.
            let _ = threads::run(|| stage::remove_tree(&self.above, self.draft.as_bytes()));
            take_away(&self.made);
        }
    }
}

fn is_missing(path: &Path) -> bool {
    // A relative path ends in the empty path, the current directory.
    !path.as_os_str().is_empty() && matches!(rustix::fs::stat(path), Err(Errno::NOENT))
}

/// Creates a folder; succeeds if another process created it first.
fn make(above: &OwnedFd, name: &[u8], path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    match linux::make_dir(above, name) {
        Ok(()) => made.push(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Removes the created folders that are still empty.
fn take_away(made: &[PathBuf]) {
    for path in made.iter().rev() {
        if let Ok((above, name)) = split(path) {
            let _ = linux::remove_dir(above, name);
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

/// Returns true if the file system cannot rename without replacing (renameat2(2)).
fn cannot_move(error: &io::Error) -> bool {
    let cannot = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP];
    error.raw_os_error().is_some_and(|raw| cannot.contains(&Errno::from_raw_os_error(raw)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn it_is_there_when_it_is_finished_and_takes_a_name_that_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("new/deep");
        for expected in ["a", "b"] {
            let parcel = Parcel::begin(&dir, "project", ".draft").unwrap();
            parcel.folder(&path("sub")).unwrap();
            parcel.file(&path("sub/file"), b"text").unwrap();
            assert!(parcel.file(&path("sub/file"), b"other").is_err(), "nothing is replaced");
            assert!(parcel.folder(&RelPath::root()).is_err());
            let at = parcel.finish(["a", "b"].into_iter().map(str::to_owned)).unwrap();
            assert_eq!(at, dir.join("project").join(expected));
            assert_eq!(fs::read(at.join("sub/file")).unwrap(), b"text");
        }
        let third = Parcel::begin(&dir, "project", ".draft").unwrap();
        let error = third.finish(["a", "b"].into_iter().map(str::to_owned)).unwrap_err();
        assert!(matches!(error, WorkspaceError::MakeCopy { .. }), "{error}");
        assert_eq!(fs::read_dir(dir.join("project")).unwrap().count(), 2);
    }

    #[test]
    fn what_is_not_finished_is_gone_with_the_folders_that_were_made_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let parcel = Parcel::begin(&folder.path().join("new/deep"), "project", ".draft").unwrap();
        parcel.file(&path("file"), b"text").unwrap();
        drop(parcel);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // Existing and concurrently created entries stay.
        let parcel = Parcel::begin(&folder.path().join("new"), "project", ".draft").unwrap();
        fs::write(folder.path().join("new/mine"), "").unwrap();
        drop(parcel);
        assert!(folder.path().join("new/mine").exists() && !folder.path().join("new/project").exists());
    }

    #[test]
    fn a_link_or_a_file_in_the_way_is_not_written_through() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), folder.path().join("project")).unwrap();
        assert!(Parcel::begin(folder.path(), "project", ".draft").is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        fs::write(folder.path().join("agent"), "").unwrap();
        assert!(Parcel::begin(folder.path(), "agent", ".draft").is_err());
        assert!(Parcel::begin(&folder.path().join("agent"), "project", ".draft").is_err());
    }
}
