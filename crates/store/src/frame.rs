//! Frame: the bytes of one object on disk, raw or compressed with zstd if that is shorter.
//!
//! In: the bytes of an object, or a frame and its claimed shape. Out: a frame, or bytes with the claimed
//! hash. A claim is untrusted until the hash matches; no claim allocates more memory than its frame can
//! expand to.

use crate::{OBJECT_BYTES_MAX, StoreError};
use safepoint_model::{ObjectId, ObjectKind};
use safepoint_planted::planted;
use std::cell::RefCell;
use std::io;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

/// On 79,000 C source files, level 3 saves 4 % space over level 1 and takes a fifth more time.
const LEVEL: i32 = 3;
/// A directory is mostly object hashes, which do not compress. For the same files this level takes a third of
/// the time of level 3, for 0.6 % more space.
const TREE_LEVEL: i32 = -1;

/// Minimum length of a zstd block; [`BLOCK_BYTES_MAX`] is the maximum length it expands to (RFC 8878,
/// 3.1.1.2).
pub(crate) const BLOCK_BYTES_MIN: usize = 4;
pub(crate) const BLOCK_BYTES_MAX: usize = 128 * 1024;

/// Encoding of a frame. The numbers are part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Codec {
    Raw = 0,
    Zstd = 1,
}

impl Codec {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Codec::Raw, Codec::Zstd].into_iter().find(|codec| *codec as u8 == code)
    }
}

/// Claimed properties of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) kind: ObjectKind,
    pub(crate) codec: Codec,
    pub(crate) stored_len: u32,
    pub(crate) raw_len: u32,
    pub(crate) id: ObjectId,
}

impl Shape {
    /// Returns true if a writer can produce this shape.
    pub(crate) fn is_plausible(&self) -> bool {
        self.raw_len as usize <= OBJECT_BYTES_MAX
            && match self.codec {
                Codec::Raw => self.stored_len == self.raw_len,
                Codec::Zstd => self.stored_len < self.raw_len,
            }
    }
}

/// Buffers above this size are not reused.
const SPARE_BYTES_MAX: usize = 4 * 1024 * 1024;

struct Tools {
    compressor: Option<Compressor<'static>>,
    tree_compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
    compressed: Vec<u8>,
    proof: Vec<u8>,
}

thread_local! {
    // Creating a context costs more than compressing a small file.
    static TOOLS: RefCell<Tools> = const {
        RefCell::new(Tools {
            compressor: None,
            tree_compressor: None,
            decompressor: None,
            compressed: Vec::new(),
            proof: Vec::new(),
        })
    };
}

/// Encodes the bytes of an object and passes the frame to `take`. A compressed frame is decompressed and
/// compared with the bytes while both are in the CPU cache.
pub(crate) fn encode<T>(
    kind: ObjectKind,
    id: ObjectId,
    raw: &[u8],
    take: impl FnOnce(Shape, &[u8]) -> T,
) -> Result<T, StoreError> {
    let raw_len = match u32::try_from(raw.len()) {
        Ok(len) if raw.len() <= OBJECT_BYTES_MAX => len,
        _ => return Err(StoreError::TooLarge { bytes: raw.len() }),
    };
    TOOLS.with_borrow_mut(|tools| {
        compress(tools, kind, raw).map_err(StoreError::Compress)?;
        let shape = Shape { kind, codec: Codec::Raw, stored_len: raw_len, raw_len, id };
        let taken = match u32::try_from(tools.compressed.len()) {
            Ok(stored_len) if stored_len < raw_len => {
                let shape = Shape { codec: Codec::Zstd, stored_len, ..shape };
                let Tools { decompressor, compressed, proof, .. } = tools;
                prove(decompressor, &shape, compressed, raw, proof)
                    .map_err(io::Error::other)
                    .map_err(StoreError::Compress)?;
                take(shape, compressed)
            }
            _ => take(shape, raw),
        };
        for buffer in [&mut tools.compressed, &mut tools.proof] {
            if buffer.capacity() > SPARE_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        Ok(taken)
    })
}

/// Checks that a compressed frame decompresses to its input.
fn prove(
    decompressor: &mut Option<Decompressor<'static>>,
    shape: &Shape,
    frame: &[u8],
    raw: &[u8],
    proof: &mut Vec<u8>,
) -> Result<(), &'static str> {
    unpack(decompressor, shape, frame, proof)?;
    if proof == raw { Ok(()) } else { Err("it decompresses to other bytes") }
}

fn compress(tools: &mut Tools, kind: ObjectKind, raw: &[u8]) -> io::Result<()> {
    let (compressor, level) = match kind {
        ObjectKind::Tree => (&mut tools.tree_compressor, TREE_LEVEL),
        _ => (&mut tools.compressor, LEVEL),
    };
    let compressor = match compressor {
        Some(compressor) => compressor,
        empty => empty.insert(Compressor::new(level)?),
    };
    tools.compressed.clear();
    tools.compressed.reserve(zstd_safe::compress_bound(raw.len()));
    compressor.compress_to_buffer(raw, &mut tools.compressed)?;
    Ok(())
}

