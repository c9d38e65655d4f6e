//! The native half of a shuffle that pulls (`ascot_sort::shuffle`) for the actors of `ascot.cluster`. Every call
//! releases the interpreter while it moves bytes.

use std::path::PathBuf;
use std::sync::Arc;

use ascot_sort::shuffle::{self, Bounds, Shuffle, SpillChunks};
use ascot_sort::{Input, Writes};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::cluster::SpanOptions;
use crate::errors::{Failure, Result};
use crate::jobs::{Told, told_of};
use crate::request::JobOptions;
use crate::running::run;

/// Sorts a chunk to the new view `view`; returns the report and the bytes of each partition. Records have at most
/// `longest` bytes.
#[pyfunction]
pub fn spill_chunk(
    py: Python<'_>,
    options: JobOptions,
    bounds: PyBackedBytes,
    span: SpanOptions,
    longest: usize,
    view: PathBuf,
) -> PyResult<(Told, Vec<u64>)> {
    let span = span.span();
    let mut sizes = Vec::new();
    let counted = &mut sizes;
    let finished = run(py, None, |observer, cancel| -> Result<_> {
        let records = options.records.records()?;
        let writes = Writes::View(&view);
        let request = options.request_with(vec![Input::Program], options.output()?, records, writes)?;
        let shuffle = Shuffle::new(&request)?;
        let bounds = Bounds::decode(&bounds)?;
        let job =
            SpillChunks { shuffle: &shuffle, request: &request, bounds: &bounds, longest, observer, cancel };
        let (report, sizes) = job.spill(&span, &view)?;
        *counted = sizes;
        Ok(report)
    })?;
    Ok((told_of(finished)?, sizes))
}

/// Stores the bytes of each partition beside the view of a chunk; returns the check of the chunk.
#[pyfunction]
pub fn seal_chunk(py: Python<'_>, view: PathBuf, sizes: Vec<u64>) -> PyResult<u32> {
    Ok(py.detach(|| shuffle::seal_chunk(&view, &sizes)).map_err(Failure::from)?)
}

/// Makes the new view `view` of chunks, each with its check, by reference, with a header if it is not empty. Returns
/// number, bytes and sum of its records.
#[pyfunction]
pub fn join_chunks(
    py: Python<'_>,
    chunks: Vec<(PathBuf, u32)>,
    view: PathBuf,
    header: Vec<u8>,
) -> PyResult<(u64, u64, String)> {
    let joined =
        run(py, None, |observer, cancel| shuffle::join_chunks(&chunks, &view, &header, observer, cancel))?;
    let sum = joined.result;
    Ok((sum.count, sum.bytes, sum.to_string()))
}

/// Consecutive chunks of this node, of which partitions are read.
#[pyclass(frozen)]
pub struct SpilledChunks {
    pub(crate) chunks: Arc<shuffle::SpilledChunks>,
}

#[pymethods]
impl SpilledChunks {
    #[new]
    fn new(
        py: Python<'_>,
        chunks: Vec<(PathBuf, u32)>,
        memory_bytes: u64,
        readers: usize,
    ) -> PyResult<SpilledChunks> {
        let open = || shuffle::SpilledChunks::open(&chunks, memory_bytes, readers);
        Ok(SpilledChunks { chunks: Arc::new(py.detach(open).map_err(Failure::from)?) })
    }

    /// At most `len` bytes of a partition from `offset` on, merged; fewer only at its end.
    fn read(&self, py: Python<'_>, partition: u32, offset: u64, len: usize) -> PyResult<Py<PyBytes>> {
        let bytes = py.detach(|| self.chunks.read(partition, offset, len)).map_err(Failure::from)?;
        Ok(PyBytes::new(py, &bytes).unbind())
    }
}
