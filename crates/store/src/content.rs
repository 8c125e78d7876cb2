//! Content: the bytes of a file become one chunk, or pieces cut where the content says.
//!
//! In: a reader. Out: the length that really came and the object that leads to the bytes.
//! The same bytes give the same content, whatever the reader's portions and whatever was expected. Memory does
//! not grow with the file, but for the list of its pieces.

use fastcdc::v2020::FastCDC;
use safepoint_model::content::{
    Content, Form, PIECE_BYTES_AVERAGE, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Piece, WHOLE_BYTES_MAX,
    encode_pieces,
};
use safepoint_model::{ObjectError, ObjectKind, ObjectSink};
use std::cell::Cell;
use std::io::{self, Read};

/// A whole small file and the byte that would make it a large one.
const SMALL_BYTES: usize = WHOLE_BYTES_MAX as usize + 1;
/// Several pieces, so that the rest is seldom moved to the front.
const LARGE_BYTES: usize = 4 * PIECE_BYTES_MAX;

thread_local! {
    // Taken out while it is used: the reader may itself put content.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Keeps everything that the reader gives.
pub(crate) fn put(sink: &dyn ObjectSink, _: u64, reader: &mut dyn Read) -> Result<Content, ObjectError> {
    let mut buffer = BUFFER.take();
    let result = put_with(sink, reader, &mut buffer);
    BUFFER.set(buffer);
    result
}

fn put_with(
    sink: &dyn ObjectSink,
    reader: &mut dyn Read,
    buffer: &mut Vec<u8>,
) -> Result<Content, ObjectError> {
    if buffer.len() < SMALL_BYTES {
        buffer.resize(SMALL_BYTES, 0);
    }
    let filled = fill(reader, &mut buffer[..SMALL_BYTES])?;
    if filled < SMALL_BYTES {
        let id = sink.put(ObjectKind::Chunk, &buffer[..filled])?;
        return Ok(Content { size: filled as u64, form: Form::Whole, id });
    }
    if buffer.len() < LARGE_BYTES {
        buffer.resize(LARGE_BYTES, 0);
    }
    let pieces = put_pieces(sink, reader, buffer, filled)?;
    let id = sink.put(ObjectKind::Pieces, &encode_pieces(&pieces))?;
    Ok(Content { size: pieces.iter().map(|piece| piece.size).sum(), form: Form::Pieces, id })
}

/// Cuts what is in the buffer and what still comes. A cut depends on the next `PIECE_BYTES_MAX` bytes alone, so
/// that many must be there, or the end.
fn put_pieces(
    sink: &dyn ObjectSink,
    reader: &mut dyn Read,
    buffer: &mut [u8],
    mut filled: usize,
) -> Result<Vec<Piece>, ObjectError> {
    let mut pieces = Vec::new();
    let mut ended = false;
    while !ended {
        let came = fill(reader, &mut buffer[filled..])?;
        ended = came < buffer.len() - filled;
        filled += came;
        let mut start = 0;
        while start < filled && (ended || filled - start >= PIECE_BYTES_MAX) {
            let rest = &buffer[start..filled];
            let len = cut(rest);
            let id = sink.put(ObjectKind::Chunk, &rest[..len])?;
            pieces.push(Piece { size: len as u64, id });
            start += len;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
    }
    Ok(pieces)
}

/// The length of the first piece.
fn cut(bytes: &[u8]) -> usize {
    let mut cutter = FastCDC::new(bytes, PIECE_BYTES_MIN, PIECE_BYTES_AVERAGE, PIECE_BYTES_MAX);
    cutter.next().map_or(bytes.len(), |chunk| chunk.length)
}

/// Fills the buffer, or as much of it as there is to come.
fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, ObjectError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(came) => filled += came,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ObjectError::Input(error)),
        }
    }
    Ok(filled)
}
