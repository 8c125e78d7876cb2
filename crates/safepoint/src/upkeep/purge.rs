//! PURGE: removes paths permanently from every checkpoint of a workspace.

use crate::checkpoint::create::files_part;
use crate::checkpoint::records::tombstone;
use crate::folders::{files_of, is_together};
use crate::handles::Upkeep;
use crate::parts::files::keep_document;
use crate::rollback::recover::Recovery;
use crate::upkeep::Thoroughness;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Filter, Purged, RoleFilter, Void, Workspace};
use safepoint_model::change::{self, without};
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartRecord};
use safepoint_model::coverage::{Skipped, Why};
use safepoint_model::files::FilesDocument;
use safepoint_model::tree::{Entry, Node};
use safepoint_model::{CheckpointId, ObjectId, ObjectKind, ObjectSink, Progress, RelPath, document};
use safepoint_store::{Collected, Writer};
use std::collections::HashMap;

/// Result of a purge.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PurgeReport {
    /// Checkpoints from which a path was removed.
    pub checkpoints: Vec<CheckpointId>,
    /// Remotes that the workspace was published to: the next push delivers the purge.
    pub remotes: Vec<String>,
    /// Result of the collection afterwards.
    pub collected: Collected,
    /// Crash recovery that ran before.
    pub recovered: Recovery,
}

/// Files document without the paths, and the entries and bytes removed.
struct Rewritten {
    document: ObjectId,
    count: u64,
    bytes: u64,
}

impl CheckpointManager {
    pub(crate) fn take_out(
        &self,
        workspace: &Workspace,
        paths: &[RelPath],
        progress: &dyn Progress,
    ) -> Result<Vec<CheckpointId>, Error> {
        let held = self.hold(workspace)?;
        self.recover_held(workspace, &held.root, progress)?;
        let writer = self.store.writer()?.beyond_limit();
        let filter = Filter { role: RoleFilter::Any, ..Filter::default() };
        let mut known = HashMap::new();
        let mut changed = Vec::new();
        for checkpoint in self.catalog.checkpoints(&filter)? {
            let part = match checkpoint.workspace_id {
                Some(id) if id == workspace.id => files_part(&checkpoint),
                _ => files_of(&checkpoint, workspace.id),
            };
            let Some(part) = part else { continue };
            let rewritten = match known.get(&part.document) {
                Some(rewritten) => rewritten,
                None => {
                    let rewritten = rewrite(&writer, part.document, paths)?;
                    known.entry(part.document).or_insert(rewritten)
                }
            };
            if let Some(rewritten) = rewritten {
                let purged = purged(&writer, &checkpoint, part, rewritten)?;
                changed.push((checkpoint, purged));
            }
        }
        if changed.is_empty() {
            return Err(Error::NoPurge { paths: paths.to_vec() });
        }
        // The tombstone must be durable before the catalog records the removal.
        let voids: Vec<Void> =
            changed.iter().map(|(before, _)| (before.id, Some(before.integrity))).collect();
        let tombstone = tombstone(&self.catalog.head()?, &voids)?;
        let document = writer.put(ObjectKind::Document, &tombstone)?;
        writer.finish()?;
        let at = self.environment.now();
        self.catalog.write::<(), Error>(|transaction| {
            changed
                .iter()
                .try_for_each(|(before, purged)| transaction.purge_checkpoint(before.id, purged, at))?;
            Ok(transaction.set_tombstones(&voids, document)?)
        })?;
        self.write_waiting()?;
        Ok(changed.into_iter().map(|(before, _)| before.id).collect())
    }
}

impl CheckpointManager {
    /// Puts a purge on record for every remote that the workspace was published to, and returns their names.
    fn purge_later(&self, workspace: &Workspace, paths: &[RelPath]) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for remote in self.catalog.remotes()? {
            if self.catalog.remote_line(&remote.name, workspace.id)?.is_some() {
                names.push(remote.name);
            }
        }
        let at = self.environment.now();
        self.catalog.write::<(), Error>(|transaction| {
            names
                .iter()
                .try_for_each(|name| Ok(transaction.insert_remote_purge(name, workspace.id, paths, at)?))
        })?;
        Ok(names)
    }
}