/// Returns the bytes of the object in this frame after checking them against the shape. Compressed frames are
/// decompressed into `scratch`.
pub(crate) fn decode<'a>(
    shape: &Shape,
    frame: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], &'static str> {
    if !shape.is_plausible() || frame.len() != shape.stored_len as usize {
        return Err("its lengths are impossible");
    }
    let raw = match shape.codec {
        Codec::Raw => frame,
        Codec::Zstd => {
            TOOLS.with_borrow_mut(|tools| unpack(&mut tools.decompressor, shape, frame, scratch))?;
            scratch.as_slice()
        }
    };
    if ObjectId::of(shape.kind, raw) != shape.id && !planted!("store-hash-not-checked") {
        return Err("its bytes do not have its hash");
    }
    Ok(raw)
}

fn unpack(
    decompressor: &mut Option<Decompressor<'static>>,
    shape: &Shape,
    frame: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<(), &'static str> {
    // The frame header must match before memory is allocated.
    if !matches!(zstd_safe::get_frame_content_size(frame), Ok(Some(size)) if size == u64::from(shape.raw_len))
    {
        return Err("its compressed length is wrong");
    }
    if shape.raw_len as usize > (frame.len() / BLOCK_BYTES_MIN + 1) * BLOCK_BYTES_MAX {
        return Err("it claims more than it can hold");
    }
    scratch.clear();
    scratch.reserve(shape.raw_len as usize);
    let decompressor = match decompressor {
        Some(decompressor) => decompressor,
        empty => empty.insert(Decompressor::new().map_err(|_| "out of memory for decompression")?),
    };
    decompressor.decompress_to_buffer(frame, scratch).map_err(|_| "it does not decompress")?;
    if scratch.len() == shape.raw_len as usize { Ok(()) } else { Err("it decompresses to another length") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(raw: &[u8]) -> (Shape, Vec<u8>) {
        let id = ObjectId::of(ObjectKind::Chunk, raw);
        encode(ObjectKind::Chunk, id, raw, |shape, frame| (shape, frame.to_vec())).unwrap()
    }

    #[test]
    fn what_shrinks_is_compressed_and_the_rest_is_kept_as_it_is() {
        let (shape, frame) = pack(&[7; 1000]);
        assert_eq!(shape.codec, Codec::Zstd);
        assert_eq!(decode(&shape, &frame, &mut Vec::new()).unwrap(), [7; 1000]);
        for raw in [&b""[..], b"x"] {
            let (shape, frame) = pack(raw);
            assert_eq!(shape.codec, Codec::Raw);
            assert_eq!(decode(&shape, &frame, &mut Vec::new()).unwrap(), raw);
        }
    }

    #[test]
    fn a_false_claim_is_refused_whatever_it_says() {
        let (shape, frame) = pack(&[7; 1000]);
        let mut scratch = Vec::new();
        for lie in [
            Shape { raw_len: 999, ..shape },
            Shape { raw_len: u32::MAX, ..shape },
            Shape { stored_len: shape.stored_len + 1, ..shape },
            Shape { stored_len: shape.stored_len - 1, ..shape },
            Shape { kind: ObjectKind::Tree, ..shape },
            Shape { codec: Codec::Raw, ..shape },
            Shape { codec: Codec::Raw, raw_len: shape.stored_len, ..shape },
            Shape { id: ObjectId::from_bytes([0; 32]), ..shape },
        ] {
            assert!(decode(&lie, &frame, &mut scratch).is_err(), "{lie:?}");
        }
        assert!(scratch.capacity() < 10_000);
        let mut cut = frame.clone();
        cut.pop();
        let lie = Shape { stored_len: shape.stored_len - 1, ..shape };
        assert_eq!(decode(&lie, &cut, &mut scratch), Err("it does not decompress"));
    }

    #[test]
    fn a_frame_that_would_not_give_its_bytes_back_is_not_handed_on() {
        let (raw, mut other) = ([7; 1000], [7; 1000]);
        let (shape, frame) = pack(&raw);
        let prove = |frame: &[u8], raw: &[u8]| prove(&mut None, &shape, frame, raw, &mut Vec::new());
        assert_eq!(prove(&frame, &raw), Ok(()));
        other[999] = 8;
        assert_eq!(prove(&frame, &other), Err("it decompresses to other bytes"));
        assert!(prove(&frame[1..], &raw).is_err());
    }

    #[test]
    fn a_frame_that_claims_more_than_it_can_hold_takes_no_memory() {
        // Magic, single segment with a four-byte length, the length, and an empty last block.
        let claimed: u32 = 200 << 20;
        let frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &claimed.to_le_bytes(), &[1, 0, 0]].concat();
        let (shape, _) = pack(&[7; 1000]);
        let lie = Shape { raw_len: claimed, stored_len: frame.len() as u32, ..shape };
        let mut scratch = Vec::new();
        assert!(decode(&lie, &frame, &mut scratch).is_err());
        assert!(scratch.capacity() < 1 << 20, "{}", scratch.capacity());
    }

    #[test]
    fn what_shrinks_most_is_still_unpacked() {
        let raw = vec![0; 64 << 20];
        let (shape, frame) = pack(&raw);
        assert_eq!(decode(&shape, &frame, &mut Vec::new()).unwrap(), raw);
    }

    #[test]
    fn an_object_over_the_limit_is_refused() {
        let raw = vec![0; OBJECT_BYTES_MAX + 1];
        let result = encode(ObjectKind::Tree, ObjectId::from_bytes([0; 32]), &raw, |_, _| ());
        assert!(matches!(result, Err(StoreError::TooLarge { .. })));
    }
}
