//! Content of a file: one chunk, a list of pieces, or a list of pieces and holes.
//!
//! A list with holes is cut as if the zeros had been read. A piece of [`HOLE_BYTES`] zeros, the length at
//! which zeros are cut, is recorded as a hole and not stored. Files of equal bytes therefore have equal
//! pieces, with and without holes.
//!
//! The list is a separate object, so that all tree entries of files have the same size.

use crate::varint::{self, Reader};
use crate::{ModelError, ObjectError, ObjectId, ObjectKind, ObjectSource};
use std::sync::LazyLock;

/// Maximum size of a file that is stored as one chunk; larger files are cut by content.
pub const WHOLE_BYTES_MAX: u64 = 256 * 1024;
/// Minimum length of a piece, except the last one.
pub const PIECE_BYTES_MIN: usize = 64 * 1024;
/// Target length of a piece.
pub const PIECE_BYTES_AVERAGE: usize = 256 * 1024;
/// Maximum length of a piece or chunk.
pub const PIECE_BYTES_MAX: usize = 1024 * 1024;

const FORMAT: u8 = 1;
/// Version of a list with holes.
const FORMAT_SPARSE: u8 = 2;

/// Unit of hole lengths: the length of the pieces that zeros are cut into.
pub const HOLE_BYTES: u64 = PIECE_BYTES_MAX as u64;
/// Id of a chunk of [`HOLE_BYTES`] zeros.
static ZEROS: LazyLock<ObjectId> =
    LazyLock::new(|| ObjectId::of(ObjectKind::Chunk, &vec![0; PIECE_BYTES_MAX]));

/// Storage form of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// The id names one chunk with all bytes.
    Whole,
    /// The id names a list of pieces.
    Pieces,
    /// The id names a list of pieces and holes.
    Sparse,
}

/// Content of a file: its length and its root object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// Length in bytes.
    pub size: u64,
    /// Interpretation of `id`.
    pub form: Form,
    /// Chunk or list of pieces.
    pub id: ObjectId,
}

impl Content {
    /// Returns the content of these bytes as one chunk.
    pub fn whole(bytes: &[u8]) -> Self {
        Self { size: bytes.len() as u64, form: Form::Whole, id: ObjectId::of(ObjectKind::Chunk, bytes) }
    }

    /// Returns the content of a file with unknown bytes. None of it is stored.
    pub fn unread(size: u64) -> Self {
        Self { size, form: Form::Whole, id: ObjectId::from_bytes([0; 32]) }
    }

    /// Returns true if only the size is known.
    pub fn is_unread(&self) -> bool {
        *self == Self::unread(self.size)
    }

    /// Returns the required chunks in order; holes need none.
    ///
    /// # Errors
    /// As for [`Content::stretches`].
    pub fn chunks(&self, source: &dyn ObjectSource) -> Result<Vec<Piece>, ObjectError> {
        let data = |stretch| if let Stretch::Data(piece) = stretch { Some(piece) } else { None };
        Ok(self.stretches(source)?.into_iter().filter_map(data).collect())
    }

    /// Returns the pieces and holes in order. A whole file is one piece.
    ///
    /// # Errors
    /// When the list is missing, damaged or malformed, or does not add up to the size.
    pub fn stretches(&self, source: &dyn ObjectSource) -> Result<Vec<Stretch>, ObjectError> {
        if self.form == Form::Whole {
            return Ok(vec![Stretch::Data(Piece { size: self.size, id: self.id })]);
        }
        let damaged = |what: String| ObjectError::Damaged { id: self.id, what };
        let bytes = source.get(ObjectKind::Pieces, self.id)?;
        let stretches = match self.form {
            Form::Sparse => decode_sparse(&bytes),
            _ => decode_pieces(&bytes).map(|pieces| pieces.into_iter().map(Stretch::Data).collect()),
        };
        let stretches: Vec<Stretch> = stretches.map_err(|error| damaged(error.to_string()))?;
        let size = stretches.iter().try_fold(0u64, |sum, stretch| sum.checked_add(stretch.size()));
        if size != Some(self.size) {
            return Err(damaged("the pieces do not add up to the file".to_owned()));
        }
        Ok(stretches)
    }

