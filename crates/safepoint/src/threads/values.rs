//! Values of threads: short ones as they are, others cut into pieces that all values share.
//!
//! A list of pieces names an earlier value of the channel and continues it, so that a conversation that grows by a
//! message stores that message. Every byte that is read is checked against a hash.

use super::save::ROW_BYTES;
use crate::Error;
use fastcdc::v2020::FastCDC;
use safepoint_catalog::{CatalogError, ThreadEdit, ThreadRows, ValueRow};
use safepoint_model::content::{Content, Form, Piece, decode_pieces, encode_pieces};
use safepoint_model::thread::{KeptValue, THREAD_VALUE_BYTES_MAX, ThreadValue};
use safepoint_model::{ModelError, ObjectId, ObjectKind, ObjectSink};
use safepoint_store::{Store, Writer};
use std::collections::HashSet;

/// Longest value that is kept in its row.
const INLINE_BYTES_MAX: usize = 2048;
const PIECE_BYTES_MIN: usize = 512;
const PIECE_BYTES_AVERAGE: usize = 2048;
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// Longer chains of values begin again.
const DEPTH_MAX: u64 = 64;
/// Fewer shared pieces are not worth a visit of the other value.
const SHARED_MIN: usize = 4;
/// Shorter bytes are not compressed.
const PACKED_BYTES_MIN: usize = 128;
const ZSTD_LEVEL: i32 = 3;

/// Packs bytes: a codec, then the bytes or one zstd frame.
fn pack(bytes: &[u8]) -> Vec<u8> {
    if bytes.len() >= PACKED_BYTES_MIN
        && let Ok(frame) = zstd::bulk::compress(bytes, ZSTD_LEVEL)
        && frame.len() < bytes.len()
    {
        return [&[1], frame.as_slice()].concat();
    }
    [&[0], bytes].concat()
}

/// Unpacks bytes of a known length, and checks them.
fn unpack(packed: &[u8], size: u64, hash: ObjectId) -> Result<Vec<u8>, &'static str> {
    let size = usize::try_from(size).ok().filter(|size| *size <= PIECE_BYTES_MAX).ok_or("it is too long")?;
    let bytes = match packed.split_first() {
        Some((0, bytes)) => bytes.to_vec(),
        Some((1, frame)) => zstd::bulk::decompress(frame, size).map_err(|_| "it cannot be decompressed")?,
        _ => return Err("its codec is unknown"),
    };
    match bytes.len() == size && ObjectId::of(ObjectKind::Chunk, &bytes) == hash {
        true => Ok(bytes),
        false => Err("it differs from its hash"),
    }
}

fn damaged(seq: u64, why: impl Into<String>) -> Error {
    CatalogError::Damaged { table: "thread_value", id: seq.to_string(), why: why.into() }.into()
}

/// Value, cut and hashed, before any transaction.
pub(crate) struct CutValue {
    encoding: String,
    bytes: Vec<u8>,
    hash: ObjectId,
    pieces: Vec<Piece>,
}

impl CutValue {
    pub(crate) fn new(value: ThreadValue) -> Result<Self, Error> {
        let ThreadValue { encoding, bytes } = value;
        safepoint_model::thread::check_name("encoding", &encoding)?;
        if bytes.len() > THREAD_VALUE_BYTES_MAX {
            let why =
                format!("it has {} bytes, and at most {THREAD_VALUE_BYTES_MAX} are allowed", bytes.len());
            return Err(ModelError::Value { what: "thread value", why }.into());
        }
        let hash = ObjectId::of(ObjectKind::Chunk, &bytes);
        let mut pieces = Vec::new();
        if bytes.len() > INLINE_BYTES_MAX {
            let cutter = FastCDC::new(&bytes, PIECE_BYTES_MIN, PIECE_BYTES_AVERAGE, PIECE_BYTES_MAX);
            for cut in cutter {
                let part = &bytes[cut.offset..cut.offset + cut.length];
                pieces.push(Piece { size: part.len() as u64, id: ObjectId::of(ObjectKind::Chunk, part) });
            }
        }
        Ok(Self { encoding, bytes, hash, pieces })
    }

