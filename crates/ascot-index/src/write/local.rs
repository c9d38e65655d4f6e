//! The logs of one process: those of the partitions it owns, and those it keeps as a writer. The caller decides which
//! log a record goes to, for its own records and for those that other processes route here.
//!
//! ```text
//!   records   owner: put_record
//!   pointers  writer: store_value ─ pointer ─▶ owner: put_pointer
//!   ranks     writer: store_record             owner: put_rank
//! ```
//!
//! Invariants: memory stays within the given cap and is divided in advance ([`memory`](super::memory)); after an error
//! no more records are accepted, and complete epochs stay.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ascot_io::{Disk, Pool, Reservation};

use crate::error::{IndexError, Result};
use crate::format::footer::{Footer, Root};
use crate::format::layout::{Layout, Scheme};
use crate::format::manifest::Manifest;
use crate::format::names::Log;
use crate::format::pointer::{POINTER_BYTES, Pointer};
use crate::read::log::{last_footer, read_root};
use crate::write::auxiliary_log::AuxiliaryLog;
use crate::write::index_log::IndexLog;
use crate::write::logs::{LogNumber, LogSpec, Logs};
use crate::write::memory::{LogCounts, Plan};
use crate::write::table_log::TableLog;
use crate::write::value_log::ValueLog;

/// The logs of a directory that one process writes; they are logs of its layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Partitions it owns.
    pub partitions: Range<u32>,
    /// Its number as a writer, in schemes with logs of writers.
    pub writer: Option<u32>,
}

/// The records of an epoch in one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochCounts {
    /// Records, pointers or ranks put to its partitions.
    pub partition_records: u64,
    /// Records or values in its logs as a writer.
    pub writer_records: u64,
}

/// The logs of one process.
pub struct LocalWriter {
    directory: PathBuf,
    scheme: Scheme,
    pool: Pool,
    logs: Logs,
    /// Partitions it owns; `tables` or `auxiliary` has the same order.
    partitions: Range<u32>,
    tables: Vec<TableLog>,
    auxiliary: Vec<AuxiliaryLog>,
    values: Option<ValueLog>,
    own: Option<TableLog>,
    failed: bool,
    _scratch: Reservation,
}

impl LocalWriter {
    /// Checks that a writer of `share` can work with `memory_bytes`, before any file is made.
    ///
    /// # Errors
    /// Too little memory.
    pub fn check_memory(layout: &Layout, share: &Share, memory_bytes: usize) -> Result<()> {
        Plan::new(memory_bytes, layout, counts_of(layout.scheme, share)).map(drop)
    }

    /// Opens the logs of `share`, to continue after the epochs that the manifest names; uses at most `memory_bytes`.
    ///
    /// # Errors
    /// [`IndexError::Locked`] if another process has one of the files; [`IndexError::CutShort`] if a file lacks
    /// epochs; too little memory; errors of the volume.
    pub fn open(
        disk: &Disk,
        directory: &Path,
        manifest: &Manifest,
        share: &Share,
        memory_bytes: usize,
    ) -> Result<Self> {
        let layout = &manifest.layout;
        let scheme = layout.scheme;
        let partitions = share.partitions.clone();
        let counts = counts_of(scheme, share);
        let plan = Plan::new(memory_bytes, layout, counts)?;
        let pool = Pool::new(memory_bytes);
        let scratch = pool.reserve(plan.scratch_bytes, "blocks and filters being made")?;
        let mut opening = Opening { disk, directory, manifest, specs: Vec::new() };
        let part = |number| opening.add(Log::of_partition(scheme, number));
        let parts = partitions.clone().map(part).collect::<Result<Vec<_>>>()?;
        let writer = share.writer.filter(|_| scheme != Scheme::Records);
        let kept = writer.map(|number| opening.add(Log::Writer(number))).transpose()?;
        let logs = Logs::open(disk, &opening.specs, &pool, &plan)?;
        disk.sync_dir(directory)?;
        let mut this = Self {
            directory: directory.to_path_buf(),
            scheme,
            logs,
            partitions,
            tables: Vec::new(),
            auxiliary: Vec::new(),
            values: None,
            own: None,
            failed: false,
            _scratch: scratch,
            pool,
        };
        for Opened { data, index } in parts {
            match data {
                Some(data) => this.tables.push(TableLog::new(data, index, layout, &this.pool, &plan)?),
                None => this.auxiliary.push(AuxiliaryLog::new(index, layout, &this.pool, &plan)?),
            }
        }
        if let (Some(Opened { data: Some(data), index }), Some(writer)) = (kept, writer) {
            if scheme == Scheme::Pointers {
                this.values = Some(ValueLog::new(data, index, writer, layout.value_bytes.is_some()));
            } else {
                this.own = Some(TableLog::new(data, index, layout, &this.pool, &plan)?);
            }
        }
        Ok(this)
    }

