//! Candidates in an overlay: one room, whose layer shows one candidate after the other. The folder itself is only read.
//!
//! Each candidate gets a new layer and a namespace of its own, so that nothing of a check is left for the next one. The check finds the
//! project at its own path. Where no overlay can be had, there is a reason, and the candidates are tried in copies.

use super::{RunCheck, Scoped, Seat, Stand, TryIn};
use crate::attempts::rooms::{NewRoom, end_room};
use crate::config::Broken;
use crate::folders::within;
use crate::home::RoomDraft;
use crate::manager::Held;
use crate::parts::files::FilesPart;
use crate::places::Place;
use crate::rollback::RollbackOptions;
use crate::rollback::strategy::Verdict;
use crate::{CheckpointManager, Error};
use safepoint_model::attempt::AttemptKind;
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::coverage::{Skipped, Why};
use safepoint_model::id::AttemptId;
use safepoint_model::{Progress, RelPath};
use safepoint_workspace::{
    LayerState, Outside, RollbackPlan, RoomEntry, RoomFolder, RoomRefused, Root, Times, has_mounts_below,
    plan,
};
use std::path::PathBuf;

/// Room of a search.
pub(super) struct Overlay<'m> {
    manager: &'m CheckpointManager,
    place: Place,
    times: Times,
    id: AttemptId,
    room: RoomFolder,
    /// Sockets, FIFOs and devices: a check must not reach the programs behind them.
    special: Vec<Skipped>,
    /// While it is held, no other command deletes the room.
    _draft: RoomDraft,
}

impl<'m> Overlay<'m> {
    /// Makes a room. `None` if the search is about several folders or a part of one, or the machine allows no overlay of this one.
    pub(super) fn make(
        manager: &'m CheckpointManager,
        scope: &Scoped,
        options: &RollbackOptions,
        progress: &dyn Progress,
    ) -> Result<Option<Self>, Error> {
        let [place] = scope.places.as_slice() else { return Ok(None) };
        let root_path = place.workspace.root_path();
        let is_whole = place.only.is_none() && place.leave.is_empty() && place.workspace.id == scope.here.id;
        let can_enter = !manager.settings.room_helper.is_empty() && manager.inside.is_empty();
        if !is_whole || !can_enter || has_mounts_below(root_path) {
            return Ok(None);
        }
        let Held { root, .. } = manager.hold_recovered(&place.workspace, progress)?;
        if !manager.own_folders(&root).is_empty() {
            return Ok(None);
        }
        root.check_own_folder()?;
        let id = AttemptId::from_bits(manager.environment.new_id());
        let NewRoom { draft, folder, kind, .. } = manager.make_attempt_room(id, &root, false)?;
        if kind != Some(AttemptKind::Overlay) {
            manager.home.remove_room(&id.to_string())?;
            return Ok(None);
        }
        let place = place.clone();
        let overlay = Self {
            manager,
            place,
            times: options.times,
            id,
            room: folder,
            special: Vec::new(),
            _draft: draft,
        };
        overlay.look(&root, progress)
    }

    /// Finds what the room must not show. `None` if a program has a database open: only a copy holds it whole.
    fn look(mut self, root: &Root, progress: &dyn Progress) -> Result<Option<Self>, Error> {
        let config = self.manager.config_at(Some(root), Broken::PassedOver)?;
        let part = FilesPart::new(self.manager, root, &self.place.workspace, config.excludes);
        let scan = part.look(&self.manager.store.measurer(), None, progress)?;
        self.special = scan.snapshot.coverage.skipped;
        if self.special.iter().any(|skipped| skipped.why == Why::DatabaseSidecar) {
            return Ok(None);
        }
        self.special.retain(|skipped| skipped.why == Why::SpecialFile);
        Ok(Some(self))
    }

    /// Makes the layer show a state.
    fn show(&self, root: &Root, plan: Option<&RollbackPlan>, progress: &dyn Progress) -> Result<(), Error> {
        let hidden: Vec<RelPath> = self.special.iter().map(|skipped| skipped.path.clone()).collect();
        let state = LayerState { project: root, plan, hidden: &hidden, times: self.times };
        Ok(self.room.show(&state, &self.manager.store.measurer(), progress)?)
    }

    /// Runs the check in the room. Afterwards nothing of it runs any more.
    fn check(&self, check: RunCheck<'_>) -> Result<Verdict, Error> {
        let project = self.place.workspace.root_path();
        // A namespace of its own for each state: processes are found by this name.
        let name = AttemptId::from_bits(self.manager.environment.new_id()).to_string();
        let entry = RoomEntry {
            attempt: name.clone(),
            project: project.to_owned(),
            room: self.room.clone(),
            directory: project.to_owned(),
            outside: Outside::Real,
            command: Vec::new(),
        };
        let through = self.manager.room_words(&entry);
        let verdict = check(&Seat { directory: project, target: project, through: &through });
        end_room(&name);
        match self.room.take_refused() {
            Some(RoomRefused { step, source }) => {
                Err(Error::Room { name: "of the search".to_owned(), step, source })
            }
            None => verdict,
        }
    }
}

impl Stand for Overlay<'_> {
    fn current(&mut self, check: RunCheck<'_>, progress: &dyn Progress) -> Result<Verdict, Error> {
        let held = self.manager.hold_recovered(&self.place.workspace, progress)?;
        self.show(&held.root, None, progress)?;
        // Other commands may work on the project while the check runs.
        drop(held);
        self.check(check)
    }

    fn candidate(
        &mut self,
        to: &Checkpoint,
        check: RunCheck<'_>,
        progress: &dyn Progress,
    ) -> Result<Verdict, Error> {
        let manager = self.manager;
        {
            let held = manager.hold_recovered(&self.place.workspace, progress)?;
            let config = manager.config_at(Some(&held.root), Broken::PassedOver)?;
            let part = self.place.part(manager, &held, config.excludes);
            let measurer = manager.store.measurer();
            let target = manager.snapshot_of(&within(to, self.place.workspace.id))?;
            let now = part.scan_before(&measurer, target.tree(), progress)?.snapshot;
            let access = manager.access_of(to.id)?;
            let plan = plan(&held.root, &measurer, &now, (&target, access), &part.capabilities)?;
            self.show(&held.root, Some(&plan), progress)?;
        }
        self.check(check)
    }

    fn place(&self) -> TryIn {
        TryIn::Overlay
    }

    fn left_out(&self) -> Vec<(PathBuf, Skipped)> {
        let root = self.place.workspace.root_path();
        self.special.iter().map(|skipped| (root.to_owned(), skipped.clone())).collect()
    }

    fn finish(self: Box<Self>) -> Result<bool, Error> {
        Ok(false)
    }
}

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        // If that fails, the next command deletes it.
        let _ = self.manager.home.remove_room(&self.id.to_string());
    }
}
