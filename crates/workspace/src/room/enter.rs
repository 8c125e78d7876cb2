//! Entering a room: the process that becomes the command makes the namespace, mounts the overlay, and calls `exec`.
//!
//! It must have one thread: the kernel lets no other enter a user namespace. So it is a process of its own, started for
//! this purpose, and no other code runs between `fork` and `exec`. It is killed at any point without a trace: the mounts
//! end with the namespace.

#![allow(
    clippy::disallowed_methods,
    reason = "this module starts the command of an attempt, and writes the reason of a refusal"
)]

use super::mounts::{Mounted, parse};
use super::spaces::Fitting;
use super::{REFUSED, RoomFolder, SOURCE, WORK, processes, spaces};
use crate::linux;
use rustix::fd::{AsFd, AsRawFd};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{Pid, PidfdFlags, getegid, geteuid, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};
use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Access of the command to the rest of the file system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Outside {
    /// As without a room.
    #[default]
    Real,
    /// Read-only, but for these folders, the project and the temporary folder.
    ReadOnly(Vec<PathBuf>),
}

/// Request to enter a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomEntry {
    /// Id of the attempt.
    pub attempt: String,
    /// Path of the project.
    pub project: PathBuf,
    /// Its room.
    pub room: RoomFolder,
    /// Current directory of the command.
    pub directory: PathBuf,
    /// Access to the rest of the file system.
    pub outside: Outside,
    /// The program and its arguments. Without any, the room is only tried out.
    pub command: Vec<OsString>,
}

/// Reason why a process could not enter a room.
#[derive(Debug)]
pub struct RoomRefused {
    /// Attempted operation.
    pub step: String,
    /// Error of the kernel.
    pub source: io::Error,
}

/// Step of entering, for users.
pub(super) type Failed = (&'static str, io::Error);

/// Step at which a command wants an access to the rest of the file system that no namespace of the room has, nor can get.
const OTHER_ACCESS: &str = "change the access to the rest of the file system while other commands of the attempt run; wait for them, \
     or give the same --outside and --writable";

/// Step at which a rollback of the layer was killed and not recovered.
const HALF_DONE: &str =
    "enter: a rollback of its files was interrupted; run `safepoint recover` in the project first";

/// Number of tries to join a process.
const JOINS_MAX: u32 = 100;
const JOIN_AGAIN: Duration = Duration::from_millis(2);

impl RoomEntry {
    /// Returns the words for the command line of the process that enters.
    pub fn to_words(&self) -> Vec<OsString> {
        let name = self.room.tree().file_name().map_or_else(OsString::new, OsString::from);
        let mut words: Vec<OsString> = vec![
            self.attempt.clone().into(),
            self.project.clone().into(),
            self.room.path().into(),
            name,
            self.directory.clone().into(),
        ];
        let writable = match &self.outside {
            Outside::Real => &[][..],
            Outside::ReadOnly(writable) => writable,
        };
        words.push(if self.outside == Outside::Real { "real" } else { "read-only" }.into());
        words.push(writable.len().to_string().into());
        words.extend(writable.iter().map(|path| path.clone().into()));
        words.extend(self.command.iter().cloned());
        words
    }

    /// Reads these words back.
    pub fn from_words(words: &[OsString]) -> Option<Self> {
        let [attempt, project, room, name, directory, outside, count, rest @ ..] = words else { return None };
        let count: usize = count.to_str()?.parse().ok()?;
        let (writable, command) = rest.split_at_checked(count)?;
        let outside = match outside.to_str()? {
            "real" => Outside::Real,
            _ => Outside::ReadOnly(writable.iter().map(PathBuf::from).collect()),
        };
        Some(Self {
            attempt: attempt.to_str()?.to_owned(),
            project: project.into(),
            room: RoomFolder::new(Path::new(room), name),
            directory: directory.into(),
            outside,
            command: command.to_vec(),
        })
    }
}

impl RoomRefused {
    /// Step at which the command itself could not be started.
    pub const RUN: &'static str = "run the command";

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (number, step) = text.trim_end().split_once(' ')?;
        Some(Self { step: step.to_owned(), source: io::Error::from_raw_os_error(number.parse().ok()?) })
    }
}

