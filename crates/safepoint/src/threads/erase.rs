//! ERASE: removes a thread permanently, from every checkpoint, too.

use crate::checkpoint::records::tombstone;
use crate::handles::Threads;
use crate::upkeep::Thoroughness;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Filter, Purged, RoleFilter, Void};
use safepoint_model::checkpoint::{Checkpoint, Manifest, PartKind, PartRecord};
use safepoint_model::thread::ThreadKey;
use safepoint_model::{CheckpointId, ObjectKind, ObjectSink, Progress, document};
use safepoint_store::{Collected, Writer};

/// Number of searches for checkpoints that were taken during the search before.
const TRIES: usize = 4;

/// Result of an erasure.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ThreadErased {
    /// True if the thread existed.
    pub deleted: bool,
    /// Checkpoints that held it.
    pub checkpoints: Vec<CheckpointId>,
    /// Result of the collection afterwards.
    pub collected: Collected,
}

impl Threads<'_> {
    /// Deletes a thread, removes it from every checkpoint, and frees its bytes. A rollback to such a checkpoint leaves the
    /// threads of this id alone from then on. Copies of the thread stay, as do its id and the ids of its states in records of
    /// rollbacks.
    ///
    /// # Errors
    /// When a folder is busy, or store or catalog fail. The call can be repeated.
    pub fn erase(&self, thread: &str, progress: &dyn Progress) -> Result<ThreadErased, Error> {
        let (key, manager) = (self.key(thread)?, self.manager);
        manager.must_know_catalog()?;
        let erased = manager.erase_thread(&key, progress);
        manager.recall.forget();
        let (deleted, checkpoints) = erased?;
        let collected = manager.upkeep().collect(Thoroughness::Everything, progress)?;
        // Deleted rows are in free pages until then.
        manager.catalog.compact()?;
        Ok(ThreadErased { deleted, checkpoints, collected })
    }
}

impl CheckpointManager {
    fn erase_thread(
        &self,
        key: &ThreadKey,
        progress: &dyn Progress,
    ) -> Result<(bool, Vec<CheckpointId>), Error> {
        // No checkpoint of the workspace is taken meanwhile; where its folder is gone, none can be.
        let workspace = key.workspace.map(|id| self.workspaces().get(id)).transpose()?;
        let held = match workspace.filter(|workspace| workspace.root_path().is_dir()) {
            Some(workspace) => {
                let held = self.hold(&workspace)?;
                self.recover_held(&workspace, &held.root, progress)?;
                Some(held)
            }
            None => None,
        };
        let (mut deleted, mut all) = (false, Vec::new());
        for _ in 0..TRIES {
            let found = self.checkpoints_with(key)?;
            if found.is_empty() && !all.is_empty() {
                break;
            }
            deleted |= self.take_thread_out(key, &found)?;
            let is_empty = found.is_empty();
            all.extend(found.into_iter().map(|checkpoint| checkpoint.id));
            if is_empty {
                break;
            }
        }
        drop(held);
        self.write_waiting()?;
        Ok((deleted, all))
    }

    fn checkpoints_with(&self, key: &ThreadKey) -> Result<Vec<Checkpoint>, Error> {
        let filter = Filter { role: RoleFilter::Any, ..Filter::default() };
        let mut found = self.catalog.checkpoints(&filter)?;
        let part_key = key.part_key();
        found.retain(|checkpoint| checkpoint.parts.iter().any(|part| is_of(part, &part_key)));
        Ok(found)
    }

    /// Removes a thread from the tables and from these checkpoints. Returns true if it was in the tables.
    fn take_thread_out(&self, key: &ThreadKey, from: &[Checkpoint]) -> Result<bool, Error> {
        let writer = self.store.writer()?.beyond_limit();
        let part_key = key.part_key();
        let mut changed = Vec::new();
        for checkpoint in from {
            changed.push((checkpoint, without(&writer, checkpoint, &part_key)?));
        }
        // The tombstone must be durable before the catalog records the removal.
        let voids: Vec<Void> = from.iter().map(|before| (before.id, Some(before.integrity))).collect();
        let tombstone = match voids.is_empty() {
            true => None,
            false => Some(writer.put(ObjectKind::Document, &tombstone(&self.catalog.head()?, &voids)?)?),
        };
        writer.finish()?;
        let at = self.environment.now();
        self.catalog.write::<bool, Error>(|transaction| {
            for (before, purged) in &changed {
                transaction.purge_checkpoint(before.id, purged, at)?;
            }
            if let Some(document) = tombstone {
                transaction.set_tombstones(&voids, document)?;
            }
            let known = transaction.threads().thread(key)?;
            if let Some(thread) = &known {
                transaction.edit_threads().delete_thread(thread, at)?;
            }
            Ok(known.is_some())
        })
    }
}

fn is_of(part: &PartRecord, key: &str) -> bool {
    part.kind == PartKind::Thread && part.key == key
}

fn without(writer: &Writer<'_>, checkpoint: &Checkpoint, key: &str) -> Result<Purged, Error> {
    let parts: Vec<PartRecord> = checkpoint.parts.iter().filter(|part| !is_of(part, key)).cloned().collect();
    let integrity = document::store(writer, &Manifest::new(parts.clone()))?;
    Ok(Purged { integrity, parts, files: checkpoint.files })
}
