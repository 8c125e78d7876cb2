//! Which checkpoint of a plan is the last clean one.
//!
//! Comes in: the checkpoints of a plan, newest first, what happened to it, and how its steps are now. Goes out: the newest checkpoint that
//! is whole and was taken while the plan was healthy, before the first error that is not resolved; or why there is none.
//!
//! Versions order everything: they grow with each change of a plan, whatever the clock says.

/// A checkpoint that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<T> {
    /// Which.
    pub checkpoint: T,
    /// The version of the plan that it holds.
    pub version: u64,
    /// Whether no step had failed then.
    pub healthy: bool,
}

/// Something that happened to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A step failed.
    Error {
        /// The version of the plan in which it had failed.
        version: u64,
        /// Which.
        step: String,
    },
    /// The plan was put back to what it was in an earlier version: what was wrong then is wrong again, and nothing else is.
    BackTo {
        /// The version of the plan after that.
        version: u64,
        /// Which version it was put back to.
        to: u64,
    },
}

/// Why there is no clean checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoneClean {
    /// There is none at all.
    #[error("the plan has no checkpoint")]
    NoCheckpoint,
    /// All were taken after the first error that is not resolved, or while a step had failed.
    #[error("every checkpoint of the plan was taken after the error, or while a step had failed")]
    AllAfter,
    /// Those that would do are damaged.
    #[error("every checkpoint from before the error is damaged")]
    AllDamaged,
}

/// The version in which the first error appeared that is not resolved. An error is resolved when the plan was put back to before it, or
/// when its step is done by now.
pub fn first_unresolved(events: &[Event], is_done: impl Fn(&str) -> bool) -> Option<u64> {
    let mut open: Vec<(u64, &str)> = Vec::new();
    // What was wrong from each version on.
    let mut known: Vec<(u64, Vec<(u64, &str)>)> = Vec::new();
    for event in events {
        let version = match event {
            Event::Error { version, step } => {
                open.push((*version, step));
                version
            }
            Event::BackTo { version, to } => {
                let then = known.iter().rfind(|(from, _)| from <= to);
                open = then.map_or_else(Vec::new, |(_, open)| open.clone());
                version
            }
        };
        known.push((*version, open.clone()));
    }
    open.into_iter().filter(|(_, step)| !is_done(step)).map(|(version, _)| version).min()
}

/// The last clean checkpoint. `is_whole` is asked from the newest on, and only as far as needed.
///
/// # Errors
/// When there is none: why.
pub fn last_clean<T: Copy, E: From<NoneClean>>(
    newest_first: &[Candidate<T>],
    error: Option<u64>,
    mut is_whole: impl FnMut(T) -> Result<bool, E>,
) -> Result<T, E> {
    if newest_first.is_empty() {
        return Err(NoneClean::NoCheckpoint.into());
    }
    let mut none = NoneClean::AllAfter;
    let clean =
        |candidate: &&Candidate<T>| candidate.healthy && error.is_none_or(|error| candidate.version < error);
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

    /// `12h 9x 5h`: checkpoints at these versions, newest first, healthy or not; `5d` is a damaged one.
    fn candidates(text: &str) -> Vec<Candidate<(u64, bool)>> {
        text.split_whitespace()
            .map(|word| {
                let (version, mark) = word.split_at(word.len() - 1);
                let version = version.parse().unwrap();
                Candidate { checkpoint: (version, mark != "d"), version, healthy: mark != "x" }
            })
            .collect()
    }

    /// `e7:a b9:4 e12:b`: errors at versions in steps, and returns, in versions, to versions.
    fn events(text: &str) -> Vec<Event> {
        text.split_whitespace()
            .map(|word| match word.split_at(1) {
                ("e", rest) => {
                    let (version, step) = rest.split_once(':').unwrap();
                    Event::Error { version: version.parse().unwrap(), step: step.to_owned() }
                }
                (_, rest) => {
                    let (version, to) = rest.split_once(':').unwrap();
                    Event::BackTo { version: version.parse().unwrap(), to: to.parse().unwrap() }
                }
            })
            .collect()
    }

    #[test]
    fn the_last_clean_checkpoint_in_a_table_of_cases() {
        use NoneClean::{AllAfter, AllDamaged, NoCheckpoint};
        let cases: &[(&str, &str, &str, Result<u64, NoneClean>)] = &[
            // checkpoints, what happened, steps that are done, the last clean one
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
            // Put back to version 5: the error of version 7 did not happen any more.
            ("12h 9h 5h", "e7:a b8:5", "", Ok(12)),
            ("12h 9h 5h", "e7:a b8:5 e11:a", "", Ok(9)),
            // Put back to a version that had the error already.
            ("12h 9x 5h", "e7:a b10:8", "", Ok(5)),
            // Put back to before the error, and that undone: the error is there again.
            ("12h 9h 5h", "e7:a b8:5 b10:7", "", Ok(5)),
            ("12h 9h 5h", "e7:a b8:5 b10:7 b11:9", "", Ok(12)),
            // The same step failed twice and is done now.
            ("12h 5h", "e7:a e9:a", "a", Ok(12)),
            // Failed, put back, failed again, put back further.
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
