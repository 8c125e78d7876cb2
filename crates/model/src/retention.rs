//! Retention: the checkpoints of a workspace to keep and to drop.
//!
//! In: every checkpoint of one workspace in commit order, newest first, a policy and the current time. Out: a
//! verdict for each, with its reason. Nothing is deleted here.
//!
//! Always kept, under any policy: pinned checkpoints, the newest, and those that unfinished work needs.
//! Deciding again about the kept ones at the same time drops nothing more. A checkpoint that may be dropped
//! now may be dropped later, so a shown plan stays valid until it is executed. Clock jumps change no rank:
//! the last ones are those committed last.
//!
//! Checkpoints that Safepoint makes for itself (those with a role) are judged separately by the same rules:
//! the safety checkpoints of many rollbacks do not displace user checkpoints.

use crate::checkpoint::Role;
use crate::{CheckpointId, RollbackId, Span, Timestamp};
use safepoint_planted::planted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Retention policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// Number of last checkpoints to keep, regardless of age.
    pub keep_last: u64,
    /// Age up to which all are kept.
    pub keep_within: Span,
    /// Age up to which one per day is kept.
    pub thin_daily_for: Span,
}

impl Policy {
    /// Default policy.
    pub const DEFAULT: Policy =
        Policy { keep_last: 100, keep_within: Span::from_days(7), thin_daily_for: Span::from_days(30) };

    /// Returns a policy that keeps everything that either of the two keeps.
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

/// Reason why unfinished work needs a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Needed {
    /// The current state of the workspace is based on it.
    Head,
    /// An unfinished rollback restores it or may have to.
    UnfinishedRollback(RollbackId),
    /// Undo or redo of this rollback restores it.
    Undo(RollbackId),
    /// Recovery of a failed plan would restore it.
    LastClean,
    /// The sandbox of a plan was created from it.
    SandboxBase,
    /// An open attempt began with it, or ends with it.
    Attempt,
    /// This turn of an agent is still open.
    OpenTurn(u64),
    /// No remote has it yet.
    Unpublished,
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Needed::Head => f.write_str("base of the current state"),
            Needed::UnfinishedRollback(id) => write!(f, "needed by the unfinished rollback {id}"),
            Needed::Undo(id) => write!(f, "needed to undo rollback {id}"),
            Needed::LastClean => f.write_str("last clean checkpoint of a plan"),
            Needed::SandboxBase => f.write_str("base of a plan's sandbox"),
            Needed::Attempt => f.write_str("base or result of an open attempt"),
            Needed::Unpublished => f.write_str("still to be published"),
            Needed::OpenTurn(number) => write!(f, "needed by the open turn {number}"),
        }
    }
}

/// Checkpoint, with the fields needed for the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Id.
    pub id: CheckpointId,
    /// Time of creation, by the clock.
    pub created_at: Timestamp,
    /// Purpose, if Safepoint made it for itself.
    pub role: Option<Role>,
    /// True if it is never pruned.
    pub pinned: bool,
    /// Reason why unfinished work needs it, if any.
    pub needed: Option<Needed>,
}

/// Day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i64);

impl Day {
    const MICROS: i64 = 86_400_000_000;

    /// Returns the day of a time.
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

/// Reason to keep a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepReason {
    /// Pinned by the user.
    Pinned,
    /// Needed by unfinished work.
    Needed(Needed),
    /// Newest one, among those with or without a role.
    Newest,
    /// One of this many last ones.
    Last(u64),
    /// Younger than this.
    Within(Span),
    /// Daily checkpoint.
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
            KeepReason::OneOfDay(day) => write!(f, "daily checkpoint for {day}"),
        }
    }
}

