//! Part: a unit of capture and rollback. Files, git, plans, sessions and agents are parts; other programs can
//! add more.
//!
//! A checkpoint calls [`Part::capture`] of every part. A rollback calls the same steps of each part in order:
//! prepare, stage, intend, apply, then publish or undo, and finally settle and clear. After a crash,
//! [`Part::resume`] continues from the record. A new kind of part changes neither checkpoints nor rollbacks.

use crate::home::PendingCache;
use crate::parts::git::GitMoved;
use crate::parts::session::SessionBack;
use crate::parts::thread::ThreadBack;
use crate::{Error, Warning};
use safepoint_catalog::{PartNote, Transaction};
use safepoint_model::checkpoint::{Checkpoint, PartKind, Totals};
use safepoint_model::coverage::Coverage;
use safepoint_model::plan::state::TakenBack;
use safepoint_model::rollback::{ChangedPath, SwapStep};
use safepoint_model::{ObjectId, Progress, RelPath, RollbackId};
use safepoint_store::Writer;
use safepoint_workspace::{Blocked, Ended, Finding, LostAccess};

/// Result of a capture.
#[derive(Default)]
pub struct Captured {
    /// Document in the writer that describes the part, or `None` if there is nothing to keep.
    pub document: Option<ObjectId>,
    /// Number of files and bytes, if any.
    pub totals: Totals,
    /// Omitted entries.
    pub coverage: Coverage,
    /// Warnings of the validation.
    pub warnings: Vec<String>,
    /// Next cache, to be kept once everything is durable.
    pub cache: Option<PendingCache>,
}

impl Captured {
    /// Returns a result with a document only.
    pub fn document(document: ObjectId) -> Self {
        Self { document: Some(document), ..Self::default() }
    }
}

/// Changes of a part's rollback to the files of a workspace, done or planned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outline {
    /// Restored files and links.
    pub restored: u64,
    /// Removed files and links.
    pub removed: u64,
    /// All changed paths.
    pub paths: Vec<ChangedPath>,
    /// Paths of the checkpoint that cannot be restored now and stay unchanged.
    pub blocked: Vec<Blocked>,
    /// Access rights that cannot be restored.
    pub lost: Vec<LostAccess>,
}

impl Outline {
    pub(crate) fn join(&mut self, other: &Outline) {
        self.restored += other.restored;
        self.removed += other.removed;
        self.paths.extend(other.paths.iter().cloned());
        self.blocked.extend(other.blocked.iter().cloned());
        self.lost.extend(other.lost.iter().cloned());
    }
}

/// Restored state other than files.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PutBack {
    /// Branch, HEAD and index of a repository, or its whole folder.
    Git(GitMoved),
    /// Plan.
    Plan {
        /// Plan id.
        id: String,
        /// Undone progress.
        taken_back: TakenBack,
    },
    /// Session, if it changed.
    Session(SessionBack),
    /// Thread, if its heads move.
    Thread(ThreadBack),
    /// Agent.
    Agent(String),
    /// Part of another program.
    Outside {
        /// Kind.
        kind: PartKind,
        /// Key within the kind.
        key: String,
    },
}

/// State of one part after a crash.
#[derive(Debug, Clone)]
pub struct Left {
    /// Rollback of the part.
    pub rollback: RollbackId,
    /// The steps on record. They are those of the files.
    pub steps: Vec<SwapStep>,
    /// Result of [`Prepared::note`]. Empty for parts without one.
    pub note: Vec<u8>,
}

/// Unit of capture and rollback.
pub trait Part: Send + Sync {
    /// Returns the kind.
    fn kind(&self) -> PartKind;

    /// Key within the kind.
    fn key(&self) -> String;

