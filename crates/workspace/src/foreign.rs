//! A folder from outside, read as hostile: whoever made it may still be changing it.
//!
//! Comes in: a folder. Goes out: what is in it, by open handles. No link is followed, nothing but files and folders is opened, and what
//! is mounted in it is not entered.

use crate::linux::{self, Facts};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use safepoint_model::SparseRead;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A folder that somebody else made, open for reading.
#[derive(Debug)]
pub struct Foreign {
    fd: OwnedFd,
}

/// What stands at a name.
#[derive(Debug)]
pub enum ForeignEntry {
    /// A file, open.
    File(ForeignFile),
    /// A folder, open.
    Folder(Foreign),
    /// A symbolic link, with its target.
    Link(Vec<u8>),
    /// A FIFO, a socket or a device; it was not opened.
    Other,
}

/// A file that somebody else made, open for reading. What is read of it is what counts: it may change all the while.
#[derive(Debug)]
pub struct ForeignFile {
    file: File,
    facts: Facts,
    /// Where the next reading begins.
    at: u64,
}

impl Foreign {
    /// Opens a folder. The last name of the path must not be a link.
    ///
    /// # Errors
    /// When it is not a folder or may not be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(Self { fd: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// The names in it, sorted; nothing when there are more than so many.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn names(&self, names_max: usize) -> io::Result<Option<Vec<Vec<u8>>>> {
        // A handle of its own: where the last listing ended belongs to the open file.
        let listed = linux::list_up_to(linux::open_dir(&self.fd, b".")?, names_max)?;
        Ok(listed.map(|listed| listed.into_iter().map(|entry| entry.name).collect()))
    }

    /// What stands at a name; nothing where nothing does. The name is one name, not a path.
    ///
    /// # Errors
    /// When it cannot be opened. What took the place of a file or a folder since it was looked at is not opened either.
    pub fn entry(&self, name: &[u8]) -> io::Result<Option<ForeignEntry>> {
        if safepoint_model::path::check_name(name).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let Some(facts) = linux::facts_if_any(&self.fd, name)? else { return Ok(None) };
        Ok(Some(match facts.file_type {
            FileType::Symlink => ForeignEntry::Link(linux::read_link(&self.fd, name)?),
            FileType::Directory => ForeignEntry::Folder(Self { fd: linux::open_dir(&self.fd, name)? }),
            FileType::RegularFile => {
                let fd = linux::open_file(&self.fd, name)?;
                // Something else may have taken its place: what is open counts.
                let facts = linux::facts_of(&fd)?;
                match facts.file_type {
                    FileType::RegularFile => {
                        ForeignEntry::File(ForeignFile { file: File::from(fd), facts, at: 0 })
                    }
                    _ => ForeignEntry::Other,
                }
            }
            _ => ForeignEntry::Other,
        }))
    }
}

impl ForeignFile {
    /// The permission bits.
    pub fn mode(&self) -> u16 {
        self.facts.mode
    }

    /// Whose it is: user and group.
    pub fn owner(&self) -> (u32, u32) {
        (self.facts.uid, self.facts.gid)
    }

    /// Its length when it was opened.
    pub fn size(&self) -> u64 {
        self.facts.size
    }

    /// Bytes that it takes on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.facts.disk_bytes
    }

    /// The capabilities that it gives to whoever runs it.
    pub fn capability(&self) -> Option<Vec<u8>> {
        let fd = OwnedFd::from(self.file.try_clone().ok()?);
        let meta = linux::read_meta(&fd, &self.facts).ok()?.meta;
        meta.xattr(safepoint_model::access::CAPABILITY).map(<[u8]>::to_vec)
    }
}

impl Read for ForeignFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let came = self.file.read_at(buffer, self.at)?;
        self.at += came as u64;
        Ok(came)
    }
}

impl SparseRead for ForeignFile {
    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        linux::data_from(&self.file, at)
    }

    fn go_to(&mut self, at: u64) {
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_there_is_told_and_nothing_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::write(path.join("file"), "1234").unwrap();
        fs::create_dir(path.join("folder")).unwrap();
        std::os::unix::fs::symlink("/etc", path.join("link")).unwrap();
        let foreign = Foreign::open(path).unwrap();
        rustix::fs::mknodat(&foreign.fd, "fifo", FileType::Fifo, Mode::RUSR, 0).unwrap();
        let entry = |name: &str| foreign.entry(name.as_bytes()).unwrap();
        let Some(ForeignEntry::File(mut file)) = entry("file") else { panic!("a file") };
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), file.mode() & 0o400), ("1234", 0o400));
        assert_eq!(file.owner().0, rustix::process::geteuid().as_raw());
        assert!(matches!(entry("folder"), Some(ForeignEntry::Folder(_))));
        assert!(matches!(entry("link"), Some(ForeignEntry::Link(target)) if target == b"/etc"));
        assert!(matches!(entry("fifo"), Some(ForeignEntry::Other)));
        assert!(entry("nothing").is_none());
        for climbing in ["..", ".", "folder/..", "", "/etc"] {
            assert!(foreign.entry(climbing.as_bytes()).is_err(), "{climbing}");
        }
        assert!(Foreign::open(&path.join("link")).is_err() && Foreign::open(&path.join("file")).is_err());
    }

    #[test]
    fn a_folder_with_too_many_names_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let foreign = Foreign::open(folder.path()).unwrap();
        assert_eq!(foreign.names(3).unwrap().unwrap(), [b"a", b"b", b"c"]);
        assert_eq!(foreign.names(2).unwrap(), None);
    }
}
