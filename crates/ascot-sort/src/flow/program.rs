//! A user's program: its start with one pipe for each stream, its end, and errors that name it.
//!
//! ```text
//!   environment    ASCOT_INPUTS=2  ASCOT_IN_0=3  ASCOT_IN_1=4     descriptors to read from
//!                  ASCOT_OUTPUTS=1 ASCOT_OUT_0=1                  descriptors to write to
//!   standard input / output    the stream itself if there is only one
//! ```
//!
//! Invariants: the program inherits the ends of its pipes, numbered from 3 on because shells redirect only small
//! descriptors, the standard streams, and no other descriptor of ours; when a [`Program`] is dropped, no process of its
//! group runs any more, unless the flow has succeeded; the program does not outlive this process.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process_group, pidfd_open, set_parent_process_death_signal,
};

use crate::api::{Result, SortError};

/// Time that a program has to end by itself after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);
/// Time between two looks whether it has ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// The two ends of a pipe between this process and the program.
pub(super) struct Pipe {
    /// Never blocks.
    pub(super) ours: OwnedFd,
    /// Inherited by the program.
    pub(super) theirs: OwnedFd,
}

impl Pipe {
    /// A pipe that the program reads.
    pub(super) fn to_program() -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Pipe { ours: write, theirs: read }.prepared()
    }

    /// A pipe that the program writes.
    pub(super) fn from_program() -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Pipe { ours: read, theirs: write }.prepared()
    }

    fn prepared(self) -> io::Result<Pipe> {
        fcntl_setfl(&self.ours, OFlags::NONBLOCK)?;
        Ok(self)
    }
}

/// The ends of its pipes that a program inherits.
pub(super) struct Inherited {
    /// Its inputs.
    pub(super) inputs: Vec<OwnedFd>,
    /// Its outputs.
    pub(super) outputs: Vec<OwnedFd>,
    /// Whether standard output is an output of the job: the program's messages must not go there.
    pub(super) stdout_is_taken: bool,
}

/// A running program.
pub(super) struct Program {
    name: String,
    child: Child,
    /// Readable when it has ended; none on kernels without such descriptors.
    end: Option<OwnedFd>,
    status: Option<ExitStatus>,
    released: bool,
}

impl Program {
    /// Starts `command` with its arguments.
    pub(super) fn start(command: &[OsString], ends: Inherited) -> Result<Program> {
        let Inherited { mut inputs, mut outputs, stdout_is_taken } = ends;
        let (program, arguments) =
            command.split_first().ok_or_else(|| SortError::Request("there is no program to run".into()))?;
        let name = program.to_string_lossy().into_owned();
        let failed = |source: io::Error| SortError::ProgramStart { program: name.clone(), source };
        let mut start = Command::new(program);
        start.args(arguments).process_group(0);
        start.env("ASCOT_INPUTS", inputs.len().to_string());
        start.env("ASCOT_OUTPUTS", outputs.len().to_string());
        let mut next = FIRST_DESCRIPTOR;
        for (variable, count, standard) in [("ASCOT_IN", inputs.len(), 0), ("ASCOT_OUT", outputs.len(), 1)] {
            for number in 0..count {
                let descriptor = if count == 1 { standard } else { next };
                next += RawFd::from(count > 1);
                start.env(format!("{variable}_{number}"), descriptor.to_string());
            }
        }
        start.stdin(only(&mut inputs).map_or_else(Stdio::null, Stdio::from));
        start.stdout(match only(&mut outputs) {
            Some(only) => Stdio::from(only),
            None => messages(stdout_is_taken).map_err(failed)?,
        });
        let numbered = Numbered::new(inputs.into_iter().chain(outputs).collect()).map_err(failed)?;
        numbered.inherit(&mut start);
        let child = start.spawn().map_err(failed)?;
        drop(numbered);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let end = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Program { name, child, end, status: None, released: false })
    }

    /// A descriptor that becomes readable when it ends.
    pub(super) fn end(&self) -> Option<&OwnedFd> {
        self.end.as_ref().filter(|_| self.status.is_none())
    }

    /// Whether it has ended; an error if it has failed.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        if self.status.is_none() {
            let status = self.child.try_wait();
            self.status = status.map_err(|error| self.failure(format!("cannot be waited for: {error}")))?;
        }
        match self.status {
            Some(status) if !status.success() => Err(self.failure(end_of(status))),
            status => Ok(status.is_some()),
        }
    }

    /// The flow has succeeded: processes that the program has left behind may go on.
    pub(super) fn release(&mut self) {
        self.released = true;
    }

    /// The error that names this program; `what` it did.
    pub(super) fn failure(&self, what: String) -> SortError {
        SortError::Program { program: self.name.clone(), what }
    }

    /// Sends a signal to all processes of its group.
    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // There may be no process left.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        self.signal(Signal::TERM);
        let since = Instant::now();
        while self.status.is_none() && since.elapsed() < GRACE {
            self.status = self.child.try_wait().ok().flatten();
            std::thread::sleep(BETWEEN_LOOKS);
        }
        self.signal(Signal::KILL);
        if self.status.is_none() {
            let _ = self.child.wait();
        }
    }
}

