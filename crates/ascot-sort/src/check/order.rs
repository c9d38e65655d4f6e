//! The order checker: it observes records as they are read, and finds the first one out of order.

use std::sync::Arc;

use crate::records::Records;

/// Observes records in the form of spills, any number of whole records at a time.
pub(crate) struct OrderCheck<R> {
    records: Arc<R>,
    /// Whether every key may occur only once. Otherwise equal keys are ordered as a sort orders them.
    unique: bool,
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
    pub(crate) fn new(records: &Arc<R>, unique: bool) -> Self {
        OrderCheck { records: Arc::clone(records), unique, previous: None }
    }

    /// Observes the next records; returns the first one that is out of order.
    pub(crate) fn observe(&mut self, bytes: &[u8]) -> Option<Unordered> {
        let unordered = self.records.disorder(self.previous.as_deref(), bytes, self.unique);
        self.previous = Some(bytes[self.records.last_record(bytes)..].to_vec());
        unordered.map(|offset| {
            let before = self.records.cut(&bytes[..offset], usize::MAX).records as u64;
            Unordered { before, offset }
        })
    }
}
