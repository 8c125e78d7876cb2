//! What a repository is in the middle of, and its index as bytes.

use crate::{GitError, Repository};
use std::fmt;

/// The largest index that is read.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// What is under way.
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
    /// Its name, as git has it.
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

/// What git leaves while it is at it; the first that is there counts.
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
    /// What is under way, if anything is.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub fn operation(&self) -> Result<Option<Operation>, GitError> {
        for (trace, operation) in TRACES {
            if self.own.has(trace)? {
                return Ok(Some(*operation));
            }
        }
        Ok(None)
    }

    /// The index, as it is on the disk; nothing where there is none yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_bytes(&self) -> Result<Option<Vec<u8>>, GitError> {
        self.own.read(b"index", INDEX_BYTES_MAX)
    }
}
