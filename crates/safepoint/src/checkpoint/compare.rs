//! Differences between two checkpoints, or a checkpoint and the current state. Stores nothing.

use crate::checkpoint::find::write_content;
use crate::config::Broken;
use crate::folders::within;
use crate::parts::files::FilesPart;
use crate::{CheckpointManager, Error, Recovery};
use safepoint_catalog::Workspace;
use safepoint_model::change::{self, Change};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::coverage::{Coverage, Skipped};
use safepoint_model::tree::{Node, Owners};
use safepoint_model::{ObjectSource, Progress};
use safepoint_store::Usage;
use safepoint_store::Using;
use safepoint_workspace::Root;

/// State to compare a checkpoint with.
#[derive(Debug, Clone)]
pub enum Against {
    /// Another checkpoint.
    Checkpoint(Box<Checkpoint>),
    /// Current state of the workspace.
    Present,
}

/// Amount of changed content to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// All content.
    All,
    /// Only content needed to detect a change.
    InDoubt,
}

/// Two states side by side.
#[non_exhaustive]
pub struct Comparison<'m> {
    manager: &'m CheckpointManager,
    present: Option<Root>,
    /// Changed paths.
    pub changes: Vec<Change>,
    /// Omissions of the newer side.
    pub coverage: Coverage,
    /// Entries that the checkpoint left out and a new one would not: their old state is unknown, so they are
    /// not changes.
    pub uncovered: Vec<Skipped>,
    /// Guard that blocks the collection of the compared objects.
    pub(crate) _using: Using,
    /// Invalid settings and rules.
    pub warnings: Vec<String>,
    /// Result of the recovery that ran first.
    pub recovered: Recovery,
}

/// Answers "am I covered?".
#[non_exhaustive]
pub struct Status {
    /// Checkpoint that the workspace was last captured as or restored to.
    pub base: Option<Checkpoint>,
    /// Changes since then.
    pub changes: Vec<Change>,
    /// Entries that a checkpoint would leave out now.
    pub coverage: Coverage,
    /// Existing entries that the checkpoint left out and a new one would not.
    pub uncovered: Vec<Skipped>,
    /// Invalid settings and rules.
    pub warnings: Vec<String>,
    /// Usage of the store.
    pub usage: Usage,
    /// Result of the crash recovery.
    pub recovery: Recovery,
}

/// Contents of a checkpoint if created now.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Survey {
    /// Number of entries.
    pub count: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// Entries that it would leave out.
    pub coverage: Coverage,
    /// Invalid settings and rules.
    pub warnings: Vec<String>,
    /// Result of the recovery that ran first.
    pub recovered: Recovery,
}

impl CheckpointManager {
    /// Scans the workspace like a checkpoint, but stores nothing. Ignores invalid settings and reports them.
    ///
    /// # Errors
    /// Fails if the workspace is busy or cannot be read.
    pub fn survey(&self, workspace: &Workspace, progress: &dyn Progress) -> Result<Survey, Error> {
        let held = self.hold(workspace)?;
        let recovered = self.recover_held(workspace, &held.root, progress)?.refuse_foreign(workspace)?;
        let measurer = self.store.measurer();
        let config = self.config_at(Some(&held.root), Broken::PassedOver)?;
        let part = FilesPart::new(self, &held.root, workspace, config.excludes);
        let scan = part.look(&measurer, None, progress)?;
        let coverage = scan.snapshot.coverage;
        let warnings = scan.warnings.into_iter().chain(config.passed_over).collect();
        Ok(Survey { count: scan.count, bytes: scan.bytes, coverage, warnings, recovered })
    }

