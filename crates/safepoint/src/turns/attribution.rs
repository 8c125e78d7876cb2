//! Attribution of changed paths to turns, where several agents work in one folder at a time.
//!
//! A turn has a window: the checkpoints before its first change and at its end. A change outside of the windows of
//! all other sessions belongs to the turn. In an overlap the paths that tools named decide; a path that no tool
//! named may belong to either.

use crate::handles::Turns;
use crate::{Against, Error};
use safepoint_catalog::{CheckpointTime, PlacedTurn, Workspace};
use safepoint_model::turn::Turn;
use safepoint_model::{CheckpointId, Progress, RelPath, Timestamp};
use std::collections::BTreeSet;
use std::fmt;

/// Path of a turn that also changed in another turn, or by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedPath {
    /// The path.
    pub path: RelPath,
    /// Number and agent of the other turn, if one is known.
    pub turn: Option<(u64, String)>,
}

impl fmt::Display for SharedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.turn {
            Some((number, agent)) => write!(f, "{} (turn {number}, {agent})", self.path),
            None => write!(f, "{}", self.path),
        }
    }
}

/// Paths that a turn changed.
#[derive(Debug, Clone)]
pub struct TurnWork {
    /// The turn.
    pub turn: Turn,
    /// Its paths.
    pub paths: Vec<RelPath>,
}

/// Checkpoint with its place in commit order.
#[derive(Debug, Clone, Copy)]
struct Mark {
    id: CheckpointId,
    place: u64,
}

/// Turn with its window.
struct Windowed {
    turn: Turn,
    /// Checkpoint before its first change.
    before: Mark,
    /// Place at which it began: after a rollback later than that of the checkpoint before it.
    start: u64,
    /// Checkpoint at its end. An open turn has none.
    last: Option<Mark>,
}

impl Windowed {
    fn end(&self) -> u64 {
        self.last.map_or(u64::MAX, |last| last.place)
    }
}

/// Turns that were not over at a place in commit order, with their windows. Turns that were over by then are not read, so the costs
/// are those of the time since.
pub(super) struct Attribution<'a> {
    turns: &'a Turns<'a>,
    workspace: &'a Workspace,
    progress: &'a dyn Progress,
    /// Newest first.
    all: Vec<Windowed>,
    times: Times,
}

/// Claim of another turn on the paths of a turn.
struct Claim<'a> {
    turn: &'a Turn,
    /// Paths that changed while only the first turn worked.
    alone: BTreeSet<RelPath>,
    /// Paths that changed while both worked.
    both: BTreeSet<RelPath>,
}

/// Checkpoints in commit order, with their times.
struct Times {
    listed: Vec<(Mark, Timestamp)>,
    /// Earliest time of each checkpoint and those after it: clocks jump, so the times alone have no order.
    earliest: Vec<Timestamp>,
}

impl Times {
    fn new(listed: Vec<CheckpointTime>) -> Self {
        let listed: Vec<(Mark, Timestamp)> = listed
            .into_iter()
            .map(|CheckpointTime { place, id, created_at }| (Mark { id, place }, created_at))
            .collect();
        let mut earliest: Vec<Timestamp> = listed.iter().map(|(_, at)| *at).collect();
        for at in (1..earliest.len()).rev() {
            earliest[at - 1] = earliest[at - 1].min(earliest[at]);
        }
        Self { listed, earliest }
    }

    /// Place of the last checkpoint that is not younger than a time; 0 if it is not among these.
    fn at(&self, time: Timestamp) -> u64 {
        let count = self.earliest.partition_point(|earliest| *earliest <= time);
        count.checked_sub(1).map_or(0, |last| self.listed[last].0.place)
    }

    /// First checkpoint behind a place that is not older than a time.
    fn after(&self, place: u64, time: Timestamp) -> Option<Mark> {
        let from = self.listed.partition_point(|(mark, _)| mark.place <= place);
        self.listed[from..].iter().find(|(_, at)| *at >= time).map(|(mark, _)| *mark)
    }
}

impl<'a> Attribution<'a> {
    /// Reads what is needed for this turn, and for turns after it.
    pub(super) fn of(
        turns: &'a Turns<'a>,
        workspace: &'a Workspace,
        turn: &Turn,
        progress: &'a dyn Progress,
    ) -> Result<Self, Error> {
        let place = |id: Option<CheckpointId>| match id {
            Some(id) => turns.manager.catalog.place(id),
            None => Ok(None),
        };
        // A turn that rolled back ends at a checkpoint older than its first.
        let since = place(turn.before)?.into_iter().chain(place(turn.after)?).min();
        Self::since(turns, workspace, since.unwrap_or(0), progress)
    }

