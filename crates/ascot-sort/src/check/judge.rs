//! What is known of the records being checked: where they end, and whether they are in order.

use std::cmp::Ordering;

use ascot_record::framing::Framing;
use ascot_record::gensort::{Validation, Validator};
use ascot_record::order::RecordOrder;
use memchr::{memchr, memrchr};

/// Judges parts of a sequence of records, each by itself.
pub(super) trait Judge: Send + Sync {
    /// End of the first record of `bytes`, of which the first `known` bytes hold no end.
    fn first_end(&self, bytes: &[u8], known: usize) -> Option<usize>;

    /// Length of the whole records at the front of `bytes`, which start with a record.
    fn whole(&self, bytes: &[u8]) -> usize;

    /// What completes a last record that lacks its end; none: such a record is cut short.
    fn completion(&self) -> Option<u8>;

    /// Bytes of every record, where they are all the same.
    fn record_len(&self) -> Option<usize>;

    /// Validates whole records.
    fn validate(&self, part: &[u8]) -> Validation;

    /// Puts two parts together that follow one another.
    fn combine(&self, part: Validation, next: Validation) -> Validation;
}

impl Judge for Validator {
    fn first_end(&self, bytes: &[u8], _known: usize) -> Option<usize> {
        let len = Validator::record_len(self);
        (bytes.len() >= len).then_some(len)
    }

    fn whole(&self, bytes: &[u8]) -> usize {
        let len = Validator::record_len(self);
        bytes.len() / len * len
    }

    fn completion(&self) -> Option<u8> {
        None
    }

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

impl<F: Framing, O: RecordOrder> Judge for Ordered<F, O> {
    fn first_end(&self, bytes: &[u8], known: usize) -> Option<usize> {
        match self.delimiter {
            Some(delimiter) => memchr(delimiter, bytes.get(known..)?).map(|at| known + at + 1),
            None => self.framing.end(bytes, 0),
        }
    }

    fn whole(&self, bytes: &[u8]) -> usize {
        if let Some(delimiter) = self.delimiter {
            return memrchr(delimiter, bytes).map_or(0, |at| at + 1);
        }
        if let Some(len) = self.framing.fixed_len() {
            return bytes.len() / len * len;
        }
        let mut whole = 0;
        while let Some(end) = self.framing.end(bytes, whole) {
            whole = end;
        }
        whole
    }

    fn completion(&self) -> Option<u8> {
        self.framing.completes()
    }

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
