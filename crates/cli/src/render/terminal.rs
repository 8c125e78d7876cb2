//! Text formats: colours, sizes, times, progress bars.

mod bars;
mod harmless;

use crate::context::time_zone;
use anstyle::{AnsiColor, Effects, Style};
use jiff::tz::{Offset, TimeZone};
use safepoint::model::{Bytes, Timestamp};
use std::fmt::Display;
use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) use bars::{Bars, verb};
pub(crate) use harmless::{content, for_shell, harmless, json_text, one_line, printable, printable_bytes};

/// Colour setting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Colours {
    pub(crate) on: bool,
}

impl Colours {
    fn paint(self, style: Style, text: impl Display) -> String {
        if self.on { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    fn colour(self, colour: AnsiColor, text: impl Display) -> String {
        self.paint(colour.on_default(), text)
    }

    pub(crate) fn bold(self, text: impl Display) -> String {
        self.paint(Style::new().effects(Effects::BOLD), text)
    }

    pub(crate) fn dim(self, text: impl Display) -> String {
        self.paint(Style::new().effects(Effects::DIMMED), text)
    }

    pub(crate) fn red(self, text: impl Display) -> String {
        self.colour(AnsiColor::Red, text)
    }

    pub(crate) fn green(self, text: impl Display) -> String {
        self.colour(AnsiColor::Green, text)
    }

    pub(crate) fn yellow(self, text: impl Display) -> String {
        self.colour(AnsiColor::Yellow, text)
    }

    pub(crate) fn blue(self, text: impl Display) -> String {
        self.colour(AnsiColor::Blue, text)
    }

    pub(crate) fn cyan(self, text: impl Display) -> String {
        self.colour(AnsiColor::Cyan, text)
    }
}

/// Formats a duration.
pub(crate) fn took(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Columns that a text takes on a terminal: wide characters take two, combining ones none.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Truncates a text to a number of columns.
pub(crate) fn shortened(text: &str, columns_max: usize) -> String {
    if columns(text) <= columns_max {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |letter: &char| {
        used += letter.width().unwrap_or(0);
        used <= columns_max
    };
    let cut: String = text.chars().take_while(fits).collect();
    if columns_max == 0 { cut } else { cut + "…" }
}

/// Fills a text with spaces up to a number of columns.
pub(crate) fn padded(text: &str, columns_min: usize) -> String {
    format!("{text}{}", " ".repeat(columns_min.saturating_sub(columns(text))))
}

/// `1 file`, `2 files`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Formats a number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// Formats the age of a time.
pub(crate) fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.micros().saturating_sub(then.micros()) / 1_000_000;
    let (count, unit) = match seconds {
        i64::MIN..10 => return "just now".to_owned(),
        10..60 => (seconds, "second"),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        86_400..2_592_000 => (seconds / 86_400, "day"),
        _ => return moment(then).chars().take(10).collect(),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

/// Formats the age of a time in few letters, for narrow terminals.
pub(crate) fn briefly_ago(now: Timestamp, then: Timestamp) -> String {
    let long = ago(now, then);
    match long.split_once(' ') {
        Some(("just", _)) => "now".to_owned(),
        Some((count, unit)) => format!("{count}{}", unit.chars().next().unwrap_or_default()),
        None => long,
    }
}

/// Formats a time to the second, in the zone of the user.
pub(crate) fn moment(then: Timestamp) -> String {
    moment_in(then, &time_zone())
}

fn moment_in(then: Timestamp, zone: &TimeZone) -> String {
    let in_utc = || then.to_string().chars().take(19).collect::<String>().replace('T', " ") + "Z";
    // Times without a calendar date in the zone are shown in UTC.
    let Ok(time) = jiff::Timestamp::from_microsecond(then.micros()) else { return in_utc() };
    if zone.to_fixed_offset().is_ok_and(Offset::is_zero) {
        return in_utc();
    }
    time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%:z").to_string()
}

/// Width of the terminal.
pub(crate) fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 20).unwrap_or(80)
}

/// Size of the terminal that shows progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

pub(crate) fn screen() -> Screen {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    let (rows, columns) = size.map_or((0, 0), |size| (usize::from(size.ws_row), usize::from(size.ws_col)));
    Screen { rows: if rows >= 8 { rows } else { 24 }, columns: if columns >= 20 { columns } else { 80 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_with_two_or_three_digits() {
        let said: Vec<String> = [0, 999, 1_000, 12_345, 999_600, 123_456_789, u64::MAX]
            .iter()
            .map(|bytes| size(*bytes))
            .collect();
        assert_eq!(said, ["0 B", "999 B", "1.0 kB", "12.3 kB", "1.0 MB", "123 MB", "18.4 EB"]);
    }

    #[test]
    fn moments_are_said_by_their_distance() {
        let then = Timestamp::from_micros(1_763_193_600_000_000);
        let after = |seconds: i64| ago(Timestamp::from_micros(then.micros() + seconds * 1_000_000), then);
        assert_eq!(
            [after(-5), after(9), after(10), after(61)],
            ["just now", "just now", "10 seconds ago", "1 minute ago"]
        );
        assert_eq!(
            [after(7_200), after(86_400 * 3), after(86_400 * 40)],
            ["2 hours ago", "3 days ago", &moment(then)[..10]]
        );
        let brief =
            |seconds: i64| briefly_ago(Timestamp::from_micros(then.micros() + seconds * 1_000_000), then);
        assert_eq!([brief(9), brief(61), brief(7_200), brief(86_400)], ["now", "1m", "2h", "1d"]);
        assert_eq!(moment_in(then, &TimeZone::UTC), "2025-11-15 08:00:00Z");
    }

    #[test]
    fn times_and_counts_are_said_as_people_say_them() {
        let said: Vec<String> =
            [12, 1_260, 59_990, 125_000, 3_725_000].map(|ms| took(Duration::from_millis(ms))).into();
        assert_eq!(said, ["12 ms", "1.3 s", "60.0 s", "2m 05s", "1h 02m"]);
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("abcd", 4), "abcd");
        assert_eq!(shortened("日本語", 5), "日本…");
        assert_eq!(shortened("日本語", 4), "日…");
        assert_eq!(shortened("日本語", 6), "日本語");
        assert_eq!(shortened("e\u{301}e\u{301}", 2), "e\u{301}e\u{301}");
        assert_eq!((shortened("abc", 0), shortened("abc", 1)), (String::new(), "…".to_owned()));
        assert_eq!((padded("日", 3), padded("abcd", 3)), ("日 ".to_owned(), "abcd".to_owned()));
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert!(Colours { on: true }.red("x").contains("\u{1b}[31m"));
    }
}
