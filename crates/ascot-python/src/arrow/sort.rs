//! Jobs on batches, and sorts whose result is batches.

use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use ascot_columns::{BatchLimits, Encoder};
use ascot_io::ProgramStreams;
use ascot_model::report::Report;
use ascot_sort::plan::budget::{MIN_MEMORY_BYTES, default_memory};
use ascot_sort::request::SplitBy;
use ascot_sort::{Cancel, Input, Keys, Output, RunOptions, SortError, SortRequest, Writes};
use pyo3::prelude::*;

use super::columns::{ArrowOptions, FirstRow, decoder_of, first_record};
use super::descriptors::Descriptors;
use super::export::BatchStream;
use super::import::Source;
use super::job::{Blocks, JobHandle, Shared, Until};
use super::records::{Encoding, RECORDS_BYTES, record_sources};
use super::stream::{Decoding, JobStream};
use crate::errors::{Failure, Result};
use crate::jobs::{Told, told_of};
use crate::request::{JobOptions, Records, split_by};
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
    /// The part of it for records, bytes.
    records: u64,
    limits: BatchLimits,
}

impl Shares {
    /// Divides the cap of `request`, which keeps the rest.
    fn divide(request: &mut SortRequest) -> Result<Shares> {
        let cap = request.memory_bytes.unwrap_or_else(default_memory);
        let batch = (cap / BATCH_SHARE).min(BATCH_BYTES);
        let passed = request.inputs.iter().filter(|input| matches!(input, Input::Program)).count().max(1);
        let records = RECORDS_BYTES * passed as u64;
        let beside = records + BATCHES_HELD * batch;
        let job = cap.saturating_sub(beside);
        if job < MIN_MEMORY_BYTES {
            return Err(SortError::TooLittleMemory {
                given_bytes: cap,
                min_bytes: cap_for(MIN_MEMORY_BYTES + records),
            }
            .into());
        }
        request.memory_bytes = Some(job);
        let bytes = usize::try_from(batch).unwrap_or(usize::MAX);
        Ok(Shares { beside, records, limits: BatchLimits { bytes, ..BatchLimits::default() } })
    }
}

/// The cap of which a job and the records on their way get `with_records` bytes.
fn cap_for(with_records: u64) -> u64 {
    let by_share = with_records * BATCH_SHARE / (BATCH_SHARE - BATCHES_HELD) + 1;
    by_share.min(with_records + BATCHES_HELD * BATCH_BYTES)
}

/// The job of a stream of batches: its report, once it has ended.
#[pyclass(frozen, module = "ascot._native")]
pub struct StreamJob {
    shared: Arc<Shared>,
    /// The process whose threads run it.
    process: u32,
}