    /// Passes all bytes in order to the callback, each piece verified; holes as zeros.
    ///
    /// # Errors
    /// When a list or a chunk is missing or damaged, or the callback fails.
    pub fn read<E: From<ObjectError>>(
        &self,
        source: &dyn ObjectSource,
        each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut zeros = Vec::new();
        for stretch in self.stretches(source)? {
            match stretch {
                Stretch::Data(piece) => each(&piece.load(source)?)?,
                Stretch::Hole(size) => {
                    zeros.resize(PIECE_BYTES_MAX, 0);
                    for _ in 0..size / HOLE_BYTES {
                        each(&zeros)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if both have the same bytes. With and without holes they have different ids but equal
    /// pieces.
    ///
    /// # Errors
    /// When a required list cannot be read.
    pub fn same_bytes(&self, other: &Content, source: &dyn ObjectSource) -> Result<bool, ObjectError> {
        match (self.form, other.form) {
            (Form::Sparse, Form::Pieces) | (Form::Pieces, Form::Sparse) if self.size == other.size => {
                Ok(with_holes(self.stretches(source)?) == with_holes(other.stretches(source)?))
            }
            _ => Ok(self == other),
        }
    }
}

/// Piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Length in bytes.
    pub size: u64,
    /// Chunk with its bytes.
    pub id: ObjectId,
}

impl Piece {
    /// Loads its bytes.
    ///
    /// # Errors
    /// When its chunk is missing or damaged, or has another length.
    pub fn load(&self, source: &dyn ObjectSource) -> Result<Vec<u8>, ObjectError> {
        let bytes = source.get(ObjectKind::Chunk, self.id)?;
        if bytes.len() as u64 != self.size {
            let what = "a piece differs in length from its list".to_owned();
            return Err(ObjectError::Damaged { id: self.id, what });
        }
        Ok(bytes)
    }
}

/// Range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// Bytes of a piece.
    Data(Piece),
    /// Number of zeros without a chunk; a multiple of [`HOLE_BYTES`].
    Hole(u64),
}

impl Stretch {
    /// Length in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Stretch::Data(piece) => piece.size,
            Stretch::Hole(size) => *size,
        }
    }
}

/// Returns the same bytes with every piece of [`HOLE_BYTES`] zeros as a hole, and adjacent holes merged.
pub fn with_holes(stretches: impl IntoIterator<Item = Stretch>) -> Vec<Stretch> {
    let mut out: Vec<Stretch> = Vec::new();
    for stretch in stretches {
        match (stretch, out.last_mut()) {
            (Stretch::Data(piece), _) if piece.id != *ZEROS => out.push(stretch),
            (_, Some(Stretch::Hole(size))) => *size = size.saturating_add(stretch.size()),
            _ => out.push(Stretch::Hole(stretch.size())),
        }
    }
    out
}

/// Encodes a list of pieces.
pub fn encode_pieces(pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + pieces.len() * 36);
    out.push(FORMAT);
    for piece in pieces {
        put_piece(&mut out, piece);
    }
    out
}

/// Encodes a list of pieces and holes in the form of [`with_holes`].
pub fn encode_sparse(stretches: &[Stretch]) -> Vec<u8> {
    let mut out = vec![FORMAT_SPARSE];
    for stretch in stretches {
        match stretch {
            Stretch::Data(piece) => put_piece(&mut out, piece),
            Stretch::Hole(size) => {
                varint::put(&mut out, 0);
                varint::put(&mut out, size / HOLE_BYTES);
            }
        }
    }
    out
}

fn put_piece(out: &mut Vec<u8>, piece: &Piece) {
    varint::put(out, piece.size);
    out.extend_from_slice(piece.id.as_bytes());
}

/// Decodes a list of pieces.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_pieces(bytes: &[u8]) -> Result<Vec<Piece>, ModelError> {
    let mut reader = Reader::new(bytes, "list of pieces");
    if reader.byte()? != FORMAT {
        return Err(reader.malformed("its version is unknown"));
    }
    let mut pieces = Vec::new();
    while !reader.is_empty() {
        let size = reader.number()?;
        pieces.push(take_piece(&mut reader, size)?);
    }
    reader.finish()?;
    Ok(pieces)
}

/// Decodes a list of pieces and holes; refuses bytes that are not canonical.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_sparse(bytes: &[u8]) -> Result<Vec<Stretch>, ModelError> {
    let mut reader = Reader::new(bytes, "list of pieces and holes");
    if reader.byte()? != FORMAT_SPARSE {
        return Err(reader.malformed("its version is unknown"));
    }
    let mut stretches = Vec::new();
    while !reader.is_empty() {
        stretches.push(match reader.number()? {
            0 => {
                let size = reader.number()?.checked_mul(HOLE_BYTES).filter(|size| *size > 0);
                Stretch::Hole(size.ok_or_else(|| reader.malformed("a hole has an invalid length"))?)
            }
            size => Stretch::Data(take_piece(&mut reader, size)?),
        });
    }
    let is_hole = |stretch: &Stretch| matches!(stretch, Stretch::Hole(_));
    if !stretches.iter().any(is_hole) || with_holes(stretches.iter().copied()) != stretches {
        return Err(reader.malformed("its holes are not canonical"));
    }
    reader.finish()?;
    Ok(stretches)
}

