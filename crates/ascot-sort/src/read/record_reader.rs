//! The record reader: bytes of the inputs become chunks of whole records.
//!
//! ```text
//!   buffer:  [ free | carry | read from the device ........ ]
//!                   ^ the chunk starts here       ^ the cut record at the end is the carry of the next chunk
//!                           ^ page boundary
//! ```
//!
//! Large inputs are read several chunks ahead, so that the device never waits for a chunk to be cut; small inputs
//! share chunks. A record that fits neither a buffer nor the space for the carry grows in memory of its own and is a
//! chunk of its own. Invariant: chunks never split records.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_io::{Buf, Disk, Filled, PAGE_BYTES, PoolError, ReadStream};
use ascot_record::framing::Partial;

use crate::api::{Cancel, SortError};
use crate::read::damage::RecordStart;
use crate::read::inputs::{COMPLETION_BYTES, InputFile, InputPosition, Inputs, Span};
use crate::records::{InputStart, RawChunk, RecordEnds};
use crate::resources::{CHUNKS_READ, ChunkPool, Lease, Long, Role, Seat, Starving, Turns};

/// Bytes before a page-aligned read, for the carry: a longer one makes its record a long record.
const CARRY_BYTES_MAX: usize = 64 << 10;
/// The carry's share of a small buffer. It is small because it holds no records once they are sorted.
const CARRY_SHARE: usize = 128;
/// Minimum bytes for the carry: no shorter record is ever a long record.
pub const CARRY_BYTES_MIN: usize = 8 << 10;

/// Bytes for the carry in a buffer of `chunk_bytes`, for records of `record_bytes` bytes if their length is fixed.
pub fn carry_bytes(chunk_bytes: usize, record_bytes: Option<usize>) -> usize {
    let max = (chunk_bytes / CARRY_SHARE).clamp(CARRY_BYTES_MIN, CARRY_BYTES_MAX).min(chunk_bytes / 4);
    let max = max / PAGE_BYTES * PAGE_BYTES;
    record_bytes.map_or(max, |len| len.next_multiple_of(PAGE_BYTES).min(max))
}

/// Memory that is enough to sort a record, in lengths of it: a merge holds two runs with such a record, and a
/// partitioned write reserves half of the memory.
const MEMORY_PER_LENGTH: u64 = 4;

/// Time between two polls of a silent pipe.
const PIPE_POLL: Duration = Duration::from_micros(500);

/// Reads inputs as chunks of whole records.
pub struct RecordReader<R: ?Sized> {
    records: Arc<R>,
    disk: Disk,
    inputs: Inputs,
    chunks: ChunkPool,
    open: Option<Open>,
    /// The input being read, and how much of it has been read.
    at: InputPosition,
    /// No chunk has records of two inputs.
    separate: bool,
    /// The inputs are spills: their records are in the form of spills already.
    spilled: bool,
    cancel: Cancel,
    /// Records of the current input in chunks so far.
    record_number: u64,
    /// The cut record at the end of the last chunk.
    carry: Vec<u8>,
    /// A record longer than the space for the carry, as read so far.
    long: Option<LongStart>,
    /// Bytes read after the end of a long record.
    after_long: Option<Fill>,
    /// The turns on the device, if it serves reads and writes in turns.
    turns: Option<Arc<Turns>>,
    seat: Arc<Seat>,
    /// Time spent waiting for a free buffer.
    pub waited_memory: Duration,
    /// Time spent waiting for the device.
    pub waited_device: Duration,
}

/// An input being read.
struct Open {
    stream: Box<dyn ReadStream>,
    /// Bytes still to be requested; none: it is read chunk by chunk, to its end.
    to_ask: Option<u64>,
    ahead: VecDeque<Ahead>,
    /// Whether it is a pipe, which may be silent for long.
    pipe: bool,
}

/// A chunk being read: the parts of its buffer around the part that the stream fills.
struct Ahead {
    lease: Lease,
    front: Buf,
    rest: Buf,
}

/// A long record, as read so far.
struct LongStart {
    long: Long,
    partial: Partial,
    start: RecordStart,
}

