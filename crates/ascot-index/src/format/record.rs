//! The form of a record in a block: lengths are stored only where the directory does not fix them.
//!
//! ```text
//!   [key length, LEB128] [value length, LEB128] key value
//!    ^ absent if all keys have one length       ^ likewise values
//! ```

use crate::format::bytes::{Cursor, put_varint, varint_bytes};

/// Maximum bytes of a key.
pub const KEY_MAX: usize = 1 << 20;

/// Lengths that all records share; `None` if they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordForm {
    /// Bytes of every key.
    pub key: Option<u32>,
    /// Bytes of every value.
    pub value: Option<u32>,
}

/// A parsed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl RecordForm {
    /// Bytes of every record, if they are fixed.
    pub fn fixed_bytes(&self) -> Option<usize> {
        Some(self.key? as usize + self.value? as usize)
    }

    /// Bytes before the key.
    pub fn head_bytes(&self, key: usize, value: usize) -> usize {
        let of = |fixed: Option<u32>, len: usize| fixed.map_or(varint_bytes(len as u64), |_| 0);
        of(self.key, key) + of(self.value, value)
    }

    /// The bytes before the key.
    pub fn head(&self, key: usize, value: usize) -> Vec<u8> {
        let mut head = Vec::new();
        for (fixed, len) in [(self.key, key), (self.value, value)] {
            if fixed.is_none() {
                put_varint(&mut head, len as u64);
            }
        }
        head
    }

    /// Parses the next record; `None` if it is incomplete.
    pub fn next<'a>(&self, cursor: &mut Cursor<'a>) -> Option<Record<'a>> {
        let (key, value) = self.read_lengths(cursor)?;
        let key = cursor.take(key)?;
        Some(Record { key, value: cursor.take(value)? })
    }

    /// Bytes of the record at the start of `bytes`; `None` if its head is incomplete.
    pub fn length(&self, bytes: &[u8]) -> Option<u64> {
        let (head, key, value) = self.lengths(bytes)?;
        (head as u64).checked_add(key as u64)?.checked_add(value)
    }

    /// Maximum bytes before a key.
    pub const HEAD_MAX: usize = 20;

    /// Bytes of the head, the key and the value of the record at the start of `bytes`; `None` if its head is
    /// incomplete.
    pub fn lengths(&self, bytes: &[u8]) -> Option<(usize, usize, u64)> {
        let mut cursor = Cursor::new(bytes);
        let (key, value) = self.read_lengths(&mut cursor)?;
        Some((cursor.at(), key, value as u64))
    }

    fn read_lengths(&self, cursor: &mut Cursor<'_>) -> Option<(usize, usize)> {
        let mut len = |fixed: Option<u32>| match fixed {
            Some(len) => Some(len as usize),
            None => usize::try_from(cursor.varint()?).ok(),
        };
        let key = len(self.key)?;
        Some((key, len(self.value)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_come_back(
            key in proptest::collection::vec(any::<u8>(), 0..300),
            value in proptest::collection::vec(any::<u8>(), 0..300),
            fixed_key: bool,
            fixed_value: bool,
        ) {
            let form = RecordForm {
                key: fixed_key.then_some(key.len() as u32),
                value: fixed_value.then_some(value.len() as u32),
            };
            let bytes = [form.head(key.len(), value.len()), key.clone(), value.clone()].concat();
            prop_assert_eq!(bytes.len(), form.head_bytes(key.len(), value.len()) + key.len() + value.len());
            prop_assert_eq!(form.length(&bytes), Some(bytes.len() as u64));
            prop_assert_eq!(form.next(&mut Cursor::new(&bytes)), Some(Record { key: &key, value: &value }));
            if let Some(short) = bytes.len().checked_sub(1) {
                prop_assert_eq!(form.next(&mut Cursor::new(&bytes[..short])), None);
            }
        }
    }
}
