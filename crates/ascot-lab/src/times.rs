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
        assert_eq!((mean_ms(&[]), range_ms(&[]), deviation_ms(&[5])), (0.0, (0.0, 0.0), 0.0));
    }
}
