//! Writers of indexed directories.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use ascot_index::write::discard;
use ascot_index::{
    DirectoryWriter, IndexError, Layout, LayoutRequest, Named, OpenMode, Opening, PartitionBy, Scheme,
};
use ascot_io::{Disk, Unpoisoned};
use ascot_sort::Cancel;
use pyo3::prelude::*;

use crate::arrow::StreamEnd;
use crate::errors::{Failure, Result};
use crate::index_columns::{Column, Rows};
use crate::indexes::whole;
use crate::request::{Bytes, choice, memory};
use crate::running::{Opener, Unfinished, run_aside_until};

/// Default memory of a writer, bytes.
const WRITER_MEMORY_BYTES: u64 = 64 << 20;

/// The properties of a new directory, and how it is opened.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct WriterOptions {
    mode: String,
    rollback: Option<u64>,
    scheme: Option<String>,
    partition_by: Option<String>,
    partitions: Option<u32>,
    key_bytes: Option<u32>,
    value_bytes: Option<u32>,
    memory: Option<Bytes>,
}

impl WriterOptions {
    fn opening(&self) -> Result<Opening> {
        let request = LayoutRequest {
            scheme: self.scheme.as_deref().map(|word| choice("scheme", word, Scheme::NAMED)).transpose()?,
            partition_by: self
                .partition_by
                .as_deref()
                .map(|word| choice("partition_by", word, PartitionBy::NAMED))
                .transpose()?,
            partitions: self.partitions,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            ..LayoutRequest::default()
        };
        let mode = choice("mode", &self.mode, OpenMode::NAMED)?;
        Ok(Opening { mode, rollback: self.rollback, request })
    }
}

/// A writer of an indexed directory. Calls that sort and write records run on a thread of their own. An exception that
/// interrupts one closes the writer: its thread drops it once it has seen that.
#[pyclass(frozen, module = "ascot._native")]
pub struct IndexWriter {
    shared: Arc<Shared>,
    opener: Opener,
    end: StreamEnd,
    layout: Layout,
}

/// What the threads of a writer share.
struct Shared {
    writer: Mutex<Option<Open>>,
    /// Number of complete epochs.
    epochs: AtomicU64,
    /// On once an exception has interrupted a call, the writer is abandoned, or the interpreter ends.
    stop: Cancel,
    /// Of a new directory: its path, and whether it was made for it.
    new: Option<(PathBuf, bool)>,
}

/// A writer that a [`StreamEnd`] watches.
struct Open {
    writer: DirectoryWriter,
    /// Dropped after the writer.
    _alive: Arc<()>,
}

impl Shared {
    /// Drops the writer without the records since the last epoch, and removes a new directory without an epoch.
    fn abandon(&self, open: Option<Open>) {
        let Some(open) = open else { return };
        let is_empty = open.writer.manifest().epochs == 0;
        drop(open);
        if let (true, Some((path, made))) = (is_empty, &self.new) {
            discard(path, *made);
        }
    }

    /// Calls `act` with the writer, none if it is closed.
    fn with<R>(&self, act: impl FnOnce(&mut Option<Open>) -> R) -> R {
        let done = self.call(&mut self.writer.lock().unpoisoned(), act);
        self.abandon_if_stopped();
        done
    }

    /// As [`with`](Self::with), if no other thread uses the writer.
    fn try_with<R>(&self, act: impl FnOnce(&mut Option<Open>) -> R) -> Option<R> {
        let done = self.try_lock().map(|mut open| self.call(&mut open, act));
        self.abandon_if_stopped();
        done
    }

    fn call<R>(&self, open: &mut Option<Open>, act: impl FnOnce(&mut Option<Open>) -> R) -> R {
        // A writer that was stopped takes nothing more, although it is not dropped yet.
        if self.stop.is_cancelled() { act(&mut None) } else { act(open) }
    }

