//! Error: the attempt, its object and its cause.

use std::error::Error;
use std::fmt;

/// Result of this program.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Failed attempt.
#[derive(Debug)]
pub(crate) struct Failure {
    tried: String,
    why: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// Creates a failure without a cause.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { tried: what.into(), why: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Some(why) => write!(f, "{}: {why}", self.tried),
            None => f.write_str(&self.tried),
        }
    }
}

impl Error for Failure {}

/// Adds context to errors.
pub(crate) trait Tried<T> {
    /// Turns the error into "`what`: the error".
    fn tried(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Tried<T> for std::result::Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|why| Failure { tried: what(), why: Some(why.into()) })
    }
}
