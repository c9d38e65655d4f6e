//! Writes records to their parts: the flow of a 1 x m bowtie. Other threads have read the records and grouped them
//! by part ([`route`](crate::partition::route)).
//!
//! ```text
//!   grouped chunks, in input order ─▶ PartitionFlow ─▶ [block being filled] ─▶ part 0
//!                                                  └─▶ [block being filled] ─▶ part 1 ... part m
//! ```
//!
//! On a volume where switches cost nothing, a block is written when it is full. If they cost time, memory fills
//! up first and the fullest parts are then written out (algorithm A2).
//!
//! Invariant: a part gets its records in the order of the inputs.
//!
//! The parts of a partitioned write are runs. Their blocks hold whole records, except for a record longer than a block,
//! and a run is given the [`BlockFacts`] of each block. The parts of a split are files, whose blocks hold any bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use ascot_bowtie::engine::{BlockOutput, Bowtie, FileWriter, Reader};
use ascot_bowtie::flow::{Flow, Step, run};
use ascot_bowtie::schedule::{FewestHeld, Schedule, Staircase};
use ascot_io::{AtomicOutput, BlockPool, Buf, IoError};
use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::api::{Cancel, Result, SortError};
use crate::partition::route::Grouped;
use crate::pipeline::InOrder;
use crate::records::{MergedBlock, Records};
use crate::resources::DeviceAccess;
use crate::runs::{OpenPart, Run, RunSink, encode_index};

/// The parts of a partitioned write, and the blocks they share.
pub type OpenParts<P> = Bowtie<Reader, P>;

/// Parts that share `blocks`, written in the order of the published schedule of `long_runs`, or else each block as
/// soon as it is full.
pub fn open_parts<P: PartStream>(
    streams: Vec<P>,
    blocks: BlockPool,
    long_runs: Option<Algorithm>,
) -> Result<OpenParts<P>> {
    let outputs = streams.len() as u32;
    let shape = |algorithm| match algorithm {
        Algorithm::A1 => Shape { inputs: 0, outputs, alpha: 0.0 },
        _ => Shape { inputs: 1, outputs, alpha: 0.5 },
    };
    let schedule: Box<dyn Schedule> =
        match long_runs.and_then(|algorithm| Scheme::best_of(shape(algorithm), algorithm)) {
            Some(scheme) => Box::new(Staircase::new(scheme, 0)),
            // Without inputs to choose from, this schedule writes any full block.
            None => Box::new(FewestHeld),
        };
    Bowtie::from_outputs(streams, blocks, schedule)
        .map_err(|_| SortError::Internal("parts have too few blocks of memory"))
}

/// Writes all `chunks` to `parts`. `after_chunk` is called when all records of a chunk have been given to their
/// parts.
pub fn write_partitioned<R: Records, P: PartStream>(
    records: &R,
    chunks: &mut InOrder<'_, Grouped>,
    parts: &mut OpenParts<P>,
    cancel: &Cancel,
    after_chunk: AfterChunk<'_, P>,
) -> Result<()> {
    let open = vec![OpenBlock::default(); parts.outputs()];
    let access = chunks.writer();
    let skips = (0..parts.outputs()).map(|part| parts.output_stream(part).bytes_to_skip()).collect();
    let mut flow = PartitionFlow { records, chunks, open, skips, current: None, access, after_chunk };
    run(parts, &mut flow, || cancel.check())
}

/// A callback after each chunk.
pub type AfterChunk<'a, P> = &'a mut dyn FnMut(&Grouped, &mut BetweenChunks<'_, P>) -> Result<()>;

/// The parts between two chunks.
pub struct BetweenChunks<'a, P: PartStream> {
    parts: &'a mut OpenParts<P>,
    open: &'a mut [OpenBlock],
    skips: &'a [u64],
}

