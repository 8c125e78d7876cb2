//! Object id: BLAKE3 over the kind, the length and the bytes of an object.

use crate::ModelError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Kind of object. The number is part of the format and of every hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ObjectKind {
    /// Bytes of a file: all of a small one, a piece of a large one.
    Chunk = 1,
    /// List of the pieces of a large file.
    Pieces = 2,
    /// Directory.
    Tree = 3,
    /// Canonical JSON.
    Document = 4,
}

impl ObjectKind {
    /// All kinds.
    pub const ALL: [ObjectKind; 4] =
        [ObjectKind::Chunk, ObjectKind::Pieces, ObjectKind::Tree, ObjectKind::Document];

    /// Returns the number used in the format.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the kind with this number, if any.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Id of an object. Two objects with the same id are the same object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; 32]);

impl ObjectId {
    /// Computes the id of these bytes as an object of this kind.
    pub fn of(kind: ObjectKind, bytes: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut head = [0u8; 9];
        head[0] = kind.code();
        head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        hasher.update(&head);
        hasher.update(bytes);
        Self(hasher.finalize().into())
    }

    /// Returns the id with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

impl FromStr for ObjectId {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let error = || ModelError::Hash { given: text.to_owned() };
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(error());
        }
        let mut bytes = [0u8; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| error())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_object_is_fixed_forever() {
        let mut by_hand = vec![1u8];
        by_hand.extend_from_slice(&5u64.to_le_bytes());
        by_hand.extend_from_slice(b"hello");
        let expected = blake3::hash(&by_hand);
        assert_eq!(ObjectId::of(ObjectKind::Chunk, b"hello").as_bytes(), expected.as_bytes());
    }

    #[test]
    fn the_kind_is_part_of_the_name() {
        let names: std::collections::BTreeSet<_> =
            ObjectKind::ALL.iter().map(|kind| ObjectId::of(*kind, b"same")).collect();
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn text_reads_back_and_other_text_is_refused() {
        let id = ObjectId::of(ObjectKind::Tree, b"");
        assert_eq!(id.to_string().parse::<ObjectId>().unwrap(), id);
        assert_eq!(serde_json::from_str::<ObjectId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
        assert!(format!("{id:?}").starts_with("ObjectId("));
        for bad in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert!(matches!(bad.parse::<ObjectId>(), Err(ModelError::Hash { .. })));
        }
    }

    #[test]
    fn kinds_have_stable_codes() {
        assert_eq!(ObjectKind::from_code(1), Some(ObjectKind::Chunk));
        assert_eq!(ObjectKind::from_code(4), Some(ObjectKind::Document));
        assert_eq!(ObjectKind::from_code(0), None);
        assert_eq!(ObjectKind::from_code(5), None);
    }
}
