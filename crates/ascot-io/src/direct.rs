//! The direct back-end: files whose requests an [`IoQueue`] performs, past the page cache if possible. A file is read
//! or written forward ([`DirectRead`], [`DirectWrite`]), or read at any offset by several threads at once
//! ([`Descriptor`]).
//!
//! O_DIRECT needs memory, offset and length on block boundaries. A request that is not aligned (an odd buffer, the
//! last bytes of a file) turns O_DIRECT off for the rest of the stream and goes through the page cache, by the same
//! descriptor and queue. A read that does not start on a boundary starts at the boundary before it and skips the
//! bytes in between (`Filled::start`).
//!
//! Space is allocated ahead of the data, in steps, because writes inside the length of a file overlap and writes that
//! extend it do not. The [space reservation](crate::space_reservation) of all files limits the size of a step.
//! `sync`, `finish` and drop trim the excess.
//!
//! ```text
//!   file  |== written ==|== in flight ==|.. allocated ahead ..|
//!                                       next                  allocated
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::PAGE_BYTES;
use crate::backend::{NOTHING_BEGUN, TOO_LONG, apply_effect};
use crate::buf::Buf;
use crate::error::{Action, IoError, Result, nothing_written};
use crate::io_queue::{IoQueue, Request, Ticket, part_count};
use crate::ledger::Direction;
use crate::space_reservation::WriterShare;
use crate::stream::{Filled, ReadStream, WriteStream};
use crate::stream_context::{Effect, StreamContext};
use crate::sync::Unpoisoned;
use crate::system::{self, device_of};

const PAGE: u64 = PAGE_BYTES as u64;

/// Bounds of one step of allocating ahead; between them, a step is as long as the file so far. Most part files and
/// runs need only the first two or three steps.
const MIN_AHEAD_BYTES: u64 = 64 << 20;
const MAX_AHEAD_BYTES: u64 = 1 << 30;
/// The share of a volume's free space one step may take.
const AHEAD_FREE_SHARE: u64 = 16;
/// If a volume does not allocate ahead, a file's blocks are counted each time it has grown by this many bytes.
const NOTED_BYTES: u64 = 8 << 20;

/// The state that reading and writing share.
pub(crate) struct QueuedFile {
    pub(crate) context: StreamContext,
    pub(crate) queue: IoQueue,
    pub(crate) file: Arc<File>,
    /// O_DIRECT is on.
    pub(crate) direct: bool,
    pub(crate) request_bytes: usize,
}

impl QueuedFile {
    fn must_leave_direct(&self, buf: &Buf, offset: u64, len: usize) -> bool {
        let aligned = buf.is_aligned_to(PAGE_BYTES) && len.is_multiple_of(PAGE_BYTES);
        self.direct && !(aligned && offset.is_multiple_of(PAGE))
    }

    /// Builds the request for a transfer of `len` bytes and counts it from now on; `halve` makes its first system call
    /// move half of them.
    pub(crate) fn request(
        &mut self,
        direction: Direction,
        buf: Buf,
        offset: u64,
        len: usize,
        halve: bool,
    ) -> Result<Request> {
        if self.must_leave_direct(&buf, offset, len) {
            system::leave_direct(&self.file)
                .map_err(|error| self.context.error(Action::Inspect, offset, error))?;
            self.direct = false;
        }
        let parts = part_count(len, self.request_bytes) as u64;
        let receipt = self.context.meter.issue(offset, len as u64, parts);
        Ok(Request {
            file: Arc::clone(&self.file),
            direction,
            buf,
            len,
            offset,
            part_bytes: self.request_bytes,
            direct: self.direct,
            halve,
            receipt: Some(receipt),
        })
    }
}

/// Reads a range of a file through an I/O queue.
pub(crate) struct DirectRead {
    base: QueuedFile,
    next: u64,
    end: u64,
    len: u64,
    begun: VecDeque<Begun>,
}

enum Begun {
    /// `wanted` bytes from `at`, the first `skip` of them before the range.
    Asked {
        ticket: Ticket,
        at: u64,
        skip: usize,
        wanted: usize,
    },
    End(Buf),
    Failed(IoError),
}

impl DirectRead {
    pub(crate) fn new(base: QueuedFile, start: u64, end: u64) -> Self {
        Self { base, next: start, end, len: end - start, begun: VecDeque::new() }
    }

    fn ask(&mut self, buf: Buf) -> Result<Begun> {
        if self.next >= self.end || buf.is_empty() {
            return Ok(Begun::End(buf));
        }
        let effect = self.base.context.inject_fault(Action::Read, self.next)?;
        let whole_pages = buf.len().is_multiple_of(PAGE_BYTES) && buf.is_aligned_to(PAGE_BYTES);
        let direct = self.base.direct && whole_pages;
        let skip = if direct { (self.next % PAGE) as usize } else { 0 };
        let at = self.next - skip as u64;
        let wanted = usize::try_from(self.end - at).unwrap_or(usize::MAX).min(buf.len());
        // Reads past the range's end, up to the page; the buffer has whole pages, so it holds them.
        let asked = if direct { wanted.next_multiple_of(PAGE_BYTES) } else { wanted };
        self.next = at + wanted as u64;
        let request = self.base.request(Direction::Read, buf, at, asked, effect == Some(Effect::Short))?;
        let ticket = self.base.queue.submit(request);
        Ok(Begun::Asked { ticket, at, skip, wanted })
    }
}

