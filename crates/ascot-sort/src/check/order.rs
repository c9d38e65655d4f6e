//! Whether records are in order: an observer of records that are read or merged.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::records::Records;

/// The order of records whose keys are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EqualKeys {
    /// They are ordered as a sort of the request orders them.
    AsSorted,
    /// The input may have been sorted by its keys alone.
    AnyOrder,
    /// Equal keys are out of order: every key may occur once.
    Refused,
}

/// Observes records in the form of spills, any number of whole records at a time.
pub(crate) struct OrderCheck<R> {
    records: Arc<R>,
    equal: EqualKeys,
    /// Maximum length of a record that is kept for comparison with the next one.
    kept_bytes_max: usize,
    /// The last record observed.
    previous: Option<Vec<u8>>,
}

/// A record that sorts before its predecessor.
pub(crate) struct Unordered {
    /// Number of records before it in the observed bytes.
    pub(crate) before: u64,
    /// Its offset in them.
    pub(crate) offset: usize,
}

impl<R: Records> OrderCheck<R> {
    pub(crate) fn new(records: &Arc<R>, equal: EqualKeys, kept_bytes_max: usize) -> Self {
        OrderCheck { records: Arc::clone(records), equal, kept_bytes_max, previous: None }
    }

    /// Observes the next records; returns the first one that is out of order.
    pub(crate) fn observe(&mut self, bytes: &[u8]) -> Option<Unordered> {
        let unordered = self.first_unordered(bytes);
        let last = &bytes[self.records.last_record(bytes)..];
        self.previous = (last.len() <= self.kept_bytes_max).then(|| last.to_vec());
        unordered.map(|offset| {
            let before = self.records.cut(&bytes[..offset], usize::MAX).records as u64;
            Unordered { before, offset }
        })
    }

    fn first_unordered(&self, bytes: &[u8]) -> Option<usize> {
        let records = &*self.records;
        let mut previous = self.previous.as_deref();
        let mut start = 0;
        loop {
            let offset =
                start + records.disorder(previous, &bytes[start..], self.equal == EqualKeys::Refused)?;
            let ordered = &bytes[start..offset];
            let before =
                if ordered.is_empty() { previous? } else { &ordered[records.last_record(ordered)..] };
            let record = &bytes[offset..offset + records.cut(&bytes[offset..], 1).bytes];
            let keys_differ = records.keys_decide() || self.compare_keys(before, record).is_gt();
            if self.equal != EqualKeys::AnyOrder || keys_differ {
                return Some(offset);
            }
            previous = Some(record);
            start = offset + record.len();
        }
    }

    fn compare_keys(&self, one: &[u8], other: &[u8]) -> Ordering {
        let key = |record: &[u8]| {
            let mut copy = Vec::new();
            self.records.each_key(record, &mut |_, key| copy.extend_from_slice(key));
            copy
        };
        let order = key(one).cmp(&key(other));
        if self.records.descending() { order.reverse() } else { order }
    }
}
