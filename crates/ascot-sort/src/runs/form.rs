//! Reading and sorting: the first half of every pass that sorts in memory.
//!
//! ```text
//!   reader ─▶ pieces ─▶ sorting threads ─▶ sorted pieces ─▶ collector ─▶ loads
//!     ▲                                                          │
//!     ╰───────── buffers, when a load has been written ◀─────────╯
//! ```
//!
//! While the caller writes one load, the next is read and sorted. A load is half of the pieces,
//! or all of them where the input is known, or still hoped, to fit in memory.
//!
//! Where the device is used by one side at a time ([`crate::resources::turns`]), the reader has it until it waits for
//! memory, and the caller for a load.
//!
//! Invariant: only the reader waits for memory. It takes the buffer a piece is gathered to before it
//! hands the piece on, so that all it has handed on gets sorted and can be given back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ascot_io::threads;
use ascot_io::waits::{self, Need, receive};
use ascot_record::checksum::RecordSum;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::read::inputs::InputPosition;
use crate::read::inputs::Span;
use crate::read::record_reader::{PieceReader, PlacedPiece};
use crate::records::misfits::{Misfits, PieceMisfits};
use crate::records::{RawPiece, Records, Segment, Sorted, Splitters};
use crate::resources::pieces::{Lease, PiecePool};
use crate::resources::threads::Alarm;
use crate::resources::turns::{Seat, Side};

/// Sorted pieces that follow one another in the input.
pub struct Load {
    /// Each piece a source of its own, in input order.
    pub sources: Vec<Vec<Segment>>,
    /// Where the records of each source lie in a file, if that is known.
    pub spans: Vec<Option<Span>>,
    /// Records in it.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of its records; nothing where they come from spills, which were summed up before.
    pub sum: RecordSum,
    /// Values of these records that are not of their column's type.
    pub misfits: Misfits,
    /// Place in the inputs after its last record.
    pub end: InputPosition,
    /// Number of the input its last record comes from.
    pub input: usize,
    /// No more input follows.
    pub last: bool,
}

/// Time the stages of a pass spent, summed over threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct FormTimes {
    /// Reader waiting for the device.
    pub read_device: Duration,
    /// Reader waiting for memory.
    pub read_memory: Duration,
    /// Sorting threads at work.
    pub sort_busy: Duration,
    /// Collector waiting for sorted pieces.
    pub collect_waited: Duration,
}

/// The memory of a pass that sorts.
pub struct SortMemory {
    /// Buffers, of pieces being read and of sorted ones.
    pub pieces: PiecePool,
    /// Sorted pieces that make a load.
    pub load_pieces: usize,
}

/// What the pieces of an input are grouped by instead of being sorted.
pub type Grouping<'a> = &'a (dyn Fn(usize) -> Option<Arc<Splitters>> + Sync);

/// How much is gathered before it is handed on.
#[derive(Clone, Copy)]
pub enum Gather<'a> {
    /// Half of the memory at a time: the input does not fit.
    Halves,
    /// Everything, as long as it fits.
    AllThatFits,
    /// One input at a time: parts that fit.
    ByInput(Option<Grouping<'a>>),
}

/// What is said where pieces will never be sorted.
const ENDED_EARLY: &str = "a sorting thread ended early";

/// Pieces on their way to the sorting threads: each has its two buffers.
const QUEUED_PIECES: usize = 1;

enum Message {
    /// The reader waits for memory.
    Starved,
    /// A sorting thread has died.
    Died,
    Sorted(u64, SortedPiece),
    Read(Result<(u64, Duration, Duration), SortError>),
}

/// Reads and sorts everything `reader` gives; `take` gets the loads, in input order.
pub fn sort_loads<R: Records>(
    records: &Arc<R>,
    reader: PieceReader<R>,
    memory: &SortMemory,
    threads: usize,
    gather: Gather<'_>,
    cancel: &Cancel,
    take: &mut dyn FnMut(Load) -> Result<(), SortError>,
) -> Result<FormTimes, SortError> {
    let handed_on = AtomicU64::new(0);
    let grouping = if let Gather::ByInput(grouping) = gather { grouping } else { None };
    let turns = reader.turns().cloned();
    let copies = records.gathers() || grouping.is_some();
    threads::scope(|scope| {
        let (send, receive) = unbounded();
        let (to_sort, work) = bounded(QUEUED_PIECES);
        let from_reader = send.clone();
        let cancel_reader = cancel.clone();
        let (buffers, counter) = (copies.then_some(&memory.pieces), &handed_on);
        scope.spawn("read", move || {
            read_all(reader, buffers, counter, &to_sort, &from_reader, &cancel_reader);
        })?;
        let sorters = threads::start_some(threads, |number| {
            let (work, send) = (work.clone(), send.clone());
            scope.spawn(&format!("sort {number}"), move || {
                let _alarm = Alarm::new(&send, || Message::Died);
                sort_all(&**records, &memory.pieces, grouping, &work, &send)
            })
        })?;
        drop((send, work));
        let mut collector = Collector::new(records, memory, gather, &handed_on);
        let result = collector.collect(&receive, cancel, &mut |load| {
            let seat = Seat::new(turns.as_ref(), Side::Writer);
            seat.take();
            take(load)
        });
        let mut times = collector.times;
        // Let go of memory and channels, so that threads waiting for them end.
        drop((collector, receive));
        times.sort_busy = sorters.into_iter().filter_map(|thread| thread.join().ok()).sum();
        result.map(|()| times)
    })
}

