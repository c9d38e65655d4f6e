//! Merging inputs that are sorted already (`-m`).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use ascot_bowtie::engine::{BlockInput, Completed, Inputs as EngineInputs};
use ascot_bowtie::schedule::FewestHeld;
use ascot_io::{BlockPool, Buf, Filled, IoError, PAGE_BYTES, Pool, ReadStream};
use ascot_model::report::Report;
use ascot_record::checksum::RecordSum;

use crate::account::PassFacts;
use crate::emit::{Chunk, PassSums};
use crate::error::SortError;
use crate::input::InputFile;
use crate::job::{Job, descriptors, drive};
use crate::merge::{MergeFlow, MergeSink};
use crate::pieces::Lease;
use crate::records::{Records, Rules, Sorted};
use crate::runs::{RunBlock, RunStart};
use crate::target::Target;

/// Merges the sorted inputs of a job into its output; in several passes where they are many.
pub fn merge_inputs<R: Records>(mut job: Job<'_, R>) -> Result<Report, SortError> {
    let mut target = job.target()?;
    let count = job.inputs.iter().count();
    let fan_in = (job.budget.streams() / (3 * job.budget.block))
        .min(descriptors())
        .min(job.request.batch_size.unwrap_or(usize::MAX))
        .max(2);
    if count <= fan_in {
        let rules = Rules { unique: job.request.unique, sum: true };
        let sums = merge_range(&mut job, 0..count, rules, &mut Straight(&mut target))?;
        return job.finish(target, &sums.out, &sums.dropped, None);
    }
    for first in (0..count).step_by(fan_in) {
        let group = first..(first + fan_in).min(count);
        let bytes = group.clone().filter_map(|index| job.inputs.get(index)?.size).sum();
        let mut spill = job.new_spill(bytes)?;
        let rules = Rules { unique: job.request.unique, sum: false };
        let sums = merge_range(&mut job, group, rules, &mut spill)?;
        let runs = spill.finish()?;
        job.passes.spilled(runs.iter().map(|run| run.bytes).sum());
        job.manifest.dropped.combine(&sums.dropped);
        job.manifest.runs.extend(runs);
    }
    job.reduce_runs()?;
    let sums = job.merge_to_target(&mut target)?;
    job.finish(target, &sums.out, &sums.dropped, None)
}

fn merge_range<R: Records, S: MergeSink>(
    job: &mut Job<'_, R>,
    range: std::ops::Range<usize>,
    rules: Rules,
    sink: &mut S,
) -> Result<PassSums, SortError> {
    let block = job.budget.block;
    let blocks = job.pool.available() / block;
    let region =
        job.pool.region((blocks - blocks / SPARE_SHARE).max(range.len()) * block, "blocks of inputs")?;
    let streams = range
        .clone()
        .filter_map(|index| job.inputs.get(index))
        .map(|file| RawInput::open(job, file))
        .collect::<Result<Vec<_>, _>>()?;
    let starts = vec![0; streams.len()];
    let mut inputs = EngineInputs::new(streams, BlockPool::new(region, block), Box::new(FewestHeld));
    let emitters = Arc::clone(&job.emitters);
    let records = Arc::clone(&job.records);
    let mut flow = MergeFlow::new(&*records, &emitters, rules, job.request.top, job.cancel, sink, &starts);
    let result = drive(&mut inputs, &mut flow, job.cancel);
    let sums = flow.sums().clone();
    result?;
    inputs.streams().for_each(|stream| job.manifest.sum_in.combine(&stream.sum));
    job.passes.done("merge", PassFacts { inputs: range.len() as u64, outputs: 1, stages: Vec::new() });
    Ok(sums)
}

/// Share of memory kept back for records that span blocks: one in so many.
const SPARE_SHARE: usize = 4;

struct Straight<'t, R: Records>(&'t mut Target<R>);

impl<R: Records> MergeSink for Straight<'_, R> {
    fn chunk(&mut self, chunk: Chunk) -> Result<(), SortError> {
        self.0.write(chunk)
    }
    fn batch(
        &mut self,
        _: &dyn Fn() -> Vec<RunStart>,
        _: &PassSums,
        _: Option<&[u8]>,
    ) -> Result<(), SortError> {
        Ok(())
    }
}

/// A sorted input, read block by block. What of a record lies at a block's end is put before the
/// next block, where a gap is kept for it.
struct RawInput<R> {
    records: Arc<R>,
    stream: Box<dyn ReadStream>,
    pool: Pool,
    name: String,
    /// The gaps of the blocks asked for.
    fronts: VecDeque<Buf>,
    ended: bool,
    /// The started record at the end of the last block.
    carried: Vec<u8>,
    /// A started record longer than the gap: its buffer and how much of it is there.
    long: Option<(Buf, usize)>,
    /// The last such record: while it is in use no more blocks are taken in unasked.
    long_given: Weak<Sorted>,
    /// Bytes kept before each block.
    gap: usize,
    sum: RecordSum,
    block: usize,
}

/// Part of a block kept for what is carried over: one in so many.
const GAP_SHARE: usize = 4;

fn gap(block_bytes: usize) -> usize {
    (block_bytes / GAP_SHARE).next_multiple_of(PAGE_BYTES)
}