    /// Puts a record into a partition that this process owns (scheme `records`).
    pub fn put_record(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_to_table(Scheme::Records, partition, key, value)
    }

    /// Puts a key and the pointer to its value into a partition that this process owns (scheme `pointers`).
    pub fn put_pointer(&mut self, partition: u32, key: &[u8], pointer: Pointer) -> Result<()> {
        self.put_to_table(Scheme::Pointers, partition, key, &pointer.to_bytes())
    }

    /// Records, in a partition that this process owns, that `rank` has a record with the key of this
    /// [hash](Layout::hash) (scheme `ranks`).
    pub fn put_rank(&mut self, partition: u32, hash: u64, rank: u32) -> Result<()> {
        let place = self.place(Scheme::Ranks, partition)?;
        let done = self.auxiliary[place].push(&mut self.logs, hash, rank);
        self.kept(done)
    }

    /// Appends a value to this writer's log; returns a pointer to it (scheme `pointers`).
    pub fn store_value(&mut self, value: &[u8]) -> Result<Pointer> {
        self.check()?;
        let Some(values) = &mut self.values else { return Err(self.not_a_writer()) };
        let done = values.push(&mut self.logs, value);
        self.kept(done)
    }

    /// Puts a record into this writer's own tables (scheme `ranks`).
    pub fn store_record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check()?;
        let Some(own) = &mut self.own else { return Err(self.not_a_writer()) };
        let done = own.push(&mut self.logs, key, value);
        self.kept(done)
    }

    /// Puts a record if one process writes alone: it owns every partition and is writer 0.
    pub fn put_own(&mut self, layout: &Layout, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        match self.scheme {
            Scheme::Records => self.put_record(partition, key, value),
            Scheme::Pointers => {
                let pointer = self.store_value(value)?;
                self.put_pointer(partition, key, pointer)
            }
            Scheme::Ranks => {
                self.store_record(key, value)?;
                self.put_rank(partition, layout.hash(key), 0)
            }
        }
    }

    /// Whether its buffers have space for `records` more records with `bytes` bytes of keys and values, whatever their
    /// partitions.
    pub fn has_space(&self, records: usize, bytes: usize) -> bool {
        let pointers = if self.scheme == Scheme::Pointers { POINTER_BYTES } else { 0 };
        let bytes = bytes.saturating_add(records.saturating_mul(pointers));
        self.tables.iter().chain(&self.own).all(|log| log.has_space(records, bytes))
            && self.auxiliary.iter().all(|log| log.has_space(records))
    }

    /// Once `flag` is set, the logs take nothing more, and calls fail with [`IndexError::Stopped`].
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>) {
        self.logs.stop_when(flag, &self.directory);
    }

    /// Flushes buffers that are at least half full to tables; returns whether there was one.
    pub fn flush_fuller_half(&mut self) -> Result<bool> {
        self.check()?;
        let mut flushed = Ok(false);
        for log in self.tables.iter_mut().chain(&mut self.own).filter(|log| log.is_half_full()) {
            flushed = flushed.and_then(|_| log.flush(&mut self.logs)).map(|()| true);
        }
        self.kept(flushed)
    }

    /// Ends the epoch in all logs of this process and makes it durable. The epoch is complete when the coordinator
    /// commits it, after this call has returned in all processes.
    pub fn end_epoch(&mut self) -> Result<EpochCounts> {
        self.check()?;
        let done = self.end_logs();
        self.kept(done)
    }

    fn end_logs(&mut self) -> Result<EpochCounts> {
        let mut counts = EpochCounts::default();
        for log in &mut self.tables {
            counts.partition_records += log.end_epoch(&mut self.logs)?;
        }
        for log in &mut self.auxiliary {
            counts.partition_records += log.end_epoch(&mut self.logs)?;
        }
        if let Some(log) = &mut self.values {
            counts.writer_records += log.end_epoch(&mut self.logs)?;
        }
        if let Some(log) = &mut self.own {
            counts.writer_records += log.end_epoch(&mut self.logs)?;
        }
        self.logs.sync()?;
        Ok(counts)
    }

    /// Closes the logs. Records put after the end of the last epoch are dropped.
    pub fn finish(mut self) -> Result<()> {
        if self.failed { Ok(()) } else { self.logs.finish() }
    }

    /// The memory pool of this writer.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn put_to_table(&mut self, scheme: Scheme, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let place = self.place(scheme, partition)?;
        let done = self.tables[place].push(&mut self.logs, key, value);
        self.kept(done)
    }

    fn place(&self, scheme: Scheme, partition: u32) -> Result<usize> {
        self.check()?;
        if scheme == self.scheme && self.partitions.contains(&partition) {
            return Ok((partition - self.partitions.start) as usize);
        }
        Err(IndexError::Request(format!(
            "partition {partition} takes nothing of this kind here: it belongs to another process or scheme"
        )))
    }

    fn not_a_writer(&self) -> IndexError {
        IndexError::Request("this process keeps nothing of this kind as a writer".into())
    }

    fn check(&self) -> Result<()> {
        if self.failed { Err(IndexError::Failed { path: self.directory.clone() }) } else { Ok(()) }
    }

    /// Marks the writer as failed, if its records did not become an epoch.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
    }

    /// Marks the writer as failed if `done` is an error.
    fn kept<T>(&mut self, done: Result<T>) -> Result<T> {
        self.failed |= done.is_err();
        done
    }
}