impl<P: PartStream> BetweenChunks<'_, P> {
    /// Writes all blocks, also those that are not full, then calls `checkpoint` for each part.
    pub fn checkpoint<T>(&mut self, checkpoint: impl FnMut(&mut P) -> Result<T>) -> Result<Vec<T>> {
        for (part, open) in self.open.iter_mut().enumerate() {
            open.describe(part, self.parts);
        }
        self.parts.flush()?;
        self.written(checkpoint)
    }

    /// Calls `checkpoint` for each part, which has the blocks written so far.
    pub fn written<T>(&mut self, mut checkpoint: impl FnMut(&mut P) -> Result<T>) -> Result<Vec<T>> {
        (0..self.open.len()).map(|part| checkpoint(self.parts.output_stream(part))).collect()
    }

    /// Bytes of each part that are still to be delivered a second time.
    pub fn skips(&self) -> &[u64] {
        self.skips
    }

    /// Whether a record was longer than a block: then a part may end within a record.
    pub fn has_long_records(&self) -> bool {
        self.open.iter().any(|open| open.long_bytes > 0)
    }
}

/// The block that a part is filling.
#[derive(Clone, Copy, Debug, Default)]
struct OpenBlock {
    facts: BlockFacts,
    /// Bytes in it.
    bytes: usize,
    /// Whether it ends here, as soon as there is memory for the next one.
    ends: bool,
    /// Length of the record longer than a block that is being written, and the bytes of it still to come.
    long_bytes: usize,
    long_left: usize,
}

struct PartitionFlow<'a, 'p, R, P: PartStream> {
    records: &'a R,
    chunks: &'a mut InOrder<'p, Grouped>,
    open: Vec<OpenBlock>,
    /// Bytes of each part to leave out.
    skips: Vec<u64>,
    /// The chunk that found no memory for all of its records.
    current: Option<Unwritten>,
    /// Writes take turns with the reader.
    access: DeviceAccess,
    after_chunk: AfterChunk<'a, P>,
}

/// A chunk, the group of it that is written next, and the bytes of that group already written.
struct Unwritten {
    chunk: Grouped,
    group: usize,
    written: usize,
}

impl<R: Records, P: PartStream> Flow<Reader, P> for PartitionFlow<'_, '_, R, P> {
    type Error = SortError;

    fn step(&mut self, parts: &mut OpenParts<P>) -> Result<Step> {
        self.access.give_back();
        let next = match self.current.take() {
            Some(current) => Some(current),
            None => self.chunks.next_result()?.map(|chunk| Unwritten { chunk, group: 0, written: 0 }),
        };
        let Some(mut now) = next else {
            for (part, open) in self.open.iter_mut().enumerate() {
                open.describe(part, parts);
            }
            return Ok(Step::Done);
        };
        while let Some((part, range)) = now.chunk.groups.get(now.group) {
            let bytes = &now.chunk.lease.bytes()[range.clone()][now.written..];
            // Records of parts that are done are in the output.
            if bytes.is_empty() || *part >= self.open.len() {
                now.group += 1;
                now.written = 0;
                continue;
            }
            let skip = self.skips[*part].min(bytes.len() as u64) as usize;
            if skip > 0 {
                self.skips[*part] -= skip as u64;
                now.written += skip;
                continue;
            }
            let more = if P::WHOLE_RECORDS {
                self.open[*part].put_records(self.records, *part, bytes, now.chunk.longest, parts)
            } else {
                parts.put(*part, bytes)
            };
            if more == 0 {
                self.current = Some(now);
                self.access.take();
                return Ok(Step::Full);
            }
            now.written += more;
        }
        (self.after_chunk)(
            &now.chunk,
            &mut BetweenChunks { parts, open: &mut self.open, skips: &self.skips },
        )?;
        Ok(Step::Progress)
    }
}

impl OpenBlock {
    /// Gives the part the facts of the block, if anything is in it.
    fn describe<P: PartStream>(&mut self, part: usize, parts: &mut OpenParts<P>) {
        if std::mem::take(&mut self.bytes) > 0 {
            parts.output_stream(part).describe(std::mem::take(&mut self.facts));
        }
    }

