//! Progress reports and cancellation of long work.

use crate::{ObjectError, ObjectId, ObjectKind, ObjectSource};

/// Current activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Reading the workspace.
    Scanning,
    /// Writing new content beside the workspace.
    Staging,
    /// Reading back written content.
    Verifying,
    /// Checking displaced files before they are deleted.
    Settling,
    /// Checking the store.
    Checking,
    /// Collecting garbage.
    Collecting,
    /// Copying the workspace into a separate folder.
    Copying,
    /// Building packs for a remote, and uploading them.
    Uploading,
    /// Downloading packs from a remote.
    Downloading,
}

/// Receiver of progress reports. Called from many threads.
pub trait Progress: Sync {
    /// Starts an activity; `total` is its number of entries, if known.
    fn begin(&self, _activity: Activity, _total: Option<u64>) {}
    /// Adds bytes to the expected total of the activity. Called whenever more of them become known.
    fn expect(&self, _bytes: u64) {}
    /// Adds finished entries and bytes. The bytes of a large file are reported during its read or write.
    fn advance(&self, _entries: u64, _bytes: u64) {}
    /// Ends the activity.
    fn end(&self) {}
    /// Returns true to stop at the next point at which nothing has changed yet.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Ignores all reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}

/// Passes on reports, and never interrupts.
pub struct Unstoppable<'p>(pub &'p dyn Progress);

impl Progress for Unstoppable<'_> {
    fn begin(&self, activity: Activity, total: Option<u64>) {
        self.0.begin(activity, total);
    }

    fn expect(&self, bytes: u64) {
        self.0.expect(bytes);
    }

    fn advance(&self, entries: u64, bytes: u64) {
        self.0.advance(entries, bytes);
    }

    fn end(&self) {
        self.0.end();
    }
}

/// Source that reports the bytes of each chunk, and stops between two chunks when interrupted.
pub struct Counted<'a> {
    /// Source to read from.
    pub source: &'a dyn ObjectSource,
    /// Receiver of the reports.
    pub progress: &'a dyn Progress,
}

impl ObjectSource for Counted<'_> {
    fn get(&self, kind: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        if self.progress.interrupted() {
            return Err(ObjectError::Interrupted);
        }
        let bytes = self.source.get(kind, id)?;
        if kind == ObjectKind::Chunk {
            self.progress.advance(0, bytes.len() as u64);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_never_interrupts() {
        Silent.begin(Activity::Scanning, None);
        Silent.expect(1);
        Silent.advance(1, 1);
        Silent.end();
        assert!(!Silent.interrupted());
    }
}
