//! Laws of frames, segments and packs over arbitrary bytes, for `crates/fuzzing`; not part of the interface.
//!
//! A hash cannot be guessed, so each law is checked twice: on the raw bytes, and on a hostile encoding of
//! them with matching hashes.

use crate::frame::{self, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Codec, Shape};
use crate::pack::{self, Found, PACK_HEAD, Step};
use crate::segment::{Builder, ENTRY_BYTES, FOOT_MAGIC, HEAD_BYTES, HEAD_MAGIC, Head};
use safepoint_model::{ObjectId, ObjectKind};
use std::fs::File;
use std::io::{self, Write};

/// Checks that objects survive encoding and decoding, that hostile frames are refused, and that no claim
/// allocates more memory than its frame can expand to.
///
/// # Panics
/// When a law is broken.
pub fn frames(bytes: &[u8]) {
    let id = ObjectId::of(ObjectKind::Chunk, bytes);
    let packed = frame::encode(ObjectKind::Chunk, id, bytes, |shape, frame| (shape, frame.to_vec()));
    let mut scratch = Vec::new();
    if let Ok((shape, frame)) = packed {
        assert_eq!(frame::decode(&shape, &frame, &mut scratch), Ok(bytes));
    }
    let Some((claim, frame)) = bytes.split_at_checked(36) else { return };
    let (raw, id) = claim.split_at(4);
    let raw_len = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
    let id = ObjectId::from_bytes(std::array::from_fn(|at| id[at]));
    for codec in [Codec::Raw, Codec::Zstd] {
        let shape = Shape { kind: ObjectKind::Tree, codec, stored_len: frame.len() as u32, raw_len, id };
        let mut scratch = Vec::new();
        if let Ok(raw) = frame::decode(&shape, frame, &mut scratch) {
            assert_eq!(ObjectId::of(ObjectKind::Tree, raw), id);
        }
        let holds = (frame.len() / BLOCK_BYTES_MIN + 1) * BLOCK_BYTES_MAX;
        assert!(scratch.capacity() <= holds, "{} bytes for a frame of {}", scratch.capacity(), frame.len());
    }
}

/// Checks that walking a file of arbitrary bytes ends, stays within the file and returns only objects with
/// matching hashes. A segment without a fault is encoded to the same bytes.
///
/// # Panics
/// When a law is broken, or a temporary file cannot be used.
pub fn segments(bytes: &[u8]) {
    walk(bytes);
    if let Some(forged) = forged(bytes) {
        walk(&forged);
        let shifted = [b"SFPTSEGM", forged.as_slice(), bytes].concat();
        walk(&shifted);
    }
}

/// Returns a pack made of the bytes, either raw or as a segment with matching hashes.
pub fn pack_of(bytes: &[u8]) -> Vec<u8> {
    let (choice, rest) = bytes.split_first().unwrap_or((&0, &[]));
    match choice % 3 {
        0 => rest.to_vec(),
        1 => [PACK_HEAD.as_slice(), rest].concat(),
        _ => [PACK_HEAD.to_vec(), forged(rest).unwrap_or_default(), rest.to_vec()].concat(),
    }
}

fn walk(bytes: &[u8]) {
    let kept = (|| -> io::Result<()> {
        let mut file = temporary()?;
        file.write_all(bytes)?;
        let len = bytes.len() as u64;
        let mut at = 0;
        while let Some(step) = pack::next(&file, at, len)? {
            let end = match &step {
                Step::Segment(found) => found.end(),
                Step::Gap { to } => *to,
            };
            assert!(end > at && end <= len, "from {at} to {end} of {len}");
            if let Step::Segment(found) = &step {
                assert_eq!(found.start, at);
                check(&file, bytes, found)?;
            }
            at = end;
        }
        assert!(at == len);
        Ok(())
    })();
    assert!(kept.is_ok(), "walking an existing file failed: {kept:?}");
}

fn check(file: &File, bytes: &[u8], found: &Found) -> io::Result<()> {
    let mut scratch = Vec::new();
    let frame_of = |at: u64, len: u32| &bytes[at as usize..at as usize + len as usize];
    for entry in &found.intact_entries(file)? {
        let frame = frame_of(found.frame_at(entry), entry.shape.stored_len);
        // With matching hashes, entries are trusted until their objects are read.
        if !found.index_sound {
            assert!(frame::decode(&entry.shape, frame, &mut scratch).is_ok());
        }
    }
    if found.fault.is_none() && found.payload_is_sound(file)? {
        let mut builder = Builder::new(Vec::new());
        for entry in &found.entries {
            builder.push(entry.shape, frame_of(found.frame_at(entry), entry.shape.stored_len));
        }
        let mut sealed = builder.seal();
        sealed.close(found.head.closing);
        assert!(sealed.bytes() == &bytes[found.start as usize..found.end() as usize]);
    }
    Ok(())
}

/// Returns a segment with correct hashes and arbitrary entries; the first byte is the number of entries.
fn forged(bytes: &[u8]) -> Option<Vec<u8>> {
    let (count, rest) = bytes.split_first()?;
    let (index, payload) = rest.split_at_checked(usize::from(count % 8) * ENTRY_BYTES)?;
    let head = Head::forged(count & 8 != 0, u32::from(count % 8), payload, index);
    let (head, foot) = (head.encode(HEAD_MAGIC), head.encode(FOOT_MAGIC));
    debug_assert_eq!(head.len(), HEAD_BYTES);
    Some([&head, payload, index, &foot].concat())
}

fn temporary() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("pack", flags)?.into())
}
