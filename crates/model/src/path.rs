//! Path inside a workspace: bytes, relative, without `..`.
//!
//! Names on Linux are bytes. In JSON a path is a string if it is UTF-8, else `{"bytes": "<base64>"}`.

use crate::ModelError;
use crate::text::write_printable;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Maximum length of a name on Linux file systems.
pub const NAME_BYTES_MAX: usize = 255;

/// Checks the name of a directory entry.
///
/// # Errors
/// When it is empty, `.` or `..`, too long, or contains a slash or a zero byte.
pub fn check_name(name: &[u8]) -> Result<(), ModelError> {
    let why = match name {
        b"" => "a name is empty",
        b"." | b".." => "it names the directory itself or its parent",
        _ if name.len() > NAME_BYTES_MAX => "a name is longer than 255 bytes",
        _ if name.contains(&b'/') => "a name contains a slash",
        _ if name.contains(&0) => "a name contains a zero byte",
        _ => return Ok(()),
    };
    Err(ModelError::Path { given: String::from_utf8_lossy(name).into_owned(), why })
}

/// Path below the root of a workspace; the empty path is the root itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// Returns the root of the workspace.
    pub fn root() -> Self {
        Self::default()
    }

    /// Parses a path whose names are separated by single slashes.
    ///
    /// # Errors
    /// When a name is invalid (see [`check_name`]).
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, ModelError> {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            for name in bytes.split(|byte| *byte == b'/') {
                check_name(name).map_err(|error| match error {
                    ModelError::Path { why, .. } => {
                        ModelError::Path { given: String::from_utf8_lossy(&bytes).into_owned(), why }
                    }
                    other => other,
                })?;
            }
        }
        Ok(Self(bytes))
    }

    /// Appends a name.
    ///
    /// # Errors
    /// When the name is invalid (see [`check_name`]).
    pub fn join(&self, name: &[u8]) -> Result<Self, ModelError> {
        check_name(name)?;
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Ok(Self(bytes))
    }

    /// Returns the bytes, with names separated by slashes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true for the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names from the root down.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Returns the parent and the last name, or `None` for the root.
    pub fn split_last(&self) -> Option<(RelPath, &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => Some((Self(self.0[..slash].to_vec()), &self.0[slash + 1..])),
            None => Some((Self::root(), &self.0)),
        }
    }

    /// Returns true if this path is `other` or below it.
    pub fn is_within(&self, other: &RelPath) -> bool {
        other.is_root()
            || self.0 == other.0
            || (self.0.starts_with(&other.0) && self.0.get(other.0.len()) == Some(&b'/'))
    }
}

impl fmt::Display for RelPath {
    /// For people: control and confusable characters are escaped (see [`crate::text`]).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        write_printable(f, &self.0)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PathJson {
    Text(String),
    Raw { bytes: String },
}

impl Serialize for RelPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => PathJson::Raw { bytes: STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = match PathJson::deserialize(deserializer)? {
            PathJson::Text(text) => text.into_bytes(),
            PathJson::Raw { bytes } => STANDARD.decode(bytes).map_err(serde::de::Error::custom)?,
        };
        Self::new(bytes).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_never_climbs() {
        for bad in ["..", "a/../b", "/etc/passwd", "a//b", "a/", "./a", "a/.", "a\0b"] {
            assert!(RelPath::new(bad).is_err(), "{bad:?}");
        }
        assert!(RelPath::new("x".repeat(256)).is_err());
        assert!(RelPath::root().join(b"a/b").is_err());
        for good in ["a", "a/b", "..a", "a b", "-rf", "x\n", "…"] {
            assert_eq!(RelPath::new(good).unwrap().as_bytes(), good.as_bytes());
        }
    }

    #[test]
    fn within_respects_whole_names() {
        let path = |text: &str| RelPath::new(text).unwrap();
        assert!(path("a/b").is_within(&path("a")));
        assert!(path("a").is_within(&path("a")));
        assert!(path("a").is_within(&RelPath::root()));
        assert!(!path("ab").is_within(&path("a")));
        assert!(!path("a").is_within(&path("a/b")));
    }

    #[test]
    fn parts_come_apart_and_together() {
        let path = RelPath::new("a/b/c").unwrap();
        assert_eq!(path.names().count(), 3);
        let (above, name) = path.split_last().unwrap();
        assert_eq!(above.join(name).unwrap(), path);
        assert_eq!(RelPath::new("a").unwrap().split_last().unwrap().0, RelPath::root());
        assert_eq!(RelPath::root().split_last(), None);
        assert_eq!(RelPath::root().names().count(), 0);
    }

    #[test]
    fn json_keeps_every_byte() {
        for bytes in [&b"plain"[..], b"not \xff utf8", "ü".as_bytes()] {
            let path = RelPath::new(bytes).unwrap();
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<RelPath>(&json).unwrap(), path);
        }
        assert_eq!(
            serde_json::to_string(&RelPath::new(&b"\xff"[..]).unwrap()).unwrap(),
            r#"{"bytes":"/w=="}"#
        );
        assert!(serde_json::from_str::<RelPath>("\"../x\"").is_err());
        assert!(serde_json::from_str::<RelPath>(r#"{"bytes":"!"}"#).is_err());
    }

    #[test]
    fn a_name_cannot_act_on_a_terminal() {
        assert_eq!(RelPath::new(&b"a\x1b[2J\xff\n"[..]).unwrap().to_string(), "a\\u{1b}[2J\\xff\\n");
        assert_eq!(RelPath::root().to_string(), ".");
        assert_eq!(format!("{:?}", RelPath::new("a").unwrap()), "RelPath(a)");
    }
}
