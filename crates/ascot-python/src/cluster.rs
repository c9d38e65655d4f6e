//! The native half of a sort on a cluster (`ascot_sort::shuffle`) for the actors of `ascot.cluster`. Every call
//! releases the interpreter while it moves bytes, except that a batch is copied to memory of Python.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use ascot_io::Unpoisoned;
use ascot_record::framing::{CsvFraming, StartSearch};
use ascot_record::layout::Layout;
use ascot_sort::shuffle::batch::{batch_bytes, write_batch};
use ascot_sort::shuffle::chunk_reader::BLOCK_BYTES;
use ascot_sort::shuffle::connect::SharedFiles;
use ascot_sort::shuffle::{self, BatchNumber, Bounds, ChunkSpan, JobId, PartitionPieces, Shuffle, bounds};
use ascot_sort::{Input, Output, Removal, SortError, SortRequest, Writes};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes};

use crate::errors::{Failure, Result};
use crate::jobs::{Told, told_of};
use crate::request::JobOptions;
use crate::running::run;

/// A chunk, as the package describes it.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct SpanOptions {
    path: PathBuf,
    start: u64,
    end: u64,
    records_at: u64,
    size: u64,
    position: u64,
}

impl SpanOptions {
    /// The chunk.
    pub fn span(self) -> ChunkSpan {
        let SpanOptions { path, start, end, records_at, size, position } = self;
        ChunkSpan { path, start, end, records_at, size, position }
    }
}

/// The records and the request of a job.
fn shuffle_of(options: &JobOptions) -> Result<(Shuffle, SortRequest)> {
    let request = options.request(Writes::Nothing)?;
    Ok((Shuffle::new(&request)?, request))
}

/// What is known of inputs that are as a cluster needs them: for each the size, the time of the last change, ns, and
/// where its records begin; the header of parts; and the keys with the numbers and types of their columns, if they are
/// columns.
type CheckedInputs = (Vec<(u64, i128, u64)>, Py<PyBytes>, Option<Vec<String>>);

/// Checks inputs.
#[pyfunction]
pub fn cluster_inputs(py: Python<'_>, options: JobOptions) -> PyResult<CheckedInputs> {
    let finished = run(py, None, |_, _| -> Result<_> {
        let request = options.request(Writes::Nothing)?;
        Ok(shuffle::check_inputs(&request)?)
    })?;
    let shuffle::CheckedInputs { files, header, columns } = finished.result;
    let files = files.iter().map(|file| (file.size, file.modified_ns, file.records_at)).collect();
    Ok((files, PyBytes::new(py, &header).unbind(), columns))
}

/// Sort positions of about `count` records of a chunk, as bytes.
#[pyfunction]
pub fn sample_chunk(
    py: Python<'_>,
    options: JobOptions,
    span: SpanOptions,
    count: u32,
) -> PyResult<Py<PyBytes>> {
    let span = span.span();
    let finished = run(py, None, |_, cancel| -> Result<_> {
        let (shuffle, _) = shuffle_of(&options)?;
        Ok(bounds::encode(&shuffle::sample_chunk(&shuffle, &span, count, cancel)?))
    })?;
    Ok(PyBytes::new(py, &finished.result).unbind())
}

/// Bounds that divide the sampled positions into about `partitions` equal shares, as bytes.
#[pyfunction]
pub fn choose_bounds(
    py: Python<'_>,
    options: JobOptions,
    samples: Vec<PyBackedBytes>,
    partitions: usize,
) -> PyResult<Py<PyBytes>> {
    let finished = run(py, None, |_, _| -> Result<_> {
        let (shuffle, _) = shuffle_of(&options)?;
        let mut positions = Vec::new();
        for sample in &samples {
            positions.extend(bounds::decode(sample)?);
        }
        Ok(bounds::encode(&bounds::choose(&shuffle, positions, partitions)))
    })?;
    Ok(PyBytes::new(py, &finished.result).unbind())
}

