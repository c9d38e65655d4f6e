//! Spills one sorted sequence: as one run, or as several if volumes fill up.
//!
//! ```text
//!   directory 0   |== run 7 ==|      no space for the next chunk
//!   directory 1               |==== run 8 ====|
//! ```
//!
//! Runs are always listed in this order, so equal records keep their order.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ascot_io::{Compression, Disk};

use crate::api::error::SortError;
use crate::records::Records;
use crate::records::emitter::Chunk;
use crate::runs::run::Run;
use crate::runs::run_file::RunSink;
use crate::runs::run_file::{decode_index, encode_index};
use crate::runs::spill_dirs::SpillDirs;
use crate::runs::store::{OpenPart, OpenSpill};

/// A sorted sequence being spilled.
pub struct Spill<R> {
    records: Arc<R>,
    disk: Disk,
    dirs: SpillDirs,
    /// Numbers for its runs, one for each directory.
    numbers: Range<u64>,
    compression: Compression,
    /// Bytes it is expected to have.
    expected: u64,
    sink: RunSink<R>,
    /// The directory of the run being written.
    dir: usize,
    /// Directories found full.
    full: Vec<usize>,
    /// Runs that ended early.
    done: Vec<Run>,
}

impl<R: Records> Spill<R> {
    /// Starts a spill of about `expected` bytes.
    pub fn create(
        records: &Arc<R>,
        disk: &Disk,
        dirs: SpillDirs,
        mut numbers: Range<u64>,
        compression: Compression,
        expected: u64,
    ) -> Result<Self, SortError> {
        let dir = dirs.choose(expected, &[]).ok_or_else(|| dirs.no_space(expected))?;
        let number = next_number(&mut numbers)?;
        let path = dirs.run_path(dir, number);
        let sink = RunSink::create(records, disk, path, number, compression)?;
        let records = Arc::clone(records);
        let disk = disk.clone();
        let full = Vec::new();
        let done = Vec::new();
        Ok(Spill { records, disk, dirs, numbers, compression, expected, sink, dir, full, done })
    }

    /// Resumes a spill that was checkpointed.
    pub fn resume(
        records: &Arc<R>,
        disk: &Disk,
        dirs: SpillDirs,
        numbers: Range<u64>,
        compression: Compression,
        state: OpenSpill,
    ) -> Result<Self, SortError> {
        let OpenSpill { done, open, expected } = state;
        let dir = dirs.dir_of(&open.run.path);
        let sink = RunSink::resume(records, disk, open.run, decode_index(&open.index)?)?;
        let records = Arc::clone(records);
        let disk = disk.clone();
        let full = Vec::new();
        Ok(Spill { records, disk, dirs, numbers, compression, expected, sink, dir, full, done })
    }

    /// Makes the records written so far durable. Returns the state from which the spill can be resumed.
    pub fn checkpoint(&mut self) -> Result<OpenSpill, SortError> {
        let (run, index) = self.sink.checkpoint()?;
        let open = OpenPart { run, index: encode_index(&index) };
        Ok(OpenSpill { done: self.done.clone(), open, expected: self.expected })
    }

    /// Bytes of records so far.
    pub fn bytes(&self) -> u64 {
        self.done.iter().map(|run| run.bytes).sum::<u64>() + self.sink.bytes()
    }

    /// The file being written.
    pub fn path(&self) -> &Path {
        self.sink.path()
    }

    /// Keeps the keys by which the run of a view can be entered at any record.
    pub fn keep_keys(&mut self) {
        self.sink.keep_keys();
    }

    /// Appends merged records.
    pub fn write(&mut self, chunk: Chunk) -> Result<(), SortError> {
        if let Err(error) = self.sink.reserve(chunk.len) {
            // No run can start within a record.
            if !error.is_disk_full() || chunk.first_record > 0 {
                return Err(error.into());
            }
            self.start_next_run(chunk.len as u64)?;
        }
        Ok(self.sink.write(chunk)?)
    }

    /// Ends the run, whose volume is full, and starts one on another volume.
    fn start_next_run(&mut self, bytes: u64) -> Result<(), SortError> {
        let rest = self.expected.saturating_sub(self.bytes()).max(bytes);
        self.full.push(self.dir);
        loop {
            let Some(dir) = self.dirs.choose(rest, &self.full) else {
                return Err(self.dirs.no_space(rest));
            };
            let number = next_number(&mut self.numbers)?;
            let path = self.dirs.run_path(dir, number);
            let mut sink = RunSink::create(&self.records, &self.disk, path, number, self.compression)?;
            let fits = sink.reserve(bytes as usize);
            let ended = if fits.is_ok() { std::mem::replace(&mut self.sink, sink) } else { sink };
            if ended.bytes() > 0 {
                self.done.push(ended.finish()?);
            } else {
                ended.remove(&self.disk)?;
            }
            self.dir = dir;
            match fits {
                Ok(()) => return Ok(()),
                Err(other) if other.is_disk_full() => self.full.push(dir),
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Completes the runs and makes them durable.
    pub fn finish(mut self) -> Result<Vec<Run>, SortError> {
        self.done.push(self.sink.finish()?);
        Ok(self.done)
    }
}

fn next_number(numbers: &mut Range<u64>) -> Result<u64, SortError> {
    numbers.next().ok_or(SortError::Internal("a spill has more runs than directories"))
}
