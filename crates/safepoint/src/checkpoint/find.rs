//! Lookup of checkpoints by reference, and access to their contents.

use crate::checkpoint::create::files_part;
use crate::error::NamedCandidate;
use crate::folders::{is_together, within};
use crate::handles::Checkpoints;
use crate::parts::files;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Catalog, Filter, Resolved, Workspace};
use safepoint_model::change;
use safepoint_model::checkpoint::{Checkpoint, PartKind};
use safepoint_model::content::Content;
use safepoint_model::coverage::Coverage;
use safepoint_model::reference::Reference;
use safepoint_model::rollback::{ChangedPath, Rollback};
use safepoint_model::tree::{Entry, Node};
use safepoint_model::{CheckpointId, ObjectError, ObjectSource, RelPath, Timestamp, WorkspaceId, document};
use safepoint_workspace::Snapshot;
use std::io::Write;

/// Resolves a reference; fails unless it has exactly one match.
pub(crate) fn one(
    catalog: &Catalog,
    workspace: Option<WorkspaceId>,
    text: &str,
    reference: &Reference,
) -> Result<Checkpoint, Error> {
    match catalog.resolve(workspace, reference)? {
        Resolved::One(checkpoint) => Ok(*checkpoint),
        Resolved::None => Err(Error::NoCheckpoint { reference: text.to_owned() }),
        Resolved::Ambiguous(several) => Err(Error::Ambiguous {
            reference: text.to_owned(),
            candidates: several.iter().map(NamedCandidate::from).collect(),
        }),
    }
}

/// Entry of a checkpoint with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// Path.
    pub path: RelPath,
    /// Entry.
    pub entry: Entry,
}

/// All entries of a checkpoint.
pub type Entries = Vec<ListedEntry>;

impl CheckpointManager {
    pub(crate) fn snapshot_of(&self, checkpoint: &Checkpoint) -> Result<Snapshot, Error> {
        let part = files_part(checkpoint).ok_or(Error::NoFiles { checkpoint: checkpoint.id })?;
        Ok(files::snapshot(&self.store, part.document)?)
    }

    /// Paths that a rollback changed.
    ///
    /// # Errors
    /// Fails if the list is missing or damaged.
    pub fn changed_paths(&self, rollback: &Rollback) -> Result<Vec<ChangedPath>, Error> {
        let _using = self.store.using()?;
        match rollback.changed_paths {
            Some(id) => Ok(document::load(&self.store, id)?),
            None => Ok(Vec::new()),
        }
    }
}

impl Checkpoints<'_> {
    /// Checkpoint with this id.
    ///
    /// # Errors
    /// Fails if it does not exist.
    pub fn get(&self, id: CheckpointId) -> Result<Checkpoint, Error> {
        self.manager.catalog.checkpoint(id)?.ok_or_else(|| Error::NoCheckpoint { reference: id.to_string() })
    }

    /// Returns the newest checkpoint of a workspace that a user or program asked for and that is not younger than this.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn newest_until(
        &self,
        workspace: Option<&Workspace>,
        time: Timestamp,
    ) -> Result<Option<Checkpoint>, Error> {
        let filter = Filter { workspace: workspace.map(|workspace| workspace.id), ..Filter::default() };
        Ok(self.manager.catalog.checkpoints(&filter)?.into_iter().find(|found| found.created_at <= time))
    }

    /// Returns true if a checkpoint holds this path of a workspace.
    ///
    /// # Errors
    /// When it holds no files, or a tree is missing or damaged.
    pub fn holds_path(
        &self,
        checkpoint: &Checkpoint,
        workspace: &Workspace,
        path: &RelPath,
    ) -> Result<bool, Error> {
        let _using = self.manager.store.using()?;
        let tree = self.manager.snapshot_of(&within(checkpoint, workspace.id))?.tree();
        Ok(tree.map(|tree| change::find(&self.manager.store, tree, path)).transpose()?.flatten().is_some())
    }

    /// Returns the entries that a checkpoint left out, over all its folders.
    ///
    /// # Errors
    /// Fails if a single-workspace checkpoint has no files, or a document is missing or damaged.
    pub fn coverage(&self, checkpoint: &Checkpoint) -> Result<Coverage, Error> {
        let _using = self.manager.store.using()?;
        let mut all = match is_together(checkpoint) {
            true => Coverage::default(),
            false => self.manager.snapshot_of(checkpoint)?.coverage,
        };
        let own = files_part(checkpoint);
        for part in checkpoint.parts.iter().filter(|part| part.kind == PartKind::Files) {
            if Some(part) == own {
                continue;
            }
            let mut one = files::snapshot(&self.manager.store, part.document)?.coverage;
            // Files beside the memory of an agent do not belong to the agent.
            one.skipped.retain(|skipped| own.is_none() || skipped.why.is_lack());
            all.skipped.extend(one.skipped);
            all.unsettled.extend(one.unsettled);
        }
        Ok(all)
    }

    /// Returns all entries of a checkpoint, sorted by directory.
    ///
    /// # Errors
    /// Fails if it has no files, or a tree is missing or damaged.
    pub fn entries(&self, checkpoint: &Checkpoint) -> Result<Entries, Error> {
        let _using = self.manager.store.using()?;
        let mut entries = Vec::new();
        if let Some(tree) = self.manager.snapshot_of(checkpoint)?.tree() {
            change::walk::<Error>(&self.manager.store, &RelPath::root(), tree, &mut |path, entry| {
                entries.push(ListedEntry { path: path.clone(), entry: entry.clone() });
                Ok(())
            })?;
        }
        Ok(entries)
    }

    /// Writes a file's content from a checkpoint, or the target of a link.
    ///
    /// # Errors
    /// Fails if the path is missing or no file, an object is missing or damaged, or the writer fails.
    pub fn cat(&self, checkpoint: &Checkpoint, path: &RelPath, out: &mut dyn Write) -> Result<(), Error> {
        let _using = self.manager.store.using()?;
        let tree = self.manager.snapshot_of(checkpoint)?.tree();
        let found = tree.map(|tree| change::find(&self.manager.store, tree, path)).transpose()?.flatten();
        match found.map(|entry| entry.node) {
            Some(Node::File(content)) => write_content(&self.manager.store, &content, out),
            Some(Node::Symlink(target)) => {
                out.write_all(&target).map_err(|error| ObjectError::Input(error).into())
            }
            Some(Node::Directory(_)) => {
                Err(Error::NotAFile { checkpoint: checkpoint.id, path: path.clone() })
            }
            None => Err(Error::NoPath { checkpoint: checkpoint.id, path: path.clone() }),
        }
    }
}

/// Writes content in pieces, each verified first.
pub(crate) fn write_content(
    source: &dyn ObjectSource,
    content: &Content,
    out: &mut dyn Write,
) -> Result<(), Error> {
    content.read(source, &mut |bytes| Ok(out.write_all(bytes).map_err(ObjectError::Input)?))
}
