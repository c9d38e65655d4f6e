//! A transfer on its way through the queue: it is cut into parts, each part moves its bytes, and the last one finishes
//! the ticket.
//!
//! Invariants: as in the [queue](super): a transfer owns its buffer until its last part has ended, the parts do not
//! overlap, and each part ends exactly once.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use crate::buf::Buf;
use crate::clocks::{self, State, count};
use crate::ledger::{Direction, Receipt};
use crate::sync::Unpoisoned;
use crate::waits::{Need, wait_for};
use crate::{PAGE_BYTES, SECTOR_BYTES};

/// Retries of a part that the kernel keeps postponing.
const PATIENCE: u32 = 10_000;

/// Bytes to move between a buffer and a file.
pub(crate) struct Request {
    pub(crate) file: Arc<File>,
    pub(crate) direction: Direction,
    /// The memory; `len` bytes from its start are moved.
    pub(crate) buf: Buf,
    pub(crate) len: usize,
    pub(crate) offset: u64,
    /// Largest part.
    pub(crate) part_bytes: usize,
    /// True for O_DIRECT: a result off a sector boundary then means the file's end.
    pub(crate) direct: bool,
    /// Makes the first system call move half of its bytes.
    pub(crate) halve: bool,
    /// `None`: no ledger counts it.
    pub(crate) receipt: Option<Receipt>,
}

/// The number of parts of a transfer of `len` bytes.
pub(crate) fn part_count(len: usize, part_bytes: usize) -> usize {
    len.div_ceil(whole_pages(part_bytes)).max(1)
}

fn whole_pages(part_bytes: usize) -> usize {
    part_bytes.clamp(PAGE_BYTES, 1 << 30) / PAGE_BYTES * PAGE_BYTES
}

impl Request {
    pub(super) fn into_parts(self) -> (Ticket, Vec<Part>) {
        let part_bytes = whole_pages(self.part_bytes);
        let len = self.len.min(self.buf.len());
        let count = part_count(len, part_bytes);
        let start = self.buf.start();
        let progress = Progress {
            buf: Some(self.buf),
            receipt: self.receipt,
            open_parts: count,
            moved: len,
            error: None,
        };
        let transfer = Arc::new(Transfer {
            file: self.file,
            direction: self.direction,
            start,
            offset: self.offset,
            direct: self.direct,
            progress: Mutex::new(progress),
            finished: Condvar::new(),
        });
        let part = |number: usize| {
            let at = number * part_bytes;
            let len = part_bytes.min(len - at);
            let halve = self.halve && number == 0;
            Part { transfer: Arc::clone(&transfer), at, len, done: 0, delays: 0, halve, closed: false }
        };
        let parts = (0..count).map(part).collect();
        (Ticket { transfer }, parts)
    }
}

/// The state shared by a ticket and the parts.
pub(super) struct Transfer {
    pub(super) file: Arc<File>,
    direction: Direction,
    start: NonNull<u8>,
    offset: u64,
    direct: bool,
    progress: Mutex<Progress>,
    finished: Condvar,
}

struct Progress {
    buf: Option<Buf>,
    receipt: Option<Receipt>,
    open_parts: usize,
    /// Length of the prefix that moved without a gap.
    moved: usize,
    error: Option<io::Error>,
}

// SAFETY: `start` points into `progress.buf`, which is owned by the transfer and given out only after
// the last part has ended; until then each part alone uses its range.
#[expect(unsafe_code, reason = "the parts of a transfer share one buffer")]
unsafe impl Send for Transfer {}
// SAFETY: as above; the mutex guards everything else.
#[expect(unsafe_code, reason = "the parts of a transfer share one buffer")]
unsafe impl Sync for Transfer {}

impl Transfer {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unpoisoned()
    }
}

/// Moves a part completely on the calling thread.
pub(super) fn perform(part: Part) {
    let mut next = Some(part);
    while let Some(part) = next {
        let result = clocks::call(State::Device, || system_call(&part));
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            thread::yield_now();
        }
        next = part.record(result);
    }
}

