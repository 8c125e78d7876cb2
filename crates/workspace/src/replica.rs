//! Copy of a folder that moves between captured states, to try commands in.
//!
//! Input: a folder, and captured states with the rollback plan for each. Output: a copy that equals the
//! folder after that rollback, including the paths that captures leave out. The folder itself is only read.
//!
//! A move writes only differences. Changes by a command are found by timestamps, inode and size, and undone:
//! captured paths from objects, all others from the folder. Nothing is synced: after a crash the copy is
//! deleted.

use crate::copy::{self, Copied, Copying, Here, Selection};
use crate::error::WorkspaceError;
use crate::linux::{self, Facts};
use crate::plan::{RollbackPlan, owners};
use crate::root::Root;
use crate::scan::{self, DEPTH_MAX, Snapshot};
use crate::stage::{self, StageWriter, Times};
use crate::threads;
use rayon::prelude::*;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use safepoint_model::change::{self, Delta};
use safepoint_model::coverage::Skipped;
use safepoint_model::progress::Activity;
use safepoint_model::rollback::{Action, How};
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectId, ObjectSource, Progress, RelPath};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::Path;

/// Facts of every path of a folder.
type Stamps = BTreeMap<RelPath, Facts>;

/// Temporary file that tests if content can be shared.
const SHARE_NAME: &[u8] = b".safepoint-share";

/// Folder to copy.
pub struct ReplicaDraft {
    original: Root,
    own: Vec<RelPath>,
    only: Option<Vec<OsString>>,
    stamps: Stamps,
}

/// Copy of a folder, in one of its states.
pub struct Replica {
    original: Root,
    copy: Root,
    own: Vec<RelPath>,
    only: Option<Vec<OsString>>,
    copied: Copied,
    /// Facts of the folder just before the copy.
    before: Stamps,
    /// Facts of the copy before a command ran.
    ledger: Stamps,
    at: Option<Standing>,
    /// Paths left in an unknown state by a failed move.
    unsure: BTreeSet<RelPath>,
}

/// State to move a copy to.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    /// Current state of the folder.
    pub now: &'a Snapshot,
    /// Captured state with the rollback plan to it; `None` for the current state.
    pub target: Option<(&'a Snapshot, &'a RollbackPlan)>,
    /// Timestamps of restored files.
    pub times: Times,
}

/// Definition of a state of the copy.
#[derive(Debug, Clone, Default)]
struct Standing {
    /// Tree of the captured paths.
    tree: Option<ObjectId>,
    /// True if they come from objects; otherwise from the folder.
    captured: bool,
    /// Captured paths of the folder that this state lacks.
    removed: BTreeSet<RelPath>,
    /// Paths of the target that stay as in the folder.
    kept: BTreeSet<RelPath>,
}

/// Content wanted at a path.
enum Wanted {
    Nothing,
    Object(Entry),
    /// Entry of the folder, if any.
    Original,
}

fn selection<'a>(own: &'a [RelPath], only: &'a Option<Vec<OsString>>) -> Selection<'a> {
    Selection { own, only: only.as_deref() }
}

impl ReplicaDraft {
    /// Reads the facts of a folder. `own` lists paths that are not copied; `only` limits the copy to these
    /// names in the root.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn new(
        original: Root,
        own: Vec<RelPath>,
        only: Option<Vec<OsString>>,
    ) -> Result<Self, WorkspaceError> {
        let stamps = look(&original, selection(&own, &only))?;
        Ok(Self { original, own, only, stamps })
    }

    /// Returns the bytes that a copy takes in this folder: 0 if the file system shares content.
    ///
    /// # Errors
    /// Fails if the folder is not writable.
    pub fn bytes_in(&self, folder: &Path) -> Result<u64, WorkspaceError> {
        let files = || self.stamps.iter().filter(|(_, facts)| facts.file_type.is_file());
        if let Some((path, _)) = files().find(|(_, facts)| facts.disk_bytes > 0)
            && self.shares(path, folder).map_err(|source| made(folder, source))?
        {
            return Ok(0);
        }
        Ok(files().map(|(_, facts)| facts.disk_bytes).fold(0, u64::saturating_add))
    }

    fn shares(&self, path: &RelPath, folder: &Path) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let Some((above, name)) = path.split_last() else { return Ok(false) };
        let from = linux::open_dir_at(self.original.fd(), &above).and_then(|dir| linux::open_file(dir, name));
        // An unreadable file proves nothing about the others.
        let Ok(from) = from else { return Ok(false) };
        let to = linux::create_file(&folder, SHARE_NAME)?;
        let shared = rustix::fs::ioctl_ficlone(&to, &from).is_ok();
        linux::remove_file(&folder, SHARE_NAME)?;
        Ok(shared)
    }

    /// Copies the folder into a new folder.
    ///
    /// # Errors
    /// See [`copy_tree`](crate::copy_tree).
    pub fn make(self, to: &Path, progress: &dyn Progress) -> Result<Replica, WorkspaceError> {
        let Self { original, own, only, stamps: before } = self;
        settle_stamps(&before);
        let copied = copy::copy_levels(&original, to, selection(&own, &only), DEPTH_MAX, progress)?;
        let copy = Root::open(to)?;
        let (at, unsure) = (None, BTreeSet::new());
        let mut replica =
            Replica { original, copy, own, only, copied, before, ledger: Stamps::new(), at, unsure };
        replica.take_stock()?;
        Ok(replica)
    }
}

