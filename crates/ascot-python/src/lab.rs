//! Studies of the lab: they are run or read, and their results are tables.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ascot_io::{Direction, Unpoisoned};
use ascot_lab::disk::{self, DiskObserver, DiskRequest};
use ascot_lab::net::{self, NetObserver, NetRequest, Peers, Token};
use ascot_lab::observe::{self, Planned, Stop};
use ascot_lab::sorts::parameters as sort_parameters;
use ascot_lab::sorts::{SortCell, SortGrid, SortResult, SortStudy, Source, StreamChoice, StreamRange};
use ascot_lab::streams::cell::direction_word;
use ascot_lab::streams::grid::{CACHES, DIRECTIONS};
use ascot_lab::streams::parameters::{self, Row};
use ascot_lab::streams::{Backend, Cache, Cell, Measured, StreamStudy};
use ascot_lab::{LabError, sorts, streams};
use ascot_sort::plan::budget::default_memory;
use ascot_sort::{Cancel, Observer, Progress};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::jobs::json;
use crate::request::{Bytes, choice, count_of, memory, unknown, volumes_of_view};
use crate::running::run;
use crate::tables::{Columns, Table};

/// The least and the most seconds of a measurement of disks.
const DISK_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=1e6;
/// The most seconds for which peers are waited for.
const MAX_WAIT_SECONDS: f64 = 86_400.0;

/// Where a study measures, and what it may use.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct StudyOptions {
    /// The directory of the results.
    out: PathBuf,
    /// The directory of the files that are measured.
    work: PathBuf,
    /// `cold`, `warm`, or none for both.
    cache: Option<String>,
    /// A file of parameters, instead of the lists.
    params: Option<PathBuf>,
    memory: Option<Bytes>,
}

impl StudyOptions {
    fn caches(&self) -> Result<&'static [Cache]> {
        let words: [(_, &[Cache]); 2] = [("cold", &[Cache::Cold]), ("warm", &[Cache::Warm])];
        self.cache.as_deref().map_or(Ok(&CACHES), |word| choice("cache", word, &words))
    }

    fn memory_bytes(&self) -> Result<u64> {
        Ok(memory(self.memory.as_ref())?.unwrap_or_else(default_memory))
    }
}

/// The parameters of a study of streams, in the language of the command.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct StreamsOptions {
    elements: String,
    streams: String,
    exponents: String,
    backends: Vec<String>,
    /// `read`, `write`, or none for both.
    direction: Option<String>,
    loops: String,
}

impl StreamsOptions {
    fn cells(&self, study: &StudyOptions) -> Result<Vec<Cell>> {
        let words: [(_, &[Direction]); 2] = [("read", &[Direction::Read]), ("write", &[Direction::Write])];
        let named = |word| choice("direction", word, &words);
        let directions = self.direction.as_deref().map_or(Ok(&DIRECTIONS[..]), named)?;
        let caches = study.caches()?;
        let rows = match &study.params {
            Some(path) => parameters::read(path)?,
            None => self.rows()?,
        };
        Ok(rows.iter().flat_map(|row| row.cells(directions, caches)).collect())
    }

    fn rows(&self) -> Result<Vec<Row>> {
        let elements = parsed("elements", &self.elements, parameters::element_list)?;
        let streams = parsed("streams", &self.streams, parameters::stream_list)?;
        let loops = parsed("loops", &self.loops, parameters::loops)?;
        let row = |word: &String| {
            let backend: Backend = word
                .parse()
                .map_err(|()| unknown("backend", word, "plain, buffered, sized, mapped, direct"))?;
            let exponents = |text: &str| parameters::exponents_from(text, backend);
            let exponents = parsed("exponents", &self.exponents, exponents)?;
            Ok(Row { backend, elements: elements.clone(), streams: streams.clone(), exponents, loops })
        };
        self.backends.iter().map(row).collect()
    }
}

