//! Merging inputs that are sorted already (`-m`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

use ascot_bowtie::engine::{BlockInput, Bowtie, Completed};
use ascot_bowtie::schedule::{FewestHeld, PipedInputs, Schedule};
use ascot_io::sync::Unpoisoned;
use ascot_io::{BlockPool, Buf, Filled, IoError, Pool, ReadStream};
use ascot_model::report::Report;
use ascot_record::checksum::RecordSum;

use crate::api::{Output, Result, SortError};
use crate::job::Job;
use crate::merge::{BlockSum, EmitThreads, Merge};
use crate::methods::freeing_sink::Destination;
use crate::plan::{MergeShare, inputs_want_runs, merge_fan_in, merge_inputs_in_long_runs};
use crate::read::record_reader::CARRY_BYTES_MAX;
use crate::read::{InputFile, InputPosition, LongRecord, Patience, RecordCutter, RecordStart};
use crate::records::unchecked::{check_order, first_unordered};
use crate::records::{Index, InputStart, Merged, Misfits, Records, Rules, Segment, Sorted, Unchecked};
use crate::resources::{ChunkPool, Lease};
use crate::runs::RunBlock;

/// Merges the sorted inputs of a job into its output; in several passes if there are too many for one. A merge of files
/// in several passes can be resumed.
pub fn merge_inputs<R: Records>(mut job: Job<'_, R>) -> Result<Report> {
    if job.request.checks.strict && matches!(job.request.output, Output::Stdout | Output::Program) {
        refuse_misfits_beforehand(&job)?;
    }
    let count = job.inputs.iter().count();
    let fan_in = merge_fan_in(&job.budget, job.request).min(job.merge_factor());
    let in_one_pass = count <= fan_in && job.manifest.runs.is_empty();
    if !in_one_pass && matches!(job.request.output, Output::Path(_) | Output::Parts(_)) {
        job.resumable = job.inputs.can_be_reopened() && job.manifest.is_storable();
        job.begin_spilling()?;
    }
    let mut output = job.open_output()?;
    if in_one_pass {
        let rules = Rules { unique: job.request.unique, sum: true };
        let sums = merge_range(&mut job, "merge", 0..count, rules, &mut Destination::Output(&mut output))?;
        return job.finish(output, &sums.out, &sums.dropped);
    }
    merge_to_runs(&mut job, count, fan_in)?;
    job.reduce_runs()?;
    let sums = job.merge_to_output(&mut output)?;
    job.finish(output, &sums.out, &sums.dropped)
}

/// Merges groups of `fan_in` of the `count` inputs into runs, from the first input on that no run contains.
fn merge_to_runs<R: Records>(job: &mut Job<'_, R>, count: usize, fan_in: usize) -> Result<()> {
    for first in (job.manifest.read_end.input..count).step_by(fan_in) {
        let group = first..(first + fan_in).min(count);
        let end = group.end;
        let bytes = group.clone().filter_map(|index| job.inputs.get(index)?.size).sum();
        let mut spill = job.new_spill("merge some", bytes)?;
        let rules = Rules { unique: job.request.unique, sum: false };
        let sums = merge_range(job, "merge some", group, rules, &mut Destination::Spill(&mut spill))?;
        let runs = job.end_spill(spill, &sums)?;
        job.manifest.runs.extend(runs);
        job.manifest.read_end = InputPosition { input: end, ..InputPosition::default() };
        job.manifest.all_read = end == count;
        job.manifest.limit_indexes();
        job.store()?;
    }
    Ok(())
}

