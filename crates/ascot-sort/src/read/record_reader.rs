//! The record reader: bytes of the inputs become chunks of whole records.
//!
//! ```text
//!   buffer:  [ free | carry | read from the device ........ ]
//!                   ^ the chunk starts here       ^ the cut record at the end is the carry of the next chunk
//!                           ^ page boundary
//! ```
//!
//! [`RecordCutter`] is the one place where bytes of an input become whole records. It reads nothing itself:
//! [`RecordReader`], and the inputs of merges and of small jobs, give it the bytes that they read, in order. What it
//! leaves at the end of the bytes is the carry, which goes before the next bytes read or, if it is too long for that,
//! starts a long record (`long_record.rs`): that grows in memory of its own and is a chunk of its own.
//!
//! The reader requests several chunks of a large input ahead, so that neither a device nor the other end of a pipe
//! waits for a chunk to be cut; small inputs share chunks (`small_inputs.rs`). A pipe is large once it has filled a
//! chunk.
//!
//! Invariants: chunks never split records; `RecordCutter::at` is the position after the bytes read, and counts the
//! records cut off, so that every error names the record and its offset.

mod long_record;
mod small_inputs;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use ascot_io::{Disk, Filled, PAGE_BYTES, ReadStream};
use ascot_record::framing::Partial;

use crate::api::{Cancel, SortError};
use crate::read::damage::RecordStart;
use crate::read::inputs::{InputFile, InputPosition, Inputs, Span};
use crate::records::{Cut, InputStart, Keyless, RawChunk, RecordEnds};
use crate::resources::{CHUNKS_READ, ChunkPool, DeviceAccess, Lease, Long, Role, Starving, Turns};

/// Bytes before a page-aligned read, for the carry: a longer one makes its record a long record.
pub const CARRY_BYTES_MAX: usize = 64 << 10;
/// The carry's share of a small buffer. It is small because it holds no records once they are sorted.
const CARRY_SHARE: usize = 128;
/// Minimum bytes for the carry: no shorter record is ever a long record. A page, because small memories consist of
/// small chunks, whose carries hold no records until the last merge.
pub const CARRY_BYTES_MIN: usize = 4 << 10;
/// The same for records of a fixed length, whose carry takes no more than a record has.
const FIXED_CARRY_BYTES_MIN: usize = 8 << 10;

/// Bytes for the carry in a buffer of `chunk_bytes`, for records of `record_bytes` bytes if their length is fixed.
pub fn carry_bytes(chunk_bytes: usize, record_bytes: Option<usize>) -> usize {
    let least = if record_bytes.is_some() { FIXED_CARRY_BYTES_MIN } else { CARRY_BYTES_MIN };
    let max = (chunk_bytes / CARRY_SHARE).clamp(least, CARRY_BYTES_MAX).min(chunk_bytes / 4);
    let max = max / PAGE_BYTES * PAGE_BYTES;
    record_bytes.map_or(max, |len| len.next_multiple_of(PAGE_BYTES).min(max))
}

/// Bytes that are read into a buffer of `chunk_bytes`; the others are for the carry. The last read of an input whose
/// last record may be completed leaves a page for that, too.
pub fn filled_bytes(chunk_bytes: usize, records: &(impl RecordEnds + ?Sized)) -> usize {
    chunk_bytes - carry_bytes(chunk_bytes, records.record_bytes())
}

/// Bytes of an input that ends where a read is short.
const UNKNOWN: u64 = u64::MAX;

/// Memory that is enough to sort a record, in lengths of it: a merge holds two runs with such a record, and a
/// partitioned write reserves half of the memory.
const MEMORY_PER_LENGTH: u64 = 4;

/// Cuts the bytes of inputs, one input after another.
pub struct RecordCutter<R: ?Sized> {
    /// Finds the ends of records.
    pub records: Arc<R>,
    /// The inputs.
    pub inputs: Inputs,
    /// The input being cut, the offset after the bytes read of it, and the number of its records cut off.
    pub at: InputPosition,
    /// The cut record at the end of the last bytes.
    pub carry: Vec<u8>,
    /// A record longer than the space for the carry, as read so far.
    pub long: Option<LongRecord>,
    /// Memory that a long record needs in total, in lengths of it.
    pub memory_per_length: u64,
    /// The inputs are spills: their records were checked when they were first read.
    pub spilled: bool,
    cancel: Cancel,
}

/// A long record, as read so far.
pub struct LongRecord {
    /// Its bytes.
    pub memory: Long,
    /// Its start.
    pub start: RecordStart,
    partial: Partial,
}

/// How the memory of a long record may be waited for.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// Bytes of buffers that the caller keeps while it waits for others.
    pub held: usize,
    /// Called before a wait.
    pub starving: Starving<'a>,
}

