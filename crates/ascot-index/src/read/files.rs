//! The files of a directory that a reader holds open, and the reads of their bytes: several at a time; each is one
//! request and is counted. A query that returns to a file neither opens nor inspects it again.
//!
//! Invariants: the files held are at most a fraction of the process's descriptor limit, and the least
//! recently used are closed first. If the system refuses to open one more, all files that no read is using
//! are closed, and the open is retried once.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use ascot_io::{
    Buf, Disk, Filled, IoError, MetadataCalls, PendingRead, Pool, RandomAccessFile, Unpoisoned,
    descriptor_limit,
};

use crate::error::{IndexError, Result};
use crate::read::counters::QueryCounts;

/// The ledger's name for these files.
const NAME: &str = "index read";
/// One descriptor in this many is for the files of a reader; a file may take two descriptors.
const SHARE: usize = 4;
/// Bounds of the number of files held.
const MIN: usize = 2;
const MAX: usize = 1024;
/// Maximum number of reads in flight.
const DEPTH: usize = 32;

/// A byte range of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// The file.
    pub path: PathBuf,
    /// The first byte.
    pub at: u64,
    /// Bytes.
    pub bytes: usize,
}

/// Open files, the memory of what is read of them, and the counts of reads.
pub struct Files {
    disk: Disk,
    calls: Arc<MetadataCalls>,
    max_files: usize,
    held: Mutex<Held>,
    pool: Pool,
    counts: Mutex<QueryCounts>,
}

#[derive(Default)]
struct Held {
    /// Number of uses so far.
    clock: u64,
    files: HashMap<PathBuf, (Arc<RandomAccessFile>, u64)>,
}

impl Files {
    /// An empty set; the descriptor limit of the process sets its maximum.
    pub fn new(disk: &Disk, calls: Arc<MetadataCalls>, pool: &Pool) -> Self {
        Self {
            disk: disk.clone(),
            calls,
            max_files: (descriptor_limit() / SHARE).clamp(MIN, MAX),
            held: Mutex::default(),
            pool: pool.clone(),
            counts: Mutex::default(),
        }
    }

    /// Counts of the calls that open and inspect files.
    pub fn calls(&self) -> &MetadataCalls {
        &self.calls
    }

    /// The file, opened if it is not open.
    ///
    /// # Errors
    /// [`IndexError::Missing`]; errors of opening it.
    pub fn get(&self, path: &Path) -> Result<Arc<RandomAccessFile>> {
        if let Some(file) = self.held().find(path) {
            return Ok(file);
        }
        let open = || RandomAccessFile::open(&self.disk, path, NAME, &self.calls);
        let opened = match open() {
            Err(error) if error.is_too_many_open() => {
                self.held().files.clear();
                open()
            }
            opened => opened,
        };
        let file = Arc::new(opened.map_err(|error| missing(error, path))?);
        self.held().keep(&file, self.max_files);
        Ok(file)
    }

    /// Counts of the reads so far, and of the calls that open and inspect files.
    pub fn counts(&self) -> QueryCounts {
        QueryCounts {
            files_opened: self.calls.opened(),
            files_inspected: self.calls.inspected(),
            ..*self.counts.lock().unpoisoned()
        }
    }

    /// Adds to the counts.
    pub fn count(&self, add: impl FnOnce(&mut QueryCounts)) {
        add(&mut self.counts.lock().unpoisoned());
    }

    /// Reads byte ranges in the given order, which should be file order; hands each to `take` with its number.
    /// Reads in flight take at most a quarter of the reader's memory, unless a single range is larger.
    pub fn fetch_all(
        &self,
        byte_ranges: &[ByteRange],
        mut take: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let max_bytes = self.pool.budget() / 4;
        let mut begun = VecDeque::with_capacity(DEPTH);
        let mut in_flight = 0;
        let mut next = 0;
        for (number, byte_range) in byte_ranges.iter().enumerate() {
            while let Some(ahead) = byte_ranges.get(next) {
                if begun.len() >= DEPTH || (!begun.is_empty() && in_flight + ahead.bytes > max_bytes) {
                    break;
                }
                match self.begin_held(ahead) {
                    Ok(read) => begun.push_back(read),
                    // Reads in flight hold their files open: descriptors become free when they complete.
                    Err(error) if is_too_many_open(&error) && !begun.is_empty() => break,
                    Err(error) => return Err(error),
                }
                in_flight += ahead.bytes;
                next += 1;
            }
            if let Some(read) = begun.pop_front() {
                let filled = complete(read, &byte_range.path)?;
                self.count(|counts| counts.bytes += byte_range.bytes as u64);
                in_flight -= byte_range.bytes;
                take(number, filled.bytes())?;
            }
        }
        Ok(())
    }

