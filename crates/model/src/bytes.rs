//! Byte counts for people.

use std::fmt;

/// Byte count that prints in a suitable unit, such as `1.5 MB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut units = ["kB", "MB", "GB", "TB", "PB", "EB"].iter();
        let mut unit = "B";
        while value >= 999.5
            && let Some(next) = units.next()
        {
            value /= 1000.0;
            unit = next;
        }
        let digits = usize::from(unit != "B" && value < 99.95);
        write!(f, "{value:.digits$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_suits_the_number() {
        let told = |bytes| Bytes(bytes).to_string();
        assert_eq!(told(0), "0 B");
        assert_eq!(told(999), "999 B");
        assert_eq!(told(1000), "1.0 kB");
        assert_eq!(told(123_456_789), "123 MB");
        assert_eq!(told(u64::MAX), "18.4 EB");
    }
}
