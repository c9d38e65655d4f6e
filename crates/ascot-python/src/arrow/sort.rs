//! Sorts of batches, and sorts whose result is batches.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::DataType;
use ascot_columns::files::{
    CsvColumns, CsvName, FileColumns, FileDecoder, FixedField, FixedFields, TextType,
};
use ascot_columns::{BatchLimits, Encoder, SortColumn};
use ascot_io::ProgramStreams;
use ascot_model::report::Report;
use ascot_record::framing::{CsvFraming, Framing};
use ascot_record::keys::{CsvColumn, CsvType};
use ascot_record::layout::{Endian, Layout};
use ascot_sort::plan::budget::{MIN_MEMORY_BYTES, default_memory};
use ascot_sort::{Cancel, Input, Keys, Output, RunOptions, SortError, SortRequest, Writes};
use pyo3::prelude::*;

use super::export::BatchStream;
use super::import::Source;
use super::job::{Blocks, JobHandle, Shared, Until};
use super::records::{Batches, Encoding, RECORDS_BYTES, RecordSource};
use super::stream::{Decoding, JobStream};
use crate::errors::Failure;
use crate::jobs::{Told, told_of};
use crate::request::{JobOptions, Records, unknown};
use crate::running::Finished;

/// Maximum bytes of a batch, and the inverse of its maximum share of the memory.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_SHARE: u64 = 32;
/// Batches for which memory is set aside: one that grows to twice its size, and one that is complete.
const BATCHES_HELD: u64 = 3;

/// The Arrow side of a job.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct ArrowOptions {
    /// The key columns: name, whether descending, whether nulls come first.
    keys: Vec<(String, bool, bool)>,
    /// The fields of records of fixed length: name, offset and type.
    fields: Option<Vec<(String, usize, String)>>,
    /// Whether text is read as bytes.
    binary: bool,
}

impl ArrowOptions {
    fn sort_columns(&self) -> Vec<SortColumn> {
        let column = |(name, descending, nulls_first): &(String, bool, bool)| SortColumn {
            name: name.clone(),
            descending: *descending,
            nulls_first: *nulls_first,
        };
        self.keys.iter().map(column).collect()
    }

    /// The fields of records of `layout`, if they are named.
    fn fields(&self, layout: Layout) -> Result<Option<FixedFields>, Failure> {
        let (Some(fields), Layout::Fixed { len }) = (&self.fields, layout) else { return Ok(None) };
        let field = |(name, offset, text): &(String, usize, String)| {
            let (data_type, endian) = field_type(text)?;
            Ok(FixedField { name: name.clone(), offset: *offset, data_type, endian })
        };
        let fields = fields.iter().map(field).collect::<Result<_, Failure>>()?;
        Ok(Some(FixedFields::new(len, fields)?))
    }

    fn text(&self) -> TextType {
        if self.binary { TextType::Binary } else { TextType::Utf8 }
    }

    /// The columns of records of a file that is no CSV.
    pub fn columns(&self, layout: Layout) -> Result<FileColumns, Failure> {
        Ok(match (self.fields(layout)?, layout) {
            (Some(fields), _) => FileColumns::Fields(fields),
            (None, Layout::Prefixed { .. }) => FileColumns::One { layout, text: TextType::Binary },
            (None, _) => FileColumns::One { layout, text: self.text() },
        })
    }
}

/// The type of a field: `u8` to `u64`, `i8` to `i64`, `f32`, `f64`, with `-be` for big endian, or `bytes:N`.
fn field_type(text: &str) -> Result<(DataType, Endian), Failure> {
    if let Some(width) = text.strip_prefix("bytes:").and_then(|width| width.parse().ok()) {
        return Ok((DataType::FixedSizeBinary(width), Endian::Little));
    }
    let (name, endian) = match text.strip_suffix("-be") {
        Some(name) => (name, Endian::Big),
        None => (text.strip_suffix("-le").unwrap_or(text), Endian::Little),
    };
    let data_type = match name {
        "u8" => DataType::UInt8,
        "u16" => DataType::UInt16,
        "u32" => DataType::UInt32,
        "u64" => DataType::UInt64,
        "i8" => DataType::Int8,
        "i16" => DataType::Int16,
        "i32" => DataType::Int32,
        "i64" => DataType::Int64,
        "f32" => DataType::Float32,
        "f64" => DataType::Float64,
        _ => {
            return Err(unknown(
                "the type of a field",
                text,
                "u8, ... u64, i8, ... i64, f32, f64, -be, bytes:N",
            ));
        }
    };
    Ok((data_type, endian))
}

/// Memory of a job and of the batches beside it.
struct Shares {
    /// Memory for the records and batches on their way, bytes.
    beside: u64,
    limits: BatchLimits,
}

