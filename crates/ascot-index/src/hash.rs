//! The hash of a key selects its partition; a second hash, made of the first, selects the region of a filter.
//!
//! ```text
//!   key ─▶ XXH3-64 with the directory's seed ─▶ hash ─▶ upper bits: partition
//!                                               └─▶ local hash ─▶ upper bits: region, all bits: filter
//! ```
//!
//! The local hash is a bijection of the hash with its bits mixed, so that the keys of one partition spread evenly over
//! all regions. Both are part of the format (docs/formats/index.md).

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hash of a key.
pub fn key_hash(seed: u64, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// `hash` scaled to `0..parts`; monotone in the hash.
pub fn share(hash: u64, parts: u32) -> u32 {
    // The result is less than `parts`.
    ((u128::from(hash) * u128::from(parts)) >> 64) as u32
}

/// The hash that selects regions and is the input of filters and auxiliary tables.
pub fn local_hash(hash: u64) -> u64 {
    mix(hash ^ 0x9e37_79b9_7f4a_7c15)
}

/// The finaliser of MurmurHash3 (Appleby): a bijection in which every bit depends on every other.
pub fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_regions_are_even_and_independent() {
        let mut counts = [[0u32; 8]; 4];
        for key in 0..40_000u64 {
            let hash = key_hash(7, &key.to_le_bytes());
            counts[share(hash, 4) as usize][share(local_hash(hash), 8) as usize] += 1;
        }
        for count in counts.iter().flatten() {
            assert!((1100..1400).contains(count), "{counts:?}");
        }
        assert_eq!((share(u64::MAX, 5), share(0, 5), share(u64::MAX, 1)), (4, 0, 0));
    }
}
