//! What a capture left out, and why: coverage is never silent.

use crate::RelPath;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why something is not in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The inside of a `.git`: git's own business.
    Git,
    /// Safepoint's own folder.
    OwnFolder,
    /// A directory marked as a cache by a `CACHEDIR.TAG`.
    CacheDirectory,
    /// Excluded by `.safepointignore` or the configuration.
    Ignored,
    /// A socket, FIFO or device.
    SpecialFile,
    /// Another file system is mounted there.
    MountPoint,
    /// It could not be read.
    Unreadable,
    /// It lies below the limit of nesting that is captured.
    TooDeep,
    /// It was in the checkpoint and was taken out for good.
    Purged,
    /// What SQLite keeps beside a database while it is open, and makes again.
    DatabaseSidecar,
    /// The home of another Safepoint: its checkpoints come and go by their own rules.
    OtherHome,
    /// It is large, changed, and outside of the paths that a rollback was about.
    NotChosen,
}

impl Why {
    /// Whether it was left out against our will.
    pub fn is_lack(self) -> bool {
        matches!(self, Why::Unreadable | Why::TooDeep)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Git => "git's own folder",
            Why::OwnFolder => "Safepoint's own folder",
            Why::CacheDirectory => "marked as a cache (CACHEDIR.TAG)",
            Why::Ignored => "excluded by .safepointignore or the configuration",
            Why::SpecialFile => "a socket, FIFO or device",
            Why::MountPoint => "another file system is mounted on it",
            Why::Unreadable => "it could not be read",
            Why::TooDeep => "nested too deeply",
            Why::Purged => "purged",
            Why::DatabaseSidecar => "a temporary file of a SQLite database",
            Why::OtherHome => "the home of another Safepoint",
            Why::NotChosen => "large, and outside of the chosen paths",
        })
    }
}

/// One thing that was left out, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Skipped {
    /// Where.
    pub path: RelPath,
    /// Why.
    pub why: Why,
}

/// What a capture could not or did not take.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Left out, sorted by path.
    pub skipped: Vec<Skipped>,
    /// Captured, but changing all the while: what is stored may be a mixture of two moments.
    pub unsettled: Vec<RelPath>,
}

impl Coverage {
    /// Whether this path, or something above it, was left out.
    pub fn leaves_out(&self, path: &RelPath) -> bool {
        self.skipped.iter().any(|skipped| path.is_within(&skipped.path))
    }

    /// What was left out at or below this path.
    pub fn left_out_within<'a>(&'a self, path: &'a RelPath) -> impl Iterator<Item = &'a Skipped> {
        self.skipped.iter().filter(move |skipped| skipped.path.is_within(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_covers_everything_below() {
        let path = |text: &str| RelPath::new(text).unwrap();
        let coverage =
            Coverage { skipped: vec![Skipped { path: path("a/.git"), why: Why::Git }], unsettled: vec![] };
        assert!(coverage.leaves_out(&path("a/.git/config")));
        assert!(!coverage.leaves_out(&path("a")));
        assert_eq!(coverage.left_out_within(&path("a")).count(), 1);
        assert_eq!(coverage.left_out_within(&path("b")).count(), 0);
    }

    #[test]
    fn every_reason_is_said_in_words() {
        for why in [
            Why::Git,
            Why::OwnFolder,
            Why::CacheDirectory,
            Why::Ignored,
            Why::SpecialFile,
            Why::MountPoint,
            Why::Unreadable,
            Why::TooDeep,
            Why::DatabaseSidecar,
            Why::OtherHome,
            Why::NotChosen,
        ] {
            assert!(why.to_string().len() > 8);
            let json = serde_json::to_string(&why).unwrap();
            assert_eq!(serde_json::from_str::<Why>(&json).unwrap(), why);
        }
    }
}
