//! Access to a stopped thread: bytes of its memory, and the targets of its descriptors and paths, through
//! `/proc`.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// Longest path that the kernel accepts.
const PATH_MAX: usize = 4096;

/// Path as a program gave it, and as the tracer can reach it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) reach: PathBuf,
    pub(crate) given: OsString,
}

/// Content of `/proc/<tid>/fdinfo/<fd>`.
pub(crate) struct FdInfo {
    pub(crate) position: u64,
    pub(crate) flags: i32,
}

/// Thread stopped by the tracer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tracee(pub(crate) Pid);

impl Tracee {
    /// Reads `len` bytes of its memory at `at`; fails if any is unreadable.
    pub(crate) fn bytes(self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; len];
        let mut done = 0;
        while done < len {
            let base = usize::try_from(at).map_err(io::Error::other)? + done;
            let remote = RemoteIoVec { base, len: len - done };
            let mut local = [IoSliceMut::new(&mut data[done..])];
            match process_vm_readv(self.0, &mut local, &[remote])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => done += n,
            }
        }
        Ok(data)
    }

    pub(crate) fn word(self, at: u64) -> io::Result<u64> {
        let bytes = self.bytes(at, 8)?;
        let mut word = [0; 8];
        word.copy_from_slice(&bytes);
        Ok(u64::from_ne_bytes(word))
    }

    /// Reads a NUL-terminated string page by page, because the page after it may be unmapped.
    pub(crate) fn string(self, at: u64) -> io::Result<OsString> {
        let mut text = Vec::new();
        while text.len() <= PATH_MAX {
            let next = at + text.len() as u64;
            let room = 4096 - (next % 4096) as usize;
            let chunk = self.bytes(next, room)?;
            if let Some(end) = chunk.iter().position(|b| *b == 0) {
                text.extend_from_slice(&chunk[..end]);
                return Ok(OsString::from_vec(text));
            }
            text.extend_from_slice(&chunk);
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    /// Reads the bytes of a `struct iovec` array, at most `total`.
    pub(crate) fn gather(self, iov: u64, count: u64, total: usize) -> io::Result<Vec<u8>> {
        let mut data = Vec::with_capacity(total);
        for i in 0..count {
            let base = self.word(iov + i * 16)?;
            let len = usize::try_from(self.word(iov + i * 16 + 8)?).map_err(io::Error::other)?;
            let len = len.min(total - data.len());
            data.extend(self.bytes(base, len)?);
        }
        Ok(data)
    }

    /// Returns the magic link of a descriptor: stat and open follow it to the file itself, even without a
    /// name.
    pub(crate) fn fd(self, fd: i32) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{fd}", self.0))
    }

    /// Returns the path of a descriptor's file.
    pub(crate) fn fd_name(self, fd: i32) -> io::Result<PathBuf> {
        std::fs::read_link(self.fd(fd)).map(|p| undeleted(&p))
    }

    /// Returns true if a descriptor is a file or folder of a file system (not a pipe, socket, terminal or
    /// memory file).
    pub(crate) fn fd_is_stored(self, fd: i32) -> bool {
        let Ok(meta) = std::fs::metadata(self.fd(fd)) else {
            return false;
        };
        let anonymous =
            std::fs::read_link(self.fd(fd)).is_ok_and(|p| p.as_os_str().as_bytes().starts_with(b"/memfd:"));
        stored(meta.file_type()) && !anonymous
    }

    pub(crate) fn fd_is_socket(self, fd: i32) -> bool {
        std::fs::metadata(self.fd(fd)).is_ok_and(|meta| meta.file_type().is_socket())
    }

    pub(crate) fn fd_info(self, fd: i32) -> io::Result<FdInfo> {
        let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.0))?;
        let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
        let position = field("pos:").and_then(|v| v.parse().ok());
        let flags = field("flags:").and_then(|v| i32::from_str_radix(v, 8).ok());
        match (position, flags) {
            (Some(position), Some(flags)) => Ok(FdInfo { position, flags }),
            _ => Err(io::Error::other("cannot read fdinfo")),
        }
    }

    /// Reads the path at `at`, relative to `dirfd` (or to the working directory).
    pub(crate) fn place(self, dirfd: i32, at: u64) -> io::Result<Place> {
        Ok(self.place_of(dirfd, self.string(at)?))
    }

    pub(crate) fn place_of(self, dirfd: i32, given: OsString) -> Place {
        let path = Path::new(&given);
        let reach = if path.is_absolute() {
            self.own_proc(path)
        } else if dirfd == nix::libc::AT_FDCWD {
            PathBuf::from(format!("/proc/{}/cwd", self.0)).join(path)
        } else {
            self.fd(dirfd).join(path)
        };
        Place { reach, given }
    }

    /// Replaces `/proc/self` by the tracee's folder, not the tracer's.
    fn own_proc(self, path: &Path) -> PathBuf {
        let own = PathBuf::from(format!("/proc/{}", self.0));
        for prefix in ["/proc/self", "/proc/thread-self"] {
            if let Ok(rest) = path.strip_prefix(prefix) {
                return own.join(rest);
            }
        }
        if let Ok(rest) = path.strip_prefix("/dev/fd") {
            return own.join("fd").join(rest);
        }
        match path.to_str() {
            Some("/dev/stdin") => self.fd(0),
            Some("/dev/stdout") => self.fd(1),
            Some("/dev/stderr") => self.fd(2),
            _ => path.to_path_buf(),
        }
    }
}

/// Returns true for regular files and folders; others have no state on disk.
fn stored(kind: std::fs::FileType) -> bool {
    let odd = kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device();
    (kind.is_file() || kind.is_dir()) && !odd
}

/// Removes the mark that `/proc` adds to unlinked files.
pub(crate) fn undeleted(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    PathBuf::from(OsStr::from_bytes(bytes))
}
