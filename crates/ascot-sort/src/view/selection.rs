//! Multisequence selection over the runs of a view (Varman and others, 1991): finds the position in every run that
//! belongs to one position of the merged sequence. The answer is exact, and few blocks are read.
//!
//! The merged sequence is ordered by record; equal records are ordered by run, and those of one run by position. The
//! start of every unit is a position in it. The number of records before such a start is known without reading, up to
//! one unit for each run. This narrows the wanted position down to a *window* of a few units in each run:
//!
//! ```text
//!   run 0   ----|--[--|--]--|----      sum of the records certainly before   <=  wanted
//!   run 1   -[--|--|--]--|--|--|-      sum of the records possibly before    >   wanted
//!   run 2   ---|---|---|[--]|---|      for every unit start inside the windows
//! ```
//!
//! At most two unit starts for each run lie inside, so some runs have windows of three units or fewer. Interpolation
//! chooses the units of these windows that are read first. Units in memory are known exactly: the windows shrink, their
//! missing units are read, and the selection ends in memory once all of them are there. The window of a run is not read
//! before it is narrow.
//!
//! Interpolation estimates the unit of each run from fence keys alone:
//!
//! ```text
//!   keys of run 0   10 ......... 50 ......... 90        the count of each run before key 63, as if keys were
//!   keys of run 1     20 ... 40 ... 60 ... 80           spread evenly between fence keys; in the sum, the errors
//!                                   ^ 63                of the runs mostly cancel out
//! ```
//!
//! With n runs each error is a fraction of a unit, and the sum of the errors is about that fraction times the square
//! root of n. An error of the key moves the position in each run by an nth part of it. So the position is inside one
//! unit of nearly every run.

use std::ops::Range;

use ascot_model::random::SplitMix64;

use crate::api::Result;
use crate::records::{Records, Segment, Side};
use crate::runs::{FenceKey, Rest, RunStart};
use crate::view::load::{At, Loaded, Loader, Measure};

/// Maximum number of units read of one run, if blocks are of about the same size.
pub const MAX_UNITS: usize = 4;

/// A position in the merged sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The first record of each run that is not before it.
    pub starts: Vec<RunStart>,
    /// The rest of the wanted count after the position, in its measure: less than a record.
    pub beyond: u64,
    /// The run whose record comes next, if `beyond` is not 0.
    pub next: usize,
}

/// A window of units in each run: the wanted position is in one of `lo..=hi`.
#[derive(Clone)]
struct Windows {
    lo: Vec<usize>,
    hi: Vec<usize>,
}

impl Windows {
    fn units(&self, run: usize) -> Range<usize> {
        self.lo[run]..self.hi[run] + 1
    }
}

