//! Errors of the libraries as exceptions of the package.
//!
//! The classes are Python's (`ascot.errors`), because each has a built-in class as a second base. This file chooses
//! the class and its fields; `ascot.errors.make` builds the exception, and says flags of the command as arguments.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex};

use ascot_bowtie::simulate::SimulationError;
use ascot_columns::ColumnsError;
use ascot_device::ProbeError;
use ascot_index::IndexError;
use ascot_io::{IoError, PoolError, ThreadError, Unpoisoned};
use ascot_lab::LabError;
use ascot_lab::disk::DiskError;
use ascot_lab::net::NetError;
use ascot_sort::SortError;
use ascot_trace::TraceError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustix::io::Errno;
use thiserror::Error;

/// Why a call failed. The messages need no interpreter.
#[derive(Debug, Error)]
pub enum Failure {
    /// A job on records failed.
    #[error(transparent)]
    Sort(#[from] SortError),
    /// An indexed directory could not be written or read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A study of streams or merge sorts failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A measurement of disks failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A measurement of a network failed.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The arguments are wrong: the fault and a remedy.
    #[error("{0}")]
    Request(String),
    /// Batches could not become records, or records batches.
    #[error(transparent)]
    Columns(#[from] ColumnsError),
    /// A batch contradicts itself or its stream: the fault.
    #[error("{0}")]
    Batch(String),
    /// A row does not fit its file: the fault, and its number from 1.
    #[error("{text}")]
    Row { text: String, record: u64 },
    /// A source of batches failed: the error.
    #[error("{0}")]
    Source(String),
    /// An exception of the program, which is raised as it is.
    #[error("an exception of the program")]
    Exception(#[from] PyErr),
    /// A failure that is told more than once.
    #[error("{}", .0.text())]
    First(FirstFailure),
}

/// The first failure of some work. Every caller gets the same one, without the interpreter: a library that waits for
/// the work may hold that.
#[derive(Clone, Debug, Default)]
pub struct FirstFailure {
    told: Arc<Mutex<Told>>,
}

#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    /// The failure and its message.
    Failure(Box<Failure>, String),
    /// It becomes an exception just now, or is one; and its message.
    Exception(Option<PyErr>, String),
}

impl FirstFailure {
    /// Notes a failure unless there is one already; returns the first.
    pub fn note(&self, failure: Failure) -> Failure {
        let mut told = self.told.lock().unpoisoned();
        if matches!(*told, Told::Nothing) {
            let text = failure.to_string();
            *told = Told::Failure(Box::new(failure), text);
        }
        Failure::First(self.clone())
    }

    /// The failure, if there was one.
    pub fn get(&self) -> Option<Failure> {
        let is_nothing = matches!(*self.told.lock().unpoisoned(), Told::Nothing);
        (!is_nothing).then(|| Failure::First(self.clone()))
    }

    /// Forgets the exception, of which the text stays. Its traceback may hold what holds this failure, a circle that
    /// Python does not see.
    pub fn forget_exception(&self) {
        let mut told = self.told.lock().unpoisoned();
        let text = match &*told {
            Told::Exception(Some(_), text) => text.clone(),
            _ => return,
        };
        let forgotten = std::mem::replace(&mut *told, Told::Exception(None, text));
        // What the exception held ends now, and may ask for this failure.
        drop(told);
        drop(forgotten);
    }

    fn text(&self) -> String {
        match &*self.told.lock().unpoisoned() {
            Told::Failure(_, text) | Told::Exception(_, text) => text.clone(),
            Told::Nothing => String::new(),
        }
    }

    fn into_exception(self, py: Python<'_>) -> PyResult<PyErr> {
        let text = self.text();
        let mut told = self.told.lock().unpoisoned();
        let failure = match std::mem::replace(&mut *told, Told::Exception(None, text.clone())) {
            Told::Failure(failure, _) => failure,
            Told::Exception(Some(error), _) => {
                let raised = error.clone_ref(py);
                *told = Told::Exception(Some(error), text);
                return Ok(raised);
            }
            // Another thread makes the exception, or it is forgotten.
            Told::Exception(None, _) | Told::Nothing => {
                drop(told);
                return Failure::Source(text).into_exception(py);
            }
        };
        // To make it may need the interpreter more than once.
        drop(told);
        let error = failure.into_exception(py)?;
        *self.told.lock().unpoisoned() = Told::Exception(Some(error.clone_ref(py)), text);
        Ok(error)
    }
}

impl From<ThreadError> for Failure {
    fn from(error: ThreadError) -> Failure {
        Failure::Sort(error.into())
    }
}

impl From<SimulationError> for Failure {
    fn from(error: SimulationError) -> Failure {
        Failure::Request(error.to_string())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| failure.into_exception(py).unwrap_or_else(|error| error))
    }
}

/// The class of an exception, by its name in `ascot.errors`, and its fields.
struct Exception<'py> {
    class: &'static str,
    message: String,
    fields: Bound<'py, PyDict>,
    cause: Option<PyErr>,
}

