//! Rollback of the files of a plan whose sandbox is an overlay: a new layer, exchanged with the old one by one rename.
//!
//! The steps are those of every rollback of files. They are not applied to a folder, because it exists only while a command
//! runs; the layer that shows them is written beside the current one. Room and processes: `plans/room.rs`.

use crate::Error;
use crate::Warning;
use crate::parts::files::FilesPart;
use crate::parts::part::{Outline, Prepared};
use crate::plans::room::PlanRoom;
use safepoint_model::files::FilesDocument;
use safepoint_model::rollback::SwapStep;
use safepoint_model::{ObjectId, Progress, RelPath, RollbackId};
use safepoint_workspace::{LayerRollback, Root};

/// Rollback of a layer in progress.
pub(crate) struct LayerBack<'p> {
    part: &'p FilesPart<'p>,
    room: PlanRoom,
    steps: Vec<SwapStep>,
    outline: Outline,
    /// Tree of the current state.
    now: Option<ObjectId>,
    /// Set once a layer is, or may be, staged.
    staged: Option<RollbackId>,
}

impl<'p> LayerBack<'p> {
    pub(crate) fn new(
        part: &'p FilesPart<'p>,
        room: PlanRoom,
        (steps, outline): (Vec<SwapStep>, Outline),
        now: Option<ObjectId>,
    ) -> Self {
        Self { part, room, steps, outline, now, staged: None }
    }

    /// Continues after a crash.
    pub(crate) fn left(part: &'p FilesPart<'p>, room: PlanRoom, rollback: RollbackId) -> Self {
        let (steps, outline) = (Vec::new(), Outline::default());
        Self { part, room, steps, outline, now: None, staged: Some(rollback) }
    }
}

impl Prepared for LayerBack<'_> {
    fn outline(&self) -> Option<&Outline> {
        Some(&self.outline)
    }

    fn stage(&mut self, id: RollbackId, progress: &dyn Progress) -> Result<(), Error> {
        let manager = self.part.manager;
        if self.steps.is_empty() {
            return Ok(());
        }
        let base =
            FilesDocument::load(&manager.store, manager.files_of_checkpoint(self.room.attempt.base)?)?.tree();
        let (Some(base), Some(now)) = (base, self.now) else {
            return Err(Error::NoFiles { checkpoint: self.room.attempt.base });
        };
        let project = Root::open(self.room.project.root_path())?;
        let wanted =
            LayerRollback { project: &project, base, now, steps: &self.steps, times: self.part.times };
        self.staged = Some(id);
        Ok(self.room.folder.stage_layer(id, &wanted, &manager.store, progress)?)
    }

    fn apply(&mut self, _: &dyn Progress) -> Result<Vec<RelPath>, Error> {
        if let Some(id) = self.staged {
            self.room.folder.exchange_layer(id)?;
        }
        Ok(Vec::new())
    }

    fn undo(&mut self) -> Result<Vec<Warning>, Error> {
        if let Some(id) = self.staged {
            self.room.folder.restore_layer(id)?;
        }
        Ok(Vec::new())
    }

    fn clear(&mut self) -> Result<bool, Error> {
        if let Some(id) = self.staged {
            self.room.folder.drop_staged_layer(id)?;
        }
        Ok(true)
    }
}