impl Patience<'static> {
    /// For records whose caller alone could return memory: they never wait.
    pub const NONE: Patience<'static> = Patience { held: usize::MAX, starving: &|| () };
}

impl<R: RecordEnds + ?Sized> RecordCutter<R> {
    /// Cuts `inputs` from `at` on.
    pub fn new(records: &Arc<R>, inputs: Inputs, at: InputPosition, cancel: &Cancel) -> Self {
        RecordCutter {
            records: Arc::clone(records),
            inputs,
            at,
            carry: Vec::new(),
            long: None,
            memory_per_length: MEMORY_PER_LENGTH,
            spilled: false,
            cancel: cancel.clone(),
        }
    }

    /// The input being cut.
    pub fn file(&self) -> Option<&InputFile> {
        self.inputs.get(self.at.input)
    }

    /// Opens the input at the next byte to be read; none after the last input.
    pub fn open(&mut self, disk: &Disk) -> Result<Option<Box<dyn ReadStream>>, SortError> {
        let Some(file) = self.file() else { return Ok(None) };
        let offset = self.at.offset.max(file.start);
        let stream = file.stream(disk, offset)?;
        self.at.offset = offset;
        Ok(Some(stream))
    }

    /// The start of the record that begins `held` bytes before the end of the bytes read.
    pub fn start_of(&self, held: usize) -> RecordStart {
        RecordStart {
            input: self.file().map_or_else(String::new, InputFile::name),
            record: self.at.record + 1,
            offset: self.at.offset.saturating_sub(held as u64),
        }
    }

    /// Cuts the whole records off `bytes`, the last `held` bytes read of the input and what completes them.
    pub fn cut(&mut self, bytes: &[u8], held: usize) -> Result<Cut, SortError> {
        let (cut, keyless) = self.cut_keyed(bytes);
        if let Some(keyless) = keyless {
            return Err(self.start_of(held).keyless(keyless));
        }
        self.at.record += cut.records as u64;
        Ok(cut)
    }

    /// Records of spills have their keys.
    fn cut_keyed(&self, bytes: &[u8]) -> (Cut, Option<Keyless>) {
        if self.spilled { (self.records.cut(bytes, usize::MAX), None) } else { self.records.cut_keyed(bytes) }
    }

    /// An error if one of the whole records that begin at `start` is shorter than its key.
    pub fn check_keys(&self, bytes: &[u8], start: impl FnOnce() -> RecordStart) -> Result<(), SortError> {
        match self.cut_keyed(bytes).1 {
            Some(keyless) => Err(start().keyless(keyless)),
            None => Ok(()),
        }
    }

    /// Puts the carry before position `end` of `bytes`; returns where it starts. None if there is too little space.
    pub fn put_carry(&mut self, bytes: &mut [u8], end: usize) -> Option<usize> {
        let start = end.checked_sub(self.carry.len())?;
        bytes[start..end].copy_from_slice(&std::mem::take(&mut self.carry));
        Some(start)
    }

    /// Bytes that a read asks for at most of the `left` bytes of the input, [`UNKNOWN`] for a pipe, which may end with
    /// any read. A buffer has `chunk_bytes`, in which the end of the input leaves space for what completes its last
    /// record.
    fn most_bytes(&self, chunk_bytes: usize, left: u64) -> u64 {
        let most = filled_bytes(chunk_bytes, &*self.records);
        let may_end = left == UNKNOWN || left <= most as u64;
        let completed = may_end && !self.spilled && self.records.completion().is_some();
        (if completed { most - PAGE_BYTES } else { most }) as u64
    }

    /// The bytes that complete the last record of the input, whose last byte is `last`.
    fn completion(&self, last: Option<u8>) -> Option<Vec<u8>> {
        self.file()?.completion(self.records.completion(), last)
    }

    /// Completes the last record of the input, `bytes[start..end]`; returns the number of bytes added.
    pub fn complete(&self, bytes: &mut [u8], start: usize, end: usize) -> Result<usize, SortError> {
        let added = self.completion(bytes[start..end].last().copied()).unwrap_or_default();
        let completed = start..end + added.len();
        bytes[end..completed.end].copy_from_slice(&added);
        let cut = self.records.cut(&bytes[completed.clone()], usize::MAX);
        if added.is_empty() || cut.bytes < completed.len() {
            return Err(self.start_of(end - start).cut_short_at(&*self.records, &bytes[start..end]));
        }
        Ok(added.len())
    }

    /// Whether the bytes of an input can be read again.
    fn is_read_again(&self, input: usize) -> bool {
        !self.spilled && self.inputs.get(input).is_some_and(|file| file.path().is_some())
    }

    /// Moves on to the next input.
    pub fn next_input(&mut self) {
        self.at = InputPosition { input: self.at.input + 1, ..InputPosition::default() };
    }
}