/// Numbers of logs of a share.
fn counts_of(scheme: Scheme, share: &Share) -> LogCounts {
    let owned = share.partitions.len();
    let kept = share.writer.iter().count();
    match scheme {
        Scheme::Records => LogCounts { tables: owned, ..LogCounts::default() },
        Scheme::Pointers => LogCounts { tables: owned, values: kept, auxiliary: 0 },
        Scheme::Ranks => LogCounts { tables: kept, auxiliary: owned, values: 0 },
    }
}

/// The logs to open.
struct Opening<'a> {
    disk: &'a Disk,
    directory: &'a Path,
    manifest: &'a Manifest,
    specs: Vec<LogSpec>,
}

/// The two files of a log.
struct Opened {
    data: Option<LogNumber>,
    index: IndexLog,
}

impl Opening<'_> {
    /// Adds the files of `log`, to continue after the epochs that the manifest names.
    fn add(&mut self, log: Log) -> Result<Opened> {
        let id = log.id(self.manifest.id);
        let path = log.index(self.directory);
        let from = self.state(&path, id.0, self.manifest.epochs_of(log))?;
        let (start, data_start) = from.as_ref().map_or((0, 0), |(footer, _)| (footer.end(), footer.data_end));
        let data = log.data(self.directory).map(|path| self.spec(path, "data write", data_start));
        let index = self.spec(path, "index write", start);
        Ok(Opened { data, index: IndexLog::new(index, id, self.manifest.epochs, from) })
    }

    fn spec(&mut self, path: PathBuf, name: &'static str, start: u64) -> LogNumber {
        self.specs.push(LogSpec { path, name, start });
        LogNumber(self.specs.len() - 1)
    }

    /// The footer and root of the last complete epoch of a log, after which `epochs` epochs were complete.
    fn state(&self, path: &Path, id: u64, epochs: u64) -> Result<Option<(Footer, Root)>> {
        if epochs == 0 {
            return Ok(None);
        }
        let footer = last_footer(self.disk, path, id, epochs)?;
        let root = read_root(self.disk, path, &footer.root, id)?;
        Ok(Some((footer, root)))
    }
}
