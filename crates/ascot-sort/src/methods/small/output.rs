//! Where the result of a small job goes: written by the calling thread.
//!
//! A pipe or terminal is written a little at a time, and only when it has room, so that a job whose
//! reader sleeps can still be stopped.

use std::io::{self, Stdout};
use std::os::fd::AsFd;
use std::path::Path;

use ascot_io::{Action, AtomicOutput, Buf, Disk, IoError, STANDARD_OUTPUT};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::api::request::Output;

/// What a pipe that has room takes without blocking (PIPE_BUF).
const PIPE_BYTES: usize = 4096;

/// The output of a small job.
pub(super) enum Sink {
    /// A file, whole or not at all.
    File(AtomicOutput),
    /// Standard output.
    Stdout(Stdout, Disk),
}

impl Sink {
    /// Starts the output.
    pub(super) fn create(disk: &Disk, output: &Output) -> Result<Sink, SortError> {
        Ok(match output {
            Output::Path(path) => Sink::File(AtomicOutput::create(disk, path, "output")?),
            Output::Stdout => Sink::Stdout(io::stdout(), disk.clone()),
            Output::Parts(_) => return Err(SortError::Internal("several outputs of a small job")),
        })
    }

    /// Writes `header` and the first `len` bytes of `buf`, all there is; gives the output where only its name is
    /// missing.
    pub(super) fn write(
        self,
        header: &[u8],
        buf: Buf,
        len: usize,
        cancel: &Cancel,
    ) -> Result<Option<AtomicOutput>, SortError> {
        cancel.check()?;
        match self {
            Sink::File(mut output) => {
                if !header.is_empty() {
                    let mut first = Buf::heap(header.len());
                    first.copy_from_slice(header);
                    output.stream()?.begin(first, header.len())?;
                }
                if len > 0 {
                    output.stream()?.begin(buf, len)?;
                }
                cancel.check()?;
                output.seal()?;
                Ok(Some(output))
            }
            Sink::Stdout(stdout, disk) => {
                write_all(&stdout, header, 0, cancel)?;
                write_all(&stdout, &buf[..len], header.len(), cancel)?;
                let bytes = (header.len() + len) as u64;
                if bytes > 0 {
                    disk.count_written(Path::new(STANDARD_OUTPUT), "output", bytes);
                }
                Ok(None)
            }
        }
    }
}

/// Writes `bytes`, the first of which is byte `offset` of the output.
fn write_all(to: &Stdout, bytes: &[u8], offset: usize, cancel: &Cancel) -> Result<(), SortError> {
    let failed = |at: usize, error| {
        let error = IoError::from_os(Action::Write, Path::new(STANDARD_OUTPUT), (offset + at) as u64, error);
        Err(error.needing((bytes.len() - at) as u64).into())
    };
    let to = to.as_fd();
    let kind = rustix::fs::fstat(to).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let ready_always = match kind {
        Ok(FileType::RegularFile | FileType::BlockDevice) => true,
        Ok(FileType::CharacterDevice) => !rustix::termios::isatty(to),
        _ => false,
    };
    let most = if ready_always { usize::MAX } else { PIPE_BYTES };
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..bytes.len().min(at.saturating_add(most))];
        let ready = if ready_always { Ok(1) } else { poll(&mut [PollFd::new(&to, PollFlags::OUT)], None) };
        let written = ready.and_then(|_| rustix::io::write(to, rest));
        cancel.check()?;
        match written {
            Ok(0) => return failed(at, io::ErrorKind::WriteZero.into()),
            Ok(count) => at += count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return failed(at, error.into()),
        }
    }
    Ok(())
}
