//! Several files of equal size, written one after another: finds the ends of files.
//!
//! ```text
//!   records in order  ─────────────────┬─────────────────┬──────────▶
//!                     file 0           │ file 1          │ file 2
//!              total * 1 / count ──▶ the first record from there on with a new key
//! ```
//!
//! Invariants: a record is in one file. If equal keys stay together, all records of a key are in one file. File i
//! ends after at least `total * (i + 1) / count` bytes of records, so the surplus bytes of one file reduce the
//! size of the next one.

use std::sync::{Arc, Mutex};

use ascot_io::threads::{Thread, spawn};
use ascot_io::{AtomicOutput, Disk, IoError, Unpoisoned};
use ascot_model::stages;

use crate::api::{Cancel, Parts, Result};
use crate::records::Records;

/// A thread that seals a file and returns it.
type Sealing = Thread<Result<Option<AtomicOutput>, IoError>>;

/// Seals a file. If no thread can be started for this, the caller still shares the file and seals it itself.
fn seal(file: &Mutex<Option<AtomicOutput>>) -> Result<Option<AtomicOutput>, IoError> {
    let file = file.lock().unpoisoned().take();
    file.map(|mut file| file.seal().map(|_| file)).transpose()
}

/// The files of a rolling output: the complete ones, and the end of the open one.
pub struct RollingFiles {
    parts: Parts,
    disk: Disk,
    cancel: Cancel,
    /// The first bytes of each file.
    header: Vec<u8>,
    /// Expected bytes of records in total.
    total: u64,
    /// Bytes of records taken.
    taken: u64,
    /// Number of the open file.
    open: u32,
    /// Whether records of one key stay together.
    by_key: bool,
    /// A copy of the last record taken, if the next one may begin a file.
    before: Option<Vec<u8>>,
    sealed: Vec<AtomicOutput>,
    /// The file before the open one is sealed while the open one is written.
    sealing: Option<Sealing>,
}

impl RollingFiles {
    /// Files for about `total` bytes of records, each beginning with `header`.
    pub fn new(
        parts: &Parts,
        total: u64,
        disk: &Disk,
        cancel: &Cancel,
        header: Option<&[u8]>,
        by_key: bool,
    ) -> Self {
        RollingFiles {
            parts: parts.clone(),
            disk: disk.clone(),
            cancel: cancel.clone(),
            header: header.unwrap_or_default().to_vec(),
            total,
            taken: 0,
            open: 0,
            by_key,
            before: None,
            sealed: Vec::new(),
            sealing: None,
        }
    }

    /// Whether the last file is complete.
    pub fn all_complete(&self) -> bool {
        self.open >= self.parts.count
    }

    /// The first bytes of each file.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Creates the open file.
    pub fn create(&self) -> Result<AtomicOutput> {
        self.cancel.check()?;
        Ok(AtomicOutput::create(&self.disk, &self.parts.path(self.open), "output")?)
    }

    /// The end of the open file in `bytes`; none if it ends after them. `bytes` are taken up to `from`, and the first
    /// record that starts in them starts at `first`.
    pub fn cut<R: Records>(&self, records: &R, bytes: &[u8], from: usize, first: usize) -> Option<usize> {
        let end = self.end()?;
        if self.taken + (bytes.len() - from) as u64 <= end {
            return None;
        }
        let wanted = from + end.saturating_sub(self.taken) as usize;
        let mut start = from.max(first);
        // Without a record before it, or after a cut, a record may begin a file.
        let mut is_new = from > 0 || self.taken == 0;
        let mut before = self.before.as_deref();
        while start < bytes.len() {
            let len = records.cut(&bytes[start..], 1).bytes;
            if len == 0 {
                return None;
            }
            let record = &bytes[start..start + len];
            let differs = || before.is_some_and(|before| key_of(records, before) != key_of(records, record));
            if start >= wanted && (!self.by_key || is_new || differs()) {
                return Some(start);
            }
            before = Some(record);
            is_new = false;
            start += len;
        }
        None
    }

    /// Counts `bytes`, which the open file has taken. The first record that starts in them starts at `first`; the last
    /// one is whole if `whole` is set.
    pub fn took<R: Records>(&mut self, records: &R, bytes: &[u8], first: usize, whole: bool) {
        self.taken += bytes.len() as u64;
        // Far from the file's end the last record is not needed.
        let near = self.end().is_some_and(|end| self.taken + 2 * bytes.len() as u64 >= end);
        let starts = self.by_key && near && whole && first < bytes.len();
        self.before = starts.then(|| bytes[first + records.last_record(&bytes[first..])..].to_vec());
    }

    /// Seals the open file, which is complete, while the next one is written.
    pub fn complete(&mut self, done: AtomicOutput) -> Result<()> {
        self.wait()?;
        let file = Arc::new(Mutex::new(Some(done)));
        let shared = Arc::clone(&file);
        match spawn(stages::SEAL, move || seal(&shared)) {
            Ok(thread) => self.sealing = Some(thread),
            Err(_no_thread) => self.sealed.extend(seal(&file)?),
        }
        self.open += 1;
        if self.all_complete() { self.wait() } else { Ok(()) }
    }

    /// Waits until the file before the open one is sealed.
    fn wait(&mut self) -> Result<()> {
        let Some(sealing) = self.sealing.take() else { return Ok(()) };
        self.sealed.extend(sealing.join()??);
        Ok(())
    }

    /// The files, all of which are sealed.
    pub fn into_sealed(mut self) -> Vec<AtomicOutput> {
        std::mem::take(&mut self.sealed)
    }

    /// Bytes of records after which the open file ends; none for the last one, which takes the rest.
    fn end(&self) -> Option<u64> {
        let share = u128::from(self.total) * u128::from(self.open + 1) / u128::from(self.parts.count);
        (self.open + 1 < self.parts.count).then_some(share as u64)
    }
}

impl Drop for RollingFiles {
    /// A file that is being sealed is removed only after that.
    fn drop(&mut self) {
        // The caller has already reported the error that made it drop the output.
        let _ = self.wait();
    }
}

fn key_of<R: Records>(records: &R, record: &[u8]) -> Vec<u8> {
    let mut keys = Vec::new();
    records.sample_keys(record, 1, &mut keys);
    keys.pop().unwrap_or_default()
}
