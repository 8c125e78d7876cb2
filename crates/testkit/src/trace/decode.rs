//! Decodes a call from a number and six arguments into a [`Sys`], or `None` if it does not change the state
//! of a disk.

use std::io;

use nix::libc;

use super::sys::{Bytes, Sys, Target};
use super::tracee::{Place, Tracee};

const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const FICLONE: u64 = 0x4004_9409;
const FICLONERANGE: u64 = 0x4020_940d;
const RESOLVE_IN_ROOT: u64 = 0x10;

type Found = io::Result<Option<(&'static str, Sys)>>;

/// Decodes the call a thread is about to enter, if it changes state. A call with unreadable arguments will
/// fail and change nothing.
/// With `sends`, so does a call that sends bytes to another process.
pub(crate) fn decode(
    tracee: Tracee,
    number: i64,
    args: [u64; 6],
    sends: bool,
) -> Option<(&'static str, Sys)> {
    let d = Decoder { t: tracee, a: args };
    if sends && let Some(name) = d.send(number) {
        return Some((name, Sys::Send { fd: d.fd(0) }));
    }
    let found = d.data(number).transpose();
    let found = found.or_else(|| d.names(number).transpose());
    let found = found.or_else(|| d.attributes(number).transpose());
    let (name, sys) = found?.ok()?;
    d.counts(&sys).then_some((name, sys))
}

struct Decoder {
    t: Tracee,
    a: [u64; 6],
}

impl Decoder {
    fn fd(&self, i: usize) -> i32 {
        // Descriptors are 32 bits of the register; AT_FDCWD is negative.
        self.a[i] as u32 as i32
    }

    fn here(&self, path: usize) -> io::Result<Place> {
        self.t.place(libc::AT_FDCWD, self.a[path])
    }

    fn at(&self, dirfd: usize, path: usize) -> io::Result<Place> {
        self.t.place(self.fd(dirfd), self.a[path])
    }

    fn path(&self, path: usize, follow: bool) -> io::Result<Target> {
        Ok(Target::Path { place: self.here(path)?, follow })
    }

    /// Returns the target of an `...at` call, which may be the descriptor itself.
    fn target(&self, dirfd: usize, path: usize, flags: u64) -> io::Result<Target> {
        if self.a[path] == 0 {
            return Ok(Target::Fd(self.fd(dirfd)));
        }
        let place = self.at(dirfd, path)?;
        if place.given.is_empty() && flags & libc::AT_EMPTY_PATH as u64 != 0 {
            return Ok(Target::Fd(self.fd(dirfd)));
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW as u64 == 0;
        Ok(Target::Path { place, follow })
    }

    /// Returns the name of a call that sends bytes to a socket.
    fn send(&self, number: i64) -> Option<&'static str> {
        let name = match number {
            libc::SYS_sendto => "sendto",
            libc::SYS_sendmsg => "sendmsg",
            libc::SYS_write => "write",
            libc::SYS_writev => "writev",
            _ => return None,
        };
        self.t.fd_is_socket(self.fd(0)).then_some(name)
    }

    /// Decodes calls on content, and syncs.
    fn data(&self, number: i64) -> Found {
        let a = &self.a;
        let fd = self.fd(0);
        let flat = Bytes::Flat { at: a[1] };
        let vector = Bytes::Vector { at: a[1], count: a[2] };
        let write = |bytes, offset, sync| Sys::Write { fd, bytes, offset, sync };
        Ok(Some(match number {
            libc::SYS_write => ("write", write(flat, None, false)),
            libc::SYS_pwrite64 => ("pwrite64", write(flat, Some(a[3]), false)),
            libc::SYS_writev => ("writev", write(vector, None, false)),
            libc::SYS_pwritev => ("pwritev", write(vector, Some(a[3]), false)),
            libc::SYS_pwritev2 => {
                let offset = (a[3] != u64::MAX).then_some(a[3]);
                let sync = a[5] & (libc::RWF_DSYNC | libc::RWF_SYNC) as u64 != 0;
                ("pwritev2", write(vector, offset, sync))
            }
            libc::SYS_copy_file_range => ("copy_file_range", self.copy()?),
            libc::SYS_splice => ("splice", self.copy()?),
            libc::SYS_sendfile => ("sendfile", Sys::Copy { fd, offset: None }),
            libc::SYS_ioctl if a[1] == FICLONE => ("ficlone", Sys::Clone { fd, range: None }),
            libc::SYS_ioctl if a[1] == FICLONERANGE => {
                let range = (self.t.word(a[2] + 24)?, self.t.word(a[2] + 16)?);
                ("ficlonerange", Sys::Clone { fd, range: Some(range) })
            }
            libc::SYS_ftruncate => ("ftruncate", Sys::Truncate { on: Target::Fd(fd), len: a[1] }),
            libc::SYS_truncate => ("truncate", Sys::Truncate { on: self.path(0, true)?, len: a[1] }),
            libc::SYS_fallocate => ("fallocate", Sys::Allocate { fd, mode: self.fd(1) }),
            libc::SYS_fsync => ("fsync", Sys::Fsync { fd }),
            libc::SYS_fdatasync => ("fdatasync", Sys::Fdatasync { fd }),
            libc::SYS_syncfs => ("syncfs", Sys::Syncfs { fd }),
            libc::SYS_sync => ("sync", Sys::Sync),
            libc::SYS_sync_file_range => ("sync_file_range", Sys::Flush),
            libc::SYS_msync => ("msync", Sys::Flush),
            _ => return Ok(None),
        }))
    }

    /// Both calls have the descriptor third and the write offset fourth.
    fn copy(&self) -> io::Result<Sys> {
        let offset = match self.a[3] {
            0 => None,
            at => Some(self.t.word(at)?),
        };
        let fd = self.fd(2);
        Ok(Sys::Copy { fd, offset })
    }

    /// Decodes calls on directory entries.
    fn names(&self, number: i64) -> Found {
        let a = &self.a;
        Ok(Some(match number {
            libc::SYS_open => ("open", Sys::Open { at: self.here(0)?, flags: self.fd(1) }),
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                ("creat", Sys::Open { at: self.here(0)?, flags })
            }
            libc::SYS_openat => ("openat", Sys::Open { at: self.at(0, 1)?, flags: self.fd(2) }),
            libc::SYS_openat2 => ("openat2", self.openat2()?),
            libc::SYS_mkdir => ("mkdir", Sys::Mkdir { at: self.here(0)? }),
            libc::SYS_mkdirat => ("mkdirat", Sys::Mkdir { at: self.at(0, 1)? }),
            libc::SYS_mknod => ("mknod", Sys::Mknod { at: self.here(0)? }),
            libc::SYS_mknodat => ("mknodat", Sys::Mknod { at: self.at(0, 1)? }),
            libc::SYS_rmdir => ("rmdir", Sys::Rmdir { at: self.here(0)? }),
            libc::SYS_unlink => ("unlink", Sys::Unlink { at: self.here(0)? }),
            libc::SYS_unlinkat if a[2] & libc::AT_REMOVEDIR as u64 != 0 => {
                ("unlinkat", Sys::Rmdir { at: self.at(0, 1)? })
            }
            libc::SYS_unlinkat => ("unlinkat", Sys::Unlink { at: self.at(0, 1)? }),
            libc::SYS_rename => ("rename", self.rename((self.here(0)?, self.here(1)?), 0)),
            libc::SYS_renameat => ("renameat", self.rename((self.at(0, 1)?, self.at(2, 3)?), 0)),
            libc::SYS_renameat2 => ("renameat2", self.rename((self.at(0, 1)?, self.at(2, 3)?), a[4] as u32)),
            libc::SYS_link => ("link", Sys::Link { from: self.path(0, false)?, at: self.here(1)? }),
            libc::SYS_linkat => ("linkat", self.linkat()?),
            libc::SYS_symlink => ("symlink", Sys::Symlink { text: self.t.string(a[0])?, at: self.here(1)? }),
            libc::SYS_symlinkat => {
                ("symlinkat", Sys::Symlink { text: self.t.string(a[0])?, at: self.at(1, 2)? })
            }
            _ => return Ok(None),
        }))
    }

    fn rename(&self, (from, to): (Place, Place), flags: u32) -> Sys {
        Sys::Rename { from, to, flags }
    }

    fn openat2(&self) -> io::Result<Sys> {
        let flags = self.t.word(self.a[2])? as i32;
        let resolve = self.t.word(self.a[2] + 16)?;
        let mut given = self.t.string(self.a[1])?;
        if resolve & RESOLVE_IN_ROOT != 0 {
            // The descriptor is the root, so "/x" is "x" below it.
            let text = given.to_string_lossy().trim_start_matches('/').to_owned();
            given = text.into();
        }
        Ok(Sys::Open { at: self.t.place_of(self.fd(0), given), flags })
    }

    fn linkat(&self) -> io::Result<Sys> {
        // linkat follows only on request, unlike the other calls.
        let mut flags = self.a[4] & libc::AT_EMPTY_PATH as u64;
        if self.a[4] & libc::AT_SYMLINK_FOLLOW as u64 == 0 {
            flags |= libc::AT_SYMLINK_NOFOLLOW as u64;
        }
        Ok(Sys::Link { from: self.target(0, 1, flags)?, at: self.at(2, 3)? })
    }

    /// Decodes calls on modes, owners, extended attributes, times.
    fn attributes(&self, number: i64) -> Found {
        let a = &self.a;
        let fd = Target::Fd(self.fd(0));
        Ok(Some(match number {
            libc::SYS_chmod => ("chmod", Sys::Chmod { on: self.path(0, true)? }),
            libc::SYS_fchmod => ("fchmod", Sys::Chmod { on: fd }),
            libc::SYS_fchmodat => ("fchmodat", Sys::Chmod { on: self.target(0, 1, 0)? }),
            SYS_FCHMODAT2 => ("fchmodat2", Sys::Chmod { on: self.target(0, 1, a[3])? }),
            libc::SYS_chown => ("chown", Sys::Chown { on: self.path(0, true)? }),
            libc::SYS_lchown => ("lchown", Sys::Chown { on: self.path(0, false)? }),
            libc::SYS_fchown => ("fchown", Sys::Chown { on: fd }),
            libc::SYS_fchownat => ("fchownat", Sys::Chown { on: self.target(0, 1, a[4])? }),
            libc::SYS_utimensat => ("utimensat", Sys::Utimes { on: self.target(0, 1, a[3])? }),
            libc::SYS_futimesat => ("futimesat", Sys::Utimes { on: self.target(0, 1, 0)? }),
            libc::SYS_utimes => ("utimes", Sys::Utimes { on: self.path(0, true)? }),
            libc::SYS_utime => ("utime", Sys::Utimes { on: self.path(0, true)? }),
            libc::SYS_setxattr => ("setxattr", self.xattr(self.path(0, true)?, true)?),
            libc::SYS_lsetxattr => ("lsetxattr", self.xattr(self.path(0, false)?, true)?),
            libc::SYS_fsetxattr => ("fsetxattr", self.xattr(fd, true)?),
            libc::SYS_removexattr => ("removexattr", self.xattr(self.path(0, true)?, false)?),
            libc::SYS_lremovexattr => ("lremovexattr", self.xattr(self.path(0, false)?, false)?),
            libc::SYS_fremovexattr => ("fremovexattr", self.xattr(fd, false)?),
            SYS_SETXATTRAT => ("setxattrat", self.xattrat(true)?),
            SYS_REMOVEXATTRAT => ("removexattrat", self.xattrat(false)?),
            _ => return Ok(None),
        }))
    }

    fn xattr(&self, on: Target, set: bool) -> io::Result<Sys> {
        let name = self.t.string(self.a[1])?;
        let value = match set {
            true => Some(self.t.bytes(self.a[2], self.a[3] as usize)?),
            false => None,
        };
        Ok(Sys::Xattr { on, name, value })
    }

    fn xattrat(&self, set: bool) -> io::Result<Sys> {
        let on = self.target(0, 1, self.a[2])?;
        let name = self.t.string(self.a[3])?;
        let value = match set {
            // struct xattr_args { u64 value; u32 size; u32 flags; }
            true => {
                let size = self.t.word(self.a[4] + 8)? & 0xffff_ffff;
                Some(self.t.bytes(self.t.word(self.a[4])?, size as usize)?)
            }
            false => None,
        };
        Ok(Sys::Xattr { on, name, value })
    }

    /// Returns true if the call reaches a disk: a write to a pipe does not, nor does an open that neither
    /// creates nor truncates.
    fn counts(&self, sys: &Sys) -> bool {
        let on = |target: &Target| match target {
            Target::Fd(fd) => self.t.fd_is_stored(*fd),
            Target::Path { .. } => true,
        };
        match sys {
            Sys::Write { fd, .. } | Sys::Copy { fd, .. } | Sys::Clone { fd, .. } => self.t.fd_is_stored(*fd),
            Sys::Allocate { fd, .. } => self.t.fd_is_stored(*fd),
            Sys::Truncate { on: target, .. } => on(target),
            Sys::Chmod { on: target } | Sys::Chown { on: target } | Sys::Utimes { on: target } => on(target),
            Sys::Xattr { on: target, .. } => on(target),
            Sys::Open { at, flags } => {
                let temporary = flags & libc::O_TMPFILE == libc::O_TMPFILE;
                let makes = flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
                // /dev/null and other devices are often opened this way.
                let odd = std::fs::metadata(&at.reach).is_ok_and(|m| !m.is_file());
                temporary || (makes && !odd)
            }
            _ => true,
        }
    }
}
