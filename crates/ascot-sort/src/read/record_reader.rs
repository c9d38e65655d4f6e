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
use std::time::Duration;

use ascot_io::clocks::{State, in_state};
use ascot_io::{Buf, Disk, Filled, PAGE_BYTES, ReadStream};

use crate::api::{Cancel, SortError};
use crate::read::inputs::{COMPLETION_BYTES, InputPosition, Inputs, Span};
use crate::read::record_cutter::{LongRecord, Patience, RecordCutter};
use crate::records::{InputStart, RawChunk, RecordEnds};
use crate::resources::{CHUNKS_READ, ChunkPool, Lease, Role, Seat, Starving, Turns};

/// Bytes before a page-aligned read, for the carry: a longer one makes its record a long record.
pub const CARRY_BYTES_MAX: usize = 64 << 10;
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

/// Time between two polls of a silent pipe.
const PIPE_POLL: Duration = Duration::from_micros(500);

/// Reads inputs as chunks of whole records.
pub struct RecordReader<R: ?Sized> {
    cutter: RecordCutter<R>,
    disk: Disk,
    chunks: ChunkPool,
    open: Option<Open>,
    /// No chunk has records of two inputs.
    separate: bool,
    cancel: Cancel,
    /// Bytes read after the end of a long record.
    after_long: Option<Fill>,
    /// The turns on the device, if it serves reads and writes in turns.
    turns: Option<Arc<Turns>>,
    seat: Arc<Seat>,
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
            cutter: RecordCutter::new(records, inputs, from, cancel),
            disk: disk.clone(),
            chunks: chunks.clone(),
            open: None,
            separate: false,
            cancel: cancel.clone(),
            after_long: None,
            turns: None,
            seat: Arc::new(Seat::new(None, Role::Reader)),
        }
    }

    /// The inputs are parts: no chunk has records of two of them, and the records are normalised already.
    pub fn over_parts(mut self) -> Self {
        self.separate = true;
        self.over_spills()
    }

    /// The inputs are spills, whose records are normalised already.
    pub fn over_spills(mut self) -> Self {
        self.cutter.spilled = true;
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
            let chunk = match self.cutter.long {
                Some(_) => self.lengthen(fill, starving)?,
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
        let Some(stream) = self.cutter.open(&self.disk)? else { return Ok(false) };
        let offset = self.cutter.at.offset;
        let size = self.cutter.file().and_then(|file| file.size);
        let left = size.map(|size| size.saturating_sub(offset));
        // A read from the middle starts at the page before.
        let to_ask = left.filter(|&left| left >= self.chunks.chunk_bytes() as u64);
        let to_ask = to_ask.map(|left| left + offset % PAGE_BYTES as u64);
        self.open = Some(Open { stream, to_ask, ahead: VecDeque::new(), pipe: size.is_none() });
        Ok(true)
    }

    fn lease(&mut self, starving: Starving<'_>) -> Result<Lease, SortError> {
        Ok(self.chunks.take_for(starving)?)
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
            let carry = carry_bytes(front.len(), self.cutter.records.record_bytes());
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
        if self.cutter.spilled {
            // A spill requests its next blocks while it completes these.
            self.seat.take();
        }
        let Filled { buf, start, end } = open.stream.complete()?;
        let last = open.to_ask == Some(0) && open.ahead.is_empty();
        let carry = front.len();
        assert!(front.unsplit(buf).is_ok() && front.unsplit(rest).is_ok(), "parts of one buffer rejoin");
        lease.put(front);
        self.cutter.at.offset += (end - start) as u64;
        let mut fill = self.join_carry(lease, carry + start..carry + end, starving)?;
        fill.ends = last && !self.go_on_where_grown()?;
        let again = !self.cutter.spilled && self.cutter.file().is_some_and(|file| file.path().is_some());
        let InputPosition { input, offset, .. } = self.cutter.at;
        let offset = offset - fill.bytes.len() as u64;
        fill.from = again.then_some(InputPosition { input, offset, record: 0 });
        Ok(fill)
    }

    /// Continues a file that has grown since it was opened, chunk by chunk, to its current end: its last record
    /// may have been only half written before.
    fn go_on_where_grown(&mut self) -> Result<bool, SortError> {
        let offset = self.cutter.at.offset;
        if self.cutter.file().is_none_or(|file| file.size_now() <= offset) {
            return Ok(false);
        }
        let Some(stream) = self.cutter.open(&self.disk)? else { return Ok(false) };
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
        if let Some(start) = self.cutter.put_carry(lease.bytes_mut(), read.start) {
            return Ok(Fill::new(lease, start..read.end));
        }
        self.start_long(read.len(), starving)?;
        Ok(Fill::new(lease, read))
    }

    /// Starts a long record with the carry, after which `read` more bytes have been read.
    fn start_long(&mut self, read: usize, starving: Starving<'_>) -> Result<(), SortError> {
        let carry = std::mem::take(&mut self.cutter.carry);
        let patience = self.patience(starving);
        self.cutter.start_long(self.chunks.long()?, &carry, read, patience)
    }

    fn patience<'a>(&self, starving: Starving<'a>) -> Patience<'a> {
        let ahead = self.open.as_ref().map_or(0, |open| open.ahead.len());
        Patience { held: (ahead + 1) * self.chunks.chunk_bytes(), starving }
    }

    /// Continues the long record; returns it as a chunk once it is whole.
    fn lengthen(&mut self, mut fill: Fill, starving: Starving<'_>) -> Result<Option<PlacedChunk>, SortError> {
        let patience = self.patience(starving);
        let mut end = self.cutter.lengthen(&fill.lease.bytes()[fill.bytes.clone()], patience)?;
        let mut added = 0;
        if end.is_none() && fill.ends {
            added = self.cutter.complete_long(patience)?;
            end = Some(fill.bytes.len());
        }
        let Some(end) = end else { return Ok(None) };
        let Some(long) = self.cutter.long.take() else { return Ok(None) };
        fill.skip(end);
        let before = self.cutter.at;
        let left = fill.bytes.len() as u64;
        self.cutter.at.record += 1;
        if left > 0 {
            self.after_long = Some(fill);
        } else if fill.ends {
            self.next_input();
        }
        let LongRecord { memory, start, .. } = long;
        let bytes = 0..memory.bytes();
        let span = self.span_of_long(before.input, start.offset, bytes.len(), added);
        let spilled = self.cutter.spilled;
        let chunk = RawChunk { lease: memory.into_lease(), bytes, spilled, grouping: None };
        self.cutter.check_keys(chunk.record_bytes(), || start)?;
        Ok(Some(PlacedChunk {
            chunk,
            end: InputPosition { offset: self.cutter.at.offset - left, ..self.cutter.at },
            records: 1,
            added,
            starts: vec![InputStart { at: 0, input: before.input, before: before.record }],
            input: before.input,
            ends_input: self.cutter.at.input > before.input,
            span,
            long: true,
        }))
    }

    /// The byte range of a long record, if it can be read again into a buffer of the common size.
    fn span_of_long(&self, input: usize, offset: u64, bytes: usize, added: usize) -> Option<Span> {
        let again =
            !self.cutter.spilled && self.cutter.inputs.get(input).is_some_and(|file| file.path().is_some());
        let fits = bytes + carry_bytes(self.chunks.chunk_bytes(), None) <= self.chunks.chunk_bytes();
        let len = (bytes - added) as u64;
        (again && fits).then_some(Span { input, offset, len, unfinished: added > 0 })
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
        self.cutter.carry = fill.lease.bytes()[fill.bytes].to_vec();
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
            if self.cutter.long.is_some() {
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
        let carry = self.cutter.carry.len();
        if carry + 2 * PAGE_BYTES > self.chunks.chunk_bytes() {
            self.start_long(0, starving)?;
            return Ok(Fill::new(self.lease(starving)?, 0..0));
        }
        let lease = self.lease(starving)?;
        let end = carry.next_multiple_of(PAGE_BYTES);
        self.join_carry(lease, end..end, starving)
    }

    /// Reads up to `space` bytes after the bytes there are; true if the input has ended.
    fn read(&mut self, fill: &mut Fill, space: usize) -> Result<bool, SortError> {
        let Some(open) = &mut self.open else { return Ok(true) };
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
            let _waiting = in_state(State::Input);
            std::thread::sleep(PIPE_POLL);
        }
        let Filled { buf, start, end } = open.stream.complete()?;
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
        self.cutter.at.offset += (end - start) as u64;
        Ok(end < space)
    }

    /// Cuts off the whole records; the input lacks the last `added` bytes.
    fn cut(&mut self, fill: &mut Fill, added: usize) -> Result<(), SortError> {
        let left = &fill.lease.bytes()[fill.cut..fill.bytes.end];
        let InputPosition { input, record, .. } = self.cutter.at;
        let cut = self.cutter.cut(left, left.len() - added)?;
        if cut.records > 0 && fill.starts.last().is_none_or(|start| start.input != input) {
            fill.starts.push(InputStart { at: fill.records, input, before: record });
        }
        fill.cut += cut.bytes;
        fill.records += cut.records;
        Ok(())
    }

    /// Completes the last record of an input, and moves to the next input.
    fn end_input(&mut self, fill: &mut Fill) -> Result<(), SortError> {
        fill.ends = false;
        if fill.cut < fill.bytes.end {
            let added = self.cutter.complete(fill.lease.bytes_mut(), fill.cut, fill.bytes.end)?;
            fill.bytes.end += added;
            fill.added += added;
            self.cut(fill, added)?;
        }
        self.next_input();
        Ok(())
    }

    fn next_input(&mut self) {
        self.open = None;
        self.cutter.next_input();
    }

    /// Takes the whole records off as a chunk, and keeps the rest as the carry.
    fn deliver(&mut self, fill: Fill) -> Result<PlacedChunk, SortError> {
        let rest = fill.cut..fill.bytes.end;
        let span = fill.span();
        let bytes = fill.bytes.start..fill.cut;
        let ends_input = rest.is_empty() && self.open.is_none();
        let at = self.cutter.at;
        let input = at.input - usize::from(ends_input && at.input > 0);
        let end = InputPosition { offset: at.offset.saturating_sub(rest.len() as u64), ..at };
        self.cutter.carry = fill.lease.bytes()[rest].to_vec();
        let chunk = RawChunk { lease: fill.lease, bytes, spilled: self.cutter.spilled, grouping: None };
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
