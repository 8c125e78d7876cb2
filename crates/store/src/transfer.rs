//! Transfer: packs with one segment, for another store.
//!
//! In: ids of objects. Out: a file of the format of packs; and back: its index, from the end of the file, and
//! its frames. Every frame is verified when it leaves and when it enters. The frames are copied, so an object
//! is compressed once in its life.

use crate::frame::{self, Codec, Shape};
use crate::pack::{self, PACK_HEAD, PACK_HEAD_BYTES};
use crate::segment::{self, ENTRY_BYTES, Entry, FOOT_MAGIC, HEAD_BYTES, HEAD_MAGIC, Head};
use crate::store::Answer;
use crate::{Store, StoreError, Writer};
use safepoint_model::{ObjectError, ObjectId, ObjectKind};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Payload at which a pack for another store is full; also the size of a download that may be repeated.
const PAYLOAD_BYTES: u64 = crate::PACK_BYTES_MAX;
const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes of the end of a pack that usually hold its index.
const GUESS_BYTES: u64 = 16 * 1024;

/// Pack with one segment under construction.
pub struct PackOut<'s> {
    store: &'s Store,
    out: BufWriter<File>,
    path: PathBuf,
    hasher: blake3::Hasher,
    payload_len: u64,
    entries: Vec<Entry>,
}

/// Finished pack with one segment.
#[derive(Debug)]
pub struct PackedFile {
    /// File.
    pub file: File,
    /// Length.
    pub bytes: u64,
    /// Number of objects.
    pub objects: u64,
}

impl Store {
    /// Begins a pack in an empty file; the path is for messages.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn pack_out(&self, file: File, path: &Path) -> Result<PackOut<'_>, StoreError> {
        let mut pack = PackOut {
            store: self,
            out: BufWriter::with_capacity(BUFFER_BYTES, file),
            path: path.to_owned(),
            hasher: blake3::Hasher::new(),
            payload_len: 0,
            entries: Vec::new(),
        };
        let mut head = PACK_HEAD.to_vec();
        head.resize(PACK_HEAD.len() + HEAD_BYTES, 0);
        pack.out.write_all(&head).map_err(|source| pack.failed(source))?;
        Ok(pack)
    }

    /// Returns the verified frame of an object, from any of its copies.
    fn frame_of(&self, id: ObjectId) -> Result<(Shape, Vec<u8>), ObjectError> {
        let place = self.with_index(|index| index.find(id))?;
        if let Some(place) = place.filter(|place| place.shape.is_plausible()) {
            let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
            let read = self.file(&place.pack);
            let read =
                read.and_then(|file| pack::read_frame(&file, place.at, place.shape.stored_len, &mut bytes));
            if read.is_ok() && frame::decode(&place.shape, &bytes, &mut scratch).is_ok() {
                return Ok((place.shape, bytes));
            }
        }
        // Rare: the index is outdated, or the object is damaged and has a second copy.
        match self.read(id)? {
            Answer::Bytes(kind, raw) => {
                Ok(frame::encode(kind, id, &raw, |shape, frame| (shape, frame.to_vec()))?)
            }
            Answer::Missing => Err(ObjectError::Missing { id }),
            Answer::Damaged(what) => Err(ObjectError::Damaged { id, what }),
        }
    }
}

