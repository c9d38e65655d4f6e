//! Errors of traces, with remedies for the user.

use std::io;
use std::path::{Path, PathBuf};

use ascot_io::{IoError, PoolError};
use ascot_model::units;

/// An error of a trace or of a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The file is not a trace.
    #[error(
        "{}: this is not a trace\n  ascot trace record -o FILE -- COMMAND makes one; a recording that was interrupted \
         leaves none",
        path.display()
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
    },
    /// The trace is a directory.
    #[error(
        "{}: this is a directory, not a trace\n  name a file that ascot trace record or --trace made",
        path.display()
    )]
    TraceIsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The trace has another version.
    #[error(
        "{}: the trace has version {found}, and this ascot reads versions up to {known}\n  \
         a newer ascot made it: update this one",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// A part of the trace is damaged.
    #[error(
        "{}: the trace is damaged at byte {offset}: {what}\n  record it again, or restore the file",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The start of the part.
        offset: u64,
        /// The contradiction.
        what: &'static str,
    },
    /// The tables of files and processes exceed the limit.
    #[error(
        "the names of the files take more than {}, the limit of a trace\n  record a part of the job",
        units::memory(*limit)
    )]
    TooManyNames {
        /// Bytes of all tables, at most.
        limit: u64,
    },
    /// The program to record does not exist.
    #[error("{program}: there is no such program\n  give its path, or check PATH")]
    NoProgram {
        /// The program as given.
        program: String,
    },
    /// The program to record is there, but cannot run.
    #[error(
        "{}: this is not a program that can be executed\n  check its mode (chmod +x), or name another one",
        path.display()
    )]
    NotExecutable {
        /// Its file.
        path: PathBuf,
    },
    /// The log of a trace on standard output has no name.
    #[error(
        "--keep-log needs a name for the log, and the trace goes to standard output\n  name a file: -o run.trace"
    )]
    LogWithoutName,
    /// The volume of the log of strace is full.
    #[error(
        "not enough space on the volume of {} for the log of strace, which had {}: there is no trace\n  \
         write the trace to a volume with more space (-o FILE), or record a part of the job",
        path.display(), units::memory(*log_bytes)
    )]
    LogVolumeFull {
        /// The directory of the log.
        path: PathBuf,
        /// Bytes of the log.
        log_bytes: u64,
    },
    /// The log to convert is a directory.
    #[error(
        "{}: this is a directory, not a log of strace\n  convert the log of all processes in one file: \
         strace -f -ttt -y -s 0 -o LOG (without -ff)",
        path.display()
    )]
    LogIsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// strace could not be started.
    #[error("cannot start strace: {source}\n  {}", remedy_for_strace(source))]
    NoStrace {
        /// The system's error.
        source: io::Error,
    },
    /// strace lacks options of a recording.
    #[error(
        "strace {}.{} or newer is needed; this is {found}\n  install a newer one, so that PATH finds it first: \
         https://strace.io",
        needed.0, needed.1
    )]
    OldStrace {
        /// Its version.
        found: String,
        /// The oldest version with all options.
        needed: (u32, u32),
    },
    /// strace ended without having seen a call.
    #[error(
        "strace saw no call of {program}\n  tracing may be forbidden here: see the message of strace above, \
         /proc/sys/kernel/yama/ptrace_scope, and the limits of the container (CAP_SYS_PTRACE)"
    )]
    NothingSeen {
        /// The program.
        program: String,
    },
    /// What devices see could not be recorded.
    #[error("cannot record what the disk sees: {doing}: {source}\n  {}", remedy_for_block(source))]
    Block {
        /// The step.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
    /// The numbers of processes are not those that the kernel reports.
    #[error(
        "cannot record what the disk sees: processes have other numbers here than in the kernel\n  run it outside of \
         the container, or in one that shares the process numbers of its host (such as docker run --pid=host)"
    )]
    OtherNumbers,
    /// The program could not be started.
    #[error(
        "{program}: the program did not start, and there is no trace: {source}\n  check that it can be executed"
    )]
    NotStarted {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program could not be waited for.
    #[error("cannot wait for the program: {source}\n  the program may still run")]
    Wait {
        /// The system's error.
        source: io::Error,
    },
    /// The trace is a file of the program.
    #[error(
        "{}: the trace would replace {what} of the program\n  \
         give the trace another name: -o FILE; the program did not run",
        path.display()
    )]
    OfProgram {
        /// The trace.
        path: PathBuf,
        /// Where the program has it.
        what: String,
    },
    /// The program has opened the file that the trace would replace.
    #[error("{}: the program has opened or made this file, and the trace does not replace it", path.display())]
    OpenedByProgram {
        /// The trace.
        path: PathBuf,
    },
    /// A trace that could not take its name has another one.
    #[error("{error}\n  it is {} instead", trace.display())]
    NamedOtherwise {
        /// The error.
        error: Box<TraceError>,
        /// The trace.
        trace: PathBuf,
    },
    /// A request ends where no file of this machine can.
    #[error(
        "{file}: a request ends at byte {end}, and files have at most {limit}\n  cut a phase without it out of the \
         trace; nothing was written"
    )]
    BeyondFiles {
        /// The file of the trace.
        file: String,
        /// The end of the request.
        end: u64,
        /// The largest length.
        limit: u64,
    },
    /// The log of strace could not be converted, and is kept.
    #[error(
        "{error}\n  the log of strace is kept: {}\n  ascot trace convert {} -o {}  makes the trace of it",
        log.display(), log.display(), other_name(error, output).display()
    )]
    NotConverted {
        /// The error.
        error: Box<TraceError>,
        /// The log.
        log: PathBuf,
        /// The trace.
        output: PathBuf,
    },
    /// A cut has no event.
    #[error(
        "no event is in that range; the trace has {}\n  nothing was written",
        units::seconds(*length_ns as f64 / 1e9)
    )]
    NothingToCut {
        /// The time of the last event.
        length_ns: u64,
    },
    /// A line of the log is too long to be one of strace.
    #[error(
        "{}: a line at byte {offset} is too long for a log of strace\n  the log is damaged: record again",
        path.display()
    )]
    LongLine {
        /// The log.
        path: PathBuf,
        /// The start of the line.
        offset: u64,
    },
    /// The log has lines, but none of them is a line of strace.
    #[error("{}: no line of the log was understood; the first is {line:?}\n  ascot reads logs of \
         strace 5.8 and newer, made by: strace -f -ttt -y -s 0 -o LOG", path.display())]
    NotALog {
        /// The log.
        path: PathBuf,
        /// The start of the first line.
        line: String,
    },
    /// The volume cannot hold the files of a trace.
    #[error(
        "not enough space on the volume of {}: the files of the trace need {}, {} are free\n  \
         name a larger volume, or cut a phase out of the trace; nothing was written",
        path.display(), units::bytes(*needed), units::bytes(*free)
    )]
    VolumeTooSmall {
        /// The directory.
        path: PathBuf,
        /// Bytes of the volume file.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// Files cannot be made in a directory of the kernel.
    #[error(
        "{}: no files can be made here: this file system has no space for data\n  name a directory on a disk",
        path.display()
    )]
    NoSpaceForData {
        /// The directory.
        path: PathBuf,
    },
    /// Without direct access, the page cache would be measured.
    #[error(
        "{}: its file system does not allow direct access ({source})\n  \
         name a directory on a file system with O_DIRECT, such as ext4, xfs or btrfs",
        path.display()
    )]
    NoDirect {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The volume file could not be made, read or written.
    #[error(
        "cannot {doing} a file in {}: {source}\n  name a directory on a volume that works, where files may be made",
        path.display()
    )]
    Volume {
        /// `make`, `write`, ...
        doing: &'static str,
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No memory for the buffer.
    #[error("no memory for the buffer: {0}\n  run it where more memory is free")]
    Buffer(#[from] PoolError),
    /// The user stopped it.
    #[error("stopped; nothing is left of its file")]
    Stopped,
    /// The names of the files cannot be part of a page.
    #[error("cannot describe the trace in a page: {source}\n  this is an error of ascot: please report it")]
    Page {
        /// The error.
        source: serde_json::Error,
    },
    /// The directory for files of a replay by fio has files.
    #[error("{}: the directory is not empty, and fio would write to its files\n  name another one: --fio-dir DIR",
        path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The program did not run under strace.
    #[error(
        "{program}: the program did not run, and there is no trace\n  strace says why; it needs the right to trace \
        programs (ptrace), and a program that may be executed"
    )]
    NotRun {
        /// The program.
        program: String,
    },
    /// A directory for fio whose name its logs cannot contain.
    #[error(
        "{}: fio cannot read names with spaces from a log\n  choose another directory with --fio-dir",
        path.display()
    )]
    NameForFio {
        /// The directory.
        path: PathBuf,
    },
}

