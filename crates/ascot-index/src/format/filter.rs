//! Filters: the tables that may have a key. One for each table and region of the hash; the filters of a table have
//! equal length.
//!
//! ```text
//!   0     kind: 0 always matches, 2 blocks of bits
//!   1     blocks of 32 bytes; a key has a bit in each of the eight words of one block
//! ```
//!
//! A filter of zero bytes has no keys. They are the blocked Bloom filters of Putze, Sanders and Singler, "Cache-,
//! Hash- and Space-Efficient Bloom Filters" (2007), with a word for each bit. At 14 bits a key, one foreign key in
//! some 400 matches, and every own key does. Fuse filters would need five bits less but are not used: solving for them
//! took seven times as long as setting bits, an eighth of all writing time.

use crate::hash::{mix, share};

const YES: u8 = 0;
const BLOCKS: u8 = 2;
const WORDS: usize = 8;
const BLOCK_BYTES: usize = WORDS * size_of::<u32>();
const BITS_PER_KEY: usize = 14;

/// Odd numbers that spread a hash over the bits of each word: part of the format.
const SPREADS: [u32; WORDS] =
    [0x9e37_79b1, 0x85eb_ca6b, 0xc2b2_ae35, 0x27d4_eb2f, 0x1656_67b1, 0xd3a2_646d, 0xfd70_46c5, 0xb55a_4f09];

/// Bytes of a filter of about `keys` keys.
pub fn filter_bytes(keys: usize) -> usize {
    1 + (keys * BITS_PER_KEY).div_ceil(8 * BLOCK_BYTES).max(1) * BLOCK_BYTES
}

/// Starts an empty filter in bytes that are zero.
pub fn begin_filter(filter: &mut [u8]) {
    if let Some(kind) = filter.first_mut() {
        *kind = BLOCKS;
    }
}

/// Adds the local hash of a key to a filter of [`filter_bytes`].
pub fn add_to_filter(filter: &mut [u8], hash: u64) {
    let (blocks, _) = filter.get_mut(1..).unwrap_or_default().as_chunks_mut::<BLOCK_BYTES>();
    let (block, bits) = place(hash, blocks.len());
    if let Some(block) = blocks.get_mut(block) {
        let (words, _) = block.as_chunks_mut::<4>();
        for (word, bit) in words.iter_mut().zip(bits) {
            *word = (u32::from_le_bytes(*word) | bit).to_le_bytes();
        }
    }
}

/// The block of a key among `blocks`, and its bit in each word.
fn place(hash: u64, blocks: usize) -> (usize, [u32; WORDS]) {
    // The upper bits of the hash select the region.
    let mixed = mix(hash);
    // The lower half; a filter has less than 2^32 blocks.
    let low = mixed as u32;
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    (share(mixed, blocks) as usize, SPREADS.map(|spread| 1 << (low.wrapping_mul(spread) >> 27)))
}

/// Whether the filter may contain `hash`; `None` if its bytes are not a filter.
pub fn may_contain(filter: &[u8], hash: u64) -> Option<bool> {
    let Some((&kind, rest)) = filter.split_first() else { return Some(false) };
    if kind == YES {
        return rest.is_empty().then_some(true);
    }
    let (blocks, []) = rest.as_chunks::<BLOCK_BYTES>() else { return None };
    let (block, bits) = place(hash, blocks.len());
    let (words, _) = blocks.get(block).filter(|_| kind == BLOCKS)?.as_chunks::<4>();
    Some(words.iter().zip(bits).all(|(word, bit)| u32::from_le_bytes(*word) & bit != 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::mix;

    fn filter(hashes: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; filter_bytes(hashes.len())];
        begin_filter(&mut bytes);
        hashes.iter().for_each(|&hash| add_to_filter(&mut bytes, hash));
        bytes
    }

    #[test]
    fn no_key_is_missed_and_few_others_pass() {
        for count in [0u64, 1, 2, 3, 10, 1000, 2048, 5000] {
            let hashes: Vec<u64> = (0..count).map(mix).collect();
            let bytes = filter(&hashes);
            assert!(hashes.iter().all(|&hash| may_contain(&bytes, hash) == Some(true)));
            let passed =
                (count..count + 50_000).filter(|&key| may_contain(&bytes, mix(key)) == Some(true)).count();
            assert!(passed < 200, "{passed} of 50000 with {count} keys");
        }
    }

    /// The filter as docs/formats/index.md defines it.
    fn as_documented(bytes: &[u8], hash: u64) -> bool {
        let mixed = mix(hash);
        let blocks = (bytes.len() as u128 - 1) / 32;
        let block = 1 + 32 * ((u128::from(mixed) * blocks) >> 64) as usize;
        (0..8).all(|word| {
            let at = block + 4 * word;
            let bit = (mixed & 0xffff_ffff) * u64::from(SPREADS[word]) % (1 << 32) / (1 << 27);
            u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) >> bit & 1 == 1
        })
    }

    #[test]
    fn filters_are_as_documented() {
        let bytes = filter(&(0..700).map(mix).collect::<Vec<_>>());
        for hash in (0..5000).map(mix) {
            assert_eq!(may_contain(&bytes, hash), Some(as_documented(&bytes, hash)));
        }
    }

    #[test]
    fn space_at_usual_sizes() {
        assert!(filter_bytes(2048) * 8 <= 15 * 2048);
        assert_eq!(filter_bytes(0), 33);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200), hash: u64) {
            let _ = may_contain(&bytes, hash);
        }

        #[test]
        fn a_damaged_filter_is_answered(at in 0usize..500, byte: u8, hash: u64) {
            let mut bytes = filter(&(0..300).map(mix).collect::<Vec<_>>());
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = may_contain(&bytes, hash);
        }
    }
}
