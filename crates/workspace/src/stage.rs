//! The stage of one rollback: a folder on the workspace's own file system with one slot per step.
//!
//! New content is written into the slots, and made durable, before anything in the workspace changes. After a swap the
//! slot holds what was displaced. `stage-ID` holds copies only and may be thrown away; from the moment of the intent on
//! the folder is `apply-ID`, may hold somebody's only copy, and is never deleted unseen.

use crate::error::WorkspaceError;
use crate::linux;
use crate::plan::owners;
use crate::probe::Capabilities;
use crate::root::{Root, own_path};
use crate::threads;
use rayon::prelude::*;
use rustix::fd::{AsFd, OwnedFd};
use safepoint_model::content::{Content, Stretch};
use safepoint_model::progress::Activity;
use safepoint_model::rollback::{How, Step};
use safepoint_model::tree::{Entry, Meta, Node, Owners, Tree};
use safepoint_model::{ObjectSource, Progress, RelPath, RollbackId};
use safepoint_planted::planted;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Mutex;

/// Up to this many files are made durable one by one; beyond, the whole file system at once. With few files the data that
/// other programs wrote must not make us wait; with many, one call is faster than thousands.
pub(crate) const SYNC_ONE_BY_ONE_MAX: usize = 16;

const STAGE: &str = "stage-";
const APPLY: &str = "apply-";

/// The stage of one rollback, open.
pub struct Stage<'r> {
    pub(crate) root: &'r Root,
    pub(crate) own: OwnedFd,
    pub(crate) fd: OwnedFd,
    pub(crate) name: String,
    pub(crate) id: RollbackId,
    pub(crate) capabilities: Capabilities,
    /// Files as they were staged: by inode, their last change and size. A path that differs from what was put there, in a file
    /// that nobody wrote to since, is damage and not an edit.
    pub(crate) staged: HashMap<u64, (i64, u64)>,
    /// Whether it was found, left by another process, and not made by this one.
    pub(crate) found: bool,
}

/// Which time restored files carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Times {
    /// The present, so that build tools notice.
    #[default]
    Present,
    /// The one that was recorded.
    Recorded,
}

/// How a stage is built.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageOptions {
    /// What the file system can do.
    pub capabilities: Capabilities,
    /// Which time restored files carry.
    pub times: Times,
}

/// Whether a name in Safepoint's own folder is that of a stage.
pub(crate) fn is_stage_name(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let id = name.strip_prefix(STAGE).or_else(|| name.strip_prefix(APPLY));
    id.is_some_and(|id| id.parse::<RollbackId>().is_ok())
}

/// What was found in Safepoint's own folder.
pub(crate) fn leftovers(root: &Root) -> io::Result<(Vec<RollbackId>, Vec<RollbackId>)> {
    let (mut staged, mut applied) = (Vec::new(), Vec::new());
    if let Some(own) = root.own_folder()? {
        for entry in linux::list(&own)? {
            // Only a folder can be a stage; whatever else has such a name is not ours.
            if !linux::facts_if_any(&own, &entry.name)?.is_some_and(|facts| facts.file_type.is_dir()) {
                continue;
            }
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if let Some(Ok(id)) = name.strip_prefix(STAGE).map(str::parse) {
                staged.push(id);
            } else if let Some(Ok(id)) = name.strip_prefix(APPLY).map(str::parse) {
                applied.push(id);
            }
        }
    }
    Ok((staged, applied))
}

