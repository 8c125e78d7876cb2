//! Last clean checkpoint of a plan.
//!
//! In: the checkpoints of a plan, newest first, its events, and the current state of its steps. Out: the
//! newest intact checkpoint that was taken while the plan was healthy, before the first unresolved error; or
//! the reason why none qualifies.
//!
//! Versions order everything: they grow with each change of a plan, independent of the clock.

/// Checkpoint that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanCandidate<T> {
    /// Checkpoint.
    pub checkpoint: T,
    /// Version of the plan in it.
    pub version: u64,
    /// True if no step had failed at that time.
    pub healthy: bool,
}

/// Event of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanEvent {
    /// A step failed.
    Error {
        /// Version of the plan with the failure.
        version: u64,
        /// Step that failed.
        step: String,
    },
    /// The plan was restored to an earlier version: exactly the errors of that version are unresolved again.
    BackTo {
        /// Version of the plan after the restore.
        version: u64,
        /// Restored version.
        to: u64,
    },
}

/// Reason why the plan has no clean checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoneClean {
    /// The plan has no checkpoint.
    #[error("the plan has no checkpoint")]
    NoCheckpoint,
    /// All were taken after the first unresolved error, or while a step had failed.
    #[error("every checkpoint of the plan was taken after the error, or while a step had failed")]
    AllAfter,
    /// All suitable ones are damaged.
    #[error("every checkpoint from before the error is damaged")]
    AllDamaged,
}

/// Returns the version of the first unresolved error. An error is resolved if the plan was restored to before
/// it, or if its step is done now.
pub fn first_unresolved(events: &[PlanEvent], is_done: impl Fn(&str) -> bool) -> Option<u64> {
    let mut open: Vec<(u64, &str)> = Vec::new();
    // Unresolved errors from each version on.
    let mut known: Vec<(u64, Vec<(u64, &str)>)> = Vec::new();
    for event in events {
        let version = match event {
            PlanEvent::Error { version, step } => {
                open.push((*version, step));
                version
            }
            PlanEvent::BackTo { version, to } => {
                let then = known.iter().rfind(|(from, _)| from <= to);
                open = then.map_or_else(Vec::new, |(_, open)| open.clone());
                version
            }
        };
        known.push((*version, open.clone()));
    }
    open.into_iter().filter(|(_, step)| !is_done(step)).map(|(version, _)| version).min()
}

/// Returns true if the current state descends from a version. A rollback leaves versions behind, also those of the safety
/// checkpoint that it takes.
pub fn is_on_the_way(events: &[PlanEvent], version: u64) -> bool {
    let mut newest = u64::MAX;
    for event in events.iter().rev() {
        if let PlanEvent::BackTo { version: back, to } = event {
            match *back {
                // It happened in what another rollback left behind.
                back if back > newest => {}
                back if version >= back => return version <= newest,
                _ => newest = *to,
            }
        }
    }
    version <= newest
}

