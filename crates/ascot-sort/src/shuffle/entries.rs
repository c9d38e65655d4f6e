//! Reads the integers of the small binary formats of this folder. All integers are little-endian.
//!
//! Invariant: nothing is read beyond the end, and a length is checked against the bytes that are there before it is
//! used.

/// Bytes that are read from the front.
pub(super) struct Entries<'a>(pub &'a [u8]);

impl<'a> Entries<'a> {
    /// The next `count` bytes; none if there are fewer.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next integer of 4 bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// The next integer of 8 bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut entries = Entries(&[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!((entries.u32(), entries.u64()), (Some(1), Some(2)));
        assert_eq!((entries.u32(), entries.take(2), entries.take(1)), (None, None, Some(&[9u8][..])));
        assert_eq!(entries.take(usize::MAX), None);
    }
}
