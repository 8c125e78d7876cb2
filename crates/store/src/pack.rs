//! Pack reader: a short header, then contiguous segments; tolerates any damage.
//!
//! In: an open file. Out: its segments, their faults, and the gaps between them. A segment is accepted if its
//! header or its footer matches its index. If neither does, the search continues for the next one: destroyed
//! bytes never hide later segments.

use crate::frame;
use crate::segment::{self, Entry, FOOT_MAGIC, HEAD_BYTES, HEAD_MAGIC, Head};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Length of the pack header.
pub(crate) const PACK_HEAD_BYTES: u64 = 16;
/// Pack header: magic, version 1, four reserved bytes.
pub(crate) const PACK_HEAD: [u8; 16] = *b"SFPTPACK\x01\0\0\0\0\0\0\0";

const BLOCK_BYTES: usize = 1024 * 1024;

/// Returns true if the file begins with a pack header.
pub(crate) fn has_head(file: &File) -> io::Result<bool> {
    let mut head = [0; PACK_HEAD.len()];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => Ok(head == PACK_HEAD),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Next item in a pack.
#[derive(Debug)]
pub(crate) enum Step {
    Segment(Found),
    /// Bytes up to this offset that belong to no segment.
    Gap {
        to: u64,
    },
}

/// Segment in a pack.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) start: u64,
    pub(crate) head: Head,
    pub(crate) entries: Vec<Entry>,
    /// Fault found in the header, index or footer.
    pub(crate) fault: Option<&'static str>,
    /// True if the entries are trusted before their objects are read.
    pub(crate) index_sound: bool,
}

impl Found {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.head.segment_len()
    }

    /// Returns the offset of an entry's frame in the pack.
    pub(crate) fn frame_at(&self, entry: &Entry) -> u64 {
        self.payload_at() + u64::from(entry.offset)
    }

    fn payload_at(&self) -> u64 {
        self.start + HEAD_BYTES as u64
    }

    fn new(start: u64, head: Head, index: &[u8], fault: Option<&'static str>) -> Self {
        let (entries, whole) = segment::decode_index(&head, index);
        let fault = fault.or((!whole).then_some("the index of a segment has impossible numbers"));
        Self { start, head, entries, fault, index_sound: whole }
    }

    /// Returns true if the payload matches its hash.
    pub(crate) fn payload_is_sound(&self, file: &File) -> io::Result<bool> {
        let mut hasher = blake3::Hasher::new();
        let mut block = vec![0; BLOCK_BYTES.min(self.head.payload_len as usize)];
        let (mut at, end) = (self.payload_at(), self.payload_at() + self.head.payload_len);
        while at < end {
            let len = block.len().min((end - at) as usize);
            file.read_exact_at(&mut block[..len], at)?;
            hasher.update(&block[..len]);
            at += len as u64;
        }
        Ok(hasher.finalize() == self.head.payload_hash)
    }

    /// Returns the readable objects: all if the hashes match, otherwise each one that decodes.
    pub(crate) fn intact_entries(&self, file: &File) -> io::Result<Vec<Entry>> {
        if self.index_sound && self.payload_is_sound(file)? {
            return Ok(self.entries.clone());
        }
        let (mut frame, mut scratch) = (Vec::new(), Vec::new());
        let mut intact = Vec::new();
        for entry in &self.entries {
            read_frame(file, self.frame_at(entry), entry.shape.stored_len, &mut frame)?;
            if frame::decode(&entry.shape, &frame, &mut scratch).is_ok() {
                intact.push(*entry);
            }
        }
        Ok(intact)
    }
}

/// Reads a frame into a reused buffer.
pub(crate) fn read_frame(file: &File, at: u64, len: u32, frame: &mut Vec<u8>) -> io::Result<()> {
    frame.resize(len as usize, 0);
    file.read_exact_at(frame, at)
}

/// Returns the item at `at` in the first `len` bytes of a pack, or `None` at the end.
pub(crate) fn next(file: &File, at: u64, len: u64) -> io::Result<Option<Step>> {
    if at >= len {
        return Ok(None);
    }
    if let Some(found) = segment_at(file, at, len)? {
        return Ok(Some(Step::Segment(found)));
    }
    Ok(Some(match search(file, at, len)? {
        Some(found) if found.start == at => Step::Segment(found),
        Some(found) => Step::Gap { to: found.start },
        None => Step::Gap { to: len },
    }))
}

/// Returns the segment whose header is at this offset.
fn segment_at(file: &File, at: u64, len: u64) -> io::Result<Option<Found>> {
    let Some(head) = read_head(file, at, len, HEAD_MAGIC)? else { return Ok(None) };
    let end = at + head.segment_len();
    if end > len {
        return Ok(None);
    }
    let foot_at = end - HEAD_BYTES as u64;
    let index = read_index(file, foot_at, &head)?;
    let foot = read_head(file, foot_at, len, FOOT_MAGIC)?;
    let agree = foot.as_ref() == Some(&head);
    if head.covers(&index) {
        let fault = (!agree).then_some("the footer of a segment is damaged");
        return Ok(Some(Found::new(at, head, &index, fault)));
    }
    match foot {
        Some(foot) if foot.segment_len() == head.segment_len() && foot.covers(&index) => {
            Ok(Some(Found::new(at, foot, &index, Some("the header of a segment is damaged"))))
        }
        // Header and footer are equal, so the index is damaged: each entry must be verified.
        Some(_) if agree => {
            let mut found = Found::new(at, head, &index, Some("the index of a segment is damaged"));
            found.index_sound = false;
            Ok(Some(found))
        }
        _ => Ok(None),
    }
}

