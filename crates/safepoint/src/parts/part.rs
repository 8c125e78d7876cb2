//! A part: one thing that can be captured and put back. Files, git, plans, sessions and agents are parts; a program of your own can add more.
//!
//! A checkpoint asks every part to [`Part::capture`] itself. A rollback asks each part that goes back the same questions in the same order:
//! prepare, stage, intend, apply, and then either publish or undo; at the end settle and clear. After a crash, [`Part::resume`] takes up
//! what is on record. So a new kind of part changes neither the checkpoint nor the rollback.

use crate::home::PendingCache;
use crate::parts::git::GitMoved;
use crate::parts::session::SessionBack;
use crate::{Error, Warning};
use safepoint_catalog::{PartNote, Transaction};
use safepoint_model::checkpoint::{Checkpoint, PartKind, Totals};
use safepoint_model::coverage::Coverage;
use safepoint_model::plan::state::TakenBack;
use safepoint_model::rollback::{ChangedPath, SwapStep};
use safepoint_model::{ObjectId, Progress, RelPath, RollbackId};
use safepoint_store::Writer;
use safepoint_workspace::{Blocked, Ended, Finding, LostAccess};

/// What a capture gave.
#[derive(Default)]
pub struct Captured {
    /// The document that describes it, in the writer. Nothing where there is nothing to keep.
    pub document: Option<ObjectId>,
    /// How many files and bytes it holds, where it holds any.
    pub totals: Totals,
    /// What it left out.
    pub coverage: Coverage,
    /// What validation had to say.
    pub warnings: Vec<String>,
    /// The next cache, to be kept once everything is durable.
    pub cache: Option<PendingCache>,
}

impl Captured {
    /// A document, and nothing to say about it.
    pub fn document(document: ObjectId) -> Self {
        Self { document: Some(document), ..Self::default() }
    }
}

/// What a rollback of a part changes, or would change, in the files of a workspace.
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

/// What a rollback put back besides files.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PutBack {
    /// Branch, HEAD and index of a repository, or all of its folder.
    Git(GitMoved),
    /// A plan.
    Plan {
        /// Which.
        id: String,
        /// What of it was taken back.
        taken_back: TakenBack,
    },
    /// A session, where that made a difference.
    Session(SessionBack),
    /// An agent.
    Agent(String),
    /// A part that another program brought.
    Outside {
        /// Its kind.
        kind: PartKind,
        /// Which one of its kind.
        key: String,
    },
}

/// What a crash left of one part.
#[derive(Debug, Clone)]
pub struct Left {
    /// The rollback that it belongs to.
    pub rollback: RollbackId,
    /// The steps on record. They are those of the files.
    pub steps: Vec<SwapStep>,
    /// What [`Prepared::note`] gave. Nothing for parts that give none.
    pub note: Vec<u8>,
}

/// One thing that can be captured and put back.
pub trait Part: Send + Sync {
    /// What kind of thing it is.
    fn kind(&self) -> PartKind;

    /// Which one of its kind.
    fn key(&self) -> String;

    /// Takes the present into the writer. `target` is the document that a rollback is about to go to, if one is.
    ///
    /// # Errors
    /// When the present cannot be read or kept.
    fn capture(
        &self,
        writer: &Writer<'_>,
        target: Option<ObjectId>,
        progress: &dyn Progress,
    ) -> Result<Captured, Error>;

    /// Fills in what a checkpoint says about itself because this part is in it.
    fn describe(&self, _checkpoint: &mut Checkpoint) {}

    /// Writes what belongs to the part into the transaction that puts a checkpoint on record.
    ///
    /// # Errors
    /// When the part is not any more what was captured: there is no checkpoint then.
    fn commit(&self, _transaction: &Transaction<'_>, _checkpoint: &Checkpoint) -> Result<(), Error> {
        Ok(())
    }

    /// Works out how to get from what was captured to the target. Nothing changes yet.
    ///
    /// # Errors
    /// When it cannot be done: the reasons are in the error.
    fn prepare<'p>(
        &'p self,
        now: Option<ObjectId>,
        target: ObjectId,
        writer: &Writer<'_>,
    ) -> Result<Box<dyn Prepared + 'p>, Error>;

    /// Takes up a rollback that a crash left.
    ///
    /// # Errors
    /// When what it left cannot be opened.
    fn resume<'p>(&'p self, left: Left) -> Result<Box<dyn Prepared + 'p>, Error>;
}

/// What is kept of a part with the intent of a rollback, so that a crash can be mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The program that the part belongs to, as people know it. It is named where its code is missing.
    pub program: String,
    /// What the part needs to put the old state back.
    pub bytes: Vec<u8>,
}

/// A rollback of one part, on its way. What a part has nothing to do for is left to the default.
pub trait Prepared {
    /// What it changes in the files of a workspace.
    fn outline(&self) -> Option<&Outline> {
        None
    }

    /// What it puts back besides files.
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

    /// What else has to be on record before anything changes.
    fn note(&self) -> Option<Note> {
        None
    }

    /// The same, with the part that it is about.
    #[doc(hidden)]
    fn part_note(&self) -> Option<PartNote> {
        None
    }

    /// Writes what is new beside the old, durable.
    ///
    /// # Errors
    /// Nothing has changed then.
    fn stage(&mut self, _rollback: RollbackId, _progress: &dyn Progress) -> Result<(), Error> {
        Ok(())
    }

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
    fn apply(&mut self, _progress: &dyn Progress) -> Result<Vec<RelPath>, Error> {
        Ok(Vec::new())
    }

    /// Whatever of it lives in the catalog, in the transaction that commits everything.
    ///
    /// # Errors
    /// When the catalog says no.
    fn publish(&self, _transaction: &Transaction<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Puts the old back, whatever was done. May be asked more than once. Tells what could not be, and why, in words.
    ///
    /// # Errors
    /// When something cannot be put back; it can be tried again.
    fn undo(&mut self) -> Result<Vec<Warning>, Error> {
        Ok(Vec::new())
    }

    /// Looks at what was displaced.
    ///
    /// # Errors
    /// When it cannot be looked at.
    fn settle(
        &mut self,
        _ended: Ended,
        _writer: &Writer<'_>,
        _progress: &dyn Progress,
    ) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Deletes what settling allowed, once its findings are on record. Says whether nothing is left.
    ///
    /// # Errors
    /// When something cannot be deleted; it can be tried again.
    fn clear(&mut self) -> Result<bool, Error> {
        Ok(true)
    }
}