impl Upkeep<'_> {
    /// Removes these paths, and everything below them, from every checkpoint of a workspace and frees their
    /// bytes. The workspace itself is unchanged; paths that still exist are in the next checkpoint unless
    /// excluded.
    ///
    /// The same bytes under another path stay, as do the path names in rollback records.
    ///
    /// # Errors
    /// [`Error::NoPurge`] if no checkpoint holds any of the paths; [`Error::PurgeRoot`] if a path is the
    /// workspace root. Also fails if store or catalog fail. Nothing has changed then, unless the collection
    /// failed.
    pub fn purge(
        &self,
        workspace: &Workspace,
        paths: &[RelPath],
        progress: &dyn Progress,
    ) -> Result<PurgeReport, Error> {
        if paths.iter().any(RelPath::is_root) {
            return Err(Error::PurgeRoot);
        }
        self.manager.must_know_catalog()?;
        let mark = self.manager.recovery_mark();
        let remotes = self.manager.purge_later(workspace, paths)?;
        let checkpoints = match self.manager.take_out(workspace, paths, progress) {
            // Published checkpoints that were pruned here may hold them.
            Err(Error::NoPurge { .. }) if !remotes.is_empty() => Vec::new(),
            taken => taken?,
        };
        let collected = self.collect(Thoroughness::Everything, progress)?;
        Ok(PurgeReport { checkpoints, remotes, collected, recovered: self.manager.recovered_since(mark) })
    }
}

/// Removes the paths from a files document; `None` if it has none.
fn rewrite(writer: &Writer<'_>, id: ObjectId, paths: &[RelPath]) -> Result<Option<Rewritten>, Error> {
    let files = FilesDocument::load(writer, id)?;
    let mut root = files.root_entry();
    let mut coverage = files.coverage(writer)?;
    let (mut count, mut bytes) = (0, 0);
    for path in paths {
        let Node::Directory(tree) = root.node else { return Ok(None) };
        if let Some((tree, taken)) = without(writer, tree, path)? {
            weigh(writer, path, &taken, &mut count, &mut bytes)?;
            root.node = Node::Directory(tree);
            // A rollback to it must not remove the current file at this path.
            coverage.skipped.push(Skipped { path: path.clone(), why: Why::Purged });
        }
    }
    if count == 0 {
        return Ok(None);
    }
    coverage.skipped.sort();
    let (left, left_bytes) = (files.count.saturating_sub(count), files.bytes.saturating_sub(bytes));
    let document = keep_document(writer, &root, &coverage, left, left_bytes)?;
    Ok(Some(Rewritten { document, count, bytes }))
}

fn weigh(
    writer: &Writer<'_>,
    path: &RelPath,
    entry: &Entry,
    count: &mut u64,
    bytes: &mut u64,
) -> Result<(), Error> {
    let mut add = |entry: &Entry| {
        *count += 1;
        if let Node::File(content) = entry.node {
            *bytes += content.size;
        }
    };
    add(entry);
    match entry.node {
        Node::Directory(tree) => change::walk::<Error>(writer, path, tree, &mut |_, entry| {
            add(entry);
            Ok(())
        }),
        _ => Ok(()),
    }
}

fn purged(
    writer: &Writer<'_>,
    checkpoint: &Checkpoint,
    from: &PartRecord,
    rewritten: &Rewritten,
) -> Result<Purged, Error> {
    let other = |part: &PartRecord| match part {
        part if part == from => PartRecord { document: rewritten.document, ..part.clone() },
        _ => part.clone(),
    };
    let parts: Vec<PartRecord> = checkpoint.parts.iter().map(other).collect();
    let integrity = document::store(writer, &Manifest::new(parts.clone()))?;
    let mut files = checkpoint.files;
    // The memory of agents does not count among the files of a workspace.
    if is_together(checkpoint) || files_part(checkpoint) == Some(from) {
        files.count = files.count.saturating_sub(rewritten.count);
        files.bytes = files.bytes.saturating_sub(rewritten.bytes);
    }
    Ok(Purged { integrity, parts, files })
}
