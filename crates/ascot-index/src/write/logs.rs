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
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use ascot_bowtie::engine::{Bowtie, Reader, Writer};
use ascot_bowtie::schedule::FewestHeld;
use ascot_io::{Action, BlockPool, Disk, During, IoError, O_NOFOLLOW, Pool};

use crate::error::{IndexError, Result};
use crate::format::footer::PAGE;
use crate::write::memory::Plan;

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
    bowtie: Bowtie<Reader, Writer>,
    ends: Vec<u64>,
    stop: Option<Stop>,
    /// The files again, locked.
    _locks: Vec<File>,
}

/// What stops a writer, and the directory for the error.
struct Stop {
    flag: Arc<AtomicBool>,
    directory: PathBuf,
}

impl Logs {
    /// Opens and locks the files.
    pub fn open(disk: &Disk, specs: &[LogSpec], pool: &Pool, plan: &Plan) -> Result<Self> {
        let region = pool.region(plan.engine_blocks * plan.engine_block_bytes, "blocks of logs")?;
        let blocks = BlockPool::new(region, plan.engine_block_bytes);
        let mut files = Vec::new();
        let mut locks = Vec::new();
        for spec in specs {
            locks.push(lock(spec)?);
            files.push(Writer::new(disk.open_append(&spec.path, spec.start, spec.name)?));
        }
        let few = |_| IndexError::Request("a writer's memory is too small for its files".into());
        let bowtie = Bowtie::from_outputs(files, blocks, Box::new(FewestHeld)).map_err(few)?;
        let bowtie = bowtie.observing(disk.ledger(), "append");
        Ok(Self { bowtie, ends: specs.iter().map(|spec| spec.start).collect(), stop: None, _locks: locks })
    }

    /// Once `flag` is set, nothing more is appended to these logs of `directory`.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>, directory: &Path) {
        self.stop = Some(Stop { flag, directory: directory.to_path_buf() });
    }

    /// The end of `log`, bytes.
    pub fn end(&self, log: LogNumber) -> u64 {
        self.ends[log.0]
    }

    /// Appends to `log`.
    ///
    /// # Errors
    /// [`IndexError::Stopped`] once the flag is set; those of the volume.
    pub fn append(&mut self, log: LogNumber, bytes: &[u8]) -> Result<()> {
        if let Some(Stop { flag, directory }) = &self.stop
            && flag.load(Relaxed)
        {
            return Err(IndexError::Stopped { path: directory.clone() });
        }
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
            self.bowtie.output_stream(file).sync()?;
        }
        Ok(())
    }

    /// Closes the files.
    pub fn finish(&mut self) -> Result<()> {
        Ok(self.bowtie.finish()?)
    }
}

fn lock(spec: &LogSpec) -> Result<File> {
    let path = &spec.path;
    // A log that is continued must exist. Symbolic links are not followed.
    let mut options = File::options();
    let options = options.read(true).write(true).create(spec.start == 0).truncate(false);
    let lock = options.custom_flags(O_NOFOLLOW).open(path).during(Action::Create, path)?;
    lock_file(&lock, path)?;
    Ok(lock)
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