/// Bounds of `partitions` for keys whose first bytes are spread evenly, as bytes.
#[pyfunction]
pub fn uniform_bounds(py: Python<'_>, options: JobOptions, partitions: usize) -> PyResult<Py<PyBytes>> {
    let bytes = py.detach(|| -> Result<_> {
        let (shuffle, _) = shuffle_of(&options)?;
        Ok(bounds::encode(&bounds::uniform(&shuffle, partitions)))
    })?;
    Ok(PyBytes::new(py, &bytes).unbind())
}

/// The number of partitions that these bounds make.
#[pyfunction]
pub fn count_partitions(bounds: &[u8]) -> PyResult<usize> {
    Ok(Bounds::decode(bounds).map_err(Failure::from)?.partitions())
}

/// Bytes of memory of a mapper of chunks of `chunk_bytes`, read in blocks of `read_bytes`.
#[pyfunction]
#[pyo3(signature = (chunk_bytes, partitions, read_bytes=BLOCK_BYTES))]
pub fn mapper_bytes(chunk_bytes: usize, partitions: usize, read_bytes: usize) -> usize {
    shuffle::chunk_mapper::memory_bytes(chunk_bytes, partitions, read_bytes)
}

/// Maps chunks, and makes their batches.
#[pyclass(frozen)]
pub struct ChunkMapper {
    mapper: Mutex<shuffle::ChunkMapper>,
}

#[pymethods]
impl ChunkMapper {
    #[new]
    #[pyo3(signature = (options, bounds, job, chunk_bytes, batch_bytes, read_bytes=BLOCK_BYTES))]
    fn new(
        py: Python<'_>,
        options: JobOptions,
        bounds: PyBackedBytes,
        job: JobId,
        chunk_bytes: usize,
        batch_bytes: usize,
        read_bytes: usize,
    ) -> PyResult<ChunkMapper> {
        let mapper = py.detach(|| -> Result<_> {
            let (shuffle, _) = shuffle_of(&options)?;
            let bounds = Bounds::decode(&bounds)?;
            Ok(shuffle::ChunkMapper::new(shuffle, bounds, job, chunk_bytes, batch_bytes, read_bytes)?)
        })?;
        Ok(ChunkMapper { mapper: Mutex::new(mapper) })
    }

    /// Reads a chunk and groups its records. Returns their number, bytes and sum, and the seconds of reading and of
    /// grouping.
    fn map(&self, py: Python<'_>, span: SpanOptions) -> PyResult<(u64, u64, String, f64, f64)> {
        let span = span.span();
        let finished = run(py, None, |_, cancel| self.mapper().map(&span, cancel))?;
        let shuffle::MappedChunk { sum, reading, grouping } = finished.result;
        Ok((sum.count, sum.bytes, sum.to_string(), reading.as_secs_f64(), grouping.as_secs_f64()))
    }

    /// The number of batches of the chunk for some partitions.
    fn batches(&self, partitions: Vec<u32>) -> u32 {
        self.mapper().batches(&partitions)
    }

    /// Writes batch `number` of `count` of the chunk for a destination with these partitions to the start of `room`, if
    /// it has room for the batch. Returns the length of the batch.
    #[expect(unsafe_code, reason = "Python lends memory as an address")]
    fn batch(
        &self,
        room: &Bound<'_, PyByteArray>,
        chunk: u32,
        destination: u32,
        partitions: Vec<u32>,
        number: u32,
        count: u32,
    ) -> usize {
        let last = number + 1 == count;
        let number = BatchNumber { chunk, destination, number, last };
        self.mapper().batch(&partitions, number, count, |len, write| {
            // SAFETY: no code of Python runs before the borrow ends, so that nothing else reads, writes or moves the
            // bytes.
            if let Some(out) = unsafe { room.as_bytes_mut() }.get_mut(..len) {
                write(out);
            }
            len
        })
    }
}

impl ChunkMapper {
    pub(crate) fn mapper(&self) -> MutexGuard<'_, shuffle::ChunkMapper> {
        self.mapper.lock().unpoisoned()
    }
}

