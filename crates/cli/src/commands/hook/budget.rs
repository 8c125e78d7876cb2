//! Time that an event may take, and the answer when it is over.

use safepoint::Progress;
use safepoint_agents::Moment;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Time to read an event. Agents write it at once.
const INPUT_WAIT: Duration = Duration::from_secs(10);
/// Time after the budget to stop work, record that the turn is not covered, and answer.
const GRACE: Duration = Duration::from_millis(1_500);

/// Progress of a hook, in order.
pub(super) enum Stage {
    /// The event was read: its budget, and the answer if the work hangs.
    Began(Duration, String),
    /// The answer.
    Answered(String),
}

/// Answer that was waited for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The work is done.
    InTime(String),
    /// The time is over.
    Late(String),
    /// There was no event.
    Nothing,
}

/// Waits for the answer, as long as the event may take. A thread that hangs, for example on a network disk, is abandoned: the
/// process ends, and the next hook recovers.
pub(super) fn awaited(stages: &Receiver<Stage>) -> Awaited {
    match stages.recv_timeout(INPUT_WAIT) {
        Ok(Stage::Began(budget, late)) => match stages.recv_timeout(budget + GRACE) {
            Ok(Stage::Answered(answer)) => Awaited::InTime(answer),
            _ => Awaited::Late(late),
        },
        Ok(Stage::Answered(answer)) => Awaited::InTime(answer),
        Err(_) => Awaited::Nothing,
    }
}

/// Waits until the work after the answer is done.
pub(super) fn finish(stages: &Receiver<Stage>) {
    while stages.recv_timeout(GRACE).is_ok() {}
}

/// Time that an event may take. After it, work stops where nothing has changed yet.
pub(super) struct Budget {
    began: Instant,
    pub(super) length: Duration,
}

impl Budget {
    pub(super) fn of(moment: &Moment) -> Self {
        Self { began: Instant::now(), length: crate::context::hook_time().unwrap_or_else(|| length(moment)) }
    }
}

impl Progress for Budget {
    fn interrupted(&self) -> bool {
        crate::context::panic_in_hook();
        self.began.elapsed() >= self.length
    }
}

/// Agents give interrupts and the end of a session 3 seconds at most, other events 30.
fn length(moment: &Moment) -> Duration {
    Duration::from_secs(match moment {
        Moment::SessionStart { .. } => 20,
        Moment::TurnEnd { interrupted: false, .. } | Moment::Prompt { .. } => 5,
        _ => 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn every_moment_ends_before_the_timeout_of_its_agent() {
        let seconds = |moment: Moment| (length(&moment) + GRACE).as_secs_f64();
        assert!(seconds(Moment::SessionStart { source: None }) < 30.0);
        assert!(seconds(Moment::TurnEnd { background: Vec::new(), interrupted: false }) < 30.0);
        // Codex's limit is 3 seconds; the grace is for hung disks alone.
        assert!(length(&Moment::TurnEnd { background: Vec::new(), interrupted: true }).as_secs() < 3);
        assert!(length(&Moment::SessionEnd { reason: None }).as_secs() < 3);
    }

    #[test]
    fn work_that_hangs_is_answered_when_its_time_is_over() {
        let (sender, stages) = channel();
        sender.send(Stage::Began(Duration::ZERO, "late".to_owned())).unwrap();
        let began = Instant::now();
        assert_eq!(awaited(&stages), Awaited::Late("late".to_owned()));
        assert!(began.elapsed() >= GRACE && began.elapsed() < GRACE * 4);
        drop(sender);
        assert_eq!(awaited(&stages), Awaited::Nothing);
    }
}
