//! Sums over sets of records that do not depend on their order.
//!
//! The sum of a hash of every record, in 128 bits: a sort is right only if the sum of its input equals the sum of its
//! output. Sums of parts add up to the sum of the whole, so that many threads can share the work. Unlike an exclusive
//! or, a sum detects a duplicated record.
//!
//! Records hash by their bytes, terminator included ([`RecordSum::add`]); numbers hash by value
//! ([`RecordSum::add_numbers`]). The two differ: only sums taken in the same way can be compared.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Count, bytes and hash sum of a set of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSum {
    /// Records added.
    pub count: u64,
    /// Bytes added.
    pub bytes: u64,
    #[serde(with = "hex")]
    sum: u128,
}

impl RecordSum {
    /// The sum of no records.
    pub fn new() -> RecordSum {
        RecordSum::default()
    }

    /// Adds one record.
    #[inline]
    pub fn add(&mut self, record: &[u8]) {
        self.count += 1;
        self.bytes += record.len() as u64;
        self.sum = self.sum.wrapping_add(u128::from(xxh3_64(record)));
    }

    /// Adds records that lie back to back in `bytes` and start at `starts`.
    pub fn add_all(&mut self, bytes: &[u8], starts: &[u32]) {
        let ends = starts.iter().skip(1).map(|&start| start as usize).chain(std::iter::once(bytes.len()));
        for (&start, end) in starts.iter().zip(ends) {
            self.add(&bytes[start as usize..end]);
        }
    }

    /// Adds every number of a slice.
    pub fn add_numbers<T: Copy + Into<u64>>(&mut self, numbers: &[T]) {
        self.count += numbers.len() as u64;
        self.bytes += size_of_val(numbers) as u64;
        self.sum = self.sum.wrapping_add(mix::sum(numbers));
    }

    /// Adds another set.
    pub fn combine(&mut self, other: &RecordSum) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

impl fmt::Display for RecordSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.sum)
    }
}

/// The sum as 32 hexadecimal digits: JSON readers rarely keep 128 bits of a number.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(sum: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{sum:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let digits = String::deserialize(deserializer)?;
        u128::from_str_radix(&digits, 16).map_err(D::Error::custom)
    }
}

/// Hash sums of numbers: a bijective mixer of three multiplications, so that distinct numbers
/// never collide and neighbours do not cancel.
mod mix {
    /// Numbers whose halves can be summed in 64 bits without overflow, and more than a cache's
    /// worth.
    const CHUNK: usize = 1 << 20;

    #[inline(always)]
    fn mix(mut x: u64) -> u64 {
        x = (x ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
        x = (x ^ (x >> 32)).wrapping_mul(0xa076_1d64_78bd_642f);
        x = (x ^ (x >> 29)).wrapping_mul(0xe703_7ed1_a0b4_28db);
        x ^ (x >> 32)
    }

    #[inline(always)]
    fn sum_chunk<T: Copy + Into<u64>>(numbers: &[T]) -> u128 {
        let mut low = 0u64;
        let mut high = 0u64;
        for &number in numbers {
            let hash = mix(number.into());
            low += hash & 0xffff_ffff;
            high += hash >> 32;
        }
        u128::from(low) + (u128::from(high) << 32)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    fn sum_chunk_wide<T: Copy + Into<u64>>(numbers: &[T]) -> u128 {
        sum_chunk(numbers)
    }

    /// The sum of the hashes of all numbers.
    #[expect(unsafe_code, reason = "calls a vector kernel that the processor has")]
    pub(super) fn sum<T: Copy + Into<u64>>(numbers: &[T]) -> u128 {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the processor has the features the function is compiled for.
            return numbers.chunks(CHUNK).map(|chunk| unsafe { sum_chunk_wide(chunk) }).sum();
        }
        numbers.chunks(CHUNK).map(sum_chunk).sum()
    }

    #[cfg(test)]
    pub(super) fn sum_one_by_one(numbers: &[u64]) -> u128 {
        numbers.iter().map(|&number| u128::from(mix(number))).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum_of(records: &[&[u8]]) -> RecordSum {
        let mut sum = RecordSum::new();
        records.iter().for_each(|record| sum.add(record));
        sum
    }

    #[test]
    fn order_does_not_matter_but_repetition_does() {
        assert_eq!(sum_of(&[b"a", b"b", b"c"]), sum_of(&[b"c", b"a", b"b"]));
        assert_ne!(sum_of(&[b"a", b"a", b"b"]), sum_of(&[b"a", b"b", b"b"]));
        assert_ne!(sum_of(&[b"a", b"b", b"b"]), sum_of(&[b"a", b"c", b"c"]));
    }

    #[test]
    fn parts_add_up() {
        let mut whole = sum_of(&[b"a", b"b"]);
        whole.combine(&sum_of(&[b"c"]));
        assert_eq!(whole, sum_of(&[b"c", b"b", b"a"]));
        assert_eq!((whole.count, whole.bytes), (3, 3));
    }

    #[test]
    fn shown_as_hexadecimal() {
        assert_eq!(RecordSum::new().to_string(), "0".repeat(32));
        assert_eq!(sum_of(&[b"a"]).to_string().len(), 32);
    }

    proptest! {
        #[test]
        fn numbers_sum_as_one_by_one(mut numbers in proptest::collection::vec(any::<u64>(), 0..100)) {
            let mut sum = RecordSum::new();
            sum.add_numbers(&numbers);
            prop_assert_eq!(sum.sum, mix::sum_one_by_one(&numbers));
            numbers.reverse();
            let mut parts = RecordSum::new();
            let (left, right) = numbers.split_at(numbers.len() / 3);
            parts.add_numbers(left);
            parts.add_numbers(right);
            prop_assert_eq!(sum, parts);
        }
    }
}
