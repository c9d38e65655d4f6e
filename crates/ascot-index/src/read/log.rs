//! An open index log: the segments of complete epochs.

use std::path::PathBuf;
use std::sync::Arc;

use ascot_io::{RunId, block_checksum};

use crate::error::{IndexError, Result};
use crate::format::footer::Entry;
use crate::format::head::{Block, SegmentHead};
use crate::format::names::Log;

/// An index log and its data log.
#[derive(Debug)]
pub struct LogReader {
    /// The log.
    pub log: Log,
    /// Its number, an input of all checksums.
    pub id: RunId,
    /// Path of the index file.
    pub index: PathBuf,
    /// Path of the data file; the index file if the log has no data.
    pub data: PathBuf,
    /// Segments of complete epochs, by epoch.
    pub entries: Vec<Entry>,
    /// Ends of the complete epochs in the index and in the data, bytes.
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

/// A log and the head of one of its segments.
#[derive(Clone)]
pub struct Segment {
    /// The log.
    pub log: Arc<LogReader>,
    /// Its head.
    pub head: Arc<SegmentHead>,
}

impl Segment {
    /// The bytes of `block` in `bytes`, which start at `start` in the data log, after their checksum is
    /// verified.
    pub fn block_bytes<'a>(&self, block: &Block, start: u64, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let damaged = |what| IndexError::damaged(&self.log.data, block.at, what);
        let at = usize::try_from(block.at - start).unwrap_or(usize::MAX);
        let own = bytes.get(at..).and_then(|rest| rest.get(..block.bytes as usize));
        let own = own.ok_or_else(|| damaged("a block ends outside what was read"))?;
        if block_checksum(self.log.id, block.at, own) != block.crc {
            return Err(damaged("the checksum of a block is wrong"));
        }
        Ok(own)
    }
}
