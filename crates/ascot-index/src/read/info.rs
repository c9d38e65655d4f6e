//! The layout and contents of a directory, from its indexes alone.

use serde::Serialize;

use crate::error::Result;
use crate::format::names::Log;
use crate::read::Directory;
use crate::read::directory::LOGS_AT_ONCE;
use crate::read::read_policy::{ReadPolicy, Unread};

/// The contents of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EpochInfo {
    /// Records, pointers or entries in its partitions.
    #[serde(rename = "records")]
    pub partition_records: u64,
    /// Records or values of its writers.
    pub writer_records: u64,
    /// Tables.
    pub tables: u64,
    /// Segments: each costs a query one read.
    pub segments: u64,
    /// Maximum number of segments of one log: the reads of one query.
    #[serde(rename = "segments_most")]
    pub segments_max: u64,
    /// Bytes of filters.
    pub filter_bytes: u64,
    /// Bytes of auxiliary tables.
    pub auxiliary_bytes: u64,
    /// Bytes of data blocks.
    pub block_bytes: u64,
}

/// The contents of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Info {
    /// Its epochs.
    pub epochs: Vec<EpochInfo>,
    /// Bytes of data logs that belong to complete epochs.
    pub data_bytes: u64,
    /// Bytes of index logs that belong to complete epochs.
    pub index_bytes: u64,
    /// Bytes after them, of incomplete epochs.
    pub tail_bytes: u64,
}

impl EpochInfo {
    /// Records appended in the epoch.
    pub fn records(&self) -> u64 {
        self.partition_records
    }

    /// Bits of filters for each record in tables.
    pub fn filter_bits(&self, records: u64) -> f64 {
        self.filter_bytes as f64 * 8.0 / records.max(1) as f64
    }
}

impl Directory {
    /// Adds up the indexes that can be read; missing and damaged ones are listed in [`Unread`].
    ///
    /// # Errors
    /// A directory that cannot be listed; too little memory.
    pub fn info(&self) -> Result<(Info, Unread)> {
        let policy = ReadPolicy::lenient();
        // An index that was read lists every epoch that the manifest counts.
        let mut info = Info { epochs: Vec::new(), ..Info::default() };
        let mut held = 0;
        for group in self.logs_wanted(&policy, |_| true)?.chunks(LOGS_AT_ONCE) {
            self.open_logs(group.iter().copied());
            for &log in group {
                if policy.allow(self.add_log(&mut info, log))?.is_some() {
                    // Each epoch of a log takes at least a page, so a log that was read confirms the number
                    // of epochs; the manifest alone may claim any number.
                    if self.manifest.epochs_taken(log) == self.manifest.epochs {
                        held = usize::try_from(self.manifest.epochs).unwrap_or(usize::MAX);
                    }
                }
            }
        }
        info.epochs.resize_with(held.max(info.epochs.len()), EpochInfo::default);
        Ok((info, policy.into_unread()))
    }

    fn add_log(&self, info: &mut Info, log: Log) -> Result<()> {
        let reader = self.log(log)?;
        let (index_end, data_end) = reader.ends;
        let has_data = log.has_data();
        let size = |path: &std::path::Path| self.files.get(path).map_or(0, |file| file.size());
        info.index_bytes += index_end;
        info.tail_bytes += size(&reader.index).saturating_sub(index_end);
        if has_data {
            info.data_bytes += data_end;
            info.tail_bytes += size(&reader.data).saturating_sub(data_end);
        }
        for same in reader.entries.chunk_by(|one, other| one.epoch == other.epoch) {
            let number = usize::try_from(same[0].epoch).unwrap_or(usize::MAX);
            if info.epochs.len() <= number {
                info.epochs.resize_with(number + 1, EpochInfo::default);
            }
            let epoch = &mut info.epochs[number];
            let records: u64 = same.iter().map(|entry| entry.records).sum();
            match log {
                Log::Writer(_) => epoch.writer_records += records,
                _ => epoch.partition_records += records,
            }
            epoch.segments += same.len() as u64;
            epoch.segments_max = epoch.segments_max.max(same.len() as u64);
            for entry in same.iter().filter(|entry| entry.head.bytes > 0) {
                for segment in self.segments(&[(std::sync::Arc::clone(&reader), *entry)])? {
                    let regions: u64 =
                        segment.head.regions.iter().map(|region| u64::from(region.bytes)).sum();
                    *(if has_data { &mut epoch.filter_bytes } else { &mut epoch.auxiliary_bytes }) += regions;
                    epoch.tables += segment.head.tables.len() as u64;
                    epoch.block_bytes +=
                        segment.head.blocks.iter().map(|block| u64::from(block.bytes)).sum::<u64>();
                }
            }
        }
        Ok(())
    }
}
