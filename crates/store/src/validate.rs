//! Validation of the whole store, optionally byte by byte, without stopping at the first damage.
//!
//! In: a depth. Out: a report of all damage. Changes nothing. Packs are read up to their committed length at
//! the start; later appends are ignored.

use crate::frame::{self, Shape};
use crate::open;
use crate::pack::{self, Found, PACK_HEAD_BYTES, Step};
use crate::store::{Depth, Store};
use crate::{StoreError, linux, recover};
use safepoint_model::ObjectId;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Damaged item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Object that cannot be read because of it, if any.
    pub object: Option<ObjectId>,
    /// Pack that contains it.
    pub pack: String,
    /// Description.
    pub what: String,
}

/// Result of a validation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Number of packs read.
    pub packs: u64,
    /// Number of objects in them, including damaged ones.
    pub objects: u64,
    /// Total length of the packs.
    pub bytes: u64,
    /// All damage found.
    pub damaged: Vec<Damage>,
    /// Bytes of unfinished appends at the ends of packs. They were never committed; the next writer removes
    /// them.
    pub unfinished_bytes: u64,
}

/// Walk through all packs.
struct Inspection<'a> {
    depth: Depth,
    progress: &'a dyn Fn(u64, u64),
    bytes_total: u64,
    report: Report,
    /// Objects in the packs, by pack number and offset; the index must match.
    found: HashSet<(usize, u64, Shape)>,
}

impl Store {
    /// Checks the whole store: every header, index, payload and object, and the rows of the index. Calls
    /// `progress` with the bytes done and the total.
    ///
    /// # Errors
    /// When the store itself fails; damage is reported and does not end the walk.
    pub fn validate(&self, depth: Depth, progress: &dyn Fn(u64, u64)) -> Result<Report, StoreError> {
        // Packs that are being emptied differ from the index.
        let _right = self.collector_waiting()?;
        // Complete segments of a killed writer are indexed first: only the rest is unfinished.
        self.refresh()?;
        // Read before the lengths: a writer may append and index in between, and the pack must not look
        // shorter than its rows.
        let indexed: HashMap<String, u64> = self.with_index(|index| index.packs())?.into_iter().collect();
        let packs = open::list_packs(self.dir())?;
        let mut inspection = Inspection {
            depth,
            progress,
            bytes_total: packs.iter().map(|(_, len)| len).sum(),
            report: Report::default(),
            found: HashSet::new(),
        };
        for (number, (name, len)) in packs.iter().enumerate() {
            inspection.pack(self, (number, name), *len, indexed.get(name).copied());
            inspection.report.bytes += len;
            progress(inspection.report.bytes, inspection.bytes_total);
        }
        let numbers = packs.iter().enumerate().map(|(number, (name, _))| (name.as_str(), number)).collect();
        inspection.compare(self, &indexed, &numbers)?;
        Ok(inspection.report)
    }
}

