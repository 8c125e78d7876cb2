//! Segment: the unit appended to a pack. Header, frames, index and footer, in one write.
//!
//! In: frames with their shapes. Out: the bytes of a segment; and back: a header and its index entries. The
//! footer repeats the header, so that no single damaged byte hides the segment.

use crate::OBJECT_BYTES_MAX;
use crate::frame::{Codec, Shape};
use safepoint_model::{ObjectId, ObjectKind};

/// Length of the header, and of the footer.
pub(crate) const HEAD_BYTES: usize = 96;
/// Length of an index entry.
pub(crate) const ENTRY_BYTES: usize = 48;
pub(crate) const HEAD_MAGIC: [u8; 8] = *b"SFPTSEGM";
pub(crate) const FOOT_MAGIC: [u8; 8] = *b"SFPTSEGE";
/// Payload at which a segment is written out. It is small enough to stay in the CPU cache while it is hashed,
/// written and compared, and leaves little work after the last object.
pub(crate) const PAYLOAD_BYTES_TARGET: usize = 1024 * 1024;
/// Number of objects at which a segment is written out.
pub(crate) const OBJECTS_MAX: usize = 65_536;
/// Maximum payload of any segment; another version may use larger segments than this one.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = (8 * 1024 * 1024 + OBJECT_BYTES_MAX) as u64;
const CLOSING: u32 = 1;

/// Content of the header and of the footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// True for the last segment that its writer appended to this pack: earlier ones may be committed.
    pub(crate) closing: bool,
    pub(crate) count: u32,
    pub(crate) payload_len: u64,
    pub(crate) payload_hash: [u8; 32],
    directory_hash: [u8; 32],
}

impl Head {
    /// Returns the length of the index.
    pub(crate) fn index_len(&self) -> u64 {
        u64::from(self.count) * ENTRY_BYTES as u64
    }

    /// Returns the length of the whole segment.
    pub(crate) fn segment_len(&self) -> u64 {
        2 * HEAD_BYTES as u64 + self.payload_len + self.index_len()
    }

    /// Returns a header with matching hashes for any index.
    pub(crate) fn forged(closing: bool, count: u32, payload: &[u8], index: &[u8]) -> Self {
        let (payload_len, payload_hash) = (payload.len() as u64, blake3::hash(payload).into());
        let head = Self { closing, count, payload_len, payload_hash, directory_hash: [0; 32] };
        Self { directory_hash: head.directory(index), ..head }
    }

    /// Returns the header of the only segment of its writer.
    pub(crate) fn sealed(count: u32, payload_len: u64, payload_hash: [u8; 32], index: &[u8]) -> Self {
        let head = Self { closing: true, count, payload_len, payload_hash, directory_hash: [0; 32] };
        Self { directory_hash: head.directory(index), ..head }
    }

    pub(crate) fn encode(&self, magic: [u8; 8]) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        out[..8].copy_from_slice(&magic);
        out[8..12].copy_from_slice(&if self.closing { CLOSING } else { 0 }.to_le_bytes());
        out[12..16].copy_from_slice(&self.count.to_le_bytes());
        out[16..24].copy_from_slice(&self.payload_len.to_le_bytes());
        out[24..32].copy_from_slice(&self.index_len().to_le_bytes());
        out[32..64].copy_from_slice(&self.payload_hash);
        out[64..].copy_from_slice(&self.directory_hash);
        out
    }

    /// Decodes a header or a footer. Returns `None` if no writer produces these numbers.
    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES], magic: [u8; 8]) -> Option<Self> {
        let flags = number32(bytes, 8);
        let head = Self {
            closing: flags == CLOSING,
            count: number32(bytes, 12),
            payload_len: number64(bytes, 16),
            payload_hash: hash(bytes, 32),
            directory_hash: hash(bytes, 64),
        };
        let sound = bytes[..8] == magic
            && flags <= CLOSING
            && head.count as usize <= OBJECTS_MAX
            && head.payload_len <= PAYLOAD_BYTES_MAX
            && head.index_len() == number64(bytes, 24);
        sound.then_some(head)
    }

    /// Returns the hash of this header's numbers and the index.
    fn directory(&self, index: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.encode(HEAD_MAGIC)[8..64]);
        hasher.update(index);
        hasher.finalize().into()
    }

    /// Returns true if this header matches this index.
    pub(crate) fn covers(&self, index: &[u8]) -> bool {
        self.directory(index) == self.directory_hash
    }
}

