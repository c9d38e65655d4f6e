//! The messages between ranks, by scheme. They exist in batches only; files have formats of their own.
//!
//! ```text
//!   records    [key length] key, value             length: varint, only if lengths of keys differ
//!   pointers   [key length] key, pointer (12)
//!   ranks      hash of the key (8), rank (varint)
//! ```
//!
//! The partition is not sent: the receiver owns one, or finds it from the key as the sender did.

use crate::format::bytes::{Cursor, put_varint};
use crate::format::layout::Layout;
use crate::format::record::Record;

/// Writes a key and the bytes after it.
pub(super) fn put_keyed(out: &mut Vec<u8>, layout: &Layout, key: &[u8], rest: &[u8]) {
    out.clear();
    if layout.key_bytes.is_none() {
        put_varint(out, key.len() as u64);
    }
    out.extend_from_slice(key);
    out.extend_from_slice(rest);
}

/// Reads what [`put_keyed`] wrote.
pub(super) fn take_keyed<'a>(layout: &Layout, message: &'a [u8]) -> Option<Record<'a>> {
    let mut cursor = Cursor::new(message);
    let length = match layout.key_bytes {
        Some(bytes) => bytes as usize,
        None => usize::try_from(cursor.varint()?).ok()?,
    };
    let key = cursor.take(length)?;
    Some(Record { key, value: cursor.take(cursor.left())? })
}

/// Writes that `rank` has a key of this hash.
pub(super) fn put_rank(out: &mut Vec<u8>, hash: u64, rank: u32) {
    out.clear();
    out.extend_from_slice(&hash.to_le_bytes());
    put_varint(out, u64::from(rank));
}

/// Reads what [`put_rank`] wrote.
pub(super) fn take_rank(message: &[u8]) -> Option<(u64, u32)> {
    let mut cursor = Cursor::new(message);
    let hash = cursor.u64()?;
    let rank = u32::try_from(cursor.varint()?).ok()?;
    (cursor.left() == 0).then_some((hash, rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::Scheme;

    #[test]
    fn messages_come_back() {
        let mut layout = Layout::new(Scheme::Records, 4, 4);
        let mut out = Vec::new();
        for key_bytes in [None, Some(3)] {
            layout.key_bytes = key_bytes;
            put_keyed(&mut out, &layout, b"key", b"and a value");
            let keyed = take_keyed(&layout, &out).unwrap();
            assert_eq!((keyed.key, keyed.value), (&b"key"[..], &b"and a value"[..]));
            assert_eq!(out.len(), 14 + usize::from(key_bytes.is_none()));
        }
        assert_eq!(take_keyed(&layout, b"ke"), None);
        for rank in [0, 127, 128, (1 << 24) - 1] {
            put_rank(&mut out, 0x0123_4567_89ab_cdef, rank);
            assert_eq!(take_rank(&out), Some((0x0123_4567_89ab_cdef, rank)));
            assert!(out.len() <= 12);
            assert_eq!(take_rank(&out[..out.len() - 1]), None);
        }
    }
}