/// A piece, its number, and the buffer it is gathered to.
type Work = (u64, PlacedPiece, Option<Lease>);

fn read_all<R: Records>(
    mut reader: PieceReader<R>,
    buffers: Option<&PiecePool>,
    handed_on: &AtomicU64,
    to_sort: &Sender<Work>,
    send: &Sender<Message>,
    cancel: &Cancel,
) {
    let seat = reader.seat();
    let starving = || {
        seat.give_back();
        // Nobody listens any more only when the pass has ended.
        let _ = send.send(Message::Starved);
    };
    let result = loop {
        if cancel.is_cancelled() {
            break Err(SortError::Cancelled);
        }
        match reader.next(&starving) {
            Ok(Some(piece)) => {
                let number = handed_on.load(Relaxed);
                let out = match buffers.filter(|_| !piece.long).map(|buffers| buffers.take_for(&starving)) {
                    Some(Err(error)) => break Err(error.into()),
                    Some(Ok(out)) => Some(out),
                    None => None,
                };
                if to_sort.send((number, piece, out)).is_err() {
                    break Ok(number);
                }
                handed_on.store(number + 1, Relaxed);
            }
            Ok(None) => break Ok(handed_on.load(Relaxed)),
            Err(error) => break Err(error),
        }
    };
    seat.give_back();
    let times = (reader.waited_device, reader.waited_memory);
    let _ = send.send(Message::Read(result.map(|number| (number, times.0, times.1))));
}

fn sort_all<R: Records>(
    records: &R,
    pieces: &PiecePool,
    grouping: Option<Grouping<'_>>,
    work: &Receiver<Work>,
    send: &Sender<Message>,
) -> Duration {
    let mut scratch = records.scratch(pieces.piece_bytes());
    let mut busy = Duration::ZERO;
    while let Ok((number, mut placed, out)) = receive(work, "pieces to sort", Need::Idle) {
        let since = Instant::now();
        placed.piece.grouping = grouping.and_then(|bounds| bounds(placed.input));
        let sorted = sort_one(records, placed, out, &mut scratch);
        busy += since.elapsed();
        if send.send(Message::Sorted(number, sorted)).is_err() {
            break;
        }
    }
    busy
}

fn sort_one<R: Records>(
    records: &R,
    placed: PlacedPiece,
    out: Option<Lease>,
    scratch: &mut R::Scratch,
) -> SortedPiece {
    let mut sum = RecordSum::new();
    let (count, bytes, span) = (placed.records as u64, placed.piece.bytes.len() as u64, placed.span);
    let (parts, misfits) = if placed.long {
        let spilled = placed.piece.spilled;
        let sorted = long_record(records, placed.piece, &mut sum);
        let misfits = if spilled { PieceMisfits::default() } else { records.misfits(sorted.record_bytes()) };
        (vec![Arc::new(sorted)], misfits)
    } else {
        let parts = records.sort(placed.piece, out, scratch, &mut sum);
        (parts, records.take_misfits(scratch))
    };
    SortedPiece {
        parts,
        sum,
        misfits: misfits.placed(&placed.starts),
        records: count,
        bytes,
        end: placed.end,
        input: placed.input,
        ends_input: placed.ends_input,
        span,
    }
}

/// A piece of one record.
fn long_record<R: Records>(records: &R, piece: RawPiece, sum: &mut RecordSum) -> Sorted {
    let RawPiece { mut lease, bytes, spilled, .. } = piece;
    if !spilled {
        let record = &mut lease.bytes_mut()[bytes.clone()];
        records.normalise(record);
        records.sum(record, sum);
    }
    records.index(lease, bytes)
}

struct SortedPiece {
    parts: Vec<Arc<Sorted>>,
    sum: RecordSum,
    misfits: Misfits,
    records: u64,
    bytes: u64,
    end: InputPosition,
    input: usize,
    ends_input: bool,
    span: Option<Span>,
}

