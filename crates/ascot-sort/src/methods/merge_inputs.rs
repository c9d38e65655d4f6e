//! Merging inputs that are sorted already (`-m`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use ascot_bowtie::engine::{BlockInput, Bowtie, Completed};
use ascot_bowtie::schedule::{FewestHeld, Schedule};
use ascot_io::sync::Unpoisoned;
use ascot_io::{BlockPool, Buf, Filled, Growable, IoError, Pool, ReadStream};
use ascot_model::report::Report;
use ascot_record::checksum::RecordSum;
use ascot_record::framing::Partial;
use ascot_record::keys::misfits_written;

use crate::api::{Cancel, Output, SortError};
use crate::check::{EqualKeys, OrderCheck};
use crate::job::Job;
use crate::merge::{Merge, MergeSink};
use crate::methods::run_and_merge::Destination;
use crate::plan::{
    inputs_want_runs, merge_carry_bytes, merge_fan_in, merge_inputs_in_long_runs, spare_bytes,
};
use crate::read::{COMPLETION_BYTES, InputFile, Inputs, RecordStart};
use crate::records::{InputStart, Merged, Misfits, Records, Rules, Sorted};
use crate::resources::Lease;
use crate::runs::RunBlock;

/// Merges the sorted inputs of a job into its output; in several passes if there are too many for one.
pub fn merge_inputs<R: Records>(mut job: Job<'_, R>) -> Result<Report, SortError> {
    if job.request.checks.strict && matches!(job.request.output, Output::Stdout) {
        refuse_misfits_beforehand(&job)?;
    }
    let mut output = job.open_output()?;
    let count = job.inputs.iter().count();
    let fan_in = merge_fan_in(&job.budget, job.request).min(job.merge_factor());
    if count <= fan_in {
        let rules = Rules { unique: job.request.unique, sum: true };
        let sums = merge_range(&mut job, "merge", 0..count, rules, &mut Destination::Output(&mut output))?;
        return job.finish(output, &sums.out, &sums.dropped);
    }
    for first in (0..count).step_by(fan_in) {
        let group = first..(first + fan_in).min(count);
        let bytes = group.clone().filter_map(|index| job.inputs.get(index)?.size).sum();
        let mut spill = job.new_spill(bytes)?;
        let rules = Rules { unique: job.request.unique, sum: false };
        let sums = merge_range(&mut job, "merge some", group, rules, &mut Destination::Spill(&mut spill))?;
        let runs = spill.finish()?;
        job.passes.spilled(runs.iter().map(|run| run.bytes).sum());
        job.manifest.dropped.combine(&sums.dropped);
        job.manifest.runs.extend(runs);
    }
    job.reduce_runs()?;
    let sums = job.merge_to_output(&mut output)?;
    job.finish(output, &sums.out, &sums.dropped)
}

/// Checks all inputs for misfits before a merge to a pipe, whose reader gets records while the merge runs.
fn refuse_misfits_beforehand<R: Records>(job: &Job<'_, R>) -> Result<(), SortError> {
    if !job.inputs.are_files() {
        return Err(SortError::Request(
            "--strict reads what it merges twice where the output is standard output, and a pipe is read once\n  write to a file (-o), or sort"
                .into(),
        ));
    }
    let memory = job.sort_memory(0);
    let mut reader = job.reader(&memory.chunks);
    let mut misfits = Misfits::default();
    while let Some(placed) = reader.next(&|| ())? {
        job.cancel.check()?;
        misfits.combine(&job.records.misfits(placed.chunk.record_bytes()).placed(&placed.starts));
        misfits.refuse(job.records.key_columns(), &job.inputs, job.request.header)?;
    }
    Ok(())
}

