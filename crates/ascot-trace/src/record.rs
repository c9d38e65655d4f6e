//! Runs a program under strace, and converts the log to a trace.
//!
//! ```text
//!   ascot trace record -o run.trace -- sort big.txt -o out.txt
//!     .run.trace.*.log   the log of strace, beside the trace, removed at the end
//!     run.trace          appears when it is complete
//! ```
//!
//! The log is converted after the program has ended, so that conversion takes no processor from it. Files that the
//! program appends to without asking for their length have the length that follows from their length afterwards: then
//! the log is converted a second time.
//!
//! The space of the log is allocated ahead of strace. If its volume is full, the recording is given up and the program
//! goes on.
//!
//! Invariants: the program has the input, the outputs and the descriptors of its caller. The trace is written whatever
//! the exit status of the program is.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use ascot_io::{Action, AtomicOutput, IoError};
use ascot_model::units;
use rustix::process::{Pid, Signal, kill_process};

use crate::awake::keep_awake;
use crate::block;
use crate::blocks::{LAST_BLOCK, MAX_HELD_RANGES, given_back};
use crate::error::{Result, TraceError};
use crate::event::{Event, Kind, Recording, TracedFile};
use crate::format::TraceWriter;
use crate::holes::data_of;
use crate::log_space::LogSpace;
use crate::output::is_standard_output;
use crate::own_file;
use crate::pipe;
use crate::ranges::RangeSet;
use crate::rights::privileges_lost;
use crate::strace::{self, CALLS, Inherited, Resolved, SIGNALS, Start, Unseen};

/// Pause between two looks at the program.
const PAUSE: Duration = Duration::from_millis(2);

/// What to record.
pub struct RecordRequest {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The trace.
    pub output: PathBuf,
    /// Whether the log of strace stays, as OUTPUT.log.
    pub keep_log: bool,
}

/// How to record what disks see.
pub struct BlockRequest {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The trace.
    pub output: PathBuf,
    /// Bytes of the kernel's buffer for each processor.
    pub buffer_bytes: u64,
}

/// A recording.
pub struct Recorded {
    /// How the program ended.
    pub status: ExitStatus,
    /// The number of events.
    pub events: u64,
    /// The number of files with events.
    pub files: u64,
    /// Bytes of the trace.
    pub trace_bytes: u64,
    /// The log, if it was kept.
    pub log: Option<PathBuf>,
    /// Whether the recording ended before the program, or lost events.
    pub incomplete: bool,
    /// Remarks for the user.
    pub notices: Vec<String>,
}

/// Records a program. `signal` returns signals to pass on to it. `gives_up` gets the error when a recording is given up
/// and the program goes on; the same error is the result after its end.
pub fn record(
    request: &RecordRequest,
    signal: &dyn Fn() -> Option<i32>,
    gives_up: &dyn Fn(&TraceError),
) -> Result<Recorded> {
    let named = request.command.first().cloned().unwrap_or_default();
    find(&named)?;
    if request.keep_log && is_standard_output(&request.output) {
        return Err(TraceError::LogWithoutName);
    }
    own_file::refuse_named(&request.command, &request.output)?;
    let source = strace::version::installed()?;
    AtomicOutput::check_directory(&request.output)?;
    let log = log_file(&request.output)?;
    let start = Start {
        directory: std::env::current_dir().map(|path| path.into_os_string().into_vec()).unwrap_or_default(),
        descriptors: inherited(is_standard_output(&request.output)),
        lengths: HashMap::new(),
        is_file,
        may_be_same,
    };
    let before = own_file::identity(&request.output);
    let status = run_strace(request, log.path(), signal, gives_up)?;
    if fs::metadata(log.path()).map_or(0, |metadata| metadata.len()) == 0 {
        return Err(TraceError::NothingSeen { program: named.to_string_lossy().into_owned() });
    }
    let labels = Recording::of_command(&request.command, source);
    let converted = convert(log.path(), start, lengths_before, &request.output);
    if converted.as_ref().is_ok_and(|(_, resolved)| resolved.processes.iter().all(|it| it.program.is_empty()))
    {
        return Err(TraceError::NotRun { program: named.to_string_lossy().into_owned() });
    }
    let converted = converted.and_then(|(written, mut resolved)| {
        own_file::refuse_opened(&resolved.files, &request.output, &before)?;
        find_held(&mut resolved.files, &written.given_back);
        finish(written, resolved, &labels)
    });
    let converted = match converted {
        Ok(converted) => converted,
        Err(error) => return Err(with_log(error, log, &request.output)),
    };
    let programs = converted.programs.iter().map(|path| Path::new(OsStr::from_bytes(path)));
    let mut notices: Vec<String> = programs.filter_map(privileges_lost).collect();
    notices.extend(converted.notices());
    let log = if request.keep_log { Some(keep(log, &request.output)?) } else { None };
    let Converted { events, files, trace_bytes, recording, .. } = converted;
    let incomplete = recording.incomplete;
    Ok(Recorded { status, events, files, trace_bytes, log, incomplete, notices })
}

