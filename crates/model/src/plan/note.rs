//! Notes on a plan: events that are on record beside its state.

use crate::ModelError;
use crate::checkpoint::word_type;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

word_type! {
    /// The kind of an event that is noted on a plan.
    PlanNoteKind, "kind of a note", {
        /// A step failed.
        Error = "error",
        /// An attempt of a step failed, and the step is tried again.
        Attempt = "attempt",
        /// An undo command of a step was run.
        Undone = "undone",
        /// The plan was applied.
        Applied = "applied",
        /// A rollback undid decisions.
        Superseded = "superseded",
        /// A rollback undid subplans.
        Invalidated = "invalidated",
        /// A rollback restored the state and the files of the plan.
        RolledBack = "rolled_back",
        /// A rollback restored the files of the plan without its state.
        FilesRolledBack = "files_rolled_back",
        /// A step of the plan rolled back its files.
        FilesRolledBackByStep = "files_rolled_back_by_step",
        /// An undo restored the files that a rollback had changed without the plan.
        FilesReturned = "files_returned",
        /// The plan was corrected.
        Correction = "correction",
        /// A correction was refused.
        CorrectionRefused = "correction_refused",
    }
}
