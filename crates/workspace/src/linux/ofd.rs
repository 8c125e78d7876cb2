//! Byte-range locks of an open file description (fcntl(2), `F_OFD_SETLK`).
//!
//! They conflict with the POSIX locks of every process and last until the last handle of this open file is
//! closed. A POSIX lock would end when any handle of the file in this process is closed. Neither rustix nor
//! std offers them: one call, with a structure on the stack.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Byte range of a file: start and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) i64, pub(crate) i64);

/// Takes a read lock unless another process holds a write lock. The file must be open for reading.
///
/// # Errors
/// Fails if the file system has no such locks.
pub(crate) fn try_read_lock(file: &OwnedFd, bytes: Bytes) -> io::Result<bool> {
    match call(file, libc::F_OFD_SETLK, libc::F_RDLCK, bytes) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases a lock.
///
/// # Errors
/// Fails if the kernel refuses.
pub(crate) fn unlock(file: &OwnedFd, bytes: Bytes) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, libc::F_UNLCK, bytes).map(|_| ())
}

/// Returns true if another open file holds a write lock on the range.
///
/// # Errors
/// Fails if the file system has no such locks.
pub(crate) fn is_write_locked(file: &OwnedFd, bytes: Bytes) -> io::Result<bool> {
    let found = call(file, libc::F_OFD_GETLK, libc::F_RDLCK, bytes)?;
    Ok(found != libc::F_UNLCK)
}

/// Calls fcntl and returns the lock type in its answer.
#[allow(unsafe_code)]
fn call(file: &OwnedFd, command: libc::c_int, kind: libc::c_int, bytes: Bytes) -> io::Result<libc::c_int> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.0,
        l_len: bytes.1,
        l_pid: 0,
    };
    // SAFETY: both commands read and write one `flock`, which lives on this stack until the call returns; the descriptor is open for as
    // long as `file` is borrowed.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if answer == 0 { Ok(libc::c_int::from(lock.l_type)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_read_lock_keeps_writers_out_and_outlives_the_close_of_another_handle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let writer: OwnedFd = File::create(&path).unwrap().into();
        let (one, two): (OwnedFd, OwnedFd) =
            (File::open(&path).unwrap().into(), File::open(&path).unwrap().into());
        let here = Bytes(0x4000_0002, 510);
        assert!(try_read_lock(&one, here).unwrap() && try_read_lock(&two, here).unwrap());
        drop(two);
        let write = || call(&writer, libc::F_OFD_SETLK, libc::F_WRLCK, Bytes(0x4000_0003, 1));
        assert_eq!(write().unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        unlock(&one, here).unwrap();
        assert!(write().is_ok());
        assert!(is_write_locked(&one, here).unwrap() && !try_read_lock(&one, here).unwrap());
        assert!(!is_write_locked(&one, Bytes(0x4000_0004, 1)).unwrap());
    }
}
