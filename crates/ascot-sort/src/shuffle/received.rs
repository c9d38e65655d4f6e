//! Which batches of a chunk a destination has.

use super::batch::BatchNumber;

/// The batches of a chunk that are in the files. They arrive nearly in order, because a sender has few on their way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    /// All batches before this one are there.
    next: u32,
    /// Bit n: batch `next + n`.
    later: u64,
    /// Number of batches, once the last one is there.
    count: Option<u32>,
}

impl Received {
    /// Whether a batch is there.
    pub fn has(self, number: BatchNumber) -> bool {
        match number.number.checked_sub(self.next) {
            None => true,
            Some(ahead) => ahead < u64::BITS && self.later >> ahead & 1 == 1,
        }
    }

    /// Whether a batch can be noted: it is not too far before those that are missing.
    pub fn takes(self, number: BatchNumber) -> bool {
        number.number < self.next.saturating_add(u64::BITS)
    }

    /// Notes a batch.
    pub fn note(&mut self, number: BatchNumber) {
        if number.last {
            self.count = Some(number.number + 1);
        }
        if let Some(ahead) = number.number.checked_sub(self.next).filter(|ahead| *ahead < u64::BITS) {
            self.later |= 1 << ahead;
            let whole = self.later.trailing_ones();
            self.next += whole;
            self.later = self.later.checked_shr(whole).unwrap_or(0);
        }
    }

    /// Whether all batches of the chunk are there.
    pub fn is_complete(self) -> bool {
        self.count == Some(self.next) && self.later == 0
    }
}
