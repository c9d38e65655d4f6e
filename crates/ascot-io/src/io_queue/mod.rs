//! The I/O queue: performs all requests on a device, several in flight.
//!
//! A transfer (a whole buffer) is cut into parts; the queue keeps up to `depth` parts in flight for each direction,
//! so that reads never wait for a queue of writes, nor writes for reads.
//!
//! ```text
//!   stream --Request--> [part part part]--> queue --> ring thread (io_uring)
//!      ^                                          \-> depth threads (pread/pwrite)
//!      '-- Ticket <----------- finished -----------'
//! ```
//!
//! A request is cut into parts, whose last one finishes the ticket. Parts wait in the [`PartQueue`] until the [`Ring`]
//! or a thread performs them. `start.rs` starts and ends the threads and says what happens if one panics; `measured.rs`
//! begins transfers outside of streams.
//!
//! With io_uring, one thread owns the ring and sleeps in it; a bell (eventfd) read through the ring wakes it for new
//! parts. If the kernel refuses io_uring, `depth` threads do the same work; if it refuses even threads, the caller's
//! own thread does.
//!
//! Invariants:
//! * A transfer owns its buffer until it is finished, so the memory of a part lives as long as the part. The parts of
//!   a transfer do not overlap.
//! * Each part ends exactly once (a dropped one with an error), and the last one finishes the transfer, which releases
//!   written memory at once. Short results are resumed, EINTR and EAGAIN retried.
//! * A part stays in the ring's `slots` from its submission to its completion, so its memory and its descriptor
//!   outlive the kernel's use of them. At most `depth` parts of each direction are in the ring, which holds all of
//!   them and the bell. The ring's thread ends only with empty slots.
//! * Before the ring's thread sleeps, `wanted` is set, under the lock, for each direction that could take a part, so a
//!   part pushed later rings the bell, and none is overlooked. A direction with `depth` parts in flight needs no bell:
//!   one of these ends first, and the thread looks at the queue again.

mod measured;
mod start;
#[cfg(test)]
mod tests;

pub use measured::PendingTransfer;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use io_uring::{IoUring, opcode, types};

use crate::buf::Buf;
use crate::clocks::{self, State, count};
use crate::ledger::{Direction, Receipt};
use crate::sync::Unpoisoned;
use crate::threads::Thread;
use crate::waits::{Need, wait_for};
use crate::{PAGE_BYTES, SECTOR_BYTES};

/// The user data of the bell's completion.
const BELL: u64 = u64::MAX;
/// Retries of a part that the kernel keeps postponing.
const PATIENCE: u32 = 10_000;

/// Performs requests for many streams; clones share the same threads and depth.
#[derive(Clone)]
pub struct IoQueue {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Arc<PartQueue>,
    kind: &'static str,
    threads: Mutex<Vec<Thread<()>>>,
}

impl IoQueue {
    /// Queues a transfer.
    pub(crate) fn submit(&self, request: Request) -> Ticket {
        let (ticket, parts) = request.into_parts();
        if self.inner.kind == "inline" {
            parts.into_iter().for_each(perform);
        } else {
            self.inner.queue.push(parts);
        }
        ticket
    }
}

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
    fn into_parts(self) -> (Ticket, Vec<TransferPart>) {
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
            TransferPart {
                transfer: Arc::clone(&transfer),
                at,
                len,
                done: 0,
                delays: 0,
                halve,
                closed: false,
            }
        };
        let parts = (0..count).map(part).collect();
        (Ticket { transfer }, parts)
    }
}

