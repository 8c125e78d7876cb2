//! What can be wrong with a plan file. Each problem names its line and column.

use super::PlanFormat;
use std::fmt;
use thiserror::Error;

/// A place in a text. Both are counted from one, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which line.
    pub line: usize,
    /// Which character of it.
    pub column: usize,
}

impl Place {
    /// Of the character that begins at this byte.
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

/// Why a plan file is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanFileError {
    /// It is too long.
    #[error("the plan file is longer than {bytes_max} bytes")]
    TooLarge {
        /// How long it may be.
        bytes_max: usize,
    },
    /// It is not text.
    #[error("the plan file is not UTF-8, {place}")]
    NotUtf8 {
        /// Of the first byte that is not.
        place: Place,
    },
    /// It is neither the one nor the other.
    #[error("the plan file is not {format}, {place}: {why}")]
    Syntax {
        /// What it was read as.
        format: PlanFormat,
        /// Where.
        place: Place,
        /// The rule that it breaks.
        why: String,
    },
    /// It is written well, and no plan. The first problem is the message; see [`PlanFileError::others`].
    #[error("{}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Wrong(
        /// Each problem, in the order of the lines; at least one.
        Vec<PlanFileProblem>,
    ),
}

impl PlanFileError {
    /// The problems that the message does not tell.
    pub fn others(&self) -> &[PlanFileProblem] {
        match self {
            PlanFileError::Wrong(problems) => problems.get(1..).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// One thing that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFileProblem {
    /// Where.
    pub place: Place,
    /// In which step, in names such as `api/handlers`; a step without a name is counted, such as `api/#2`.
    pub step: Option<String>,
    /// The key, with its table before it, made printable.
    pub key: String,
    /// What is wrong with it.
    pub kind: PlanProblemKind,
}

/// What is wrong with a key of a plan file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanProblemKind {
    /// Nobody knows it.
    Unknown {
        /// The known one that was meant, if one is like it.
        nearest: Option<String>,
        /// The ones that are known there.
        known: String,
    },
    /// It has to be there and is not.
    Missing {
        /// What to write.
        why: &'static str,
    },
    /// It stands there twice.
    Twice {
        /// Where it stands first.
        first: Option<Place>,
        /// What does.
        why: String,
    },
    /// A value of another type.
    Type {
        /// What it is.
        found: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A word that is none of those that are allowed.
    Word {
        /// The word, made printable.
        given: String,
        /// The one that was meant, if one is like it.
        nearest: Option<String>,
        /// Those that are allowed.
        known: String,
    },
    /// A value that breaks a rule.
    Value {
        /// The rule.
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