/// Returns the segment whose footer is at this offset if it begins at or after `from`.
fn segment_before(file: &File, foot_at: u64, from: u64, len: u64) -> io::Result<Option<Found>> {
    let Some(foot) = read_head(file, foot_at, len, FOOT_MAGIC)? else { return Ok(None) };
    let start = (foot_at + HEAD_BYTES as u64).checked_sub(foot.segment_len());
    let Some(start) = start.filter(|start| *start >= from) else { return Ok(None) };
    let index = read_index(file, foot_at, &foot)?;
    let covered = foot.covers(&index);
    Ok(covered.then(|| Found::new(start, foot, &index, Some("the header of a segment is damaged"))))
}

fn read_head(file: &File, at: u64, len: u64, magic: [u8; 8]) -> io::Result<Option<Head>> {
    if at + HEAD_BYTES as u64 > len {
        return Ok(None);
    }
    let mut bytes = [0; HEAD_BYTES];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Head::decode(&bytes, magic))
}

fn read_index(file: &File, foot_at: u64, head: &Head) -> io::Result<Vec<u8>> {
    let mut index = vec![0; head.index_len() as usize];
    file.read_exact_at(&mut index, foot_at - head.index_len())?;
    Ok(index)
}

/// Returns the first segment behind `from` that a header or a footer identifies.
fn search(file: &File, from: u64, len: u64) -> io::Result<Option<Found>> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = from;
    while at < len {
        let filled = block.len().min((len - at) as usize);
        file.read_exact_at(&mut block[..filled], at)?;
        for inside in magics(&block[..filled]) {
            let here = at + inside as u64;
            let found = match segment_at(file, here, len)? {
                Some(found) => Some(found),
                None => segment_before(file, here, from, len)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        // The blocks overlap so that a magic across two of them is found.
        at += if filled < block.len() { filled } else { filled - (HEAD_MAGIC.len() - 1) } as u64;
    }
    Ok(None)
}

fn magics(block: &[u8]) -> impl Iterator<Item = usize> {
    block.windows(HEAD_MAGIC.len()).enumerate().filter_map(|(at, window)| {
        (window[0] == HEAD_MAGIC[0] && (window == HEAD_MAGIC || window == FOOT_MAGIC)).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::tests::segment;

    fn file_with(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    fn steps(bytes: &[u8]) -> Vec<(u64, u64, bool)> {
        let file = file_with(bytes);
        let (mut at, mut out) = (0, Vec::new());
        while let Some(step) = next(&file, at, bytes.len() as u64).unwrap() {
            let (end, is_segment) = match step {
                Step::Segment(found) => (found.end(), true),
                Step::Gap { to } => (to, false),
            };
            out.push((at, end, is_segment));
            at = end;
        }
        out
    }

    #[test]
    fn destroyed_bytes_do_not_hide_what_comes_after_them() {
        let (one, two) = (segment(&[b"one"], false), segment(&[b"two", b"three"], true));
        let junk = vec![b'S'; BLOCK_BYTES + 5];
        let bytes = [&one[..], &junk, &two, &junk[..50]].concat();
        let (a, b) = (one.len() as u64, (one.len() + junk.len()) as u64);
        let c = b + two.len() as u64;
        assert_eq!(steps(&bytes), [(0, a, true), (a, b, false), (b, c, true), (c, c + 50, false)]);
        assert_eq!(steps(&[]), []);
    }

    #[test]
    fn a_magic_across_two_blocks_of_the_search_is_found() {
        let one = segment(&[b"one"], false);
        for shift in 0..12 {
            let junk = vec![0; BLOCK_BYTES - shift];
            let bytes = [&junk[..], &one].concat();
            let middle = junk.len() as u64;
            assert_eq!(steps(&bytes), [(0, middle, false), (middle, bytes.len() as u64, true)]);
        }
    }

    #[test]
    fn a_segment_is_found_whichever_of_its_bytes_is_damaged() {
        let good = [segment(&[b"one", b"two"], false), segment(&[b"three"], true)].concat();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            assert!(steps(&bad).iter().all(|(_, _, is_segment)| *is_segment), "byte {at}");
        }
    }

    #[test]
    fn only_the_object_in_the_damaged_frame_is_given_up() {
        let mut bytes = segment(&[b"one", b"two", b"six"], false);
        bytes[HEAD_BYTES + 3] ^= 1;
        let file = file_with(&bytes);
        let Some(Step::Segment(found)) = next(&file, 0, bytes.len() as u64).unwrap() else {
            panic!("no segment")
        };
        assert!(!found.payload_is_sound(&file).unwrap());
        let intact: Vec<_> = found.intact_entries(&file).unwrap().iter().map(|entry| entry.offset).collect();
        assert_eq!(intact, [0, 6]);
    }

    #[test]
    fn only_a_pack_has_the_head_of_a_pack() {
        assert!(has_head(&file_with(&PACK_HEAD)).unwrap());
        assert!(!has_head(&file_with(&PACK_HEAD[..15])).unwrap());
        assert!(!has_head(&file_with(b"SFPTPACK\x02\0\0\0\0\0\0\0")).unwrap());
    }
}
