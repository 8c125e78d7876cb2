//! Error of this crate: an invalid value.

use thiserror::Error;

/// Reason why a value is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The id is neither a ULID nor a UUID.
    #[error("{given:?} is not an id: expected a ULID (26 letters and digits) or a UUID")]
    Id {
        /// Given value.
        given: String,
    },
    /// The object hash is not 64 hexadecimal digits.
    #[error("{given:?} is not an object hash: expected 64 hexadecimal digits")]
    Hash {
        /// Given value.
        given: String,
    },
    /// The word is not one of the allowed words.
    #[error("{given:?} is not a {what}: expected one of {allowed}")]
    Word {
        /// Kind of the expected word.
        what: &'static str,
        /// Given value.
        given: String,
        /// Allowed words, for people.
        allowed: String,
    },
    /// The path leaves the workspace or is not a valid file name.
    #[error("{given:?} is not a path inside a workspace: {why}")]
    Path {
        /// Given path, printable.
        given: String,
        /// Violated rule.
        why: &'static str,
    },
    /// The bytes of an object are malformed.
    #[error("malformed {what}: {why}")]
    Malformed {
        /// Kind of object.
        what: &'static str,
        /// Violated rule.
        why: &'static str,
    },
    /// The time is invalid.
    #[error("{given:?} is not a time: expected RFC 3339, such as 2026-01-31T12:00:00Z")]
    Time {
        /// Given value.
        given: String,
    },
    /// The duration is invalid.
    #[error("{given:?} is not a duration: {why}; expected a value such as 30s, 90m, 36h, 7d or 2w")]
    Span {
        /// Given value.
        given: String,
        /// Violated rule.
        why: &'static str,
    },
    /// The value violates a rule.
    #[error("invalid {what}: {why}")]
    Value {
        /// Kind of value.
        what: &'static str,
        /// Violated rule.
        why: String,
    },
    /// The checkpoint reference is invalid.
    #[error("{given:?} is not a checkpoint reference: {why}")]
    Reference {
        /// Given value.
        given: String,
        /// Violated rule.
        why: &'static str,
    },
}
