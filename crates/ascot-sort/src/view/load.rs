//! Units of a view's runs in memory, for looking places up and for reading a few records.

use std::ops::Range;
use std::sync::Arc;

use ascot_bowtie::engine::{BlockInput, Completed};
use ascot_io::{Disk, PAGE_BYTES, Pool, RunIndex};

use crate::error::SortError;
use crate::records::{Records, Segment};
use crate::runs::{Run, RunBlock, RunInput, RunStart};
use crate::view::keys::RunKeys;
use crate::view::place::{Measure, count};

/// A run as a view knows it.
pub struct ViewRun {
    /// The run.
    pub run: Run,
    /// Its blocks.
    pub index: RunIndex,
    /// Its units.
    pub keys: RunKeys,
}

impl ViewRun {
    /// The run from `start` on, as far as block `end`, which is left out; and its index as far.
    pub fn part(&self, start: RunStart, end: usize) -> (Run, RunIndex) {
        let mut index = RunIndex::new(self.index.id, self.index.codec);
        index.blocks.extend_from_slice(&self.index.blocks[..end.min(self.index.blocks.len())]);
        (Run { start, ..self.run.clone() }, index)
    }
}

/// Reads units; runs that are read at once are open at once.
pub struct Loader<'v, R: Records> {
    /// Their records.
    pub records: &'v R,
    shared: &'v Arc<R>,
    disk: &'v Disk,
    pool: &'v Pool,
    runs: &'v [ViewRun],
    /// Blocks read of each run.
    pub blocks_read: Vec<u64>,
}

/// Runs open at once.
const OPEN_AT_ONCE: usize = 64;

impl<'v, R: Records> Loader<'v, R> {
    /// Reads from `runs`, into memory of `pool`.
    pub fn new(records: &'v Arc<R>, disk: &'v Disk, pool: &'v Pool, runs: &'v [ViewRun]) -> Self {
        Loader { records: &**records, shared: records, disk, pool, runs, blocks_read: vec![0; runs.len()] }
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The units of a run.
    pub fn keys(&self, run: usize) -> &'v RunKeys {
        &self.runs[run].keys
    }

    /// What of run `run` is before unit `unit`.
    pub fn before(&self, run: usize, unit: usize, measure: Measure) -> u64 {
        let unit = self.keys(run).unit(unit);
        match measure {
            Measure::Bytes => unit.bytes,
            Measure::Records => unit.records,
        }
    }

    /// All there is.
    pub fn total(&self, measure: Measure) -> u64 {
        (0..self.runs()).map(|run| self.before(run, usize::MAX, measure)).sum()
    }

    /// The end of every run.
    pub fn ends(&self) -> Vec<RunStart> {
        self.runs.iter().map(|run| RunStart { block: run.index.blocks.len(), offset: 0 }).collect()
    }

    /// Reads these units of these runs.
    pub fn load_all(&mut self, ranges: &[(usize, Range<usize>)]) -> Result<Vec<Loaded>, SortError> {
        let mut all = Vec::with_capacity(ranges.len());
        for some in ranges.chunks(OPEN_AT_ONCE) {
            let mut reading = Vec::with_capacity(some.len());
            for (run, units) in some {
                reading.push(self.begin(*run, units.clone())?);
            }
            for reading in reading {
                all.push(self.complete(reading)?);
            }
        }
        Ok(all)
    }

    fn begin(&mut self, number: usize, units: Range<usize>) -> Result<Reading<R>, SortError> {
        let run = &self.runs[number];
        let (from, to) = (run.keys.unit(units.start), run.keys.unit(units.end));
        let (part, index) = run.part(RunStart { block: from.block, offset: 0 }, to.block);
        let mut input = RunInput::open_indexed(self.shared, self.disk, self.pool, &part, &index)?;
        let mut begun = 0;
        for block in &index.blocks[from.block.min(index.blocks.len())..] {
            input.begin(self.pool.region(block.buffer_bytes().max(PAGE_BYTES), "a block of a view")?)?;
            begun += 1;
        }
        self.blocks_read[number] += begun;
        let loaded = Loaded {
            segments: Vec::new(),
            blocks: Vec::new(),
            from: (from.bytes, from.records),
            end: to.block,
        };
        Ok(Reading { input, begun, loaded })
    }

    fn complete(&mut self, mut reading: Reading<R>) -> Result<Loaded, SortError> {
        for _ in 0..reading.begun {
            if let Completed::Block(RunBlock { segment, block, .. }) = reading.input.complete()? {
                reading.loaded.segments.push(segment);
                reading.loaded.blocks.push(block);
            }
        }
        Ok(reading.loaded)
    }
}

struct Reading<R: Records> {
    input: RunInput<R>,
    begun: u64,
    loaded: Loaded,
}

/// Some units of a run, in memory.
pub struct Loaded {
    segments: Vec<Segment>,
    blocks: Vec<usize>,
    /// Bytes and records of the run before them.
    from: (u64, u64),
    /// The block behind them.
    end: usize,
}

