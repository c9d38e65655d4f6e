//! The errors of a job, with messages that a user can act on.

use std::io;
use std::path::{Path, PathBuf};

use ascot_io::{IoError, PoolError, ThreadError};
use ascot_record::checksum::RecordSum;
use ascot_record::framing::Partial;
use ascot_record::keys::KeyError;

use crate::resources::{GroupMemory, LoweredCap};
use ascot_model::units;
use ascot_record::file_format::FileFormat;

/// The reason why a job failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SortError {
    /// A file, device or pipe failed.
    #[error("{0}")]
    Io(IoError),
    /// A thread could not be started, or died.
    #[error("{0}")]
    Thread(#[from] ThreadError),
    /// The output disk or a spill disk is full.
    #[error(
        "not enough space for {what}: {} needed, {}\n  {advice}{}",
        units::bytes(*needed), list_left(left), said_last(*remains)
    )]
    NoSpace {
        /// The files that do not fit.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// A directory on each volume, and the bytes left there.
        left: Vec<(PathBuf, u64)>,
        /// Advice for the user.
        advice: &'static str,
        /// The state left by the job, if known.
        remains: Option<&'static str>,
    },
    /// Keys do not fit the layout or the data.
    #[error("{0}")]
    Key(#[from] KeyError),
    /// The request contradicts itself.
    #[error("{0}")]
    Request(String),
    /// The last record is incomplete.
    #[error("{input}: {} is cut short: {}", nth(*record), missing.text(*offset, *have))]
    CutShort {
        /// The input.
        input: String,
        /// Record number, from 1; 0 if those before it were not counted.
        record: u64,
        /// Offset of the record, bytes.
        offset: u64,
        /// Bytes present of the record.
        have: u64,
        /// The missing part.
        missing: Missing,
    },
    /// A record of a chunk, whose number is not known, is not as the request says.
    #[error("{input}: {problem}")]
    InChunk {
        /// The input.
        input: String,
        /// Offset of the record, bytes.
        offset: u64,
        /// The problem, and what to do.
        problem: String,
    },
    /// Text is expected, and an input is a file of another format.
    #[error(
        "{input}: this is {}, not text\n  convert it to text first: {}\n  --format lines sorts its bytes as lines",
        format.name(), advice(*format, file.as_deref())
    )]
    OtherFormat {
        /// The input.
        input: String,
        /// Its path, if it is a file.
        file: Option<PathBuf>,
        /// Its format.
        format: FileFormat,
        /// Number of inputs.
        inputs: usize,
    },
    /// A value is not of its column's type, and the request is strict.
    #[error("{input}: row {row}: '{value}' in column {column} is not of type {kind}\n  {advice}")]
    Misfit {
        /// The input.
        input: String,
        /// The row number, from 1, counting a header.
        row: u64,
        /// The column, as a key names it.
        column: Box<str>,
        /// The value.
        value: String,
        /// The type.
        kind: Box<str>,
        /// Advice for the user.
        advice: String,
    },
    /// A record is too short to hold its key.
    #[error(
        "{input}: key beyond the record: record {record} at offset {offset} has {}, its key needs \
         {needed}\n  give a range that all records have (--key START..END), or check the format (--format)",
        units::plural(*have, "byte")
    )]
    KeyBeyond {
        /// The input.
        input: String,
        /// Record number, from 1.
        record: u64,
        /// Offset of the record, bytes.
        offset: u64,
        /// Its length, as counted for keys, bytes.
        have: u64,
        /// Minimum length for its keys, bytes.
        needed: u64,
    },
    /// A record does not fit in memory.
    #[error(
        "{input}: the record at offset {offset} is longer than memory allows: {}{}\n  give more memory \
         (--memory {} or more), or check the record format (--format)",
        if *whole { "" } else { "over " }, units::bytes(*have), flag(*min_bytes)
    )]
    TooLong {
        /// The input.
        input: String,
        /// Offset of the record, bytes.
        offset: u64,
        /// Its length, or the bytes searched without finding its end.
        have: u64,
        /// Whether its end was found.
        whole: bool,
        /// Memory that suffices, or may suffice if the end was not found, bytes.
        min_bytes: u64,
    },
    /// The memory cap is too small for the job.
    #[error(
        "{} of memory is too little: this job needs at least {}\n  give more (--memory {})",
        units::memory(*given_bytes), units::memory(*min_bytes), flag(*min_bytes)
    )]
    TooLittleMemory {
        /// The cap, bytes.
        given_bytes: u64,
        /// The minimum that works, bytes.
        min_bytes: u64,
    },
    /// The control group leaves too little for any job.
    #[error(
        "the control group leaves {} of the {} it may use, and this job needs {} there, {} of them for \
         itself\n  allow the group more memory",
        units::memory(group.left), units::memory(group.limit), units::memory(GroupMemory::left_for(*min_bytes)),
        units::memory(*min_bytes)
    )]
    SmallControlGroup {
        /// The group.
        group: GroupMemory,
        /// The minimum cap that works, bytes.
        min_bytes: u64,
    },
    /// Memory accounting refused a buffer.
    #[error("{0}")]
    Memory(#[from] PoolError),
    /// An input that should be sorted is not.
    #[error(
        "{input}: not sorted: record {record} at offset {offset} belongs before the previous record\n  sort \
         it first with the same keys and options (ascot sort)"
    )]
    NotSorted {
        /// The input.
        input: String,
        /// Record number, from 1.
        record: u64,
        /// Offset, bytes.
        offset: u64,
    },
    /// Records in and out differ: a fault of this program or of the machine.
    #[error(
        "records in and out differ: {} in (checksum {read}), {} out (checksum {written})\n  nothing was \
         written to the output; please report this",
        read.count, written.count
    )]
    Checksum {
        /// Sum of the records read.
        read: RecordSum,
        /// Sum of the records written and dropped.
        written: RecordSum,
    },
    /// A job cannot be resumed.
    #[error("{}: cannot be resumed: {why}", dir.display())]
    CannotResume {
        /// The job's directory.
        dir: PathBuf,
        /// The reason, for programs: `NotFound` if there is no such directory.
        kind: io::ErrorKind,
        /// The reason.
        why: String,
    },
    /// A view cannot be made, opened or read.
    #[error("{}: {why}", path.display())]
    View {
        /// The view, or the file in it that is wrong.
        path: PathBuf,
        /// The problem, for programs: `NotFound`, `AlreadyExists`, `NotADirectory`, `InvalidData` for a view that
        /// was altered, `InvalidInput` for views that do not fit together.
        kind: io::ErrorKind,
        /// The problem, and advice.
        why: String,
    },
    /// A user's program failed, or is stuck.
    #[error(
        "the program {program} {what}\n  no file was written; it must read all of its inputs and end with status 0"
    )]
    Program {
        /// The program.
        program: String,
        /// The fault of the program, in words.
        what: String,
    },
    /// A user's program cannot be started.
    #[error(
        "the program {program} cannot be started: {source}\n  name a program that exists and may be executed"
    )]
    ProgramStart {
        /// The program.
        program: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A volume cannot be measured.
    #[error(transparent)]
    Probe(Box<ascot_device::ProbeError>),
    /// Cancelled by the caller.
    #[error("stopped")]
    Cancelled,
    /// The report cannot be written, so the output was not renamed to its final name.
    #[error(
        "{}: cannot write the report: {source}\n  the output was not written; an old one is unchanged",
        path.display()
    )]
    Report {
        /// The file of the report.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A job ended early, and its directory is kept.
    #[error("{error}\n  {}", state_of_kept(error, dir))]
    Kept {
        /// The reason.
        error: Box<SortError>,
        /// Its directory.
        dir: PathBuf,
    },
    /// An internal fault of this program.
    #[error("internal error: {0}; please report this")]
    Internal(&'static str),
}

/// What jobs return.
pub type Result<T, E = SortError> = std::result::Result<T, E>;

impl From<IoError> for SortError {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Stopped { .. } => SortError::Cancelled,
            IoError::Thread { source, .. } => SortError::Thread(source),
            error => SortError::Io(error),
        }
    }
}

