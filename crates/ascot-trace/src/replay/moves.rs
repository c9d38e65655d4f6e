//! Requests as whole blocks of the volume.
//!
//! A request is rounded outward to blocks. If it begins where an earlier request of its file ended, in the same
//! direction, it continues the scan of that request, whichever process made it: the block that both share was moved
//! with the earlier one, and is not moved again. So each of several scans of one file, in small or odd requests, moves
//! every block once.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::layout::Layout;
use crate::blocks::blocks;
use crate::error::Result;
use crate::event::Kind;
use crate::format::TraceReader;

/// A request to the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Whether it writes.
    pub writes: bool,
    /// The first byte on the volume.
    pub offset: u64,
    /// Bytes, a multiple of the block.
    pub bytes: u64,
    /// The time of the recorded request.
    pub time_ns: u64,
}

/// What rounding does to the requests of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rounding {
    /// Requests of the trace that move bytes.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests to the volume. Those within blocks that were moved already need none; those to files in several
    /// pieces may need several.
    pub volume_requests: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they write.
    pub written_bytes: u64,
}

/// Scans that are remembered: those that were not continued for longest are forgotten first.
const MAX_SCANS: usize = 1 << 18;

/// Where a scan stands: its file, whether it writes, and the byte after its last request.
type ScanPosition = (u32, bool, u64);

/// The scans that may go on. Two that stand at the same byte are two.
#[derive(Default)]
struct Scans {
    /// The numbers of the last requests of the scans at a position, the latest last.
    by_position: HashMap<ScanPosition, Vec<u64>>,
    by_age: BTreeMap<u64, ScanPosition>,
    requests: u64,
}

impl Scans {
    /// A request goes on from `from` to `to`; whether it continues a scan.
    fn goes_on(&mut self, from: ScanPosition, to: ScanPosition) -> bool {
        let continued = self.by_position.get_mut(&from).and_then(Vec::pop);
        if let Some(request) = continued {
            self.by_age.remove(&request);
        }
        if self.by_position.get(&from).is_some_and(Vec::is_empty) {
            self.by_position.remove(&from);
        }
        self.requests += 1;
        self.by_position.entry(to).or_default().push(self.requests);
        self.by_age.insert(self.requests, to);
        if self.by_age.len() > MAX_SCANS
            && let Some((request, position)) = self.by_age.pop_first()
            && let Some(requests) = self.by_position.get_mut(&position)
        {
            requests.retain(|other| *other != request);
            if requests.is_empty() {
                self.by_position.remove(&position);
            }
        }
        continued.is_some()
    }
}

/// Calls `each` with every request to the volume: several for one of the trace if its file lies in pieces there, and
/// none if all of its blocks were moved already.
pub fn for_each_move(
    trace: &TraceReader,
    layout: &Layout,
    mut each: impl FnMut(Move) -> Result<()>,
) -> Result<Rounding> {
    let mut places = layout.places();
    let mut scans = Scans::default();
    let mut rounding = Rounding::default();
    for event in trace.events() {
        let event = event?;
        places.apply(&event);
        if !event.moves() {
            continue;
        }
        rounding.requests += 1;
        rounding.bytes += event.size;
        let writes = event.kind == Kind::Write;
        let (mut low, high) = blocks(event.offset, event.end());
        if scans.goes_on((event.file, writes, event.offset), (event.file, writes, event.end())) {
            (_, low) = blocks(low, event.offset);
        }
        places.for_each_piece(event.file, low, high, |offset, bytes| {
            rounding.volume_requests += 1;
            let moved = if writes { &mut rounding.written_bytes } else { &mut rounding.read_bytes };
            *moved += bytes;
            each(Move { writes, offset, bytes, time_ns: event.time_ns })
        })?;
    }
    Ok(rounding)
}
