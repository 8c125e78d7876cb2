//! Copies a workspace into a separate folder, and deletes such a folder.
//!
//! Input: a root and a path that does not exist. Output: a folder in which programs work as in the workspace,
//! and a list of paths left out. A failed copy is deleted; a complete copy is not synced.

use crate::error::WorkspaceError;
use crate::linux::{self, Facts, Listed};
use crate::plan::owners;
use crate::root::{OWN_FOLDER, Root};
use crate::scan::{self, DEPTH_MAX, DatabaseLocks, Waiting};
use crate::sqlite::{self, INDEX, JOURNAL, LOG};
use crate::{stage, threads};
use rayon::prelude::*;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use safepoint_model::coverage::{Skipped, Why};
use safepoint_model::progress::Activity;
use safepoint_model::tree::{Meta, Owners, Xattr};
use safepoint_model::{Progress, RelPath};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes copied between two checks for an interrupt.
const STRETCH_BYTES: u64 = 16 << 20;

/// Longer databases are not locked during the copy, unless their content is shared.
const LOCKED_BYTES_MAX: u64 = 64 << 20;

/// Result of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copied {
    /// Number of regular files.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// Files that share their content with the original (reflinks) and take no space until one side is
    /// written.
    pub shared: u64,
    /// Paths left out, with reasons, sorted by path.
    pub left_out: Vec<Skipped>,
}

/// Copies a workspace into a new folder, including files that captures leave out (`.git`, ignored files,
/// caches), so that programs work in the copy as in the workspace.
///
/// Keeps modes, times, ACLs, `user.*` attributes and, for root, owners and capabilities. A file with several
/// names becomes several files. Links are copied unchanged, even if they lead out of the workspace. These are
/// left out and reported: Safepoint's own folder, the folders in `own`, the new folder if it lies in the
/// workspace, mount points, sockets, FIFOs, devices, unreadable entries and entries nested too deeply. A file
/// written during the copy may mix two versions. A SQLite database does so only if it is longer than 64 MiB
/// and its content cannot be shared.
///
/// # Errors
/// Fails if `to` exists, the root cannot be read, an entry cannot be written, or the run is interrupted. The
/// partial copy is deleted.
pub fn copy_tree(
    root: &Root,
    to: &Path,
    own: &[RelPath],
    progress: &dyn Progress,
) -> Result<Copied, WorkspaceError> {
    copy_levels(root, to, Selection { own, only: None }, DEPTH_MAX, progress)
}

/// Paths of a folder to copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection<'a> {
    /// Paths to leave out.
    pub(crate) own: &'a [RelPath],
    /// Names to copy in the root; `None` copies all.
    pub(crate) only: Option<&'a [OsString]>,
}

impl Selection<'_> {
    /// Returns true if the path belongs to the copy.
    pub(crate) fn takes(&self, path: &RelPath) -> bool {
        let chosen = |name: &[u8]| self.only.is_none_or(|only| only.iter().any(|it| it.as_bytes() == name));
        !self.own.contains(path) && path.names().next().is_none_or(chosen)
    }
}

/// Deletes a folder that [`copy_tree`] made, without following links. Succeeds if the folder is missing.
///
/// # Errors
/// Fails if the path is not a folder, contains a mount, or has an entry that cannot be deleted. Other entries
/// may be deleted already.
pub fn remove_tree(path: &Path) -> Result<(), WorkspaceError> {
    threads::run(|| remove(path)).map_err(|error| {
        let source = match error.kind() {
            kind @ (io::ErrorKind::CrossesDevices | io::ErrorKind::ResourceBusy) => {
                io::Error::new(kind, "a file system is mounted in it")
            }
            _ => error,
        };
        WorkspaceError::RemoveCopy { path: path.to_owned(), source }
    })
}

fn remove(path: &Path) -> io::Result<()> {
    let (above, name) = match split(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    match linux::facts_if_any(&above, name)? {
        Some(facts) if !facts.file_type.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Some(_) => stage::remove_tree(&above, name),
        None => Ok(()),
    }
}

/// Opens the parent folder and returns the last name.
pub(crate) fn split(path: &Path) -> io::Result<(OwnedFd, &[u8])> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // The parent of a single name is the empty path, which cannot be opened.
    let above = Path::new(".").join(above);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((rustix::fs::open(above, flags, Mode::empty())?, name.as_bytes()))
}

