//! Recording: from a program and folders (`roots`) to a [`Recording`] of every change it made to them.
//!
//! Only successful calls are recorded, in order. Files are identified by device and inode number, looked up
//! through `/proc` while the thread is stopped; a create starts a new generation, because numbers are reused.
//! Paths outside the roots are left out, and so are files named `*-shm`: SQLite writes them through memory,
//! unseen, and rebuilds them.
//!
//! Not seen: writes through shared mappings, io_uring, owners, device nodes.

mod before;
mod known;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::libc;

use crate::op::{Change, FileId, Op, Recording, Slot};
use crate::trace::sys::{Bytes, Sys};
use crate::trace::tracee::Tracee;
use crate::trace::{Action, Call, Program, Watch, watch};
use before::{Before, Seen};
use known::Known;
pub(crate) use known::{is_skipped, merged_roots};

/// Runs a program to its end and records its changes to `roots`. Load the [`crate::Disk`] first: the
/// recording starts from the current state.
pub fn record(p: &Program, roots: &[PathBuf]) -> io::Result<Recording> {
    let known = Known::load(&merged_roots(roots)?)?;
    let mut recorder = Recorder { known, ops: Vec::new(), before: Before::Nothing };
    let end = watch(p, &mut recorder)?;
    Ok(Recording { ops: recorder.ops, end })
}

struct Recorder {
    known: Known,
    ops: Vec<Op>,
    /// Calls run one at a time, so one is enough.
    before: Before,
}

impl Watch for Recorder {
    fn entry(&mut self, tracee: Tracee, _: &Call, sys: &Sys) -> io::Result<Action> {
        self.before = Before::look(&self.known, tracee, sys);
        Ok(Action::Go)
    }

    fn exit(&mut self, tracee: Tracee, call: &Call, sys: &Sys, result: i64) -> io::Result<()> {
        let before = std::mem::replace(&mut self.before, Before::Nothing);
        if result < 0 {
            return Ok(());
        }
        let at = |e: io::Error| io::Error::new(e.kind(), format!("recording {call}: {e}"));
        self.done(tracee, sys, before, result.cast_unsigned()).map_err(at)
    }
}

impl Recorder {
    fn done(&mut self, t: Tracee, sys: &Sys, before: Before, result: u64) -> io::Result<()> {
        match (sys, before) {
            (_, Before::Outside) | (Sys::Flush | Sys::Send { .. } | Sys::Chown { .. }, _) => {}
            (_, Before::Target(seen)) => return self.on_file(t, sys, &seen, result),
            (Sys::Open { flags, .. }, Before::Open { existed, truncates }) => {
                let fd = i32::try_from(result).map_err(io::Error::other)?;
                match existed {
                    true if truncates => self.emptied(t, fd)?,
                    true => {}
                    false => self.created(t, fd, *flags)?,
                }
            }
            (Sys::Syncfs { fd }, _) => {
                let dev = fs::metadata(t.fd(*fd))?.dev();
                let path = t.fd_name(*fd)?;
                self.ops.push(Op::Syncfs { dev, path });
            }
            (Sys::Sync, _) => self.ops.push(Op::Sync),
            (_, before) => return self.named(sys, before),
        }
        Ok(())
    }

    /// Records calls on content or attributes of a file, and its syncs.
    fn on_file(&mut self, t: Tracee, sys: &Sys, seen: &Seen, result: u64) -> io::Result<()> {
        let (file, path) = (seen.file, seen.path.clone());
        match sys {
            Sys::Write { .. } => self.written(t, sys, seen, result)?,
            Sys::Copy { fd, offset } => {
                let info = t.fd_info(*fd)?;
                let start = offset.unwrap_or(info.position.saturating_sub(result));
                let data = read_range(&t.fd(*fd), start, result)?;
                self.wrote(seen, start, data, info.flags & libc::O_DSYNC != 0);
            }
            Sys::Clone { fd, range } => {
                let (start, len) = match *range {
                    Some((start, len)) if len > 0 => (start, len),
                    Some((start, _)) => (start, u64::MAX),
                    None => (0, u64::MAX),
                };
                let data = read_range(&t.fd(*fd), start, len)?;
                self.wrote(seen, start, data, false);
            }
            Sys::Truncate { len, .. } => self.change(seen, Change::Truncate { len: *len }),
            Sys::Allocate { mode, .. } => self.allocated(seen, *mode)?,
            Sys::Fsync { .. } => self.ops.push(Op::Fsync { file, path }),
            Sys::Fdatasync { .. } => self.ops.push(Op::Fdatasync { file, path }),
            _ => self.attribute(seen, sys)?,
        }
        Ok(())
    }

