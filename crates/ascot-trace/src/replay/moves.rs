//! Requests as whole blocks of the volume.
//!
//! A request is rounded outward to blocks. If it continues the last request of its file in the same direction, the
//! block that both share was moved with the first of them, and is not moved again: a scan in small or odd requests
//! moves every block once.

use std::collections::HashMap;

use serde::Serialize;

use super::layout::{Layout, blocks};
use crate::error::TraceError;
use crate::event::{Event, Kind};
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
    /// Requests to the volume: those without which lie within blocks that were moved already.
    pub volume_requests: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they write.
    pub written_bytes: u64,
}

/// The end of the last request of a file.
#[derive(Clone, Copy)]
struct Last {
    kind: Kind,
    end: u64,
    high: u64,
}

/// Rounds the requests of a trace, one after the other.
struct Rounder<'a> {
    layout: &'a Layout,
    last: HashMap<u32, Last>,
    rounding: Rounding,
}

impl Rounder<'_> {
    /// The request to the volume; none if all of its blocks were moved already, or it moves nothing.
    fn next(&mut self, event: &Event) -> Option<Move> {
        if !event.moves() {
            return None;
        }
        self.rounding.requests += 1;
        self.rounding.bytes += event.size;
        let (mut low, high) = blocks(event.offset, event.end());
        let last = self.last.get(&event.file);
        if let Some(last) = last.filter(|last| last.kind == event.kind && last.end == event.offset) {
            low = low.max(last.high);
        }
        self.last.insert(event.file, Last { kind: event.kind, end: event.end(), high });
        let bytes = high.checked_sub(low).filter(|bytes| *bytes > 0)?;
        let offset = self.layout.volume_offset(event, low)?;
        self.rounding.volume_requests += 1;
        let writes = event.kind == Kind::Write;
        let moved = if writes { &mut self.rounding.written_bytes } else { &mut self.rounding.read_bytes };
        *moved += bytes;
        Some(Move { writes, offset, bytes, time_ns: event.time_ns })
    }
}

/// Calls `each` with every request to the volume.
pub fn for_each_move(
    trace: &TraceReader,
    layout: &Layout,
    mut each: impl FnMut(Move) -> Result<(), TraceError>,
) -> Result<Rounding, TraceError> {
    let mut rounder = Rounder { layout, last: HashMap::new(), rounding: Rounding::default() };
    for event in trace.events() {
        if let Some(next) = rounder.next(&event?) {
            each(next)?;
        }
    }
    Ok(rounder.rounding)
}
