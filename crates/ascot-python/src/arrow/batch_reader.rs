//! The streams of batches that this crate makes.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pyo3::prelude::*;

use crate::errors::Result;

/// Makes the batches of a stream.
pub trait BatchReader: Send {
    /// The schema of the batches.
    fn schema(&self) -> SchemaRef;

    /// The next batch; none at the end. It never waits for the interpreter, unless its source is an object of Python.
    /// While it waits for other threads it calls `look` about every 50 ms, and ends with its error.
    ///
    /// # Errors
    /// The stream has failed, and has ended.
    fn next(&mut self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<Option<RecordBatch>>;
}