fn merge_range<R: Records>(
    job: &mut Job<'_, R>,
    pass: &str,
    range: std::ops::Range<usize>,
    rules: Rules,
    sink: &mut dyn MergeSink,
) -> Result<Merged, SortError> {
    let block = job.budget.block;
    let available = job.pool.available();
    let long_runs = inputs_want_runs(&job.request.volumes, range.len());
    let spare = spare_bytes(available, block, job.records.record_bytes(), long_runs);
    let blocks = (available.saturating_sub(spare) / block).max(range.len());
    let region = job.pool.region(blocks * block, "blocks of inputs")?;
    let fault = Arc::new(Mutex::new(None));
    let streams = range
        .clone()
        .filter_map(|index| Some((index, job.inputs.get(index)?)))
        .map(|(index, file)| RawInput::open(job, (index, file), range.len(), &fault))
        .collect::<Result<Vec<_>, _>>()?;
    let starts = vec![0; streams.len()];
    let blocks = BlockPool::new(region, block);
    let staircase = merge_inputs_in_long_runs(&job.request.volumes, streams.len(), blocks.total());
    let schedule: Box<dyn Schedule> = match staircase {
        Some(staircase) => Box::new(staircase),
        None => Box::new(FewestHeld),
    };
    let turns = job.turns(&job.inputs.paths(), &job.output_dirs());
    let mut inputs = Bowtie::from_inputs(streams, blocks, schedule).alternating(turns.is_some());
    let buffers = job.buffers_of(&inputs);
    let merge = Merge {
        records: &*job.records,
        threads: &job.emitters,
        rules,
        limit: job.request.top,
        cancel: job.cancel,
        so_far: Merged::default(),
    };
    let result = merge.run(&mut inputs, starts, sink);
    let fault = fault.lock().unpoisoned().take();
    let (sums, waited) = result.map_err(|error| fault.unwrap_or(error))?;
    inputs.streams().for_each(|stream| {
        job.manifest.sum_in.combine(&stream.sum);
        job.manifest.misfits.combine(&stream.misfits);
    });
    job.merge_done(pass, range.len(), buffers, waited);
    Ok(sums)
}

/// Maximum number of long records of an input in memory: one being merged, one being read.
const LONG_RECORDS: usize = 2;

/// A sorted input, read block by block. The engine chooses the input whose next block is read. The cut record at the
/// end of a block is the carry of the next one, and goes to the space kept for it before that block.
pub(crate) struct RawInput<R> {
    records: Arc<R>,
    stream: Box<dyn ReadStream>,
    pool: Pool,
    inputs: Inputs,
    /// Its number in `inputs`.
    number: usize,
    /// Number of inputs merged at once.
    merged_at_once: usize,
    cancel: Cancel,
    /// Takes errors of records, which an error of a stream cannot express.
    fault: Fault,
    /// The space for the carry of each block being read.
    fronts: VecDeque<Buf>,
    ended: bool,
    /// The cut record at the end of the last block.
    carry: Vec<u8>,
    /// A cut record that is longer than the space for the carry.
    long: Option<LongStart>,
    /// The last such record: while it is in use, blocks are completed only on demand.
    long_given: Weak<Sorted>,
    /// Bytes before each block for the carry.
    carry_bytes: usize,
    sum: RecordSum,
    /// Values of these records that are not of their column's type.
    misfits: Misfits,
    /// Whether such values are an error.
    strict: bool,
    header: bool,
    order: OrderCheck<R>,
    block: usize,
}

/// The error that stopped an input.
type Fault = Arc<Mutex<Option<SortError>>>;

/// A long record, as read so far.
struct LongStart {
    memory: Growable,
    len: usize,
    partial: Partial,
}

impl<R: Records> RawInput<R> {
    /// Opens input `number` of a job, one of `merged_at_once`.
    pub(crate) fn open(
        job: &Job<'_, R>,
        (number, file): (usize, &InputFile),
        merged_at_once: usize,
        fault: &Fault,
    ) -> Result<Self, SortError> {
        Ok(RawInput {
            records: Arc::clone(&job.records),
            stream: file.open(&job.disk, file.start)?,
            pool: job.pool.clone(),
            inputs: job.inputs.clone(),
            number,
            merged_at_once,
            cancel: job.cancel.clone(),
            fault: Arc::clone(fault),
            fronts: VecDeque::new(),
            ended: false,
            carry: Vec::new(),
            long: None,
            long_given: Weak::new(),
            carry_bytes: merge_carry_bytes(job.budget.block, job.records.record_bytes()),
            sum: RecordSum::new(),
            misfits: Misfits::default(),
            strict: job.request.checks.strict,
            header: job.request.header,
            order: OrderCheck::new(&job.records, EqualKeys::AnyOrder, CARRY_BYTES_MAX),
            block: 0,
        })
    }

