//! What can go wrong with a job, in words a user can act on.

use std::path::{Path, PathBuf};

use ascot_io::{IoError, PoolError, ThreadError};
use ascot_record::checksum::RecordSum;
use ascot_record::framing::Partial;
use ascot_record::keys::KeyError;

use crate::resources::{GroupMemory, LoweredCap};
use ascot_model::units;
use ascot_record::file_format::FileFormat;

/// Why a job failed.
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
    #[error("not enough room for {what}: {} needed, {}\n  {advice}{}", units::bytes(*needed), list_left(left), said_last(*remains))]
    NoSpace {
        /// What does not fit.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// A directory on each volume, and the bytes left there.
        left: Vec<(PathBuf, u64)>,
        /// What to do.
        advice: &'static str,
        /// What remains of the job, if that is known.
        remains: Option<&'static str>,
    },
    /// Keys do not fit the layout or the data.
    #[error("{0}")]
    Key(#[from] KeyError),
    /// The request contradicts itself.
    #[error("{0}")]
    Request(String),
    /// The last record is incomplete.
    #[error("{input}: record {record} is cut short: {}", missing.text(*offset, *have))]
    CutShort {
        /// The input.
        input: String,
        /// Record number, from 1.
        record: u64,
        /// Offset of the record, bytes.
        offset: u64,
        /// Bytes there are of it.
        have: u64,
        /// What lacks.
        missing: Missing,
    },
    /// Text is expected, and an input is a file of another format.
    #[error(
        "{input}: this is {}, not text\n  convert it to text first: {}\n  --format lines sorts its bytes as lines",
        format.name(), advice(*format, file.as_deref())
    )]
    OtherFormat {
        /// The input.
        input: String,
        /// Its path, where it is a file.
        file: Option<PathBuf>,
        /// What it is.
        format: FileFormat,
        /// How many inputs there are.
        inputs: usize,
    },
    /// A value is not of its column's type, and all have to be.
    #[error("{input}: row {row}: '{value}' in column {column} is not of type {kind}\n  {advice}")]
    Misfit {
        /// The input.
        input: String,
        /// The row, from 1; a header is one.
        row: u64,
        /// The column, as a key names it.
        column: Box<str>,
        /// The value.
        value: String,
        /// The type.
        kind: Box<str>,
        /// What to do.
        advice: String,
    },
    /// A record is too short to hold its key.
    #[error(
        "{input}: key beyond the record: record {record} at offset {offset} has {}, its key needs {needed}\n  give a range that all records have (--key START..END), or check the format (--format)",
        units::plural(*have, "byte")
    )]
    KeyBeyond {
        /// The input.
        input: String,
        /// Record number, from 1.
        record: u64,
        /// Offset of the record, bytes.
        offset: u64,
        /// Bytes it has, as keys count them.
        have: u64,
        /// Bytes the key reaches to.
        needed: u64,
    },
    /// A record does not fit in memory.
    #[error(
        "{input}: the record at offset {offset} is longer than memory allows: {}{}\n  give more memory (--memory {} or more), or check the record format (--format)",
        if *whole { "" } else { "over " }, units::bytes(*have), flag(*least)
    )]
    TooLong {
        /// The input.
        input: String,
        /// Offset of the record, bytes.
        offset: u64,
        /// Its length, or bytes looked at without finding its end.
        have: u64,
        /// Its end was found.
        whole: bool,
        /// Memory that does, or might do where its end was not found, bytes.
        least: u64,
    },
    /// The memory cap is too small for the job.
    #[error("{} of memory is too little: this job needs at least {}\n  give more (--memory {})", units::memory(*given), units::memory(*least), flag(*least))]
    TooLittleMemory {
        /// The cap, bytes.
        given: u64,
        /// The least that works, bytes.
        least: u64,
    },
    /// The control group leaves too little for any job.
    #[error(
        "the control group leaves {} of the {} it may use, and this job needs {} there, {} of them for itself\n  allow the group more memory",
        units::memory(group.left), units::memory(group.limit), units::memory(GroupMemory::left_for(*least)),
        units::memory(*least)
    )]
    SmallControlGroup {
        /// The group.
        group: GroupMemory,
        /// The least cap that works, bytes.
        least: u64,
    },
    /// Memory accounting refused a buffer.
    #[error("{0}")]
    Memory(#[from] PoolError),
    /// An input that should be sorted is not.
    #[error(
        "{input}: not sorted: record {record} at offset {offset} comes before the one ahead of it\n  sort it first, by the same keys and options (ascot sort)"
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
    #[error("records in and out differ: {} in (checksum {read}), {} out (checksum {written})\n  nothing was written to the output; please report this", read.count, written.count)]
    Checksum {
        /// Sum of what was read.
        read: RecordSum,
        /// Sum of what was written and dropped.
        written: RecordSum,
    },
    /// A job cannot be resumed.
    #[error("{}: cannot be resumed: {why}", dir.display())]
    CannotResume {
        /// The job's directory.
        dir: PathBuf,
        /// Why not.
        why: String,
    },
    /// A view cannot be made, opened or read.
    #[error("{}: {why}", path.display())]
    View {
        /// The view, or the file of it that is wrong.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// Stopped from outside.
    #[error("stopped")]
    Cancelled,
    /// The report cannot be written, so the output has not got its name.
    #[error("{}: cannot write the report: {source}\n  the output was not written; an old one is as it was", path.display())]
    Report {
        /// The file of the report.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A job ended early that can go on.
    #[error(
        "{error}\n  the job is kept: ascot sort --resume {dir}  goes on with it; ascot clean {dir}  removes it",
        dir = units::in_shell(dir)
    )]
    Kept {
        /// Why it ended.
        error: Box<SortError>,
        /// Its directory.
        dir: PathBuf,
    },
    /// A fault of this program.
    #[error("internal error: {0}; please report this")]
    Internal(&'static str),
}

impl From<IoError> for SortError {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Stopped { .. } => SortError::Cancelled,
            IoError::Thread { source, .. } => SortError::Thread(source),
            error => SortError::Io(error),
        }
    }
}