#[pymethods]
impl StreamJob {
    /// The report as JSON and as text, and warnings; none before the end of the job. None in a forked process, either:
    /// there a lock may be held by a thread that does not exist.
    fn report(&self) -> PyResult<Option<Told>> {
        if self.process != process::id() {
            return Ok(None);
        }
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
    let source = Source::new(source)?;
    let encoder = Encoder::new(Arc::clone(source.schema()), &arrow.sort_columns()).map_err(Failure::from)?;
    let records = Records { layout: encoder.layout(), keys: Keys::Ranges(encoder.keys()), header: false };
    let request =
        options.request_with(vec![Input::Program], Output::Program, records, Writes::SpillsAndOutput);
    let mut request = request?;
    let shares = Shares::divide(&mut request)?;
    let decoder = encoder.decoder(shares.limits);
    let mut job = Begun::new(request, &shares, vec![(source, Encoding::Rows(encoder))], Goal::Sort)?;
    job.attend(py, progress, Until::FirstBlock)?;
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
    let mut job = Begun::new(request, &shares, Vec::new(), Goal::Sort)?;
    job.attend(py, progress, Until::FirstBlock)?;
    // The first block holds the header. There is none if there was nothing to sort.
    let first = job.handle.of_first_block(|bytes| first_record(layout, bytes).to_vec());
    if header {
        job.skip = first.len();
    }
    let first = FirstRow { bytes: &first, header, keys: &keys };
    let decoder = decoder_of(arrow, layout, first, shares.limits)?;
    Ok(job.into_stream(Decoding::File(decoder), inputs))
}

/// Runs a job some of whose inputs are batches, which become records of the layout: a split if `by` is given, a sort to
/// the view `view` if that is, else the sort or merge of the options. Returns the report.
#[pyfunction]
#[pyo3(signature = (options, arrow, sources, progress, by=None, view=None))]
pub fn run_on_batches(
    py: Python<'_>,
    options: JobOptions,
    arrow: ArrowOptions,
    sources: Vec<Bound<'_, PyAny>>,
    progress: Option<Py<PyAny>>,
    by: Option<&str>,
    view: Option<PathBuf>,
) -> PyResult<Told> {
    let records = options.records.records()?;
    let layout = records.layout;
    let encoded = sources.iter().map(|source| {
        let source = Source::new(source)?;
        let encoding = Encoding::of_file(layout, arrow.fields(layout)?, source.schema())?;
        Ok((source, encoding))
    });
    let sources = encoded.collect::<PyResult<Vec<_>>>()?;
    let goal = match (by, view) {
        (Some(by), _) => Goal::Split(split_by(by)?),
        (None, Some(dir)) => Goal::View(dir),
        (None, None) => Goal::Sort,
    };
    let mut request = options.request_with(options.inputs(), options.output()?, records, goal.writes())?;
    let shares = Shares::divide(&mut request)?;
    let mut job = Begun::new(request, &shares, sources, goal)?;
    job.attend(py, progress.as_ref(), Until::End)?;
    let result = job.handle.report()?;
    told_of(Finished { result, warnings: job.shared.take_warnings() })
}

/// The result of a job.
enum Goal {
    Sort,
    Split(SplitBy),
    View(PathBuf),
}

impl Goal {
    /// The files of the job.
    fn writes(&self) -> Writes<'_> {
        match self {
            Goal::Sort => Writes::SpillsAndOutput,
            Goal::Split(_) => Writes::SpillsAndParts,
            Goal::View(dir) => Writes::View(dir),
        }
    }
}

/// A job that has begun.
struct Begun {
    shared: Arc<Shared>,
    handle: JobHandle,
    /// Those whose batches the calling thread passes; none for those that the job reads itself.
    sources: Vec<Option<Source>>,
    /// Bytes of a header at the start of the output.
    skip: usize,
}

impl Begun {
    fn new(
        request: SortRequest,
        shares: &Shares,
        sources: Vec<(Source, Encoding)>,
        goal: Goal,
    ) -> PyResult<Begun> {
        let shared = Arc::new(Shared::new(sources.len()));
        let (sources, made) = record_sources(&shared, sources);
        let sink =
            matches!(request.output, Output::Program).then(|| Box::new(Blocks(Arc::clone(&shared))) as _);
        let options = RunOptions { program: ProgramStreams::new(made, sink), ..RunOptions::default() };
        let Shares { beside, records, .. } = *shares;
        let work = move |shared: &Shared| {
            let job_bytes = request.memory_bytes.unwrap_or_else(default_memory);
            let report = run(&request, &goal, &options, shared, shared.cancel())
                .map_err(|error| error.within(job_bytes + beside, |bytes| cap_for(bytes + records)))?;
            Ok(Some(Report { memory_bytes: report.memory_bytes + beside, ..report }))
        };
        let handle = JobHandle::begin(&shared, work)?;
        Ok(Begun { shared, handle, sources, skip: 0 })
    }

    fn attend(&mut self, py: Python<'_>, progress: Option<&Py<PyAny>>, until: Until) -> PyResult<()> {
        let attended = self.handle.attend(py, &mut self.sources, progress, until);
        if attended.is_err() {
            // A thread of the job may need the interpreter to release the stream of another library.
            py.detach(|| self.handle.stop());
        }
        attended?;
        Ok(self.handle.check()?)
    }

    fn into_stream(self, decoding: Decoding, inputs: Descriptors) -> (BatchStream, StreamJob) {
        let job = StreamJob { shared: Arc::clone(&self.shared), process: process::id() };
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
        Goal::Split(by) => ascot_sort::split(request, *by, options, shared, cancel)?,
        Goal::View(dir) => ascot_sort::make_view(request, dir, options, shared, cancel)?,
    })
}
