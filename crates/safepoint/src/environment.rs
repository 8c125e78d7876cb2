//! Source of the time, randomness and user name, so that tests can fix all three.

use safepoint_model::Timestamp;
use std::time::{Duration, SystemTime};

/// External inputs of records.
pub trait Environment: Send + Sync {
    /// Current time.
    fn now(&self) -> Timestamp;
    /// Returns unique random bits; the low 80 are used.
    fn random_bits(&self) -> u128;
    /// Requesting user or tool.
    fn actor(&self) -> String;

    /// New id, time first, so that ids sort by time.
    fn new_id(&self) -> u128 {
        let millis = u128::from(self.now().micros().max(0).unsigned_abs() / 1000);
        (millis & ((1 << 48) - 1)) << 80 | (self.random_bits() & ((1 << 80) - 1))
    }
}

/// Real system.
#[derive(Debug, Clone)]
pub struct SystemEnvironment {
    /// Requesting user or tool.
    pub actor: String,
}

impl Default for SystemEnvironment {
    fn default() -> Self {
        Self { actor: "unknown".to_owned() }
    }
}

impl Environment for SystemEnvironment {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn random_bits(&self) -> u128 {
        let mut bytes = [0u8; 16];
        match getrandom::fill(&mut bytes) {
            Ok(()) => u128::from_le_bytes(bytes),
            // The kernel always has randomness; the fallback is the time in nanoseconds.
            Err(_) => {
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos()
            }
        }
    }

    fn actor(&self) -> String {
        self.actor.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_sort_by_time() {
        let world = SystemEnvironment::default();
        let first = world.new_id();
        std::thread::sleep(Duration::from_millis(2));
        let second = world.new_id();
        assert!(first < second);
        assert_eq!(world.actor(), "unknown");
    }
}
