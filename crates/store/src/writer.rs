//! Writer: adds the objects of one capture to the store.
//!
//! In: objects from many threads at once. Out: the same objects in packs, durable, with index rows. The
//! thread that fills a segment writes it and reads it back; the others continue with the next one. Nothing is
//! committed before `finish`. A crash, a failure or an earlier drop leaves at most a tail that is cut off.

use crate::append::{Appender, Spot};
use crate::frame::{self, Shape};
use crate::index::{PackRows, Recorded};
use crate::pack::{self, PACK_HEAD_BYTES};
use crate::segment::{self, Builder, HEAD_BYTES};
use crate::store::Answer;
use crate::{Store, StoreError, content, recover};
use safepoint_model::content::Content;
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSink, ObjectSource, SparseRead};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Maximum number of segments being written at once; it bounds the memory.
const FLYING_MAX: usize = 4;
/// Buffers above this size are not reused for the next segment.
const SPARE_BYTES_MAX: usize = 2 * segment::PAYLOAD_BYTES_TARGET;

/// Above this number of rows, preparing them takes as long as a flush and runs in parallel. Below it, no
/// other process should wait for this flush.
const ROWS_AT_ONCE: usize = 4096;

/// Bytes read back at once: they stay in the CPU cache until they are compared.
const VERIFY_BYTES: usize = 64 * 1024;

/// Maximum size of the cached trees: a comparison of two states reads the same trees again.
const TREE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Result of the flush, once it is known.
type Durable = OnceLock<Result<(), StoreError>>;

/// Objects and bytes added by a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Number of new objects.
    pub objects: u64,
    /// Length of the new objects before compression.
    pub raw_bytes: u64,
    /// Growth of the packs.
    pub stored_bytes: u64,
}

/// Takes objects, and commits them together.
pub struct Writer<'s> {
    store: &'s Store,
    /// True if the store was empty at the start, so that lookups are skipped.
    began_empty: bool,
    /// True if no stored tree refers to a missing object.
    trusts_trees: bool,
    state: Mutex<State>,
    /// Signalled when a segment is written, or when the writer has failed.
    arrived: Condvar,
    appender: Mutex<Appender>,
    trees: Mutex<Trees>,
}

/// Trees that were put or read, with verified hashes.
#[derive(Default)]
struct Trees {
    known: HashMap<ObjectId, Vec<u8>>,
    bytes: usize,
}

impl Trees {
    fn remember(&mut self, id: ObjectId, bytes: &[u8]) {
        if self.bytes + bytes.len() <= TREE_BYTES_MAX && self.known.insert(id, bytes.to_vec()).is_none() {
            self.bytes += bytes.len();
        }
    }
}

struct State {
    failed: Option<Failed>,
    pending: HashMap<ObjectId, Pending>,
    open: Builder,
    /// Positions of the filled segments, in order; `None` while a segment is being written.
    filled: Vec<Option<Spot>>,
    flying: usize,
    spare: Vec<Vec<u8>>,
    raw_bytes: u64,
    /// Target size of a segment.
    segment_bytes: usize,
}

/// Reason why a writer commits nothing.
#[derive(Clone, Copy)]
enum Failed {
    /// The size limit is reached: bytes needed, used and allowed.
    Full(u64, u64, u64),
    Otherwise,
}

impl Failed {
    fn error(self) -> StoreError {
        match self {
            Failed::Full(needed_bytes, used_bytes, allowed_bytes) => {
                StoreError::Full { needed_bytes, used_bytes, allowed_bytes }
            }
            Failed::Otherwise => StoreError::WriterFailed,
        }
    }
}

/// Uncommitted object.
#[derive(Clone, Copy)]
struct Pending {
    segment: u32,
    offset: u32,
    shape: Compact,
}

/// Shape without the id, which is the key.
#[derive(Clone, Copy)]
struct Compact {
    kind: ObjectKind,
    codec: frame::Codec,
    stored_len: u32,
    raw_len: u32,
}