/// Returns the free bytes on the file system of this folder.
///
/// # Errors
/// Fails if the folder cannot be opened.
pub fn free_bytes(folder: &Path) -> Result<u64, WorkspaceError> {
    linux::open_folder(folder).and_then(linux::free_bytes).map_err(|source| made(folder, source))
}

fn made(folder: &Path, source: io::Error) -> WorkspaceError {
    WorkspaceError::MakeCopy { path: folder.to_owned(), source }
}

/// Waits until a change of any of these paths would be visible.
fn settle_stamps(stamps: &Stamps) {
    if let Some(newest) = stamps.values().map(|facts| facts.ctime_ns).max() {
        linux::wait_for_tick(newest);
    }
}

fn look(root: &Root, selection: Selection<'_>) -> Result<Stamps, WorkspaceError> {
    let stamps = || -> io::Result<Stamps> {
        let top = linux::open_dir(root.fd(), b".")?;
        let mut found = stamps_below(root, &top, &RelPath::root(), selection)?;
        found.push((RelPath::root(), linux::facts_of(&top)?));
        Ok(found.into_iter().collect())
    };
    threads::run(stamps).map_err(|source| WorkspaceError::Read { path: RelPath::root(), source })
}

fn stamps_below(
    root: &Root,
    dir: &OwnedFd,
    path: &RelPath,
    selection: Selection<'_>,
) -> io::Result<Vec<(RelPath, Facts)>> {
    let one = |name: &Vec<u8>| -> io::Result<Vec<(RelPath, Facts)>> {
        let path = path.join(name).map_err(io::Error::other)?;
        let Some(facts) = linux::facts_if_any(dir, name)?.filter(|_| selection.takes(&path)) else {
            return Ok(Vec::new());
        };
        let mut found = vec![(path.clone(), facts)];
        if facts.file_type.is_dir() && facts.place == root.place() {
            // A directory that cannot be entered is compared by its own facts; a deleted one is ignored.
            if let Ok(below) = linux::open_dir(dir, name) {
                found.extend(stamps_below(root, &below, &path, selection)?);
            }
        }
        Ok(found)
    };
    let names: Vec<Vec<u8>> = linux::list(dir)?.into_iter().map(|listed| listed.name).collect();
    let found: io::Result<Vec<_>> = names.par_iter().map(one).collect();
    Ok(found?.into_iter().flatten().collect())
}

/// Returns the paths whose facts differ. A directory present in both is compared by its own facts.
fn differing<'s>(old: &'s Stamps, new: &'s Stamps) -> impl Iterator<Item = &'s RelPath> {
    let changed = old.iter().filter(|(path, old)| {
        !new.get(*path).is_some_and(|new| {
            old.same_file_state(new)
                && (old.file_type, old.mode, old.uid, old.gid) == (new.file_type, new.mode, new.uid, new.gid)
        })
    });
    let made = new.keys().filter(|path| !old.contains_key(*path));
    changed.map(|(path, _)| path).chain(made)
}

