//! Filling pieces: reads the inputs one after another into leased buffers and cuts them at record
//! boundaries.
//!
//! ```text
//!   lease:  [ gap | carried | read from the device ........ ]
//!                 ^ whole records from here       ^ what is left is carried to the next piece
//!                           ^ page boundary
//! ```
//!
//! Large inputs are read several pieces ahead, so that the device never waits for a piece to be
//! cut; small ones share pieces. A record that fits neither a piece nor the gap is put together in
//! memory of its own and makes a piece by itself. Invariant: records are never split between pieces.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_io::{Buf, Disk, Filled, PAGE_BYTES, PoolError, ReadStream};
use ascot_record::framing::Partial;

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::read::damage::RecordStart;
use crate::read::inputs::Span;
use crate::read::inputs::{COMPLETION_BYTES, InputFile, InputPosition, Inputs};
use crate::records::misfits::InputStart;
use crate::records::{RawPiece, RecordEnds};
use crate::resources::pieces::PIECES_READ;
use crate::resources::pieces::{Lease, Long, PiecePool, Starving};
use crate::resources::turns::{Seat, Side, Turns};

/// Bytes before a page-aligned read, for what is carried over.
pub const GAP_BYTES: usize = 64 << 10;

/// The gap of a piece of so many bytes.
pub fn gap_bytes(piece_bytes: usize) -> usize {
    GAP_BYTES.min(piece_bytes / 4) / PAGE_BYTES * PAGE_BYTES
}

/// Memory that sorts a record for certain, in lengths of it: two runs with such a record are merged,
/// and a distribution sets half of the memory aside.
const MEMORY_PER_LENGTH: u64 = 4;

/// How often a silent pipe is asked again.
const PIPE_POLL: Duration = Duration::from_micros(500);

/// Cuts inputs into pieces.
pub struct RecordReader<R: ?Sized> {
    records: Arc<R>,
    disk: Disk,
    inputs: Inputs,
    pieces: PiecePool,
    open: Option<Open>,
    /// The input being read, and how much of it has been read.
    at: InputPosition,
    /// Each input has pieces of its own.
    separate: bool,
    /// The inputs are spills: their records are in the form of spills already.
    spilled: bool,
    cancel: Cancel,
    /// Records of the current input cut so far.
    record_number: u64,
    /// A started record, to be continued by the next piece.
    carried: Vec<u8>,
    /// The same where it is long.
    long: Option<LongStart>,
    /// What was read behind the end of a long record.
    behind: Option<Fill>,
    /// Whether others use the device in turn with this.
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
    /// Bytes still to be asked for; none: it is read piece by piece, to its end.
    to_ask: Option<u64>,
    ahead: VecDeque<Ahead>,
    /// It may keep silent for long.
    pipe: bool,
}

/// A piece being read: its memory around the part the stream fills.
struct Ahead {
    lease: Lease,
    front: Buf,
    rest: Buf,
}

/// A long record, as far as it has been read.
struct LongStart {
    long: Long,
    partial: Partial,
    start: RecordStart,
}

/// A piece and where it ends in the inputs.
pub struct PlacedChunk {
    /// The piece.
    pub piece: RawPiece,
    /// Place after its last record.
    pub end: InputPosition,
    /// Its records.
    pub records: usize,
    /// Where the records of each input begin in it.
    pub starts: Vec<InputStart>,
    /// Bytes of it that complete last records, which the inputs lack.
    pub added: usize,
    /// Number of its input; with separate inputs the only one.
    pub input: usize,
    /// No more pieces of this input follow.
    pub ends_input: bool,
    /// Where its bytes lie in a file that can be read again.
    pub span: Option<Span>,
    /// It is one long record: there is nothing to sort.
    pub long: bool,
}

impl<R: RecordEnds + ?Sized> RecordReader<R> {
    /// Reads `inputs` from `from` on.
    pub fn new(
        records: &Arc<R>,
        disk: &Disk,
        inputs: Inputs,
        pieces: &PiecePool,
        from: InputPosition,
        cancel: &Cancel,
    ) -> Self {
        RecordReader {
            records: Arc::clone(records),
            disk: disk.clone(),
            inputs,
            pieces: pieces.clone(),
            open: None,
            at: from,
            separate: false,
            spilled: false,
            cancel: cancel.clone(),
            record_number: from.record,
            carried: Vec::new(),
            long: None,
            behind: None,
            turns: None,
            seat: Arc::new(Seat::new(None, Side::Reader)),
            waited_memory: Duration::ZERO,
            waited_device: Duration::ZERO,
        }
    }