/// Runs the program under strace, and keeps space ahead of the log.
fn run_strace(
    request: &RecordRequest,
    log: &Path,
    signal: &dyn Fn() -> Option<i32>,
    gives_up: &dyn Fn(&TraceError),
) -> Result<ExitStatus> {
    let failed = |source| IoError::from_os(Action::Write, log, 0, source);
    let mut space = LogSpace::new(log).map_err(failed)?;
    volume_full(&space, &request.output).map_or(Ok(()), Err)?;
    let _awake = keep_awake();
    let child = strace_command(log, &request.command, &request.output)
        .spawn()
        .map_err(|source| TraceError::NoStrace { source })?;
    let mut given_up = false;
    let status = wait(child, || {
        space.look()?;
        if let Some(error) = volume_full(&space, &request.output).filter(|_| !given_up) {
            gives_up(&error);
            given_up = true;
        }
        Ok(signal())
    });
    let status = status.map_err(|source| TraceError::Wait { source })?;
    space.look().map_err(failed)?;
    volume_full(&space, &request.output).map_or(Ok(()), Err)?;
    space.finish().map_err(failed)?;
    Ok(status)
}

/// Keeps the log if it cannot be converted: the program need not run again.
fn with_log(error: TraceError, log: tempfile::NamedTempFile, output: &Path) -> TraceError {
    if is_standard_output(output) {
        return error;
    }
    match keep(log, output) {
        Ok(log) => TraceError::NotConverted { error: Box::new(error), log, output: output.to_owned() },
        Err(_) => error,
    }
}

/// The error if the volume of a log is full.
fn volume_full(space: &LogSpace, output: &Path) -> Option<TraceError> {
    let path = directory_of(output).to_owned();
    space.full_at().map(|log_bytes| TraceError::LogVolumeFull { path, log_bytes })
}

/// Records what disks see of a program: its requests and those of the kernel for its files. `signal` returns signals
/// to pass on to it. `gives_up` gets the error when a recording is given up and the program goes on; the same error is
/// the result after its end.
pub fn record_block(
    request: &BlockRequest,
    signal: &dyn Fn() -> Option<i32>,
    gives_up: &dyn Fn(&TraceError),
) -> Result<Recorded> {
    let named = request.command.first().cloned().unwrap_or_default();
    let program = find(&named)?;
    let output = &request.output;
    own_file::refuse_named(&request.command, output)?;
    AtomicOutput::check_directory(output)?;
    let mut command = Command::new(program);
    command.arg0(&named).args(request.command.iter().skip(1));
    restore_signals(&mut command);
    if is_standard_output(output) {
        keep_output_apart(&mut command);
    }
    let labels = Recording::of_command(&request.command, block::source());
    let recorded =
        block::record(command, labels, output, directory_of(output), request.buffer_bytes, signal, gives_up)?;
    let notices = block_remarks(&recorded);
    let block::BlockRecorded { status, events, files, trace_bytes, recording, .. } = recorded;
    let incomplete = recording.incomplete;
    Ok(Recorded { status, events, files, trace_bytes, log: None, incomplete, notices })
}