impl Standing {
    fn of(destination: &Destination<'_>) -> Self {
        let Some((target, plan)) = destination.target else {
            return Self { tree: destination.now.tree(), ..Self::default() };
        };
        let removed = plan.steps.iter().filter(|step| step.new.is_none() && step.how != How::Meta);
        let kept = plan.paths.iter().filter(|changed| changed.action == Action::Kept);
        let blocked = plan.blocked.iter().map(|blocked| blocked.path.clone());
        Self {
            tree: target.tree(),
            captured: true,
            removed: removed.map(|step| step.path.clone()).collect(),
            kept: kept.map(|changed| changed.path.clone()).chain(blocked).collect(),
        }
    }
}

impl Standing {
    /// Returns the tree entry at a path.
    fn entry(&self, source: &dyn ObjectSource, path: &RelPath) -> Result<Option<Entry>, WorkspaceError> {
        match self.tree.filter(|_| !holds(&self.kept, path)) {
            Some(tree) => Ok(change::find(source, tree, path)?),
            None => Ok(None),
        }
    }

    /// Returns the tree entry at a path if the copy takes it from objects.
    fn captured(&self, source: &dyn ObjectSource, path: &RelPath) -> Result<Option<Entry>, WorkspaceError> {
        if self.captured { self.entry(source, path) } else { Ok(None) }
    }
}

/// Returns true if the set contains the path or one of its parents.
fn holds(paths: &BTreeSet<RelPath>, path: &RelPath) -> bool {
    let mut here = Some(path.clone());
    while let Some(path) = here {
        if paths.contains(&path) {
            return true;
        }
        here = path.split_last().map(|(above, _)| above);
    }
    false
}

impl Replica {
    /// Path of the copy.
    pub fn path(&self) -> &Path {
        self.copy.path()
    }

    /// Paths left out of the copy, with reasons.
    pub fn left_out(&self) -> &[Skipped] {
        &self.copied.left_out
    }

    /// Moves the copy to this state and undoes all changes by commands.
    ///
    /// # Errors
    /// Fails if an object is missing or damaged, an entry cannot be written, or the run is interrupted. The
    /// next move repairs the copy.
    pub fn move_to(
        &mut self,
        source: &dyn ObjectSource,
        destination: &Destination<'_>,
        progress: &dyn Progress,
    ) -> Result<(), WorkspaceError> {
        let to = Standing::of(destination);
        let mut paths = self.changed_by_command()?;
        let unsure = std::mem::take(&mut self.unsure);
        paths.extend(unsure.iter().cloned());
        let from = match self.at.take() {
            Some(from) => from,
            None => {
                // A path that changed between the two scans differs from the capture or from the copy.
                let now = look(&self.original, selection(&self.own, &self.only))?;
                paths.extend(differing(&self.before, &now).cloned());
                Standing { tree: destination.now.tree(), ..Standing::default() }
            }
        };
        differences(source, &from, &to, &mut paths)?;
        progress.begin(Activity::Copying, None);
        let journey = Journey { from: &from, to: &to, paths: &paths, unsure: &unsure };
        let moved = threads::run(|| self.carry(source, &journey, destination, progress));
        progress.end();
        self.at = Some(to);
        if moved.is_err() {
            self.unsure = paths;
        }
        moved.and_then(|()| self.take_stock())
    }

    /// Reads the facts of the whole copy, including files that a command created beside the copied names.
    fn look(&self) -> Result<Stamps, WorkspaceError> {
        look(&self.copy, Selection { own: &self.own, only: None })
    }

    fn changed_by_command(&self) -> Result<BTreeSet<RelPath>, WorkspaceError> {
        let now = self.look()?;
        Ok(differing(&self.ledger, &now).cloned().collect())
    }

    /// Records the facts of the copy, so that changes by a command are visible.
    fn take_stock(&mut self) -> Result<(), WorkspaceError> {
        self.ledger = self.look()?;
        settle_stamps(&self.ledger);
        Ok(())
    }

    fn carry(
        &self,
        source: &dyn ObjectSource,
        journey: &Journey<'_>,
        destination: &Destination<'_>,
        progress: &dyn Progress,
    ) -> Result<(), WorkspaceError> {
        let top = linux::facts_of(self.copy.fd()).map_err(|source| made(self.path(), source))?;
        let selection = selection(&self.own, &self.only);
        let mut carry = Carry {
            replica: self,
            source,
            journey,
            writer: StageWriter::new(source, destination.times, progress),
            copying: Copying::new(&self.original, &top, selection, DEPTH_MAX, progress),
            metas: BTreeMap::new(),
            made: BTreeSet::new(),
            progress,
        };
        let root = destination.target.map_or(&destination.now.root, |(target, _)| &target.root);
        carry.metas.insert(RelPath::root(), root.meta.clone());
        for path in journey.paths.iter().filter(|path| !path.is_root()) {
            if !holds(&carry.made, path) {
                carry.settle(path)?;
            }
        }
        carry.finish()
    }
}

