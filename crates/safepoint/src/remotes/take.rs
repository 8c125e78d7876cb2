//! TAKE: a plan that goes on here, from its last published checkpoint, after another machine held it.
//!
//! Order: the line is taken, which fences the earlier holder; the line is on record in this home; then its newest checkpoint
//! with the plan is cloned. Killed in between, the same command goes on: the line is this home's already.

use super::{all_of, field, heads};
use crate::handles::Remotes;
use crate::remotes::fetch::Cloned;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{StoredLine, Workspace};
use safepoint_model::{LineId, ObjectError, Progress};
use safepoint_remote::{
    Fence, LineState, LiveLease, Remote, RemoteCheckpoint, RemoteError, RemoteFilter, RemoteLine,
};
use serde_json::Value;
use std::path::Path;

/// Options of a takeover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakePlan {
    /// Name of this machine, for people.
    pub holder: String,
    /// Effect of a live lease of another machine.
    pub lease: LiveLease,
}

/// Result of a takeover.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanTaken {
    /// Clone of its last published checkpoint.
    pub cloned: Cloned,
    /// Published checkpoint.
    pub found: RemoteCheckpoint,
    /// Line and token of this home from now on.
    pub fence: Fence,
    /// Name of the earlier holder.
    pub from: Option<String>,
}

/// Question where the line or the plan of a workspace went.
pub(super) struct Elsewhere<'e> {
    pub(super) manager: &'e CheckpointManager,
    pub(super) name: &'e str,
    pub(super) remote: &'e Remote,
    pub(super) workspace: &'e Workspace,
}

impl Elsewhere<'_> {
    fn line(&self, line: LineId) -> Result<Option<RemoteLine>, Error> {
        let lines = self.remote.lines(Some(self.workspace.id), None)?;
        Ok(lines.into_iter().find(|it| it.line == line))
    }

    /// Returns the error that names the new holder, if this home left a line on which it had published the plan.
    pub(super) fn of_plan(&self, plan: &str) -> Result<Option<Error>, Error> {
        let left = self.manager.catalog.left_lines(self.name, self.workspace.id)?;
        let published = self.manager.catalog.lines_of_plan(self.name, plan)?;
        let found = left.into_iter().find(|line| published.contains(line));
        found.map(|line| self.of_line(line, plan)).transpose()
    }

    /// Returns the error that names the holder of a line.
    pub(super) fn of_line(&self, line: LineId, plan: &str) -> Result<Error, Error> {
        let holder = self.line(line)?.and_then(|line| line.holder);
        Ok(Error::PlanElsewhere {
            id: plan.to_owned(),
            holder: holder.unwrap_or_else(|| "an unnamed holder".to_owned()),
            name: self.name.to_owned(),
            line,
        })
    }

    /// Takes a line again whose token was superseded by silence or by a rebuild. `None` if another machine took it over:
    /// then it has a holder, whose work must not be fenced.
    pub(super) fn regain(&self, state: &LineState, holder: &str) -> Result<Option<LineState>, Error> {
        if self.line(state.line)?.is_none_or(|line| line.holder.is_some()) {
            return Ok(None);
        }
        match self.remote.regain(state, holder, self.manager.environment.new_id()) {
            Ok(taken) => Ok(Some(taken)),
            Err(RemoteError::Fenced { .. } | RemoteError::Live { .. } | RemoteError::NoLine { .. }) => {
                Ok(None)
            }
            Err(other) => Err(other.into()),
        }
    }
}