/// Enters a room and becomes the command. Returns if that fails, with the status for this process; the reason is left in the room.
///
/// # Panics
/// Never.
pub fn enter_room(entry: &RoomEntry) -> u8 {
    let refused = entry.room.path().join(REFUSED);
    let _ = fs::remove_file(&refused);
    let Err((step, error)) = enter(entry) else { return 0 };
    let number = error.raw_os_error().unwrap_or(libc::EIO);
    let _ = fs::write(&refused, format!("{number} {step}\n"));
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

fn enter(entry: &RoomEntry) -> Result<(), Failed> {
    // Held until `exec` closes it, so that the next process finds this one in the room.
    let lock = entry.room.lock().map_err(|error| ("lock the room", error))?;
    // It may have been closed since the command began.
    if entry.room.is_closed() {
        return Err(("go on: it was kept or dropped", io::Error::from_raw_os_error(libc::ESTALE)));
    }
    if entry.room.has_staged_layers() {
        return Err((HALF_DONE, io::Error::from_raw_os_error(libc::EBUSY)));
    }
    make_or_join(entry)?;
    if entry.command.is_empty() {
        return Ok(());
    }
    std::env::set_current_dir(&entry.directory).map_err(|error| ("enter the directory", error))?;
    let mut command = Command::new(&entry.command[0]);
    command.args(&entry.command[1..]);
    let failed = command.exec();
    drop(lock);
    Err((RoomRefused::RUN, failed))
}

/// Makes the namespaces of a room, or joins those of a process in it. One that ends just then is looked for again.
fn make_or_join(entry: &RoomEntry) -> Result<(), Failed> {
    for tries_left in (0..JOINS_MAX).rev() {
        let inside = processes::room_processes(&|attempt| attempt == entry.attempt);
        if inside.is_empty() {
            make(entry)?;
            return spaces::begin(entry);
        }
        let pids: Vec<i32> = inside.iter().map(|(_, process)| process.pid).collect();
        let fitting = spaces::fitting(entry, &pids)
            .ok_or_else(|| (OTHER_ACCESS, io::Error::from_raw_os_error(libc::EBUSY)));
        let joined = fitting.and_then(|fitting| join(fitting.pid).map(|()| fitting));
        match joined {
            Ok(Fitting { is_to_be_closed: true, .. }) => return narrow(entry),
            Ok(_) => return Ok(()),
            Err((_, error)) if tries_left > 0 && has_ended(&error) => sleep(JOIN_AGAIN),
            Err(failed) => return Err(failed),
        }
    }
    Ok(())
}

/// Returns true for the errors of a process that is gone.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Makes the rest of the file system read-only for this process alone: the others stay in the namespace that it joined.
fn narrow(entry: &RoomEntry) -> Result<(), Failed> {
    let Outside::ReadOnly(writable) = &entry.outside else { return Ok(()) };
    unshare(UnshareFlags::NEWNS).map_err(|error| ("make a namespace with a read-only file system", error))?;
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|error| ("separate the mounts", error.into()))?;
    close_outside(entry, writable)?;
    spaces::note(entry)
}

/// Joins the namespaces of a process that is in the room.
fn join(pid: i32) -> Result<(), Failed> {
    let failed = |error: io::Error| ("join the other processes of the attempt", error);
    let number = Pid::from_raw(pid).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let process = pidfd_open(number, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
    let user = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).map_err(failed);
    let mut spaces = ThreadNameSpaceType::MOUNT;
    if user("self")? != user(&pid.to_string())? {
        spaces |= ThreadNameSpaceType::USER;
    }
    move_into_thread_name_spaces(process.as_fd(), spaces).map_err(|error| failed(error.into()))
}

