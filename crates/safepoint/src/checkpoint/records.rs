//! RECORDS: checkpoint records in the packs, and tombstones of deleted ones. They rebuild the catalog.
//!
//! A record is written in the flush of its checkpoint. Without a flush (no other new data), it waits in a
//! file of the store for the next one. The catalog knows which records are in packs, so records lost in a
//! crash are written later.

use crate::handles::Upkeep;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{HistoryHead, PlanRecord, Transaction, Void};
use safepoint_model::checkpoint::{Checkpoint, PartKind};
use safepoint_model::record::{
    Kept, Origin, PurgedContent, Record, RecordedPlan, RecordedWorkspace, Tombstone,
};
use safepoint_model::turn::Turn;
use safepoint_model::{CheckpointId, ObjectError, ObjectId, ObjectKind, ObjectSink, RelPath, WorkspaceId};
use safepoint_store::{Mark, Writer};
use std::collections::BTreeSet;

/// Number of records above which they get a separate flush: an upgrade writes one per checkpoint.
const BACKLOG_MAX: u64 = 64;
/// Size above which the file of pending documents is cleaned.
const LATER_BYTES_MAX: u64 = 64 * 1024;

/// Relation of the catalog to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CatalogStanding {
    /// The catalog belongs to the store.
    #[default]
    Known,
    /// The catalog is new: the store had checkpoints before it.
    New,
    /// The catalog is an older copy: it lacks later commits.
    Older,
}

impl CatalogStanding {
    /// Returns a word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            CatalogStanding::Known => "known",
            CatalogStanding::New => "new",
            CatalogStanding::Older => "older",
        }
    }
}

/// Choice to write tombstones with pending records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tombstones {
    Written,
    Left,
}

/// Documents that a flush stored beside a checkpoint, for the transaction that commits it.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    records: Vec<(Checkpoint, ObjectId)>,
    tombstones: Option<(Vec<Void>, ObjectId)>,
}

impl Stored {
    /// Records them after the checkpoint itself.
    pub(crate) fn note(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        for (checkpoint, record) in &self.records {
            transaction.set_record(checkpoint, *record)?;
        }
        if let Some((voids, document)) = &self.tombstones {
            transaction.set_tombstones(voids, *document)?;
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.tombstones.is_none()
    }
}

impl CheckpointManager {
    /// Compares the catalog with the store's mark, in constant time.
    pub(crate) fn recognise_catalog(&self) -> Result<(), Error> {
        let head = self.catalog.head()?;
        let standing = match self.store.mark()? {
            // The store is new, or older than marks. A catalog without history cannot have filled it.
            None if head.seq > 0 || self.store.is_empty()? => {
                self.take_for_own(&head);
                CatalogStanding::Known
            }
            None => {
                let unknown = Mark { id: "unknown".to_owned(), generation: 1, seq: 0, hash: [0; 32] };
                if self.is_writable() {
                    let _ = self.store.set_mark(&unknown);
                }
                CatalogStanding::New
            }
            Some(mark) => self.compare_with(&mark, &head)?,
        };
        match standing {
            _ if !self.is_writable() => {}
            CatalogStanding::Known => {
                let writer = self.store.mark_writer(&head.id, head.generation);
                if self.store.mark()?.is_some_and(|mark| mark.seq < head.seq) {
                    writer.note(head.seq, head.hash);
                }
                self.catalog.after_commit(move |seq, hash| writer.note(seq, hash));
            }
            _ => self.set_apart(&head)?,
        }
        *self.standing.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = standing;
        Ok(())
    }

    fn compare_with(&self, mark: &Mark, head: &HistoryHead) -> Result<CatalogStanding, Error> {
        if mark.id != head.id {
            return Ok(CatalogStanding::New);
        }
        // Read after the mark, so that both include a concurrent commit.
        let same_history = mark.seq == 0 || self.catalog.event_hash(mark.seq)? == Some(mark.hash);
        Ok(match same_history && mark.generation == head.generation {
            true => CatalogStanding::Known,
            false => CatalogStanding::Older,
        })
    }