/// A place in loaded units: a segment and a position in it.
pub type At = (usize, u32);

impl Loaded {
    /// The first place.
    pub fn first(&self) -> At {
        (0, self.segments.first().map_or(0, |segment| segment.lo))
    }

    /// The place behind all of it.
    pub fn end(&self) -> At {
        (self.segments.len(), 0)
    }

    /// The place that `position` finds in the first segment in which it is not the end.
    pub fn find(&self, position: impl Fn(&Segment) -> u32) -> At {
        let inside = |(number, segment): (usize, &Segment)| {
            let at = position(segment);
            (at < segment.hi).then_some((number, at))
        };
        self.segments.iter().enumerate().find_map(inside).unwrap_or(self.end())
    }

    /// What of the run is before a place.
    pub fn before<R: Records>(&self, records: &R, (number, at): At, measure: Measure) -> u64 {
        let whole: u64 = self.segments[..number].iter().map(|segment| count(records, segment, measure)).sum();
        let part = self
            .segments
            .get(number)
            .map_or(0, |segment| count(records, &Segment { hi: at, ..segment.clone() }, measure));
        whole + part + if measure == Measure::Bytes { self.from.0 } else { self.from.1 }
    }

    /// Bytes between two places.
    pub fn span<R: Records>(&self, records: &R, lo: At, hi: At) -> u64 {
        self.before(records, hi, Measure::Bytes).saturating_sub(self.before(records, lo, Measure::Bytes))
    }

    /// A record between two places, about `skip` bytes behind the first.
    pub fn middle<R: Records>(&self, records: &R, lo: At, hi: At, mut skip: u64) -> Option<R::Bound> {
        for part in self.between(lo, hi) {
            let bytes = records.bytes_in(&part);
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let mut found = Vec::with_capacity(1);
            let at = part.lo + (u64::from(part.hi - part.lo) * skip / bytes.max(1)) as u32;
            // The latter half of what is left, or the whole where that starts inside a record.
            let hi = (part.lo + (2 * (at - part.lo)).max(1)).min(part.hi);
            records.sample(&Segment { hi, ..part.clone() }, 1, &mut found);
            return found.pop();
        }
        None
    }

    /// The segments between two places.
    pub fn between(&self, lo: At, hi: At) -> Vec<Segment> {
        let cut = |(number, segment): (usize, &Segment)| {
            let from = if number == lo.0 { lo.1 } else { segment.lo };
            let to = if number == hi.0 { hi.1 } else { segment.hi };
            let inside = number >= lo.0 && number <= hi.0 && from < to;
            inside.then(|| Segment { lo: from, hi: to, ..segment.clone() })
        };
        self.segments.iter().enumerate().filter_map(cut).collect()
    }

    /// Goes on from a place by whole records that come to `wanted` at most, and what that leaves.
    pub fn go_on<R: Records>(
        &self,
        records: &R,
        (mut number, mut at): At,
        mut wanted: u64,
        measure: Measure,
    ) -> (At, u64) {
        while let Some(segment) = self.segments.get(number) {
            let rest = Segment { lo: at, ..segment.clone() };
            let left = count(records, &rest, measure);
            if wanted >= left {
                wanted -= left;
                number += 1;
                at = self.segments.get(number).map_or(0, |next| next.lo);
                continue;
            }
            let start = records.offset_of(at) as usize;
            let bytes = &segment.sorted.record_bytes()[start..];
            let cut = match (measure, records.record_bytes()) {
                (Measure::Records, _) => records.cut(bytes, wanted as usize).bytes,
                (Measure::Bytes, Some(len)) => wanted as usize / len * len,
                // What is cut of the wanted bytes are the whole records among them.
                (Measure::Bytes, None) => {
                    let mut end = 0;
                    while let next @ 1.. = records.cut(&bytes[end..], 1).bytes
                        && end + next <= wanted as usize
                    {
                        end += next;
                    }
                    end
                }
            };
            let beyond = if measure == Measure::Bytes { wanted - cut as u64 } else { 0 };
            return ((number, records.position_at(start + cut)), beyond);
        }
        ((number, at), wanted)
    }

    /// A place as one to begin reading at.
    pub fn start<R: Records>(&self, records: &R, (number, at): At) -> RunStart {
        match (self.blocks.get(number), self.segments.get(number)) {
            (Some(&block), Some(_)) => RunStart { block, offset: records.offset_of(at) },
            _ => RunStart { block: self.end, offset: 0 },
        }
    }

    /// The block behind them.
    pub fn end_block(&self) -> usize {
        self.end
    }

    /// Takes in units that follow.
    pub fn extend(&mut self, more: Loaded) {
        self.segments.extend(more.segments);
        self.blocks.extend(more.blocks);
        self.end = more.end;
    }
}
