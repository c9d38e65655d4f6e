//! Functions of the program in the middle of a flow.
//!
//! ```text
//!   files ─▶ engine ─▶ queues ─▶ FlowInput: bytes become batches ─╮
//!                                                                  ├─ the function, in the calling thread
//!   files ◀─ engine ◀─ queues ◀─ FlowOutput: batches become bytes ─╯
//! ```
//!
//! The engine runs on a thread of the job, which never needs the interpreter. The calling thread runs the function, so
//! that its exceptions are raised unchanged, and signals reach it.
//!
//! Invariants: if the function fails, the job is cancelled and has removed its files when [`Flow::stop`] returns; the
//! memory of queues, batches on their way and the engine is at most the cap.

use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ascot_columns::BatchLimits;
use ascot_io::Unpoisoned;
use ascot_model::report::Report;
use ascot_record::layout::Layout;
use ascot_sort::plan::budget::{MIN_MEMORY_BYTES, default_memory};
use ascot_sort::request::InputChecks;
use ascot_sort::{
    FlowFunction, FlowRequest, FunctionStreams, Input, Keys, Output, RunOptions, SortError, SortRequest,
    run_flow,
};
use pyo3::prelude::*;

use super::capsule::type_name;
use super::columns::ArrowOptions;
use super::export::BatchStream;
use super::flow_engine::{Engine, QUEUE_BYTES};
use super::flow_input::{FlowInput, InputKind};
use super::flow_output::FlowOutput;
use super::import::{Exported, no_batches};
use super::job::{JobHandle, Shared, Until};
use super::records::RECORDS_BYTES;
use crate::errors::{Failure, Result};
use crate::jobs::{Told, told_of};
use crate::request::{Bytes, RecordOptions, Records, SourceFile, at_least, memory, volumes_of_flow};
use crate::running::{Finished, PAUSE, report_progress};

/// Minimum and maximum bytes of a batch, and the inverse of the maximum share that those of all inputs have in memory.
const BATCH_BYTES_MIN: u64 = 64 << 10;
const BATCH_BYTES_MAX: u64 = 1 << 20;
const BATCH_SHARE: u64 = 32;
/// Batches of an input for which memory is set aside: one that grows to twice its size, and one that is complete.
const BATCHES_HELD: u64 = 3;

/// A file of a flow.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
struct FileOptions {
    path: SourceFile,
    records: RecordOptions,
    arrow: ArrowOptions,
    /// Whether a value that is not of its column's type is an error.
    strict: bool,
}

/// A flow whose function runs in the interpreter.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct FlowOptions {
    /// The name of the function.
    name: String,
    inputs: Vec<FileOptions>,
    outputs: Vec<FileOptions>,
    /// Whether the inputs are sorted files, of which the function gets one stream.
    merged: bool,
    alpha: Option<f64>,
    memory: Option<Bytes>,
    threads: Option<usize>,
    any_format: bool,
    volume: Option<PathBuf>,
}

impl FlowOptions {
    /// The request, whose memory is the whole cap.
    fn request(&self, records: &[Records], streams: FunctionStreams) -> Result<FlowRequest> {
        let inputs: Vec<Input> = self.inputs.iter().map(|file| file.path.input()).collect();
        let path_of = |file: &FileOptions| Output::Path(file.path.path().to_path_buf());
        let outputs: Vec<Output> = self.outputs.iter().map(path_of).collect();
        let (layout, keys, header) = match records.first() {
            Some(records) if self.merged => (records.layout, records.keys.clone(), records.header),
            _ => (Layout::Fixed { len: 1 }, Keys::Ranges(Vec::new()), false),
        };
        let volumes = volumes_of_flow(inputs.clone(), outputs.first().cloned(), self.volume.as_deref())?;
        let sort = SortRequest {
            header,
            checks: InputChecks {
                any_format: self.any_format || !self.merged,
                strict: self.merged && self.inputs.iter().any(|file| file.strict),
            },
            merge_only: true,
            memory_bytes: Some(memory(self.memory.as_ref())?.unwrap_or_else(default_memory)),
            compression: ascot_io::Compression::None,
            threads: at_least("threads", self.threads, 1)?,
            volumes,
            ..SortRequest::new(inputs, Output::Stdout, layout, keys)
        };
        let alpha = self.alpha.map(checked_alpha).transpose()?;
        let function = FlowFunction::InProcess { name: self.name.clone(), streams };
        Ok(FlowRequest {
            sort,
            merged: self.merged,
            outputs,
            function,
            alpha,
            idle_timeout: None,
            allow_unread: true,
        })
    }
}