    /// Gives a catalog that is not the store's a number of its own: what it records from now on comes after what the store has.
    fn set_apart(&self, head: &HistoryHead) -> Result<(), Error> {
        let last = self.store.mark()?.map_or(0, |mark| mark.generation);
        if head.generation > last {
            return Ok(());
        }
        // A read-only home records nothing.
        let _ = self.catalog.write::<(), Error>(|transaction| Ok(transaction.set_generation(last + 1)?));
        Ok(())
    }

    fn take_for_own(&self, head: &HistoryHead) {
        let HistoryHead { id, generation, seq, hash } = head.clone();
        // A home that cannot be written is still read.
        if !self.is_writable() {
            return;
        }
        let _ = self.store.set_mark(&Mark { id, generation, seq, hash });
    }

    /// Fails unless the store knows the catalog, before objects are deleted.
    pub(crate) fn must_know_catalog(&self) -> Result<(), Error> {
        match self.upkeep().catalog_standing() {
            CatalogStanding::Known if self.catalog.is_current() => Ok(()),
            CatalogStanding::Known => Err(Error::OtherCatalog { standing: CatalogStanding::New }),
            standing => Err(Error::OtherCatalog { standing }),
        }
    }

    /// Finishes a checkpoint's writer: its record and pending documents go into the same flush. Sets the
    /// bytes added, without the record.
    pub(crate) fn finish_with_record(
        &self,
        writer: Writer<'_>,
        checkpoint: &mut Checkpoint,
        plans: &[&PlanRecord],
    ) -> Result<Stored, Error> {
        checkpoint.size_bytes = writer.stored_bytes()?;
        let head = self.catalog.head()?;
        let plans = plans.iter().map(|plan| recorded_plan(plan)).collect();
        let bytes = self.record(checkpoint, origin(&head, head.seq), plans)?;
        let mut stored = Stored::default();
        let may_wait = self.upkeep().catalog_standing() == CatalogStanding::Known
            && self.store.later_bytes() < LATER_BYTES_MAX;
        if may_wait && writer.is_empty()? {
            // If lost, the next flush writes the record again.
            let _ = self.store.keep_for_later(&bytes);
        } else {
            stored.records.push((checkpoint.clone(), writer.put(ObjectKind::Document, &bytes)?));
            self.add_waiting(&writer, &head, &mut stored)?;
        }
        writer.finish()?;
        Ok(stored)
    }

    /// Puts what waits into a writer: records that lie in no pack, and tombstones.
    fn add_waiting(&self, writer: &Writer<'_>, head: &HistoryHead, stored: &mut Stored) -> Result<(), Error> {
        if self.catalog.unrecorded(BACKLOG_MAX + 1)?.len() as u64 > BACKLOG_MAX {
            self.write_waiting()?;
        } else {
            self.add_records(writer, head, BACKLOG_MAX, stored)?;
            self.add_tombstones(writer, head, stored)?;
        }
        if self.store.later_bytes() >= LATER_BYTES_MAX {
            self.tidy_later()?;
        }
        Ok(())
    }

    fn add_records(
        &self,
        writer: &Writer<'_>,
        head: &HistoryHead,
        limit: u64,
        stored: &mut Stored,
    ) -> Result<(), Error> {
        for waiting in self.catalog.unrecorded(limit)? {
            let checkpoint = waiting.checkpoint;
            let plans = self.plans_of(&checkpoint)?;
            let origin = origin(head, waiting.event.saturating_sub(1));
            let bytes = self.record(&checkpoint, origin, plans)?;
            stored.records.push((checkpoint, writer.put(ObjectKind::Document, &bytes)?));
        }
        Ok(())
    }

    fn add_tombstones(
        &self,
        writer: &Writer<'_>,
        head: &HistoryHead,
        stored: &mut Stored,
    ) -> Result<(), Error> {
        let voids = self.catalog.unwritten_tombstones()?;
        if !voids.is_empty() {
            let document = writer.put(ObjectKind::Document, &tombstone(head, &voids)?)?;
            stored.tombstones = Some((voids, document));
        }
        Ok(())
    }

