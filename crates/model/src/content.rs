//! The content of a file: one chunk, or a list of pieces.
//!
//! The list is an object of its own, so that an entry of a tree is the same size for every file.

use crate::varint::{self, Reader};
use crate::{ModelError, ObjectError, ObjectId, ObjectKind, ObjectSource};

/// Files up to this size are one chunk; larger ones are cut into pieces by their content.
pub const WHOLE_BYTES_MAX: u64 = 256 * 1024;
/// The shortest piece of a large file, except its last one.
pub const PIECE_BYTES_MIN: usize = 64 * 1024;
/// The piece length that cutting aims at.
pub const PIECE_BYTES_AVERAGE: usize = 256 * 1024;
/// The longest piece, and so the longest chunk.
pub const PIECE_BYTES_MAX: usize = 1024 * 1024;

const FORMAT: u8 = 1;

/// How the content of a file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// The id names one chunk that holds everything.
    Whole,
    /// The id names a list of pieces.
    Pieces,
}

/// What a file holds: its length and the object that gives its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// Length in bytes.
    pub size: u64,
    /// How `id` is to be read.
    pub form: Form,
    /// The chunk or the list of pieces.
    pub id: ObjectId,
}

impl Content {
    /// The content that is these bytes in one chunk.
    pub fn whole(bytes: &[u8]) -> Self {
        Self { size: bytes.len() as u64, form: Form::Whole, id: ObjectId::of(ObjectKind::Chunk, bytes) }
    }

    /// The pieces in order; a whole file is one piece.
    ///
    /// # Errors
    /// When the list cannot be had, is malformed, or does not add up to the size.
    pub fn pieces(&self, source: &dyn ObjectSource) -> Result<Vec<Piece>, ObjectError> {
        match self.form {
            Form::Whole => Ok(vec![Piece { size: self.size, id: self.id }]),
            Form::Pieces => {
                let pieces = decode_pieces(&source.get(ObjectKind::Pieces, self.id)?)
                    .map_err(|error| ObjectError::Damaged { id: self.id, what: error.to_string() })?;
                if pieces.iter().map(|piece| piece.size).sum::<u64>() != self.size {
                    let what = "the pieces do not add up to the file".to_owned();
                    return Err(ObjectError::Damaged { id: self.id, what });
                }
                Ok(pieces)
            }
        }
    }
}

/// One piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Length in bytes.
    pub size: u64,
    /// The chunk that holds it.
    pub id: ObjectId,
}

/// The bytes of a list of pieces.
pub fn encode_pieces(pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + pieces.len() * 36);
    out.push(FORMAT);
    for piece in pieces {
        varint::put(&mut out, piece.size);
        out.extend_from_slice(piece.id.as_bytes());
    }
    out
}

/// Reads a list of pieces.
///
/// # Errors
/// When the bytes do not follow the format.
pub fn decode_pieces(bytes: &[u8]) -> Result<Vec<Piece>, ModelError> {
    let mut reader = Reader::new(bytes, "list of pieces");
    if reader.byte()? != FORMAT {
        return Err(reader.malformed("its version is unknown"));
    }
    let mut pieces = Vec::new();
    while !reader.is_empty() {
        let size = reader.number()?;
        if size == 0 || size > PIECE_BYTES_MAX as u64 {
            return Err(reader.malformed("a piece has an impossible length"));
        }
        pieces.push(Piece { size, id: ObjectId::from_bytes(reader.hash()?) });
    }
    reader.finish()?;
    Ok(pieces)
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
        assert_eq!(content(9).pieces(&memory).unwrap().len(), 1);
        assert!(matches!(content(8).pieces(&memory), Err(ObjectError::Damaged { .. })));
        let junk = memory.put(ObjectKind::Pieces, b"junk").unwrap();
        let content = Content { size: 1, form: Form::Pieces, id: junk };
        assert!(matches!(content.pieces(&memory), Err(ObjectError::Damaged { .. })));
        assert_eq!(Content::whole(b"abc").pieces(&memory).unwrap()[0].size, 3);
    }
}
