//! Blocks that files take on a volume, and the live data of a trace.
//!
//! A file takes the blocks that its requests touch, from then on until they are given back: by its end, by a shorter
//! length, or by a hole. Blocks that held data when the trace began and lie between those that were touched are there
//! as well: a program that skips them seeks. All other gaps are holes and take nothing. So the live data of a trace are
//! what a volume for its requests needs.
//!
//! Invariant: the ranges of an [`Extent`] begin and end at blocks.

use crate::event::{Event, Kind, TracedFile};
use crate::ranges::RangeSet;

/// The unit of direct access, and of space on a volume.
pub const BLOCK_BYTES: u64 = 4096;
/// The last byte at which a block can begin.
pub const LAST_BLOCK: u64 = u64::MAX - u64::MAX % BLOCK_BYTES;
/// The most ranges that a trace has of one file; the shortest gaps between more count as data.
pub const MAX_HELD_RANGES: usize = 1 << 14;

/// A range rounded outward to whole blocks.
pub fn blocks(offset: u64, end: u64) -> (u64, u64) {
    (offset / BLOCK_BYTES * BLOCK_BYTES, end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(LAST_BLOCK))
}

/// The blocks of its file that an event gives back: those from a new length on, the whole blocks of a hole, or all.
pub fn given_back(event: &Event) -> Option<(u64, u64)> {
    let from = event.offset.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(LAST_BLOCK);
    match event.kind {
        Kind::Delete => Some((0, u64::MAX)),
        Kind::Resize => Some((from, u64::MAX)),
        Kind::Hole => Some((from, event.end() / BLOCK_BYTES * BLOCK_BYTES)).filter(|(from, to)| from < to),
        _ => None,
    }
}

/// What is there of a file, while events pass.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// The blocks that have held data since before the trace.
    held: RangeSet,
    /// The blocks from the first to the last one that was touched.
    touched: Option<(u64, u64)>,
    /// The blocks that are there because of requests.
    there: RangeSet,
    /// Whether a range after a hole takes the block before it as well.
    apart: bool,
}

impl Extent {
    /// Before the first request to a file.
    pub fn of(file: &TracedFile) -> Extent {
        let mut held = file.held.clone().unwrap_or_default();
        if file.held.is_none() {
            held.insert(0, LAST_BLOCK, |_, _| ());
        }
        Extent { held, ..Extent::default() }
    }

    /// The same for a volume on which ranges that a hole divides must not lie side by side: there, they would be one
    /// run. Each takes one more block, before it.
    pub fn apart(file: &TracedFile) -> Extent {
        Extent { apart: true, ..Extent::of(file) }
    }

    /// Calls `each` with the ranges that are there because of an event that moves bytes: the blocks that it touches,
    /// and those that hold data between them and the ones that were touched before. Parts of them may have been there;
    /// returns the bytes that were not.
    pub fn touch(&mut self, event: &Event, mut each: impl FnMut(u64, u64)) -> u64 {
        let (low, high) = blocks(event.offset, event.end());
        let (first, last) = self.touched.unwrap_or((low, high));
        self.touched = Some((first.min(low), last.max(high)));
        if low <= last && high >= first {
            return self.arrive(low, high, &mut each);
        }
        let gap = if low > last { (last, low) } else { (high, first) };
        let mut low = low;
        let mut high = high;
        let mut between: Vec<(u64, u64)> = self.held.within(gap.0, gap.1).collect();
        // A part that touches the request is one range with it.
        if let Some((start, _)) = between.pop_if(|(_, end)| *end == low) {
            low = start;
        }
        if between.first().is_some_and(|(start, _)| *start == high) {
            (_, high) = between.remove(0);
        }
        between.into_iter().chain([(low, high)]).map(|(low, high)| self.arrive(low, high, &mut each)).sum()
    }

    fn arrive(&mut self, low: u64, high: u64, each: &mut impl FnMut(u64, u64)) -> u64 {
        let is_there = |block: u64| self.there.around(block).is_some() || self.held.around(block).is_some();
        let after_hole = self.apart && low > 0 && self.there.around(low).is_none() && !is_there(low - 1);
        let low = if after_hole { low - BLOCK_BYTES } else { low };
        let mut fresh = 0;
        self.there.insert(low, high, |from, to| fresh += to - from);
        each(low, high);
        fresh
    }

    /// Blocks were given back: what grows there again is a hole.
    pub fn give_back(&mut self, low: u64, high: u64, mut gone: impl FnMut(u64, u64)) {
        self.held.remove(low, high, |_, _| ());
        self.there.remove(low, high, &mut gone);
    }

    /// What the file holds now; none if that is all that it can.
    pub fn into_held(self) -> Option<RangeSet> {
        let mut held = self.held;
        self.there.ranges().for_each(|(low, high)| held.insert(low, high, |_, _| ()));
        (held.around(0) != Some((0, LAST_BLOCK))).then(|| held.with_at_most(MAX_HELD_RANGES))
    }
}

/// The live data of a trace while its events pass. Memory grows with the pieces that files have.
#[derive(Default)]
pub struct LiveData {
    files: Vec<Extent>,
    bytes: u64,
    /// The most bytes of blocks that were live at a time.
    pub peak_bytes: u64,
}

impl LiveData {
    /// For these files before their first requests.
    pub fn new(files: Vec<Extent>) -> LiveData {
        LiveData { files, ..LiveData::default() }
    }

    /// Takes the next event.
    pub fn add(&mut self, event: &Event) {
        let LiveData { files, bytes, peak_bytes } = self;
        let Some(extent) = files.get_mut(event.file as usize) else { return };
        if event.moves() {
            *bytes = bytes.saturating_add(extent.touch(event, |_, _| ()));
            *peak_bytes = (*peak_bytes).max(*bytes);
        } else if let Some((low, high)) = given_back(event) {
            extent.give_back(low, high, |from, to| *bytes = bytes.saturating_sub(to - from));
        }
    }
}
