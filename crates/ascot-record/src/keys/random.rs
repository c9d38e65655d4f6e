//! Random order, as in the sort command's `-R`: texts sort by a salted hash, so equal texts stay together.
//!
//! ```text
//! MD5(salt, text) 16 bytes | text
//! ```
//!
//! The hash and its salt of 16 bytes are those of the sort command, so that the same `--random-source` gives the same
//! order. If two hashes are equal, the text decides: different texts never have equal keys.

use super::bytes::{Ending, append_text};
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};

/// Distinguishes one random order from another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Salt(pub [u8; Salt::BYTES]);

impl Salt {
    /// Bytes taken from the random source.
    pub const BYTES: usize = 16;
}

/// Appends the key of `text`.
pub(super) fn append_random(text: &[u8], salt: Salt, ending: Ending, out: &mut Vec<u8>) {
    let hash = Md5::new().chain_update(salt.0).chain_update(text).finalize();
    out.extend_from_slice(&hash);
    append_text(text, ending, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &[u8], salt: u8, ending: Ending) -> Vec<u8> {
        let mut out = Vec::new();
        append_random(text, Salt([salt; Salt::BYTES]), ending, &mut out);
        out
    }

    #[test]
    fn the_hash_is_that_of_salt_and_text() {
        // MD5 of sixteen zeros and the letter a.
        let expected =
            [0x05, 0x31, 0x10, 0x3a, 0xd8, 0xfc, 0x7d, 0xd4, 0xf9, 0x72, 0xd9, 0x8e, 0x47, 0x50, 0x99, 0x4e];
        assert_eq!(key(b"a", 0, Ending::Open), [&expected[..], b"a"].concat());
    }

    #[test]
    fn salts_change_the_order_and_texts_keep_their_hash() {
        let order = |salt| {
            let mut texts: Vec<u8> = (0..=255).collect();
            texts.sort_by_key(|&text| key(&[text], salt, Ending::Closed));
            texts
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_eq!(key(b"x\0", 1, Ending::Open)[..16], key(b"x\0", 1, Ending::Closed)[..16]);
    }
}
