//! The place of a record in every run of a view: exactly, with few blocks read.
//!
//! The merged sequence is ordered by record, equal ones by run, those of one run by place. Every first
//! record of a unit is a place in it; how many records are before such a place is known, without reading,
//! up to one unit for each run. So is the wanted place narrowed down to a *window* of a few units in each
//! run:
//!
//! ```text
//!   run 0   ----|--[--|--]--|----      sum of what is certainly before  <=  wanted
//!   run 1   -[--|--|--]--|--|--|-      sum of what may be before        >   wanted
//!   run 2   ---|---|---|[--]|---|      for every unit's start between the two
//! ```
//!
//! There are at most two unit starts for each run in between, so that some runs have windows of three units
//! or fewer. Of those, the units are read first in which the place is *guessed* to be, as if keys were spread
//! evenly within each: the errors of many runs cancel out, so that nearly always that is one unit of each
//! run, and the right one. What has been read is known exactly, the windows shrink to the place itself, and
//! what of them is still missing is read, until all of it is in memory and decided there. No run's window is
//! read before it is narrow.

use std::ops::Range;

use ascot_model::random::SplitMix64;

use crate::api::error::SortError;
use crate::records::{Records, Segment, Side};
use crate::runs::fence_keys::{Mark, Rest};
use crate::runs::run::RunStart;
use crate::view::load::{At, Loaded, Loader, Measure};

/// Units read of one run at most, where blocks are of about the same size.
pub const MOST_UNITS: usize = 4;

/// A place in the merged sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The first record of each run that is not before it.
    pub starts: Vec<RunStart>,
    /// What was asked for beyond the place, in what it was counted in: less than a record.
    pub beyond: u64,
    /// The run whose record comes next, where `beyond` is not nothing.
    pub next: usize,
}

