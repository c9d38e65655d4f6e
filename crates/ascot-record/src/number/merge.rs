//! Merges sorted integers by cutting the key space, not by comparing heads.
//!
//! A loser tree moves one number per pass through the tree; vectors sort thousands at a time. So the key space is cut
//! at values between which all slices together hold about a cache's worth:
//!
//! ```text
//! slice 0  [....|......|...   ]
//! slice 1  [..|........|......]     every column is copied side by side to the output,
//! slice 2  [......|..|........]     where it is sorted in the cache
//!              v0    v1
//! ```
//!
//! Numbers that equal a cut value follow their column unchanged: they need no sort, so that the numbers to sort fit
//! the cache however many equal ones there are.

use crate::order::head_len;
use crate::vsort::{self, Sortable};

/// Bytes of a column: half of a common second-level cache.
const COLUMN_BYTES: usize = 512 << 10;

/// Positions at which a slice is probed, in units of its share of a column: denser near its start.
const PROBES: [usize; 6] = [1, 2, 4, 8, 16, 64];

/// Parts of a slice's share of a column that the first probe skips.
const SHARES: usize = 8;

/// Merges sorted slices into `out`, which has their total length; numbers that do not fit are left out.
pub fn merge_numbers<T: Sortable>(slices: &[&[T]], mut out: &mut [T]) {
    let mut live: Vec<&[T]> = slices.iter().copied().filter(|slice| !slice.is_empty()).collect();
    let mut probes = Vec::with_capacity(live.len() * PROBES.len());
    while live.len() > 1 && !out.is_empty() {
        let cut = cut_value(&live, &mut probes);
        let mut column = Column { out, filled: 0, sources: 0 };
        for slice in &mut live {
            column.take(slice, |value| *value < cut);
        }
        out = column.finish(vsort::sort);
        let mut column = Column { out, filled: 0, sources: 0 };
        for slice in &mut live {
            column.take(slice, |value| *value == cut);
        }
        out = column.finish(|_| ());
        live.retain(|slice| !slice.is_empty());
    }
    if let [last] = live[..] {
        Column { out, filled: 0, sources: 0 }.take(&mut { last }, |_| true);
    }
}

/// A value such that the slices hold about a column's worth of smaller ones.
fn cut_value<T: Copy + Ord>(live: &[&[T]], probes: &mut Vec<(T, usize)>) -> T {
    let column = COLUMN_BYTES / size_of::<T>();
    let step = (column / (live.len() * SHARES)).max(1);
    probes.clear();
    for slice in live {
        let mut before = 0;
        for probe in PROBES {
            let at = (step * probe - 1).min(slice.len() - 1);
            // The number of values that the probe represents: those since the previous probe.
            probes.push((slice[at], at + 1 - before));
            before = at + 1;
            if before == slice.len() {
                break;
            }
        }
    }
    probes.sort_unstable();
    let mut held = 0;
    let mut cut = probes[0].0;
    for &(value, stands_for) in probes.iter() {
        held += stands_for;
        if held > column {
            break;
        }
        cut = value;
    }
    cut
}

/// Output being filled from the starts of slices.
struct Column<'a, T> {
    out: &'a mut [T],
    filled: usize,
    sources: usize,
}

impl<'a, T: Copy> Column<'a, T> {
    /// Moves the numbers that satisfy `belongs`, all at the start of `slice`, to the column.
    fn take(&mut self, slice: &mut &[T], belongs: impl Fn(&T) -> bool) {
        let space = self.out.len() - self.filled;
        let count = head_len(slice, belongs).min(space);
        let (head, rest) = slice.split_at(count);
        self.out[self.filled..self.filled + count].copy_from_slice(head);
        self.filled += count;
        self.sources += usize::from(count > 0);
        *slice = rest;
    }

    /// Sorts the column if it has numbers from more than one slice; returns the rest of the output.
    fn finish(self, sort: impl Fn(&mut [T])) -> &'a mut [T] {
        let (filled, rest) = self.out.split_at_mut(self.filled);
        if self.sources > 1 {
            sort(filled);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(mut slices: Vec<Vec<u64>>) {
        slices.iter_mut().for_each(|slice| slice.sort_unstable());
        let mut wanted = slices.concat();
        wanted.sort_unstable();
        let mut out = vec![0; wanted.len()];
        merge_numbers(&slices.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut out);
        assert!(out == wanted);
    }

    fn numbers(count: usize, below: u64, seed: u64) -> Vec<u64> {
        let mut state = seed;
        let step = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 11) % below
        };
        (0..count).map(|_| step(&mut state)).collect()
    }

    #[test]
    fn many_columns() {
        check((0..5).map(|seed| numbers(100_000, u64::MAX, seed)).collect());
        check((0..40).map(|seed| numbers(10_000, 1000, seed)).collect());
    }

    #[test]
    fn all_equal_two_values_and_disjoint_ranges() {
        check(vec![vec![7; 150_000]; 3]);
        check((0..3).map(|seed| numbers(150_000, 2, seed)).collect());
        check((0..4).map(|slice| (slice * 100_000..(slice + 1) * 100_000).collect()).collect());
        check(vec![vec![u64::MAX; 100_000], vec![0; 100_000], vec![u64::MAX; 3]]);
    }

    #[test]
    fn nothing_one_and_too_little_room() {
        check(vec![]);
        check(vec![vec![], vec![]]);
        check(vec![vec![], vec![1, 2, 3]]);
        let mut out = [0; 3];
        merge_numbers::<u64>(&[&[1, 4], &[2, 3]], &mut out);
        assert_eq!(out, [1, 2, 3]);
    }

    proptest! {
        #[test]
        fn small_merges(
            slices in proptest::collection::vec(proptest::collection::vec(0u32..50, 0..60), 0..8)
        ) {
            let slices: Vec<Vec<u32>> = slices
                .into_iter()
                .map(|mut slice| { slice.sort_unstable(); slice })
                .collect();
            let mut wanted = slices.concat();
            wanted.sort_unstable();
            let mut out = vec![0; wanted.len()];
            merge_numbers(&slices.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut out);
            prop_assert_eq!(out, wanted);
        }
    }
}
