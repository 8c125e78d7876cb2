//! Open root of a workspace, its kernel lock, and Safepoint's own folder in it.

use crate::error::{Intruder, Obstacle, WorkspaceError};
use crate::homes;
use crate::linux::{self, Facts};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::FlockOperation;
use safepoint_model::RelPath;
use safepoint_planted::planted;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Folder in a workspace for staged content, and for displaced content until it is checked. It exists only
/// while it is not empty.
pub const OWN_FOLDER: &str = ".safepoint";

/// Result of reading a short file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SmallFile {
    /// No entry.
    Missing,
    /// Link, directory, FIFO, socket or device.
    NotAFile,
    /// File longer than the limit.
    TooLong,
    /// Whole content.
    Bytes(Vec<u8>),
}

impl SmallFile {
    /// Reads an open file, if it is not longer than `bytes_max`.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn read(file: impl Read, bytes_max: u64) -> io::Result<Self> {
        let mut bytes = Vec::new();
        // One extra byte detects a longer file, even one that grows concurrently.
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(if bytes.len() as u64 > bytes_max { Self::TooLong } else { Self::Bytes(bytes) })
    }
}

/// Open workspace. All access goes through this handle, so renaming the folder does not matter.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    facts: Facts,
    is_layer: bool,
}

impl Root {
    /// Opens a folder. The last name of the path must not be a link, and no link below it is followed.
    ///
    /// # Errors
    /// Fails if the path is not a directory or is not readable.
    pub fn open(path: &Path) -> Result<Self, WorkspaceError> {
        let failed = |source: io::Error| WorkspaceError::Open { path: path.to_owned(), source };
        let fd = linux::open_folder(path).map_err(failed)?;
        if homes::is_made_up(path) {
            return Err(failed(io::Error::other("it is on a virtual file system and cannot be captured")));
        }
        let facts = linux::facts_of(&fd).map_err(failed)?;
        Ok(Self { fd, path: path.to_owned(), facts, is_layer: false })
    }

    /// Opens the upper directory of an overlay. A directory that it lacks may be below it.
    ///
    /// # Errors
    /// As [`Root::open`].
    pub fn open_layer(path: &Path) -> Result<Self, WorkspaceError> {
        Ok(Self { is_layer: true, ..Self::open(path)? })
    }

    pub(crate) fn is_layer(&self) -> bool {
        self.is_layer
    }

    /// Path at the time of opening.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Device and mount: entries on another one are not part of the workspace.
    pub(crate) fn place(&self) -> (u32, u32, u64) {
        self.facts.place
    }