impl<R: Records> Loader<'_, R> {
    /// The last position with at most `wanted` before it.
    pub fn select(&mut self, wanted: u64, measure: Measure) -> Result<Selection> {
        if wanted >= self.total(measure) {
            return Ok(Selection { starts: self.ends(), beyond: wanted - self.total(measure), next: 0 });
        }
        if wanted == 0 {
            return Ok(Selection { starts: vec![RunStart::default(); self.runs()], beyond: 0, next: 0 });
        }
        let loaded = self.load_windows(&[wanted], measure)?;
        Ok(self.select_in_memory(&loaded, None, wanted, measure).into_selection(self.records, &loaded))
    }

    /// Loads, of every run, the units that contain the positions with `wanted` before them, and all units between these
    /// positions. None of the positions is the end.
    pub fn load_windows(&mut self, wanted: &[u64], measure: Measure) -> Result<Vec<Loaded>> {
        let count = self.runs();
        let last = |run| self.keys(run).count().saturating_sub(1);
        let all = Windows { lo: vec![0; count], hi: (0..count).map(last).collect() };
        let mut positions: Vec<(u64, Windows)> = wanted.iter().map(|&wanted| (wanted, all.clone())).collect();
        let mut loaded: Vec<Option<Loaded>> = (0..count).map(|_| None).collect();
        loop {
            for (wanted, windows) in &mut positions {
                self.narrow(windows, &loaded, *wanted, measure);
            }
            let units = |run: usize| hull(positions.iter().map(|(_, windows)| windows.units(run)));
            let missing: Vec<usize> = (0..count).filter(|&run| !holds(&loaded[run], &units(run))).collect();
            let widest = |run: usize| positions.iter().map(|(_, windows)| windows.units(run).len()).max();
            let Some(min) = missing.iter().filter_map(|&run| widest(run)).min() else { break };
            let max_units = min.max(MAX_UNITS);
            let ready = missing.into_iter().filter(|&run| widest(run) <= Some(max_units));
            let ranges: Vec<_> = if loaded.iter().all(Option::is_none) {
                let estimates: Vec<_> = positions
                    .iter()
                    .map(|(wanted, at)| self.interpolate(&at.lo, &at.hi, *wanted, measure))
                    .collect();
                ready.map(|run| (run, hull(estimates.iter().map(|units| units[run].clone())))).collect()
            } else {
                let rest = |run: usize| rest_of(&loaded[run], units(run)).into_iter();
                ready.flat_map(|run| rest(run).map(move |units| (run, units))).collect()
            };
            for ((run, _), more) in ranges.iter().zip(self.load_all(&ranges)?) {
                match &mut loaded[*run] {
                    Some(known) => known.join(more),
                    none => *none = Some(more),
                }
            }
        }
        Ok(loaded.into_iter().flatten().collect())
    }

    /// The position of the first record with at least this normalised key.
    pub fn select_key(&mut self, key: &[u8]) -> Result<Selection> {
        let units: Vec<usize> =
            (0..self.runs()).map(|run| self.keys(run).unit_for_key(self.records, key)).collect();
        let ranges: Vec<_> = units.into_iter().enumerate().map(|(run, unit)| (run, unit..unit + 1)).collect();
        let windows = self.load_all(&ranges)?;
        let starts = windows.iter().map(|window| {
            let at =
                window.find(window.all(), |segment| self.records.position_of_key(segment, key, Side::Lower));
            window.start(self.records, at)
        });
        Ok(Selection { starts: starts.collect(), beyond: 0, next: 0 })
    }

    /// Narrows the windows by the starts of units.
    fn narrow(&self, windows: &mut Windows, loaded: &[Option<Loaded>], wanted: u64, measure: Measure) {
        // First the unit starts that are certainly not after the wanted position, then those that may not be.
        windows.lo = self.divide(windows, loaded, wanted, measure, true);
        windows.hi = self.divide(windows, loaded, wanted, measure, false);
    }

    /// For each run the last unit of its window whose start has at most `wanted` before it. The count before a start
    /// is its upper bound if `upper`, else its lower bound. Such starts come before all others in the merged sequence.
    fn divide(
        &self,
        windows: &Windows,
        loaded: &[Option<Loaded>],
        wanted: u64,
        measure: Measure,
        upper: bool,
    ) -> Vec<usize> {
        let mut lo = windows.lo.clone();
        let mut hi = windows.hi.clone();
        let mut dice = SplitMix64::default();
        loop {
            let left: usize = (0..lo.len()).map(|run| hi[run] - lo[run]).sum();
            if left == 0 {
                return lo;
            }
            // A random one of the remaining starts, so that about half of them are eliminated each time.
            let mut pick = dice.below(left as u64) as usize;
            let mut run = 0;
            while pick >= hi[run] - lo[run] {
                pick -= hi[run] - lo[run];
                run += 1;
            }
            let unit = lo[run] + 1 + pick;
            let Some(fence) = self.keys(run).fence_key(self.records, unit) else { return lo };
            let mut before = 0;
            let units: Vec<usize> = (0..lo.len())
                .map(|other| match other == run {
                    true => {
                        before += self.before(run, unit, measure);
                        unit
                    }
                    false => {
                        let side = if other < run { Side::Upper } else { Side::Lower };
                        let at = self.keys(other).unit_for(self.records, &fence, side);
                        let known = loaded[other].as_ref().filter(|known| known.units().contains(&at));
                        before += match known {
                            Some(known) => self.before_fence_key(known, &fence, side, measure),
                            None => self.before(other, at + usize::from(upper), measure),
                        };
                        at
                    }
                })
                .collect();
            for (other, at) in units.into_iter().enumerate() {
                if before <= wanted {
                    lo[other] = at.clamp(lo[other], hi[other]);
                } else {
                    let at = if other == run { at - 1 } else { at };
                    hi[other] = at.clamp(lo[other], hi[other]);
                }
            }
        }
    }

    /// The count of a run before a fence key that belongs to units in memory.
    fn before_fence_key(
        &self,
        known: &Loaded,
        fence: &FenceKey<R::Bound>,
        side: Side,
        measure: Measure,
    ) -> u64 {
        let at = known.find(known.all(), |segment| match &fence.rest {
            Rest::Key(key) => self.records.position_of_key(segment, key, side),
            Rest::Record(bound) => self.records.position(segment, bound, side, false),
        });
        known.before(self.records, at, measure)
    }

    /// Selects in windows that are in memory, by bisection over their records. The position is not before `known`.
    pub fn select_in_memory(
        &self,
        loaded: &[Loaded],
        known: Option<&Position>,
        wanted: u64,
        measure: Measure,
    ) -> Position {
        let records = self.records;
        let first = || loaded.iter().map(Loaded::first).collect();
        let mut lo: Vec<_> = known.map_or_else(first, |known| known.starts.clone());
        let mut hi: Vec<_> = loaded.iter().map(Loaded::end).collect();
        let mut dice = SplitMix64::default();
        loop {
            let sizes: Vec<u64> =
                (0..loaded.len()).map(|run| loaded[run].span(records, lo[run], hi[run])).collect();
            let left: u64 = sizes.iter().sum();
            if left == 0 {
                break;
            }
            let mut pick = dice.below(left);
            let mut run = 0;
            while pick >= sizes[run] {
                pick -= sizes[run];
                run += 1;
            }
            let Some(bound) = loaded[run].middle(records, lo[run], hi[run], pick) else { break };
            let positions = |own: Side| -> (Vec<_>, u64) {
                let at = |other: usize| {
                    let side = match other.cmp(&run) {
                        std::cmp::Ordering::Less => Side::Upper,
                        std::cmp::Ordering::Equal => own,
                        std::cmp::Ordering::Greater => Side::Lower,
                    };
                    let inside = |segment: &Segment| records.position(segment, &bound, side, false);
                    loaded[other].find(lo[other]..hi[other], inside)
                };
                let all: Vec<_> = (0..loaded.len()).map(at).collect();
                let before = (0..all.len()).map(|it| loaded[it].before(records, all[it], measure)).sum();
                (all, before)
            };
            let (first, before) = positions(Side::Lower);
            if before > wanted {
                hi = first;
                continue;
            }
            let (after, count) = positions(Side::Upper);
            if count <= wanted {
                lo = after;
                continue;
            }
            // The position is among the equal records of one run.
            let mut starts = first;
            let (at, beyond) = loaded[run].go_on(records, starts[run], wanted - before, measure);
            starts[run] = at;
            return Position { starts, beyond, next: run };
        }
        let before: u64 = (0..lo.len()).map(|run| loaded[run].before(records, lo[run], measure)).sum();
        Position { starts: lo, beyond: wanted.saturating_sub(before), next: 0 }
    }
}