impl PackOut<'_> {
    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::AppendPack { path: self.path.clone(), source }
    }

    /// Returns true if the next object belongs into another pack.
    pub fn is_full(&self) -> bool {
        self.payload_len >= PAYLOAD_BYTES || self.entries.len() >= segment::OBJECTS_MAX - 1
    }

    /// Number of objects.
    pub fn objects(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Copies an object of the store.
    ///
    /// # Errors
    /// When it is missing or damaged, or the file cannot be written.
    pub fn add(&mut self, id: ObjectId) -> Result<(), ObjectError> {
        let (shape, frame) = self.store.frame_of(id)?;
        Ok(self.push(shape, &frame)?)
    }

    /// Adds a document that need not be in the store. As the last object, [`PackTail::last_document`] finds it.
    ///
    /// # Errors
    /// When it is too large, or the file cannot be written.
    pub fn add_document(&mut self, bytes: &[u8]) -> Result<ObjectId, StoreError> {
        self.add_bytes(ObjectKind::Document, bytes)
    }

    /// Adds an object that need not be in the store.
    ///
    /// # Errors
    /// When it is too large, or the file cannot be written.
    pub fn add_bytes(&mut self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, StoreError> {
        let id = ObjectId::of(kind, bytes);
        frame::encode(kind, id, bytes, |shape, frame| self.push(shape, frame))??;
        Ok(id)
    }

    fn push(&mut self, shape: Shape, frame: &[u8]) -> Result<(), StoreError> {
        // Only an object of nearly the maximum size, added to a pack that is nearly full, exceeds a segment.
        let end = self.payload_len + frame.len() as u64;
        let offset = u32::try_from(self.payload_len).ok().filter(|_| end <= segment::PAYLOAD_BYTES_MAX);
        let offset = offset.ok_or(StoreError::TooLarge { bytes: frame.len() })?;
        self.out.write_all(frame).map_err(|source| self.failed(source))?;
        self.hasher.update(frame);
        self.payload_len = end;
        self.entries.push(Entry { shape, offset });
        Ok(())
    }

    /// Writes the index and closes the segment. The file is not flushed to the disk.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<PackedFile, StoreError> {
        let mut index = Vec::with_capacity(self.entries.len() * ENTRY_BYTES);
        self.entries.iter().for_each(|entry| entry.encode(&mut index));
        let objects = self.objects();
        let hash = self.hasher.finalize().into();
        let head = Head::sealed(self.entries.len() as u32, self.payload_len, hash, &index);
        let bytes = PACK_HEAD_BYTES + head.segment_len();
        let path = self.path.clone();
        let failed = |source| StoreError::AppendPack { path: path.clone(), source };
        self.out
            .write_all(&index)
            .and_then(|()| self.out.write_all(&head.encode(FOOT_MAGIC)))
            .map_err(failed)?;
        let file = self.out.into_inner().map_err(|error| failed(error.into_error()))?;
        file.write_all_at(&head.encode(HEAD_MAGIC), PACK_HEAD_BYTES).map_err(failed)?;
        Ok(PackedFile { file, bytes, objects })
    }
}

/// Object of a pack with one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedObject {
    shape: Shape,
    at: u64,
}

impl PackedObject {
    /// Kind.
    pub fn kind(&self) -> ObjectKind {
        self.shape.kind
    }

    /// Id.
    pub fn id(&self) -> ObjectId {
        self.shape.id
    }

    /// Offset of its frame in the pack.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Length of its frame.
    pub fn stored_len(&self) -> u64 {
        self.shape.stored_len.into()
    }

    /// Length of the object.
    pub fn raw_len(&self) -> u64 {
        self.shape.raw_len.into()
    }

    /// Returns the object in this frame, verified.
    ///
    /// # Errors
    /// When the frame is damaged.
    pub fn decode(&self, frame: &[u8]) -> Result<Vec<u8>, ObjectError> {
        let mut scratch = Vec::new();
        match frame::decode(&self.shape, frame, &mut scratch) {
            Ok(_) if self.shape.codec == Codec::Raw => Ok(frame.to_vec()),
            Ok(_) => Ok(scratch),
            Err(what) => Err(ObjectError::Damaged { id: self.shape.id, what: what.to_owned() }),
        }
    }
}

/// Index of a pack with one segment, read from its end.
#[derive(Debug)]
pub struct PackTail {
    objects: Vec<PackedObject>,
}

impl PackTail {
    /// Returns the length of the end of a pack that holds the index of so many objects.
    pub fn len_for(objects: u64) -> u64 {
        HEAD_BYTES as u64 + objects.saturating_mul(ENTRY_BYTES as u64)
    }

