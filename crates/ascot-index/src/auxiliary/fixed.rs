//! A static function: the fingerprint and rank of a key are the exclusive-or of three slots (the construction of
//! binary fuse filters, Graf and Lemire 2022, with a value in the place of part of the fingerprint).
//!
//! ```text
//!   region   seed: 8 │ segment length: 4 │ segments' length: 4 │ slots of fingerprint + rank bits
//! ```
//!
//! For a key of the function it names exactly the right rank; for another key it names a wrong rank with probability
//! 2^-(fingerprint bits). It has one rank per key, so keys with several ranks are in the list.

use super::bits::{self, Bits};
use super::{Shape, hash_of, rank_of};
use crate::format::bytes::Cursor;
use crate::hash::mix;

const TRIES: u64 = 100;

/// The slot arithmetic: positions of the three slots of a hash.
#[derive(Clone, Copy)]
struct Places {
    seed: u64,
    segment: u32,
    segments: u32,
}

impl Places {
    /// Parameters for `keys` keys; more slots with each `growth`.
    fn new(keys: usize, seed: u64, growth: u64) -> Self {
        let count = keys.max(2) as f64;
        let segment = 1u32 << ((count.ln() / 3.33f64.ln() + 2.25).floor() as u32).min(18);
        let factor = (0.875 + 0.25 * 1e6f64.ln() / count.ln()).max(1.125) + growth as f64 / 16.0;
        let capacity = (count * factor).round() as u32;
        let segments = capacity.div_ceil(segment).saturating_sub(2).max(1) * segment;
        Self { seed, segment, segments }
    }

    /// The function's bytes with these slots.
    fn to_bytes(self, slots: Bits) -> Vec<u8> {
        let mut bytes = self.seed.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        bytes.extend_from_slice(&self.segments.to_le_bytes());
        bytes.extend_from_slice(&slots.into_bytes());
        bytes
    }

    fn slots(&self) -> u64 {
        u64::from(self.segments) + 2 * u64::from(self.segment)
    }

    fn of(&self, hash: u64) -> (u64, [usize; 3]) {
        let mixed = mix(hash ^ self.seed);
        let first = ((u128::from(mixed) * u128::from(self.segments)) >> 64) as u64;
        let segment = u64::from(self.segment);
        let mask = u64::from(self.segment) - 1;
        let second = (first + segment) ^ (mixed >> 18 & mask);
        let third = (first + 2 * segment) ^ (mixed & mask);
        (mixed, [first as usize, second as usize, third as usize])
    }
}

/// The fingerprint of a hash, above its rank.
fn value(shape: Shape, mixed: u64, rank: u32) -> u64 {
    let mark = mix(mixed ^ 0x5bd1_e995_9d1b_58c5) >> (64 - u32::from(shape.fingerprint_bits));
    mark << shape.rank_bits | u64::from(rank)
}

/// Builds the function: its bytes, and the entries that are not in it.
pub fn build(shape: Shape, entries: &[u64]) -> (Vec<u8>, Vec<u64>) {
    let mut single = Vec::with_capacity(entries.len());
    let mut list = Vec::new();
    for same in entries.chunk_by(|one, other| hash_of(*one) == hash_of(*other)) {
        if same.len() == 1 { single.extend_from_slice(same) } else { list.extend_from_slice(same) }
    }
    for attempt in 0..TRIES {
        let places = Places::new(single.len(), mix(attempt + 1), attempt / 8);
        if let Some(bits) = solve(shape, &single, places) {
            return (places.to_bytes(bits), list);
        }
    }
    // Practically never: then all entries are in the list.
    let places = Places::new(0, 0, 0);
    (places.to_bytes(Bits::new(places.slots() as usize, shape.slot_bits())), entries.to_vec())
}

/// Slots whose exclusive-ors are the values; `None` if peeling does not remove all keys.
fn solve(shape: Shape, entries: &[u64], places: Places) -> Option<Bits> {
    let slots = places.slots() as usize;
    let mut counts = vec![0u32; slots];
    let mut keys = vec![0u64; slots];
    for (number, &entry) in entries.iter().enumerate() {
        for place in places.of(hash_of(entry)).1 {
            counts[place] += 1;
            keys[place] ^= number as u64;
        }
    }
    let mut alone: Vec<usize> = (0..slots).filter(|&slot| counts[slot] == 1).collect();
    let mut order = Vec::with_capacity(entries.len());
    while let Some(slot) = alone.pop() {
        if counts[slot] != 1 {
            continue;
        }
        let number = keys[slot];
        order.push((number as usize, slot));
        for place in places.of(hash_of(entries[number as usize])).1 {
            counts[place] -= 1;
            keys[place] ^= number;
            if counts[place] == 1 {
                alone.push(place);
            }
        }
    }
    if order.len() < entries.len() {
        return None;
    }
    let mut solved = vec![0u64; slots];
    for &(number, slot) in order.iter().rev() {
        let (mixed, three) = places.of(hash_of(entries[number]));
        let others = three.iter().filter(|&&place| place != slot).fold(0, |all, &place| all ^ solved[place]);
        solved[slot] = value(shape, mixed, rank_of(entries[number])) ^ others;
    }
    let mut bits = Bits::new(slots, shape.slot_bits());
    solved.iter().enumerate().for_each(|(slot, &number)| bits.set(slot, number));
    Some(bits)
}

/// The rank that the function names for `hash` if its fingerprint matches; the outer `None` if the bytes are not a
/// function.
pub fn rank(shape: Shape, kept: &[u8], hash: u64) -> Option<Option<u32>> {
    let mut cursor = Cursor::new(kept);
    let places = Places { seed: cursor.u64()?, segment: cursor.u32()?, segments: cursor.u32()? };
    let slots = cursor.take(cursor.left())?;
    let sound = places.segment.is_power_of_two()
        && places.segments > 0
        && places.segments.is_multiple_of(places.segment)
        && bits::bytes_of(places.slots(), shape.slot_bits()) == Some(slots.len());
    if !sound {
        return None;
    }
    let (mixed, three) = places.of(hash);
    let mut number = 0;
    for place in three {
        number ^= bits::get(slots, shape.slot_bits(), place as u64)?;
    }
    let fits = (number ^ value(shape, mixed, 0)) >> shape.rank_bits == 0;
    // At most 24 bits.
    Some(fits.then_some((number & ((1 << shape.rank_bits) - 1)) as u32))
}
