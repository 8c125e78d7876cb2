//! Writes a captured tree into a separate folder outside the workspace.

use crate::copy::split;
use crate::error::WorkspaceError;
use crate::stage::{self, StageWriter, Times};
use crate::threads;
use rustix::fd::OwnedFd;
use safepoint_model::progress::Activity;
use safepoint_model::tree::Entry;
use safepoint_model::{ObjectSource, Progress, RelPath};
use std::path::Path;

/// Writes everything below a directory entry into a new folder. Each object is verified. A failed write is
/// deleted; a complete one is not synced.
///
/// # Errors
/// Fails if `to` exists, an object is missing or damaged, an entry cannot be written, or the run is
/// interrupted.
pub fn write_tree(
    source: &dyn ObjectSource,
    root: &Entry,
    to: &Path,
    times: Times,
    progress: &dyn Progress,
) -> Result<(), WorkspaceError> {
    let failed = |source| WorkspaceError::MakeCopy { path: to.to_owned(), source };
    let (above, name) = split(to).map_err(failed)?;
    if crate::linux::facts_if_any(&above, name).map_err(failed)?.is_some() {
        return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
    }
    write_below(source, root, (&above, name), times, progress)
}

/// Writes the tree under an unused name in an open folder.
pub(crate) fn write_below(
    source: &dyn ObjectSource,
    root: &Entry,
    (above, name): (&OwnedFd, &[u8]),
    times: Times,
    progress: &dyn Progress,
) -> Result<(), WorkspaceError> {
    progress.begin(Activity::Copying, None);
    let result = threads::run(|| {
        let writer = StageWriter::new(source, times, progress);
        let written = writer.entry(above, name, &RelPath::root(), root);
        if written.is_err() {
            // The first error matters more than an error of the clean-up.
            let _ = stage::remove_tree(above, name);
        }
        written
    });
    progress.end();
    result
}
