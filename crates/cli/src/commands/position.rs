//! The position after a rollback of chosen paths or parts: the safety checkpoint before it, because no other checkpoint is as near.
//!
//! People see that in words; without them `status` would compare with a checkpoint that they never took.

use crate::commands::naming::Naming;
use crate::render::terminal::printable;
use safepoint::model::checkpoint::PartKind;
use safepoint::model::rollback::{RollbackState, Verb};
use safepoint::model::{CheckpointId, RelPath, RollbackId};
use safepoint::{CheckpointManager, Workspace};
use serde::Serialize;

/// Number of paths that a sentence names.
const PATHS_NAMED: usize = 3;

/// A rollback of chosen paths or parts that led to the position.
#[derive(Debug, Serialize)]
pub(crate) struct PartialRollback {
    rollback: RollbackId,
    verb: Verb,
    to: CheckpointId,
    paths: Vec<RelPath>,
    parts: Vec<PartKind>,
}

impl PartialRollback {
    /// The last rollback, undo or redo of the workspace, if it was partial and the position is the state before it.
    pub(crate) fn last(manager: &CheckpointManager, workspace: &Workspace) -> Option<Self> {
        let head = workspace.head?;
        let records = manager.rollbacks(workspace).ok()?;
        let is_done = |state| matches!(state, RollbackState::Done | RollbackState::Settled);
        let last = records.into_iter().rev().find(|record| is_done(record.state))?;
        let is_partial = !last.paths.is_empty() || !last.parts.is_empty();
        (is_partial && last.safety_checkpoint == Some(head)).then_some(Self {
            rollback: last.id,
            verb: last.verb,
            to: last.to,
            paths: last.paths,
            parts: last.parts,
        })
    }

    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    /// Predicate about it: what it restored, and from where.
    pub(crate) fn restored(&self, naming: Naming, typed: &dyn Fn(&RelPath) -> String) -> String {
        let mut named: Vec<String> =
            self.paths.iter().take(PATHS_NAMED).map(|path| printable(&typed(path))).collect();
        if self.paths.is_empty() {
            named = self.parts.iter().map(|part| format!("the part {part}")).collect();
        }
        if self.paths.len() > PATHS_NAMED {
            named.push(format!("{} more", self.paths.len() - PATHS_NAMED));
        }
        format!("restored only {} from {}", named.join(", "), naming.id(self.to))
    }
}
