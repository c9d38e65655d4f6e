//! A random-access file: it stays open, so a read of any of its bytes costs no open and no stat.
//!
//! ```text
//!   begin(at, bytes) -> PendingRead ──complete()──▶ bytes        many at once, from any thread
//!        ├─ short, or in the page cache     the descriptor that was opened first
//!        └─ long                            a second descriptor, past the page cache
//! ```
//!
//! It has two descriptors, because O_DIRECT belongs to the descriptor, and small reads are worth keeping in the page
//! cache.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::buf::Buf;
use crate::direct::{Descriptor, PendingRead, pages_of};
use crate::disk::Disk;
use crate::error::Result;

/// Counts the metadata calls made for files: opens and inspections.
#[derive(Debug, Default)]
pub struct MetadataCalls {
    opened: AtomicU64,
    inspected: AtomicU64,
}

impl MetadataCalls {
    /// Counts files opened.
    pub fn count_opened(&self, more: u64) {
        self.opened.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts calls for a file's size, time and other metadata.
    pub fn count_inspected(&self, more: u64) {
        self.inspected.fetch_add(more, Ordering::Relaxed);
    }

    /// Files opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Calls so far for a file's size, time and other metadata.
    pub fn inspected(&self) -> u64 {
        self.inspected.load(Ordering::Relaxed)
    }
}

/// A file held open for reading.
pub struct RandomAccessFile {
    disk: Disk,
    path: PathBuf,
    name: String,
    cached: Descriptor,
    /// Opened with the first long read; `None` if the volume has no direct access.
    direct: OnceLock<Option<Descriptor>>,
    calls: Arc<MetadataCalls>,
}

impl RandomAccessFile {
    /// Opens a file; `name` is its name in the ledger, and `calls` counts the calls for opening.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn open(disk: &Disk, path: &Path, name: &str, calls: &Arc<MetadataCalls>) -> Result<Self> {
        let cached = disk.open_random(path, name, false)?;
        calls.count_opened(1);
        calls.count_inspected(1);
        Ok(Self {
            disk: disk.clone(),
            path: path.to_path_buf(),
            name: name.to_owned(),
            cached,
            direct: OnceLock::new(),
            calls: Arc::clone(calls),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size when opened.
    pub fn size(&self) -> u64 {
        self.cached.bytes()
    }

    /// Bytes of the buffer for a read of `bytes` at `offset`: the whole pages that contain them.
    pub fn buffer_bytes(offset: u64, bytes: usize) -> usize {
        usize::try_from(pages_of(offset, bytes as u64)).unwrap_or(usize::MAX)
    }

    /// Begins a read of `bytes` at `offset` into `buf`, which has [`buffer_bytes`](Self::buffer_bytes).
    ///
    /// # Errors
    /// A read that cannot begin.
    pub fn begin(&self, offset: u64, bytes: usize, buf: Buf) -> Result<PendingRead> {
        self.direct_for(offset, bytes as u64).unwrap_or(&self.cached).begin(offset, bytes, buf)
    }

    /// The descriptor that bypasses the page cache, if these bytes should be read through it.
    fn direct_for(&self, offset: u64, bytes: u64) -> Option<&Descriptor> {
        if !self.disk.prefers_direct(self.cached.file(), offset, bytes) {
            return None;
        }
        let open = || {
            self.calls.count_opened(1);
            self.calls.count_inspected(1);
            // If it does not open, reads go through the page cache.
            self.disk.open_random(&self.path, &self.name, true).ok().filter(Descriptor::is_direct)
        };
        self.direct.get_or_init(open).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::error::IoError;
    use crate::{Action, DiskOptions, Effect, FaultHook, Pool};

    #[derive(Debug, Default)]
    struct Counting(AtomicU64);

    impl FaultHook for Counting {
        fn before(&self, _: Action, _: &Path) -> std::io::Result<Option<Effect>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        }
    }

    #[test]
    fn many_reads_of_one_file_open_it_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let counting = Arc::new(Counting::default());
        let counted = || counting.0.load(Ordering::Relaxed);
        let disk = Disk::new(DiskOptions { faults: Some(counting.clone()), ..DiskOptions::default() });
        let calls = Arc::new(MetadataCalls::default());
        let file = Arc::new(RandomAccessFile::open(&disk, &path, "test", &calls).unwrap());
        assert_eq!((counted(), file.size()), (1, 3_000_001));
        let places = [(2_999_990, 11), (0, 1), (4095, 2), (1_000_001, 1_500_000), (1_000_001, 1_500_000)];
        let begin = |at: usize, len| {
            file.begin(at as u64, len, Buf::heap(RandomAccessFile::buffer_bytes(at as u64, len)))
        };
        let begun: Vec<_> = places.iter().map(|&(at, len)| begin(at, len).unwrap()).collect();
        for (read, (at, len)) in begun.into_iter().zip(places) {
            assert_eq!(read.complete().unwrap().bytes(), &bytes[at..at + len]);
        }
        // At most one more descriptor, for the long reads.
        assert!(calls.opened() <= 2 && counted() <= calls.opened() + 5);
        assert!(matches!(begin(2_999_990, 12).unwrap().complete(), Err(IoError::Truncated { .. })));
    }

    #[test]
    fn any_bytes_at_any_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = Disk::default().open_random(&path, "test", true).unwrap();
        let pool = Pool::new(8 << 20);
        let places = [(2_999_990, 11), (0, 1), (4095, 2), (4096, 4096), (1_000_001, 1_500_000)];
        let asked: Vec<_> = places
            .iter()
            .map(|&(at, len)| {
                let pages = pages_of(at as u64, len as u64) as usize;
                file.begin(at as u64, len, pool.region(pages, "a test").unwrap()).unwrap()
            })
            .collect();
        for (asked, (at, len)) in asked.into_iter().zip(places).rev() {
            assert_eq!(asked.complete().unwrap().bytes(), &bytes[at..at + len]);
        }
        let beyond = file.begin(2_999_990, 12, Buf::heap(8192)).unwrap();
        assert!(beyond.complete().is_err());
        assert!(file.begin(4095, 2, Buf::heap(4096)).is_err());
    }
}