impl Remotes<'_> {
    /// Takes a plan over: its line belongs to this home from now on, and its last published checkpoint is built in a folder that is
    /// empty or does not exist yet. The earlier holder is fenced.
    ///
    /// # Errors
    /// [`RemoteError::Live`] if the lease of the earlier holder has not ended and is respected; [`Error::NotPublished`];
    /// or as [`Remotes::clone_to`]. The same call again goes on.
    pub fn take_over_plan(
        &self,
        (name, remote): (&str, &Remote),
        plan: &str,
        to: &Path,
        how: &TakePlan,
        progress: &dyn Progress,
    ) -> Result<PlanTaken, Error> {
        let head = newest_with(remote, plan)?;
        self.can_clone(&head, to)?;
        let rows = remote.lines(Some(head.workspace), None)?;
        let row = rows.into_iter().find(|row| row.line == head.line);
        let state = match self.taken_before((name, remote), &head)? {
            Some(state) => state,
            None => {
                let nonce = self.manager.environment.new_id();
                let state = remote.take_over(head.line, &how.holder, nonce, how.lease)?;
                self.keep_line(name, &state, None)?;
                state
            }
        };
        let found = remote.checkpoint(last_of_line(remote, state.line, plan)?)?;
        let cloned = self.clone_to((name, remote), &found, to, progress)?;
        // The next push is based on the head of the line, if that is here.
        let checkpoint = &cloned.fetched.checkpoint;
        let base = (state.head == Some(checkpoint.id)).then_some((checkpoint.id, checkpoint.integrity));
        self.keep_line(name, &state, base)?;
        let fence = Fence { line: state.line, token: state.token };
        Ok(PlanTaken { cloned, found, fence, from: row.and_then(|row| row.holder) })
    }

    /// Returns the state of the line if an earlier call took it.
    fn taken_before(
        &self,
        (name, remote): (&str, &Remote),
        head: &RemoteCheckpoint,
    ) -> Result<Option<LineState>, Error> {
        let stored = self.manager.catalog.remote_line(name, head.workspace)?;
        let state = stored.filter(|stored| stored.line == head.line).and_then(|stored| stored.state);
        let Some(state) = state.and_then(|state| serde_json::from_value::<LineState>(state).ok()) else {
            return Ok(None);
        };
        match remote.renew(&state) {
            Ok(_) => Ok(Some(state)),
            Err(RemoteError::Fenced { .. } | RemoteError::Behind { .. } | RemoteError::NoLine { .. }) => {
                Ok(None)
            }
            Err(other) => Err(other.into()),
        }
    }

    fn keep_line(
        &self,
        name: &str,
        state: &LineState,
        base: Option<(safepoint_model::CheckpointId, safepoint_model::ObjectId)>,
    ) -> Result<(), Error> {
        let stored = StoredLine { line: state.line, state: Some(value(state)?), base, pending: None };
        self.manager.catalog.write::<(), Error>(|transaction| {
            Ok(transaction.set_remote_line(name, state.workspace, &stored)?)
        })
    }
}

/// True if a published checkpoint holds a plan.
fn holds(checkpoint: &RemoteCheckpoint, plan: &str) -> bool {
    let plans = checkpoint.fields.get("plans").and_then(Value::as_array);
    let is_in = plans.is_some_and(|plans| plans.iter().any(|it| it.as_str() == Some(plan)));
    is_in || field(checkpoint, "plan_id") == Some(plan)
}

/// Returns the newest checkpoint of the line on which a plan was published last. A line that its writer began because it had lost
/// another one does not count while that one has the plan: the plan went on there.
fn newest_with(remote: &Remote, plan: &str) -> Result<RemoteCheckpoint, Error> {
    let mut found: Vec<_> = heads(remote, None)?.into_iter().filter(|it| holds(it, plan)).collect();
    if found.is_empty() {
        found = all_of(remote, None)?.into_iter().filter(|it| holds(it, plan)).collect();
    }
    let lines: Vec<String> = found.iter().map(|it| it.line.to_string()).collect();
    let is_aside =
        |it: &RemoteCheckpoint| field(it, "left").is_some_and(|left| lines.iter().any(|line| line == left));
    let best = found.into_iter().filter(|it| !is_aside(it));
    best.max_by_key(|it| (it.published_at, it.seq, it.n)).ok_or_else(|| super::not_published(plan))
}

/// Returns the newest checkpoint of a line that holds a plan.
fn last_of_line(remote: &Remote, line: LineId, plan: &str) -> Result<safepoint_model::CheckpointId, Error> {
    let mut filter = RemoteFilter::default();
    filter.line = Some(line);
    loop {
        let page = remote.checkpoints(&filter)?;
        if let Some(found) = page.iter().find(|it| holds(it, plan)) {
            return Ok(found.id);
        }
        let Some(last) = page.last() else { return Err(super::not_published(plan)) };
        filter.after = Some((last.line, last.seq, last.n));
    }
}

pub(super) fn value<T: serde::Serialize>(it: &T) -> Result<Value, Error> {
    serde_json::to_value(it).map_err(|error| ObjectError::Store(Box::new(error)).into())
}