impl<'r> Stage<'r> {
    /// Ids of rollbacks that left a stage: first those that never came to their intent as far as the folder's name
    /// tells, then the others.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn leftovers(root: &Root) -> Result<(Vec<RollbackId>, Vec<RollbackId>), WorkspaceError> {
        leftovers(root).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => {
                root.check_own_folder().err().unwrap_or(WorkspaceError::Read { path: own_path(), source })
            }
            _ => WorkspaceError::Read { path: own_path(), source },
        })
    }

    /// Writes all that the steps put into the workspace, and makes it durable.
    ///
    /// # Errors
    /// When an object is missing or damaged, the disk is full, or somebody interrupts: nothing has changed then, and the
    /// stage is gone again.
    pub fn build(
        root: &'r Root,
        id: RollbackId,
        steps: &[Step],
        options: StageOptions,
        source: &dyn ObjectSource,
        progress: &dyn Progress,
    ) -> Result<Self, WorkspaceError> {
        let StageOptions { capabilities, times } = options;
        let failed = |source| WorkspaceError::Stage { path: own_path(), source };
        let name = format!("{STAGE}{id}");
        let own = root.make_own_folder().map_err(failed)?;
        linux::make_dir(&own, name.as_bytes()).map_err(failed)?;
        let fd = linux::open_dir(&own, name.as_bytes()).map_err(failed)?;
        linux::drop_acls(&fd).map_err(failed)?;
        let mut stage = Self { root, own, fd, name, id, capabilities, staged: HashMap::new(), found: false };
        match stage.fill(steps, times, source, progress) {
            Ok(()) => Ok(stage),
            Err(error) => {
                // Copies only. What cannot be taken away now, the next recovery takes away.
                let _ = stage.discard();
                Err(error)
            }
        }
    }

    /// Opens the stage that a rollback left, under whichever of its names; nothing when there is none.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(
        root: &'r Root,
        id: RollbackId,
        capabilities: Capabilities,
    ) -> Result<Option<Self>, WorkspaceError> {
        let failed = |source| WorkspaceError::Read { path: own_path(), source };
        let Some(own) = root.own_folder().map_err(failed)? else { return Ok(None) };
        for prefix in [APPLY, STAGE] {
            let name = format!("{prefix}{id}");
            match linux::open_dir(&own, name.as_bytes()) {
                Ok(fd) => {
                    return Ok(Some(Self {
                        root,
                        own,
                        fd,
                        name,
                        id,
                        capabilities,
                        staged: HashMap::new(),
                        found: true,
                    }));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(None)
    }

    /// The same for a rollback that was on its way: where its stage is gone, an empty one stands for it, and what it held is
    /// rebuilt from objects.
    ///
    /// # Errors
    /// When it can be neither opened nor made.
    pub fn reopen(
        root: &'r Root,
        id: RollbackId,
        capabilities: Capabilities,
    ) -> Result<Self, WorkspaceError> {
        if let Some(stage) = Self::open(root, id, capabilities)? {
            return Ok(stage);
        }
        let failed = |source| WorkspaceError::Stage { path: own_path(), source };
        let name = format!("{APPLY}{id}");
        let own = root.make_own_folder().map_err(failed)?;
        linux::make_dir(&own, name.as_bytes()).map_err(failed)?;
        let fd = linux::open_dir(&own, name.as_bytes()).map_err(failed)?;
        linux::drop_acls(&fd).map_err(failed)?;
        Ok(Self { root, own, fd, name, id, capabilities, staged: HashMap::new(), found: true })
    }

    fn fill(
        &mut self,
        steps: &[Step],
        times: Times,
        source: &dyn ObjectSource,
        progress: &dyn Progress,
    ) -> Result<(), WorkspaceError> {
        progress.begin(Activity::Staging, None);
        let writer = StageWriter::new(source, times, progress);
        let write = |step: &Step| match (&step.new, step.how) {
            (Some(new), How::Swap { slot }) => {
                writer.entry(&self.fd, slot_name(slot).as_bytes(), &step.path, &new.entry)
            }
            _ => Ok(()),
        };
        let result = threads::run(|| steps.par_iter().try_for_each(write));
        progress.end();
        result?;
        let written = writer.finish();
        match &written.handles {
            Some(handles) => {
                let folders = [self.fd.as_fd(), self.own.as_fd(), self.root.fd()];
                if !planted!("stage-files-not-synced") {
                    handles.iter().try_for_each(linux::sync).map_err(WorkspaceError::Sync)?;
                }
                folders.iter().try_for_each(linux::sync).map_err(WorkspaceError::Sync)?;
            }
            None if planted!("stage-of-many-not-synced") => {}
            None => linux::sync_all(&self.fd).map_err(WorkspaceError::Sync)?,
        }
        self.staged = written.files;
        Ok(())
    }

    /// Marks the stage as one that will hold displaced content. To be called when the intent is durable.
    ///
    /// # Errors
    /// When the rename fails; nothing has changed in the workspace then.
    pub fn arm(&mut self) -> Result<(), WorkspaceError> {
        let armed = format!("{APPLY}{}", self.id);
        let moved = rustix::fs::renameat(&self.own, self.name.as_str(), &self.own, armed.as_str());
        moved.map_err(|error| WorkspaceError::Stage { path: RelPath::root(), source: error.into() })?;
        self.name = armed;
        Ok(())
    }

    /// Deletes the stage with all that is in it. The caller knows that nothing in it is needed any more.
    ///
    /// # Errors
    /// When something cannot be deleted; the next recovery tries again.
    pub fn discard(self) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Stage { path: RelPath::root(), source };
        threads::run(|| remove_tree(&self.own, self.name.as_bytes())).map_err(failed)?;
        self.root.drop_own_folder().map_err(failed)
    }
}

/// The name of a slot.
pub(crate) fn slot_name(slot: u64) -> String {
    format!("{slot}")
}

/// Writes entries from objects, in parallel.
pub(crate) struct StageWriter<'a> {
    source: &'a dyn ObjectSource,
    progress: &'a dyn Progress,
    times: Times,
    owners: Owners,
    written: Mutex<Written>,
}