/// The bytes of a buffer that nobody changes while it is borrowed, as those in an object store.
#[expect(unsafe_code, reason = "Python lends memory as an address")]
fn bytes_of(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the bytes do not lie side by side"));
    }
    // SAFETY: the memory is that of the buffer as long as the buffer is held, all of it side by side, and nobody
    // changes it.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}

/// A destination: the files of its partitions.
#[pyclass(frozen)]
pub struct PartitionFiles {
    pub(crate) files: SharedFiles,
    control: Arc<shuffle::WaitingControl>,
}

#[pymethods]
impl PartitionFiles {
    #[new]
    fn new(py: Python<'_>, dir: PathBuf, job: JobId, destination: u32) -> PyResult<PartitionFiles> {
        let files =
            py.detach(|| shuffle::PartitionFiles::open(&dir, job, destination)).map_err(Failure::from)?;
        let control = files.control();
        Ok(PartitionFiles { files: Arc::new(Mutex::new(Some(files))), control })
    }

    /// Sets what the disk gets of a partition in one run, in the mean, and what waits for the disk at most, bytes.
    fn limit_waiting(&self, write_bytes: u64, max_bytes: u64) {
        self.control.limit(write_bytes, max_bytes);
    }

    /// Appends a batch, which nobody changes meanwhile; returns whether it is new.
    fn append(&self, py: Python<'_>, batch: PyBuffer<u8>) -> PyResult<bool> {
        let batch = bytes_of(&batch)?;
        py.detach(|| self.with(|files| files.append(batch)))
    }

    /// The chunks whose batches are all there.
    fn complete_chunks(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        py.detach(|| self.with(|files| Ok(files.complete_chunks())))
    }

    /// Bytes in the files.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.with(|files| Ok(files.bytes())))
    }

    /// Times that the disk turned to another file.
    #[getter]
    fn runs(&self) -> u64 {
        self.control.runs()
    }

    /// The seconds in which appends and syncs waited for the device.
    #[getter]
    fn waited(&self) -> f64 {
        self.control.waited().as_secs_f64()
    }

    /// Makes all batches durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with(|files| files.sync()))
    }

    /// Removes the file of a partition.
    fn remove_partition(&self, py: Python<'_>, partition: u32) -> PyResult<()> {
        py.detach(|| self.with(|files| files.remove_partition(partition)))
    }

    /// Removes all files.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let files = self.files.lock().unpoisoned().take();
            files.map_or(Ok(()), shuffle::PartitionFiles::remove)
        })
        .map_err(Failure::from)?;
        Ok(())
    }
}

impl PartitionFiles {
    fn with<T>(
        &self,
        work: impl FnOnce(&mut shuffle::PartitionFiles) -> Result<T, SortError>,
    ) -> PyResult<T> {
        let mut files = self.files.lock().unpoisoned();
        let files = files.as_mut().ok_or_else(|| Failure::Request("the files were removed".into()))?;
        Ok(work(files).map_err(Failure::from)?)
    }
}

/// A search for the start of a row of CSV from the middle of a file.
#[pyclass(frozen)]
pub struct RowSearch {
    search: Mutex<StartSearch>,
}

#[pymethods]
impl RowSearch {
    #[new]
    fn new(layout: &str, quote: u8) -> PyResult<RowSearch> {
        let layout = Layout::parse(layout).map_err(|error| Failure::Request(error.to_string()))?;
        let Layout::Csv { separator, .. } = layout else {
            return Err(Failure::Request(format!("{layout} has no rows")).into());
        };
        Ok(RowSearch { search: Mutex::new(StartSearch::new(CsvFraming { separator, quote })) })
    }

    /// Searches the next part. Returns the offset of the start of a row, in bytes from where the search began, if
    /// quotes show one.
    fn go_on(&self, part: PyBackedBytes) -> Option<u64> {
        self.search.lock().unpoisoned().go_on(&part)
    }

    /// The offset of the first likely start.
    fn likely(&self) -> Option<u64> {
        self.search.lock().unpoisoned().likely()
    }
}

