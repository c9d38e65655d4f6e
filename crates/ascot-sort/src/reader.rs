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
//! cut; small ones share pieces. Invariant: records are never split between pieces.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_io::{Buf, Disk, Filled, PAGE_BYTES, ReadStream};
use serde::{Deserialize, Serialize};

use crate::budget::PIECES_READ;
use crate::error::SortError;
use crate::input::{InputFile, Inputs};
use crate::observe::Cancel;
use crate::ordered::Span;
use crate::pieces::{Lease, PiecePool};
use crate::records::{RawPiece, Records};

/// A place between two records of the inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputPosition {
    /// Number of the input.
    pub input: usize,
    /// Offset in it, bytes.
    pub offset: u64,
}

/// Bytes before a page-aligned read, for what is carried over.
const GAP_BYTES: usize = 64 << 10;

/// How often a silent pipe is asked again.
const PIPE_POLL: Duration = Duration::from_micros(500);

/// Cuts inputs into pieces.
pub struct PieceReader<R> {
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
    carried: Carried,
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

enum Carried {
    Small(Vec<u8>),
    Large(Lease, Range<usize>),
}

impl Carried {
    fn bytes(&self) -> &[u8] {
        match self {
            Carried::Small(bytes) => bytes,
            Carried::Large(lease, range) => &lease.bytes()[range.clone()],
        }
    }
}

/// A piece and where it ends in the inputs.
pub struct PlacedPiece {
    /// The piece.
    pub piece: RawPiece,
    /// Place after its last record.
    pub end: InputPosition,
    /// Its records.
    pub records: usize,
    /// Number of its input; with separate inputs the only one.
    pub input: usize,
    /// No more pieces of this input follow.
    pub ends_input: bool,
    /// Where its bytes lie in a file that can be read again.
    pub span: Option<Span>,
}

/// Called before waiting for memory; true: for as much as there is.
pub type Starving<'a> = &'a dyn Fn(bool);

impl<R: Records> PieceReader<R> {
    /// Reads `inputs` from `from` on.
    pub fn new(
        records: &Arc<R>,
        disk: &Disk,
        inputs: Inputs,
        pieces: &PiecePool,
        from: InputPosition,
        cancel: &Cancel,
    ) -> Self {
        PieceReader {
            records: Arc::clone(records),
            disk: disk.clone(),
            inputs,
            pieces: pieces.clone(),
            open: None,
            at: from,
            separate: false,
            spilled: false,
            cancel: cancel.clone(),
            record_number: 0,
            carried: Carried::Small(Vec::new()),
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

    /// The next piece; none after the last.
    pub fn next(&mut self, starving: Starving<'_>) -> Result<Option<PlacedPiece>, SortError> {
        loop {
            if !self.open_input()? {
                return Ok(None);
            }
            let ahead = self.open.as_ref().is_some_and(|open| open.to_ask.is_some());
            let fill = if ahead { self.fill_ahead(starving)? } else { self.fill_small(starving)? };
            if fill.records > 0 {
                return self.deliver(fill).map(Some);
            }
            if !fill.bytes.is_empty() {
                self.carried = Carried::Large(fill.lease, fill.bytes);
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

    fn lease(&mut self, bytes: usize, starving: Starving<'_>) -> Result<Lease, SortError> {
        let since = Instant::now();
        let lease = self.pieces.take_for(bytes, starving).map_err(|_| self.too_long(bytes))?;
        self.waited_memory += since.elapsed();
        Ok(lease)
    }

    fn too_long(&self, bytes: usize) -> SortError {
        let held = self.carried.bytes().len() as u64;
        SortError::TooLong {
            input: self.inputs.get(self.at.input).map_or_else(String::new, InputFile::name),
            offset: self.at.offset.saturating_sub(held),
            have: held,
            least: 8 * bytes as u64,
        }
    }

    /// Keeps several pieces of a large input in flight.
    fn ask_ahead(&mut self, starving: Starving<'_>) -> Result<(), SortError> {
        while let Some(open) = &self.open {
            if open.ahead.len() >= PIECES_READ || open.to_ask == Some(0) {
                return Ok(());
            }
            let lease =
                if open.ahead.is_empty() { Some(self.lease(0, starving)?) } else { self.pieces.try_take() };
            let (Some(mut lease), Some(open)) = (lease, &mut self.open) else { return Ok(()) };
            let Some(mut front) = lease.lend() else { return Ok(()) };
            let gap = GAP_BYTES.min(front.len() / 4) / PAGE_BYTES * PAGE_BYTES;
            let mut area = front.split_off(gap);
            let left = open.to_ask.unwrap_or(0);
            // Room for the byte that completes a last record.
            let most = (area.len() - PAGE_BYTES) as u64;
            let asked = left.min(most);
            let rest = area.split_off((asked as usize).next_multiple_of(PAGE_BYTES));
            open.to_ask = Some(left - asked);
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
        let again = !self.spilled && self.inputs.get(self.at.input).is_some_and(|file| file.path().is_some());
        let offset = self.at.offset - fill.bytes.len() as u64;
        fill.from = again.then_some(InputPosition { input: self.at.input, offset });
        self.cut(&mut fill);
        if last {
            self.end_input(&mut fill)?;
        }
        Ok(fill)
    }

    /// Puts what was carried before what was read.
    fn join_carried(
        &mut self,
        mut lease: Lease,
        read: Range<usize>,
        starving: Starving<'_>,
    ) -> Result<Fill, SortError> {
        let carried = self.carried.bytes();
        if carried.len() <= read.start {
            let start = read.start - carried.len();
            lease.bytes_mut()[start..read.start].copy_from_slice(carried);
            self.carried = Carried::Small(Vec::new());
            return Ok(Fill {
                lease,
                bytes: start..read.end,
                cut: start,
                records: 0,
                from: None,
                unfinished: false,
            });
        }
        // A long record: it goes on in its own buffer, doubled where it is full.
        let total = carried.len() + read.len();
        let fits =
            matches!(&self.carried, Carried::Large(lease, range) if range.end + read.len() < lease.len());
        if !fits {
            let mut larger = self.lease(2 * total, starving)?;
            let carried = self.carried.bytes();
            larger.bytes_mut()[..carried.len()].copy_from_slice(carried);
            let held = 0..carried.len();
            self.carried = Carried::Large(larger, held);
        }
        let Carried::Large(mut long, held) = std::mem::replace(&mut self.carried, Carried::Small(Vec::new()))
        else {
            return Err(SortError::Internal("a long record was lost"));
        };
        let end = held.end + read.len();
        long.bytes_mut()[held.end..end].copy_from_slice(&lease.bytes()[read]);
        Ok(Fill {
            lease: long,
            cut: held.start,
            bytes: held.start..end,
            records: 0,
            from: None,
            unfinished: false,
        })
    }

    /// A piece of small inputs and pipes: read until it is full.
    fn fill_small(&mut self, starving: Starving<'_>) -> Result<Fill, SortError> {
        let mut fill = self.start_small(starving)?;
        loop {
            let room = (fill.lease.len() - 1).saturating_sub(fill.bytes.end) / PAGE_BYTES * PAGE_BYTES;
            if room == 0 {
                self.cut(&mut fill);
                return Ok(fill);
            }
            let ended = self.read(&mut fill, room)?;
            self.cut(&mut fill);
            if !ended {
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

    /// A buffer that begins with what was carried.
    fn start_small(&mut self, starving: Starving<'_>) -> Result<Fill, SortError> {
        let carried = self.carried.bytes().len();
        let large = carried + 2 * PAGE_BYTES > self.pieces.piece_bytes();
        let mut lease = self.lease(if large { 2 * carried } else { 0 }, starving)?;
        let start = carried.next_multiple_of(PAGE_BYTES) - carried;
        lease.bytes_mut()[start..start + carried].copy_from_slice(self.carried.bytes());
        self.carried = Carried::Small(Vec::new());
        Ok(Fill {
            lease,
            cut: start,
            bytes: start..start + carried,
            records: 0,
            from: None,
            unfinished: false,
        })
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

    /// Cuts what whole records there are.
    fn cut(&mut self, fill: &mut Fill) {
        let cut = self.records.cut(&fill.lease.bytes()[fill.cut..fill.bytes.end], usize::MAX);
        fill.cut += cut.bytes;
        fill.records += cut.records;
        self.record_number += cut.records as u64;
    }

    /// The input has ended: completes its last record, goes on to the next input.
    fn end_input(&mut self, fill: &mut Fill) -> Result<(), SortError> {
        let left = fill.bytes.end - fill.cut;
        if left > 0 {
            let Some(byte) = self.records.completion() else { return Err(self.cut_short(left)) };
            fill.lease.bytes_mut()[fill.bytes.end] = byte;
            fill.bytes.end += 1;
            fill.unfinished = true;
            self.cut(fill);
            if fill.cut < fill.bytes.end {
                return Err(self.cut_short(left));
            }
        }
        self.open = None;
        self.at = InputPosition { input: self.at.input + 1, offset: 0 };
        self.record_number = 0;
        Ok(())
    }

    fn cut_short(&self, left: usize) -> SortError {
        SortError::CutShort {
            input: self.inputs.get(self.at.input).map_or_else(String::new, InputFile::name),
            record: self.record_number + 1,
            offset: self.at.offset - left as u64,
            have: left as u64,
        }
    }

    /// Takes the whole records off as a piece, carries the rest.
    fn deliver(&mut self, fill: Fill) -> Result<PlacedPiece, SortError> {
        let rest = fill.cut..fill.bytes.end;
        let span = fill.span();
        let bytes = fill.bytes.start..fill.cut;
        let ends_input = rest.is_empty() && self.open.is_none();
        let input = self.at.input - usize::from(ends_input && self.at.input > 0);
        let end =
            InputPosition { input: self.at.input, offset: self.at.offset.saturating_sub(rest.len() as u64) };
        self.carried = Carried::Small(fill.lease.bytes()[rest].to_vec());
        let piece = RawPiece { lease: fill.lease, bytes, spilled: self.spilled };
        Ok(PlacedPiece { piece, end, records: fill.records, input, ends_input, span })
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
    /// Where the first of its bytes lies, in a file read by itself.
    from: Option<InputPosition>,
    /// The end of its last record was added.
    unfinished: bool,
}

impl Fill {
    /// Where its whole records lie.
    fn span(&self) -> Option<Span> {
        let InputPosition { input, offset } = self.from?;
        let len = (self.cut - self.bytes.start - usize::from(self.unfinished)) as u64;
        Some(Span { input, offset, len, unfinished: self.unfinished })
    }
}