pub(crate) fn copy_levels(
    root: &Root,
    to: &Path,
    selection: Selection<'_>,
    depth_max: usize,
    progress: &dyn Progress,
) -> Result<Copied, WorkspaceError> {
    let failed = |source| WorkspaceError::MakeCopy { path: to.to_owned(), source };
    let (above, name) = split(to).map_err(failed)?;
    linux::make_dir(&above, name).map_err(failed)?;
    progress.begin(Activity::Copying, None);
    let result = threads::run(|| {
        let result = linux::open_dir(&above, name)
            .and_then(|to| linux::drop_acls(&to).and_then(|()| Ok((linux::facts_of(&to)?, to))))
            .map_err(failed)
            .and_then(|(top, to)| Copying::new(root, &top, selection, depth_max, progress).root(root, to));
        if result.is_err() {
            // The first error matters more than an error of the clean-up.
            let _ = stage::remove_tree(&above, name);
        }
        result
    });
    progress.end();
    result
}

/// State of a running copy.
pub(crate) struct Copying<'a> {
    place: (u32, u32, u64),
    /// Identity of the destination folder.
    top: (u32, u32, u64),
    selection: Selection<'a>,
    owners: Owners,
    depth_max: usize,
    progress: &'a dyn Progress,
    /// False once the file system refused to share content.
    shares: AtomicBool,
    files: AtomicU64,
    bytes: AtomicU64,
    shared: AtomicU64,
    left_out: Mutex<Vec<Skipped>>,
    /// Time waited for database locks.
    waiting: Waiting,
}

/// Treatment of a SQLite database and the files beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Databases {
    Whole,
    /// Copies a database like any other file.
    Alone,
}

/// Directory and its copy.
pub(crate) struct Here {
    pub(crate) from: OwnedFd,
    pub(crate) to: OwnedFd,
    pub(crate) path: RelPath,
    pub(crate) depth: usize,
}

/// Entry to copy: everything but its content.
enum Found {
    Link { target: Vec<u8>, meta: Meta },
    File { from: OwnedFd, meta: Meta, size: u64 },
    Directory { from: OwnedFd, meta: Meta, listed: Vec<Listed> },
}

