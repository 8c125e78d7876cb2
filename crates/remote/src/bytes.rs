//! Bytes of a remote: immutable packs under names that are never reused.
//!
//! In: files. Out: the same bytes. An answered upload is durable; a repeated or late one changes nothing,
//! because the name covers the bytes. Every law is tested by one suite, `tests/remote/bytes.rs`, for every
//! server.

use crate::RemoteError;
use safepoint_model::Progress;
use std::fs::File;
use std::io::Write;
use std::ops::Range;

/// Length above which an upload is sent in parts, and length of a part.
pub const PART_BYTES: u64 = 8 * 1024 * 1024;

/// Object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Name, below the root of the remote.
    pub name: String,
    /// Length.
    pub bytes: u64,
}

/// Treatment of uploads over existing objects by a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionalPut {
    /// The server refuses them if asked to.
    Obeyed,
    /// The server ignores the condition. Safepoint does not rely on it.
    Ignored,
    /// The server refuses conditional requests.
    Unsupported,
}

/// Object store.
pub trait RemoteBytes: Send + Sync {
    /// Uploads a file; in parts if it is long. Uploading the same bytes again succeeds.
    ///
    /// # Errors
    /// When the upload was not answered. It may have arrived.
    fn put(&self, name: &str, file: &File, bytes: u64, progress: &dyn Progress) -> Result<(), RemoteError>;

    /// Returns a range of an object.
    ///
    /// # Errors
    /// [`RemoteError::NoPack`], or the server cannot be reached.
    fn get(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, RemoteError>;

    /// Writes a whole object to `out`, and returns its length.
    ///
    /// # Errors
    /// [`RemoteError::NoPack`], or the server cannot be reached, or `out` fails.
    fn download(&self, name: &str, out: &mut dyn Write, progress: &dyn Progress) -> Result<u64, RemoteError>;

    /// Returns all objects whose name begins with the prefix, which ends at a slash.
    ///
    /// # Errors
    /// When the server cannot be reached.
    fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, RemoteError>;

    /// Deletes objects; missing ones are skipped.
    ///
    /// # Errors
    /// When the server cannot be reached. Some may be deleted.
    fn delete(&self, names: &[String]) -> Result<(), RemoteError>;

    /// Writes, reads and deletes a small object below `probe/`, to find out about rights and conditions.
    ///
    /// # Errors
    /// When a request fails, or the bytes come back changed.
    fn probe(&self) -> Result<ConditionalPut, RemoteError>;
}