/// A chunk and its position in the inputs.
pub struct PlacedChunk {
    /// Its records.
    pub chunk: RawChunk,
    /// Position after its last record.
    pub end: InputPosition,
    /// Number of records.
    pub records: usize,
    /// Where the records of each input begin in it.
    pub starts: Vec<InputStart>,
    /// Bytes that complete the last records of inputs; the inputs lack them.
    pub added: usize,
    /// Number of its last input.
    pub input: usize,
    /// The last chunk of this input.
    pub ends_input: bool,
    /// Its byte range in a file that can be read again.
    pub span: Option<Span>,
    /// It is one long record, so there is nothing to sort.
    pub long: bool,
}

impl<R: RecordEnds + ?Sized> RecordReader<R> {
    /// Reads `inputs` from `from` on.
    pub fn new(
        records: &Arc<R>,
        disk: &Disk,
        inputs: Inputs,
        chunks: &ChunkPool,
        from: InputPosition,
        cancel: &Cancel,
    ) -> Self {
        RecordReader {
            records: Arc::clone(records),
            disk: disk.clone(),
            inputs,
            chunks: chunks.clone(),
            open: None,
            at: from,
            separate: false,
            spilled: false,
            cancel: cancel.clone(),
            record_number: from.record,
            carry: Vec::new(),
            long: None,
            after_long: None,
            turns: None,
            seat: Arc::new(Seat::new(None, Role::Reader)),
            waited_memory: Duration::ZERO,
            waited_device: Duration::ZERO,
        }
    }

    /// The inputs are parts: no chunk has records of two of them, and the records are normalised already.
    pub fn over_parts(mut self) -> Self {
        self.separate = true;
        self.over_spills()
    }

    /// The inputs are spills, whose records are normalised already.
    pub fn over_spills(mut self) -> Self {
        self.spilled = true;
        self
    }

    /// Reads while it has the turn; the holder of [`RecordReader::seat`] gives the turn back.
    pub fn in_turn(mut self, turns: Option<Arc<Turns>>) -> Self {
        self.seat = Arc::new(Seat::new(turns.as_ref(), Role::Reader));
        self.turns = turns;
        self
    }

    /// The turns it takes, if any.
    pub fn turns(&self) -> Option<&Arc<Turns>> {
        self.turns.as_ref()
    }

    /// Its seat at the device; its turn must be given back before a thread waits for memory.
    pub fn seat(&self) -> Arc<Seat> {
        Arc::clone(&self.seat)
    }

    /// The next chunk; none after the last.
    pub fn next(&mut self, starving: Starving<'_>) -> Result<Option<PlacedChunk>, SortError> {
        loop {
            let fill = match self.after_long.take() {
                Some(fill) => fill,
                None if !self.open_input()? => return Ok(None),
                None if self.open.as_ref().is_some_and(|open| open.to_ask.is_some()) => {
                    self.fill_ahead(starving)?
                }
                None => self.fill_small(starving)?,
            };
            let chunk = match self.long.take() {
                Some(long) => self.lengthen(long, fill, starving)?,
                None => self.cut_chunk(fill)?,
            };
            if chunk.is_some() {
                return Ok(chunk);
            }
        }
    }

    /// Opens the next input, unless one is open; false after the last.
    fn open_input(&mut self) -> Result<bool, SortError> {
        if self.open.is_some() {
            return Ok(true);
        }
        let Some(file) = self.inputs.get(self.at.input) else { return Ok(false) };
        self.at.offset = self.at.offset.max(file.start);
        let left = file.size.map(|size| size.saturating_sub(self.at.offset));
        // A read from the middle starts at the page before.
        let to_ask = left.filter(|&left| left >= self.chunks.chunk_bytes() as u64);
        let to_ask = to_ask.map(|left| left + self.at.offset % PAGE_BYTES as u64);
        let stream = file.open(&self.disk, self.at.offset)?;
        self.open = Some(Open { stream, to_ask, ahead: VecDeque::new(), pipe: file.size.is_none() });
        Ok(true)
    }

