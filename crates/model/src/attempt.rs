//! Attempts: work in a room of its own, which may be kept whole or dropped.

use crate::checkpoint::word_type;
use crate::id::AttemptId;
use crate::{CheckpointId, ModelError, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

word_type! {
    /// Means by which an attempt shares the files of its project.
    AttemptKind, "kind of attempt", {
        /// Overlay at the project's own path.
        Overlay = "overlay",
        /// Copy at another path, whose files share their content with the project.
        Reflink = "reflink",
        /// Copy at another path.
        Copy = "copy",
    }
}

word_type! {
    /// State of an attempt.
    AttemptState, "state of an attempt", {
        /// It can go on.
        Open = "open",
        /// Its result is in the project.
        Kept = "kept",
        /// It was closed. Its result is a checkpoint.
        Dropped = "dropped",
    }
}

/// Number of tests by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestCounts {
    /// Passed tests.
    pub passed: u64,
    /// Failed tests, and those with an error.
    pub failed: u64,
    /// Ignored and skipped tests.
    pub skipped: u64,
}

/// Last command of an attempt, and what was learned of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptRun {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Exit status as a shell reports it; `None` before its end.
    pub exit_status: Option<i32>,
    /// Result of the check, if one was requested.
    pub verified: Option<bool>,
    /// Tests that the check counted.
    pub tests: Option<TestCounts>,
    /// Duration.
    pub milliseconds: Option<u64>,
}

/// Attempt of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Id.
    pub id: AttemptId,
    /// Project.
    pub workspace_id: WorkspaceId,
    /// Workspace of its own, to which its checkpoints belong.
    pub place_id: WorkspaceId,
    /// Number in its project, from 1; never used again.
    pub number: u64,
    /// Name, unique among the open attempts of its project.
    pub name: String,
    /// Means of sharing files.
    pub kind: AttemptKind,
    /// Folder of its room.
    pub room: PathBuf,
    /// State.
    pub state: AttemptState,
    /// Checkpoint of the project at its start.
    pub base: CheckpointId,
    /// Newest checkpoint of what it made.
    pub result: Option<CheckpointId>,
    /// Last command.
    pub run: AttemptRun,
    /// Time of the start.
    pub created_at: Timestamp,
    /// Time at which it was kept or dropped.
    pub closed_at: Option<Timestamp>,
    /// True if its room is deleted.
    pub is_removed: bool,
}

/// Maximum length of a name.
const NAME_LETTERS_MAX: usize = 64;

/// Checks the name of an attempt: letters, digits, `.`, `_` and `-`, and no `.` or `-` at the beginning.
///
/// # Errors
/// When it is no such name.
pub fn check_attempt_name(name: &str) -> Result<(), ModelError> {
    let plain =
        name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-'));
    match plain && !name.is_empty() && name.len() <= NAME_LETTERS_MAX && !name.starts_with(['.', '-']) {
        true => Ok(()),
        false => Err(ModelError::Word {
            what: "name of an attempt",
            given: name.to_owned(),
            allowed: "up to 64 letters, digits, dots, underscores and hyphens".to_owned(),
        }),
    }
}

/// Checks the name of a metric: as that of an attempt, also with slashes.
///
/// # Errors
/// When it is no such name, or the value is not finite.
pub fn check_metric(name: &str, value: f64) -> Result<(), ModelError> {
    let wrong = |given: String, allowed: &str| ModelError::Word {
        what: "metric",
        given,
        allowed: allowed.to_owned(),
    };
    if !value.is_finite() {
        return Err(wrong(format!("{name}={value}"), "a finite number"));
    }
    check_attempt_name(&name.replace('/', ".")).map_err(|_| {
        wrong(name.to_owned(), "up to 64 letters, digits, dots, slashes, underscores and hyphens")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain() {
        for good in ["a", "try-3", "A_b.c", "0"] {
            check_attempt_name(good).unwrap();
        }
        for bad in ["", "-a", ".a", "a b", "a/b", "é", &"x".repeat(65)] {
            assert!(check_attempt_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_metric_has_a_plain_name_and_a_finite_number() {
        check_metric("eval/loss", -0.5).unwrap();
        for (name, value) in [("a", f64::NAN), ("a", f64::INFINITY), ("", 1.0), ("a=b", 1.0)] {
            assert!(check_metric(name, value).is_err(), "{name}");
        }
    }
}
