//! Blocks that are windows of the file, mapped to memory: mapped streams.
//!
//! A window begins at any byte, a mapping at a page. The mapping therefore starts at the page before:
//!
//! ```text
//!   file      |------- page -------|------- page -------|
//!   mapping   |=========================================|
//!   window               |###########|                       start..end within the mapping
//! ```
//!
//! Before a window is mapped, the length of the file is checked (reading) or its blocks are allocated (writing), so a
//! short file and a full volume are errors instead of signals.

use std::fs::File;
use std::ops::Range;

use super::blocks::{PAST_THE_END, Sink, Source};
use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::clocks::{State, call};
use crate::error::{Action, IoError, Result};
use crate::memory::Mapping;
use crate::stream_context::StreamContext;
use crate::system;

const PAGE: u64 = PAGE_BYTES as u64;
/// Space is allocated in steps as long as the file so far, up to this many bytes, or a window: few calls for many small
/// windows, and little to cut off again for a short file.
const MAX_STEP_BYTES: u64 = 1 << 20;

/// Maps `[at, at + bytes)`; returns the mapping as a block, and the window within it.
fn map(
    context: &StreamContext,
    file: &File,
    at: u64,
    bytes: usize,
    write: bool,
) -> Result<(Buf, Range<usize>)> {
    let start = (at % PAGE) as usize;
    let mapped = (start + bytes).next_multiple_of(PAGE_BYTES);
    let mapping = call(State::Device, || Mapping::window(file, at - start as u64, mapped, write));
    let mapping = mapping.map_err(|errno| context.error(Action::Map, at, errno.into()))?;
    Ok((Buf::from_mapping(mapping, None), start..start + bytes))
}

/// The windows of a file that is read.
pub(super) struct WindowsToRead {
    context: StreamContext,
    file: File,
    window_bytes: usize,
    next: u64,
    end: u64,
    requests: u64,
}

impl WindowsToRead {
    /// Reads `[0, end)` through windows of `window_bytes`.
    pub(super) fn new(context: StreamContext, file: File, window_bytes: usize, end: u64) -> Self {
        Self { context, file, window_bytes, next: 0, end, requests: 0 }
    }
}

impl Source for WindowsToRead {
    fn next_block(&mut self, block: &mut Buf) -> Result<Range<usize>> {
        self.context.inject_fault(Action::Map, self.next)?;
        let wanted = usize::try_from(self.end - self.next).unwrap_or(usize::MAX).min(self.window_bytes);
        let stat =
            self.file.metadata().map_err(|error| self.context.error(Action::Inspect, self.next, error))?;
        if stat.len() < self.next + wanted as u64 {
            return Err(self.context.truncated(stat.len(), self.end));
        }
        let (window, range) = map(&self.context, &self.file, self.next, wanted, false)?;
        *block = window;
        self.next += wanted as u64;
        self.requests += 1;
        Ok(range)
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn past_the_end(&self) -> IoError {
        self.context.misuse(self.next, PAST_THE_END)
    }
}

/// The windows of a file that is written.
pub(super) struct WindowsToWrite {
    context: StreamContext,
    file: File,
    window_bytes: usize,
    next: u64,
    allocated: u64,
    requests: u64,
}

impl WindowsToWrite {
    /// Writes from offset 0 on through windows of `window_bytes`.
    pub(super) fn new(context: StreamContext, file: File, window_bytes: usize) -> Self {
        Self { context, file, window_bytes, next: 0, allocated: 0, requests: 0 }
    }

    /// Allocates the pages that the next window covers.
    fn allocate(&mut self) -> Result<()> {
        let end = self.next + self.window_bytes as u64;
        if end <= self.allocated {
            return Ok(());
        }
        let exact = end.next_multiple_of(PAGE) - self.allocated;
        let step = self.allocated.min(MAX_STEP_BYTES).max(exact);
        let allocated = match system::allocate(&self.file, self.allocated, step) {
            Ok(()) => step,
            // The space may suffice for the window alone. A failed allocation may have extended the file, which is
            // cut off again; all bytes written lie before it.
            Err(_) => {
                let alone = system::allocate(&self.file, self.allocated, exact);
                let end = self.allocated + if alone.is_ok() { exact } else { 0 };
                let cut = self.file.set_len(end);
                alone.map_err(|error| self.context.error(Action::Write, self.next, error).needing(exact))?;
                cut.map_err(|error| self.context.error(Action::Resize, end, error))?;
                exact
            }
        };
        self.allocated += allocated;
        self.context.space.note(&self.file);
        Ok(())
    }

    fn trim(&mut self) -> Result<()> {
        if self.allocated > self.next {
            let cut = self.file.set_len(self.next);
            cut.map_err(|error| self.context.error(Action::Resize, self.next, error))?;
            self.allocated = self.next;
        }
        self.context.space.note(&self.file);
        Ok(())
    }
}

impl Sink for WindowsToWrite {
    fn next_block(&mut self, block: &mut Buf) -> Result<Range<usize>> {
        self.context.inject_fault(Action::Map, self.next)?;
        self.allocate()?;
        let (window, range) = map(&self.context, &self.file, self.next, self.window_bytes, true)?;
        *block = window;
        self.requests += 1;
        Ok(range)
    }

    fn put(&mut self, _block: &mut Buf, filled: Range<usize>) -> Result<()> {
        self.next += filled.len() as u64;
        Ok(())
    }

    fn close(&mut self, durable: bool) -> Result<u64> {
        self.trim()?;
        if durable {
            self.context.sync(&self.file, self.next)?;
        }
        Ok(self.next)
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}

impl Drop for WindowsToWrite {
    fn drop(&mut self) {
        // The stream is dropped unfinished: the caller has reported why, and the file keeps the bytes written.
        let _ = self.trim();
    }
}
