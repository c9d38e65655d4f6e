//! Views: positions, slices, and readers that merge ahead.
//!
//! A short read is a merge of its own. A long one, and a reader that goes on where it ended, get a stream that merges
//! ahead. Long slices of one view take turns, since each uses all memory that the view has left.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use ascot_io::Unpoisoned;
use ascot_model::units;
use ascot_sort::view::{OpenView, Reading, Stream, View, write_part};
use ascot_sort::{Cancel, Output, RunOptions, SortError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{Failure, Result};
use crate::jobs::{Told, told_of};
use crate::request::{Bytes, at_least, memory, volumes_of_view};
use crate::running::{Opener, run};

/// Default memory of a view, bytes; that of the command.
const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;
/// Reads of at most this many bytes are merges of their own.
const SHORT_BYTES: u64 = 256 << 10;
/// Bytes between two looks at whether a slice is cancelled.
const STEP_BYTES: usize = 1 << 20;
/// Time between two looks at whether it is a slice's turn.
const TURN_PAUSE: Duration = Duration::from_millis(5);
/// The stream of a reader takes one part in this many of the view's memory.
const READER_SHARE: usize = 4;

/// An open view.
#[pyclass(frozen, name = "View", module = "ascot._native")]
pub struct OpenedView {
    view: Arc<dyn View>,
    /// Held by the long slice that uses the memory.
    turn: Mutex<()>,
    opener: Opener,
}

/// Opens the view `path`.
#[pyfunction]
pub fn open_view(
    py: Python<'_>,
    path: PathBuf,
    memory_cap: Option<Bytes>,
    threads: Option<usize>,
) -> PyResult<OpenedView> {
    let threads = at_least("threads", threads, 1)?;
    let memory_bytes = Some(memory(memory_cap.as_ref())?.unwrap_or(DEFAULT_MEMORY_BYTES));
    let finished = run(py, None, |_, _| {
        let volumes = volumes_of_view(&path)?;
        let opening = OpenView { memory_bytes, threads, volumes, ..OpenView::default() };
        opening.open(&path).map_err(Failure::from)
    })?;
    Ok(OpenedView { view: finished.result, turn: Mutex::default(), opener: Opener::new() })
}

#[pymethods]
impl OpenedView {
    /// Bytes of the view, read as a file.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.view.bytes()
    }

    /// Number of records.
    #[getter]
    fn records(&self) -> u64 {
        self.view.sum().count
    }

    /// Number of runs that are merged.
    #[getter]
    fn runs(&self) -> u64 {
        self.view.runs()
    }

    /// Bytes before the first record.
    #[getter]
    fn header_bytes(&self) -> u64 {
        self.view.header_bytes()
    }

    /// The layout of the records, in the language of the command.
    #[getter]
    fn layout(&self) -> String {
        self.view.request().layout.to_string()
    }

    /// Number and size of the records, for people.
    fn summary(&self) -> String {
        let sum = self.view.sum();
        format!("{} records, {}", units::count(sum.count), units::bytes(sum.bytes))
    }

    /// Offset of a record, bytes.
    fn offset_of_record(&self, py: Python<'_>, record: u64) -> PyResult<u64> {
        let view = self.view()?;
        Ok(py.detach(|| view.offset_of_record(record)).map_err(Failure::from)?)
    }

    /// Offset of the first record with at least this key, bytes. Hexadecimal digits after `0x` are bytes.
    fn offset_of_key(&self, py: Python<'_>, key: &str) -> PyResult<u64> {
        let view = self.view()?;
        let find = || view.offset_of_key(&view.key(key)?);
        Ok(py.detach(find).map_err(Failure::from)?)
    }

    /// The bytes from `start` to `stop`.
    fn read<'py>(&self, py: Python<'py>, start: u64, stop: u64) -> PyResult<Bound<'py, PyBytes>> {
        let stop = stop.min(self.view()?.bytes());
        let part = start.min(stop)..stop;
        let len = part.end - part.start;
        if len <= SHORT_BYTES {
            let read = || self.view.read_at(part.start, usize::try_from(len).unwrap_or(usize::MAX));
            return Ok(PyBytes::new(py, &py.detach(read).map_err(Failure::from)?));
        }
        let len = usize::try_from(len)
            .map_err(|_| Failure::Request("more bytes than this machine counts".into()))?;
        PyBytes::new_with(py, len, |out| {
            run(py, None, |_, cancel| self.fill(part.clone(), out, cancel)).map(drop)
        })
    }

    /// Writes the bytes from `start` to `stop`, which are `records` records if that is known, to a file, and returns
    /// the report.
    fn write(
        &self,
        py: Python<'_>,
        start: u64,
        stop: u64,
        records: Option<u64>,
        output: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Told> {
        let stop = stop.min(self.view()?.bytes());
        let part = start.min(stop)..stop;
        let output = Output::Path(output);
        let mut finished = run(py, progress.as_ref(), |observer, cancel| {
            let _turn = self.wait_for_turn(cancel)?;
            write_part(&*self.view, part, &output, &RunOptions::default(), observer, cancel)
        })?;
        if let Some(records) = records {
            finished.result.records_in = records;
            finished.result.records_out = records;
        }
        told_of(finished)
    }

    /// A reader of the whole view, with a position of its own.
    fn reader(&self) -> PyResult<ViewReader> {
        let view = Arc::clone(self.view()?);
        Ok(ViewReader { view, state: Mutex::default(), opener: Opener::new() })
    }
}

