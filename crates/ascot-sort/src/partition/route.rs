//! Reading, and grouping records by part on several threads, pieces staying in input order.
//!
//! ```text
//!   inputs ─▶ pieces ─▶ splitting threads: records grouped by part ─▶ dealt out (dealing.rs), in input order
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_io::threads;
use ascot_io::waits::{Need, receive};
use ascot_model::account::StageAccount;
use ascot_record::checksum::RecordSum;
use ascot_record::keys::misfits_written;
use crossbeam_channel::{Receiver, Sender, unbounded};
use xxhash_rust::xxh3::xxh3_64;

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::read::inputs::InputPosition;
use crate::read::record_reader::{PieceReader, PlacedPiece};
use crate::records::misfits::{Misfits, PieceMisfits};
use crate::records::{Records, Splitters, groups_of};
use crate::report::account::stage;
use crate::resources::pieces::{Lease, PiecePool};
use crate::resources::threads::Alarm;
use crate::resources::turns::{Seat, Side, Turns};

/// Bytes of a piece being split: two of them fit a second-level cache.
pub const SPLIT_PIECE_BYTES: usize = 1 << 20;

/// Says which part a record belongs to.
#[derive(Clone, Copy)]
pub enum Router<'a> {
    /// By ranges of keys.
    Ranges(&'a Splitters),
    /// By the XXH3 hash of the normalised key, scaled to so many parts.
    Hash(u32),
}

impl Router<'_> {
    /// Copies whole records to `out`, grouped by part, each group in input order. Gives the parts that
    /// got any, and where they are.
    fn group<R: Records>(
        self,
        records: &R,
        bytes: &[u8],
        out: &mut [u8],
        scratch: &mut R::Scratch,
    ) -> Vec<(usize, Range<usize>)> {
        match self {
            Router::Ranges(splitters) => records.group(bytes, splitters, out, scratch),
            Router::Hash(parts) => {
                // Hashed twice rather than remembered: records may be as short as their ends.
                let mut sizes = vec![0; parts as usize];
                records.each_key(bytes, &mut |range, key| {
                    sizes[part_of_hash(key, parts) as usize] += range.len();
                });
                let (mut places, groups) = groups_of(&sizes);
                records.each_key(bytes, &mut |range, key| {
                    let place = &mut places[part_of_hash(key, parts) as usize];
                    out[*place..*place + range.len()].copy_from_slice(&bytes[range.clone()]);
                    *place += range.len();
                });
                groups
            }
        }
    }

    /// The part of one record.
    fn part_of<R: Records>(self, records: &R, record: &[u8]) -> usize {
        match self {
            Router::Ranges(splitters) => records.part_of(record, splitters),
            Router::Hash(parts) => {
                let mut part = 0;
                records.each_key(record, &mut |_, key| part = part_of_hash(key, parts));
                part as usize
            }
        }
    }
}

/// The upper bits of a hash spread keys evenly over any number of parts.
fn part_of_hash(key: &[u8], parts: u32) -> u32 {
    ((u128::from(xxh3_64(key)) * u128::from(parts)) >> 64) as u32
}

/// A piece whose records are grouped by part, each group in input order.
pub struct Grouped {
    /// Its memory.
    pub lease: Lease,
    /// Parts, and where in the memory their records are.
    pub groups: Vec<(usize, Range<usize>)>,
    /// Sum of its records.
    pub sum: RecordSum,
    /// Values of these records that are not of their column's type.
    pub misfits: Misfits,
    /// Place in the inputs after it.
    pub end: InputPosition,
}

/// Time the stages of the splitting pass spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct SplitTimes {
    /// Reader waiting for the device.
    pub device: Duration,
    /// Reader waiting for memory.
    pub memory: Duration,
    /// Splitting threads at work.
    pub busy: Duration,
    /// Whoever takes the pieces waiting for one.
    pub data: Duration,
    /// The same waiting for room to put it.
    pub room: Duration,
    /// The same at work.
    pub dealing: Duration,
}

/// A piece, its number, and the buffer its records are grouped in; a long record needs none.
type Work = (u64, PlacedPiece, Option<Lease>);

enum Message {
    Grouped(u64, Grouped, Duration),
    /// A splitting thread has died.
    Died,
    Read(Result<u64, SortError>, Duration, Duration),
}

