//! The place of every block on the volume.
//!
//! A block has its place from the first request that touches it until it is given back ([`crate::blocks`]); then other
//! files may have its space. The volume is as large as the most live data at a time. A file gets a contiguous place
//! for all that its requests will reach, if so much is free; the rest of that place stays reserved. Otherwise it gets
//! pieces, and takes reserved space of others last. Ranges of a file that a hole divides are not side by side in the
//! file, and must not become one run: each takes the block before it as well ([`Extent::apart`]).
//!
//! ```text
//!   file 0  |####======|        # blocks that are there, = reserved for blocks that will be
//!   volume  |####======|#####|..|##|
//!   file 1             |#####|  |##|     . free
//! ```
//!
//! Invariants: blocks that live at the same time do not overlap; every place begins at a multiple of
//! [`BLOCK_BYTES`](crate::blocks::BLOCK_BYTES).

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use serde::Serialize;

use super::space::{Reserved, Space, Taken};
use crate::blocks::{Extent, LiveData, given_back};
use crate::error::Result;
use crate::event::{Event, TracedFile};
use crate::format::TraceReader;
use crate::ranges::RangeSet;

/// What the requests of a trace need on a volume.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The files before their first request.
    extents: Vec<Extent>,
    /// What will ever be there of each file.
    reaches: Vec<RangeSet>,
    /// The volume, and what lies on it.
    pub volume: VolumeUse,
    /// Bytes of live blocks with those that keep ranges apart: what the volume needs.
    space_bytes: u64,
}

/// A volume of a replay, and what lies on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct VolumeUse {
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Bytes of blocks that live at the same time, at most: the figure of the census.
    pub live_bytes: u64,
    /// The number of files.
    pub files: u64,
    /// Contiguous pieces of the volume in which they lie: as many as files if each lies in one.
    pub pieces: u64,
}

impl Layout {
    /// Finds places for a trace.
    pub fn new(trace: &TraceReader) -> Result<Layout> {
        let files: &[TracedFile] = trace.files();
        let extents: Vec<Extent> = files.iter().map(Extent::apart).collect();
        let mut live = LiveData::new(files.iter().map(Extent::of).collect());
        let mut apart = LiveData::new(extents.clone());
        let mut growing = extents.clone();
        let mut reaches = vec![RangeSet::default(); files.len()];
        for event in trace.events() {
            let event = event?;
            live.add(&event);
            apart.add(&event);
            let file = event.file as usize;
            let Some((extent, reach)) = growing.get_mut(file).zip(reaches.get_mut(file)) else { continue };
            if event.moves() {
                extent.touch(&event, |low, high| reach.insert(low, high, |_, _| ()));
            } else if let Some((low, high)) = given_back(&event) {
                extent.give_back(low, high, |_, _| ());
            }
        }
        let volume = VolumeUse { live_bytes: live.peak_bytes, ..VolumeUse::default() };
        let mut layout = Layout { extents, reaches, volume, space_bytes: apart.peak_bytes };
        let mut places = layout.places();
        for event in trace.events() {
            places.apply(&event?);
        }
        let volume_bytes = places.space.end;
        let files = places.files_placed;
        let pieces = places.pieces_placed;
        layout.volume = VolumeUse { volume_bytes, files, pieces, ..volume };
        Ok(layout)
    }

    /// The places before the first event.
    pub fn places(&self) -> Places<'_> {
        Places {
            layout: self,
            files: self
                .extents
                .iter()
                .map(|extent| PlacedFile { extent: extent.clone(), ..PlacedFile::default() })
                .collect(),
            space: Space::new(self.space_bytes),
            arrived: Vec::new(),
            files_placed: 0,
            pieces_placed: 0,
        }
    }
}

/// A range of a file with its place.
#[derive(Clone, Copy, Debug)]
struct PlacedRange {
    /// Its first byte on the volume.
    start: u64,
    bytes: u64,
    /// Whether the blocks are there; otherwise the place is reserved.
    there: bool,
}

/// The pieces of a file by their offset in it.
#[derive(Default)]
struct PlacedFile {
    extent: Extent,
    pieces: BTreeMap<u64, PlacedRange>,
    placed: bool,
}

