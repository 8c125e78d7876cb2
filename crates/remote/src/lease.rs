//! Lease of a runner: it ends its commands before the records can give the line to another machine.
//!
//! In: the boot clock, which also runs while the machine is suspended. Out: the moment to stop. Only the time
//! at which a request was *sent* counts: the server renewed the lease later.

use std::time::Duration;

/// Age of the last answered renewal at which a runner must have stopped.
pub const STOP_AFTER: Duration = Duration::from_secs(40);
/// Age of the last answered renewal at which the next one is due.
pub const RENEW_AFTER: Duration = Duration::from_secs(15);

/// Time since boot, including suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// Returns the time since boot.
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
    }

    /// Returns a fixed time, for tests.
    pub fn from_duration(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Returns the time from `earlier` to this one, or zero.
    pub fn since(self, earlier: BootTime) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Watch over the lease of one line.
#[derive(Debug, Clone, Copy)]
pub struct LeaseWatch {
    sent: BootTime,
    renew_after: Duration,
    stop_after: Duration,
}

impl LeaseWatch {
    /// Starts with the request that gave the lease: a takeover, a publish or a renewal that was answered.
    pub fn new(sent: BootTime) -> Self {
        Self::with_limits(sent, RENEW_AFTER, STOP_AFTER)
    }

    /// Starts with other limits than [`RENEW_AFTER`] and [`STOP_AFTER`].
    pub fn with_limits(sent: BootTime, renew_after: Duration, stop_after: Duration) -> Self {
        Self { sent, renew_after, stop_after }
    }

    /// Notes that a renewal or publish sent at this time was answered.
    pub fn answered(&mut self, sent: BootTime) {
        self.sent = self.sent.max(sent);
    }

    /// Returns true if a renewal is due.
    pub fn must_renew(&self, now: BootTime) -> bool {
        now.since(self.sent) >= self.renew_after
    }

    /// Returns true if commands must be ended now.
    pub fn must_stop(&self, now: BootTime) -> bool {
        now.since(self.sent) >= self.stop_after
    }

    /// Returns true if a request was answered not long ago.
    pub fn is_fresh(&self, now: BootTime) -> bool {
        now.since(self.sent) * 2 < self.stop_after
    }

    /// Returns the time until commands must be ended.
    pub fn left(&self, now: BootTime) -> Duration {
        self.stop_after.saturating_sub(now.since(self.sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::LEASE;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_duration(Duration::from_secs(seconds))
    }

    #[test]
    fn a_runner_stops_before_the_lease_ends_even_if_its_clock_is_a_tenth_too_slow() {
        let slow = STOP_AFTER + STOP_AFTER / 10;
        assert!(slow + Duration::from_secs(10) < LEASE, "and ten seconds remain to end commands");
    }

    #[test]
    fn only_the_time_of_sending_counts() {
        let mut watch = LeaseWatch::new(at(100));
        assert!(!watch.must_renew(at(114)) && watch.must_renew(at(115)));
        watch.answered(at(116));
        watch.answered(at(90));
        assert!(!watch.must_stop(at(155)) && watch.must_stop(at(156)));
        assert_eq!(watch.left(at(150)), Duration::from_secs(6));
        assert!(BootTime::now() <= BootTime::now());
    }
}