/// The smallest range that contains all of these.
fn hull(ranges: impl Iterator<Item = Range<usize>>) -> Range<usize> {
    ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

fn holds(loaded: &Option<Loaded>, units: &Range<usize>) -> bool {
    let known = loaded.as_ref().map(Loaded::units);
    known.is_some_and(|known| known.start <= units.start && units.end <= known.end)
}

/// The units to load beside those in memory, so that all units between are in memory too.
fn rest_of(loaded: &Option<Loaded>, units: Range<usize>) -> Vec<Range<usize>> {
    let Some(known) = loaded.as_ref().map(Loaded::units) else { return vec![units] };
    let sides = [units.start..known.start, known.end..units.end];
    sides.into_iter().filter(|side| !side.is_empty()).collect()
}

/// A position in units that are in memory.
#[derive(Clone, Debug)]
pub struct Position {
    /// The position in each run.
    pub starts: Vec<At>,
    /// As in [`Selection`].
    pub beyond: u64,
    /// As in [`Selection`].
    pub next: usize,
}

impl Position {
    fn into_selection<R: Records>(self, records: &R, loaded: &[Loaded]) -> Selection {
        let starts = self.starts.iter().zip(loaded).map(|(&at, window)| window.start(records, at)).collect();
        Selection { starts, beyond: self.beyond, next: self.next }
    }
}

/// Margin of an estimate: this part of a unit, divided by the square root of the number of runs. It is twice the
/// standard deviation of a position that is spread evenly over a unit.
const MARGIN: f64 = 0.6;

impl<R: Records> Loader<'_, R> {
    /// The units of each run that probably hold the position with `wanted` before it; none after the end.
    pub fn units_near(&self, wanted: u64, measure: Measure) -> Vec<Range<usize>> {
        let runs = 0..self.runs();
        if wanted == 0 {
            return runs.map(|_| 0..0).collect();
        }
        let counts = runs.map(|run| self.keys(run).count());
        if wanted >= self.total(measure) {
            return counts.map(|count| count..count).collect();
        }
        let last: Vec<usize> = counts.map(|count| count.saturating_sub(1)).collect();
        self.interpolate(&vec![0; last.len()], &last, wanted, measure)
    }

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
        let mut low = 0u64;
        let mut high = u64::MAX;
        while low < high {
            let middle = low.midpoint(high);
            let before: f64 = windows.iter().map(|window| window.before(window.unit_at(middle))).sum();
            if before < wanted as f64 { low = middle + 1 } else { high = middle }
        }
        let margin = MARGIN / (self.runs() as f64).sqrt();
        windows.iter().map(|window| window.around(low, margin)).collect()
    }

    fn window(&self, run: usize, units: std::ops::RangeInclusive<usize>, measure: Measure) -> Window {
        let keys = self.keys(run);
        let (lo, hi) = units.into_inner();
        let mut prefixes: Vec<u64> = (lo..=hi).filter_map(|unit| keys.prefix(unit)).collect();
        let last = prefixes.last().copied().unwrap_or(0);
        // No key is known after the last unit of a run: the unit counts as wide as the one before.
        let width = last - hi.checked_sub(1).and_then(|before| keys.prefix(before)).unwrap_or(0).min(last);
        prefixes.push(keys.prefix(hi + 1).unwrap_or(last.saturating_add(width)));
        let before = (lo..=hi + 1).map(|unit| self.before(run, unit, measure)).collect();
        Window { lo, prefixes, before }
    }
}

/// The known facts about the units in a run's window.
struct Window {
    /// Number of the first.
    lo: usize,
    /// Prefixes of their first keys, and of the key after the window.
    prefixes: Vec<u64>,
    /// The count of the run before each of them, and before the end of the window.
    before: Vec<u64>,
}

impl Window {
    /// The position of a prefix, in units of the window.
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
        let from = self.before.get(whole).copied().unwrap_or(0) as f64;
        let to = self.before.get(whole + 1).copied().unwrap_or(0) as f64;
        from + (unit - whole as f64) * (to - from)
    }

    /// The units within `margin` of a prefix; all of them if all prefixes are equal.
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
