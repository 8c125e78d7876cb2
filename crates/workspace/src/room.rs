//! Rooms of attempts: a private mount namespace in which the project, at its own path, is an overlay over the real one.
//!
//! Input: an open project and a folder outside of it. Output: folders for the layer, and a process in the namespace
//! that becomes the command. Nothing of a room is mounted outside of its namespace, which ends with its last process.
//! A room is recognised by the source of its mount, which names the attempt.

mod enter;
mod layers;
mod mounts;
mod processes;
mod spaces;
mod state;

pub use enter::{Outside, RoomEntry, RoomRefused, enter_room};
pub use layers::LayerRollback;
pub use mounts::{RoomMount, room_mounts};
pub use processes::{RoomProcess, marked_processes, room_processes};
pub use state::{LayerState, has_mounts_below};

use crate::error::WorkspaceError;
use crate::linux::{self, Facts};
use crate::root::Root;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use safepoint_model::tree::Meta;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Source of a room's mount; the id of its attempt follows.
const SOURCE: &str = "safepoint-attempt:";
/// Upper directory of the overlay: what the attempt changed.
const LAYER: &str = "layer";
/// Directory that the kernel needs beside it.
const WORK: &str = "work";
/// Parent of the folder in which the overlay is mounted, or that is the copy.
const TREE: &str = "tree";
/// Temporary folder of the command.
const TMP: &str = "tmp";
/// File that orders those who enter.
const LOCK: &str = "lock";
/// File with the reason why the last process could not enter.
const REFUSED: &str = "refused";
/// File of a room whose attempt is closed: no process enters any more.
const CLOSED: &str = "closed";

/// Folder of a room, and the places in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomFolder {
    path: PathBuf,
    name: Vec<u8>,
}

impl RoomFolder {
    /// Returns the places of a room. `name` is that of the project, because programs print it.
    pub fn new(path: &Path, name: &OsStr) -> Self {
        let plain = !matches!(name.as_bytes(), b"" | b"." | b"..") && !name.as_bytes().contains(&b'/');
        let name = if plain { name.as_bytes() } else { b"project" };
        Self { path: path.to_owned(), name: name.to_vec() }
    }

    /// The room itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Upper directory of the overlay.
    pub fn layer(&self) -> PathBuf {
        self.path.join(LAYER)
    }

    /// Temporary folder of the command.
    pub fn tmp(&self) -> PathBuf {
        self.path.join(TMP)
    }

    /// Folder in which the overlay is mounted, or that is the copy.
    pub fn tree(&self) -> PathBuf {
        self.path.join(TREE).join(OsStr::from_bytes(&self.name))
    }

    /// Directory that stands for the room's workspace, in every namespace the same one: its lock is that of the workspace.
    pub fn place(&self) -> PathBuf {
        self.path.join(TREE)
    }

    /// Creates the places of an overlay. The room itself must exist. The layer gets the rights of the project's root, because the
    /// kernel takes them from there.
    ///
    /// # Errors
    /// Fails if a folder cannot be created.
    pub fn make(&self, project: &Root) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::MakeCopy { path: self.path.clone(), source };
        self.make_around().map_err(failed)?;
        let make = || -> io::Result<()> {
            let room = linux::open_folder(&self.path)?;
            linux::make_dir(linux::open_dir(&room, TREE.as_bytes())?, &self.name)?;
            self.make_layer(&room, project)
        };
        make().map_err(failed)
    }

    /// Creates what a room has beside an overlay or a copy.
    ///
    /// # Errors
    /// Fails if a folder cannot be created.
    pub fn make_around(&self) -> io::Result<()> {
        let room = linux::open_folder(&self.path)?;
        linux::make_dir(&room, TREE.as_bytes())?;
        linux::make_dir(&room, TMP.as_bytes())?;
        linux::create_file(&room, LOCK.as_bytes()).map(drop)
    }

    /// Takes the room for the time in which a process enters or the room is removed.
    ///
    /// # Errors
    /// Fails if the room is missing.
    pub fn lock(&self) -> io::Result<RoomLock> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(self.path.join(LOCK), flags, Mode::empty())?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(RoomLock { file })
    }

    /// Takes the room as [`RoomFolder::lock`] does. Returns `None` if another has it.
    ///
    /// # Errors
    /// Fails if the room is missing.
    pub fn try_lock(&self) -> io::Result<Option<RoomLock>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(self.path.join(LOCK), flags, Mode::empty())?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(RoomLock { file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets no process enter any more. The caller holds the lock, so that those that wait for it are refused, too.
    ///
    /// # Errors
    /// Fails if the room is missing or cannot be written.
    pub fn close(&self) -> io::Result<()> {
        let room = linux::open_folder(&self.path)?;
        match linux::create_file(&room, CLOSED.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns true if no process may enter any more: the room is closed or deleted.
    pub(crate) fn is_closed(&self) -> bool {
        let exists = |name: &str| self.path.join(name).symlink_metadata().is_ok();
        exists(CLOSED) || !exists(LOCK)
    }

    /// Returns the disk space of the layer, in bytes. Directories of which the rights are missing count as nothing.
    pub fn layer_bytes(&self) -> u64 {
        linux::open_folder(&self.layer()).map_or(0, |layer| disk_bytes(&layer))
    }

    /// Returns the disk space of the copy, in bytes; of an overlay none. Content that it shares with the project counts, too.
    pub fn copy_bytes(&self) -> u64 {
        linux::open_folder(&self.path.join(TREE)).map_or(0, |tree| disk_bytes(&tree))
    }

    /// Returns true if this is an overlay's room, not that of a copy.
    pub fn has_layer(&self) -> bool {
        self.layer().symlink_metadata().is_ok_and(|facts| facts.is_dir())
    }

    /// Returns why the last process could not enter, and forgets it.
    pub fn take_refused(&self) -> Option<RoomRefused> {
        let text = std::fs::read(self.path.join(REFUSED)).ok()?;
        let room = linux::open_folder(&self.path).ok()?;
        let _ = linux::remove_file(&room, REFUSED.as_bytes());
        RoomRefused::parse(&text)
    }
}

/// Lock on a room, released on drop or when the process becomes another program.
#[derive(Debug)]
pub struct RoomLock {
    file: OwnedFd,
}

impl Drop for RoomLock {
    fn drop(&mut self) {
        // Closing is not enough: a child of another thread holds a copy of the open file until its `exec`.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

fn bare(facts: &Facts) -> Meta {
    Meta { mode: facts.mode, uid: facts.uid, gid: facts.gid, mtime_ns: 0, xattrs: Vec::new() }
}

fn disk_bytes(dir: &OwnedFd) -> u64 {
    let mut sum = 0;
    for entry in linux::list(dir).unwrap_or_default() {
        let Ok(facts) = linux::facts_at(dir, &entry.name) else { continue };
        sum += facts.disk_bytes;
        if facts.file_type.is_dir()
            && let Ok(below) = linux::open_dir(dir, &entry.name)
        {
            sum += disk_bytes(&below);
        }
    }
    sum
}