/// The places of all blocks while the events of a trace pass.
pub struct Places<'a> {
    layout: &'a Layout,
    files: Vec<PlacedFile>,
    space: Space,
    /// The ranges of the last request, kept for their memory.
    arrived: Vec<(u64, u64)>,
    files_placed: u64,
    pieces_placed: u64,
}

impl Places<'_> {
    /// Takes the next event: blocks that it touches get a place, and those that it gives back lose theirs.
    pub fn apply(&mut self, event: &Event) {
        let Some(extent) = self.files.get_mut(event.file as usize).map(|file| &mut file.extent) else {
            return;
        };
        if event.moves() {
            let mut arrived = std::mem::take(&mut self.arrived);
            arrived.clear();
            extent.touch(event, |low, high| arrived.push((low, high)));
            arrived.iter().for_each(|(low, high)| self.touch(event.file, *low, *high));
            self.arrived = arrived;
        } else if let Some((low, high)) = given_back(event) {
            extent.give_back(low, high, |_, _| ());
            self.give_back(event.file, low, high);
        }
    }

    /// Calls `each` with the place of every piece of a range that was touched: its start on the volume, and its bytes.
    pub fn for_each_piece<E>(
        &self,
        file: u32,
        low: u64,
        high: u64,
        mut each: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(file) = self.files.get(file as usize) else { return Ok(()) };
        let mut at = low;
        while at < high {
            let Some((&logical, piece)) = file.pieces.range(..=at).next_back() else { return Ok(()) };
            let end = (logical + piece.bytes).min(high);
            if end <= at {
                return Ok(());
            }
            each(piece.start + (at - logical), end - at)?;
            at = end;
        }
        Ok(())
    }

    fn touch(&mut self, file: u32, low: u64, high: u64) {
        let mut at = low;
        while at < high {
            let Some(pieces) = self.files.get(file as usize).map(|file| &file.pieces) else { return };
            let found = pieces.range(..=at).next_back().map(|(logical, piece)| (*logical, *piece));
            match found.filter(|(logical, piece)| logical + piece.bytes > at) {
                Some((logical, piece)) => {
                    let end = (logical + piece.bytes).min(high);
                    if !piece.there {
                        self.arrive(file, logical, piece, at, end);
                    }
                    at = end;
                }
                None => {
                    let next = pieces.range((Excluded(at), Unbounded)).next().map_or(high, |(next, _)| *next);
                    self.place(file, at, next.min(high));
                }
            }
        }
    }

    /// Blocks of a reserved piece that begins at `logical` of its file, from `low` to `high`, are there now.
    fn arrive(&mut self, file: u32, logical: u64, piece: PlacedRange, low: u64, high: u64) {
        self.space.unreserve(piece.start);
        let place = |at: u64| piece.start + (at - logical);
        let Some(pieces) = self.files.get_mut(file as usize).map(|file| &mut file.pieces) else { return };
        pieces.remove(&logical);
        let end = logical + piece.bytes;
        for (from, to) in [(logical, low), (high, end)].into_iter().filter(|(from, to)| from < to) {
            let left = PlacedRange { start: place(from), bytes: to - from, there: false };
            pieces.insert(from, left);
            self.space.reserve(left.start, Reserved { file, logical: from, bytes: left.bytes });
        }
        add(pieces, low, PlacedRange { start: place(low), bytes: high - low, there: true });
    }

    /// Finds places for a range of a file that has none: for all of it that requests will reach, if so much is free.
    fn place(&mut self, file: u32, low: u64, high: u64) {
        let Some(of_file) = self.files.get_mut(file as usize) else { return };
        let placed = std::mem::replace(&mut of_file.placed, true);
        self.files_placed += u64::from(!placed);
        let before = of_file.pieces.range(..low).next_back().map(|(at, piece)| (*at, *piece));
        let after = of_file.pieces.range(low..).next().map(|(at, _)| *at);
        let reach = self.layout.reaches.get(file as usize).and_then(|reach| reach.around(low));
        let (first, last) = reach.unwrap_or((low, high));
        let first = before.map_or(first, |(at, piece)| first.max(at + piece.bytes)).min(low);
        let last = after.map_or(last, |next| last.min(next)).max(high);
        if let Some(start) = self.space.take_whole(last - first) {
            let all = PlacedRange { start, bytes: last - first, there: false };
            self.reserve(file, first, all);
            return self.arrive(file, first, all, low, high);
        }
        let beside = before.filter(|(at, piece)| at + piece.bytes == low).map(|(_, p)| p.start + p.bytes);
        let mut at = low;
        if let Some(start) = beside
            && let Some(bytes) = self.space.take_at(start, last - low)
        {
            at = self.arrive_in(file, Taken { start, bytes }, low, high);
        }
        while at < high {
            let taken = self.space.take_longest(last - at).unwrap_or_else(|| self.take_back(high - at));
            at = self.arrive_in(file, taken, at, high);
        }
    }

    /// Blocks from `low` to `high` are there as far as a range that was taken holds them; the rest of it is reserved.
    /// Returns the end of what is there.
    fn arrive_in(&mut self, file: u32, taken: Taken, low: u64, high: u64) -> u64 {
        let piece = PlacedRange { start: taken.start, bytes: taken.bytes, there: false };
        self.reserve(file, low, piece);
        let end = high.min(low + taken.bytes);
        self.arrive(file, low, piece, low, end);
        end
    }

    /// Reserves a place, and counts it as a piece unless it continues the one before in its file.
    fn reserve(&mut self, file: u32, logical: u64, piece: PlacedRange) {
        let Some(pieces) = self.files.get_mut(file as usize).map(|file| &mut file.pieces) else { return };
        let before = pieces.range(..logical).next_back();
        let continues =
            before.is_some_and(|(at, it)| at + it.bytes == logical && it.start + it.bytes == piece.start);
        self.pieces_placed += u64::from(!continues);
        pieces.insert(logical, piece);
        self.space.reserve(piece.start, Reserved { file, logical, bytes: piece.bytes });
    }

    /// Takes space that is reserved for another file, or for another part of this one.
    fn take_back(&mut self, bytes: u64) -> Taken {
        let Some((start, taken)) = self.space.take_reserved(bytes) else {
            return Taken { start: self.space.take_beyond(bytes), bytes };
        };
        if let Some(pieces) = self.files.get_mut(taken.file as usize).map(|file| &mut file.pieces)
            && let Some((&logical, piece)) = pieces.range_mut(..=taken.logical).next_back()
        {
            piece.bytes = taken.logical - logical;
            if piece.bytes == 0 {
                pieces.remove(&logical);
            }
        }
        Taken { start, bytes: taken.bytes }
    }

    /// A file loses the places of a range.
    fn give_back(&mut self, file: u32, low: u64, high: u64) {
        let Some(pieces) = self.files.get_mut(file as usize).map(|file| &mut file.pieces) else { return };
        let before = pieces.range(..low).next_back().filter(|(at, piece)| *at + piece.bytes > low);
        let first = before.map_or(low, |(at, _)| *at);
        let touched: Vec<(u64, PlacedRange)> =
            pieces.range(first..high).map(|(at, piece)| (*at, *piece)).collect();
        for (logical, piece) in touched {
            pieces.remove(&logical);
            if !piece.there {
                self.space.unreserve(piece.start);
            }
            let end = logical + piece.bytes;
            for (from, to) in [(logical, low), (high, end)].into_iter().filter(|(from, to)| from < to) {
                let kept = PlacedRange { start: piece.start + (from - logical), bytes: to - from, ..piece };
                pieces.insert(from, kept);
                if !kept.there {
                    self.space.reserve(kept.start, Reserved { file, logical: from, bytes: kept.bytes });
                }
            }
            let from = logical.max(low);
            let to = end.min(high);
            self.space.give_back(piece.start + (from - logical), to - from);
        }
    }
}

/// Adds a piece that is there; it grows the one before if it continues that in the file and on the volume.
fn add(pieces: &mut BTreeMap<u64, PlacedRange>, logical: u64, piece: PlacedRange) {
    let before = pieces.range_mut(..logical).next_back();
    match before
        .filter(|(at, it)| it.there && *at + it.bytes == logical && it.start + it.bytes == piece.start)
    {
        Some((_, before)) => before.bytes += piece.bytes,
        None => {
            pieces.insert(logical, piece);
        }
    }
}
