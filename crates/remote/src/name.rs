//! Names: projects, packs, chains.
//!
//! The name of a pack is `PROJECT/LINE/TOKEN/SEQ-HASH.pack`. A line has one writer for each token, a
//! sequence number is accepted once, and the hash covers the uploaded bytes: no name is used twice.

use crate::RemoteError;
use safepoint_model::LineId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

const PROJECT_BYTES_MAX: usize = 63;

/// Name of a project: the unit of access, quota and deduplication.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectName(String);

impl ProjectName {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProjectName {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fits = text.len() <= PROJECT_BYTES_MAX
            && text.bytes().next().is_some_and(plain)
            && text.bytes().all(|byte| plain(byte) || b"._-".contains(&byte));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(RemoteError::ProjectName { given: text.to_owned() })
        }
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Right to publish to a line: a writer with an older token is fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fence {
    /// Line.
    pub line: LineId,
    /// Fencing token: a takeover raises it.
    pub token: u64,
}

impl fmt::Display for Fence {
    /// Value of `SAFEPOINT_FENCE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.token)
    }
}

/// Hash of 32 bytes, in JSON 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Chain of a line that has not published yet.
    pub const NONE: Digest = Digest([0; 32]);

    /// Returns the hash with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        // The text form is that of objects.
        let id: safepoint_model::ObjectId =
            text.parse().map_err(|_| RemoteError::damaged("a hash", "it is not 64 hexadecimal digits"))?;
        Ok(Self(*id.as_bytes()))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Name of a pack in the object store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackName {
    /// Project.
    pub project: ProjectName,
    /// Line that uploaded it.
    pub line: LineId,
    /// Token under which it was uploaded.
    pub token: u64,
    /// Sequence number of its push.
    pub seq: u64,
    /// BLAKE3 of the uploaded bytes.
    pub hash: Digest,
}

impl PackName {
    /// Returns the prefix of all packs of a line under a token.
    pub fn prefix(project: &ProjectName, fence: Fence) -> String {
        format!("{project}/{}/{}/", fence.line, fence.token)
    }
}

impl fmt::Display for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project, line, token, seq, hash } = self;
        write!(f, "{project}/{line}/{token}/{seq}-{hash}.pack")
    }
}

impl FromStr for PackName {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        let parse = || {
            let mut steps = text.split('/');
            let project: ProjectName = steps.next()?.parse().ok()?;
            let line: LineId = steps.next()?.parse().ok()?;
            let token: u64 = steps.next()?.parse().ok()?;
            let (seq, hash) = steps.next()?.strip_suffix(".pack")?.split_once('-')?;
            let name = Self { project, line, token, seq: seq.parse().ok()?, hash: hash.parse().ok()? };
            // Only the one text form: `01` and `+1` are numbers, too.
            (steps.next().is_none() && name.to_string() == text).then_some(name)
        };
        parse().ok_or_else(|| RemoteError::damaged(format!("the pack name `{text}`"), "it has another form"))
    }
}

impl Serialize for PackName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PackName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for ProjectName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ProjectName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_name_has_one_text_form() {
        let hash = Digest::from_bytes([0xab; 32]);
        let project: ProjectName = "shop.v2".parse().unwrap();
        let name = PackName { project, line: LineId::from_bits(7), token: 3, seq: 12, hash };
        let text = name.to_string();
        assert!(text.starts_with("shop.v2/00000000000000000000000007/3/12-abab"));
        assert_eq!(text.parse::<PackName>().unwrap(), name);
        for bad in
            ["", "shop", &text.replace("/3/", "/03/"), &text.replace("/3/", "/+3/"), &format!("{text}x")]
        {
            assert!(bad.parse::<PackName>().is_err(), "{bad}");
        }
        let upper = text.replace("abab", "ABAB");
        assert!(upper.parse::<PackName>().is_err());
    }

    #[test]
    fn a_project_name_is_a_plain_path_segment() {
        for good in ["a", "0", "shop-2.x_y", &"a".repeat(63)] {
            assert!(good.parse::<ProjectName>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "-a", "A", "a/b", "é", "a b", &"a".repeat(64)] {
            assert!(bad.parse::<ProjectName>().is_err(), "{bad}");
        }
    }
}