impl<'a> Copying<'a> {
    pub(crate) fn new(
        root: &Root,
        top: &Facts,
        selection: Selection<'a>,
        depth_max: usize,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            place: root.place(),
            top: identity(top),
            selection,
            owners: owners(),
            depth_max,
            progress,
            shares: AtomicBool::new(true),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            left_out: Mutex::default(),
            waiting: Waiting::default(),
        }
    }

    fn root(self, root: &Root, to: OwnedFd) -> Result<Copied, WorkspaceError> {
        let failed = |source| WorkspaceError::Read { path: RelPath::root(), source };
        let from = linux::open_dir(root.fd(), b".").map_err(failed)?;
        let (meta, listed) = read_directory(&from).map_err(failed)?;
        let here = Here { from, to, path: RelPath::root(), depth: 0 };
        self.directory(&here, &listed, &meta)?;
        let mut left_out = self.left_out.into_inner().unwrap_or_else(PoisonError::into_inner);
        left_out.sort();
        Ok(Copied {
            files: self.files.into_inner(),
            bytes: self.bytes.into_inner(),
            shared: self.shared.into_inner(),
            left_out,
        })
    }

    /// Fills a directory, then sets its metadata: its mode may forbid writes, and writes change its time.
    fn directory(&self, here: &Here, listed: &[Listed], meta: &Meta) -> Result<(), WorkspaceError> {
        listed.par_iter().try_for_each(|entry| self.entry(here, &entry.name))?;
        let finished = self.finish(&here.to, meta);
        finished.map_err(|source| WorkspaceError::Copy { path: here.path.clone(), source })
    }

    /// Copies an entry; a database together with the files beside it.
    fn entry(&self, here: &Here, name: &[u8]) -> Result<(), WorkspaceError> {
        match sqlite::base_of(name) {
            Some(base) if !name.ends_with(INDEX) && sqlite::is_database_at(&here.from, base) => Ok(()),
            _ => self.one(here, name, Databases::Whole),
        }
    }

    /// Copies an entry without the files beside it.
    pub(crate) fn alone(&self, here: &Here, name: &[u8]) -> Result<(), WorkspaceError> {
        self.one(here, name, Databases::Alone)
    }

    fn one(&self, here: &Here, name: &[u8], databases: Databases) -> Result<(), WorkspaceError> {
        if self.progress.interrupted() {
            return Err(WorkspaceError::Interrupted);
        }
        let path = scan::join(&here.path, name)?;
        if !self.selection.takes(&path) {
            self.leave_out(path, Why::OwnFolder);
            return Ok(());
        }
        match self.look(here, name) {
            Ok(Ok(Found::File { from, size, .. }))
                if databases == Databases::Whole && sqlite::is_database(&from, size) =>
            {
                return self.database(here, name);
            }
            Ok(Ok(found)) => return self.copy(here, name, path, found),
            Ok(Err(why)) => self.leave_out(path, why),
            // The entry was deleted during the copy.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) if scan::is_out_of_handles(&source) => {
                return Err(WorkspaceError::Read { path, source });
            }
            Err(_) => self.leave_out(path, Why::Unreadable),
        }
        Ok(())
    }

    /// Copies a database and its log, consistently if its locks can be taken (`docs/decisions/0016`). A long
    /// copy does not hold the locks, because programs wait for them.
    fn database(&self, here: &Here, name: &[u8]) -> Result<(), WorkspaceError> {
        let held = DatabaseLocks::take(&here.from, name, &self.waiting).ok().flatten();
        let size = linux::facts_if_any(&here.from, name).ok().flatten().map_or(0, |facts| facts.size);
        let held = held.filter(|_| self.shares.load(Ordering::Relaxed) || size <= LOCKED_BYTES_MAX);
        self.alone(here, name)?;
        self.alone(here, &sqlite::beside(name, LOG))?;
        match held.map(|held| held.has_writer()) {
            Some(Ok(true)) => Ok(()),
            _ => self.alone(here, &sqlite::beside(name, JOURNAL)),
        }
    }

    fn leave_out(&self, path: RelPath, why: Why) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        left_out.push(Skipped { path, why });
    }

    /// Opens an entry; the inner error is the reason to leave it out. Nothing is written, so every failure
    /// concerns the original.
    fn look(&self, here: &Here, name: &[u8]) -> io::Result<Result<Found, Why>> {
        let facts = linux::facts_at(&here.from, name)?;
        if facts.place != self.place {
            return Ok(Err(Why::MountPoint));
        }
        let from = match facts.file_type {
            FileType::Symlink => {
                let target = linux::read_link(&here.from, name)?;
                return Ok(Ok(Found::Link { target, meta: meta(&facts, Vec::new()) }));
            }
            FileType::Directory => {
                let is_own = here.depth == 0 && name == OWN_FOLDER.as_bytes();
                if is_own || identity(&facts) == self.top {
                    return Ok(Err(Why::OwnFolder));
                }
                if here.depth >= self.depth_max {
                    return Ok(Err(Why::TooDeep));
                }
                linux::open_dir(&here.from, name)?
            }
            FileType::RegularFile => linux::open_file(&here.from, name)?,
            // `O_PATH`, because opening a device can have side effects.
            _ => linux::open_path(&here.from, name)?,
        };
        // Another file may have replaced it: use the open one.
        let facts = linux::facts_of(&from)?;
        Ok(match facts.file_type {
            FileType::Directory => {
                let (meta, listed) = read_directory(&from)?;
                Ok(Found::Directory { from, meta, listed })
            }
            FileType::RegularFile => {
                let meta = linux::read_meta(&from, &facts)?.meta;
                Ok(Found::File { from, meta, size: facts.size })
            }
            _ => Err(Why::SpecialFile),
        })
    }

    fn copy(&self, here: &Here, name: &[u8], path: RelPath, found: Found) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Copy { path: path.clone(), source };
        match found {
            Found::Link { target, meta } => {
                self.link(&here.to, name, &target, &meta).map_err(failed)?;
                self.progress.advance(1, 0);
                Ok(())
            }
            Found::File { from, meta, size } => {
                let to = File::from(linux::create_file(&here.to, name).map_err(failed)?);
                self.progress.expect(size);
                if self.share(&from, &to) {
                    self.shared.fetch_add(1, Ordering::Relaxed);
                    self.progress.advance(0, size);
                } else {
                    self.content(&File::from(from), &to, size, &path)?;
                }
                self.finish(&to.into(), &meta).map_err(failed)?;
                self.files.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(size, Ordering::Relaxed);
                self.progress.advance(1, 0);
                Ok(())
            }
            Found::Directory { from, meta, listed } => {
                linux::make_dir(&here.to, name).map_err(failed)?;
                let to = linux::open_dir(&here.to, name).map_err(failed)?;
                self.progress.advance(1, 0);
                self.directory(&Here { from, to, path, depth: here.depth + 1 }, &listed, &meta)
            }
        }
    }

    fn link(&self, to: &OwnedFd, name: &[u8], target: &[u8], meta: &Meta) -> io::Result<()> {
        linux::make_link(to, name, target)?;
        if self.owners == Owners::Compared {
            linux::set_link_owner(to, name, meta)?;
        }
        linux::set_link_times_to(to, name, meta.mtime_ns)
    }

    /// Shares the content of a file with its copy if the file system can (ioctl_ficlone(2)).
    fn share(&self, from: &OwnedFd, to: &File) -> bool {
        if !self.shares.load(Ordering::Relaxed) {
            return false;
        }
        let shared = rustix::fs::ioctl_ficlone(to, from);
        // Any other error concerns this file alone: btrfs returns EINVAL for a file that cannot be shared
        // (`chattr +C`).
        if matches!(shared, Err(Errno::OPNOTSUPP | Errno::XDEV)) {
            self.shares.store(false, Ordering::Relaxed);
        }
        shared.is_ok()
    }

    /// Copies the content of a file and keeps its holes.
    fn content(&self, from: &File, mut to: &File, size: u64, path: &RelPath) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Copy { path: path.clone(), source };
        let mut at = 0;
        // Stops at the initial length: a program may append to the file during the copy.
        while at < size {
            if self.progress.interrupted() {
                return Err(WorkspaceError::Interrupted);
            }
            let Some(data) = linux::data_from(from, at).map_err(failed)? else {
                self.progress.advance(0, size - at);
                return to.set_len(size).map_err(failed);
            };
            let end = data.end.min(data.start.saturating_add(STRETCH_BYTES));
            (&mut { from }).seek(SeekFrom::Start(data.start)).map_err(failed)?;
            to.seek(SeekFrom::Start(data.start)).map_err(failed)?;
            io::copy(&mut from.take(end - data.start), &mut to).map_err(failed)?;
            self.progress.advance(0, end.min(size).saturating_sub(at));
            at = end;
        }
        Ok(())
    }

    /// Sets the metadata of the original; the time last, because the other calls change it.
    fn finish(&self, to: &OwnedFd, wanted: &Meta) -> io::Result<()> {
        let now = meta(&linux::facts_of(to)?, Vec::new());
        linux::set_meta(to, &now, wanted, self.owners)?;
        linux::set_times_to(to, wanted.mtime_ns)
    }
}

/// Device and inode: independent of the mount.
fn identity(facts: &Facts) -> (u32, u32, u64) {
    (facts.place.0, facts.place.1, facts.ino)
}

fn meta(facts: &Facts, xattrs: Vec<Xattr>) -> Meta {
    Meta { mode: facts.mode, uid: facts.uid, gid: facts.gid, mtime_ns: facts.mtime_ns, xattrs }
}

fn read_directory(fd: &OwnedFd) -> io::Result<(Meta, Vec<Listed>)> {
    let facts = linux::facts_of(fd)?;
    let meta = Meta { mtime_ns: facts.mtime_ns, ..linux::read_meta(fd, &facts)?.meta };
    Ok((meta, linux::list(fd)?))
}

#[cfg(test)]
mod tests;