impl<'py> Exception<'py> {
    fn new(py: Python<'py>, class: &'static str, message: impl ToString) -> Self {
        Exception { class, message: message.to_string(), fields: PyDict::new(py), cause: None }
    }

    fn with(self, name: &str, value: impl IntoPyObject<'py>) -> PyResult<Self> {
        self.fields.set_item(name, value)?;
        Ok(self)
    }

    /// The exception for a refused operation on a file.
    fn of_file(self, path: &Path, source: &io::Error) -> PyResult<Self> {
        let made = self.with("filename", path)?;
        match source.raw_os_error().or_else(|| number_of(source.kind())) {
            Some(number) => made.with("errno", number),
            // That of the class.
            None => Ok(made),
        }
    }

    fn build(self, py: Python<'py>) -> PyResult<PyErr> {
        let make = py.import("ascot.errors")?.getattr("make")?;
        let error = PyErr::from_value(make.call1((self.class, self.message, self.fields))?);
        error.set_cause(py, self.cause);
        Ok(error)
    }
}

/// What the functions of this crate return to each other.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// The failure of a job within `cap_bytes`, of which it had a part. `cap_for` is the cap that gives a job so much.
    pub fn within(self, cap_bytes: u64, cap_for: impl Fn(u64) -> u64) -> Self {
        match self {
            Failure::Sort(error) => Failure::Sort(error.within(cap_bytes, cap_for)),
            other => other,
        }
    }

    fn into_exception(self, py: Python<'_>) -> PyResult<PyErr> {
        match self {
            Failure::First(first) => first.into_exception(py),
            Failure::Sort(error) => of_sort(py, error)?.build(py),
            Failure::Index(error) => of_index(py, &error)?.build(py),
            Failure::Lab(error) => of_lab(py, error)?.build(py),
            Failure::Disk(error) => of_disk(py, &error)?.build(py),
            Failure::Net(error) => of_net(py, &error)?.build(py),
            Failure::Trace(error) => of_trace(py, &error)?.build(py),
            Failure::Request(text) => Exception::new(py, "InvalidRequest", text).build(py),
            Failure::Columns(error) => of_columns(py, &error)?.build(py),
            Failure::Batch(text) => Exception::new(py, "SchemaMismatch", text).build(py),
            Failure::Row { text, record } => {
                Exception::new(py, "SchemaMismatch", text).with("record", record)?.build(py)
            }
            Failure::Source(text) => Exception::new(py, "AscotError", text).build(py),
            Failure::Exception(error) => Ok(error),
        }
    }
}

fn of_columns<'py>(py: Python<'py>, error: &ColumnsError) -> PyResult<Exception<'py>> {
    let class = |class| Exception::new(py, class, error);
    match error {
        ColumnsError::NoKey | ColumnsError::NoOrder { .. } => Ok(class("InvalidRequest")),
        ColumnsError::Corrupt { .. } => Ok(class("InternalError")),
        ColumnsError::Arrow(_) => Ok(class("AscotError")),
        ColumnsError::NotUtf8 { record }
        | ColumnsError::LongRecord { record, .. }
        | ColumnsError::Value { record, .. } => class("SchemaMismatch").with("record", *record),
        _ => Ok(class("SchemaMismatch")),
    }
}

