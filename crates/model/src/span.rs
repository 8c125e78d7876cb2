//! Duration as written by people: `30s`, `90m`, `36h`, `7d`, `2w`.

use crate::ModelError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;
/// Ten thousand years: beyond any calendar, and small enough that sums of microseconds never overflow.
const SECONDS_MAX: u64 = 3_652_500 * DAY;

/// Duration in whole seconds. A day has 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// Zero.
    pub const ZERO: Span = Span(0);

    /// Returns this many seconds, at most ten thousand years.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(if seconds > SECONDS_MAX { SECONDS_MAX } else { seconds })
    }

    /// Returns this many days of 24 hours.
    pub const fn from_days(days: u64) -> Self {
        Self::from_seconds(days.saturating_mul(DAY))
    }

    /// Returns the seconds.
    pub fn seconds(self) -> u64 {
        self.0
    }

    /// Returns the microseconds, the unit of [`crate::Timestamp`].
    pub fn micros(self) -> u64 {
        self.0 * 1_000_000
    }

    /// Returns the count and names of the largest unit that divides it. Weeks are parsed but not shown, so
    /// that `14d` stays `14d`.
    fn in_units(self) -> (u64, &'static str, &'static str) {
        for (seconds, letter, word) in [(DAY, "d", "day"), (HOUR, "h", "hour"), (MINUTE, "m", "minute")] {
            if self.0 != 0 && self.0.is_multiple_of(seconds) {
                return (self.0 / seconds, letter, word);
            }
        }
        (self.0, "s", "second")
    }

    /// Formats it for a sentence: `7 days`, `1 hour`.
    pub fn in_words(self) -> String {
        let (count, _, word) = self.in_units();
        format!("{count} {word}{}", if count == 1 { "" } else { "s" })
    }
}

impl From<Span> for std::time::Duration {
    fn from(span: Span) -> Self {
        Self::from_secs(span.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, letter, _) = self.in_units();
        f.pad(&format!("{count}{letter}"))
    }
}

impl FromStr for Span {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let refuse = |why| ModelError::Span { given: text.to_owned(), why };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let seconds = match unit {
            _ if number.is_empty() => return Err(refuse("it does not begin with a whole number")),
            "" => return Err(refuse("a unit is missing")),
            "s" => 1,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            "w" => WEEK,
            _ => return Err(refuse("the units are s, m, h, d and w")),
        };
        // Digits alone fail to parse only if there are too many.
        let total = number.parse::<u64>().ok().and_then(|count| count.checked_mul(seconds));
        match total {
            Some(total) if total <= SECONDS_MAX => Ok(Self(total)),
            _ => Err(refuse("it is longer than ten thousand years")),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_is_understood_and_shown() {
        for (given, seconds, shown, words) in [
            ("30s", 30, "30s", "30 seconds"),
            ("90m", 5_400, "90m", "90 minutes"),
            ("36h", 129_600, "36h", "36 hours"),
            ("7d", 604_800, "7d", "7 days"),
            ("2w", 1_209_600, "14d", "14 days"),
            ("24h", 86_400, "1d", "1 day"),
            ("0d", 0, "0s", "0 seconds"),
            ("007d", 604_800, "7d", "7 days"),
        ] {
            let span: Span = given.parse().unwrap();
            assert_eq!((span.seconds(), span.to_string().as_str()), (seconds, shown), "{given}");
            assert_eq!(span.in_words(), words);
            assert_eq!(std::time::Duration::from(span).as_secs(), seconds);
        }
        assert_eq!(Span::from_days(7), "1w".parse().unwrap());
        assert_eq!(Span::from_days(u64::MAX), Span::from_seconds(u64::MAX));
    }

    #[test]
    fn what_is_no_length_of_time_is_refused_with_the_reason() {
        for (given, why) in [
            ("", "whole number"),
            ("d", "whole number"),
            ("-7d", "whole number"),
            ("+7d", "whole number"),
            ("7", "unit is missing"),
            ("7 d", "the units are"),
            ("7D", "the units are"),
            ("1.5h", "the units are"),
            ("7d12h", "the units are"),
            ("٧d", "whole number"),
            ("3652501d", "ten thousand years"),
            ("99999999999999999999999s", "ten thousand years"),
            ("18446744073709551615w", "ten thousand years"),
        ] {
            let error = given.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("7d"), "{given:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(seconds in 0..=SECONDS_MAX) {
            let span = Span::from_seconds(seconds);
            prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
            let json = serde_json::to_string(&span).unwrap();
            prop_assert_eq!(serde_json::from_str::<Span>(&json).unwrap(), span);
            prop_assert_eq!(span.micros() / 1_000_000, seconds);
        }
    }
}
