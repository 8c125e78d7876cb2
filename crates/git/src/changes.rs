//! Uncommitted changes: index against HEAD, files against index, and untracked files.
//!
//! Files are compared by their bytes alone. If a filter or a line-ending rule applies to a file, and git has
//! not recorded the file's times, it counts as changed: a false positive is accepted, because no configured
//! program may run.

use crate::folder::Folder;
use crate::ignores::{Ignores, RULES_BYTES_MAX, RULES_FILE};
use crate::index::Tracked;
use crate::objects::Objects;
use crate::{GitError, Head, Repository};
use gix_hash::ObjectId as Oid;
use gix_index::entry::{Flags, Mode, Stage};
use gix_object::Kind;
use rustix::fs::{FileType, Stat};
use safepoint_model::{Progress, RelPath};
use std::collections::HashMap;
use std::io::Read;

/// Maximum number of paths named.
const EXAMPLES_MAX: usize = 5;
const DEPTH_MAX: usize = 2_000;

/// Uncommitted changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Paths that differ between index and HEAD.
    pub staged: u64,
    /// Tracked files that differ from the index, or are missing.
    pub modified: u64,
    /// Files that git neither tracks nor ignores; at least one per new folder.
    pub untracked: u64,
    /// Some of these paths.
    pub examples: Vec<RelPath>,
}

impl Changes {
    /// Returns true if everything is committed.
    pub fn is_empty(&self) -> bool {
        self.staged + self.modified + self.untracked == 0
    }

    fn name(&mut self, path: &[u8]) {
        if let Ok(path) = RelPath::new(path)
            && self.examples.len() < EXAMPLES_MAX
            && !self.examples.contains(&path)
        {
            self.examples.push(path);
        }
    }
}

impl Repository {
    /// Finds uncommitted changes in the whole repository.
    ///
    /// # Errors
    /// When the repository or its files cannot be read, or `progress` interrupts.
    pub fn changes(&self, progress: &dyn Progress) -> Result<Changes, GitError> {
        let index = self.index()?;
        let mut changes = Changes::default();
        self.staged(&index, &mut changes)?;
        let mut looking = Looking {
            repository: self,
            tracked: Tracked::new(&index),
            index: &index,
            seen: 0,
            changes: &mut changes,
            progress,
        };
        let top = Folder::open(self.top())?;
        looking.folder(&top, &RelPath::root(), &self.ignores_of_repository()?, false, 0)?;
        looking.gone(&top)?;
        Ok(changes)
    }

    fn staged(&self, index: &gix_index::State, changes: &mut Changes) -> Result<(), GitError> {
        let objects = Objects::open(self)?;
        let tree = match self.head()? {
            Head::Unborn { .. } => None,
            Head::Branch { commit, .. } | Head::Detached { commit } => Some(objects.tree_of(commit)?),
        };
        // The index caches the id of the tree that it is equal to.
        let same = |known: &gix_index::extension::Tree| known.num_entries.is_some() && Some(known.id) == tree;
        if index.tree().is_some_and(same) {
            return Ok(());
        }
        let mut committed = HashMap::new();
        if let Some(tree) = tree {
            self.flatten(&objects, &tree, &RelPath::root(), 0, &mut committed)?;
        }
        for entry in index.entries().iter().filter(|entry| !entry.mode.is_sparse()) {
            let path = entry.path(index);
            let same = committed.remove(path.to_vec().as_slice()) == Some((entry.mode.bits(), entry.id));
            if !same || entry.stage() != Stage::Unconflicted {
                changes.staged += 1;
                changes.name(path);
            }
        }
        if !index.is_sparse() {
            changes.staged += committed.len() as u64;
            let mut gone: Vec<&Vec<u8>> = committed.keys().collect();
            gone.sort();
            gone.into_iter().take(EXAMPLES_MAX).for_each(|path| changes.name(path));
        }
        Ok(())
    }

    fn flatten(
        &self,
        objects: &Objects<'_>,
        tree: &Oid,
        path: &RelPath,
        depth: usize,
        all: &mut HashMap<Vec<u8>, (u32, Oid)>,
    ) -> Result<(), GitError> {
        if depth > DEPTH_MAX {
            return Err(self.damaged("its trees are nested too deeply"));
        }
        for entry in objects.entries(tree)? {
            let below = path.join(&entry.filename).map_err(|error| self.damaged(error))?;
            if entry.mode.is_tree() {
                self.flatten(objects, &entry.oid, &below, depth + 1, all)?;
            } else {
                all.insert(below.as_bytes().to_vec(), (Mode::from(entry.mode.kind()).bits(), entry.oid));
            }
        }
        Ok(())
    }
}

struct Looking<'a> {
    repository: &'a Repository,
    tracked: Tracked,
    index: &'a gix_index::State,
    /// Number of tracked entries found.
    seen: usize,
    changes: &'a mut Changes,
    progress: &'a dyn Progress,
}