    /// The misfits of the records read.
    pub(crate) fn misfits(&self) -> &Misfits {
        &self.misfits
    }

    /// Sum of the records read.
    pub(crate) fn sum(&self) -> &RecordSum {
        &self.sum
    }

    /// Stops the merge with an error of the records.
    fn fail(&self, error: SortError) -> IoError {
        *self.fault.lock().unpoisoned() = Some(error);
        let path = self.start().input.into();
        IoError::Misuse { path, offset: self.sum.bytes, what: "its records are not as they should be" }
    }

    /// The start of the first record that is in no block yet.
    fn start(&self) -> RecordStart {
        let file = self.inputs.get(self.number);
        RecordStart {
            input: file.map_or_else(String::new, InputFile::name),
            record: self.sum.count + 1,
            offset: file.map_or(0, |file| file.start) + self.sum.bytes,
        }
    }

    /// Makes a block of the whole records in `buf[start..end]`; the rest is the carry.
    fn block_of(
        &mut self,
        mut buf: Buf,
        start: usize,
        end: usize,
        block: Option<Buf>,
    ) -> Result<Completed<RunBlock>, IoError> {
        let cut = self.records.cut(&buf[start..end], usize::MAX).bytes;
        if let Some(keyless) = self.records.keyless(&buf[start..start + cut]) {
            return Err(self.fail(self.start().keyless(keyless)));
        }
        let at = self.start();
        self.records.normalise(&mut buf[start..start + cut]);
        self.records.sum(&buf[start..start + cut], &mut self.sum);
        let rest = &buf[start + cut..end];
        if rest.len() > self.carry_bytes.min(CARRY_BYTES_MAX) {
            self.lengthen(None, rest)?;
        } else {
            self.carry = rest.to_vec();
        }
        if cut == 0 {
            return Ok(Completed::Nothing);
        }
        let lease = match block {
            Some(block) => Lease::from_blocks(buf, block),
            None => Lease::plain(buf),
        };
        let sorted = Arc::new(self.records.index(lease, start..start + cut));
        let segment = self.records.whole(sorted);
        let first = at.record - 1;
        let before = misfits_written();
        if let Some(unordered) = self.order.observe(segment.sorted.record_bytes()) {
            let RecordStart { input, record, offset } = at;
            let offset = offset + unordered.offset as u64;
            return Err(self.fail(SortError::NotSorted { input, record: record + unordered.before, offset }));
        }
        // The key of a record that is not compared is not written, so the count does not show a misfit.
        if before != misfits_written() || first + 1 == self.sum.count {
            self.note_misfits(segment.sorted.record_bytes(), first)?;
        }
        let block = RunBlock { segment, block: self.block, end: self.block + 1, long: false };
        self.block += 1;
        Ok(Completed::Block(block))
    }

    /// Counts the misfits of a block that has `before` records of the input before it.
    fn note_misfits(&mut self, bytes: &[u8], before: u64) -> Result<(), IoError> {
        let start = InputStart { at: 0, input: self.number, before };
        self.misfits.combine(&self.records.misfits(bytes).placed(&[start]));
        if !self.strict {
            return Ok(());
        }
        let refused = self.misfits.refuse(self.records.key_columns(), &self.inputs, self.header);
        refused.map_err(|error| self.fail(error))
    }

