//! Filling pieces: reads the inputs one after another into leased buffers and cuts them at record
//! boundaries.
//!
//! ```text
//!   lease:  [ gap | carried | read from the device ........ | free: order of the records ]
//!                 ^ whole records from here       ^ what is left is carried to the next piece
//!                           ^ page boundary
//! ```
//!
//! Invariants: records are never split between pieces; what lies behind a piece's records holds at
//! least the order bytes of each record.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_io::{Disk, Filled, PAGE_BYTES, ReadStream};
use serde::{Deserialize, Serialize};

use crate::error::SortError;
use crate::input::{InputFile, Inputs};
use crate::observe::Cancel;
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

/// Files below this size may share a piece; larger ones start one of their own, page-aligned.
const SMALL_FILE_BYTES: u64 = 1 << 20;

/// How often a silent pipe is asked again.
const PIPE_POLL: Duration = Duration::from_micros(500);

/// Cuts inputs into pieces.
pub struct PieceReader<R> {
    records: Arc<R>,
    disk: Disk,
    inputs: Inputs,
    pieces: PiecePool,
    stream: Option<Box<dyn ReadStream>>,
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
    /// Estimated bytes of a record.
    mean_bytes: f64,
    /// Time spent waiting for a free buffer and for the device.
    pub waited_memory: Duration,
    /// Time spent waiting for the device.
    pub waited_device: Duration,
}

enum Carried {
    Small(Vec<u8>),
    Large(Lease, Range<usize>),
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
}

/// Length of a record before any has been seen, bytes.
const GUESSED_RECORD_BYTES: f64 = 32.0;

/// Bytes carried in a vector; more are copied straight into the next piece's buffer.
const SMALL_CARRY_BYTES: usize = 64 << 10;