/// The commands that continue or remove a job that ended with `error` and is kept in `dir`.
fn state_of_kept(error: &SortError, dir: &Path) -> String {
    let dir = units::in_shell(dir);
    if error.is_lost_spill() {
        return format!(
            "the job cannot be resumed without this spill: ascot clean {dir}  removes it; then start it again"
        );
    }
    format!("the job is kept: ascot sort --resume {dir}  continues it; ascot clean {dir}  removes it")
}

fn said_last(line: Option<&str>) -> String {
    line.map(|line| format!("\n  {line}")).unwrap_or_default()
}

fn list_left(left: &[(PathBuf, u64)]) -> String {
    let one = |(place, free): &(PathBuf, u64)| format!("{} left on {}", units::bytes(*free), place.display());
    left.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The missing part of an incomplete record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// Its terminator.
    #[default]
    End,
    /// Some of this many bytes.
    BytesOf(u64),
    /// The end of a quote that was opened at this offset in the record, bytes.
    Quote(u64),
}

impl Missing {
    /// The missing part of a record that is cut short after `partial`.
    pub fn from_partial(partial: &Partial) -> Missing {
        match (partial.whole, partial.quote) {
            (Some(whole), _) => Missing::BytesOf(whole),
            (None, Some(quote)) => Missing::Quote(quote),
            (None, None) => Missing::End,
        }
    }