impl Pending {
    fn shape(&self, id: ObjectId) -> Shape {
        let Compact { kind, codec, stored_len, raw_len } = self.shape;
        Shape { kind, codec, stored_len, raw_len, id }
    }
}

/// Segment that this thread must write out.
struct Filled {
    number: usize,
    builder: Builder,
}

impl<'s> Writer<'s> {
    pub(crate) fn new(store: &'s Store, began_empty: bool) -> Self {
        let state = State {
            failed: None,
            pending: HashMap::new(),
            open: Builder::new(Vec::new()),
            filled: Vec::new(),
            flying: 0,
            spare: Vec::new(),
            raw_bytes: 0,
            segment_bytes: segment_bytes(store.limits().pack_bytes),
        };
        let (arrived, appender, trees) = (Condvar::new(), Mutex::default(), Mutex::default());
        Self { store, began_empty, trusts_trees: true, state: Mutex::new(state), arrived, appender, trees }
    }

    /// Lets this writer exceed the size limit.
    #[must_use]
    pub fn beyond_limit(self) -> Self {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner).beyond_limit = true;
        self
    }

    /// Lets this writer use the reserve beyond the size limit.
    #[must_use]
    pub fn from_reserve(self) -> Self {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner).from_reserve = true;
        self
    }

    /// For a store in which objects below a stored directory may be missing: directories are then checked,
    /// too.
    #[must_use]
    pub fn among_damage(mut self) -> Self {
        self.trusts_trees = false;
        self
    }

    /// Stores a verified object unchanged, even if the store has another copy.
    pub(crate) fn copy(&self, shape: Shape, frame: &[u8]) -> Result<(), StoreError> {
        match self.push(shape, frame)? {
            Some(filled) => self.write_out(filled, false),
            None => Ok(()),
        }
    }

    /// Returns true if every object put was already stored.
    ///
    /// # Errors
    /// When the writer has failed.
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.lock()?.pending.is_empty())
    }

    /// Returns the chunks of file content that were put and that the store did not have.
    ///
    /// # Errors
    /// When the writer has failed.
    pub fn new_content(&self) -> Result<HashSet<ObjectId>, StoreError> {
        let state = self.lock()?;
        let chunks = state.pending.iter().filter(|(_, pending)| pending.shape.kind == ObjectKind::Chunk);
        Ok(chunks.map(|(id, _)| *id).collect())
    }

    /// Returns the growth of the packs if the writer finished now. No segment may be in flight.
    ///
    /// # Errors
    /// When the writer has failed.
    pub fn stored_bytes(&self) -> Result<u64, StoreError> {
        let appender = self.appender.lock().map_err(|_| StoreError::WriterFailed)?;
        let written: u64 = appender.packs.iter().map(|pack| pack.end - pack.start).sum();
        drop(appender);
        Ok(written + self.lock()?.open.sealed_len())
    }

    /// Makes all objects durable, then commits them.
    ///
    /// # Errors
    /// When any step failed, now or before; then nothing is committed.
    pub fn finish(self) -> Result<Written, StoreError> {
        let last = {
            let mut state = self.lock()?;
            (!state.open.is_empty()).then(|| state.swap_out())
        };
        if let Some(filled) = last {
            self.write_out(filled, true)?;
        }
        let mut appender = self.appender.lock().map_err(|_| StoreError::WriterFailed)?;
        let state = self.lock()?;
        let packs = rows(&state, &appender);
        let written = Written {
            objects: state.pending.len() as u64,
            raw_bytes: state.raw_bytes,
            stored_bytes: appender.packs.iter().map(|pack| pack.end - pack.start).sum(),
        };
        drop(state);
        // From here on the rows may be in the index even if it reports a failure, so their objects must stay.
        let mut held = std::mem::take(&mut *appender);
        let durable = OnceLock::new();
        let recorded = self.record(packs, &held, &durable);
        match durable.into_inner() {
            Some(Err(error)) => {
                held.abandon();
                Err(error)
            }
            _ => recorded.map(|()| written),
        }
    }

    /// Makes the packs durable, then updates the index. Many rows are prepared in parallel.
    fn record(&self, mut packs: Vec<PackRows>, held: &Appender, durable: &Durable) -> Result<(), StoreError> {
        let sync = || durable.get_or_init(|| held.sync(self.store)).is_ok();
        std::thread::scope(|scope| {
            let many = packs.iter().map(|pack| pack.rows.len()).sum::<usize>() > ROWS_AT_ONCE;
            // If no thread can be started, the flush runs on demand.
            let aside = many.then(|| std::thread::Builder::new().spawn_scoped(scope, sync).is_ok());
            if aside.is_none() && !sync() {
                return Ok(());
            }
            while let Recorded::Behind { pack, indexed } =
                self.store.with_index(|index| index.record_when(&packs, sync))?
            {
                let from = indexed.max(PACK_HEAD_BYTES);
                let tail = recover::read_tail(&held.packs[pack].file, from, packs[pack].from);
                packs[pack].rows.extend(tail.rows());
                packs[pack].from = indexed;
            }
            Ok(())
        })
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        match self.state.lock() {
            Ok(state) => match state.failed {
                None => Ok(state),
                Some(failed) => Err(failed.error()),
            },
            Err(_) => Err(StoreError::WriterFailed),
        }
    }

    /// Marks the writer as failed: nothing is committed, and every caller gets the reason.
    fn fail(&self, error: &StoreError) {
        let failed = match error {
            StoreError::Full { needed_bytes, used_bytes, allowed_bytes } => {
                Failed::Full(*needed_bytes, *used_bytes, *allowed_bytes)
            }
            _ => Failed::Otherwise,
        };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed.get_or_insert(failed);
        self.arrived.notify_all();
    }

    fn remember(&self, kind: ObjectKind, id: ObjectId, bytes: &[u8]) {
        if kind == ObjectKind::Tree {
            self.trees.lock().unwrap_or_else(PoisonError::into_inner).remember(id, bytes);
        }
    }

    /// Returns true if the object is stored, or was put before.
    pub(crate) fn knows(&self, id: ObjectId) -> Result<bool, StoreError> {
        self.has(id)
    }

    fn has(&self, id: ObjectId) -> Result<bool, StoreError> {
        if self.lock()?.pending.contains_key(&id) {
            return Ok(true);
        }
        Ok(!self.began_empty && self.store.contains(id)?)
    }

    fn keep(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, StoreError> {
        let id = ObjectId::of(kind, bytes);
        if !self.has(id)? {
            self.add(kind, id, bytes)?;
        }
        Ok(id)
    }

    /// Stores an object that is missing.
    fn add(&self, kind: ObjectKind, id: ObjectId, bytes: &[u8]) -> Result<(), StoreError> {
        self.remember(kind, id, bytes);
        let filled = frame::encode(kind, id, bytes, |shape, frame| self.push(shape, frame))??;
        match filled {
            Some(filled) => self.write_out(filled, false),
            None => Ok(()),
        }
    }

    /// Adds a frame to the open segment. The caller must write out a segment that was full before.
    fn push(&self, shape: Shape, frame: &[u8]) -> Result<Option<Filled>, StoreError> {
        let mut state = self.lock()?;
        while state.is_full() && state.flying >= FLYING_MAX {
            state = self.arrived.wait(state).map_err(|_| StoreError::WriterFailed)?;
            if let Some(failed) = state.failed {
                return Err(failed.error());
            }
        }
        // Another thread may have put the same bytes concurrently.
        if state.pending.contains_key(&shape.id) {
            return Ok(None);
        }
        let filled = state.is_full().then(|| state.swap_out());
        let segment = state.filled.len() as u32;
        let offset = state.open.push(shape, frame);
        let Shape { kind, codec, stored_len, raw_len, id } = shape;
        let shape = Compact { kind, codec, stored_len, raw_len };
        state.pending.insert(id, Pending { segment, offset, shape });
        state.raw_bytes += u64::from(raw_len);
        Ok(filled)
    }

    /// Writes a segment to the disk and verifies it.
    fn write_out(&self, filled: Filled, last: bool) -> Result<(), StoreError> {
        let result = self.write_and_verify(filled, last);
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    fn write_and_verify(&self, filled: Filled, last: bool) -> Result<(), StoreError> {
        let Filled { number, builder } = filled;
        let mut sealed = builder.seal();
        // In order and one at a time: after a kill, the pack has a torn end and no hole.
        let spot = {
            let mut appender = self.appender.lock().map_err(|_| StoreError::WriterFailed)?;
            appender.append(self.store, &mut sealed, last)?
        };
        verify(&spot, sealed.bytes())?;
        let buffer = sealed.into_buffer();
        let mut state = self.lock()?;
        state.filled[number] = Some(spot);
        state.flying -= 1;
        if buffer.capacity() <= SPARE_BYTES_MAX {
            state.spare.push(buffer);
        }
        drop(state);
        self.arrived.notify_all();
        Ok(())
    }

    /// Uncommitted object.
    fn get_pending(&self, id: ObjectId) -> Result<Option<Answer>, StoreError> {
        let mut state = self.lock()?;
        let Some(pending) = state.pending.get(&id).copied() else { return Ok(None) };
        let shape = pending.shape(id);
        let mut frame = Vec::new();
        loop {
            let number = pending.segment as usize;
            if number == state.filled.len() {
                let at = pending.offset as usize;
                frame.extend_from_slice(&state.open.payload()[at..at + shape.stored_len as usize]);
                break;
            }
            if let Some(spot) = &state.filled[number] {
                let at = spot.at + HEAD_BYTES as u64 + u64::from(pending.offset);
                pack::read_frame(&spot.file, at, shape.stored_len, &mut frame)
                    .map_err(|source| StoreError::ReadPack { path: spot.path.clone(), source })?;
                break;
            }
            state = self.arrived.wait(state).map_err(|_| StoreError::WriterFailed)?;
            if let Some(failed) = state.failed {
                return Err(failed.error());
            }
        }
        drop(state);
        let mut scratch = Vec::new();
        Ok(Some(match frame::decode(&shape, &frame, &mut scratch) {
            Ok(bytes) => Answer::Bytes(shape.kind, bytes.to_vec()),
            Err(what) => Answer::Damaged(what.to_owned()),
        }))
    }
}

impl State {
    /// Takes the open segment and starts the next one.
    fn is_full(&self) -> bool {
        self.open.is_full(self.segment_bytes)
    }

    fn swap_out(&mut self) -> Filled {
        let next = Builder::new(self.spare.pop().unwrap_or_default());
        let builder = std::mem::replace(&mut self.open, next);
        self.filled.push(None);
        self.flying += 1;
        Filled { number: self.filled.len() - 1, builder }
    }
}

/// Returns the target size of a segment. The last segment may exceed the pack size by at most half; otherwise
/// emptying a pack would need more space than is reserved.
fn segment_bytes(pack_bytes: u64) -> usize {
    usize::try_from(pack_bytes / 2).unwrap_or(usize::MAX).min(segment::PAYLOAD_BYTES_TARGET)
}

/// Reads a segment back and compares every byte. Each frame was verified when it was encoded.
fn verify(spot: &Spot, written: &[u8]) -> Result<(), StoreError> {
    let mut portion = [0; VERIFY_BYTES];
    let mut at = spot.at;
    for written in written.chunks(VERIFY_BYTES) {
        let portion = &mut portion[..written.len()];
        spot.file
            .read_exact_at(portion, at)
            .map_err(|source| StoreError::ReadPack { path: spot.path.clone(), source })?;
        if portion != written {
            return Err(StoreError::VerifyPack { path: spot.path.clone() });
        }
        at += written.len() as u64;
    }
    Ok(())
}

/// Returns the rows for the index, sorted by id in each pack: SQLite inserts them fastest in this order.
fn rows(state: &State, appender: &Appender) -> Vec<PackRows> {
    let mut packs: Vec<PackRows> = appender
        .packs
        .iter()
        .map(|pack| PackRows { name: pack.name.clone(), from: pack.start, to: pack.end, rows: Vec::new() })
        .collect();
    for (id, pending) in &state.pending {
        if let Some(Some(spot)) = state.filled.get(pending.segment as usize) {
            let at = spot.at + HEAD_BYTES as u64 + u64::from(pending.offset);
            packs[spot.pack].rows.push((at, pending.shape(*id)));
        }
    }
    for pack in &mut packs {
        pack.rows.sort_unstable_by_key(|(_, shape)| shape.id);
        // A pack that this writer created has no row to compare with.
        if pack.from == PACK_HEAD_BYTES {
            pack.from = 0;
        }
    }
    packs
}

impl ObjectSink for Writer<'_> {
    fn put(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, ObjectError> {
        Ok(self.keep(kind, bytes)?)
    }

    fn put_tree(&self, bytes: &[u8], below: &[ObjectId]) -> Result<ObjectId, ObjectError> {
        let state = self.lock()?;
        let is_new = self.trusts_trees && below.iter().any(|id| state.pending.contains_key(id));
        drop(state);
        if !is_new {
            return self.put(ObjectKind::Tree, bytes);
        }
        let id = ObjectId::of(ObjectKind::Tree, bytes);
        self.add(ObjectKind::Tree, id, bytes)?;
        Ok(id)
    }

    fn recall(&self, kind: ObjectKind, id: ObjectId, bytes: &[u8]) {
        if ObjectId::of(kind, bytes) == id {
            self.remember(kind, id, bytes);
        }
    }

    fn put_content(&self, size_hint: u64, reader: &mut dyn Read) -> Result<Content, ObjectError> {
        content::put(self, size_hint, reader)
    }

    fn put_sparse(&self, size: u64, reader: &mut dyn SparseRead) -> Result<Content, ObjectError> {
        content::put_sparse(self, size, reader)
    }
}

impl ObjectSource for Writer<'_> {
    fn get(&self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        if kind == ObjectKind::Tree {
            let trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(bytes) = trees.known.get(&id) {
                return Ok(bytes.clone());
            }
        }
        let bytes = match self.get_pending(id)? {
            Some(answer) => answer.of_kind(kind, id)?,
            None => self.store.get(kind, id)?,
        };
        self.remember(kind, id, &bytes);
        Ok(bytes)
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.appender.get_mut().unwrap_or_else(PoisonError::into_inner).abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux;
    use crate::segment::tests::segment;
    use std::sync::Arc;

    fn spot() -> Spot {
        let file = linux::lock(tempfile::tempfile().unwrap()).unwrap();
        Spot { pack: 0, path: "pack".into(), file: Arc::new(file), at: 0 }
    }

    #[test]
    fn what_does_not_read_back_as_it_was_written_is_refused() {
        let good = segment(&[b"one", &[0; 300]], true);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            let spot = spot();
            spot.file.write_all_at(&bytes, 0).unwrap();
            let result = verify(&spot, &good);
            assert!(matches!(result, Err(StoreError::VerifyPack { .. })), "byte {at}");
        }
        let spot = spot();
        assert!(matches!(verify(&spot, &good), Err(StoreError::ReadPack { .. })));
    }

    #[test]
    fn a_writer_that_failed_once_keeps_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let writer = store.writer().unwrap();
        let id = writer.put(ObjectKind::Chunk, b"one").unwrap();
        writer.fail(&StoreError::WriterFailed);
        for result in
            [writer.put(ObjectKind::Chunk, b"two").map(drop), writer.get(ObjectKind::Chunk, id).map(drop)]
        {
            let Err(ObjectError::Store(error)) = result else { panic!("the writer continued") };
            assert!(matches!(error.downcast_ref(), Some(StoreError::WriterFailed)));
        }
        assert!(matches!(writer.finish(), Err(StoreError::WriterFailed)));
        assert!(!store.contains(id).unwrap());
    }
}