    fn lease(&mut self, starving: Starving<'_>) -> Result<Lease, SortError> {
        let since = Instant::now();
        let lease = self.chunks.take_for(starving);
        self.waited_memory += since.elapsed();
        Ok(lease?)
    }

    /// The start of a record whose first `held` bytes have been read.
    fn start_of(&self, held: usize) -> RecordStart {
        RecordStart {
            input: self.inputs.get(self.at.input).map_or_else(String::new, InputFile::name),
            record: self.record_number + 1,
            offset: self.at.offset.saturating_sub(held as u64),
        }
    }

    /// Keeps several chunks of a large input in flight.
    fn ask_ahead(&mut self, starving: Starving<'_>) -> Result<(), SortError> {
        while let Some(open) = &self.open {
            if open.ahead.len() >= CHUNKS_READ || open.to_ask == Some(0) {
                return Ok(());
            }
            let lease =
                if open.ahead.is_empty() { Some(self.lease(starving)?) } else { self.chunks.try_take() };
            let (Some(mut lease), Some(open)) = (lease, &mut self.open) else { return Ok(()) };
            let Some(mut front) = lease.lend() else { return Ok(()) };
            let carry = carry_bytes(front.len(), self.records.record_bytes());
            let mut area = front.split_off(carry);
            let left = open.to_ask.unwrap_or(0);
            // A page is kept for the bytes that complete a last record.
            let max_bytes = (area.len() - PAGE_BYTES) as u64;
            let asked = left.min(max_bytes);
            let rest = area.split_off((asked as usize).next_multiple_of(PAGE_BYTES));
            open.to_ask = Some(left - asked);
            self.seat.take();
            open.stream.begin(area)?;
            open.ahead.push_back(Ahead { lease, front, rest });
        }
        Ok(())
    }

    /// The next chunk of a large input.
    fn fill_ahead(&mut self, starving: Starving<'_>) -> Result<Fill, SortError> {
        self.ask_ahead(starving)?;
        let Some(open) = &mut self.open else { return Err(SortError::Internal("no input is open")) };
        let Some(Ahead { mut lease, mut front, rest }) = open.ahead.pop_front() else {
            return Err(SortError::Internal("an input ended unseen"));
        };
        let since = Instant::now();
        let Filled { buf, start, end } = open.stream.complete()?;
        self.waited_device += since.elapsed();
        let last = open.to_ask == Some(0) && open.ahead.is_empty();
        let carry = front.len();
        assert!(front.unsplit(buf).is_ok() && front.unsplit(rest).is_ok(), "parts of one buffer rejoin");
        lease.put(front);
        self.at.offset += (end - start) as u64;
        let mut fill = self.join_carry(lease, carry + start..carry + end, starving)?;
        fill.ends = last && !self.go_on_where_grown()?;
        let again = !self.spilled && self.inputs.get(self.at.input).is_some_and(|file| file.path().is_some());
        let offset = self.at.offset - fill.bytes.len() as u64;
        fill.from = again.then_some(InputPosition { input: self.at.input, offset, record: 0 });
        Ok(fill)
    }

    /// Continues a file that has grown since it was opened, chunk by chunk, to its current end: its last record
    /// may have been only half written before.
    fn go_on_where_grown(&mut self) -> Result<bool, SortError> {
        let Some(file) = self.inputs.get(self.at.input).filter(|file| file.size_now() > self.at.offset)
        else {
            return Ok(false);
        };
        let stream = file.open(&self.disk, self.at.offset)?;
        self.open = Some(Open { stream, to_ask: None, ahead: VecDeque::new(), pipe: false });
        Ok(true)
    }

    /// Puts the carry before the bytes read, or starts a long record with it.
    fn join_carry(
        &mut self,
        mut lease: Lease,
        read: Range<usize>,
        starving: Starving<'_>,
    ) -> Result<Fill, SortError> {
        let carry = std::mem::take(&mut self.carry);
        if carry.len() > read.start {
            self.start_long(&carry, read.len(), starving)?;
            return Ok(Fill::new(lease, read));
        }
        let start = read.start - carry.len();
        lease.bytes_mut()[start..read.start].copy_from_slice(&carry);
        Ok(Fill::new(lease, start..read.end))
    }

