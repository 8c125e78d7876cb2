//! Read leases (fcntl(2), `F_SETLEASE`): the kernel's own word that nobody has a file open for writing.
//!
//! Unsafe, like `ofd.rs` beside it: neither rustix nor std offers leases. Two calls, both with plain integers.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// From the kernel's `fcntl.h`, the same on every architecture; the libc crate leaves it out.
const F_SETSIG: libc::c_int = 10;

/// What the kernel said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Nobody can write to the file: no descriptor, no shared mapping.
    NoWriter,
    /// Somebody has it open for writing.
    Writer,
    /// The file system, or the owner of the file, does not allow asking.
    Unknown,
}

/// Asks whether anybody has this file open for writing. The file must be open for reading only.
///
/// A lease that is broken while it is held sends a signal, by default one that ends the process; it is set to
/// SIGURG, which is ignored unless somebody wants it. It is held for two system calls.
#[allow(unsafe_code)]
pub(crate) fn try_lease(file: &OwnedFd) -> Lease {
    let fd = file.as_raw_fd();
    // SAFETY: fcntl with F_SETSIG and F_SETLEASE takes an integer and touches no memory of this process; the
    // descriptor is open for as long as `file` is borrowed.
    let placed = unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0 && libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) == 0
    };
    if !placed {
        return match io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN) => Lease::Writer,
            _ => Lease::Unknown,
        };
    }
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
    Lease::NoWriter
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
        assert_eq!(try_lease(&reader), Lease::Writer);
        drop(writer);
        assert_eq!(try_lease(&reader), Lease::NoWriter);
        let directory: OwnedFd = File::open(folder.path()).unwrap().into();
        assert_eq!(try_lease(&directory), Lease::Unknown);
    }
}
