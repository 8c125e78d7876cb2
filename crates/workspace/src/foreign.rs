//! Reader of a hostile folder, which its maker may change at any time.
//!
//! Input: a folder. Output: its entries, by open handles. It follows no link, opens only files and folders,
//! and enters no mount.

use crate::linux::{self, Facts};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use safepoint_model::SparseRead;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Foreign folder, open for reading.
#[derive(Debug)]
pub struct Foreign {
    fd: OwnedFd,
}

/// Entry of a foreign folder.
#[derive(Debug)]
pub enum ForeignEntry {
    /// Open file.
    File(ForeignFile),
    /// Open folder.
    Folder(Foreign),
    /// Target of a symbolic link.
    Link(Vec<u8>),
    /// FIFO, socket or device; not opened.
    Other,
}

/// Foreign file, open for reading. Only the bytes read count: the file may change at any time.
#[derive(Debug)]
pub struct ForeignFile {
    file: File,
    facts: Facts,
    /// Offset of the next read.
    at: u64,
}

impl Foreign {
    /// Opens a folder. The last name of the path must not be a link.
    ///
    /// # Errors
    /// Fails if the path is not a folder or is not readable.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(Self { fd: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Returns the sorted names, or `None` if there are more than `names_max`.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn names(&self, names_max: usize) -> io::Result<Option<Vec<Vec<u8>>>> {
        // A separate handle: the listing position belongs to the open file.
        let listed = linux::list_up_to(linux::open_dir(&self.fd, b".")?, names_max)?;
        Ok(listed.map(|listed| listed.into_iter().map(|entry| entry.name).collect()))
    }

    /// Returns the entry with this name, or `None` if it is missing. `name` is a single name, not a path.
    ///
    /// # Errors
    /// Fails if the entry cannot be opened, or was replaced by another kind of entry after it was checked.
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
                // Another file may have replaced it: use the open one.
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
    /// Permission bits.
    pub fn mode(&self) -> u16 {
        self.facts.mode
    }

    /// User and group ids.
    pub fn owner(&self) -> (u32, u32) {
        (self.facts.uid, self.facts.gid)
    }

    /// Length when the file was opened.
    pub fn size(&self) -> u64 {
        self.facts.size
    }

    /// Bytes on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.facts.disk_bytes
    }

    /// File capabilities, if any.
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
        let Some(ForeignEntry::File(mut file)) = entry("file") else { panic!("not a file") };
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
