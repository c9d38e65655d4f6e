//! The user's ends of a flow: files, which the engine moves in runs; and pipes, sockets and devices, whose bytes are
//! passed on as they come and cost no switch.
//!
//! ```text
//!   file         ─▶ engine (buckets) ─▶ pipe ─▶ program ─▶ pipe ─▶ engine (buckets) ─▶ file, under a temporary name
//!   pipe, socket ─▶ [relay buffer]   ─▶ pipe ─▶    "    ─▶ pipe ─▶ [relay buffer]   ─▶ pipe, socket
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ascot_bowtie::engine::FileWriter;
use ascot_io::clocks::{State, in_state};
use ascot_io::{Action, AtomicOutput, Buf, Disk, IoError, ReadStream, is_passing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::api::{Cancel, FileRange, Input, Output, Result, SortError};
use crate::read::{InputFile, PROGRAM_RECORDS};

/// Time between two attempts to open a named pipe that has no reader yet.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// Bytes that a pipe takes without blocking when it is ready for any.
const PIPE_ROOM: usize = 4096;

/// An input as it was opened.
pub(super) enum InputEnd {
    /// A file.
    File(Box<dyn ReadStream>),
    /// A pipe, socket or device.
    Pipe(PipeEnd),
}

/// An output as it was opened.
pub(super) enum OutputEnd {
    /// A file.
    File(FileWriter),
    /// A pipe, socket or device.
    Pipe(PipeEnd),
}

/// A descriptor of the user.
pub(super) struct PipeEnd {
    file: File,
    /// Most bytes of a write that do not block it.
    call_bytes: usize,
}

fn failed(action: Action, path: &Path) -> impl Fn(io::Error) -> SortError {
    let path = path.to_path_buf();
    move |error| IoError::from_os(action, &path, 0, error).into()
}

/// The name of an input for messages.
pub(super) fn input_name(input: &Input) -> PathBuf {
    match input {
        Input::Path(path) | Input::Range(FileRange { path, .. }) => path.clone(),
        Input::Stdin => "standard input".into(),
        Input::Program => PROGRAM_RECORDS.into(),
    }
}

/// The name of an output for messages.
pub(super) fn output_name(output: &Output) -> PathBuf {
    match output {
        Output::Path(path) => path.clone(),
        Output::Stdout => "standard output".into(),
        Output::Program => PROGRAM_RECORDS.into(),
        Output::Parts(parts) => PathBuf::from(&parts.pattern),
    }
}

/// Opens an input.
pub(super) fn open_input(disk: &Disk, input: &Input) -> Result<InputEnd> {
    let path = match input {
        Input::Path(path) => path,
        Input::Range(_) => return Ok(InputEnd::File(InputFile::open(input)?.stream(disk, 0)?)),
        Input::Stdin => return open_stdin(disk),
        Input::Program => {
            return Ok(InputEnd::File(disk.open_program_source(0, Path::new(PROGRAM_RECORDS), "input")?));
        }
    };
    let error = failed(Action::Open, path);
    let kind = std::fs::metadata(path).map_err(&error)?.file_type();
    if kind.is_socket() {
        return Ok(InputEnd::Pipe(connected(path)?));
    }
    if kind.is_fifo() || kind.is_char_device() {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(&error)?;
        return Ok(InputEnd::Pipe(PipeEnd { file, call_bytes: usize::MAX }));
    }
    Ok(InputEnd::File(disk.open_read(path, 0..u64::MAX, "input")?))
}

fn open_stdin(disk: &Disk) -> Result<InputEnd> {
    let name = PathBuf::from("standard input");
    let error = failed(Action::Open, &name);
    let mut file = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(&error)?);
    if file.metadata().map_err(&error)?.is_file() {
        let at = file.stream_position().map_err(&error)?;
        return Ok(InputEnd::File(disk.open_read(Path::new("/proc/self/fd/0"), at..u64::MAX, "input")?));
    }
    Ok(InputEnd::Pipe(PipeEnd { file, call_bytes: usize::MAX }))
}

fn connected(path: &Path) -> Result<PipeEnd> {
    let error = failed(Action::Open, path);
    let socket = UnixStream::connect(path).map_err(&error)?;
    socket.set_nonblocking(true).map_err(&error)?;
    Ok(PipeEnd { file: File::from(OwnedFd::from(socket)), call_bytes: usize::MAX })
}

/// Whether an output is a file of the engine: a regular one, or a new one.
pub(super) fn is_file(output: &Output) -> bool {
    match output {
        Output::Path(path) => std::fs::metadata(path).map_or(true, |stat| stat.is_file() || stat.is_dir()),
        Output::Stdout | Output::Program | Output::Parts(_) => false,
    }
}

