//! Safepoint's home: the store, catalog, configuration and stat caches. Private to its owner.

#![allow(clippy::disallowed_methods, reason = "this module owns the home folder")]

use crate::Error;
use crate::config::{CONFIG_BYTES_MAX, ConfigFile};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    Access as Right, AtFlags, CWD, Dir, FileType, FlockOperation, Gid, Mode, OFlags, ResolveFlags, Stat, Uid,
    flock, fstat, renameat, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use safepoint_model::{CheckpointId, ObjectId, ObjectKind, WorkspaceId};
use safepoint_workspace::{
    CacheHead, CacheWriter, NextCache, SmallFile, StatCache, What, is_made_up, remove_tree,
};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Access to a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Write access. A home that is read-only or not ours is refused.
    #[default]
    Write,
    /// Read access. A writable home is recovered as usual; in any other, nothing is written.
    Read,
    /// Read access that writes nothing, even to a writable home.
    ReadOnly,
}

/// Owners whose home may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HomeOwner {
    /// The current user.
    #[default]
    User,
    /// Any owner, such as that of a container volume.
    Anybody,
}

/// Folder of plan sandboxes.
const SANDBOXES: &str = "sandboxes";
/// Folder of stat caches.
const CACHE: &str = "cache";
/// Folder of plan locks.
const RUNS: &str = "runs";

/// Lock mode of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Exclusive.
    Alone,
    /// Shared with others.
    WithOthers,
}

/// Lock on a plan, held until drop.
#[derive(Debug)]
pub(crate) struct PlanLock {
    file: fs::File,
}

impl Drop for PlanLock {
    fn drop(&mut self) {
        // Closing is not enough: a child of another thread holds a copy of the open file until its `exec`.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Maximum size of the output of a running step that others can read.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Output of a step while it runs, for other processes. The file is deleted on drop.
#[derive(Debug)]
pub(crate) struct LiveOutput {
    file: File,
    home: Arc<OwnedFd>,
    name: PathBuf,
    left: usize,
}

impl LiveOutput {
    /// Appends output, up to the maximum. A step does not fail for it.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.left)];
        if self.file.write_all(bytes).is_ok() {
            self.left -= bytes.len();
        }
    }
}

impl Drop for LiveOutput {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.home, &self.name, AtFlags::empty());
    }
}

/// Name of the file in the home. The path of a step may be long and has slashes.
fn output_name(plan: &str, step: &str) -> PathBuf {
    let hash = ObjectId::of(ObjectKind::Document, step.as_bytes());
    Path::new(RUNS).join(format!("{plan}.{hash}.out"))
}

/// Folder of packs until they are published.
const OUTBOX: &str = "outbox";

/// Folder of the rooms of attempts.
const ATTEMPTS: &str = "attempts";
/// Name prefix of a room outside the home.
const ROOM_BESIDE: &str = ".safepoint-attempt-";
/// Folders that the usage of the home does not count.
const APART: [&str; 3] = [SANDBOXES, SCRATCH, ATTEMPTS];

/// Length of a file with the number of a turn.
const NUMBER_BYTES: usize = 21;

fn last_turn_name(workspace: WorkspaceId) -> PathBuf {
    Path::new(RUNS).join(format!("turns.{workspace}.last"))
}

/// Folder of temporary folders.
const SCRATCH: &str = "scratch";

/// Name prefix of a scratch folder outside the home, and the note in the home with its path.
const BESIDE: &str = ".safepoint-search-";
const BESIDE_NOTE: &str = "beside";
const NOTE_BYTES_MAX: u64 = 4096;
/// Retries when a scratch folder is swept before it is locked.
const SCRATCH_TRIES: u32 = 32;

/// Temporary folder, deleted on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// The actual folder, if it is outside the home.
    beside: Option<PathBuf>,
    _lock: fs::File,
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        self.beside.as_ref().unwrap_or(&self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next command deletes the rest.
        let gone = self.beside.as_ref().is_none_or(|beside| remove_tree(beside).is_ok());
        if gone {
            let _ = remove_tree(&self.path);
        }
    }
}

/// Folder of an attempt that is being made.
#[derive(Debug)]
pub(crate) struct RoomDraft {
    path: PathBuf,
    _lock: fs::File,
}

