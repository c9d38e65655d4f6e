//! Record batches as Python objects.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::thread::{self, ThreadId};

use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::{Schema, SchemaRef};
use ascot_io::Unpoisoned;
use ascot_sort::Cancel;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::batch_reader::BatchReader;
use super::capsule::{batch_capsules, schema_capsule, stream_capsule};
use super::handover::HandedOver;
use crate::errors::{Failure, Result};

/// A batch of rows in columns.
///
/// It exports Arrow's PyCapsule interface: `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)`,
/// `duckdb.sql("from batch")`. `len(batch)` is the number of rows.
#[pyclass(frozen, module = "ascot._native")]
pub struct Batch {
    batch: RecordBatch,
}

impl Batch {
    /// The object for a batch.
    pub fn new(batch: RecordBatch) -> Batch {
        Batch { batch }
    }
}

#[pymethods]
impl Batch {
    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Number of columns.
    #[getter]
    fn num_columns(&self) -> usize {
        self.batch.num_columns()
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(self.batch.schema_ref())
    }

    /// Bytes of the arrays in memory. Batches that share arrays count them each.
    #[getter]
    fn nbytes(&self) -> usize {
        self.batch.get_array_memory_size()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<ascot.Batch: {} rows of {}>", self.batch.num_rows(), columns(self.batch.schema_ref()))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.batch.schema_ref())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A request that is not followed: the consumer converts.
        drop(requested_schema);
        batch_capsules(py, &self.batch)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let one = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        stream_capsule(py, Box::new(one))
    }
}

/// A stream of batches, which can be read once: by a for loop, or by a library through Arrow's PyCapsule interface.
#[pyclass(frozen, module = "ascot._native")]
pub struct BatchStream {
    schema: SchemaRef,
    reader: Mutex<State>,
    /// The thread that reads a batch now.
    reads: Mutex<Option<ThreadId>>,
    /// Stops the work for the stream.
    cancel: Cancel,
    /// Whether `close` was called: the read that it interrupts then fails as those that follow.
    closed: AtomicBool,
    /// The process whose threads work for the stream.
    process: u32,
    end: StreamEnd,
}

/// Tells whether the reader of a stream is gone, here or in another library, or the writer of an index: with it go its
/// job, its memory and its files. It does not keep them.
#[pyclass(frozen, module = "ascot._native")]
#[derive(Clone)]
pub struct StreamEnd(Weak<()>);

impl StreamEnd {
    /// The end of what keeps `alive`.
    pub fn of(alive: &Arc<()>) -> StreamEnd {
        StreamEnd(Arc::downgrade(alive))
    }
}

#[pymethods]
impl StreamEnd {
    /// Whether it is gone.
    #[getter]
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// A reader that a [`StreamEnd`] watches.
struct Watched {
    reader: Box<dyn BatchReader>,
    /// Dropped after the reader.
    _alive: Arc<()>,
}

impl BatchReader for Watched {
    fn schema(&self) -> SchemaRef {
        self.reader.schema()
    }

    fn next(&mut self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<Option<RecordBatch>> {
        self.reader.next(look)
    }
}

enum State {
    Open(Box<dyn BatchReader>),
    /// It has ended, or failed.
    Ended,
    /// Another library reads it.
    HandedOver,
    Closed,
}

impl BatchStream {
    /// The object for a stream. `cancel` stops its work; afterwards the reader ends soon.
    pub fn new(reader: Box<dyn BatchReader>, cancel: &Cancel) -> BatchStream {
        let alive = Arc::new(());
        let end = StreamEnd::of(&alive);
        BatchStream {
            schema: reader.schema(),
            reader: Mutex::new(State::Open(Box::new(Watched { reader, _alive: alive }))),
            reads: Mutex::default(),
            cancel: cancel.clone(),
            closed: AtomicBool::new(false),
            process: process::id(),
            end,
        }
    }

    /// Whether this process was forked from the one whose threads work for the stream.
    fn is_forked(&self) -> bool {
        self.process != process::id()
    }

    /// Whether this thread reads a batch now: its source or the handler of a signal calls.
    fn reads_here(&self) -> bool {
        *self.reads.lock().unpoisoned() == Some(thread::current().id())
    }

