//! Progress reports and cancellation of long work.

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
}

/// Receiver of progress reports. Called from many threads.
pub trait Progress: Sync {
    /// Starts an activity; `total` is its number of entries, if known.
    fn begin(&self, _activity: Activity, _total: Option<u64>) {}
    /// Adds finished entries and bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_never_interrupts() {
        Silent.begin(Activity::Scanning, None);
        Silent.advance(1, 1);
        Silent.end();
        assert!(!Silent.interrupted());
    }
}
