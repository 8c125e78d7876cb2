//! Coverage: the paths that a capture left out, with the reasons.

use crate::RelPath;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Reason why a path is not in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Inside of a `.git`.
    Git,
    /// Safepoint's own folder.
    OwnFolder,
    /// Directory marked as a cache by a `CACHEDIR.TAG`.
    CacheDirectory,
    /// Excluded by `.safepointignore` or the configuration.
    Ignored,
    /// Socket, FIFO or device.
    SpecialFile,
    /// Mount point of another file system.
    MountPoint,
    /// Unreadable.
    Unreadable,
    /// Deeper than the supported nesting.
    TooDeep,
    /// Permanently removed from the checkpoint.
    Purged,
    /// Temporary file of an open SQLite database, which SQLite recreates.
    DatabaseSidecar,
    /// Home of another Safepoint installation, which manages its own checkpoints.
    OtherHome,
    /// Large, changed, and outside the paths of a rollback.
    NotChosen,
    /// Deleted in the layer of an attempt. Only while the layer is read; never in a checkpoint.
    Whiteout,
}

impl Why {
    /// Returns true if it was left out involuntarily.
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
            Why::NotChosen => "large, and outside the chosen paths",
            Why::Whiteout => "deleted in the layer of an attempt",
        })
    }
}

/// Path that was left out, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Skipped {
    /// Path of the entry.
    pub path: RelPath,
    /// Reason.
    pub why: Why,
}

/// Paths that a capture did not or could not take.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Paths left out, sorted.
    pub skipped: Vec<Skipped>,
    /// Paths that changed during the capture; their content may mix two states.
    pub unsettled: Vec<RelPath>,
}

impl Coverage {
    /// Returns true if this path or a parent was left out.
    pub fn leaves_out(&self, path: &RelPath) -> bool {
        self.skipped.iter().any(|skipped| path.is_within(&skipped.path))
    }

    /// Returns the entries left out at or below this path.
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
