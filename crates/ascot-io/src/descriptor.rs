//! One open descriptor of a file, read at any offset through an I/O queue, by several threads at once.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::direct::QueuedFile;
use crate::error::{Action, IoError};
use crate::fault_hook::Effect;
use crate::io_queue::{IoQueue, Ticket};
use crate::ledger::Direction;
use crate::stream::Filled;
use crate::sync::Unpoisoned;

const PAGE: u64 = PAGE_BYTES as u64;

/// Bytes of the whole pages that contain `len` bytes at `offset`: the size of a buffer for them.
pub(crate) fn pages_of(offset: u64, len: u64) -> u64 {
    (offset % PAGE + len).next_multiple_of(PAGE)
}

/// An open descriptor.
///
/// Invariant: reads request whole pages, so that O_DIRECT stays on.
pub(crate) struct Descriptor {
    base: Arc<Mutex<QueuedFile>>,
    queue: IoQueue,
    file: Arc<File>,
    device: u64,
    direct: bool,
    /// The size of the file when it was opened.
    bytes: u64,
}

/// A read that has begun.
pub struct PendingRead {
    base: Arc<Mutex<QueuedFile>>,
    ticket: Ticket,
    /// The requested bytes within the buffer.
    start: usize,
    end: usize,
    /// The buffer's offset in the file.
    at: u64,
}

impl Descriptor {
    pub(crate) fn new(base: QueuedFile, device: u64, bytes: u64) -> Self {
        let queue = base.queue.clone();
        let file = Arc::clone(&base.file);
        let direct = base.direct;
        Self { base: Arc::new(Mutex::new(base)), queue, file, device, direct, bytes }
    }

    /// Whether reads go past the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// The file itself, for metadata calls.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The size of the file when it was opened.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device of the file.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// Begins a read of `len` bytes at `offset`; `buf` holds the [pages](pages_of) that contain them.
    pub(crate) fn begin(&self, offset: u64, len: usize, buf: Buf) -> Result<PendingRead, IoError> {
        let pages = pages_of(offset, len as u64) as usize;
        let at = offset - offset % PAGE;
        let start = (offset - at) as usize;
        let mut base = lock(&self.base);
        let effect = base.context.inject_fault(Action::Read, at)?;
        if buf.len() < pages {
            return Err(base.context.misuse(offset, "a buffer is smaller than what is read into it"));
        }
        let request = base.request(Direction::Read, buf, at, pages, effect == Some(Effect::Short))?;
        drop(base);
        let ticket = self.queue.submit(request);
        Ok(PendingRead { base: Arc::clone(&self.base), ticket, start, end: start + len, at })
    }
}

fn lock(base: &Mutex<QueuedFile>) -> MutexGuard<'_, QueuedFile> {
    base.lock().unpoisoned()
}

impl PendingRead {
    /// Whether [`complete`](Self::complete) would not wait.
    pub(crate) fn is_finished(&self) -> bool {
        self.ticket.is_finished()
    }

    /// Waits for the bytes. Fewer bytes than requested are an error.
    ///
    /// # Errors
    /// A failed read, or a file that ends early.
    pub fn complete(self) -> Result<Filled, IoError> {
        let Self { base, ticket, start, end, at } = self;
        let (buf, moved) = ticket.wait();
        let context = &lock(&base).context;
        let moved = moved.map_err(|error| context.error(Action::Read, at, error))?;
        match buf {
            Some(buf) if moved >= end => Ok(Filled { buf, start, end }),
            _ => Err(context.truncated(at + moved as u64, at + end as u64)),
        }
    }
}
