//! Sorts of batches, and sorts whose result is batches.

use std::path::PathBuf;
use std::sync::Arc;

use ascot_columns::{BatchLimits, Encoder};
use ascot_io::ProgramStreams;
use ascot_model::report::Report;
use ascot_record::layout::Layout;
use ascot_sort::plan::budget::{MIN_MEMORY_BYTES, default_memory};
use ascot_sort::{Cancel, Input, Keys, Output, RunOptions, SortError, SortRequest, Writes};
use pyo3::prelude::*;

use super::columns::{ArrowOptions, FirstRow, decoder_of, first_record};
use super::descriptors::Descriptors;
use super::export::BatchStream;
use super::import::Source;
use super::job::{Blocks, JobHandle, Shared, Until};
use super::records::{Batches, Encoding, RECORDS_BYTES, RecordSource};
use super::stream::{Decoding, JobStream};
use crate::errors::{Failure, Result};
use crate::jobs::{Told, told_of};
use crate::request::{JobOptions, Records};
use crate::running::Finished;

/// Maximum bytes of a batch, and the inverse of its maximum share of the memory.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_SHARE: u64 = 32;
/// Batches for which memory is set aside: one that grows to twice its size, and one that is complete.
const BATCHES_HELD: u64 = 3;

/// Memory of a job and of the batches beside it.
struct Shares {
    /// Memory for the records and batches on their way, bytes.
    beside: u64,
    limits: BatchLimits,
}

impl Shares {
    /// Divides the cap of `request`, which keeps the rest.
    fn divide(request: &mut SortRequest) -> Result<Shares> {
        let cap = request.memory_bytes.unwrap_or_else(default_memory);
        let batch = (cap / BATCH_SHARE).min(BATCH_BYTES);
        let beside = RECORDS_BYTES + BATCHES_HELD * batch;
        let job = cap.saturating_sub(beside);
        if job < MIN_MEMORY_BYTES {
            return Err(SortError::TooLittleMemory {
                given_bytes: cap,
                min_bytes: cap_for(MIN_MEMORY_BYTES),
            }
            .into());
        }
        request.memory_bytes = Some(job);
        let bytes = usize::try_from(batch).unwrap_or(usize::MAX);
        Ok(Shares { beside, limits: BatchLimits { bytes, ..BatchLimits::default() } })
    }
}

/// The cap of which a job gets `job_bytes`.
fn cap_for(job_bytes: u64) -> u64 {
    let with_records = job_bytes + RECORDS_BYTES;
    let by_share = with_records * BATCH_SHARE / (BATCH_SHARE - BATCHES_HELD) + 1;
    by_share.min(with_records + BATCHES_HELD * BATCH_BYTES)
}

/// The job of a stream of batches: its report, once it has ended.
#[pyclass(frozen, module = "ascot._native")]
pub struct StreamJob {
    shared: Arc<Shared>,
}

#[pymethods]
impl StreamJob {
    /// The report as JSON and as text, and warnings; none before the end of the job.
    fn report(&self) -> PyResult<Option<Told>> {
        let Some(report) = self.shared.report() else { return Ok(None) };
        told_of(Finished { result: report, warnings: self.shared.take_warnings() }).map(Some)
    }
}

/// Sorts files or batches; returns the sorted batches and their job. It returns when the sorted records begin to come.
/// Until the stream has ended, `inputs` stay open.
#[pyfunction]
pub fn sort_to_batches(
    py: Python<'_>,
    inputs: Descriptors,
    options: JobOptions,
    arrow: ArrowOptions,
    source: Option<&Bound<'_, PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(BatchStream, StreamJob)> {
    match source {
        Some(source) => batches_to_batches(py, &options, &arrow, source, progress.as_ref()),
        None => files_to_batches(py, inputs, &options, &arrow, progress.as_ref()),
    }
}

fn batches_to_batches(
    py: Python<'_>,
    options: &JobOptions,
    arrow: &ArrowOptions,
    source: &Bound<'_, PyAny>,
    progress: Option<&Py<PyAny>>,
) -> PyResult<(BatchStream, StreamJob)> {
    let mut source = Source::new(source)?;
    let encoder = Encoder::new(Arc::clone(source.schema()), &arrow.sort_columns()).map_err(Failure::from)?;
    let records = Records { layout: encoder.layout(), keys: Keys::Ranges(encoder.keys()), header: false };
    let request =
        options.request_with(vec![Input::Program], Output::Program, records, Writes::SpillsAndOutput);
    let mut request = request?;
    let shares = Shares::divide(&mut request)?;
    let decoder = encoder.decoder(shares.limits);
    let mut job = Begun::new(request, &shares, Some((&mut source, Encoding::Rows(encoder))), Goal::Sort)?;
    job.attend(py, Some(&mut source), progress, Until::FirstBlock)?;
    Ok(job.into_stream(Decoding::Rows(Box::new(decoder)), Descriptors::default()))
}

