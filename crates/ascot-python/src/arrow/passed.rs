//! Batches of other libraries, passed on as they come.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ascot_sort::Cancel;
use pyo3::prelude::*;

use super::batch_reader::BatchReader;
use super::export::BatchStream;
use super::import::Source;
use crate::errors::{Failure, Result};

/// The batches of `source`, an object with Arrow batches, one after the other. Its exceptions are raised unchanged.
#[pyfunction]
pub fn pass_batches(source: &Bound<'_, PyAny>) -> PyResult<BatchStream> {
    let source = Source::new(source)?;
    let passed = Passed { schema: SchemaRef::clone(source.schema()), source: Some(source) };
    Ok(BatchStream::new(Box::new(passed), &Cancel::new()))
}

/// Unlike other readers it may wait for the interpreter, in which its source runs.
struct Passed {
    schema: SchemaRef,
    /// None once the interpreter has ended.
    source: Option<Source>,
}

impl BatchReader for Passed {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn next(&mut self, _look: &mut dyn FnMut() -> PyResult<()>) -> Result<Option<RecordBatch>> {
        let Some(source) = &mut self.source else { return Ok(None) };
        Python::attach(|py| source.next(py)).map_err(Failure::Exception)
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        let source = self.source.take();
        // A generator runs its last blocks now.
        let _dropped = Python::try_attach(|_| drop(source));
    }
}
