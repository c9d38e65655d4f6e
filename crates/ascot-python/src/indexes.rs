//! Indexed directories: queries and ranges.
//!
//! A range is scanned by a thread of its own, which hands over batches of limited size; it ends when its iterator is
//! dropped.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use ascot_index::read::USUAL_MEMORY_BYTES;
use ascot_index::{Directory, IndexError, Scan};
use ascot_io::{Disk, Unpoisoned, threads};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{Failure, Result};
use crate::index_columns::Column;
use crate::request::{Bytes, memory};
use crate::running::{Opener, PAUSE, run_aside};

/// Maximum number of records in a batch of a range.
const BATCH_RECORDS: usize = 4096;
/// Bytes of records after which a batch of a range is handed over.
const BATCH_BYTES: usize = 1 << 20;
/// Records made into objects between two looks at signals.
const RECORDS_AT_ONCE: usize = 1 << 16;
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
        let mut records = Vec::with_capacity(found.len());
        for (number, epoch, value) in found {
            if records.len().is_multiple_of(RECORDS_AT_ONCE) {
                py.check_signals()?;
            }
            records.extend(keys.get(number).map(|key| (key.clone(), epoch, PyBytes::new(py, &value))));
        }
        Ok(records)
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

/// A number of bytes of memory.
pub fn whole(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
