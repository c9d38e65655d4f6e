//! A stream of merged records: a thread drives the merge, and merges ahead within its memory. The first keys of all
//! blocks are known, so blocks are read in the order in which they are needed, or, if switches cost time, in the long
//! runs of A3.
//!
//! Merged records wait in the blocks of the merging threads; if the reader takes none, the merge pauses. When it is
//! dropped, the stream ends its threads and returns all memory.

use std::sync::{Arc, Mutex};

use ascot_bowtie::engine::{BlockInput, Bowtie};
use ascot_bowtie::schedule::{Forecast, GroupedForecast, PlannedReads, Schedule};
use ascot_io::sync::Unpoisoned;
use ascot_io::threads::{Thread, spawn};
use ascot_io::waits::{Need, receive};
use ascot_io::{BlockEntry, BlockPool, Disk, Ledger, PAGE_BYTES, Pool};
use ascot_model::account::BufferAccount;
use ascot_model::stages;
use ascot_record::checksum::RecordSum;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use serde::Serialize;

use crate::api::{Cancel, Result, SortError, SortRequest};
use crate::merge::{EmitThreads, Merge as Merging, MergeSink};
use crate::plan::{Buffers, merge_switches, merges_in_long_runs};
use crate::records::{Merged, MergedBlock, Records, Rules};
use crate::runs::{RunInput, RunStart};
use crate::view::load::ViewRun;

/// Number of blocks for each merging thread.
const EMIT_BLOCKS: usize = 6;
/// Minimum and maximum size of these blocks, bytes.
const MIN_EMIT_BYTES: usize = 16 << 10;
const MAX_EMIT_BYTES: usize = 1 << 20;
/// Inverse of their share of a stream's memory; and the same if each block of the runs' memory saves switches.
const EMIT_SHARE: usize = 4;
const EMIT_SHARE_BESIDE_LONG_RUNS: usize = 32;
/// Memory for the schedule's data about each future block, bytes.
const BLOCK_FACTS_BYTES: usize = 24;

/// The part of a view to be streamed.
pub struct ViewRange {
    /// The request the view was made by.
    pub request: Arc<SortRequest>,
    /// The runs of the view.
    pub runs: Arc<Vec<ViewRun>>,
    /// Its start in each run.
    pub starts: Vec<RunStart>,
    /// Its end in each run, as a block number, exclusive.
    pub ends: Vec<usize>,
    /// Bytes of its first record to leave out.
    pub skip: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// How it is read.
    pub reading: Reading,
}

/// How a part of a view is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Maximum memory for merging ahead, bytes.
    pub memory: usize,
    /// Whether the stream computes the sum of its records, which takes time.
    pub sums: bool,
    /// Whether its reader writes to the view's volume, in turns with the merge: the runs are then read by A4.
    pub in_turns: bool,
}

/// Merged bytes, in sequence.
pub struct Stream {
    /// The bytes to return next.
    current: Current,
    /// Bytes of `current` already returned.
    given: usize,
    blocks: Option<Receiver<Result<Sent>>>,
    cancel: Cancel,
    thread: Option<Thread<()>>,
    /// Bytes to leave out, and bytes to return after those.
    skip: u64,
    left: u64,
    /// The sum of its records, once the thread has merged them all.
    sum: Arc<Mutex<Option<RecordSum>>>,
    buffers: BufferAccount,
}

/// The messages of the merge to the reader.
enum Sent {
    Block(MergedBlock),
    /// The reader answers as soon as it has written all blocks before.
    Written(Sender<()>),
}

enum Current {
    Bytes(Vec<u8>),
    Block(MergedBlock),
}

impl Current {
    fn bytes(&self) -> &[u8] {
        match self {
            Current::Bytes(bytes) => bytes,
            Current::Block(block) => &block.buf[..block.len],
        }
    }
}

