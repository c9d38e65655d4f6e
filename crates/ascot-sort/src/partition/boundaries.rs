//! Positions in the inputs from which a killed split can go on, without writing the records that its memory holds.
//!
//! ```text
//!   inputs    ──┬─────────┬─────────┬─────────┬──▶ read so far        ┬: boundaries
//!   part 0      ░░░░░░░░░░░░░░░░░░░░│                                 ░: on disk
//!   part 1      ░░░░░░░░░░░│
//!                         ▲ the latest boundary before which all records are on disk
//! ```
//!
//! A resumed job reads from that boundary on, and leaves out the first bytes of each part: those after the boundary
//! that are on disk. So a checkpoint writes nothing but the manifest, and parts are still written in long runs.
//!
//! Invariant: a part gets the same bytes in the same order each time that the inputs are read.

use ascot_record::checksum::RecordSum;

use crate::read::InputPosition;
use crate::records::Misfits;

/// Maximum number of boundaries that are kept.
const MAX_BOUNDARIES: usize = 128;

/// A position in the inputs.
#[derive(Clone, Debug)]
pub struct Boundary {
    /// The position.
    pub end: InputPosition,
    /// Sum of the records before it.
    pub sum: RecordSum,
    /// Values of these records that are not of their column's type.
    pub misfits: Misfits,
    /// Bytes of each part before it.
    pub given: Vec<u64>,
}

/// The boundaries of a split so far.
pub struct Boundaries {
    /// Bytes that each part has got.
    given: Vec<u64>,
    kept: Vec<Boundary>,
    /// Bytes of the inputs between two boundaries at least, and where the next one may be.
    every: u64,
    next: u64,
}

impl Boundaries {
    /// Boundaries at least `every` bytes apart, from `first` on.
    pub fn new(first: Boundary, every: u64) -> Self {
        let next = first.sum.bytes + every;
        Boundaries { given: first.given.clone(), kept: vec![first], every, next }
    }

    /// A part has got `bytes` more.
    pub fn give(&mut self, part: usize, bytes: usize) {
        if let Some(given) = self.given.get_mut(part) {
            *given += bytes as u64;
        }
    }

    /// All records before `end` are given to their parts.
    pub fn note(&mut self, end: InputPosition, sum: RecordSum, misfits: &Misfits) {
        if sum.bytes < self.next {
            return;
        }
        if self.kept.len() >= MAX_BOUNDARIES {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every *= 2;
        }
        self.next = sum.bytes + self.every;
        self.kept.push(Boundary { end, sum, misfits: misfits.clone(), given: self.given.clone() });
    }

    /// The latest boundary before which all bytes of the parts are among the first `written` of each. Forgets those
    /// before it.
    pub fn latest(&mut self, written: &[u64]) -> Option<&Boundary> {
        let is_written =
            |boundary: &Boundary| boundary.given.iter().zip(written).all(|(given, on_disk)| given <= on_disk);
        let latest = self.kept.iter().rposition(is_written)?;
        self.kept.drain(..latest);
        self.kept.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bytes: u64) -> (InputPosition, RecordSum) {
        let position = InputPosition { offset: bytes, ..InputPosition::default() };
        let mut sum = RecordSum::new();
        sum.bytes = bytes;
        (position, sum)
    }

    #[test]
    fn the_latest_boundary_is_before_what_memory_holds() {
        let (end, sum) = at(0);
        let first = Boundary { end, sum, misfits: Misfits::default(), given: vec![0, 0] };
        let mut boundaries = Boundaries::new(first, 10);
        for step in 1..=1000 {
            boundaries.give(0, 6);
            boundaries.give(1, 4);
            let (end, sum) = at(10 * step);
            boundaries.note(end, sum, &Misfits::default());
        }
        assert!(boundaries.kept.len() <= MAX_BOUNDARIES);
        let latest = boundaries.latest(&[6000, 2000]).expect("the first one at least").clone();
        assert!(latest.given[1] <= 2000 && latest.end.offset > 4000, "{latest:?}");
        assert_eq!(boundaries.kept[0].end, latest.end, "older ones are not needed");
        assert!(boundaries.latest(&[0, 0]).is_none());
    }
}