impl RoomDraft {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Deletes a scratch folder of a dead process, and the folder outside the home that its note names. The note
/// is trusted only if that folder has the matching name.
fn sweep_one(path: &Path, held: &File, name: &str) {
    let note = open_below(held.as_fd(), Path::new(BESIDE_NOTE), OFlags::RDONLY);
    let note = note.and_then(|note| SmallFile::read(note, NOTE_BYTES_MAX));
    if let Ok(SmallFile::Bytes(bytes)) = note {
        let beside = PathBuf::from(OsString::from_vec(bytes));
        let is_ours = beside.file_name().is_some_and(|last| *last == *format!("{BESIDE}{name}"));
        if is_ours && remove_tree(&beside).is_err() {
            return;
        }
    }
    let _ = remove_tree(path);
}

/// Returns the parent of a folder if the home is on another file system and the parent is not.
pub(crate) fn folder_beside(folder: &Path, home: &Path) -> Option<PathBuf> {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let (around, here) = (folder.parent()?, device(folder)?);
    (device(home) != Some(here) && device(around) == Some(here)).then(|| around.to_owned())
}

/// Home folder. Nothing below it is reached through a link: openat2(2) refuses links.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    dir: Arc<OwnedFd>,
    is_writable: bool,
}

/// Entries of a home that is still empty.
const BEGINNINGS: [&[u8]; 9] =
    [b".", b"..", b"store", b"config.toml", b"cache", b"runs", b"scratch", b"sandboxes", b"lost+found"];

fn open_below(dir: BorrowedFd<'_>, name: &Path, flags: OFlags) -> io::Result<File> {
    let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(dir, name, flags, mode, resolve) {
            // openat2(2) asks for a retry after a concurrent rename.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::LOOP) => {
                return Err(io::Error::other(format!("{} is a symbolic link", name.display())));
            }
            other => return Ok(File::from(other?)),
        }
    }
}

/// Gives a file that root created to the owner of the home, who could not use it otherwise.
fn hand_over(made: impl AsFd, home: &Stat) -> io::Result<()> {
    if geteuid().is_root() && home.st_uid != 0 {
        let (owner, group) = (Uid::from_raw(home.st_uid), Gid::from_raw(home.st_gid));
        rustix::fs::fchown(made, Some(owner), Some(group))?;
    }
    Ok(())
}

/// Opens a file in a home.
fn open_file(home: &OwnedFd, name: &Path, flags: OFlags) -> io::Result<File> {
    let file = open_below(home.as_fd(), name, flags)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(format!("{} is not a file", name.display()))),
    }
}

/// Opens a file for writing, or creates it.
fn make_file(home: &OwnedFd, name: &Path, flags: OFlags) -> io::Result<File> {
    let file = open_file(home, name, flags | OFlags::WRONLY | OFlags::CREATE)?;
    hand_over(&file, &fstat(home)?)?;
    Ok(file)
}