    /// Locks the workspace for this process, waiting at most `wait`.
    ///
    /// A kernel lock on the directory itself (flock(2)): it ends with the process, however that ends, and it
    /// works between processes that use different homes.
    ///
    /// # Errors
    /// Returns [`WorkspaceError::Busy`] if another process holds the lock for that long.
    pub fn lock(&self, wait: Duration) -> Result<Lock, WorkspaceError> {
        let failed = |source: io::Error| WorkspaceError::Open { path: self.path.clone(), source };
        // A second descriptor, because a lock belongs to the open file and `self` may be shared.
        let fd = linux::open_dir(&self.fd, b".").map_err(failed)?;
        if planted!("workspace-not-locked") {
            return Ok(Lock { fd });
        }
        let deadline = Instant::now() + wait;
        loop {
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { fd }),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(WorkspaceError::Busy { path: self.path.clone() });
                }
                Err(error) => return Err(failed(error.into())),
            }
        }
    }

    /// Reads a file, or returns `None` if it is missing or longer than `bytes_max`.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn read_file(&self, path: &RelPath, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some((above, name)) = path.split_last() else { return Ok(None) };
        let fd = linux::open_file(linux::open_dir_at(self.fd(), &above)?, name)?;
        let facts = linux::facts_of(&fd)?;
        if !facts.file_type.is_file() || facts.size > bytes_max {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        std::fs::File::from(fd).take(bytes_max).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Reads a short file directly in the root. No link is followed, and only a regular file is opened.
    ///
    /// # Errors
    /// Fails if the file exists and cannot be read.
    pub fn read_small(&self, name: &str, bytes_max: u64) -> io::Result<SmallFile> {
        // Opening a device can have side effects, so the type is checked first. A replacement after that
        // check is opened without blocking and checked again.
        match linux::facts_if_any(&self.fd, name.as_bytes())? {
            None => return Ok(SmallFile::Missing),
            Some(facts) if !facts.file_type.is_file() => return Ok(SmallFile::NotAFile),
            Some(_) => {}
        }
        let fd = linux::open_file(&self.fd, name.as_bytes())?;
        if !linux::facts_of(&fd)?.file_type.is_file() {
            return Ok(SmallFile::NotAFile);
        }
        SmallFile::read(std::fs::File::from(fd), bytes_max)
    }

    /// Opens Safepoint's own folder; `None` if it is missing or is not a folder.
    pub(crate) fn own_folder(&self) -> io::Result<Option<OwnedFd>> {
        match linux::open_dir(&self.fd, OWN_FOLDER.as_bytes()) {
            Ok(fd) => Ok(Some(fd)),
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_no_folder(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns every foreign entry that has the name of Safepoint's own folder or lies in it.
    ///
    /// # Errors
    /// Fails if the folder cannot be read, except for missing permission.
    pub fn intruders(&self) -> Result<Vec<Intruder>, WorkspaceError> {
        let own = own_path();
        let failed = |source| WorkspaceError::Read { path: own.clone(), source };
        let Some(facts) = linux::facts_if_any(&self.fd, OWN_FOLDER.as_bytes()).map_err(failed)? else {
            return Ok(Vec::new());
        };
        let intruder = |path: RelPath, what: &'static str, in_the_way: bool| Intruder {
            root: self.path.clone(),
            path,
            what,
            in_the_way,
        };
        let whole = |what| Ok(vec![intruder(own.clone(), what, true)]);
        if !facts.file_type.is_dir() {
            return whole(named(facts.file_type));
        }
        if facts.place != self.facts.place {
            return whole("another file system is mounted on it");
        }
        let fd = match linux::open_dir(&self.fd, OWN_FOLDER.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return whole("an unreadable folder");
            }
            other => other.map_err(failed)?,
        };
        let mut found = Vec::new();
        for entry in linux::list(&fd).map_err(failed)? {
            let Some(facts) = linux::facts_if_any(&fd, &entry.name).map_err(failed)? else { continue };
            if is_ours(&fd, &entry.name, &facts).map_err(failed)? {
                continue;
            }
            let path = own.join(&entry.name).map_err(|error| failed(io::Error::other(error)))?;
            let in_the_way = [crate::probe::ONE, crate::probe::TWO].contains(&entry.name.as_slice());
            found.push(intruder(path, named(facts.file_type), in_the_way));
        }
        Ok(found)
    }

    /// Checks that no foreign entry occupies Safepoint's own folder.
    ///
    /// # Errors
    /// Returns [`WorkspaceError::Obstructed`] with the command that moves the entry aside.
    pub fn check_own_folder(&self) -> Result<(), WorkspaceError> {
        let in_the_way: Vec<Obstacle> = self
            .intruders()?
            .into_iter()
            .filter(|intruder| intruder.in_the_way)
            .map(Obstacle::NotOurs)
            .collect();
        if in_the_way.is_empty() { Ok(()) } else { Err(WorkspaceError::Obstructed(in_the_way)) }
    }

    /// Opens Safepoint's own folder; creates it if missing.
    pub(crate) fn make_own_folder(&self) -> io::Result<OwnedFd> {
        if let Some(fd) = self.own_folder()? {
            return Ok(fd);
        }
        linux::make_dir(&self.fd, OWN_FOLDER.as_bytes())?;
        let fd = linux::open_dir(&self.fd, OWN_FOLDER.as_bytes())?;
        linux::drop_acls(&fd)?;
        linux::spread_below(&fd);
        let note = linux::create_file(&fd, NOTE_NAME)?;
        io::Write::write_all(&mut std::fs::File::from(note), NOTE)?;
        Ok(fd)
    }

    /// Removes Safepoint's own folder if it contains only its own notes.
    ///
    /// # Errors
    /// Fails if the folder cannot be removed.
    pub fn tidy(&self) -> Result<(), WorkspaceError> {
        self.drop_own_folder().map_err(|source| WorkspaceError::Stage { path: RelPath::root(), source })
    }

    pub(crate) fn drop_own_folder(&self) -> io::Result<()> {
        let Some(fd) = self.own_folder()? else { return Ok(()) };
        let left = linux::list(&fd)?;
        for entry in &left {
            let facts = linux::facts_if_any(&fd, &entry.name)?;
            let goes = |facts: &Facts| facts.file_type.is_file();
            if !facts.as_ref().is_some_and(goes) || !is_ours(&fd, &entry.name, &facts.unwrap_or(self.facts))?
            {
                return Ok(());
            }
        }
        for entry in left {
            linux::remove_file(&fd, &entry.name)?;
        }
        linux::remove_dir(&self.fd, OWN_FOLDER.as_bytes())
    }
}

/// Content of `.gitignore` in Safepoint's own folder, so that git ignores its temporary files.
const NOTE: &[u8] = b"*\n";
const NOTE_NAME: &[u8] = b".gitignore";

/// Path of Safepoint's own folder.
pub(crate) fn own_path() -> RelPath {
    RelPath::new(OWN_FOLDER.as_bytes()).unwrap_or_default()
}

/// Returns true if opening failed because the entry is not a folder of this file system. No link is followed,
/// no mount entered.
fn is_no_folder(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::NOTDIR, Errno::LOOP, Errno::XDEV]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Returns true if Safepoint created this entry of its own folder. A killed process may have left it
/// truncated.
fn is_ours(own: &OwnedFd, name: &[u8], facts: &Facts) -> io::Result<bool> {
    if name == NOTE_NAME {
        if !facts.file_type.is_file() || facts.size > NOTE.len() as u64 {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        std::fs::File::from(linux::open_file(own, name)?).take(facts.size).read_to_end(&mut bytes)?;
        // A power cut may keep the length of a write but lose its bytes, which then read as zeros.
        return Ok(bytes.iter().zip(NOTE).all(|(byte, noted)| byte == noted || *byte == 0));
    }
    if name == crate::probe::ONE || name == crate::probe::TWO {
        return Ok(facts.file_type.is_file() && facts.size == 0);
    }
    Ok(facts.file_type.is_dir() && crate::stage::is_stage_name(name))
}

/// Description for users.
fn named(kind: rustix::fs::FileType) -> &'static str {
    use rustix::fs::FileType;
    match kind {
        FileType::RegularFile => "a file that is not Safepoint's",
        FileType::Symlink => "a link that is not Safepoint's",
        FileType::Directory => "a folder that is not Safepoint's",
        _ => "a socket, FIFO or device",
    }
}

/// Lock on a workspace, released on drop.
#[derive(Debug)]
pub struct Lock {
    fd: OwnedFd,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child of another thread holds a copy of the open file until its `exec`.
        let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let lock = root.lock(Duration::ZERO).unwrap();
        let busy = Root::open(folder.path()).unwrap().lock(Duration::from_millis(20));
        assert!(matches!(busy, Err(WorkspaceError::Busy { .. })));
        drop(lock);
        root.lock(Duration::ZERO).unwrap();
    }

    #[test]
    fn a_released_workspace_is_free_though_a_child_has_a_copy_of_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let lock = root.lock(Duration::ZERO).unwrap();
        let _of_a_child = lock.fd.try_clone().unwrap();
        drop(lock);
        root.lock(Duration::ZERO).unwrap();
    }

    #[test]
    fn a_file_is_not_a_workspace() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Root::open(file.path()).unwrap_err();
        assert!(matches!(error, WorkspaceError::Open { .. }), "{error}");
    }

    #[test]
    fn a_link_in_place_of_the_workspace_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
        assert!(Root::open(&folder.path().join("link")).is_err());
    }

    #[test]
    fn a_small_file_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let small = |name: &str| root.read_small(name, 4).unwrap();
        assert_eq!(small("missing"), SmallFile::Missing);
        std::fs::write(folder.path().join("four"), "1234").unwrap();
        assert_eq!(small("four"), SmallFile::Bytes(b"1234".to_vec()));
        std::fs::write(folder.path().join("five"), "12345").unwrap();
        assert_eq!(small("five"), SmallFile::TooLong);
        std::os::unix::fs::symlink("four", folder.path().join("link")).unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        rustix::fs::mknodat(root.fd(), "fifo", rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        for name in ["link", "folder", "socket", "fifo"] {
            assert_eq!(small(name), SmallFile::NotAFile, "{name}");
        }
    }

    #[test]
    fn the_own_folder_goes_when_it_is_empty_and_stays_when_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.drop_own_folder().unwrap();
        root.make_own_folder().unwrap();
        root.make_own_folder().unwrap();
        let own = folder.path().join(OWN_FOLDER);
        std::fs::write(own.join("x"), "").unwrap();
        root.drop_own_folder().unwrap();
        assert!(own.exists());
        std::fs::remove_file(own.join("x")).unwrap();
        root.drop_own_folder().unwrap();
        assert!(!own.exists());
    }

    #[test]
    fn a_note_that_a_power_cut_tore_goes_with_the_own_folder_and_another_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let own = folder.path().join(OWN_FOLDER);
        for (note, goes) in
            [("", true), ("*", true), ("\0\0", true), ("*\0", true), ("a\n", false), ("*\n\n", false)]
        {
            root.make_own_folder().unwrap();
            std::fs::write(own.join(".gitignore"), note).unwrap();
            root.drop_own_folder().unwrap();
            assert_eq!(own.exists(), !goes, "{note:?}");
            let _ = std::fs::remove_dir_all(&own);
        }
    }

    #[test]
    fn a_link_in_place_of_the_own_folder_is_not_followed() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), folder.path().join(OWN_FOLDER)).unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert!(root.make_own_folder().is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
