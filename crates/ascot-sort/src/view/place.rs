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
//! or fewer. Those are read; then they are known exactly, the windows of the others shrink, and so on until
//! all are read. What is left is decided in memory. No run's window is read before it is that narrow.

use crate::error::SortError;
use crate::records::{Records, Segment, Side};
use crate::runs::RunStart;
use crate::view::load::{At, Loaded, Loader};

/// Units read of one run at most, where blocks are of about the same size.
pub const MOST_UNITS: usize = 4;

/// What a place is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes before it.
    Bytes,
    /// Records before it.
    Records,
}

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
struct Windows {
    lo: Vec<usize>,
    hi: Vec<usize>,
}

impl<R: Records> Loader<'_, R> {
    /// The last place with at most `wanted` before it.
    pub fn place(&mut self, wanted: u64, measure: Measure) -> Result<Placed, SortError> {
        if wanted >= self.total(measure) {
            return Ok(Placed { starts: self.ends(), beyond: wanted - self.total(measure), next: 0 });
        }
        let loaded = self.surroundings(wanted, measure)?;
        Ok(self.decide(&loaded, wanted, measure).placed(self.records, &loaded))
    }

    /// Of every run the units in which the place with `wanted` before it is, which is not the end.
    pub fn surroundings(&mut self, wanted: u64, measure: Measure) -> Result<Vec<Loaded>, SortError> {
        let count = self.runs();
        let last = |run| self.keys(run).count().saturating_sub(1);
        let mut windows = Windows { lo: vec![0; count], hi: (0..count).map(last).collect() };
        let mut loaded: Vec<Option<Loaded>> = (0..count).map(|_| None).collect();
        loop {
            self.narrow(&mut windows, &loaded, wanted, measure);
            let open: Vec<usize> = (0..count).filter(|&run| loaded[run].is_none()).collect();
            let units = |run: usize| windows.hi[run] - windows.lo[run] + 1;
            let Some(least) = open.iter().map(|&run| units(run)).min() else { break };
            let most = least.max(MOST_UNITS);
            let ready: Vec<usize> = open.into_iter().filter(|&run| units(run) <= most).collect();
            let ranges: Vec<_> =
                ready.iter().map(|&run| (run, windows.lo[run]..windows.hi[run] + 1)).collect();
            for (run, window) in ready.into_iter().zip(self.load_all(&ranges)?) {
                loaded[run] = Some(window);
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
            let at = window.find(|segment| self.records.position_of_key(segment, key, Side::Lower));
            window.start(self.records, at)
        });
        Ok(Placed { starts: starts.collect(), beyond: 0, next: 0 })
    }

    /// Narrows the windows of runs not loaded as far as the starts of their units allow.
    fn narrow(&self, windows: &mut Windows, loaded: &[Option<Loaded>], wanted: u64, measure: Measure) {
        let certainly = |most: bool, (bound, run): (&R::Bound, usize), unit: usize| -> u64 {
            let of = |other: usize| {
                let side = if other < run { Side::Upper } else { Side::Lower };
                if let (Some(window), true) = (&loaded[other], other != run) {
                    let at = window.find(|segment| self.records.position(segment, bound, side, false));
                    return window.before(self.records, at, measure);
                }
                let keys = self.keys(other);
                if other == run {
                    return self.before(other, unit, measure);
                }
                let at = keys.unit_for(self.records, bound, side);
                self.before(other, at + usize::from(most), measure)
            };
            (0..self.runs()).map(of).sum()
        };
        // Starts of units that are certainly not behind the wanted place.
        let below =
            self.divide(windows, loaded, |bound, run, unit| certainly(true, (bound, run), unit) <= wanted);
        // And those that are not certainly behind it.
        let above =
            self.divide(windows, loaded, |bound, run, unit| certainly(false, (bound, run), unit) <= wanted);
        for run in (0..self.runs()).filter(|&run| loaded[run].is_none()) {
            windows.lo[run] = below[run];
            windows.hi[run] = above[run].max(below[run]);
        }
    }

    /// For each run that is not loaded the last unit of its window whose start is accepted: those accepted
    /// come before all others, in the order of the merged sequence.
    fn divide(
        &self,
        windows: &Windows,
        loaded: &[Option<Loaded>],
        accepts: impl Fn(&R::Bound, usize, usize) -> bool,
    ) -> Vec<usize> {
        let (mut lo, mut hi) = (windows.lo.clone(), windows.hi.clone());
        let open: Vec<usize> = (0..self.runs()).filter(|&run| loaded[run].is_none()).collect();
        let mut dice = Dice::default();
        loop {
            let left: usize = open.iter().map(|&run| hi[run] - lo[run]).sum();
            if left == 0 {
                return lo;
            }
            // Any one of those left, so that half of them go each time.
            let (mut pick, mut run) = (dice.below(left as u64) as usize, open[0]);
            for &other in &open {
                run = other;
                if pick < hi[other] - lo[other] {
                    break;
                }
                pick -= hi[other] - lo[other];
            }
            let unit = lo[run] + 1 + pick;
            let Some(bound) = self.keys(run).first(self.records, unit) else { return lo };
            let accepted = accepts(&bound, run, unit);
            for &other in &open {
                let at = if other == run {
                    unit
                } else {
                    let side = if other < run { Side::Upper } else { Side::Lower };
                    self.keys(other).unit_for(self.records, &bound, side)
                };
                if accepted {
                    lo[other] = at.clamp(lo[other], hi[other]);
                } else {
                    let at = if other == run { at - 1 } else { at };
                    hi[other] = at.clamp(lo[other], hi[other]);
                }
            }
        }
    }

    /// The place in windows that are in memory: by bisection over their records.
    pub fn decide(&self, loaded: &[Loaded], wanted: u64, measure: Measure) -> Decided {
        let records = self.records;
        let mut lo: Vec<_> = loaded.iter().map(Loaded::first).collect();
        let mut hi: Vec<_> = loaded.iter().map(Loaded::end).collect();
        let mut dice = Dice::default();
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
                    loaded[other].find(|segment| records.position(segment, &bound, side, false))
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

    /// How much of all runs certainly comes before anything that is not loaded, in bytes: `loaded` has
    /// units of every run that follow one another. The run that has the first of what is not.
    pub fn known_upto(&self, loaded: &[Loaded]) -> Option<(u64, usize)> {
        let mut least: Option<(R::Bound, usize)> = None;
        for (run, window) in loaded.iter().enumerate() {
            let keys = self.keys(run);
            let next = keys
                .first(self.records, keys.unit_of(window.end_block()))
                .filter(|_| !self.is_last(run, window));
            let Some(next) = next else { continue };
            if least.as_ref().is_none_or(|(bound, _)| self.records.compare(&next, bound).is_lt()) {
                least = Some((next, run));
            }
        }
        let (bound, run) = least?;
        let upto = |(other, window): (usize, &Loaded)| {
            let side = if other < run { Side::Upper } else { Side::Lower };
            let inside = |segment: &Segment| self.records.position(segment, &bound, side, false);
            // Of the run itself all that is loaded is before its next record.
            let at = if other == run { window.end() } else { window.find(inside) };
            window.before(self.records, at, Measure::Bytes)
        };
        Some((loaded.iter().enumerate().map(upto).sum(), run))
    }

    fn is_last(&self, run: usize, window: &Loaded) -> bool {
        window.end_block() >= self.keys(run).unit(usize::MAX).block
    }
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

/// The records of some segments before a position in one of them.
pub fn count<R: Records>(records: &R, segment: &Segment, measure: Measure) -> u64 {
    match (measure, records.record_bytes()) {
        (Measure::Bytes, _) => records.bytes_in(segment),
        (Measure::Records, Some(len)) => records.bytes_in(segment) / len as u64,
        (Measure::Records, None) => {
            let bytes = records.offset_of(segment.lo) as usize..records.offset_of(segment.hi) as usize;
            records.cut(&segment.sorted.record_bytes()[bytes], usize::MAX).records as u64
        }
    }
}

/// Numbers that look drawn, the same every time.
#[derive(Default)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((u128::from(mixed ^ (mixed >> 27)) * u128::from(count)) >> 64) as u64
    }
}
