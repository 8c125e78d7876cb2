//! DELTA: a value as the difference to an earlier one: bytes that are new, and ranges that are copied.
//!
//! A program is a list of steps: the length of the new bytes, these bytes, the start of a range of the earlier value,
//! its length. Numbers are LEB128. The caller checks the result against a hash.

use std::ops::Range;

/// Shortest range that is copied.
const COPY_BYTES_MIN: usize = 16;
/// Distance in which a change of equal length is searched, such as a counter.
const NEAR_BYTES: usize = 64;
/// Length of the blocks by which moved ranges are found.
const BLOCK_BYTES: usize = 32;
/// Shorter rests are not worth the search for moved ranges.
const REST_BYTES_MIN: usize = 4096;
/// Multiplier of the rolling hash.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the number of equal bytes at the front.
fn common(one: &[u8], other: &[u8]) -> usize {
    const STEP: usize = 64;
    let len = one.len().min(other.len());
    let steps = one[..len].chunks_exact(STEP).zip(other[..len].chunks_exact(STEP));
    let whole = steps.take_while(|(one, other)| one == other).count() * STEP;
    whole + one[whole..len].iter().zip(&other[whole..len]).take_while(|(one, other)| one == other).count()
}

/// Returns the number of equal bytes at the end.
fn common_end(one: &[u8], other: &[u8]) -> usize {
    one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(program: &mut &[u8]) -> Option<usize> {
    let mut number = 0u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = program.split_first()?;
        *program = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return usize::try_from(number).ok();
        }
    }
    None
}

/// Blocks of the earlier value, by their hash.
struct Blocks<'b> {
    base: &'b [u8],
    /// Numbers of blocks plus one, by the high bits of the hash.
    slots: Vec<u32>,
    bits: u32,
}

impl<'b> Blocks<'b> {
    fn new(base: &'b [u8]) -> Self {
        let count = base.len() / BLOCK_BYTES;
        let bits = (count * 2).next_power_of_two().trailing_zeros().max(1);
        let mut blocks = Self { base, slots: vec![0; 1 << bits], bits };
        // The first of equal blocks wins.
        for number in (0..count.min(u32::MAX as usize - 1)).rev() {
            let slot = blocks.slot(hash_of(&base[number * BLOCK_BYTES..][..BLOCK_BYTES]));
            blocks.slots[slot] = number as u32 + 1;
        }
        blocks
    }

    fn slot(&self, hash: u64) -> usize {
        (hash.wrapping_mul(FACTOR) >> (u64::BITS - self.bits)) as usize
    }

    /// Returns where a block of the earlier value is next in `new`, and where it is in the earlier value.
    fn find(&self, new: &[u8], within: Range<usize>) -> Option<(usize, usize)> {
        let last = within.end.checked_sub(BLOCK_BYTES)?;
        if within.start > last {
            return None;
        }
        let leaving = (0..BLOCK_BYTES).fold(1u64, |power, _| power.wrapping_mul(FACTOR));
        let mut hash = hash_of(&new[within.start..][..BLOCK_BYTES]);
        for at in within.start..=last {
            let number = self.slots[self.slot(hash)] as usize;
            if number > 0 {
                let from = (number - 1) * BLOCK_BYTES;
                if self.base[from..][..BLOCK_BYTES] == new[at..][..BLOCK_BYTES] {
                    return Some((at, from));
                }
            }
            if at < last {
                let (gone, next) = (u64::from(new[at]) + 1, u64::from(new[at + BLOCK_BYTES]) + 1);
                hash = hash.wrapping_mul(FACTOR).wrapping_add(next).wrapping_sub(gone.wrapping_mul(leaving));
            }
        }
        None
    }
}

fn hash_of(block: &[u8]) -> u64 {
    block.iter().fold(0, |hash, byte| hash.wrapping_mul(FACTOR).wrapping_add(u64::from(*byte) + 1))
}

/// Writer of a program.
struct Steps<'n> {
    new: &'n [u8],
    /// Start of the bytes that are in no step yet.
    from: usize,
    out: Vec<u8>,
    most: usize,
}

impl Steps<'_> {
    /// Ends the new bytes at `at`, and copies a range. Returns `None` if the program is too long.
    fn copy(&mut self, at: usize, range: Range<usize>) -> Option<()> {
        put_number(&mut self.out, at - self.from);
        self.out.extend_from_slice(&self.new[self.from..at]);
        put_number(&mut self.out, range.start);
        put_number(&mut self.out, range.len());
        self.from = at + range.len();
        (self.out.len() <= self.most).then_some(())
    }
}

