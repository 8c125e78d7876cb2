//! Stage of a rollback: a folder on the workspace's file system with one slot per step.
//!
//! New content is written into the slots and made durable before the workspace changes. After a swap the slot
//! holds the displaced entry. `stage-ID` holds only copies and may be deleted. Once the intent is recorded,
//! the folder is `apply-ID`: it may hold the only copy of user data and is never deleted unchecked.

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
use safepoint_model::rollback::{How, SwapStep};
use safepoint_model::trace::{self, TraceLevel};
use safepoint_model::tree::{Entry, Meta, Node, Owners, Tree};
use safepoint_model::{ObjectSource, Progress, RelPath, RollbackId};
use safepoint_planted::planted;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Mutex;

/// Up to this many files are synced one by one; beyond, the whole file system at once. With few files, data
/// of other programs must not delay the rollback; with many, one call is faster than thousands.
pub(crate) const SYNC_ONE_BY_ONE_MAX: usize = 16;

const STAGE: &str = "stage-";
const APPLY: &str = "apply-";

/// Open stage of a rollback.
pub struct Stage<'r> {
    pub(crate) root: &'r Root,
    pub(crate) own: OwnedFd,
    pub(crate) fd: OwnedFd,
    pub(crate) name: String,
    pub(crate) id: RollbackId,
    pub(crate) capabilities: Capabilities,
    /// Staged files: inode to mtime and size. A differing file that was not written since is damage, not an
    /// edit.
    pub(crate) staged: HashMap<u64, (i64, u64)>,
    /// True if another process left this stage.
    pub(crate) found: bool,
}

/// Timestamps of restored files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Times {
    /// Current time, so that build tools notice.
    #[default]
    Present,
    /// Recorded time.
    Recorded,
}

/// Options for building a stage.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageOptions {
    /// Capabilities of the file system.
    pub capabilities: Capabilities,
    /// Timestamps of restored files.
    pub times: Times,
}

/// Returns true if a name in Safepoint's own folder is that of a stage.
pub(crate) fn is_stage_name(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let id = name.strip_prefix(STAGE).or_else(|| name.strip_prefix(APPLY));
    id.is_some_and(|id| id.parse::<RollbackId>().is_ok())
}

/// Returns the stages found in Safepoint's own folder.
pub(crate) fn leftovers(root: &Root) -> io::Result<(Vec<RollbackId>, Vec<RollbackId>)> {
    let (mut staged, mut applied) = (Vec::new(), Vec::new());
    if let Some(own) = root.own_folder()? {
        for entry in linux::list(&own)? {
            // Only a folder can be a stage; any other entry with such a name is foreign.
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
    /// Returns the ids of rollbacks that left a stage: first those without a recorded intent, by folder name,
    /// then the others.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn leftovers(root: &Root) -> Result<(Vec<RollbackId>, Vec<RollbackId>), WorkspaceError> {
        leftovers(root).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => {
                root.check_own_folder().err().unwrap_or(WorkspaceError::Read { path: own_path(), source })
            }
            _ => WorkspaceError::Read { path: own_path(), source },
        })
    }

    /// Stages the new content of all steps and makes it durable.
    ///
    /// # Errors
    /// Fails if an object is missing or damaged, the disk is full, or the run is interrupted. The workspace
    /// is unchanged then, and the stage is deleted.
    pub fn build(
        root: &'r Root,
        id: RollbackId,
        steps: &[SwapStep],
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
                // Only copies. The next recovery removes the rest.
                let _ = stage.discard();
                Err(error)
            }
        }
    }

    /// Opens the stage of a rollback under either name; `None` if it is missing.
    ///
    /// # Errors
    /// Fails if the stage cannot be opened.
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

    /// Opens the stage of an interrupted rollback. A missing stage is created empty, and its content is
    /// rebuilt from objects.
    ///
    /// # Errors
    /// Fails if the stage can be neither opened nor created.
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
        steps: &[SwapStep],
        times: Times,
        source: &dyn ObjectSource,
        progress: &dyn Progress,
    ) -> Result<(), WorkspaceError> {
        let _span = trace::span("workspace", TraceLevel::Debug, || format!("stage {} steps", steps.len()));
        progress.begin(Activity::Staging, None);
        let writer = StageWriter::new(source, times, progress);
        let swapped = steps.iter().filter(|step| matches!(step.how, How::Swap { .. }));
        writer.expect(swapped.filter_map(|step| Some(&step.new.as_ref()?.entry)));
        let write = |step: &SwapStep| match (&step.new, step.how) {
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

    /// Returns true if the stage holds, or may hold, displaced content.
    pub(crate) fn is_armed(&self) -> bool {
        self.name.starts_with(APPLY)
    }

    /// Marks the stage as holding displaced content. Call it once the intent is durable.
    ///
    /// # Errors
    /// Fails if the rename fails; the workspace is unchanged then.
    pub fn arm(&mut self) -> Result<(), WorkspaceError> {
        assert!(self.name.starts_with(STAGE), "a stage is armed once: {}", self.name);
        let armed = format!("{APPLY}{}", self.id);
        let moved = rustix::fs::renameat(&self.own, self.name.as_str(), &self.own, armed.as_str());
        moved.map_err(|error| WorkspaceError::Stage { path: RelPath::root(), source: error.into() })?;
        self.name = armed;
        Ok(())
    }

    /// Deletes the stage and its content. The caller guarantees that the content is no longer needed.
    ///
    /// # Errors
    /// Fails if an entry cannot be deleted; the next recovery tries again.
    pub fn discard(self) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Stage { path: RelPath::root(), source };
        threads::run(|| remove_tree(&self.own, self.name.as_bytes())).map_err(failed)?;
        self.root.drop_own_folder().map_err(failed)
    }
}

