//! Reading a run that refers to the inputs: each of its chunks is read, sorted and trimmed.
//!
//! A chunk that is in order already is used as it is read. Any other is sorted with a buffer and
//! scratch memory that all such runs of a merge share ([`Bench`]).
//!
//! A run that descends through its input needs the last chunk first. Where long runs are better, all chunks that the
//! merge has memory for are read in the order of the file, as one run, before the first of them is used:
//!
//! ```text
//!   input     | chunk 0 | chunk 1 | chunk 2 | chunk 3 | chunk 4 | chunk 5 |
//!   read                                    ╰── first group: 3, 4, 5 ────▶
//!             ╰── second group: 0, 1, 2 ───▶
//!   used      5 4 3, then 2 1 0
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ascot_bowtie::engine::{BlockInput, Completed};
use ascot_io::sync::Unpoisoned;
use ascot_io::{Buf, Disk, Filled, IoError, PAGE_BYTES, Pool, PoolError, ReadStream};
use ascot_record::checksum::RecordSum;

use crate::read::{COMPLETION_BYTES, Inputs, Span};
use crate::records::{RawChunk, Records, Segment, Side};
use crate::resources::{ChunkPool, Lease};
use crate::runs::run_file::{InputChunk, Run, RunBlock};

/// Maximum number of chunks of one run read ahead; each is an open file.
const CHUNKS_AHEAD: usize = 4;

/// Minimum length of a range to open: shorter ranges are not read past the page cache.
const OPENED_BYTES_MIN: u64 = 2 << 20;

impl Span {
    /// Bytes of a buffer that holds the chunk from page boundary to page boundary, and the completion of a
    /// record without a terminator.
    pub fn buffer_bytes(&self) -> usize {
        (self.len as usize + COMPLETION_BYTES).next_multiple_of(PAGE_BYTES) + 2 * PAGE_BYTES
    }

    /// The page boundary at its end or after it: a read up to there need not be cut short.
    fn end_of_pages(&self) -> u64 {
        (self.offset + self.len).next_multiple_of(PAGE_BYTES as u64)
    }

    /// The range of its file to open. To open a file costs a look at all pages of the range in the page cache, so a
    /// range up to the end of the file would make the cost of a run quadratic.
    fn opened(&self) -> Range<u64> {
        self.offset..self.end_of_pages().max(self.offset + OPENED_BYTES_MIN)
    }
}

impl InputChunk {
    /// All records of a chunk with these byte ranges; none without any.
    pub fn of(spans: &[Span]) -> Option<InputChunk> {
        let (&span, others) = spans.split_first()?;
        Some(InputChunk { span, others: others.to_vec(), lo: None, hi: None })
    }

    /// The records of a chunk of one input with keys from `lo` to below `hi`.
    pub fn between(span: Span, lo: Option<Vec<u8>>, hi: Option<Vec<u8>>) -> InputChunk {
        InputChunk { span, others: Vec::new(), lo, hi }
    }

    /// Bytes of a buffer that holds the chunk. The other ranges follow the first without a gap.
    pub fn buffer_bytes(&self) -> usize {
        let others: usize = self.others.iter().map(|span| span.len as usize + COMPLETION_BYTES).sum();
        self.span.buffer_bytes() + others.next_multiple_of(PAGE_BYTES)
    }
}

/// Shared memory for sorting chunks.
pub struct Bench<R: Records> {
    scratch: Mutex<R::Scratch>,
    copies: Option<ChunkPool>,
    /// Bytes of the largest chunk that it has memory for.
    chunk_bytes: usize,
}

impl<R: Records> Bench<R> {
    /// Its size in bytes, for chunks of `chunk_bytes` read into blocks of `block_bytes`.
    pub fn bytes(records: &R, chunk_bytes: usize, block_bytes: usize) -> usize {
        records.scratch_bytes(chunk_bytes) + if records.gathers() { block_bytes } else { 0 }
    }

    /// For chunks of `chunk_bytes`, with memory from `pool`.
    pub fn new(records: &R, pool: &Pool, chunk_bytes: usize, block_bytes: usize) -> Self {
        let copies = records.gathers().then(|| ChunkPool::new(pool, block_bytes, 1, block_bytes));
        Bench { scratch: Mutex::new(records.scratch(chunk_bytes)), copies, chunk_bytes }
    }

    /// Sorts the records in `bytes` of `buf`; none if they do not make one sorted chunk.
    fn sort(&self, records: &R, mut buf: Buf, bytes: Range<usize>) -> Result<Option<Segment>, PoolError> {
        debug_assert!(bytes.len() <= self.chunk_bytes, "a chunk larger than the memory for sorting it");
        records.normalise(&mut buf[bytes.clone()]);
        if records.disorder(None, &buf[bytes.clone()], false).is_none() {
            return Ok(Some(records.whole(Arc::new(records.index(Lease::plain(buf), bytes)))));
        }
        let (lease, out) = match &self.copies {
            Some(copies) => {
                let mut lease = copies.take_for(&|| {})?;
                lease.bytes_mut()[bytes.clone()].copy_from_slice(&buf[bytes.clone()]);
                (lease, Some(Lease::plain(buf)))
            }
            None => (Lease::plain(buf), None),
        };
        let mut scratch = self.scratch.lock().unpoisoned();
        let chunk = RawChunk { lease, bytes, spilled: true, grouping: None };
        let mut parts = records.sort(chunk, out, &mut scratch, &mut RecordSum::new());
        let part = parts.pop().filter(|_| parts.is_empty());
        Ok(part.map(|part| records.whole(part)))
    }
}