struct Collector<'a, R> {
    records: &'a Arc<R>,
    memory: &'a SortMemory,
    gather: Gather<'a>,
    /// Sorted pieces not yet handed on, by number.
    waiting: BTreeMap<u64, SortedPiece>,
    /// Number of the first piece not yet handed on.
    next: u64,
    /// How many pieces there are, once known.
    total: Option<u64>,
    /// Pieces that the reader has handed on.
    handed_on: &'a AtomicU64,
    times: FormTimes,
}

impl<'a, R: Records> Collector<'a, R> {
    fn new(
        records: &'a Arc<R>,
        memory: &'a SortMemory,
        gather: Gather<'a>,
        handed_on: &'a AtomicU64,
    ) -> Self {
        let times = FormTimes::default();
        Collector {
            records,
            memory,
            gather,
            waiting: BTreeMap::new(),
            next: 0,
            total: None,
            handed_on,
            times,
        }
    }

    fn collect(
        &mut self,
        receive: &Receiver<Message>,
        cancel: &Cancel,
        take: &mut dyn FnMut(Load) -> Result<(), SortError>,
    ) -> Result<(), SortError> {
        loop {
            let since = Instant::now();
            let message = waits::receive(receive, "sorted pieces", Need::Blocked);
            let message = message.map_err(|_| SortError::Internal(ENDED_EARLY))?;
            self.times.collect_waited += since.elapsed();
            cancel.check()?;
            match message {
                Message::Sorted(number, piece) => {
                    self.waiting.insert(number, piece);
                }
                Message::Starved => {}
                Message::Died => return Err(SortError::Internal(ENDED_EARLY)),
                Message::Read(result) => {
                    let (total, device, memory) = result?;
                    self.total = Some(total);
                    self.times.read_device = device;
                    self.times.read_memory = memory;
                }
            }
            while let Some(count) = self.ready()? {
                let load = self.load(count);
                let last = load.last;
                take(load)?;
                if last {
                    return Ok(());
                }
            }
        }
    }

    /// How many pieces make a load now, if any do.
    fn ready(&mut self) -> Result<Option<u64>, SortError> {
        let in_order = (self.next..).take_while(|number| self.waiting.contains_key(number)).count() as u64;
        // Where all there are have been sorted only handing them on makes room. Asked in this order: what the
        // reader hands on after it has waited is seen.
        let waits = self.memory.pieces.starves();
        let starves = waits && self.handed_on.load(Relaxed) == self.next + in_order;
        if matches!(self.gather, Gather::ByInput(_)) {
            let whole = (self.next..self.next + in_order)
                .position(|number| self.waiting.get(&number).is_some_and(|piece| piece.ends_input));
            let all = self.total == Some(self.next);
            let ready = whole.map(|before| before as u64 + 1).or(all.then_some(0));
            return if starves && ready.is_none() {
                Err(SortError::Internal("a part does not fit in memory"))
            } else {
                Ok(ready)
            };
        }
        if self.total == Some(self.next + in_order) {
            return Ok(Some(in_order));
        }
        if self.total.is_some() {
            // The rest is being sorted: it is gathered into one load.
            return Ok(None);
        }
        let half = self.memory.load_pieces as u64;
        Ok(match self.gather {
            Gather::Halves if in_order >= half => Some(half),
            // The reader waits for memory that nobody will give back.
            _ if in_order == 0 && starves => return Err(self.memory.pieces.too_few().into()),
            _ if in_order > 0 && starves => {
                self.gather = Gather::Halves;
                Some(in_order.min(half))
            }
            _ => None,
        })
    }

    fn load(&mut self, count: u64) -> Load {
        let mut load = Load {
            sources: Vec::new(),
            spans: Vec::new(),
            records: 0,
            bytes: 0,
            sum: RecordSum::new(),
            misfits: Misfits::default(),
            end: InputPosition::default(),
            input: 0,
            last: self.total == Some(self.next + count),
        };
        for number in self.next..self.next + count {
            let Some(piece) = self.waiting.remove(&number) else { continue };
            load.sum.combine(&piece.sum);
            load.misfits.combine(&piece.misfits);
            load.records += piece.records;
            load.bytes += piece.bytes;
            load.end = piece.end;
            load.input = piece.input;
            // Parts of a piece do not lie in order.
            let span = piece.span.filter(|_| piece.parts.len() == 1);
            load.spans.extend(piece.parts.iter().map(|_| span));
            load.sources.extend(piece.parts.into_iter().map(|part| vec![self.records.whole(part)]));
        }
        self.next += count;
        load
    }
}