    fn written(&mut self, t: Tracee, sys: &Sys, seen: &Seen, result: u64) -> io::Result<()> {
        let Sys::Write { fd, bytes, offset, sync } = sys else {
            return Ok(());
        };
        let info = t.fd_info(*fd)?;
        let len = usize::try_from(result).map_err(io::Error::other)?;
        let data = match *bytes {
            Bytes::Flat { at } => t.bytes(at, len)?,
            Bytes::Vector { at, count } => t.gather(at, count, len)?,
        };
        let offset = match *offset {
            // Linux ignores the offset of a pwrite with O_APPEND.
            Some(_) if info.flags & libc::O_APPEND != 0 => seen.len,
            Some(offset) => offset,
            None => info.position.saturating_sub(result),
        };
        let sync = *sync || info.flags & libc::O_DSYNC != 0;
        self.wrote(seen, offset, data, sync);
        Ok(())
    }

    fn change(&mut self, seen: &Seen, change: Change) {
        self.ops.push(Op::Inode { file: seen.file, path: seen.path.clone(), change });
    }

    fn wrote(&mut self, seen: &Seen, offset: u64, data: Vec<u8>, sync: bool) {
        if !data.is_empty() {
            self.change(seen, Change::Write { offset, data: data.into() });
        }
        if sync {
            self.ops.push(Op::Fdatasync { file: seen.file, path: seen.path.clone() });
        }
    }

    fn emptied(&mut self, t: Tracee, fd: i32) -> io::Result<()> {
        let path = t.fd_name(fd)?;
        if let Some(file) = self.known.file(&fs::metadata(t.fd(fd))?, &path) {
            let change = Change::Truncate { len: 0 };
            self.ops.push(Op::Inode { file, path, change });
        }
        Ok(())
    }