    /// Starts a long record with `bytes`, after which `read` more have been read.
    fn start_long(&mut self, bytes: &[u8], read: usize, starving: Starving<'_>) -> Result<(), SortError> {
        let start = self.start_of(bytes.len() + read);
        let long = LongStart { long: self.chunks.long()?, partial: Partial::default(), start };
        self.long = Some(self.append(long, bytes, starving)?.0);
        Ok(())
    }

    /// Appends to a long record the part of `bytes` that belongs to it; returns where it ends, if it ends there.
    fn append(
        &mut self,
        mut started: LongStart,
        bytes: &[u8],
        starving: Starving<'_>,
    ) -> Result<(LongStart, Option<usize>), SortError> {
        let end = self.records.go_on(bytes, &mut started.partial);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let ahead = self.open.as_ref().map_or(0, |open| open.ahead.len());
        let held = (ahead + 1) * self.chunks.chunk_bytes();
        let since = Instant::now();
        let grown = self.chunks.append(&mut started.long, part, held, starving);
        self.waited_memory += since.elapsed();
        match grown {
            Ok(()) => Ok((started, end)),
            Err(refused @ PoolError::Refused { .. }) => Err(refused.into()),
            Err(_) => {
                let file = self.inputs.get(self.at.input).filter(|_| end.is_none());
                let LongStart { partial, start, .. } = started;
                Err(start.too_long(&*self.records, file, partial, MEMORY_PER_LENGTH, &self.cancel))
            }
        }
    }

    /// Continues a long record; returns it as a chunk once it is whole.
    fn lengthen(
        &mut self,
        started: LongStart,
        mut fill: Fill,
        starving: Starving<'_>,
    ) -> Result<Option<PlacedChunk>, SortError> {
        let lease = std::mem::replace(&mut fill.lease, Lease::plain(Buf::heap(0)));
        let (mut started, mut end) = self.append(started, &lease.bytes()[fill.bytes.clone()], starving)?;
        fill.lease = lease;
        let mut added = 0;
        if end.is_none() && fill.ends {
            let completion = self.completion(started.partial.last());
            let Some(bytes) = completion.filter(|bytes| {
                let mut partial = started.partial;
                self.records.go_on(bytes, &mut partial).is_some()
            }) else {
                return Err(started.start.cut_short(&started.partial));
            };
            started = self.append(started, &bytes, starving)?.0;
            added = bytes.len();
            end = Some(fill.bytes.len());
        }
        let Some(end) = end else {
            self.long = Some(started);
            return Ok(None);
        };
        fill.skip(end);
        let input = self.at.input;
        let left = fill.bytes.len() as u64;
        let before = self.record_number;
        self.record_number += 1;
        if left > 0 {
            self.after_long = Some(fill);
        } else if fill.ends {
            self.next_input();
        }
        let LongStart { long, start, .. } = started;
        let bytes = 0..long.bytes();
        let span = self.span_of_long(input, start.offset, bytes.len(), added);
        let chunk = RawChunk { lease: long.into_lease(), bytes, spilled: self.spilled, grouping: None };
        if let Some(keyless) = self.records.keyless(chunk.record_bytes()) {
            return Err(start.keyless(keyless));
        }
        Ok(Some(PlacedChunk {
            chunk,
            end: InputPosition {
                input: self.at.input,
                offset: self.at.offset - left,
                record: self.record_number,
            },
            records: 1,
            added,
            starts: vec![InputStart { at: 0, input, before }],
            input,
            ends_input: self.at.input > input,
            span,
            long: true,
        }))
    }

    /// The byte range of a long record, if it can be read again into a buffer of the common size.
    fn span_of_long(&self, input: usize, offset: u64, bytes: usize, added: usize) -> Option<Span> {
        let again = !self.spilled && self.inputs.get(input).is_some_and(|file| file.path().is_some());
        let fits = bytes + carry_bytes(self.chunks.chunk_bytes(), None) <= self.chunks.chunk_bytes();
        let len = (bytes - added) as u64;
        (again && fits).then_some(Span { input, offset, len, unfinished: added > 0 })
    }