    /// Compares a checkpoint with another one or the current state.
    ///
    /// # Errors
    /// Fails if a side cannot be read.
    pub fn diff(
        &self,
        workspace: &Workspace,
        old: &Checkpoint,
        new: &Against,
        progress: &dyn Progress,
    ) -> Result<Comparison<'_>, Error> {
        self.compare(workspace, old, new, Reading::All, progress)
    }

    fn compare(
        &self,
        workspace: &Workspace,
        old: &Checkpoint,
        new: &Against,
        reading: Reading,
        progress: &dyn Progress,
    ) -> Result<Comparison<'_>, Error> {
        let using = self.store.using()?;
        let before = self.snapshot_of(&within(old, workspace.id))?;
        match new {
            Against::Checkpoint(new) => {
                let after = self.snapshot_of(&within(new, workspace.id))?;
                let changes = changes(&self.store, before.tree(), after.tree())?;
                Ok(Comparison {
                    manager: self,
                    present: None,
                    changes,
                    coverage: after.coverage,
                    uncovered: Vec::new(),
                    warnings: Vec::new(),
                    recovered: Recovery::default(),
                    _using: using,
                })
            }
            Against::Present => {
                let held = self.hold(workspace)?;
                let recovered =
                    self.recover_held(workspace, &held.root, progress)?.refuse_foreign(workspace)?;
                let measurer = self.store.measurer();
                let config = self.config_at(Some(&held.root), Broken::PassedOver)?;
                let part = FilesPart::new(self, &held.root, workspace, config.excludes);
                let scan = match reading {
                    Reading::All => part.scan(&measurer, before.tree(), progress)?,
                    Reading::InDoubt => part.look(&measurer, before.tree(), progress)?,
                };
                let changes = changes(&measurer, before.tree(), scan.snapshot.tree())?;
                let coverage = scan.snapshot.coverage;
                // An entry left out then is unknown, not new.
                let (unknown, changes): (Vec<Change>, Vec<Change>) =
                    changes.into_iter().partition(|change| before.coverage.leaves_out(&change.path));
                let mut uncovered = before.coverage.skipped;
                uncovered.retain(|skipped| {
                    unknown.iter().any(|change| change.new.is_some() && change.path.is_within(&skipped.path))
                });
                Ok(Comparison {
                    manager: self,
                    present: Some(held.root),
                    changes,
                    coverage,
                    uncovered,
                    warnings: scan.warnings.into_iter().chain(config.passed_over).collect(),
                    recovered,
                    _using: using,
                })
            }
        }
    }

    /// Returns the changes since the newest checkpoint and the coverage. Does not read a large file whose
    /// size shows the change ([`safepoint_model::content::Content::is_unread`]).
    ///
    /// # Errors
    /// Fails if the workspace or the store cannot be read.
    pub fn status(&self, workspace: &Workspace, progress: &dyn Progress) -> Result<Status, Error> {
        // Recovery moves no head, so it runs once: here, or in the comparison.
        let head = self.workspaces().get(workspace.id)?.head;
        let Some(base) = head.map(|head| self.checkpoints().get(head)).transpose()? else {
            let recovery = self.recover(workspace, progress)?;
            return Ok(Status {
                base: None,
                changes: Vec::new(),
                coverage: Coverage::default(),
                uncovered: Vec::new(),
                warnings: Vec::new(),
                usage: self.upkeep().usage()?,
                recovery,
            });
        };
        let Comparison { changes, coverage, uncovered, warnings, recovered: recovery, .. } =
            self.compare(workspace, &base, &Against::Present, Reading::InDoubt, progress)?;
        let usage = self.upkeep().usage()?;
        Ok(Status { base: Some(base), changes, coverage, uncovered, warnings, usage, recovery })
    }
}

fn changes(
    source: &dyn ObjectSource,
    old: Option<safepoint_model::ObjectId>,
    new: Option<safepoint_model::ObjectId>,
) -> Result<Vec<Change>, Error> {
    let (Some(old), Some(new)) = (old, new) else { return Ok(Vec::new()) };
    let deltas = change::deltas(source, old, new, Owners::Compared)?;
    Ok(change::changes(source, &deltas)?)
}

impl Comparison<'_> {
    /// Returns the old content of a file or link, unless it is longer.
    ///
    /// # Errors
    /// Fails if an object is missing or damaged.
    pub fn old_bytes(&self, change: &Change, bytes_max: u64) -> Result<Option<Vec<u8>>, Error> {
        match change.old.as_ref().map(|entry| &entry.node) {
            Some(node) => self.stored(node, bytes_max),
            None => Ok(None),
        }
    }

    /// New content.
    ///
    /// # Errors
    /// Fails if an object is missing or damaged, or the file is no longer readable.
    pub fn new_bytes(&self, change: &Change, bytes_max: u64) -> Result<Option<Vec<u8>>, Error> {
        match (change.new.as_ref().map(|entry| &entry.node), &self.present) {
            (Some(Node::File(_)), Some(root)) => root.read_file(&change.path, bytes_max).map_err(|source| {
                safepoint_workspace::WorkspaceError::Read { path: change.path.clone(), source }.into()
            }),
            (Some(node), _) => self.stored(node, bytes_max),
            (None, _) => Ok(None),
        }
    }

    fn stored(&self, node: &Node, bytes_max: u64) -> Result<Option<Vec<u8>>, Error> {
        match node {
            Node::File(content) if content.size <= bytes_max => {
                let mut bytes = Vec::new();
                write_content(&self.manager.store, content, &mut bytes)?;
                Ok(Some(bytes))
            }
            Node::Symlink(target) => Ok(Some(target.clone())),
            Node::File(_) | Node::Directory(_) => Ok(None),
        }
    }
}
