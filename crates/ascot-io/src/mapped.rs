//! The mapped back-end: a window of the file mapped to memory, moved forward.
//!
//! Before a window is mapped the file's length is checked (reading) or its blocks are allocated
//! (writing), so that a short file or a full volume is an error. What cannot be caught is someone
//! else cutting the file while a window is mapped: that is SIGBUS, which is why nothing maps files
//! unless asked to.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use crate::PAGE_BYTES;
use crate::backend::{NOTHING_BEGUN, TOO_LONG, apply_effect};
use crate::buf::Buf;
use crate::error::{Action, IoError};
use crate::memory::Mapping;
use crate::stream::{Filled, ReadStream, WriteStream};
use crate::stream_context::StreamContext;
use crate::system;

const PAGE: u64 = PAGE_BYTES as u64;

/// A mapped window `[start, start + bytes)` of a file.
struct Window {
    mapping: Mapping,
    start: u64,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.mapping.bytes() as u64
    }
}

/// Whole pages, at least one.
pub(crate) fn window_bytes(asked: usize) -> usize {
    asked.clamp(PAGE_BYTES, 1 << 40).next_multiple_of(PAGE_BYTES)
}

/// Reads a range of a file through a mapped window.
pub(crate) struct MappedRead {
    context: StreamContext,
    file: Arc<File>,
    next: u64,
    end: u64,
    len: u64,
    window_bytes: usize,
    window: Option<Window>,
    done: VecDeque<Result<Filled, IoError>>,
}

impl MappedRead {
    pub(crate) fn new(context: StreamContext, file: Arc<File>, start: u64, end: u64, window: usize) -> Self {
        let window_bytes = window_bytes(window);
        let done = VecDeque::new();
        Self { context, file, next: start, end, len: end - start, window_bytes, window: None, done }
    }

    fn map(&self, at: u64) -> Result<Window, IoError> {
        let start = at / PAGE * PAGE;
        let wanted = (self.window_bytes as u64).min(self.end - start);
        let stat = self.file.metadata().map_err(|error| self.context.error(Action::Inspect, at, error))?;
        if stat.is_file() && stat.len() < start + wanted {
            return Err(self.context.truncated(stat.len(), self.end));
        }
        // Fits usize: no more than `window_bytes`.
        let mapping = Mapping::window(&self.file, start, wanted as usize, false)
            .map_err(|errno| self.context.error(Action::Map, at, errno.into()))?;
        Ok(Window { mapping, start })
    }

    fn fill(&mut self, mut buf: Buf) -> Result<Filled, IoError> {
        let wanted = usize::try_from(self.end - self.next).unwrap_or(usize::MAX).min(buf.len());
        if wanted == 0 {
            return Ok(Filled { buf, start: 0, end: 0 });
        }
        self.context.inject_fault(Action::Read, self.next)?;
        let windows = wanted.div_ceil(self.window_bytes) as u64;
        let receipt = self.context.meter.issue(self.next, wanted as u64, windows);
        let mut filled = 0;
        let result = loop {
            match self.copy(&mut buf[filled..wanted]) {
                Ok(more) => filled += more,
                Err(error) => break Err(error),
            }
            if filled == wanted {
                break Ok(());
            }
        };
        receipt.settle(filled as u64);
        result.map(|()| Filled { buf, start: 0, end: wanted })
    }

    /// Copies what one window has of the next bytes.
    fn copy(&mut self, to: &mut [u8]) -> Result<usize, IoError> {
        let window = match self.window.take().filter(|window| self.next < window.end()) {
            Some(window) => window,
            None => self.map(self.next)?,
        };
        let bytes = to.len().min((window.end() - self.next) as usize);
        window.mapping.copy_out((self.next - window.start) as usize, &mut to[..bytes]);
        self.next += bytes as u64;
        self.window = Some(window);
        Ok(bytes)
    }
}

impl ReadStream for MappedRead {
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

/// Writes a file forward through a mapped window.
pub(crate) struct MappedWrite {
    context: StreamContext,
    file: Arc<File>,
    next: u64,
    allocated: u64,
    window_bytes: usize,
    window: Option<Window>,
    failed: Option<IoError>,
}

impl MappedWrite {
    pub(crate) fn new(context: StreamContext, file: Arc<File>, start: u64, window: usize) -> Self {
        let window_bytes = window_bytes(window);
        Self { context, file, next: start, allocated: start, window_bytes, window: None, failed: None }
    }

    fn map(&mut self, at: u64) -> Result<Window, IoError> {
        let start = at / PAGE * PAGE;
        let end = start + self.window_bytes as u64;
        if end > self.allocated {
            system::allocate(&self.file, start, self.window_bytes as u64).map_err(|error| {
                self.context.error(Action::Write, at, error).needing(self.window_bytes as u64)
            })?;
            self.allocated = end;
            self.context.space.note(&self.file);
        }
        let mapping = Mapping::window(&self.file, start, self.window_bytes, true)
            .map_err(|errno| self.context.error(Action::Map, at, errno.into()))?;
        Ok(Window { mapping, start })
    }

    fn append(&mut self, mut buf: Buf, len: usize) -> Result<(), IoError> {
        let effect = self.context.inject_fault(Action::Write, self.next)?;
        let (stored, offset) = apply_effect(effect, &mut buf[..len], self.next);
        let windows = stored.div_ceil(self.window_bytes) as u64;
        let receipt = self.context.meter.issue(offset, stored as u64, windows);
        let mut copied = 0;
        let mut result = Ok(());
        while copied < stored && result.is_ok() {
            match self.copy(&buf[copied..stored], offset + copied as u64) {
                Ok(more) => copied += more,
                Err(error) => result = Err(error),
            }
        }
        receipt.settle(copied as u64);
        self.next += len as u64;
        result
    }

    /// Copies as much as one window takes.
    fn copy(&mut self, from: &[u8], at: u64) -> Result<usize, IoError> {
        let kept = self.window.take().filter(|window| (window.start..window.end()).contains(&at));
        let mut window = match kept {
            Some(window) => window,
            None => self.map(at)?,
        };
        let bytes = from.len().min((window.end() - at) as usize);
        window.mapping.copy_in((at - window.start) as usize, &from[..bytes]);
        self.window = Some(window);
        Ok(bytes)
    }

    fn check(&self) -> Result<(), IoError> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn trim(&mut self) -> Result<(), IoError> {
        self.window = None;
        if self.allocated > self.next {
            let cut = self.file.set_len(self.next);
            cut.map_err(|error| self.context.error(Action::Resize, self.next, error))?;
            self.allocated = self.next;
            self.context.space.note(&self.file);
        }
        Ok(())
    }
}

impl WriteStream for MappedWrite {
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
        self.trim()?;
        self.context.inject_fault(Action::Sync, self.next)?;
        let synced = self.context.waiting(|| self.file.sync_data());
        synced.map_err(|error| self.context.error(Action::Sync, self.next, error))
    }

    fn finish(mut self: Box<Self>) -> Result<u64, IoError> {
        self.check()?;
        self.trim()?;
        Ok(self.next)
    }
}

impl Drop for MappedWrite {
    fn drop(&mut self) {
        // A stream given up: whoever gave it up has reported why; the file keeps what was written.
        let _ = self.trim();
    }
}
