//! The extent of every file on the volume.
//!
//! A file takes the range of bytes that its requests reach, in whole blocks, from its first request until it is
//! deleted; then other files may take its space. Invariants: a file is contiguous; two files that live at the same
//! time do not overlap; every extent begins at a multiple of [`BLOCK_BYTES`].

use std::collections::BTreeMap;

use crate::error::TraceError;
use crate::event::{Event, Kind};
use crate::format::TraceReader;

/// The unit of direct access.
pub const BLOCK_BYTES: u64 = 4096;

/// The extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// Its first byte on the volume.
    start: u64,
    /// The offset in the file that lies there.
    low: u64,
}

/// The extents of all files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    extents: Vec<Option<Extent>>,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Bytes of the files that live at the same time, at most; gaps between files can make the volume larger.
    pub live_bytes: u64,
    /// The number of files.
    pub files: u64,
}

/// The range of a file that requests reach.
#[derive(Clone, Copy)]
struct Reach {
    low: u64,
    high: u64,
}

impl Layout {
    /// Finds the extents for a trace.
    pub fn new(trace: &TraceReader) -> Result<Layout, TraceError> {
        let mut reaches: Vec<Option<Reach>> = vec![None; trace.files().len()];
        for event in trace.events() {
            let event = event?;
            if let Some(reach) = reaches.get_mut(event.file as usize).filter(|_| event.moves()) {
                let (low, high) = blocks(event.offset, event.end());
                let old = reach.unwrap_or(Reach { low, high });
                *reach = Some(Reach { low: old.low.min(low), high: old.high.max(high) });
            }
        }
        let mut space = Space::default();
        let mut layout =
            Layout { extents: vec![None; reaches.len()], volume_bytes: 0, live_bytes: 0, files: 0 };
        let mut live_bytes = 0_u64;
        for event in trace.events() {
            let event = event?;
            let file = event.file as usize;
            let Some(reach) = reaches.get(file).copied().flatten() else { continue };
            let bytes = reach.high - reach.low;
            let Some(extent) = layout.extents.get_mut(file) else { continue };
            if event.moves() && extent.is_none() {
                *extent = Some(Extent { start: space.take(bytes), low: reach.low });
                live_bytes = live_bytes.saturating_add(bytes);
                layout.live_bytes = layout.live_bytes.max(live_bytes);
                layout.files += 1;
            } else if event.kind == Kind::Delete
                && let Some(extent) = extent
            {
                space.give_back(extent.start, bytes);
                live_bytes = live_bytes.saturating_sub(bytes);
            }
        }
        layout.volume_bytes = space.end;
        Ok(layout)
    }

    /// The byte of the volume that is the byte of a request's file at `offset`.
    pub fn volume_offset(&self, event: &Event, offset: u64) -> Option<u64> {
        let extent = self.extents.get(event.file as usize).copied().flatten()?;
        extent.start.checked_add(offset.checked_sub(extent.low)?)
    }
}

/// A range rounded outward to whole blocks.
pub fn blocks(offset: u64, end: u64) -> (u64, u64) {
    let high = end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX - u64::MAX % BLOCK_BYTES);
    (offset / BLOCK_BYTES * BLOCK_BYTES, high)
}

/// Free ranges below `end`; everything from there on is free.
#[derive(Default)]
struct Space {
    free: BTreeMap<u64, u64>,
    end: u64,
}

impl Space {
    /// Takes the first free range that is long enough.
    fn take(&mut self, bytes: u64) -> u64 {
        let found =
            self.free.iter().find(|(_, length)| **length >= bytes).map(|(start, length)| (*start, *length));
        if let Some((start, length)) = found {
            self.free.remove(&start);
            if length > bytes {
                self.free.insert(start + bytes, length - bytes);
            }
            return start;
        }
        // The last range grows if it touches the end.
        let last = self.free.last_key_value().map(|(start, length)| (*start, *length));
        let start = match last.filter(|(start, length)| start + length == self.end) {
            Some((start, _)) => {
                self.free.remove(&start);
                start
            }
            None => self.end,
        };
        self.end = start.saturating_add(bytes);
        start
    }

    fn give_back(&mut self, start: u64, bytes: u64) {
        let mut range = (start, bytes);
        if let Some((before, length)) =
            self.free.range(..start).next_back().map(|(at, length)| (*at, *length))
            && before + length == start
        {
            self.free.remove(&before);
            range = (before, length + bytes);
        }
        if let Some(length) = self.free.remove(&(start + bytes)) {
            range.1 += length;
        }
        self.free.insert(range.0, range.1);
    }
}
