//! A part: one thing that can be captured and put back. Files are one; plans, agents, sessions and databases join by the same door.
//!
//! The protocol (see `restore.rs`) asks every part the same questions in the same order, so a new kind of part does not touch it:
//! capture; then for a rollback prepare, stage, apply, and either publish or undo; then settle.

use crate::Error;
use crate::home::PendingCache;
use safepoint_catalog::Transaction;
use safepoint_model::change::Absent;
use safepoint_model::checkpoint::{PartKind, PartRecord, Totals};
use safepoint_model::coverage::Coverage;
use safepoint_model::rollback::{ChangedPath, Step};
use safepoint_model::{ObjectId, Progress, RelPath, RollbackId};
use safepoint_store::Writer;
use safepoint_workspace::{Blocked, Ended, Finding};

/// What a capture gave.
pub struct Captured {
    /// The document that describes it, in the writer.
    pub document: ObjectId,
    /// What it holds.
    pub totals: Totals,
    /// What it left out.
    pub coverage: Coverage,
    /// What validation had to say.
    pub warnings: Vec<String>,
    /// The next cache, to be kept once everything is durable.
    pub cache: Option<PendingCache>,
}

/// What a rollback of a part would do, or did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outline {
    /// Files and links that are put back or made.
    pub restored: u64,
    /// Files and links that are taken away.
    pub removed: u64,
    /// Every path that changes.
    pub paths: Vec<ChangedPath>,
    /// Paths of the checkpoint that cannot be put back now and stay as they are.
    pub blocked: Vec<Blocked>,
    /// What cannot be put back, for people.
    pub warnings: Vec<String>,
}

/// What of a part is to be put back.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// Only these paths; everything where there are none.
    pub paths: &'a [RelPath],
    /// What a path means that is in neither state.
    pub absent: Absent,
}

/// One thing that can be captured and put back.
pub trait Part {
    /// What kind of thing it is.
    fn kind(&self) -> PartKind;

    /// Which one of its kind.
    fn key(&self) -> String;

    /// Takes the present into the writer. `target` is the state that a rollback is about to go to, if one is.
    ///
    /// # Errors
    /// When the present cannot be read or kept.
    fn capture(
        &self,
        writer: &Writer<'_>,
        target: Option<&PartRecord>,
        progress: &dyn Progress,
    ) -> Result<Captured, Error>;

    /// Works out how to get from one captured state to another. Nothing changes yet.
    ///
    /// # Errors
    /// When it cannot be done: the reasons are in the error.
    fn prepare<'p>(
        &'p self,
        now: ObjectId,
        target: ObjectId,
        chosen: Chosen<'_>,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error>;

    /// Takes up a rollback that a crash left, from the steps on record.
    ///
    /// # Errors
    /// When what it left cannot be opened.
    fn resume<'p>(&'p self, id: RollbackId, steps: Vec<Step>) -> Result<Box<dyn Prepared + 'p>, Error>;
}

/// A rollback of one part, on its way.
pub trait Prepared {
    /// What it will do.
    fn outline(&self) -> &Outline;

    /// What has to be on record before anything changes.
    fn steps(&self) -> &[Step];

    /// Writes what is new beside the old, durable.
    ///
    /// # Errors
    /// Nothing has changed then.
    fn stage(&mut self, id: RollbackId, progress: &dyn Progress) -> Result<(), Error>;

    /// Checks, in the transaction that puts the intent on record, what may have changed since it was prepared.
    ///
    /// # Errors
    /// When it cannot be done any more: nothing has changed then.
    fn intend(&self, _transaction: &Transaction<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Puts the new in place of the old, makes it durable and reads it back. Tells what somebody changed meanwhile.
    ///
    /// # Errors
    /// Some of it may be done then: [`Prepared::undo`] comes next.
    fn apply(&mut self, progress: &dyn Progress) -> Result<Vec<RelPath>, Error>;

    /// Whatever of it lives in the catalog, in the transaction that commits everything.
    ///
    /// # Errors
    /// When the catalog says no.
    fn publish(&self, transaction: &Transaction<'_>) -> Result<(), Error>;

    /// Puts the old back, whatever was done.
    ///
    /// # Errors
    /// When something cannot be put back; it can be tried again.
    fn undo(&mut self) -> Result<(), Error>;

    /// Looks at what was displaced.
    ///
    /// # Errors
    /// When it cannot be looked at.
    fn settle(
        &mut self,
        ended: Ended,
        writer: &Writer<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<Finding>, Error>;

    /// Deletes what settling allowed, once its findings are on record. Says whether nothing is left.
    ///
    /// # Errors
    /// When something cannot be deleted; it can be tried again.
    fn clear(&mut self) -> Result<bool, Error>;
}