impl FlowOptions {
    /// Refuses inputs that are not text where lines or CSV are expected. A merge does so itself.
    fn refuse_other_formats(&self, kinds: &[Records]) -> Result<()> {
        if self.any_format || self.merged {
            return Ok(());
        }
        for (file, kind) in self.inputs.iter().zip(kinds) {
            // A pipe has nothing to look at.
            if file.path.path().is_file() {
                ascot_sort::read::open::refuse_other_format(&file.path.input(), kind.layout)?;
            }
        }
        Ok(())
    }
}

/// The share of reading that the engine begins with.
fn checked_alpha(alpha: f64) -> Result<f64> {
    if (0.01..=0.99).contains(&alpha) {
        return Ok(alpha);
    }
    Err(Failure::Request(format!("alpha={alpha} is not a number from 0.01 to 0.99\n  such as 0.5")))
}

/// Memory of the batches on their way, the limits of a batch, and the maximum bytes of a record.
type Beside = (u64, BatchLimits, usize);

/// Takes the memory of batches on their way from that of the request. A record may take the share of an input, or twice
/// the bytes of a batch if these are more.
fn divide(request: &mut FlowRequest, inputs: usize) -> Result<Beside> {
    let cap = request.sort.memory_bytes.unwrap_or_else(default_memory);
    let inputs = (inputs as u64).max(1);
    let share = (cap / BATCH_SHARE / inputs).max(BATCH_BYTES_MIN);
    let batch = share.min(BATCH_BYTES_MAX);
    let record = usize::try_from(share.max(2 * batch)).unwrap_or(usize::MAX);
    let beside = RECORDS_BYTES + inputs * (BATCHES_HELD * share + QUEUE_BYTES as u64);
    let engine = cap.saturating_sub(beside);
    if engine < MIN_MEMORY_BYTES {
        let min_bytes = cap_for(MIN_MEMORY_BYTES, inputs);
        return Err(SortError::TooLittleMemory { given_bytes: cap, min_bytes }.into());
    }
    request.sort.memory_bytes = Some(engine);
    let bytes = usize::try_from(batch).unwrap_or(usize::MAX);
    Ok((beside, BatchLimits { bytes, ..BatchLimits::default() }, record))
}

/// The cap of which the engine of a flow of `inputs` gets `engine_bytes`, or a little more.
fn cap_for(engine_bytes: u64, inputs: u64) -> u64 {
    let least = RECORDS_BYTES + inputs * (BATCHES_HELD * BATCH_BYTES_MIN + QUEUE_BYTES as u64);
    (engine_bytes + least) * BATCH_SHARE / (BATCH_SHARE - BATCHES_HELD) + 1
}

/// A flow that runs.
#[pyclass(frozen, module = "ascot._native")]
pub struct Flow {
    engine: Engine,
    handle: Mutex<Option<JobHandle>>,
    outputs: Mutex<Outputs>,
    progress: Option<Py<PyAny>>,
    looked: Mutex<Instant>,
    /// The process whose threads run it.
    process: u32,
}

struct Outputs {
    files: Vec<FlowOutput>,
    records: Vec<u8>,
}

/// Begins a flow: the flow, and the batches of its inputs.
#[pyfunction]
pub fn begin_flow(
    py: Python<'_>,
    options: FlowOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Flow, Vec<BatchStream>)> {
    let kinds = options.inputs.iter().map(|file| file.records.records()).collect::<Result<Vec<_>, _>>()?;
    // A merge makes one stream of all inputs.
    let inputs =
        if options.merged { &options.inputs[..options.inputs.len().min(1)] } else { &options.inputs[..] };
    let streams = FunctionStreams::new(inputs.len(), options.outputs.len()).map_err(Failure::from)?;
    let mut files = Vec::new();
    for (number, file) in options.outputs.iter().enumerate() {
        let Records { layout, header, .. } = file.records.records()?;
        let name = file.path.path().display().to_string();
        let fields = file.arrow.fields(layout)?;
        files.push(FlowOutput::new(number, name, layout, fields, header));
    }
    // Wrong fields are refused before the job begins.
    for (file, kind) in inputs.iter().zip(&kinds) {
        file.arrow.fields(kind.layout)?;
    }
    let mut request = py.detach(|| options.request(&kinds, streams.clone()))?;
    let (beside, limits, record_bytes_max) = divide(&mut request, inputs.len())?;
    py.detach(|| options.refuse_other_formats(&kinds))?;
    let shared = Arc::new(Shared::default());
    let count = inputs.len().max(1) as u64;
    let work = move |shared: &Shared| {
        let engine_bytes = request.sort.memory_bytes.unwrap_or_else(default_memory);
        let report = run_flow(&request, &RunOptions::default(), shared, shared.cancel())
            .map_err(|error| error.within(engine_bytes + beside, |bytes| cap_for(bytes, count)))?;
        Ok(Some(Report { memory_bytes: report.memory_bytes + beside, ..report }))
    };
    let handle = JobHandle::begin(&shared, work)?;
    let engine = Engine::new(streams, shared);
    let flow = Flow {
        engine: engine.clone(),
        handle: Mutex::new(Some(handle)),
        outputs: Mutex::new(Outputs { files, records: Vec::new() }),
        progress,
        looked: Mutex::new(Instant::now()),
        process: process::id(),
    };
    let mut batches = Vec::new();
    for (number, (file, kind)) in inputs.iter().zip(&kinds).enumerate() {
        let name = file.path.name();
        let kind = InputKind { records: kind, arrow: &file.arrow, limits, record_bytes_max };
        let opened = py.detach(|| {
            FlowInput::open(engine.clone(), number, &name, kind, &mut || Python::attach(|py| flow.look(py)))
        });
        let input = opened?;
        let closed = input.closed().clone();
        batches.push(BatchStream::new(Box::new(input), &closed));
    }
    Ok((flow, batches))
}

