//! Sparse files in a layout, hashed, written and read by their data.
//!
//! The hash covers each block of 1 MiB, counted from the start of the file, that is not all zeros: its number
//! as 8 bytes, little endian, and its bytes (the last block may be shorter). So it does not depend on the
//! holes on disk.

use super::LayoutError;
use super::reading::not_as_promised;
use super::rows::HashRow;
use crate::Error;
use safepoint_model::content::{Content, HOLE_BYTES, Stretch};
use safepoint_model::{ObjectError, ObjectSource, Progress, RelPath, SparseRead};
use safepoint_workspace::{ForeignFile, WorkspaceError};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

const BLOCK_BYTES: usize = HOLE_BYTES as usize;

/// Hash of a sparse file.
#[derive(Default)]
struct BlockHash {
    hash: blake3::Hasher,
    number: u64,
    block: Vec<u8>,
}

impl BlockHash {
    fn data(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(now);
            self.end_if(BLOCK_BYTES);
            bytes = rest;
        }
    }

    fn hole(&mut self, size: u64) {
        let room = if self.block.is_empty() { 0 } else { BLOCK_BYTES - self.block.len() };
        let here = size.min(room as u64);
        self.block.resize(self.block.len() + here as usize, 0);
        self.end_if(BLOCK_BYTES);
        let rest = size - here;
        if rest > 0 {
            self.number += rest / HOLE_BYTES;
            self.block.resize((rest % HOLE_BYTES) as usize, 0);
        }
    }

    /// Ends the block if it has at least this length.
    fn end_if(&mut self, len: usize) {
        if self.block.len() >= len {
            if self.block.iter().any(|byte| *byte != 0) {
                self.hash.update(&self.number.to_le_bytes());
                self.hash.update(&self.block);
            }
            self.number += 1;
            self.block.clear();
        }
    }

    fn finish(mut self) -> blake3::Hash {
        self.end_if(1);
        self.hash.finalize()
    }
}

/// Returns the row of a sparse file, and writes its content if a file is given.
pub(super) fn row_of(
    source: &dyn ObjectSource,
    path: RelPath,
    content: &Content,
    mut out: Option<&mut File>,
) -> Result<HashRow, Error> {
    let mut hash = BlockHash::default();
    for stretch in content.stretches(source)? {
        match stretch {
            Stretch::Data(piece) => {
                let bytes = piece.load(source)?;
                out.as_mut().map_or(Ok(()), |out| out.write_all(&bytes)).map_err(ObjectError::Input)?;
                hash.data(&bytes);
            }
            Stretch::Hole(size) => {
                let by = i64::try_from(size).map_err(|error| ObjectError::Input(io::Error::other(error)))?;
                let moved = out.as_mut().map_or(Ok(0), |out| out.seek(SeekFrom::Current(by)));
                moved.map_err(ObjectError::Input)?;
                hash.hole(size);
            }
        }
    }
    out.map_or(Ok(()), |out| out.set_len(content.size)).map_err(ObjectError::Input)?;
    Ok(HashRow { sparse: true, ..HashRow::of(path, content.size, &hash.finish()) })
}

/// Sparse file that is hashed during the read.
pub(super) struct HashedHoles<'a> {
    file: ForeignFile,
    row: &'a HashRow,
    hash: BlockHash,
    at: u64,
    progress: &'a dyn Progress,
    interrupted: bool,
    /// True if it was not read front to back.
    broken: bool,
}

impl<'a> HashedHoles<'a> {
    pub(super) fn new(file: ForeignFile, row: &'a HashRow, progress: &'a dyn Progress) -> Self {
        Self { file, row, hash: BlockHash::default(), at: 0, progress, interrupted: false, broken: false }
    }

    /// Reads and compares the whole file.
    pub(super) fn check(mut self, at: &RelPath) -> Result<(), Error> {
        let mut buffer = vec![0; BLOCK_BYTES];
        loop {
            let next = self.data_from(self.at).map_err(|source| self.explain(at, source))?;
            self.go_to(next.map_or(self.file.size(), |data| data.start));
            match self.read(&mut buffer) {
                Ok(0) => return Ok(self.finish(at)?),
                Ok(_) => {}
                Err(source) => return Err(self.explain(at, source)),
            }
        }
    }

    /// Reason of a failed read.
    pub(super) fn explain(&self, at: &RelPath, source: io::Error) -> Error {
        match self.interrupted {
            true => WorkspaceError::Interrupted.into(),
            false => LayoutError::Read { file: at.clone(), source }.into(),
        }
    }

    /// Checks that the bytes read match the promise.
    pub(super) fn finish(self, at: &RelPath) -> Result<(), LayoutError> {
        let whole = !self.broken && self.at == self.row.size && self.file.size() == self.row.size;
        if whole && self.row.is(&self.hash.finish()) { Ok(()) } else { Err(not_as_promised(at)) }
    }
}

impl Read for HashedHoles<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.interrupted() {
            self.interrupted = true;
            return Err(io::Error::other("interrupted"));
        }
        // One extra byte detects a longer file.
        let left = self.row.size.saturating_add(1).saturating_sub(self.at);
        let len = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let came = self.file.read(&mut buffer[..len])?;
        self.hash.data(&buffer[..came]);
        self.at += came as u64;
        self.progress.advance(0, came as u64);
        Ok(came)
    }
}

impl SparseRead for HashedHoles<'_> {
    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        self.file.data_from(at)
    }

    fn go_to(&mut self, at: u64) {
        self.broken |= at < self.at;
        let skipped = at.saturating_sub(self.at);
        self.hash.hole(skipped);
        self.progress.advance(0, skipped);
        self.at = at;
        self.file.go_to(at);
    }

    fn keeps_holes(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_bytes_whichever_of_them_are_holes() {
        let mut bytes = vec![0; 5 * BLOCK_BYTES + 77];
        for at in [5, 3 * BLOCK_BYTES - 1, 3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 76] {
            bytes[at] = 7;
        }
        let dense = |bytes: &[u8], portion: usize| {
            let mut hash = BlockHash::default();
            bytes.chunks(portion).for_each(|portion| hash.data(portion));
            hash.finish()
        };
        let mut sparse = BlockHash::default();
        sparse.data(&bytes[..6]);
        sparse.hole(3 * HOLE_BYTES - 7);
        sparse.data(&[7, 7]);
        sparse.hole(2 * HOLE_BYTES + 75);
        sparse.data(&[7]);
        assert_eq!(sparse.finish(), dense(&bytes, 1000));
        assert_eq!(dense(&bytes, BLOCK_BYTES), dense(&bytes, 999_999));
        let expected = dense(&bytes, BLOCK_BYTES);
        for at in [0, 4, 2 * BLOCK_BYTES, 5 * BLOCK_BYTES + 76] {
            bytes[at] ^= 1;
            assert_ne!(dense(&bytes, BLOCK_BYTES), expected);
            bytes[at] ^= 1;
        }
    }
}