fn of_sort(py: Python<'_>, error: SortError) -> PyResult<Exception<'_>> {
    let class = |class| Exception::new(py, class, &error);
    match &error {
        SortError::Io(inner) => of_io(py, inner),
        SortError::Memory(inner) => of_pool(py, inner),
        SortError::NoSpace { needed, left, .. } => {
            let directory = left.first().map(|(path, _)| path.clone());
            let free = left.iter().map(|(_, free)| *free).sum::<u64>();
            class("NoSpace").with("needed", *needed)?.with("free", free)?.with("filename", directory)
        }
        SortError::TooLittleMemory { given_bytes, min_bytes } => {
            class("MemoryLimit").with("given", *given_bytes)?.with("needed", *min_bytes)
        }
        SortError::SmallControlGroup { min_bytes, group } => {
            class("MemoryLimit").with("given", group.left)?.with("needed", *min_bytes)
        }
        SortError::TooLong { min_bytes, .. } => class("MemoryLimit").with("needed", *min_bytes),
        SortError::NotSorted { input, record, offset } => {
            class("NotSorted").with("file", input)?.with("record", *record)?.with("offset", *offset)
        }
        SortError::CutShort { input, record, offset, .. }
        | SortError::KeyBeyond { input, record, offset, .. } => {
            let record = (*record > 0).then_some(*record);
            class("SchemaMismatch").with("file", input)?.with("record", record)?.with("offset", *offset)
        }
        SortError::InChunk { input, offset, .. } => {
            class("SchemaMismatch").with("file", input)?.with("offset", *offset)
        }
        SortError::Misfit { input, row, .. } => {
            class("SchemaMismatch").with("file", input)?.with("record", *row)
        }
        SortError::OtherFormat { input, .. } => class("SchemaMismatch").with("file", input),
        SortError::Key(_) => Ok(class("SchemaMismatch")),
        SortError::CannotResume { dir, kind: ErrorKind::NotFound, .. } => {
            class("FileMissing").with("filename", dir)
        }
        SortError::Request(_) | SortError::CannotResume { .. } => Ok(class("InvalidRequest")),
        SortError::Probe(inner) => of_probe(py, inner),
        SortError::View { path, kind: ErrorKind::InvalidData, .. } => class("Damaged").with("file", path),
        SortError::View { path, kind: ErrorKind::InvalidInput, .. } => {
            class("SchemaMismatch").with("file", path)
        }
        SortError::View { path, kind, .. } => class(class_of(*kind)).of_file(path, &io::Error::from(*kind)),
        SortError::Kept { dir, .. } => {
            let kept = class("Resumable").with("directory", dir)?;
            let SortError::Kept { error: inner, .. } = error else { return Ok(kept) };
            let cause = of_sort(py, *inner)?.build(py)?;
            Ok(Exception { cause: Some(cause), ..kept })
        }
        SortError::Checksum { .. } | SortError::Internal(_) | SortError::Thread(ThreadError::Died { .. }) => {
            Ok(class("InternalError"))
        }
        _ => Ok(class("AscotError")),
    }
}

fn of_probe<'py>(py: Python<'py>, error: &ProbeError) -> PyResult<Exception<'py>> {
    let class = |class| Exception::new(py, class, error);
    match error {
        ProbeError::Directory { path, source } | ProbeError::File { path, source, .. } => {
            let name =
                if source.kind() == ErrorKind::StorageFull { "NoSpace" } else { class_of(source.kind()) };
            class(name).of_file(path, source)
        }
        ProbeError::Memory { path, .. } => class("FileError").with("filename", path),
        ProbeError::NoDirect { path, source, .. } => class("FileError").of_file(path, source),
        ProbeError::NoSpace { path, needed, free } => {
            class("NoSpace").with("filename", path)?.with("needed", *needed)?.with("free", *free)
        }
        ProbeError::TooFewBytes { .. } => Ok(class("InvalidRequest")),
        ProbeError::Buffers(inner) => Ok(Exception { message: error.to_string(), ..of_pool(py, inner)? }),
        ProbeError::Thread(ThreadError::Died { .. }) => Ok(class("InternalError")),
        _ => Ok(class("AscotError")),
    }
}

fn of_pool<'py>(py: Python<'py>, error: &PoolError) -> PyResult<Exception<'py>> {
    let made = Exception::new(py, "MemoryLimit", error);
    match error {
        PoolError::OverBudget { asked, used, budget, .. } => {
            made.with("given", *budget)?.with("needed", used.saturating_add(*asked))
        }
        _ => Ok(made),
    }
}

fn of_io<'py>(py: Python<'py>, error: &IoError) -> PyResult<Exception<'py>> {
    let class = |class| Exception::new(py, class, error);
    let file = |name, path: &Path, source: &io::Error| class(name).of_file(path, source);
    match error {
        IoError::Os { path, source, .. } => file(class_of(source.kind()), path, source),
        IoError::NoDirectory { path, source, .. } => file("FileMissing", path, source),
        IoError::DiskFull { path, needed, free, .. } => {
            class("NoSpace").with("filename", path)?.with("needed", *needed)?.with("free", *free)
        }
        IoError::DeviceFull { path, .. } => class("NoSpace").with("filename", path),
        IoError::FileTooLong { path, source, .. }
        | IoError::BrokenPipe { path, source, .. }
        | IoError::TooManyOpen { path, source } => file("FileError", path, source),
        IoError::Truncated { path, offset, .. }
        | IoError::Corrupt { path, offset, .. }
        | IoError::BadIndex { path, offset, .. } => {
            class("Damaged").with("file", path)?.with("offset", *offset)
        }
        IoError::Memory { source, .. } => {
            Ok(Exception { message: error.to_string(), ..of_pool(py, source)? })
        }
        IoError::Replaced { path } | IoError::Misuse { path, .. } => {
            class("FileError").with("filename", path)
        }
        _ => Ok(class("AscotError")),
    }
}