/// What was written.
pub(crate) struct Written {
    /// Handles to sync one by one; nothing once there are too many for that.
    pub(crate) handles: Option<Vec<OwnedFd>>,
    /// Files by inode: their last change and their size.
    pub(crate) files: HashMap<u64, (i64, u64)>,
}

impl<'a> StageWriter<'a> {
    pub(crate) fn new(source: &'a dyn ObjectSource, times: Times, progress: &'a dyn Progress) -> Self {
        let written = Written { handles: Some(Vec::new()), files: HashMap::new() };
        Self { source, progress, times, owners: owners(), written: Mutex::new(written) }
    }

    pub(crate) fn finish(self) -> Written {
        self.written.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Writes one entry, with everything below it, under a name that is free.
    pub(crate) fn entry(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        entry: &Entry,
    ) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Stage { path: path.clone(), source };
        if self.progress.interrupted() {
            return Err(WorkspaceError::Interrupted);
        }
        match &entry.node {
            Node::File(content) => self.file(dir, name, path, content, &entry.meta),
            Node::Symlink(target) => {
                linux::make_link(dir, name, target).map_err(failed)?;
                if self.owners == Owners::Compared {
                    linux::set_link_owner(dir, name, &entry.meta).map_err(failed)?;
                }
                self.progress.advance(1, 0);
                Ok(())
            }
            Node::Directory(tree) => {
                linux::make_dir(dir, name).map_err(failed)?;
                let fd = linux::open_dir(dir, name).map_err(failed)?;
                // The folder around it may hand down ACLs that are none of the entry's.
                linux::drop_acls(&fd).map_err(failed)?;
                let tree = Tree::load(self.source, *tree)?;
                tree.entries().par_iter().try_for_each(|child| {
                    let path = path.join(&child.name).map_err(|error| failed(io::Error::other(error)))?;
                    self.entry(&fd, &child.name, &path, child)
                })?;
                self.set_meta(&fd, &entry.meta).map_err(failed)?;
                self.note(fd, None);
                Ok(())
            }
        }
    }

    /// Writes what is in a directory into one that is open and empty.
    pub(crate) fn fill(&self, fd: &OwnedFd, entry: &Entry) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Stage { path: RelPath::root(), source };
        linux::drop_acls(fd).map_err(failed)?;
        if let Node::Directory(tree) = &entry.node {
            let tree = Tree::load(self.source, *tree)?;
            tree.entries().par_iter().try_for_each(|child| {
                let path =
                    RelPath::root().join(&child.name).map_err(|error| failed(io::Error::other(error)))?;
                self.entry(fd, &child.name, &path, child)
            })?;
        }
        self.set_meta(fd, &entry.meta).map_err(failed)
    }

    /// Gives something new its owner, attributes and mode. Whose it is already depends on the folder that it was made in.
    fn set_meta(&self, fd: &OwnedFd, meta: &Meta) -> io::Result<()> {
        let mut now = Meta::default();
        if self.owners == Owners::Compared {
            let facts = linux::facts_of(fd)?;
            (now.uid, now.gid) = (facts.uid, facts.gid);
        }
        linux::set_meta(fd, &now, meta, self.owners)
    }

    fn file(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        content: &Content,
        meta: &Meta,
    ) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Stage { path: path.clone(), source };
        let mut file = File::from(linux::create_file(dir, name).map_err(failed)?);
        let (mut at, mut ends_in_hole) = (0, false);
        for stretch in content.stretches(self.source)? {
            ends_in_hole = match stretch {
                Stretch::Data(piece) => write_sparse(&mut file, at, &piece.load(self.source)?),
                Stretch::Hole(size) => file.seek(SeekFrom::Start(at.saturating_add(size))).map(|_| true),
            }
            .map_err(failed)?;
            at += stretch.size();
        }
        if ends_in_hole {
            file.set_len(content.size).map_err(failed)?;
        }
        let fd = OwnedFd::from(file);
        self.set_meta(&fd, meta).map_err(failed)?;
        if self.times == Times::Recorded {
            linux::set_times_to(&fd, meta.mtime_ns).map_err(failed)?;
        }
        let facts = linux::facts_of(&fd).map_err(failed)?;
        self.note(fd, Some((facts.ino, (facts.mtime_ns, facts.size))));
        self.progress.advance(1, content.size);
        Ok(())
    }

    fn note(&self, fd: OwnedFd, facts: Option<(u64, (i64, u64))>) {
        let mut written = self.written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        written.files.extend(facts);
        if let Some(handles) = &mut written.handles {
            handles.push(fd);
            if handles.len() > SYNC_ONE_BY_ONE_MAX {
                written.handles = None;
            }
        }
    }
}

