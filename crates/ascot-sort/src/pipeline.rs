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
//! Invariants: only the reader waits for memory. It takes all memory of an item before it passes the item on, so the
//! workers can finish every item they get. If the device serves reads and writes in turns
//! ([`crate::resources::turns`]), the reader gives its turn back before it waits. A thread that panics wakes the
//! caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use ascot_io::clocks::{State, in_stage, in_state};
use ascot_io::threads;
use ascot_io::waits::{Need, receive, receive_looking};
use ascot_model::stages;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};

use crate::api::{Cancel, Result, SortError};
use crate::read::{PlacedChunk, RecordReader};
use crate::records::RecordEnds;
use crate::resources::{ChunkPool, DeviceAccess, Lease, Role, Turns};

/// The threads of a pipeline.
pub struct Pipeline<'a> {
    /// The name of the workers.
    work: &'static str,
    /// Number of workers.
    threads: usize,
    /// Items that may wait for a worker; none: any number.
    queue: Option<usize>,
    /// Turns of the reader and the caller on the device.
    turns: Option<Arc<Turns>>,
    /// Stops the pipeline.
    cancel: &'a Cancel,
}

/// The state that the threads share beside the channels.
#[derive(Default)]
struct Shared {
    /// Items that the reader has passed on.
    handed_on: AtomicU64,
    /// Set when the caller takes no more results.
    closed: AtomicBool,
}

enum Message<O> {
    /// A result and its number.
    Done(u64, O),
    /// The reader waits for memory.
    Starved,
    /// The reader has ended: the number of items.
    Read(Result<u64>),
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
    /// Passes an item to the workers; false once the pipeline has ended.
    pub fn hand_on(&self, item: I) -> bool {
        let number = self.shared.handed_on.load(Relaxed);
        let sent = match self.items.try_send((number, item)) {
            Ok(()) => true,
            Err(TrySendError::Disconnected(_)) => false,
            Err(TrySendError::Full(item)) => {
                let _waiting = in_state(State::Memory);
                self.items.send(item).is_ok()
            }
        };
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

/// Tells the caller that its thread panics.
struct Alarm<'a, O>(&'a Sender<Message<O>>);

impl<O> Drop for Alarm<'_, O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            notify(self.0, Message::Died);
        }
    }
}

impl<'a> Pipeline<'a> {
    /// A pipeline with a number of workers, whose threads are called `work`.
    pub fn new(work: &'static str, threads: usize, cancel: &'a Cancel) -> Self {
        Pipeline { work, threads, queue: None, turns: None, cancel }
    }

    /// At most `items` wait for a worker, because each holds memory.
    pub fn queue(self, items: usize) -> Self {
        Pipeline { queue: Some(items), ..self }
    }