/// A run that refers to inputs, read chunk by chunk.
pub struct ChunkInput<R: Records> {
    records: Arc<R>,
    disk: Disk,
    inputs: Inputs,
    chunks: Vec<InputChunk>,
    /// The next chunk to request.
    next: usize,
    /// The next chunk that `complete` returns.
    block: usize,
    /// Bytes of the first chunk that are already consumed.
    skip: usize,
    begun: VecDeque<Begun>,
    /// Whether groups of chunks are read in the order of the file, which is not that of the run.
    in_groups: bool,
    /// What is read of a group, in the order of the run.
    group: VecDeque<Read>,
    /// Buffers not used yet.
    waiting: VecDeque<Buf>,
    bench: Arc<Bench<R>>,
}

struct Begun {
    stream: Box<dyn ReadStream>,
    /// The part of the buffer that is not read into.
    rest: Buf,
}

/// A chunk that is read, and the part of its buffer that is not.
struct Read {
    filled: Filled,
    rest: Buf,
}

impl<R: Records> ChunkInput<R> {
    /// Reads `run` from its start on.
    pub fn new(records: &Arc<R>, disk: &Disk, inputs: &Inputs, run: &Run, bench: &Arc<Bench<R>>) -> Self {
        let chunks = run.input.as_ref().map_or_else(Vec::new, |input| input.chunks.clone());
        ChunkInput {
            records: Arc::clone(records),
            disk: disk.clone(),
            inputs: inputs.clone(),
            chunks,
            next: run.start.block,
            block: run.start.block,
            skip: run.start.offset as usize,
            begun: VecDeque::new(),
            in_groups: false,
            group: VecDeque::new(),
            waiting: VecDeque::new(),
            bench: Arc::clone(bench),
        }
    }

    /// Sets whether long runs are better: then a run that descends through its input is read in groups of chunks.
    #[must_use]
    pub fn in_long_runs(mut self, long_runs: bool, run: &Run) -> Self {
        self.in_groups = long_runs && run.input.as_ref().is_some_and(|input| input.backward);
        self
    }

    /// The file of a span, and the span in it.
    fn in_file(&self, span: &Span) -> (PathBuf, Span) {
        let Some(file) = self.inputs.get(span.input) else { return (PathBuf::new(), *span) };
        let path = file.path().map(Path::to_path_buf).unwrap_or_default();
        (path, Span { offset: file.offset_in_file(span.offset), ..*span })
    }

    fn changed(&self, span: &Span) -> IoError {
        let (path, Span { offset, .. }) = self.in_file(span);
        IoError::Misuse { path, offset, what: "the input has changed while it was sorted: sort it again" }
    }

    fn no_memory(&self, span: &Span, source: PoolError) -> IoError {
        let (path, Span { offset, .. }) = self.in_file(span);
        IoError::Memory { path, offset, source }
    }

    /// Requests up to [`CHUNKS_AHEAD`] chunks, while there are buffers.
    fn ask(&mut self) -> Result<(), IoError> {
        while !self.in_groups && self.begun.len() < CHUNKS_AHEAD && self.next < self.chunks.len() {
            let Some(buf) = self.waiting.pop_front() else { return Ok(()) };
            self.request(self.next, buf)?;
            self.next += 1;
        }
        Ok(())
    }

    /// Requests chunk number `at` of the run into `buf`.
    fn request(&mut self, at: usize, mut buf: Buf) -> Result<(), IoError> {
        let (path, span) = self.in_file(&self.chunks[at].span);
        let page = PAGE_BYTES as u64;
        let area = (span.end_of_pages() - span.offset / page * page) as usize;
        if area + PAGE_BYTES > buf.len() {
            return Err(self.changed(&self.chunks[at].span));
        }
        let rest = buf.split_off(area);
        let mut stream = self.disk.open_read(&path, span.opened(), "input")?;
        stream.begin(buf)?;
        self.begun.push_back(Begun { stream, rest });
        Ok(())
    }

    /// Reads a range to position `at` of `buf`, and waits for it: only resumed jobs read chunks of several inputs.
    /// Returns where it ends.
    fn append(&self, span: &Span, buf: &mut Buf, at: usize) -> Result<usize, IoError> {
        let len = span.len as usize;
        let end = at + len;
        if end + COMPLETION_BYTES > buf.len() {
            return Err(self.changed(span));
        }
        let (path, in_file) = self.in_file(span);
        let mut area = buf.split_off(at);
        // Whole pages would be read from a page boundary on.
        let rest = area.split_off(len + usize::from(len.is_multiple_of(PAGE_BYTES)));
        let mut stream = self.disk.open_read(&path, in_file.opened(), "input")?;
        stream.begin(area)?;
        let Filled { buf: mut area, start, end: read } = stream.complete()?;
        if start > 0 || read < len {
            return Err(self.changed(span));
        }
        rejoin(&mut area, rest);
        rejoin(buf, area);
        Ok(end)
    }

