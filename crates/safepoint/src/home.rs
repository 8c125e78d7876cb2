//! Safepoint's own folder: the store, the catalog, the configuration, and the stat cache of each workspace. Private to its owner.

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

/// What is to be done in a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// It is written. One that cannot be written, or is not ours, is refused.
    #[default]
    Write,
    /// It is looked at. One that can be written is put in order on the way, as ever; in any other nothing is written.
    Read,
}

/// Whose home may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HomeOwner {
    /// The user's own.
    #[default]
    User,
    /// Anybody's, such as a volume of a container.
    Anybody,
}

/// The folder with the copies that plans work in.
const SANDBOXES: &str = "sandboxes";
/// The folder with the stat caches.
const CACHE: &str = "cache";
/// The folder with the locks of plans.
const RUNS: &str = "runs";

/// Who else may have a plan at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Nobody.
    Alone,
    /// Whoever does not run it.
    WithOthers,
}

/// A plan belongs to this process until this is dropped.
#[derive(Debug)]
pub(crate) struct PlanLock {
    _file: fs::File,
}

/// The folder for what is only looked at.
const SCRATCH: &str = "scratch";

/// The beginning of the name of such a folder that lies outside of the home, and the note in the home that says where.
const BESIDE: &str = ".safepoint-search-";
const BESIDE_NOTE: &str = "beside";
const NOTE_BYTES_MAX: u64 = 4096;
/// How often a folder is made again that was swept before it was locked.
const SCRATCH_TRIES: u32 = 32;

/// A folder that is deleted when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// The folder itself, where it lies outside of the home.
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
        // What cannot be deleted now is deleted by the next command.
        let gone = self.beside.as_ref().is_none_or(|beside| remove_tree(beside).is_ok());
        if gone {
            let _ = remove_tree(&self.path);
        }
    }
}

/// Deletes a folder that a dead process left, and what it names outside of the home. A note is believed only as far as the folder that it
/// names bears the name of this one.
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

/// The folder around another one, where the home lies on another file system and that does not.
pub(crate) fn folder_beside(folder: &Path, home: &Path) -> Option<PathBuf> {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let (around, here) = (folder.parent()?, device(folder)?);
    (device(home) != Some(here) && device(around) == Some(here)).then(|| around.to_owned())
}

/// The folder, and what is where in it. Nothing below it is reached through a link: the kernel refuses one (openat2(2)).
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    dir: Arc<OwnedFd>,
    is_writable: bool,
}

/// What is in a home that nothing was kept in yet.
const BEGINNINGS: [&[u8]; 9] =
    [b".", b"..", b"store", b"config.toml", b"cache", b"runs", b"scratch", b"sandboxes", b"lost+found"];

fn open_below(dir: BorrowedFd<'_>, name: &Path, flags: OFlags) -> io::Result<File> {
    let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(dir, name, flags, mode, resolve) {
            // The kernel asks for another try when a rename ran meanwhile (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::LOOP) => {
                return Err(io::Error::other(format!("{} is a symbolic link", name.display())));
            }
            other => return Ok(File::from(other?)),
        }
    }
}

/// Gives what root has just made to the owner of the home, who could not use it otherwise.
fn hand_over(made: impl AsFd, home: &Stat) -> io::Result<()> {
    if geteuid().is_root() && home.st_uid != 0 {
        let (owner, group) = (Uid::from_raw(home.st_uid), Gid::from_raw(home.st_gid));
        rustix::fs::fchown(made, Some(owner), Some(group))?;
    }
    Ok(())
}

/// A file in a home.
fn open_file(home: &OwnedFd, name: &Path, flags: OFlags) -> io::Result<File> {
    let file = open_below(home.as_fd(), name, flags)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(format!("{} is not a file", name.display()))),
    }
}

/// The same for writing, made where it is missing.
fn make_file(home: &OwnedFd, name: &Path, flags: OFlags) -> io::Result<File> {
    let file = open_file(home, name, flags | OFlags::WRONLY | OFlags::CREATE)?;
    hand_over(&file, &fstat(home)?)?;
    Ok(file)
}

