//! A directory written by one process: it owns all partitions and is the only writer.
//!
//! If partitions are by key range, the first records wait in memory until they form a sample that divides the keys;
//! after that, the keys of each epoch divide the next.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ascot_io::{Disk, Pool};

use crate::error::Result;
use crate::format::layout::{Layout, PartitionBy};
use crate::format::manifest::Manifest;
use crate::write::boundaries::Sampler;
use crate::write::coordinator::Coordinator;
use crate::write::local::{EpochCounts, LocalWriter, Share};
use crate::write::opening::{OpenMode, Opening};

/// One part in this many of the memory is for records that wait for boundaries.
const WAITING_SHARE: usize = 16;

/// Writes a directory from one process.
pub struct DirectoryWriter {
    coordinator: Coordinator,
    local: LocalWriter,
    layout: Layout,
    sampler: Option<Sampler>,
    boundaries: Vec<Vec<u8>>,
    /// Records that wait for boundaries, their bytes, and the maximum of those bytes.
    waiting: Vec<(Vec<u8>, Vec<u8>)>,
    waiting_bytes: usize,
    max_waiting_bytes: usize,
    /// Records of the open epoch.
    open_records: u64,
}

impl DirectoryWriter {
    /// Makes the directory `path`; the writer uses at most `memory_bytes`.
    ///
    /// # Errors
    /// Those of [`Coordinator::create`] and [`LocalWriter::open`].
    pub fn create(disk: &Disk, path: &Path, layout: Layout, memory_bytes: usize) -> Result<Self> {
        let layout = Layout { writers: 1, ..layout };
        let coordinator = Coordinator::create(disk, path, layout)?;
        Self::begin(disk, coordinator, memory_bytes)
    }

    /// Continues a directory after its last complete epoch, whatever number of processes wrote it.
    ///
    /// # Errors
    /// Those of [`Coordinator::append`] and [`LocalWriter::open`].
    pub fn append(disk: &Disk, path: &Path, memory_bytes: usize) -> Result<Self> {
        let opening = Opening { mode: OpenMode::Append, ..Opening::default() };
        Self::open(disk, path, &opening, memory_bytes)
    }

    /// Makes the directory or continues it, as `opening` requires.
    ///
    /// # Errors
    /// Those of [`create`](Self::create) and [`append`](Self::append); [`crate::IndexError::Request`] if an existing
    /// directory does not match the request, or has fewer epochs than should stay.
    pub fn open(disk: &Disk, path: &Path, opening: &Opening, memory_bytes: usize) -> Result<Self> {
        let goes_on = opening.goes_on(path)?;
        let layout = match goes_on {
            true => opening.go_on(Manifest::read(path)?, 1, u32::MAX)?.layout,
            false => opening.request.layout(1, 1),
        };
        let share = all_of(&layout);
        // An impossible request is refused before anything changes.
        let memory = memory_bytes - waiting_bytes(&layout, memory_bytes);
        LocalWriter::check_memory(&layout, &share, memory)?;
        let coordinator = opening.coordinate(disk, path, &layout, goes_on)?;
        Self::begin(disk, coordinator, memory_bytes)
    }

    pub(crate) fn begin(disk: &Disk, coordinator: Coordinator, memory_bytes: usize) -> Result<Self> {
        let layout = coordinator.manifest().layout.clone();
        let by_range = layout.partition_by == PartitionBy::Range;
        let share = all_of(&layout);
        let max_waiting_bytes = waiting_bytes(&layout, memory_bytes);
        let memory = memory_bytes - max_waiting_bytes;
        let local = LocalWriter::open(disk, coordinator.directory(), coordinator.manifest(), &share, memory)?;
        Ok(Self {
            boundaries: coordinator.manifest().next_boundaries(),
            sampler: by_range.then(|| Sampler::new(layout.partitions)),
            waiting: Vec::new(),
            waiting_bytes: 0,
            max_waiting_bytes,
            open_records: 0,
            coordinator,
            local,
            layout,
        })
    }

