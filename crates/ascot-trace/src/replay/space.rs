//! The space of the volume: which ranges are free, and which are reserved for blocks that are not there yet.
//!
//! Invariants: free and reserved ranges do not overlap one another or the blocks that are there; none of them reaches
//! beyond `end`; `end` grows past `limit` only if nothing below it is free or reserved.

use std::collections::{BTreeMap, BTreeSet};

/// A range of the volume that is reserved for a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The file.
    pub file: u32,
    /// The offset in the file.
    pub logical: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A range of the volume that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its first byte on the volume.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Free and reserved ranges of the volume.
#[derive(Default)]
pub struct Space {
    /// Free ranges: bytes by start.
    free: BTreeMap<u64, u64>,
    /// The same by length.
    by_length: BTreeSet<(u64, u64)>,
    reserved: BTreeMap<u64, Reserved>,
    /// The end of what was ever taken.
    pub end: u64,
    limit: u64,
}

impl Space {
    /// A volume of `limit` bytes.
    pub fn new(limit: u64) -> Space {
        Space { limit, ..Space::default() }
    }

    /// Takes `bytes` in one piece, from the shortest free range that has them, or beyond the end.
    pub fn take_whole(&mut self, bytes: u64) -> Option<u64> {
        if let Some(&(length, start)) = self.by_length.range((bytes, 0)..).next() {
            self.take_front(start, length, bytes);
            return Some(start);
        }
        let (start, length) = self.tail();
        (self.limit.saturating_sub(start) >= bytes).then(|| {
            self.remove_free(start, length);
            self.end = start + bytes;
            start
        })
    }

    /// Takes up to `bytes` from `at` on; none if it is not free.
    pub fn take_at(&mut self, at: u64, bytes: u64) -> Option<u64> {
        if let Some(&length) = self.free.get(&at) {
            let taken = length.min(bytes);
            self.take_front(at, length, taken);
            return Some(taken);
        }
        let beyond = self.limit.saturating_sub(at).min(bytes);
        (at == self.end && beyond > 0).then(|| {
            self.end += beyond;
            beyond
        })
    }

    /// Takes up to `bytes` where most are free in one piece.
    pub fn take_longest(&mut self, bytes: u64) -> Option<Taken> {
        let longest = self.by_length.last().copied();
        let (tail, tail_free) = self.tail();
        let room = self.limit.saturating_sub(tail);
        match longest.filter(|(length, _)| *length >= room) {
            Some((length, start)) => {
                let taken = length.min(bytes);
                self.take_front(start, length, taken);
                Some(Taken { start, bytes: taken })
            }
            None if room > 0 => {
                let taken = room.min(bytes);
                self.remove_free(tail, tail_free);
                self.end = tail + taken;
                Some(Taken { start: tail, bytes: taken })
            }
            None => None,
        }
    }

    /// Takes `bytes` beyond the end and the limit.
    pub fn take_beyond(&mut self, bytes: u64) -> u64 {
        let start = self.end;
        self.end = start.saturating_add(bytes);
        start
    }

    /// Reserves a range that was taken.
    pub fn reserve(&mut self, start: u64, reserved: Reserved) {
        self.reserved.insert(start, reserved);
    }

    /// Ends the reservation that begins at `start`; the range counts as taken.
    pub fn unreserve(&mut self, start: u64) -> Option<Reserved> {
        self.reserved.remove(&start)
    }

    /// Takes up to `bytes` from the end of the last reservation: their start, and what was reserved there.
    pub fn take_reserved(&mut self, bytes: u64) -> Option<(u64, Reserved)> {
        let (start, last) = self.reserved.pop_last()?;
        let taken = last.bytes.min(bytes);
        let left = last.bytes - taken;
        if left > 0 {
            self.reserved.insert(start, Reserved { bytes: left, ..last });
        }
        Some((start + left, Reserved { logical: last.logical + left, bytes: taken, ..last }))
    }

    /// Makes a range free that was taken.
    pub fn give_back(&mut self, start: u64, bytes: u64) {
        let mut range = (start, bytes);
        let before = self.free.range(..start).next_back().map(|(at, length)| (*at, *length));
        if let Some((before, length)) = before.filter(|(at, length)| at + length == start) {
            self.remove_free(before, length);
            range = (before, length + bytes);
        }
        if let Some(&length) = self.free.get(&(start + bytes)) {
            self.remove_free(start + bytes, length);
            range.1 += length;
        }
        self.free.insert(range.0, range.1);
        self.by_length.insert((range.1, range.0));
    }

    /// The free range that touches the end, or nothing there.
    fn tail(&self) -> (u64, u64) {
        let last = self.free.last_key_value().map(|(start, length)| (*start, *length));
        last.filter(|(start, length)| start + length == self.end).unwrap_or((self.end, 0))
    }

    fn take_front(&mut self, start: u64, length: u64, bytes: u64) {
        self.remove_free(start, length);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
            self.by_length.insert((length - bytes, start + bytes));
        }
    }

    fn remove_free(&mut self, start: u64, length: u64) {
        self.free.remove(&start);
        self.by_length.remove(&(length, start));
    }
}
