//! The keys that bound the parts of a partitioned write, and the part of a key.

use std::cmp::Ordering;

use crate::records::Side;

/// Ascending normalised keys that bound parts: part i holds keys from splitter i-1 (inclusive) to
/// splitter i (exclusive); if a splitter is doubled, the part between the two holds just the keys equal to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Splitters {
    keys: Vec<Vec<u8>>,
    prefixes: Vec<u64>,
    /// Whether splitter i is doubled: keys equal to it have a part of their own.
    equal: Vec<bool>,
    /// Part of the keys below splitter i that are not below splitter i-1.
    below: Vec<usize>,
    /// Whether the keys of part i are all equal.
    only_equals: Vec<bool>,
    descending: bool,
    table: Table,
}

impl Splitters {
    /// Takes ascending keys; one that occurs more than once gets a part for the keys equal to it.
    pub fn new(sorted_keys: &[Vec<u8>], descending: bool) -> Self {
        let mut this = Splitters { descending, ..Splitters::default() };
        let mut part = 0;
        for key in sorted_keys {
            if this.keys.last() == Some(key) {
                if let Some(equal) = this.equal.last_mut() {
                    part += usize::from(!*equal);
                    *equal = true;
                }
                continue;
            }
            this.below.push(part);
            part += 1;
            this.prefixes.push(ascot_record::order::prefix(key));
            this.keys.push(key.clone());
            this.equal.push(false);
        }
        this.below.push(part);
        this.only_equals = vec![false; this.parts()];
        for (equal, below) in this.equal.iter().zip(&this.below) {
            this.only_equals[below + usize::from(*equal)] |= equal;
        }
        if !descending {
            this.table = Table::new(&this);
        }
        this
    }

    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.below.last().map_or(1, |last| last + 1)
    }

    /// Whether all keys of a part are equal, so that it needs no sort.
    pub fn all_equal(&self, part: usize) -> bool {
        self.only_equals.get(part).is_some_and(|&equal| equal)
    }

    /// The part of a key. Descending orders reverse the comparisons.
    pub fn part_of(&self, key: &[u8]) -> usize {
        let prefix = ascot_record::order::prefix(key);
        let above = |i: usize| {
            let order = self.prefixes[i].cmp(&prefix).then_with(|| self.keys[i].as_slice().cmp(key));
            if self.descending { order.reverse() } else { order }
        };
        // The first splitter that is above the key.
        let mut lo = 0;
        let mut hi = self.keys.len();
        while lo < hi {
            let middle = lo.midpoint(hi);
            if above(middle) == Ordering::Greater { hi = middle } else { lo = middle + 1 }
        }
        if lo > 0 && self.equal[lo - 1] && above(lo - 1) == Ordering::Equal {
            return self.below[lo - 1] + 1;
        }
        self.below[lo]
    }

    /// The splitters' prefixes, ascending.
    pub fn prefixes(&self) -> &[u64] {
        &self.prefixes
    }

    /// The parts of keys of eight bytes, given as their prefixes; all splitters have eight bytes too, and
    /// ascend. A batch is looked up without a branch, and checked again if a cell has several parts.
    #[inline]
    pub fn parts_of_prefixes(&self, prefixes: impl Iterator<Item = u64> + Clone, parts: &mut [u16]) {
        let Some(table) = self.table.cells() else {
            parts
                .iter_mut()
                .zip(prefixes)
                .for_each(|(part, prefix)| *part = self.part_of_prefix(prefix) as u16);
            return;
        };
        let mut max_part = 0;
        for (part, prefix) in parts.iter_mut().zip(prefixes.clone()) {
            *part = table[self.table.cell(prefix)];
            max_part = max_part.max(*part);
        }
        if max_part == Table::SEVERAL {
            let unknown = parts.iter_mut().zip(prefixes).filter(|(part, _)| **part == Table::SEVERAL);
            unknown.for_each(|(part, prefix)| *part = self.part_of_prefix(prefix) as u16);
        }
    }

    /// The part of one key of eight bytes, given as its prefix.
    pub fn part_of_prefix(&self, prefix: u64) -> usize {
        let passed = self.prefixes.partition_point(|&splitter| splitter <= prefix);
        if passed > 0 && self.equal[passed - 1] && self.prefixes[passed - 1] == prefix {
            return self.below[passed - 1] + 1;
        }
        self.below[passed]
    }

    /// Splitters moved to the start of their table cells, so that one look-up finds every key's part. Only for
    /// parts whose sizes may differ: parts within a cell become one.
    pub fn rounded(prefixes: &[u64]) -> Self {
        let cells = Table::over(prefixes);
        let round = |&prefix: &u64| cells.start(cells.cell(prefix) as u64);
        let mut rounded: Vec<u64> = prefixes.iter().map(round).collect();
        rounded.dedup();
        let keys: Vec<Vec<u8>> = rounded.iter().map(|prefix| prefix.to_be_bytes().to_vec()).collect();
        Splitters::new(&keys, false)
    }

    /// The key at which a part ends, and whether it ends before or after the records of that key; none: the last part.
    pub fn end_of(&self, part: usize) -> Option<(&[u8], Side)> {
        // The first splitter whose part below it, or part of equals, is this one or a later one.
        let last_of = |at: usize| self.below[at] + usize::from(self.equal[at]);
        let places: Vec<usize> = (0..self.keys.len()).collect();
        let at = places.partition_point(|&at| last_of(at) < part);
        let key = self.keys.get(at)?;
        let side = if self.below[at] == part { Side::Lower } else { Side::Upper };
        Some((key, side))
    }

    /// The first part that holds no key below splitter `at`.
    pub fn part_from(&self, at: usize) -> usize {
        self.below.get(at).map_or_else(|| self.parts(), |below| below + 1)
    }
}