    /// Once `flag` is set, a call that writes to the files fails with [`crate::IndexError::Stopped`], and so do those
    /// after it. A buffer that is being sorted is sorted first.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>) {
        self.local.stop_when(flag);
    }

    /// Whether `records` more records with `bytes` bytes of keys and values are surely appended in memory: none of them
    /// waits for a buffer to be sorted and written. Values that schemes with logs of values write as they come do not
    /// count.
    pub fn has_space(&self, records: usize, bytes: usize) -> bool {
        self.waiting.is_empty() && !self.waits_for_boundaries() && self.local.has_space(records, bytes)
    }

    fn waits_for_boundaries(&self) -> bool {
        self.sampler.is_some() && self.boundaries.is_empty() && self.layout.partitions > 1
    }

    /// Appends a record to the epoch.
    pub fn append_record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.layout.check_record(key, value)?;
        self.open_records += 1;
        if let Some(sampler) = &mut self.sampler {
            sampler.see(key);
        }
        if self.waits_for_boundaries() {
            let bytes = key.len() + value.len() + 64;
            if self.waiting_bytes + bytes <= self.max_waiting_bytes {
                self.waiting_bytes += bytes;
                self.waiting.push((key.to_vec(), value.to_vec()));
                return Ok(());
            }
            self.divide()?;
        }
        self.route(key, value)
    }

    /// Computes boundaries from the sample, and routes the records that waited for them.
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
        self.local.put_own(&self.layout, partition, key, value)
    }

    /// Ends the epoch: it is durable and complete.
    pub fn end_epoch(&mut self) -> Result<EpochCounts> {
        if !self.waiting.is_empty() {
            self.divide()?;
        }
        let counts = self.local.end_epoch()?;
        if let Err(error) = self.coordinator.commit(&self.boundaries) {
            // The logs are an epoch ahead of the manifest: later records would be taken for this epoch.
            self.local.fail();
            return Err(error);
        }
        self.open_records = 0;
        if let Some(sampler) = self.sampler.as_mut().filter(|sampler| sampler.seen() > 0) {
            self.boundaries = sampler.boundaries(self.layout.partitions);
        }
        Ok(counts)
    }

    /// Ends the epoch if records were appended since the end of the last one.
    pub fn end_open_epoch(&mut self) -> Result<()> {
        if self.open_records > 0 { self.end_epoch().map(drop) } else { Ok(()) }
    }

    /// Closes the directory. Records appended since the end of the last epoch become an epoch.
    pub fn close(mut self) -> Result<Manifest> {
        self.end_open_epoch()?;
        self.local.finish()?;
        self.coordinator.close()
    }

    /// The manifest: the layout and the number of complete epochs.
    pub fn manifest(&self) -> &Manifest {
        self.coordinator.manifest()
    }

    /// The memory pool of the logs.
    pub fn pool(&self) -> &Pool {
        self.local.pool()
    }
}

/// The share of a single process: all partitions.
fn all_of(layout: &Layout) -> Share {
    Share { partitions: 0..layout.partitions, writer: Some(0) }
}

