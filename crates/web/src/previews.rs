//! Previews that wait for a confirmation: once each, for a while.

use crate::desk::Bound;
use crate::door::secret;
use crate::problem::Problem;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Life of a preview.
pub(crate) const LIFE: Duration = Duration::from_secs(15 * 60);
/// Maximum number that wait.
const WAITING_MAX: usize = 256;

/// Previews by their id.
#[derive(Debug, Default)]
pub(crate) struct Previews(Mutex<HashMap<String, (Instant, Bound)>>);

impl Previews {
    /// Keeps a preview and returns its id. The oldest gives way.
    pub(crate) fn keep(&self, bound: Bound) -> Result<String, Problem> {
        let id = secret().map_err(|_| Problem::usage("no random number can be had"))?;
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, (made, _)| made.elapsed() < LIFE);
        if waiting.len() >= WAITING_MAX
            && let Some(oldest) = waiting.iter().min_by_key(|(_, (made, _))| *made).map(|(id, _)| id.clone())
        {
            waiting.remove(&oldest);
        }
        waiting.insert(id.clone(), (Instant::now(), bound));
        Ok(id)
    }

    /// Takes a preview: it is used up, whatever comes of it. One for another verb stays.
    pub(crate) fn take(&self, id: &str, fits: impl Fn(&Bound) -> bool) -> Result<Bound, Problem> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.get(id) {
            Some((made, _)) if made.elapsed() >= LIFE => {
                waiting.remove(id);
                Err(Problem::stale("the preview is expired"))
            }
            Some((_, bound)) if !fits(bound) => Err(Problem::usage("the preview is one of another verb")),
            Some(_) => waiting
                .remove(id)
                .map(|(_, bound)| bound)
                .ok_or_else(|| Problem::stale("the preview is unknown or used")),
            None => Err(Problem::stale("the preview is unknown or used")),
        }
    }
}
