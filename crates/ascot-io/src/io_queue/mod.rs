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
//! With io_uring, one thread owns the ring and sleeps in it; a bell (eventfd) read through the ring wakes it for new
//! parts. If the kernel refuses io_uring, `depth` threads do the same work; if it refuses even threads, the caller's
//! own thread does.

mod part_queue;
mod ring;
mod threads;
mod transfer;

use std::sync::{Arc, Mutex};

use crate::sync::Unpoisoned;
use crate::threads::Thread;
use part_queue::PartQueue;
pub(crate) use transfer::{Request, Ticket, part_count};

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
        let threads = threads::start(&queue, reads, writes);
        let kind = if threads.is_empty() { "inline" } else { "threads" };
        Self { inner: Arc::new(Inner { queue, kind, threads: Mutex::new(threads) }) }
    }

    fn start_ring(reads: usize, writes: usize) -> Option<Self> {
        let queue = Arc::new(PartQueue::for_ring().ok()?);
        let thread = ring::start(&queue, [reads, writes])?;
        let threads = Mutex::new(vec![thread]);
        Some(Self { inner: Arc::new(Inner { queue, kind: "io_uring", threads }) })
    }

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
            parts.into_iter().for_each(threads::perform);
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