fn files_to_batches(
    py: Python<'_>,
    inputs: Descriptors,
    options: &JobOptions,
    arrow: &ArrowOptions,
    progress: Option<&Py<PyAny>>,
) -> PyResult<(BatchStream, StreamJob)> {
    let records = options.records.records()?;
    let layout = records.layout;
    let header = records.header;
    let keys = records.keys.clone();
    let mut request =
        options.request_with(options.inputs(), Output::Program, records, Writes::SpillsAndOutput)?;
    let shares = Shares::divide(&mut request)?;
    // Wrong fields are refused before the job begins.
    arrow.fields(layout)?;
    let mut job = Begun::new(request, &shares, None, Goal::Sort)?;
    job.attend(py, None, progress, Until::FirstBlock)?;
    // The first block holds the header. There is none if there was nothing to sort.
    let first = job.handle.of_first_block(|bytes| first_record(layout, bytes).to_vec());
    if header {
        job.skip = first.len();
    }
    let first = FirstRow { bytes: &first, header, keys: &keys };
    let decoder = decoder_of(arrow, layout, first, shares.limits)?;
    Ok(job.into_stream(Decoding::File(decoder), inputs))
}

/// Sorts batches to a file, to parts or to the view `view`, as records of the layout; returns the report.
#[pyfunction]
pub fn sort_source(
    py: Python<'_>,
    options: JobOptions,
    arrow: ArrowOptions,
    source: &Bound<'_, PyAny>,
    view: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Told> {
    let mut source = Source::new(source)?;
    let records = options.records.records()?;
    if records.header && matches!(records.layout, Layout::Lines { .. }) {
        return Err(Failure::Request(
            "Arrow batches have no header line to keep\n  leave out header=True, or pass the sorted batches to \
             ascot.flow, which writes the name of their column first"
                .into(),
        )
        .into());
    }
    let encoding = Encoding::of_file(records.layout, arrow.fields(records.layout)?, source.schema())?;
    let writes = view.as_deref().map_or(Writes::SpillsAndOutput, Writes::View);
    let mut request = options.request_with(vec![Input::Program], options.output()?, records, writes)?;
    let shares = Shares::divide(&mut request)?;
    let goal = view.map_or(Goal::Sort, Goal::View);
    let mut job = Begun::new(request, &shares, Some((&mut source, encoding)), goal)?;
    job.attend(py, Some(&mut source), progress.as_ref(), Until::End)?;
    let result = job.handle.report()?;
    told_of(Finished { result, warnings: job.shared.take_warnings() })
}

/// The result of a job.
enum Goal {
    Sort,
    View(PathBuf),
}

/// A job that has begun.
struct Begun {
    shared: Arc<Shared>,
    handle: JobHandle,
    /// The calling thread passes the batches.
    passes: bool,
    /// Bytes of a header at the start of the output.
    skip: usize,
}

impl Begun {
    fn new(
        request: SortRequest,
        shares: &Shares,
        source: Option<(&mut Source, Encoding)>,
        goal: Goal,
    ) -> PyResult<Begun> {
        let shared = Arc::new(Shared::default());
        let mut passes = false;
        let source = source.map(|(source, encoding)| {
            let batches = source.take_stream().map_or(Batches::Passed, Batches::Stream);
            passes = matches!(batches, Batches::Passed);
            Box::new(RecordSource::new(&shared, batches, encoding)) as _
        });
        let sink =
            matches!(request.output, Output::Program).then(|| Box::new(Blocks(Arc::clone(&shared))) as _);
        let options = RunOptions { program: ProgramStreams::new(source, sink), ..RunOptions::default() };
        let beside = shares.beside;
        let work = move |shared: &Shared| {
            let job_bytes = request.memory_bytes.unwrap_or_else(default_memory);
            let report = run(&request, &goal, &options, shared, shared.cancel())
                .map_err(|error| error.within(job_bytes + beside, cap_for))?;
            Ok(Report { memory_bytes: report.memory_bytes + beside, ..report })
        };
        let handle = JobHandle::begin(&shared, work)?;
        Ok(Begun { shared, handle, passes, skip: 0 })
    }

    fn attend(
        &mut self,
        py: Python<'_>,
        source: Option<&mut Source>,
        progress: Option<&Py<PyAny>>,
        until: Until,
    ) -> PyResult<()> {
        let attended = self.handle.attend(py, source.filter(|_| self.passes), progress, until);
        if attended.is_err() {
            // A thread of the job may need the interpreter to release the stream of another library.
            py.detach(|| self.handle.stop());
        }
        attended?;
        Ok(self.handle.check()?)
    }

    fn into_stream(self, decoding: Decoding, inputs: Descriptors) -> (BatchStream, StreamJob) {
        let job = StreamJob { shared: Arc::clone(&self.shared) };
        let stream = JobStream::new(self.handle, decoding, self.skip, inputs);
        (BatchStream::new(Box::new(stream), self.shared.cancel()), job)
    }
}

fn run(
    request: &SortRequest,
    goal: &Goal,
    options: &RunOptions,
    shared: &Shared,
    cancel: &Cancel,
) -> Result<Report> {
    Ok(match goal {
        Goal::Sort => ascot_sort::sort(request, options, shared, cancel)?,
        Goal::View(dir) => ascot_sort::make_view(request, dir, options, shared, cancel)?,
    })
}
