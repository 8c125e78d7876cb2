//! Parser for byte counts such as `10GiB` and `500 MB`.

/// Units and their sizes in bytes.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Number of bytes, or the reason to refuse.
pub(super) fn parse(text: &str) -> Result<u64, &'static str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("it does not begin with a whole number");
    }
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let Some((_, bytes)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err("the units are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB");
    };
    number.parse::<u64>().ok().and_then(|count| count.checked_mul(*bytes)).ok_or("it is too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_understood() {
        for (text, bytes) in [
            ("7B", 7),
            ("1kB", 1_000),
            ("2KiB", 2_048),
            ("500 MB", 500_000_000),
            ("10GiB", 10_737_418_240),
            ("1TiB", 1_099_511_627_776),
            ("3TB", 3_000_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_of_bytes_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "whole number"),
            ("GiB", "whole number"),
            ("-1GiB", "whole number"),
            ("10", "the units are"),
            ("10G", "the units are"),
            ("10  GiB", "the units are"),
            ("1.5GiB", "the units are"),
            ("none", "whole number"),
            ("99999999999TiB", "too large"),
            ("99999999999999999999999B", "too large"),
        ] {
            assert!(parse(text).unwrap_err().contains(why), "{text:?}");
        }
    }
}