    /// The inputs are parts: each has pieces of its own, and its records are normalised already.
    pub fn of_parts(mut self) -> Self {
        (self.separate, self.spilled) = (true, true);
        self
    }

    /// The inputs are spills, whose records are normalised already.
    pub fn of_spills(mut self) -> Self {
        self.spilled = true;
        self
    }

    /// Reads when it has the turn, until whoever holds [`RecordReader::seat`] gives that back.
    pub fn in_turn(mut self, turns: Option<Arc<Turns>>) -> Self {
        self.seat = Arc::new(Seat::new(turns.as_ref(), Side::Reader));
        self.turns = turns;
        self
    }

    /// The turns it takes, if any.
    pub fn turns(&self) -> Option<&Arc<Turns>> {
        self.turns.as_ref()
    }

    /// Its place in them: the turn is to be given back before anybody waits for memory.
    pub fn seat(&self) -> Arc<Seat> {
        Arc::clone(&self.seat)
    }

    /// The next piece; none after the last.
    pub fn next(&mut self, starving: Starving<'_>) -> Result<Option<PlacedChunk>, SortError> {
        loop {
            let fill = match self.behind.take() {
                Some(fill) => fill,
                None if !self.open_input()? => return Ok(None),
                None if self.open.as_ref().is_some_and(|open| open.to_ask.is_some()) => {
                    self.fill_ahead(starving)?
                }
                None => self.fill_small(starving)?,
            };
            let piece = match self.long.take() {
                Some(long) => self.lengthen(long, fill, starving)?,
                None => self.settle(fill)?,
            };
            if piece.is_some() {
                return Ok(piece);
            }
        }
    }

    /// Opens the input that comes next, unless one is open; false after the last.
    fn open_input(&mut self) -> Result<bool, SortError> {
        if self.open.is_some() {
            return Ok(true);
        }
        let Some(file) = self.inputs.get(self.at.input) else { return Ok(false) };
        self.at.offset = self.at.offset.max(file.start);
        let left = file.size.map(|size| size.saturating_sub(self.at.offset));
        // A read from the middle starts at the page before.
        let to_ask = left.filter(|&left| left >= self.pieces.piece_bytes() as u64);
        let to_ask = to_ask.map(|left| left + self.at.offset % PAGE_BYTES as u64);
        let stream = file.open(&self.disk, self.at.offset)?;
        self.open = Some(Open { stream, to_ask, ahead: VecDeque::new(), pipe: file.size.is_none() });
        Ok(true)
    }

    fn lease(&mut self, starving: Starving<'_>) -> Result<Lease, SortError> {
        let since = Instant::now();
        let lease = self.pieces.take_for(starving);
        self.waited_memory += since.elapsed();
        Ok(lease?)
    }

    /// Where the record starts of which `held` bytes have been read.
    fn start_of(&self, held: usize) -> RecordStart {
        RecordStart {
            input: self.inputs.get(self.at.input).map_or_else(String::new, InputFile::name),
            record: self.record_number + 1,
            offset: self.at.offset.saturating_sub(held as u64),
        }
    }

    /// Keeps several pieces of a large input in flight.
    fn ask_ahead(&mut self, starving: Starving<'_>) -> Result<(), SortError> {
        while let Some(open) = &self.open {
            if open.ahead.len() >= PIECES_READ || open.to_ask == Some(0) {
                return Ok(());
            }
            let lease =
                if open.ahead.is_empty() { Some(self.lease(starving)?) } else { self.pieces.try_take() };
            let (Some(mut lease), Some(open)) = (lease, &mut self.open) else { return Ok(()) };
            let Some(mut front) = lease.lend() else { return Ok(()) };
            let gap = gap_bytes(front.len());
            let mut area = front.split_off(gap);
            let left = open.to_ask.unwrap_or(0);
            // Room for what completes a last record.
            let most = (area.len() - PAGE_BYTES) as u64;
            let asked = left.min(most);
            let rest = area.split_off((asked as usize).next_multiple_of(PAGE_BYTES));
            open.to_ask = Some(left - asked);
            self.seat.take();
            open.stream.begin(area)?;
            open.ahead.push_back(Ahead { lease, front, rest });
        }
        Ok(())
    }