    fn since(
        turns: &'a Turns<'a>,
        workspace: &'a Workspace,
        since: u64,
        progress: &'a dyn Progress,
    ) -> Result<Self, Error> {
        let catalog = &turns.manager.catalog;
        let times = Times::new(catalog.checkpoint_times(workspace.id, since)?);
        let placed = catalog.turns_since(workspace.id, since)?;
        let all = placed.into_iter().filter_map(|placed| windowed(&times, placed)).collect();
        Ok(Self { turns, workspace, progress, all, times })
    }

    fn mark(&self, id: Option<CheckpointId>) -> Result<Option<Mark>, Error> {
        let Some(id) = id else { return Ok(None) };
        Ok(self.turns.manager.catalog.place(id)?.map(|place| Mark { id, place }))
    }

    /// Window of a turn as it is given: its record may be older. None if one of its checkpoints is gone.
    fn window(&self, turn: &Turn) -> Result<Option<Windowed>, Error> {
        let Some(before) = self.mark(turn.before)? else { return Ok(None) };
        let after = self.mark(turn.after)?.map(|mark| mark.place);
        let placed = PlacedTurn { turn: turn.clone(), before: before.place, after };
        Ok(windowed(&self.times, placed))
    }

    /// Returns the paths that changed between two checkpoints; none if they are in another order.
    fn changed(&self, from: Option<Mark>, to: Option<Mark>) -> Result<BTreeSet<RelPath>, Error> {
        let (Some(from), Some(to)) = (from, to) else { return Ok(BTreeSet::new()) };
        if from.place >= to.place {
            return Ok(BTreeSet::new());
        }
        let checkpoints = self.turns.manager.checkpoints();
        let (old, new) = (checkpoints.get(from.id)?, Against::Checkpoint(Box::new(checkpoints.get(to.id)?)));
        let found = self.turns.manager.diff(self.workspace, &old, &new, self.progress)?;
        Ok(found.changes.into_iter().map(|change| change.path).collect())
    }

    /// Claims of turns of other sessions whose window overlaps this one.
    fn claims(&self, own: &Windowed) -> Result<Vec<Claim<'_>>, Error> {
        let mut claims = Vec::new();
        for other in self.all.iter().filter(|other| other.turn.session_id != own.turn.session_id) {
            if other.start >= own.end() || own.start >= other.end() {
                continue;
            }
            let first = if other.start > own.start { other.before } else { own.before };
            let last = if other.end() < own.end() { other.last } else { own.last };
            let mut alone = self.changed(Some(own.before), Some(first))?;
            alone.extend(self.changed(last, own.last)?);
            claims.push(Claim { turn: &other.turn, alone, both: self.changed(Some(first), last)? });
        }
        Ok(claims)
    }

    /// Divides the paths that changed in the window of a turn: its own, and its own that another turn may have changed, too.
    /// Paths of other turns alone are in neither.
    pub(super) fn divide(
        &self,
        turn: &Turn,
        paths: impl IntoIterator<Item = RelPath>,
    ) -> Result<(Vec<RelPath>, Vec<SharedPath>), Error> {
        let claims = match self.window(turn)? {
            Some(own) => self.claims(&own)?,
            None => Vec::new(),
        };
        Ok(divided(turn, &claims, paths))
    }

    /// Work of a turn since a checkpoint in its window; none if it changed nothing. Of a turn without a checkpoint at its end only the
    /// named paths are known.
    fn work(&self, own: &Windowed, from: Mark) -> Result<Option<TurnWork>, Error> {
        let changed = match own.turn.after {
            Some(_) => self.changed(Some(from), own.last)?,
            None => own.turn.named.iter().cloned().collect(),
        };
        let (alone, shared) = divided(&own.turn, &self.claims(own)?, changed);
        let paths: Vec<RelPath> =
            alone.into_iter().chain(shared.into_iter().map(|shared| shared.path)).collect();
        Ok((!paths.is_empty()).then(|| TurnWork { turn: own.turn.clone(), paths }))
    }

    /// Newest turn after this one that changed a path, among those of any session.
    pub(super) fn later(&self, turn: &Turn, paths: Vec<RelPath>) -> Result<Vec<SharedPath>, Error> {
        let after = self.mark(turn.after)?;
        let end = after.map_or(u64::MAX, |after| after.place);
        let later: Vec<&Windowed> =
            self.all.iter().filter(|other| other.turn.number != turn.number && other.end() > end).collect();
        let mut found: Vec<SharedPath> = paths
            .into_iter()
            .map(|path| {
                let named = later.iter().find(|other| names(&other.turn, &path));
                SharedPath { turn: named.map(|other| name(&other.turn)), path }
            })
            .collect();
        // Turns are compared one by one, and only until each path is found.
        for other in later.iter().filter(|other| other.turn.changes != Some([0; 3])) {
            if found.iter().all(|shared| shared.turn.is_some()) {
                break;
            }
            let from = if other.start > end { Some(other.before) } else { after };
            let changed = self.changed(from, other.last)?;
            for shared in found.iter_mut().filter(|shared| shared.turn.is_none()) {
                shared.turn = changed.contains(&shared.path).then(|| name(&other.turn));
            }
        }
        Ok(found)
    }
}

