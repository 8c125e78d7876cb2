//! Content of a disk as a value: cheap to copy, because copies share their blocks.

use super::{BLOCK_BYTES, Event};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

type Block = [u8; BLOCK_BYTES];
const ZEROS: Block = [0; BLOCK_BYTES];

/// Content of a disk. Zero blocks take no memory.
#[derive(Clone)]
pub struct Media(Vec<Option<Arc<Block>>>);

impl Media {
    /// Reads an image. Its size must be a multiple of [`BLOCK_BYTES`].
    pub fn load(image: &Path) -> io::Result<Media> {
        let file = File::open(image)?;
        let count = file.metadata()?.len() as usize / BLOCK_BYTES;
        let mut media = Media(vec![None; count]);
        let mut run = vec![0; 256 * BLOCK_BYTES];
        for first in (0..count).step_by(256) {
            let blocks = (count - first).min(256);
            let bytes = &mut run[..blocks * BLOCK_BYTES];
            file.read_exact_at(bytes, (first * BLOCK_BYTES) as u64)?;
            media.write((first * BLOCK_BYTES) as u64, bytes);
        }
        Ok(media)
    }

    /// Writes a sparse image, replacing the file.
    pub fn lay_out(&self, image: &Path) -> io::Result<()> {
        let file = File::create(image)?;
        file.set_len(self.len())?;
        for (number, block) in self.0.iter().enumerate() {
            if let Some(block) = block {
                file.write_all_at(block.as_slice(), (number * BLOCK_BYTES) as u64)?;
            }
        }
        Ok(())
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        (self.0.len() * BLOCK_BYTES) as u64
    }

    /// Returns true if the disk has size zero.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads bytes; a range beyond the end is cut off.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = len.min(self.len().saturating_sub(offset) as usize);
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset as usize + bytes.len();
            let (number, inside) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let part = (BLOCK_BYTES - inside).min(len - bytes.len());
            let block = self.0[number].as_deref().unwrap_or(&ZEROS);
            bytes.extend_from_slice(&block[inside..inside + part]);
        }
        bytes
    }

    /// Writes bytes; a range beyond the end is cut off.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, part) in blocks(offset, bytes.len() as u64) {
            let from = (at - offset) as usize;
            self.write_in_block(at, &bytes[from..from + part as usize]);
        }
    }

    /// Writes zeros.
    pub fn zero(&mut self, offset: u64, len: u64) {
        for (at, part) in blocks(offset, len) {
            self.write_in_block(at, &ZEROS[..part as usize]);
        }
    }

    fn write_in_block(&mut self, at: u64, bytes: &[u8]) {
        let inside = at as usize % BLOCK_BYTES;
        let Some(place) = self.0.get_mut(at as usize / BLOCK_BYTES) else { return };
        let mut block = place.as_deref().copied().unwrap_or(ZEROS);
        block[inside..inside + bytes.len()].copy_from_slice(bytes);
        *place = (block != ZEROS).then(|| Arc::new(block));
    }

    /// Applies the part of a request in one block, numbered within the request.
    pub(super) fn apply_block(&mut self, event: &Event, number: usize) {
        match event {
            Event::Write { offset, bytes, .. } => {
                if let Some((at, part)) = blocks(*offset, bytes.len() as u64).nth(number) {
                    let from = (at - offset) as usize;
                    self.write_in_block(at, &bytes[from..from + part as usize]);
                }
            }
            Event::Zero { offset, len, .. } => {
                if let Some((at, part)) = blocks(*offset, *len).nth(number) {
                    self.write_in_block(at, &ZEROS[..part as usize]);
                }
            }
            Event::Flush { .. } => {}
        }
    }

    /// Applies a whole request.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { offset, bytes, .. } => self.write(*offset, bytes),
            Event::Zero { offset, len, .. } => self.zero(*offset, *len),
            Event::Flush { .. } => {}
        }
    }
}

/// Splits a range at block boundaries: position and length of each part.
pub(super) fn blocks(offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let (size, end) = (BLOCK_BYTES as u64, offset + len);
    let mut at = offset;
    std::iter::from_fn(move || {
        let part = (size - at % size).min(end - at);
        at += part;
        (part > 0).then_some((at - part, part))
    })
}