    /// Bytes that are cut into pieces.
    pub(crate) fn bytes_to_cut(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.size).sum()
    }

    /// Puts the value into a sink, as the document of a part names it.
    pub(crate) fn keep(&self, sink: &dyn ObjectSink) -> Result<KeptValue, Error> {
        for (piece, part) in self.parts(0) {
            debug_assert_eq!(piece.size, part.len() as u64);
            sink.put(ObjectKind::Chunk, part)?;
        }
        let (form, id) = match self.pieces.as_slice() {
            [] => (Form::Whole, sink.put(ObjectKind::Chunk, &self.bytes)?),
            [one] => (Form::Whole, one.id),
            many => (Form::Pieces, sink.put(ObjectKind::Pieces, &encode_pieces(many))?),
        };
        let content = Content { size: self.bytes.len() as u64, form, id };
        Ok(KeptValue { encoding: self.encoding.clone(), content: content.into() })
    }

    /// Visits the pieces with their bytes, from a position on.
    fn parts(&self, from: usize) -> impl Iterator<Item = (Piece, &[u8])> {
        let mut at = self.pieces[..from].iter().map(|piece| piece.size as usize).sum();
        self.pieces[from..].iter().map(move |piece| {
            let part = &self.bytes[at..at + piece.size as usize];
            at += part.len();
            (*piece, part)
        })
    }
}

/// Reader of values in one snapshot of the catalog.
#[derive(Clone, Copy)]
pub(crate) struct Values<'v> {
    pub(crate) rows: ThreadRows<'v>,
    pub(crate) store: &'v Store,
}