/// An argument, parsed in the language of the command.
fn parsed<T>(argument: &str, text: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T> {
    parse(text).map_err(|problem| Failure::Request(format!("{argument}='{text}' {problem}")))
}

/// Runs or continues a study of streams, and returns its results.
#[pyfunction]
pub fn lab_streams(
    py: Python<'_>,
    study: StudyOptions,
    options: StreamsOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Table, Vec<String>)> {
    let cells = options.cells(&study)?;
    let memory_bytes = study.memory_bytes()?;
    let StudyOptions { out, work, .. } = study;
    let study = StreamStudy { cells, out, work, memory_bytes };
    let finished = run(py, progress.as_ref(), |observer, cancel| {
        study.run(&Screen::new(observer), &Stop(cancel.flag()))
    })?;
    Ok((table_of_streams(&finished.result.results)?, finished.warnings))
}

/// The results of a study of streams, read from its directory or from the file of its table.
#[pyfunction]
pub fn read_lab_streams(py: Python<'_>, path: PathBuf) -> PyResult<Table> {
    let read = || results_in(&path, streams::results::FILE_NAME, streams::results::read);
    table_of_streams(&py.detach(read)?).map_err(PyErr::from)
}

fn table_of_streams(results: &[Measured]) -> Result<Table> {
    Columns::new(results)
        .text("direction", |one| direction_word(one.cell.direction))
        .text("backend", |one| one.cell.backend.word())
        .count("elements", |one| one.cell.elements)
        .count("streams", |one| u64::from(one.cell.streams))
        .count_or_null("block_bytes", |one| one.cell.block_bytes())
        .text("cache", |one| one.cell.cache.word())
        .count("loops", |one| u64::from(one.cell.loops))
        .number("mean_ms", Measured::mean_ms)
        .number("min_ms", |one| one.range_ms().0)
        .number("max_ms", |one| one.range_ms().1)
        .number("deviation_ms", Measured::deviation_ms)
        .count("formula_ios", |one| one.cell.predicted_ios())
        .count("counted_ios", |one| one.counted_ios)
        .text("place", |one| one.place.as_str())
        .table()
}

/// The parameters of a study of merge sorts, in the language of the command.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct SortsOptions {
    elements: String,
    memory_elements: String,
    fan_in: String,
    read_stream: String,
    write_stream: String,
    read_exponents: String,
    write_exponents: String,
    /// Whether all combinations of the exponents are measured, instead of equal ones.
    all_exponents: bool,
    descending: bool,
    loops: String,
    seed: u64,
}

impl SortsOptions {
    fn cells(&self, study: &StudyOptions) -> Result<Vec<SortCell>> {
        let caches = study.caches()?;
        let grids = match &study.params {
            Some(path) => sort_parameters::read(path, caches)?,
            None => vec![self.grid(caches)?],
        };
        Ok(grids.iter().flat_map(SortGrid::cells).collect())
    }

    fn grid(&self, caches: &[Cache]) -> Result<SortGrid> {
        let elements = parsed("elements", &self.elements, parameters::element_list)?;
        Ok(SortGrid {
            sources: elements.into_iter().map(|elements| (elements, Source::Random(self.seed))).collect(),
            memory: parsed("memory_elements", &self.memory_elements, parameters::element_list)?,
            fan_in: parsed("fan_in", &self.fan_in, sort_parameters::fan_in_list)?,
            streams: self.streams()?,
            descending: self.descending,
            caches: caches.to_vec(),
            loops: parsed("loops", &self.loops, sort_parameters::loops)?,
            output: None,
        })
    }

    fn streams(&self) -> Result<Vec<(StreamChoice, StreamChoice)>> {
        let read = parsed("read_stream", &self.read_stream, parameters::backend)?;
        let write = parsed("write_stream", &self.write_stream, parameters::backend)?;
        let range = |text: &str, backend: Backend| {
            let exponents = parsed("exponents", text, |text| parameters::exponents(text, backend))?;
            Ok::<_, Failure>(StreamRange::new(backend, exponents))
        };
        let reads = range(&self.read_exponents, read)?;
        let writes = range(&self.write_exponents, write)?;
        let pairs =
            if self.all_exponents { sort_parameters::all_blocks } else { sort_parameters::same_blocks };
        Ok(pairs(reads, writes))
    }
}

