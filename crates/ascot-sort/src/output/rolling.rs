//! Cutting a stretch of output into files: where one ends and the next begins.
//!
//! ```text
//!   records in order  ─────────────────┬─────────────────┬──────────▶
//!                     part 0           │ part 1          │ part 2
//!              total * 1 / count ──▶ first record there whose key is a new one
//! ```
//!
//! Invariants: a record is in one part; where keys count, so are all records of one key; part i ends at
//! or behind `total * (i + 1) / count` bytes of records, so that what one part has too much is not added
//! to by the next.

use std::sync::{Arc, Mutex, PoisonError};

use ascot_io::threads::{Thread, spawn};
use ascot_io::{AtomicOutput, Disk, IoError};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::api::request::Parts;
use crate::records::Records;

/// A thread that makes a part durable and gives it back.
type Sealing = Thread<Result<Option<AtomicOutput>, IoError>>;

/// Makes a part durable; whoever starts the thread keeps a share of it, in case there is no thread.
fn seal(part: &Mutex<Option<AtomicOutput>>) -> Result<Option<AtomicOutput>, IoError> {
    let part = part.lock().unwrap_or_else(PoisonError::into_inner).take();
    part.map(|mut part| part.seal().map(|_| part)).transpose()
}

/// The parts of an output: those that are complete, and where the open one ends.
pub struct Parting {
    parts: Parts,
    disk: Disk,
    cancel: Cancel,
    /// Starts each part.
    header: Option<Vec<u8>>,
    /// Bytes of records expected in all.
    total: u64,
    /// Bytes of records taken.
    taken: u64,
    /// Number of the open part.
    open: u32,
    /// Records of one key stay together.
    by_key: bool,
    /// A copy of the last record taken, where the next may begin a part.
    before: Option<Vec<u8>>,
    sealed: Vec<AtomicOutput>,
    /// The part before the open one is made durable while that is written.
    sealing: Option<Sealing>,
}

impl Parting {
    /// Parts of about `total` bytes of records in all, each begun with `header`.
    pub fn new(
        (parts, total): (&Parts, u64),
        disk: &Disk,
        cancel: &Cancel,
        header: Option<Vec<u8>>,
        by_key: bool,
    ) -> Self {
        let (parts, disk, cancel) = (parts.clone(), disk.clone(), cancel.clone());
        Parting {
            parts,
            disk,
            cancel,
            header,
            total,
            taken: 0,
            open: 0,
            by_key,
            before: None,
            sealed: Vec::new(),
            sealing: None,
        }
    }

    /// Whether the last part is complete.
    pub fn is_complete(&self) -> bool {
        self.open >= self.parts.count
    }

    /// What starts each part.
    pub fn header(&self) -> Option<&[u8]> {
        self.header.as_deref()
    }

    /// The open part's file, to be written.
    pub fn create(&self) -> Result<AtomicOutput, SortError> {
        self.cancel.check()?;
        Ok(AtomicOutput::create(&self.disk, &self.parts.path(self.open), "output")?)
    }

    /// Where in `bytes`, which were taken up to `from` and in which `first` is the first record that
    /// starts, the open part ends; none: not in them.
    pub fn cut<R: Records>(&self, records: &R, bytes: &[u8], from: usize, first: usize) -> Option<usize> {
        let ends = self.ends()?;
        if self.taken + (bytes.len() - from) as u64 <= ends {
            return None;
        }
        let wanted = from + ends.saturating_sub(self.taken) as usize;
        let mut start = from.max(first);
        // Nothing, or a cut, is before it: a part may begin here.
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
            (before, is_new) = (Some(record), false);
            start += len;
        }
        None
    }

    /// The open part took `bytes`, of which `first` is the first record that starts; the last of them is
    /// whole where `whole` says so.
    pub fn took<R: Records>(&mut self, records: &R, bytes: &[u8], first: usize, whole: bool) {
        self.taken += bytes.len() as u64;
        // Far from a part's end nobody asks.
        let near = self.ends().is_some_and(|ends| self.taken + 2 * bytes.len() as u64 >= ends);
        let starts = self.by_key && near && whole && first < bytes.len();
        self.before = starts.then(|| bytes[first + records.last_record(&bytes[first..])..].to_vec());
    }

    /// The open part is complete; the next one is open. False where there is none.
    pub fn next(&mut self, done: AtomicOutput) -> Result<bool, SortError> {
        self.wait()?;
        let part = Arc::new(Mutex::new(Some(done)));
        let theirs = Arc::clone(&part);
        match spawn("seal", move || seal(&theirs)) {
            Ok(thread) => self.sealing = Some(thread),
            // Without a thread for it the job waits until the part is durable.
            Err(_refused) => self.sealed.extend(seal(&part)?),
        }
        self.open += 1;
        let more = self.open < self.parts.count;
        if !more {
            self.wait()?;
        }
        Ok(more)
    }

    /// Waits until the part before the open one is durable.
    fn wait(&mut self) -> Result<(), SortError> {
        let Some(sealing) = self.sealing.take() else { return Ok(()) };
        self.sealed.extend(sealing.join()??);
        Ok(())
    }

    /// Gives all parts their names; all are durable.
    pub fn commit(mut self) -> Result<(), SortError> {
        Ok(AtomicOutput::commit_all(std::mem::take(&mut self.sealed))?)
    }

    /// Bytes of records after which the open part ends; the last one takes all there are.
    fn ends(&self) -> Option<u64> {
        let share = u128::from(self.total) * u128::from(self.open + 1) / u128::from(self.parts.count);
        (self.open + 1 < self.parts.count).then_some(share as u64)
    }
}

impl Drop for Parting {
    /// A part that is still being sealed removes its file only then.
    fn drop(&mut self) {
        // Whoever gave the output up has reported why.
        let _ = self.wait();
    }
}

fn key_of<R: Records>(records: &R, record: &[u8]) -> Vec<u8> {
    let mut keys = Vec::new();
    records.sample_keys(record, 1, &mut keys);
    keys.pop().unwrap_or_default()
}
