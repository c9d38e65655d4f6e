//! Judges of records: they validate parts of a sequence of records, each part by itself.

use std::cmp::Ordering;

use ascot_record::framing::{FixedFraming, Framing, Partial};
use ascot_record::gensort::{Validation, Validator};
use ascot_record::order::RecordOrder;
use memchr::{memchr_iter, memrchr};

use crate::records::{Cut, RecordEnds, cut_framed};

/// Judges parts of a sequence of records, each by itself.
pub(super) trait Judge: RecordEnds {
    /// Bytes of every record, where they are all the same.
    fn record_len(&self) -> Option<usize>;

    /// Validates whole records.
    fn validate(&self, part: &[u8]) -> Validation;

    /// Puts two parts together that follow one another.
    fn combine(&self, part: Validation, next: Validation) -> Validation;
}

impl RecordEnds for Validator {
    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
        cut_framed(&FixedFraming(Validator::record_len(self)), bytes, max_records)
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        FixedFraming(Validator::record_len(self)).go_on(part, partial)
    }

    fn completion(&self) -> Option<u8> {
        None
    }
}

impl Judge for Validator {
    fn record_len(&self) -> Option<usize> {
        Some(Validator::record_len(self))
    }

    fn validate(&self, part: &[u8]) -> Validation {
        Validator::validate(self, part)
    }

    fn combine(&self, part: Validation, next: Validation) -> Validation {
        part.combine(next)
    }
}

/// Judges records of any framing by the keys of any order. Keys in its validations are normalised.
pub(super) struct Ordered<F, O> {
    framing: F,
    order: O,
    delimiter: Option<u8>,
}

impl<F: Framing, O: RecordOrder> Ordered<F, O> {
    /// Records that `framing` finds; `delimiter` is given where it alone ends them.
    pub(super) fn new(framing: F, order: O, delimiter: Option<u8>) -> Self {
        Ordered { framing, order, delimiter }
    }

    fn compare(&self, key: &[u8], before: &[u8]) -> Ordering {
        if self.order.descending() { before.cmp(key) } else { key.cmp(before) }
    }
}

impl<F: Framing + 'static, O: RecordOrder + 'static> RecordEnds for Ordered<F, O> {
    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
        match self.delimiter {
            // One scan that counts costs less than one search per line.
            Some(delimiter) if max_records == usize::MAX => Cut {
                records: memchr_iter(delimiter, bytes).count(),
                bytes: memrchr(delimiter, bytes).map_or(0, |at| at + 1),
            },
            _ => cut_framed(&self.framing, bytes, max_records),
        }
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        self.framing.go_on(part, partial)
    }

    fn completion(&self) -> Option<u8> {
        self.framing.completes()
    }
}

impl<F: Framing + 'static, O: RecordOrder + 'static> Judge for Ordered<F, O> {
    fn record_len(&self) -> Option<usize> {
        self.framing.fixed_len()
    }

    fn validate(&self, part: &[u8]) -> Validation {
        let mut validation = Validation::default();
        let (mut scratch, mut before) = (Vec::new(), Vec::new());
        let mut start = 0;
        while let Some(end) = self.framing.end(part, start) {
            let record = &part[start..end];
            let key = self.order.key(record, &mut scratch);
            if validation.records == 0 {
                validation.first_key = key.to_vec();
            } else {
                validation.note(self.compare(key, &before));
            }
            before.clear();
            before.extend_from_slice(key);
            validation.records += 1;
            validation.checksum = validation.checksum.wrapping_add(crc32fast::hash(record).into());
            start = end;
        }
        validation.last_key = before;
        validation
    }

    fn combine(&self, part: Validation, next: Validation) -> Validation {
        part.combine_by(next, |first, last| self.compare(first, last))
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