/// Runs or continues a study of merge sorts, and returns its results.
#[pyfunction]
pub fn lab_sorts(
    py: Python<'_>,
    study: StudyOptions,
    options: SortsOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Table, Vec<String>)> {
    let cells = options.cells(&study)?;
    let memory_bytes = study.memory_bytes()?;
    let StudyOptions { out, work, .. } = study;
    let volumes = volumes_of_view(&work)?.unwrap_or_default();
    let study = SortStudy { cells, out, work, memory_bytes, volumes, faults: None };
    let finished = run(py, progress.as_ref(), |observer, cancel| {
        study.run(&Screen::new(observer), &Stop(cancel.flag()))
    })?;
    Ok((table_of_sorts(&finished.result.results)?, finished.warnings))
}

/// The results of a study of merge sorts, read from its directory or from the file of its table.
#[pyfunction]
pub fn read_lab_sorts(py: Python<'_>, path: PathBuf) -> PyResult<Table> {
    let read = || results_in(&path, sorts::results::FILE_NAME, sorts::results::read);
    table_of_sorts(&py.detach(read)?).map_err(PyErr::from)
}

fn table_of_sorts(results: &[SortResult]) -> Result<Table> {
    Columns::new(results)
        .count("elements", |one| one.cell.elements)
        .count("memory_elements", |one| one.cell.memory_elements)
        .count("fan_in", |one| u64::from(one.cell.fan_in))
        .text("read_stream", |one| one.cell.read.to_string())
        .text("write_stream", |one| one.cell.write.to_string())
        .text("order", |one| one.cell.order_word())
        .text("cache", |one| one.cell.cache.word())
        .count("loops", |one| u64::from(one.cell.loops))
        .number("mean_ms", SortResult::mean_ms)
        .number("min_ms", |one| one.range_ms().0)
        .number("max_ms", |one| one.range_ms().1)
        .number("deviation_ms", SortResult::deviation_ms)
        .count("counted_reads", |one| one.reads)
        .count("formula_reads", |one| one.cell.predicted_ios().reads)
        .count("counted_writes", |one| one.writes)
        .count("formula_writes", |one| one.cell.predicted_ios().writes)
        .count("merge_passes", |one| u64::from(one.cell.model().merge_passes()))
        .number_or_null("in_memory_ms", |one| one.in_memory_ms)
        .number("planned_ms", |one| one.planned.mean_ms)
        .text("planned_method", |one| one.planned.method.as_str())
        .text("place", |one| one.place.as_str())
        .table()
}

/// The results in a directory, or in the table of such a directory.
fn results_in<R>(
    path: &Path,
    name: &'static str,
    read: impl Fn(&Path) -> Result<Vec<R>, LabError>,
) -> Result<Vec<R>> {
    let is_table = path.file_name().is_some_and(|own| own == name);
    let directory = if is_table { path.parent().unwrap_or(Path::new("")) } else { path };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let table = directory.join(name);
    if let Err(source) = std::fs::metadata(&table) {
        return Err(LabError::File { doing: "read", path: table, source }.into());
    }
    Ok(read(directory)?)
}

/// A request to measure disks.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct DiskOptions {
    inputs: Vec<PathBuf>,
    outputs: Vec<PathBuf>,
    size: Option<Bytes>,
    request: Option<Bytes>,
    memory: Option<Bytes>,
    rounds: u32,
    seconds: Option<f64>,
}

/// Measures disks as a sort uses them, and returns the result as JSON.
#[pyfunction]
pub fn lab_disk(py: Python<'_>, options: DiskOptions, progress: Option<Py<PyAny>>) -> PyResult<String> {
    if options.rounds == 0 || options.rounds > 1000 {
        return Err(
            Failure::Request(format!("rounds={} is not possible\n  give 1 to 1000", options.rounds)).into()
        );
    }
    if let Some(seconds) = options.seconds.filter(|seconds| !DISK_SECONDS.contains(seconds)) {
        return Err(Failure::Request(format!("seconds={seconds} is not a number from 0.1 to 1000000")).into());
    }
    let request = DiskRequest {
        bytes: count_of("size", options.size.as_ref())?.unwrap_or(disk::DEFAULT_BYTES),
        request_bytes: count_of("request", options.request.as_ref())?.unwrap_or(disk::DEFAULT_REQUEST_BYTES),
        memory_bytes: memory(options.memory.as_ref())?,
        inputs: options.inputs,
        outputs: options.outputs,
        rounds: options.rounds,
        seconds: options.seconds,
    };
    let finished = run(py, progress.as_ref(), |observer, cancel: &Cancel| {
        disk::run(&request, &cancel.flag(), &Screen::new(observer))
    })?;
    Ok(json(&finished.result)?)
}

