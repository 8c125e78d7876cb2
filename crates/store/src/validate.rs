//! Validation: the whole store, byte by byte if wanted, without stopping at the first damage.
//!
//! In: a depth. Out: a report of everything that is wrong. Changes nothing.
//! Packs are read as far as they count at the beginning; what a writer adds meanwhile is not looked at.

use crate::frame::{self, Shape};
use crate::open;
use crate::pack::{self, Found, PACK_HEAD_BYTES, Step};
use crate::store::{Depth, Store};
use crate::{StoreError, linux, recover};
use safepoint_model::ObjectId;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The object that cannot be read because of it, where it is one.
    pub object: Option<ObjectId>,
    /// The pack in which it is.
    pub pack: String,
    /// What it is.
    pub what: String,
}

/// What a validation found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// How many packs were read.
    pub packs: u64,
    /// How many objects are in them, damaged ones included.
    pub objects: u64,
    /// How long the packs are.
    pub bytes: u64,
    /// Everything that is wrong.
    pub damaged: Vec<Damage>,
    /// Bytes at the ends of packs that no writer finished. They never counted; the next writer removes them.
    pub unfinished_bytes: u64,
}

/// A walk through all packs.
struct Inspection<'a> {
    depth: Depth,
    progress: &'a dyn Fn(u64, u64),
    bytes_total: u64,
    report: Report,
    /// What the packs have, by the number of the pack and the place in it: the index must say the same.
    found: HashSet<(usize, u64, Shape)>,
}

impl Store {
    /// Checks the whole store: every header, every index, every payload, every object, and the rows of the index.
    /// `progress` is told how many bytes of how many are done.
    ///
    /// # Errors
    /// When the store itself fails; damage is reported, and never ends the walk.
    pub fn validate(&self, depth: Depth, progress: &dyn Fn(u64, u64)) -> Result<Report, StoreError> {
        // Packs that are being emptied are not as the index has them.
        let _right = self.collector_waiting()?;
        // Segments that a killed writer left whole are indexed first: only the rest is unfinished.
        self.refresh()?;
        // Before the lengths: a writer may append and index in between, and a pack must not look shorter than its rows say.
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
        // What is not indexed may still be in a writer's hands; then it is not ours to judge.
        let lock = || linux::open_read(&store.pack_path(name)).and_then(linux::try_lock);
        let held = if len > indexed.unwrap_or(PACK_HEAD_BYTES) { Some(lock()) } else { None };
        let busy = matches!(held, Some(Ok(None) | Err(_)));
        let len = if busy { indexed.unwrap_or(0) } else { len };
        // Nor is what a writer left that was killed before it had written the first byte that counts.
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
            // Nothing in it ever counted: a power cut kept the length of a new pack and none of its bytes.
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
        // Where the index is whole its frames are all of the payload, and were hashed on the way.
        let payload_wrong = found.index_sound && hasher.finalize() != found.head.payload_hash;
        if self.depth == Depth::Deep && payload_wrong && lost == 0 {
            self.damage(name, None, "the payload of a segment does not have its hash");
        }
    }

    /// Compares the rows of the index with what the packs have.
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
                // Rows that came after the walk began are not ours to judge.
                let counted = indexed.get(&place.pack).is_some_and(|indexed| place.at < *indexed);
                if counted && !found.contains(&(number, place.at, place.shape)) {
                    wrong.push((place.pack, place.shape.id));
                }
            })
        })?;
        for (pack, id) in wrong {
            self.damage(&pack, Some(id), "the index says that it is where it is not");
        }
        for (name, number) in numbers {
            let of_pack =
                found.iter().filter(|(pack, _, shape)| pack == number && !named.contains(&shape.id));
            of_pack.for_each(|(_, _, shape)| self.damage(name, Some(shape.id), "the index does not name it"));
        }
        Ok(())
    }
}

/// The length up to which a pack counts: behind it is what the next writer cuts off. A pack that cannot be read to its end
/// counts as a whole.
fn counted(file: &File, len: u64, indexed: Option<u64>) -> u64 {
    let from = indexed.unwrap_or(0).max(PACK_HEAD_BYTES);
    if len <= from {
        return len;
    }
    let tail = recover::tail(file, len, indexed);
    if tail.unreadable { len } else { tail.end.min(len) }
}

/// Whether the pack begins with zeros in the place of its header.
fn is_blank(file: &File) -> bool {
    let mut head = [1; PACK_HEAD_BYTES as usize];
    file.read_exact_at(&mut head, 0).is_ok() && head == [0; PACK_HEAD_BYTES as usize]
}
