//! Computes the dead bytes of the packs.
//!
//! In: the live objects. Out: for each pack, its dead bytes, exactly. Headers, footers and entries belong to
//! their objects. Unreadable bytes, and possible last copies of live objects, are not dead.

use crate::open;
use crate::pack::{self, PACK_HEAD_BYTES, Step};
use crate::segment::{ENTRY_BYTES, HEAD_BYTES};
use crate::{Store, StoreError, linux};
use safepoint_model::ObjectId;
use std::collections::{HashMap, HashSet};

/// Pack with its dead objects.
pub(crate) struct Weighed {
    pub(crate) name: String,
    /// Length without the pack header.
    pub(crate) used_bytes: u64,
    pub(crate) dead_bytes: u64,
    /// Dead objects that the index names.
    pub(crate) dead: Vec<ObjectId>,
}

/// Index rows of live and of dead objects.
#[derive(Default)]
struct Rows {
    /// Indexed positions of live objects, by pack.
    live_at: HashMap<String, HashSet<u64>>,
    dead: HashMap<String, Vec<ObjectId>>,
    named: HashSet<ObjectId>,
    indexed: HashMap<String, u64>,
}

impl Store {
    /// Returns the number of bytes in the packs that belong to none of these objects.
    ///
    /// # Errors
    /// When the packs cannot be listed, or the index fails.
    pub fn dead_bytes(&self, live: &HashSet<ObjectId>) -> Result<u64, StoreError> {
        Ok(self.weigh(live)?.iter().map(|weighed| weighed.dead_bytes).sum())
    }

    /// Computes the dead bytes of every pack.
    pub(crate) fn weigh(&self, live: &HashSet<ObjectId>) -> Result<Vec<Weighed>, StoreError> {
        let mut rows = self.rows(live)?;
        let mut packs = Vec::new();
        for (name, len) in open::list_packs(self.dir())? {
            let dead_bytes = self.weigh_pack(&name, len, live, &rows);
            let dead = rows.dead.remove(&name).unwrap_or_default();
            packs.push(Weighed { used_bytes: len.saturating_sub(PACK_HEAD_BYTES), name, dead_bytes, dead });
        }
        Ok(packs)
    }

    fn rows(&self, live: &HashSet<ObjectId>) -> Result<Rows, StoreError> {
        self.with_index(|index| {
            let mut rows = Rows { indexed: index.packs()?.into_iter().collect(), ..Rows::default() };
            index.each(|place| {
                let id = place.shape.id;
                if !live.contains(&id) {
                    rows.dead.entry(place.pack).or_default().push(id);
                } else if rows.named.insert(id) {
                    // The first row of an object is authoritative.
                    rows.live_at.entry(place.pack).or_default().insert(place.at);
                }
            })?;
            Ok(rows)
        })
    }

    fn weigh_pack(&self, name: &str, len: u64, live: &HashSet<ObjectId>, rows: &Rows) -> u64 {
        let Ok(file) = self.file(name) else { return 0 };
        let indexed = rows.indexed.get(name).copied().unwrap_or(PACK_HEAD_BYTES);
        // Unindexed bytes may belong to an active writer.
        let lock = || linux::open_read(&self.pack_path(name)).and_then(linux::try_lock);
        let busy = len > indexed && !matches!(lock(), Ok(Some(_)));
        let len = if busy { indexed } else { len };
        let live_at = rows.live_at.get(name);
        let (mut at, mut dead_bytes) = (PACK_HEAD_BYTES, 0);
        while let Ok(Some(step)) = pack::next(&file, at, len) {
            at = match step {
                // Within the committed part it is damage; behind it, a torn tail.
                Step::Gap { to } => {
                    dead_bytes += if at >= indexed { to - at } else { 0 };
                    to
                }
                Step::Segment(found) if !found.index_sound => found.end(),
                Step::Segment(found) => {
                    let needed = found.entries.iter().filter(|entry| {
                        live_at.is_some_and(|live_at| live_at.contains(&found.frame_at(entry)))
                            || live.contains(&entry.shape.id) && !rows.named.contains(&entry.shape.id)
                    });
                    let needed: u64 =
                        needed.map(|entry| u64::from(entry.shape.stored_len) + ENTRY_BYTES as u64).sum();
                    let order = if needed > 0 { 2 * HEAD_BYTES as u64 } else { 0 };
                    dead_bytes += found.head.segment_len().saturating_sub(needed + order);
                    found.end()
                }
            };
        }
        dead_bytes
    }
}