    fn text(self, offset: u64, have: u64) -> String {
        let growing = "the file may still be growing, or";
        match self {
            Missing::End => {
                let have = units::plural(have, "byte");
                format!("{have} at offset {offset}\n  {growing} the record format is wrong (--format)")
            }
            Missing::BytesOf(whole) => format!(
                "{have} of {} at offset {offset}\n  {growing} the record length is wrong (--format)",
                units::plural(whole, "byte")
            ),
            Missing::Quote(quote) => format!(
                "the quote opened at offset {} is never closed\n  {growing} the quote is a stray one: double \
                 it, or close it",
                offset + quote
            ),
        }
    }
}

fn nth(record: u64) -> String {
    if record == 0 { "the last record".into() } else { format!("record {record}") }
}

/// Bytes in the form of `--memory`: rounded up, without a space.
fn flag(bytes: u64) -> String {
    format!("{}MiB", bytes.div_ceil(1 << 20))
}

/// Kinds of errors that a face treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The reader of the output has gone.
    BrokenPipe,
    /// Cancelled by the caller.
    Cancelled,
    /// Anything else.
    Other,
}

impl SortError {
    /// Error for a view, or for a path that cannot be one.
    pub(crate) fn view(path: impl Into<PathBuf>, kind: io::ErrorKind, why: impl Into<String>) -> SortError {
        SortError::View { path: path.into(), kind, why: why.into() }
    }

    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SortError::Io(error) if error.is_broken_pipe() => ErrorKind::BrokenPipe,
            SortError::Cancelled => ErrorKind::Cancelled,
            SortError::Kept { error, .. } => error.kind(),
            _ => ErrorKind::Other,
        }
    }

    /// Whether a spill is damaged or missing.
    fn is_lost_spill(&self) -> bool {
        match self {
            SortError::Io(IoError::Corrupt { .. } | IoError::BadIndex { .. }) => true,
            SortError::Io(IoError::Os { path, source, .. }) => {
                let is_spill = path.extension().is_some_and(|end| end == "run" || end == "keys");
                is_spill && source.kind() == std::io::ErrorKind::NotFound
            }
            _ => false,
        }
    }

    /// The same error without the note on the state left by the job.
    #[must_use]
    pub fn without_remains(mut self) -> Self {
        if let SortError::NoSpace { remains, .. } = &mut self {
            *remains = None;
        }
        self
    }

    /// The error of a job within `cap_bytes`, of which it had a part. `cap_for` is the cap that gives a job so much.
    #[must_use]
    pub fn within(mut self, cap_bytes: u64, cap_for: impl Fn(u64) -> u64) -> Self {
        match &mut self {
            SortError::TooLittleMemory { given_bytes, min_bytes } => {
                (*given_bytes, *min_bytes) = (cap_bytes, cap_for(*min_bytes));
            }
            SortError::TooLong { min_bytes, .. } => *min_bytes = cap_for(*min_bytes),
            _ => {}
        }
        self
    }

    /// Whether there was too little memory, which may be temporary.
    pub fn is_out_of_memory(&self) -> bool {
        use SortError::{Io, Memory, SmallControlGroup, TooLittleMemory};
        matches!(
            self,
            TooLittleMemory { .. } | SmallControlGroup { .. } | Memory(_) | Io(IoError::Memory { .. })
        )
    }
}

impl LoweredCap {
    /// `error`, or an error that names the control group if it leaves too little memory.
    pub fn explain(&self, error: SortError) -> SortError {
        match error {
            SortError::TooLittleMemory { min_bytes, .. } => {
                SortError::SmallControlGroup { group: self.group, min_bytes }
            }
            SortError::Kept { error, dir } => SortError::Kept { error: Box::new(self.explain(*error)), dir },
            other => other,
        }
    }
}

/// Advice for a file of another format.
fn advice(format: FileFormat, file: Option<&Path>) -> String {
    let quoted = file.map(units::in_shell);
    let command = format.unpack_command(quoted.as_deref());
    let csv = if format.becomes_csv() { " --csv --header" } else { "" };
    let lead = if file.is_some() || command.contains("FILE") { "" } else { "... | " };
    format!("{lead}{command} | ascot sort{csv} ...")
}