/// A unit window of each run: the wanted place is in one of `lo..=hi`.
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
    /// The last place with at most `wanted` before it.
    pub fn place(&mut self, wanted: u64, measure: Measure) -> Result<Placed, SortError> {
        if wanted >= self.total(measure) {
            return Ok(Placed { starts: self.ends(), beyond: wanted - self.total(measure), next: 0 });
        }
        if wanted == 0 {
            return Ok(Placed { starts: vec![RunStart::default(); self.runs()], beyond: 0, next: 0 });
        }
        let loaded = self.surroundings(&[wanted], measure)?;
        Ok(self.decide(&loaded, None, wanted, measure).placed(self.records, &loaded))
    }

    /// Of every run the units in which the places with so much before them are, none of which is the end,
    /// and all units between these places.
    pub fn surroundings(&mut self, wanted: &[u64], measure: Measure) -> Result<Vec<Loaded>, SortError> {
        let count = self.runs();
        let last = |run| self.keys(run).count().saturating_sub(1);
        let all = Windows { lo: vec![0; count], hi: (0..count).map(last).collect() };
        let mut places: Vec<(u64, Windows)> = wanted.iter().map(|&wanted| (wanted, all.clone())).collect();
        let mut loaded: Vec<Option<Loaded>> = (0..count).map(|_| None).collect();
        loop {
            for (wanted, windows) in &mut places {
                self.narrow(windows, &loaded, *wanted, measure);
            }
            let units = |run: usize| hull(places.iter().map(|(_, windows)| windows.units(run)));
            let missing: Vec<usize> = (0..count).filter(|&run| !holds(&loaded[run], &units(run))).collect();
            let widest = |run: usize| places.iter().map(|(_, windows)| windows.units(run).len()).max();
            let Some(least) = missing.iter().filter_map(|&run| widest(run)).min() else { break };
            let most = least.max(MOST_UNITS);
            let ready = missing.into_iter().filter(|&run| widest(run) <= Some(most));
            let ranges: Vec<_> = if loaded.iter().all(Option::is_none) {
                let guesses: Vec<_> = places
                    .iter()
                    .map(|(wanted, at)| self.guess((&at.lo, &at.hi), *wanted, measure))
                    .collect();
                ready.map(|run| (run, hull(guesses.iter().map(|guess| guess[run].clone())))).collect()
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

    /// The place of the first record with at least this normalised key.
    pub fn place_of_key(&mut self, key: &[u8]) -> Result<Placed, SortError> {
        let units: Vec<usize> =
            (0..self.runs()).map(|run| self.keys(run).unit_for_key(self.records, key)).collect();
        let ranges: Vec<_> = units.into_iter().enumerate().map(|(run, unit)| (run, unit..unit + 1)).collect();
        let windows = self.load_all(&ranges)?;
        let starts = windows.iter().map(|window| {
            let at =
                window.find(window.all(), |segment| self.records.position_of_key(segment, key, Side::Lower));
            window.start(self.records, at)
        });
        Ok(Placed { starts: starts.collect(), beyond: 0, next: 0 })
    }

    /// Narrows the windows as far as the starts of units allow.
    fn narrow(&self, windows: &mut Windows, loaded: &[Option<Loaded>], wanted: u64, measure: Measure) {
        // Starts of units that are certainly not behind the wanted place, and then those that are not
        // certainly behind it: they are among the others.
        windows.lo = self.divide(windows, loaded, (wanted, measure), true);
        windows.hi = self.divide(windows, loaded, (wanted, measure), false);
    }

    /// For each run the last unit of its window whose start has at most `wanted` before it, by what it has
    /// at `most` or by what it has at least: such starts come before all others, in the order of the merged
    /// sequence.
    fn divide(
        &self,
        windows: &Windows,
        loaded: &[Option<Loaded>],
        (wanted, measure): (u64, Measure),
        most: bool,
    ) -> Vec<usize> {
        let (mut lo, mut hi) = (windows.lo.clone(), windows.hi.clone());
        let mut dice = SplitMix64::default();
        loop {
            let left: usize = (0..lo.len()).map(|run| hi[run] - lo[run]).sum();
            if left == 0 {
                return lo;
            }
            // Any one of those left, so that half of them go each time.
            let (mut pick, mut run) = (dice.below(left as u64) as usize, 0);
            while pick >= hi[run] - lo[run] {
                pick -= hi[run] - lo[run];
                run += 1;
            }
            let unit = lo[run] + 1 + pick;
            let Some(mark) = self.keys(run).mark(self.records, unit) else { return lo };
            let mut before = 0;
            let units: Vec<usize> = (0..lo.len())
                .map(|other| match other == run {
                    true => {
                        before += self.before(run, unit, measure);
                        unit
                    }
                    false => {
                        let side = if other < run { Side::Upper } else { Side::Lower };
                        let at = self.keys(other).unit_for(self.records, &mark, side);
                        let known = loaded[other].as_ref().filter(|known| known.units().contains(&at));
                        before += match known {
                            Some(known) => self.before_mark(known, &mark, side, measure),
                            None => self.before(other, at + usize::from(most), measure),
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

    /// What of a run is before a mark, which belongs in units that are in memory.
    fn before_mark(&self, known: &Loaded, mark: &Mark<R::Bound>, side: Side, measure: Measure) -> u64 {
        let at = known.find(known.all(), |segment| match &mark.rest {
            Rest::Key(key) => self.records.position_of_key(segment, key, side),
            Rest::Record(bound) => self.records.position(segment, bound, side, false),
        });
        known.before(self.records, at, measure)
    }

    /// The place in windows that are in memory: by bisection over their records.
    /// It is not before the one `known` already.
    pub fn decide(
        &self,
        loaded: &[Loaded],
        known: Option<&Decided>,
        wanted: u64,
        measure: Measure,
    ) -> Decided {
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
            let (mut pick, mut run) = (dice.below(left), 0);
            while pick >= sizes[run] {
                pick -= sizes[run];
                run += 1;
            }
            let Some(bound) = loaded[run].middle(records, lo[run], hi[run], pick) else { break };
            let places = |own: Side| -> (Vec<_>, u64) {
                let at = |other: usize| {
                    let side = match other.cmp(&run) {
                        std::cmp::Ordering::Less => Side::Upper,
                        std::cmp::Ordering::Equal => own,
                        std::cmp::Ordering::Greater => Side::Lower,
                    };
                    let inside = |segment: &Segment| records.position(segment, &bound, side, false);
                    loaded[other].find((lo[other], hi[other]), inside)
                };
                let all: Vec<_> = (0..loaded.len()).map(at).collect();
                let before = (0..all.len()).map(|it| loaded[it].before(records, all[it], measure)).sum();
                (all, before)
            };
            let (first, before) = places(Side::Lower);
            if before > wanted {
                hi = first;
                continue;
            }
            let (behind, upto) = places(Side::Upper);
            if upto <= wanted {
                lo = behind;
                continue;
            }
            // Among the equals of one run.
            let mut starts = first;
            let (at, beyond) = loaded[run].go_on(records, starts[run], wanted - before, measure);
            starts[run] = at;
            return Decided { starts, beyond, next: run };
        }
        let before: u64 = (0..lo.len()).map(|run| loaded[run].before(records, lo[run], measure)).sum();
        Decided { starts: lo, beyond: wanted.saturating_sub(before), next: 0 }
    }
}

/// The least range that has all of these in it.
fn hull(ranges: impl Iterator<Item = Range<usize>>) -> Range<usize> {
    ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

fn holds(loaded: &Option<Loaded>, units: &Range<usize>) -> bool {
    let known = loaded.as_ref().map(Loaded::units);
    known.is_some_and(|known| known.start <= units.start && units.end <= known.end)
}

/// What has to be loaded beside what is, so that all between is there, too.
fn rest_of(loaded: &Option<Loaded>, units: Range<usize>) -> Vec<Range<usize>> {
    let Some(known) = loaded.as_ref().map(Loaded::units) else { return vec![units] };
    let sides = [units.start..known.start, known.end..units.end];
    sides.into_iter().filter(|side| !side.is_empty()).collect()
}

/// A place in units that are in memory.
#[derive(Clone, Debug)]
pub struct Decided {
    /// In each run.
    pub starts: Vec<At>,
    /// As in [`Placed`].
    pub beyond: u64,
    /// As in [`Placed`].
    pub next: usize,
}

impl Decided {
    fn placed<R: Records>(self, records: &R, loaded: &[Loaded]) -> Placed {
        let starts = self.starts.iter().zip(loaded).map(|(&at, window)| window.start(records, at)).collect();
        Placed { starts, beyond: self.beyond, next: self.next }
    }
}
