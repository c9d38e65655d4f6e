//! Sets of ranges of bytes.
//!
//! Invariant: the ranges of a set do not touch one another.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

/// Ranges of bytes: the end of each by its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Adds a range; `fresh` gets its parts that were not in the set.
    pub fn insert(&mut self, low: u64, high: u64, mut fresh: impl FnMut(u64, u64)) {
        let mut start = low;
        let mut end = high;
        let mut at = low;
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

    /// The parts of the set in a range.
    pub fn within(&self, low: u64, high: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.0.range(..low).next_back().filter(|(_, end)| **end > low);
        let parts = before.into_iter().chain(self.0.range(low..high.max(low)));
        parts.map(move |(start, end)| ((*start).max(low), (*end).min(high)))
    }

    /// All ranges in their order.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.0.iter().map(|(start, end)| (*start, *end))
    }

    /// The same set with at most `limit` ranges: the shortest gaps are closed.
    pub fn with_at_most(mut self, limit: usize) -> RangeSet {
        let Some(surplus) = self.0.len().checked_sub(limit.max(1)).filter(|surplus| *surplus > 0) else {
            return self;
        };
        let mut gaps: Vec<(u64, u64, u64)> = Vec::with_capacity(self.0.len());
        gaps.extend(
            self.0.iter().zip(self.0.iter().skip(1)).map(|((_, end), (next, _))| (next - end, *end, *next)),
        );
        gaps.sort_unstable();
        for (_, end, next) in gaps.into_iter().take(surplus) {
            self.insert(end, next, |_, _| ());
        }
        self
    }

    /// The range that has a byte.
    pub fn around(&self, byte: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.0.range(..=byte).next_back()?;
        (byte < end).then_some((start, end))
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
                let within: Vec<u64> = set.within(low, high).flat_map(|(from, to)| from..to).collect();
                let wanted: Vec<u64> = (low..high).filter(|at| bytes[*at as usize]).collect();
                prop_assert_eq!(within, wanted);
                let fewer = set.clone().with_at_most(3);
                prop_assert!(fewer.ranges().len() <= 3);
                prop_assert!(set.ranges().all(|(from, to)| fewer.within(from, to).eq([(from, to)])));
            }
        }
    }
}