impl ReadStream for DirectRead {
    fn begin(&mut self, buf: Buf) -> Result<()> {
        let begun = self.ask(buf).unwrap_or_else(Begun::Failed);
        self.begun.push_back(begun);
        Ok(())
    }

    fn complete(&mut self) -> Result<Filled> {
        let context = &self.base.context;
        match self.begun.pop_front() {
            None => Err(context.misuse(self.next, NOTHING_BEGUN)),
            Some(Begun::Failed(error)) => Err(error),
            Some(Begun::End(buf)) => Ok(Filled { buf, start: 0, end: 0 }),
            Some(Begun::Asked { ticket, at, skip, wanted }) => {
                let (buf, moved) = ticket.wait();
                let moved = moved.map_err(|error| context.error(Action::Read, at, error))?;
                match buf {
                    Some(buf) if moved >= wanted => Ok(Filled { buf, start: skip, end: wanted }),
                    _ => Err(context.truncated(at + moved as u64, self.end)),
                }
            }
        }
    }

    fn ready(&mut self) -> bool {
        match self.begun.front() {
            Some(Begun::Asked { ticket, .. }) => ticket.is_finished(),
            Some(Begun::End(_) | Begun::Failed(_)) => true,
            None => false,
        }
    }

    fn in_flight(&self) -> usize {
        self.begun.len()
    }

    fn len_hint(&self) -> Option<u64> {
        Some(self.len)
    }

    fn channel(&self) -> Option<u64> {
        self.base.file.metadata().ok().map(|stat| device_of(&stat))
    }
}

/// Bytes of the whole pages that contain `len` bytes at `offset`: the size of a buffer for them.
pub(crate) fn pages_of(offset: u64, len: u64) -> u64 {
    (offset % PAGE + len).next_multiple_of(PAGE)
}

