//! Indexed directories: queries, ranges, writers.
//!
//! A range is scanned by a thread of its own, which hands over batches of limited size; it ends when its iterator is
//! dropped.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use ascot_index::read::USUAL_MEMORY_BYTES;
use ascot_index::write::discard;
use ascot_index::{
    Directory, DirectoryWriter, IndexError, LayoutRequest, Named, OpenMode, Opening, PartitionBy, Scan,
    Scheme,
};
use ascot_io::{Disk, Unpoisoned, threads};
use ascot_sort::Cancel;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyTuple};

use crate::arrow::StreamEnd;
use crate::errors::{Failure, Result};
use crate::request::{Bytes, choice, memory};
use crate::running::{Opener, PAUSE, Unfinished, run_aside, run_aside_until};

/// Default memory of a writer, bytes.
const WRITER_MEMORY_BYTES: u64 = 64 << 20;
/// Maximum number of records in a batch of a range.
const BATCH_RECORDS: usize = 4096;
/// Bytes of records after which a batch of a range is handed over.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of records, and of bytes of keys or of values, appended between two looks at signals.
const APPENDED_AT_ONCE: usize = 1 << 16;
const APPENDED_BYTES: usize = 4 << 20;
/// Queries of at most this many keys are answered by the calling thread, which looks at signals afterwards.
const FEW_KEYS: usize = 16;

/// A record of an answer: its key, epoch and value.
type Record<'py> = (Bound<'py, PyBytes>, u64, Bound<'py, PyBytes>);
/// The same outside the interpreter.
type Row = (Vec<u8>, u64, Vec<u8>);

/// An indexed directory open for reading.
#[pyclass(frozen, module = "ascot._native")]
pub struct Index {
    directory: Arc<Directory>,
    opener: Opener,
}

/// Opens the indexed directory `path` for reading.
#[pyfunction]
pub fn open_index(py: Python<'_>, path: PathBuf, memory_cap: Option<Bytes>) -> PyResult<Index> {
    let bytes = memory(memory_cap.as_ref())?.map_or(USUAL_MEMORY_BYTES, whole);
    let open = || Directory::open(&Disk::default(), &path, bytes);
    let directory = py.detach(open).map_err(Failure::from)?;
    Ok(Index { directory: Arc::new(directory), opener: Opener::new() })
}

#[pymethods]
impl Index {
    /// Number of complete epochs.
    #[getter]
    fn epochs(&self) -> u64 {
        self.directory.manifest().epochs
    }

    /// The manifest as JSON.
    fn manifest(&self) -> PyResult<String> {
        let text = serde_json::to_string(self.directory.manifest());
        Ok(text.map_err(|error| Failure::Request(format!("the manifest is not JSON: {error}")))?)
    }

    /// The values of keys, in their order, of all epochs or one: key, epoch, value.
    fn get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        epoch: Option<u64>,
    ) -> PyResult<Vec<Record<'py>>> {
        let keys = Column::new("keys", keys)?;
        let rows = keys.rows(py, 0, keys.len())?;
        let directory = self.directory()?;
        let query = move || {
            let mut found: Vec<(usize, u64, Vec<u8>)> = Vec::new();
            let keys: Vec<&[u8]> = rows.iter().collect();
            directory.get_many(&keys, epoch, |number, values| {
                found.extend(values.into_iter().map(|value| (number, value.epoch, value.bytes)));
                Ok(())
            })?;
            drop(keys);
            Ok((rows, found))
        };
        let (rows, found) = answered(py, keys.len(), query)?;
        let keys: Vec<Bound<'_, PyBytes>> = rows.iter().map(|key| PyBytes::new(py, key)).collect();
        let record = |(number, epoch, value): (usize, u64, Vec<u8>)| {
            keys.get(number).map(|key| (key.clone(), epoch, PyBytes::new(py, &value)))
        };
        Ok(found.into_iter().filter_map(record).collect())
    }

    /// The records with keys from `start` to `stop`, in the order of their keys and epochs, in batches.
    fn range(&self, start: Vec<u8>, stop: Option<Vec<u8>>, epoch: Option<u64>) -> PyResult<Batches> {
        let scan = Scan { from: start, end: stop, epoch, by_key: true, ..Scan::default() };
        let directory = self.directory()?;
        let (send, receive) = sync_channel(1);
        let work = move || {
            let mut batch = Batch { send, rows: Vec::new(), bytes: 0 };
            let scanned = directory
                .scan(&scan, |record| batch.push((record.key.to_vec(), record.epoch, record.value.to_vec())));
            batch.end(scanned);
        };
        threads::spawn("range", work).map_err(Failure::from)?;
        Ok(Batches { received: Mutex::new(receive) })
    }

    /// Warnings of damaged parts that queries did without, since the last call.
    fn take_warnings(&self) -> PyResult<Vec<String>> {
        Ok(self.directory()?.take_notices().texts)
    }
}

