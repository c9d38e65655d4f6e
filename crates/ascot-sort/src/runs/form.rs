//! Reading and sorting: the first half of every pass that sorts in memory.
//!
//! ```text
//!   pipeline: reader ─▶ chunks ─▶ sorting threads ─▶ sorted chunks ─▶ Collector ─▶ run buffers
//!                ▲                                                        │
//!                ╰────────── memory, once a run buffer is written ◀───────╯
//! ```
//!
//! While the caller writes one run buffer, the next is read and sorted. A run buffer is half of the chunks in memory,
//! or all of them if the input fits, or may still fit, in memory. A job that merges the end of its input from memory
//! spills no more than it must, so that the rest of the input fits ([`Gather::Holding`]). If the size of the input is
//! not known, as that of a pipe, it spills a little whenever memory is full ([`Gather::InSteps`]).
//!
//! If the device serves reads and writes in turns ([`crate::resources::turns`]), the reader has it until it waits for
//! memory, and the caller while it writes a run buffer. A second run buffer in memory would not be read meanwhile. So
//! a run buffer is all of the chunks that are neither read nor sorted: half as many runs are merged, and while the last
//! of its chunks are sorted, the first of the next are read.

use std::collections::VecDeque;
use std::sync::Arc;

use ascot_io::clocks;
use ascot_model::stages;
use ascot_record::checksum::RecordSum;

use crate::api::{Cancel, Result, SortError};
use crate::pipeline::{ChunkWork, InOrder, Pipeline};
use crate::read::{InputPosition, RecordReader, Span};
use crate::records::{ChunkMisfits, Misfits, RawChunk, Records, Segment, Sorted, Splitters};
use crate::resources::ChunkPool;

/// A run buffer: sorted chunks that follow one another in the input.
#[derive(Default)]
pub struct RunBuffer {
    /// The sorted chunks, each a separate source, in input order.
    pub sources: Vec<Vec<Segment>>,
    /// The byte ranges of each source in files, if known.
    pub spans: Vec<Vec<Span>>,
    /// Records in it.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of its records; records of spills are not summed up again.
    pub sum: RecordSum,
    /// Values of these records that are not of their column's type.
    pub misfits: Misfits,
    /// Position in the inputs after its last record.
    pub end: InputPosition,
    /// Number of the input its last record comes from.
    pub input: usize,
    /// No more input follows.
    pub last: bool,
}

/// The memory of a pass that sorts.
pub struct SortMemory {
    /// Buffers of chunks being read and of sorted chunks.
    pub chunks: ChunkPool,
    /// Sorted chunks that make a run buffer.
    pub run_buffer_chunks: usize,
    /// Sorted chunks of the largest part that is sorted in memory.
    pub part_chunks: usize,
}

/// Splitters by which the chunks of an input are grouped instead of sorted.
pub type Grouping<'a> = &'a (dyn Fn(usize) -> Option<Arc<Splitters>> + Sync);

/// How many chunks make a run buffer.
#[derive(Clone, Copy)]
pub enum Gather<'a> {
    /// As many as a run buffer has: the input does not fit.
    Buffers,
    /// As many as a run buffer has, until the rest of the input fits: that is the last run buffer.
    Holding {
        /// Bytes of records that are in no run buffer yet.
        left_bytes: u64,
        /// Bytes of records that memory holds at last.
        held_bytes: u64,
    },
    /// Everything, as long as it fits; then as many as a run buffer has.
    AllThatFits,
    /// Everything, as long as it fits. Then, a few times, a part of a run buffer whenever memory is full: the input may
    /// be only a little larger than memory. After that as many as a run buffer has.
    InSteps,
    /// One input: a part that fits.
    ByInput(Option<Grouping<'a>>),
}

/// Inverse of the share of a run buffer that is taken when memory is full and the input may soon end: larger parts
/// spill more than needed, and smaller ones make more runs, whose blocks take memory from what is held.
const STEP_SHARE: usize = 4;
/// Number of such steps: what they take is about all memory. While one is written, the next is not read.
const MAX_STEPS: usize = 8;
/// Maximum number of chunks that wait for a sorting thread: each holds two buffers.
const QUEUED_CHUNKS: usize = 1;