    /// The descriptor identifies the opened file, even through symlinks.
    fn created(&mut self, t: Tracee, fd: i32, flags: i32) -> io::Result<()> {
        let meta = fs::metadata(t.fd(fd))?;
        let path = t.fd_name(fd)?;
        let mode = meta.mode() & 0o7777;
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            if self.known.covers(&path) {
                let file = self.known.born(&meta);
                self.ops.push(Op::Orphan { file, mode });
            }
        } else if let Some(at) = self.known.slot(&path)? {
            let file = self.known.born(&meta);
            self.ops.push(Op::Create { at, file, mode });
        } else {
            self.known.forget(&meta);
        }
        Ok(())
    }

    fn allocated(&mut self, seen: &Seen, mode: i32) -> io::Result<()> {
        let len = fs::metadata(&seen.reach)?.len();
        let kept = mode & !libc::FALLOC_FL_KEEP_SIZE == 0;
        if len != seen.len {
            self.change(seen, Change::Truncate { len });
        }
        if !kept {
            // Punched, zeroed, collapsed: rare, so the whole file is read again.
            let data = read_range(&seen.reach, 0, u64::MAX)?;
            self.wrote(seen, 0, data, false);
        }
        Ok(())
    }

    fn attribute(&mut self, seen: &Seen, sys: &Sys) -> io::Result<()> {
        let meta = seen.metadata()?;
        let change = match sys {
            Sys::Chmod { .. } => Change::Mode(meta.mode() & 0o7777),
            Sys::Utimes { .. } => Change::Mtime(meta.mtime(), meta.mtime_nsec()),
            // An access list sets the permission bits too; cp -a uses it.
            Sys::Xattr { name, .. } if name == "system.posix_acl_access" => {
                Change::Mode(meta.mode() & 0o7777)
            }
            Sys::Xattr { name, value, .. } => {
                if !name.as_encoded_bytes().starts_with(b"user.") {
                    return Ok(());
                }
                match value.clone() {
                    Some(value) => Change::SetXattr { name: name.clone(), value },
                    None => Change::RemoveXattr { name: name.clone() },
                }
            }
            _ => return Ok(()),
        };
        self.change(seen, change);
        Ok(())
    }

    /// Records calls on names other than open.
    fn named(&mut self, sys: &Sys, before: Before) -> io::Result<()> {
        match (sys, before) {
            (Sys::Mkdir { .. } | Sys::Mknod { .. } | Sys::Symlink { .. }, Before::Slot(at)) => {
                let meta = fs::symlink_metadata(&at.path)?;
                let (file, mode) = (self.known.born(&meta), meta.mode() & 0o7777);
                match sys {
                    Sys::Mkdir { .. } => self.ops.push(Op::Mkdir { at, dir: file, mode }),
                    Sys::Symlink { text, .. } => {
                        self.ops.push(Op::Symlink { at, file, target: text.into() });
                    }
                    _ if meta.is_file() => self.ops.push(Op::Create { at, file, mode }),
                    _ => return Err(unmodelled("a device node or pipe")),
                }
            }
            (Sys::Link { .. }, Before::Linked { at, file }) => match file {
                Some(file) => self.ops.push(Op::Link { at, file }),
                None => self.import(at)?,
            },
            (Sys::Unlink { .. }, Before::Slot(at)) => self.ops.push(Op::Unlink { at }),
            (Sys::Rmdir { .. }, Before::Slot(at)) => self.ops.push(Op::Rmdir { at }),
            (Sys::Rename { flags, .. }, Before::Renamed { from, to, same }) => {
                if !same {
                    self.renamed(from, to, *flags)?;
                }
            }
            (_, before) => return Err(io::Error::other(format!("not resolved: {before:?}"))),
        }
        Ok(())
    }

    fn renamed(&mut self, from: Option<Slot>, to: Option<Slot>, flags: u32) -> io::Result<()> {
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        match (from, to) {
            (Some(a), Some(b)) if exchange => self.ops.push(Op::Exchange { a, b }),
            (Some(from), Some(to)) => self.ops.push(Op::Rename { from, to }),
            (None, None) => {}
            _ if exchange => return Err(unmodelled("an exchange with an outside path")),
            (Some(at), None) => self.ops.push(Op::Unlink { at }),
            (None, Some(to)) => self.import(to)?,
        }
        Ok(())
    }

    /// Records a file from outside the roots as new, with all its data.
    fn import(&mut self, at: Slot) -> io::Result<()> {
        let meta = fs::symlink_metadata(&at.path)?;
        let path = at.path.clone();
        if !meta.is_file() {
            return Err(unmodelled("a folder or symlink moved in from outside"));
        }
        let file = self.known.born(&meta);
        let data = fs::read(&path)?;
        self.ops.push(Op::Create { at, file, mode: meta.mode() & 0o7777 });
        let change = Change::Write { offset: 0, data: data.into() };
        self.ops.push(Op::Inode { file, path, change });
        Ok(())
    }
}

fn unmodelled(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("cannot record {what}"))
}

/// Reads up to `len` bytes of a file from `start`.
fn read_range(path: &Path, start: u64, len: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let len = len.min(file.metadata()?.len().saturating_sub(start));
    let mut data = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut data, start)?;
    Ok(data)
}

/// Returns the identity of an entry present at the start.
pub(crate) fn first_id(meta: &fs::Metadata) -> FileId {
    FileId { dev: meta.dev(), ino: meta.ino(), generation: 0 }
}