impl Index {
    /// The directory, for the process that opened it.
    pub fn directory(&self) -> Result<Arc<Directory>> {
        self.opener.check("index")?;
        Ok(Arc::clone(&self.directory))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if self.opener.is_forked() {
            // Its threads are those of the process that opened it.
            std::mem::forget(Arc::clone(&self.directory));
        }
    }
}

/// The result of a query of `keys` keys. Ctrl-C does not wait for the end of one of many keys.
pub fn answered<T: Send + 'static>(
    py: Python<'_>,
    keys: usize,
    query: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    if keys > FEW_KEYS {
        return run_aside(py, query);
    }
    let found = py.detach(query)?;
    py.check_signals()?;
    Ok(found)
}

/// A batch that fills.
struct Batch {
    send: SyncSender<Result<Vec<Row>, IndexError>>,
    rows: Vec<Row>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, row: Row) -> Result<(), IndexError> {
        self.bytes += row.0.len() + row.2.len();
        self.rows.push(row);
        if self.rows.len() < BATCH_RECORDS && self.bytes < BATCH_BYTES {
            return Ok(());
        }
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        self.send.send(Ok(rows)).map_err(|_| IndexError::Request("the reader of this range is gone".into()))
    }

    /// Hands over the rest, or the error of the scan. A reader that has gone needs neither.
    fn end(self, scanned: Result<(), IndexError>) {
        let rest = scanned.map(|()| self.rows);
        let _ = self.send.send(rest);
    }
}

/// The batches of a range.
#[pyclass(frozen, module = "ascot._native")]
pub struct Batches {
    received: Mutex<Receiver<Result<Vec<Row>, IndexError>>>,
}

#[pymethods]
impl Batches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<Record<'py>>>> {
        let rows = loop {
            match py.detach(|| self.received.lock().unpoisoned().recv_timeout(PAUSE)) {
                Ok(rows) => break rows,
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                // The thread has ended, and has handed over all.
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        };
        py.check_signals()?;
        let record = |(key, epoch, value): Row| (PyBytes::new(py, &key), epoch, PyBytes::new(py, &value));
        let rows = rows.map_err(Failure::from)?;
        Ok(Some(rows.into_iter().map(record).collect()))
    }
}

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
}

/// What the threads of a writer share.
struct Shared {
    writer: Mutex<Option<Open>>,
    /// On once an exception has interrupted a call, or the interpreter ends.
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

    /// Calls `act` with the writer, if it is open. Afterwards a writer that was stopped is dropped.
    fn with<R>(&self, act: impl FnOnce(&mut Option<Open>) -> Result<R>) -> Result<R> {
        let done = act(&mut self.writer.lock().unpoisoned());
        // After the lock is released: the one who stops it looks the other way round.
        if self.stop.is_cancelled() {
            self.abandon(self.writer.lock().unpoisoned().take());
        }
        done
    }