/// Returns the size of a file; zero for other entries.
pub(crate) fn file_bytes(entry: &Entry) -> u64 {
    match &entry.node {
        Node::File(content) => content.size,
        _ => 0,
    }
}

/// Returns the name of a slot.
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

/// Result of writing.
pub(crate) struct Written {
    /// Handles to sync one by one; `None` if there are too many.
    pub(crate) handles: Option<Vec<OwnedFd>>,
    /// Files: inode to mtime and size.
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

    /// Reports the bytes of the files among these entries.
    fn expect<'e>(&self, entries: impl Iterator<Item = &'e Entry>) {
        self.progress.expect(entries.map(file_bytes).sum());
    }

    /// Writes one entry, with everything below it, under an unused name.
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
                // The parent folder may pass on ACLs that the entry does not have.
                linux::drop_acls(&fd).map_err(failed)?;
                let tree = Tree::load(self.source, *tree)?;
                self.expect(tree.entries().iter());
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

    /// Writes the content of a directory into an open, empty one.
    pub(crate) fn fill(&self, fd: &OwnedFd, entry: &Entry) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Stage { path: RelPath::root(), source };
        linux::drop_acls(fd).map_err(failed)?;
        if let Node::Directory(tree) = &entry.node {
            let tree = Tree::load(self.source, *tree)?;
            self.expect(tree.entries().iter());
            tree.entries().par_iter().try_for_each(|child| {
                let path =
                    RelPath::root().join(&child.name).map_err(|error| failed(io::Error::other(error)))?;
                self.entry(fd, &child.name, &path, child)
            })?;
        }
        self.set_meta(fd, &entry.meta).map_err(failed)
    }

    /// Sets owner, attributes and mode of a new entry. Its initial owner depends on its parent folder.
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
            if self.progress.interrupted() {
                return Err(WorkspaceError::Interrupted);
            }
            ends_in_hole = match stretch {
                Stretch::Data(piece) => write_sparse(&mut file, at, &piece.load(self.source)?),
                Stretch::Hole(size) => file.seek(SeekFrom::Start(at.saturating_add(size))).map(|_| true),
            }
            .map_err(failed)?;
            at += stretch.size();
            self.progress.advance(0, stretch.size());
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
        self.progress.advance(1, 0);
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

/// Minimum run of zeros that becomes a hole.
const HOLE_BYTES_MIN: usize = 32 * 1024;
/// Smallest hole of file systems, and its alignment.
const BLOCK_BYTES: usize = 4096;

/// Writes bytes at this offset; long runs of zeros become holes. Returns true if the bytes end in a hole.
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

/// Returns the distance to the next block.
fn until_block(at: u64) -> usize {
    (at.next_multiple_of(BLOCK_BYTES as u64) - at) as usize
}

/// Returns the length of the leading zeros, in whole blocks of the file.
fn zero_run(at: u64, bytes: &[u8]) -> usize {
    const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let is_zero = |bytes: &&[u8]| **bytes == ZEROS[..bytes.len()];
    let (lead, blocks) = bytes.split_at(until_block(at).min(bytes.len()));
    if !is_zero(&lead) {
        return 0;
    }
    lead.len() + blocks.chunks(BLOCK_BYTES).take_while(is_zero).map(<[u8]>::len).sum::<usize>()
}

/// Deletes an entry with everything below, never following a link, adding needed rights.
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

    /// Writes the content in pieces of this length; returns the bytes on disk.
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
            // Five islands; a piece shorter than a hole is written unchanged.
            assert!(pieces < HOLE_BYTES_MIN || on_disk <= 20 * HOLE_BYTES_MIN as u64, "{pieces}: {on_disk}");
        }
        assert_eq!(laid_out(&[0; 200_000], 200_000), 0);
        assert_eq!(laid_out(&[], 10), 0);
        laid_out(&[1; 10_000], 777);
    }
}
