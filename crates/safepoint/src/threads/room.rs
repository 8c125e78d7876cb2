//! ROOM: the space that saves may take under the cap. It is measured now and then, because a walk over the home at each
//! save would cost more than the save.

use crate::upkeep::cap_hit;
use crate::upkeep::capped::Refused;
use crate::{CheckpointManager, Error, Silent};
use safepoint_model::WorkspaceId;
use safepoint_store::StoreError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Part of the measured space after which it is measured again: other processes save, too.
const SPENT_PART: u64 = 16;
/// Time after which it is measured again.
const MEASURED_FOR: Duration = Duration::from_secs(5);
/// Time between two tries to make room for saves.
const TRIED_FOR: Duration = Duration::from_secs(60);

/// Space that saves of this process may take.
#[derive(Debug, Default)]
pub(crate) struct Room(Mutex<Space>);

#[derive(Debug, Default)]
struct Space {
    /// Time of the measurement, with the bytes in packs and the maximum then.
    measured: Option<(Instant, u64, u64)>,
    /// Bytes that this process added since.
    spent: u64,
    /// Last try to make room.
    tried: Option<Instant>,
}

impl Space {
    fn is_stale(&self) -> bool {
        let Some((at, used, allowed)) = self.measured else { return true };
        self.spent > allowed.saturating_sub(used) / SPENT_PART || at.elapsed() > MEASURED_FOR
    }
}

impl CheckpointManager {
    fn room(&self) -> MutexGuard<'_, Space> {
        self.room.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measure_room(&self) -> Result<(), Error> {
        self.renew_limits()?;
        let used = self.store.pack_bytes()?;
        let allowed = self.store.limits().bytes.unwrap_or(u64::MAX);
        let mut room = self.room();
        (room.measured, room.spent) = (Some((Instant::now(), used, allowed)), 0);
        Ok(())
    }

    /// Counts bytes that a transaction adds.
    ///
    /// # Errors
    /// [`StoreError::Full`] if they are more than the cap allows.
    pub(crate) fn spend(&self, bytes: u64) -> Result<(), Error> {
        let mut room = self.room();
        let Some((_, used, allowed)) = room.measured else { return Ok(()) };
        let used_bytes = used.saturating_add(room.spent);
        if used_bytes.saturating_add(bytes) > allowed {
            return Err(StoreError::Full { needed_bytes: bytes, used_bytes, allowed_bytes: allowed }.into());
        }
        room.spent += bytes;
        Ok(())
    }

    /// Runs a save. If it hits the cap, makes room and runs it once more.
    pub(crate) fn save_within_cap(
        &self,
        first: Option<WorkspaceId>,
        mut act: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.room().is_stale() {
            self.measure_room()?;
        }
        match act() {
            Err(error) if cap_hit(&error).is_some() => {
                let is_due = self.room().tried.is_none_or(|at| at.elapsed() > TRIED_FOR);
                if is_due {
                    self.make_room(first, &Silent);
                    self.room().tried = Some(Instant::now());
                }
                // Another process may have made room, too.
                self.measure_room()?;
                act().map_err(|error| self.capped(error, Refused::default(), &Silent))
            }
            other => other,
        }
    }
}
