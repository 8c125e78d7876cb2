//! LEASE: the line of a workspace, held while a plan runs in it. Another machine can take the plan over only after this one has stopped.
//!
//! In: the line that the workspace publishes to. Out: a fence for the steps, and the moment to end them. A thread renews the lease;
//! it counts from the moment at which an answered request was sent, by the boot clock. Without a first answer the run goes on
//! unfenced, and says so: nothing here waits for a network.

use super::take::{Elsewhere, value};
use crate::handles::Remotes;
use crate::{Error, Failure};
use safepoint_catalog::{StoredLine, Workspace};
use safepoint_remote::{BootTime, Fence, LeaseWatch, LineState, Remote, RemoteError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval at which the renewing thread looks at the clock.
const TICK: Duration = Duration::from_millis(100);

/// Lease of the line of a workspace, renewed until it is dropped.
#[derive(Debug)]
pub struct PlanLease {
    name: String,
    shared: Arc<Shared>,
}

struct Shared {
    remote: Remote,
    state: LineState,
    over: AtomicBool,
    /// The watch, once a renewal was answered, and the reason for which the lease is lost.
    held: Mutex<(Option<LeaseWatch>, Option<Failure>)>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("line", &self.state.line).finish_non_exhaustive()
    }
}

/// Options of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Name of this machine, for people.
    pub holder: String,
    /// Age of the last answered renewal at which the next one is due.
    pub renew_after: Duration,
    /// Age of the last answered renewal at which commands end.
    pub stop_after: Duration,
}

impl LeaseOptions {
    /// Creates options with the times of the protocol.
    pub fn new(holder: impl Into<String>) -> Self {
        let (renew_after, stop_after) = (safepoint_remote::RENEW_AFTER, safepoint_remote::STOP_AFTER);
        Self { holder: holder.into(), renew_after, stop_after }
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, (Option<LeaseWatch>, Option<Failure>)> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews until the lease is over or lost.
    fn keep(&self, options: &LeaseOptions) {
        let mut asked = BootTime::now();
        while !self.over.load(Ordering::SeqCst) {
            std::thread::sleep(TICK);
            let now = BootTime::now();
            let (watch, lost) = self.held().clone();
            let is_waiting = now.since(asked) < options.renew_after;
            let is_due = !is_waiting && watch.is_none_or(|watch| watch.must_renew(now));
            if lost.is_some() {
                return;
            }
            if !is_due {
                continue;
            }
            asked = now;
            match self.remote.renew(&self.state) {
                Ok(_) => self.answered(now, options),
                Err(error @ RemoteError::Fenced { .. }) => {
                    self.held().1 = Some(Failure::from(&Error::from(error)));
                }
                // The next one may be answered in time.
                Err(_) => {}
            }
        }
    }

    fn answered(&self, sent: BootTime, options: &LeaseOptions) {
        let watch = &mut self.held().0;
        match watch {
            Some(watch) => watch.answered(sent),
            None => *watch = Some(LeaseWatch::with_limits(sent, options.renew_after, options.stop_after)),
        }
    }
}

impl PlanLease {
    /// Name of the remote.
    pub fn remote(&self) -> &str {
        &self.name
    }

    /// Fence of the steps. `None` while no request was answered.
    pub fn fence(&self) -> Option<Fence> {
        let state = &self.shared.state;
        self.shared.held().0.map(|_| Fence { line: state.line, token: state.token })
    }

    /// Returns true if commands must end: another machine has the line, or could get it.
    pub fn must_stop(&self) -> bool {
        let held = self.shared.held();
        held.1.is_some() || held.0.is_some_and(|watch| watch.must_stop(BootTime::now()))
    }

    /// Returns the reason for which commands had to end.
    pub(crate) fn lost(&self) -> Option<Failure> {
        let reason = self.shared.held().1.clone();
        reason.or_else(|| {
            let line = self.shared.state.line;
            self.must_stop().then(|| Failure::from(&Error::LeaseUnanswered { name: self.name.clone(), line }))
        })
    }
}

impl Drop for PlanLease {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // A takeover need not wait then. A remote that does not answer is not waited for.
        let held = self.shared.held().clone();
        if held.1.is_none() && held.0.is_some_and(|watch| watch.is_fresh(BootTime::now())) {
            let _ = self.shared.remote.release(&self.shared.state);
        }
    }
}

impl Remotes<'_> {
    /// Takes the lease of the line that a plan is published on, and renews it until it is dropped. `None` if this workspace was never
    /// published to the remote, or the plan works in a copy. `remote` should not be patient: a renewal that takes long is late.
    ///
    /// # Errors
    /// [`Error::PlanElsewhere`] if the remote says that another machine took the plan over.
    pub fn lease(
        &self,
        (name, remote): (&str, Remote),
        plan: &str,
        options: &LeaseOptions,
    ) -> Result<Option<(PlanLease, Option<Failure>)>, Error> {
        let record = self.manager.plans().get(plan)?;
        let workspace = self.manager.workspaces().get(record.workspace_id)?;
        let Some(stored) = self.published_line(name, &workspace)? else { return Ok(None) };
        if record.plan.sandbox.id.is_some() {
            return Ok(None);
        }
        let Some(state) = stored.state.clone().and_then(|state| serde_json::from_value(state).ok()) else {
            return Ok(None);
        };
        let sent = BootTime::now();
        let held = Elsewhere { manager: self.manager, name, remote: &remote, workspace: &workspace };
        let (state, failed) = match held.hold(state, &stored, plan, &options.holder) {
            (_, Some(error @ Error::PlanElsewhere { .. })) => return Err(error),
            (state, failed) => (state, failed.map(|error| Failure::from(&error))),
        };
        let shared = Arc::new(Shared { remote, state, over: AtomicBool::new(false), held: Mutex::default() });
        if failed.is_none() {
            shared.answered(sent, options);
        }
        let (renewing, options) = (Arc::clone(&shared), options.clone());
        std::thread::spawn(move || renewing.keep(&options));
        Ok(Some((PlanLease { name: name.to_owned(), shared }, failed)))
    }

    fn published_line(&self, name: &str, workspace: &Workspace) -> Result<Option<StoredLine>, Error> {
        let stored = self.manager.catalog.remote_line(name, workspace.id)?;
        Ok(stored.filter(|line| line.state.is_some()))
    }
}

impl Elsewhere<'_> {
    /// Renews the lease of the line. A line that was silent for long, or rebuilt, is taken again if no other machine has it.
    fn hold(
        &self,
        state: LineState,
        stored: &StoredLine,
        plan: &str,
        holder: &str,
    ) -> (LineState, Option<Error>) {
        let taken = || -> Result<Option<LineState>, Error> {
            if let Some(error) = self.of_plan(plan)? {
                return Err(error);
            }
            match self.remote.renew(&state) {
                Ok(_) => Ok(None),
                Err(RemoteError::Fenced { line, .. }) => match self.regain(&state, holder)? {
                    Some(taken) => Ok(Some(taken)),
                    None => Err(self.of_line(line, plan)?),
                },
                Err(error) => Err(error.into()),
            }
        };
        let kept = taken().and_then(|taken| {
            let Some(taken) = taken else { return Ok(None) };
            let stored = StoredLine { state: Some(value(&taken)?), ..stored.clone() };
            self.manager.catalog.write::<(), Error>(|transaction| {
                Ok(transaction.set_remote_line(self.name, self.workspace.id, &stored)?)
            })?;
            Ok(Some(taken))
        });
        match kept {
            Ok(taken) => (taken.unwrap_or(state), None),
            Err(error) => (state, Some(error)),
        }
    }
}