/// A table of equal ranges of prefixes, its cells, with the part of all keys in each cell, if they are in
/// one part: then one look-up finds a key's part.
///
/// ```text
///   cell         0          1    2    3   ...   CELLS    CELLS + 1
///   keys   below splitters  |splitters from the first on|  above all
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    /// Start of the first cell; all keys below it belong to the first part.
    origin: u64,
    shift: u32,
    /// Part of each cell, or [`Table::SEVERAL`].
    parts: Vec<u16>,
}

impl Table {
    const CELLS: u64 = 1 << 12;
    /// The cell of keys above all splitters.
    const LAST: u64 = Self::CELLS + 1;
    const SEVERAL: u16 = u16::MAX;

    fn new(splitters: &Splitters) -> Table {
        let mut this = Table::over(&splitters.prefixes);
        if splitters.parts() >= usize::from(Self::SEVERAL) {
            return Table::default();
        }
        let part = |cell| {
            let start = this.start(cell);
            let first = splitters.part_of_prefix(start);
            let last = splitters.part_of_prefix(start.saturating_add((1 << this.shift) - 1));
            if first == last { first as u16 } else { Self::SEVERAL }
        };
        this.parts = (0..Self::LAST).map(part).chain([splitters.parts() as u16 - 1]).collect();
        this
    }

    /// The cells, without their parts.
    fn over(prefixes: &[u64]) -> Table {
        let min = prefixes.first().copied().unwrap_or(0);
        let max = prefixes.last().copied().unwrap_or(0);
        let bits = u64::BITS - max.saturating_sub(min).leading_zeros();
        let shift = bits.saturating_sub(Self::CELLS.ilog2());
        Table { origin: min.saturating_sub(1 << shift), shift, parts: Vec::new() }
    }

    fn start(&self, cell: u64) -> u64 {
        let start = u128::from(self.origin) + (u128::from(cell) << self.shift);
        u64::try_from(start).unwrap_or(u64::MAX)
    }

    #[inline]
    fn cell(&self, prefix: u64) -> usize {
        (prefix.saturating_sub(self.origin) >> self.shift).min(Self::LAST) as usize
    }

    /// The part of each cell, if the table was made.
    #[inline]
    fn cells(&self) -> Option<&[u16; Self::LAST as usize + 1]> {
        self.parts.as_slice().try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn parts_are_half_open() {
        let splitters = Splitters::new(&keys(&["d", "m"]), false);
        assert_eq!(splitters.parts(), 3);
        let parts: Vec<usize> =
            ["", "c", "d", "e", "m", "z"].iter().map(|k| splitters.part_of(k.as_bytes())).collect();
        assert_eq!(parts, [0, 0, 1, 1, 2, 2]);
        assert!((0..3).all(|part| !splitters.all_equal(part)));
    }

    #[test]
    fn a_frequent_key_has_a_part_of_its_own() {
        let splitters = Splitters::new(&keys(&["d", "d", "d", "m"]), false);
        assert_eq!(splitters.parts(), 4);
        let parts: Vec<usize> =
            ["c", "d", "dd", "l", "m", "z"].iter().map(|k| splitters.part_of(k.as_bytes())).collect();
        assert_eq!(parts, [0, 1, 2, 2, 3, 3]);
        assert_eq!(
            (0..4).map(|part| splitters.all_equal(part)).collect::<Vec<_>>(),
            [false, true, false, false]
        );
    }

    #[test]
    fn descending_orders_turn_round() {
        let splitters = Splitters::new(&keys(&["m", "d", "d"]), true);
        let parts: Vec<usize> =
            ["z", "m", "e", "d", "c"].iter().map(|k| splitters.part_of(k.as_bytes())).collect();
        assert_eq!(parts, [0, 1, 1, 2, 3]);
        assert!(splitters.all_equal(2));
    }

    proptest! {
        #[test]
        fn the_table_finds_what_a_search_finds(
            mut splitters in proptest::collection::vec(any::<u64>(), 0..40),
            values in proptest::collection::vec(any::<u64>(), 1..200),
            narrow in 0u32..60,
        ) {
            splitters.iter_mut().for_each(|value| *value >>= narrow);
            splitters.sort_unstable();
            let keys: Vec<Vec<u8>> = splitters.iter().map(|value| value.to_be_bytes().to_vec()).collect();
            let splitters = Splitters::new(&keys, false);
            let near = splitters.prefixes().iter().flat_map(|&p| [p, p.wrapping_add(1), p.wrapping_sub(1)]);
            let values: Vec<u64> =
                values.iter().map(|value| value >> narrow).chain(near).chain([0, u64::MAX]).collect();
            let mut parts = vec![0; values.len()];
            splitters.parts_of_prefixes(values.iter().copied(), &mut parts);
            for (value, part) in values.iter().zip(parts) {
                prop_assert_eq!(usize::from(part), splitters.part_of(&value.to_be_bytes()));
                prop_assert_eq!(usize::from(part), splitters.part_of_prefix(*value));
            }
        }
    }
}
