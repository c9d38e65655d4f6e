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
//! `transfer.rs` cuts a request into parts, whose last one finishes the ticket. Here parts wait in the [`PartQueue`]
//! until the [`Ring`] or a thread performs them. `start.rs` starts the threads and says what happens if one
//! panics; `measured.rs` begins transfers outside of streams.
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
mod transfer;

pub use measured::PendingTransfer;
pub(crate) use transfer::{Request, Ticket, part_count};

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use io_uring::{IoUring, opcode, types};

use self::transfer::{Part, perform};
use crate::clocks::{self, State};
use crate::ledger::Direction;
use crate::sync::Unpoisoned;
use crate::threads::Thread;
use crate::waits::{Need, wait_for};

/// The user data of the bell's completion.
const BELL: u64 = u64::MAX;

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
    /// The mechanism that performs the requests: `io_uring`, `threads` or `inline`.
    pub fn kind(&self) -> &'static str {
        self.inner.kind
    }

    /// Whether the two are clones of each other.
    #[cfg(test)]
    pub(crate) fn is(&self, other: &IoQueue) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

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

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
        let threads = self.threads.get_mut().unpoisoned();
        for thread in threads.drain(..) {
            // A panicked thread has already lost its work; nothing can be added here.
            let _ = thread.join();
        }
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
    parts: [VecDeque<Part>; 2],
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

    /// The eventfd that wakes the ring.
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    /// Silences the bell after a ring.
    fn hush(&self) {
        if let Some(bell) = &self.bell {
            // The descriptor does not block; an empty read means that the bell has not rung again.
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
    }

    fn push(&self, parts: Vec<Part>) {
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

    fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
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
    fn take(&self, mut most: [usize; 2], into: &mut Vec<Part>) -> bool {
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
    slots: Vec<Option<Part>>,
    vacant: Vec<usize>,
    /// Most parts in flight, by direction.
    depth: [usize; 2],
    /// Parts in flight, by direction.
    in_flight: [usize; 2],
    bell_polled: bool,
    taken: Vec<Part>,
    reaped: Vec<(u64, i32)>,
    /// Parts that have left the ring, with their results, until their callers are notified.
    ended: Vec<(Part, io::Result<usize>)>,
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
    fn submit(&mut self, part: Part) {
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
        let Some(bell) = queue.bell() else { return };
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

    fn record(&mut self, part: Part, result: io::Result<usize>) {
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