/// Bytes of memory for records that wait for boundaries.
fn waiting_bytes(layout: &Layout, memory_bytes: usize) -> usize {
    if layout.partition_by == PartitionBy::Range { memory_bytes / WAITING_SHARE } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::IndexError;
    use crate::format::layout::Scheme;
    use crate::write::request::LayoutRequest;

    const AUTO: OpenMode = OpenMode::Auto;

    fn opening(mode: OpenMode, rollback: Option<u64>) -> Opening {
        Opening { mode, rollback, ..Opening::default() }
    }

    fn names(path: &Path) -> usize {
        std::fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn an_empty_directory_is_taken_and_one_with_other_files_is_not() {
        for mode in [OpenMode::Create, AUTO] {
            let scratch = tempfile::tempdir().unwrap();
            let (path, disk) = (scratch.path(), Disk::default());
            std::fs::write(path.join("notes"), "mine").unwrap();
            let refused = DirectoryWriter::open(&disk, path, &opening(mode, None), 8 << 20).err();
            assert!(matches!(refused, Some(IndexError::Exists { indexed: false, .. })), "{refused:?}");
            assert_eq!(names(path), 1);
            std::fs::remove_file(path.join("notes")).unwrap();
            let mut writer = DirectoryWriter::open(&disk, path, &opening(mode, None), 8 << 20).unwrap();
            writer.append_record(b"a", b"1").unwrap();
            assert_eq!(writer.close().unwrap().epochs, 1);
            let refused = DirectoryWriter::open(&disk, path, &opening(OpenMode::Create, None), 8 << 20).err();
            assert!(matches!(refused, Some(IndexError::Exists { indexed: true, .. })), "{refused:?}");
        }
    }

    /// A restart in any mode finds a directory without epochs.
    #[test]
    fn a_directory_whose_first_epoch_died_is_gone_on_with() {
        for (mode, scheme) in [
            (OpenMode::Append, None),
            (AUTO, None),
            (OpenMode::Create, None),
            (OpenMode::Create, Some(Scheme::Ranks)),
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let (path, disk) = (scratch.path().join("run.dir"), Disk::default());
            let mut died = DirectoryWriter::open(&disk, &path, &opening(AUTO, Some(0)), 8 << 20).unwrap();
            died.append_record(b"a", &[7; 100_000]).unwrap();
            died.local.end_epoch().unwrap();
            drop(died);
            assert_eq!(names(&path), 4);
            let request = LayoutRequest { scheme, ..LayoutRequest::default() };
            let again = Opening { request, ..opening(mode, None) };
            let mut writer = DirectoryWriter::open(&disk, &path, &again, 8 << 20).unwrap();
            writer.append_record(b"a", b"2").unwrap();
            assert_eq!(writer.close().unwrap().epochs, 1);
            let directory = crate::Directory::open(&disk, &path, 8 << 20).unwrap();
            assert_eq!(directory.get(b"a").unwrap()[0].bytes, b"2");
            assert!(directory.verify().unwrap().is_whole());
        }
    }

    #[test]
    fn what_is_asked_for_has_to_be_so_and_what_is_to_stay_has_to_be_there() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, disk) = (scratch.path().join("run.dir"), Disk::default());
        let open = |opening: &Opening| DirectoryWriter::open(&disk, &path, opening, 8 << 20);
        let refused = |opening: &Opening| open(opening).err().unwrap().to_string();
        assert!(refused(&opening(AUTO, Some(2))).contains("has no 2 epochs to roll back to"));
        for epoch in 0..3u64 {
            // Each run starts again.
            let mut writer = open(&opening(AUTO, Some(epoch))).unwrap();
            writer.append_record(b"a", &epoch.to_le_bytes()).unwrap();
            writer.close().unwrap();
        }
        let before = std::fs::read(path.join("MANIFEST")).unwrap();
        let ranks = LayoutRequest { scheme: Some(Scheme::Ranks), ..LayoutRequest::default() };
        assert!(
            refused(&Opening { request: ranks, ..opening(AUTO, Some(1)) }).contains("scheme ranks was given")
        );
        assert!(refused(&opening(OpenMode::Append, Some(4))).contains("3 complete epochs"));
        assert_eq!(std::fs::read(path.join("MANIFEST")).unwrap(), before, "nothing was rolled back");
        let mut writer = open(&opening(OpenMode::Append, Some(1))).unwrap();
        writer.append_record(b"a", b"anew").unwrap();
        assert_eq!(writer.close().unwrap().epochs, 2);
        let directory = crate::Directory::open(&disk, &path, 8 << 20).unwrap();
        let values: Vec<_> = directory.get(b"a").unwrap().into_iter().map(|value| value.bytes).collect();
        assert_eq!(values, [0u64.to_le_bytes().to_vec(), b"anew".to_vec()]);
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

    /// What has space is appended without the files, which a stopped writer does not write any more.
    #[test]
    fn a_stopped_writer_takes_what_has_space_and_nothing_more() {
        for (scheme, partitions, by) in [
            (Scheme::Records, 1, PartitionBy::Hash),
            (Scheme::Records, 4, PartitionBy::Range),
            (Scheme::Ranks, 2, PartitionBy::Hash),
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let (path, disk) = (scratch.path().join("run.dir"), Disk::default());
            let layout = Layout { partition_by: by, ..Layout::new(scheme, partitions, 1) };
            let mut writer = DirectoryWriter::create(&disk, &path, layout, 16 << 20).unwrap();
            writer.append_record(b"a", b"1").unwrap();
            writer.end_epoch().unwrap();
            let stop = Arc::new(AtomicBool::new(true));
            writer.stop_when(Arc::clone(&stop));
            let mut appended = 0u32;
            let refused = loop {
                let key = appended.wrapping_mul(2_654_435_761).to_be_bytes();
                let has_space = writer.has_space(1, key.len() + 9);
                match writer.append_record(&key, b"the value") {
                    Ok(()) => appended += 1,
                    Err(error) => break (has_space, error),
                }
            };
            assert!(matches!(refused, (false, IndexError::Stopped { .. })), "{refused:?}");
            assert!(appended > 10_000, "{appended}");
            stop.store(false, std::sync::atomic::Ordering::Relaxed);
            assert!(matches!(writer.end_epoch(), Err(IndexError::Failed { .. })));
            drop(writer);
            let directory = crate::Directory::open(&disk, &path, 8 << 20).unwrap();
            assert_eq!((directory.manifest().epochs, directory.get(b"a").unwrap().len()), (1, 1));
        }
    }

    /// An epoch that is in the logs but not in the manifest must not take the number of the epoch after it.
    #[test]
    fn nothing_is_taken_behind_an_epoch_that_was_not_committed() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, disk) = (scratch.path().join("run.dir"), Disk::default());
        let layout = Layout::new(Scheme::Records, 1, 1);
        let mut writer = DirectoryWriter::create(&disk, &path, layout, 8 << 20).unwrap();
        writer.append_record(b"a", b"1").unwrap();
        // A manifest cannot replace a directory.
        std::fs::remove_file(path.join("MANIFEST")).unwrap();
        std::fs::create_dir(path.join("MANIFEST")).unwrap();
        writer.end_epoch().unwrap_err();
        std::fs::remove_dir(path.join("MANIFEST")).unwrap();
        assert!(matches!(writer.append_record(b"b", b"2"), Err(IndexError::Failed { .. })));
        assert!(matches!(writer.close(), Err(IndexError::Failed { .. })));
    }
}