impl Home {
    /// Opens the folder, making it where it is missing and closing it to others where it is open to them.
    ///
    /// The path to it may have links in it. What is there already must be a home, or the beginning of one: the mode of any other folder
    /// is not ours to change.
    pub(crate) fn open(path: &Path, access: Access, owner: HomeOwner) -> Result<Self, Error> {
        let failed = |source| Error::Home { path: path.to_owned(), source };
        if is_made_up(path) {
            return Err(failed(io::Error::other("its file system is made up by the kernel")));
        }
        if fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
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
            (Some(_), Access::Read) => return Ok(Self { path, dir: Arc::new(dir), is_writable: false }),
            (None, _) => {}
        }
        if is_ours && facts.st_mode & 0o077 != 0 {
            rustix::fs::fchmod(&dir, Mode::RWXU).map_err(|error| failed(error.into()))?;
        }
        Ok(Self { path, dir: Arc::new(dir), is_writable: true })
    }

    /// Whether anything may be written in it.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// A folder in it that only its owner may use, made where it is missing with those above it.
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

    /// Where a catalog is made that is to replace another. What a crash left there is deleted.
    pub(crate) fn draft_catalog(&self) -> io::Result<PathBuf> {
        let draft = self.path.join("catalog.db.new");
        for suffix in ["", "-wal", "-shm"] {
            remove_if_there(&beside(&draft, suffix))?;
        }
        Ok(draft)
    }

    /// Puts a catalog in the place of a damaged one, which is kept under another name with its log. Killed in between, the damaged one
    /// is still there under both names.
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

    /// The user's own configuration. What it is comes before it is opened.
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

    /// The blocks of a workspace's stat cache, from the home on.
    fn cache_path(workspace: WorkspaceId, what: What) -> PathBuf {
        let kind = match what {
            What::Files => "stat",
            What::Git => "git",
        };
        Path::new(CACHE).join(format!("{workspace}.{kind}"))
    }

    /// The place, in the order of commits, of the last checkpoint from before ACLs and capabilities were captured; nothing where that is
    /// not known.
    pub(crate) fn last_without_access(&self) -> Option<u64> {
        match SmallFile::read(open_file(&self.dir, &Self::access_path(), OFlags::RDONLY).ok()?, 32).ok()? {
            SmallFile::Bytes(text) => std::str::from_utf8(&text).ok()?.trim().parse().ok(),
            _ => None,
        }
    }

    /// Notes it. Losing it costs little: whatever is older than the next note counts as from before.
    pub(crate) fn note_last_without_access(&self, order: u64) {
        let made = self.make_folder(Path::new(CACHE));
        let file = made.and_then(|_| make_file(&self.dir, &Self::access_path(), OFlags::TRUNC));
        let _ = file.and_then(|mut file| file.write_all(format!("{order}\n").as_bytes()));
    }

    /// Forgets it: checkpoints that are put on record again get numbers behind it.
    pub(crate) fn forget_last_without_access(&self) {
        let _ = rustix::fs::unlinkat(&self.dir, Self::access_path(), AtFlags::empty());
    }

    fn access_path() -> PathBuf {
        Path::new(CACHE).join("access")
    }

    /// What a workspace's stat cache relies on, and the cache, if there is one.
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

    /// Somewhere to write the next cache of a workspace: behind the last one, or anew where that is worn or is none. Losing it costs
    /// time only, so where there is nowhere there is none.
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

    /// Where the sandbox of a plan lies: named like the project, because programs print it.
    pub(crate) fn sandbox(&self, plan: &str, project: &str) -> PathBuf {
        let plain = !project.is_empty() && !project.contains('/') && project != "." && project != "..";
        self.sandbox_folder(plan).join(if plain { project } else { "project" })
    }

    fn sandbox_folder(&self, plan: &str) -> PathBuf {
        self.path.join(SANDBOXES).join(plan)
    }

    /// Makes the folder in which the sandbox of a plan is made.
    pub(crate) fn make_sandbox_folder(&self, plan: &str) -> io::Result<()> {
        self.make_folder(&Path::new(SANDBOXES).join(plan)).map(drop)
    }

    /// A new folder for what is only looked at. It goes with this process, or with the next command.
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

    /// Makes a folder and locks it. Nothing where another process has it: one that sweeps may come between the two.
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

    /// The same on the file system of another folder: in that folder, where the home lies elsewhere. A note in the home says where, so that
    /// the next command finds it.
    pub(crate) fn make_scratch_in(&self, name: &str, folder: &Path) -> io::Result<Scratch> {
        let mut scratch = self.make_scratch(name)?;
        let beside = folder.join(format!("{BESIDE}{name}"));
        fs::write(scratch.path.join(BESIDE_NOTE), beside.as_os_str().as_encoded_bytes())?;
        DirBuilder::new().mode(0o700).create(&beside)?;
        scratch.beside = Some(beside);
        Ok(scratch)
    }

    /// Deletes what processes that died left of what was only looked at.
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
            // The lock stays until the folder is gone, so that whoever has just made it sees that it is lost.
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

    /// A new file that is gone when its handle is; in memory where nothing may be written here.
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
        // Not every file system has files without a name.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let file =
            open_below(folder.as_fd(), Path::new(&name), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        rustix::fs::unlinkat(&folder, &name, AtFlags::empty())?;
        Ok(file)
    }

    /// Makes an empty folder for a sandbox that is gone.
    pub(crate) fn make_empty_sandbox(&self, plan: &str, path: &Path) -> io::Result<()> {
        self.make_sandbox_folder(plan)?;
        DirBuilder::new().mode(0o700).create(path)
    }

    /// Takes the folder around a sandbox away, if nothing is in it.
    pub(crate) fn drop_empty(path: &Path) {
        let _ = fs::remove_dir(path);
    }

    /// Takes a plan for this process: alone, or with others that do not run it. Nothing where somebody else has it all the while.
    ///
    /// A kernel lock (flock(2)): it goes with the process, whatever ends it.
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
                Ok(()) => return Ok(Some(PlanLock { _file: file })),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => sleep(Duration::from_millis(5)),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How much everything in the home takes on the disk, but for the copies that plans work in and what is only looked at.
    pub(crate) fn disk_bytes(&self) -> Result<u64, Error> {
        fn below(dir: &Path, top: &Path) -> io::Result<u64> {
            let mut sum = 0;
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                if dir == top && (entry.file_name() == SANDBOXES || entry.file_name() == SCRATCH) {
                    continue;
                }
                sum += match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => below(&entry.path(), top)?,
                    Ok(metadata) => metadata.blocks() * 512,
                    // It went away while we looked.
                    Err(_) => 0,
                };
            }
            Ok(sum)
        }
        below(&self.path, &self.path).map_err(|source| Error::Home { path: self.path.clone(), source })
    }
}

