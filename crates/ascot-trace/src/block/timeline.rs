//! The extents of a file over time, as repeated looks at them show.
//!
//! ```text
//!   looks        t0        t1            t2          t3
//!   extent       -         seen          seen        -
//!                from = t0 | first = t1, last = t2 | until = t3
//! ```
//!
//! An extent was there for certain from the first to the last look that saw it, and perhaps since the look before or
//! until the look after. Invariant: the current extents are sorted by their offset in the file, and do not overlap.

use crate::fiemap::MappedExtent;

/// A piece of a file on its device, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The first byte in the file.
    pub logical: u64,
    /// The first byte on the disk.
    pub physical: u64,
    /// The number of bytes.
    pub length: u64,
    /// The last look that did not see it, before it was seen.
    pub from_ns: u64,
    /// The first look that saw it.
    pub first_ns: u64,
    /// The last look that saw it.
    pub last_ns: u64,
    /// The first look that did not see it any more.
    pub until_ns: u64,
}

/// The extents of a file.
#[derive(Debug, Default)]
pub struct Timeline {
    current: Vec<Placed>,
    ended: Vec<Placed>,
    last_look_ns: u64,
}

impl Timeline {
    /// Notes a look at the file. `disk_offset`: the first byte of its volume on the disk.
    pub fn look(&mut self, at_ns: u64, extents: &[MappedExtent], disk_offset: u64) {
        let from_ns = self.last_look_ns;
        let placed = extents.iter().filter_map(|extent| {
            let physical = extent.physical?.checked_add(disk_offset)?;
            let MappedExtent { logical, length, .. } = *extent;
            Some(Placed {
                logical,
                physical,
                length,
                from_ns,
                first_ns: at_ns,
                last_ns: at_ns,
                until_ns: u64::MAX,
            })
        });
        let seen: Vec<Placed> = placed.filter(|placed| placed.length > 0).collect();
        let gone = without(&self.current, &seen);
        let mut current = without(&self.current, &gone);
        current.iter_mut().for_each(|placed| placed.last_ns = at_ns);
        self.ended.extend(gone.into_iter().map(|placed| Placed { until_ns: at_ns, ..placed }));
        current.extend(without(&seen, &self.current));
        current.sort_unstable_by_key(|placed| placed.logical);
        self.current = current;
        self.last_look_ns = at_ns;
    }

    /// The blocks of the file were freed after this time.
    pub fn end(&mut self, at_ns: u64) {
        let current = std::mem::take(&mut self.current);
        self.ended.extend(current.into_iter().map(|placed| Placed {
            last_ns: at_ns,
            until_ns: at_ns,
            ..placed
        }));
    }

    /// All extents that were ever seen.
    pub fn into_extents(self) -> impl Iterator<Item = Placed> {
        self.ended.into_iter().chain(self.current)
    }
}

/// The parts of `all` that `others` does not map to the same place. Both are sorted by their offset in the file.
fn without(all: &[Placed], others: &[Placed]) -> Vec<Placed> {
    let mut rest = Vec::new();
    let mut first = 0;
    for placed in all {
        let end = placed.logical + placed.length;
        let mut at = placed.logical;
        while others.get(first).is_some_and(|other| other.logical + other.length <= at) {
            first += 1;
        }
        for other in others[first..].iter().take_while(|other| other.logical < end) {
            if other.physical.wrapping_sub(other.logical) != placed.physical.wrapping_sub(placed.logical) {
                continue;
            }
            if other.logical > at {
                rest.push(part(placed, at, other.logical));
            }
            at = at.max(other.logical + other.length);
        }
        if at < end {
            rest.push(part(placed, at, end));
        }
    }
    rest
}

/// The part of an extent between two offsets in the file.
fn part(placed: &Placed, from: u64, to: u64) -> Placed {
    let physical = placed.physical + (from - placed.logical);
    Placed { logical: from, physical, length: to - from, ..*placed }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(logical: u64, physical: u64, length: u64) -> MappedExtent {
        MappedExtent { logical, physical: Some(physical), length, delayed: false }
    }

    #[test]
    fn a_file_that_grows_keeps_what_was_seen() {
        let mut timeline = Timeline::default();
        timeline.look(10, &[extent(0, 1000, 100)], 5000);
        timeline.look(20, &[extent(0, 1000, 300)], 5000);
        timeline.look(30, &[extent(0, 1000, 100), extent(100, 4000, 200)], 5000);
        let mut found: Vec<_> = timeline
            .into_extents()
            .map(|p| (p.logical, p.physical, p.length, p.from_ns, p.first_ns, p.last_ns, p.until_ns))
            .collect();
        found.sort();
        let expected = [
            (0, 6000, 100, 0, 10, 30, u64::MAX),
            (100, 6100, 200, 10, 20, 20, 30),
            (100, 9000, 200, 20, 30, 30, u64::MAX),
        ];
        assert_eq!(found, expected);
    }

    proptest! {
        /// Each look is a list of (block in the file, block on the disk); at the time of a look exactly its blocks are
        /// there for certain.
        #[test]
        fn every_look_is_kept(
            looks in prop::collection::vec(prop::collection::btree_map(0_u64..12, 0_u64..4, 0..10), 1..8),
        ) {
            let mut timeline = Timeline::default();
            for (at, look) in looks.iter().enumerate() {
                let mut extents: Vec<MappedExtent> = Vec::new();
                for (&block, &far) in look {
                    let physical = (far * 100 + block) * 10;
                    match extents.last_mut() {
                        Some(last) if last.logical + last.length == block * 10
                            && last.physical == Some(physical - last.length) => last.length += 10,
                        _ => extents.push(extent(block * 10, physical, 10)),
                    }
                }
                timeline.look(at as u64 + 1, &extents, 0);
            }
            let all: Vec<Placed> = timeline.into_extents().collect();
            for (at, look) in looks.iter().enumerate() {
                let at = at as u64 + 1;
                let mut blocks: Vec<(u64, u64)> = all
                    .iter()
                    .filter(|p| p.first_ns <= at && at <= p.last_ns)
                    .flat_map(|p| (0..p.length / 10).map(|n| (p.logical / 10 + n, p.physical / 10 + n)))
                    .collect();
                blocks.sort();
                let expected: Vec<_> = look.iter().map(|(&block, &far)| (block, far * 100 + block)).collect();
                prop_assert_eq!(blocks, expected);
            }
        }
    }
}