/// One open descriptor of a file, read at any offset, by several threads at once.
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
    pub(crate) fn begin(&self, offset: u64, len: usize, buf: Buf) -> Result<PendingRead> {
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
    pub fn complete(self) -> Result<Filled> {
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

/// Whether space is allocated ahead of the data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// In steps, if the volume can.
    Ahead,
    /// Each write extends the file.
    None,
}

/// Writes a file forward through an I/O queue.
pub(crate) struct DirectWrite {
    base: QueuedFile,
    next: u64,
    /// The file's length, with the bytes allocated ahead.
    allocated: u64,
    /// The share of the space that may be allocated ahead; none if nothing is, or once the volume has refused to.
    share: Option<WriterShare>,
    begun: VecDeque<(Ticket, u64, usize)>,
    failed: Option<IoError>,
}

impl DirectWrite {
    pub(crate) fn new(base: QueuedFile, start: u64, allocation: Allocation) -> Self {
        let allocates = base.direct && allocation == Allocation::Ahead;
        let share = allocates.then(|| base.context.space.writer());
        Self { base, next: start, allocated: start, share, begun: VecDeque::new(), failed: None }
    }

    /// Free bytes on the volume; 0 if unknown.
    pub(crate) fn free_space(&self) -> u64 {
        system::free_space_of(&self.base.file).unwrap_or(0)
    }

    fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn keep<T>(&mut self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            self.failed.get_or_insert_with(|| error.clone());
        })
    }

    /// Completes the oldest request: waits for it, or only if it has finished.
    fn finish_oldest(&mut self, wait: bool) -> Result<bool> {
        let Some((ticket, ..)) = self.begun.front() else { return Ok(false) };
        if !wait && !ticket.is_finished() {
            return Ok(false);
        }
        let Some((ticket, at, len)) = self.begun.pop_front() else { return Ok(false) };
        let context = &self.base.context;
        let (_buf, moved) = ticket.wait();
        let result = match moved {
            Ok(moved) if moved == len => Ok(true),
            Ok(_) => Err(context.error(Action::Write, at, nothing_written())),
            Err(error) => Err(context.error(Action::Write, at, error).needing(len as u64)),
        };
        self.keep(result)
    }

    /// Allocates the file up to `end`, and some bytes ahead. A volume that cannot allocate is not an error:
    /// the write itself extends the file and reports a full volume.
    fn allocate(&mut self, end: u64) {
        if self.share.is_none() && self.next / NOTED_BYTES != end / NOTED_BYTES {
            self.base.context.space.note(&self.base.file);
        }
        if let Some(share) = self.share.take_if(|_| end > self.allocated) {
            self.share = self.try_allocate(end, &share).is_ok().then_some(share);
        }
    }

    fn try_allocate(&mut self, end: u64, share: &WriterShare) -> io::Result<()> {
        let free = system::free_space_of(&self.base.file).unwrap_or(0);
        let wanted = self.next.clamp(MIN_AHEAD_BYTES, MAX_AHEAD_BYTES).min(free / AHEAD_FREE_SHARE);
        let from = self.allocated;
        let needed = end.next_multiple_of(PAGE);
        let data = needed.saturating_sub(from);
        share.wait_for_removals(data);
        let until = needed + share.ahead(wanted, data) / PAGE * PAGE;
        let mut result = system::allocate(&self.base.file, from, until - from).map(|()| until);
        if result.is_err() {
            // The space left may suffice without allocating ahead. The failed allocation is cut off again; all bytes
            // written lie before it.
            let allocate_data = || system::allocate(&self.base.file, from, needed - from).map(|()| needed);
            result = allocate_data();
            if result.as_ref().is_err_and(is_full) && self.base.context.space.outlast_removals() {
                result = allocate_data();
            }
            self.base.file.set_len(*result.as_ref().unwrap_or(&from))?;
        }
        self.allocated = *result.as_ref().unwrap_or(&from);
        self.base.context.space.note(&self.base.file);
        result.map(|_| ())
    }

    fn submit(&mut self, buf: Buf, offset: u64, len: usize, halve: bool) -> Result<()> {
        if self.base.must_leave_direct(&buf, offset, len) {
            // Requests still queued would go through the page cache with it.
            self.drain()?;
        }
        let request = self.base.request(Direction::Write, buf, offset, len, halve)?;
        let ticket = self.base.queue.submit(request);
        self.begun.push_back((ticket, offset, len));
        Ok(())
    }

    fn append(&mut self, mut buf: Buf, len: usize) -> Result<()> {
        let effect = self.base.context.inject_fault_of_write(self.next)?;
        let halve = effect == Some(Effect::Short);
        let (stored, offset) = apply_effect(effect, &mut buf[..len], self.next);
        self.allocate(offset.max(self.next) + len as u64);
        let whole = stored / PAGE_BYTES * PAGE_BYTES;
        let splits = self.base.direct && whole > 0 && whole < stored;
        let tail = splits.then(|| buf.split_off(whole));
        let head_len = if splits { whole } else { stored };
        self.submit(buf, offset, head_len, halve)?;
        if let Some(tail) = tail {
            self.submit(tail, offset + whole as u64, stored - whole, false)?;
        }
        self.next += len as u64;
        Ok(())
    }

    fn trim(&mut self) -> Result<()> {
        if self.allocated > self.next {
            let cut = self.base.file.set_len(self.next);
            let cut = cut.map_err(|error| self.base.context.error(Action::Resize, self.next, error));
            self.keep(cut)?;
            self.allocated = self.next;
        }
        self.base.context.space.note(&self.base.file);
        Ok(())
    }
}

/// Whether a volume or a quota is full.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

impl WriteStream for DirectWrite {
    fn channel(&self) -> Option<u64> {
        self.base.file.metadata().ok().map(|stat| device_of(&stat))
    }

    fn begin(&mut self, buf: Buf, len: usize) -> Result<()> {
        self.check()?;
        while self.finish_oldest(false)? {}
        if len > buf.len() {
            return Err(self.base.context.misuse(self.next, TOO_LONG));
        }
        if len == 0 {
            return Ok(());
        }
        let result = self.append(buf, len);
        self.keep(result)
    }

    fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.check()?;
        let end = self.next + bytes;
        let Some(share) = self.share.take_if(|_| end > self.allocated) else { return Ok(()) };
        let allocated = self.try_allocate(end, &share);
        let full = allocated.as_ref().is_err_and(is_full);
        self.share = (allocated.is_ok() || full).then_some(share);
        match allocated {
            Err(error) if full => {
                Err(self.base.context.error(Action::Write, self.next, error).needing(bytes))
            }
            _ => Ok(()),
        }
    }

    fn in_flight(&mut self) -> usize {
        // Failures are kept and returned by the next call.
        while self.finish_oldest(false).is_ok_and(|finished| finished) {}
        self.begun.len()
    }

    fn complete(&mut self) -> Result<()> {
        let _ = self.finish_oldest(true);
        self.check()
    }

    fn drain(&mut self) -> Result<()> {
        while !self.begun.is_empty() {
            // The error is kept in `failed`; the other requests are still waited for.
            let _ = self.finish_oldest(true);
        }
        self.check()
    }

    fn sync(&mut self) -> Result<()> {
        self.drain()?;
        self.trim()?;
        let synced = self.base.context.sync(&self.base.file, self.next);
        self.keep(synced)
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.drain()?;
        self.trim()?;
        Ok(self.next)
    }
}

impl Drop for DirectWrite {
    fn drop(&mut self) {
        // The stream is dropped unfinished: the caller has reported why, and the file keeps the bytes written.
        let _ = self.drain();
        let _ = self.trim();
    }
}