    /// Flushes all pending records and tombstones, if any. Safe to kill and repeat.
    pub(crate) fn write_waiting(&self) -> Result<(), Error> {
        self.write_records(Tombstones::Written)
    }

    /// Flushes pending records. A collection may make tombstones unnecessary.
    pub(crate) fn write_records(&self, tombstones: Tombstones) -> Result<(), Error> {
        // Objects stored here must not be collected before the catalog names them.
        let _using = self.store.using()?;
        let head = self.catalog.head()?;
        loop {
            let writer = self.store.writer()?.beyond_limit();
            let mut stored = Stored::default();
            self.add_records(&writer, &head, 16 * BACKLOG_MAX, &mut stored)?;
            if tombstones == Tombstones::Written {
                self.add_tombstones(&writer, &head, &mut stored)?;
            }
            if stored.is_empty() {
                break;
            }
            writer.finish()?;
            let before = self.catalog.unrecorded(1)?.first().map(|first| first.checkpoint.id);
            self.catalog.write(|transaction| stored.note(transaction))?;
            let after = self.catalog.unrecorded(1)?.first().map(|first| first.checkpoint.id);
            // A checkpoint that keeps changing is left to the next flush.
            if after.is_none() || after == before {
                break;
            }
        }
        self.tidy_later()
    }

    /// Removes pending documents that are in a pack now.
    pub(crate) fn tidy_later(&self) -> Result<(), Error> {
        let recorded: BTreeSet<_> = self.catalog.records()?.into_iter().map(|(id, _)| id).collect();
        let unwritten: BTreeSet<_> =
            self.catalog.unwritten_tombstones()?.into_iter().map(|(id, _)| id).collect();
        let voids: BTreeSet<_> = self.catalog.tombstones()?.into_iter().map(|(id, _)| id).collect();
        self.store.forget_later(|document| match Kept::read(document) {
            Some(Kept::Record(record)) => {
                let id = record.checkpoint.id;
                !recorded.contains(&id) && !voids.contains(&id)
            }
            Some(Kept::Tombstone(tombstone)) => tombstone.deleted.iter().any(|id| unwritten.contains(id)),
            Some(Kept::Unknown) | None => false,
        })?;
        Ok(())
    }

    /// Records deletions until the next flush stores the tombstone. The checkpoints are deleted even if this
    /// fails.
    pub(crate) fn note_deleted(&self, ids: &[CheckpointId]) {
        let voids: Vec<Void> = ids.iter().map(|id| (*id, None)).collect();
        let bytes = self.catalog.head().map_err(Error::from).and_then(|head| tombstone(&head, &voids));
        if let Ok(bytes) = bytes {
            let _ = self.store.keep_for_later(&bytes);
        }
    }

    /// Keeps the record of a changed checkpoint until the next flush. A loss costs only the change.
    pub(crate) fn note_changed(&self, id: CheckpointId) {
        let changed = || -> Result<(), Error> {
            let head = self.catalog.head()?;
            let waiting = self.catalog.unrecorded(BACKLOG_MAX)?;
            if let Some(waiting) = waiting.into_iter().find(|waiting| waiting.checkpoint.id == id) {
                let origin = origin(&head, waiting.event.saturating_sub(1));
                let plans = self.plans_of(&waiting.checkpoint)?;
                self.store.keep_for_later(&self.record(&waiting.checkpoint, origin, plans)?)?;
            }
            Ok(())
        };
        let _ = changed();
    }