fn of_index<'py>(py: Python<'py>, error: &IndexError) -> PyResult<Exception<'py>> {
    let class = |class| Exception::new(py, class, error);
    match error {
        IndexError::Io(inner) => of_io(py, inner),
        IndexError::Memory(inner) => of_pool(py, inner),
        IndexError::TooLittle { min_kib, allowed_kib, .. } => {
            class("MemoryLimit").with("given", allowed_kib << 10)?.with("needed", min_kib << 10)
        }
        IndexError::NotIndexed { path } | IndexError::Missing { path } => {
            class("FileMissing").with("filename", path)
        }
        IndexError::Damaged { path, offset, .. } => {
            class("Damaged").with("file", path)?.with("offset", *offset)
        }
        IndexError::CutShort { path, .. } => class("Damaged").with("file", path),
        IndexError::Newer { path, .. } | IndexError::Locked { path } | IndexError::Failed { path } => {
            class("FileError").with("filename", path)
        }
        IndexError::Exists { path, .. } => class("FileExists").with("filename", path),
        IndexError::Length { .. } | IndexError::TooLong { .. } => Ok(class("SchemaMismatch")),
        IndexError::Request(_) => Ok(class("InvalidRequest")),
        _ => Ok(class("AscotError")),
    }
}

fn of_lab(py: Python<'_>, error: LabError) -> PyResult<Exception<'_>> {
    let class = |class| Exception::new(py, class, &error);
    match &error {
        LabError::Io(inner) => of_io(py, inner),
        LabError::File { path, source, .. } => class(class_of(source.kind())).of_file(path, source),
        LabError::Table { path, .. } | LabError::Parameter { path, .. } => {
            class("SchemaMismatch").with("file", path)
        }
        LabError::Busy { path } => class("FileError").with("filename", path),
        LabError::Space { path, needed_bytes, free_bytes, .. } => {
            class("NoSpace").with("filename", path)?.with("needed", *needed_bytes)?.with("free", *free_bytes)
        }
        LabError::Memory { needed_bytes, memory_bytes, .. }
        | LabError::SortMemory { needed_bytes, memory_bytes, .. } => {
            class("MemoryLimit").with("given", *memory_bytes)?.with("needed", *needed_bytes)
        }
        LabError::Damaged { path, .. } => class("Damaged").with("file", path),
        LabError::Request(_) => Ok(class("InvalidRequest")),
        LabError::WrongSort { .. } => Ok(class("InternalError")),
        LabError::Sort(_) => {
            let LabError::Sort(inner) = error else { return Ok(class("AscotError")) };
            of_sort(py, inner)
        }
        _ => Ok(class("AscotError")),
    }
}

fn of_disk<'py>(py: Python<'py>, error: &DiskError) -> PyResult<Exception<'py>> {
    let class = |class| Exception::new(py, class, error);
    match error {
        DiskError::Directory { path, source } => class(class_of(source.kind())).of_file(path, source),
        DiskError::Twice { .. }
        | DiskError::NoVolume { .. }
        | DiskError::Request { .. }
        | DiskError::TooFewBytes { .. } => Ok(class("InvalidRequest")),
        _ => Ok(class("AscotError")),
    }
}

fn of_net<'py>(py: Python<'py>, error: &NetError) -> PyResult<Exception<'py>> {
    let class = match error {
        NetError::Parameter { .. } | NetError::Parameters { .. } => "InvalidRequest",
        _ => "AscotError",
    };
    Ok(Exception::new(py, class, error))
}

fn of_trace<'py>(py: Python<'py>, error: &TraceError) -> PyResult<Exception<'py>> {
    let class = |class| Exception::new(py, class, error);
    match error {
        TraceError::Io(inner) => of_io(py, inner),
        TraceError::Damaged { path, offset, .. } => {
            class("Damaged").with("file", path)?.with("offset", *offset)
        }
        TraceError::NotATrace { path }
        | TraceError::TraceIsDirectory { path }
        | TraceError::Version { path, .. } => class("SchemaMismatch").with("file", path),
        _ => Ok(class("AscotError")),
    }
}

/// The system's number for an error that a library found without the system.
fn number_of(kind: ErrorKind) -> Option<i32> {
    let number = match kind {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::PermissionDenied => Errno::ACCESS,
        ErrorKind::AlreadyExists => Errno::EXIST,
        ErrorKind::NotADirectory => Errno::NOTDIR,
        ErrorKind::IsADirectory => Errno::ISDIR,
        _ => return None,
    };
    Some(number.raw_os_error())
}

/// The class for an error of the system.
fn class_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "FileMissing",
        ErrorKind::PermissionDenied => "FileDenied",
        ErrorKind::AlreadyExists => "FileExists",
        _ => "FileError",
    }
}
