//! Values of threads: short ones as they are, others as the difference to the channel's last value, or cut into pieces
//! that all values share.
//!
//! A conversation that grows by a message stores that message. Chains of differences are short, and begin with a value
//! that is whole or in pieces. Every byte that is read is checked against a hash.

use super::delta;
use super::recall::Recall;
use super::save::ROW_BYTES;
use crate::Error;
use fastcdc::v2020::FastCDC;
use safepoint_catalog::{CatalogError, ThreadEdit, ThreadRows, ValueRow};
use safepoint_model::content::{Content, Form, Piece, decode_pieces, encode_pieces};
use safepoint_model::thread::{KeptValue, THREAD_VALUE_BYTES_MAX, ThreadValue};
use safepoint_model::{ModelError, ObjectId, ObjectKind, ObjectSink};
use safepoint_store::{Store, Writer};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// Longest value that is kept in its row.
const INLINE_BYTES_MAX: usize = 2048;
const PIECE_BYTES_MIN: usize = 512;
const PIECE_BYTES_AVERAGE: usize = 2048;
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// Longer chains of values begin again.
const DEPTH_MAX: u64 = 64;
/// Most bytes that a reader of a chain of differences makes beside the value.
const CHAIN_BYTES_MAX: u64 = 16 << 20;
/// Longest difference that is kept in a row.
const DELTA_BYTES_MAX: usize = 32 * 1024;
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

/// Unpacks bytes of at most this length.
fn open(packed: &[u8], most: usize) -> Result<Vec<u8>, &'static str> {
    match packed.split_first() {
        Some((0, bytes)) => Ok(bytes.to_vec()),
        Some((1, frame)) => zstd::bulk::decompress(frame, most).map_err(|_| "it cannot be decompressed"),
        _ => Err("its codec is unknown"),
    }
}

/// Unpacks bytes of a known length, and checks them.
fn unpack(packed: &[u8], size: u64, hash: ObjectId) -> Result<Vec<u8>, &'static str> {
    let size = usize::try_from(size).ok().filter(|size| *size <= PIECE_BYTES_MAX).ok_or("it is too long")?;
    let bytes = open(packed, size)?;
    match bytes.len() == size && ObjectId::of(ObjectKind::Chunk, &bytes) == hash {
        true => Ok(bytes),
        false => Err("it differs from its hash"),
    }
}

/// Makes a value that is a difference of the value before it, and checks it.
fn made_after(base: &[u8], row: &ValueRow) -> Result<Vec<u8>, &'static str> {
    let size = usize::try_from(row.size).ok().filter(|size| *size <= THREAD_VALUE_BYTES_MAX);
    let (packed, size) = row.bytes.as_deref().zip(size).ok_or("it is too long")?;
    let program = open(packed, DELTA_BYTES_MAX)?;
    let bytes = delta::apply(base, &program, size).ok_or("its difference is malformed")?;
    match ObjectId::of(ObjectKind::Chunk, &bytes) == row.hash {
        true => Ok(bytes),
        false => Err("it differs from its hash"),
    }
}

fn damaged(seq: u64, why: impl Into<String>) -> Error {
    CatalogError::Damaged { table: "thread_value", id: seq.to_string(), why: why.into() }.into()
}

/// Value, hashed, before any transaction.
pub(crate) struct CutValue {
    encoding: String,
    bytes: Arc<Vec<u8>>,
    hash: ObjectId,
    /// Pieces, cut when they are needed.
    pieces: OnceLock<Vec<Piece>>,
    /// Difference to the value with this hash, if there is a short one.
    delta: OnceLock<(ObjectId, Option<Vec<u8>>)>,
}

