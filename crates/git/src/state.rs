//! Git operations in progress, and the bytes of the index.

use crate::{GitError, Repository};
use std::fmt;

/// Maximum length of the index.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// Operation in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `git merge`.
    Merge,
    /// `git rebase`.
    Rebase,
    /// `git am`.
    ApplyMailbox,
    /// `git cherry-pick`.
    CherryPick,
    /// `git revert`.
    Revert,
    /// `git bisect`.
    Bisect,
}

impl Operation {
    /// Returns git's name of the operation.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Merge => "merge",
            Operation::Rebase => "rebase",
            Operation::ApplyMailbox => "am",
            Operation::CherryPick => "cherry-pick",
            Operation::Revert => "revert",
            Operation::Bisect => "bisect",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Files that exist during an operation; the first match decides.
const TRACES: &[(&[u8], Operation)] = &[
    (b"rebase-merge", Operation::Rebase),
    (b"rebase-apply/applying", Operation::ApplyMailbox),
    (b"rebase-apply", Operation::Rebase),
    (b"MERGE_HEAD", Operation::Merge),
    (b"CHERRY_PICK_HEAD", Operation::CherryPick),
    (b"REVERT_HEAD", Operation::Revert),
    (b"BISECT_LOG", Operation::Bisect),
];

impl Repository {
    /// Returns the operation in progress, if any.
    ///
    /// # Errors
    /// When it cannot be determined.
    pub fn operation(&self) -> Result<Option<Operation>, GitError> {
        for (trace, operation) in TRACES {
            if self.own.has(trace)? {
                return Ok(Some(*operation));
            }
        }
        Ok(None)
    }

    /// Returns the bytes of the index, or `None` if it is missing.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_bytes(&self) -> Result<Option<Vec<u8>>, GitError> {
        self.own.read(b"index", INDEX_BYTES_MAX)
    }
}
