//! A stream that another library reads, through C functions and in a single call of it.
//!
//! A library may hold the interpreter in one thread and wait here in another one, so only the main thread of the
//! process looks at signals: Python runs their handlers there and nowhere else. C functions cannot raise the exception
//! of a handler, such as `KeyboardInterrupt`: the library gets an error with its text, and raises one of its own; the
//! exception itself follows as soon as the main thread runs code of Python again.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use ascot_io::Unpoisoned;
use pyo3::ffi;
use pyo3::prelude::*;

use super::batch_reader::BatchReader;
use super::capsule::c_text;
use crate::errors::{Failure, Result};
use crate::running::PAUSE;

/// Time after which a read of a batch is interrupted. One that ends before returns its batch: if the library then
/// returns to Python, this raises the exception itself, and if it reads on, the next read is interrupted.
const PATIENCE: Duration = Duration::from_millis(100);

/// A stream as another library reads it.
pub struct HandedOver {
    reader: Option<Box<dyn BatchReader>>,
    schema: SchemaRef,
    /// The process whose threads work for the stream.
    process: u32,
    signals: Signals,
}

impl HandedOver {
    /// The stream of `reader`, for which the threads of `process` work.
    pub fn new(reader: Option<Box<dyn BatchReader>>, schema: SchemaRef, process: u32) -> HandedOver {
        HandedOver { reader, schema, process, signals: Signals { looked: Instant::now() } }
    }
}

impl Iterator for HandedOver {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let HandedOver { reader, signals, .. } = self;
        let reader = reader.as_mut()?;
        if self.process != process::id() {
            return Some(Err(ArrowError::ComputeError(
                "this process was forked while the batches were read".into(),
            )));
        }
        let began = Instant::now();
        // The caller is in C, where a panic would end the process.
        let next = catch_unwind(AssertUnwindSafe(|| {
            signals.look()?;
            reader.next(&mut || if began.elapsed() < PATIENCE { Ok(()) } else { signals.look() })
        }));
        let next = next.unwrap_or_else(|_| Err(Failure::Source("a fault of Ascot; please report it".into())));
        if !matches!(next, Ok(Some(_))) {
            self.reader = None;
        }
        next.map_err(|failure| ArrowError::ComputeError(c_text(&told(&failure)))).transpose()
    }
}

/// The text of a failure. That of an exception needs the interpreter, in which it was raised.
fn told(failure: &Failure) -> String {
    match failure {
        Failure::Exception(error) => {
            let text = Python::try_attach(|_| error.to_string()).unwrap_or_else(|| failure.to_string());
            // An exception without a text.
            text.trim_end_matches(": ").to_owned()
        }
        _ => failure.to_string(),
    }
}

impl RecordBatchReader for HandedOver {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        if self.process != process::id() {
            // Its threads do not exist in a forked process.
            std::mem::forget(self.reader.take());
        }
    }
}

/// Looks at signals from time to time, in the main thread.
struct Signals {
    looked: Instant,
}

impl Signals {
    /// Runs the handlers of signals that came, and keeps the exception that one of them raises for later.
    ///
    /// # Errors
    /// That exception.
    fn look(&mut self) -> PyResult<()> {
        if self.looked.elapsed() < PAUSE || !is_main_thread() {
            return Ok(());
        }
        self.looked = Instant::now();
        let looked =
            Python::try_attach(|py| py.check_signals().inspect_err(|error| raise_later(error.clone_ref(py))));
        looked.unwrap_or(Ok(()))
    }
}

/// Whether this is the main thread of the process, which is that of the interpreter unless another program embeds it.
fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// The exception that the main thread is to raise.
static LATER: Mutex<Option<PyErr>> = Mutex::new(None);

/// Raises an exception in the main thread once that runs code of Python again. If many calls are pending already, the
/// interpreter refuses another one, and the error of the library is all.
#[expect(unsafe_code, reason = "pyo3 has no function for pending calls")]
fn raise_later(error: PyErr) {
    *LATER.lock().unpoisoned() = Some(error);
    // SAFETY: the function lives as long as the process and uses no argument.
    unsafe { ffi::Py_AddPendingCall(Some(raise), std::ptr::null_mut()) };
}

/// A pending call of the interpreter: 0, or -1 with the exception set.
extern "C" fn raise(_: *mut c_void) -> c_int {
    let error = LATER.lock().unpoisoned().take();
    match error {
        None => 0,
        Some(error) => Python::attach(|py| {
            error.restore(py);
            -1
        }),
    }
}
