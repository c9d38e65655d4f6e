//! Offset-value codes: integers that order keys relative to a key before them, their *base*. Keys that share a long
//! head compare as fast as others, since no byte of it is compared twice.
//!
//! ```text
//!   code   [ 16: 65535 - block | 48: bytes of the block, zero padded ]     0: no block differs
//!
//!   base   2026-1 1-26 1 2:00:0 7
//!   a      2026-1 1-26 1 2:00:0 9                     block 3
//!   b      2026-1 1-26 2 0:15:3 1                     block 1: after a, whatever follows
//! ```
//!
//! `block` is the first block of six bytes that differs from the base. A key that has more in common with the base is
//! nearer to it. Keys of one base compare as their codes do, unless codes are equal. Then the keys agree up to this
//! block and are compared after it; the later one gets a code relative to the earlier one. The other codes of the base
//! stay valid relative to the earlier key: where codes differ, the block that tells a key from the base tells it from
//! the earlier key, too.
//!
//! Source: W. M. Conner, "Offset value coding", IBM Technical Disclosure Bulletin 20(7), 1977; used in a loser tree as
//! G. Graefe and T. Do describe, "Offset-value coding in database query processing", EDBT 2023.

use crate::order::prefix;

/// Bytes of a block.
const BLOCK_BYTES: usize = 6;

/// Bits of a block in a code.
const BLOCK_BITS: u32 = 48;

/// The last block that has codes. Keys that differ after it get codes of this block, which they share.
const BLOCK_MAX: usize = 0xfffe;

/// The code of a key whose blocks are those of the base.
const SAME: u64 = 0;

/// The codes of keys in ascending or descending order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codes {
    /// Complements the bytes of blocks.
    flips: u64,
}

impl Codes {
    pub(super) fn new(descending: bool) -> Codes {
        Codes { flips: if descending { (1 << BLOCK_BITS) - 1 } else { 0 } }
    }

    /// The code of the key with this prefix, without a base.
    #[inline]
    pub(super) fn first(self, prefix: u64) -> u64 {
        (0xffff << BLOCK_BITS) | ((prefix >> (u64::BITS - BLOCK_BITS)) ^ self.flips)
    }

    /// The code of the key with this prefix relative to a base with another; `None` if the prefixes do not tell.
    #[inline]
    pub(super) fn of_prefix(self, prefix: u64, base_prefix: u64) -> Option<u64> {
        ((prefix ^ base_prefix) >> (u64::BITS - BLOCK_BITS) != 0).then(|| self.first(prefix))
    }

    /// The code of `key` relative to `base`, which does not come after it.
    #[inline]
    pub(super) fn after(self, base: &[u8], key: &[u8]) -> u64 {
        self.from(key, common_len(base, key, 0), base)
    }

    /// The code of `key` relative to `base`, whose first `common` bytes are all that they have in common.
    #[inline]
    pub(super) fn from(self, key: &[u8], common: usize, base: &[u8]) -> u64 {
        let at = if common < key.len().min(base.len()) {
            common
        } else {
            // A key that ends is padded with zeros.
            let longer = if key.len() > base.len() { key } else { base };
            match longer[common..].iter().position(|byte| *byte != 0) {
                Some(zeros) => common + zeros,
                None => return SAME,
            }
        };
        let block = (at / BLOCK_BYTES).min(BLOCK_MAX);
        let bytes = prefix(key.get(block * BLOCK_BYTES..).unwrap_or_default()) >> (u64::BITS - BLOCK_BITS);
        ((0xffff - block as u64) << BLOCK_BITS) | (bytes ^ self.flips)
    }
}

/// Bytes that two keys with this code have in common for certain.
#[inline]
pub(super) fn shared_len(code: u64) -> usize {
    if code == SAME { 0 } else { (0x1_0000 - (code >> BLOCK_BITS) as usize) * BLOCK_BYTES }
}

/// Bytes that two keys have in common from the first on; they are known to agree in the first `known`.
#[inline]
pub(super) fn common_len(a: &[u8], b: &[u8], known: usize) -> usize {
    let len = a.len().min(b.len());
    let mut at = known.min(len);
    while let (Some(x), Some(y)) = (word(a, at), word(b, at)) {
        if x != y {
            return at + (x ^ y).trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..len].iter().zip(&b[at..len]).take_while(|(x, y)| x == y).count()
}

/// Eight bytes from `at` on.
#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A key of `from` bytes that all keys have in common, and of its own last bytes.
    fn key(from: usize, own: &[u8]) -> Vec<u8> {
        [vec![7; from], own.to_vec()].concat()
    }

    proptest! {
        /// Where the codes of two keys of one base differ, they order the keys, and the code of the later key is that
        /// relative to the earlier one.
        #[test]
        fn codes_order_keys_of_one_base(
            heads in proptest::array::uniform3(0usize..20),
            ends in proptest::array::uniform3(proptest::collection::vec(prop_oneof![Just(0u8), 5..9u8], 0..12)),
            descending: bool,
        ) {
            let codes = Codes::new(descending);
            let mut keys: Vec<Vec<u8>> = heads.iter().zip(&ends).map(|(head, end)| key(*head, end)).collect();
            keys.sort_unstable();
            if descending {
                keys.reverse();
            }
            let [base, a, b] = [&keys[0], &keys[1], &keys[2]];
            let (code_a, code_b) = (codes.after(base, a), codes.after(base, b));
            prop_assert!(code_a <= code_b);
            if code_a < code_b {
                prop_assert_eq!(codes.after(a, b), code_b);
            } else {
                let shared = shared_len(code_a).min(a.len()).min(b.len());
                prop_assert_eq!(&a[..shared], &b[..shared]);
            }
        }
    }

    /// Keys that differ far behind share a code, and have in common what it says.
    #[test]
    fn blocks_that_no_code_can_count() {
        let codes = Codes::new(false);
        let len = (BLOCK_MAX + 3) * BLOCK_BYTES;
        let [base, a, b] = [[1, 1], [2, 1], [2, 2]].map(|end| key(len, &end));
        let code = codes.after(&base, &a);
        assert_eq!(code, codes.after(&base, &b));
        assert_ne!(code, SAME);
        assert!(shared_len(code) <= common_len(&a, &b, 0));
        assert_eq!(codes.after(&a, &a), SAME);
        assert!(codes.after(&base, &key(9, &[8])) > code);
    }
}