    /// Completes the last record of a range, `bytes` of `buf`; returns where it ends.
    fn completed(&self, span: &Span, buf: &mut Buf, bytes: Range<usize>) -> usize {
        let Some(file) = self.inputs.get(span.input).filter(|_| span.unfinished) else { return bytes.end };
        let last = buf[bytes.clone()].last().copied();
        let completion = file.completion(self.records.completion(), last).unwrap_or_default();
        let end = bytes.end + completion.len();
        buf[bytes.end..end].copy_from_slice(&completion);
        end
    }

    /// The oldest request, once it is read.
    fn read(&mut self) -> Result<Option<Read>, IoError> {
        let Some(Begun { mut stream, rest }) = self.begun.pop_front() else { return Ok(None) };
        Ok(Some(Read { filled: stream.complete()?, rest }))
    }

    /// Reads as many chunks as there are buffers, from the last of them in the run to the first.
    fn read_group(&mut self) -> Result<(), IoError> {
        let end = self.chunks.len().min(self.next + self.waiting.len());
        let mut left = end;
        loop {
            while self.begun.len() < CHUNKS_AHEAD && left > self.next {
                let Some(buf) = self.waiting.pop_front() else { break };
                left -= 1;
                self.request(left, buf)?;
            }
            let Some(read) = self.read()? else { break };
            self.group.push_front(read);
        }
        self.next = end;
        Ok(())
    }

    /// The next chunk of the run, once it is read; none if no more are requested.
    fn next_read(&mut self) -> Result<Option<Read>, IoError> {
        if !self.in_groups {
            return self.read();
        }
        if self.group.is_empty() {
            self.read_group()?;
        }
        Ok(self.group.pop_front())
    }

    /// The records of the chunk that belong to the run.
    fn trimmed(&mut self, mut segment: Segment) -> Segment {
        let chunk = &self.chunks[self.block];
        let place = |key: &Vec<u8>| self.records.position_of_key(&segment, key, Side::Lower);
        let lo = chunk.lo.as_ref().map_or(segment.lo, place);
        let hi = chunk.hi.as_ref().map_or(segment.hi, place);
        let consumed = self.records.position_at(std::mem::take(&mut self.skip));
        segment.lo = lo.max(consumed);
        segment.hi = hi;
        segment
    }
}

/// Rejoins a buffer with the part that was split off it.
fn rejoin(buf: &mut Buf, rest: Buf) {
    assert!(buf.unsplit(rest).is_ok(), "the two parts of one buffer rejoin");
}

impl<R: Records> BlockInput for ChunkInput<R> {
    type Block = RunBlock;

    fn remaining(&self) -> u32 {
        self.chunks.len().saturating_sub(self.next + self.waiting.len()) as u32
    }

    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        self.waiting.push_back(buf);
        self.ask()
    }

    fn complete(&mut self) -> Result<Completed<RunBlock>, IoError> {
        let Some(Read { filled, rest }) = self.next_read()? else { return Ok(Completed::Ended) };
        let Filled { mut buf, start, end } = filled;
        self.ask()?;
        let InputChunk { span, others, .. } = self.chunks[self.block].clone();
        let mut bytes = start..start + span.len as usize;
        if bytes.end > end {
            return Err(self.changed(&span));
        }
        rejoin(&mut buf, rest);
        bytes.end = self.completed(&span, &mut buf, bytes.clone());
        for other in &others {
            let end = self.append(other, &mut buf, bytes.end)?;
            bytes.end = self.completed(other, &mut buf, bytes.end..end);
        }
        let sorted = self.bench.sort(&*self.records, buf, bytes);
        let segment = sorted.map_err(|source| self.no_memory(&span, source))?;
        let segment = self.trimmed(segment.ok_or_else(|| self.changed(&span))?);
        let block = self.block;
        self.block += 1;
        if segment.is_empty() {
            return Ok(Completed::Nothing);
        }
        Ok(Completed::Block(RunBlock::new(segment, block)))
    }

    fn ready(&mut self) -> bool {
        if self.in_groups {
            // A group is read only when the merge waits for it: until then more of it may be requested.
            return !self.group.is_empty() || self.waiting.is_empty();
        }
        self.begun.front_mut().is_none_or(|begun| begun.stream.ready())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_opens_no_more_of_its_file_than_it_needs() {
        for (offset, len) in [(0, 10), (5000, 256 << 10), (7 << 30, 3 << 20)] {
            let span = Span { input: 0, offset, len, unfinished: false };
            let opened = span.opened();
            assert!(opened.start == offset && opened.end >= offset + len, "{opened:?}");
            assert!(opened.end - offset <= len.max(OPENED_BYTES_MIN) + PAGE_BYTES as u64, "{opened:?}");
        }
    }
}
