//! Versions of a path over all checkpoints: one folder, the history of a path, and search by text.
//!
//! Nothing of it is kept: an index would hold content that was purged.

use crate::handles::Checkpoints;
use crate::{CheckpointManager, Error, Failure, FailureKind, within};
use safepoint_catalog::{OwnCheckpoints, Page, Placed, Workspace};
use safepoint_model::change;
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::content::Content;
use safepoint_model::rollback::{Rollback, RollbackState};
use safepoint_model::tree::{Entry, Node, Tree};
use safepoint_model::{CheckpointId, ObjectError, ObjectId, ObjectSource, Progress, RelPath, Timestamp};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Checkpoints that are read at once.
const BATCH: u64 = 256;
/// Time after which a page of a history ends early.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Maximum size of a file that is searched.
const SEARCHED_BYTES_MAX: u64 = 10 << 20;
/// Length at which a found line is cut.
const LINE_CHARS_MAX: usize = 400;
/// Bytes at the start of a file that show whether it is text.
const SNIFFED_BYTES: usize = 8000;

/// Change of a path from one checkpoint to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionChange {
    /// It did not exist before.
    Added,
    /// It differs from before.
    Modified,
    /// It exists no more.
    Removed,
    /// It exists in the oldest checkpoint.
    Present,
    /// A rollback, an undo or a redo put this state in place before the checkpoint was made.
    RolledBack,
}

/// State of a path that differs from the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// First checkpoint with this state.
    pub placed: Placed,
    /// Change.
    pub change: VersionChange,
    /// Entry, or `None` if it was removed.
    pub entry: Option<Entry>,
}

/// Part of the history of a path, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Versions {
    /// Versions. A page may have none although older ones exist.
    pub versions: Vec<Version>,
    /// Place for the next page, or `None` at the end.
    pub next: Option<u64>,
    /// Checkpoints of the page that could not be read, because they are damaged.
    pub unreadable: u64,
}

/// Comparison of letters in a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Letters {
    /// Upper and lower case differ.
    #[default]
    Exact,
    /// Upper and lower case are equal.
    AnyCase,
}

/// Text to search for in every version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextSearch {
    /// Text within a line.
    pub text: String,
    /// Only at this path or below.
    pub path: RelPath,
    /// Comparison of letters.
    pub letters: Letters,
}

/// Content that matches, in the newest checkpoint that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFound {
    /// Place of the checkpoint.
    pub seq: u64,
    /// Checkpoint.
    pub checkpoint: CheckpointId,
    /// Time of the checkpoint.
    pub created_at: Timestamp,
    /// Label of the checkpoint.
    pub label: Option<String>,
    /// Path in the checkpoint.
    pub path: RelPath,
    /// Content.
    pub content: ObjectId,
    /// Number of the first line that matches, from 1.
    pub line: u64,
    /// That line, shortened.
    pub text: String,
    /// Number of lines that match.
    pub matches: u64,
}