    /// The next piece of a large input.
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
        let gap = front.len();
        if front.unsplit(buf).and_then(|()| front.unsplit(rest)).is_err() {
            return Err(SortError::Internal("a buffer came back from elsewhere"));
        }
        lease.put(front);
        self.at.offset += (end - start) as u64;
        let mut fill = self.join_carried(lease, gap + start..gap + end, starving)?;
        fill.ends = last && !self.go_on_where_grown()?;
        let again = !self.spilled && self.inputs.get(self.at.input).is_some_and(|file| file.path().is_some());
        let offset = self.at.offset - fill.bytes.len() as u64;
        fill.from = again.then_some(InputPosition { input: self.at.input, offset, record: 0 });
        Ok(fill)
    }

    /// A file that has grown since it was opened is read on piece by piece, to the end it has then: what
    /// was its last record may have been half written.
    fn go_on_where_grown(&mut self) -> Result<bool, SortError> {
        let Some(file) = self.inputs.get(self.at.input).filter(|file| file.size_now() > self.at.offset)
        else {
            return Ok(false);
        };
        let stream = file.open(&self.disk, self.at.offset)?;
        self.open = Some(Open { stream, to_ask: None, ahead: VecDeque::new(), pipe: false });
        Ok(true)
    }

    /// Puts what was carried before what was read, or starts a long record with it.
    fn join_carried(
        &mut self,
        mut lease: Lease,
        read: Range<usize>,
        starving: Starving<'_>,
    ) -> Result<Fill, SortError> {
        let carried = std::mem::take(&mut self.carried);
        if carried.len() > read.start {
            self.start_long(&carried, read.len(), starving)?;
            return Ok(Fill::of(lease, read));
        }
        let start = read.start - carried.len();
        lease.bytes_mut()[start..read.start].copy_from_slice(&carried);
        Ok(Fill::of(lease, start..read.end))
    }

    /// Starts a long record with `bytes`, behind which `read` more have been read.
    fn start_long(&mut self, bytes: &[u8], read: usize, starving: Starving<'_>) -> Result<(), SortError> {
        let start = self.start_of(bytes.len() + read);
        let long = LongStart { long: self.pieces.long()?, partial: Partial::default(), start };
        self.long = Some(self.append(long, bytes, starving)?.0);
        Ok(())
    }

    /// Appends to a long record what of `bytes` belongs to it; says how much that is if it ends there.
    fn append(
        &mut self,
        mut started: LongStart,
        bytes: &[u8],
        starving: Starving<'_>,
    ) -> Result<(LongStart, Option<usize>), SortError> {
        let end = self.records.go_on(bytes, &mut started.partial);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let ahead = self.open.as_ref().map_or(0, |open| open.ahead.len());
        let held = (ahead + 1) * self.pieces.piece_bytes();
        let since = Instant::now();
        let grown = self.pieces.append(&mut started.long, part, held, starving);
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

    /// Goes on with a long record: a piece, if that is its end.
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
        let (input, left, before) = (self.at.input, fill.bytes.len() as u64, self.record_number);
        self.record_number += 1;
        if left > 0 {
            self.behind = Some(fill);
        } else if fill.ends {
            self.next_input();
        }
        let LongStart { long, start, .. } = started;
        let bytes = 0..long.len();
        let piece = RawPiece { lease: long.into_lease(), bytes, spilled: self.spilled, grouping: None };
        if let Some(keyless) = self.records.keyless(piece.record_bytes()) {
            return Err(start.keyless(keyless));
        }
        Ok(Some(PlacedChunk {
            piece,
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
            span: None,
            long: true,
        }))
    }

    /// What completes the last record of the input being read, whose last byte is `last`.
    fn completion(&self, last: Option<u8>) -> Option<Vec<u8>> {
        self.inputs.get(self.at.input)?.completion(self.records.completion(), last)
    }

    /// Cuts what has been read into whole records, which are a piece, if there are any.
    fn settle(&mut self, mut fill: Fill) -> Result<Option<PlacedChunk>, SortError> {
        self.cut(&mut fill, 0)?;
        if fill.ends {
            self.end_input(&mut fill)?;
        }
        if fill.records > 0 {
            return self.deliver(fill).map(Some);
        }
        self.carried = fill.lease.bytes()[fill.bytes].to_vec();
        Ok(None)
    }

    /// A piece of small inputs and pipes: read until it is full. Of what goes on with a long record
    /// nothing is cut yet.
    fn fill_small(&mut self, starving: Starving<'_>) -> Result<Fill, SortError> {
        let mut fill = self.start_small(starving)?;
        loop {
            let room = (fill.lease.len() - COMPLETION_BYTES).saturating_sub(fill.bytes.end) / PAGE_BYTES
                * PAGE_BYTES;
            if room == 0 {
                return Ok(fill);
            }
            fill.ends = self.read(&mut fill, room)?;
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

    /// A buffer that begins with what was carried, unless that starts a long record.
    fn start_small(&mut self, starving: Starving<'_>) -> Result<Fill, SortError> {
        let carried = std::mem::take(&mut self.carried);
        if carried.len() + 2 * PAGE_BYTES > self.pieces.piece_bytes() {
            self.start_long(&carried, 0, starving)?;
            return Ok(Fill::of(self.lease(starving)?, 0..0));
        }
        let mut lease = self.lease(starving)?;
        let start = carried.len().next_multiple_of(PAGE_BYTES) - carried.len();
        lease.bytes_mut()[start..start + carried.len()].copy_from_slice(&carried);
        Ok(Fill::of(lease, start..start + carried.len()))
    }

    /// Reads up to `room` bytes behind what is there; true if the input has ended.
    fn read(&mut self, fill: &mut Fill, room: usize) -> Result<bool, SortError> {
        let Some(open) = &mut self.open else { return Ok(true) };
        let since = Instant::now();
        let Some(mut front) = fill.lease.lend() else {
            return Err(SortError::Internal("a piece without memory"));
        };
        let mut area = front.split_off(fill.bytes.end);
        let rest = area.split_off(room);
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
        if front.unsplit(buf).and_then(|()| front.unsplit(rest)).is_err() {
            return Err(SortError::Internal("a buffer came back from elsewhere"));
        }
        fill.lease.put(front);
        if start > 0 {
            // Only at an unaligned start: nothing is there to be kept in front of it, or it is moved.
            let held = fill.bytes.len();
            fill.lease.bytes_mut().copy_within(fill.bytes.clone(), fill.bytes.start + start);
            fill.bytes = fill.bytes.start + start..fill.bytes.start + start + held;
            fill.cut += start;
        }
        fill.bytes.end += end - start;
        self.at.offset += (end - start) as u64;
        Ok(end < room)
    }

    /// Cuts what whole records there are; `added` bytes at the end are not in the input.
    fn cut(&mut self, fill: &mut Fill, added: usize) -> Result<(), SortError> {
        let left = &fill.lease.bytes()[fill.cut..fill.bytes.end];
        let cut = self.records.cut(left, usize::MAX);
        // Spilled records were looked at before.
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

    /// The input has ended: completes its last record, goes on to the next input.
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

    /// Takes the whole records off as a piece, carries the rest.
    fn deliver(&mut self, fill: Fill) -> Result<PlacedChunk, SortError> {
        let rest = fill.cut..fill.bytes.end;
        let span = fill.span();
        let bytes = fill.bytes.start..fill.cut;
        let ends_input = rest.is_empty() && self.open.is_none();
        let input = self.at.input - usize::from(ends_input && self.at.input > 0);
        let offset = self.at.offset.saturating_sub(rest.len() as u64);
        let end = InputPosition { input: self.at.input, offset, record: self.record_number };
        self.carried = fill.lease.bytes()[rest].to_vec();
        let piece = RawPiece { lease: fill.lease, bytes, spilled: self.spilled, grouping: None };
        let Fill { records, starts, added, .. } = fill;
        Ok(PlacedChunk { piece, end, records, starts, added, input, ends_input, span, long: false })
    }
}

/// A piece being filled.
struct Fill {
    lease: Lease,
    /// Bytes in it.
    bytes: Range<usize>,
    /// Whole records end here.
    cut: usize,
    records: usize,
    /// Where the records of each input begin.
    starts: Vec<InputStart>,
    /// Where the first of its bytes lies, in a file read by itself.
    from: Option<InputPosition>,
    /// Bytes that complete last records, which the inputs lack.
    added: usize,
    /// Nothing of the input follows; it has not been told so yet.
    ends: bool,
}

impl Fill {
    /// Uncut `bytes` of a buffer.
    fn of(lease: Lease, bytes: Range<usize>) -> Self {
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

    /// Where its whole records lie.
    fn span(&self) -> Option<Span> {
        let InputPosition { input, offset, .. } = self.from?;
        let len = (self.cut - self.bytes.start - self.added) as u64;
        Some(Span { input, offset, len, unfinished: self.added > 0 })
    }
}
