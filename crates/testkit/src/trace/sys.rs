//! Decoded state-changing system call, and its description for people.

use std::ffi::OsString;
use std::fmt::Write as _;

use super::tracee::{Place, Tracee};

/// Target of a call.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Fd(i32),
    Path { place: Place, follow: bool },
}

/// Location of the bytes of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bytes {
    Flat { at: u64 },
    Vector { at: u64, count: u64 },
}

/// State-changing system call.
#[derive(Debug, Clone)]
pub(crate) enum Sys {
    /// `sync`: the call itself requests durable data (`RWF_DSYNC`).
    Write {
        fd: i32,
        bytes: Bytes,
        offset: Option<u64>,
        sync: bool,
    },
    /// `copy_file_range`, `splice`, `sendfile`; `None` uses the descriptor's offset.
    Copy {
        fd: i32,
        offset: Option<u64>,
    },
    /// `FICLONE`, or a range `(offset, length)`.
    Clone {
        fd: i32,
        range: Option<(u64, u64)>,
    },
    Open {
        at: Place,
        flags: i32,
    },
    Mkdir {
        at: Place,
    },
    Mknod {
        at: Place,
    },
    Symlink {
        text: OsString,
        at: Place,
    },
    Link {
        from: Target,
        at: Place,
    },
    Unlink {
        at: Place,
    },
    Rmdir {
        at: Place,
    },
    Rename {
        from: Place,
        to: Place,
        flags: u32,
    },
    Truncate {
        on: Target,
        len: u64,
    },
    Allocate {
        fd: i32,
        mode: i32,
    },
    Chmod {
        on: Target,
    },
    Chown {
        on: Target,
    },
    Xattr {
        on: Target,
        name: OsString,
        value: Option<Vec<u8>>,
    },
    Utimes {
        on: Target,
    },
    Fsync {
        fd: i32,
    },
    Fdatasync {
        fd: i32,
    },
    Syncfs {
        fd: i32,
    },
    Sync,
    /// Bytes to a socket; counted only on request.
    Send {
        fd: i32,
    },
    /// Counted, but gives no guarantee: `sync_file_range`, `msync`.
    Flush,
}

impl Sys {
    /// Formats the arguments that help to find the call in the source.
    pub(crate) fn detail(&self, t: Tracee) -> String {
        let fd = |n: &i32| match t.fd_name(*n) {
            Ok(path) => format!("{:?}", path),
            Err(_) => format!("fd {n}"),
        };
        let on = |target: &Target| match target {
            Target::Fd(n) => fd(n),
            Target::Path { place, .. } => format!("{:?}", place.given),
        };
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = match self {
            Sys::Write { fd: n, offset: Some(at), .. } => write!(text, "{}, at {at}", fd(n)),
            Sys::Write { fd: n, .. }
            | Sys::Copy { fd: n, .. }
            | Sys::Clone { fd: n, .. }
            | Sys::Send { fd: n } => {
                write!(text, "{}", fd(n))
            }
            Sys::Open { at, flags } => write!(text, "{:?}, {}", at.given, open_flags(*flags)),
            Sys::Mkdir { at } | Sys::Mknod { at } | Sys::Unlink { at } | Sys::Rmdir { at } => {
                write!(text, "{:?}", at.given)
            }
            Sys::Symlink { text: to, at } => write!(text, "{to:?} <- {:?}", at.given),
            Sys::Link { from, at } => write!(text, "{} -> {:?}", on(from), at.given),
            Sys::Rename { from, to, flags } => {
                write!(text, "{:?} -> {:?}{}", from.given, to.given, rename_flags(*flags))
            }
            Sys::Truncate { on: target, len } => write!(text, "{}, {len}", on(target)),
            Sys::Allocate { fd: n, mode } => write!(text, "{}, mode {mode}", fd(n)),
            Sys::Chmod { on: target } | Sys::Chown { on: target } | Sys::Utimes { on: target } => {
                write!(text, "{}", on(target))
            }
            Sys::Xattr { on: target, name, .. } => write!(text, "{}, {name:?}", on(target)),
            Sys::Fsync { fd: n } | Sys::Fdatasync { fd: n } | Sys::Syncfs { fd: n } => {
                write!(text, "{}", fd(n))
            }
            Sys::Sync | Sys::Flush => Ok(()),
        };
        text
    }
}

fn open_flags(flags: i32) -> String {
    use nix::libc::{O_CREAT, O_EXCL, O_TMPFILE, O_TRUNC};
    let names = [(O_CREAT, "CREAT"), (O_EXCL, "EXCL"), (O_TRUNC, "TRUNC"), (O_TMPFILE, "TMPFILE")];
    let set = names.iter().filter(|(bit, _)| flags & bit == *bit);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

fn rename_flags(flags: u32) -> &'static str {
    match flags {
        nix::libc::RENAME_EXCHANGE => ", EXCHANGE",
        nix::libc::RENAME_NOREPLACE => ", NOREPLACE",
        _ => "",
    }
}