/// Remarks on requests that are not in the trace.
fn block_remarks(recorded: &block::BlockRecorded) -> Vec<String> {
    let mut remarks = recorded.recording.remarks();
    if recorded.alive > 0 {
        remarks.push(format!(
            "{} of the program still ran at the end of the recording, which has none of their later requests",
            units::plural_form(recorded.alive, "process", "processes")
        ));
    }
    if recorded.without_extents > 0 {
        remarks.push(format!(
            "{} lie on no single disk (such as btrfs, or a network): their requests are not attributed",
            units::plural(recorded.without_extents, "file")
        ));
    }
    remarks
}

/// A conversion.
pub struct Converted {
    /// The number of events.
    pub events: u64,
    /// The number of files with events.
    pub files: u64,
    /// Bytes of the trace.
    pub trace_bytes: u64,
    recording: Recording,
    /// The files of all programs that ran.
    programs: BTreeSet<Vec<u8>>,
    unseen: Unseen,
}

impl Converted {
    /// Remarks for the user.
    pub fn notices(&self) -> Vec<String> {
        let mut remarks = self.recording.remarks();
        remarks.extend(self.unseen.remarks());
        remarks
    }
}

/// Converts a log of strace that was made earlier, or on another machine: it alone says which names are files.
pub fn convert_log(log: &Path, directory: &Path, output: &Path) -> Result<Converted> {
    let start = Start {
        directory: directory.as_os_str().as_bytes().to_vec(),
        descriptors: Vec::new(),
        lengths: HashMap::new(),
        is_file: |_| true,
        may_be_same: |_, _| true,
    };
    let labels = Recording {
        command: log.as_os_str().as_bytes().to_vec(),
        source: b"a log of strace".to_vec(),
        ..Recording::default()
    };
    if log.is_dir() {
        return Err(TraceError::LogIsDirectory { path: log.to_owned() });
    }
    let file = fs::File::open(log).map_err(|source| IoError::from_os(Action::Open, log, 0, source))?;
    let copy = pipe::copied(&file, log)?;
    let of_copy = copy.as_ref().map(|copy| PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd())));
    let read = of_copy.as_deref().unwrap_or(log);
    let (written, resolved) = convert(read, start, |_| HashMap::new(), output)?;
    finish(written, resolved, &labels)
}

/// Converts a log, twice if the first time yields lengths that it did not know, or finds directories among the files.
fn convert(
    log: &Path,
    mut start: Start,
    lengths: impl Fn(&Resolved) -> HashMap<u32, u64>,
    output: &Path,
) -> Result<(Written, Resolved)> {
    let (written, resolved) = convert_once(log, &start, &HashSet::new(), output)?;
    start.lengths = lengths(&resolved);
    if start.lengths.is_empty() && resolved.directories.is_empty() {
        return Ok((written, resolved));
    }
    drop(written);
    convert_once(log, &start, &resolved.directories, output)
}

/// A trace without its tables.
struct Written {
    writer: TraceWriter,
    /// Whether a file has events: names alone are not counted, as in the census.
    seen: Vec<bool>,
    /// The blocks of each file that were given back, up to the last file with any.
    given_back: Vec<RangeSet>,
}

impl Written {
    fn push(&mut self, event: &Event) -> Result<()> {
        let file = event.file as usize;
        if file >= self.seen.len() {
            self.seen.resize(file + 1, false);
        }
        self.seen[file] = true;
        if let Some((low, high)) = given_back(event).filter(|_| event.kind != Kind::Delete) {
            if file >= self.given_back.len() {
                self.given_back.resize(file + 1, RangeSet::default());
            }
            self.given_back[file].insert(low, high.min(LAST_BLOCK), |_, _| ());
        }
        self.writer.push(event)
    }
}

