//! SETTLE: moves pieces of values from the catalog into packs, many at once.
//!
//! A piece is in a pack before its row is deleted, so that a reader finds it in one of the two. Rows that no value
//! names are deleted.

use super::values::Values;
use crate::{CheckpointManager, Error};
use safepoint_model::{ObjectId, ObjectKind, ObjectSink};
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// Bytes added by this process after which the catalog's are counted.
const COUNT_BYTES: u64 = 256 * 1024;
/// Bytes of pieces in the catalog above which they are moved.
const SETTLE_BYTES: u64 = 1 << 20;

impl CheckpointManager {
    /// Notes bytes of pieces that were added to the catalog. Moves them if there are many; a failure is left to the next
    /// save.
    pub(crate) fn note_chunks(&self, added: u64) {
        if self.chunk_bytes.fetch_add(added, Ordering::Relaxed) + added < COUNT_BYTES {
            return;
        }
        self.chunk_bytes.store(0, Ordering::Relaxed);
        let count = self.catalog.read_threads::<_, Error>(|rows| Ok(rows.chunk_bytes()?));
        if count.is_ok_and(|bytes| bytes >= SETTLE_BYTES) {
            let _ = self.settle_chunks();
        }
    }

    /// Moves all pieces into packs.
    pub(crate) fn settle_chunks(&self) -> Result<(), Error> {
        let _using = self.store.using()?;
        if self.catalog.read_threads::<_, Error>(|rows| Ok(rows.chunks()?))?.is_empty() {
            return Ok(());
        }
        let writer = self.store.writer()?.beyond_limit();
        let (mut moved, mut dead) = (Vec::new(), Vec::new());
        self.catalog.read_threads::<_, Error>(|rows| {
            let values = self.values(*rows);
            let live = live_pieces(&values)?;
            for id in rows.chunks()? {
                match live.contains(&id) {
                    true => {
                        if let Some(bytes) = values.chunk_bytes(id)? {
                            writer.put(ObjectKind::Chunk, &bytes)?;
                            moved.push(id);
                        }
                    }
                    false => dead.push(id),
                }
            }
            Ok(())
        })?;
        writer.finish()?;
        self.catalog.write(|transaction| {
            let (rows, edit) = (transaction.threads(), transaction.edit_threads());
            if !dead.is_empty() {
                // A save may have taken up a piece since.
                let live = live_pieces(&self.values(rows))?;
                dead.retain(|id| !live.contains(id));
            }
            moved.iter().chain(&dead).try_for_each(|id| Ok(edit.delete_chunk(*id)?))
        })
    }
}

fn live_pieces(values: &Values<'_>) -> Result<HashSet<ObjectId>, Error> {
    let mut live = HashSet::new();
    values.rows.each_piece(&mut |id| {
        live.insert(id);
    })?;
    Ok(live)
}
