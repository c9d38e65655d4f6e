//! Units of a view's runs in memory, for finding positions and for reading a few records.
//!
//! All blocks needed of all runs are requested at once, into one region of memory, and the runs' files stay
//! open. So finding a position costs about one block of each run, and hardly more time than the slowest of
//! these reads.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ascot_bowtie::engine::Completed;
use ascot_io::{BlockEntry, Disk, PAGE_BYTES, Pool, RunFile, RunId, RunIndex};

use crate::api::Result;
use crate::records::{Records, Segment};
use crate::runs::{Assembly, Run, RunBlock, RunKeys, RunStart};

/// The unit in which a position is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes before it.
    Bytes,
    /// Records before it.
    Records,
}

/// A run of a view, with its index and its units.
pub struct ViewRun {
    /// The run.
    pub run: Run,
    /// Its blocks.
    pub index: Arc<RunIndex>,
    /// Its units.
    pub keys: RunKeys,
    /// Its file, once opened, if it stays open.
    file: OnceLock<Arc<RunFile>>,
    stays_open: bool,
}

impl ViewRun {
    /// A run whose file stays open after the first use if `stays_open`, else is opened for each use.
    pub fn new(run: Run, index: Arc<RunIndex>, keys: RunKeys, stays_open: bool) -> Self {
        ViewRun { run, index, keys, file: OnceLock::new(), stays_open }
    }

    /// The run from `start` to block `end`, exclusive, and its index up to there.
    pub fn part(&self, start: RunStart, end: usize) -> (Run, RunIndex) {
        let mut index = RunIndex::new(self.index.id);
        index.blocks.extend_from_slice(&self.index.blocks[..end.min(self.index.blocks.len())]);
        (Run { start, ..self.run.clone() }, index)
    }

    /// Its file, open.
    pub fn file(&self, disk: &Disk) -> Result<Arc<RunFile>> {
        if let Some(file) = self.file.get() {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(RunFile::open(disk, &self.run.path, RunId(self.run.number))?);
        // Another thread that opened it at the same time has a second descriptor for a while.
        Ok(if self.stays_open { Arc::clone(self.file.get_or_init(|| file)) } else { file })
    }

    fn blocks(&self, units: &Range<usize>) -> &[BlockEntry] {
        let from = self.keys.unit(units.start).block;
        let to = self.keys.unit(units.end).block;
        self.index.blocks.get(from..to).unwrap_or_default()
    }
}

/// Reads units of runs.
pub struct Loader<'v, R: Records> {
    /// Their records.
    pub records: &'v R,
    shared: &'v Arc<R>,
    disk: &'v Disk,
    pool: &'v Pool,
    runs: &'v [ViewRun],
    /// Number of blocks read of each run.
    pub blocks_read: Vec<u64>,
}

/// Maximum number of runs open at once that do not stay open.
const OPEN_AT_ONCE: usize = 64;

impl<'v, R: Records> Loader<'v, R> {
    /// Reads from `runs`, into memory of `pool`.
    pub fn new(records: &'v Arc<R>, disk: &'v Disk, pool: &'v Pool, runs: &'v [ViewRun]) -> Self {
        let blocks_read = vec![0; runs.len()];
        Loader { records: &**records, shared: records, disk, pool, runs, blocks_read }
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The units of a run.
    pub fn keys(&self, run: usize) -> &'v RunKeys {
        &self.runs[run].keys
    }

    /// The count of run `run` before unit `unit`.
    pub fn before(&self, run: usize, unit: usize, measure: Measure) -> u64 {
        let unit = self.keys(run).unit(unit);
        match measure {
            Measure::Bytes => unit.bytes,
            Measure::Records => unit.records,
        }
    }

    /// The count of the whole view.
    pub fn total(&self, measure: Measure) -> u64 {
        (0..self.runs()).map(|run| self.before(run, usize::MAX, measure)).sum()
    }

    /// The end of every run.
    pub fn ends(&self) -> Vec<RunStart> {
        self.runs.iter().map(|run| RunStart { block: run.index.blocks.len(), offset: 0 }).collect()
    }

