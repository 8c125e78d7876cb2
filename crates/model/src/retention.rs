//! Which checkpoints of a workspace stay and which may go.
//!
//! Comes in: every checkpoint of one workspace, the newest first in the order of their commits, a policy and the present moment. Goes
//! out: a verdict for each, with its reason. Nothing is deleted here.
//!
//! Always true, whatever the policy: what is pinned, the newest, and what unfinished work needs stays. Deciding once more about what
//! was kept, at the same moment, drops nothing more; and what may go now may go at any later moment, so a plan that was shown is
//! still right when it is carried out. A clock that jumps changes no rank: the last ones are those that were committed last.
//!
//! Checkpoints that Safepoint makes for itself (those with a role) are judged apart, by the same rules: a day of rollbacks, each
//! with its safety checkpoint, pushes nobody's own checkpoints out.

use crate::checkpoint::Role;
use crate::{CheckpointId, RollbackId, Span, Timestamp};
use safepoint_planted::planted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// This many of the last ones stay, however old they are.
    pub keep_last: u64,
    /// Everything younger than this stays.
    pub keep_within: Span,
    /// One of each day stays until it is this old.
    pub thin_daily_for: Span,
}

impl Policy {
    /// The policy that holds where none is given.
    pub const DEFAULT: Policy =
        Policy { keep_last: 100, keep_within: Span::from_days(7), thin_daily_for: Span::from_days(30) };

    /// A policy that keeps whatever either of the two keeps.
    #[must_use]
    pub fn or_more(self, other: Policy) -> Policy {
        Policy {
            keep_last: self.keep_last.max(other.keep_last),
            keep_within: self.keep_within.max(other.keep_within),
            thin_daily_for: self.thin_daily_for.max(other.thin_daily_for),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why unfinished work still needs a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Needed {
    /// The workspace was last captured as, or made equal to, this one.
    Head,
    /// A rollback that is not finished goes to it, or may have to go back to it.
    UnfinishedRollback(RollbackId),
    /// Undoing this rollback, or doing it again, goes to it.
    Undo(RollbackId),
    /// A plan that went wrong would go back to it.
    LastClean,
    /// The sandbox of a plan was made from it.
    SandboxBase,
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Needed::Head => f.write_str("the workspace stands on it"),
            Needed::UnfinishedRollback(id) => write!(f, "needed by the unfinished rollback {id}"),
            Needed::Undo(id) => write!(f, "needed to undo rollback {id}"),
            Needed::LastClean => f.write_str("the last clean one of a plan"),
            Needed::SandboxBase => f.write_str("the sandbox of a plan was made from it"),
        }
    }
}

/// A checkpoint, as far as the decision needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub id: CheckpointId,
    /// When it was made, as far as the clock knew.
    pub created_at: Timestamp,
    /// What Safepoint itself made it for.
    pub role: Option<Role>,
    /// Never pruned.
    pub pinned: bool,
    /// Why unfinished work needs it, if any does.
    pub needed: Option<Needed>,
}

/// A day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i64);

impl Day {
    const MICROS: i64 = 86_400_000_000;

    /// The day of a moment.
    pub fn of(moment: Timestamp) -> Self {
        Self(moment.micros().div_euclid(Self::MICROS))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let midnight = Timestamp::from_micros(self.0.saturating_mul(Self::MICROS)).to_string();
        f.pad(midnight.split('T').next().unwrap_or_default())
    }
}

impl Serialize for Day {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a checkpoint stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepReason {
    /// Somebody said so.
    Pinned,
    /// Unfinished work needs it.
    Needed(Needed),
    /// It is the newest one; of those with a role for one with a role.
    Newest,
    /// It is one of this many last ones.
    Last(u64),
    /// It is younger than this.
    Within(Span),
    /// It stands for all of its day.
    OneOfDay(Day),
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeepReason::Pinned => f.write_str("pinned"),
            KeepReason::Needed(needed) => needed.fmt(f),
            KeepReason::Newest => f.write_str("the newest"),
            KeepReason::Last(count) => write!(f, "one of the last {count}"),
            KeepReason::Within(span) => write!(f, "made within the last {}", span.in_words()),
            KeepReason::OneOfDay(day) => write!(f, "the one that is kept of {day}"),
        }
    }
}