impl Inspection<'_> {
    fn damage(&mut self, pack: &str, object: Option<ObjectId>, what: impl Into<String>) {
        self.report.damaged.push(Damage { object, pack: pack.to_owned(), what: what.into() });
    }

    fn pack(&mut self, store: &Store, (number, name): (usize, &str), len: u64, indexed: Option<u64>) {
        self.report.packs += 1;
        let file = match linux::open_read(&store.pack_path(name)) {
            Ok(file) => file,
            Err(error) => return self.damage(name, None, format!("the pack cannot be opened: {error}")),
        };
        // Unindexed bytes may belong to an active writer and are not checked.
        let lock = || linux::open_read(&store.pack_path(name)).and_then(linux::try_lock);
        let held = if len > indexed.unwrap_or(PACK_HEAD_BYTES) { Some(lock()) } else { None };
        let busy = matches!(held, Some(Ok(None) | Err(_)));
        let len = if busy { indexed.unwrap_or(0) } else { len };
        // Nor are the bytes of a writer that was killed before its first commit.
        if indexed.is_none() && (busy || len < PACK_HEAD_BYTES) {
            return;
        }
        let counted = if busy { len } else { counted(&file, len, indexed) };
        self.report.unfinished_bytes += len - counted;
        let len = counted;
        if indexed.is_some_and(|indexed| indexed > len) {
            self.damage(name, None, "the pack is shorter than it was");
        }
        match pack::has_head(&file) {
            Ok(true) => {}
            // No byte of it was committed: a power cut kept the length of a new pack but none of its bytes.
            Ok(false) if indexed.is_none() && len <= PACK_HEAD_BYTES && is_blank(&file) => {}
            Ok(false) => self.damage(name, None, "the header of the pack is damaged"),
            Err(error) => self.damage(name, None, format!("the pack cannot be read: {error}")),
        }
        self.segments((number, name), &file, len);
    }

    fn segments(&mut self, (number, name): (usize, &str), file: &File, len: u64) {
        let mut at = PACK_HEAD_BYTES;
        loop {
            match pack::next(file, at, len) {
                Ok(None) => return,
                Ok(Some(Step::Gap { to })) => {
                    let what = format!("{} bytes from {at} on belong to no segment", to - at);
                    self.damage(name, None, what);
                    at = to;
                }
                Ok(Some(Step::Segment(found))) => {
                    self.segment((number, name), file, &found);
                    at = found.end();
                }
                Err(error) => return self.damage(name, None, format!("the pack cannot be read: {error}")),
            }
            (self.progress)(self.report.bytes + at, self.bytes_total);
        }
    }

    fn segment(&mut self, (number, name): (usize, &str), file: &File, found: &Found) {
        self.report.objects += u64::from(found.head.count);
        if let Some(fault) = found.fault {
            self.damage(name, None, fault);
        }
        let mut hasher = blake3::Hasher::new();
        let (mut frame, mut scratch) = (Vec::new(), Vec::new());
        let mut lost = 0;
        for entry in &found.entries {
            let at = found.frame_at(entry);
            self.found.insert((number, at, entry.shape));
            if self.depth == Depth::Quick {
                continue;
            }
            let fault = match pack::read_frame(file, at, entry.shape.stored_len, &mut frame) {
                Ok(()) => {
                    hasher.update(&frame);
                    frame::decode(&entry.shape, &frame, &mut scratch).err().map(str::to_owned)
                }
                Err(error) => Some(format!("it cannot be read: {error}")),
            };
            if let Some(what) = fault {
                lost += 1;
                self.damage(name, Some(entry.shape.id), what);
            }
        }
        // If the index is complete, its frames make up the whole payload and were hashed during the walk.
        let payload_wrong = found.index_sound && hasher.finalize() != found.head.payload_hash;
        if self.depth == Depth::Deep && payload_wrong && lost == 0 {
            self.damage(name, None, "the payload of a segment does not match its hash");
        }
    }

    /// Compares the rows of the index with the packs.
    fn compare(
        &mut self,
        store: &Store,
        indexed: &HashMap<String, u64>,
        numbers: &HashMap<&str, usize>,
    ) -> Result<(), StoreError> {
        let found = std::mem::take(&mut self.found);
        let (mut wrong, mut named) = (Vec::new(), HashSet::new());
        store.with_index(|index| {
            wrong.clear();
            index.each(|place| {
                named.insert(place.shape.id);
                let number = numbers.get(place.pack.as_str()).copied().unwrap_or(usize::MAX);
                // Rows added after the walk began are not checked.
                let counted = indexed.get(&place.pack).is_some_and(|indexed| place.at < *indexed);
                if counted && !found.contains(&(number, place.at, place.shape)) {
                    wrong.push((place.pack, place.shape.id));
                }
            })
        })?;
        for (pack, id) in wrong {
            self.damage(&pack, Some(id), "the index has a wrong position for it");
        }
        for (name, number) in numbers {
            let of_pack =
                found.iter().filter(|(pack, _, shape)| pack == number && !named.contains(&shape.id));
            of_pack.for_each(|(_, _, shape)| self.damage(name, Some(shape.id), "the index does not name it"));
        }
        Ok(())
    }
}

/// Returns the committed length of a pack; the next writer cuts off the rest. A pack that cannot be read to
/// its end counts in full.
fn counted(file: &File, len: u64, indexed: Option<u64>) -> u64 {
    let from = indexed.unwrap_or(0).max(PACK_HEAD_BYTES);
    if len <= from {
        return len;
    }
    let tail = recover::tail(file, len, indexed);
    if tail.unreadable { len } else { tail.end.min(len) }
}

/// Returns true if the pack begins with zeros instead of a header.
fn is_blank(file: &File) -> bool {
    let mut head = [1; PACK_HEAD_BYTES as usize];
    file.read_exact_at(&mut head, 0).is_ok() && head == [0; PACK_HEAD_BYTES as usize]
}