    /// Appends the records of `bytes` that fit, or the bytes that fit of a record longer than a block. No record is
    /// longer than `longest` bytes. Returns the number of bytes appended; 0: there is no memory.
    fn put_records<R: Records, P: PartStream>(
        &mut self,
        records: &R,
        part: usize,
        bytes: &[u8],
        longest: usize,
        parts: &mut OpenParts<P>,
    ) -> usize {
        loop {
            if self.ends {
                if !parts.end_block(part) {
                    return 0;
                }
                self.ends = false;
            }
            let left = parts.left_in_block(part);
            if left == 0 {
                return 0;
            }
            if self.long_left > 0 {
                return self.put_long(part, &bytes[..self.long_left.min(left)], parts);
            }
            let cut = records.cut(&bytes[..left.min(bytes.len())], usize::MAX);
            if cut.bytes > 0 {
                let facts = BlockFacts {
                    records: self.facts.records + cut.records as u64,
                    longest: self.facts.longest.max(longest.min(cut.bytes)),
                    first_record: 0,
                };
                return self.put(part, &bytes[..cut.bytes], facts, parts);
            }
            if self.bytes > 0 {
                self.describe(part, parts);
                self.ends = true;
            } else {
                self.long_bytes = records.cut(bytes, 1).bytes;
                self.long_left = self.long_bytes;
            }
        }
    }

    /// Appends `bytes`, for which the block has space; `facts` are those of the block with them.
    fn put<P: PartStream>(
        &mut self,
        part: usize,
        bytes: &[u8],
        facts: BlockFacts,
        parts: &mut OpenParts<P>,
    ) -> usize {
        let left = parts.left_in_block(part);
        let taken = parts.put(part, bytes);
        if taken > 0 {
            self.bytes += taken;
            self.facts = facts;
            if taken == left {
                self.describe(part, parts);
            }
        }
        taken
    }

    /// Appends bytes of a long record, which shares its blocks with no other.
    fn put_long<P: PartStream>(&mut self, part: usize, bytes: &[u8], parts: &mut OpenParts<P>) -> usize {
        let first = self.long_left == self.long_bytes;
        let last = self.long_left == bytes.len();
        let facts = BlockFacts {
            records: u64::from(last),
            longest: self.long_bytes,
            first_record: if first { 0 } else { bytes.len() },
        };
        let taken = self.put(part, bytes, facts, parts);
        self.long_left -= taken;
        if taken > 0 && last && self.bytes > 0 {
            self.describe(part, parts);
            self.ends = true;
        }
        taken
    }
}

/// Facts about the records in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockFacts {
    /// Records that end in it.
    pub records: u64,
    /// Length of the longest record, or an upper bound of it, bytes.
    pub longest: usize,
    /// Offset of the first record that starts in the block; the length of the block if none does.
    pub first_record: usize,
}

/// A stream of a partitioned write.
pub trait PartStream: BlockOutput {
    /// Its blocks hold whole records.
    const WHOLE_RECORDS: bool;
    /// Receives the facts of each block, in the order of the blocks and before them.
    fn describe(&mut self, _: BlockFacts) {}
    /// Bytes to skip at the front: the part has them already.
    fn bytes_to_skip(&self) -> u64 {
        0
    }
}

/// A part of a partitioned write while it is written: records in input order, in blocks of a run file.
pub struct PartRun<R> {
    /// None when it is finished.
    sink: Option<RunSink<R>>,
    /// The facts of blocks that are not written yet.
    facts: VecDeque<BlockFacts>,
    /// Blocks begun and not completed.
    begun: usize,
    /// The first bytes that it gets, which it has already.
    skip: u64,
    done: Option<Run>,
}

