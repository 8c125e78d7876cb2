//! Frames: a length, the length of a JSON text, that text, and bytes that it refers to.
//!
//! Everything read is hostile: a frame is read as it arrives, never allocated by the length that it claims.

use safepoint::model::thread::ThreadValue;
use serde_json::{Value, json};
use std::io::{self, Read, Write};

/// Longest frame.
pub(super) const FRAME_BYTES_MAX: u64 = 320 << 20;

/// Message with attached bytes.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) json: Vec<u8>,
    pub(super) bytes: Vec<u8>,
}

/// Reason why there is no next frame.
#[derive(Debug)]
pub(super) enum NoFrame {
    /// The client closed the stream between two frames.
    End,
    /// The stream ended inside of a frame, or cannot be read.
    Torn(String),
    /// The frame was skipped.
    Refused(String),
}

/// Reads the next frame.
pub(super) fn read(input: &mut impl Read) -> Result<Frame, NoFrame> {
    let mut head = [0; 8];
    let mut filled = 0;
    while filled < head.len() {
        match input.read(&mut head[filled..]) {
            Ok(0) if filled == 0 => return Err(NoFrame::End),
            Ok(0) => return Err(torn()),
            Ok(came) => filled += came,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(NoFrame::Torn(error.to_string())),
        }
    }
    let number =
        |at: usize| u64::from(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let (whole, json) = (number(0), number(4));
    let Some(rest) = whole.checked_sub(4) else {
        return Err(NoFrame::Torn(format!("a frame of {whole} bytes is too short")));
    };
    if whole > FRAME_BYTES_MAX || json > rest {
        skip(input, rest)?;
        let why = match json > rest {
            true => format!("a text of {json} bytes does not fit into a frame of {whole}"),
            false => format!("a frame of {whole} bytes is too long; at most {FRAME_BYTES_MAX} are allowed"),
        };
        return Err(NoFrame::Refused(why));
    }
    Ok(Frame { json: take(input, json)?, bytes: take(input, rest - json)? })
}

fn torn() -> NoFrame {
    NoFrame::Torn("the input ended inside of a frame".to_owned())
}

fn take(input: &mut impl Read, len: u64) -> Result<Vec<u8>, NoFrame> {
    let mut bytes = Vec::new();
    input.take(len).read_to_end(&mut bytes).map_err(|error| NoFrame::Torn(error.to_string()))?;
    if bytes.len() as u64 == len { Ok(bytes) } else { Err(torn()) }
}

fn skip(input: &mut impl Read, len: u64) -> Result<(), NoFrame> {
    let skipped = io::copy(&mut input.take(len), &mut io::sink());
    match skipped {
        Ok(skipped) if skipped == len => Ok(()),
        Ok(_) => Err(torn()),
        Err(error) => Err(NoFrame::Torn(error.to_string())),
    }
}

/// Writes a frame.
pub(super) fn write(output: &mut impl Write, json: &Value, bytes: &[u8]) -> io::Result<()> {
    let text = json.to_string().into_bytes();
    let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let whole = u32::try_from(text.len() + bytes.len() + 4).map_err(too_long)?;
    let head = u32::try_from(text.len()).map_err(too_long)?;
    output.write_all(&whole.to_be_bytes())?;
    output.write_all(&head.to_be_bytes())?;
    output.write_all(&text)?;
    output.write_all(bytes)?;
    output.flush()
}

impl Frame {
    /// Returns the attached bytes that a value of a request refers to.
    pub(super) fn value(&self, encoding: &str, (from, len): (u64, u64)) -> Result<ThreadValue, String> {
        let range = usize::try_from(from).ok().zip(usize::try_from(len).ok());
        let bytes = range.and_then(|(from, len)| self.bytes.get(from..from.checked_add(len)?));
        let bytes = bytes.ok_or_else(|| format!("bytes [{from}, {len}] are not in the frame"))?;
        Ok(ThreadValue::new(encoding, bytes))
    }
}

/// Bytes that a response refers to.
#[derive(Debug, Default)]
pub(super) struct Attached(pub(super) Vec<u8>);

impl Attached {
    /// Attaches a value and returns its reference.
    pub(super) fn add(&mut self, value: &ThreadValue) -> Value {
        let from = self.0.len();
        self.0.extend_from_slice(&value.bytes);
        json!({ "encoding": value.encoding, "bytes": [from, value.bytes.len()] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_and_torn_ones_are_errors() {
        let mut bytes = Vec::new();
        write(&mut bytes, &json!({"a": 1}), b"xyz").unwrap();
        let frame = read(&mut bytes.as_slice()).unwrap();
        assert_eq!((frame.json.as_slice(), frame.bytes.as_slice()), (&b"{\"a\":1}"[..], &b"xyz"[..]));
        for len in 1..bytes.len() {
            assert!(matches!(read(&mut &bytes[..len]), Err(NoFrame::Torn(_))), "{len}");
        }
        assert!(matches!(read(&mut &[][..]), Err(NoFrame::End)));
        assert!(matches!(read(&mut &[0u8, 0, 0, 3, 0, 0, 0, 0][..]), Err(NoFrame::Torn(_))));
        assert!(matches!(read(&mut &[0u8, 0, 0, 6, 0, 0, 0, 9, b'x', b'y'][..]), Err(NoFrame::Refused(_))));
        assert!(matches!(read(&mut &[255u8; 20][..]), Err(NoFrame::Torn(_))));
    }

    #[test]
    fn a_reference_beyond_the_frame_is_refused() {
        let frame = Frame { json: Vec::new(), bytes: b"abc".to_vec() };
        assert_eq!(frame.value("e", (1, 2)).unwrap().bytes, b"bc");
        for (from, len) in [(0, 4), (4, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(frame.value("e", (from, len)).is_err(), "{from} {len}");
        }
    }
}