    /// Captures the current state into the writer. `target` is the target document of a rollback, if any.
    ///
    /// # Errors
    /// Fails if it cannot be read or stored.
    fn capture(
        &self,
        writer: &Writer<'_>,
        target: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<Captured, Error>;

    /// Adds facts about the part to the checkpoint's description.
    fn describe(&self, _checkpoint: &mut Checkpoint) {}

    /// Writes rows of the part in the transaction that commits a checkpoint.
    ///
    /// # Errors
    /// Fails if the part has changed since the capture; no checkpoint is created then.
    fn commit(&self, _transaction: &Transaction<'_>, _checkpoint: &Checkpoint) -> Result<(), Error> {
        Ok(())
    }

    /// Plans the way from the captured state to the target. Changes nothing.
    ///
    /// # Errors
    /// Fails if the rollback is impossible, with the reasons.
    fn prepare<'p>(
        &'p self,
        now: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error>;

    /// Continues a rollback after a crash.
    ///
    /// # Errors
    /// Fails if the leftovers cannot be opened.
    fn resume<'p>(&'p self, left: Left) -> Result<Box<dyn Prepared + 'p>, Error>;
}

/// Data of a part kept with the intent of a rollback, for crash recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Name of the part's program, reported if its code is missing.
    pub program: String,
    /// Data needed to restore the old state.
    pub bytes: Vec<u8>,
}

/// Rollback of one part in progress. Each default does nothing.
pub trait Prepared {
    /// Changes to the files of a workspace.
    fn outline(&self) -> Option<&Outline> {
        None
    }

    /// Restored state other than files.
    fn put_back(&self) -> Option<PutBack> {
        None
    }

    /// The steps that have to be on record before anything changes. Only files have them.
    fn steps(&self) -> &[SwapStep] {
        &[]
    }

    /// Gives its steps away, to a part of the same folder whose stage takes them along.
    #[doc(hidden)]
    fn give_steps(&mut self) -> Vec<SwapStep> {
        Vec::new()
    }

    /// Takes the steps of another part of the same folder along: a rollback has one stage in each folder.
    #[doc(hidden)]
    fn take_steps(&mut self, _steps: Vec<SwapStep>) {}

    /// Additional data to record before any change.
    fn note(&self) -> Option<Note> {
        None
    }

    /// Returns that data with its part.
    #[doc(hidden)]
    fn part_note(&self) -> Option<PartNote> {
        None
    }

    /// Writes the new state durably beside the old.
    ///
    /// # Errors
    /// On failure, nothing has changed.
    fn stage(&mut self, _rollback: RollbackId, _progress: &dyn Progress) -> Result<(), Error> {
        Ok(())
    }

    /// Checks for changes since the preparation, in the transaction that records the intent.
    ///
    /// # Errors
    /// Fails if no longer possible; nothing has changed then.
    fn intend(&self, _transaction: &Transaction<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Replaces the old state durably and verifies the new one. Returns the paths that other processes
    /// changed.
    ///
    /// # Errors
    /// On failure, a part may be done: [`Prepared::undo`] follows.
    fn apply(&mut self, _progress: &dyn Progress) -> Result<Vec<RelPath>, Error> {
        Ok(Vec::new())
    }

    /// Writes catalog rows in the transaction that commits everything.
    ///
    /// # Errors
    /// Fails if the catalog refuses.
    fn publish(&self, _transaction: &Transaction<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Restores the old state from any progress; safe to repeat. Returns messages about data that could not
    /// be restored.
    ///
    /// # Errors
    /// When a path cannot be restored; the call can be repeated.
    fn undo(&mut self) -> Result<Vec<Warning>, Error> {
        Ok(Vec::new())
    }

    /// Checks the displaced files.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    fn settle(
        &mut self,
        _ended: Ended,
        _writer: &Writer<'_>,
        _progress: &dyn Progress,
    ) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Deletes settled files once the findings are recorded. Returns true if none are left.
    ///
    /// # Errors
    /// Fails if a file cannot be deleted; a retry is safe.
    fn clear(&mut self) -> Result<bool, Error> {
        Ok(true)
    }
}
