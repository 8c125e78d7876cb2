//! State to read before a call, because it is lost afterwards: from a decoded call to the files it will act
//! on.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::libc;

use super::known::Known;
use crate::op::{FileId, Slot};
use crate::trace::sys::{Sys, Target};
use crate::trace::tracee::{Tracee, undeleted};

/// File of the model that a call acts on.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) file: FileId,
    /// Real path.
    pub(crate) path: PathBuf,
    /// Path through which the tracer can reach it.
    pub(crate) reach: PathBuf,
    follow: bool,
    /// Length before the call.
    pub(crate) len: u64,
}

impl Seen {
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        stat(&self.reach, self.follow)
    }
}

/// State before a call.
#[derive(Debug)]
pub(crate) enum Before {
    /// Not found: the call must fail, or the recording does.
    Nothing,
    /// Outside the roots.
    Outside,
    Target(Seen),
    Open {
        existed: bool,
        truncates: bool,
    },
    Slot(Slot),
    Linked {
        at: Slot,
        file: Option<FileId>,
    },
    /// `same`: both are already one file, and nothing happens.
    Renamed {
        from: Option<Slot>,
        to: Option<Slot>,
        same: bool,
    },
}

impl Before {
    pub(crate) fn look(known: &Known, t: Tracee, sys: &Sys) -> Before {
        let found = match sys {
            Sys::Write { fd, .. }
            | Sys::Copy { fd, .. }
            | Sys::Clone { fd, .. }
            | Sys::Allocate { fd, .. }
            | Sys::Fsync { fd }
            | Sys::Fdatasync { fd } => target(known, t, &Target::Fd(*fd)),
            Sys::Truncate { on, .. }
            | Sys::Chmod { on }
            | Sys::Chown { on }
            | Sys::Utimes { on }
            | Sys::Xattr { on, .. } => target(known, t, on),
            Sys::Open { at, flags } => Ok(open(&at.reach, *flags)),
            Sys::Mkdir { at } | Sys::Mknod { at } | Sys::Symlink { at, .. } => slot(known, &at.reach),
            Sys::Unlink { at } | Sys::Rmdir { at } => slot(known, &at.reach),
            Sys::Link { from, at } => link(known, t, from, &at.reach),
            Sys::Rename { from, to, .. } => rename(known, &from.reach, &to.reach),
            Sys::Syncfs { .. } | Sys::Sync | Sys::Flush | Sys::Send { .. } => Ok(Before::Nothing),
        };
        found.unwrap_or(Before::Nothing)
    }
}

fn stat(path: &Path, follow: bool) -> io::Result<Metadata> {
    match follow {
        true => fs::metadata(path),
        false => fs::symlink_metadata(path),
    }
}

/// Returns the real path of a path's target. Links in `/proc/<pid>/fd` are read, not resolved: the target may
/// have no name.
fn real_name(path: &Path, follow: bool) -> io::Result<PathBuf> {
    if follow && path.starts_with("/proc") && path.parent().is_some_and(|p| p.ends_with("fd")) {
        return fs::read_link(path).map(|p| undeleted(&p));
    }
    if follow {
        return fs::canonicalize(path);
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => fs::canonicalize(path),
    }
}

fn target(known: &Known, t: Tracee, on: &Target) -> io::Result<Before> {
    let (reach, follow) = match on {
        Target::Fd(fd) => (t.fd(*fd), true),
        Target::Path { place, follow } => (place.reach.clone(), *follow),
    };
    let meta = stat(&reach, follow)?;
    let path = real_name(&reach, follow)?;
    Ok(match known.file(&meta, &path) {
        Some(file) => Before::Target(Seen { file, path, reach, follow, len: meta.len() }),
        None => Before::Outside,
    })
}

fn open(reach: &Path, flags: i32) -> Before {
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return Before::Open { existed: false, truncates: false };
    }
    let exclusive = libc::O_CREAT | libc::O_EXCL;
    let follow = flags & libc::O_NOFOLLOW == 0 && flags & exclusive != exclusive;
    let meta = stat(reach, follow);
    let truncates = flags & libc::O_TRUNC != 0 && meta.as_ref().is_ok_and(|m| m.is_file() && m.len() > 0);
    Before::Open { existed: meta.is_ok(), truncates }
}

fn slot(known: &Known, reach: &Path) -> io::Result<Before> {
    Ok(known.slot(reach)?.map_or(Before::Outside, Before::Slot))
}

fn link(known: &Known, t: Tracee, from: &Target, at: &Path) -> io::Result<Before> {
    let Some(at) = known.slot(at)? else {
        return Ok(Before::Outside);
    };
    let file = match target(known, t, from)? {
        Before::Target(seen) => Some(seen.file),
        _ => None,
    };
    Ok(Before::Linked { at, file })
}

fn rename(known: &Known, from: &Path, to: &Path) -> io::Result<Before> {
    let id = |m: Metadata| (m.dev(), m.ino());
    let source = fs::symlink_metadata(from).map(id)?;
    let same = fs::symlink_metadata(to).map(id).is_ok_and(|target| target == source);
    Ok(Before::Renamed { from: known.slot(from)?, to: known.slot(to)?, same })
}