/// The records of a chunk: whole records of about `read_bytes` at a time, each with the offset of the first in the
/// file. Records have at most `longest` bytes.
#[pyfunction]
#[pyo3(signature = (options, span, longest, read_bytes=BLOCK_BYTES))]
pub fn read_chunk(
    py: Python<'_>,
    options: JobOptions,
    span: SpanOptions,
    longest: usize,
    read_bytes: usize,
) -> PyResult<Vec<(Py<PyBytes>, u64)>> {
    let span = span.span();
    let finished = run(py, None, |_, cancel| -> Result<_> {
        let (shuffle, _) = shuffle_of(&options)?;
        let mut blocks = Vec::new();
        shuffle::read_chunk(&shuffle, &span, read_bytes, longest, cancel, |bytes, offset| {
            blocks.push((bytes.to_vec(), offset));
        })?;
        Ok(blocks)
    })?;
    // Each block is freed as soon as it is copied.
    let blocks = finished.result.into_iter();
    Ok(blocks.map(|(bytes, offset)| (PyBytes::new(py, &bytes).unbind(), offset)).collect())
}

/// A batch of a chunk with these pieces, each a partition and bytes of its records.
#[pyfunction]
pub fn make_batch(
    py: Python<'_>,
    job: JobId,
    chunk: u32,
    destination: u32,
    number: u32,
    last: bool,
    pieces: Vec<(u32, PyBackedBytes)>,
) -> PyResult<Py<PyBytes>> {
    let number = BatchNumber { chunk, destination, number, last };
    let lengths: Vec<(u32, usize)> =
        pieces.iter().map(|(partition, bytes)| (*partition, bytes.len())).collect();
    let batch = PyBytes::new_with(py, batch_bytes(&lengths), |out| {
        write_batch(job, number, &lengths, out, |at, own| own.copy_from_slice(&pieces[at].1));
        Ok(())
    })?;
    Ok(batch.unbind())
}

/// Number, bytes and sum of whole records of the layout of the options.
#[pyfunction]
pub fn sum_records(
    py: Python<'_>,
    options: JobOptions,
    records: PyBackedBytes,
) -> PyResult<(u64, u64, String)> {
    let sum = py.detach(|| -> Result<_> {
        let request = options.request(Writes::Nothing)?;
        Ok(shuffle::sum_records(&request, &records)?)
    })?;
    Ok((sum.count, sum.bytes, sum.to_string()))
}

/// Removes what killed sorts left in some directories: spills, and outputs that are not complete. Those of running
/// sorts stay.
#[pyfunction]
pub fn remove_leftovers(py: Python<'_>, dirs: Vec<PathBuf>) -> PyResult<()> {
    py.detach(|| ascot_sort::clean(&dirs, Removal::Everything)).map_err(Failure::from)?;
    Ok(())
}

/// A destination, and the number of chunks of which it has all batches.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct FilledDestination {
    directory: PathBuf,
    job: JobId,
    number: u32,
    chunks: u32,
}

/// Sorts a partition of a destination to the output of the options, a file or a view; returns the report. If the
/// records of the options have a header, it is `header`.
#[pyfunction]
pub fn sort_partition(
    py: Python<'_>,
    options: JobOptions,
    destination: FilledDestination,
    partition: u32,
    as_view: bool,
    header: Vec<u8>,
) -> PyResult<Told> {
    let FilledDestination { directory: dir, job, number: destination, chunks } = destination;
    let finished = run(py, None, |observer, cancel| -> Result<_> {
        let pieces = PartitionPieces::open(&dir, job, destination, partition, chunks)?;
        let pieces = pieces.with_header(header);
        let inputs = vec![Input::Program];
        let output = options.output()?;
        let records = options.records.records()?;
        let request = options.request_with(inputs, output.clone(), records, Writes::SpillsAndOutput)?;
        Ok(match output {
            Output::Path(view) if as_view => {
                shuffle::view_partition(&request, pieces, &view, observer, cancel)?
            }
            _ => shuffle::sort_partition(&request, pieces, observer, cancel)?,
        })
    })?;
    told_of(finished)
}
