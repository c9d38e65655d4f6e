//! Fits of measured costs by polynomials of degree one and two, by least squares of the relative error.
//!
//! Costs in a study span many powers of ten. Each point is weighted by the inverse of its cost, so that a fit is as
//! good for small jobs as for large ones; `r_squared` is that of the plain values, as Heinrich et al. (section 3.2.3)
//! quote it.

use serde::Serialize;

/// `cost = coefficients[0] + coefficients[1] x + ...`, and how well it describes the points.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// The coefficients, the constant first.
    pub coefficients: Vec<f64>,
    /// The share of the variance of the costs that the fit explains, at most 1.
    pub r_squared: f64,
    /// The root of the mean square of the relative error.
    pub relative_error: f64,
}

impl Fit {
    /// A straight line through points `(x, cost)` with positive costs; `None` for fewer than three different x: a line
    /// through two has no error, whatever they are.
    pub fn line(points: &[(f64, f64)]) -> Option<Self> {
        Self::polynomial(points, 2)
    }

    /// A parabola; `None` for fewer than four different x.
    pub fn parabola(points: &[(f64, f64)]) -> Option<Self> {
        Self::polynomial(points, 3)
    }

    /// The cost that the fit predicts at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
    }

    fn polynomial(points: &[(f64, f64)], terms: usize) -> Option<Self> {
        let usable = |(x, cost): &&(f64, f64)| x.is_finite() && cost.is_finite() && *cost > 0.0;
        let points: Vec<(f64, f64)> = points.iter().filter(usable).copied().collect();
        let mut different: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
        different.sort_by(f64::total_cmp);
        different.dedup();
        if different.len() <= terms {
            return None;
        }
        // Powers of x near one keep the equations well conditioned.
        let scale = different.iter().fold(0.0_f64, |max, x| max.max(x.abs())).max(f64::MIN_POSITIVE);
        let mut equations = vec![vec![0.0; terms + 1]; terms];
        for (x, cost) in &points {
            let powers: Vec<f64> = (0..terms).map(|power| (x / scale).powi(power as i32) / cost).collect();
            for (row, equation) in equations.iter_mut().enumerate() {
                for (column, term) in powers.iter().enumerate() {
                    equation[column] += powers[row] * term;
                }
                equation[terms] += powers[row];
            }
        }
        let solved = solve(equations)?;
        let coefficients = solved.iter().enumerate().map(|(power, c)| c / scale.powi(power as i32)).collect();
        let fit = Self { coefficients, r_squared: 0.0, relative_error: 0.0 };
        Some(fit.judged(&points))
    }

    fn judged(mut self, points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let mean = points.iter().map(|(_, cost)| cost).sum::<f64>() / count;
        let total: f64 = points.iter().map(|(_, cost)| (cost - mean).powi(2)).sum();
        let left: f64 = points.iter().map(|(x, cost)| (cost - self.at(*x)).powi(2)).sum();
        let relative: f64 = points.iter().map(|(x, cost)| ((cost - self.at(*x)) / cost).powi(2)).sum();
        self.r_squared = if total > 0.0 { 1.0 - left / total } else { 1.0 };
        self.relative_error = (relative / count).sqrt();
        self
    }
}

/// Gaussian elimination with partial pivots; each row has its right side last. `None` for a singular system.
fn solve(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = rows.len();
    for column in 0..count {
        let pivot =
            (column..count).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        let divisor = rows[column][column];
        if divisor.abs() < 1e-300 {
            return None;
        }
        let pivot_row = rows[column].clone();
        for row in rows.iter_mut().skip(column + 1) {
            let factor = row[column] / divisor;
            row.iter_mut().zip(&pivot_row).for_each(|(value, above)| *value -= factor * above);
        }
    }
    let mut solution = vec![0.0; count];
    for row in (0..count).rev() {
        let known: f64 = (row + 1..count).map(|column| rows[row][column] * solution[column]).sum();
        solution[row] = (rows[row][count] - known) / rows[row][row];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
    }

    #[test]
    fn exact_polynomials_are_found() {
        let line: Vec<(f64, f64)> = [1e3, 1e4, 1e6, 2.5e8].map(|x| (x, 3.0 + 4e-6 * x)).to_vec();
        let fit = Fit::line(&line).unwrap();
        assert!(close(fit.coefficients[0], 3.0) && close(fit.coefficients[1], 4e-6), "{fit:?}");
        assert!(close(fit.r_squared, 1.0) && fit.relative_error < 1e-6);
        let parabola: Vec<(f64, f64)> = [1.0, 2.0, 5.0, 30.0].map(|x| (x, 2.0 + x + 0.5 * x * x)).to_vec();
        let fit = Fit::parabola(&parabola).unwrap();
        assert!(close(fit.at(10.0), 62.0), "{fit:?}");
        assert!(Fit::line(&parabola).unwrap().relative_error > 0.1);
    }

    /// Papers/2, appendix: plain writing of a million integers to k streams; the paper quotes R² = 0.999.
    #[test]
    fn the_published_line_is_as_good_as_published() {
        let points = [
            (1.0, 3939.0),
            (2.0, 7991.0),
            (3.0, 11877.0),
            (4.0, 15944.0),
            (5.0, 20473.0),
            (10.0, 40724.0),
            (20.0, 81613.0),
            (30.0, 122_307.0),
        ];
        assert!(Fit::line(&points).unwrap().r_squared > 0.999);
    }

    #[test]
    fn too_few_points_have_no_fit() {
        assert_eq!(Fit::line(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(Fit::line(&[(1.0, 2.0), (1.0, 3.0), (2.0, 3.0)]), None, "it would have no error");
        assert_eq!(Fit::parabola(&[(1.0, 2.0), (2.0, 3.0), (3.0, 5.0)]), None);
        assert!(Fit::line(&[(1.0, 2.0), (2.0, 3.0), (3.0, 5.0)]).is_some_and(|fit| fit.relative_error > 0.0));
        assert_eq!(Fit::line(&[(1.0, 0.0), (2.0, -1.0)]), None);
    }
}
