//! Partial-key cuckoo hashing: each entry is a fingerprint and a rank in one of two buckets of four slots; the
//! fingerprint and one bucket determine the other bucket (Fan et al., "Cuckoo Filter", CoNEXT 2014; with ranks beside
//! fingerprints: the paper on DeltaFS, section on lossy indexing).
//!
//! ```text
//!   region   buckets of each table: 4 each │ table 0: slots of fingerprint + rank bits │ table 1 │ ...
//! ```
//!
//! The first table is sized for a load of 95 percent of its slots. Entries without a slot after 500 moves go to a
//! smaller table of the same kind, and those left after four tables go to the list. A fingerprint is never 0, which
//! marks an empty slot.

use super::bits::{self, Bits};
use super::{Shape, hash_of, rank_of};
use crate::format::bytes::Cursor;
use crate::hash::{mix, share};

const SLOTS: usize = 4;
const MOVES_MAX: usize = 500;
const TABLES_MAX: usize = 4;
const LOAD_PERCENT: usize = 95;

/// The fingerprint of a hash, from 1.
fn fingerprint(shape: Shape, hash: u64) -> u64 {
    let others = (1u64 << shape.fingerprint_bits) - 1;
    1 + mix(hash ^ 0x5bd1_e995_9d1b_58c5) % others
}

/// The first bucket of a hash among `buckets`.
fn first_bucket(hash: u64, buckets: u32) -> u32 {
    share(mix(hash ^ 0x2545_f491_4f6c_dd1d), buckets)
}

/// The other bucket of an entry; applied twice it gives the first bucket again.
fn other_bucket(bucket: u32, fingerprint: u64, buckets: u32) -> u32 {
    let turned = share(mix(fingerprint), buckets);
    // Below twice `buckets`, which is far below 2^32.
    (turned + buckets - bucket) % buckets
}

/// A table under construction. The buckets of an entry are computed once, because entries are displaced repeatedly.
struct Building {
    shape: Shape,
    /// The two buckets of each entry.
    places: Vec<[u32; 2]>,
    /// Number of entries in each bucket.
    taken: Vec<u8>,
    /// The entry in each used slot.
    slots: Vec<[u32; SLOTS]>,
}

impl Building {
    fn new(shape: Shape, entries: &[u64]) -> Self {
        let buckets = (entries.len() * 100).div_ceil(SLOTS * LOAD_PERCENT).max(1);
        let place = |&entry: &u64| {
            let hash = hash_of(entry);
            // A region has a few thousand entries.
            let first = first_bucket(hash, buckets as u32);
            [first, other_bucket(first, fingerprint(shape, hash), buckets as u32)]
        };
        let places = entries.iter().map(place).collect();
        Self { shape, places, taken: vec![0; buckets], slots: vec![[0; SLOTS]; buckets] }
    }

    /// Puts entry `number` into a free slot of a bucket; returns whether there was one.
    fn put_free(&mut self, bucket: u32, number: u32) -> bool {
        let taken = &mut self.taken[bucket as usize];
        let slot = self.slots[bucket as usize].get_mut(usize::from(*taken));
        slot.map(|slot| (*slot, *taken) = (number, *taken + 1)).is_some()
    }

    /// Inserts entry `number`, moving others; returns the entry that is left without a slot, if any.
    fn insert(&mut self, number: u32, random: &mut u64) -> Option<u32> {
        let mut number = number;
        let mut bucket = None;
        for _ in 0..MOVES_MAX {
            let [first, second] = self.places[number as usize];
            if self.put_free(first, number) || self.put_free(second, number) {
                return None;
            }
            *random = mix(*random ^ 0x9e37_79b9_7f4a_7c15);
            // Not into the bucket from which it was displaced.
            let into = match bucket {
                Some(from) if from == first => second,
                Some(_) => first,
                None => [first, second][(*random >> 8) as usize % 2],
            };
            std::mem::swap(&mut self.slots[into as usize][*random as usize % SLOTS], &mut number);
            bucket = Some(into);
        }
        Some(number)
    }

    fn into_bytes(self, entries: &[u64]) -> Vec<u8> {
        let mut bits = Bits::new(self.slots.len() * SLOTS, self.shape.slot_bits());
        for (bucket, (slots, &taken)) in self.slots.iter().zip(&self.taken).enumerate() {
            for (slot, &number) in slots.iter().take(usize::from(taken)).enumerate() {
                let entry = entries[number as usize];
                let mark = fingerprint(self.shape, hash_of(entry));
                bits.set(bucket * SLOTS + slot, mark << self.shape.rank_bits | u64::from(rank_of(entry)));
            }
        }
        bits.into_bytes()
    }
}

/// Builds the tables: their number, their bytes, and the entries in none of them.
pub fn build(shape: Shape, entries: &[u64]) -> (u8, Vec<u8>, Vec<u64>) {
    let mut counts = Vec::new();
    let mut tables = Vec::new();
    let mut rest = entries.to_vec();
    let mut random = entries.len() as u64;
    while !rest.is_empty() && counts.len() < TABLES_MAX {
        let mut table = Building::new(shape, &rest);
        // At most a few thousand entries.
        let left: Vec<u32> =
            (0..rest.len() as u32).filter_map(|number| table.insert(number, &mut random)).collect();
        let left: Vec<u64> = left.into_iter().map(|number| rest[number as usize]).collect();
        counts.push(table.taken.len() as u32);
        tables.extend_from_slice(&table.into_bytes(&rest));
        rest = left;
    }
    rest.sort_unstable();
    let mut bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
    bytes.extend_from_slice(&tables);
    // At most four.
    (counts.len() as u8, bytes, rest)
}

/// Adds the ranks that the tables name for `hash`; `None` if the bytes are not tables.
pub fn ranks(shape: Shape, tables: u8, kept: &[u8], hash: u64, found: &mut Vec<u32>) -> Option<()> {
    let mut cursor = Cursor::new(kept);
    let counts: Option<Vec<u32>> = (0..tables).map(|_| cursor.u32()).collect();
    let mark = fingerprint(shape, hash);
    let width = shape.slot_bits();
    for buckets in counts? {
        let bytes = cursor.take(bits::bytes_of(u64::from(buckets) * SLOTS as u64, width)?)?;
        if buckets == 0 || buckets > u32::MAX / 2 {
            return None;
        }
        let first = first_bucket(hash, buckets);
        for bucket in [first, other_bucket(first, mark, buckets)] {
            for slot in 0..SLOTS as u64 {
                let number = bits::get(bytes, width, u64::from(bucket) * SLOTS as u64 + slot)?;
                if number >> shape.rank_bits == mark {
                    // At most 24 bits.
                    found.push((number & ((1 << shape.rank_bits) - 1)) as u32);
                }
            }
        }
    }
    Some(())
}