impl Shares {
    /// Divides the cap of `request`, which keeps the rest.
    fn divide(request: &mut SortRequest) -> Result<Shares, Failure> {
        let cap = request.memory_bytes.unwrap_or_else(default_memory);
        let batch = (cap / BATCH_SHARE).min(BATCH_BYTES);
        let beside = RECORDS_BYTES + BATCHES_HELD * batch;
        let job = cap.saturating_sub(beside);
        if job < MIN_MEMORY_BYTES {
            let min_bytes =
                (MIN_MEMORY_BYTES + RECORDS_BYTES) * BATCH_SHARE / (BATCH_SHARE - BATCHES_HELD) + 1;
            return Err(SortError::TooLittleMemory { given_bytes: cap, min_bytes }.into());
        }
        request.memory_bytes = Some(job);
        let bytes = usize::try_from(batch).unwrap_or(usize::MAX);
        Ok(Shares { beside, limits: BatchLimits { bytes, ..BatchLimits::default() } })
    }
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
#[pyfunction]
pub fn sort_to_batches(
    py: Python<'_>,
    options: JobOptions,
    arrow: ArrowOptions,
    source: Option<&Bound<'_, PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(BatchStream, StreamJob)> {
    match source {
        Some(source) => batches_to_batches(py, &options, &arrow, source, progress.as_ref()),
        None => files_to_batches(py, &options, &arrow, progress.as_ref()),
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
    let job = Begun::new(request, &shares, Some((&mut source, Encoding::Rows(encoder))), Goal::Sort)?;
    job.attend(py, &mut source, progress, Until::FirstBlock)?;
    Ok(job.into_stream(Decoding::Rows(decoder)))
}

fn files_to_batches(
    py: Python<'_>,
    options: &JobOptions,
    arrow: &ArrowOptions,
    progress: Option<&Py<PyAny>>,
) -> PyResult<(BatchStream, StreamJob)> {
    let records = options.records.records()?;
    let (layout, header) = (records.layout, records.header);
    let names = number_columns(&records.keys);
    let mut request =
        options.request_with(options.paths(), Output::Program, records, Writes::SpillsAndOutput)?;
    let shares = Shares::divide(&mut request)?;
    let columns = match layout {
        Layout::Csv { .. } => None,
        _ => Some(arrow.columns(layout)?),
    };
    let mut job = Begun::new(request, &shares, None, Goal::Sort)?;
    job.handle.attend(py, None, progress, Until::FirstBlock)?;
    job.handle.check()?;
    let decoder = match (columns, layout) {
        (Some(columns), _) => FileDecoder::new(columns, shares.limits),
        (None, Layout::Csv { separator, quote }) => {
            let framing = CsvFraming { separator, quote };
            // The first block holds the header. There is none if the job has failed or had nothing to sort.
            let first = |bytes: &[u8]| framing.end(bytes, 0).map(|end| bytes[..end].to_vec());
            let head = job.handle.of_first_block(|bytes| first(bytes).unwrap_or_else(|| bytes.to_vec()));
            if header {
                job.skip = head.len();
            }
            let columns =
                CsvColumns::new(framing, &head, header, arrow.text(), &names, &options.records.nulls);
            columns.and_then(|columns| FileDecoder::new(FileColumns::Csv(columns), shares.limits))
        }
        (None, _) => return Err(Failure::Sort(SortError::Internal("a layout without columns")).into()),
    };
    Ok(job.into_stream(Decoding::File(decoder.map_err(Failure::from)?)))
}

/// The columns of CSV that a key declares to be numbers.
fn number_columns(keys: &Keys) -> Vec<CsvName> {
    let Keys::Columns(columns) = keys else { return Vec::new() };
    let numbers = columns.iter().filter(|key| key.kind == Some(CsvType::Number));
    numbers
        .map(|key| match &key.column {
            CsvColumn::Name(name) => CsvName::Name(name.clone()),
            CsvColumn::Number(number) => CsvName::Number(*number),
        })
        .collect()
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
    let encoding = Encoding::of_file(records.layout, arrow.fields(records.layout)?, source.schema())?;
    let writes = view.as_deref().map_or(Writes::SpillsAndOutput, Writes::View);
    let mut request = options.request_with(vec![Input::Program], options.output()?, records, writes)?;
    let shares = Shares::divide(&mut request)?;
    let goal = view.map_or(Goal::Sort, Goal::View);
    let job = Begun::new(request, &shares, Some((&mut source, encoding)), goal)?;
    job.attend(py, &mut source, progress.as_ref(), Until::End)?;
    let result = job.handle.report()?;
    told_of(Finished { result, warnings: job.shared.take_warnings() })
}

/// What a job makes of the sorted records.
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
            let report = run(&request, &goal, &options, shared, shared.cancel())?;
            Ok(Report { memory_bytes: report.memory_bytes + beside, ..report })
        };
        let handle = JobHandle::begin(&shared, work)?;
        Ok(Begun { shared, handle, passes, skip: 0 })
    }

    fn attend(
        &self,
        py: Python<'_>,
        source: &mut Source,
        progress: Option<&Py<PyAny>>,
        until: Until,
    ) -> PyResult<()> {
        self.handle.attend(py, self.passes.then_some(source), progress, until)?;
        Ok(self.handle.check()?)
    }

    fn into_stream(self, decoding: Decoding) -> (BatchStream, StreamJob) {
        let job = StreamJob { shared: Arc::clone(&self.shared) };
        let stream = JobStream::new(self.handle, decoding, self.skip);
        (BatchStream::new(Box::new(stream), self.shared.cancel()), job)
    }
}

fn run(
    request: &SortRequest,
    goal: &Goal,
    options: &RunOptions,
    shared: &Shared,
    cancel: &Cancel,
) -> Result<Report, Failure> {
    Ok(match goal {
        Goal::Sort => ascot_sort::sort(request, options, shared, cancel)?,
        Goal::View(dir) => ascot_sort::make_view(request, dir, options, shared, cancel)?,
    })
}
