//! A stream that another library reads, through C functions and in a single call of it.
//!
//! A library may hold the interpreter in one thread and wait here in another one, so only the main thread of the
//! process looks at signals: Python runs their handlers there and nowhere else. C functions cannot raise the exception
//! of a handler, such as `KeyboardInterrupt`: the library gets an error with its text, and raises one of its own.
//! Raising the exception itself afterwards, by a pending call, would interrupt the `finally` and `with` blocks that run
//! next, and skip the cleanup of the program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::time::{Duration, Instant};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;

use super::batch_reader::BatchReader;
use super::capsule::c_text;
use crate::errors::{Failure, Result};
use crate::running::PAUSE;

/// Time after which a read of a batch is interrupted. One that ends before returns its batch. Then either the library
/// returns to Python, which raises the exception itself, or it reads on, and its next read is interrupted.
const PATIENCE: Duration = Duration::from_millis(100);

/// A stream as another library reads it.
pub struct HandedOver {
    reader: Option<Box<dyn BatchReader>>,
    schema: SchemaRef,
    /// The process whose threads work for the stream.
    process: u32,
    signals: Signals,
    /// Whether it is read now: a handler of a signal may call the library, which then reads it again.
    is_read: bool,
}

impl HandedOver {
    /// The stream of `reader`, for which the threads of `process` work.
    pub fn new(reader: Option<Box<dyn BatchReader>>, schema: SchemaRef, process: u32) -> HandedOver {
        HandedOver { reader, schema, process, signals: Signals { looked: Instant::now() }, is_read: false }
    }
}

impl Iterator for HandedOver {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let refused = |text: &str| Some(Err(ArrowError::ComputeError(text.into())));
        if self.is_read {
            return refused("the handler of a signal reads the batches that are being read");
        }
        let HandedOver { reader, signals, .. } = self;
        let reader = reader.as_mut()?;
        if self.process != process::id() {
            return refused("this process was forked while the batches were read");
        }
        self.is_read = true;
        let began = Instant::now();
        // The caller is in C, where a panic would end the process.
        let next = catch_unwind(AssertUnwindSafe(|| {
            signals.look()?;
            reader.next(&mut || if began.elapsed() < PATIENCE { Ok(()) } else { signals.look() })
        }));
        self.is_read = false;
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
    /// Runs the handlers of signals that came.
    ///
    /// # Errors
    /// The exception that one of them raises.
    fn look(&mut self) -> PyResult<()> {
        if self.looked.elapsed() < PAUSE || !is_main_thread() {
            return Ok(());
        }
        self.looked = Instant::now();
        Python::try_attach(|py| py.check_signals()).unwrap_or(Ok(()))
    }
}

/// Whether this is the main thread of the process, which is that of the interpreter unless another program embeds it.
fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}
