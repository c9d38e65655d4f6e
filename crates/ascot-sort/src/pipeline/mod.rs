//! The ordered pipeline: one thread reads, several work, and the caller takes the results in the order of reading.
//!
//! ```text
//!   reader ─▶ item n ─▶ workers ─▶ result n ─▶ InOrder ─▶ the caller
//!     ▲                                                      │
//!     ╰─────────── memory, once a result is used up ◀────────╯
//! ```
//!
//! Items are numbered as they are read. A result waits in [`InOrder`] until its number is next.
//!
//! Invariants: only the reader waits for memory. It takes all memory of an item before it hands the item on, so the
//! workers can finish every item they get. Where the device serves one side at a time ([`crate::resources::turns`]),
//! the reader gives its turn back before it waits. A thread that panics wakes the caller.

mod chunks;
mod in_order;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ascot_io::threads::{self, ScopedThread};
use ascot_io::waits::{Need, receive};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::resources::turns::Turns;

pub use chunks::{ChunkWork, read_chunks};
pub use in_order::InOrder;

/// The threads of a pipeline.
pub struct Pipeline<'a> {
    /// The name of the workers.
    pub work: &'static str,
    /// Number of workers.
    pub threads: usize,
    /// Items that may wait for a worker; none: any number.
    pub queue: Option<usize>,
    /// Turns of the reader and the caller on the device.
    pub turns: Option<Arc<Turns>>,
    /// Stops the pipeline.
    pub cancel: &'a Cancel,
}

/// What the reader waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadTimes {
    /// The device.
    pub device: Duration,
    /// Free memory.
    pub memory: Duration,
}

/// Time the stages of a pipeline spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// The reader.
    pub read: ReadTimes,
    /// The workers at work, summed over threads.
    pub busy: Duration,
    /// The caller waiting for results.
    pub waited: Duration,
}

/// What the threads share beside the channels.
#[derive(Default)]
struct Shared {
    /// Items that the reader has handed on.
    handed_on: AtomicU64,
    /// The caller takes no more results.
    closed: AtomicBool,
}

enum Message<O> {
    /// A result and its number.
    Done(u64, O),
    /// The reader waits for memory.
    Starved,
    /// The reader has ended: the number of items, and its times.
    Read(Result<(u64, ReadTimes), SortError>),
    /// A worker has panicked.
    Died,
}

/// The reader's end of a pipeline.
pub struct Feed<'a, I, O> {
    items: Sender<(u64, I)>,
    messages: Sender<Message<O>>,
    shared: &'a Shared,
}

impl<I, O> Feed<'_, I, O> {
    /// Hands an item to the workers; false once the pipeline has ended.
    pub fn hand_on(&self, item: I) -> bool {
        let number = self.shared.handed_on.load(Relaxed);
        let sent = self.items.send((number, item)).is_ok();
        if sent {
            // Stored after the item has been sent: the caller never waits for an item that waits for the queue.
            self.shared.handed_on.store(number + 1, Relaxed);
        }
        sent
    }

    /// Wakes the caller: the reader waits for memory that results may hold.
    pub fn starved(&self) {
        notify(&self.messages, Message::Starved);
    }

    /// Whether the caller takes no more results.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Relaxed)
    }
}

/// Sends a message to the caller, if it still receives: a pipeline that has ended needs no message.
fn notify<O>(messages: &Sender<Message<O>>, message: Message<O>) {
    messages.send(message).unwrap_or_default();
}

/// Tells the caller where its thread panics.
struct Alarm<'a, O>(&'a Sender<Message<O>>);

impl<O> Drop for Alarm<'_, O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            notify(self.0, Message::Died);
        }
    }
}

impl Pipeline<'_> {
    /// Runs `read` on a thread, the functions that `worker` makes on the workers' threads, and `sink` on this one.
    pub fn run<I, O, T, W>(
        self,
        read: impl FnOnce(&Feed<'_, I, O>) -> Result<ReadTimes, SortError> + Send,
        worker: impl Fn() -> W + Sync,
        sink: impl FnOnce(&mut InOrder<'_, O>) -> Result<T, SortError>,
    ) -> Result<(T, Times), SortError>
    where
        I: Send,
        O: Send,
        W: FnMut(I) -> O,
    {
        let shared = Shared::default();
        let worker = &worker;
        threads::scope(|scope| {
            let (messages, results) = unbounded();
            let (items, work) = self.queue.map_or_else(unbounded, bounded);
            let feed = Feed { items, messages: messages.clone(), shared: &shared };
            scope.spawn("read", move || {
                let times = read(&feed);
                let number = feed.shared.handed_on.load(Relaxed);
                notify(&feed.messages, Message::Read(times.map(|times| (number, times))));
            })?;
            let workers = threads::start_some(self.threads, |number| {
                let (work, messages) = (work.clone(), messages.clone());
                scope.spawn(&format!("{} {number}", self.work), move || {
                    let _alarm = Alarm(&messages);
                    work_all(worker(), &work, &messages)
                })
            })?;
            drop(messages);
            drop(work);
            let mut in_order = InOrder::new(results, &shared, self.turns, self.cancel);
            let result = sink(&mut in_order);
            let read = in_order.read_times();
            let waited = in_order.waited();
            // Gives memory back, so that a reader that waits for it ends.
            drop(in_order);
            let result = result?;
            let busy = workers.into_iter().map(ScopedThread::join).sum::<Result<Duration, _>>()?;
            Ok((result, Times { read, busy, waited }))
        })
    }
}

/// Works on items until no more come; returns the time that took.
fn work_all<I, O>(
    mut work: impl FnMut(I) -> O,
    items: &Receiver<(u64, I)>,
    messages: &Sender<Message<O>>,
) -> Duration {
    let mut busy = Duration::ZERO;
    while let Ok((number, item)) = receive(items, "chunks to work on", Need::Idle) {
        let since = Instant::now();
        let result = work(item);
        busy += since.elapsed();
        if messages.send(Message::Done(number, result)).is_err() {
            break;
        }
    }
    busy
}