    /// The writer, unless another thread uses it.
    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Open>>> {
        match self.writer.try_lock() {
            Ok(open) => Some(open),
            Err(TryLockError::Poisoned(open)) => Some(open.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Stops the writer, now or once the thread that uses it has seen that.
    fn stop(&self) {
        self.stop.cancel();
        self.abandon_if_stopped();
    }

    /// Drops a writer that was stopped. A thread calls this when it has finished with the writer.
    fn abandon_if_stopped(&self) {
        // Whoever stops it sees that the lock is free, or whoever has released the lock sees that it is stopped.
        fence(Ordering::SeqCst);
        if self.stop.is_cancelled() {
            let open = self.try_lock().and_then(|mut open| open.take());
            self.abandon(open);
        }
    }
}

fn closed() -> Failure {
    Failure::Request("the writer is closed: open the directory again to append".into())
}

/// Opens the indexed directory `path` for writing.
#[pyfunction]
pub fn open_writer(py: Python<'_>, path: PathBuf, options: WriterOptions) -> PyResult<IndexWriter> {
    let opening = options.opening()?;
    let bytes = whole(memory(options.memory.as_ref())?.unwrap_or(WRITER_MEMORY_BYTES));
    let made = !path.exists();
    let open = || DirectoryWriter::open(&Disk::default(), &path, &opening, bytes);
    let mut writer = py.detach(open).map_err(Failure::from)?;
    let new = (made || opening.mode == OpenMode::Create).then_some((path, made));
    let stop = Cancel::new();
    let alive = Arc::new(());
    writer.stop_when(stop.flag());
    let end = StreamEnd::of(&alive);
    let layout = writer.manifest().layout.clone();
    let epochs = AtomicU64::new(writer.manifest().epochs);
    let shared = Shared { writer: Mutex::new(Some(Open { writer, _alive: alive })), epochs, stop, new };
    Ok(IndexWriter { shared: Arc::new(shared), opener: Opener::new(), end, layout })
}

#[pymethods]
impl IndexWriter {
    /// Appends records: arrays whose rows are keys and values, or lists of bytes. Returns their number.
    fn append(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<usize> {
        let keys = Column::new("keys", keys)?;
        let values = Column::new("values", values)?;
        let count = keys.len();
        if count != values.len() {
            let values = values.len();
            let text = format!("{count} keys and {values} values: give as many of each");
            return Err(Failure::Request(text).into());
        }
        if count == 0 {
            return Ok(0);
        }
        // All or nothing is appended.
        for (key, value) in [(keys.shortest(), values.shortest()), (keys.longest(), values.longest())] {
            self.layout.check_lengths(key, value).map_err(Failure::from)?;
        }
        let step = keys.rows_at_once().min(values.rows_at_once());
        for first in (0..count).step_by(step) {
            let last = (first + step).min(count);
            // A part of the rows is no epoch to go on with.
            let stop = |_: &PyErr| py.detach(|| self.shared.stop());
            if first > 0 {
                py.check_signals().inspect_err(stop)?;
            }
            let rows = |column: &Column<'_>| column.rows(py, first, last).inspect_err(stop);
            self.append_rows(py, rows(&keys)?, rows(&values)?)?;
        }
        Ok(count)
    }

    /// Ends the epoch, which is then durable and complete. Returns the number of complete epochs.
    fn end_epoch(&self, py: Python<'_>) -> PyResult<u64> {
        let shared = Arc::clone(&self.shared);
        self.aside(py, move |open| {
            let writer = &mut open.as_mut().ok_or_else(closed)?.writer;
            writer.end_epoch()?;
            let epochs = writer.manifest().epochs;
            shared.epochs.store(epochs, Ordering::Relaxed);
            Ok(epochs)
        })
    }

    /// Number of complete epochs.
    #[getter]
    fn epochs(&self) -> Result<u64> {
        self.opener.check("writer")?;
        if self.end.is_over() || self.is_stopped() {
            return Err(closed());
        }
        Ok(self.shared.epochs.load(Ordering::Relaxed))
    }

    /// Whether it was closed without its last records, by an exception or by `abandon`, or is that of a process from
    /// which this one was forked.
    #[getter]
    fn is_stopped(&self) -> bool {
        self.shared.stop.is_cancelled() || self.opener.is_forked()
    }

    /// Closes the directory. Records since the last epoch become an epoch.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.aside(py, |open| {
            let ended = open.as_mut().map_or(Ok(()), |open| open.writer.end_open_epoch());
            // One that was stopped is abandoned, any other is closed.
            let closed = if matches!(ended, Err(IndexError::Stopped { .. })) { None } else { open.take() };
            ended?;
            closed.map_or(Ok(()), |open| Ok(open.writer.close().map(drop)?))
        })
    }

    /// Closes the directory without the records since the last epoch. A new directory without an epoch is removed.
    fn abandon(&self, py: Python<'_>) {
        if !self.opener.is_forked() {
            py.detach(|| self.shared.stop());
        }
    }

    /// Tells whether the writer is closed.
    fn end(&self) -> StreamEnd {
        self.end.clone()
    }
}

impl IndexWriter {
    fn append_rows(&self, py: Python<'_>, keys: Rows, values: Rows) -> PyResult<()> {
        self.opener.check("writer")?;
        let bytes = keys.bytes() + values.bytes();
        let in_memory = |open: &mut Option<Open>| {
            let writer = &mut open.as_mut()?.writer;
            writer.has_space(keys.len(), bytes).then(|| append(writer, &keys, &values))
        };
        match py.detach(|| self.shared.try_with(in_memory)).flatten() {
            Some(appended) => Ok(appended?),
            None => self
                .aside(py, move |open| append(&mut open.as_mut().ok_or_else(closed)?.writer, &keys, &values)),
        }
    }

    /// The result of `act`, which sorts or writes, on a thread of its own.
    fn aside<R: Send + 'static>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Option<Open>) -> Result<R> + Send + 'static,
    ) -> PyResult<R> {
        self.opener.check("writer")?;
        let unfinished = Unfinished::begin(&self.shared.stop);
        let shared = Arc::clone(&self.shared);
        let work = move || {
            let _unfinished = unfinished;
            shared.with(act)
        };
        run_aside_until(py, "writer", work, || py.detach(|| self.shared.stop()))
    }
}

fn append(writer: &mut DirectoryWriter, keys: &Rows, values: &Rows) -> Result<()> {
    let appended =
        keys.iter().zip(values.iter()).try_for_each(|(key, value)| writer.append_record(key, value));
    Ok(appended?)
}

impl Drop for IndexWriter {
    fn drop(&mut self) {
        if self.opener.is_forked()
            && let Some(mut writer) = self.shared.try_lock()
        {
            // The directory belongs to the process that opened it.
            std::mem::forget(writer.take());
        }
    }
}
