//! An index log, open: the segments of complete epochs.

use std::path::PathBuf;
use std::sync::Arc;

use ascot_io::{RunId, block_checksum};

use crate::error::{IndexError, Result};
use crate::format::footer::Entry;
use crate::format::head::{Block, SegmentHead};
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
    pub head: Arc<SegmentHead>,
}

impl Segment {
    /// The bytes of `block` in `bytes`, which start at `start` in the data log, once their checksum has been checked.
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
