//! Growth of a cost: fits a curve to points and returns its exponent.

use serde::Serialize;

/// Curve through points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Fit {
    /// Exponent of `time = factor * n ^ exponent`: least squares of the logarithms.
    pub(crate) exponent: f64,
    /// Exponent of `time = constant + factor * n ^ beyond_constant`: the growth beyond the start of a
    /// process.
    pub(crate) beyond_constant: Option<f64>,
    /// Constant of that curve, in seconds.
    pub(crate) constant: Option<f64>,
}

/// Fits a curve through points; `None` if all have the same `n`.
pub(crate) fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let logarithms: Vec<(f64, f64)> = points
        .iter()
        .filter(|(n, time)| *n > 0.0 && *time > 0.0)
        .map(|(n, time)| (n.ln(), time.ln()))
        .collect();
    let (_, exponent) = line(&logarithms, &vec![1.0; logarithms.len()])?;
    let beyond = beyond_constant(points);
    Some(Fit { exponent, beyond_constant: beyond.map(|b| b.0), constant: beyond.map(|b| b.1) })
}

/// Returns the straight line `a + b x` with the least weighted squares.
fn line(points: &[(f64, f64)], weights: &[f64]) -> Option<(f64, f64)> {
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().zip(weights).map(|((x, y), weight)| weight * of(*x, *y)).sum()
    };
    let all = sum(&|_, _| 1.0);
    let (x, y) = (sum(&|x, _| x) / all, sum(&|_, y| y) / all);
    let spread = sum(&|a, _| (a - x) * (a - x));
    if points.len() < 2 || spread <= f64::EPSILON * x.abs().max(1e-300) {
        return None;
    }
    let slope = sum(&|a, b| (a - x) * (b - y)) / spread;
    Some((y - slope * x, slope))
}

/// Tries exponents, each with its best constant and factor. Errors are relative, so that small points count.
/// Returns `None` for fewer than four points, for no growth, or for a negative constant.
fn beyond_constant(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    if points.len() < 4 {
        return None;
    }
    let weights: Vec<f64> = points.iter().map(|(_, time)| 1.0 / (time * time)).collect();
    let mut best: Option<(f64, f64, f64)> = None;
    for step in 5..=300 {
        let exponent = f64::from(step) / 100.0;
        let powers: Vec<(f64, f64)> = points.iter().map(|(n, time)| (n.powf(exponent), *time)).collect();
        let Some((constant, factor)) = line(&powers, &weights) else { continue };
        if constant < 0.0 || factor <= 0.0 {
            continue;
        }
        let error: f64 = powers
            .iter()
            .zip(&weights)
            .map(|((power, time), weight)| weight * (constant + factor * power - time).powi(2))
            .sum();
        if best.is_none_or(|(least, _, _)| error < least) {
            best = Some((error, exponent, constant));
        }
    }
    best.map(|(_, exponent, constant)| (exponent, constant))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(of: impl Fn(f64) -> f64) -> Fit {
        let points: Vec<_> = [1e3, 3e3, 1e4, 3e4, 1e5].into_iter().map(|n| (n, of(n))).collect();
        fit(&points).unwrap()
    }

    #[test]
    fn known_curves_have_their_exponents() {
        for exponent in [0.5, 1.0, 1.5, 2.0] {
            let found = curve(|n| 3e-6 * n.powf(exponent)).exponent;
            assert!((found - exponent).abs() < 1e-9, "{found} for {exponent}");
        }
        assert!(curve(|_| 0.02).exponent.abs() < 1e-9);
    }

    #[test]
    fn a_constant_does_not_hide_the_exponent() {
        for exponent in [0.5, 1.0, 2.0] {
            let fit = curve(|n| 0.010 + 1e-3 * (n / 1e4).powf(exponent));
            assert!(fit.exponent < exponent, "{fit:?}");
            assert!((fit.beyond_constant.unwrap() - exponent).abs() < 0.02, "{fit:?}");
            assert!((fit.constant.unwrap() - 0.010).abs() < 1e-3, "{fit:?}");
        }
    }

    #[test]
    fn too_few_points_fit_nothing() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[(1.0, 1.0)]), None);
        assert_eq!(fit(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
