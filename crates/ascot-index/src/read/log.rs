//! An index log, open: the segments of complete epochs.

use std::path::PathBuf;
use std::sync::Arc;

use ascot_io::RunId;

use crate::format::footer::Entry;
use crate::format::head::Head;
use crate::format::names::Log;

/// An index log, and the data log beside it.
#[derive(Debug)]
pub struct LogReader {
    /// Which one.
    pub log: Log,
    /// Its number, part of all checksums.
    pub id: RunId,
    /// The file of its index.
    pub index: PathBuf,
    /// The file of its data; that of the index where there is none.
    pub data: PathBuf,
    /// Segments of complete epochs, by epoch.
    pub entries: Vec<Entry>,
    /// Where complete epochs end in the index and in the data.
    pub ends: (u64, u64),
}

impl LogReader {
    /// Segments of an epoch.
    pub fn of_epoch(&self, epoch: u64) -> &[Entry] {
        let from = self.entries.partition_point(|entry| entry.epoch < epoch);
        let end = self.entries.partition_point(|entry| entry.epoch <= epoch);
        &self.entries[from..end]
    }

    /// Bytes it takes in memory.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.entries.len() * size_of::<Entry>() + 512
    }
}

/// A log and what is known of one of its segments.
#[derive(Clone)]
pub struct Segment {
    /// The log.
    pub log: Arc<LogReader>,
    /// Its head.
    pub head: Arc<Head>,
}