fn said_last(line: Option<&str>) -> String {
    line.map(|line| format!("\n  {line}")).unwrap_or_default()
}

fn list_left(left: &[(PathBuf, u64)]) -> String {
    let one = |(place, free): &(PathBuf, u64)| format!("{} left on {}", units::bytes(*free), place.display());
    left.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What an incomplete record lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// Its end, wherever that is.
    #[default]
    End,
    /// Some of so many bytes.
    BytesOf(u64),
    /// The end of a quote that was opened so many bytes into it.
    Quote(u64),
}

impl Missing {
    /// What a record lacks of which no more than `partial` came.
    pub fn of(partial: &Partial) -> Missing {
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
                "the quote opened at offset {} is never closed\n  {growing} the quote is a stray one: double it, or close it",
                offset + quote
            ),
        }
    }
}

/// Bytes as they are written behind `--memory`: rounded up, without a space.
fn flag(bytes: u64) -> String {
    format!("{}MiB", bytes.div_ceil(1 << 20))
}

/// Kinds a face treats apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The reader of the output has gone.
    BrokenPipe,
    /// Stopped from outside.
    Cancelled,
    /// Anything else.
    Other,
}

impl SortError {
    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SortError::Io(error) if error.is_broken_pipe() => ErrorKind::BrokenPipe,
            SortError::Cancelled => ErrorKind::Cancelled,
            SortError::Kept { error, .. } => error.kind(),
            _ => ErrorKind::Other,
        }
    }

    /// The same without a word on what is left of the job.
    #[must_use]
    pub fn without_remains(mut self) -> Self {
        if let SortError::NoSpace { remains, .. } = &mut self {
            *remains = None;
        }
        self
    }

    /// Whether there was too little memory, which others may give back.
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
            SortError::TooLittleMemory { least, .. } => {
                SortError::SmallControlGroup { group: self.group, least }
            }
            SortError::Kept { error, dir } => SortError::Kept { error: Box::new(self.explain(*error)), dir },
            other => other,
        }
    }
}

/// What to write instead of sorting a file of another format.
fn advice(format: FileFormat, file: Option<&Path>) -> String {
    let quoted = file.map(units::in_shell);
    let command = format.unpack_command(quoted.as_deref());
    let csv = if format.becomes_csv() { " --csv --header" } else { "" };
    let lead = if file.is_some() || command.contains("FILE") { "" } else { "... | " };
    format!("{lead}{command} | ascot sort{csv} ...")
}