/// Reads and sorts all chunks of `reader`; `take` gets the run buffers, in input order.
pub fn sort_run_buffers<R: Records>(
    records: &Arc<R>,
    reader: RecordReader<R>,
    memory: &SortMemory,
    threads: usize,
    gather: Gather<'_>,
    cancel: &Cancel,
    take: &mut dyn FnMut(RunBuffer) -> Result<()>,
) -> Result<()> {
    let grouping = if let Gather::ByInput(grouping) = gather { grouping } else { None };
    let copies = records.gathers() || grouping.is_some();
    Pipeline::new(stages::SORT, threads, cancel).queue(QUEUED_CHUNKS).run_chunks(
        reader,
        copies.then_some(&memory.chunks),
        || {
            let mut scratch = records.scratch(memory.chunks.chunk_bytes());
            move |mut work: ChunkWork| {
                work.placed.chunk.grouping = grouping.and_then(|bounds| bounds(work.placed.input));
                sort_chunk(&**records, work, &memory.chunks, &mut scratch)
            }
        },
        |sorted| {
            Collector { records, memory, gather, chunks: VecDeque::new(), steps: 0 }.collect(sorted, take)
        },
    )
}

fn sort_chunk<R: Records>(
    records: &R,
    work: ChunkWork,
    chunks: &ChunkPool,
    scratch: &mut R::Scratch,
) -> SortedChunk {
    let ChunkWork { mut placed, out } = work;
    if !placed.long && out.is_none() {
        placed.chunk = compact(placed.chunk, chunks);
    }
    let mut sum = RecordSum::new();
    let bytes = placed.chunk.bytes.len() as u64;
    clocks::count(bytes);
    let (parts, misfits) = if placed.long {
        let spilled = placed.chunk.spilled;
        let sorted = long_record(records, placed.chunk, &mut sum);
        let misfits = if spilled { ChunkMisfits::default() } else { records.misfits(sorted.record_bytes()) };
        (vec![Arc::new(sorted)], misfits)
    } else {
        let parts = records.sort(placed.chunk, out, scratch, &mut sum);
        (parts, records.take_misfits(scratch))
    };
    SortedChunk {
        parts,
        sum,
        misfits: misfits.placed(&placed.starts),
        records: placed.records as u64,
        bytes,
        end: placed.end,
        input: placed.input,
        ends_input: placed.ends_input,
        spans: placed.spans,
    }
}

/// A chunk that is sorted where it is, in a smaller buffer if its own would be rather empty.
fn compact(chunk: RawChunk, chunks: &ChunkPool) -> RawChunk {
    let Some(mut lease) = chunks.try_take_smaller(chunk.bytes.len()) else { return chunk };
    let bytes = 0..chunk.bytes.len();
    lease.bytes_mut()[bytes.clone()].copy_from_slice(&chunk.lease.bytes()[chunk.bytes.clone()]);
    RawChunk { lease, bytes, ..chunk }
}

/// A chunk of one record.
fn long_record<R: Records>(records: &R, chunk: RawChunk, sum: &mut RecordSum) -> Sorted {
    let RawChunk { mut lease, bytes, spilled, .. } = chunk;
    if !spilled {
        let record = &mut lease.bytes_mut()[bytes.clone()];
        records.normalise(record);
        records.sum(record, sum);
    }
    records.index(lease, bytes)
}

struct SortedChunk {
    parts: Vec<Arc<Sorted>>,
    sum: RecordSum,
    misfits: Misfits,
    records: u64,
    bytes: u64,
    end: InputPosition,
    input: usize,
    ends_input: bool,
    spans: Vec<Span>,
}

impl SortedChunk {
    /// Bytes of its buffer.
    fn memory(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.lease.bytes().len()) as u64
    }
}

/// Gathers sorted chunks into run buffers.
struct Collector<'a, R> {
    records: &'a Arc<R>,
    memory: &'a SortMemory,
    gather: Gather<'a>,
    /// Sorted chunks that are in no run buffer yet.
    chunks: VecDeque<SortedChunk>,
    /// Number of steps taken ([`Gather::InSteps`]).
    steps: usize,
}