fn finish(written: Written, resolved: Resolved, labels: &Recording) -> Result<Converted> {
    let recording =
        Recording { command: labels.command.clone(), source: labels.source.clone(), ..resolved.recording };
    let events = written.writer.event_count();
    let files = written.seen.iter().filter(|seen| **seen).count() as u64;
    let trace_bytes = written.writer.finish(&resolved.files, &resolved.processes, &recording)?;
    let Resolved { programs, unseen, .. } = resolved;
    Ok(Converted { events, files, trace_bytes, recording, programs, unseen })
}

/// Converts a log without the events of some files.
fn convert_once(
    log: &Path,
    start: &Start,
    without: &HashSet<u32>,
    output: &Path,
) -> Result<(Written, Resolved)> {
    let mut written =
        Written { writer: TraceWriter::create(output)?, seen: Vec::new(), given_back: Vec::new() };
    let resolved = strace::convert(log, start, &mut |event| match without.contains(&event.file) {
        true => Ok(()),
        false => written.push(event),
    })?;
    Ok((written, resolved))
}

/// Finds which blocks held data before the program ran: those that hold data now, and those that the program gave back,
/// which may have. What it wrote is there in any case.
fn find_held(files: &mut [TracedFile], given_back: &[RangeSet]) {
    let none = RangeSet::default();
    for (number, file) in
        files.iter_mut().enumerate().filter(|(_, file)| file.held.is_none() && !file.deleted)
    {
        let name = OsStr::from_bytes(&file.path);
        let Some(metadata) = fs::symlink_metadata(name).ok().filter(|now| now.is_file()) else { continue };
        let Ok(opened) = fs::File::open(name) else { continue };
        file.held = data_of(&opened, metadata.len()).map(|mut held| {
            let given_back = given_back.get(number).unwrap_or(&none);
            given_back.ranges().for_each(|(low, high)| held.insert(low, high, |_, _| ()));
            held.with_at_most(MAX_HELD_RANGES)
        });
    }
}

/// The lengths that files had before the recording, of those that were appended to while it was not known: their
/// length now without the appended bytes.
fn lengths_before(resolved: &Resolved) -> HashMap<u32, u64> {
    let now = |path: &[u8]| fs::metadata(OsStr::from_bytes(path)).ok().map(|metadata| metadata.len());
    let known = resolved.appended.iter().filter_map(|(file, path, appended)| {
        let before = now(path)?.checked_sub(*appended)?;
        Some((*file, before))
    });
    known.collect()
}

/// strace appends to the log (-A): to empty it would give back the space that is allocated for it.
fn strace_command(log: &Path, command: &[OsString], trace: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "--seccomp-bpf", "-ttt", "-y", "-s", "0", "-q", "--pidns-translation"])
        .args([OsStr::new("-e"), OsStr::new(&format!("signal={SIGNALS}"))])
        .args([OsStr::new("-e"), OsStr::new(&format!("trace={CALLS}"))])
        .args([OsStr::new("-A"), OsStr::new("-o"), log.as_os_str(), OsStr::new("--")])
        .args(command);
    restore_signals(&mut strace);
    if is_standard_output(trace) {
        keep_output_apart(&mut strace);
    }
    strace
}

/// A program whose trace goes to standard output writes to standard error instead: both would mix.
fn keep_output_apart(command: &mut Command) {
    let Ok(copy) = rustix::io::dup(rustix::stdio::stderr()) else { return };
    command.stdout(copy);
}

/// The program gets the default action of SIGXFSZ, which this process ignores.
#[expect(unsafe_code, reason = "a hook between fork and exec is unsafe to set")]
fn restore_signals(command: &mut Command) {
    let restore = || {
        // SAFETY: the call installs no handler, and is allowed between fork and exec.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the hook makes one system call, and allocates nothing.
    unsafe { command.pre_exec(restore) };
}

/// Waits for strace, and passes signals on to the program; `signal` is called every few milliseconds.
fn wait(mut child: Child, mut signal: impl FnMut() -> io::Result<Option<i32>>) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(number) = signal()? {
            pass_on(child.id(), number);
        }
        thread::sleep(PAUSE);
    }
}

