//! The back-ends, and the ones that are plain system calls: plain, buffered and sized.
//!
//! These streams do their work inside `begin`, on the caller's thread, in system calls of at most
//! so many bytes; `complete` only hands back what is there already. Any regular file or block
//! device will do.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::buf::Buf;
use crate::error::{Action, IoError, nothing_written};
use crate::fault_hook::Effect;
use crate::stream::{Filled, ReadStream, WriteStream};
use crate::stream_context::StreamContext;

/// How files are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// A system call for each element of [`PLAIN_BYTES`] bytes.
    Plain,
    /// System calls of [`BUFFERED_BYTES`].
    Buffered,
    /// System calls of this many bytes.
    Sized(usize),
    /// Windows of this many bytes mapped to memory. A file that someone else cuts short while it
    /// is mapped can kill the process (SIGBUS).
    Mapped(usize),
    /// O_DIRECT through an [`IoQueue`](crate::IoQueue), past the page cache.
    #[default]
    Direct,
}

/// Bytes a system call of the plain back-end moves: one small element.
pub const PLAIN_BYTES: usize = 4;

/// Bytes a system call of the buffered back-end moves: the size of a stdio buffer.
pub const BUFFERED_BYTES: usize = 8 << 10;

/// Reads a range of a file with system calls of at most `call_bytes`.
pub(crate) struct FileRead {
    pub(crate) context: StreamContext,
    pub(crate) file: Arc<File>,
    pub(crate) next: u64,
    pub(crate) end: u64,
    pub(crate) len: u64,
    pub(crate) call_bytes: usize,
    pub(crate) done: VecDeque<Result<Filled, IoError>>,
}

impl FileRead {
    fn fill(&mut self, mut buf: Buf) -> Result<Filled, IoError> {
        let at = self.next;
        let wanted = usize::try_from(self.end - at).unwrap_or(usize::MAX).min(buf.len());
        if wanted == 0 {
            return Ok(Filled { buf, start: 0, end: 0 });
        }
        let mut halve = self.context.inject_fault(Action::Read, at)? == Some(Effect::Short);
        let calls = wanted.div_ceil(self.call_bytes) as u64;
        let receipt = self.context.meter.issue(at, wanted as u64, calls);
        let mut filled = 0;
        let result = loop {
            let mut until = (filled + self.call_bytes).min(wanted);
            if std::mem::take(&mut halve) {
                until = filled + (until - filled).div_ceil(2);
            }
            match self.file.read_at(&mut buf[filled..until], at + filled as u64) {
                Ok(0) => break Err(self.context.truncated(at + filled as u64, self.end)),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(self.context.error(Action::Read, at + filled as u64, error)),
            }
            if filled == wanted {
                break Ok(());
            }
        };
        receipt.settle(filled as u64);
        self.next += wanted as u64;
        result.map(|()| Filled { buf, start: 0, end: wanted })
    }
}

impl ReadStream for FileRead {
    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        let filled = self.fill(buf);
        self.done.push_back(filled);
        Ok(())
    }

    fn complete(&mut self) -> Result<Filled, IoError> {
        self.done.pop_front().unwrap_or_else(|| Err(self.context.misuse(self.next, NOTHING_BEGUN)))
    }

    fn ready(&mut self) -> bool {
        !self.done.is_empty()
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn len_hint(&self) -> Option<u64> {
        Some(self.len)
    }
}

pub(crate) const NOTHING_BEGUN: &str = "a read was completed that had not been begun";
pub(crate) const TOO_LONG: &str = "more bytes were to be written than the buffer holds";

/// Writes a file forward with system calls of at most `call_bytes`.
pub(crate) struct FileWrite {
    pub(crate) context: StreamContext,
    pub(crate) file: Arc<File>,
    pub(crate) next: u64,
    pub(crate) call_bytes: usize,
    pub(crate) failed: Option<IoError>,
}

impl FileWrite {
    fn write(&mut self, bytes: &[u8], halve: bool, offset: u64) -> Result<(), IoError> {
        let calls = bytes.len().div_ceil(self.call_bytes) as u64;
        let receipt = self.context.meter.issue(offset, bytes.len() as u64, calls);
        let (written, result) = write_all_at(&self.file, bytes, offset, self.call_bytes, halve);
        receipt.settle(written as u64);
        result.map_err(|error| {
            let failed = self.context.error(Action::Write, offset + written as u64, error);
            failed.needing((bytes.len() - written) as u64)
        })
    }

    fn append(&mut self, mut buf: Buf, len: usize) -> Result<(), IoError> {
        let effect = self.context.inject_fault(Action::Write, self.next)?;
        let (stored, offset) = apply_effect(effect, &mut buf[..len], self.next);
        self.write(&buf[..stored], effect == Some(Effect::Short), offset)?;
        self.next += len as u64;
        Ok(())
    }

    fn check(&self) -> Result<(), IoError> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }
}

/// Carries out a fault that reports success: what is stored, and where.
pub(crate) fn apply_effect(effect: Option<Effect>, bytes: &mut [u8], offset: u64) -> (usize, u64) {
    let len = bytes.len();
    match effect {
        Some(Effect::Torn) => (len / 2, offset),
        Some(Effect::Zeroed) => {
            bytes.fill(0);
            (len, offset)
        }
        Some(Effect::Misdirected) => (len, offset.checked_sub(len as u64).unwrap_or(offset + len as u64)),
        _ => (len, offset),
    }
}

/// Writes all of `bytes`, in calls of at most `call_bytes`; says how many were written.
pub(crate) fn write_all_at(
    file: &File,
    bytes: &[u8],
    offset: u64,
    call_bytes: usize,
    mut halve: bool,
) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        let mut until = (written + call_bytes).min(bytes.len());
        if std::mem::take(&mut halve) {
            until = written + (until - written).div_ceil(2);
        }
        match file.write_at(&bytes[written..until], offset + written as u64) {
            Ok(0) => return (written, Err(nothing_written())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

impl WriteStream for FileWrite {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        self.check()?;
        if len > buf.len() {
            return Err(self.context.misuse(self.next, TOO_LONG));
        }
        if len == 0 {
            return Ok(());
        }
        self.append(buf, len).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn drain(&mut self) -> Result<(), IoError> {
        self.check()
    }

    fn sync(&mut self) -> Result<(), IoError> {
        self.check()?;
        self.context.inject_fault(Action::Sync, self.next)?;
        let synced = self.context.waiting(|| self.file.sync_data());
        synced.map_err(|error| self.context.error(Action::Sync, self.next, error))
    }

    fn finish(mut self: Box<Self>) -> Result<u64, IoError> {
        self.drain()?;
        self.context.space.note(&self.file);
        Ok(self.next)
    }
}
