//! A directory written by one process: all partitions are its own, and it is the only writer.
//!
//! Where partitions are by key range, the first records wait in memory until they are a sample to divide keys by; from
//! then on each epoch is divided by what was seen in the one before.

use std::path::Path;

use ascot_io::{Disk, Pool};

use crate::error::{IndexError, Result, counted};
use crate::format::manifest::{Layout, Manifest, PartitionBy, Scheme};
use crate::write::boundaries::Sampler;
use crate::write::coordinator::Coordinator;
use crate::write::local::{EpochCounts, LocalWriter, Share};

/// Share of the memory in which first records wait for boundaries.
const WAITING_SHARE: usize = 16;

/// A directory being written by one process.
pub struct DirectoryWriter {
    coordinator: Coordinator,
    local: LocalWriter,
    layout: Layout,
    sampler: Option<Sampler>,
    boundaries: Vec<Vec<u8>>,
    /// Records that wait for boundaries, their bytes, and how many there may be.
    waiting: Vec<(Vec<u8>, Vec<u8>)>,
    waiting_bytes: usize,
    waiting_most: usize,
    /// Records of the open epoch.
    open_records: u64,
}

impl DirectoryWriter {
    /// Makes the directory `path`, and writes it within `memory_bytes`.
    ///
    /// # Errors
    /// Those of [`Coordinator::create`] and [`LocalWriter::open`].
    pub fn create(disk: &Disk, path: &Path, layout: Layout, memory_bytes: usize) -> Result<Self> {
        let layout = Layout { writers: 1, ..layout };
        let coordinator = Coordinator::create(disk, path, layout)?;
        Self::open(disk, coordinator, memory_bytes)
    }

    /// Goes on after the last complete epoch of a directory that one process wrote.
    ///
    /// # Errors
    /// [`IndexError::Request`] where several ranks wrote it, each of which keeps what one process would not; those of
    /// [`Coordinator::append`] and [`LocalWriter::open`].
    pub fn append(disk: &Disk, path: &Path, memory_bytes: usize) -> Result<Self> {
        check_writers(&Manifest::read(path)?.layout, path)?;
        let coordinator = Coordinator::append(disk, path)?;
        Self::open(disk, coordinator, memory_bytes)
    }

    pub(crate) fn open(disk: &Disk, coordinator: Coordinator, memory_bytes: usize) -> Result<Self> {
        let layout = coordinator.manifest().layout.clone();
        let by_range = layout.partition_by == PartitionBy::Range;
        let waiting_most = if by_range { memory_bytes / WAITING_SHARE } else { 0 };
        let share = Share { partitions: (0..layout.partitions).collect(), writer: Some(0) };
        let memory = memory_bytes - waiting_most;
        let local = LocalWriter::open(disk, coordinator.directory(), coordinator.manifest(), &share, memory)?;
        let last = coordinator.manifest().epochs.checked_sub(1);
        Ok(Self {
            boundaries: last.map_or(Vec::new(), |epoch| coordinator.manifest().boundaries_of(epoch)),
            sampler: by_range.then(|| Sampler::new(layout.partitions)),
            waiting: Vec::new(),
            waiting_bytes: 0,
            waiting_most,
            open_records: 0,
            coordinator,
            local,
            layout,
        })
    }

