//! Pages of the timeline, and the history of events.

use crate::handles::{Checkpoints, Turns};
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Bucket, Event, Page, Placed, TurnAt, Workspace};
use safepoint_model::CheckpointId;
use safepoint_model::turn::Turn;
use std::collections::HashMap;

/// Reason why a checkpoint counts as the last good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GoodReason {
    /// Tests passed, and none failed.
    TestsPassing,
    /// A plan was healthy.
    Clean,
    /// It is pinned.
    Pinned,
    /// It is the position of the workspace.
    Position,
}

impl CheckpointManager {
    /// Events after this number, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn events(&self, after: u64, limit: u64) -> Result<Vec<Event>, Error> {
        Ok(self.catalog.events(after, limit)?)
    }

    /// Number of the last event; 0 before the first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_event(&self) -> Result<u64, Error> {
        Ok(self.catalog.last_event()?)
    }
}

impl Checkpoints<'_> {
    /// Page of checkpoints, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn page(&self, page: &Page) -> Result<Vec<Placed>, Error> {
        Ok(self.manager.catalog.page(page)?)
    }

    /// Number of checkpoints that a page is a part of.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn page_total(&self, page: &Page) -> Result<u64, Error> {
        Ok(self.manager.catalog.page_total(page)?)
    }

    /// Place of a checkpoint in commit order.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`]; and when the catalog cannot be read.
    pub fn place(&self, id: CheckpointId) -> Result<u64, Error> {
        let place = self.manager.catalog.place(id)?;
        place.ok_or_else(|| Error::NoCheckpoint { reference: id.to_string() })
    }

    /// The whole timeline in this number of buckets, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn strip(&self, workspace: &Workspace, buckets: u64) -> Result<Vec<Bucket>, Error> {
        Ok(self.manager.catalog.strip(workspace.id, buckets)?)
    }

    /// Newest checkpoint with passing tests and no failing one; otherwise the newest of a plan while it was healthy;
    /// otherwise the newest pinned one; otherwise the position of the workspace.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_good(&self, workspace: &Workspace) -> Result<Option<(CheckpointId, GoodReason)>, Error> {
        let catalog = &self.manager.catalog;
        if let Some(id) = catalog.newest_passing(workspace.id)? {
            return Ok(Some((id, GoodReason::TestsPassing)));
        }
        let mut plans = self.manager.plans().list(Some(workspace))?;
        plans.sort_by_key(|plan| std::cmp::Reverse(plan.updated_at));
        for plan in plans {
            let held = self.manager.plans().checkpoints(&plan.id)?;
            if let Some(clean) = held.iter().find(|held| held.healthy) {
                return Ok(Some((clean.checkpoint, GoodReason::Clean)));
            }
        }
        if let Some(id) = catalog.newest_pinned(workspace.id)? {
            return Ok(Some((id, GoodReason::Pinned)));
        }
        Ok(self.manager.workspaces().get(workspace.id)?.head.map(|head| (head, GoodReason::Position)))
    }
}

impl Turns<'_> {
    /// Turns that begin or end at these checkpoints. An end comes before a beginning.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn at(
        &self,
        workspace: &Workspace,
        ids: &[CheckpointId],
    ) -> Result<HashMap<CheckpointId, TurnAt>, Error> {
        Ok(self.manager.catalog.turns_at(workspace.id, ids)?)
    }

    /// Turns with a number below this one, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn page(&self, workspace: &Workspace, before: Option<u64>, limit: u64) -> Result<Vec<Turn>, Error> {
        Ok(self.manager.catalog.turns_before(workspace.id, before, limit)?)
    }
}