    /// Returns the plans of a recorded checkpoint.
    pub(crate) fn plans_of(&self, checkpoint: &Checkpoint) -> Result<Vec<RecordedPlan>, Error> {
        let mut plans = Vec::new();
        for part in checkpoint.parts.iter().filter(|part| part.kind == PartKind::Plan) {
            let links = self.catalog.plan_checkpoints(&part.key)?;
            let link = links.iter().find(|link| link.checkpoint == checkpoint.id);
            plans.extend(self.catalog.plan(&part.key)?.map(|plan| RecordedPlan {
                id: part.key.clone(),
                workspace_id: plan.workspace_id,
                version: link.map_or(plan.version, |link| link.version),
                healthy: link.is_some_and(|link| link.healthy),
            }));
        }
        Ok(plans)
    }

    /// Encodes the record of a checkpoint.
    pub(crate) fn record(
        &self,
        checkpoint: &Checkpoint,
        origin: Origin,
        plans: Vec<RecordedPlan>,
    ) -> Result<Vec<u8>, Error> {
        self.record_with(checkpoint, origin, plans, Vec::new())
    }

    /// Encodes the record of a checkpoint with turns of agents.
    pub(crate) fn record_with(
        &self,
        checkpoint: &Checkpoint,
        origin: Origin,
        plans: Vec<RecordedPlan>,
        turns: Vec<Turn>,
    ) -> Result<Vec<u8>, Error> {
        let parts = checkpoint.parts.iter().filter_map(|part| part.key.parse::<WorkspaceId>().ok());
        let owners = plans.iter().map(|plan| plan.workspace_id);
        let ids: BTreeSet<WorkspaceId> =
            checkpoint.workspace_id.into_iter().chain(parts).chain(owners).collect();
        let mut workspaces = Vec::new();
        for id in ids {
            let Some(workspace) = self.catalog.workspace(id)? else { continue };
            let root = workspace.root.strip_prefix(b"/").unwrap_or(&workspace.root);
            workspaces.push(RecordedWorkspace {
                id,
                root: RelPath::new(root)?,
                name: workspace.name,
                kind: workspace.kind,
                created_at: workspace.created_at,
            });
        }
        let mut record = Record::new(origin, checkpoint.clone(), workspaces, plans);
        record.turns = turns;
        Ok(record.encode()?)
    }
}

impl Upkeep<'_> {
    /// Returns the relation of the catalog to the store. Unless known, nothing is collected until `repair`
    /// restores the missing rows or [`Upkeep::accept_catalog`] accepts the catalog.
    pub fn catalog_standing(&self) -> CatalogStanding {
        *self.manager.standing.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Accepts the catalog as the store's. Objects that it does not reference may then be collected.
    ///
    /// # Errors
    /// Fails if store or catalog fail.
    pub fn accept_catalog(&self) -> Result<(), Error> {
        let HistoryHead { id, generation, seq, hash } = self.manager.catalog.head()?;
        self.manager.store.set_mark(&Mark { id: id.clone(), generation, seq, hash })?;
        let writer = self.manager.store.mark_writer(&id, generation);
        self.manager.catalog.after_commit(move |seq, hash| writer.note(seq, hash));
        *self.manager.standing.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            CatalogStanding::Known;
        Ok(())
    }
}

pub(crate) fn recorded_plan(record: &PlanRecord) -> RecordedPlan {
    RecordedPlan {
        id: record.plan.id.clone(),
        workspace_id: record.workspace_id,
        version: record.version,
        healthy: record.plan.is_healthy(),
    }
}

/// Origin of a document of this catalog.
pub(crate) fn origin(head: &HistoryHead, order: u64) -> Origin {
    Origin { id: head.id.clone(), generation: head.generation, seq: head.seq, order }
}

/// A tombstone for these, as bytes.
pub(crate) fn tombstone(head: &HistoryHead, voids: &[Void]) -> Result<Vec<u8>, Error> {
    let deleted = voids.iter().filter(|(_, integrity)| integrity.is_none()).map(|(id, _)| *id).collect();
    let purged = voids
        .iter()
        .filter_map(|(id, integrity)| integrity.map(|integrity| PurgedContent { id: *id, integrity }));
    let tombstone = Tombstone::new(origin(head, head.seq), deleted, purged.collect());
    tombstone.encode().map_err(|error| ObjectError::Store(Box::new(error)).into())
}
