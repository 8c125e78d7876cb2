//! Series of measurements: median and spread.

use serde::Serialize;

/// Measurements in order, in seconds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Series {
    /// Times.
    pub(crate) seconds: Vec<f64>,
}

impl Series {
    /// Adds a measurement.
    pub(crate) fn push(&mut self, seconds: f64) {
        self.seconds.push(seconds);
    }

    /// Returns the median; for an even count the mean of the middle two.
    pub(crate) fn median(&self) -> Option<f64> {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            n if n % 2 == 1 => Some(sorted[middle]),
            _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        }
    }

    /// Returns minimum and maximum.
    pub(crate) fn spread(&self) -> Option<(f64, f64)> {
        let sorted = self.sorted();
        Some((*sorted.first()?, *sorted.last()?))
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// Formats seconds for people.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        v if v < 0.001 => format!("{:.2} ms", v * 1e3),
        v if v < 0.1 => format!("{:.1} ms", v * 1e3),
        v if v < 1.0 => format!("{:.0} ms", v * 1e3),
        v if v < 10.0 => format!("{v:.2} s"),
        v => format!("{v:.1} s"),
    }
}

/// Formats bytes for people.
pub(crate) fn bytes(value: u64) -> String {
    match value {
        v if v < 10_000 => format!("{v} B"),
        v if v < 10_000_000 => format!("{:.1} kB", v as f64 / 1e3),
        v => format!("{:.0} MB", v as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        let of = |values: &[f64]| Series { seconds: values.to_vec() }.median();
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(Series { seconds: vec![2.0, 9.0, 1.0] }.spread(), Some((1.0, 9.0)));
    }

    #[test]
    fn figures_have_units() {
        assert_eq!(seconds(0.01234), "12.3 ms");
        assert_eq!(seconds(1.234), "1.23 s");
        assert_eq!(bytes(267_400_000), "267 MB");
    }
}