/// Returns the program that makes `new` of `base`, unless it has more than `most` bytes.
pub(crate) fn program(base: &[u8], new: &[u8], most: usize) -> Option<Vec<u8>> {
    if new.len() > base.len().saturating_add(most) {
        return None;
    }
    let mut steps = Steps { new, from: 0, out: Vec::new(), most };
    let mut blocks = None;
    // Positions in both up to which all is known.
    let (mut at, mut from) = (0, 0);
    while at < new.len() {
        let same = common(&base[from..], &new[at..]);
        if same >= COPY_BYTES_MIN {
            steps.copy(at, from..from + same)?;
            (at, from) = (at + same, from + same);
            continue;
        }
        let near = (1..=NEAR_BYTES).find(|skip| {
            let ends = (base.get(from + skip..), new.get(at + skip..));
            matches!(ends, (Some(base), Some(new))
                if base.len() >= COPY_BYTES_MIN && new.len() >= COPY_BYTES_MIN
                    && base[..COPY_BYTES_MIN] == new[..COPY_BYTES_MIN])
        });
        if let Some(skip) = near {
            (at, from) = (at + skip, from + skip);
            continue;
        }
        if new.len() - at < REST_BYTES_MIN {
            break;
        }
        let blocks = blocks.get_or_insert_with(|| Blocks::new(base));
        let end = new.len().min(at + most + BLOCK_BYTES);
        let Some((mut found, mut place)) = blocks.find(new, at..end) else {
            if end < new.len() {
                return None;
            }
            break;
        };
        while found > steps.from && place > 0 && new[found - 1] == base[place - 1] {
            (found, place) = (found - 1, place - 1);
        }
        (at, from) = (found, place);
    }
    if at < new.len() {
        let tail = common_end(&base[from..], &new[at..]);
        if tail >= COPY_BYTES_MIN {
            steps.copy(new.len() - tail, base.len() - tail..base.len())?;
        }
    }
    if steps.from < new.len() {
        steps.copy(new.len(), 0..0)?;
    }
    Some(steps.out)
}

/// Returns the `size` bytes that a program makes of `base`, or `None` if it is malformed.
pub(crate) fn apply(base: &[u8], mut program: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(size.min(base.len() + program.len()));
    while !program.is_empty() {
        let count = take_number(&mut program)?;
        let (bytes, rest) = program.split_at_checked(count)?;
        program = rest;
        let (from, len) = (take_number(&mut program)?, take_number(&mut program)?);
        let range = base.get(from..from.checked_add(len)?)?;
        if out.len() + bytes.len() + range.len() > size {
            return None;
        }
        out.extend_from_slice(bytes);
        out.extend_from_slice(range);
    }
    (out.len() == size).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, size: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        (0..size).map(|_| next()).collect()
    }

    fn checked(base: &[u8], new: &[u8]) -> usize {
        let program = program(base, new, 32 << 10).expect("it is short enough");
        assert_eq!(apply(base, &program, new.len()).as_deref(), Some(new));
        program.len()
    }

    #[test]
    fn a_longer_list_costs_its_new_bytes() {
        let all = noise(1, 200_000);
        for len in [0, 1, 15, 16, 17, 31, 32, 33, 4095, 4096, 4097, 150_000] {
            // The count of a list is before its items.
            let (mut short, mut long) = (all[..len].to_vec(), all[..len + 1000].to_vec());
            short.splice(0..0, [0xdc, 0, 7]);
            long.splice(0..0, [0xdc, 0, 8]);
            assert!(checked(&short, &long) <= 1000 + len.min(16) + 32, "{len}");
            assert!(checked(&long, &short) <= 64, "{len}");
            assert!(checked(&short, &short) <= 24, "{len}");
        }
    }

    #[test]
    fn changes_anywhere_cost_what_changed() {
        let base = noise(2, 100_000);
        for at in [0, 1, 5000, 50_000, 99_000] {
            let edited = |range: Range<usize>, with: &[u8]| {
                let mut new = base.clone();
                new.splice(range, with.iter().copied());
                new
            };
            assert!(checked(&base, &edited(at..at + 1, b"")) < 200);
            assert!(checked(&base, &edited(at..at, b"new text")) < 200);
            assert!(checked(&base, &edited(at..at + 500, &noise(9, 700))) < 1000);
            assert!(checked(&base, &edited(at..at + 500, b"")) < 200);
        }
        let mut moved = base[60_000..].to_vec();
        moved.extend_from_slice(&base[..60_000]);
        assert!(checked(&base, &moved) < 200);
    }

    #[test]
    fn values_that_differ_have_no_program() {
        assert_eq!(program(&noise(3, 100_000), &noise(4, 100_000), 32 << 10), None);
        assert_eq!(program(b"", &noise(4, 100_000), 32 << 10), None);
        assert_eq!(program(&noise(3, 100), &noise(4, 100), 50), None);
    }

    #[test]
    fn a_malformed_program_is_refused() {
        let (base, new) = (noise(5, 3000), [noise(6, 100), noise(5, 3000)].concat());
        let program = program(&base, &new, 32 << 10).unwrap();
        for end in 0..program.len() {
            assert_eq!(apply(&base, &program[..end], new.len()), None, "{end}");
        }
        for at in 0..program.len() {
            for bit in 0..8 {
                let mut bad = program.clone();
                bad[at] ^= 1 << bit;
                let made = apply(&base, &bad, new.len());
                assert!(made.is_none_or(|made| made.len() == new.len()));
            }
        }
        assert_eq!(apply(&base, &[0xff; 11], 1), None);
        assert_eq!(apply(&base, &program, new.len() + 1), None);
        assert_eq!(apply(&base, &program, new.len() - 1), None);
        assert_eq!(apply(&base[1..], &program, new.len()), None);
    }
}