/// Whether an input is a file of the engine.
pub(super) fn input_bytes(input: &Input) -> Option<u64> {
    match input {
        Input::Path(path) => {
            std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|stat| stat.len())
        }
        Input::Range(range) => Some(range.end.saturating_sub(range.start)),
        Input::Program => None,
        Input::Stdin => {
            let mut file = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
            let stat = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some(stat.len().saturating_sub(file.stream_position().ok()?))
        }
    }
}

/// Opens an output. If it is a named pipe, waits until a process has opened it to read.
pub(super) fn open_output(disk: &Disk, output: &Output, cancel: &Cancel) -> Result<OutputEnd> {
    let path = match output {
        Output::Path(path) if is_file(output) => {
            return Ok(OutputEnd::File(FileWriter::new(AtomicOutput::create(disk, path, "output")?)));
        }
        Output::Path(path) => path,
        Output::Stdout => return Ok(OutputEnd::Pipe(open_stdout()?)),
        Output::Parts(_) | Output::Program => {
            return Err(SortError::Internal("a flow with an output that is neither file nor pipe"));
        }
    };
    if std::fs::metadata(path).is_ok_and(|stat| stat.file_type().is_socket()) {
        return Ok(OutputEnd::Pipe(connected(path)?));
    }
    loop {
        match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
            Ok(file) => return Ok(OutputEnd::Pipe(PipeEnd { file, call_bytes: usize::MAX })),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                cancel.check()?;
                let _waiting = in_state(State::Memory);
                std::thread::sleep(BETWEEN_ATTEMPTS);
            }
            Err(error) => return Err(failed(Action::Open, path)(error)),
        }
    }
}

/// Standard output. Others may use it too, so that it must not stop blocking; a pipe is opened again instead.
fn open_stdout() -> Result<PipeEnd> {
    let error = failed(Action::Open, Path::new("standard output"));
    let file = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(&error)?);
    let kind = file.metadata().map_err(&error)?.file_type();
    if kind.is_fifo() {
        let again = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open("/proc/self/fd/1");
        if let Ok(file) = again {
            return Ok(PipeEnd { file, call_bytes: usize::MAX });
        }
    }
    Ok(PipeEnd { file, call_bytes: if kind.is_file() { usize::MAX } else { PIPE_ROOM } })
}

/// Bytes on their way between a descriptor of the user and a pipe of the program.
pub(super) struct Relay {
    end: PipeEnd,
    path: PathBuf,
    buffer: Buf,
    from: usize,
    to: usize,
    moved: u64,
    ended: bool,
}

impl Relay {
    /// A relay with this buffer; `path` names the descriptor in errors.
    pub(super) fn new(end: PipeEnd, path: &Path, buffer: Buf) -> Relay {
        Relay { end, path: path.to_path_buf(), buffer, from: 0, to: 0, moved: 0, ended: false }
    }

    /// The bytes in the buffer.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// Takes `count` bytes from the buffer.
    pub(super) fn consume(&mut self, count: usize) {
        self.from += count;
    }

    /// Whether its source has ended and its buffer is empty.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.from == self.to
    }

    /// The user's descriptor.
    pub(super) fn descriptor(&self) -> &File {
        &self.end.file
    }

    /// Reads what has come from the user into an empty buffer; says whether anything has, or the end.
    pub(super) fn fetch(&mut self) -> Result<bool> {
        if self.ended || self.from < self.to || !is_ready(&self.end.file, PollFlags::IN) {
            return Ok(false);
        }
        (self.from, self.to) = (0, 0);
        match self.end.file.read(&mut self.buffer) {
            Ok(count) => {
                self.ended = count == 0;
                self.to = count;
                self.moved += count as u64;
                Ok(true)
            }
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(IoError::from_os(Action::Read, &self.path, self.moved, error).into()),
        }
    }

    /// Puts bytes from the program into an empty buffer by `read`; says how many, 0 at the end.
    pub(super) fn put(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let count = read(&mut self.buffer)?;
        (self.from, self.to) = (0, count);
        Ok(count)
    }

    /// Passes bytes on to the user, if they are taken; says whether any were.
    pub(super) fn deliver(&mut self) -> Result<bool> {
        if self.from == self.to || !is_ready(&self.end.file, PollFlags::OUT) {
            return Ok(false);
        }
        let to = self.to.min(self.from.saturating_add(self.end.call_bytes));
        match self.end.file.write(&self.buffer[self.from..to]) {
            Ok(count) => {
                self.from += count;
                self.moved += count as u64;
                Ok(count > 0)
            }
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(IoError::from_os(Action::Write, &self.path, self.moved, error).into()),
        }
    }
}

fn is_ready(file: &File, flags: PollFlags) -> bool {
    let mut polled = [PollFd::new(file, flags)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}