    /// Appends `bytes` to a long record. Returns whether the record ends in them.
    fn lengthen(&mut self, long: Option<LongStart>, bytes: &[u8]) -> Result<bool, IoError> {
        let long = match long {
            Some(long) => Ok(long),
            None => self.pool.growable("one very long record").map(|memory| LongStart {
                memory,
                len: 0,
                partial: Partial::default(),
            }),
        };
        let no_memory = |source| IoError::Memory { path: self.start().input.into(), offset: 0, source };
        let mut long = long.map_err(no_memory)?;
        let ends = self.records.go_on(bytes, &mut long.partial).is_some();
        // Space for the completion of a last record.
        if long.memory.grow_to(long.len + bytes.len() + COMPLETION_BYTES).is_err() {
            let file = self.inputs.get(self.number).filter(|_| !ends);
            let times = (2 * LONG_RECORDS * self.merged_at_once + 1) as u64;
            let error = self.start().too_long(&*self.records, file, long.partial, times, &self.cancel);
            return Err(self.fail(error));
        }
        long.memory[long.len..long.len + bytes.len()].copy_from_slice(bytes);
        long.len += bytes.len();
        self.long = Some(long);
        Ok(ends)
    }

    /// A block of the complete long record, and of the records read after its end.
    fn block_of_long(&mut self, block: Option<Buf>) -> Result<Completed<RunBlock>, IoError> {
        let Some(LongStart { memory, len, .. }) = self.long.take() else { return Ok(Completed::Nothing) };
        let mut completed = self.block_of(memory.into_buf(), 0, len, block)?;
        if let Completed::Block(block) = &mut completed {
            block.long = true;
            self.long_given = Arc::downgrade(&block.segment.sorted);
        }
        Ok(completed)
    }

    /// Completes the last record, at the end of the input.
    fn complete_last(&mut self) -> Result<Completed<RunBlock>, IoError> {
        self.ended = true;
        let long = match self.long.take() {
            Some(long) => Some(long),
            None if self.carry.is_empty() => return Ok(Completed::Ended),
            None => None,
        };
        let carry = std::mem::take(&mut self.carry);
        self.lengthen(long, &carry)?;
        let partial = self.long.as_ref().map(|long| long.partial).unwrap_or_default();
        let file = self.inputs.get(self.number);
        let ends = match file.and_then(|file| file.completion(self.records.completion(), partial.last())) {
            Some(bytes) => {
                let long = self.long.take();
                self.lengthen(long, &bytes)?
            }
            None => false,
        };
        if ends { self.block_of_long(None) } else { Err(self.fail(self.start().cut_short(&partial))) }
    }
}

/// Maximum bytes of a carry; a longer cut record is a long record.
const CARRY_BYTES_MAX: usize = 64 << 10;

impl<R: Records> BlockInput for RawInput<R> {
    type Block = RunBlock;

    fn remaining(&self) -> u32 {
        if self.ended { 0 } else { u32::MAX / 2 }
    }

    fn begin(&mut self, mut buf: Buf) -> Result<(), IoError> {
        let area = buf.split_off(self.carry_bytes);
        self.fronts.push_back(buf);
        self.stream.begin(area)
    }

    fn complete(&mut self) -> Result<Completed<RunBlock>, IoError> {
        let Filled { buf: area, start, end } = self.stream.complete()?;
        let mut buf = self.fronts.pop_front().unwrap_or_else(|| Buf::heap(0));
        let carry_bytes = buf.len();
        assert!(buf.unsplit(area).is_ok(), "parts of one buffer rejoin");
        if start == end {
            return if self.ended { Ok(Completed::Ended) } else { self.complete_last() };
        }
        if let Some(long) = self.long.take() {
            let ends = self.lengthen(Some(long), &buf[carry_bytes + start..carry_bytes + end])?;
            return if ends { self.block_of_long(Some(buf)) } else { Ok(Completed::Nothing) };
        }
        let carry = std::mem::take(&mut self.carry);
        let first = carry_bytes + start - carry.len();
        buf[first..carry_bytes + start].copy_from_slice(&carry);
        self.block_of(buf, first, carry_bytes + end, None)
    }

    fn ready(&mut self) -> bool {
        self.long_given.strong_count() == 0 && self.stream.ready()
    }

    fn channel(&self) -> Option<u64> {
        self.stream.channel()
    }
}