impl Stream {
    /// A stream of these bytes only.
    pub fn from_bytes(front: Vec<u8>) -> Stream {
        let cancel = Cancel::new();
        Stream {
            current: Current::Bytes(front),
            given: 0,
            blocks: None,
            cancel,
            thread: None,
            skip: 0,
            left: 0,
            sum: Arc::default(),
            buffers: BufferAccount::default(),
        }
    }

    /// The memory that it divides among the runs.
    pub fn buffers(&self) -> BufferAccount {
        self.buffers
    }

    /// A stream of `front` followed by a part of a view, with the given memory in bytes and number of merging threads.
    pub(super) fn start<R: Records>(
        front: Vec<u8>,
        records: &Arc<R>,
        disk: &Disk,
        pool: &Pool,
        part: ViewRange,
        threads: usize,
    ) -> Result<Stream> {
        let skip = part.skip;
        let left = part.bytes;
        let (send, receive) = unbounded();
        let mut this = Stream::from_bytes(front);
        let merge = Merge::prepare(records, disk, pool, &part, threads)?;
        this.buffers = merge.buffers(pool);
        let cancel = this.cancel.clone();
        let sum = Arc::clone(&this.sum);
        this.thread = Some(spawn(stages::READ, move || merge.run(part, &send, &cancel, &sum))?);
        this.blocks = Some(receive);
        this.skip = skip;
        this.left = left;
        Ok(this)
    }

    /// The next contiguous bytes; none at the end.
    pub fn next_bytes(&mut self) -> Result<&[u8]> {
        while self.given >= self.current.bytes().len() {
            let Some(blocks) = self.blocks.as_ref().filter(|_| self.left > 0) else { return Ok(&[]) };
            self.current = Current::Bytes(Vec::new());
            self.given = 0;
            let ended = |_| Err(SortError::Internal("a view ended before its last record"));
            let mut block =
                match receive(blocks, "merged records of a view", Need::DATA).unwrap_or_else(ended)? {
                    Sent::Block(block) => block,
                    Sent::Written(answer) => {
                        // A merge that has ended needs no answer.
                        let _ = answer.send(());
                        continue;
                    }
                };
            let skipped = self.skip.min(block.len as u64);
            self.skip -= skipped;
            self.given = skipped as usize;
            block.len = block.len.min((skipped + self.left) as usize);
            self.left -= block.len as u64 - skipped;
            self.current = Current::Block(block);
        }
        Ok(&self.current.bytes()[self.given..])
    }

    /// The sum of all records of the runs it was merged from, if it has ended and computes a sum.
    pub fn sum(&mut self) -> Result<Option<RecordSum>> {
        if self.left > 0 {
            return Ok(None);
        }
        self.current = Current::Bytes(Vec::new());
        self.given = 0;
        // A part ends within a unit of a run, and the thread merges that unit to its end. It can only end if the
        // surplus blocks are taken.
        for rest in self.blocks.take().iter().flatten() {
            if let Sent::Written(answer) = rest? {
                let _ = answer.send(());
            }
        }
        if let Some(thread) = self.thread.take() {
            thread.join()?;
        }
        Ok(*self.sum.lock().unpoisoned())
    }

    /// Marks the first `bytes` of [`next_bytes`](Self::next_bytes) as consumed.
    pub fn consume(&mut self, bytes: usize) {
        self.given += bytes;
    }

    /// Fills `out` while there are bytes. Returns the number of bytes filled.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            let bytes = self.next_bytes()?;
            if bytes.is_empty() {
                break;
            }
            let count = bytes.len().min(out.len() - filled);
            out[filled..filled + count].copy_from_slice(&bytes[..count]);
            self.consume(count);
            filled += count;
        }
        Ok(filled)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.current = Current::Bytes(Vec::new());
        // Without a receiver, senders stop.
        self.blocks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The order in which the blocks of runs are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadOrder {
    /// Block by block, as the merge needs them.
    #[default]
    Forecast,
    /// In long runs, by A3 with forecasting.
    LongRuns,
    /// In long runs of groups of inputs, by A4 with forecasting.
    Groups,
}