impl<R: Records> RawInput<R> {
    fn open(job: &Job<'_, R>, file: &InputFile) -> Result<Self, SortError> {
        Ok(RawInput {
            records: Arc::clone(&job.records),
            stream: file.open(&job.disk, file.start)?,
            pool: job.pool.clone(),
            name: file.name(),
            fronts: VecDeque::new(),
            ended: false,
            carried: Vec::new(),
            long: None,
            long_given: Weak::new(),
            gap: gap(job.budget.block),
            sum: RecordSum::new(),
            block: 0,
        })
    }

    /// Makes a block of the whole records in `buf[start..end]`, carries the rest.
    fn block_of(&mut self, mut buf: Buf, start: usize, end: usize) -> Result<Completed<RunBlock>, IoError> {
        let cut = self.records.cut(&buf[start..end], usize::MAX).bytes;
        let rest = &buf[start + cut..end];
        if rest.len() > self.gap.min(MOST_CARRIED_BYTES) {
            self.long = Some(self.grown(rest, None)?);
        } else {
            self.carried = rest.to_vec();
        }
        if cut == 0 {
            return Ok(Completed::Nothing);
        }
        self.records.normalise(&mut buf[start..start + cut]);
        self.records.sum(&buf[start..start + cut], &mut self.sum);
        let sorted = Arc::new(self.records.index(Lease::plain(buf), start..start + cut));
        let block = RunBlock { segment: self.records.whole(sorted), block: self.block, end: self.block + 1 };
        self.block += 1;
        Ok(Completed::Block(block))
    }

    /// `bytes` behind what is held of a long record, in a buffer with room for more.
    fn grown(&self, bytes: &[u8], held: Option<(Buf, usize)>) -> Result<(Buf, usize), IoError> {
        let (old, len) = held.unwrap_or_else(|| (Buf::heap(0), 0));
        let needed = len + bytes.len() + 1;
        let mut buf = if needed <= old.len() {
            old
        } else {
            let region = self.pool.region(2 * needed, "one very long record");
            let mut new = region.map_err(|source| IoError::Memory {
                path: self.name.clone().into(),
                offset: 0,
                source,
            })?;
            new[..len].copy_from_slice(&old[..len]);
            new
        };
        buf[len..len + bytes.len()].copy_from_slice(bytes);
        Ok((buf, len + bytes.len()))
    }

    /// The end of the input: completes the last record.
    fn last(&mut self) -> Result<Completed<RunBlock>, IoError> {
        self.ended = true;
        let (mut buf, mut end) = match self.long.take() {
            Some(long) => long,
            None if self.carried.is_empty() => return Ok(Completed::Ended),
            None => {
                let carried = std::mem::take(&mut self.carried);
                let mut buf = Buf::heap(carried.len() + 1);
                buf[..carried.len()].copy_from_slice(&carried);
                (buf, carried.len())
            }
        };
        if let (0, Some(byte)) = (self.records.cut(&buf[..end], 1).records, self.records.completion()) {
            buf[end] = byte;
            end += 1;
        }
        let completed = self.block_of(buf, 0, end)?;
        if self.long.is_some() || !self.carried.is_empty() {
            let what = "its last record is cut short: the file may still be growing, or the record format is wrong (--format)";
            return Err(IoError::Misuse { path: self.name.clone().into(), offset: self.sum.bytes, what });
        }
        Ok(completed)
    }
}

/// Bytes carried in a vector at most.
const MOST_CARRIED_BYTES: usize = 64 << 10;

impl<R: Records> BlockInput for RawInput<R> {
    type Block = RunBlock;

    fn remaining(&self) -> u32 {
        if self.ended { 0 } else { u32::MAX / 2 }
    }

    fn begin(&mut self, mut buf: Buf) -> Result<(), IoError> {
        let area = buf.split_off(self.gap);
        self.fronts.push_back(buf);
        self.stream.begin(area)
    }

    fn complete(&mut self) -> Result<Completed<RunBlock>, IoError> {
        let Filled { buf: area, start, end } = self.stream.complete()?;
        let mut buf = self.fronts.pop_front().unwrap_or_else(|| Buf::heap(0));
        let gap = buf.len();
        // Parts of one buffer always rejoin.
        let _ = buf.unsplit(area);
        if start == end {
            return if self.ended { Ok(Completed::Ended) } else { self.last() };
        }
        if let Some(long) = self.long.take() {
            let (held, len) = self.grown(&buf[gap + start..gap + end], Some(long))?;
            if self.records.cut(&held[..len], 1).records == 0 {
                self.long = Some((held, len));
                return Ok(Completed::Nothing);
            }
            let completed = self.block_of(held, 0, len)?;
            if let Completed::Block(block) = &completed {
                self.long_given = Arc::downgrade(&block.segment.sorted);
            }
            return Ok(completed);
        }
        let carried = std::mem::take(&mut self.carried);
        let first = gap + start - carried.len();
        buf[first..gap + start].copy_from_slice(&carried);
        self.block_of(buf, first, gap + end)
    }

    fn ready(&mut self) -> bool {
        self.long_given.strong_count() == 0 && self.stream.ready()
    }
}
