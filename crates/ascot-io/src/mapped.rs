//! The mapped back-end: a window of the file mapped to memory, moved forward.
//!
//! Before a window is mapped, the length of the file is checked (reading) or its blocks are allocated (writing), so a
//! short file or a full volume is an error. If another process truncates the file while a window is mapped, the access
//! ends with SIGBUS, which cannot be caught. Files are therefore mapped only on request.

use std::fs::File;
use std::sync::Arc;

use crate::PAGE_BYTES;
use crate::backend::Access;
use crate::clocks::{State, call};
use crate::error::{Action, IoError};
use crate::memory::Mapping;
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

/// A file accessed through a window of whole pages.
pub(crate) struct Mapped {
    file: Arc<File>,
    window_bytes: usize,
    window: Option<Window>,
    /// The end of the range to read.
    end: u64,
    /// The end of the blocks allocated for writing.
    allocated: u64,
}

impl Mapped {
    /// A file to read from `start` to `end`, or to write from `start` on.
    pub(crate) fn new(file: Arc<File>, window_bytes: usize, start: u64, end: u64) -> Self {
        let window_bytes = window_bytes.clamp(PAGE_BYTES, 1 << 40).next_multiple_of(PAGE_BYTES);
        Self { file, window_bytes, window: None, end, allocated: start }
    }

    /// The window that contains `at`; `map` maps it unless it is the current one.
    fn window_at(
        &mut self,
        at: u64,
        map: impl FnOnce(&mut Self, u64) -> Result<Window, IoError>,
    ) -> Result<&mut Window, IoError> {
        let window = match self.window.take().filter(|window| (window.start..window.end()).contains(&at)) {
            Some(window) => window,
            None => map(self, at / PAGE * PAGE)?,
        };
        Ok(self.window.insert(window))
    }

    fn map(&self, context: &StreamContext, start: u64, bytes: usize, write: bool) -> Result<Window, IoError> {
        let mapping = Mapping::window(&self.file, start, bytes, write)
            .map_err(|errno| context.error(Action::Map, start, errno.into()))?;
        Ok(Window { mapping, start })
    }

    fn map_to_read(&mut self, context: &StreamContext, start: u64) -> Result<Window, IoError> {
        let wanted = (self.window_bytes as u64).min(self.end - start);
        let stat = self.file.metadata().map_err(|error| context.error(Action::Inspect, start, error))?;
        if stat.is_file() && stat.len() < start + wanted {
            return Err(context.truncated(stat.len(), self.end));
        }
        // Fits usize: no more than `window_bytes`.
        self.map(context, start, wanted as usize, false)
    }

    fn map_to_write(&mut self, context: &StreamContext, start: u64) -> Result<Window, IoError> {
        let bytes = self.window_bytes as u64;
        if start + bytes > self.allocated {
            system::allocate(&self.file, start, bytes)
                .map_err(|error| context.error(Action::Write, start, error).needing(bytes))?;
            self.allocated = start + bytes;
            context.space.note(&self.file);
        }
        self.map(context, start, self.window_bytes, true)
    }
}

impl Access for Mapped {
    fn request_bytes(&self) -> usize {
        self.window_bytes
    }

    fn read(&mut self, context: &StreamContext, to: &mut [u8], offset: u64) -> Result<usize, IoError> {
        let window = self.window_at(offset, |file, start| file.map_to_read(context, start))?;
        let bytes = to.len().min((window.end() - offset) as usize);
        let at = (offset - window.start) as usize;
        call(State::Device, || window.mapping.copy_out(at, &mut to[..bytes]));
        Ok(bytes)
    }

    fn write(&mut self, context: &StreamContext, from: &[u8], offset: u64) -> Result<usize, IoError> {
        let window = self.window_at(offset, |file, start| file.map_to_write(context, start))?;
        let bytes = from.len().min((window.end() - offset) as usize);
        let at = (offset - window.start) as usize;
        call(State::Device, || window.mapping.copy_in(at, &from[..bytes]));
        Ok(bytes)
    }

    fn trim(&mut self, context: &StreamContext, end: u64) -> Result<(), IoError> {
        self.window = None;
        if self.allocated > end {
            let cut = self.file.set_len(end);
            cut.map_err(|error| context.error(Action::Resize, end, error))?;
            self.allocated = end;
            context.space.note(&self.file);
        }
        Ok(())
    }
}