/// A request to measure a network.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct NetOptions {
    /// The peers on this machine, if there is no participant.
    peers: u32,
    participant: Option<ParticipantOptions>,
    size: Option<Bytes>,
    block: Option<Bytes>,
    connections: Vec<u32>,
    sweep: bool,
    memory: Option<Bytes>,
    wait_seconds: Option<f64>,
}

/// The place of this process among the peers of several machines.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ParticipantOptions {
    listen: String,
    /// All peers, in the same order everywhere.
    list: Vec<String>,
    token: Vec<u8>,
}

impl std::fmt::Debug for ParticipantOptions {
    /// Without the token, which is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParticipantOptions")
            .field("listen", &self.listen)
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

impl ParticipantOptions {
    fn peers(self) -> Result<Peers> {
        let ParticipantOptions { listen, list, token } = self;
        let token = Token::new(&token).map_err(|error| Failure::Request(error.to_string()))?;
        Ok(Peers::Listed { listen, name: None, list, token })
    }
}

/// Shuffles all to all between peers of this machine, or takes part in a shuffle of several, and returns the result as
/// JSON.
#[pyfunction]
pub fn lab_net(py: Python<'_>, options: NetOptions, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let wait_seconds = options.wait_seconds.unwrap_or(net::DEFAULT_WAIT_SECONDS);
    if !(0.0..=MAX_WAIT_SECONDS).contains(&wait_seconds) {
        return Err(Failure::Request(format!("wait={wait_seconds} is not a number from 0 to 86400")).into());
    }
    let request = NetRequest {
        peers: options.participant.map_or(Ok(Peers::Local(options.peers)), ParticipantOptions::peers)?,
        bytes: count_of("size", options.size.as_ref())?.unwrap_or(net::DEFAULT_BYTES),
        block_bytes: count_of("block", options.block.as_ref())?.unwrap_or(net::DEFAULT_BLOCK_BYTES),
        connections: options.connections,
        sweep: options.sweep,
        memory_bytes: memory(options.memory.as_ref())?,
        wait_seconds,
    };
    let finished = run(py, progress.as_ref(), |observer, cancel: &Cancel| {
        net::run(&request, &cancel.flag(), &Screen::new(observer))
    })?;
    Ok(json(&finished.result)?)
}

/// Passes the progress of a study on as that of a job.
struct Screen<'o> {
    observer: &'o dyn Observer,
    rounds: Mutex<u32>,
}

impl<'o> Screen<'o> {
    fn new(observer: &'o dyn Observer) -> Self {
        Screen { observer, rounds: Mutex::default() }
    }

    fn tell(&self, detail: String, fraction: Option<f64>, seconds_left: Option<f64>) {
        let phase = "measuring".into();
        self.observer.progress(&Progress { phase, detail, fraction, seconds_left, ..Progress::default() });
    }
}

impl observe::Observer for Screen<'_> {
    fn planned(&self, planned: &Planned) {
        self.tell(String::new(), Some(0.0), Some(planned.predicted_s));
    }

    fn progress(&self, progress: &observe::Progress) {
        let share = progress.finished as f64 / progress.total.max(1) as f64;
        self.tell(progress.what.clone(), Some(share), Some(progress.left_s));
    }

    fn notice(&self, text: &str) {
        self.observer.warning(text);
    }
}

impl DiskObserver for Screen<'_> {
    fn progress(&self, pass: Option<&disk::Pass>, done: f64) {
        let name = match pass {
            None => "writing the inputs",
            Some(pass) => pass.phase.map_or("both phases", disk::Phase::name),
        };
        self.tell(name.into(), Some(done), None);
    }
}

impl NetObserver for Screen<'_> {
    fn round(&self, number: u32) {
        *self.rounds.lock().unpoisoned() = number;
        self.tell(format!("round {number}"), None, None);
    }
}
