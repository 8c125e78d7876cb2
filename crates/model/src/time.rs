//! Time in UTC, in microseconds.

use crate::ModelError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Start of the year 1.
const FIRST_MICROS: i64 = -62_135_596_800_000_000;
/// Last supported time: near the end of the year 9999, representable in every time zone.
const LAST_MICROS: i64 = 253_402_214_400_000_000 - 86_400_000_000;

/// Microseconds since 1970 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the time this many microseconds after 1970, limited to the supported range.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(FIRST_MICROS, LAST_MICROS))
    }

    /// Returns the microseconds since 1970.
    pub fn micros(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => write!(f, "{moment:.6}"),
            Err(_) => Err(fmt::Error),
        }
    }
}

impl FromStr for Timestamp {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let moment: jiff::Timestamp =
            text.parse().map_err(|_| ModelError::Time { given: text.to_owned() })?;
        Ok(Self::from_micros(moment.as_microsecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_six_digits_and_reads_back() {
        let moment = Timestamp::from_micros(1_763_193_600_000_007);
        assert_eq!(moment.to_string(), "2025-11-15T08:00:00.000007Z");
        assert_eq!(moment.to_string().parse::<Timestamp>().unwrap(), moment);
        let json = serde_json::to_string(&moment).unwrap();
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), moment);
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn a_moment_beyond_the_calendar_is_still_shown() {
        assert!(Timestamp::from_micros(i64::MAX).to_string().starts_with("9999-"));
        assert!(Timestamp::from_micros(i64::MIN).to_string().starts_with("0001-"));
    }
}