    /// Reads one byte range.
    pub fn fetch_one(&self, path: &Path, at: u64, bytes: usize) -> Result<Filled> {
        let byte_range = ByteRange { path: path.to_path_buf(), at, bytes };
        let filled = complete(self.begin_held(&byte_range)?, path)?;
        self.count(|counts| counts.bytes += bytes as u64);
        Ok(filled)
    }

    fn begin_held(&self, byte_range: &ByteRange) -> Result<PendingRead> {
        let ByteRange { path, at, bytes } = byte_range;
        let buf = |bytes| Ok(self.pool.region(bytes, "what is read of a directory")?);
        begin(&*self.get(path)?, *at, *bytes, buf)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unpoisoned()
    }
}

impl Held {
    fn find(&mut self, path: &Path) -> Option<Arc<RandomAccessFile>> {
        self.clock += 1;
        let (file, used) = self.files.get_mut(path)?;
        *used = self.clock;
        Some(Arc::clone(file))
    }

    fn keep(&mut self, file: &Arc<RandomAccessFile>, max_files: usize) {
        if self.files.len() >= max_files {
            // A quarter at a time, so that one search for the oldest serves many evictions.
            let mut uses: Vec<u64> = self.files.values().map(|one| one.1).collect();
            uses.sort_unstable();
            let limit = uses[uses.len() / 4];
            self.files.retain(|_, one| one.1 > limit);
        }
        self.files.insert(file.path().to_path_buf(), (Arc::clone(file), self.clock));
    }
}

/// Begins to read `bytes` at `at` of a file into a buffer that `buf` makes.
pub fn begin(
    file: &RandomAccessFile,
    at: u64,
    bytes: usize,
    buf: impl FnOnce(usize) -> Result<Buf>,
) -> Result<PendingRead> {
    let damaged = |at, what| IndexError::damaged(file.path(), at, what);
    let end = at.checked_add(bytes as u64).ok_or_else(|| damaged(at, "a place is beyond all files"))?;
    if end > file.size() {
        return Err(damaged(file.size().max(at), CUT_SHORT));
    }
    Ok(file.begin(at, bytes, buf(RandomAccessFile::buffer_bytes(at, bytes))?)?)
}

/// Completes a read of a file at `path`.
pub fn complete(read: PendingRead, path: &Path) -> Result<Filled> {
    read.complete().map_err(|error| match error {
        IoError::Truncated { offset, .. } => IndexError::damaged(path, offset, CUT_SHORT),
        error => error.into(),
    })
}

const CUT_SHORT: &str = "it ends before what its index names: it was cut short";

/// Maps "not found" to [`IndexError::Missing`] and keeps other errors.
pub fn missing(error: IoError, path: &Path) -> IndexError {
    match error {
        IoError::Os { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            IndexError::Missing { path: path.to_path_buf() }
        }
        error => error.into(),
    }
}

/// Whether an error says that too many files are open.
pub fn is_too_many_open(error: &IndexError) -> bool {
    matches!(error, IndexError::Io(error) if error.is_too_many_open())
}

#[cfg(test)]
mod tests {
    use ascot_io::{Action, DiskOptions, Effect};
    use ascot_testing::faults::{FaultPlan, Faults};

    use super::*;

    #[test]
    fn those_used_last_stay_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = |number: usize| dir.path().join(number.to_string());
        (0..10).for_each(|number| std::fs::write(path(number), b"x").unwrap());
        let files = Files { max_files: 4, ..Files::new(&Disk::default(), Arc::default(), &Pool::new(0)) };
        for number in 1..10 {
            files.get(&path(0)).unwrap();
            files.get(&path(number)).unwrap();
            assert!(files.held().files.len() <= 4);
        }
        assert_eq!(files.calls().opened(), 10, "file 0 stayed open");
        files.get(&path(1)).unwrap();
        assert_eq!(files.calls().opened(), 11);
        assert!(matches!(files.get(&path(10)), Err(IndexError::Missing { .. })));
    }

    #[test]
    fn where_descriptors_run_out_others_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |number: usize| dir.path().join(number.to_string());
        (0..3).for_each(|number| std::fs::write(path(number), b"x").unwrap());
        let plan = FaultPlan {
            at: 2,
            effect: Effect::TooManyOpen,
            operations: vec![Action::Open],
            path_contains: String::new(),
            lasting: false,
        };
        let disk =
            Disk::new(DiskOptions { faults: Some(Faults::new(plan).into()), ..DiskOptions::default() });
        let files = Files::new(&disk, Arc::default(), &Pool::new(0));
        (0..3).for_each(|number| drop(files.get(&path(number)).unwrap()));
        assert_eq!(files.held().files.len(), 1);
    }
}