impl Values<'_> {
    /// Returns the pieces of a value in order.
    pub(crate) fn recipe(&self, value: &ValueRow) -> Result<Vec<Piece>, Error> {
        let (mut stretches, mut wanted) = (Vec::new(), usize::MAX);
        let mut value = value.clone();
        loop {
            let own =
                value.pieces.as_deref().ok_or_else(|| damaged(value.seq, "it is not cut into pieces"))?;
            let mut own = decode_pieces(own).map_err(|error| damaged(value.seq, error.to_string()))?;
            let shared = value.base.map_or(0, |(_, shared)| shared as usize);
            own.truncate(wanted.saturating_sub(shared));
            if own.iter().any(|piece| piece.size == 0 || piece.size > PIECE_BYTES_MAX as u64) {
                return Err(damaged(value.seq, "a piece has an invalid length"));
            }
            stretches.push(own);
            wanted = wanted.min(shared);
            match value.base {
                Some((base, _)) if wanted > 0 => value = self.rows.value(base)?,
                _ => break,
            }
        }
        let pieces: Vec<Piece> = stretches.into_iter().rev().flatten().collect();
        Ok(pieces)
    }

    fn checked_recipe(&self, value: &ValueRow) -> Result<Vec<Piece>, Error> {
        let pieces = self.recipe(value)?;
        let size: u64 = pieces.iter().map(|piece| piece.size).sum();
        match size == value.size && size <= THREAD_VALUE_BYTES_MAX as u64 {
            true => Ok(pieces),
            false => Err(damaged(value.seq, "its pieces do not add up to its length")),
        }
    }

    fn piece(&self, piece: Piece) -> Result<Vec<u8>, Error> {
        match self.rows.chunk(piece.id)? {
            Some(packed) => unpack(&packed, piece.size, piece.id).map_err(|why| {
                let id = piece.id.to_string();
                CatalogError::Damaged { table: "thread_chunk", id, why: why.to_owned() }.into()
            }),
            None => Ok(piece.load(self.store)?),
        }
    }

    /// Loads a value, checked.
    pub(crate) fn load(&self, seq: u64) -> Result<ThreadValue, Error> {
        let value = self.rows.value(seq)?;
        let bytes = match &value.bytes {
            Some(packed) => unpack(packed, value.size, value.hash).map_err(|why| damaged(seq, why))?,
            None => {
                let mut bytes = Vec::new();
                for piece in self.checked_recipe(&value)? {
                    bytes.extend(self.piece(piece)?);
                }
                bytes
            }
        };
        Ok(ThreadValue { encoding: value.encoding, bytes })
    }

    /// Checks that a value can be read, without its bytes where a pack has them.
    pub(crate) fn check(&self, seq: u64) -> Result<Vec<ObjectId>, Error> {
        let value = self.rows.value(seq)?;
        let mut packed = Vec::new();
        if value.bytes.is_some() {
            self.load(seq)?;
            return Ok(packed);
        }
        for piece in self.checked_recipe(&value)? {
            match self.rows.chunk(piece.id)? {
                Some(_) => drop(self.piece(piece)?),
                None => packed.push(piece.id),
            }
        }
        Ok(packed)
    }

    /// Puts a value into a writer, as the document of a part names it.
    pub(crate) fn keep(&self, seq: u64, writer: &Writer<'_>) -> Result<KeptValue, Error> {
        let value = self.rows.value(seq)?;
        let encoding = value.encoding.clone();
        if value.bytes.is_some() {
            let bytes = self.load(seq)?.bytes;
            writer.put(ObjectKind::Chunk, &bytes)?;
            return Ok(KeptValue { encoding, content: Content::whole(&bytes).into() });
        }
        let pieces = self.checked_recipe(&value)?;
        for piece in &pieces {
            if !self.store.contains(piece.id)? {
                writer.put(ObjectKind::Chunk, &self.piece(*piece)?)?;
            }
        }
        let (form, id) = match pieces.as_slice() {
            [one] => (Form::Whole, one.id),
            many => (Form::Pieces, writer.put(ObjectKind::Pieces, &encode_pieces(many))?),
        };
        Ok(KeptValue { encoding, content: Content { size: value.size, form, id }.into() })
    }

    fn base_of(
        &self,
        thread_seq: u64,
        namespace: &str,
        channel: Option<(&str, &str)>,
    ) -> Result<Option<(ValueRow, Vec<Piece>)>, Error> {
        let Some((channel, _)) = channel else { return Ok(None) };
        let last = self.rows.last_value(thread_seq, namespace, channel)?;
        let Some(last) = last.filter(|last| last.pieces.is_some()) else { return Ok(None) };
        let pieces = self.recipe(&last)?;
        Ok(Some((last, pieces)))
    }

    fn has(&self, id: ObjectId) -> Result<bool, Error> {
        Ok(self.rows.chunk(id)?.is_some() || self.store.contains(id)?)
    }

    /// Puts the pieces of a value that are new into a writer. Returns their bytes.
    pub(crate) fn new_bytes(
        &self,
        thread_seq: u64,
        namespace: &str,
        channel: Option<(&str, &str)>,
        value: &CutValue,
        writer: Option<&Writer<'_>>,
    ) -> Result<u64, Error> {
        let base = self.base_of(thread_seq, namespace, channel)?;
        let known: HashSet<ObjectId> =
            base.iter().flat_map(|(_, pieces)| pieces).map(|piece| piece.id).collect();
        let mut bytes = 0;
        for (piece, part) in value.parts(0) {
            if !known.contains(&piece.id) && !self.has(piece.id)? {
                bytes += piece.size;
                if let Some(writer) = writer {
                    writer.put(ObjectKind::Chunk, part)?;
                }
            }
        }
        Ok(bytes)
    }

    /// Inserts a value and its new pieces. Returns its number and the bytes that this adds to the catalog.
    pub(crate) fn insert(
        &self,
        edit: &ThreadEdit<'_>,
        thread_seq: u64,
        namespace: &str,
        channel: Option<(&str, &str)>,
        value: &CutValue,
    ) -> Result<(u64, u64), Error> {
        let mut row = ValueRow {
            seq: 0,
            encoding: value.encoding.clone(),
            size: value.bytes.len() as u64,
            hash: value.hash,
            bytes: None,
            base: None,
            depth: 0,
            pieces: None,
        };
        if value.pieces.is_empty() {
            let packed = pack(&value.bytes);
            let added = ROW_BYTES + packed.len() as u64;
            row.bytes = Some(packed);
            return Ok((edit.insert_value(thread_seq, namespace, channel, &row)?, added));
        }
        let base = self.base_of(thread_seq, namespace, channel)?;
        let mut shared = 0;
        let mut known = HashSet::new();
        if let Some((last, pieces)) = &base {
            let same = pieces.iter().zip(&value.pieces).take_while(|(old, new)| old == new).count();
            if same >= SHARED_MIN && last.depth < DEPTH_MAX {
                (row.base, row.depth, shared) = (Some((last.seq, same as u64)), last.depth + 1, same);
            }
            known.extend(pieces.iter().map(|piece| piece.id));
        }
        let pieces = encode_pieces(&value.pieces[shared..]);
        let mut added = ROW_BYTES + pieces.len() as u64;
        for (piece, part) in value.parts(shared) {
            if known.insert(piece.id) && !self.has(piece.id)? {
                let packed = pack(part);
                added += packed.len() as u64;
                edit.insert_chunk(piece.id, &packed)?;
            }
        }
        row.pieces = Some(pieces);
        Ok((edit.insert_value(thread_seq, namespace, channel, &row)?, added))
    }

    /// Returns the bytes of a piece for a pack.
    pub(crate) fn chunk_bytes(&self, id: ObjectId) -> Result<Option<Vec<u8>>, Error> {
        let Some(packed) = self.rows.chunk(id)? else { return Ok(None) };
        let bytes = match packed.split_first() {
            Some((0, bytes)) => bytes.to_vec(),
            Some((1, frame)) => zstd::bulk::decompress(frame, PIECE_BYTES_MAX).unwrap_or_default(),
            _ => Vec::new(),
        };
        match ObjectId::of(ObjectKind::Chunk, &bytes) == id {
            true => Ok(Some(bytes)),
            false => {
                let why = "it differs from its hash".to_owned();
                Err(CatalogError::Damaged { table: "thread_chunk", id: id.to_string(), why }.into())
            }
        }
    }
}