impl Checkpoints<'_> {
    /// Entries of one folder of a checkpoint, sorted by name.
    ///
    /// # Errors
    /// [`Error::NoPath`] if there is no such folder; and when a tree is missing or damaged.
    pub fn folder(&self, checkpoint: &Checkpoint, path: &RelPath) -> Result<Vec<Entry>, Error> {
        let store = &self.manager.store;
        let _using = store.using()?;
        let nowhere = || Error::NoPath { checkpoint: checkpoint.id, path: path.clone() };
        let top = self.manager.snapshot_of(checkpoint)?.tree().ok_or_else(nowhere)?;
        let tree = match path.is_root() {
            true => top,
            false => match change::find(store, top, path)?.map(|entry| entry.node) {
                Some(Node::Directory(tree)) => tree,
                _ => return Err(nowhere()),
            },
        };
        Ok(Tree::load(store, tree)?.entries().to_vec())
    }

    /// Entry at a path of a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint holds no files, or a tree is missing or damaged.
    pub fn entry(&self, checkpoint: &Checkpoint, path: &RelPath) -> Result<Option<Entry>, Error> {
        let _using = self.manager.store.using()?;
        self.manager.entry_at(checkpoint, path)
    }

    /// Versions of a path or a folder, newest first. A page ends early after a while.
    ///
    /// # Errors
    /// When the catalog cannot be read, or a tree for another reason than damage.
    pub fn history(
        &self,
        workspace: &Workspace,
        path: &RelPath,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Versions, Error> {
        let _using = self.manager.store.using()?;
        let (began, mut versions, mut unreadable) = (Instant::now(), Vec::new(), 0);
        let rollbacks = self.manager.rollbacks(workspace)?;
        let mut newer: Option<(Placed, Option<Entry>)> = None;
        let mut at = before;
        loop {
            let batch = self.batch(workspace, at)?;
            if batch.is_empty() {
                // Nothing is older: it was there from the beginning.
                if let Some((placed, Some(entry))) = newer {
                    versions.push(Version { placed, change: VersionChange::Present, entry: Some(entry) });
                }
                return Ok(Versions { versions, next: None, unreadable });
            }
            for placed in batch {
                at = Some(placed.seq);
                let entry = self.manager.entry_at(&within(&placed.checkpoint, workspace.id), path);
                let entry = match entry {
                    // One that holds no files of the workspace says nothing about the path.
                    Err(Error::NoFiles { .. }) => continue,
                    Err(error) if is_damage(&error) => {
                        unreadable += 1;
                        continue;
                    }
                    entry => entry?,
                };
                if let Some((newer, known)) = newer.take()
                    && let Some(change) = changed(entry.as_ref(), known.as_ref())
                {
                    let next = newer.seq;
                    let is_rolled_back =
                        self.is_rolled_back(workspace, path, &rollbacks, (&newer, known.as_ref()))?;
                    let change = if is_rolled_back { VersionChange::RolledBack } else { change };
                    versions.push(Version { placed: newer, change, entry: known });
                    if versions.len() >= limit {
                        return Ok(Versions { versions, next: Some(next), unreadable });
                    }
                }
                let next = placed.seq + 1;
                newer = Some((placed, entry));
                if began.elapsed() > PATIENCE {
                    return Ok(Versions { versions, next: Some(next), unreadable });
                }
            }
        }
    }

    /// Returns true if the state of a path in a checkpoint is the one that a rollback just before it put in place.
    fn is_rolled_back(
        &self,
        workspace: &Workspace,
        path: &RelPath,
        rollbacks: &[Rollback],
        (placed, entry): (&Placed, Option<&Entry>),
    ) -> Result<bool, Error> {
        let Some(parent) = placed.checkpoint.parent else { return Ok(false) };
        let is_done = |record: &&Rollback| {
            matches!(record.state, RollbackState::Done | RollbackState::Settled)
                && record.created_at <= placed.checkpoint.created_at
                && (record.to == parent || record.safety_checkpoint == Some(parent))
        };
        // After a whole rollback the position is its target; after one of chosen paths its safety checkpoint.
        let Some(record) = rollbacks.iter().rev().find(is_done) else { return Ok(false) };
        let target = match self.get(record.to) {
            Ok(target) => target,
            Err(Error::NoCheckpoint { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        match self.manager.entry_at(&within(&target, workspace.id), path) {
            Ok(put_back) => Ok(changed(put_back.as_ref(), entry).is_none()),
            Err(Error::NoFiles { .. }) => Ok(false),
            Err(error) if is_damage(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Finds a text in every version, newest first: each content once, in the newest checkpoint that holds it. Returns the
    /// number of checkpoints, folders and files that could not be searched, because they are damaged.
    ///
    /// # Errors
    /// When the catalog cannot be read, an object for another reason than damage, or `progress` interrupts.
    pub fn search(
        &self,
        workspace: &Workspace,
        search: &TextSearch,
        each: &mut dyn FnMut(TextFound) -> ControlFlow<()>,
        progress: &dyn Progress,
    ) -> Result<u64, Error> {
        Ok(self.look_through(workspace, search, each, progress)?.0)
    }

    /// Does a search; returns the number of unreadable objects, and the first failure.
    fn look_through(
        &self,
        workspace: &Workspace,
        search: &TextSearch,
        each: &mut dyn FnMut(TextFound) -> ControlFlow<()>,
        progress: &dyn Progress,
    ) -> Result<(u64, Option<Error>), Error> {
        let _using = self.manager.store.using()?;
        let mut walk = TextWalk {
            store: &self.manager.store,
            search,
            needle: match search.letters {
                Letters::Exact => search.text.clone(),
                Letters::AnyCase => search.text.to_lowercase(),
            },
            seen: HashSet::new(),
            unreadable: 0,
            first: None,
            each,
            progress,
        };
        let mut at = None;
        loop {
            let batch = self.batch(workspace, at)?;
            if batch.is_empty() {
                return Ok((walk.unreadable, walk.first));
            }
            for placed in batch {
                at = Some(placed.seq);
                let checkpoint = within(&placed.checkpoint, workspace.id);
                let entry = match search.path.is_root() {
                    true => self.manager.snapshot_of(&checkpoint).map(|snapshot| Some(snapshot.root)),
                    false => self.manager.entry_at(&checkpoint, &search.path),
                };
                let entry = match entry {
                    Err(Error::NoFiles { .. }) => None,
                    entry => walk.past_damage(entry)?.flatten(),
                };
                progress.advance(1, 0);
                if let Some(entry) = entry
                    && walk.entry(&placed, &search.path, &entry)?.is_break()
                {
                    return Ok((walk.unreadable, walk.first));
                }
            }
        }
    }

    /// Newest state of a path in which a line contains a text.
    ///
    /// # Errors
    /// As [`Checkpoints::search`]; and when a state that may be newer is damaged.
    pub fn newest_with_line(
        &self,
        workspace: &Workspace,
        search: &TextSearch,
        progress: &dyn Progress,
    ) -> Result<Option<TextFound>, Error> {
        let mut newest = None;
        let mut each = |found| {
            newest = Some(found);
            ControlFlow::Break(())
        };
        match self.look_through(workspace, search, &mut each, progress)?.1 {
            Some(damage) => Err(damage),
            None => Ok(newest),
        }
    }

    fn batch(&self, workspace: &Workspace, before: Option<u64>) -> Result<Vec<Placed>, Error> {
        let own = OwnCheckpoints::Listed;
        self.page(&Page { before, own, ..Page::first(workspace.id, BATCH) })
    }
}

impl CheckpointManager {
    fn entry_at(&self, checkpoint: &Checkpoint, path: &RelPath) -> Result<Option<Entry>, Error> {
        let tree = self.snapshot_of(checkpoint)?.tree();
        Ok(tree.map(|tree| change::find(&self.store, tree, path)).transpose()?.flatten())
    }
}

fn is_damage(error: &Error) -> bool {
    Failure::from(error).kind == FailureKind::Damaged
}

/// Change from an older state to a newer one, if they differ.
fn changed(older: Option<&Entry>, newer: Option<&Entry>) -> Option<VersionChange> {
    match (older, newer) {
        (None, None) => None,
        (None, Some(_)) => Some(VersionChange::Added),
        (Some(_), None) => Some(VersionChange::Removed),
        (Some(older), Some(newer)) => {
            let differs = older.node != newer.node || older.meta.mode != newer.meta.mode;
            differs.then_some(VersionChange::Modified)
        }
    }
}

/// Search under way.
struct TextWalk<'a> {
    store: &'a dyn ObjectSource,
    search: &'a TextSearch,
    needle: String,
    /// Trees and contents that were searched.
    seen: HashSet<ObjectId>,
    /// Objects that could not be read.
    unreadable: u64,
    /// Failure of the first of them.
    first: Option<Error>,
    each: &'a mut dyn FnMut(TextFound) -> ControlFlow<()>,
    progress: &'a dyn Progress,
}

impl TextWalk<'_> {
    /// Counts damage, and goes on; every other error ends the search.
    fn past_damage<T>(&mut self, read: Result<T, Error>) -> Result<Option<T>, Error> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if is_damage(&error) => {
                self.unreadable += 1;
                self.first.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn entry(&mut self, placed: &Placed, path: &RelPath, entry: &Entry) -> Result<ControlFlow<()>, Error> {
        // A stack of our own: a hostile tree may be deep.
        let mut left = vec![(path.clone(), entry.node.clone())];
        while let Some((path, node)) = left.pop() {
            if self.progress.interrupted() {
                return Err(ObjectError::Interrupted.into());
            }
            match node {
                Node::Directory(tree) if self.seen.insert(tree) => {
                    let loaded = Tree::load(self.store, tree).map_err(Error::from);
                    let Some(loaded) = self.past_damage(loaded)? else { continue };
                    for child in loaded.entries().iter().rev() {
                        left.push((path.join(&child.name)?, child.node.clone()));
                    }
                }
                Node::File(content)
                    if !content.is_unread()
                        && content.size <= SEARCHED_BYTES_MAX
                        && self.seen.insert(content.id) =>
                {
                    let found = self.matches(&content);
                    if let Some((line, text, matches)) = self.past_damage(found)?.flatten() {
                        let found = TextFound {
                            seq: placed.seq,
                            checkpoint: placed.checkpoint.id,
                            created_at: placed.checkpoint.created_at,
                            label: placed.checkpoint.label.clone(),
                            path,
                            content: content.id,
                            line,
                            text,
                            matches,
                        };
                        if (self.each)(found).is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// First line that matches, with its number, and the number of such lines.
    fn matches(&self, content: &Content) -> Result<Option<(u64, String, u64)>, Error> {
        let mut bytes = Vec::with_capacity(usize::try_from(content.size).unwrap_or(0));
        content.read::<ObjectError>(self.store, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        if bytes[..bytes.len().min(SNIFFED_BYTES)].contains(&0) {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&bytes);
        let is_there = |line: &str| match self.search.letters {
            Letters::Exact => line.contains(&self.needle),
            Letters::AnyCase => line.to_lowercase().contains(&self.needle),
        };
        if self.search.letters == Letters::Exact && !text.contains(&self.needle) {
            return Ok(None);
        }
        let mut found: Option<(u64, String, u64)> = None;
        for (number, line) in (1..).zip(text.lines()) {
            if is_there(line) {
                match &mut found {
                    Some((_, _, count)) => *count += 1,
                    None => found = Some((number, line.chars().take(LINE_CHARS_MAX).collect(), 1)),
                }
            }
        }
        Ok(found)
    }
}