impl Flow {
    /// Runs the handlers of signals, and reports progress.
    fn look(&self, py: Python<'_>) -> PyResult<()> {
        *self.looked.lock().unpoisoned() = Instant::now();
        report_progress(py, self.engine.shared.take_progress(), self.progress.as_ref())
    }

    fn handle(&self) -> Option<JobHandle> {
        self.handle.lock().unpoisoned().take()
    }

    fn refuse_fork(&self) -> PyResult<()> {
        if self.process == process::id() {
            return Ok(());
        }
        let text = "this process was forked while the flow ran: only its parent goes on with it";
        Err(Failure::Request(text.into()).into())
    }
}

#[pymethods]
impl Flow {
    /// Appends the batches of `object` to output `number`.
    fn put(&self, py: Python<'_>, number: usize, object: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse_fork()?;
        let subject =
            || format!("what the function yields for output {number}, of type {}, has", type_name(object));
        let exported = Exported::new(object)?.ok_or_else(|| no_batches(&subject(), object))?;
        let put = |batch: &_| {
            // A thread that waited for the lock would hold the interpreter.
            let mut outputs = self
                .outputs
                .try_lock()
                .map_err(|_| Failure::Request("another thread writes to the flow at the same time".into()))?;
            let Outputs { files, records } = &mut *outputs;
            let file = files
                .get_mut(number)
                .ok_or_else(|| Failure::Request(format!("there is no output {number}")))?;
            file.put(batch, &self.engine, records, &mut || Python::attach(|py| self.look(py)))
        };
        let result = py.detach(|| match exported {
            Exported::Batch(batch) => put(&batch),
            Exported::Stream(mut stream) => {
                // A stream without batches has columns, too.
                let mut next = Some(RecordBatch::new_empty(SchemaRef::clone(stream.schema())));
                while let Some(batch) = next {
                    put(&batch)?;
                    next = stream.next()?;
                }
                Ok(())
            }
        });
        let Err(failure) = result else { return Ok(()) };
        // A stream of the flow's own tells its failure as a text.
        let Some(first) = self.engine.first.get() else { return Err(failure.into()) };
        let error = PyErr::from(first);
        if !matches!(failure, Failure::First(_)) {
            error.set_cause(py, Some(failure.into()));
        }
        Err(error)
    }

    /// Reports progress if it is time to.
    fn poll(&self, py: Python<'_>) -> PyResult<()> {
        if self.progress.is_none() || self.looked.lock().unpoisoned().elapsed() < PAUSE {
            return Ok(());
        }
        self.look(py)
    }

    /// The function has ended: waits until the outputs are complete, and returns the report.
    fn finish(&self, py: Python<'_>) -> PyResult<Told> {
        self.refuse_fork()?;
        // What the function was given before it caught a failure is not all of its inputs.
        if let Some(first) = self.engine.first.get() {
            let error = PyErr::from(first);
            self.stop(py);
            return Err(error);
        }
        self.engine.streams.end();
        let handle = self.handle().ok_or_else(|| Failure::Request("the flow has ended".into()))?;
        let attended = handle.attend(py, &mut [], self.progress.as_ref(), Until::End);
        let result = attended.and_then(|()| Ok(handle.report()?));
        py.detach(|| drop(handle));
        told_of(Finished { result: result?, warnings: self.engine.shared.take_warnings() })
    }

    /// The function has failed: cancels the job, which removes its files.
    fn stop(&self, py: Python<'_>) {
        let handle = self.handle();
        if self.process == process::id() {
            py.detach(|| drop(handle));
        } else {
            // Its threads do not exist in a forked process.
            std::mem::forget(handle);
        }
        self.engine.first.forget_exception();
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let handle = self.handle();
        if self.process != process::id() {
            std::mem::forget(handle);
        }
    }
}
