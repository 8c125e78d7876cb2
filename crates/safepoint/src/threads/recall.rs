//! RECALL: bytes of values that this process saved or read, by their hash.
//!
//! A row of the catalog names the hash, so a value that is deleted, or that another process deletes, is never found
//! here. The bytes were compared with the hash before, and never change.

use safepoint_model::ObjectId;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes that are kept. A longer value than a quarter of it is not kept.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// Memory of an entry beside its bytes, about.
const ENTRY_BYTES: usize = 160;

/// Values in memory.
#[derive(Default)]
pub(crate) struct Recall(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    /// Bytes, with the time of their last use.
    values: HashMap<ObjectId, (Arc<Vec<u8>>, u64)>,
    /// Values, by that time.
    uses: BTreeMap<u64, ObjectId>,
    now: u64,
    bytes: usize,
}

impl Shelf {
    fn use_up(&mut self, hash: ObjectId, last: u64) -> u64 {
        self.uses.remove(&last);
        self.now += 1;
        self.uses.insert(self.now, hash);
        self.now
    }

    fn drop_oldest(&mut self) -> bool {
        let Some((_, hash)) = self.uses.pop_first() else { return false };
        if let Some((bytes, _)) = self.values.remove(&hash) {
            self.bytes -= bytes.len() + ENTRY_BYTES;
        }
        true
    }
}

impl Recall {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes with this hash and this length, if they are kept.
    pub(crate) fn find(&self, hash: ObjectId, size: u64) -> Option<Arc<Vec<u8>>> {
        let mut shelf = self.shelf();
        let (bytes, last) = shelf.values.get(&hash).filter(|(bytes, _)| bytes.len() as u64 == size)?.clone();
        let now = shelf.use_up(hash, last);
        shelf.values.insert(hash, (Arc::clone(&bytes), now));
        Some(bytes)
    }

    /// Keeps bytes that were compared with their hash.
    pub(crate) fn keep(&self, hash: ObjectId, bytes: &Arc<Vec<u8>>) {
        let cost = bytes.len() + ENTRY_BYTES;
        if cost > KEPT_BYTES_MAX / 4 {
            return;
        }
        let mut shelf = self.shelf();
        if shelf.values.contains_key(&hash) {
            return;
        }
        while shelf.bytes + cost > KEPT_BYTES_MAX && shelf.drop_oldest() {}
        // No use has the time zero.
        let now = shelf.use_up(hash, 0);
        shelf.values.insert(hash, (Arc::clone(bytes), now));
        shelf.bytes += cost;
    }

    /// Forgets all, such as when content is erased.
    pub(crate) fn forget(&self) {
        *self.shelf() = Shelf::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safepoint_model::ObjectKind;

    fn value(number: usize, size: usize) -> (ObjectId, Arc<Vec<u8>>) {
        let mut bytes = vec![0; size];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        (ObjectId::of(ObjectKind::Chunk, &bytes), Arc::new(bytes))
    }

    #[test]
    fn kept_bytes_are_bounded_and_the_last_used_stay() {
        let recall = Recall::default();
        let size = 1 << 20;
        let first = value(0, size);
        recall.keep(first.0, &first.1);
        for number in 1..100 {
            let (hash, bytes) = value(number, size);
            recall.keep(hash, &bytes);
            recall.keep(hash, &bytes);
            assert!(recall.find(first.0, size as u64).is_some(), "{number}");
            let shelf = recall.shelf();
            assert!(shelf.bytes <= KEPT_BYTES_MAX, "{} bytes", shelf.bytes);
            assert_eq!(shelf.values.len(), shelf.uses.len());
        }
        assert!(recall.find(value(1, size).0, size as u64).is_none(), "the oldest one is forgotten");
        assert!(recall.find(first.0, 7).is_none(), "of another length");
        let huge = value(7, KEPT_BYTES_MAX / 4);
        recall.keep(huge.0, &huge.1);
        assert!(recall.find(huge.0, huge.1.len() as u64).is_none());
        recall.forget();
        assert!(recall.find(first.0, size as u64).is_none());
        assert_eq!(recall.shelf().bytes, 0);
    }
}
