//! Auxiliary tables: the ranks that may have written a key. They may name ranks that have not; they never omit one
//! that has.
//!
//! A region of a table holds the entries of one range of the hashes, in one of two structures behind one interface:
//!
//! * `cuckoo`: fingerprints and ranks in buckets of four, two candidate buckets for each key (the published method);
//! * `fixed`: a static function from hash to fingerprint and rank, and a list of keys with several ranks.
//!
//! ```text
//!   0  kind: 1 cuckoo, 2 static   1  bits of fingerprint   2  bits of rank   3  tables   4  entries in the list: 4
//!   8  the structure's bytes, then the list: 8 bytes an entry, ascending
//! ```
//!
//! `cargo run --release -p ascot-index --example auxiliary` measures both.

mod bits;
mod cuckoo;
mod fixed;

use crate::format::bytes::Cursor;
use crate::format::layout::{AuxiliaryKind, Layout};

/// The low bits of an entry are the rank.
const RANK_BITS: u32 = 24;
const RANK_MASK: u64 = (1 << RANK_BITS) - 1;

/// The parameters of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The structure.
    pub kind: AuxiliaryKind,
    /// Bits of a fingerprint.
    pub fingerprint_bits: u8,
    /// Bits of a rank.
    pub rank_bits: u8,
}

impl Shape {
    /// The shape of a directory's auxiliary tables.
    pub fn from_layout(layout: &Layout) -> Self {
        // The bits of the greatest rank.
        let rank_bits = (32 - (layout.writers - 1).leading_zeros()) as u8;
        Self { kind: layout.auxiliary, fingerprint_bits: layout.fingerprint_bits, rank_bits }
    }

    fn slot_bits(&self) -> u32 {
        u32::from(self.fingerprint_bits) + u32::from(self.rank_bits)
    }
}

/// The entry of a key's local hash and a rank that has the key.
pub fn entry(local: u64, rank: u32) -> u64 {
    hash_of(local) | u64::from(rank) & RANK_MASK
}

/// The part of a local hash, or of an entry, that tables use: its upper 40 bits, zeros below.
pub fn hash_of(entry: u64) -> u64 {
    entry & !RANK_MASK
}

fn rank_of(entry: u64) -> u32 {
    // 24 bits.
    (entry & RANK_MASK) as u32
}

/// The bytes of a region of `entries`, which must be ascending and distinct.
pub fn build(shape: Shape, entries: &[u64]) -> Vec<u8> {
    let (kind, tables, kept, list) = match shape.kind {
        AuxiliaryKind::Cuckoo => {
            let (tables, kept, list) = cuckoo::build(shape, entries);
            (1, tables, kept, list)
        }
        AuxiliaryKind::Static => {
            let (kept, list) = fixed::build(shape, entries);
            (2, 1, kept, list)
        }
    };
    let mut bytes = vec![kind, shape.fingerprint_bits, shape.rank_bits, tables];
    // A region has a few thousand entries.
    bytes.extend_from_slice(&(list.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&kept);
    for entry in list {
        bytes.extend_from_slice(&entry.to_le_bytes());
    }
    bytes
}

/// The ranks that a region names for `hash`, ascending; `None` if its bytes are not a region.
pub fn ranks(bytes: &[u8], hash: u64) -> Option<Vec<u32>> {
    let hash = hash_of(hash);
    let mut cursor = Cursor::new(bytes);
    let kind = cursor.u8()?;
    let fingerprint_bits = cursor.u8()?;
    let rank_bits = cursor.u8()?;
    let shape = |kind| Shape { kind, fingerprint_bits, rank_bits };
    if !(1..=16).contains(&fingerprint_bits) || u32::from(rank_bits) > RANK_BITS {
        return None;
    }
    let tables = cursor.u8()?;
    let list = cursor.u32()? as usize;
    let rest = cursor.take(cursor.left())?;
    let (kept, list) = rest.split_at_checked(rest.len().checked_sub(list.checked_mul(8)?)?)?;
    let mut found: Vec<u32> = listed(list, hash).collect();
    match kind {
        1 => cuckoo::ranks(shape(AuxiliaryKind::Cuckoo), tables, kept, hash, &mut found)?,
        // A key of the list is not in the function.
        2 if found.is_empty() => found.extend(fixed::rank(shape(AuxiliaryKind::Static), kept, hash)?),
        2 => {}
        _ => return None,
    }
    found.sort_unstable();
    found.dedup();
    Some(found)
}

/// The ranks a list has for `hash`.
fn listed(list: &[u8], hash: u64) -> impl Iterator<Item = u32> {
    let entries = list
        .chunks_exact(8)
        .map(|chunk| chunk.iter().rev().fold(0u64, |all, &byte| all << 8 | u64::from(byte)));
    entries.filter(move |&entry| hash_of(entry) == hash).map(rank_of)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::mix;

    fn shapes(ranks: u32) -> impl Iterator<Item = Shape> {
        let mut layout = Layout::new(crate::format::layout::Scheme::Ranks, 1, ranks);
        [AuxiliaryKind::Cuckoo, AuxiliaryKind::Static].into_iter().map(move |kind| {
            layout.auxiliary = kind;
            Shape::from_layout(&layout)
        })
    }

    fn entries(keys: u64, ranks: u32) -> Vec<u64> {
        let mut entries: Vec<u64> =
            (0..keys).map(|key| entry(mix(key), mix(key + 1) as u32 % ranks)).collect();
        entries.sort_unstable();
        entries.dedup();
        entries
    }

    #[test]
    fn every_rank_is_named_and_few_others_for_any_number_of_ranks() {
        for ranks_in_all in [1u32, 2, 5, 4096, 1 << 17, 1 << 24] {
            for shape in shapes(ranks_in_all) {
                for keys in [0, 1, 2, 7, 100, 8192] {
                    let entries = entries(keys, ranks_in_all);
                    let bytes = build(shape, &entries);
                    let mut named = 0;
                    for &entry in &entries {
                        let found = ranks(&bytes, entry).unwrap();
                        assert!(found.contains(&rank_of(entry)), "{shape:?} {keys}");
                        named += found.len();
                    }
                    assert!(named <= entries.len() + entries.len() / 20 + 12, "{shape:?} {named} of {keys}");
                }
            }
        }
    }

    #[test]
    fn space_is_used_to_95_percent() {
        for shape in shapes(4096) {
            let entries = entries(8192, 4096);
            let bits = build(shape, &entries).len() as f64 * 8.0 / entries.len() as f64;
            let most = match shape.kind {
                AuxiliaryKind::Cuckoo => 20.0 / 0.945,
                AuxiliaryKind::Static => 20.0 * 1.33,
            };
            assert!(bits < most, "{shape:?}: {bits} bits a key");
        }
    }

    #[test]
    fn a_key_of_many_ranks_is_in_all_of_them() {
        for shape in shapes(300) {
            let mut entries = entries(500, 300);
            entries.extend((0..200).map(|rank| entry(mix(9), rank)));
            entries.sort_unstable();
            entries.dedup();
            let found = ranks(&build(shape, &entries), mix(9)).unwrap();
            assert!((0..200).all(|rank| found.contains(&rank)), "{found:?}");
        }
    }

    proptest! {
        #[test]
        fn damage_is_answered(at: usize, byte: u8, cut: usize, hash: u64) {
            for shape in shapes(50) {
                let mut bytes = build(shape, &entries(100, 50));
                let at = at % bytes.len();
                bytes[at] = byte;
                let _ = ranks(&bytes, hash);
                bytes.truncate(cut % bytes.len());
                let _ = ranks(&bytes, hash);
            }
        }
    }
}