/// Reads or writes once; says how many bytes moved.
#[expect(unsafe_code, reason = "the system writes to a part of a shared buffer")]
fn system_call(part: &Part) -> io::Result<usize> {
    let offset =
        libc::off_t::try_from(part.offset()).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    let (memory, len) = part.memory();
    let fd = part.transfer.file.as_raw_fd();
    // SAFETY: the part's memory is valid for `len` bytes and of no other thread until it ends; the
    // descriptor is open as long as the part holds the file.
    let moved = unsafe {
        match part.direction() {
            Direction::Read => libc::pread(fd, memory.cast(), len, offset),
            Direction::Write => libc::pwrite(fd, memory.cast(), len, offset),
        }
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// A part of a transfer on its way through the queue.
pub(super) struct Part {
    pub(super) transfer: Arc<Transfer>,
    at: usize,
    len: usize,
    done: usize,
    delays: u32,
    halve: bool,
    closed: bool,
}

impl Part {
    pub(super) fn direction(&self) -> Direction {
        self.transfer.direction
    }

    /// The file offset at which to continue.
    pub(super) fn offset(&self) -> u64 {
        self.transfer.offset + (self.at + self.done) as u64
    }

    /// The memory still to move: address and length. Until the part ends, the memory lives and is used by this part
    /// only.
    #[expect(unsafe_code, reason = "the parts of a transfer share one buffer")]
    pub(super) fn memory(&self) -> (*mut u8, usize) {
        let rest = self.len - self.done;
        let half = rest / 2 / PAGE_BYTES * PAGE_BYTES;
        let len = if self.halve && half > 0 { half } else { rest };
        // SAFETY: `at + done <= at + len <= ` the buffer's length.
        let start = unsafe { self.transfer.start.add(self.at + self.done) };
        (start.as_ptr(), len)
    }

    /// Records a system call's result; returns the part if bytes remain.
    pub(super) fn record(mut self, result: io::Result<usize>) -> Option<Self> {
        self.halve = false;
        match result {
            Ok(moved) => self.advance(moved),
            Err(error) if is_delay(&error) && self.delays < PATIENCE => {
                self.delays += 1;
                Some(self)
            }
            Err(error) => {
                self.close(Some(error));
                None
            }
        }
    }

    fn advance(mut self, moved: usize) -> Option<Self> {
        let rest = self.len - self.done;
        let cut = if self.transfer.direct { moved % SECTOR_BYTES } else { 0 };
        let error = match self.transfer.direction {
            Direction::Read if moved == 0 && rest > 0 => None,
            Direction::Read if cut != 0 => {
                self.done += moved;
                None
            }
            Direction::Write if moved - cut == 0 && rest > 0 => {
                Some(io::Error::from(io::ErrorKind::WriteZero))
            }
            Direction::Read | Direction::Write => {
                self.done += if moved >= rest { rest } else { moved - cut };
                if self.done < self.len {
                    return Some(self);
                }
                None
            }
        };
        self.close(error);
        None
    }

    fn close(&mut self, error: Option<io::Error>) {
        self.closed = true;
        count(self.done as u64);
        let mut progress = self.transfer.lock();
        if self.done < self.len {
            progress.moved = progress.moved.min(self.at + self.done);
        }
        if progress.error.is_none() {
            progress.error = error;
        }
        progress.open_parts -= 1;
        if progress.open_parts > 0 {
            return;
        }
        if let Some(receipt) = progress.receipt.take() {
            receipt.complete(progress.moved as u64);
        }
        // Written memory is released at once: a thread may be waiting for it, not for the ticket. It is released
        // under the lock, so that a thread that sees the end of the transfer finds it free. (A buffer takes no lock
        // of a transfer.)
        if self.transfer.direction == Direction::Write {
            drop(progress.buf.take());
        }
        drop(progress);
        self.transfer.finished.notify_all();
    }
}

impl Drop for Part {
    /// A part that is dropped before it ends fails its transfer: its thread died, and a caller may be waiting for the
    /// transfer.
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        // The kernel may still move bytes of the buffer: it must not be used again.
        let buf = self.transfer.lock().buf.take();
        std::mem::forget(buf);
        self.close(Some(io::Error::other("the thread that moves bytes to and from the device has died")));
    }
}

fn is_delay(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

/// The caller's handle of a transfer.
pub(crate) struct Ticket {
    transfer: Arc<Transfer>,
}

impl Ticket {
    pub(crate) fn is_finished(&self) -> bool {
        self.transfer.lock().open_parts == 0
    }

    /// Waits for the number of bytes that moved, counted from the start without a gap, and for the buffer of a read.
    pub(crate) fn wait(self) -> (Option<Buf>, io::Result<usize>) {
        let mut progress = self.transfer.lock();
        let _waiting = (progress.open_parts > 0).then(|| wait_for("a transfer", Need::DEVICE, None));
        while progress.open_parts > 0 {
            progress = self.transfer.finished.wait(progress).unpoisoned();
        }
        let result = match progress.error.take() {
            Some(error) => Err(error),
            None => Ok(progress.moved),
        };
        (progress.buf.take(), result)
    }
}
