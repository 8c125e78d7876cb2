//! Upkeep of a remote: policy, garbage, orphans, quota, and a check. Run by cron; no server.
//!
//! Deletion of bytes is the last step, long after a pack was condemned for good. Time decides how late, never
//! whether: a pack is condemned only if no row lists it, under the exclusive lock of the project. A kill at
//! any point loses nothing; the next run goes on.

use crate::document::PackInfo;
use crate::name::PackName;
use crate::records::RemoteCheckpoint;
use crate::remote::Remote;
use crate::{Fence, RemoteError};
use safepoint_model::Progress;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Packs that are deleted between two notes in the records.
const BATCH: u32 = 500;

/// Options of an upkeep.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UpkeepOptions {
    /// Time between the condemnation of a pack and its deletion: longer than the age of the oldest backup of
    /// the records that might be restored.
    pub grace: Duration,
    /// Time without a sign of its writer after which a token is superseded.
    pub silent: Duration,
    /// Time after a takeover in which uploads of the earlier writer are searched for in each run.
    pub late: Duration,
}

impl Default for UpkeepOptions {
    fn default() -> Self {
        Self { grace: 7 * DAY, silent: 7 * DAY, late: 7 * DAY }
    }
}

/// Result of an upkeep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpkeepReport {
    /// Deleted checkpoints.
    pub checkpoints: u64,
    /// Condemned packs.
    pub condemned: u64,
    /// Uploads that were never published, now condemned.
    pub orphans: u64,
    /// Deleted packs.
    pub deleted: u64,
    /// Bytes of the live packs.
    pub live_bytes: u64,
    /// Checkpoint that was cloned, and the damage that was found.
    pub checked: Option<(RemoteCheckpointId, Option<String>)>,
}

/// Identity of a published checkpoint.
pub type RemoteCheckpointId = (safepoint_model::LineId, u64, u32);

/// Clones a checkpoint into an empty place, and returns the damage as text.
pub type CloneCheck<'a> = &'a mut dyn FnMut(&RemoteCheckpoint) -> Result<(), String>;

impl Remote {
    /// Runs all steps of upkeep. `check` clones one random checkpoint.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses; completed steps stay.
    pub fn upkeep(
        &self,
        options: &UpkeepOptions,
        check: CloneCheck<'_>,
        progress: &dyn Progress,
    ) -> Result<UpkeepReport, RemoteError> {
        let stop = || if progress.interrupted() { Err(RemoteError::Interrupted) } else { Ok(()) };
        let records = &*self.records;
        let mut report = UpkeepReport { checkpoints: records.delete_by_policy()?, ..UpkeepReport::default() };
        stop()?;
        let candidates = records.candidates()?;
        if !candidates.is_empty() {
            report.condemned = records.condemn(&candidates)?;
        }
        stop()?;
        for fence in records.superseded(options.silent)? {
            report.orphans += self.sweep(fence, options.late)?;
            stop()?;
        }
        report.deleted = self.delete_due(options.grace, progress)?;
        report.live_bytes = records.measure()?;
        if let Some(found) = records.random_checkpoint()? {
            let found = self.opened(found)?;
            let id = (found.line, found.seq, found.n);
            let mut damage = check(&found).err();
            // It may have been deleted by its owner while it was cloned.
            if damage.is_some() && records.checkpoint(found.id)?.is_none() {
                damage = None;
            }
            report.checked = Some((id, damage));
        }
        Ok(report)
    }

    /// Condemns the uploads under a superseded token that no row names.
    fn sweep(&self, fence: Fence, late: Duration) -> Result<u64, RemoteError> {
        let prefix = PackName::prefix(&self.project, fence);
        let listed = self.bytes.list(&prefix)?;
        let found: Vec<PackInfo> = listed
            .iter()
            .filter_map(|object| {
                Some(PackInfo { name: object.name.parse().ok()?, bytes: object.bytes, objects: 0 })
            })
            .collect();
        self.records.note_orphans(fence, &found, late)
    }

    /// Deletes packs that were condemned long enough ago, and returns their number.
    fn delete_due(&self, grace: Duration, progress: &dyn Progress) -> Result<u64, RemoteError> {
        let mut all = 0;
        loop {
            let due = self.records.due(grace, BATCH)?;
            if due.is_empty() {
                return Ok(all);
            }
            self.delete_packs(&due)?;
            all += due.len() as u64;
            if progress.interrupted() {
                return Err(RemoteError::Interrupted);
            }
        }
    }

    /// Deletes the bytes first: a kill in between repeats the deletion.
    fn delete_packs(&self, packs: &[PackName]) -> Result<(), RemoteError> {
        let names: Vec<String> = packs.iter().map(ToString::to_string).collect();
        self.bytes.delete(&names)?;
        self.records.note_gone(packs)
    }

    /// Deletes packs at once, without grace, after a purge: every checkpoint that listed them was replaced.
    /// A rebuild cannot return what they held.
    ///
    /// # Errors
    /// [`RemoteError::StillListed`] if a checkpoint lists any of them; then none is deleted.
    pub fn purge_packs(&self, packs: &[PackName]) -> Result<(), RemoteError> {
        self.records.condemn_now(packs)?;
        self.delete_packs(packs)
    }
}
