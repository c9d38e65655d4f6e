//! A random-access file: held open, so that a read of any of its bytes costs no open and no stat.
//!
//! ```text
//!   begin(at, bytes) -> PendingRead ──complete()──▶ bytes        many at once, from any thread
//!        ├─ short, or in the page cache     the descriptor that was opened first
//!        └─ long                            a second descriptor, past the page cache
//! ```
//!
//! Two descriptors, because O_DIRECT belongs to the descriptor, and small reads are worth keeping in the page cache.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::direct::QueuedFile;
use crate::disk::Disk;
use crate::error::{Action, IoError};
use crate::fault_hook::Effect;
use crate::io_queue::{IoQueue, Ticket};
use crate::ledger::Direction;
use crate::stream::Filled;
use crate::sync::Unpoisoned;

const PAGE: u64 = PAGE_BYTES as u64;

/// Bytes of the whole pages that contain `len` bytes at `offset`: the size of a buffer for them.
pub(crate) fn pages_of(offset: u64, len: u64) -> u64 {
    (offset % PAGE + len).next_multiple_of(PAGE)
}

/// One open descriptor of a file. Several threads can read through it at once.
///
/// Invariant: reads ask for whole pages, so that O_DIRECT stays on.
pub(crate) struct Descriptor {
    base: Arc<Mutex<QueuedFile>>,
    queue: IoQueue,
    file: Arc<File>,
    device: u64,
    direct: bool,
    /// The size of the file when it was opened.
    bytes: u64,
}

/// A read that has begun.
pub struct PendingRead {
    base: Arc<Mutex<QueuedFile>>,
    ticket: Ticket,
    /// Where the requested bytes are in the buffer.
    start: usize,
    end: usize,
    /// Where the buffer is in the file.
    at: u64,
}

impl Descriptor {
    pub(crate) fn new(base: QueuedFile, device: u64, bytes: u64) -> Self {
        let queue = base.queue.clone();
        let file = Arc::clone(&base.file);
        let direct = base.direct;
        Self { base: Arc::new(Mutex::new(base)), queue, file, device, direct, bytes }
    }

    /// The device of the file.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// Begins a read of `len` bytes at `offset`; `buf` holds the [pages](pages_of) that contain them.
    pub(crate) fn begin(&self, offset: u64, len: usize, buf: Buf) -> Result<PendingRead, IoError> {
        let pages = pages_of(offset, len as u64) as usize;
        let at = offset - offset % PAGE;
        let start = (offset - at) as usize;
        let mut base = lock(&self.base);
        let effect = base.context.inject_fault(Action::Read, at)?;
        if buf.len() < pages {
            return Err(base.context.misuse(offset, "a buffer is smaller than what is read into it"));
        }
        let request = base.request(Direction::Read, buf, at, pages, effect == Some(Effect::Short))?;
        drop(base);
        let ticket = self.queue.submit(request);
        Ok(PendingRead { base: Arc::clone(&self.base), ticket, start, end: start + len, at })
    }
}

fn lock(base: &Mutex<QueuedFile>) -> MutexGuard<'_, QueuedFile> {
    base.lock().unpoisoned()
}

impl PendingRead {
    /// Whether completing it does not wait.
    pub(crate) fn is_finished(&self) -> bool {
        self.ticket.is_finished()
    }

    /// Waits for the bytes. Fewer bytes than requested are an error.
    ///
    /// # Errors
    /// A failed read, or a file that ends early.
    pub fn complete(self) -> Result<Filled, IoError> {
        let Self { base, ticket, start, end, at } = self;
        let since = Instant::now();
        let (buf, moved) = ticket.wait();
        let context = &lock(&base).context;
        context.meter.waited(since.elapsed());
        let moved = moved.map_err(|error| context.error(Action::Read, at, error))?;
        match buf {
            Some(buf) if moved >= end => Ok(Filled { buf, start, end }),
            _ => Err(context.truncated(at + moved as u64, at + end as u64)),
        }
    }
}

/// Calls that ask a file system for a file and not for its bytes.
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

    /// Counts calls that ask for a file's size, time and the like.
    pub fn count_inspected(&self, more: u64) {
        self.inspected.fetch_add(more, Ordering::Relaxed);
    }

    /// Files opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Calls so far that asked for a file's size, time and the like.
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
    /// Opened with the first long read; `None` where the volume has no direct access.
    direct: OnceLock<Option<Descriptor>>,
    calls: Arc<MetadataCalls>,
}

impl RandomAccessFile {
    /// Opens a file; `name` is for the ledger, and `calls` counts the calls for opening.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn open(disk: &Disk, path: &Path, name: &str, calls: &Arc<MetadataCalls>) -> Result<Self, IoError> {
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

    /// Its size when it was opened.
    pub fn size(&self) -> u64 {
        self.cached.bytes
    }

    /// Bytes of the buffer that a read of `bytes` at `offset` needs: the whole pages that contain them.
    pub fn buffer_bytes(offset: u64, bytes: usize) -> usize {
        usize::try_from(pages_of(offset, bytes as u64)).unwrap_or(usize::MAX)
    }

    /// Begins a read of `bytes` at `offset` into `buf`, which has the [size](Self::buffer_bytes) that it needs.
    ///
    /// # Errors
    /// A read that cannot begin.
    pub fn begin(&self, offset: u64, bytes: usize, buf: Buf) -> Result<PendingRead, IoError> {
        self.direct_for(offset, bytes as u64).unwrap_or(&self.cached).begin(offset, bytes, buf)
    }

    /// The descriptor past the page cache, if these bytes are to be read through it.
    fn direct_for(&self, offset: u64, bytes: u64) -> Option<&Descriptor> {
        if !self.disk.prefers_direct(&self.cached.file, offset, bytes) {
            return None;
        }
        let open = || {
            self.calls.count_opened(1);
            self.calls.count_inspected(1);
            // If it does not open, reads go through the page cache.
            self.disk.open_random(&self.path, &self.name, true).ok().filter(|opened| opened.direct)
        };
        self.direct.get_or_init(open).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{DiskOptions, FaultHook, Pool};

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
                let pages = super::pages_of(at as u64, len as u64) as usize;
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