/// Collects the paths at which two states of the copy differ.
fn differences(
    source: &dyn ObjectSource,
    from: &Standing,
    to: &Standing,
    paths: &mut BTreeSet<RelPath>,
) -> Result<(), WorkspaceError> {
    if let (Some(old), Some(new)) = (from.tree, to.tree) {
        let deltas = change::deltas(source, old, new, owners())?;
        paths.extend(deltas.iter().map(Delta::path).cloned());
    }
    paths.extend(from.removed.symmetric_difference(&to.removed).cloned());
    paths.extend(from.kept.symmetric_difference(&to.kept).cloned());
    Ok(())
}

/// Move from one state to another.
struct Journey<'a> {
    from: &'a Standing,
    to: &'a Standing,
    /// Topmost paths that may differ.
    paths: &'a BTreeSet<RelPath>,
    /// Subset of `paths` in an unknown state, with everything below.
    unsure: &'a BTreeSet<RelPath>,
}

/// Running move.
struct Carry<'a> {
    replica: &'a Replica,
    source: &'a dyn ObjectSource,
    journey: &'a Journey<'a>,
    writer: StageWriter<'a>,
    copying: Copying<'a>,
    /// Final metadata of directories, set last: writing in them may need rights that it removes.
    metas: BTreeMap<RelPath, Meta>,
    /// Directories created with their whole content.
    made: BTreeSet<RelPath>,
    progress: &'a dyn Progress,
}

