//! The one error of this crate: something that was given or read is not what it must be.

use thiserror::Error;

/// Why a value from outside is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// An id is neither a ULID nor a UUID.
    #[error("{given:?} is not an id: expected 26 letters and digits (ULID) or the UUID form")]
    Id {
        /// What was given.
        given: String,
    },
    /// An object hash is not 64 hexadecimal digits.
    #[error("{given:?} is not an object hash: expected 64 hexadecimal digits")]
    Hash {
        /// What was given.
        given: String,
    },
    /// A word is not one of the words allowed there.
    #[error("{given:?} is not a {what}: expected one of {allowed}")]
    Word {
        /// What kind of word was expected.
        what: &'static str,
        /// What was given.
        given: String,
        /// The words that are allowed, for people.
        allowed: String,
    },
    /// A path would leave the workspace or cannot be the name of a file.
    #[error("{given:?} is not a path inside a workspace: {why}")]
    Path {
        /// What was given, made printable.
        given: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The bytes of an object do not follow the format.
    #[error("malformed {what}: {why}")]
    Malformed {
        /// Which kind of object.
        what: &'static str,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A time is not a time.
    #[error("{given:?} is not a time: expected RFC 3339, such as 2026-01-31T12:00:00Z")]
    Time {
        /// What was given.
        given: String,
    },
    /// A length of time is not one.
    #[error("{given:?} is not a length of time: {why}; expected something like 30s, 90m, 36h, 7d or 2w")]
    Span {
        /// What was given.
        given: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A value breaks a rule.
    #[error("{what} is not accepted: {why}")]
    Value {
        /// Which value.
        what: &'static str,
        /// The rule that it breaks.
        why: String,
    },
    /// A checkpoint reference cannot be understood.
    #[error("{given:?} does not name a checkpoint: {why}")]
    Reference {
        /// What was given.
        given: String,
        /// The rule that it breaks.
        why: &'static str,
    },
}