/// Reads and groups everything `reader` gives; `take` gets the pieces, and says how long it waited for room.
pub fn split_pieces<R: Records>(
    records: &Arc<R>,
    mut reader: PieceReader<R>,
    pieces: &PiecePool,
    router: Router<'_>,
    threads: usize,
    cancel: &Cancel,
    take: impl FnOnce(&mut InOrder<'_>) -> Result<Duration, SortError>,
) -> Result<SplitTimes, SortError> {
    threads::scope(|scope| {
        let (send, receive) = unbounded();
        let (to_split, work) = unbounded::<Work>();
        let (from_reader, spare) = (send.clone(), pieces.clone());
        let stop = cancel.clone();
        let turns = reader.turns().cloned();
        let read = move || {
            let mut number = 0;
            let seat = reader.seat();
            let starving = || seat.give_back();
            let result = loop {
                if stop.is_cancelled() {
                    break Err(SortError::Cancelled);
                }
                match reader.next(&starving) {
                    Ok(Some(piece)) => {
                        // The second buffer is taken here, so that splitting never waits for one.
                        let room = match (!piece.long).then(|| spare.take_for(&starving)) {
                            Some(Err(error)) => break Err(error.into()),
                            Some(Ok(room)) => Some(room),
                            None => None,
                        };
                        if to_split.send((number, piece, room)).is_err() {
                            break Ok(number);
                        }
                        number += 1;
                    }
                    Ok(None) => break Ok(number),
                    Err(error) => break Err(error),
                }
            };
            seat.give_back();
            // Nobody listens any more only when the pass has ended.
            let _ = from_reader.send(Message::Read(result, reader.waited_device, reader.waited_memory));
        };
        scope.spawn("read", read)?;
        threads::start_some(threads, |number| {
            let (work, send) = (work.clone(), send.clone());
            scope.spawn(&format!("split {number}"), move || {
                let _alarm = Alarm::new(&send, || Message::Died);
                group_all(&**records, router, &work, &send);
            })
        })?;
        drop((send, work));
        let since = Instant::now();
        let mut pieces = InOrder::new(&receive, turns.as_ref(), cancel);
        let room = take(&mut pieces)?;
        let mut times = SplitTimes { room, ..pieces.times };
        times.dealing = since.elapsed().saturating_sub(times.room + times.data);
        Ok(times)
    })
}

/// Grouped pieces, in input order.
pub struct InOrder<'a> {
    receive: &'a Receiver<Message>,
    turns: Option<&'a Arc<Turns>>,
    cancel: &'a Cancel,
    waiting: BTreeMap<u64, Grouped>,
    next: u64,
    /// How many there are in all, once that is known.
    total: Option<u64>,
    times: SplitTimes,
}

impl<'a> InOrder<'a> {
    fn new(receive: &'a Receiver<Message>, turns: Option<&'a Arc<Turns>>, cancel: &'a Cancel) -> Self {
        let (waiting, times) = (BTreeMap::new(), SplitTimes::default());
        InOrder { receive, turns, cancel, waiting, next: 0, total: None, times }
    }

    /// The seat of whoever writes the pieces while others are read.
    pub fn writer(&self) -> Seat {
        Seat::new(self.turns, Side::Writer)
    }

    /// The next piece, waited for; none after the last.
    pub fn next(&mut self) -> Result<Option<Grouped>, SortError> {
        let since = Instant::now();
        let result = self.wait();
        self.times.data += since.elapsed();
        result
    }

    fn wait(&mut self) -> Result<Option<Grouped>, SortError> {
        loop {
            self.cancel.check()?;
            if let Some(grouped) = self.waiting.remove(&self.next) {
                self.next += 1;
                return Ok(Some(grouped));
            }
            if self.total == Some(self.next) {
                return Ok(None);
            }
            let ended = || SortError::Internal("a splitting thread ended early");
            match receive(self.receive, "grouped pieces", Need::Blocked).map_err(|_| ended())? {
                Message::Died => return Err(ended()),
                Message::Grouped(number, grouped, busy) => {
                    self.times.busy += busy;
                    self.waiting.insert(number, grouped);
                }
                Message::Read(result, device, memory) => {
                    self.total = Some(result?);
                    (self.times.device, self.times.memory) = (device, memory);
                }
            }
        }
    }
}

fn group_all<R: Records>(records: &R, router: Router<'_>, work: &Receiver<Work>, send: &Sender<Message>) {
    let mut scratch = records.scratch(SPLIT_PIECE_BYTES);
    while let Ok((number, mut placed, mut room)) = receive(work, "pieces to split", Need::Idle) {
        let since = Instant::now();
        let range = placed.piece.bytes.clone();
        let mut sum = RecordSum::new();
        let bytes = &mut placed.piece.lease.bytes_mut()[range.clone()];
        records.normalise(bytes);
        records.sum(bytes, &mut sum);
        // Every record's key is written, as it says where the record goes.
        let before = misfits_written();
        let groups = match &mut room {
            Some(room) => router.group(records, bytes, room.bytes_mut(), &mut scratch),
            None => vec![(router.part_of(records, bytes), range)],
        };
        let met = before != misfits_written() && !placed.piece.spilled;
        let misfits = if met { records.misfits(bytes) } else { PieceMisfits::default() };
        let misfits = misfits.placed(&placed.starts);
        let lease = room.unwrap_or(placed.piece.lease);
        let grouped = Grouped { lease, groups, sum, misfits, end: placed.end };
        if send.send(Message::Grouped(number, grouped, since.elapsed())).is_err() {
            return;
        }
    }
}

/// The stages of a splitting pass, for its account.
pub fn split_stages(times: &SplitTimes, threads: usize) -> Vec<StageAccount> {
    let none = Duration::ZERO;
    vec![
        stage("read", 1, none, none, times.memory, times.device),
        stage("split", threads, times.busy, none, none, none),
        stage("write", 1, times.dealing, times.data, none, times.room),
    ]
}
