//! How long work tells what it is doing, and how it is told to stop.

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Reading the workspace.
    Scanning,
    /// Writing new content beside the workspace.
    Staging,
    /// Reading back what was written.
    Verifying,
    /// Checking displaced files before they are deleted.
    Settling,
    /// Checking the store.
    Checking,
    /// Freeing the space of what nobody needs.
    Collecting,
    /// Copying the workspace into a folder of its own.
    Copying,
}

/// Somebody who wants to know. Called from many threads.
pub trait Progress: Sync {
    /// Something begins; `total` is how many entries it will be, where that is known.
    fn begin(&self, _activity: Activity, _total: Option<u64>) {}
    /// That many entries and bytes more are done.
    fn advance(&self, _entries: u64, _bytes: u64) {}
    /// It is over.
    fn end(&self) {}
    /// Whether to stop at the next point at which nothing has changed yet.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Nobody wants to know.
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