/// The only end of these, which becomes a standard stream; none if there are several.
fn only(ends: &mut Vec<OwnedFd>) -> Option<OwnedFd> {
    if ends.len() == 1 { ends.pop() } else { None }
}

/// The first descriptor after the standard streams.
const FIRST_DESCRIPTOR: RawFd = 3;

/// Ends of pipes that a program inherits as descriptors 3, 4, 5, ...
struct Numbered {
    /// The ends, whose own descriptors come after all those.
    ends: Vec<OwnedFd>,
    /// Take the descriptors that are free: the start of a program opens a pipe of its own, which must not be given one.
    _taken: Vec<OwnedFd>,
}

impl Numbered {
    fn new(ends: Vec<OwnedFd>) -> io::Result<Numbered> {
        let after = FIRST_DESCRIPTOR + ends.len() as RawFd;
        let moved: Result<Vec<OwnedFd>, _> = ends.iter().map(|end| fcntl_dupfd_cloexec(end, after)).collect();
        let ends = moved?;
        let mut taken = Vec::new();
        if let Some(end) = ends.first() {
            loop {
                let free = fcntl_dupfd_cloexec(end, FIRST_DESCRIPTOR)?;
                if free.as_raw_fd() >= after {
                    break;
                }
                taken.push(free);
            }
        }
        Ok(Numbered { ends, _taken: taken })
    }

    /// Has `start` pass the ends on, and kill the program if this process dies.
    #[expect(unsafe_code, reason = "code between fork and exec is unsafe")]
    fn inherit(&self, start: &mut Command) {
        let pairs: Vec<(RawFd, RawFd)> =
            self.ends.iter().zip(FIRST_DESCRIPTOR..).map(|(end, number)| (end.as_raw_fd(), number)).collect();
        let parent = getpid();
        let prepare = move || {
            // The signal is sent when the thread that starts the program ends; it waits for the program's end.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(parent) {
                // The parent died before.
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            for &(end, number) in &pairs {
                // SAFETY: both are plain numbers; the call duplicates a descriptor, and clears its close-on-exec.
                if unsafe { libc::dup2(end, number) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls only, and allocates nothing.
        unsafe { start.pre_exec(prepare) };
    }
}

/// The standard output of a program that has several outputs, or none.
fn messages(stdout_is_taken: bool) -> io::Result<Stdio> {
    if !stdout_is_taken {
        return Ok(Stdio::inherit());
    }
    Ok(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?))
}

/// How a program failed.
fn end_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(_)) => {
            let text = status.to_string();
            format!("was killed by signal {}", text.trim_start_matches("signal: "))
        }
        (None, None) => format!("ended: {status}"),
    }
}
