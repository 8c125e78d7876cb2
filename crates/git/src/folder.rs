//! Open folder of a repository. The kernel resolves names below it without following links, without `..` and
//! without leaving it: a hostile repository may contain links anywhere.

use crate::GitError;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Open folder, and its path for messages.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

fn open(dir: impl AsFd, name: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(&dir, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode, beneath) {
            // The kernel asks for a retry after a concurrent rename (openat2(2)).
            Err(Errno::AGAIN) => {}
            other => return Ok(other?),
        }
    }
}

/// Converts "not found" to `None`, also if a parent is not a folder.
fn if_any<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the temporary name of a lock: in the top folder, where git does not take it for a ref.
fn unfinished(name: &[u8]) -> Vec<u8> {
    let plain: Vec<u8> = name.iter().map(|byte| if *byte == b'/' { b'-' } else { *byte }).collect();
    [b"safepoint-", plain.as_slice(), b".tmp"].concat()
}

/// Splits a path into its folder and its last name.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&name[..slash], &name[slash + 1..]),
        None => (b".", name),
    }
}

impl Folder {
    /// Opens a folder by a path without links.
    pub(crate) fn open(path: &Path) -> Result<Self, GitError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| GitError::read(path)(error.into()))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a name below it, for messages.
    pub(crate) fn at(&self, name: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(name))
    }

    /// Opens a folder below it.
    pub(crate) fn below(&self, name: &[u8]) -> Result<Option<Folder>, GitError> {
        let opened = open(&self.fd, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        let fd = if_any(opened).map_err(GitError::read(self.at(name)))?;
        Ok(fd.map(|fd| Folder { fd, path: self.at(name) }))
    }

    /// Returns the metadata of a name without following links.
    pub(crate) fn stat(&self, name: &[u8]) -> Result<Option<Stat>, GitError> {
        let (above, last) = split(name);
        let look = || -> io::Result<Stat> {
            let above = open(&self.fd, above, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
            Ok(rustix::fs::statat(above, last, AtFlags::SYMLINK_NOFOLLOW)?)
        };
        if_any(look()).map_err(GitError::read(self.at(name)))
    }

    /// Returns true if a name exists.
    pub(crate) fn has(&self, name: &[u8]) -> Result<bool, GitError> {
        Ok(self.stat(name)?.is_some())
    }

    /// Returns the target of a link.
    pub(crate) fn link(&self, name: &[u8]) -> Result<Vec<u8>, GitError> {
        let (above, last) = split(name);
        let read = || -> io::Result<Vec<u8>> {
            let above = open(&self.fd, above, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
            Ok(rustix::fs::readlinkat(above, last, Vec::new())?.into_bytes())
        };
        read().map_err(GitError::read(self.at(name)))
    }

    /// Opens a regular file. Returns `None` if it is missing.
    pub(crate) fn file(&self, name: &[u8]) -> Result<Option<File>, GitError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = if_any(open(&self.fd, name, flags, Mode::empty()));
        let Some(fd) = opened.map_err(GitError::read(self.at(name)))? else { return Ok(None) };
        let stat = rustix::fs::fstat(&fd).map_err(|error| GitError::read(self.at(name))(error.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(File::from(fd))),
            FileType::Directory => Ok(None),
            _ => Err(GitError::damaged(&self.at(name), "it is not a file")),
        }
    }

    /// Reads a regular file. Returns `None` if it is missing.
    pub(crate) fn read(&self, name: &[u8], bytes_max: u64) -> Result<Option<Vec<u8>>, GitError> {
        let Some(file) = self.file(name)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(GitError::read(self.at(name)))?;
        match bytes.len() as u64 > bytes_max {
            true => Err(GitError::damaged(&self.at(name), "it is too long")),
            false => Ok(Some(bytes)),
        }
    }

    /// Returns the names in it, sorted.
    pub(crate) fn names(&self) -> Result<Vec<(Vec<u8>, FileType)>, GitError> {
        let list = || -> io::Result<Vec<(Vec<u8>, FileType)>> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.fd)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    let kind = match entry.file_type() {
                        // Not every file system reports the type.
                        FileType::Unknown => FileType::from_raw_mode(
                            rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode,
                        ),
                        kind => kind,
                    };
                    names.push((name.to_vec(), kind));
                }
            }
            names.sort_by(|a: &(Vec<u8>, FileType), b| a.0.cmp(&b.0));
            Ok(names)
        };
        list().map_err(GitError::read(&self.path))
    }

    /// Creates the parent folders of a name.
    pub(crate) fn make_above(&self, name: &[u8]) -> Result<(), GitError> {
        for (at, _) in name.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let (above, last) = split(&name[..at]);
            let make = || -> io::Result<()> {
                let above = open(&self.fd, above, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
                match rustix::fs::mkdirat(&above, last, Mode::from_raw_mode(0o777)) {
                    Ok(()) => Ok(rustix::fs::fsync(&above)?),
                    Err(Errno::EXIST) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            };
            make().map_err(GitError::write(self.at(&name[..at])))?;
        }
        Ok(())
    }

    /// Creates a new file.
    pub(crate) fn create(&self, name: &[u8], mode: u32) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(File::from(open(&self.fd, name, flags, Mode::from_raw_mode(mode))?))
    }

    /// Appends to a file if it exists.
    pub(crate) fn append(&self, name: &[u8], bytes: &[u8]) -> Result<(), GitError> {
        if !self.has(name)? {
            return Ok(());
        }
        let append = || -> io::Result<()> {
            let fd = open(&self.fd, name, OFlags::WRONLY | OFlags::APPEND, Mode::empty())?;
            File::from(fd).write_all(bytes)
        };
        append().map_err(GitError::write(self.at(name)))
    }

    /// Renames a file in this folder, replacing an existing one.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let dir = |name| open(&self.fd, split(name).0, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        let (from_dir, to_dir) = (dir(from)?, dir(to)?);
        Ok(rustix::fs::renameat(from_dir, split(from).1, &to_dir, split(to).1)?)
    }

    /// Removes a file; a missing file is not an error.
    pub(crate) fn remove(&self, name: &[u8]) -> io::Result<()> {
        let (above, last) = split(name);
        let remove = || -> io::Result<()> {
            let above = open(&self.fd, above, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
            rustix::fs::unlinkat(&above, last, AtFlags::empty())?;
            Ok(rustix::fs::fsync(&above)?)
        };
        if_any(remove()).map(drop)
    }

    /// Makes the directory entries beside a name durable.
    pub(crate) fn sync_beside(&self, name: &[u8]) -> io::Result<()> {
        let above = open(&self.fd, split(name).0, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(rustix::fs::fsync(above)?)
    }

    /// Makes all data of this file system durable.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.fd)?)
    }

    /// Takes git's lock on a file until it is dropped. The lock file contains the new content from the start,
    /// so that a lock left by a crash can be told from that of another git process.
    pub(crate) fn lock(&self, name: &[u8], bytes: &[u8]) -> Result<Lock<'_>, GitError> {
        let (unfinished, lock) = (unfinished(name), [name, b".lock"].concat());
        let take = || -> io::Result<()> {
            self.remove(&unfinished)?;
            let mut file = self.create(&unfinished, 0o666)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            self.rename_to_new(&unfinished, &lock)
        };
        match take() {
            Ok(()) => Ok(Lock { folder: self, name: name.to_vec(), lock, held: true }),
            Err(error) => {
                let _ = self.remove(&unfinished);
                Err(match error.kind() {
                    io::ErrorKind::AlreadyExists => GitError::Locked { path: self.at(&lock) },
                    _ => GitError::write(self.at(&lock))(error),
                })
            }
        }
    }

    /// Renames a file to an unused name.
    fn rename_to_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let dir = |name| open(&self.fd, split(name).0, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        let (from_dir, to_dir) = (dir(from)?, dir(to)?);
        let (from_name, to_name) = (split(from).1, split(to).1);
        match rustix::fs::renameat_with(&from_dir, from_name, &to_dir, to_name, RenameFlags::NOREPLACE) {
            // Not every file system supports it.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(&from_dir, from_name, &to_dir, to_name, AtFlags::empty())?;
                Ok(rustix::fs::unlinkat(&from_dir, from_name, AtFlags::empty())?)
            }
            other => Ok(other?),
        }
    }

    /// Removes a lock that a crash left, if it has one of these contents.
    pub(crate) fn clear_lock(&self, name: &[u8], ours: &[&[u8]]) -> Result<(), GitError> {
        let (unfinished, lock) = (unfinished(name), [name, b".lock"].concat());
        self.remove(&unfinished).map_err(GitError::write(self.at(&unfinished)))?;
        let longest = ours.iter().map(|bytes| bytes.len() as u64).max().unwrap_or(0);
        match self.read(&lock, longest) {
            Ok(Some(bytes)) if ours.contains(&bytes.as_slice()) => {
                self.remove(&lock).map_err(GitError::write(self.at(&lock)))
            }
            _ => Ok(()),
        }
    }
}

/// Git's lock on a file.
pub(crate) struct Lock<'f> {
    folder: &'f Folder,
    name: Vec<u8>,
    lock: Vec<u8>,
    held: bool,
}

impl Lock<'_> {
    /// Replaces the file by the content of the lock, durably.
    pub(crate) fn commit(mut self) -> Result<(), GitError> {
        let put = || -> io::Result<()> {
            self.folder.rename(&self.lock, &self.name)?;
            self.folder.sync_beside(&self.name)
        };
        let done = put();
        // After the rename the lock no longer exists.
        self.held = done.is_err() && self.folder.has(&self.lock).unwrap_or(true);
        done.map_err(GitError::write(self.folder.at(&self.name)))
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        if self.held {
            let _ = self.folder.remove(&self.lock);
        }
    }
}
