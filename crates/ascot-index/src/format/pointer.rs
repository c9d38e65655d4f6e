//! Values stored apart from their keys: the pointer of twelve bytes, and the form of a value in its writer's log.
//!
//! ```text
//!   pointer  | offset: 6 | length: 3 | writer: 3 |     length 0xffffff: that length or more
//!   value    | crc: 4 | [length, LEB128] | bytes |     the length if values differ in it
//! ```
//!
//! The checksum is CRC-32C of log number, offset and all bytes after it: a value at another offset is detected.

use ascot_io::{RunId, crc32c};

use crate::format::bytes::{Cursor, put_varint};

/// Bytes of a pointer.
pub const POINTER_BYTES: usize = 12;
/// Maximum number of writers: their numbers have three bytes.
pub const WRITERS_MAX: u32 = 1 << 24;
/// The length field of this and all greater lengths.
const LONG: u32 = (1 << 24) - 1;
const OFFSET_MAX: u64 = (1 << 48) - 1;

/// The location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// The writer whose log has the value.
    pub writer: u32,
    /// Offset of the value's checksum.
    pub offset: u64,
    /// Bytes of the value; 2^24 - 1 for that length or more.
    pub length: u32,
}

impl Pointer {
    /// The pointer to a value of `length` bytes; `None` if the offset is 2^48 or more.
    pub fn new(writer: u32, offset: u64, length: u64) -> Option<Self> {
        let fits = offset <= OFFSET_MAX && writer < WRITERS_MAX;
        // At most 24 bits.
        fits.then_some(Self { writer, offset, length: length.min(u64::from(LONG)) as u32 })
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; POINTER_BYTES] {
        let mut bytes = [0; POINTER_BYTES];
        bytes[..6].copy_from_slice(&self.offset.to_le_bytes()[..6]);
        bytes[6..9].copy_from_slice(&self.length.to_le_bytes()[..3]);
        bytes[9..].copy_from_slice(&self.writer.to_le_bytes()[..3]);
        bytes
    }

    /// Parses a pointer; `None` if `bytes` are not twelve.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; POINTER_BYTES] = bytes.try_into().ok()?;
        let number = |range: std::ops::Range<usize>| {
            bytes[range].iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte))
        };
        // Three bytes each.
        Some(Self { offset: number(0..6), length: number(6..9) as u32, writer: number(9..12) as u32 })
    }

    /// Whether the value may be longer than `length`.
    pub fn is_long(self) -> bool {
        self.length == LONG
    }
}

/// Maximum bytes before a value in its log: four of the checksum, and those of the length.
pub const VALUE_HEAD_MAX: usize = 4 + 10;

/// The bytes before a value at `offset` of the log `id`.
pub fn value_head(id: RunId, offset: u64, fixed: bool, value: &[u8]) -> Vec<u8> {
    let mut head = vec![0; 4];
    if !fixed {
        put_varint(&mut head, value.len() as u64);
    }
    let crc = crc32c(&[&id.0.to_le_bytes(), &offset.to_le_bytes(), &head[4..], value]);
    head[..4].copy_from_slice(&crc.to_le_bytes());
    head
}

/// Lengths of the head and of the value at the start of `bytes`; `None` if the head is incomplete.
pub fn value_lengths(fixed: Option<u32>, bytes: &[u8]) -> Option<(usize, u64)> {
    let mut cursor = Cursor::new(bytes);
    cursor.u32()?;
    let length = match fixed {
        Some(length) => u64::from(length),
        None => cursor.varint()?,
    };
    Some((cursor.at(), length))
}

/// Whether the checksum of head and value at `offset` of the log `id` is right.
pub fn value_is_whole(id: RunId, offset: u64, bytes: &[u8]) -> bool {
    let Some((crc, rest)) = bytes.split_first_chunk::<4>() else { return false };
    u32::from_le_bytes(*crc) == crc32c(&[&id.0.to_le_bytes(), &offset.to_le_bytes(), rest])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_come_back() {
        for (writer, offset, length) in [(0, 0, 0), (WRITERS_MAX - 1, OFFSET_MAX, 5), (7, 1 << 40, 1 << 30)] {
            let pointer = Pointer::new(writer, offset, length).unwrap();
            assert_eq!(Pointer::from_bytes(&pointer.to_bytes()), Some(pointer));
            assert_eq!(pointer.is_long(), length > 1 << 24);
        }
        assert_eq!(Pointer::new(0, OFFSET_MAX + 1, 0), None);
        assert_eq!(Pointer::from_bytes(&[0; 11]), None);
    }

    #[test]
    fn a_value_in_another_place_is_found_out() {
        let mut bytes = value_head(RunId(3), 4096, false, b"value");
        bytes.extend_from_slice(b"value");
        assert_eq!(value_lengths(None, &bytes), Some((5, 5)));
        assert!(value_is_whole(RunId(3), 4096, &bytes));
        assert!(!value_is_whole(RunId(3), 0, &bytes) && !value_is_whole(RunId(4), 4096, &bytes));
        bytes[6] ^= 1;
        assert!(!value_is_whole(RunId(3), 4096, &bytes));
    }
}