impl OpenedView {
    /// The view.
    ///
    /// # Errors
    /// This process was forked after the view was opened.
    pub fn view(&self) -> Result<&Arc<dyn View>> {
        self.opener.check("view").map(|()| &self.view)
    }

    /// Waits until no other long slice is read or written.
    ///
    /// # Errors
    /// The slice was cancelled meanwhile.
    fn wait_for_turn(&self, cancel: &Cancel) -> Result<MutexGuard<'_, ()>, SortError> {
        loop {
            match self.turn.try_lock() {
                Ok(turn) => return Ok(turn),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(Err(poisoned).unpoisoned()),
                Err(TryLockError::WouldBlock) => {
                    cancel.check()?;
                    thread::sleep(TURN_PAUSE);
                }
            }
        }
    }

    /// Fills `out` with the bytes of `part`.
    fn fill(&self, part: Range<u64>, out: &mut [u8], cancel: &Cancel) -> Result<(), SortError> {
        let _turn = self.wait_for_turn(cancel)?;
        let reading = Reading { memory: self.view.pool().available(), ..Reading::default() };
        let mut stream = self.view.stream(part.start, part.end, reading)?;
        for step in out.chunks_mut(STEP_BYTES) {
            cancel.check()?;
            if stream.read(step)? < step.len() {
                return Err(SortError::Internal("a view ended before its last record"));
            }
        }
        Ok(())
    }
}

impl Drop for OpenedView {
    fn drop(&mut self) {
        if self.opener.is_forked() {
            // The end of the view would wait for its threads.
            std::mem::forget(Arc::clone(&self.view));
        }
    }
}

/// A reader of a view.
#[pyclass(frozen, module = "ascot._native")]
pub struct ViewReader {
    view: Arc<dyn View>,
    state: Mutex<Position>,
    opener: Opener,
}

/// The end of the latest read, and the stream that goes on from there.
#[derive(Default)]
struct Position {
    offset: u64,
    stream: Option<Stream>,
}

#[pymethods]
impl ViewReader {
    /// At most `len` bytes from `offset` on; none at the end.
    fn read<'py>(&self, py: Python<'py>, offset: u64, len: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.opener.check("file of the view")?;
        let read = py.detach(|| self.read_at(offset, len)).map_err(Failure::from)?;
        Ok(PyBytes::new(py, &read))
    }
}

impl ViewReader {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, SortError> {
        let left = usize::try_from(self.view.bytes().saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = len.min(left);
        let mut position = self.state.lock().unpoisoned();
        if position.offset != offset {
            position.stream = None;
        }
        let goes_on = position.offset == offset && offset > 0;
        if position.stream.is_none() && len > 0 && (goes_on || len as u64 > SHORT_BYTES) {
            position.stream = self.stream(offset)?;
        }
        let mut bytes = Vec::new();
        match &mut position.stream {
            Some(stream) => {
                bytes.resize(len, 0);
                let read = stream.read(&mut bytes).inspect_err(|_| position.stream = None)?;
                bytes.truncate(read);
            }
            None => bytes = self.view.read_at(offset, len)?,
        }
        position.offset = offset + bytes.len() as u64;
        Ok(bytes)
    }

    /// A stream from `offset` on; none if there is not enough memory now.
    fn stream(&self, offset: u64) -> Result<Option<Stream>, SortError> {
        let pool = self.view.pool();
        let memory = (pool.budget() / READER_SHARE).min(pool.available());
        match self.view.stream(offset, self.view.bytes(), Reading { memory, ..Reading::default() }) {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for ViewReader {
    fn drop(&mut self) {
        if self.opener.is_forked() {
            std::mem::forget(Arc::clone(&self.view));
            // A thread that does not exist here may hold the lock.
            if let Ok(mut position) = self.state.try_lock() {
                std::mem::forget(position.stream.take());
            }
        }
    }
}