impl Looking<'_> {
    fn folder(
        &mut self,
        folder: &Folder,
        path: &RelPath,
        above: &Ignores,
        ignored: bool,
        depth: usize,
    ) -> Result<(), GitError> {
        if self.progress.interrupted() {
            return Err(GitError::Interrupted);
        }
        if depth > DEPTH_MAX {
            return Err(self.repository.unsupported("its folders are nested too deeply"));
        }
        let text = folder.read(RULES_FILE, RULES_BYTES_MAX).ok().flatten();
        let ignores = text.map_or(above.clone(), |text| above.with(path.as_bytes(), &text));
        for (name, kind) in folder.names()? {
            if name == b".git" || (depth == 0 && name == b".safepoint") {
                continue;
            }
            let below = path.join(&name).map_err(|error| self.repository.damaged(error))?;
            let bytes = below.as_bytes();
            let is_dir = kind == FileType::Directory;
            let alone = ignored || ignores.leave_alone(bytes, is_dir);
            match kind {
                FileType::Directory if self.tracked.submodules.contains_key(bytes) => self.submodule(bytes),
                FileType::Directory if alone && !self.tracked.has_below(bytes) => {}
                FileType::Directory => {
                    // If it vanished concurrently, its missing entries are detected.
                    if let Some(folder) = folder.below(&name)? {
                        self.folder(&folder, &below, &ignores, alone, depth + 1)?;
                    }
                }
                FileType::RegularFile | FileType::Symlink => self.file(folder, &name, bytes, alone)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn submodule(&mut self, path: &[u8]) {
        self.seen += 1;
        let recorded = self.tracked.submodules.get(path).copied();
        let at = self.repository.submodule_head(path);
        if at.is_some() && at != recorded {
            self.changes.modified += 1;
            self.changes.name(path);
        }
    }

    fn file(&mut self, folder: &Folder, name: &[u8], path: &[u8], ignored: bool) -> Result<(), GitError> {
        let changed = match self.index.entry_by_path_and_stage(path.into(), Stage::Unconflicted) {
            Some(entry) => {
                self.seen += 1;
                let differs = self.differs(folder, name, entry)?;
                self.changes.modified += u64::from(differs);
                differs
            }
            // A conflicted entry was counted as staged.
            None if self.tracked.has_file(path) => false,
            None => {
                self.changes.untracked += u64::from(!ignored);
                !ignored
            }
        };
        if changed {
            self.changes.name(path);
        }
        Ok(())
    }

    fn differs(&self, folder: &Folder, name: &[u8], entry: &gix_index::Entry) -> Result<bool, GitError> {
        if entry.flags.contains(Flags::ASSUME_VALID) {
            return Ok(false);
        }
        let Some(stat) = folder.stat(name)? else { return Ok(true) };
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let executable = stat.st_mode & 0o100 != 0;
        let same_mode = match entry.mode {
            Mode::SYMLINK => link,
            Mode::FILE => !link && (!executable || !self.repository.file_mode),
            Mode::FILE_EXECUTABLE => !link && (executable || !self.repository.file_mode),
            _ => false,
        };
        if !same_mode {
            return Ok(true);
        }
        if self.is_known(entry, &stat) {
            return Ok(false);
        }
        let hash = self.repository.hash;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mut hasher = gix_hash::hasher(hash);
        hasher.update(&gix_object::encode::loose_header(Kind::Blob, size));
        if link {
            hasher.update(&folder.link(name)?);
        } else {
            let Some(file) = folder.file(name)? else { return Ok(true) };
            let mut file = file.take(size);
            let mut buffer = vec![0; 128 * 1024];
            loop {
                match file.read(&mut buffer).map_err(GitError::read(folder.at(name)))? {
                    0 => break,
                    read => hasher.update(&buffer[..read]),
                }
            }
        }
        let found = hasher.try_finalize().map_err(|error| self.repository.damaged(error))?;
        Ok(found != entry.id)
    }

    /// Returns true if git recorded the current state of the file, long enough ago to trust its time.
    fn is_known(&self, entry: &gix_index::Entry, stat: &Stat) -> bool {
        let seen = &entry.stat;
        let index = self.index.timestamp();
        let (mtime, nanos) = (stat.st_mtime, stat.st_mtime_nsec);
        let older = (mtime, i64::try_from(nanos).unwrap_or(0))
            < (index.unix_seconds(), i64::from(index.nanoseconds()));
        older
            && i64::from(seen.mtime.secs) == mtime
            && (seen.mtime.nsecs == 0 || u64::from(seen.mtime.nsecs) == nanos)
            && u64::from(seen.size) == u64::try_from(stat.st_size).unwrap_or(0)
            && u64::from(seen.ino) == stat.st_ino & 0xffff_ffff
            && i64::from(seen.ctime.secs) == stat.st_ctime
    }

    /// Counts tracked entries that were not found.
    fn gone(&mut self, top: &Folder) -> Result<(), GitError> {
        let expected: Vec<&gix_index::Entry> = self
            .index
            .entries()
            .iter()
            .filter(|entry| entry.stage() == Stage::Unconflicted && !entry.mode.is_sparse())
            .filter(|entry| !entry.flags.intersects(Flags::SKIP_WORKTREE | Flags::ASSUME_VALID))
            .collect();
        if self.seen >= expected.len() {
            return Ok(());
        }
        for entry in expected {
            let path = entry.path(self.index);
            if !top.has(path)? {
                self.changes.modified += 1;
                self.changes.name(path);
            }
        }
        Ok(())
    }
}
