//! Interpolation: estimates the unit of each run that holds a position of the merged sequence, from fence keys alone.
//!
//! ```text
//!   keys of run 0   10 ......... 50 ......... 90        the count of each run before key 63, as if keys were
//!   keys of run 1     20 ... 40 ... 60 ... 80           spread evenly between fence keys; in the sum the errors
//!                                   ^ 63                of the runs mostly cancel out
//! ```
//!
//! With n runs each error is a fraction of a unit, and the sum of the errors is about that fraction times the square
//! root of n. An error of the key moves the position in each run by an nth part of it. So the position is inside one
//! unit of nearly every run. The estimate only decides which units are read first.

use std::ops::Range;

use crate::records::Records;
use crate::view::load::Loader;
use crate::view::load::Measure;

/// Margin of an estimate: this part of a unit, divided by the square root of the number of runs. It is twice the
/// standard deviation of a position that is spread evenly over a unit.
const MARGIN: f64 = 0.6;

impl<R: Records> Loader<'_, R> {
    /// The units of each run's window `lo..=hi` that probably hold the position with `wanted` before it.
    pub fn interpolate(
        &self,
        lo: &[usize],
        hi: &[usize],
        wanted: u64,
        measure: Measure,
    ) -> Vec<Range<usize>> {
        let windows: Vec<Window> =
            (0..self.runs()).map(|run| self.window(run, lo[run]..=hi[run], measure)).collect();
        let (mut least, mut most) = (0u64, u64::MAX);
        while least < most {
            let middle = least.midpoint(most);
            let before: f64 = windows.iter().map(|window| window.before(window.unit_at(middle))).sum();
            if before < wanted as f64 { least = middle + 1 } else { most = middle }
        }
        let margin = MARGIN / (self.runs() as f64).sqrt();
        windows.iter().map(|window| window.around(least, margin)).collect()
    }

    fn window(&self, run: usize, units: std::ops::RangeInclusive<usize>, measure: Measure) -> Window {
        let (keys, (lo, hi)) = (self.keys(run), units.into_inner());
        let mut prefixes: Vec<u64> = (lo..=hi).filter_map(|unit| keys.prefix(unit)).collect();
        let last = prefixes.last().copied().unwrap_or(0);
        // No key is known after the last unit of a run: the unit counts as wide as the one before.
        let width = last - hi.checked_sub(1).and_then(|before| keys.prefix(before)).unwrap_or(0).min(last);
        prefixes.push(keys.prefix(hi + 1).unwrap_or(last.saturating_add(width)));
        let before = (lo..=hi + 1).map(|unit| self.before(run, unit, measure)).collect();
        Window { lo, prefixes, before }
    }
}

/// What is known of the units in a run's window.
struct Window {
    /// Number of the first.
    lo: usize,
    /// Prefixes of their first keys, and that of what follows.
    prefixes: Vec<u64>,
    /// What of the run is before each of them.
    before: Vec<u64>,
}

impl Window {
    /// The place of a prefix, counted in units of the window.
    fn unit_at(&self, prefix: u64) -> f64 {
        let after = self.prefixes.partition_point(|&first| first <= prefix);
        match (after.checked_sub(1), self.prefixes.get(after)) {
            (None, _) => 0.0,
            (Some(unit), Some(&next)) => {
                let from = self.prefixes[unit];
                unit as f64 + (prefix - from) as f64 / (next - from) as f64
            }
            (Some(all), None) => all as f64,
        }
    }

    /// The count of the run before such a position.
    fn before(&self, unit: f64) -> f64 {
        let whole = (unit as usize).min(self.before.len().saturating_sub(2));
        let (from, to) = (self.before.get(whole), self.before.get(whole + 1));
        let (from, to) = (from.copied().unwrap_or(0) as f64, to.copied().unwrap_or(0) as f64);
        from + (unit - whole as f64) * (to - from)
    }

    /// The units within `margin` of a prefix; all of them where all prefixes are equal.
    fn around(&self, prefix: u64, margin: f64) -> Range<usize> {
        let count = self.before.len() - 1;
        if self.prefixes.first() == self.prefixes.last() {
            return self.lo..self.lo + count;
        }
        let at = self.unit_at(prefix);
        let first = ((at - margin).max(0.0) as usize).min(count - 1);
        let last = ((at + margin) as usize).min(count - 1);
        self.lo + first..self.lo + last + 1
    }
}
