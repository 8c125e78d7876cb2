//! Times as names of checkpoints: the newest checkpoint at or before a time that people type.

use crate::context::{Surroundings, time_zone};
use crate::problem::Problem;
use crate::render::terminal::moment;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use safepoint::model::Timestamp;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{CheckpointManager, Error, Workspace};

/// Longer texts are no time.
const LETTERS_MAX: usize = 64;

const MICROS: i64 = 1_000_000;

/// The last moment of a second.
const SECOND_END_NANOS: i32 = 999_999_000;

/// Seconds in each unit, by the words for it.
const UNITS: &[(&[&str], i64)] = &[
    (&["s", "sec", "secs", "second", "seconds"], 1),
    (&["m", "min", "mins", "minute", "minutes"], 60),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600),
    (&["d", "day", "days"], 86_400),
    (&["w", "week", "weeks"], 604_800),
];

/// Returns the newest checkpoint of a workspace at or before the time that was typed; `error` if it is no time.
pub(crate) fn named(
    manager: &CheckpointManager,
    workspace: Option<&Workspace>,
    given: &str,
    error: Error,
) -> Result<Checkpoint, Problem> {
    let Some(time) = typed(given) else { return Err(error.into()) };
    manager.checkpoints().newest_until(workspace, time)?.ok_or_else(|| too_early(error, time))
}

/// The same among these, newest first.
pub(crate) fn among(checkpoints: Vec<Checkpoint>, given: &str, error: Error) -> Result<Checkpoint, Problem> {
    let Some(time) = typed(given) else { return Err(error.into()) };
    let mut asked_for = checkpoints.into_iter().filter(|found| found.role.is_none());
    asked_for.find(|found| found.created_at <= time).ok_or_else(|| too_early(error, time))
}

fn too_early(error: Error, time: Timestamp) -> Problem {
    Problem::from(error).hint(format!("No checkpoint was taken at or before {}.", moment(time)))
}

fn typed(given: &str) -> Option<Timestamp> {
    parse(given, Surroundings::now(), &time_zone())
}

