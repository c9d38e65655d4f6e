//! The times of the loops of a measurement, in nanoseconds, summed up in milliseconds.

use std::time::Instant;

/// Nanoseconds since a moment.
pub fn nanoseconds_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The mean.
pub fn mean_ms(loops_ns: &[u64]) -> f64 {
    loops_ns.iter().map(|&ns| ns as f64).sum::<f64>() / loops_ns.len().max(1) as f64 / 1e6
}

/// The shortest and the longest.
pub fn range_ms(loops_ns: &[u64]) -> (f64, f64) {
    let min = loops_ns.iter().min().copied().unwrap_or(0);
    let max = loops_ns.iter().max().copied().unwrap_or(0);
    (min as f64 / 1e6, max as f64 / 1e6)
}

/// The standard deviation, with n - 1; 0 for a single loop.
pub fn deviation_ms(loops_ns: &[u64]) -> f64 {
    let mean = mean_ms(loops_ns);
    let squares = loops_ns.iter().map(|&ns| (ns as f64 / 1e6 - mean).powi(2)).sum::<f64>();
    (squares / loops_ns.len().saturating_sub(1).max(1) as f64).sqrt()
}

/// The standard error of the mean, milliseconds; 0 for a single loop.
pub fn standard_error_ms(loops_ns: &[u64]) -> f64 {
    deviation_ms(loops_ns) / (loops_ns.len().max(1) as f64).sqrt()
}

/// A mean time and its standard error, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub ms: f64,
    /// Its standard error.
    pub error_ms: f64,
}

impl Mean {
    /// The mean of some loops.
    pub fn of(loops_ns: &[u64]) -> Self {
        Self { ms: mean_ms(loops_ns), error_ms: standard_error_ms(loops_ns) }
    }

    /// Whether it is shorter than another by more than the noise: two standard errors of the difference, and one
    /// percent.
    pub fn is_clearly_below(self, other: Self) -> bool {
        let noise = 2.0 * self.error_ms.hypot(other.error_ms);
        self.ms + noise.max(SAME_TIME * self.ms) < other.ms
    }
}

/// Times within this share of each other are the same (Heinrich et al., section 3.4.3).
const SAME_TIME: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_up() {
        let loops_ns = [1_000_000, 3_000_000, 2_000_000];
        assert_eq!(
            (mean_ms(&loops_ns), range_ms(&loops_ns), deviation_ms(&loops_ns)),
            (2.0, (1.0, 3.0), 1.0)
        );
        let means = [&[100, 102][..], &[101, 103], &[104, 106], &[300, 5]].map(Mean::of);
        let below = |a: usize, b: usize| means[a].is_clearly_below(means[b]);
        assert_eq!(
            [below(0, 1), below(0, 2), below(2, 0), below(0, 3), below(3, 0)],
            [false, true, false, false, false]
        );
        assert_eq!((mean_ms(&[]), range_ms(&[]), deviation_ms(&[5])), (0.0, (0.0, 0.0), 0.0));
    }
}