    /// The bytes that complete the last record of the current input, whose last byte is `last`.
    fn completion(&self, last: Option<u8>) -> Option<Vec<u8>> {
        self.inputs.get(self.at.input)?.completion(self.records.completion(), last)
    }

    /// Cuts the bytes read into whole records, which are a chunk, and the carry.
    fn cut_chunk(&mut self, mut fill: Fill) -> Result<Option<PlacedChunk>, SortError> {
        self.cut(&mut fill, 0)?;
        if fill.ends {
            self.end_input(&mut fill)?;
        }
        if fill.records > 0 {
            return self.deliver(fill).map(Some);
        }
        self.carry = fill.lease.bytes()[fill.bytes].to_vec();
        Ok(None)
    }

    /// Fills a chunk from small inputs and pipes. The bytes that continue a long record are not cut yet.
    fn fill_small(&mut self, starving: Starving<'_>) -> Result<Fill, SortError> {
        let mut fill = self.start_small(starving)?;
        loop {
            let space = (fill.lease.bytes().len() - COMPLETION_BYTES).saturating_sub(fill.bytes.end)
                / PAGE_BYTES
                * PAGE_BYTES;
            if space == 0 {
                return Ok(fill);
            }
            fill.ends = self.read(&mut fill, space)?;
            if self.long.is_some() {
                if fill.ends {
                    return Ok(fill);
                }
                continue;
            }
            self.cut(&mut fill, 0)?;
            if !fill.ends {
                continue;
            }
            self.end_input(&mut fill)?;
            let more = !self.separate && self.open_input()?;
            let small = self.open.as_ref().is_some_and(|open| open.to_ask.is_none());
            if !more || !small {
                return Ok(fill);
            }
        }
    }

    /// A buffer that begins with the carry, unless the carry starts a long record.
    fn start_small(&mut self, starving: Starving<'_>) -> Result<Fill, SortError> {
        let carry = std::mem::take(&mut self.carry);
        if carry.len() + 2 * PAGE_BYTES > self.chunks.chunk_bytes() {
            self.start_long(&carry, 0, starving)?;
            return Ok(Fill::new(self.lease(starving)?, 0..0));
        }
        let mut lease = self.lease(starving)?;
        let start = carry.len().next_multiple_of(PAGE_BYTES) - carry.len();
        lease.bytes_mut()[start..start + carry.len()].copy_from_slice(&carry);
        Ok(Fill::new(lease, start..start + carry.len()))
    }

    /// Reads up to `space` bytes after the bytes there are; true if the input has ended.
    fn read(&mut self, fill: &mut Fill, space: usize) -> Result<bool, SortError> {
        let Some(open) = &mut self.open else { return Ok(true) };
        let since = Instant::now();
        let Some(mut front) = fill.lease.lend() else {
            return Err(SortError::Internal("a chunk without memory"));
        };
        let mut area = front.split_off(fill.bytes.end);
        let rest = area.split_off(space);
        if !open.pipe {
            self.seat.take();
        }
        open.stream.begin(area)?;
        while open.pipe && !open.stream.ready() {
            self.cancel.check()?;
            std::thread::sleep(PIPE_POLL);
        }
        let Filled { buf, start, end } = open.stream.complete()?;
        self.waited_device += since.elapsed();
        assert!(front.unsplit(buf).is_ok() && front.unsplit(rest).is_ok(), "parts of one buffer rejoin");
        fill.lease.put(front);
        if start > 0 {
            // Only at an unaligned start: the carry moves next to the bytes read.
            let held = fill.bytes.len();
            fill.lease.bytes_mut().copy_within(fill.bytes.clone(), fill.bytes.start + start);
            fill.bytes = fill.bytes.start + start..fill.bytes.start + start + held;
            fill.cut += start;
        }
        fill.bytes.end += end - start;
        self.at.offset += (end - start) as u64;
        Ok(end < space)
    }

