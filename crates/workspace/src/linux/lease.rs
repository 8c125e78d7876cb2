//! Read leases (fcntl(2), `F_SETLEASE`): the kernel's guarantee that no process has a file open for writing.
//!
//! Unsafe, like `ofd.rs` beside it: neither rustix nor std offers leases, the thread's file system uid, or a
//! flush of one file's pages. Every call takes plain integers.

use rustix::fd::AsFd;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// From the kernel's `fcntl.h`, the same on every architecture; missing in the libc crate.
const F_SETSIG: libc::c_int = 10;

/// Answer of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// No process can write to the file: no descriptor, no shared mapping.
    NoWriter,
    /// A process has the file open for writing.
    Writer,
    /// The file system or the file's owner does not allow leases. The file may have a writer.
    Unknown,
}

/// Checks for a process that has this file open for writing. The file must be open for reading only; `owner`
/// is its uid.
///
/// The kernel grants leases to the file's owner and to holders of CAP_LEASE. Root in a container usually
/// lacks CAP_LEASE but may act as any user: then it asks as the owner.
pub(crate) fn try_lease(file: &OwnedFd, owner: u32) -> Lease {
    match ask(file) {
        Err(libc::EACCES) => ask_as(file, owner),
        answer => lease(answer),
    }
}

fn lease(answer: Result<(), i32>) -> Lease {
    match answer {
        Ok(()) => Lease::NoWriter,
        Err(libc::EAGAIN) => Lease::Writer,
        Err(_) => Lease::Unknown,
    }
}

/// Takes a lease and releases it.
///
/// Breaking a held lease sends a signal that ends the process by default. It is set to SIGURG, which is
/// ignored by default. The lease is held for two system calls.
#[allow(unsafe_code)]
fn ask(file: &OwnedFd) -> Result<(), i32> {
    let fd = file.as_raw_fd();
    // SAFETY: fcntl with F_SETSIG and F_SETLEASE takes an integer and touches no memory of this process; the
    // descriptor is open for as long as `file` is borrowed.
    let placed = unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0 && libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) == 0
    };
    if !placed {
        return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
    }
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
    Ok(())
}

/// Asks with the uid of the file's owner, if this process may assume it.
///
/// setfsuid(2) changes only this thread, and only for access to files. It reports no error; called with an
/// invalid uid, it returns the uid in force.
#[allow(unsafe_code)]
fn ask_as(file: &OwnedFd, owner: u32) -> Lease {
    let own = rustix::process::geteuid().as_raw();
    // SAFETY: setfsuid takes an integer and touches no memory of this process.
    let set = |uid: u32| unsafe {
        libc::setfsuid(uid);
        libc::setfsuid(u32::MAX).cast_unsigned() == uid
    };
    let answer = if set(owner) { lease(ask(file)) } else { Lease::Unknown };
    if !set(own) && !set(own) {
        // The process's own uid is always allowed. A thread that continued as another user would create files
        // owned by that user.
        std::process::abort();
    }
    answer
}

/// Writes back the dirty pages of a file and waits, without flushing the disk.
///
/// A page that was written back is write-protected in every mapping, so the next store through a mapping
/// faults; ext4, xfs and btrfs then set a new mtime. Two passes: btrfs hands compressed extents to other
/// threads in the first.
#[allow(unsafe_code)]
pub(crate) fn write_back(file: impl AsFd) -> io::Result<()> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    for _ in 0..2 {
        // SAFETY: sync_file_range takes integers and touches no memory of this process; the descriptor is open for as long as
        // `file` is borrowed.
        if unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, flags) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_writer_is_seen_and_its_absence_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let writer = File::create(&path).unwrap();
        let reader: OwnedFd = File::open(&path).unwrap().into();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(try_lease(&reader, own), Lease::Writer);
        drop(writer);
        assert_eq!(try_lease(&reader, own), Lease::NoWriter);
        let directory: OwnedFd = File::open(folder.path()).unwrap().into();
        assert_eq!(try_lease(&directory, own), Lease::Unknown);
    }

    #[test]
    fn asking_as_the_owner_gives_the_same_answer_and_the_thread_its_uid_back() {
        let own = rustix::process::geteuid();
        if !own.is_root() {
            eprintln!("SKIPPED: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let writer = File::create(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(1001), Some(1001)).unwrap();
        let reader: OwnedFd = File::open(&path).unwrap().into();
        assert_eq!(ask_as(&reader, 1001), Lease::Writer);
        drop(writer);
        assert_eq!(ask_as(&reader, 1001), Lease::NoWriter);
        let made = folder.path().join("made");
        File::create(&made).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&made.metadata().unwrap()), own.as_raw());
    }

    #[test]
    fn a_file_that_is_open_for_reading_is_written_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "dirty").unwrap();
        write_back(File::open(&path).unwrap()).unwrap();
    }
}