/// Returns the last clean checkpoint. Calls `is_whole` from the newest on, only as far as needed.
///
/// # Errors
/// When none qualifies, with the reason.
pub fn last_clean<T: Copy, E: From<NoneClean>>(
    newest_first: &[CleanCandidate<T>],
    error: Option<u64>,
    mut is_whole: impl FnMut(T) -> Result<bool, E>,
) -> Result<T, E> {
    if newest_first.is_empty() {
        return Err(NoneClean::NoCheckpoint.into());
    }
    let mut none = NoneClean::AllAfter;
    let clean = |candidate: &&CleanCandidate<T>| {
        candidate.healthy && error.is_none_or(|error| candidate.version < error)
    };
    for candidate in newest_first.iter().filter(clean) {
        if is_whole(candidate.checkpoint)? {
            return Ok(candidate.checkpoint);
        }
        none = NoneClean::AllDamaged;
    }
    Err(none.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_leaves_versions_behind_and_its_undo_brings_them_back() {
        let back = |version, to| PlanEvent::BackTo { version, to };
        let on = |events: &[PlanEvent]| (1..12).filter(|it| is_on_the_way(events, *it)).collect::<Vec<_>>();
        assert_eq!(on(&[]).len(), 11);
        assert_eq!(on(&[back(8, 3)]), [1, 2, 3, 8, 9, 10, 11]);
        // The undo goes to the version of the safety checkpoint.
        assert_eq!(on(&[back(8, 3), back(10, 7)]), [1, 2, 3, 4, 5, 6, 7, 10, 11]);
    }

    /// `12h 9x 5h`: checkpoints at these versions, newest first, healthy or not; `5d` is damaged.
    fn candidates(text: &str) -> Vec<CleanCandidate<(u64, bool)>> {
        text.split_whitespace()
            .map(|word| {
                let (version, mark) = word.split_at(word.len() - 1);
                let version = version.parse().unwrap();
                CleanCandidate { checkpoint: (version, mark != "d"), version, healthy: mark != "x" }
            })
            .collect()
    }

    /// `e7:a b9:4 e12:b`: errors at versions in steps, and restores in versions to versions.
    fn events(text: &str) -> Vec<PlanEvent> {
        text.split_whitespace()
            .map(|word| match word.split_at(1) {
                ("e", rest) => {
                    let (version, step) = rest.split_once(':').unwrap();
                    PlanEvent::Error { version: version.parse().unwrap(), step: step.to_owned() }
                }
                (_, rest) => {
                    let (version, to) = rest.split_once(':').unwrap();
                    PlanEvent::BackTo { version: version.parse().unwrap(), to: to.parse().unwrap() }
                }
            })
            .collect()
    }

    #[test]
    fn the_last_clean_checkpoint_in_a_table_of_cases() {
        use NoneClean::{AllAfter, AllDamaged, NoCheckpoint};
        let cases: &[(&str, &str, &str, Result<u64, NoneClean>)] = &[
            // checkpoints, events, done steps, last clean checkpoint
            ("", "", "", Err(NoCheckpoint)),
            ("", "e1:a", "", Err(NoCheckpoint)),
            ("5h", "", "", Ok(5)),
            ("9h 5h", "", "", Ok(9)),
            ("9x 5h", "", "", Ok(5)),
            ("9x 5x", "", "", Err(AllAfter)),
            ("9h 5h", "e7:a", "", Ok(5)),
            ("9h 5h", "e7:a", "a", Ok(9)),
            ("9h 5h", "e5:a", "", Err(AllAfter)),
            ("9h 4h", "e5:a", "", Ok(4)),
            ("9h 7h 5h 3h", "e6:a e8:b", "", Ok(5)),
            ("9h 7h 5h 3h", "e6:a e8:b", "a", Ok(7)),
            ("9h 7h 5h 3h", "e6:a e8:b", "b", Ok(5)),
            ("9h 7h 5h 3h", "e6:a e8:b", "a b", Ok(9)),
            ("9d 5h", "", "", Ok(5)),
            ("9h 5d 3h", "e7:a", "", Ok(3)),
            ("9h 5d 3d", "e7:a", "", Err(AllDamaged)),
            ("9h", "e7:a", "", Err(AllAfter)),
            // Restored to version 5: the error of version 7 is undone.
            ("12h 9h 5h", "e7:a b8:5", "", Ok(12)),
            ("12h 9h 5h", "e7:a b8:5 e11:a", "", Ok(9)),
            // Restored to a version that already had the error.
            ("12h 9x 5h", "e7:a b10:8", "", Ok(5)),
            // Restored to before the error, then undone: the error is back.
            ("12h 9h 5h", "e7:a b8:5 b10:7", "", Ok(5)),
            ("12h 9h 5h", "e7:a b8:5 b10:7 b11:9", "", Ok(12)),
            // The same step failed twice and is done now.
            ("12h 5h", "e7:a e9:a", "a", Ok(12)),
            // Failed, restored, failed again, restored further.
            ("20h 12h 9h 5h 2h", "e7:a b8:5 e11:b b13:2", "", Ok(20)),
            ("20x 12d 9d 5d 2h", "e15:a", "", Ok(2)),
            ("20x 12d 9d 5d 2d", "e15:a", "", Err(AllDamaged)),
        ];
        for (checkpoints, happened, done, expected) in cases {
            let done: Vec<&str> = done.split_whitespace().collect();
            let error = first_unresolved(&events(happened), |step| done.contains(&step));
            let found: Result<(u64, bool), NoneClean> =
                last_clean(&candidates(checkpoints), error, |(_, whole)| Ok(whole));
            assert_eq!(found.map(|it| it.0), *expected, "{checkpoints} | {happened} | {done:?}");
        }
    }
}