/// Reason to drop a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// Older than every age limit.
    OlderThan(Span),
    /// Another one is the daily checkpoint.
    AnotherOfDay {
        /// Day.
        day: Day,
        /// Daily checkpoint that is kept.
        kept: CheckpointId,
    },
    /// No age limit applies, and it is not one of this many last ones.
    NotOfLast(u64),
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DropReason::OlderThan(span) => write!(f, "older than {}", span.in_words()),
            DropReason::AnotherOfDay { day, kept } => {
                write!(f, "not the daily checkpoint for {day}: {kept} is kept")
            }
            DropReason::NotOfLast(0) => f.write_str("only the newest is kept"),
            DropReason::NotOfLast(count) => write!(f, "not one of the last {count}"),
        }
    }
}

/// Decision about a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RetentionVerdict {
    /// Keep it.
    Keep(KeepReason),
    /// Drop it.
    Drop(DropReason),
}

impl RetentionVerdict {
    /// Returns true if it is kept.
    pub fn is_keep(&self) -> bool {
        matches!(self, RetentionVerdict::Keep(_))
    }
}

/// Prints the reason alone.
impl fmt::Display for RetentionVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RetentionVerdict::Keep(reason) => reason.fmt(f),
            RetentionVerdict::Drop(reason) => reason.fmt(f),
        }
    }
}

/// Decides about every checkpoint of one workspace. Candidates and verdicts are in commit order, newest
/// first, independent of the clock. A time in the future counts as now.
pub fn decide(
    candidates: &[Candidate],
    policy: &Policy,
    now: Timestamp,
) -> Vec<(CheckpointId, RetentionVerdict)> {
    let judge = Judge { policy, now, day_keepers: day_keepers(candidates) };
    let (mut ordinary, mut with_role) = (0, 0);
    let verdict = |candidate: &Candidate| {
        let rank = if candidate.role.is_none() { &mut ordinary } else { &mut with_role };
        *rank += 1;
        (candidate.id, judge.verdict(candidate, *rank))
    };
    candidates.iter().map(verdict).collect()
}

/// Daily checkpoints, among the ordinary ones and among those with a role.
type DayKeepers<'a> = BTreeMap<(bool, Day), &'a Candidate>;

/// Returns the youngest of each day, and among equals the one committed last. The clock decides, as for the
/// day itself: if any checkpoint of a day is young enough to keep, the daily one is.
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
    /// `rank` counts from one, newest first.
    fn verdict(&self, candidate: &Candidate, rank: u64) -> RetentionVerdict {
        let Policy { keep_last, keep_within, thin_daily_for } = *self.policy;
        let age_micros =
            self.now.micros().saturating_sub(candidate.created_at.micros()).max(0).unsigned_abs();
        let younger_than = |span: Span| age_micros < span.micros();
        if candidate.pinned && !planted!("prune-takes-what-is-pinned") {
            return RetentionVerdict::Keep(KeepReason::Pinned);
        }
        if let Some(needed) = candidate.needed
            && !planted!("prune-takes-what-is-needed")
        {
            return RetentionVerdict::Keep(KeepReason::Needed(needed));
        }
        if rank == 1 && !planted!("prune-takes-the-newest") {
            return RetentionVerdict::Keep(KeepReason::Newest);
        }
        if rank <= keep_last {
            return RetentionVerdict::Keep(KeepReason::Last(keep_last));
        }
        if younger_than(keep_within) {
            return RetentionVerdict::Keep(KeepReason::Within(keep_within));
        }
        if younger_than(thin_daily_for) {
            return self.thinned(candidate);
        }
        RetentionVerdict::Drop(match keep_within.max(thin_daily_for) {
            Span::ZERO => DropReason::NotOfLast(keep_last),
            longest => DropReason::OlderThan(longest),
        })
    }

    fn thinned(&self, candidate: &Candidate) -> RetentionVerdict {
        let day = Day::of(candidate.created_at);
        match self.day_keepers.get(&candidate.list_and_day()) {
            Some(keeper) if keeper.id != candidate.id => {
                RetentionVerdict::Drop(DropReason::AnotherOfDay { day, kept: keeper.id })
            }
            _ => RetentionVerdict::Keep(KeepReason::OneOfDay(day)),
        }
    }
}

#[cfg(test)]
mod tests;