    /// Stops the writer, now or once the thread that uses it has seen that.
    fn stop(&self) {
        self.stop.cancel();
        if let Ok(mut writer) = self.writer.try_lock() {
            let open = writer.take();
            drop(writer);
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
    let shared = Shared { writer: Mutex::new(Some(Open { writer, _alive: alive })), stop, new };
    Ok(IndexWriter { shared: Arc::new(shared), opener: Opener::new(), end })
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
        let step = keys.rows_at_once().min(values.rows_at_once());
        for first in (0..count).step_by(step) {
            let last = (first + step).min(count);
            self.append_rows(py, keys.rows(py, first, last)?, values.rows(py, first, last)?)?;
            if last < count {
                // A part of the rows is no epoch to go on with.
                py.check_signals().inspect_err(|_| py.detach(|| self.shared.stop()))?;
            }
        }
        Ok(count)
    }

    /// Ends the epoch, which is then durable and complete. Returns the number of complete epochs.
    fn end_epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.aside(py, |open| {
            let writer = &mut open.as_mut().ok_or_else(closed)?.writer;
            writer.end_epoch()?;
            Ok(writer.manifest().epochs)
        })
    }

    /// Number of complete epochs.
    #[getter]
    fn epochs(&self, py: Python<'_>) -> PyResult<u64> {
        self.opener.check("writer")?;
        let epochs = |open: &mut Option<Open>| Ok(open.as_ref().ok_or_else(closed)?.writer.manifest().epochs);
        Ok(py.detach(|| self.shared.with(epochs))?)
    }

    /// Closes the directory. Records since the last epoch become an epoch.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.aside(py, |open| {
            if let Some(open) = open {
                open.writer.end_open_epoch()?;
            }
            // It is not stopped any more: all of it is durable.
            open.take().map_or(Ok(()), |open| Ok(open.writer.close().map(drop)?))
        })
    }

    /// Closes the directory without the records since the last epoch. A new directory without an epoch is removed.
    fn abandon(&self, py: Python<'_>) {
        if !self.opener.is_forked() && !self.shared.stop.is_cancelled() {
            py.detach(|| self.shared.abandon(self.shared.writer.lock().unpoisoned().take()));
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
        let in_memory = || match self.shared.writer.try_lock() {
            Ok(mut open) => match &mut *open {
                Some(open) if open.writer.has_space(keys.len(), bytes) => {
                    Some(append(&mut open.writer, &keys, &values))
                }
                _ => None,
            },
            // Another thread uses it.
            Err(_) => None,
        };
        match py.detach(in_memory) {
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
            && let Ok(mut writer) = self.shared.writer.try_lock()
        {
            // The directory belongs to the process that opened it.
            std::mem::forget(writer.take());
        }
    }
}

/// Keys or values.
pub enum Column {
    /// Rows of an array.
    Array {
        /// The array.
        buffer: PyUntypedBuffer,
        /// Number of rows.
        rows: usize,
        /// Length of a row.
        row_bytes: usize,
    },
    /// A list of bytes.
    List(Vec<Vec<u8>>),
}

/// Some rows of a column.
pub enum Rows {
    /// One after the other.
    Array {
        /// All of them.
        bytes: Vec<u8>,
        /// Length of a row.
        row_bytes: usize,
        /// Their number.
        rows: usize,
    },
    /// One by one.
    List(Vec<Vec<u8>>),
}

impl Rows {
    /// Number of rows.
    fn len(&self) -> usize {
        match self {
            Rows::Array { rows, .. } => *rows,
            Rows::List(rows) => rows.len(),
        }
    }

    /// Bytes of all rows.
    fn bytes(&self) -> usize {
        match self {
            Rows::Array { bytes, .. } => bytes.len(),
            Rows::List(rows) => rows.iter().map(Vec::len).sum(),
        }
    }

    /// The rows.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            Rows::Array { row_bytes: 0, rows, .. } => Box::new(std::iter::repeat_n(&[][..], *rows)),
            Rows::Array { bytes, row_bytes, .. } => Box::new(bytes.chunks_exact(*row_bytes)),
            Rows::List(rows) => Box::new(rows.iter().map(Vec::as_slice)),
        }
    }
}