/// Sends a signal to the program that strace started: strace itself ignores most of them. If it has ended, the signal
/// goes to the processes that it has left behind.
fn pass_on(strace: u32, number: i32) {
    let list = fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).unwrap_or_default();
    let program = list.split_whitespace().next().and_then(|word| word.parse().ok());
    let receivers = program.map_or_else(|| traced_by(strace), |program| vec![program]);
    let Some(signal) = Signal::from_named_raw(number) else { return };
    for process in receivers.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process(process, signal);
    }
}

/// The processes that a process traces.
fn traced_by(tracer: u32) -> Vec<i32> {
    let is_traced = |process: &i32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        line.and_then(|line| line.trim().parse().ok()) == Some(tracer)
    };
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(is_traced).collect()
}

/// The file of a program, as the system finds it.
fn find(program: &OsStr) -> Result<PathBuf> {
    let candidates: Vec<PathBuf> = if program.as_bytes().contains(&b'/') {
        vec![PathBuf::from(program)]
    } else {
        let directories = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&directories).map(|directory| directory.join(program)).collect()
    };
    let runs = |path: &&PathBuf| {
        fs::metadata(path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if let Some(found) = candidates.iter().find(runs) {
        return Ok(found.clone());
    }
    let program = program.to_string_lossy().into_owned();
    match candidates.into_iter().find(|path| path.exists()) {
        Some(path) => Err(TraceError::NotExecutable { path }),
        None => Err(TraceError::NoProgram { program }),
    }
}

/// The descriptors of files that a program inherits from this process; `is_apart`: its standard output is standard
/// error.
fn inherited(is_apart: bool) -> Vec<Inherited> {
    let Ok(list) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let names = list.flatten().map(|entry| entry.file_name()).filter(|name| !is_apart || name != "1");
    let mut found: Vec<Inherited> = names.filter_map(|name| descriptor(&name)).collect();
    if let Some(error) = descriptor(OsStr::new("2")).filter(|_| is_apart) {
        found.push(Inherited { number: 1, ..error });
    }
    found
}

fn descriptor(name: &OsStr) -> Option<Inherited> {
    let number: u32 = name.to_str()?.parse().ok()?;
    let path = fs::read_link(format!("/proc/self/fd/{number}")).ok()?.into_os_string().into_vec();
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = i32::from_str_radix(field("flags:")?, 8).ok()?;
    let wanted = flags & libc::O_CLOEXEC == 0 && strace::may_be_a_file(&path) && is_file(&path);
    let position = field("pos:")?.parse().ok()?;
    wanted.then_some(Inherited { number, path, position, append: flags & libc::O_APPEND != 0 })
}

/// Whether a path is that of a file or a block device. A path that does not exist any more was one.
fn is_file(path: &[u8]) -> bool {
    match fs::symlink_metadata(OsStr::from_bytes(path)) {
        Ok(metadata) => metadata.is_file() || metadata.file_type().is_block_device(),
        Err(_) => true,
    }
}

/// Whether two paths may be those of one directory: a path that does not exist any more may be that of any.
fn may_be_same(one: &[u8], other: &[u8]) -> bool {
    let real = |path: &[u8]| fs::canonicalize(OsStr::from_bytes(path));
    match (real(one), real(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => true,
    }
}

/// A new file for the log, beside the trace.
fn log_file(output: &Path) -> Result<tempfile::NamedTempFile> {
    let create =
        |path: &Path| fs::File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
    let made =
        tempfile::Builder::new().prefix(".ascot-").suffix(".log").make_in(directory_of(output), create);
    made.map_err(|error| IoError::from_os(Action::Create, output, 0, error).into())
}

/// The directory for files beside the trace; the current one for standard output.
fn directory_of(path: &Path) -> &Path {
    let path = if is_standard_output(path) { Path::new(".") } else { path };
    ascot_io::directory_of(path)
}

/// Gives the log its name.
fn keep(log: tempfile::NamedTempFile, output: &Path) -> Result<PathBuf> {
    let mut name = output.as_os_str().to_owned();
    name.push(".log");
    let path = PathBuf::from(name);
    log.persist(&path).map_err(|failed| IoError::from_os(Action::Rename, &path, 0, failed.error))?;
    Ok(path)
}