    /// Cuts off the whole records; the input lacks the last `added` bytes.
    fn cut(&mut self, fill: &mut Fill, added: usize) -> Result<(), SortError> {
        let left = &fill.lease.bytes()[fill.cut..fill.bytes.end];
        let cut = self.records.cut(left, usize::MAX);
        // Records of spills have been checked.
        if let Some(keyless) = self.records.keyless(&left[..cut.bytes]).filter(|_| !self.spilled) {
            return Err(self.start_of(left.len() - added).keyless(keyless));
        }
        let input = self.at.input;
        if cut.records > 0 && fill.starts.last().is_none_or(|start| start.input != input) {
            fill.starts.push(InputStart { at: fill.records, input, before: self.record_number });
        }
        fill.cut += cut.bytes;
        fill.records += cut.records;
        self.record_number += cut.records as u64;
        Ok(())
    }

    /// Completes the last record of an input, and moves to the next input.
    fn end_input(&mut self, fill: &mut Fill) -> Result<(), SortError> {
        fill.ends = false;
        let left = fill.cut..fill.bytes.end;
        if !left.is_empty() {
            let bytes = self.completion(fill.lease.bytes()[left.clone()].last().copied()).unwrap_or_default();
            let completed = left.start..left.end + bytes.len();
            fill.lease.bytes_mut()[left.end..completed.end].copy_from_slice(&bytes);
            let cut = self.records.cut(&fill.lease.bytes()[completed.clone()], usize::MAX);
            if bytes.is_empty() || cut.bytes < completed.len() {
                let start = self.start_of(left.len());
                return Err(start.cut_short_at(&*self.records, &fill.lease.bytes()[left]));
            }
            fill.bytes.end = completed.end;
            fill.added += bytes.len();
            self.cut(fill, bytes.len())?;
        }
        self.next_input();
        Ok(())
    }

    fn next_input(&mut self) {
        self.open = None;
        self.at = InputPosition { input: self.at.input + 1, ..InputPosition::default() };
        self.record_number = 0;
    }

    /// Takes the whole records off as a chunk, and keeps the rest as the carry.
    fn deliver(&mut self, fill: Fill) -> Result<PlacedChunk, SortError> {
        let rest = fill.cut..fill.bytes.end;
        let span = fill.span();
        let bytes = fill.bytes.start..fill.cut;
        let ends_input = rest.is_empty() && self.open.is_none();
        let input = self.at.input - usize::from(ends_input && self.at.input > 0);
        let offset = self.at.offset.saturating_sub(rest.len() as u64);
        let end = InputPosition { input: self.at.input, offset, record: self.record_number };
        self.carry = fill.lease.bytes()[rest].to_vec();
        let chunk = RawChunk { lease: fill.lease, bytes, spilled: self.spilled, grouping: None };
        let Fill { records, starts, added, .. } = fill;
        Ok(PlacedChunk { chunk, end, records, starts, added, input, ends_input, span, long: false })
    }
}

/// A chunk being filled.
struct Fill {
    lease: Lease,
    /// Bytes in it.
    bytes: Range<usize>,
    /// Whole records end here.
    cut: usize,
    records: usize,
    /// Where the records of each input begin.
    starts: Vec<InputStart>,
    /// The position of its first byte, if its bytes come from one file that can be read again.
    from: Option<InputPosition>,
    /// Bytes that complete the last records of inputs.
    added: usize,
    /// The input ends here, and its last record is not completed yet.
    ends: bool,
}

impl Fill {
    /// Uncut `bytes` of a buffer.
    fn new(lease: Lease, bytes: Range<usize>) -> Self {
        let cut = bytes.start;
        Fill { lease, cut, bytes, records: 0, starts: Vec::new(), from: None, added: 0, ends: false }
    }

    /// Leaves out the first `count` bytes; nothing is cut yet.
    fn skip(&mut self, count: usize) {
        self.bytes.start += count;
        self.cut = self.bytes.start;
        if let Some(from) = &mut self.from {
            from.offset += count as u64;
        }
    }

    /// The byte range of its whole records.
    fn span(&self) -> Option<Span> {
        let InputPosition { input, offset, .. } = self.from?;
        let len = (self.cut - self.bytes.start - self.added) as u64;
        Some(Span { input, offset, len, unfinished: self.added > 0 })
    }
}