/// Object of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) shape: Shape,
    /// Offset of its frame, relative to the first frame.
    pub(crate) offset: u32,
}

impl Entry {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.shape.kind.code(), self.shape.codec as u8, 0, 0]);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.shape.stored_len.to_le_bytes());
        out.extend_from_slice(&self.shape.raw_len.to_le_bytes());
        out.extend_from_slice(self.shape.id.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let shape = Shape {
            kind: ObjectKind::from_code(bytes[0])?,
            codec: Codec::from_code(bytes[1])?,
            stored_len: number32(bytes, 8),
            raw_len: number32(bytes, 12),
            id: ObjectId::from_bytes(hash(bytes, 16)),
        };
        let sound = bytes[2..4] == [0, 0] && shape.is_plausible();
        sound.then_some(Self { shape, offset: number32(bytes, 4) })
    }

    fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.shape.stored_len)
    }
}

/// Returns the entries of an index, and true if it is complete: contiguous frames and no extra byte.
/// Otherwise returns the entries that are still plausible.
pub(crate) fn decode_index(head: &Head, index: &[u8]) -> (Vec<Entry>, bool) {
    let entries: Vec<Entry> = index
        .chunks_exact(ENTRY_BYTES)
        .filter_map(Entry::decode)
        .filter(|entry| entry.end() <= head.payload_len)
        .collect();
    let mut end = 0;
    let back_to_back = entries.iter().all(|entry| {
        let follows = u64::from(entry.offset) == end;
        end = entry.end();
        follows
    });
    let whole = entries.len() == head.count as usize && back_to_back && end == head.payload_len;
    (entries, whole)
}

/// Segment under construction.
pub(crate) struct Builder {
    buffer: Vec<u8>,
    entries: Vec<Entry>,
}

impl Builder {
    /// Returns an empty segment in this buffer, which is cleared.
    pub(crate) fn new(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(HEAD_BYTES, 0);
        Self { buffer, entries: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if the segment should be written out; `payload_bytes` is the target size.
    pub(crate) fn is_full(&self, payload_bytes: usize) -> bool {
        self.payload().len() >= payload_bytes || self.entries.len() >= OBJECTS_MAX
    }

    /// Returns the frames so far.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.buffer[HEAD_BYTES..]
    }

    /// Returns the length of the sealed segment, or zero if it is empty.
    pub(crate) fn sealed_len(&self) -> u64 {
        match self.entries.len() {
            0 => 0,
            count => (self.buffer.len() + count * ENTRY_BYTES + HEAD_BYTES) as u64,
        }
    }

    /// Adds a frame and returns its offset in the payload.
    pub(crate) fn push(&mut self, shape: Shape, frame: &[u8]) -> u32 {
        debug_assert_eq!(frame.len(), shape.stored_len as usize);
        // Fits: a segment is full long before, and the object size is limited.
        let offset = self.payload().len() as u32;
        self.buffer.extend_from_slice(frame);
        self.entries.push(Entry { shape, offset });
        offset
    }

    /// Ends the segment: no frame may follow.
    pub(crate) fn seal(mut self) -> Sealed {
        let sealed_len = self.sealed_len();
        let head = Head {
            closing: false,
            count: self.entries.len() as u32,
            payload_len: self.payload().len() as u64,
            payload_hash: blake3::hash(self.payload()).into(),
            directory_hash: [0; 32],
        };
        self.entries.iter().for_each(|entry| entry.encode(&mut self.buffer));
        self.buffer.extend_from_slice(&[0; HEAD_BYTES]);
        let fits = self.entries.is_empty() || self.buffer.len() as u64 == sealed_len;
        assert!(fits, "the length that room was made for");
        Sealed { buffer: self.buffer, head }
    }
}

/// Segment with all its frames; only the closing flag is not yet set.
pub(crate) struct Sealed {
    buffer: Vec<u8>,
    head: Head,
}

impl Sealed {
    /// Returns its bytes; header and footer are valid only after [`Sealed::close`].
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Writes header and footer into the bytes.
    pub(crate) fn close(&mut self, closing: bool) {
        self.head.closing = closing;
        let index_at = HEAD_BYTES + self.head.payload_len as usize;
        let foot_at = self.buffer.len() - HEAD_BYTES;
        self.head.directory_hash = self.head.directory(&self.buffer[index_at..foot_at]);
        self.buffer[..HEAD_BYTES].copy_from_slice(&self.head.encode(HEAD_MAGIC));
        self.buffer[foot_at..].copy_from_slice(&self.head.encode(FOOT_MAGIC));
    }