impl ReadOrder {
    fn new(part: &ViewRange, live: usize) -> ReadOrder {
        match merges_in_long_runs(&part.request.volumes, live, part.reading.in_turns) {
            true if part.reading.in_turns => ReadOrder::Groups,
            true if live > 1 => ReadOrder::LongRuns,
            _ => ReadOrder::Forecast,
        }
    }
}

/// How a part of a view is read: everything that is decided before the first block.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamPlan {
    /// The runs that have blocks of the part.
    #[serde(skip)]
    live: Vec<usize>,
    /// Number of these runs.
    pub runs: usize,
    /// Blocks of these runs that belong to the part.
    pub blocks_to_read: usize,
    /// Bytes of these blocks in the files.
    pub stored_bytes: u64,
    /// The order in which they are read.
    pub order: ReadOrder,
    /// Blocks of memory that the runs share.
    pub blocks: usize,
    /// Bytes of each.
    pub block_bytes: usize,
    /// Bytes of each block of the merging threads.
    #[serde(skip)]
    emit_bytes: usize,
}

impl StreamPlan {
    /// The switches of reading the runs in long ones and of writing `written_bytes` to their volume in turns; none if
    /// they are read block by block.
    pub(super) fn long_run_switches(&self, written_bytes: u64) -> Option<u64> {
        let written_bytes = match self.order {
            ReadOrder::Forecast => return None,
            ReadOrder::LongRuns => 0,
            ReadOrder::Groups => written_bytes,
        };
        let block = self.block_bytes as u64;
        let buffers = Buffers { bytes: self.blocks as u64 * block, block };
        merge_switches(self.runs as u64, self.stored_bytes, written_bytes, buffers)
    }
}

impl ViewRange {
    /// Decides how the part is read with the memory of `pool` and a number of merging threads.
    pub(super) fn plan(&self, pool: &Pool, threads: usize) -> Result<StreamPlan> {
        let ViewRange { runs, starts, ends, .. } = self;
        let live: Vec<usize> = (0..runs.len()).filter(|&run| starts[run].block < ends[run]).collect();
        let order = ReadOrder::new(self, live.len());
        let memory = self.reading.memory.min(pool.available());
        let share = if order == ReadOrder::Forecast { EMIT_SHARE } else { EMIT_SHARE_BESIDE_LONG_RUNS };
        let emit = memory / share / (EMIT_BLOCKS * threads);
        let emit_bytes = emit.clamp(MIN_EMIT_BYTES, MAX_EMIT_BYTES) / PAGE_BYTES * PAGE_BYTES;
        let block =
            live.iter().map(|&run| runs[run].run.block_bytes).max().unwrap_or(PAGE_BYTES).max(PAGE_BYTES);
        let to_come: usize = live.iter().map(|&run| ends[run] - starts[run].block).sum();
        let long: usize = live.iter().map(|&run| runs[run].run.long_bytes()).sum();
        let others = emit_bytes * EMIT_BLOCKS * threads + long + to_come * BLOCK_FACTS_BYTES;
        let blocks = (memory.saturating_sub(others) / block).min(to_come);
        if blocks < live.len() {
            let min_bytes = pool.budget() - memory + others + 2 * live.len() * block;
            return Err(SortError::TooLittleMemory {
                given_bytes: pool.budget() as u64,
                min_bytes: min_bytes as u64,
            });
        }
        let entries =
            |&run: &usize| runs[run].index.blocks.get(starts[run].block..ends[run]).unwrap_or_default();
        Ok(StreamPlan {
            runs: live.len(),
            blocks_to_read: to_come,
            stored_bytes: live.iter().flat_map(entries).map(BlockEntry::padded).sum(),
            order,
            blocks,
            block_bytes: block,
            emit_bytes,
            live,
        })
    }
}

/// A merge with all its memory.
struct Merge<R: Records> {
    records: Arc<R>,
    emitters: EmitThreads,
    inputs: Vec<RunInput<R>>,
    order: ReadOrder,
    blocks: BlockPool,
    ledger: Ledger,
}