    /// Runs a pipeline whose items are the chunks of `reader`, each with a second buffer if `buffers` are given. The
    /// caller takes its turns on the device with the reader.
    pub fn run_chunks<R: RecordEnds + ?Sized, O: Send, T, W: FnMut(ChunkWork) -> O>(
        mut self,
        reader: RecordReader<R>,
        buffers: Option<&ChunkPool>,
        worker: impl Fn() -> W + Sync,
        sink: impl FnOnce(&mut InOrder<'_, O>) -> Result<T>,
    ) -> Result<T> {
        self.turns = reader.turns().cloned();
        let cancel = self.cancel;
        self.run(|feed| read_chunks(reader, buffers, feed, cancel), worker, sink)
    }

    /// Runs `read` on a thread, the functions that `worker` makes on the workers' threads, and `sink` on this one,
    /// which works for the stage `write` meanwhile.
    pub fn run<I, O, T, W>(
        self,
        read: impl FnOnce(&Feed<'_, I, O>) -> Result<()> + Send,
        worker: impl Fn() -> W + Sync,
        sink: impl FnOnce(&mut InOrder<'_, O>) -> Result<T>,
    ) -> Result<T>
    where
        I: Send,
        O: Send,
        W: FnMut(I) -> O,
    {
        let shared = Shared::default();
        let worker = &worker;
        let _stage = in_stage(stages::WRITE);
        threads::scope(|scope| {
            let (messages, results) = unbounded();
            let (items, work) = self.queue.map_or_else(unbounded, bounded);
            let feed = Feed { items, messages: messages.clone(), shared: &shared };
            scope.spawn(stages::READ, move || {
                let end = read(&feed);
                let number = feed.shared.handed_on.load(Relaxed);
                notify(&feed.messages, Message::Read(end.map(|()| number)));
            })?;
            threads::start_some(self.threads, |number| {
                let work = work.clone();
                let messages = messages.clone();
                scope.spawn(&format!("{} {number}", self.work), move || {
                    let _alarm = Alarm(&messages);
                    work_all(worker(), &work, &messages)
                })
            })?;
            drop(messages);
            drop(work);
            let mut in_order = InOrder::new(results, &shared, self.turns, self.cancel);
            sink(&mut in_order)
        })
    }
}

/// Works on items until no more come.
fn work_all<I, O>(mut work: impl FnMut(I) -> O, items: &Receiver<(u64, I)>, messages: &Sender<Message<O>>) {
    while let Ok((number, item)) = receive(items, "chunks to work on", Need::WORK) {
        let result = work(item);
        if messages.send(Message::Done(number, result)).is_err() {
            break;
        }
    }
}

/// A chunk on its way to a worker.
pub struct ChunkWork {
    /// The chunk.
    pub placed: PlacedChunk,
    /// A second buffer, which the worker copies the records to; a long record needs none.
    pub out: Option<Lease>,
}

/// Passes all chunks of `reader` to the workers.
fn read_chunks<R: RecordEnds + ?Sized, O>(
    mut reader: RecordReader<R>,
    buffers: Option<&ChunkPool>,
    feed: &Feed<'_, ChunkWork, O>,
    cancel: &Cancel,
) -> Result<()> {
    let access = reader.device_access();
    let starving = || {
        access.give_back();
        feed.starved();
    };
    loop {
        cancel.check()?;
        let Some(placed) = reader.next(&starving)? else { break };
        let bytes = placed.chunk.bytes.len();
        let out = buffers.filter(|_| !placed.long);
        let out = out.map(|buffers| buffers.take_fitting(bytes, &starving)).transpose()?;
        if !feed.hand_on(ChunkWork { placed, out }) {
            break;
        }
    }
    Ok(())
}

/// Interval at which the caller is called while it waits.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);

/// Results in order.
pub struct InOrder<'a, O> {
    messages: Receiver<Message<O>>,
    shared: &'a Shared,
    turns: Option<Arc<Turns>>,
    cancel: &'a Cancel,
    /// Results that have arrived, by number.
    arrived: BTreeMap<u64, O>,
    /// Number of the next result.
    next: u64,
    /// Results that have arrived and follow one another from `next` on.
    ready: u64,
    /// Number of results, once the reader has ended.
    total: Option<u64>,
}

impl<'a, O> InOrder<'a, O> {
    fn new(
        messages: Receiver<Message<O>>,
        shared: &'a Shared,
        turns: Option<Arc<Turns>>,
        cancel: &'a Cancel,
    ) -> Self {
        InOrder { messages, shared, turns, cancel, arrived: BTreeMap::new(), next: 0, ready: 0, total: None }
    }

    /// The caller's access to the device, for writes while the reader reads.
    pub fn writer(&self) -> DeviceAccess {
        DeviceAccess::new(self.turns.as_ref(), Role::Writer)
    }

    /// The next result, waited for; none after the last.
    pub fn next_result(&mut self) -> Result<Option<O>> {
        let cancel = self.cancel;
        self.next_result_or(&mut || cancel.check())
    }

    /// Like [`InOrder::next_result`]; calls `idle` at intervals while it waits.
    pub fn next_result_or(&mut self, idle: &mut dyn FnMut() -> Result<()>) -> Result<Option<O>> {
        loop {
            self.cancel.check()?;
            if self.ready > 0 {
                return Ok(self.take());
            }
            if self.all_taken() {
                return Ok(None);
            }
            self.wait_or(idle)?;
        }
    }

    /// Waits until something changes: a result arrives, the reader ends or waits for memory.
    pub fn wait(&mut self) -> Result<()> {
        let cancel = self.cancel;
        self.wait_or(&mut || cancel.check())
    }

    fn wait_or(&mut self, idle: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let message = receive_looking(&self.messages, "results of workers", Need::DATA, IDLE_INTERVAL, idle);
        self.cancel.check()?;
        match message?.ok_or_else(died)? {
            Message::Done(number, result) => {
                self.arrived.insert(number, result);
                while self.arrived.contains_key(&(self.next + self.ready)) {
                    self.ready += 1;
                }
            }
            Message::Starved => {}
            Message::Read(end) => {
                self.total = Some(end?);
            }
            Message::Died => return Err(died()),
        }
        Ok(())
    }

    /// Takes the next result, if it has arrived.
    pub fn take(&mut self) -> Option<O> {
        let result = self.arrived.remove(&self.next)?;
        self.next += 1;
        self.ready -= 1;
        Some(result)
    }

    /// Whether the reader has ended.
    pub fn all_read(&self) -> bool {
        self.total.is_some()
    }

    /// Whether the caller has taken the last result.
    pub fn all_taken(&self) -> bool {
        self.total == Some(self.next)
    }

    /// Whether the workers have finished every item that the reader has passed on.
    pub fn all_arrived(&self) -> bool {
        self.shared.handed_on.load(Relaxed) == self.next + self.ready
    }
}

impl<O> Drop for InOrder<'_, O> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Relaxed);
    }
}

/// This error names no thread: the scope of the threads replaces it by one that does.
fn died() -> SortError {
    SortError::Internal("a thread of a pass ended early")
}