/// Checks all inputs for misfits before a merge to a pipe, whose reader gets records while the merge runs.
fn refuse_misfits_beforehand<R: Records>(job: &Job<'_, R>) -> Result<()> {
    if !job.inputs.are_files() {
        return Err(SortError::Request(
            "--strict reads what it merges twice where the output is standard output, and a pipe is read once\n  \
             write to a file (-o), or sort"
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
    into: &mut Destination<'_, R>,
) -> Result<Merged> {
    let block = job.budget.block;
    let available = job.pool.available();
    let volumes = job.volumes();
    let to_file = matches!(into, Destination::Spill(_)) || job.writes_files();
    let is_pipe =
        range.clone().map(|number| job.inputs.get(number).is_some_and(|input| input.size.is_none()));
    let is_pipe: Vec<bool> = is_pipe.collect();
    let files = is_pipe.iter().filter(|&&is_pipe| !is_pipe).count();
    let long_runs = inputs_want_runs(&volumes, files, to_file);
    let share = MergeShare::new(available, block, range.len(), job.records.record_bytes(), long_runs);
    let blocks = share.blocks(available, block).max(range.len());
    let straddling = straddling(&job.pool, share, blocks)?;
    let region = job.pool.region(blocks * block, "blocks of inputs")?;
    let fault = Arc::new(Mutex::new(None));
    let long_records = ChunkPool::new(&job.pool, block, 0, job.pool.budget());
    let open = |number| RawInput::open(job, number, share, &long_records, straddling.as_ref(), &fault);
    let streams = range.clone().map(open).collect::<Result<Vec<_>, _>>()?;
    let starts = vec![0; streams.len()];
    let blocks = BlockPool::new(region, block);
    let of_files = blocks.total().saturating_sub(PipedInputs::pipe_blocks(&is_pipe) as usize);
    let staircase = merge_inputs_in_long_runs(&volumes, files, to_file, of_files);
    let schedule: Box<dyn Schedule> = match staircase {
        Some(staircase) if files == streams.len() => Box::new(staircase),
        Some(staircase) if of_files > files => Box::new(PipedInputs::new(staircase, is_pipe)),
        _ => Box::new(FewestHeld),
    };
    let turns = job.turns(&job.inputs.paths(), &job.output_paths());
    let mut inputs = Bowtie::from_inputs(streams, blocks, schedule)
        .observing(job.disk.ledger(), "merge")
        .alternating(turns.is_some());
    let buffers = job.buffers_of(&inputs);
    let merge = Merge::new(&*job.records, &job.emitters, rules, job.cancel);
    let merge = Merge { limit: job.request.top, ..merge };
    let result = merge.run(&mut inputs, starts, into);
    let fault = fault.lock().unpoisoned().take();
    let sums = result.map_err(|error| fault.unwrap_or(error))?;
    inputs.streams().for_each(|stream| job.manifest.sum_in.combine(&stream.sum()));
    job.manifest.misfits.combine(&sums.misfits);
    job.merge_done(pass, files, to_file, buffers);
    Ok(sums)
}

/// A sorted input, read block by block. The engine chooses the input whose next block is read, and its records are cut
/// by a [`RecordCutter`]: the carry goes to the space kept for it before the next block.
pub(crate) struct RawInput<R> {
    cutter: RecordCutter<R>,
    stream: Box<dyn ReadStream>,
    /// Memory of records that are longer than the space for the carry.
    long_records: ChunkPool,
    /// Takes errors of records, which an error of a stream cannot express.
    fault: Fault,
    /// The space for the carry of each block being read.
    fronts: VecDeque<Buf>,
    ended: bool,
    /// The last long record: while it is in use, blocks are completed only on demand.
    long_given: Weak<Sorted>,
    /// Bytes before each block for the carry.
    carry_bytes: usize,
    /// Memory of records that are cut by the start of a block, if there are no bytes before it.
    straddling: Option<BlockPool>,
    /// The sum of the records read, which the merging threads work out.
    sum: Arc<BlockSum>,
    threads: Arc<EmitThreads>,
    /// Whether values that are not of their column's type are an error.
    strict: bool,
    header: bool,
    /// The last record, if it is not long: the first of the next block is compared with it.
    last: Option<Vec<u8>>,
    /// Blocks whose order may not be checked yet: they are in memory.
    unchecked: VecDeque<Weak<Sorted>>,
    block: usize,
}

/// The memory of records of inputs that are cut by the start of a block, if each has a place beside its block.
pub(crate) fn straddling(pool: &Pool, share: MergeShare, blocks: usize) -> Result<Option<BlockPool>> {
    if share.straddle_bytes == 0 {
        return Ok(None);
    }
    let region = pool.region(blocks * share.straddle_bytes, "records cut by blocks")?;
    Ok(Some(BlockPool::new(region, share.record_bytes())))
}

/// Where the records of a block are summed up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Summed {
    /// On the merging threads, which keep the block a little longer. A merge of 1 GB of short lines takes 0.84 of the
    /// time. Records of a fixed length cost too little for that.
    OnThreads,
    /// At once: the memory of the block is wanted for the next one.
    Here,
}

/// The error that stopped an input.
type Fault = Arc<Mutex<Option<SortError>>>;

impl<R: Records> RawInput<R> {
    /// Opens input `number` of a job.
    pub(crate) fn open(
        job: &Job<'_, R>,
        number: usize,
        share: MergeShare,
        long_records: &ChunkPool,
        straddling: Option<&BlockPool>,
        fault: &Fault,
    ) -> Result<Self> {
        let from = InputPosition { input: number, ..InputPosition::default() };
        let mut cutter = RecordCutter::new(&job.records, job.inputs.clone(), from, job.cancel);
        cutter.memory_per_length = share.memory_per_length;
        let stream = cutter.open(&job.disk)?.ok_or(SortError::Internal("an input to merge is missing"))?;
        Ok(RawInput {
            cutter,
            stream,
            long_records: long_records.clone(),
            fault: Arc::clone(fault),
            fronts: VecDeque::new(),
            ended: false,
            long_given: Weak::new(),
            carry_bytes: share.carry_bytes,
            straddling: straddling.cloned(),
            sum: Arc::default(),
            threads: Arc::clone(&job.emitters),
            strict: job.request.checks.strict,
            header: job.request.header,
            last: None,
            unchecked: VecDeque::new(),
            block: 0,
        })
    }

    /// Sum of the records read.
    pub(crate) fn sum(&self) -> RecordSum {
        self.sum.wait()
    }

    /// The whole records in `bytes` of a buffer, if there are any; the rest is the carry. The input lacks the last
    /// `added` bytes.
    fn segment_of(
        &mut self,
        mut lease: Lease,
        bytes: Range<usize>,
        added: usize,
        summed: Summed,
    ) -> Result<Option<Segment>> {
        let held = bytes.len() - added;
        let start = self.cutter.start_of(held);
        let cut = self.cutter.cut(&lease.bytes()[bytes.clone()], held)?;
        let whole = bytes.start..bytes.start + cut.bytes;
        let rest = &lease.bytes()[whole.end..bytes.end];
        let carry_bytes = self.straddling.as_ref().map_or(self.carry_bytes, BlockPool::block_bytes);
        if rest.len() > carry_bytes.min(CARRY_BYTES_MAX) {
            self.cutter.start_long(self.long_records.long()?, rest, 0, Patience::NONE)?;
        } else {
            self.cutter.carry = rest.to_vec();
        }
        if cut.records == 0 {
            return Ok(None);
        }
        let records = &self.cutter.records;
        records.normalise(&mut lease.bytes_mut()[whole.clone()]);
        let sorted = self.unchecked_block(records.index(lease, whole), start);
        let records = &self.cutter.records;
        if summed == Summed::OnThreads && records.record_bytes().is_none() {
            self.threads.sum(&sorted, &self.sum);
        } else {
            let mut sum = RecordSum::new();
            records.sum(sorted.record_bytes(), &mut sum);
            self.sum.add(&sum);
        }
        if self.strict {
            self.refuse_misfits(&sorted)?;
        }
        Ok(Some(self.cutter.records.whole(sorted)))
    }

    /// These records, whose order the merge checks; their first is compared with the record before it here.
    fn unchecked_block(&mut self, sorted: Sorted, start: RecordStart) -> Arc<Sorted> {
        let records = &*self.cutter.records;
        let bytes = sorted.record_bytes();
        let first = &bytes[..records.cut(bytes, 1).bytes];
        let last = self.last.take();
        let breaks_order = last.is_some_and(|last| first_unordered(records, Some(&last), first).is_some());
        let indexed = match &sorted.index {
            Index::Sparse(starts) => starts.last().map_or(0, |&start| start as usize),
            Index::Array | Index::Groups(_) => 0,
        };
        let last = &bytes[indexed + records.last_record(&bytes[indexed..])..];
        self.last = (last.len() <= CARRY_BYTES_MAX).then(|| last.to_vec());
        let RecordStart { input: name, record, offset } = start;
        let input = self.cutter.at.input;
        let place = Unchecked { input, name, before: record - 1, offset, breaks_order };
        let sorted = Arc::new(Sorted { unchecked: Some(place), ..sorted });
        self.unchecked.retain(|block| block.strong_count() > 0);
        self.unchecked.push_back(Arc::downgrade(&sorted));
        sorted
    }

    /// The error that comes first in the input: that of a record out of order in memory, else `error`.
    fn first_error(&self, error: SortError) -> SortError {
        let records = &*self.cutter.records;
        let blocks = self.unchecked.iter().filter_map(Weak::upgrade);
        let end = |block: &Sorted| records.position_at(block.bytes.len());
        let unordered =
            blocks.map(|block| check_order(records, &block, 0, end(&block))).find_map(Result::err);
        unordered.unwrap_or(error)
    }

    /// The next block, of these records; none: it has no whole record.
    fn next_block(&mut self, segment: Option<Segment>, straddling: Option<Segment>) -> Completed<RunBlock> {
        let Some(segment) = segment else { return Completed::Nothing };
        let block = RunBlock { straddling, ..RunBlock::new(segment, self.block) };
        self.block += 1;
        Completed::Block(block)
    }

    /// A block before which there is no space for the carry: the record that its start cuts gets memory of its own.
    fn block_beside(
        &mut self,
        places: &BlockPool,
        buf: Buf,
        bytes: Range<usize>,
    ) -> Result<Completed<RunBlock>> {
        let carry = std::mem::take(&mut self.cutter.carry);
        let rest = bytes.len().min(places.block_bytes() - carry.len());
        let cut = bytes.start..bytes.start + rest;
        let whole = bytes.start + rest..bytes.end;
        let mut place =
            places.try_take().ok_or(SortError::Internal("no place for a record cut by a block"))?;
        place[..carry.len()].copy_from_slice(&carry);
        place[carry.len()..carry.len() + rest].copy_from_slice(&buf[cut]);
        // Errors name places before the bytes that are not yet cut.
        self.cutter.at.offset -= whole.len() as u64;
        let held = carry.len() + rest;
        if whole.is_empty() {
            let last = self.segment_of(Lease::plain(place).holding(Some(buf)), 0..held, 0, Summed::Here)?;
            return Ok(self.next_block(last, None));
        }
        let straddling = self.segment_of(Lease::plain(place), 0..held, 0, Summed::Here)?;
        self.cutter.at.offset += whole.len() as u64;
        match self.segment_of(Lease::plain(buf), whole, 0, Summed::OnThreads)? {
            Some(segment) => Ok(self.next_block(Some(segment), straddling)),
            None => Ok(self.next_block(straddling, None)),
        }
    }

    /// An error for the first misfit of a block.
    fn refuse_misfits(&self, sorted: &Sorted) -> Result<()> {
        let Some(Unchecked { input, before, .. }) = sorted.unchecked else { return Ok(()) };
        let RecordCutter { records, inputs, .. } = &self.cutter;
        let misfits = records.misfits(sorted.record_bytes()).placed(&[InputStart { at: 0, input, before }]);
        // While the block is in memory.
        let refused = misfits.refuse(records.key_columns(), inputs, self.header);
        refused.map_err(|error| self.first_error(error))
    }

    /// A block of the complete long record, and of the records read after its end.
    fn block_of_long(&mut self, block: Option<Buf>, added: usize) -> Result<Completed<RunBlock>> {
        let Some(LongRecord { memory, .. }) = self.cutter.long.take() else { return Ok(Completed::Nothing) };
        let bytes = 0..memory.bytes();
        let lease = memory.into_lease().holding(block);
        let segment = self.segment_of(lease, bytes, added, Summed::Here)?;
        let mut completed = self.next_block(segment, None);
        if let Completed::Block(block) = &mut completed {
            block.long = true;
            self.long_given = Arc::downgrade(&block.segment.sorted);
        }
        Ok(completed)
    }

    /// Completes the last record, at the end of the input.
    fn complete_last(&mut self) -> Result<Completed<RunBlock>> {
        self.ended = true;
        let carry = std::mem::take(&mut self.cutter.carry);
        if self.cutter.long.is_none() {
            if carry.is_empty() {
                return Ok(Completed::Ended);
            }
            self.cutter.start_long(self.long_records.long()?, &carry, 0, Patience::NONE)?;
        }
        let added = self.cutter.complete_long(Patience::NONE)?;
        self.block_of_long(None, added)
    }

    /// The records of a block that has been read to `bytes` of its buffer.
    fn cut_block(&mut self, mut buf: Buf, bytes: Range<usize>) -> Result<Completed<RunBlock>> {
        if bytes.is_empty() {
            return if self.ended { Ok(Completed::Ended) } else { self.complete_last() };
        }
        self.cutter.at.offset += bytes.len() as u64;
        if self.cutter.long.is_none() {
            if let Some(places) = self.straddling.clone().filter(|_| !self.cutter.carry.is_empty()) {
                return self.block_beside(&places, buf, bytes);
            }
            let first = self.cutter.put_carry(&mut buf, bytes.start);
            let first = first.ok_or(SortError::Internal("a carry is longer than its space"))?;
            let segment = self.segment_of(Lease::plain(buf), first..bytes.end, 0, Summed::OnThreads)?;
            return Ok(self.next_block(segment, None));
        }
        let read = &buf[bytes];
        let Some(end) = self.cutter.lengthen(read, Patience::NONE)? else { return Ok(Completed::Nothing) };
        self.cutter.append(&read[end..], true, Patience::NONE)?;
        self.block_of_long(Some(buf), 0)
    }
}

impl<R: Records> BlockInput for RawInput<R> {
    type Block = RunBlock;

    fn remaining(&self) -> u32 {
        if self.ended { 0 } else { u32::MAX / 2 }
    }

    fn length(&self) -> Option<u64> {
        self.stream.len_hint()
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
        self.cut_block(buf, carry_bytes + start..carry_bytes + end).map_err(|error| {
            *self.fault.lock().unpoisoned() = Some(self.first_error(error));
            let path = self.cutter.file().map_or_else(String::new, InputFile::name).into();
            IoError::Misuse {
                path,
                offset: self.cutter.at.offset,
                what: "its records are not as they should be",
            }
        })
    }

    fn has_room(&self) -> bool {
        self.long_given.strong_count() == 0
    }

    fn ready(&mut self) -> bool {
        self.stream.ready()
    }

    fn channel(&self) -> Option<u64> {
        self.stream.channel()
    }
}
