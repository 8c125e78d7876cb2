//! Errors of plan files. Each problem names its line and column.

use super::PlanFormat;
use std::fmt;
use thiserror::Error;

/// Position in a text. Both count from one, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Place {
    /// Returns the position of a byte offset.
    pub(super) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
        Self { line, column: 1 + before.split_at(line_start).1.chars().count() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Reason to reject a plan file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanFileError {
    /// The file is too long.
    #[error("the plan file is longer than {bytes_max} bytes")]
    TooLarge {
        /// Maximum length.
        bytes_max: usize,
    },
    /// The file is not UTF-8.
    #[error("the plan file is not UTF-8, {place}")]
    NotUtf8 {
        /// Position of the first invalid byte.
        place: Place,
    },
    /// The file has a syntax error.
    #[error("the plan file is not {format}, {place}: {why}")]
    Syntax {
        /// Expected format.
        format: PlanFormat,
        /// Position.
        place: Place,
        /// Rule that it breaks.
        why: String,
    },
    /// The syntax is valid, but it is no plan. The first problem is the message; see
    /// [`PlanFileError::others`].
    #[error("{}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Wrong(
        /// Problems in line order; at least one.
        Vec<PlanFileProblem>,
    ),
}

impl PlanFileError {
    /// Returns the problems that the message omits.
    pub fn others(&self) -> &[PlanFileProblem] {
        match self {
            PlanFileError::Wrong(problems) => problems.get(1..).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// Problem in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFileProblem {
    /// Position.
    pub place: Place,
    /// Step by names such as `api/handlers`; an unnamed step is counted, such as `api/#2`.
    pub step: Option<String>,
    /// Key, prefixed with its table, made printable.
    pub key: String,
    /// Kind of problem.
    pub kind: PlanProblemKind,
}

/// Kind of problem with a key of a plan file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanProblemKind {
    /// The key is unknown.
    Unknown {
        /// Most similar known key, if any.
        nearest: Option<String>,
        /// Known keys at this position.
        known: String,
    },
    /// A required key is missing.
    Missing {
        /// Text to write.
        why: &'static str,
    },
    /// It is a duplicate.
    Twice {
        /// Position of the first.
        first: Option<Place>,
        /// Reason.
        why: String,
    },
    /// The value has the wrong type.
    Type {
        /// Type found.
        found: &'static str,
        /// Type expected.
        expected: &'static str,
    },
    /// The word is not allowed.
    Word {
        /// Word, made printable.
        given: String,
        /// Most similar allowed word, if any.
        nearest: Option<String>,
        /// Allowed words.
        known: String,
    },
    /// The value breaks a rule.
    Value {
        /// Rule.
        why: String,
    },
}

impl fmt::Display for PlanFileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.kind, PlanProblemKind::Unknown { .. }) {
            f.write_str("unknown key ")?;
        }
        write!(f, "`{}`", self.key)?;
        if let Some(step) = &self.step {
            write!(f, " in step `{step}`")?;
        }
        write!(f, ", {}", self.place)?;
        match &self.kind {
            PlanProblemKind::Unknown { nearest: Some(nearest), .. } => {
                write!(f, ": did you mean `{nearest}`?")
            }
            PlanProblemKind::Unknown { nearest: None, known } => write!(f, ": known there are {known}"),
            PlanProblemKind::Missing { why } => write!(f, ", is missing: {why}"),
            PlanProblemKind::Twice { first: Some(first), why } => write!(f, ": {why}, {first}"),
            PlanProblemKind::Twice { first: None, why } | PlanProblemKind::Value { why } => {
                write!(f, ": {why}")
            }
            PlanProblemKind::Type { found, expected } => write!(f, ", is {found}: expected {expected}"),
            PlanProblemKind::Word { given, nearest: Some(nearest), known } => {
                write!(f, ": \"{given}\" is none of {known}; did you mean \"{nearest}\"?")
            }
            PlanProblemKind::Word { given, nearest: None, known } => {
                write!(f, ": \"{given}\" is none of {known}")
            }
        }
    }
}
