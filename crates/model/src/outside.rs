//! Parts of other programs: their kind names, and a document whose references can be read without that
//! program.

use crate::content::Content;
use crate::git::KeptBytes;
use crate::{ModelError, ObjectError, ObjectId, ObjectSink, ObjectSource, document};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// Maximum length of a name.
const NAME_BYTES_MAX: usize = 31;

/// Name of a part kind of another program, such as `kv.example`. The dot distinguishes it from built-in
/// kinds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutsideKind {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

impl OutsideKind {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl FromStr for OutsideKind {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        let word = |word: &str| !word.is_empty() && word.bytes().all(letter);
        let good = text.len() <= NAME_BYTES_MAX && text.contains('.') && text.split('.').all(word);
        if !good {
            let why = format!(
                "{text:?} must be two or more words of lower case letters, digits, - and _, separated by dots, \
                 of at most {NAME_BYTES_MAX} bytes"
            );
            return Err(ModelError::Value { what: "part kind", why });
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes, len: text.len() as u8 })
    }
}

impl fmt::Debug for OutsideKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Document of a part of another program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutsideDocument {
    /// Version of this document.
    pub format: u32,
    /// Name of the program, reported if its code is missing.
    pub program: String,
    /// All contents that it stores.
    pub contents: Vec<KeptBytes>,
    /// Data that only the program understands.
    pub body: Value,
}

impl OutsideDocument {
    /// Current version.
    pub const FORMAT: u32 = 1;

    /// Creates a document of the current version.
    pub fn new(program: impl Into<String>, contents: Vec<Content>, body: Value) -> Self {
        let contents = contents.into_iter().map(KeptBytes::from).collect();
        Self { format: Self::FORMAT, program: program.into(), contents, body }
    }

    /// Stores the document.
    ///
    /// # Errors
    /// When the store fails.
    pub fn store(&self, sink: &dyn ObjectSink) -> Result<ObjectId, ObjectError> {
        document::store(sink, self)
    }

    /// Loads the document.
    ///
    /// # Errors
    /// When it is missing, damaged, or of a newer version.
    pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Self, ObjectError> {
        let document: Self = document::load(source, id)?;
        match document.format {
            Self::FORMAT => Ok(document),
            other => Err(ObjectError::Damaged { id, what: format!("its version {other} is unsupported") }),
        }
    }

    /// Reads all bytes of one content.
    ///
    /// # Errors
    /// When the number is out of range, or the content is missing or damaged.
    pub fn read(&self, source: &dyn ObjectSource, number: usize) -> Result<Vec<u8>, ObjectError> {
        let mut bytes = Vec::new();
        if let Some(kept) = self.contents.get(number) {
            Content::from(*kept).read::<ObjectError>(source, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_from_outside_has_a_dot_and_plain_letters() {
        for name in ["kv.example", "a.b", "x-1.y_2.z", &format!("a.{}", "b".repeat(29))] {
            assert_eq!(name.parse::<OutsideKind>().unwrap().as_str(), name);
        }
        for name in
            ["", "files", ".", "a.", ".a", "A.b", "a b.c", "a/b.c", "a..b", &format!("a.{}", "b".repeat(30))]
        {
            assert!(name.parse::<OutsideKind>().is_err(), "{name:?}");
        }
    }
}
