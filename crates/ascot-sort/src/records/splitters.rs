//! The keys that bound the parts of a distribution, and the part of a key.

use std::cmp::Ordering;

/// Ascending normalised keys that bound parts: part i holds keys from splitter i-1 (included) up to
/// splitter i (excluded); where a splitter stands twice, the part between holds just its equals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Splitters {
    keys: Vec<Vec<u8>>,
    prefixes: Vec<u64>,
    /// Splitter i is doubled: keys equal to it have a part of their own.
    equal: Vec<bool>,
    /// Part of the keys below splitter i that are not below splitter i-1.
    below: Vec<usize>,
    /// The keys of part i are all equal.
    only_equals: Vec<bool>,
    descending: bool,
    table: Table,
}

impl Splitters {
    /// Takes ascending keys; one that stands more than once gets a part for its equals.
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

    /// The part of a key. `descending` orders turn comparisons round.
    pub fn part_of(&self, key: &[u8]) -> usize {
        let prefix = ascot_record::order::prefix(key);
        let above = |i: usize| {
            let order = self.prefixes[i].cmp(&prefix).then_with(|| self.keys[i].as_slice().cmp(key));
            if self.descending { order.reverse() } else { order }
        };
        // The first splitter that is above the key.
        let (mut lo, mut hi) = (0, self.keys.len());
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

    /// The part of a key of eight bytes, given as its prefix; all splitters have eight bytes too,
    /// and ascend.
    #[inline]
    pub fn part_of_prefix(&self, prefix: u64) -> usize {
        self.table.part(prefix).unwrap_or_else(|| self.search_prefix(prefix))
    }

    #[cold]
    fn search_prefix(&self, prefix: u64) -> usize {
        let passed = self.prefixes.partition_point(|&splitter| splitter <= prefix);
        if passed > 0 && self.equal[passed - 1] && self.prefixes[passed - 1] == prefix {
            return self.below[passed - 1] + 1;
        }
        self.below[passed]
    }

    /// Splitters moved to where the cells of the table begin, so that every key's part is found by
    /// one look-up. Only for parts whose sizes may differ: parts within a cell become one.
    pub fn rounded(prefixes: &[u64]) -> Self {
        let cells = Table::over(prefixes);
        let round = |&prefix: &u64| cells.start((prefix - cells.least) >> cells.shift);
        let mut rounded: Vec<u64> = prefixes.iter().map(round).collect();
        rounded.dedup();
        let keys: Vec<Vec<u8>> = rounded.iter().map(|prefix| prefix.to_be_bytes().to_vec()).collect();
        Splitters::new(&keys, false)
    }

    /// The first part that holds no key below splitter `at`.
    pub fn part_from(&self, at: usize) -> usize {
        self.below.get(at).map_or_else(|| self.parts(), |below| below + 1)
    }
}

/// For each of many equal ranges of prefixes, its cells, the part of all keys in it, where they are
/// of one part: then a key's part is one look-up away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    least: u64,
    shift: u32,
    /// Part of each cell, or [`Table::SEVERAL`]; a last one for what lies above all splitters.
    parts: Vec<u16>,
}

impl Table {
    const CELLS: u64 = 1 << 12;
    const SEVERAL: u16 = u16::MAX;

    fn new(splitters: &Splitters) -> Table {
        let mut this = Table::over(&splitters.prefixes);
        if splitters.parts() >= usize::from(Self::SEVERAL) {
            return Table::default();
        }
        let part = |cell| {
            let (first, last) = (this.start(cell), this.start(cell).saturating_add((1 << this.shift) - 1));
            let (first, last) = (splitters.search_prefix(first), splitters.search_prefix(last));
            if first == last { first as u16 } else { Self::SEVERAL }
        };
        this.parts = (0..Self::CELLS).map(part).chain([splitters.parts() as u16 - 1]).collect();
        this
    }

    /// The cells without their parts.
    fn over(prefixes: &[u64]) -> Table {
        let (least, most) = (prefixes.first().copied().unwrap_or(0), prefixes.last().copied().unwrap_or(0));
        let bits = u64::BITS - most.saturating_sub(least).leading_zeros();
        Table { least, shift: bits.saturating_sub(Self::CELLS.ilog2()), parts: Vec::new() }
    }

    fn start(&self, cell: u64) -> u64 {
        self.least.saturating_add(cell << self.shift)
    }

    /// The part of a key, unless its cell has several.
    #[inline]
    fn part(&self, prefix: u64) -> Option<usize> {
        // What lies below all splitters is in part 0.
        let Some(above) = prefix.checked_sub(self.least) else { return Some(0) };
        let cell = (above >> self.shift).min(Self::CELLS);
        self.parts.get(cell as usize).filter(|&&part| part != Self::SEVERAL).map(|&part| usize::from(part))
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
            for value in values.iter().map(|value| value >> narrow).chain(near) {
                let part = splitters.part_of_prefix(value);
                prop_assert_eq!(part, splitters.part_of(&value.to_be_bytes()));
            }
        }
    }
}
