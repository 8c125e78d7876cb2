//! Writes a captured tree into a folder of its own, beside the workspace: to be looked at, tried or given away.

use crate::copy::split;
use crate::error::WorkspaceError;
use crate::stage::{self, StageWriter, Times};
use crate::threads;
use rustix::fd::OwnedFd;
use safepoint_model::progress::Activity;
use safepoint_model::tree::Entry;
use safepoint_model::{ObjectSource, Progress, RelPath};
use std::path::Path;

/// Writes everything below a directory's entry into a new folder. Each object is checked. It is complete or it is gone again; it is not
/// made durable.
///
/// # Errors
/// When something is at `to` already, an object is missing or damaged, something cannot be written, or somebody interrupts.
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

/// The same under a name in a folder that is open, where nothing is.
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
            // What is wrong with it is worth more than what may be wrong with its end.
            let _ = stage::remove_tree(above, name);
        }
        written
    });
    progress.end();
    result
}
