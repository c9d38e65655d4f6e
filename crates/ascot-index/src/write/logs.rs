//! All files that a process writes, through one engine: 0 inputs, m outputs, one set of blocks (`ascot-bowtie`).
//!
//! ```text
//!   tables, regions, values ─▶ append ─▶ [block being filled][full] ─▶ data log, index log, ...
//! ```
//!
//! Invariants: bytes are written in file order; an epoch ends at a multiple of 4096 in every file, so that all files
//! can use direct writes; after an error no more bytes are accepted.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ascot_bowtie::engine::{BlockOutput, Bowtie, Reader, complete_down_to};
use ascot_bowtie::schedule::FewestHeld;
use ascot_io::{Action, BlockPool, Buf, Disk, IoError, O_NOFOLLOW, Pool, WriteStream};

use crate::error::{IndexError, Result};
use crate::format::footer::PAGE;
use crate::write::memory::Plan;

/// A file that is being written, and its lock.
struct LogFile {
    stream: Option<Box<dyn WriteStream>>,
    begun: usize,
    written: u64,
    _lock: File,
}

impl BlockOutput for LogFile {
    fn begin(&mut self, buf: Buf, len: usize) -> std::result::Result<(), IoError> {
        self.begun += 1;
        self.stream.as_mut().map_or(Ok(()), |stream| stream.begin(buf, len))
    }

    fn complete(&mut self) -> std::result::Result<(), IoError> {
        self.begun = self.begun.saturating_sub(1);
        let begun = self.begun;
        self.stream.as_mut().map_or(Ok(()), |stream| complete_down_to(stream.as_mut(), begun))
    }

    fn ready(&mut self) -> bool {
        self.stream.as_mut().map_or(0, |stream| stream.in_flight()) < self.begun
    }

    fn finish(&mut self) -> std::result::Result<u64, IoError> {
        if let Some(stream) = self.stream.take() {
            self.written = stream.finish()?;
        }
        Ok(self.written)
    }
}

/// A file to write from `start`; bytes after `start` are truncated.
pub struct LogSpec {
    /// The file.
    pub path: PathBuf,
    /// Its name in the I/O ledger.
    pub name: &'static str,
    /// Offset to continue at; 0 for a new file.
    pub start: u64,
}

/// The index of a file in [`Logs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogNumber(pub usize);

/// All log files of a process.
pub struct Logs {
    bowtie: Bowtie<Reader, LogFile>,
    ends: Vec<u64>,
}

impl Logs {
    /// Opens and locks the files.
    pub fn open(disk: &Disk, specs: &[LogSpec], pool: &Pool, plan: &Plan) -> Result<Self> {
        let region = pool.region(plan.engine_blocks * plan.engine_block_bytes, "blocks of logs")?;
        let blocks = BlockPool::new(region, plan.engine_block_bytes);
        let files = specs.iter().map(|spec| open(disk, spec)).collect::<Result<Vec<_>>>()?;
        let few = |_| IndexError::Request("a writer's memory is too small for its files".into());
        let bowtie = Bowtie::from_outputs(files, blocks, Box::new(FewestHeld)).map_err(few)?;
        Ok(Self { bowtie, ends: specs.iter().map(|spec| spec.start).collect() })
    }

    /// The end of `log`, bytes.
    pub fn end(&self, log: LogNumber) -> u64 {
        self.ends[log.0]
    }

    /// Appends to `log`.
    pub fn append(&mut self, log: LogNumber, bytes: &[u8]) -> Result<()> {
        self.bowtie.write_all(log.0, bytes)?;
        self.ends[log.0] += bytes.len() as u64;
        Ok(())
    }

    /// Appends zeros, so that `last` more bytes end at a multiple of 4096.
    pub fn pad(&mut self, log: LogNumber, last: usize) -> Result<()> {
        let end = self.ends[log.0] + last as u64;
        // Less than a page.
        let zeros = (end.next_multiple_of(PAGE) - end) as usize;
        self.append(log, &[0; PAGE as usize][..zeros])
    }

    /// Makes all appended bytes durable.
    pub fn sync(&mut self) -> Result<()> {
        self.bowtie.flush()?;
        for file in 0..self.bowtie.outputs() {
            if let Some(stream) = &mut self.bowtie.output_stream(file).stream {
                stream.sync()?;
            }
        }
        Ok(())
    }

    /// Closes the files.
    pub fn finish(&mut self) -> Result<()> {
        Ok(self.bowtie.finish()?)
    }
}

fn open(disk: &Disk, spec: &LogSpec) -> Result<LogFile> {
    let path = &spec.path;
    let failed = |error| IoError::from_os(Action::Create, path, 0, error);
    // A log that is continued must exist. Symbolic links are not followed.
    let mut options = File::options();
    let options = options.read(true).write(true).create(spec.start == 0).truncate(false);
    let lock = options.custom_flags(O_NOFOLLOW).open(path).map_err(failed)?;
    lock_file(&lock, path)?;
    let stream = disk.open_append(path, spec.start, spec.name)?;
    Ok(LogFile { stream: Some(stream), begun: 0, written: 0, _lock: lock })
}

/// Locks `file` for this process; an error if another process holds the lock.
pub fn lock_file(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => Err(IndexError::Locked { path: path.to_path_buf() }),
        Err(std::fs::TryLockError::Error(error)) => {
            Err(IoError::from_os(Action::Open, path, 0, error).into())
        }
    }
}
