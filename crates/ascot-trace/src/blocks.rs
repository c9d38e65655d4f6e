//! Blocks that files take on a volume: sets of ranges, and the live data of a trace.
//!
//! A file takes the blocks that its requests touch, from then on until they are given back: by its end, by a shorter
//! length, or by a hole. In a file that has data of before the recording, the blocks between those that were touched are
//! there as well: a program that skips them seeks. In a file that was empty, they are holes and take nothing. So the live
//! data of a trace are what a volume for its requests needs.
//!
//! Invariants of a set: its ranges do not touch one another; those of [`LiveData`] begin and end at blocks.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use crate::event::{Event, Kind, TracedFile};

/// The unit of direct access, and of space on a volume.
pub const BLOCK_BYTES: u64 = 4096;
/// The last byte at which a block can begin.
const LAST_BLOCK: u64 = u64::MAX - u64::MAX % BLOCK_BYTES;

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

/// Ranges of bytes: the end of each by its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Adds a range; `fresh` gets its parts that were not in the set.
    pub fn insert(&mut self, low: u64, high: u64, mut fresh: impl FnMut(u64, u64)) {
        let (mut start, mut end, mut at) = (low, high, low);
        if let Some((&before, &its_end)) = self.0.range(..=low).next_back()
            && its_end >= low
        {
            if its_end >= high {
                return;
            }
            (start, at) = (before, its_end);
        }
        while let Some((&next, &its_end)) = self.0.range((Excluded(start), Included(high))).next() {
            if next > at {
                fresh(at, next);
            }
            at = its_end;
            end = end.max(its_end);
            self.0.remove(&next);
        }
        if at < high {
            fresh(at, high);
        }
        self.0.insert(start, end);
    }

    /// Removes a range; `gone` gets its parts that were in the set.
    pub fn remove(&mut self, low: u64, high: u64, mut gone: impl FnMut(u64, u64)) {
        if let Some((&before, &its_end)) = self.0.range(..low).next_back()
            && its_end > low
        {
            self.0.insert(before, low);
            gone(low, its_end.min(high));
            if its_end > high {
                self.0.insert(high, its_end);
            }
        }
        while let Some((&next, &its_end)) = self.0.range(low..high).next() {
            self.0.remove(&next);
            gone(next, its_end.min(high));
            if its_end > high {
                self.0.insert(high, its_end);
            }
        }
    }

    /// The range that has a byte.
    pub fn around(&self, byte: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.0.range(..=byte).next_back()?;
        (byte < end).then_some((start, end))
    }
}

/// What is there of a file between its requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Whether gaps are holes.
    sparse: bool,
    /// The blocks from the first to the last one that was touched.
    touched: Option<(u64, u64)>,
}

impl Extent {
    /// Before the first request to a file.
    pub fn of(file: &TracedFile) -> Extent {
        Extent { sparse: file.sparse, touched: None }
    }

    /// The blocks that are there because of an event that moves bytes: those that it touches, and the gap before or
    /// after them.
    pub fn touch(&mut self, event: &Event) -> (u64, u64) {
        let (low, high) = blocks(event.offset, event.end());
        let Some((first, last)) = self.touched.filter(|_| !self.sparse) else {
            self.touched = Some((low, high));
            return (low, high);
        };
        self.touched = Some((first.min(low), last.max(high)));
        (if low > last { last } else { low }, if high < first { first } else { high })
    }

    /// Blocks were given back ([`given_back`]): what grows behind a new length is a hole.
    pub fn give_back(&mut self, event: &Event) {
        self.sparse |= event.kind != Kind::Hole;
    }
}

/// The live data of a trace while its events pass. Memory grows with the pieces that files have.
#[derive(Default)]
pub struct LiveData {
    files: Vec<(Extent, RangeSet)>,
    bytes: u64,
    /// The most bytes of blocks that were live at a time.
    pub peak_bytes: u64,
}

impl LiveData {
    /// For a trace with these files.
    pub fn new(files: &[TracedFile]) -> LiveData {
        let files = files.iter().map(|file| (Extent::of(file), RangeSet::default())).collect();
        LiveData { files, ..LiveData::default() }
    }

    /// Takes the next event.
    pub fn add(&mut self, event: &Event) {
        let LiveData { files, bytes, peak_bytes } = self;
        let Some((extent, there)) = files.get_mut(event.file as usize) else { return };
        if event.moves() {
            let (low, high) = extent.touch(event);
            there.insert(low, high, |from, to| *bytes = bytes.saturating_add(to - from));
            *peak_bytes = (*peak_bytes).max(*bytes);
        } else if let Some((low, high)) = given_back(event) {
            extent.give_back(event);
            there.remove(low, high, |from, to| *bytes = bytes.saturating_sub(to - from));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A set agrees with a set of single bytes, and says which of them are new or gone.
        #[test]
        fn a_set_has_the_bytes_that_were_added(
            steps in prop::collection::vec((any::<bool>(), 0..60_u64, 1..20_u64), 0..60),
        ) {
            let mut set = RangeSet::default();
            let mut bytes = [false; 80];
            for (adds, low, length) in steps {
                let high = low + length;
                let mut told = Vec::new();
                match adds {
                    true => set.insert(low, high, |from, to| told.extend(from..to)),
                    false => set.remove(low, high, |from, to| told.extend(from..to)),
                }
                let changed: Vec<u64> = (low..high).filter(|at| bytes[*at as usize] != adds).collect();
                prop_assert_eq!(told, changed);
                (low..high).for_each(|at| bytes[at as usize] = adds);
                for at in 0..80 {
                    prop_assert_eq!(set.around(at).is_some(), bytes[at as usize]);
                }
                let apart = set.0.iter().zip(set.0.iter().skip(1)).all(|((_, end), (next, _))| end < next);
                prop_assert!(apart, "{:?}", set);
            }
        }
    }
}