impl Turns<'_> {
    /// Work of other sessions than this one since a checkpoint, newest first.
    pub(super) fn work_since(
        &self,
        workspace: &Workspace,
        session: &str,
        since: CheckpointId,
        progress: &dyn Progress,
    ) -> Result<Vec<TurnWork>, Error> {
        let Some(place) = self.manager.catalog.place(since)? else { return Ok(Vec::new()) };
        let since = Mark { id: since, place };
        let mut attribution = Attribution::since(self, workspace, place, progress)?;
        // One that began before it may overlap turns that were over by then.
        let first = attribution.all.iter().map(|other| other.before.place.min(other.start)).min();
        if let Some(first) = first.filter(|first| *first < place) {
            attribution = Attribution::since(self, workspace, first, progress)?;
        }
        let mut found = Vec::new();
        for other in attribution.all.iter().filter(|other| other.turn.session_id != session) {
            if other.end() > place {
                let from = if other.start > place { other.before } else { since };
                found.extend(attribution.work(other, from)?);
            }
        }
        Ok(found)
    }

    /// Work of these turns, in their order. Those that changed nothing are left out.
    pub(super) fn work_of(
        &self,
        workspace: &Workspace,
        turns: &[Turn],
        progress: &dyn Progress,
    ) -> Result<Vec<TurnWork>, Error> {
        let mut since: Option<u64> = None;
        for before in turns.iter().filter_map(|turn| turn.before) {
            since = self.manager.catalog.place(before)?.into_iter().chain(since).min();
        }
        let attribution = Attribution::since(self, workspace, since.unwrap_or(0), progress)?;
        let mut found = Vec::new();
        for turn in turns {
            if let Some(own) = attribution.window(turn)? {
                found.extend(attribution.work(&own, own.before)?);
            }
        }
        Ok(found)
    }
}

/// Window of a turn; none if the checkpoint at its end is gone.
fn windowed(times: &Times, placed: PlacedTurn) -> Option<Windowed> {
    let PlacedTurn { turn, before, after } = placed;
    let start = times.at(turn.opened_at).max(before);
    let last = match turn.after {
        Some(id) => Some(Mark { id, place: after? }),
        // One that was closed without a checkpoint ends at the next.
        None => turn.closed_at.and_then(|closed| times.after(start, closed)),
    };
    let before = Mark { id: turn.before?, place: before };
    Some(Windowed { turn, before, start, last })
}

/// Divides paths by the claims of other turns.
fn divided(
    turn: &Turn,
    claims: &[Claim<'_>],
    paths: impl IntoIterator<Item = RelPath>,
) -> (Vec<RelPath>, Vec<SharedPath>) {
    let (mut own, mut shared) = (Vec::new(), Vec::new());
    for path in paths {
        let mine = names(turn, &path);
        let is_theirs = |claim: &Claim<'_>| !mine && !claim.alone.contains(&path) && names(claim.turn, &path);
        if claims.iter().any(is_theirs) {
            continue;
        }
        let other = claims.iter().find(|claim| {
            let named = names(claim.turn, &path);
            named || (!mine && !claim.alone.contains(&path) && claim.both.contains(&path))
        });
        match other {
            Some(claim) => shared.push(SharedPath { path, turn: Some(name(claim.turn)) }),
            None => own.push(path),
        }
    }
    (own, shared)
}

/// Returns true if a tool of the turn named the path, or one in it.
fn names(turn: &Turn, path: &RelPath) -> bool {
    turn.named.iter().any(|named| named.is_within(path))
}

fn name(turn: &Turn) -> (u64, String) {
    (turn.number, turn.agent.clone())
}