/// What a stat cache relies on. What it vouches for is what this checkpoint holds, as long as it has this root; and was in these packs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vouchers {
    pub(crate) checkpoint: CheckpointId,
    pub(crate) integrity: ObjectId,
    /// With the lengths that they had.
    pub(crate) packs: Vec<(String, u64)>,
}

fn pack_line(line: &str) -> Option<(String, u64)> {
    let (name, len) = line.split_once(' ')?;
    Some((name.to_owned(), len.parse().ok()?))
}

/// The first line of what is said about a stat cache.
const CACHE_FORMAT: &str = "safepoint stat cache 3";

/// What is said about the blocks in a file.
fn head_of(blocks: &Path) -> PathBuf {
    let mut name = blocks.as_os_str().to_owned();
    name.push(".head");
    PathBuf::from(name)
}

fn sum_of(text: &str) -> String {
    ObjectId::of(ObjectKind::Document, text.as_bytes()).to_string()
}

/// A stat cache whose blocks are written, and that counts once what it relies on is durable.
pub struct PendingCache {
    pub(crate) draft: CacheDraft,
    pub(crate) next: NextCache,
}

/// A stat cache that is being written.
pub(crate) struct CacheDraft {
    home: Arc<OwnedFd>,
    writer: Option<CacheWriter>,
    path: PathBuf,
    /// Where it is until it is kept, if not behind the last one.
    fresh: Option<PathBuf>,
}

impl CacheDraft {
    /// Where its blocks go.
    pub(crate) fn writer(&self) -> Option<&CacheWriter> {
        self.writer.as_ref()
    }

    /// Keeps it with what it relies on. It is not made durable: what a power cut leaves of it is noticed.
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
            // It is only a cache; the next one is written over it.
            let _ = rustix::fs::unlinkat(&self.home, fresh, AtFlags::empty());
        }
    }
}

/// The same path with more letters at its end.
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

/// Whether a folder is a home, or may become one: nothing is in it but what a home begins with.
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

/// Why nothing can be written in a home, if so: its mode, its owner, or a file system that is read-only.
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
    fn what_is_only_looked_at_goes_with_its_process_or_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let home = open(folder.path()).unwrap();
        let one = home.make_scratch("one").unwrap();
        fs::write(one.path().join("file"), "x").unwrap();
        fs::create_dir(folder.path().join("scratch/dead")).unwrap();
        let two = home.make_scratch("two").unwrap();
        assert!(one.path().join("file").exists(), "it is in use");
        assert!(!folder.path().join("scratch/dead").exists(), "nobody has it");
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
        assert_eq!(home.disk_bytes().unwrap(), before, "copies are not what the cap is about");
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
        // The next one goes on behind it, and one that is not kept leaves nothing.
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