impl Carry<'_> {
    fn wanted(&self, path: &RelPath) -> Result<Wanted, WorkspaceError> {
        let to = self.journey.to;
        if let Some(entry) = to.captured(self.source, path)? {
            return Ok(Wanted::Object(entry));
        }
        Ok(if holds(&to.removed, path) { Wanted::Nothing } else { Wanted::Original })
    }

    /// Returns true if a directory of the copy has the same origin before and after the move. Then its
    /// differing paths are known; otherwise all of it must be walked.
    fn is_known(&self, path: &RelPath, wanted: &Wanted) -> Result<bool, WorkspaceError> {
        let was_there = self.replica.ledger.get(path).is_some_and(|facts| facts.file_type.is_dir());
        if !was_there || holds(self.journey.unsure, path) {
            return Ok(false);
        }
        let from = self.journey.from;
        Ok(match (wanted, from.entry(self.source, path)?) {
            (Wanted::Object(_), Some(Entry { node: Node::Directory(_), .. })) => true,
            (Wanted::Original, before) => before.is_none() || !from.captured,
            _ => false,
        })
    }

    /// Makes one path of the copy match its state. Its parents match already.
    fn settle(&mut self, path: &RelPath) -> Result<(), WorkspaceError> {
        if self.progress.interrupted() {
            return Err(WorkspaceError::Interrupted);
        }
        let Some((above, name)) = path.split_last() else { return Ok(()) };
        let failed = |source| WorkspaceError::Copy { path: path.clone(), source };
        let wanted = self.wanted(path)?;
        let dir = match self.open(&above) {
            Ok(dir) => dir,
            // A path without a parent directory needs no entry.
            Err(error) if is_no_place(&error) && !matches!(wanted, Wanted::Object(_)) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let there = linux::facts_if_any(&dir, name).map_err(failed)?;
        let is_dir = there.is_some_and(|facts| facts.file_type.is_dir());
        let stays = is_dir && self.is_known(path, &wanted)?;
        let remove = || stage::remove_tree(&dir, name).map_err(failed);
        match wanted {
            Wanted::Nothing => remove(),
            Wanted::Object(entry) => match &entry.node {
                Node::Directory(_) if stays => {
                    self.metas.insert(path.clone(), entry.meta);
                    Ok(())
                }
                Node::Directory(_) => {
                    if !is_dir {
                        remove()?;
                    }
                    self.build(&dir, name, path, &entry)
                }
                _ => {
                    remove()?;
                    self.writer.entry(&dir, name, path, &entry)
                }
            },
            Wanted::Original => match self.original_directory(path).map_err(failed)? {
                Some((_, meta)) if stays => {
                    self.metas.insert(path.clone(), meta);
                    Ok(())
                }
                original => {
                    remove()?;
                    self.copy_again(&above, name)?;
                    if original.is_some() {
                        self.take_away_below(path)?;
                    }
                    Ok(())
                }
            },
        }
    }

    /// Creates a captured directory, including the folder's uncaptured entries in it.
    fn build(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        entry: &Entry,
    ) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Copy { path: path.clone(), source };
        let Node::Directory(tree) = &entry.node else { return Ok(()) };
        self.made.insert(path.clone());
        let Some((original, _)) = self.original_directory(path).map_err(failed)? else {
            stage::remove_tree(dir, name).map_err(failed)?;
            return self.writer.entry(dir, name, path, entry);
        };
        match linux::make_dir(dir, name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(failed)?,
        }
        let copy = linux::open_dir(dir, name).map_err(failed)?;
        linux::drop_acls(&copy).map_err(failed)?;
        let tree = Tree::load(self.source, *tree)?;
        let mut names: BTreeSet<Vec<u8>> = tree.entries().iter().map(|entry| entry.name.clone()).collect();
        for dir in [&original, &copy] {
            names.extend(linux::list(dir).map_err(failed)?.into_iter().map(|listed| listed.name));
        }
        for name in names {
            self.settle(&scan::join(path, &name)?)?;
        }
        self.metas.insert(path.clone(), entry.meta.clone());
        Ok(())
    }

    /// Opens the directory of the original folder at a path, if any.
    fn original_directory(&self, path: &RelPath) -> io::Result<Option<(OwnedFd, Meta)>> {
        match linux::open_dir_at(self.replica.original.fd(), path) {
            Ok(fd) => {
                let meta = linux::read_meta(&fd, &linux::facts_of(&fd)?)?.meta;
                Ok(Some((fd, meta)))
            }
            Err(error) if is_no_place(&error) || error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Copies the entry of the original folder, if any.
    fn copy_again(&self, above: &RelPath, name: &[u8]) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Copy { path: above.clone(), source };
        let from = match linux::open_dir_at(self.replica.original.fd(), above) {
            Err(error) if is_no_place(&error) => return Ok(()),
            other => other.map_err(failed)?,
        };
        let to = linux::open_dir_at(self.replica.copy.fd(), above).map_err(failed)?;
        let depth = above.names().count();
        self.copying.alone(&Here { from, to, path: above.clone(), depth }, name)
    }

    /// Removes the paths that this state lacks from a directory that was copied whole.
    fn take_away_below(&mut self, path: &RelPath) -> Result<(), WorkspaceError> {
        let below: Vec<RelPath> =
            self.journey.to.removed.iter().filter(|removed| removed.is_within(path)).cloned().collect();
        self.made.insert(path.clone());
        below.iter().try_for_each(|removed| self.settle(removed))
    }

    /// Opens a directory of the copy for changes, adding the needed rights.
    fn open(&mut self, path: &RelPath) -> io::Result<OwnedFd> {
        let fd = linux::open_dir_at(self.replica.copy.fd(), path)?;
        let facts = linux::facts_of(&fd)?;
        if facts.mode & 0o300 != 0o300 && !linux::is_root() {
            let meta = linux::read_meta(&fd, &facts)?.meta;
            linux::set_mode(&fd, facts.mode | 0o700)?;
            self.metas.entry(path.clone()).or_insert(meta);
        }
        Ok(fd)
    }

    /// Sets the metadata of directories, deepest first, because a mode may forbid changes in its directory.
    fn finish(self) -> Result<(), WorkspaceError> {
        for (path, wanted) in self.metas.iter().rev() {
            let failed = |source| WorkspaceError::Copy { path: path.clone(), source };
            let fd = match linux::open_dir_at(self.replica.copy.fd(), path) {
                Err(error) if is_no_place(&error) => continue,
                other => other.map_err(failed)?,
            };
            let now = linux::facts_of(&fd).and_then(|facts| linux::read_meta(&fd, &facts)).map_err(failed)?;
            linux::set_meta(&fd, &now.meta, wanted, owners()).map_err(failed)?;
        }
        Ok(())
    }
}

/// Returns true if no directory is at a path.
fn is_no_place(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EXDEV))
}