impl Column {
    /// The column that an object is.
    ///
    /// # Errors
    /// An object that is neither a list of bytes nor a contiguous array.
    pub fn new(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Column> {
        if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
            return given.extract().map(Column::List).map_err(|_| Self::wrong_element(name, given));
        }
        let buffer = match PyUntypedBuffer::get(given) {
            Ok(buffer) if !given.is_instance_of::<PyBytes>() && !given.is_instance_of::<PyByteArray>() => {
                buffer
            }
            _ => {
                let remedy = if given.hasattr("to_numpy")? { ", such as its to_numpy()" } else { "" };
                let accepted = format!("a list of bytes, or an array with a row for each{remedy}");
                return Err(Self::wrong(name, given, &accepted));
            }
        };
        if !buffer.is_c_contiguous() {
            let text = "the array is not contiguous; numpy.ascontiguousarray makes a contiguous copy";
            return Err(Failure::Request(format!("{name}: {text}")).into());
        }
        let rows = buffer.shape().first().copied().unwrap_or(0);
        let row_bytes = buffer.len_bytes().checked_div(rows).unwrap_or(0);
        Ok(Column::Array { buffer, rows, row_bytes })
    }

    /// TypeError for the argument `name`, in the words of the package.
    fn wrong(name: &str, given: &Bound<'_, PyAny>, accepted: &str) -> PyErr {
        let shown = given
            .py()
            .import("ascot.arguments")
            .and_then(|arguments| arguments.call_method1("shown", (given,))?.extract::<String>());
        shown.map_or_else(
            |error| error,
            |shown| PyTypeError::new_err(format!("{name} is {accepted}, not {shown}")),
        )
    }

    /// The error for the first element of a list that is not bytes.
    fn wrong_element(name: &str, list: &Bound<'_, PyAny>) -> PyErr {
        let not_bytes = |one: &PyResult<Bound<'_, PyAny>>| {
            one.as_ref().map_or(true, |one| one.extract::<Vec<u8>>().is_err())
        };
        match list.try_iter().map(|mut elements| elements.find(not_bytes)) {
            Ok(Some(Ok(element))) => Self::wrong(&format!("an element of {name}"), &element, "bytes"),
            Ok(Some(Err(error))) | Err(error) => error,
            Ok(None) => Self::wrong(name, list, "a list of bytes"),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Column::Array { rows, .. } => *rows,
            Column::List(rows) => rows.len(),
        }
    }

    /// The number of rows that are appended at once.
    fn rows_at_once(&self) -> usize {
        let row_bytes = match self {
            Column::Array { row_bytes, .. } => *row_bytes,
            Column::List(rows) => rows.iter().map(Vec::len).sum::<usize>() / rows.len().max(1),
        };
        (APPENDED_BYTES / row_bytes.max(1)).clamp(1, APPENDED_AT_ONCE)
    }

    /// A copy of the rows from `first` to `last`, which may be used without the interpreter.
    #[expect(unsafe_code, reason = "the buffer protocol gives a pointer")]
    pub fn rows(&self, _py: Python<'_>, first: usize, last: usize) -> PyResult<Rows> {
        match self {
            Column::Array { buffer, row_bytes, .. } => {
                let len = (last - first) * row_bytes;
                let start = first * row_bytes;
                let whole = buffer.len_bytes();
                if start.checked_add(len).is_none_or(|end| end > whole)
                    || (len > 0 && buffer.buf_ptr().is_null())
                {
                    return Err(Failure::Request("the array is shorter than its shape says".into()).into());
                }
                let mut bytes = Vec::with_capacity(len);
                if len > 0 {
                    // SAFETY: the buffer is contiguous, holds `whole` bytes, and is not released while `self` lives;
                    // the range was checked. The bytes are copied while this thread holds the interpreter.
                    let part =
                        unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>().add(start), len) };
                    bytes.extend_from_slice(part);
                }
                Ok(Rows::Array { bytes, row_bytes: *row_bytes, rows: last - first })
            }
            Column::List(rows) => Ok(Rows::List(rows.get(first..last).unwrap_or_default().to_vec())),
        }
    }
}

fn whole(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
