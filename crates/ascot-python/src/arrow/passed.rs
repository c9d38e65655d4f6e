//! Batches of other libraries, passed on as they come.

use std::sync::Mutex;

use ascot_io::Unpoisoned;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::export::Batch;
use super::import::Source;

/// The batches of a source, one after the other.
#[pyclass(frozen, module = "ascot._native")]
pub struct PassedBatches {
    /// None while a batch is read, and after the end.
    source: Mutex<Option<Source>>,
}

#[pymethods]
impl PassedBatches {
    /// The batches of `source`, an object with Arrow batches.
    #[new]
    fn new(source: &Bound<'_, PyAny>) -> PyResult<PassedBatches> {
        Ok(PassedBatches { source: Mutex::new(Some(Source::new(source)?)) })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let taken = self.source.lock().unpoisoned().take();
        // Another thread, or the source itself, reads.
        let mut source =
            taken.ok_or_else(|| PyValueError::new_err("these batches are read by another call"))?;
        let next = source.next(py);
        *self.source.lock().unpoisoned() = Some(source);
        Ok(next?.map(Batch::new))
    }
}