/// Puts bytes into a sink as the document of a part names them.
pub(crate) fn put_bytes(sink: &dyn ObjectSink, bytes: &[u8]) -> Result<Content, Error> {
    Ok(CutValue::new(ThreadValue::new("", bytes))?.keep(sink)?.content.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytes_read_back_and_every_flipped_bit_is_noticed() {
        for bytes in [Vec::new(), b"short".to_vec(), vec![7; 5000], (0..200).collect()] {
            let (hash, size) = (ObjectId::of(ObjectKind::Chunk, &bytes), bytes.len() as u64);
            let packed = pack(&bytes);
            assert_eq!(unpack(&packed, size, hash).unwrap(), bytes);
            for at in 0..packed.len() {
                let mut bad = packed.clone();
                bad[at] ^= 1;
                assert!(
                    unpack(&bad, size, hash).is_ok_and(|read| read == bytes)
                        || unpack(&bad, size, hash).is_err()
                );
            }
            assert!(unpack(&packed, size + 1, hash).is_err());
            assert!(unpack(&packed, u64::MAX, hash).is_err());
        }
        assert!(unpack(&[], 0, ObjectId::of(ObjectKind::Chunk, b"")).is_err());
    }

    #[test]
    fn a_longer_value_shares_its_first_pieces() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        let bytes: Vec<u8> = (0..300_000).map(|_| next()).collect();
        let cut = |len: usize| CutValue::new(ThreadValue::new("x", &bytes[..len])).unwrap().pieces;
        let (short, long) = (cut(299_000), cut(300_000));
        let same = short.iter().zip(&long).take_while(|(one, other)| one == other).count();
        assert!(same + 2 >= short.len() && short.len() > 60, "{same} of {}", short.len());
    }
}