    fn read(&self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<Option<RecordBatch>> {
        if self.reads_here() {
            return Err(used(READS_ITSELF));
        }
        let own = thread::current().id();
        let mut state = self.reader.lock().unpoisoned();
        let reader = match &mut *state {
            State::Open(reader) => reader,
            State::Ended => return Ok(None),
            State::HandedOver => return Err(used("another library reads these batches")),
            State::Closed => return Err(used(CLOSED)),
        };
        *self.reads.lock().unpoisoned() = Some(own);
        let next = reader.next(look);
        *self.reads.lock().unpoisoned() = None;
        if matches!(next, Ok(Some(_))) {
            return next;
        }
        if !self.closed.load(Ordering::Acquire) {
            *state = State::Ended;
            return next;
        }
        *state = State::Closed;
        match next {
            Ok(_) | Err(Failure::Exception(_)) => next,
            Err(_) => Err(used(CLOSED)),
        }
    }
}

const READS_ITSELF: &str = "the source of these batches reads them itself";
const CLOSED: &str = "the batches are closed";

fn used(text: &str) -> Failure {
    Failure::Request(text.to_owned())
}

#[pymethods]
impl BatchStream {
    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(&self.schema)
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        if self.is_forked() {
            return Err(used("this process was forked while the batches were read").into());
        }
        let batch = py.detach(|| self.read(&mut || Python::attach(|py| py.check_signals())))?;
        Ok(batch.map(Batch::new))
    }

    fn __repr__(&self) -> String {
        format!("<ascot.BatchStream of {}>", columns(&self.schema))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }

    /// Hands the stream over to another library.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        if self.reads_here() {
            return Err(used(READS_ITSELF).into());
        }
        let taken = py.detach(|| std::mem::replace(&mut *self.reader.lock().unpoisoned(), State::HandedOver));
        let reader = match taken {
            State::Open(reader) => Some(reader),
            State::Ended => None,
            State::HandedOver => return Err(used("another library reads these batches").into()),
            State::Closed => return Err(used(CLOSED).into()),
        };
        let handed = HandedOver::new(reader, SchemaRef::clone(&self.schema), self.process);
        stream_capsule(py, Box::new(handed))
    }

    /// A batch of these columns without rows.
    fn without_rows(&self) -> Batch {
        Batch::new(RecordBatch::new_empty(SchemaRef::clone(&self.schema)))
    }

    /// Tells whether the stream has ended, also if another library reads it.
    fn end(&self) -> StreamEnd {
        self.end.clone()
    }

    /// Stops the work for the stream and removes its files. A stream that has ended is closed already.
    fn close(&self, py: Python<'_>) {
        if self.is_forked() {
            return;
        }
        py.detach(|| {
            self.closed.store(true, Ordering::Release);
            self.cancel.cancel();
            if self.reads_here() {
                // The read ends, and closes it.
                return;
            }
            let mut state = self.reader.lock().unpoisoned();
            if let State::Open(_) = &*state {
                *state = State::Closed;
            }
        });
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        let state = match self.reader.try_lock() {
            Ok(mut state) => std::mem::replace(&mut *state, State::Closed),
            Err(TryLockError::Poisoned(state)) => std::mem::replace(&mut *state.into_inner(), State::Closed),
            // Only a thread that was not forked with this process holds it.
            Err(TryLockError::WouldBlock) => return,
        };
        let State::Open(reader) = state else { return };
        end(reader, self.process, || self.cancel.cancel());
    }
}

/// Drops a reader without the interpreter, as its threads may need that to end.
fn end(reader: Box<dyn BatchReader>, process: u32, cancel: impl FnOnce()) {
    if process != process::id() {
        // Its threads do not exist in a forked process.
        std::mem::forget(reader);
        return;
    }
    cancel();
    // If the interpreter has ended, the reader is dropped with the closure.
    let _dropped = Python::try_attach(|py| py.detach(|| drop(reader)));
}

fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

/// The columns and their types, for people.
fn columns(schema: &Schema) -> String {
    let column = |field: &std::sync::Arc<arrow_schema::Field>| {
        format!("{}: {}", field.name(), ascot_columns::type_name(field.data_type()))
    };
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}