    /// Reads the index. `tail` is the end of a pack of `pack_len` bytes, at least [`PackTail::len_for`] long.
    ///
    /// # Errors
    /// When the pack has another form, the index is damaged, or `tail` is too short; the text says which.
    pub fn read(pack_len: u64, tail: &[u8]) -> Result<Self, &'static str> {
        let (rest, foot) = tail.split_last_chunk::<HEAD_BYTES>().ok_or("its end is too short")?;
        let head = Head::decode(foot, FOOT_MAGIC).ok_or("its footer is damaged")?;
        if PACK_HEAD_BYTES + head.segment_len() != pack_len {
            return Err("it does not have exactly one segment");
        }
        let index_len = usize::try_from(head.index_len()).map_err(|_| "its index is too long")?;
        let at = rest.len().checked_sub(index_len).ok_or("its end is too short")?;
        let index = &rest[at..];
        if !head.covers(index) {
            return Err("its index is damaged");
        }
        let (entries, is_whole) = segment::decode_index(&head, index);
        if !is_whole {
            return Err("its index has impossible numbers");
        }
        let payload_at = PACK_HEAD_BYTES + HEAD_BYTES as u64;
        let placed =
            |entry: Entry| PackedObject { shape: entry.shape, at: payload_at + u64::from(entry.offset) };
        Ok(Self { objects: entries.into_iter().map(placed).collect() })
    }

    /// Reads the index of a pack of unknown content: the last bytes first, then what is missing of the index.
    ///
    /// # Errors
    /// When `read_at` fails, or as [`PackTail::read`].
    pub fn open<E>(
        pack_len: u64,
        read_at: &dyn Fn(u64, u64) -> Result<Vec<u8>, E>,
    ) -> Result<Result<Self, &'static str>, E> {
        let first = pack_len.min(GUESS_BYTES);
        let mut tail = read_at(pack_len - first, first)?;
        let head = tail.last_chunk::<HEAD_BYTES>().and_then(|foot| Head::decode(foot, FOOT_MAGIC));
        let Some(head) = head else { return Ok(Err("its footer is damaged")) };
        let needed = HEAD_BYTES as u64 + head.index_len();
        if needed > pack_len {
            return Ok(Err("its index is too long"));
        }
        if needed > first {
            let mut rest = read_at(pack_len - needed, needed - first)?;
            rest.append(&mut tail);
            tail = rest;
        }
        Ok(Self::read(pack_len, &tail))
    }

    /// Objects, in the order of their frames.
    pub fn objects(&self) -> &[PackedObject] {
        &self.objects
    }

    /// Returns the last object if it is a document.
    pub fn last_document(&self) -> Option<&PackedObject> {
        self.objects.last().filter(|object| object.kind() == ObjectKind::Document)
    }
}