    /// Reads these units of these runs, in memory of the pool.
    pub fn load_all(&mut self, ranges: &[(usize, Range<usize>)]) -> Result<Vec<Loaded>> {
        let mut all = Vec::with_capacity(ranges.len());
        let at_once = if self.runs.iter().all(|run| run.stays_open) { usize::MAX } else { OPEN_AT_ONCE };
        for some in ranges.chunks(at_once) {
            self.load_at_once(some, &mut all)?;
        }
        Ok(all)
    }

    fn load_at_once(&mut self, ranges: &[(usize, Range<usize>)], all: &mut Vec<Loaded>) -> Result<()> {
        let runs = self.runs;
        let blocks = || ranges.iter().flat_map(|(run, units)| runs[*run].blocks(units));
        let bytes: usize = blocks().map(BlockEntry::buffer_bytes).sum();
        let mut region = self.pool.region(bytes.max(PAGE_BYTES), "blocks of a view")?;
        let mut asked = Vec::with_capacity(ranges.len());
        for (number, units) in ranges {
            let run = &runs[*number];
            let file = run.file(self.disk)?;
            let first = run.keys.unit(units.start).block;
            let mut of_run = Vec::with_capacity(run.blocks(units).len());
            for (at, block) in run.blocks(units).iter().enumerate() {
                of_run.push(file.begin(first + at, block, region.split_to(block.buffer_bytes()))?);
            }
            self.blocks_read[*number] += of_run.len() as u64;
            asked.push((file, of_run));
        }
        for ((number, units), (file, of_run)) in ranges.iter().zip(asked) {
            let run = &runs[*number];
            let from = runs[*number].keys.unit(units.start);
            let start = RunStart { block: from.block, offset: 0 };
            let mut assembly = Assembly::new(self.shared, self.pool, &Run { start, ..run.run.clone() });
            let mut loaded = Loaded {
                segments: Vec::with_capacity(of_run.len()),
                blocks: Vec::with_capacity(of_run.len()),
                bytes_before: from.bytes,
                records_before: from.records,
                end: run.keys.unit(units.end).block,
                units: units.clone(),
            };
            for block in of_run {
                let filled = file.complete(block)?;
                if let Completed::Block(RunBlock { segment, block, .. }) = assembly.take(filled)? {
                    loaded.segments.push(segment);
                    loaded.blocks.push(block);
                }
            }
            all.push(loaded);
        }
        Ok(())
    }
}

/// Some units of a run, in memory.
pub struct Loaded {
    segments: Vec<Segment>,
    blocks: Vec<usize>,
    /// Bytes of the run before these units.
    bytes_before: u64,
    /// Records of the run before them.
    records_before: u64,
    /// The block after them.
    end: usize,
    /// Their numbers.
    units: Range<usize>,
}

/// A position in loaded units.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Number of the segment.
    segment: usize,
    /// Position in it.
    position: u32,
}

impl Loaded {
    /// The first position.
    pub fn first(&self) -> At {
        At { segment: 0, position: self.segments.first().map_or(0, |segment| segment.lo) }
    }

    /// The position after all units.
    pub fn end(&self) -> At {
        At { segment: self.segments.len(), position: 0 }
    }

    /// Searches the segments within a range: the result of `position` in the first segment for which it is not the
    /// segment's end, or the end of the range.
    pub fn find(&self, Range { start: lo, end: hi }: Range<At>, position: impl Fn(&Segment) -> u32) -> At {
        for (number, segment) in self.numbered_between(lo, hi) {
            let position = position(&segment);
            if position < segment.hi {
                return At { segment: number, position };
            }
        }
        hi
    }

    /// All positions.
    pub fn all(&self) -> Range<At> {
        self.first()..self.end()
    }

    /// The numbers of the units.
    pub fn units(&self) -> Range<usize> {
        self.units.clone()
    }

    /// The count of the run before a position.
    pub fn before<R: Records>(&self, records: &R, at: At, measure: Measure) -> u64 {
        let whole: u64 =
            self.segments[..at.segment].iter().map(|segment| count(records, segment, measure)).sum();
        let part = self
            .segments
            .get(at.segment)
            .map_or(0, |segment| count(records, &Segment { hi: at.position, ..segment.clone() }, measure));
        let before = match measure {
            Measure::Bytes => self.bytes_before,
            Measure::Records => self.records_before,
        };
        before + whole + part
    }

