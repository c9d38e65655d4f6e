//! The files of a directory that a reader holds open: a query that returns to a file neither opens nor
//! inspects it again.
//!
//! Invariants: the files held are at most a fraction of the process's descriptor limit, and the least
//! recently used are closed first. If the system refuses to open one more, all files that no read is using
//! are closed, and the open is retried once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use ascot_io::{Disk, IoError, MetadataCalls, RandomAccessFile, Unpoisoned, descriptor_limit};

use crate::error::{IndexError, Result};

/// The ledger's name for these files.
const NAME: &str = "index read";
/// One descriptor in this many is for the files of a reader; a file may take two descriptors.
const SHARE: usize = 4;
/// Bounds of the number of files held.
const MIN: usize = 2;
const MAX: usize = 1024;

/// Open files.
pub struct Files {
    disk: Disk,
    calls: Arc<MetadataCalls>,
    max_files: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Number of uses so far.
    clock: u64,
    files: HashMap<PathBuf, (Arc<RandomAccessFile>, u64)>,
}

impl Files {
    /// An empty set; the descriptor limit of the process sets its maximum.
    pub fn new(disk: &Disk, calls: Arc<MetadataCalls>) -> Self {
        Self::bounded(disk, calls, (descriptor_limit() / SHARE).clamp(MIN, MAX))
    }

    fn bounded(disk: &Disk, calls: Arc<MetadataCalls>, max_files: usize) -> Self {
        Self { disk: disk.clone(), calls, max_files, held: Mutex::default() }
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
        let files = Files::bounded(&Disk::default(), Arc::default(), 4);
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
        let files = Files::bounded(&disk, Arc::default(), 100);
        (0..3).for_each(|number| drop(files.get(&path(number)).unwrap()));
        assert_eq!(files.held().files.len(), 1);
    }
}