fn cut(bytes: &[u8]) -> Vec<Piece> {
    if bytes.len() <= INLINE_BYTES_MAX {
        return Vec::new();
    }
    let cutter = FastCDC::new(bytes, PIECE_BYTES_MIN, PIECE_BYTES_AVERAGE, PIECE_BYTES_MAX);
    let piece = |part: &[u8]| Piece { size: part.len() as u64, id: ObjectId::of(ObjectKind::Chunk, part) };
    cutter.map(|cut| piece(&bytes[cut.offset..cut.offset + cut.length])).collect()
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
        let (pieces, delta) = (OnceLock::new(), OnceLock::new());
        Ok(Self { encoding, bytes: Arc::new(bytes), hash, pieces, delta })
    }

    fn pieces(&self) -> &[Piece] {
        self.pieces.get_or_init(|| cut(&self.bytes))
    }

    /// Bytes that do not fit into the row.
    pub(crate) fn long_bytes(&self) -> u64 {
        if self.bytes.len() > INLINE_BYTES_MAX { self.bytes.len() as u64 } else { 0 }
    }

    /// Puts the value into a sink, as the document of a part names it.
    pub(crate) fn keep(&self, sink: &dyn ObjectSink) -> Result<KeptValue, Error> {
        for (piece, part) in self.parts(0) {
            debug_assert_eq!(piece.size, part.len() as u64);
            sink.put(ObjectKind::Chunk, part)?;
        }
        let (form, id) = match self.pieces() {
            [] => (Form::Whole, sink.put(ObjectKind::Chunk, &self.bytes)?),
            [one] => (Form::Whole, one.id),
            many => (Form::Pieces, sink.put(ObjectKind::Pieces, &encode_pieces(many))?),
        };
        let content = Content { size: self.bytes.len() as u64, form, id };
        Ok(KeptValue { encoding: self.encoding.clone(), content: content.into() })
    }

    /// Visits the pieces with their bytes, from a position on.
    fn parts(&self, from: usize) -> impl Iterator<Item = (Piece, &[u8])> {
        let mut at = self.pieces()[..from].iter().map(|piece| piece.size as usize).sum();
        self.pieces()[from..].iter().map(move |piece| {
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
    /// Values in memory; `None` for a reader that checks the disk.
    pub(crate) recall: Option<&'v Recall>,
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
        let bytes = self.bytes_of(&value)?;
        Ok(ThreadValue { encoding: value.encoding, bytes: Arc::unwrap_or_clone(bytes) })
    }

    fn bytes_of(&self, value: &ValueRow) -> Result<Arc<Vec<u8>>, Error> {
        let (mut made_of, mut first) = (Vec::new(), value.clone());
        let mut bytes = loop {
            if let Some(known) = self.recall.and_then(|recall| recall.find(first.hash, first.size)) {
                break known;
            }
            match first.base.filter(|_| first.is_delta()) {
                Some((base, _)) => made_of.push(std::mem::replace(&mut first, self.rows.value(base)?)),
                None => break self.kept(&first, self.whole(&first)?),
            }
            if made_of.len() as u64 > DEPTH_MAX {
                return Err(damaged(value.seq, "its chain is too long"));
            }
        };
        for row in made_of.into_iter().rev() {
            let made = made_after(&bytes, &row).map_err(|why| damaged(row.seq, why))?;
            bytes = self.kept(&row, made);
        }
        Ok(bytes)
    }

    /// Keeps checked bytes in memory.
    fn kept(&self, value: &ValueRow, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let bytes = Arc::new(bytes);
        self.recall.iter().for_each(|recall| recall.keep(value.hash, &bytes));
        bytes
    }

    /// Loads a value that is no difference to another one.
    fn whole(&self, value: &ValueRow) -> Result<Vec<u8>, Error> {
        if let Some(packed) = &value.bytes {
            return unpack(packed, value.size, value.hash).map_err(|why| damaged(value.seq, why));
        }
        let mut bytes = Vec::new();
        for piece in self.checked_recipe(value)? {
            bytes.extend(self.piece(piece)?);
        }
        match ObjectId::of(ObjectKind::Chunk, &bytes) == value.hash {
            true => Ok(bytes),
            false => Err(damaged(value.seq, "it differs from its hash")),
        }
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
        if value.bytes.is_some() {
            return CutValue::new(self.load(seq)?)?.keep(writer);
        }
        let encoding = value.encoding.clone();
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

    /// Returns the last value of a channel.
    fn last_of(
        &self,
        thread_seq: u64,
        namespace: &str,
        channel: Option<(&str, &str)>,
    ) -> Result<Option<ValueRow>, Error> {
        match channel {
            Some((channel, _)) => Ok(self.rows.last_value(thread_seq, namespace, channel)?),
            None => Ok(None),
        }
    }

    /// Returns the pieces of the last value, if it has any.
    fn pieces_of(&self, last: Option<&ValueRow>) -> Result<Vec<Piece>, Error> {
        match last.filter(|last| last.pieces.is_some()) {
            Some(last) => self.recipe(last),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the difference of a value to the last one, if it is worth a row.
    fn delta_after<'c>(&self, last: &ValueRow, value: &'c CutValue) -> Result<Option<&'c [u8]>, Error> {
        let (size, depth) = (last.size.max(value.bytes.len() as u64), last.depth + 1);
        if value.long_bytes() == 0 || depth > DEPTH_MAX || depth.saturating_mul(size) > CHAIN_BYTES_MAX {
            return Ok(None);
        }
        if value.delta.get().is_none() {
            let base = self.bytes_of(last)?;
            let most = DELTA_BYTES_MAX.min(value.bytes.len() / 2);
            let _ = value.delta.set((last.hash, delta::program(&base, &value.bytes, most)));
        }
        // Another caller may have saved since it was made.
        let made = value.delta.get().filter(|(base, _)| *base == last.hash);
        Ok(made.and_then(|(_, program)| program.as_deref()))
    }

    fn has(&self, id: ObjectId) -> Result<bool, Error> {
        Ok(self.rows.chunk(id)?.is_some() || self.store.contains(id)?)
    }

    /// Puts the pieces of a value that are new into a writer. Returns the new bytes.
    pub(crate) fn new_bytes(
        &self,
        thread_seq: u64,
        namespace: &str,
        channel: Option<(&str, &str)>,
        value: &CutValue,
        writer: Option<&Writer<'_>>,
    ) -> Result<u64, Error> {
        let last = self.last_of(thread_seq, namespace, channel)?;
        if let Some(last) = &last
            && let Some(program) = self.delta_after(last, value)?
        {
            return Ok(program.len() as u64);
        }
        let known: HashSet<ObjectId> = self.pieces_of(last.as_ref())?.iter().map(|piece| piece.id).collect();
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
        let mut added = ROW_BYTES;
        if value.long_bytes() == 0 {
            row.bytes = Some(pack(&value.bytes));
        } else {
            let last = self.last_of(thread_seq, namespace, channel)?;
            let program = match &last {
                Some(last) => self.delta_after(last, value)?.map(|program| (last, program)),
                None => None,
            };
            match program {
                Some((last, program)) => {
                    (row.base, row.depth) = (Some((last.seq, 0)), last.depth + 1);
                    row.bytes = Some(pack(program));
                }
                None => added += self.insert_pieces(edit, last.as_ref(), value, &mut row)?,
            }
        }
        added += row.bytes.iter().chain(&row.pieces).map(|bytes| bytes.len() as u64).sum::<u64>();
        self.recall.iter().for_each(|recall| recall.keep(value.hash, &value.bytes));
        Ok((edit.insert_value(thread_seq, namespace, channel, &row)?, added))
    }

    /// Inserts the new pieces of a value, and sets its list. Returns the bytes of the pieces.
    fn insert_pieces(
        &self,
        edit: &ThreadEdit<'_>,
        last: Option<&ValueRow>,
        value: &CutValue,
        row: &mut ValueRow,
    ) -> Result<u64, Error> {
        let old = self.pieces_of(last)?;
        let same = old.iter().zip(value.pieces()).take_while(|(old, new)| old == new).count();
        let last = last.filter(|last| same >= SHARED_MIN && last.depth < DEPTH_MAX);
        if let Some(last) = last {
            (row.base, row.depth) = (Some((last.seq, same as u64)), last.depth + 1);
        }
        let shared = last.map_or(0, |_| same);
        let mut known: HashSet<ObjectId> = old.iter().map(|piece| piece.id).collect();
        let mut added = 0;
        for (piece, part) in value.parts(shared) {
            if known.insert(piece.id) && !self.has(piece.id)? {
                let packed = pack(part);
                added += packed.len() as u64;
                edit.insert_chunk(piece.id, &packed)?;
            }
        }
        row.pieces = Some(encode_pieces(&value.pieces()[shared..]));
        Ok(added)
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
        let cut = |len: usize| cut(&bytes[..len]);
        let (short, long) = (cut(299_000), cut(300_000));
        let same = short.iter().zip(&long).take_while(|(one, other)| one == other).count();
        assert!(same + 2 >= short.len() && short.len() > 60, "{same} of {}", short.len());
    }
}