impl<R: Records> Collector<'_, R> {
    fn collect(
        &mut self,
        sorted: &mut InOrder<'_, SortedChunk>,
        take: &mut dyn FnMut(RunBuffer) -> Result<()>,
    ) -> Result<()> {
        loop {
            sorted.wait()?;
            self.chunks.extend(std::iter::from_fn(|| sorted.take()));
            while let Some(count) = self.ready(sorted)? {
                let last = sorted.all_taken() && count == self.chunks.len();
                let buffer = RunBuffer { last, ..self.buffer(count) };
                let access = sorted.writer();
                access.take();
                take(buffer)?;
                if last {
                    return Ok(());
                }
            }
        }
    }

    /// Number of chunks that make a run buffer now; none if no run buffer is ready.
    fn ready(&mut self, sorted: &InOrder<'_, SortedChunk>) -> Result<Option<usize>> {
        // In this order: a reader that has waited for memory and continues has passed on another chunk.
        let waits = self.memory.chunks.starves();
        let starves = waits && sorted.all_arrived();
        let count = self.chunks.len();
        if matches!(self.gather, Gather::ByInput(_)) {
            let whole = self.chunks.iter().position(|chunk| chunk.ends_input).map(|before| before + 1);
            let ready = whole.or((sorted.all_taken() && count == 0).then_some(0));
            return match ready {
                None if starves => Err(SortError::Internal("a part does not fit in memory")),
                ready => Ok(ready),
            };
        }
        if sorted.all_read() {
            // The last chunks make one run buffer, once all of them are sorted.
            return Ok(sorted.all_taken().then_some(count));
        }
        if let Some(spilled) = self.to_spill() {
            return Ok(Some(spilled));
        }
        let full = self.full();
        Ok(match self.gather {
            Gather::Buffers if full.is_some() => full,
            // The reader waits for memory that no chunk holds.
            _ if count == 0 && starves => return Err(self.memory.chunks.too_few().into()),
            Gather::InSteps if starves => Some(self.step().unwrap_or(count)),
            _ if starves => {
                if matches!(self.gather, Gather::AllThatFits) {
                    self.gather = Gather::Buffers;
                }
                Some(full.unwrap_or(count))
            }
            _ => None,
        })
    }

    /// Number of the first chunks to spill so that the rest of the input fits in memory; none if nothing need be
    /// spilled, or more can be spilled at once later.
    fn to_spill(&self) -> Option<usize> {
        let Gather::Holding { left_bytes, held_bytes } = self.gather else { return None };
        let over_bytes = left_bytes.checked_sub(held_bytes).filter(|&over| over > 0)?;
        let over = self.first_with(over_bytes, |chunk| chunk.bytes);
        self.full().map(|full| full.min(over.unwrap_or(full))).or(over)
    }

    /// Number of the first chunks that make a full run buffer, if these are ready.
    fn full(&self) -> Option<usize> {
        self.first_with_memory(self.memory.run_buffer_chunks)
    }

    /// Number of the first chunks to spill because not everything fits.
    fn step(&mut self) -> Option<usize> {
        if self.steps == MAX_STEPS {
            self.gather = Gather::Buffers;
            return self.full();
        }
        self.steps += 1;
        self.first_with_memory(self.memory.run_buffer_chunks.div_ceil(STEP_SHARE))
    }

    /// Number of the first chunks that take the memory of `usual` chunks, if these are ready.
    fn first_with_memory(&self, usual: usize) -> Option<usize> {
        let bytes = usual * self.memory.chunks.chunk_bytes();
        self.first_with(bytes as u64, SortedChunk::memory)
    }

    /// Number of the first chunks of which `bytes` add up to `wanted`, if these are ready.
    fn first_with(&self, wanted: u64, bytes: impl Fn(&SortedChunk) -> u64) -> Option<usize> {
        let mut sum = 0;
        let before = self.chunks.iter().position(|chunk| {
            sum += bytes(chunk);
            sum >= wanted
        });
        before.map(|before| before + 1)
    }

    /// The first `count` chunks as a run buffer.
    fn buffer(&mut self, count: usize) -> RunBuffer {
        let mut buffer = RunBuffer::default();
        for chunk in self.chunks.drain(..count) {
            buffer.sum.combine(&chunk.sum);
            buffer.misfits.combine(&chunk.misfits);
            buffer.records += chunk.records;
            buffer.bytes += chunk.bytes;
            buffer.end = chunk.end;
            buffer.input = chunk.input;
            buffer.spans.extend(spans_of(&chunk));
            buffer.sources.extend(chunk.parts.into_iter().map(|part| vec![self.records.whole(part)]));
        }
        if let Gather::Holding { left_bytes, .. } = &mut self.gather {
            *left_bytes = left_bytes.saturating_sub(buffer.bytes);
        }
        buffer
    }
}

/// The byte ranges in files of each part of a chunk. Records so short that a chunk has too many of them are sorted in
/// several parts, which follow one another in the input; if that is several inputs, these ranges are not known.
fn spans_of(chunk: &SortedChunk) -> Vec<Vec<Span>> {
    if chunk.parts.len() == 1 {
        return vec![chunk.spans.clone()];
    }
    let unknown = || vec![Vec::new(); chunk.parts.len()];
    let [span] = chunk.spans[..] else { return unknown() };
    let Some(first) = chunk.parts.first() else { return unknown() };
    let end = span.offset + span.len;
    let span_of = |part: &Arc<Sorted>| {
        let offset = span.offset + (part.bytes.start - first.bytes.start) as u64;
        // The terminator of an unfinished record is not in the file.
        let len = (part.bytes.len() as u64).min(end.saturating_sub(offset));
        vec![Span { offset, len, unfinished: span.unfinished && offset + len == end, ..span }]
    };
    chunk.parts.iter().map(span_of).collect()
}
