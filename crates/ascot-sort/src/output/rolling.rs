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
//!
//! A checkpoint lists the files that are complete. A resumed job takes them over, continues the open file, and finds
//! the same ends.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ascot_io::threads::{Thread, spawn};
use ascot_io::{AtomicOutput, Disk, IoError, Unpoisoned, directory_of};
use ascot_model::stages;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::api::{Cancel, Parts, Result, SortError};
use crate::output::sealed_parts::SealedPart;
use crate::records::Records;

/// A thread that seals a file and returns it.
type Sealing = Thread<Result<Option<AtomicOutput>, IoError>>;

/// Seals a file. If no thread can be started for this, the caller still shares the file and seals it itself.
fn seal(file: &Mutex<Option<AtomicOutput>>) -> Result<Option<AtomicOutput>, IoError> {
    let file = file.lock().unpoisoned().take();
    file.map(|mut file| file.seal().map(|_| file)).transpose()
}

/// The complete files of a rolling output, and where its open file ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableFiles {
    /// The complete files, from the first on.
    pub sealed: Vec<SealedPart>,
    /// Bytes of records in them and in the open file.
    pub taken: u64,
    /// Hash of the key of the last record, if the next one may begin a file. Two keys with one hash only share a file.
    pub before: Option<u64>,
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
    /// Hash of the key of the last record taken, if the next one may begin a file.
    before: Option<u64>,
    sealed: Vec<AtomicOutput>,
    /// The temporary names of all files, if a manifest has them.
    temporaries: Vec<PathBuf>,
    /// The first complete files as a manifest names them.
    listed: Vec<SealedPart>,
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
            temporaries: Vec::new(),
            listed: Vec::new(),
            sealing: None,
        }
    }

    /// Gives the files these temporary names instead of random ones.
    pub fn named(mut self, temporaries: &[PathBuf]) -> Self {
        self.temporaries = temporaries.to_vec();
        self
    }

    /// Takes over the complete files of a killed job; the one after them is the open one.
    pub fn resumed(mut self, durable: &DurableFiles) -> Result<Self> {
        let lost = || SortError::Internal("a part of a killed job has its name before the others");
        for sealed in &durable.sealed {
            let temporary = self.temporaries.get(sealed.part as usize).ok_or_else(lost)?;
            let file = sealed.take_over(&self.disk, &self.parts, temporary)?.ok_or_else(lost)?;
            self.sealed.push(file);
        }
        self.listed.clone_from(&durable.sealed);
        self.open = self.sealed.len() as u32;
        (self.taken, self.before) = (durable.taken, durable.before);
        Ok(self)
    }

    /// The files that are complete now. Their names are durable.
    pub fn checkpoint(&mut self) -> Result<DurableFiles> {
        self.wait()?;
        for (file, part) in self.sealed.iter().zip(0..).skip(self.listed.len()) {
            self.listed.push(SealedPart::of(part, file)?);
        }
        self.disk.sync_dir(directory_of(&self.open_path()))?;
        Ok(DurableFiles { sealed: self.listed.clone(), taken: self.taken, before: self.before })
    }

    /// Keeps the files that a checkpoint lists for a later resume.
    pub fn keep(&mut self) {
        self.sealed.iter_mut().take(self.listed.len()).for_each(AtomicOutput::keep);
    }

    /// Path of the open file.
    pub fn open_path(&self) -> PathBuf {
        self.parts.path(self.open)
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
        let path = self.open_path();
        Ok(match self.temporaries.get(self.open as usize) {
            Some(temporary) => AtomicOutput::create_named(&self.disk, &path, temporary, "output")?,
            None => AtomicOutput::create(&self.disk, &path, "output")?,
        })
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
        let before = self.before;
        let mut last: Option<&[u8]> = None;
        while start < bytes.len() {
            let len = records.cut(&bytes[start..], 1).bytes;
            if len == 0 {
                return None;
            }
            let record = &bytes[start..start + len];
            let differs = || {
                let before = last.map(|last| key_hash(records, last)).or(before);
                before.is_some_and(|before| before != key_hash(records, record))
            };
            if start >= wanted && (!self.by_key || is_new || differs()) {
                return Some(start);
            }
            last = Some(record);
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
        let last = || &bytes[first + records.last_record(&bytes[first..])..];
        self.before = starts.then(|| key_hash(records, last()));
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

fn key_hash<R: Records>(records: &R, record: &[u8]) -> u64 {
    let mut keys = Vec::new();
    records.sample_keys(record, 1, &mut keys);
    xxh3_64(&keys.pop().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ascot_record::layout::{Endian, NumberFormat, NumberType};

    use super::*;
    use crate::records::Numbers;

    const CHUNK_BYTES: usize = 3 * 8;

    /// Takes `bytes` in chunks, and returns the positions after `start` at which files end.
    fn ends(files: &mut RollingFiles, records: &Numbers<u64>, bytes: &[u8], start: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut at = start;
        for chunk in bytes[start..].chunks(CHUNK_BYTES) {
            let mut from = 0;
            while let Some(end) = files.cut(records, chunk, from, 0) {
                files.took(records, &chunk[from..end], 0, false);
                files.open += 1;
                found.push(at + end);
                from = end;
            }
            files.took(records, &chunk[from..], 0, true);
            at += chunk.len();
        }
        found
    }

    /// Wherever its state was stored, also between the last record of a file and the first of the next one.
    #[test]
    fn a_resumed_output_has_the_same_ends() {
        let records = Numbers::<u64>::new(NumberFormat { kind: NumberType::U64, endian: Endian::Big }, false);
        let directory = tempfile::tempdir().unwrap();
        let parts = Parts::new(directory.path().join("part-{}").to_str().unwrap(), 4).unwrap();
        for of_each_key in [1, 2, 3, 6, 7] {
            let numbers = (0..120_u64).map(|number| number / of_each_key);
            let bytes: Vec<u8> = numbers.flat_map(u64::to_be_bytes).collect();
            let new = || {
                let total = bytes.len() as u64;
                RollingFiles::new(&parts, total, &Disk::default(), &Cancel::new(), None, true)
            };
            let whole = ends(&mut new(), &records, &bytes, 0);
            assert_eq!(whole.len(), 3);
            for stored in (0..bytes.len()).step_by(CHUNK_BYTES) {
                let mut killed = new();
                let mut found = ends(&mut killed, &records, &bytes[..stored], 0);
                let (open, taken, before) = (killed.open, killed.taken, killed.before);
                let mut resumed = new();
                (resumed.open, resumed.taken, resumed.before) = (open, taken, before);
                found.extend(ends(&mut resumed, &records, &bytes, stored));
                assert_eq!(found, whole, "{of_each_key} {stored}");
            }
        }
    }
}
