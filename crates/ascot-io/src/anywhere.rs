//! A file that is read here and there, by several at a time, through one descriptor.
//!
//! Streams read forward, and each opens its file. Where bytes are wanted at places nobody can foretell,
//! a file stays open instead, and as many requests are in flight as the queue takes:
//!
//! ```text
//!   begin(70_000, 100) -> Asked a      begin(5_000_000, 4096) -> Asked b       in any order, from any thread
//!   a.complete()                       b.complete()                            each waits for its own
//! ```
//!
//! Invariant: only whole pages are asked for, so that O_DIRECT stays on, whoever else uses the descriptor.

use std::fs::File;
use std::sync::{Arc, Mutex};

use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::error::{Action, IoError};
use crate::fault_hook::Effect;
use crate::io_queue::{IoQueue, Request, Ticket, part_count};
use crate::ledger::{Direction, Receipt};
use crate::stream::Filled;
use crate::stream_context::StreamContext;
use crate::sync::Unpoisoned;

const PAGE: u64 = PAGE_BYTES as u64;

/// Bytes of the whole pages that `len` bytes at `offset` lie in: what a buffer for them must hold.
pub(crate) fn pages_of(offset: u64, len: u64) -> u64 {
    (offset % PAGE + len).next_multiple_of(PAGE)
}

/// A file, open for reading at any place.
pub struct Anywhere {
    context: Mutex<StreamContext>,
    queue: IoQueue,
    file: Arc<File>,
    device: u64,
    direct: bool,
    request_bytes: usize,
}

/// A read that has begun.
pub(crate) struct Asked {
    ticket: Ticket,
    /// Where the wanted bytes are in the buffer.
    start: usize,
    end: usize,
    /// Where the buffer is in the file.
    at: u64,
}

impl Anywhere {
    pub(crate) fn new(
        context: StreamContext,
        (queue, device): (IoQueue, u64),
        file: File,
        direct: bool,
        request_bytes: usize,
    ) -> Self {
        Self { context: Mutex::new(context), queue, file: Arc::new(file), device, direct, request_bytes }
    }

    /// The device it is on.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    fn context(&self) -> std::sync::MutexGuard<'_, StreamContext> {
        self.context.lock().unpoisoned()
    }

    /// Whether it is read past the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// The file itself, for questions to the system.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Asks for `len` bytes at `offset`; `buf` holds the [pages](pages_of) they lie in.
    pub(crate) fn begin(&self, offset: u64, len: usize, buf: Buf) -> Result<Asked, IoError> {
        let pages = pages_of(offset, len as u64) as usize;
        let at = offset - offset % PAGE;
        let (halve, receipt) = self.meter(at, pages)?;
        if buf.len() < pages {
            return Err(self.context().misuse(offset, "a buffer is smaller than what is read into it"));
        }
        let start = (offset - at) as usize;
        let ticket = self.queue.submit(Request {
            file: Arc::clone(&self.file),
            direction: Direction::Read,
            buf,
            len: pages,
            offset: at,
            part_bytes: self.request_bytes,
            direct: self.direct,
            halve,
            receipt,
        });
        Ok(Asked { ticket, start, end: start + len, at })
    }

    fn meter(&self, at: u64, pages: usize) -> Result<(bool, Receipt), IoError> {
        let mut context = self.context();
        let effect = context.inject_fault(Action::Read, at)?;
        let parts = part_count(pages, self.request_bytes) as u64;
        Ok((effect == Some(Effect::Short), context.meter.issue(at, pages as u64, parts)))
    }

    /// Waits for what was asked for. Fewer bytes than that are an error.
    pub(crate) fn complete(&self, asked: Asked) -> Result<Filled, IoError> {
        let Asked { ticket, start, end, at } = asked;
        let since = std::time::Instant::now();
        let (buf, moved) = ticket.wait();
        let context = self.context();
        context.meter.waited(since.elapsed());
        let moved = moved.map_err(|error| context.error(Action::Read, at, error))?;
        match buf {
            Some(buf) if moved >= end => Ok(Filled { buf, start, end }),
            _ => Err(context.truncated(at + moved as u64, at + end as u64)),
        }
    }
}

impl Asked {
    /// Whether completing it would not wait.
    pub(crate) fn is_finished(&self) -> bool {
        self.ticket.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Buf, Disk, Pool};

    #[test]
    fn any_bytes_at_any_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = Disk::default().open_anywhere(&path, "test").unwrap();
        let pool = Pool::new(8 << 20);
        let places = [(2_999_990, 11), (0, 1), (4095, 2), (4096, 4096), (1_000_001, 1_500_000)];
        let asked: Vec<_> = places
            .iter()
            .map(|&(at, len)| {
                let pages = super::pages_of(at as u64, len as u64) as usize;
                file.begin(at as u64, len, pool.region(pages, "a test").unwrap()).unwrap()
            })
            .collect();
        for (asked, (at, len)) in asked.into_iter().zip(places).rev() {
            assert_eq!(file.complete(asked).unwrap().bytes(), &bytes[at..at + len]);
        }
        let beyond = file.begin(2_999_990, 12, Buf::heap(8192)).unwrap();
        assert!(file.complete(beyond).is_err());
        assert!(file.begin(4095, 2, Buf::heap(4096)).is_err());
    }
}
