//! CARE: upkeep and rebuild of a whole remote, for its owner.

use crate::Error;
use crate::handles::Remotes;
use safepoint_model::Progress;
use safepoint_model::progress::Silent;
use safepoint_remote::{
    PackEnd, PackSource, RebuildReport, Remote, RemoteError, UpkeepOptions, UpkeepReport,
};
use safepoint_store::PackTail;

impl Remotes<'_> {
    /// Deletes checkpoints by the policy of the project and packs that no checkpoint lists, and reads one random
    /// checkpoint whole.
    ///
    /// # Errors
    /// When the remote cannot be reached, or the role may not; completed steps stay.
    pub fn upkeep(
        &self,
        remote: &Remote,
        options: &UpkeepOptions,
        progress: &dyn Progress,
    ) -> Result<UpkeepReport, Error> {
        let report = remote.upkeep(
            options,
            &mut |found| self.check(remote, found, &Silent).map(drop).map_err(|error| error.to_string()),
            progress,
        )?;
        Ok(report)
    }

    /// Restores the records of a remote from its packs, and fences every writer once.
    ///
    /// # Errors
    /// When the remote cannot be reached, or the role may not. It may be repeated.
    pub fn rebuild(&self, remote: &Remote, progress: &dyn Progress) -> Result<RebuildReport, Error> {
        Ok(remote.rebuild(&read_end, &|| self.manager.home.scratch_file(), progress)?)
    }
}

/// Reads the last document of a pack.
fn read_end(source: &dyn PackSource) -> Result<PackEnd, RemoteError> {
    let damaged = |why: String| RemoteError::Damaged { what: "a pack".to_owned(), why };
    let tail = PackTail::open(source.bytes(), &|at, len| source.read_at(at, len))?;
    let tail = tail.map_err(|why| damaged(why.to_owned()))?;
    let document = match tail.last_document() {
        Some(object) => {
            let frame = source.read_at(object.at(), object.stored_len())?;
            Some(object.decode(&frame).map_err(|error| damaged(error.to_string()))?)
        }
        None => None,
    };
    Ok(PackEnd { objects: tail.objects().len() as u64, document })
}
