//! Content: stores the bytes of a file as one chunk or as content-defined pieces.
//!
//! In: a reader. Out: the number of bytes read and the root object of the content. Equal bytes give equal
//! content, independent of read sizes and of the expected length. Memory use does not grow with the file,
//! except for the list of pieces.

use fastcdc::v2020::FastCDC;
use safepoint_model::content::{
    Content, Form, HOLE_BYTES, PIECE_BYTES_AVERAGE, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Piece, Stretch,
    WHOLE_BYTES_MAX, encode_pieces, encode_sparse, with_holes,
};
use safepoint_model::{ObjectError, ObjectKind, ObjectSink, SparseRead};
use std::cell::Cell;
use std::io::{self, Read};
use std::sync::mpsc::{self, TrySendError};

/// Length of the largest small file plus one byte that shows the file is larger.
const SMALL_BYTES: usize = WHOLE_BYTES_MAX as usize + 1;
/// Space for several pieces, so that the remainder is rarely moved to the front.
const LARGE_BYTES: usize = 4 * PIECE_BYTES_MAX;
/// Minimum expected length for which a second thread is used.
const HUGE_BYTES: u64 = 16 * LARGE_BYTES as u64;

thread_local! {
    // Taken out during use: the reader itself may put content.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Stores all bytes of the reader.
pub(crate) fn put(
    sink: &dyn ObjectSink,
    size_hint: u64,
    reader: &mut dyn Read,
) -> Result<Content, ObjectError> {
    let mut buffer = BUFFER.take();
    let result = put_with(sink, size_hint, reader, &mut buffer);
    BUFFER.set(buffer);
    result
}

fn put_with(
    sink: &dyn ObjectSink,
    size_hint: u64,
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
    let pieces = match size_hint {
        HUGE_BYTES.. => put_huge(sink, reader, &buffer[..filled])?,
        _ => put_pieces(sink, reader, buffer, filled)?,
    };
    let id = sink.put(ObjectKind::Pieces, &encode_pieces(&pieces))?;
    Ok(Content { size: pieces.iter().map(|piece| piece.size).sum(), form: Form::Pieces, id })
}

/// Stores a file of the given size without reading its holes. A piece that begins in a hole of at least
/// [`HOLE_BYTES`] is all zeros and is only counted. All other bytes are read and cut, with zeros at hole
/// edges, and give the same pieces as [`put`].
pub(crate) fn put_sparse(
    sink: &dyn ObjectSink,
    size: u64,
    reader: &mut dyn SparseRead,
) -> Result<Content, ObjectError> {
    let mut buffer = BUFFER.take();
    let result = sparse_with(sink, size, reader, &mut buffer);
    BUFFER.set(buffer);
    result
}

fn sparse_with(
    sink: &dyn ObjectSink,
    size: u64,
    reader: &mut dyn SparseRead,
    buffer: &mut Vec<u8>,
) -> Result<Content, ObjectError> {
    if buffer.len() < LARGE_BYTES {
        buffer.resize(LARGE_BYTES, 0);
    }
    let mut stretches = Vec::new();
    // Offset of the buffer in the file, and its fill level.
    let (mut at, mut filled) = (0u64, 0usize);
    reader.go_to(0);
    loop {
        let data = reader.data_from(at).map_err(ObjectError::Input)?;
        let (start, end) = data.map_or((size, size), |data| (data.start.min(size), data.end));
        let zeros = start.saturating_sub(at) / HOLE_BYTES * HOLE_BYTES;
        if zeros > 0 {
            stretches.push(Stretch::Hole(zeros));
            at += zeros;
            filled = 0;
            reader.go_to(at);
            continue;
        }
        // A cut depends on the following bytes, so one piece beyond the data is read as well.
        let wanted = end.saturating_add(HOLE_BYTES).saturating_sub(at);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(PIECE_BYTES_MAX, buffer.len());
        let came = fill(reader, &mut buffer[filled..wanted])?;
        let ended = filled + came < wanted;
        filled += came;
        let lengths = cut(&buffer[..filled], ended);
        let mut pieces = Vec::with_capacity(lengths.len());
        keep(sink, buffer, &lengths, &mut pieces)?;
        stretches.extend(pieces.into_iter().map(Stretch::Data));
        let kept: usize = lengths.iter().sum();
        buffer.copy_within(kept..filled, 0);
        filled -= kept;
        at += kept as u64;
        if ended {
            break;
        }
    }
    let size = stretches.iter().map(Stretch::size).sum();
    if reader.keeps_holes() {
        stretches = with_holes(stretches);
    }
    let pieces: Option<Vec<Piece>> = stretches
        .iter()
        .map(|stretch| if let Stretch::Data(piece) = stretch { Some(*piece) } else { None })
        .collect();
    // A file without a large enough hole keeps the dense form.
    let (form, list) = match pieces {
        Some(pieces) => (Form::Pieces, encode_pieces(&pieces)),
        None => (Form::Sparse, encode_sparse(&with_holes(stretches))),
    };
    Ok(Content { size, form, id: sink.put(ObjectKind::Pieces, &list)? })
}

/// Cuts and stores the buffered bytes and the rest of the reader.
fn put_pieces(
    sink: &dyn ObjectSink,
    reader: &mut dyn Read,
    buffer: &mut Vec<u8>,
    mut filled: usize,
) -> Result<Vec<Piece>, ObjectError> {
    if buffer.len() < LARGE_BYTES {
        buffer.resize(LARGE_BYTES, 0);
    }
    let mut pieces = Vec::new();
    let mut ended = false;
    while !ended {
        let came = fill(reader, &mut buffer[filled..])?;
        ended = came < buffer.len() - filled;
        filled += came;
        let lengths = cut(&buffer[..filled], ended);
        keep(sink, buffer, &lengths, &mut pieces)?;
        let kept = lengths.iter().sum();
        buffer.copy_within(kept..filled, 0);
        filled -= kept;
    }
    Ok(pieces)
}

/// Cut part of a huge file.
struct Part {
    number: usize,
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Part {
    /// Returns the part's number, its stored pieces, and its buffer for reuse.
    fn keep(self, sink: &dyn ObjectSink) -> Result<(usize, Vec<Piece>, Vec<u8>), ObjectError> {
        let mut pieces = Vec::with_capacity(self.lengths.len());
        keep(sink, &self.bytes, &self.lengths, &mut pieces)?;
        Ok((self.number, pieces, self.bytes))
    }
}

/// Does the same with a second thread: this thread reads and cuts, and both store the parts.
fn put_huge(sink: &dyn ObjectSink, reader: &mut dyn Read, begun: &[u8]) -> Result<Vec<Piece>, ObjectError> {
    std::thread::scope(|scope| {
        let (hand_over, parts) = mpsc::sync_channel::<Part>(1);
        let (hand_back, done) = mpsc::channel();
        let helper = hand_back.clone();
        // If no thread can be started, this thread stores all parts.
        let _ = std::thread::Builder::new()
            .spawn_scoped(scope, move || parts.into_iter().all(|part| helper.send(part.keep(sink)).is_ok()));
        let mut kept: Vec<(usize, Vec<Piece>)> = Vec::new();
        let mut spare = Vec::new();
        let mut rest = begun.to_vec();
        for number in 0.. {
            let mut bytes = spare.pop().unwrap_or_else(|| vec![0; LARGE_BYTES]);
            bytes[..rest.len()].copy_from_slice(&rest);
            let filled = rest.len() + fill(reader, &mut bytes[rest.len()..])?;
            let ended = filled < bytes.len();
            let lengths = cut(&bytes[..filled], ended);
            rest.clear();
            rest.extend_from_slice(&bytes[lengths.iter().sum()..filled]);
            let part = Part { number, bytes, lengths };
            if let Err(TrySendError::Full(part) | TrySendError::Disconnected(part)) = hand_over.try_send(part)
            {
                let _ = hand_back.send(part.keep(sink));
            }
            for part in done.try_iter() {
                let (number, pieces, bytes) = part?;
                kept.push((number, pieces));
                spare.push(bytes);
            }
            if ended {
                break;
            }
        }
        drop((hand_over, hand_back));
        for part in done {
            let (number, pieces, _) = part?;
            kept.push((number, pieces));
        }
        kept.sort_unstable_by_key(|(number, _)| *number);
        Ok(kept.into_iter().flat_map(|(_, pieces)| pieces).collect())
    })
}

/// Stores pieces of the given lengths.
fn keep(
    sink: &dyn ObjectSink,
    mut bytes: &[u8],
    lengths: &[usize],
    pieces: &mut Vec<Piece>,
) -> Result<(), ObjectError> {
    for len in lengths {
        let (piece, rest) = bytes.split_at(*len);
        pieces.push(Piece { size: *len as u64, id: sink.put(ObjectKind::Chunk, piece)? });
        bytes = rest;
    }
    Ok(())
}

/// Returns the lengths of the pieces that begin with these bytes. A cut depends on the next `PIECE_BYTES_MAX`
/// bytes, so the buffer must contain that many or the end of the file.
fn cut(bytes: &[u8], ended: bool) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() && (ended || rest.len() >= PIECE_BYTES_MAX) {
        let mut cutter = FastCDC::new(rest, PIECE_BYTES_MIN, PIECE_BYTES_AVERAGE, PIECE_BYTES_MAX);
        let len = cutter.next().map_or(rest.len(), |chunk| chunk.length);
        lengths.push(len);
        rest = &rest[len..];
    }
    lengths
}

/// Fills the buffer, or reads to the end.
fn fill(reader: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> Result<usize, ObjectError> {
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
