//! Variable-length integers (LEB128), and a reader for untrusted bytes.

use crate::ModelError;

/// Appends a number, seven bits per byte, low bits first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number; small ones of both signs are short.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends bytes, prefixed with their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads values from the front of untrusted bytes.
pub(crate) struct Reader<'a> {
    left: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { left: bytes, what }
    }

    pub(crate) fn malformed(&self, why: &'static str) -> ModelError {
        ModelError::Malformed { what: self.what, why }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, ModelError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], ModelError> {
        let Some((head, tail)) = self.left.split_at_checked(count) else {
            return Err(self.malformed("it ends too early"));
        };
        self.left = tail;
        Ok(head)
    }

    pub(crate) fn hash(&mut self) -> Result<[u8; 32], ModelError> {
        let mut hash = [0u8; 32];
        hash.copy_from_slice(self.take(32)?);
        Ok(hash)
    }

    /// Each number has one encoding: a padded one is refused, so that equal values have equal bytes.
    pub(crate) fn number(&mut self) -> Result<u64, ModelError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.malformed("a number is too large"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.malformed("a number is padded"));
                }
                return Ok(value);
            }
        }
        Err(self.malformed("a number is too long"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, ModelError> {
        let coded = self.number()?;
        Ok((coded >> 1).cast_signed() ^ -((coded & 1).cast_signed()))
    }

    pub(crate) fn bytes(&mut self, most: usize) -> Result<&'a [u8], ModelError> {
        let length = self.number()?;
        match usize::try_from(length) {
            Ok(length) if length <= most => self.take(length),
            _ => Err(self.malformed("a text is too long")),
        }
    }

    pub(crate) fn finish(self) -> Result<(), ModelError> {
        if self.left.is_empty() { Ok(()) } else { Err(self.malformed("bytes follow its end")) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_in_one_way_only() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            let mut reader = Reader::new(&out, "number");
            assert_eq!(reader.number().unwrap(), value);
            reader.finish().unwrap();
        }
        for bad in [
            &[0x80u8, 0x00][..],
            &[0x80],
            &[0xff; 11],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert!(Reader::new(bad, "number").number().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn signed_numbers_read_back() {
        for value in [0, -1, 1, i64::MIN, i64::MAX, 1_763_193_600_000_000_000] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(Reader::new(&out, "number").signed().unwrap(), value);
        }
    }

    #[test]
    fn a_length_beyond_the_end_or_the_limit_is_refused() {
        assert!(Reader::new(&[5, b'a'], "text").bytes(10).is_err());
        assert!(Reader::new(&[2, b'a', b'b'], "text").bytes(1).is_err());
        assert!(Reader::new(&[1], "text").finish().is_err());
        assert!(Reader::new(&[], "text").byte().is_err());
    }
}
