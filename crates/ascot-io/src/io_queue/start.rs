//! How the threads of an I/O queue start and end, and what happens to its parts if one of them panics.

use std::io;
use std::sync::{Arc, Condvar, Mutex, mpsc};

use ascot_model::stages;
use io_uring::{IoUring, Probe, opcode};
use rustix::event::EventfdFlags;

use super::{Inner, IoQueue, PartQueue, Ring, TransferPart, perform};
use crate::ledger::Direction;
use crate::sync::Unpoisoned;
use crate::threads::{Thread, ThreadError, spawn};
use crate::waits::{Need, wait_for};

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

    /// Starts a queue that keeps up to this many parts in flight in each direction: on io_uring, or on threads if the
    /// kernel refuses it.
    pub fn start(reads: usize, writes: usize) -> Self {
        let [reads, writes] = [reads, writes].map(|depth| depth.clamp(1, 1024));
        Self::start_ring(reads, writes).unwrap_or_else(|| Self::start_pairs(reads, writes))
    }

    /// Starts a queue of `depth` reading and `depth` writing threads, without io_uring.
    pub fn start_threads(depth: usize) -> Self {
        let depth = depth.clamp(1, 1024);
        Self::start_pairs(depth, depth)
    }

    fn start_pairs(reads: usize, writes: usize) -> Self {
        let queue = Arc::new(PartQueue::for_threads());
        let threads = start_device_threads(&queue, reads, writes);
        let kind = if threads.is_empty() { "inline" } else { "threads" };
        Self { inner: Arc::new(Inner { queue, kind, threads: Mutex::new(threads) }) }
    }

    fn start_ring(reads: usize, writes: usize) -> Option<Self> {
        let queue = Arc::new(PartQueue::for_ring().ok()?);
        let thread = start_ring_thread(&queue, [reads, writes])?;
        let threads = Mutex::new(vec![thread]);
        Some(Self { inner: Arc::new(Inner { queue, kind: "io_uring", threads }) })
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

impl PartQueue {
    pub(super) fn for_threads() -> Self {
        Self { waiting: Mutex::default(), arrived: Condvar::new(), bell: None }
    }

    fn for_ring() -> io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { bell: Some(bell), ..Self::for_threads() })
    }

    /// A guard for a device thread. If the thread panics, no part is performed any more: all parts, queued or later,
    /// fail, so no caller waits for them.
    fn abandon_on_panic(&self) -> Abandon<'_> {
        Abandon { queue: self }
    }

    /// Ends the queue once no caller has it. Reads that have not begun fail: a job that is stopped has asked for many,
    /// and does not take their bytes. Writes are performed.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let reads = std::mem::take(&mut waiting.parts[Direction::Read as usize]);
        self.wake(waiting);
        for mut part in reads {
            part.close(Some(io::Error::other("the queue of the device has ended")));
        }
    }

    fn abandon(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.abandoned = true;
        let parts = std::mem::take(&mut waiting.parts);
        self.wake(waiting);
        drop(parts);
    }

    /// For threads: waits for the next part of a direction; `None` once closed and empty.
    pub(super) fn wait(&self, direction: Direction) -> Option<TransferPart> {
        let mut waiting = self.lock();
        loop {
            if let Some(part) = waiting.parts[direction as usize].pop_front() {
                return Some(part);
            }
            if waiting.closed {
                return None;
            }
            let _waiting = wait_for("requests to the device", Need::WORK, None);
            waiting = self.arrived.wait(waiting).unpoisoned();
        }
    }
}

/// Abandons a queue if its thread panics.
struct Abandon<'q> {
    queue: &'q PartQueue,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.abandon();
        }
    }
}

/// Starts the given number of threads for each direction, or none if the system refuses the first one for either.
fn start_device_threads(queue: &Arc<PartQueue>, reads: usize, writes: usize) -> Vec<Thread<()>> {
    let mut threads = Vec::with_capacity(reads + writes);
    for number in 0..reads.max(writes) {
        let wanted = [(Direction::Read, number < reads), (Direction::Write, number < writes)];
        let wanted = wanted.into_iter().filter(|(_, wanted)| *wanted);
        let pair: Vec<_> = wanted.map(|(direction, _)| start_device_thread(queue, direction)).collect();
        let all_refused = pair.iter().any(Result::is_err);
        threads.extend(pair.into_iter().flatten());
        if all_refused && number == 0 {
            queue.close();
            threads.drain(..).for_each(|thread| drop(thread.join()));
        }
        if all_refused {
            break;
        }
    }
    threads
}

fn start_device_thread(queue: &Arc<PartQueue>, direction: Direction) -> Result<Thread<()>, ThreadError> {
    let queue = Arc::clone(queue);
    spawn(stages::DEVICE, move || {
        let _abandon = queue.abandon_on_panic();
        while let Some(part) = queue.wait(direction) {
            perform(part);
        }
    })
}

/// Starts the ring's thread; `None` if io_uring or a thread is not available.
fn start_ring_thread(queue: &Arc<PartQueue>, depth: [usize; 2]) -> Option<Thread<()>> {
    let (answer, started) = mpsc::channel();
    let queue = Arc::clone(queue);
    let thread = spawn(stages::DEVICE, move || match Ring::new(depth) {
        Ok(mut ring) => {
            // The starter waits for this answer, so the channel is open.
            let _ = answer.send(true);
            let _abandon = queue.abandon_on_panic();
            ring.serve(&queue);
        }
        Err(_) => {
            let _ = answer.send(false);
        }
    })
    .ok()?;
    if started.recv().unwrap_or(false) {
        Some(thread)
    } else {
        let _ = thread.join();
        None
    }
}

impl Ring {
    fn new(depth: [usize; 2]) -> io::Result<Self> {
        let slots = depth.iter().sum::<usize>();
        let entries = (slots + 1).next_power_of_two() as u32;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(Self {
            ring,
            slots: (0..slots).map(|_| None).collect(),
            vacant: (0..slots).rev().collect(),
            depth,
            in_flight: [0; 2],
            bell_polled: false,
            taken: Vec::with_capacity(slots),
            reaped: Vec::with_capacity(slots + 1),
            ended: Vec::with_capacity(slots),
        })
    }
}