impl Home {
    /// Opens the folder. Creates it if missing, and removes access for other users.
    ///
    /// The path may contain links. An existing folder must be a home or the beginning of one; the mode of any
    /// other folder must not change.
    pub(crate) fn open(path: &Path, access: Access, owner: HomeOwner) -> Result<Self, Error> {
        let failed = |source| Error::Home { path: path.to_owned(), source };
        if is_made_up(path) {
            return Err(failed(io::Error::other("its file system is made up by the kernel")));
        }
        let is_missing = fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if is_missing && access != Access::ReadOnly {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        }
        let path = fs::canonicalize(path).map_err(failed)?;
        let facts = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| failed(error.into()))?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::Directory {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let is_ours = facts.st_uid == geteuid().as_raw();
        let foreign = || Error::HomeOwner { path: path.clone(), uid: facts.st_uid };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(Errno::ACCESS) if !is_ours => return Err(foreign()),
            other => other.map_err(|error| failed(error.into()))?,
        };
        if !is_or_becomes_a_home(&dir).map_err(failed)? {
            return Err(failed(io::Error::other("it holds other things and is not a home of Safepoint")));
        }
        let refused = match write_refused(&dir) {
            _ if !is_ours && owner == HomeOwner::User => Some(foreign()),
            Some(source) => Some(Error::ReadOnlyHome { path: path.clone(), source: source.into() }),
            None => None,
        };
        match (refused, access) {
            (Some(error), Access::Write) => return Err(error),
            (Some(_), Access::Read) | (_, Access::ReadOnly) => {
                return Ok(Self { path, dir: Arc::new(dir), is_writable: false });
            }
            (None, _) => {}
        }
        if is_ours && facts.st_mode & 0o077 != 0 {
            rustix::fs::fchmod(&dir, Mode::RWXU).map_err(|error| failed(error.into()))?;
        }
        Ok(Self { path, dir: Arc::new(dir), is_writable: true })
    }

    /// Returns true if the home is writable.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Creates a private folder and its missing parents.
    fn make_folder(&self, name: &Path) -> io::Result<File> {
        if let Some(above) = name.parent().filter(|above| !above.as_os_str().is_empty()) {
            self.make_folder(above)?;
        }
        let home = fstat(&self.dir)?;
        let made = rustix::fs::mkdirat(&self.dir, name, Mode::RWXU);
        let folder = open_below(self.dir.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let facts = fstat(&folder)?;
        match made {
            Ok(()) => hand_over(&folder, &home)?,
            Err(Errno::EXIST) if facts.st_uid != geteuid().as_raw() && facts.st_uid != home.st_uid => {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
            Err(Errno::EXIST) if facts.st_mode & 0o077 != 0 => rustix::fs::fchmod(&folder, Mode::RWXU)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    pub(crate) fn catalog(&self) -> PathBuf {
        self.path.join("catalog.db")
    }

    /// Returns the path for a replacement catalog. Deletes leftovers of a crash.
    pub(crate) fn draft_catalog(&self) -> io::Result<PathBuf> {
        let draft = self.path.join("catalog.db.new");
        for suffix in ["", "-wal", "-shm"] {
            remove_if_there(&beside(&draft, suffix))?;
        }
        Ok(draft)
    }

    /// Replaces a damaged catalog, which is kept with its log under another name. After a kill in between,
    /// the damaged catalog exists under both names.
    pub(crate) fn swap_catalog(&self, draft: &Path) -> io::Result<PathBuf> {
        let (old, folder) = (self.catalog(), File::open(&self.path)?);
        let aside = (1u32..)
            .map(|number| beside(&old, &format!(".damaged-{number}")))
            .find(|path| fs::symlink_metadata(path).is_err())
            .ok_or(io::ErrorKind::AlreadyExists)?;
        for suffix in ["", "-wal"] {
            match fs::hard_link(beside(&old, suffix), beside(&aside, suffix)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        File::open(draft)?.sync_all()?;
        folder.sync_all()?;
        for suffix in ["-wal", "-shm"] {
            remove_if_there(&beside(&old, suffix))?;
            remove_if_there(&beside(draft, suffix))?;
        }
        fs::rename(draft, &old)?;
        folder.sync_all()?;
        Ok(aside)
    }

    /// Reads the user's configuration. Checks the file type before opening.
    pub(crate) fn read_config(&self) -> io::Result<SmallFile> {
        let name = Path::new(ConfigFile::Home.name());
        match statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(SmallFile::Missing),
            Err(error) => Err(error.into()),
            Ok(facts) if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile => {
                Ok(SmallFile::NotAFile)
            }
            Ok(_) => SmallFile::read(open_file(&self.dir, name, OFlags::RDONLY)?, CONFIG_BYTES_MAX),
        }
    }

    /// Path of a workspace's stat cache, relative to the home.
    fn cache_path(workspace: WorkspaceId, what: What) -> PathBuf {
        let kind = match what {
            What::Files => "stat",
            What::Git => "git",
        };
        Path::new(CACHE).join(format!("{workspace}.{kind}"))
    }

    /// Returns the commit number of the last checkpoint without ACLs and capabilities, if known.
    pub(crate) fn last_without_access(&self) -> Option<u64> {
        match SmallFile::read(open_file(&self.dir, &Self::access_path(), OFlags::RDONLY).ok()?, 32).ok()? {
            SmallFile::Bytes(text) => std::str::from_utf8(&text).ok()?.trim().parse().ok(),
            _ => None,
        }
    }

    /// Records that number. A loss costs little: checkpoints older than the next record count as without.
    pub(crate) fn note_last_without_access(&self, order: u64) {
        let made = self.make_folder(Path::new(CACHE));
        let file = made.and_then(|_| make_file(&self.dir, &Self::access_path(), OFlags::TRUNC));
        let _ = file.and_then(|mut file| file.write_all(format!("{order}\n").as_bytes()));
    }

    /// Removes that number: restored checkpoints get higher ones.
    pub(crate) fn forget_last_without_access(&self) {
        let _ = rustix::fs::unlinkat(&self.dir, Self::access_path(), AtFlags::empty());
    }

    fn access_path() -> PathBuf {
        Path::new(CACHE).join("access")
    }

    /// Returns a workspace's stat cache and its dependencies, if it exists.
    pub(crate) fn read_cache(&self, workspace: WorkspaceId, what: What) -> Option<(Vouchers, StatCache)> {
        let path = Self::cache_path(workspace, what);
        let mut text = String::new();
        open_file(&self.dir, &head_of(&path), OFlags::RDONLY).ok()?.read_to_string(&mut text).ok()?;
        let (text, sum) = text.trim_end().rsplit_once('\n')?;
        let mut lines = text.lines();
        let sound = sum == sum_of(text) && lines.next() == Some(CACHE_FORMAT);
        let vouchers = Vouchers {
            checkpoint: lines.next().filter(|_| sound)?.parse().ok()?,
            integrity: lines.next()?.parse().ok()?,
            packs: Vec::new(),
        };
        let head: CacheHead = lines.next()?.parse().ok()?;
        let packs = lines.map(pack_line).collect::<Option<_>>()?;
        Some((
            Vouchers { packs, ..vouchers },
            StatCache::new(open_file(&self.dir, &path, OFlags::RDONLY).ok()?, head),
        ))
    }

    /// Starts the next cache of a workspace: appends to the last one, or starts a new file if that is worn or
    /// missing. A loss costs only time, so on failure there is no cache.
    pub(crate) fn draft_cache(
        &self,
        workspace: WorkspaceId,
        what: What,
        last: Option<&StatCache>,
    ) -> Option<CacheDraft> {
        let path = Self::cache_path(workspace, what);
        if let Some(last) = last.filter(|last| !last.is_worn()) {
            let file = open_file(&self.dir, &path, OFlags::WRONLY).ok()?;
            let writer = Some(CacheWriter::after(file, last));
            return Some(CacheDraft { home: self.dir.clone(), writer, path, fresh: None });
        }
        self.make_folder(Path::new(CACHE)).ok()?;
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        let file = make_file(&self.dir, &fresh, OFlags::TRUNC).ok()?;
        let writer = Some(CacheWriter::anew(file));
        Some(CacheDraft { home: self.dir.clone(), writer, path, fresh: Some(fresh) })
    }

    /// Path of a plan's sandbox, named after the project because programs print it.
    pub(crate) fn sandbox(&self, plan: &str, project: &str) -> PathBuf {
        let plain = !project.is_empty() && !project.contains('/') && project != "." && project != "..";
        self.sandbox_folder(plan).join(if plain { project } else { "project" })
    }

    fn sandbox_folder(&self, plan: &str) -> PathBuf {
        self.path.join(SANDBOXES).join(plan)
    }

    /// Creates the parent folder of a plan's sandbox.
    pub(crate) fn make_sandbox_folder(&self, plan: &str) -> io::Result<()> {
        self.make_folder(&Path::new(SANDBOXES).join(plan)).map(drop)
    }

    /// Creates a temporary folder. It is deleted on drop, or by the next command.
    pub(crate) fn make_scratch(&self, name: &str) -> io::Result<Scratch> {
        self.sweep_scratch()?;
        self.make_folder(Path::new(SCRATCH))?;
        let below = Path::new(SCRATCH).join(name);
        for _ in 0..SCRATCH_TRIES {
            if let Some(lock) = self.take_scratch(&below)? {
                return Ok(Scratch { path: self.path.join(below), beside: None, _lock: lock });
            }
            sleep(Duration::from_millis(1));
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Creates a folder and locks it. Returns `None` if a concurrent sweep has locked it first.
    fn take_scratch(&self, below: &Path) -> io::Result<Option<File>> {
        match rustix::fs::mkdirat(&self.dir, below, Mode::RWXU) {
            Err(Errno::EXIST) => return Ok(None),
            other => other?,
        }
        let lock = match open_below(self.dir.as_fd(), below, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        hand_over(&lock, &fstat(&self.dir)?)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        let there = statat(&self.dir, below, AtFlags::SYMLINK_NOFOLLOW).ok();
        let same = there.is_some_and(|there| fstat(&lock).is_ok_and(|ours| ours.st_ino == there.st_ino));
        Ok(same.then_some(lock))
    }

    /// Creates a temporary folder on the file system of `folder`: inside it, if the home is on another one. A
    /// note in the home lets the next command find it.
    pub(crate) fn make_scratch_in(&self, name: &str, folder: &Path) -> io::Result<Scratch> {
        let mut scratch = self.make_scratch(name)?;
        let beside = folder.join(format!("{BESIDE}{name}"));
        fs::write(scratch.path.join(BESIDE_NOTE), beside.as_os_str().as_encoded_bytes())?;
        DirBuilder::new().mode(0o700).create(&beside)?;
        scratch.beside = Some(beside);
        Ok(scratch)
    }

    /// Deletes temporary folders of dead processes.
    pub(crate) fn sweep_scratch(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = match open_below(self.dir.as_fd(), Path::new(SCRATCH), flags) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for old in Dir::read_from(&folder)? {
            let old = old?;
            let Ok(name) = old.file_name().to_str() else { continue };
            let held = open_below(folder.as_fd(), Path::new(name), OFlags::RDONLY | OFlags::DIRECTORY);
            // The lock is held until the folder is gone, so that its creator notices the loss.
            if let Ok(held) = held
                && name != "."
                && name != ".."
                && flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                sweep_one(&self.path.join(SCRATCH).join(name), &held, name);
            }
        }
        Ok(())
    }

    /// Creates the folder of an attempt. The lock is held until its row is on record; a folder without both is deleted by the next
    /// command.
    pub(crate) fn make_attempt_folder(&self, id: &str) -> io::Result<RoomDraft> {
        self.make_folder(Path::new(ATTEMPTS))?;
        let below = Path::new(ATTEMPTS).join(id);
        for _ in 0..SCRATCH_TRIES {
            if let Some(lock) = self.take_scratch(&below)? {
                return Ok(RoomDraft { path: self.path.join(below), _lock: lock });
            }
            sleep(Duration::from_millis(1));
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Creates the room of an attempt in another folder, with a note in the home that names it.
    pub(crate) fn make_room_beside(draft: &RoomDraft, id: &str, folder: &Path) -> io::Result<PathBuf> {
        let beside = folder.join(format!("{ROOM_BESIDE}{id}"));
        fs::write(draft.path.join(BESIDE_NOTE), beside.as_os_str().as_encoded_bytes())?;
        DirBuilder::new().mode(0o700).create(&beside)?;
        Ok(beside)
    }

    /// Folder of an attempt in the home.
    pub(crate) fn attempt_folder(&self, id: &str) -> PathBuf {
        self.path.join(ATTEMPTS).join(id)
    }

    /// Returns the ids of the attempts with a folder in the home that no process is making.
    pub(crate) fn attempt_folders(&self) -> io::Result<Vec<(String, File)>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = match open_below(self.dir.as_fd(), Path::new(ATTEMPTS), flags) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            let held = open_below(folder.as_fd(), Path::new(name), flags);
            if let Ok(held) = held
                && flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                found.push((name.to_owned(), held));
            }
        }
        Ok(found)
    }

    /// Deletes a room in another folder, and then the folder of its attempt.
    pub(crate) fn remove_room(&self, id: &str) -> Result<(), Error> {
        let folder = self.attempt_folder(id);
        if let Ok(bytes) = fs::read(folder.join(BESIDE_NOTE)) {
            let beside = PathBuf::from(OsString::from_vec(bytes));
            if beside.file_name().is_some_and(|last| *last == *format!("{ROOM_BESIDE}{id}")) {
                remove_tree(&beside)?;
            }
        }
        Ok(remove_tree(&folder)?)
    }

    /// Creates an unnamed temporary file; in memory if the home is read-only.
    pub(crate) fn scratch_file(&self) -> io::Result<File> {
        if !self.is_writable {
            let memory = rustix::fs::memfd_create("safepoint-scratch", rustix::fs::MemfdFlags::CLOEXEC)?;
            return Ok(File::from(memory));
        }
        let folder = self.make_folder(Path::new(SCRATCH))?;
        let nameless = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::openat(&folder, ".", nameless, Mode::RUSR | Mode::WUSR) {
            return Ok(File::from(file));
        }
        // Not every file system supports unnamed files.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let file =
            open_below(folder.as_fd(), Path::new(&name), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        rustix::fs::unlinkat(&folder, &name, AtFlags::empty())?;
        Ok(file)
    }

    /// Creates an empty folder for a deleted sandbox.
    pub(crate) fn make_empty_sandbox(&self, plan: &str, path: &Path) -> io::Result<()> {
        self.make_sandbox_folder(plan)?;
        DirBuilder::new().mode(0o700).create(path)
    }

    /// Removes the parent of a sandbox if it is empty.
    pub(crate) fn drop_empty(path: &Path) {
        let _ = fs::remove_dir(path);
    }

    /// Locks a plan for this process, exclusively or shared. Returns `None` on timeout.
    ///
    /// Uses flock(2), so the lock ends with the process.
    pub(crate) fn lock_plan(&self, plan: &str, share: Share, wait: Duration) -> io::Result<Option<PlanLock>> {
        self.make_folder(Path::new(RUNS))?;
        let file = make_file(&self.dir, &Path::new(RUNS).join(format!("{plan}.lock")), OFlags::empty())?;
        let operation = match share {
            Share::Alone => FlockOperation::NonBlockingLockExclusive,
            Share::WithOthers => FlockOperation::NonBlockingLockShared,
        };
        let deadline = Instant::now() + wait;
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(Some(PlanLock { file })),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => sleep(Duration::from_millis(5)),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Locks the line of a workspace on a remote: one process publishes to it. Returns `None` after this time.
    pub(crate) fn lock_line(
        &self,
        remote: &str,
        workspace: WorkspaceId,
        wait: Duration,
    ) -> io::Result<Option<PlanLock>> {
        self.lock_plan(&format!("line.{remote}.{workspace}"), Share::Alone, wait)
    }

    fn outbox(remote: &str, workspace: WorkspaceId) -> PathBuf {
        Path::new(OUTBOX).join(format!("{remote}.{workspace}"))
    }

    /// Creates the file of a pack that is to be published, empty. Returns its path, too, for messages.
    pub(crate) fn draft_pack(&self, remote: &str, workspace: WorkspaceId) -> io::Result<(File, PathBuf)> {
        let below = Self::outbox(remote, workspace);
        self.make_folder(&below)?;
        let name = below.join("draft");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let file = open_file(&self.dir, &name, flags)?;
        hand_over(&file, &fstat(&self.dir)?)?;
        Ok((file, self.path.join(name)))
    }

    /// Keeps the drafted pack under this name, durable.
    pub(crate) fn keep_pack(
        &self,
        draft: &File,
        name: &str,
        (remote, workspace): (&str, WorkspaceId),
    ) -> io::Result<()> {
        draft.sync_all()?;
        let folder = self.make_folder(&Self::outbox(remote, workspace))?;
        renameat(&folder, "draft", &folder, name)?;
        folder.sync_all()
    }

    /// Opens a pack that is to be published.
    pub(crate) fn open_pack(&self, name: &str, remote: &str, workspace: WorkspaceId) -> io::Result<File> {
        open_file(&self.dir, &Self::outbox(remote, workspace).join(name), OFlags::RDONLY)
    }

    /// Deletes all packs of a line that were to be published. What cannot be deleted now is deleted after the next push.
    pub(crate) fn clear_outbox(&self, remote: &str, workspace: WorkspaceId) {
        let _ = remove_tree(&self.path.join(Self::outbox(remote, workspace)));
    }

    /// Creates the file that holds the output of a running step, empty.
    pub(crate) fn begin_output(&self, plan: &str, step: &str) -> io::Result<LiveOutput> {
        self.make_folder(Path::new(RUNS))?;
        let name = output_name(plan, step);
        let file = make_file(&self.dir, &name, OFlags::TRUNC)?;
        Ok(LiveOutput { file, home: Arc::clone(&self.dir), name, left: OUTPUT_BYTES_MAX })
    }

    /// Returns the output of a step that runs, or whose runner died.
    pub(crate) fn read_output(&self, plan: &str, step: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match open_file(&self.dir, &output_name(plan, step), OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(OUTPUT_BYTES_MAX as u64).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Returns the highest number of a turn in a workspace, as kept beside the catalog; 0 if none is.
    pub(crate) fn last_turn(&self, workspace: WorkspaceId) -> u64 {
        let Ok(file) = open_file(&self.dir, &last_turn_name(workspace), OFlags::RDONLY) else { return 0 };
        let mut text = String::new();
        let read = file.take(NUMBER_BYTES as u64).read_to_string(&mut text);
        read.ok().and_then(|_| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Keeps the highest number of a turn in a workspace.
    pub(crate) fn keep_last_turn(&self, workspace: WorkspaceId, number: u64) -> io::Result<()> {
        self.make_folder(Path::new(RUNS))?;
        let mut file = make_file(&self.dir, &last_turn_name(workspace), OFlags::empty())?;
        // Always as long: a number is overwritten in one write, and the file needs no other.
        file.write_all(format!("{number:0width$}\n", width = NUMBER_BYTES - 1).as_bytes())
    }

    /// Returns the disk usage of the home, without sandboxes, rooms and temporary folders.
    pub(crate) fn disk_bytes(&self) -> Result<u64, Error> {
        fn below(dir: &Path, top: &Path) -> io::Result<u64> {
            let mut sum = 0;
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                if dir == top && APART.iter().any(|apart| entry.file_name() == *apart) {
                    continue;
                }
                sum += match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => below(&entry.path(), top)?,
                    Ok(metadata) => metadata.blocks() * 512,
                    // Deleted concurrently.
                    Err(_) => 0,
                };
            }
            Ok(sum)
        }
        below(&self.path, &self.path).map_err(|source| Error::Home { path: self.path.clone(), source })
    }
}

/// Dependencies of a stat cache: the checkpoint that holds its content while it has this root, and the packs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vouchers {
    pub(crate) checkpoint: CheckpointId,
    pub(crate) integrity: ObjectId,
    /// Names and lengths.
    pub(crate) packs: Vec<(String, u64)>,
}

fn pack_line(line: &str) -> Option<(String, u64)> {
    let (name, len) = line.split_once(' ')?;
    Some((name.to_owned(), len.parse().ok()?))
}

/// First line of a cache head file.
const CACHE_FORMAT: &str = "safepoint stat cache 3";

/// Path of the head file of a block file.
fn head_of(blocks: &Path) -> PathBuf {
    let mut name = blocks.as_os_str().to_owned();
    name.push(".head");
    PathBuf::from(name)
}

fn sum_of(text: &str) -> String {
    ObjectId::of(ObjectKind::Document, text.as_bytes()).to_string()
}

/// Stat cache with written blocks. It is valid once its dependencies are durable.
pub struct PendingCache {
    pub(crate) draft: CacheDraft,
    pub(crate) next: NextCache,
}

/// Stat cache in progress.
pub(crate) struct CacheDraft {
    home: Arc<OwnedFd>,
    writer: Option<CacheWriter>,
    path: PathBuf,
    /// Temporary path, unless it appends to the last cache.
    fresh: Option<PathBuf>,
}

impl CacheDraft {
    /// Writer for its blocks.
    pub(crate) fn writer(&self) -> Option<&CacheWriter> {
        self.writer.as_ref()
    }

    /// Keeps the cache with its dependencies. Does not sync: damage by a power cut is detected.
    pub(crate) fn keep(mut self, next: NextCache, vouchers: &Vouchers) -> io::Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let head = next.finish(writer)?;
        let packs: Vec<String> = vouchers.packs.iter().map(|(name, len)| format!("{name} {len}")).collect();
        let (checkpoint, integrity) = (vouchers.checkpoint, vouchers.integrity);
        let text = format!("{CACHE_FORMAT}\n{checkpoint}\n{integrity}\n{head}\n{}", packs.join("\n"));
        let text = format!("{text}\n{}\n", sum_of(&text));
        let place = head_of(&self.path);
        let beside = place.with_extension(format!("{}.new", std::process::id()));
        make_file(&self.home, &beside, OFlags::TRUNC)?.write_all(text.as_bytes())?;
        if let Some(fresh) = self.fresh.take() {
            renameat(&self.home, &fresh, &self.home, &self.path)?;
        }
        Ok(renameat(&self.home, &beside, &self.home, &place)?)
    }
}

impl Drop for CacheDraft {
    fn drop(&mut self) {
        if let Some(fresh) = &self.fresh {
            // The next cache overwrites it.
            let _ = rustix::fs::unlinkat(&self.home, fresh, AtFlags::empty());
        }
    }
}

/// Appends a suffix to a path.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if a folder is a home, or holds only entries of an empty home.
fn is_or_becomes_a_home(dir: &OwnedFd) -> io::Result<bool> {
    for name in ["catalog.db", "store/format"] {
        if statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(true);
        }
    }
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !BEGINNINGS.contains(&entry.file_name().to_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the reason why a home is not writable, if any: mode, owner or a read-only file system.
fn write_refused(dir: &OwnedFd) -> Option<Errno> {
    let may = |name: &str, right| match rustix::fs::accessat(dir, name, right, AtFlags::EACCESS) {
        Err(errno @ (Errno::ACCESS | Errno::ROFS | Errno::PERM)) => Some(errno),
        _ => None,
    };
    let below = ["store", "store/packs", "catalog.db", "store/index.db"];
    may(".", Right::WRITE_OK | Right::EXEC_OK)
        .or_else(|| below.into_iter().find_map(|name| may(name, Right::WRITE_OK)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn open(path: &Path) -> Result<Home, Error> {
        Home::open(path, Access::Write, HomeOwner::User)
    }

    #[test]
    fn a_home_is_private_even_where_it_was_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        open(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let home = open(&path).unwrap();
        assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn one_process_runs_a_plan_and_others_that_do_not_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = open(folder.path()).unwrap();
        let lock = |share| home.lock_plan("p", share, Duration::from_millis(20)).unwrap();
        let runner = lock(Share::Alone).unwrap();
        assert!(lock(Share::Alone).is_none() && lock(Share::WithOthers).is_none());
        assert!(home.lock_plan("q", Share::Alone, Duration::ZERO).unwrap().is_some());
        drop(runner);
        let (_one, _two) = (lock(Share::WithOthers).unwrap(), lock(Share::WithOthers).unwrap());
        assert!(lock(Share::Alone).is_none());
    }

    #[test]
    fn a_released_plan_is_free_though_a_child_has_a_copy_of_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let home = open(folder.path()).unwrap();
        let lock = home.lock_plan("p", Share::Alone, Duration::ZERO).unwrap().unwrap();
        let _of_a_child = lock.file.try_clone().unwrap();
        drop(lock);
        assert!(home.lock_plan("p", Share::Alone, Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn what_is_only_looked_at_goes_with_its_process_or_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let home = open(folder.path()).unwrap();
        let one = home.make_scratch("one").unwrap();
        fs::write(one.path().join("file"), "x").unwrap();
        fs::create_dir(folder.path().join("scratch/dead")).unwrap();
        let two = home.make_scratch("two").unwrap();
        assert!(one.path().join("file").exists(), "the folder is in use");
        assert!(!folder.path().join("scratch/dead").exists(), "no process uses it");
        let path = two.path().to_owned();
        drop(two);
        assert!(!path.exists() && home.make_scratch("one").is_err());
    }

    #[test]
    fn a_sandbox_is_named_like_its_project_where_that_is_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let home = open(folder.path()).unwrap();
        assert!(home.sandbox("p", "shop").ends_with("sandboxes/p/shop"));
        for odd in ["/", "", ".", "..", "a/b"] {
            assert!(home.sandbox("p", odd).ends_with("sandboxes/p/project"), "{odd}");
        }
        let path = home.sandbox("p", "shop");
        home.make_empty_sandbox("p", &path).unwrap();
        let before = home.disk_bytes().unwrap();
        fs::write(path.join("large"), vec![1; 100_000]).unwrap();
        assert_eq!(home.disk_bytes().unwrap(), before, "copies do not count");
    }

    #[test]
    fn a_file_is_not_a_home() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(open(file.path()), Err(Error::Home { .. })));
    }

    #[test]
    fn a_cache_comes_back_with_what_it_relies_on_and_a_strange_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let home = open(folder.path()).unwrap();
        let id = WorkspaceId::from_bits(1);
        assert!(home.read_cache(id, What::Files).is_none());
        let workspace = tempfile::tempdir().unwrap();
        let root = safepoint_workspace::Root::open(workspace.path()).unwrap();
        let store = safepoint_store::Store::open(&home.store()).unwrap();
        let draft = home.draft_cache(id, What::Files, None).unwrap();
        let options = safepoint_workspace::ScanOptions { next: draft.writer(), ..Default::default() };
        let scan = safepoint_workspace::scan(&root, &store.measurer(), &options, &crate::Silent).unwrap();
        let vouchers = Vouchers {
            checkpoint: CheckpointId::from_bits(7),
            integrity: ObjectId::of(ObjectKind::Document, b"root"),
            packs: vec![("a".to_owned(), 10), ("b".to_owned(), 20)],
        };
        let keep = |draft: CacheDraft, next| draft.keep(next, &vouchers).unwrap();
        keep(draft, scan.cache.unwrap());
        let (read, cache) = home.read_cache(id, What::Files).unwrap();
        assert_eq!(read, vouchers);
        // The next cache appends to it, and a dropped draft leaves nothing.
        drop(home.draft_cache(id, What::Files, None).unwrap());
        assert!(home.draft_cache(id, What::Files, Some(&cache)).unwrap().fresh.is_none());
        let names = fs::read_dir(folder.path().join("cache")).unwrap().count();
        assert_eq!(names, 2);
        let path = home.path().join(head_of(&Home::cache_path(id, What::Files)));
        let text = fs::read_to_string(&path).unwrap();
        for wrong in [text.replacen("\na", "\nc", 1), "0\nx".to_owned(), String::new()] {
            fs::write(&path, wrong).unwrap();
            assert!(home.read_cache(id, What::Files).is_none());
        }
        assert!(home.disk_bytes().unwrap() > 0);
    }
}