/// A run of zeros of at least this length becomes a hole.
const HOLE_BYTES_MIN: usize = 32 * 1024;
/// The smallest hole that file systems make; a hole lies at multiples of it.
const BLOCK_BYTES: usize = 4096;

/// Writes bytes that begin at this place of the file; long runs of zeros become holes. Whether the last one is such a run.
fn write_sparse(file: &mut File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    let (mut written, mut here) = (0, 0);
    while here < bytes.len() {
        let zeros = zero_run(at + here as u64, &bytes[here..]);
        if zeros >= HOLE_BYTES_MIN {
            file.write_all(&bytes[written..here])?;
            file.seek(SeekFrom::Current(zeros as i64))?;
            written = here + zeros;
        }
        here += match zeros {
            0 => until_block(at + here as u64 + 1) + 1,
            zeros => zeros,
        };
    }
    file.write_all(&bytes[written..])?;
    Ok(written > 0 && written == bytes.len())
}

/// How many bytes from here to where a block of the file begins.
fn until_block(at: u64) -> usize {
    (at.next_multiple_of(BLOCK_BYTES as u64) - at) as usize
}

/// How many bytes from the beginning are zeros, in whole blocks of the file.
fn zero_run(at: u64, bytes: &[u8]) -> usize {
    const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let is_zero = |bytes: &&[u8]| **bytes == ZEROS[..bytes.len()];
    let (lead, blocks) = bytes.split_at(until_block(at).min(bytes.len()));
    if !is_zero(&lead) {
        return 0;
    }
    lead.len() + blocks.chunks(BLOCK_BYTES).take_while(is_zero).map(<[u8]>::len).sum::<usize>()
}

/// Deletes an entry with everything below, never following a link, lending itself the rights that it takes.
pub(crate) fn remove_tree(dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let Some(facts) = linux::facts_if_any(dir, name)? else { return Ok(()) };
    if !facts.file_type.is_dir() {
        return linux::remove_file(dir, name);
    }
    if facts.mode & 0o700 != 0o700 {
        linux::set_mode(&linux::open_path(dir, name)?, facts.mode | 0o700)?;
    }
    let fd = linux::open_dir(dir, name)?;
    linux::list(&fd)?.par_iter().try_for_each(|entry| remove_tree(&fd, &entry.name))?;
    linux::remove_dir(dir, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    /// Writes pieces of these lengths one after the other; gives the bytes that they take on disk.
    fn laid_out(content: &[u8], pieces: usize) -> u64 {
        let mut file = tempfile::tempfile().unwrap();
        let (mut at, mut ends_in_hole) = (0, false);
        for piece in content.chunks(pieces) {
            ends_in_hole = write_sparse(&mut file, at, piece).unwrap();
            at += piece.len() as u64;
        }
        if ends_in_hole {
            file.set_len(at).unwrap();
        }
        let mut found = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut found).unwrap();
        assert!(found == content, "{pieces}");
        file.sync_all().unwrap();
        file.metadata().unwrap().blocks() * 512
    }

    #[test]
    fn long_runs_of_zeros_become_holes_and_every_byte_is_right() {
        let mut content = vec![0; 1 << 20];
        for at in [0, 5, 70_000, 300_001, 300_500, 900_000, (1 << 20) - 1] {
            content[at] = 7;
        }
        for pieces in [1 << 20, 65_536, 100_003, 4096, 31] {
            let on_disk = laid_out(&content, pieces);
            // Five islands; a piece that is shorter than a hole is written as it is.
            assert!(pieces < HOLE_BYTES_MIN || on_disk <= 20 * HOLE_BYTES_MIN as u64, "{pieces}: {on_disk}");
        }
        assert_eq!(laid_out(&[0; 200_000], 200_000), 0);
        assert_eq!(laid_out(&[], 10), 0);
        laid_out(&[1; 10_000], 777);
    }
}