impl<R: Records> PieceReader<R> {
    /// Reads `inputs` from `from` on.
    pub fn new(records: &Arc<R>, disk: &Disk, inputs: Inputs, pieces: &PiecePool, from: InputPosition, cancel: &Cancel) -> Self {
        let mean_bytes = records.record_bytes().map_or(GUESSED_RECORD_BYTES, |bytes| bytes as f64);
        PieceReader {
            records: Arc::clone(records),
            disk: disk.clone(),
            inputs,
            pieces: pieces.clone(),
            stream: None,
            separate: false,
            spilled: false,
            cancel: cancel.clone(),
            at: from,
            record_number: 0,
            carried: Carried::Small(Vec::new()),
            mean_bytes,
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

    /// The next piece; none after the last. Calls `starving` before it waits for memory.
    pub fn next(&mut self, starving: &dyn Fn()) -> Result<Option<PlacedPiece>, SortError> {
        let carried = std::mem::replace(&mut self.carried, Carried::Small(Vec::new()));
        let mut fill = match carried {
            Carried::Small(bytes) => Fill::start(self.lease(starving), &bytes),
            Carried::Large(lease, bytes) => Fill { lease, cut: bytes.start, bytes, records: 0 },
        };
        loop {
            let done = self.fill(&mut fill)?;
            if fill.records > 0 {
                return self.deliver(fill, starving).map(Some);
            }
            if done && fill.bytes.is_empty() {
                return Ok(None);
            }
            if fill.bytes.len() + PAGE_BYTES >= self.data_limit(fill.lease.len()) {
                fill = self.grow(&fill, starving)?;
            }
        }
    }

    fn lease(&mut self, starving: &dyn Fn()) -> Lease {
        if self.pieces.is_exhausted() {
            starving();
        }
        let since = Instant::now();
        let lease = self.pieces.take();
        self.waited_memory += since.elapsed();
        lease
    }

    /// Bytes of a buffer that may hold records, so that their order fits behind them.
    fn data_limit(&self, len: usize) -> usize {
        let order = self.records.order_bytes() as f64;
        (len as f64 * self.mean_bytes / (self.mean_bytes + order)) as usize
    }

    /// Reads and cuts until the piece is full or all inputs have ended (then true).
    fn fill(&mut self, fill: &mut Fill) -> Result<bool, SortError> {
        let limit = self.data_limit(fill.lease.len());
        loop {
            let file = match self.inputs.get(self.at.input) {
                Some(file) => file,
                None => return Ok(true),
            };
            if self.stream.is_none() {
                if self.separate && !fill.bytes.is_empty() {
                    return Ok(false);
                }
                let fits = fill.bytes.is_empty() || file.size.is_some_and(|size| size < SMALL_FILE_BYTES);
                if !fits && fill.bytes.end % PAGE_BYTES != 0 {
                    return Ok(false);
                }
                self.at.offset = self.at.offset.max(file.start);
                self.stream = Some(file.open(&self.disk, self.at.offset)?);
            }
            let room = limit.min(fill.lease.len() - 1).saturating_sub(fill.bytes.end);
            let room = if room >= 2 * PAGE_BYTES { room / PAGE_BYTES * PAGE_BYTES } else { room };
            if room == 0 {
                self.cut(fill)?;
                return Ok(false);
            }
            let ended = self.read(fill, room)?;
            self.cut(fill)?;
            if !ended {
                return Ok(false);
            }
            if !self.end_input(fill)? {
                return Ok(false);
            }
            if fill.bytes.end >= limit {
                return Ok(self.inputs.get(self.at.input).is_none());
            }
        }
    }

    /// Reads up to `room` bytes behind what is there; true if the input has ended.
    fn read(&mut self, fill: &mut Fill, room: usize) -> Result<bool, SortError> {
        let may_be_silent = self.inputs.get(self.at.input).is_some_and(|input| input.size.is_none());
        let Some(stream) = &mut self.stream else { return Ok(true) };
        let since = Instant::now();
        let Some(mut front) = fill.lease.lend() else { return Err(SortError::Internal("a piece without memory")) };
        let mut area = front.split_off(fill.bytes.end);
        let rest = area.split_off(room);
        stream.begin(area)?;
        // A pipe may stay silent for long; a file answers soon.
        while may_be_silent && !stream.ready() {
            self.cancel.check()?;
            std::thread::sleep(PIPE_POLL);
        }
        let Filled { buf, start, end } = stream.complete()?;
        self.waited_device += since.elapsed();
        let mut joined = front;
        if joined.unsplit(buf).and_then(|()| joined.unsplit(rest)).is_err() {
            return Err(SortError::Internal("a buffer came back from elsewhere"));
        }
        fill.lease.put(joined);
        if start > 0 {
            // Only at an unaligned start, where nothing has been read before.
            fill.bytes.start += start;
            fill.cut = fill.bytes.start;
            fill.bytes.end = fill.bytes.start;
        }
        fill.bytes.end += end - start;
        self.at.offset += (end - start) as u64;
        Ok(start + (end - start) < room)
    }

    /// Cuts what whole records there are, as long as their order fits.
    fn cut(&mut self, fill: &mut Fill) -> Result<(), SortError> {
        let order = self.records.order_bytes();
        let behind = fill.lease.len() - fill.bytes.end.next_multiple_of(4).min(fill.lease.len());
        let most = behind.checked_div(order).unwrap_or(usize::MAX).saturating_sub(fill.records);
        let cut = self.records.cut(&fill.lease.bytes()[fill.cut..fill.bytes.end], most);
        fill.cut += cut.bytes;
        fill.records += cut.records;
        self.record_number += cut.records as u64;
        Ok(())
    }

    /// The input has ended: completes its last record, goes on to the next input. False where the
    /// order of the last records did not fit: they are left for a piece of their own.
    fn end_input(&mut self, fill: &mut Fill) -> Result<bool, SortError> {
        let left = fill.bytes.end - fill.cut;
        if left > 0 {
            if self.records.cut(&fill.lease.bytes()[fill.cut..fill.bytes.end], 1).records > 0 {
                return Ok(false);
            }
            let Some(byte) = self.records.completion() else { return Err(self.cut_short(left)) };
            fill.lease.bytes_mut()[fill.bytes.end] = byte;
            if self.records.cut(&fill.lease.bytes()[fill.cut..=fill.bytes.end], 1).records == 0 {
                return Err(self.cut_short(left));
            }
            let before = fill.cut;
            fill.bytes.end += 1;
            self.cut(fill)?;
            if fill.cut == before {
                fill.bytes.end -= 1;
                return Ok(false);
            }
        }
        self.stream = None;
        self.at = InputPosition { input: self.at.input + 1, offset: 0 };
        self.record_number = 0;
        Ok(true)
    }

    fn cut_short(&self, left: usize) -> SortError {
        let input = self.inputs.get(self.at.input).map_or_else(String::new, InputFile::name);
        SortError::CutShort {
            input,
            record: self.record_number + 1,
            offset: self.at.offset - left as u64,
            have: left as u64,
        }
    }

    /// A record does not fit the buffer: doubles it.
    fn grow(&mut self, fill: &Fill, starving: &dyn Fn()) -> Result<Fill, SortError> {
        starving();
        let held = fill.bytes.len();
        let mut lease = self.pieces.take_large(2 * fill.lease.len()).map_err(|_| SortError::TooLong {
            input: self.inputs.get(self.at.input).map_or_else(String::new, InputFile::name),
            offset: self.at.offset - held as u64,
            have: held as u64,
            least: 8 * held as u64,
        })?;
        let start = held.next_multiple_of(PAGE_BYTES) - held;
        lease.bytes_mut()[start..start + held].copy_from_slice(&fill.lease.bytes()[fill.bytes.clone()]);
        Ok(Fill { lease, bytes: start..start + held, cut: start, records: 0 })
    }

    /// Takes the whole records off as a piece, carries the rest.
    fn deliver(&mut self, fill: Fill, starving: &dyn Fn()) -> Result<PlacedPiece, SortError> {
        let rest = fill.cut..fill.bytes.end;
        let bytes = fill.bytes.start..fill.cut;
        let ends_input = rest.is_empty() && self.stream.is_none();
        let input = self.at.input - usize::from(ends_input && self.at.input > 0);
        self.mean_bytes = bytes.len() as f64 / fill.records as f64;
        let end = InputPosition { input: self.at.input, offset: self.at.offset.saturating_sub(rest.len() as u64) };
        let left = &fill.lease.bytes()[rest];
        self.carried = if left.len() <= SMALL_CARRY_BYTES {
            Carried::Small(left.to_vec())
        } else {
            let mut lease = self.lease(starving);
            if lease.len() < left.len() + PAGE_BYTES {
                drop(lease);
                lease = self.pieces.take_large(left.len() + PAGE_BYTES)?;
            }
            let start = left.len().next_multiple_of(PAGE_BYTES) - left.len();
            lease.bytes_mut()[start..start + left.len()].copy_from_slice(left);
            Carried::Large(lease, start..start + left.len())
        };
        let piece = RawPiece { lease: fill.lease, bytes, spilled: self.spilled };
        Ok(PlacedPiece { piece, end, records: fill.records, input, ends_input })
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
}

impl Fill {
    /// Places carried bytes so that what is read behind them is page-aligned.
    fn start(mut lease: Lease, carried: &[u8]) -> Fill {
        let start = carried.len().next_multiple_of(PAGE_BYTES) - carried.len();
        let bytes = start..start + carried.len();
        lease.bytes_mut()[bytes.clone()].copy_from_slice(carried);
        Fill { lease, cut: bytes.start, bytes, records: 0 }
    }
}