impl<R: Records> Merge<R> {
    fn prepare(records: &Arc<R>, disk: &Disk, pool: &Pool, part: &ViewRange, threads: usize) -> Result<Self> {
        let StreamPlan { live, order, blocks, block_bytes, emit_bytes, .. } = part.plan(pool, threads)?;
        let emitters = EmitThreads::start(records, pool, threads, EMIT_BLOCKS, emit_bytes)?;
        let bytes = (blocks * block_bytes).max(1);
        let blocks = BlockPool::new(pool.region(bytes, "blocks of a view")?, block_bytes);
        let open = |&run: &usize| {
            let of_view = &part.runs[run];
            let (run, index) = of_view.part(part.starts[run], part.ends[run]);
            RunInput::from_file(records, pool, &run, &of_view.file(disk)?, Arc::new(index))
        };
        let inputs = live.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Merge {
            records: Arc::clone(records),
            emitters,
            inputs,
            order,
            blocks,
            ledger: disk.ledger().clone(),
        })
    }

    fn buffers(&self, pool: &Pool) -> BufferAccount {
        BufferAccount::new(self.blocks.total(), self.blocks.block_bytes(), pool.budget())
    }

    fn run(
        self,
        part: ViewRange,
        send: &Sender<Result<Sent>>,
        cancel: &Cancel,
        sum: &Mutex<Option<RecordSum>>,
    ) {
        let Merge { records, emitters, inputs, order, blocks, ledger } = self;
        let live = (0..part.runs.len()).filter(|&run| part.starts[run].block < part.ends[run]);
        let (starts, keys): (Vec<usize>, Vec<Vec<u64>>) = live
            .map(|run| {
                let from = part.starts[run].block;
                (from, part.runs[run].keys.block_prefixes(from..part.ends[run]))
            })
            .unzip();
        let Reading { sums, in_turns, .. } = part.reading;
        let total = blocks.total() as u32;
        let schedule: Box<dyn Schedule> = match order {
            ReadOrder::Groups => Box::new(GroupedForecast::new(&keys, total)),
            ReadOrder::LongRuns => Box::new(PlannedReads::new(&keys, total)),
            ReadOrder::Forecast => Box::new(Forecast::new(&keys)),
        };
        let bowtie = Bowtie::from_inputs(inputs, blocks, schedule).observing(&ledger, "read");
        let mut bowtie = bowtie.alternating(in_turns);
        drop(keys);
        let mut sink = Hand { records: &*records, send, in_turns };
        let rules = Rules { sum: sums, ..Rules::default() };
        let merging = Merging::new(&*records, &emitters, rules, cancel);
        match merging.run(&mut bowtie, starts, &mut sink) {
            Ok(merged) if sums => *sum.lock().unpoisoned() = Some(merged.out),
            Ok(_) => {}
            // Without a receiver the error is of no use.
            Err(error) => drop(send.send(Err(error))),
        }
    }
}

/// Passes blocks to the reader, in the form of the output.
struct Hand<'s, R: Records> {
    records: &'s R,
    send: &'s Sender<Result<Sent>>,
    in_turns: bool,
}

impl<R: Records, I: BlockInput> MergeSink<I> for Hand<'_, R> {
    fn block(&mut self, mut block: MergedBlock, _: &mut Bowtie<I>) -> Result<()> {
        let len = block.len;
        self.records.finish(&mut block.buf[..len]);
        self.send.send(Ok(Sent::Block(block))).map_err(|_| SortError::Cancelled)
    }

    /// Where reader and merge take turns, the merge reads on when the batch is written.
    fn batch(&mut self, _done: &dyn Fn() -> Vec<RunStart>, _so_far: &Merged) -> Result<()> {
        if !self.in_turns {
            return Ok(());
        }
        let (answer, answered) = bounded(1);
        self.send.send(Ok(Sent::Written(answer))).map_err(|_| SortError::Cancelled)?;
        receive(&answered, "the reader of a view", Need::DEVICE).map_err(|_| SortError::Cancelled)
    }
}
