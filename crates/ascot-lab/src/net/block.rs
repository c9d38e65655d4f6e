//! The bytes of a round: a pattern that both sides know, in blocks with a header.
//!
//! ```text
//!   block:  number (8) | sender (4) | length (4) | pattern, from byte 16 of the block on
//! ```
//!
//! All blocks have the length of the run, except that the last one of a connection may be shorter. The receiver checks
//! every header, and some words of every block at positions that differ from block to block: a lost, repeated or
//! misplaced byte shifts all later ones, and is found by the next header.

use ascot_model::random::SplitMix64;

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 16;
/// Words that are compared in each block.
const CHECKED_WORDS: u64 = 16;
const WORD_BYTES: usize = 8;
const SEED: u64 = 0x616c_6c20_746f_2061;

/// Fills a block with the pattern.
pub(super) fn fill_with_pattern(block: &mut [u8]) {
    SplitMix64(SEED).fill(block);
}

/// The header of a block.
pub(super) fn header(number: u64, sender: u32, length: usize) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..12].copy_from_slice(&sender.to_le_bytes());
    bytes[12..].copy_from_slice(&(length as u32).to_le_bytes());
    bytes
}

/// Whether a received block is block `number` of `sender`.
pub(super) fn is_valid(block: &[u8], number: u64, sender: u32, pattern: &[u8]) -> bool {
    let Some((head, body)) = block.split_at_checked(HEADER_BYTES) else { return false };
    if head != header(number, sender, block.len()) {
        return false;
    }
    let words = (body.len() / WORD_BYTES) as u64;
    let mut random = SplitMix64(number ^ (u64::from(sender) << 40));
    (0..CHECKED_WORDS.min(words)).all(|_| {
        let at = HEADER_BYTES + random.below(words) as usize * WORD_BYTES;
        block.get(at..at + WORD_BYTES) == pattern.get(at..at + WORD_BYTES)
    })
}

/// Lengths of the blocks of a connection that carries `bytes`: whole blocks, and a shorter one. A remainder that has no
/// place for a header makes the last whole block shorter.
pub(super) fn lengths(bytes: u64, block_bytes: usize) -> impl Iterator<Item = usize> {
    let block = block_bytes as u64;
    let mut left = bytes;
    std::iter::from_fn(move || {
        let length = match left {
            0 => return None,
            left if left <= block => left,
            left if left - block < HEADER_BYTES as u64 => left - HEADER_BYTES as u64,
            _ => block,
        };
        left -= length;
        Some(length as usize)
    })
}

/// Bytes of connection `number` of `connections` that together carry `bytes`.
pub(super) fn share(bytes: u64, connections: u32, number: u32) -> u64 {
    let connections = u64::from(connections.max(1));
    bytes / connections + u64::from(u64::from(number) < bytes % connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_valid_only_as_it_was_sent() {
        let mut pattern = vec![0; 4096];
        fill_with_pattern(&mut pattern);
        let mut block = pattern.clone();
        block[..HEADER_BYTES].copy_from_slice(&header(7, 2, 4096));
        assert!(is_valid(&block, 7, 2, &pattern));
        assert!(!is_valid(&block, 8, 2, &pattern));
        assert!(!is_valid(&block, 7, 3, &pattern));
        assert!(!is_valid(&block[..4095], 7, 2, &pattern));
        let mut shifted = block.clone();
        shifted.copy_within(HEADER_BYTES..4095, HEADER_BYTES + 1);
        assert!(!is_valid(&shifted, 7, 2, &pattern));
        assert!(!is_valid(&[], 0, 0, &pattern));
    }

    #[test]
    fn lengths_add_up_and_every_block_has_a_header() {
        for bytes in [16, 17, 100, 4096, 4097, 4111, 4112, 8191, 8192, 8200, 1_000_003] {
            let found: Vec<usize> = lengths(bytes, 4096).collect();
            assert_eq!(found.iter().sum::<usize>() as u64, bytes);
            assert!(found.iter().all(|length| (HEADER_BYTES..=4096).contains(length)), "{bytes}: {found:?}");
        }
        assert_eq!(lengths(0, 4096).count(), 0);
    }

    #[test]
    fn connections_share_the_bytes() {
        let shares: Vec<u64> = (0..4).map(|number| share(1003, 4, number)).collect();
        assert_eq!(shares, [251, 251, 251, 250]);
    }
}
