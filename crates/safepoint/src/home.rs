//! Safepoint's own folder: the store, the catalog, the configuration, and the stat cache of each workspace. Private to its owner.

#![allow(clippy::disallowed_methods, reason = "this module owns the home folder")]

use crate::Error;
use crate::config::{CONFIG_BYTES_MAX, ConfigFile};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use safepoint_model::{CheckpointId, ObjectId, ObjectKind, WorkspaceId};
use safepoint_workspace::{CacheHead, CacheWriter, NextCache, SmallFile, StatCache, What, remove_tree};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The folder with the copies that plans work in.
const SANDBOXES: &str = "sandboxes";

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
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;

/// A folder that is deleted when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _lock: fs::File,
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be deleted now is deleted by the next one.
        let _ = remove_tree(&self.path);
    }
}

/// The folder, and what is where in it.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
}

impl Home {
    /// Opens the folder, making it where it is missing and closing it to others where it is open to them.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Home { path: path.to_owned(), source };
        make_private_dir(path).map_err(failed)?;
        let path = fs::canonicalize(path).map_err(failed)?;
        Ok(Self { path })
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

    /// The user's own configuration. The folder is private, so nobody swaps the file between the look and the reading.
    pub(crate) fn read_config(&self) -> io::Result<SmallFile> {
        let path = self.path.join(ConfigFile::Home.name());
        match fs::symlink_metadata(&path) {
            Ok(metadata) if !metadata.is_file() => Ok(SmallFile::NotAFile),
            Ok(_) => SmallFile::read(fs::File::open(&path)?, CONFIG_BYTES_MAX),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(SmallFile::Missing),
            Err(error) => Err(error),
        }
    }

    /// The blocks of a workspace's stat cache.
    fn cache_path(&self, workspace: WorkspaceId, what: What) -> PathBuf {
        let kind = match what {
            What::Files => "stat",
            What::Git => "git",
        };
        self.path.join("cache").join(format!("{workspace}.{kind}"))
    }

    /// What a workspace's stat cache relies on, and the cache, if there is one.
    pub(crate) fn read_cache(&self, workspace: WorkspaceId, what: What) -> Option<(Vouchers, StatCache)> {
        let path = self.cache_path(workspace, what);
        let text = fs::read_to_string(head_of(&path)).ok()?;
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
        Some((Vouchers { packs, ..vouchers }, StatCache::new(File::open(path).ok()?, head)))
    }

    /// Somewhere to write the next cache of a workspace: behind the last one, or anew where that is worn or is none. Losing it costs
    /// time only, so where there is nowhere there is none.
    pub(crate) fn draft_cache(
        &self,
        workspace: WorkspaceId,
        what: What,
        last: Option<&StatCache>,
    ) -> Option<CacheDraft> {
        let path = self.cache_path(workspace, what);
        if let Some(last) = last.filter(|last| !last.is_worn()) {
            let file = OpenOptions::new().write(true).open(&path).ok()?;
            return Some(CacheDraft { writer: Some(CacheWriter::after(file, last)), path, fresh: None });
        }
        make_private_dir(&self.path.join("cache")).ok()?;
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh).ok()?;
        Some(CacheDraft { writer: Some(CacheWriter::anew(file)), path, fresh: Some(fresh) })
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
        make_private_dir(&self.sandbox_folder(plan))
    }

    /// A new folder for what is only looked at. Those of processes that died are deleted by whoever makes the next.
    pub(crate) fn make_scratch(&self, name: &str) -> io::Result<Scratch> {
        let folder = self.path.join(SCRATCH);
        make_private_dir(&folder)?;
        for old in fs::read_dir(&folder)?.flatten() {
            let held = fs::File::open(old.path()).map(|held| (flock(&held, SHARED), held));
            if held.is_ok_and(|(locked, _)| locked.is_ok()) {
                let _ = remove_tree(&old.path());
            }
        }
        let path = folder.join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = fs::File::open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Scratch { path, _lock: lock })
    }

    /// A new file that is gone when its handle is.
    pub(crate) fn scratch_file(&self) -> io::Result<File> {
        let folder = self.path.join(SCRATCH);
        make_private_dir(&folder)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let nameless = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
        if let Ok(file) = options.clone().custom_flags(nameless).open(&folder) {
            return Ok(file);
        }
        // Not every file system has files without a name.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{number}", std::process::id()));
        let file = options.create_new(true).open(&path)?;
        fs::remove_file(&path)?;
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
        let folder = self.path.join("runs");
        make_private_dir(&folder)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(folder.join(format!("{plan}.lock")))?;
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
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        if let Some(fresh) = self.fresh.take() {
            fs::rename(fresh, &self.path)?;
        }
        fs::rename(beside, place)
    }
}

impl Drop for CacheDraft {
    fn drop(&mut self) {
        if let Some(fresh) = &self.fresh {
            // It is only a cache; the next one is written over it.
            let _ = fs::remove_file(fresh);
        }
    }
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
            fs::set_permissions(path, Permissions::from_mode(0o700))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(path)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_private_even_where_it_was_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        Home::open(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let home = Home::open(&path).unwrap();
        assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn one_process_runs_a_plan_and_others_that_do_not_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
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
        let home = Home::open(folder.path()).unwrap();
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
        let home = Home::open(folder.path()).unwrap();
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
        assert!(matches!(Home::open(file.path()), Err(Error::Home { .. })));
    }

    #[test]
    fn a_cache_comes_back_with_what_it_relies_on_and_a_strange_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
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
        let path = head_of(&home.cache_path(id, What::Files));
        let text = fs::read_to_string(&path).unwrap();
        for wrong in [text.replacen("\na", "\nc", 1), "0\nx".to_owned(), String::new()] {
            fs::write(&path, wrong).unwrap();
            assert!(home.read_cache(id, What::Files).is_none());
        }
        assert!(home.disk_bytes().unwrap() > 0);
    }
}