impl Writer<'_> {
    /// Stores an object of another store's pack, unless it is stored already. The frame is verified.
    ///
    /// # Errors
    /// When the frame is damaged, or the writer fails.
    pub fn adopt(&self, object: &PackedObject, frame: &[u8]) -> Result<(), ObjectError> {
        if self.knows(object.id())? {
            return Ok(());
        }
        let mut scratch = Vec::new();
        if let Err(what) = frame::decode(&object.shape, frame, &mut scratch) {
            return Err(ObjectError::Damaged { id: object.id(), what: what.to_owned() });
        }
        Ok(self.copy(object.shape, frame)?)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;
    use safepoint_model::{ObjectSink, ObjectSource};
    use std::io::Read;
    use std::io::Seek;

    fn filled(store: &Store) -> Vec<ObjectId> {
        let writer = store.writer().unwrap();
        let mut ids: Vec<_> = (0..40u8)
            .map(|n| writer.put(ObjectKind::Chunk, &vec![n; usize::from(n) * 50]).unwrap())
            .collect();
        ids.push(writer.put(ObjectKind::Tree, b"tree").unwrap());
        writer.finish().unwrap();
        ids
    }

    fn packed(store: &Store, ids: &[ObjectId]) -> Vec<u8> {
        let mut out = store.pack_out(tempfile::tempfile().unwrap(), Path::new("out")).unwrap();
        ids.iter().for_each(|id| out.add(*id).unwrap());
        out.add_document(b"{\"last\":1}").unwrap();
        let mut packed = out.finish().unwrap();
        let mut bytes = Vec::new();
        packed.file.rewind().unwrap();
        packed.file.read_to_end(&mut bytes).unwrap();
        assert_eq!((packed.bytes, packed.objects), (bytes.len() as u64, ids.len() as u64 + 1));
        bytes
    }

    #[test]
    fn a_pack_is_one_segment_that_enters_another_store_as_it_is() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(here.path()).unwrap();
        let ids = filled(&store);
        let bytes = packed(&store, &ids);
        let tail_len = PackTail::len_for(ids.len() as u64 + 1) as usize;
        let tail = PackTail::read(bytes.len() as u64, &bytes[bytes.len() - tail_len..]).unwrap();
        let frame = |object: &PackedObject| {
            let at = object.at() as usize;
            bytes[at..at + object.stored_len() as usize].to_vec()
        };
        let last = tail.last_document().unwrap();
        assert_eq!(last.decode(&frame(last)).unwrap(), b"{\"last\":1}");
        let read_at = |at: u64, len: u64| Ok::<_, ()>(bytes[at as usize..(at + len) as usize].to_vec());
        let opened = PackTail::open(bytes.len() as u64, &read_at).unwrap().unwrap();
        assert_eq!(opened.objects(), tail.objects());
        let other = Store::open(there.path()).unwrap();
        let writer = other.writer().unwrap();
        tail.objects().iter().for_each(|object| writer.adopt(object, &frame(object)).unwrap());
        assert_eq!(writer.finish().unwrap().objects, ids.len() as u64 + 1);
        for id in &ids[..40] {
            let ours = store.get(ObjectKind::Chunk, *id).unwrap();
            assert_eq!(other.get(ObjectKind::Chunk, *id).unwrap(), ours);
        }
        let writer = other.writer().unwrap();
        tail.objects().iter().for_each(|object| writer.adopt(object, b"").unwrap());
        assert!(writer.is_empty().unwrap(), "what is stored is not looked at again");
        drop(writer);
        // The same file is a pack of a store.
        let third = tempfile::tempdir().unwrap();
        drop(Store::open(third.path()).unwrap());
        std::fs::write(third.path().join("packs/01M7FA4Q46WSM1KE07E039H3Q3.pack"), &bytes).unwrap();
        let third = Store::open(third.path()).unwrap();
        assert!(third.contains(ids[3]).unwrap() && third.get(ObjectKind::Tree, ids[40]).is_ok());
    }

    #[test]
    fn no_damaged_byte_enters_a_store() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(here.path()).unwrap();
        let bytes = packed(&store, &filled(&store)[..4]);
        let other = Store::open(there.path()).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            let Ok(tail) = PackTail::read(bad.len() as u64, &bad) else { continue };
            let writer = other.writer().unwrap();
            for object in tail.objects() {
                let from = object.at() as usize;
                let adopted = writer.adopt(object, &bad[from..from + object.stored_len() as usize]);
                assert!(
                    adopted.is_ok() || (from..from + object.stored_len() as usize).contains(&at),
                    "byte {at}"
                );
            }
        }
        for len in 0..bytes.len() {
            assert!(PackTail::read(len as u64, &bytes[..len]).is_err());
        }
    }

    #[test]
    fn a_missing_object_is_not_packed() {
        let here = tempfile::tempdir().unwrap();
        let store = Store::open(here.path()).unwrap();
        let mut out = store.pack_out(tempfile::tempfile().unwrap(), Path::new("out")).unwrap();
        let id = ObjectId::of(ObjectKind::Chunk, b"unknown");
        assert!(matches!(out.add(id), Err(ObjectError::Missing { .. })));
        assert_eq!(out.objects(), 0);
    }
}
