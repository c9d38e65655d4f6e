//! Starts of some records of a block, a few kilobytes apart, from which a search reads on.

/// Bytes between two of them.
const SPARSE_STEP: usize = 4096;

/// Starts of some records, of which the first is one.
pub(super) struct SparseStarts {
    pub(super) starts: Vec<u32>,
    /// The next record from here on is recorded.
    next: usize,
}

impl SparseStarts {
    /// For the starts of `records`.
    pub(super) fn of(records: &[u8]) -> SparseStarts {
        SparseStarts { starts: Vec::with_capacity(records.len() / SPARSE_STEP + 1), next: 0 }
    }

    /// The starts of `records`, which have `len` bytes each.
    pub(super) fn of_fixed(records: &[u8], len: usize) -> Vec<u32> {
        (0..records.len()).step_by(SPARSE_STEP.next_multiple_of(len)).map(|start| start as u32).collect()
    }

    /// Takes the start of the next record.
    #[inline]
    pub(super) fn note(&mut self, start: usize) {
        if start >= self.next {
            self.starts.push(start as u32);
            self.next = start + SPARSE_STEP;
        }
    }
}