    /// Appends a record to the epoch.
    pub fn append_record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.layout.check_record(key, value)?;
        self.open_records += 1;
        if let Some(sampler) = &mut self.sampler {
            sampler.see(key);
            if self.boundaries.is_empty() && self.layout.partitions > 1 {
                let bytes = key.len() + value.len() + 64;
                if self.waiting_bytes + bytes <= self.waiting_most {
                    self.waiting_bytes += bytes;
                    self.waiting.push((key.to_vec(), value.to_vec()));
                    return Ok(());
                }
                self.divide()?;
            }
        }
        self.route(key, value)
    }

    /// Boundaries from what has been seen; what waited for them goes its way.
    fn divide(&mut self) -> Result<()> {
        if let Some(sampler) = &self.sampler {
            self.boundaries = sampler.clone().boundaries(self.layout.partitions);
        }
        self.waiting_bytes = 0;
        for (key, value) in std::mem::take(&mut self.waiting) {
            self.route(&key, &value)?;
        }
        Ok(())
    }

    fn route(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let partition = self.layout.partition_of(key, &self.boundaries);
        self.local.put_own(&self.layout, (partition, 0), key, value)
    }

    /// Ends the epoch: it is durable and complete.
    pub fn end_epoch(&mut self) -> Result<EpochCounts> {
        self.divide_rest()?;
        let counts = self.local.end_epoch()?;
        if let Err(error) = self.coordinator.commit(&self.boundaries) {
            // Its logs are an epoch ahead of the manifest: what followed would be taken for this one.
            self.local.fail();
            return Err(error);
        }
        self.open_records = 0;
        if let Some(sampler) = self.sampler.as_mut().filter(|sampler| sampler.seen() > 0) {
            self.boundaries = sampler.boundaries(self.layout.partitions);
        }
        Ok(counts)
    }

    fn divide_rest(&mut self) -> Result<()> {
        if self.waiting.is_empty() { Ok(()) } else { self.divide() }
    }

    /// Closes the directory. What was appended since the last epoch's end becomes an epoch.
    pub fn close(mut self) -> Result<Manifest> {
        if self.open_records > 0 {
            self.end_epoch()?;
        }
        self.local.finish()?;
        self.coordinator.close()
    }

    /// What the directory is.
    pub fn manifest(&self) -> &Manifest {
        self.coordinator.manifest()
    }

    /// The memory of its logs.
    pub fn pool(&self) -> &Pool {
        self.local.pool()
    }
}

/// Refuses a directory of which ranks keep a part each: an epoch that only one of them has is whole for nobody.
fn check_writers(layout: &Layout, path: &Path) -> Result<()> {
    if layout.scheme == Scheme::Records || layout.writers == 1 {
        return Ok(());
    }
    Err(IndexError::Request(format!(
        "{} was written by {} by the scheme {}, and one process cannot go on with it: go on with as many ranks \
         (append=yes), or make another directory",
        path.display(),
        counted(layout.writers.into(), "rank"),
        layout.scheme.name()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_directory_is_refused_and_stays_empty() {
        let scratch = tempfile::tempdir().unwrap();
        let layout = Layout::new(Scheme::Records, 1, 1);
        let refused = DirectoryWriter::create(&Disk::default(), scratch.path(), layout, 8 << 20).err();
        assert!(matches!(refused, Some(IndexError::Exists { .. })), "{refused:?}");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_appended_last_is_an_epoch_when_it_is_closed() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, disk) = (scratch.path().join("run.dir"), Disk::default());
        let layout = Layout::new(Scheme::Ranks, 2, 1);
        let mut writer = DirectoryWriter::create(&disk, &path, layout, 8 << 20).unwrap();
        writer.append_record(b"a", b"1").unwrap();
        writer.end_epoch().unwrap();
        writer.append_record(b"a", b"2").unwrap();
        assert_eq!(writer.close().unwrap().epochs, 2);
        let writer = DirectoryWriter::append(&disk, &path, 8 << 20).unwrap();
        assert_eq!(writer.close().unwrap().epochs, 2, "nothing is no epoch");
        let directory = crate::Directory::open(&disk, &path, 8 << 20).unwrap();
        assert_eq!(directory.get(b"a").unwrap().len(), 2);
    }

    /// An epoch that is in the logs and not in the manifest must not take the number of the one behind it.
    #[test]
    fn nothing_is_taken_behind_an_epoch_that_was_not_committed() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, disk) = (scratch.path().join("run.dir"), Disk::default());
        let layout = Layout::new(Scheme::Records, 1, 1);
        let mut writer = DirectoryWriter::create(&disk, &path, layout, 8 << 20).unwrap();
        writer.append_record(b"a", b"1").unwrap();
        // A manifest cannot take the place of a directory.
        std::fs::remove_file(path.join("MANIFEST")).unwrap();
        std::fs::create_dir(path.join("MANIFEST")).unwrap();
        writer.end_epoch().unwrap_err();
        std::fs::remove_dir(path.join("MANIFEST")).unwrap();
        assert!(matches!(writer.append_record(b"b", b"2"), Err(IndexError::Failed { .. })));
        assert!(matches!(writer.close(), Err(IndexError::Failed { .. })));
    }
}