    /// Returns the buffer for reuse.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    u64::from(number32(bytes, at)) | u64::from(number32(bytes, at + 4)) << 32
}

fn hash(bytes: &[u8], at: usize) -> [u8; 32] {
    std::array::from_fn(|i| bytes[at + i])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::frame;
    use crate::pack::{self, Step};
    use std::os::unix::fs::FileExt;

    /// Returns a segment with these chunks.
    pub(crate) fn segment(chunks: &[&[u8]], closing: bool) -> Vec<u8> {
        let mut builder = Builder::new(vec![1, 2, 3]);
        for raw in chunks {
            let id = ObjectId::of(ObjectKind::Chunk, raw);
            frame::encode(ObjectKind::Chunk, id, raw, |shape, frame| builder.push(shape, frame)).unwrap();
        }
        let mut sealed = builder.seal();
        sealed.close(closing);
        sealed.into_buffer()
    }

    /// Returns a segment with correct hashes and arbitrary entries.
    pub(crate) fn forged(payload: &[u8], entries: &[Entry]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        builder.buffer.extend_from_slice(payload);
        builder.entries.extend_from_slice(entries);
        let mut sealed = builder.seal();
        sealed.close(true);
        sealed.into_buffer()
    }

    /// Decodes a segment as from a pack. Returns `None` if any byte differs from the written ones.
    fn decode(bytes: &[u8]) -> Option<(Head, Vec<Entry>)> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        let len = bytes.len() as u64;
        let Some(Step::Segment(found)) = pack::next(&file, 0, len).unwrap() else { return None };
        let sound = found.fault.is_none() && found.payload_is_sound(&file).unwrap();
        (sound && found.start == 0 && found.end() == len).then_some((found.head, found.entries))
    }

    #[test]
    fn a_segment_reads_back() {
        let bytes = segment(&[b"one", &[0; 500], b""], true);
        let (head, entries) = decode(&bytes).unwrap();
        assert!(head.closing);
        assert_eq!(head.segment_len(), bytes.len() as u64);
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0].offset, 0);
        assert_eq!(entries[1].offset, 3);
        assert_eq!(entries[2].shape.raw_len, 0);
        assert!(decode(&segment(&[], false)).unwrap().1.is_empty());
    }

    #[test]
    fn no_byte_of_a_segment_is_outside_a_hash() {
        let good = segment(&[b"one", &[0; 500], b"three"], false);
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(decode(&bad).is_none(), "byte {at} bit {bit}");
            }
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len]).is_none(), "length {len}");
        }
    }

    #[test]
    fn an_index_with_impossible_numbers_gives_only_what_could_be_true() {
        let bytes = segment(&[b"one", b"two", b"six"], false);
        let (head, entries) = decode(&bytes).unwrap();
        let index = |entries: &[Entry]| {
            let mut out = Vec::new();
            entries.iter().for_each(|entry| entry.encode(&mut out));
            out
        };
        let mut overlapping = entries.clone();
        overlapping[1].offset = 1;
        assert_eq!(decode_index(&head, &index(&overlapping)), (overlapping.clone(), false));
        let mut outside = entries.clone();
        outside[2].offset = u32::MAX;
        assert_eq!(decode_index(&head, &index(&outside)), (entries[..2].to_vec(), false));
        let mut huge = entries.clone();
        (huge[0].shape.stored_len, huge[0].shape.raw_len) = (u32::MAX, u32::MAX);
        assert_eq!(decode_index(&head, &index(&huge)), (entries[1..].to_vec(), false));
    }
}