/// The state shared by a ticket and the parts.
struct Transfer {
    file: Arc<File>,
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

/// Moves a part completely on the calling thread.
fn perform(part: TransferPart) {
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
fn system_call(part: &TransferPart) -> io::Result<usize> {
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
struct TransferPart {
    transfer: Arc<Transfer>,
    at: usize,
    len: usize,
    done: usize,
    delays: u32,
    halve: bool,
    closed: bool,
}

impl TransferPart {
    fn direction(&self) -> Direction {
        self.transfer.direction
    }

    /// The file offset at which to continue.
    fn offset(&self) -> u64 {
        self.transfer.offset + (self.at + self.done) as u64
    }

    /// The memory still to move: address and length. Until the part ends, the memory lives and is used by this part
    /// only.
    #[expect(unsafe_code, reason = "the parts of a transfer share one buffer")]
    fn memory(&self) -> (*mut u8, usize) {
        let rest = self.len - self.done;
        let half = rest / 2 / PAGE_BYTES * PAGE_BYTES;
        let len = if self.halve && half > 0 { half } else { rest };
        // SAFETY: `at + done <= at + len <= ` the buffer's length.
        let start = unsafe { self.transfer.start.add(self.at + self.done) };
        (start.as_ptr(), len)
    }

    /// Records a system call's result; returns the part if bytes remain.
    fn record(mut self, result: io::Result<usize>) -> Option<Self> {
        self.halve = false;
        match result {
            Ok(moved) => self.advance(moved),
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
                    && self.delays < PATIENCE =>
            {
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

impl Drop for TransferPart {
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

/// The queue between streams and the device threads: parts wait by direction, first come first served.
struct PartQueue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    bell: Option<OwnedFd>,
}

/// The parts that wait, and what their threads do.
#[derive(Default)]
struct Waiting {
    /// By direction.
    parts: [VecDeque<TransferPart>; 2],
    closed: bool,
    /// A thread that performed parts has died.
    abandoned: bool,
    /// By direction: the ring's thread sleeps, and could take a part.
    wanted: [bool; 2],
}

impl PartQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unpoisoned()
    }

    /// Silences the bell after a ring.
    fn hush(&self) {
        if let Some(bell) = &self.bell {
            // The descriptor does not block; an empty read means that the bell has not rung again.
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
    }

    fn push(&self, parts: Vec<TransferPart>) {
        let mut waiting = self.lock();
        if waiting.abandoned {
            // Dropped parts fail.
            drop(waiting);
            return;
        }
        for part in parts {
            waiting.parts[part.direction() as usize].push_back(part);
        }
        self.wake(waiting);
    }

    /// Wakes the threads, if they could take a waiting part or the queue is closed.
    fn wake(&self, mut waiting: MutexGuard<'_, Waiting>) {
        let takes = |direction: usize| {
            waiting.wanted[direction] && (waiting.closed || !waiting.parts[direction].is_empty())
        };
        let ring = takes(0) || takes(1);
        if ring {
            waiting.wanted = [false; 2];
        }
        drop(waiting);
        match &self.bell {
            Some(bell) if ring => {
                // Cannot fail short of 2^64 - 1 unread rings.
                let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
            }
            Some(_) => {}
            None => self.arrived.notify_all(),
        }
    }

    /// For the ring: takes up to `most` parts of each direction in turn; true if the queue is closed and empty. The
    /// next push rings the bell.
    fn take(&self, mut most: [usize; 2], into: &mut Vec<TransferPart>) -> bool {
        let mut waiting = self.lock();
        loop {
            let before = into.len();
            for (parts, most) in waiting.parts.iter_mut().zip(&mut most) {
                if *most > 0
                    && let Some(part) = parts.pop_front()
                {
                    into.push(part);
                    *most -= 1;
                }
            }
            if into.len() == before {
                break;
            }
        }
        waiting.wanted = most.map(|left| left > 0);
        waiting.closed && waiting.parts.iter().all(VecDeque::is_empty)
    }
}

/// The queue on io_uring: what its one thread owns.
struct Ring {
    ring: IoUring,
    slots: Vec<Option<TransferPart>>,
    vacant: Vec<usize>,
    /// Most parts in flight, by direction.
    depth: [usize; 2],
    /// Parts in flight, by direction.
    in_flight: [usize; 2],
    bell_polled: bool,
    taken: Vec<TransferPart>,
    reaped: Vec<(u64, i32)>,
    /// Parts that have left the ring, with their results, until their callers are notified.
    ended: Vec<(TransferPart, io::Result<usize>)>,
}

impl Ring {
    fn serve(&mut self, queue: &PartQueue) {
        loop {
            let most =
                [0, 1].map(|direction| self.depth[direction].saturating_sub(self.in_flight[direction]));
            let mut taken = std::mem::take(&mut self.taken);
            let closed = queue.take(most, &mut taken);
            let expected = self.in_flight.iter().sum::<usize>() + taken.len();
            taken.drain(..).for_each(|part| self.submit(part));
            self.taken = taken;
            if self.in_flight.iter().sum::<usize>() < expected {
                // A part was performed at once, so another could be taken.
                continue;
            }
            self.finish_ended();
            let idle = self.in_flight == [0; 2];
            if closed && idle {
                return;
            }
            self.poll_bell(queue);
            self.enter(idle);
            self.reap(queue);
        }
    }

    /// Finishes the parts that have left the ring. The device gets the requests that follow them first: waking a caller
    /// takes about as long as moving 100 KB.
    fn finish_ended(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        if !self.ring.submission().is_empty() {
            // What the kernel does not take now is submitted before the next wait.
            let _ = self.ring.submit();
        }
        let mut ended = std::mem::take(&mut self.ended);
        ended.drain(..).for_each(|(part, result)| self.record(part, result));
        self.ended = ended;
    }

    /// Submits the requests that wait for that, and waits for a completion.
    fn enter(&mut self, idle: bool) {
        let submitted = if idle {
            let _waiting = wait_for("requests to the device", Need::WORK, None);
            self.ring.submit_and_wait(1)
        } else {
            clocks::call(State::Device, || self.ring.submit_and_wait(1))
        };
        // Interrupted, or the kernel lacks a resource: the requests it has taken complete, and the next round submits
        // the rest.
        if submitted.is_err() {
            thread::yield_now();
        }
    }

    #[expect(unsafe_code, reason = "io_uring takes raw memory")]
    fn submit(&mut self, part: TransferPart) {
        // `take` requested no more parts than there are vacant slots.
        let Some(slot) = self.vacant.pop() else {
            perform(part);
            return;
        };
        self.in_flight[part.direction() as usize] += 1;
        let (memory, len) = part.memory();
        let fd = types::Fd(part.transfer.file.as_raw_fd());
        let entry = match part.direction() {
            Direction::Read => opcode::Read::new(fd, memory, len as u32).offset(part.offset()).build(),
            Direction::Write => opcode::Write::new(fd, memory, len as u32).offset(part.offset()).build(),
        };
        // SAFETY: the part is kept in its slot until its completion, and with it the memory
        // (exclusively this part's) and the open descriptor.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        match pushed {
            Ok(()) => self.slots[slot] = Some(part),
            Err(_) => {
                self.vacate(slot, part.direction());
                perform(part);
            }
        }
    }

    #[expect(unsafe_code, reason = "io_uring takes raw memory")]
    fn poll_bell(&mut self, queue: &PartQueue) {
        if self.bell_polled {
            return;
        }
        let Some(bell) = &queue.bell else { return };
        let entry = opcode::PollAdd::new(types::Fd(bell.as_raw_fd()), libc::POLLIN as u32).build();
        // SAFETY: a poll touches no memory of ours.
        self.bell_polled = unsafe { self.ring.submission().push(&entry.user_data(BELL)) }.is_ok();
    }

    fn reap(&mut self, queue: &PartQueue) {
        let mut reaped = std::mem::take(&mut self.reaped);
        reaped.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (data, result) in reaped.drain(..) {
            if data == BELL {
                self.bell_polled = false;
                queue.hush();
            } else {
                let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                self.release(data as usize, result);
            }
        }
        self.reaped = reaped;
    }

    /// Takes a part that has ended out of its slot.
    fn release(&mut self, slot: usize, result: io::Result<usize>) {
        let Some(part) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        self.vacate(slot, part.direction());
        self.ended.push((part, result));
    }

    fn record(&mut self, part: TransferPart, result: io::Result<usize>) {
        // The kernel cancels a request if it cannot start a worker for it: the process limit is reached.
        if matches!(&result, Err(error) if error.raw_os_error() == Some(libc::ECANCELED)) {
            perform(part);
            return;
        }
        if let Some(part) = part.record(result) {
            self.submit(part);
        }
    }

    fn vacate(&mut self, slot: usize, direction: Direction) {
        self.in_flight[direction as usize] -= 1;
        self.vacant.push(slot);
    }
}