/// Why a checkpoint may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// It is older than anything that is kept for its age.
    OlderThan(Span),
    /// Another one stands for its day.
    AnotherOfDay {
        /// The day.
        day: Day,
        /// The one that is kept.
        kept: CheckpointId,
    },
    /// Nothing is kept for its age, and it is not one of this many last ones.
    NotOfLast(u64),
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DropReason::OlderThan(span) => write!(f, "older than {}", span.in_words()),
            DropReason::AnotherOfDay { day, kept } => write!(f, "another one of {day} is kept: {kept}"),
            DropReason::NotOfLast(0) => f.write_str("only the newest is kept"),
            DropReason::NotOfLast(count) => write!(f, "not one of the last {count}"),
        }
    }
}

/// What is to become of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It stays.
    Keep(KeepReason),
    /// It may go.
    Drop(DropReason),
}

impl Verdict {
    /// Whether it stays.
    pub fn is_keep(&self) -> bool {
        matches!(self, Verdict::Keep(_))
    }
}

/// The reason alone, for people.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Keep(reason) => reason.fmt(f),
            Verdict::Drop(reason) => reason.fmt(f),
        }
    }
}

/// Decides about every checkpoint of one workspace. The candidates come newest first, in the order of their commits, whatever
/// their clocks said; the verdicts come in the same order. A moment in the future counts as the present.
pub fn decide(candidates: &[Candidate], policy: &Policy, now: Timestamp) -> Vec<(CheckpointId, Verdict)> {
    let judge = Judge { policy, now, day_keepers: day_keepers(candidates) };
    let (mut ordinary, mut with_role) = (0, 0);
    let verdict = |candidate: &Candidate| {
        let rank = if candidate.role.is_none() { &mut ordinary } else { &mut with_role };
        *rank += 1;
        (candidate.id, judge.verdict(candidate, *rank))
    };
    candidates.iter().map(verdict).collect()
}

/// Which checkpoint stands for a day, among the ordinary ones and among those with a role.
type DayKeepers<'a> = BTreeMap<(bool, Day), &'a Candidate>;

/// The youngest of each day, and of equally young ones the one committed last. By the clock, as the day itself is: so whenever one of
/// a day is young enough to stay, the one that stands for the day is.
fn day_keepers(candidates: &[Candidate]) -> DayKeepers<'_> {
    let mut keepers = DayKeepers::new();
    for candidate in candidates {
        let keeper = keepers.entry(candidate.list_and_day()).or_insert(candidate);
        if candidate.created_at > keeper.created_at {
            *keeper = candidate;
        }
    }
    keepers
}

impl Candidate {
    fn list_and_day(&self) -> (bool, Day) {
        (self.role.is_some(), Day::of(self.created_at))
    }
}

struct Judge<'a> {
    policy: &'a Policy,
    now: Timestamp,
    day_keepers: DayKeepers<'a>,
}

impl Judge<'_> {
    /// `rank` counts from one, the newest of its list first.
    fn verdict(&self, candidate: &Candidate, rank: u64) -> Verdict {
        let Policy { keep_last, keep_within, thin_daily_for } = *self.policy;
        let age_micros =
            self.now.micros().saturating_sub(candidate.created_at.micros()).max(0).unsigned_abs();
        let younger_than = |span: Span| age_micros < span.micros();
        if candidate.pinned && !planted!("prune-takes-what-is-pinned") {
            return Verdict::Keep(KeepReason::Pinned);
        }
        if let Some(needed) = candidate.needed
            && !planted!("prune-takes-what-is-needed")
        {
            return Verdict::Keep(KeepReason::Needed(needed));
        }
        if rank == 1 && !planted!("prune-takes-the-newest") {
            return Verdict::Keep(KeepReason::Newest);
        }
        if rank <= keep_last {
            return Verdict::Keep(KeepReason::Last(keep_last));
        }
        if younger_than(keep_within) {
            return Verdict::Keep(KeepReason::Within(keep_within));
        }
        if younger_than(thin_daily_for) {
            return self.thinned(candidate);
        }
        Verdict::Drop(match keep_within.max(thin_daily_for) {
            Span::ZERO => DropReason::NotOfLast(keep_last),
            longest => DropReason::OlderThan(longest),
        })
    }

    fn thinned(&self, candidate: &Candidate) -> Verdict {
        let day = Day::of(candidate.created_at);
        match self.day_keepers.get(&candidate.list_and_day()) {
            Some(keeper) if keeper.id != candidate.id => {
                Verdict::Drop(DropReason::AnotherOfDay { day, kept: keeper.id })
            }
            _ => Verdict::Keep(KeepReason::OneOfDay(day)),
        }
    }
}

#[cfg(test)]
mod tests;