/// What the functions of this crate return.
pub(crate) type Result<T, E = TraceError> = std::result::Result<T, E>;

impl TraceError {
    /// Whether the reader of the output closed it.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, TraceError::Io(error) if error.is_broken_pipe())
    }
}

/// Another name for a trace, beside its own.
pub(crate) fn beside(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".trace");
    PathBuf::from(name)
}

/// The name for a trace that is made later: another one if the program has a file of the first one.
fn other_name(error: &TraceError, output: &Path) -> PathBuf {
    match error {
        TraceError::OpenedByProgram { .. } => beside(output),
        _ => output.to_owned(),
    }
}

fn remedy_for_block(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "--block needs root (CAP_SYS_ADMIN outside of containers) and a kernel that allows tracing (no lockdown): \
             run it with sudo; ascot trace record without --block needs no such right"
        }
        io::ErrorKind::NotFound | io::ErrorKind::Unsupported | io::ErrorKind::Other => {
            "--block needs Linux 5.2 or newer with tracefs, the events block, task and sched, and fanotify; record \
             without --block needs none of them"
        }
        _ => "a smaller --buffer needs less memory of the kernel; record without --block needs none",
    }
}

fn remedy_for_strace(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "install it: apt-get install strace",
        io::ErrorKind::PermissionDenied => "its file may not be executed: check its mode",
        _ => "the system may have too little memory or too many processes",
    }
}