/// Reads a time: `10 minutes ago`, `2h ago`, `14:30`, `yesterday`, `yesterday 14:30`, `2026-01-31`, `2026-01-31 14:30`, or RFC 3339. A day
/// without a time of day means its end; a time of day that is still to come means the one of the day before.
fn parse(given: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let text = given.trim();
    if text.chars().count() > LETTERS_MAX {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    if let Some(span) = lower.strip_suffix("ago").and_then(|span| seconds(span.trim())) {
        return Some(Timestamp::from_micros(now.micros().checked_sub(span.checked_mul(MICROS)?)?));
    }
    let today = zone.to_datetime(jiff::Timestamp::from_microsecond(now.micros()).ok()?).date();
    let (day, rest) = match lower.split_once(' ') {
        Some((day, rest)) => (day, rest.trim()),
        None => (lower.as_str(), ""),
    };
    let date = match day {
        "today" => Some(today),
        "yesterday" => Some(today.yesterday().ok()?),
        _ => date(day),
    };
    match (date, rest) {
        (Some(date), "") => end_of(date, zone),
        (Some(date), rest) => match time_of_day(rest) {
            Some(time) => at(date.to_datetime(time), zone),
            None => exact(text, zone),
        },
        (None, _) => match time_of_day(&lower) {
            Some(time) => match at(today.to_datetime(time), zone)? {
                future if future > now => at(today.yesterday().ok()?.to_datetime(time), zone),
                past => Some(past),
            },
            None => exact(text, zone),
        },
    }
}

/// Seconds of `10 minutes`, `10m` or `an hour`.
fn seconds(text: &str) -> Option<i64> {
    let (count, unit) = match text.split_once(char::is_whitespace) {
        Some((count, unit)) => (count, unit.trim()),
        None => text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?),
    };
    let count: i64 = match count {
        "a" | "an" => 1,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    let (_, seconds) = UNITS.iter().find(|(words, _)| words.contains(&unit))?;
    count.checked_mul(*seconds)
}

/// Reads `14:30` or `14:30:05`, which means the end of that second: times are shown without fractions.
fn time_of_day(text: &str) -> Option<Time> {
    let mut numbers = text.split(':').map(|number| match number.len() {
        1..=2 if number.bytes().all(|byte| byte.is_ascii_digit()) => number.parse::<i8>().ok(),
        _ => None,
    });
    let (hour, minute) = (numbers.next()??, numbers.next()??);
    let (second, nanos) = match numbers.next() {
        Some(second) => (second?, SECOND_END_NANOS),
        None => (0, 0),
    };
    if numbers.next().is_some() { None } else { Time::new(hour, minute, second, nanos).ok() }
}

/// Reads `2026-01-31`.
fn date(text: &str) -> Option<Date> {
    (text.len() == 10).then(|| text.parse().ok()).flatten()
}

/// Reads RFC 3339, or a local date and time.
fn exact(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    date(text.get(..10)?)?;
    let time = match text.parse::<jiff::Timestamp>() {
        Ok(time) => Timestamp::from_micros(time.as_microsecond()),
        Err(_) => at(text.parse::<DateTime>().ok()?, zone)?,
    };
    let to_the_second = text.get(16..17) == Some(":") && !text.contains(['.', ',']);
    let more = if to_the_second { i64::from(SECOND_END_NANOS) / 1_000 } else { 0 };
    Some(Timestamp::from_micros(time.micros().checked_add(more)?))
}

fn at(time: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    Some(Timestamp::from_micros(zone.to_timestamp(time).ok()?.as_microsecond()))
}

fn end_of(date: Date, zone: &TimeZone) -> Option<Timestamp> {
    let next = at(date.tomorrow().ok()?.to_datetime(Time::midnight()), zone)?;
    Some(Timestamp::from_micros(next.micros().checked_sub(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_time_are_none() {
        let now = "2026-01-31T12:00:00Z".parse().unwrap();
        for text in [
            "",
            " ",
            "ago",
            "x ago",
            "-1 days ago",
            "+1 days ago",
            "1 fortnight ago",
            "14",
            "14:",
            ":30",
            "14:60",
            "24:00",
            "1:2:3:4",
            "today noon",
            "2026-02-30",
            "2026-1-1",
            "first",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
            "99999999999999999999 days ago",
            "9223372036854775807 weeks ago",
        ] {
            assert_eq!(parse(text, now, &TimeZone::UTC), None, "{text:?}");
        }
        assert_eq!(parse(&"1".repeat(9_000), now, &TimeZone::UTC), None);
        for (text, wanted) in [
            ("0 seconds ago", "2026-01-31T12:00:00Z"),
            ("2 weeks ago", "2026-01-17T12:00:00Z"),
            ("A Day Ago", "2026-01-30T12:00:00Z"),
            ("today 9:05", "2026-01-31T09:05:00Z"),
            ("12:00", "2026-01-31T12:00:00Z"),
            ("12:01", "2026-01-30T12:01:00Z"),
            ("2026-01-30", "2026-01-30T23:59:59.999999Z"),
            ("2026-01-30T08:00+02:00", "2026-01-30T06:00:00Z"),
            ("2026-01-30 08:00:05+02:00", "2026-01-30T06:00:05.999999Z"),
            ("2026-01-30 08:00:05Z", "2026-01-30T08:00:05.999999Z"),
            ("2026-01-30T08:00:05.25Z", "2026-01-30T08:00:05.25Z"),
            ("2026-01-30 08:00:05", "2026-01-30T08:00:05.999999Z"),
            ("11:00:05", "2026-01-31T11:00:05.999999Z"),
        ] {
            assert_eq!(parse(text, now, &TimeZone::UTC), Some(wanted.parse().unwrap()), "{text:?}");
        }
    }
}
