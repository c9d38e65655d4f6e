//! Filters: which tables may have a key. One per table and region of the hash, built when the table is flushed.
//!
//! ```text
//!   0     kind: 0 says yes to all, 1 binary fuse with 8 bits
//!   1     seed: 8        9  segment length: 4        13  segments' length: 4
//!   17    fingerprints: segments' length + 2 x segment length bytes
//! ```
//!
//! No bytes at all: a filter of no keys. Binary fuse filters are those of Graf and Lemire, "Binary Fuse Filters: Fast and Smaller
//! Than Xor Filters" (2022), as the crate `xorf` builds them: false positives of 1 in 256, no false negatives.
//!
//! Filters of 8 bits are the ones used: what a false positive costs is a block read in vain, and with all tables
//! of an epoch in one partition that is a few percent of a read; with 16 bits filters would be twice as large.

use xorf::{BinaryFuse8, BinaryFuse8Ref, DmaSerializable, Filter, FilterRef};

const YES: u8 = 0;
const FUSE_8: u8 = 1;
const HEAD_BYTES: usize = 17;

/// Bytes of memory that building a filter takes for each key, at most: what the library allocates, measured.
pub const BUILD_BYTES_PER_KEY: usize = 48;

/// Appends the filter of `hashes`, which are distinct.
pub fn put_filter(out: &mut Vec<u8>, hashes: &[u64]) {
    if hashes.is_empty() {
        return;
    }
    let Ok(filter) = BinaryFuse8::try_from(hashes) else {
        // As good as never; a filter that says yes loses time, and no record.
        return out.push(YES);
    };
    let descriptor = &filter.descriptor;
    out.push(FUSE_8);
    out.extend_from_slice(&descriptor.seed.to_le_bytes());
    out.extend_from_slice(&descriptor.segment_length.to_le_bytes());
    out.extend_from_slice(&descriptor.segment_count_length.to_le_bytes());
    out.extend_from_slice(filter.dma_fingerprints());
}

/// Whether the filter may have been made of `hash`; none where its bytes are not a filter.
pub fn may_contain(bytes: &[u8], hash: u64) -> Option<bool> {
    let Some((&kind, _)) = bytes.split_first() else { return Some(false) };
    if kind == YES {
        return (bytes.len() == 1).then_some(true);
    }
    let (head, fingerprints) = bytes.split_at_checked(HEAD_BYTES)?;
    let number = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let (length, segments) = (number(9)?, number(13)?);
    let bytes_of_all = u64::from(segments) + 2 * u64::from(length);
    let sound = kind == FUSE_8
        && length.is_power_of_two()
        && segments >= length
        && segments.is_multiple_of(length)
        && bytes_of_all == fingerprints.len() as u64;
    if !sound {
        return None;
    }
    let mut descriptor = [0; 20];
    descriptor[..12].copy_from_slice(&head[1..13]);
    descriptor[12..16].copy_from_slice(&(length - 1).to_le_bytes());
    descriptor[16..].copy_from_slice(&segments.to_le_bytes());
    // All places are within: below `segments`, and in the two segments behind that place's.
    Some(BinaryFuse8Ref::from_dma(&descriptor, fingerprints).contains(&hash))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::mix;

    #[test]
    fn no_key_is_missed_and_few_others_pass() {
        for count in [0u64, 1, 2, 3, 10, 1000, 2048, 5000] {
            let hashes: Vec<u64> = (0..count).map(mix).collect();
            let mut bytes = vec![];
            put_filter(&mut bytes, &hashes);
            assert!(hashes.iter().all(|&hash| may_contain(&bytes, hash) == Some(true)));
            let passed =
                (count..count + 50_000).filter(|&key| may_contain(&bytes, mix(key)) == Some(true)).count();
            assert!(passed < 320, "{passed} of 50000 with {count} keys");
        }
    }

    /// The filter as docs/formats/index.md has it, without the library.
    fn as_documented(bytes: &[u8], hash: u64) -> bool {
        let number = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
        let seed = u64::from_le_bytes(bytes[1..9].try_into().unwrap());
        let (length, segments) = (number(9), number(13));
        let mixed = mix(hash.wrapping_add(seed));
        let first = ((u128::from(mixed) * u128::from(segments)) >> 64) as u64;
        let (second, third) =
            ((first + length) ^ ((mixed >> 18) % length), (first + 2 * length) ^ (mixed % length));
        let all =
            [first, second, third].iter().fold(0, |all, &place| all ^ bytes[HEAD_BYTES + place as usize]);
        all == (mixed ^ (mixed >> 32)) as u8
    }

    #[test]
    fn filters_are_as_documented() {
        let mut bytes = vec![];
        put_filter(&mut bytes, &(0..700).map(mix).collect::<Vec<_>>());
        for hash in (0..5000).map(mix) {
            assert_eq!(may_contain(&bytes, hash), Some(as_documented(&bytes, hash)));
        }
    }

    #[test]
    fn space_at_usual_sizes() {
        let hashes: Vec<u64> = (0..2048).map(mix).collect();
        let mut bytes = vec![];
        put_filter(&mut bytes, &hashes);
        assert!(bytes.len() * 8 < 13 * hashes.len(), "{} bits a key", bytes.len() as f64 * 8.0 / 2048.0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200), hash: u64) {
            let _ = may_contain(&bytes, hash);
        }

        #[test]
        fn a_damaged_filter_is_answered(at in 0usize..500, byte: u8, hash: u64) {
            let mut bytes = vec![];
            put_filter(&mut bytes, &(0..300).map(mix).collect::<Vec<_>>());
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = may_contain(&bytes, hash);
        }
    }
}