impl<R: Records> PartRun<R> {
    /// A part that is written to `sink`.
    pub fn new(sink: RunSink<R>) -> Self {
        PartRun { sink: Some(sink), facts: VecDeque::new(), begun: 0, skip: 0, done: None }
    }

    /// Bytes that it has, without those that are delivered a second time.
    pub fn bytes_before(&self) -> u64 {
        self.sink.as_ref().map_or(0, RunSink::bytes).saturating_sub(self.skip)
    }

    /// A part that gets its last `bytes` again, and leaves them out.
    pub fn skipping(mut self, bytes: u64) -> Self {
        self.skip = bytes;
        self
    }

    /// Makes the blocks written so far durable. Returns the state from which the part can be resumed.
    pub fn checkpoint(&mut self) -> Result<OpenPart> {
        let Some(sink) = &mut self.sink else { return Err(SortError::Internal("a part is complete")) };
        let (run, index) = sink.checkpoint()?;
        Ok(OpenPart { run, index: encode_index(&index), skip: 0 })
    }

    /// The run, when it is finished.
    pub fn into_run(self) -> Option<Run> {
        self.done
    }
}

impl<R: Records> PartStream for PartRun<R> {
    const WHOLE_RECORDS: bool = true;

    fn bytes_to_skip(&self) -> u64 {
        self.skip
    }

    fn describe(&mut self, block: BlockFacts) {
        self.facts.push_back(block);
    }
}

impl<R: Records> BlockOutput for PartRun<R> {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        let (Some(sink), Some(facts)) = (&mut self.sink, self.facts.pop_front()) else { return Ok(()) };
        self.begun += 1;
        let BlockFacts { records, longest, first_record } = facts;
        sink.write(MergedBlock { buf, len, first_record, longest, records })
    }

    fn end(&mut self) -> Result<(), IoError> {
        self.sink.as_mut().map_or(Ok(()), |sink| sink.writer.end())
    }

    fn complete(&mut self) -> Result<(), IoError> {
        self.begun = self.begun.saturating_sub(1);
        let Some(RunSink { writer, .. }) = &mut self.sink else { return Ok(()) };
        while writer.in_flight() > self.begun {
            writer.complete()?;
        }
        Ok(())
    }

    fn ready(&mut self) -> bool {
        self.sink.as_mut().is_none_or(|sink| sink.writer.in_flight() < self.begun)
    }

    fn channel(&self) -> Option<u64> {
        self.sink.as_ref().and_then(|sink| sink.writer.channel())
    }

    fn finish(&mut self) -> Result<u64, IoError> {
        if let Some(sink) = self.sink.take() {
            self.done = Some(sink.finish()?);
        }
        Ok(self.done.as_ref().map_or(0, |run| run.bytes))
    }
}

/// A file of a split.
pub struct PartFile<R> {
    records: Arc<R>,
    file: FileWriter,
}

impl<R: Records> PartFile<R> {
    /// A part that is written to `file`.
    pub fn new(records: &Arc<R>, file: AtomicOutput) -> Self {
        PartFile { records: Arc::clone(records), file: FileWriter::new(file) }
    }

    /// The file, which is sealed if the part is finished.
    pub fn into_file(self) -> AtomicOutput {
        self.file.into_file()
    }
}

impl<R: Records> PartStream for PartFile<R> {
    const WHOLE_RECORDS: bool = false;
}

impl<R: Records> BlockOutput for PartFile<R> {
    fn begin(&mut self, mut buf: Buf, len: usize) -> Result<(), IoError> {
        self.records.finish(&mut buf[..len]);
        self.file.begin(buf, len)
    }

    fn complete(&mut self) -> Result<(), IoError> {
        self.file.complete()
    }

    fn ready(&mut self) -> bool {
        self.file.ready()
    }

    fn channel(&self) -> Option<u64> {
        self.file.channel()
    }

    fn finish(&mut self) -> Result<u64, IoError> {
        self.file.finish()
    }
}