/// Makes the namespaces and the mounts of a room.
fn make(entry: &RoomEntry) -> Result<(), Failed> {
    let private = separate()?;
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|error| ("separate the mounts", error.into()))?;
    let open =
        |path: &Path| linux::open_folder(path).map_err(|error| ("open the folders of the room", error));
    let (lower, upper) = (open(&entry.project)?, open(&entry.room.layer())?);
    let work = open(&entry.room.path().join(WORK))?;
    // Paths of any length and with any letters: the kernel looks them up through the open folders.
    let through = |fd: &rustix::fd::OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    // An ordinary user gets whole files and no redirects in any case; the kernel refuses the other options beside this one.
    let features = if private { "userxattr" } else { "redirect_dir=off,metacopy=off,index=off" };
    let options = format!(
        "lowerdir={},upperdir={},workdir={},{features}",
        through(&lower),
        through(&upper),
        through(&work)
    );
    let failed = |error: io::Error| ("mount the overlay", error);
    let options = CString::new(options).map_err(|error| failed(io::Error::other(error)))?;
    let source = format!("{SOURCE}{}", entry.attempt);
    let tree = entry.room.tree();
    mount(source.as_str(), &tree, "overlay", MountFlags::empty(), options.as_c_str())
        .map_err(|error| failed(error.into()))?;
    mount_bind(&tree, &entry.project).map_err(|error| failed(error.into()))?;
    match &entry.outside {
        Outside::Real => Ok(()),
        Outside::ReadOnly(writable) => close_outside(entry, writable),
    }
}

/// Moves this process into a mount namespace of its own. Returns true if that needed a user namespace.
fn separate() -> Result<bool, Failed> {
    if unshare(UnshareFlags::NEWNS).is_ok() {
        return Ok(false);
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
        .map_err(|error| ("make a namespace: the kernel or a security policy forbids it", error))?;
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| ("map the user", error))
    };
    map("uid_map", format!("{user} {user} 1\n"))?;
    map("setgroups", "deny".to_owned())?;
    map("gid_map", format!("{group} {group} 1\n"))?;
    Ok(true)
}

/// Only the table of open files must not be separated while other threads use it; it is not.
#[allow(deprecated, reason = "the other function is unsafe for a flag that is never used here")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

/// Mounts that stay as they are: devices and processes are no files.
const NO_FILES: [&str; 2] = ["/proc", "/dev"];

/// Makes everything read-only but the room, the project and the folders that are named.
fn close_outside(entry: &RoomEntry, writable: &[PathBuf]) -> Result<(), Failed> {
    let failed = |error: rustix::io::Errno| ("make the rest of the file system read-only", error.into());
    let mut open: Vec<&Path> = writable.iter().map(PathBuf::as_path).collect();
    open.push(entry.room.path());
    for path in open.iter().filter(|path| path.is_dir()) {
        // A mount of its own keeps its rights.
        mount_bind_recursive(*path, *path).map_err(failed)?;
    }
    // The room hides its own overlay below it again.
    mount_bind(&entry.project, entry.room.tree()).map_err(failed)?;
    let tmp = Path::new("/tmp");
    let shared = open.iter().copied().chain([entry.project.as_path()]).any(|path| path.starts_with(tmp));
    if !shared && tmp.is_dir() {
        mount_bind(entry.room.tmp(), tmp).map_err(failed)?;
        open.push(tmp);
    }
    open.push(&entry.project);
    let table = fs::read("/proc/self/mountinfo").map_err(|error| ("read the mounts", error))?;
    for mounted in parse(&table) {
        let point = mounted.point.as_path();
        let stays = open.iter().any(|path| point.starts_with(path))
            || NO_FILES.iter().any(|path| point.starts_with(path));
        if !stays {
            let flags = flags_of(&mounted) | MountFlags::BIND | MountFlags::RDONLY;
            match mount_remount(point, flags, c"") {
                // Another mount hides it.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL | rustix::io::Errno::ACCESS) => {}
                other => other.map_err(failed)?,
            }
        }
    }
    Ok(())
}

/// Returns the flags that a remount must repeat: a user namespace may not clear them.
fn flags_of(mounted: &Mounted) -> MountFlags {
    let known = [
        ("nosuid", MountFlags::NOSUID),
        ("nodev", MountFlags::NODEV),
        ("noexec", MountFlags::NOEXEC),
        ("noatime", MountFlags::NOATIME),
        ("nodiratime", MountFlags::NODIRATIME),
        ("relatime", MountFlags::RELATIME),
    ];
    let has = |name: &str| mounted.options.split(',').any(|option| option == name);
    known.into_iter().filter(|(name, _)| has(name)).fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_reads_back_and_nonsense_does_not() {
        let reason = RoomRefused::parse(b"13 mount the overlay\n").unwrap();
        assert_eq!((reason.step.as_str(), reason.source.raw_os_error()), ("mount the overlay", Some(13)));
        assert!(RoomRefused::parse(b"mount").is_none() && RoomRefused::parse(b"\xff 1").is_none());
    }
}