    /// Bytes between two positions.
    pub fn span<R: Records>(&self, records: &R, lo: At, hi: At) -> u64 {
        self.before(records, hi, Measure::Bytes).saturating_sub(self.before(records, lo, Measure::Bytes))
    }

    /// A record between two positions, about `skip` bytes after the first.
    pub fn middle<R: Records>(&self, records: &R, lo: At, hi: At, mut skip: u64) -> Option<R::Bound> {
        for part in self.between(lo, hi) {
            let bytes = records.bytes_in(&part);
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let mut found = Vec::with_capacity(1);
            let at = part.lo + (u64::from(part.hi - part.lo) * skip / bytes.max(1)) as u32;
            // The second half of the rest, or the whole if that half starts within a record.
            let hi = (part.lo + (2 * (at - part.lo)).max(1)).min(part.hi);
            records.sample(&Segment { hi, ..part.clone() }, 1, 0.5, &mut found);
            return found.pop();
        }
        None
    }

    /// The segments between two positions.
    pub fn between(&self, lo: At, hi: At) -> Vec<Segment> {
        self.numbered_between(lo, hi).map(|(_, segment)| segment).collect()
    }

    fn numbered_between(&self, lo: At, hi: At) -> impl Iterator<Item = (usize, Segment)> + '_ {
        let numbered = self.segments.iter().enumerate().take(hi.segment + 1).skip(lo.segment);
        numbered.filter_map(move |(number, segment)| {
            let from = if number == lo.segment { lo.position } else { segment.lo };
            let to = if number == hi.segment { hi.position } else { segment.hi };
            (from < to).then(|| (number, Segment { lo: from, hi: to, ..segment.clone() }))
        })
    }

    /// Advances a position by whole records of at most `wanted` in total. Returns the new position and the rest of
    /// `wanted`.
    pub fn go_on<R: Records>(&self, records: &R, mut at: At, mut wanted: u64, measure: Measure) -> (At, u64) {
        while let Some(segment) = self.segments.get(at.segment) {
            let rest = Segment { lo: at.position, ..segment.clone() };
            let left = count(records, &rest, measure);
            if wanted >= left {
                wanted -= left;
                let next = at.segment + 1;
                at = At { segment: next, position: self.segments.get(next).map_or(0, |next| next.lo) };
                continue;
            }
            let start = records.offset_of(at.position) as usize;
            let bytes = &segment.sorted.record_bytes()[start..];
            let cut = match (measure, records.record_bytes()) {
                (Measure::Records, _) => records.cut(bytes, wanted as usize).bytes,
                (Measure::Bytes, Some(len)) => wanted as usize / len * len,
                // The whole records within the wanted bytes.
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
            return (At { position: records.position_at(start + cut), ..at }, beyond);
        }
        (at, wanted)
    }

    /// The position as one from which the run can be read.
    pub fn start<R: Records>(&self, records: &R, at: At) -> RunStart {
        match self.blocks.get(at.segment) {
            Some(&block) => RunStart { block, offset: records.offset_of(at.position) },
            None => RunStart { block: self.end, offset: 0 },
        }
    }

    /// Adds the units directly before or after these.
    pub fn join(&mut self, mut more: Loaded) {
        if more.units.start < self.units.start {
            std::mem::swap(self, &mut more);
        }
        self.segments.extend(more.segments);
        self.blocks.extend(more.blocks);
        self.end = more.end;
        self.units.end = more.units.end;
    }
}

/// The bytes or records of a segment.
fn count<R: Records>(records: &R, segment: &Segment, measure: Measure) -> u64 {
    match (measure, records.record_bytes()) {
        (Measure::Bytes, _) => records.bytes_in(segment),
        (Measure::Records, Some(len)) => records.bytes_in(segment) / len as u64,
        (Measure::Records, None) => {
            let bytes = records.offset_of(segment.lo) as usize..records.offset_of(segment.hi) as usize;
            records.cut(&segment.sorted.record_bytes()[bytes], usize::MAX).records as u64
        }
    }
}
