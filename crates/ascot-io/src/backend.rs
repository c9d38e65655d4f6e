//! The back-ends, and the streams of the one that works on the caller's thread.
//!
//! These streams do their work inside `begin`, by system calls of a fixed size; `complete` only hands back a finished
//! result. They work on any regular file or block device.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::buf::Buf;
use crate::clocks::{State, call};
use crate::error::{Action, IoError, Result, nothing_written};
use crate::stream::{Filled, ReadStream, WriteStream};
use crate::stream_context::{Effect, StreamContext};

/// How files are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// System calls of this many bytes.
    Sized(usize),
    /// O_DIRECT through an [`IoQueue`](crate::IoQueue), past the page cache.
    #[default]
    Direct,
}

pub(crate) const NOTHING_BEGUN: &str = "a read was completed that had not been begun";
pub(crate) const TOO_LONG: &str = "more bytes were to be written than the buffer holds";

/// System calls of at most `bytes` each.
pub(crate) struct Calls {
    pub(crate) file: Arc<File>,
    pub(crate) bytes: usize,
}

impl Calls {
    /// Reads at most one call's bytes at `offset` into `to`; 0 bytes mean the end of the file.
    pub(crate) fn read(&self, context: &StreamContext, to: &mut [u8], offset: u64) -> Result<usize> {
        let len = to.len().min(self.bytes);
        loop {
            match call(State::Device, || self.file.read_at(&mut to[..len], offset)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map_err(|error| context.error(Action::Read, offset, error)),
            }
        }
    }

    /// Writes at most one call's bytes at `offset`.
    pub(crate) fn write(&self, context: &StreamContext, from: &[u8], offset: u64) -> Result<usize> {
        let len = from.len().min(self.bytes);
        let result = loop {
            match call(State::Device, || self.file.write_at(&from[..len], offset)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => break Err(nothing_written()),
                result => break result,
            }
        };
        result.map_err(|error| context.error(Action::Write, offset, error).needing(from.len() as u64))
    }
}

/// The bytes of the next request, or half of them if `halve` is set, which it clears.
fn next_bytes(left: usize, request_bytes: usize, halve: &mut bool) -> usize {
    if std::mem::take(halve) { left.min(request_bytes).div_ceil(2) } else { left }
}

/// Reads a range of a file.
pub(crate) struct SyncRead {
    context: StreamContext,
    calls: Calls,
    next: u64,
    end: u64,
    len: u64,
    done: VecDeque<Result<Filled>>,
}

impl SyncRead {
    pub(crate) fn new(context: StreamContext, calls: Calls, start: u64, end: u64) -> Self {
        Self { context, calls, next: start, end, len: end - start, done: VecDeque::new() }
    }

    fn fill(&mut self, mut buf: Buf) -> Result<Filled> {
        let at = self.next;
        let wanted = usize::try_from(self.end - at).unwrap_or(usize::MAX).min(buf.len());
        if wanted == 0 {
            return Ok(Filled { buf, start: 0, end: 0 });
        }
        let mut halve = self.context.inject_fault(Action::Read, at)? == Some(Effect::Short);
        let request_bytes = self.calls.bytes;
        let receipt = self.context.meter.issue(at, wanted as u64, wanted.div_ceil(request_bytes) as u64);
        let mut filled = 0;
        let mut result = Ok(());
        while filled < wanted && result.is_ok() {
            let offset = at + filled as u64;
            let len = next_bytes(wanted - filled, request_bytes, &mut halve);
            match self.calls.read(&self.context, &mut buf[filled..filled + len], offset) {
                Ok(0) => result = Err(self.context.truncated(offset, self.end)),
                Ok(more) => filled += more,
                Err(error) => result = Err(error),
            }
        }
        receipt.complete(filled as u64);
        self.next += wanted as u64;
        result.map(|()| Filled { buf, start: 0, end: wanted })
    }
}

impl ReadStream for SyncRead {
    fn begin(&mut self, buf: Buf) -> Result<()> {
        let filled = self.fill(buf);
        self.done.push_back(filled);
        Ok(())
    }

    fn complete(&mut self) -> Result<Filled> {
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

/// Writes a file forward.
pub(crate) struct SyncWrite {
    context: StreamContext,
    calls: Calls,
    next: u64,
    failed: Option<IoError>,
}

impl SyncWrite {
    pub(crate) fn new(context: StreamContext, calls: Calls, start: u64) -> Self {
        Self { context, calls, next: start, failed: None }
    }

    fn append(&mut self, mut buf: Buf, len: usize) -> Result<()> {
        let effect = self.context.inject_fault_of_write(self.next)?;
        let mut halve = effect == Some(Effect::Short);
        let (stored, offset) = apply_effect(effect, &mut buf[..len], self.next);
        let request_bytes = self.calls.bytes;
        let receipt = self.context.meter.issue(offset, stored as u64, stored.div_ceil(request_bytes) as u64);
        let mut written = 0;
        let mut result = Ok(());
        while written < stored && result.is_ok() {
            let some = next_bytes(stored - written, request_bytes, &mut halve);
            match self.calls.write(&self.context, &buf[written..written + some], offset + written as u64) {
                Ok(more) => written += more,
                Err(error) if self.context.has_space_now(&error) => {}
                Err(error) => result = Err(error),
            }
        }
        receipt.complete(written as u64);
        self.next += len as u64;
        result
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

/// Applies a fault that reports success: the bytes to store, and their offset.
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

impl WriteStream for SyncWrite {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<()> {
        self.check()?;
        if len > buf.len() {
            return Err(self.context.misuse(self.next, TOO_LONG));
        }
        if len == 0 {
            return Ok(());
        }
        self.append(buf, len).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn drain(&mut self) -> Result<()> {
        self.check()
    }

    fn sync(&mut self) -> Result<()> {
        self.check()?;
        self.context.sync(&self.calls.file, self.next)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.check()?;
        self.context.space.note(&self.calls.file);
        Ok(self.next)
    }
}
