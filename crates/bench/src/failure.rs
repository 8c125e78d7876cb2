//! What went wrong: what was tried, on what, and why it failed.

use std::error::Error;
use std::fmt;

/// A result of this program.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// An attempt that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    tried: String,
    why: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure that has no other behind it.
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

/// Says what was tried.
pub(crate) trait Tried<T> {
    /// The error becomes "`what`: the error".
    fn tried(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Tried<T> for std::result::Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|why| Failure { tried: what(), why: Some(why.into()) })
    }
}
