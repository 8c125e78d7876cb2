//! Notices changes in a folder by inotify(7), as a hint: a scan decides what changed.
//!
//! Input: a root. Output: a handle to poll, and whether anything may have changed. If the kernel has too few watches or drops
//! events, [`Notice::is_complete`] is false, and the caller scans at intervals.

use crate::error::WorkspaceError;
use crate::linux;
use crate::root::{OWN_FOLDER, Root};
use crate::scan::{DEPTH_MAX, join};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use safepoint_model::RelPath;
use std::collections::HashMap;
use std::mem::MaybeUninit;

/// Maximum number of watched directories; the kernel keeps about a kilobyte for each.
const WATCHES_MAX: usize = 100_000;
/// Space for events of one read.
const EVENT_BYTES: usize = 64 * 1024;

/// Watched folder.
pub struct Notice<'r> {
    root: &'r Root,
    own: Vec<RelPath>,
    fd: OwnedFd,
    /// Directories by the kernel's number.
    watched: HashMap<i32, RelPath>,
    complete: bool,
}

impl<'r> Notice<'r> {
    /// Watches a folder and everything below it, except for git directories and `own` folders.
    ///
    /// # Errors
    /// Fails if the kernel gives no inotify instance.
    pub fn open(root: &'r Root, own: Vec<RelPath>) -> Result<Self, WorkspaceError> {
        let failed = |error: Errno| WorkspaceError::Read { path: RelPath::root(), source: error.into() };
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(failed)?;
        let mut notice = Self { root, own, fd, watched: HashMap::new(), complete: true };
        notice.watch(RelPath::root(), 0);
        Ok(notice)
    }

    /// Returns true if every directory is watched.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Reads all events. Returns true if anything may have changed.
    pub fn take(&mut self) -> bool {
        let (mut changed, mut new) = (false, Vec::new());
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    changed = true;
                    let kind = event.events();
                    if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
                        new.push(RelPath::root());
                    }
                    if kind.contains(ReadFlags::IGNORED) {
                        self.watched.remove(&event.wd());
                    }
                    let came = kind.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
                    if let (true, Some(above), Some(name)) = (
                        came && kind.contains(ReadFlags::ISDIR),
                        self.watched.get(&event.wd()),
                        event.file_name(),
                    ) {
                        new.extend(join(above, name.to_bytes()));
                    }
                }
                Err(Errno::INTR) => {}
                // EAGAIN: no more events. Any other error repeats, so that nothing is gained by another read.
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.complete = false;
                    break;
                }
            }
        }
        for path in new {
            self.watch(path, 0);
        }
        changed
    }

    /// Watches a directory and those below it. Another one of that name replaces it.
    fn watch(&mut self, path: RelPath, depth: usize) {
        let mut waiting = vec![(path, depth)];
        while let Some((path, depth)) = waiting.pop() {
            if self.own.contains(&path) {
                continue;
            }
            let Ok(fd) = linux::open_dir_at(self.root.fd(), &path) else { continue };
            if linux::facts_of(&fd).map_or(true, |facts| facts.place != self.root.place()) {
                continue;
            }
            if self.watched.len() >= WATCHES_MAX || !self.add(&fd, &path) {
                self.complete = false;
                return;
            }
            let Ok(listed) = linux::list(&fd) else { continue };
            for entry in listed {
                let is_own = entry.name == OWN_FOLDER.as_bytes() || entry.name == b".git";
                let is_dir = linux::facts_if_any(&fd, &entry.name)
                    .is_ok_and(|facts| facts.is_some_and(|facts| facts.file_type.is_dir()));
                if is_dir && !is_own && depth < DEPTH_MAX {
                    waiting.extend(join(&path, &entry.name).map(|path| (path, depth + 1)));
                }
            }
        }
    }

    /// Adds one watch, by the handle of the directory. Returns false if the kernel has no more.
    fn add(&mut self, fd: &OwnedFd, path: &RelPath) -> bool {
        let wanted = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        use std::os::fd::AsRawFd;
        let place = format!("/proc/self/fd/{}", fd.as_raw_fd());
        match inotify::add_watch(&self.fd, place, wanted) {
            Ok(number) => {
                self.watched.insert(number, path.clone());
                true
            }
            // The directory is gone, or /proc is missing.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if linux::open_dir(fd, b".").is_err() => true,
            Err(_) => false,
        }
    }
}

impl AsFd for Notice<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn changes_are_noticed_also_in_new_folders_and_not_in_git() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir(dir.path().join(".git")).unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut notice = Notice::open(&root, vec![RelPath::new("home").unwrap()]).unwrap();
        assert!(notice.is_complete() && !notice.take());
        let mut noticed = |name: &str| {
            fs::write(dir.path().join(name), name).unwrap();
            notice.take()
        };
        assert!(noticed("top") && noticed("a/b/deep"));
        assert!(!noticed(".git/index") && !noticed("home/x"));
        fs::create_dir_all(dir.path().join("new/deep")).unwrap();
        assert!(noticed("new/x"));
        assert!(noticed("new/deep/y"));
        fs::rename(dir.path().join("new"), dir.path().join("moved")).unwrap();
        assert!(noticed("moved/deep/z"));
        fs::remove_dir_all(dir.path().join("moved")).unwrap();
        assert!(noticed("a/last"));
    }
}