fn take_piece(reader: &mut Reader<'_>, size: u64) -> Result<Piece, ModelError> {
    if size == 0 || size > PIECE_BYTES_MAX as u64 {
        return Err(reader.malformed("a piece has an invalid length"));
    }
    Ok(Piece { size, id: ObjectId::from_bytes(reader.hash()?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectSink;
    use crate::object::tests::Memory;

    fn piece(size: u64) -> Piece {
        Piece { size, id: ObjectId::of(ObjectKind::Chunk, &size.to_le_bytes()) }
    }

    #[test]
    fn pieces_read_back() {
        let pieces = vec![piece(1), piece(1_048_576), piece(70_000)];
        assert_eq!(decode_pieces(&encode_pieces(&pieces)).unwrap(), pieces);
        assert_eq!(decode_pieces(&encode_pieces(&[])).unwrap(), vec![]);
    }

    #[test]
    fn hostile_pieces_are_refused() {
        let good = encode_pieces(&[piece(9)]);
        assert!(decode_pieces(&[]).is_err());
        assert!(decode_pieces(&good[..good.len() - 1]).is_err());
        assert!(decode_pieces(&[&[2], &good[1..]].concat()).is_err());
        assert!(decode_pieces(&encode_pieces(&[piece(0)])).is_err());
        assert!(decode_pieces(&encode_pieces(&[piece(PIECE_BYTES_MAX as u64 + 1)])).is_err());
    }

    #[test]
    fn pieces_must_add_up() {
        let memory = Memory::default();
        let id = memory.put(ObjectKind::Pieces, &encode_pieces(&[piece(9)])).unwrap();
        let content = |size| Content { size, form: Form::Pieces, id };
        assert_eq!(content(9).stretches(&memory).unwrap().len(), 1);
        assert!(matches!(content(8).stretches(&memory), Err(ObjectError::Damaged { .. })));
        let junk = memory.put(ObjectKind::Pieces, b"junk").unwrap();
        let content = Content { size: 1, form: Form::Pieces, id: junk };
        assert!(matches!(content.stretches(&memory), Err(ObjectError::Damaged { .. })));
        assert_eq!(Content::whole(b"abc").chunks(&memory).unwrap()[0].size, 3);
    }

    fn sparse(memory: &Memory, size: u64, stretches: &[Stretch]) -> Content {
        let id = memory.put(ObjectKind::Pieces, &encode_sparse(stretches)).unwrap();
        Content { size, form: Form::Sparse, id }
    }

    fn zeros() -> Piece {
        Piece { size: HOLE_BYTES, id: *ZEROS }
    }

    #[test]
    fn holes_read_back_and_compare_equal_to_zeros() {
        let memory = Memory::default();
        let list = [Stretch::Data(piece(9)), Stretch::Hole(3 * HOLE_BYTES), Stretch::Data(piece(7))];
        let content = sparse(&memory, 16 + 3 * HOLE_BYTES, &list);
        assert_eq!(content.stretches(&memory).unwrap(), list);
        assert_eq!(content.chunks(&memory).unwrap(), [piece(9), piece(7)]);
        let dense = |pieces: &[Piece]| Content {
            size: pieces.iter().map(|piece| piece.size).sum(),
            form: Form::Pieces,
            id: memory.put(ObjectKind::Pieces, &encode_pieces(pieces)).unwrap(),
        };
        let same = dense(&[piece(9), zeros(), zeros(), zeros(), piece(7)]);
        assert!(content.same_bytes(&same, &memory).unwrap() && same.same_bytes(&content, &memory).unwrap());
        for other in [
            dense(&[piece(9), zeros(), zeros(), piece(7)]),
            dense(&[piece(9), zeros(), zeros(), piece(7), zeros()]),
            dense(&[piece(7), zeros(), zeros(), zeros(), piece(9)]),
            dense(&[piece(9), zeros(), zeros(), piece(HOLE_BYTES), piece(7)]),
            Content { form: Form::Pieces, ..content },
        ] {
            assert!(!content.same_bytes(&other, &memory).is_ok_and(|same| same), "{other:?}");
        }
        // Fifteen terabytes of zeros take a few bytes.
        let huge = [Stretch::Hole(15 << 40)];
        assert!(encode_sparse(&huge).len() < 8);
        assert_eq!(sparse(&memory, 15 << 40, &huge).stretches(&memory).unwrap(), huge);
    }

    #[test]
    fn hostile_holes_are_refused() {
        let memory = Memory::default();
        let refused = |size: u64, bytes: &[u8]| {
            let id = memory.put(ObjectKind::Pieces, bytes).unwrap();
            let content = Content { size, form: Form::Sparse, id };
            let result = content.stretches(&memory);
            assert!(matches!(result, Err(ObjectError::Damaged { .. })), "{bytes:?}: {result:?}");
        };
        let hole = |count: u64| Stretch::Hole(count * HOLE_BYTES);
        let size = HOLE_BYTES;
        refused(size, &[]);
        refused(size, &encode_pieces(&[zeros()]));
        refused(9, &encode_sparse(&[Stretch::Data(piece(9))]));
        refused(2 * size, &encode_sparse(&[hole(1), hole(1)]));
        refused(2 * size, &encode_sparse(&[hole(1), Stretch::Data(zeros())]));
        refused(0, &encode_sparse(&[hole(0)]));
        refused(size + 1, &encode_sparse(&[hole(1)]));
        // Above the maximum, singly and in sum.
        refused(0, &[FORMAT_SPARSE, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        let most = Stretch::Hole(u64::MAX / HOLE_BYTES * HOLE_BYTES);
        refused(size - 1, &encode_sparse(&[most, Stretch::Data(piece(9)), most]));
        let good = encode_sparse(&[hole(2), Stretch::Data(piece(9))]);
        for end in 0..good.len() {
            refused(2 * size + 9, &good[..end]);
        }
    }
}
