//! Runs being written: [`RunSink`] writes merged blocks to one file, and describes them; [`Spill`] writes a sorted
//! sequence as one run, or as several if volumes fill up.
//!
//! ```text
//!   directory 0   |== run 7 ==|      no space for the next block
//!   directory 1               |==== run 8 ====|
//! ```
//!
//! Runs are always listed in this order, so equal records keep their order.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::{Disk, IoError, RunId, RunIndex, RunWriter, SpillCodec};

use crate::api::{Result, SortError};
use crate::records::{MergedBlock, Records};
use crate::runs::fence_keys::KeysWriter;
use crate::runs::run_file::{KeysOfRun, Run, decode_index, encode_index};
use crate::runs::spill_dirs::SpillDirs;
use crate::runs::store::{OpenPart, OpenSpill};

/// Writes merged blocks as a run.
pub struct RunSink<R> {
    records: Arc<R>,
    /// Its file.
    pub writer: RunWriter,
    run: Run,
    /// Keys by which the run of a view can be entered; none: not a view's run.
    keys: Option<KeysWriter>,
}

impl<R: Records> RunSink<R> {
    /// A new run file.
    pub fn create(
        records: &Arc<R>,
        disk: &Disk,
        path: PathBuf,
        number: u64,
        codec: &SpillCodec,
    ) -> Result<Self, IoError> {
        let writer = RunWriter::create(disk, &path, RunId(number), codec.clone())?;
        let run = Run { path, number, ..Run::default() };
        Ok(RunSink { records: Arc::clone(records), writer, run, keys: None })
    }

    /// Collects fence keys, which a view needs beside the run.
    pub fn keep_keys(&mut self) {
        self.keys = Some(KeysWriter::new(&*self.records));
    }

    /// Resumes a run that was checkpointed as `run` with `index`.
    pub fn resume(
        records: &Arc<R>,
        disk: &Disk,
        run: Run,
        index: RunIndex,
        codec: &SpillCodec,
    ) -> Result<Self, IoError> {
        let writer = RunWriter::resume(disk, &run.path, index, codec.clone())?;
        Ok(RunSink { records: Arc::clone(records), writer, run, keys: None })
    }

    /// Appends a block of merged records.
    pub fn write(&mut self, block: MergedBlock) -> Result<(), IoError> {
        let prefix = if block.first_record == 0 {
            self.records.first_prefix(&block.buf[..block.len])
        } else {
            self.run.first_keys.last().copied().unwrap_or_default()
        };
        if let Some(keys) = &mut self.keys {
            keys.push(&*self.records, &block);
        }
        self.run.first_keys.push(prefix);
        self.run.bytes += block.len as u64;
        self.run.records += block.records;
        self.run.longest = self.run.longest.max(block.longest as u64);
        self.writer.write_block(block.buf, block.len, block.first_record as u32)
    }

    /// Abandons the run and removes its file.
    pub fn remove(self, disk: &Disk) -> Result<(), IoError> {
        drop(self.writer);
        disk.remove_file(&self.run.path)
    }

    /// Bytes of records so far.
    pub fn bytes(&self) -> u64 {
        self.run.bytes
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.run.path
    }

    /// Makes the records written so far durable. Returns the run so far and its index, for [`RunSink::resume`].
    pub fn checkpoint(&mut self) -> Result<(Run, RunIndex), IoError> {
        let index = self.writer.checkpoint()?;
        self.run.block_bytes = index.buffer_bytes();
        Ok((self.run.clone(), index))
    }

    /// Makes the run durable and complete.
    pub fn finish(mut self) -> Result<Run, IoError> {
        let index = self.writer.finish()?;
        self.run.block_bytes = index.buffer_bytes();
        self.run.index = Some(Arc::new(index));
        if let Some(keys) = self.keys {
            self.run.keys = KeysOfRun::InMemory(keys.to_bytes(self.run.number));
        }
        Ok(self.run)
    }
}

/// A sorted sequence being spilled.
pub struct Spill<R> {
    records: Arc<R>,
    disk: Disk,
    dirs: SpillDirs,
    /// Numbers for its runs, one for each directory.
    numbers: Range<u64>,
    codec: SpillCodec,
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
        codec: SpillCodec,
        expected: u64,
    ) -> Result<Self> {
        let dir = dirs.choose(expected, &[]).ok_or_else(|| dirs.no_space(expected))?;
        let number = next_number(&mut numbers)?;
        let path = dirs.run_path(dir, number);
        let sink = RunSink::create(records, disk, path, number, &codec)?;
        let records = Arc::clone(records);
        let disk = disk.clone();
        let full = Vec::new();
        let done = Vec::new();
        Ok(Spill { records, disk, dirs, numbers, codec, expected, sink, dir, full, done })
    }

    /// Resumes a spill that was checkpointed.
    pub fn resume(
        records: &Arc<R>,
        disk: &Disk,
        dirs: SpillDirs,
        numbers: Range<u64>,
        codec: SpillCodec,
        state: OpenSpill,
    ) -> Result<Self> {
        let OpenSpill { done, open, expected } = state;
        let dir = dirs.dir_of(&open.run.path).ok_or_else(|| SortError::CannotResume {
            dir: "the job's manifest".into(),
            kind: ErrorKind::InvalidData,
            why: format!("{} is in none of the job's directories", open.run.path.display()),
        })?;
        let sink = RunSink::resume(records, disk, open.run, decode_index(&open.index)?, &codec)?;
        let records = Arc::clone(records);
        let disk = disk.clone();
        let full = Vec::new();
        Ok(Spill { records, disk, dirs, numbers, codec, expected, sink, dir, full, done })
    }

    /// Makes the records written so far durable. Returns the state from which the spill can be resumed.
    pub fn checkpoint(&mut self) -> Result<OpenSpill> {
        let (run, index) = self.sink.checkpoint()?;
        let open = OpenPart { run, index: encode_index(&index), skip: 0 };
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
    pub fn write(&mut self, block: MergedBlock) -> Result<()> {
        if let Err(error) = self.sink.writer.reserve(block.len) {
            // No run can start within a record.
            if !error.is_disk_full() || block.first_record > 0 {
                return Err(error.into());
            }
            self.start_next_run(block.len as u64)?;
        }
        Ok(self.sink.write(block)?)
    }

    /// Ends the run, whose volume is full, and starts one on another volume.
    fn start_next_run(&mut self, bytes: u64) -> Result<()> {
        let rest = self.expected.saturating_sub(self.bytes()).max(bytes);
        self.full.push(self.dir);
        loop {
            let Some(dir) = self.dirs.choose(rest, &self.full) else {
                return Err(self.dirs.no_space(rest));
            };
            let number = next_number(&mut self.numbers)?;
            let path = self.dirs.run_path(dir, number);
            let mut sink = RunSink::create(&self.records, &self.disk, path, number, &self.codec)?;
            let fits = sink.writer.reserve(bytes as usize);
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
    pub fn finish(mut self) -> Result<Vec<Run>> {
        self.done.push(self.sink.finish()?);
        Ok(self.done)
    }
}

fn next_number(numbers: &mut Range<u64>) -> Result<u64> {
    numbers.next().ok_or(SortError::Internal("a spill has more runs than directories"))
}
