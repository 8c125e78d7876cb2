//! Id of a git object, in hexadecimal digits.

use std::fmt;
use std::str::FromStr;

/// Id of a git object: 40 digits, or 64 in SHA-256 repositories.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GitId(pub(crate) gix_hash::ObjectId);

impl GitId {
    /// Returns the first digits, for people.
    pub fn short(&self) -> String {
        self.0.to_hex_with_len(10).to_string()
    }
}

impl fmt::Display for GitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.to_hex())
    }
}

impl fmt::Debug for GitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitId({self})")
    }
}

/// The text is not a git object id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a git object id")]
pub struct NoGitId;

impl FromStr for GitId {
    type Err = NoGitId;

    fn from_str(text: &str) -> Result<Self, NoGitId> {
        gix_hash::ObjectId::from_hex(text.as_bytes()).map(GitId).map_err(|_| NoGitId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_and_nothing_else_is_one() {
        for text in ["4b825dc642cb6eb9a060e54bf8d69288fbee4904".to_owned(), "ab".repeat(32)] {
            let id: GitId = text.parse().unwrap();
            assert_eq!((id.to_string(), id.short()), (text.clone(), text[..10].to_owned()));
        }
        for text in ["", "4b82", "refs/heads/main", &"g".repeat(40)] {
            assert_eq!(text.parse::<GitId>(), Err(NoGitId), "{text}");
        }
    }
}
