//! Starts of some records of a block, a few kilobytes apart, from which a search reads on.

use ascot_record::framing::Framing;

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

    /// The starts of `records`, of which `end` finds the end of a record from any byte of it.
    pub(super) fn of_ends(records: &[u8], end: impl Fn(usize) -> Option<usize>) -> Vec<u32> {
        let next = |&start: &usize| end(start + SPARSE_STEP - 1).filter(|&end| end < records.len());
        let first = (!records.is_empty()).then_some(0);
        std::iter::successors(first, next).map(|start| start as u32).collect()
    }

    /// The starts of `records`, which `framing` finds.
    pub(super) fn of_framed(framing: &impl Framing, records: &[u8]) -> Vec<u32> {
        if let Some(len) = framing.fixed_len() {
            return SparseStarts::of_fixed(records, len);
        }
        if framing.ends_from_anywhere() {
            return SparseStarts::of_ends(records, |from| framing.end(records, from));
        }
        let mut sparse = SparseStarts::of(records);
        let mut start = 0;
        while let Some(end) = framing.end(records, start) {
            sparse.note(start);
            start = end;
        }
        sparse.starts
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_found_from_anywhere_are_those_of_a_scan() {
        for len in [0, 1, 50, SPARSE_STEP - 1, SPARSE_STEP, SPARSE_STEP + 1, 100_000] {
            let line = |at: usize| format!("{}\n", "x".repeat(at * 7_919 % 5_000 % (at % 9 * 600 + 1)));
            let mut records: Vec<u8> = (0..).flat_map(|at| line(at).into_bytes()).take(len).collect();
            if let Some(last) = records.last_mut() {
                *last = b'\n';
            }
            let mut noted = SparseStarts::of(&records);
            let ends = records.iter().enumerate().filter(|&(_, &byte)| byte == b'\n').map(|(at, _)| at + 1);
            let starts = std::iter::once(0).chain(ends).filter(|&start| start < len);
            starts.for_each(|start| noted.note(start));
            let end =
                |from: usize| Some(from + records.get(from..)?.iter().position(|&byte| byte == b'\n')? + 1);
            assert_eq!(SparseStarts::of_ends(&records, end), noted.starts, "{len} bytes");
        }
    }
}