/// Reads inputs as chunks of whole records.
pub struct RecordReader<R: ?Sized> {
    cutter: RecordCutter<R>,
    disk: Disk,
    chunks: ChunkPool,
    open: Option<Open>,
    /// No chunk has records of two inputs.
    separate: bool,
    /// Chunks that stay free for sorting while a part is read.
    beside_part: usize,
    /// Bytes that it still requests; none: all of the inputs.
    stops_after: Option<u64>,
    /// Bytes read after the end of a long record.
    after_long: Option<Fill>,
    /// The turns on the device, if it serves reads and writes in turns.
    turns: Option<Arc<Turns>>,
    access: Arc<DeviceAccess>,
}

/// An input being read.
struct Open {
    stream: Box<dyn ReadStream>,
    /// Bytes still to be requested, [`UNKNOWN`] for a large pipe; none: it is read chunk by chunk, to its end.
    to_ask: Option<u64>,
    /// Chunks being read; of each, the stream has the part that it fills.
    ahead: VecDeque<Lease>,
    /// Whether it is a pipe, which may be silent for long.
    pipe: bool,
}

/// A chunk and its position in the inputs.
pub struct PlacedChunk {
    /// Its records.
    pub chunk: RawChunk,
    /// Position after its last record.
    pub end: InputPosition,
    /// Number of records.
    pub records: usize,
    /// The start of the records of each input in it.
    pub starts: Vec<InputStart>,
    /// Bytes that complete the last records of inputs; the inputs lack them.
    pub added: usize,
    /// Number of its last input.
    pub input: usize,
    /// The last chunk of this input.
    pub ends_input: bool,
    /// Its byte ranges in files that can be read again, in order; none if it has bytes of other inputs.
    pub spans: Vec<Span>,
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
            beside_part: 0,
            stops_after: None,
            after_long: None,
            turns: None,
            access: Arc::new(DeviceAccess::new(None, Role::Reader)),
        }
    }

    /// The inputs are parts: no chunk has records of two of them, and the records are normalised already. If reads and
    /// writes take turns, a part is read in one turn: when memory holds all of it, and `beside` chunks for sorting.
    pub fn over_parts(mut self, beside: usize) -> Self {
        self.separate = true;
        self.beside_part = beside;
        self.over_spills()
    }

    /// It ends after about `bytes`, at the end of a record; without a number at the end of the inputs.
    pub fn stopping_after(mut self, bytes: Option<u64>) -> Self {
        self.stops_after = bytes;
        self
    }

    /// The inputs are spills, whose records are normalised already.
    pub fn over_spills(mut self) -> Self {
        self.cutter.spilled = true;
        self
    }

    /// Reads while it has the turn; the holder of [`RecordReader::device_access`] gives the turn back.
    pub fn in_turn(mut self, turns: Option<Arc<Turns>>) -> Self {
        self.access = Arc::new(DeviceAccess::new(turns.as_ref(), Role::Reader));
        self.turns = turns;
        self
    }

    /// The turns it takes, if any.
    pub fn turns(&self) -> Option<&Arc<Turns>> {
        self.turns.as_ref()
    }

    /// Its access to the device; its turn must be given back before a thread waits for memory.
    pub fn device_access(&self) -> Arc<DeviceAccess> {
        Arc::clone(&self.access)
    }

    /// The next chunk; none after the last.
    pub fn next(&mut self, starving: Starving<'_>) -> Result<Option<PlacedChunk>, SortError> {
        loop {
            if self.stops_after == Some(0) && self.open.as_ref().is_none_or(|open| open.ahead.is_empty()) {
                return Ok(None);
            }
            if self.separate && self.turns.is_some() && self.open.is_none() {
                self.wait_for_part(starving);
            }
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

    /// Waits until memory holds the next part. Otherwise a part would be read in two turns, the second after a write.
    fn wait_for_part(&self, starving: Starving<'_>) {
        let Some(bytes) = self.cutter.file().and_then(|file| file.size) else { return };
        let filled = filled_bytes(self.chunks.chunk_bytes(), &*self.cutter.records);
        self.chunks.wait_for(bytes.div_ceil(filled as u64) as usize + self.beside_part, starving);
    }

    fn lease(&mut self, starving: Starving<'_>) -> Result<Lease, SortError> {
        Ok(self.chunks.take_for(starving)?)
    }

    /// Keeps several chunks of a large input in flight.
    fn ask_ahead(&mut self, starving: Starving<'_>) -> Result<(), SortError> {
        while let Some(open) = &self.open {
            let stops = self.stops_after == Some(0);
            if open.ahead.len() >= CHUNKS_READ || open.to_ask == Some(0) || stops {
                return Ok(());
            }
            let lease =
                if open.ahead.is_empty() { Some(self.lease(starving)?) } else { self.chunks.try_take() };
            let (Some(mut lease), Some(open)) = (lease, &mut self.open) else { return Ok(()) };
            let carry = carry_bytes(lease.bytes().len(), self.cutter.records.record_bytes());
            let left = open.to_ask.unwrap_or(0);
            let max_bytes = self.cutter.most_bytes(lease.bytes().len(), left);
            let stop = self.stops_after.map_or(max_bytes, |stop| stop.next_multiple_of(PAGE_BYTES as u64));
            let asked = left.min(max_bytes).min(stop);
            self.stops_after = self.stops_after.map(|stop| stop.saturating_sub(asked));
            let area = carry..carry + (asked as usize).next_multiple_of(PAGE_BYTES);
            let area = lease.lend(area).ok_or(SortError::Internal("a new chunk is lent already"))?;
            open.to_ask = Some(if left == UNKNOWN { UNKNOWN } else { left - asked });
            if !open.pipe {
                self.access.take();
            }
            open.stream.begin(area)?;
            open.ahead.push_back(lease);
        }
        Ok(())
    }

    /// The next chunk of a large input.
    fn fill_ahead(&mut self, starving: Starving<'_>) -> Result<Fill, SortError> {
        self.ask_ahead(starving)?;
        let Some(open) = &mut self.open else { return Err(SortError::Internal("no input is open")) };
        let Some(mut lease) = open.ahead.pop_front() else {
            return Err(SortError::Internal("an input ended unseen"));
        };
        if self.cutter.spilled {
            // A spill requests its next blocks while it completes these.
            self.access.take();
        }
        let Filled { buf, start, end } = open.stream.complete()?;
        if open.pipe && end < buf.len() {
            open.to_ask = Some(0);
        }
        let last = open.to_ask == Some(0) && open.ahead.is_empty();
        let carry = lease.take_back(buf);
        self.cutter.at.offset += (end - start) as u64;
        let mut fill = self.join_carry(lease, carry + start..carry + end, starving)?;
        fill.ends = last && !self.go_on_where_grown()?;
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

    /// Cuts off the whole records; the input lacks the last `added` bytes.
    fn cut(&mut self, fill: &mut Fill, added: usize) -> Result<(), SortError> {
        let left = &fill.lease.bytes()[fill.cut..fill.bytes.end];
        let held = left.len() - added;
        let InputPosition { input, record, offset } = self.cutter.at;
        let again = self.cutter.is_read_again(input);
        let cut = self.cutter.cut(left, held)?;
        if cut.records > 0 && fill.starts.last().is_none_or(|start| start.input != input) {
            fill.starts.push(InputStart { at: fill.records, input, before: record });
        }
        if cut.records > 0 {
            let offset = offset.saturating_sub(held as u64);
            let len = (cut.bytes - added) as u64;
            fill.note(again.then_some(Span { input, offset, len, unfinished: added > 0 }));
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
        let spans = fill.spans.unwrap_or_default();
        let bytes = fill.bytes.start..fill.cut;
        let ends_input = rest.is_empty() && self.open.is_none();
        let at = self.cutter.at;
        let input = at.input - usize::from(ends_input && at.input > 0);
        let end = InputPosition { offset: at.offset.saturating_sub(rest.len() as u64), ..at };
        self.cutter.carry = fill.lease.bytes()[rest].to_vec();
        let chunk = RawChunk { lease: fill.lease, bytes, spilled: self.cutter.spilled, grouping: None };
        let Fill { records, starts, added, .. } = fill;
        Ok(PlacedChunk { chunk, end, records, starts, added, input, ends_input, spans, long: false })
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
    /// The start of the records of each input.
    starts: Vec<InputStart>,
    /// The byte ranges of its whole records, if all can be read again.
    spans: Option<Vec<Span>>,
    /// Bytes that complete the last records of inputs.
    added: usize,
    /// The input ends here, and its last record is not completed yet.
    ends: bool,
}

impl Fill {
    /// Uncut `bytes` of a buffer.
    fn new(lease: Lease, bytes: Range<usize>) -> Self {
        let cut = bytes.start;
        Fill {
            lease,
            cut,
            bytes,
            records: 0,
            starts: Vec::new(),
            spans: Some(Vec::new()),
            added: 0,
            ends: false,
        }
    }

    /// Leaves out the first `count` bytes; nothing is cut yet.
    fn skip(&mut self, count: usize) {
        self.bytes.start += count;
        self.cut = self.bytes.start;
    }

    /// Notes the byte range of records that were cut off; none: they cannot be read again.
    fn note(&mut self, span: Option<Span>) {
        match (&mut self.spans, span) {
            (spans, None) => *spans = None,
            (Some(spans), Some(span)) => match spans.last_mut() {
                Some(last) if last.input == span.input => {
                    last.len += span.len;
                    last.unfinished = span.unfinished;
                }
                _ => spans.push(span),
            },
            (None, Some(_)) => {}
        }
    }
}
