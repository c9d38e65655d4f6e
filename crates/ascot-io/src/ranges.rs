//! A set of numbers, stored as ranges: the free part of an arena, and the part that was handed out since its pages were
//! last given back.
//!
//! Invariants: ranges are not empty, do not overlap and do not touch (neighbours are one range);
//! `total` is the sum of their lengths.
//!
//! ```text
//!   insert 3..5     |##   ###|  ->  |#######|
//!   remove 2..4     |#######|   ->  |##  ###|
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, stored as ranges in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Range starts, mapped to range ends.
    ends: BTreeMap<usize, usize>,
    total: usize,
}

impl Ranges {
    /// The number of numbers in the set.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The ranges, highest first.
    pub(crate) fn descending(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.ends.iter().rev().map(|(&start, &end)| start..end)
    }

    /// Adds all of `range`; parts of it may already be in the set.
    pub(crate) fn insert(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((&first, &last)) =
            self.ends.range(..=end).next_back().filter(|(_, last)| **last >= start)
        {
            self.ends.remove(&first);
            self.total -= last - first;
            start = start.min(first);
            end = end.max(last);
        }
        self.ends.insert(start, end);
        self.total += end - start;
    }

    /// Removes all of `range`; parts of it may be missing from the set.
    pub(crate) fn remove(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        while let Some((&first, &last)) =
            self.ends.range(..range.end).next_back().filter(|(_, last)| **last > range.start)
        {
            self.ends.remove(&first);
            self.total -= last - first;
            for rest in [first..range.start.max(first), range.end.min(last)..last] {
                if !rest.is_empty() {
                    self.ends.insert(rest.start, rest.end);
                    self.total += rest.end - rest.start;
                }
            }
        }
    }

    /// The lowest start that is a multiple of `step` and begins `count` numbers in the set.
    pub(crate) fn first_fit(&self, count: usize, step: usize) -> Option<usize> {
        self.ends.iter().find_map(|(&start, &end)| {
            let start = start.checked_next_multiple_of(step)?;
            let fits = start.checked_add(count).is_some_and(|last| last <= end);
            fits.then_some(start)
        })
    }

    /// The numbers of `range` in the set, highest range first.
    pub(crate) fn within(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let below = self.ends.range(..range.end).rev();
        below
            .take_while(move |(_, last)| **last > range.start)
            .map(move |(&first, &last)| first.max(range.start)..last.min(range.end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(ranges: &Ranges) -> Vec<Range<usize>> {
        let mut list: Vec<_> = ranges.descending().collect();
        list.reverse();
        list
    }

    #[test]
    fn neighbours_become_one() {
        let mut set = Ranges::default();
        set.insert(0..2);
        set.insert(5..8);
        set.insert(3..3);
        assert_eq!(list(&set), [0..2, 5..8]);
        set.insert(2..5);
        assert_eq!((set.ends.len(), set.first_fit(8, 1), set.total()), (1, Some(0), 8));
        set.remove(2..4);
        assert_eq!((list(&set), set.total()), (vec![0..2, 4..8], 6));
    }

    #[test]
    fn the_first_fit_is_the_lowest() {
        let mut set = Ranges::default();
        set.insert(1..4);
        set.insert(7..20);
        assert_eq!(set.first_fit(3, 1), Some(1));
        assert_eq!(set.first_fit(3, 2), Some(8));
        assert_eq!(set.first_fit(4, 1), Some(7));
        assert_eq!(set.first_fit(14, 1), None);
        assert_eq!(set.first_fit(usize::MAX, 1), None);
        assert_eq!(set.within(3..9).collect::<Vec<_>>(), [7..9, 3..4]);
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..64usize, 0..20usize), 0..60)) {
            let mut set = Ranges::default();
            let mut model = [false; 96];
            for (add, start, len) in steps {
                let range = start..start + len;
                model[range.clone()].fill(add);
                if add { set.insert(range) } else { set.remove(range) }
                let mut shown = [false; 96];
                let mut before = None;
                for range in list(&set) {
                    prop_assert!(!range.is_empty() && before.is_none_or(|end| end < range.start));
                    before = Some(range.end);
                    shown[range].fill(true);
                }
                prop_assert_eq!(shown, model);
                prop_assert_eq!(set.total(), model.iter().filter(|one| **one).count());
            }
        }
    }
}
