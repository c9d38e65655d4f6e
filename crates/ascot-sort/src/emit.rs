//! Merging in parallel into one ordered stretch of output.
//!
//! A [`crate::records::Task`] is a key range of some sorted sources. Tasks are merged by several
//! threads at once; each sends chunks of merged records to the sequencer, which hands them to the
//! sink in task order.
//!
//! ```text
//!   tasks ─▶ emit thread 0 ─▶ chunks of task 0, 2, ... ─╮
//!         ╰▶ emit thread 1 ─▶ chunks of task 1, 3, ... ─┴▶ sequencer ─▶ sink
//! ```
//!
//! Invariants: a thread draws its chunks from blocks of its own, so the thread with the first
//! unfinished task always gets on, whatever the others hold; a task's memory is let go before the
//! task reports that it is done.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use ascot_io::threads::{Thread, spawn, start_some};
use ascot_io::waits::{Need, receive, wait_for};
use ascot_io::{BlockPool, Buf, Pool};
use ascot_record::checksum::RecordSum;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::error::SortError;
use crate::observe::Cancel;
use crate::records::{Merged, Records, Rules, Task};

/// Merged records on their way to a sink.
pub struct Chunk {
    /// The block; it returns to its thread when dropped.
    pub buf: Buf,
    /// Bytes of it that are records.
    pub len: usize,
    /// Offset of the first record that starts here; `len` where one goes on from the chunk before.
    pub first_record: usize,
    /// Length of the longest record that ends here, bytes.
    pub longest: usize,
    /// Records that end here.
    pub records: u64,
}

/// Threads left to others where the system refuses some: a reader, one that sorts, two for devices and pipes.
const THREADS_OF_OTHERS: usize = 4;

/// How often who waits for chunks looks whether the job is to stop.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The receiver went away: the job failed elsewhere or was cancelled.
#[derive(Debug)]
pub struct Stopped;

enum Message {
    Chunk(Chunk),
    Done(Merged),
}

/// Collects the records of one task into chunks. Chunks hold whole records, unless one is longer
/// than a chunk.
pub struct Emitter {
    blocks: BlockPool,
    send: Sender<Message>,
    clocks: Arc<Clocks>,
    stopped: Arc<AtomicBool>,
    current: Option<Buf>,
    len: usize,
    first_record: usize,
    longest: usize,
    records: u64,
}

impl Emitter {
    fn new(blocks: BlockPool, send: Sender<Message>, clocks: Arc<Clocks>, stopped: Arc<AtomicBool>) -> Self {
        let (current, len, first_record, longest, records) = (None, 0, 0, 0, 0);
        Emitter { blocks, send, clocks, stopped, current, len, first_record, longest, records }
    }

    /// Appends one record.
    #[inline]
    pub fn record(&mut self, record: &[u8]) -> Result<(), Stopped> {
        if let Some(buf) = &mut self.current {
            let end = self.len + record.len();
            if end <= buf.len() {
                buf[self.len..end].copy_from_slice(record);
                self.len = end;
                self.records += 1;
                self.longest = self.longest.max(record.len());
                return Ok(());
            }
        }
        self.record_in_new_chunk(record)
    }

    #[cold]
    fn record_in_new_chunk(&mut self, record: &[u8]) -> Result<(), Stopped> {
        self.flush()?;
        let capacity = self.blocks.block_bytes();
        let mut rest = record;
        while rest.len() > capacity {
            let (now, later) = rest.split_at(capacity);
            let buf = self.open()?;
            buf[..capacity].copy_from_slice(now);
            self.len = capacity;
            self.flush()?;
            self.first_record = capacity;
            rest = later;
        }
        let continues = rest.len() < record.len();
        let buf = self.open()?;
        buf[..rest.len()].copy_from_slice(rest);
        self.len = rest.len();
        self.first_record = if continues { rest.len() } else { 0 };
        self.longest = record.len();
        self.records = 1;
        // What follows a record that spans chunks starts a chunk of its own.
        if continues { self.flush() } else { Ok(()) }
    }

    /// Room for up to `bytes` more bytes of whole records (at least `least`, unless a chunk is
    /// smaller), to be filled from the front and claimed by [`Emitter::claim`].
    pub fn room(&mut self, least: usize) -> Result<&mut [u8], Stopped> {
        let free = self.current.as_ref().map_or(0, |buf| buf.len() - self.len);
        if free < least {
            self.flush()?;
        }
        let len = self.len;
        Ok(&mut self.open()?[len..])
    }

    /// Counts the first `bytes` of the room as `records` records.
    pub fn claim(&mut self, bytes: usize, records: u64) {
        self.len += bytes;
        self.records += records;
        self.longest = self.longest.max(bytes.checked_div(records as usize).unwrap_or(0));
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.blocks.block_bytes()
    }

    fn open(&mut self) -> Result<&mut Buf, Stopped> {
        match &mut self.current {
            Some(block) => Ok(block),
            empty => {
                let since = Instant::now();
                let (blocks, stopped) = (&self.blocks, &self.stopped);
                let block = match blocks.try_take() {
                    Some(block) => block,
                    None => {
                        let block = blocks.take(|| stopped.load(Relaxed)).ok_or(Stopped)?;
                        add(&self.clocks.waited_ns, since.elapsed());
                        block
                    }
                };
                Ok(empty.insert(block))
            }
        }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        let Some(buf) = self.current.take() else { return Ok(()) };
        if self.len == 0 {
            self.current = Some(buf);
            return Ok(());
        }
        let chunk = Chunk {
            buf,
            len: self.len,
            first_record: self.first_record,
            longest: self.longest,
            records: self.records,
        };
        (self.len, self.first_record, self.longest, self.records) = (0, 0, 0, 0);
        self.send.send(Message::Chunk(chunk)).map_err(|_| Stopped)
    }

    fn finish(mut self, merged: Merged) {
        if self.flush().is_ok() {
            // The receiver may be gone; then nobody wants to know.
            let _ = self.send.send(Message::Done(merged));
        }
    }
}

enum Order {
    Merge(Work),
    /// One thread is to end.
    End,
}

struct Work {
    task: Task,
    rules: Rules,
    send: Sender<Message>,
    /// Nobody wants the rest of its run any more.
    stopped: Arc<AtomicBool>,
}

/// Stops the tasks of a run, however that ends: who waits for a block then waits no longer.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Threads that merge tasks.
pub struct EmitThreads {
    orders: Option<Sender<Order>>,
    threads: Vec<Thread<()>>,
    clocks: Arc<Clocks>,
}

/// Time spent, summed over threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmitTimes {
    /// Merging.
    pub busy: Duration,
    /// Merging threads waiting for a free block.
    pub waited: Duration,
    /// The sequencer in the sink.
    pub sink: Duration,
}

#[derive(Default)]
struct Clocks {
    working_ns: AtomicU64,
    waited_ns: AtomicU64,
    sink_ns: AtomicU64,
}

fn add(clock: &AtomicU64, time: Duration) {
    clock.fetch_add(time.as_nanos() as u64, Relaxed);
}

fn take(clock: &AtomicU64) -> Duration {
    Duration::from_nanos(clock.swap(0, Relaxed))
}

impl EmitThreads {
    /// Starts `threads` threads, each with `blocks` blocks of `block_bytes` from `pool`.
    pub fn start<R: Records>(
        records: &Arc<R>,
        pool: &Pool,
        threads: usize,
        blocks: usize,
        block_bytes: usize,
    ) -> Result<Self, SortError> {
        let (send, receive) = unbounded::<Order>();
        let clocks = Arc::new(Clocks::default());
        let threads = threads.max(1);
        let region = || pool.region(blocks * block_bytes, "merged records");
        let mut regions = (0..threads).map(|_| region()).collect::<Result<Vec<_>, _>>()?;
        let started = start_some(threads, |number| {
            let blocks = BlockPool::new(regions.pop().unwrap_or_else(|| Buf::heap(0)), block_bytes);
            let (records, receive, clocks) = (Arc::clone(records), receive.clone(), Arc::clone(&clocks));
            spawn(&format!("merge {number}"), move || emit_thread(&*records, &receive, &blocks, &clocks))
        })?;
        let mut this = EmitThreads { orders: Some(send), threads: started, clocks };
        if this.threads.len() < threads {
            this.leave_threads_to_others();
        }
        Ok(this)
    }

    /// Ends some threads, as the system starts no more: others of the job cannot do without theirs.
    fn leave_threads_to_others(&mut self) {
        let left = self.threads.len().saturating_sub(THREADS_OF_OTHERS).max(1);
        let surplus = self.threads.len() - left;
        for _ in 0..surplus {
            let _ = self.orders.as_ref().map(|orders| orders.send(Order::End));
        }
        while self.threads.len() > left {
            std::thread::sleep(Duration::from_millis(1));
            self.threads.retain(|thread| !thread.is_finished());
        }
        // The system counts a thread for a moment after its end.
        std::thread::sleep(Duration::from_millis(5));
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Merges `tasks`; `sink` gets their chunks in order. Returns the sums over all of them.
    pub fn run(
        &self,
        tasks: Vec<Task>,
        rules: Rules,
        cancel: &Cancel,
        sink: &mut dyn FnMut(Chunk) -> Result<(), SortError>,
    ) -> Result<Merged, SortError> {
        let stop = StopOnDrop(Arc::default());
        let mut receivers = Vec::with_capacity(tasks.len());
        for task in tasks {
            let (send, receive) = unbounded();
            receivers.push(receive);
            if let Some(orders) = &self.orders {
                let _ = orders.send(Order::Merge(Work { task, rules, send, stopped: Arc::clone(&stop.0) }));
            }
        }
        let mut total = Merged::default();
        for receive in receivers {
            let merged = sequence(&receive, cancel, &self.clocks, sink)?;
            total.out.combine(&merged.out);
            total.dropped.combine(&merged.dropped);
            total.last_key = merged.last_key.or(total.last_key);
        }
        Ok(total)
    }

    /// The time spent since the last call.
    pub fn take_times(&self) -> EmitTimes {
        let waited = take(&self.clocks.waited_ns);
        let busy = take(&self.clocks.working_ns).saturating_sub(waited);
        EmitTimes { busy, waited, sink: take(&self.clocks.sink_ns) }
    }
}

impl Drop for EmitThreads {
    fn drop(&mut self) {
        self.orders = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn sequence(
    receive: &Receiver<Message>,
    cancel: &Cancel,
    clocks: &Clocks,
    sink: &mut dyn FnMut(Chunk) -> Result<(), SortError>,
) -> Result<Merged, SortError> {
    let mut waiting = None;
    loop {
        match receive.recv_timeout(BETWEEN_LOOKS) {
            // Its thread may wait for blocks that the reader of a pipe does not take.
            Err(RecvTimeoutError::Timeout) => {
                cancel.check()?;
                waiting.get_or_insert_with(|| wait_for("chunks of merged records", Need::Blocked, None));
            }
            Ok(Message::Chunk(chunk)) => {
                waiting = None;
                cancel.check()?;
                let since = Instant::now();
                sink(chunk)?;
                add(&clocks.sink_ns, since.elapsed());
            }
            Ok(Message::Done(merged)) => return Ok(merged),
            // Only a thread that died leaves a task unfinished.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SortError::Internal("a merging thread ended early"));
            }
        }
    }
}

fn emit_thread<R: Records>(records: &R, orders: &Receiver<Order>, blocks: &BlockPool, clocks: &Arc<Clocks>) {
    while let Ok(Order::Merge(work)) = receive(orders, "tasks to merge", Need::Idle) {
        let Work { task, rules, send, stopped } = work;
        let since = Instant::now();
        let mut emitter = Emitter::new(blocks.clone(), send, Arc::clone(clocks), stopped);
        let merged = records.merge(&task, rules, &mut emitter);
        drop(task);
        if let Ok(merged) = merged {
            emitter.finish(merged);
        }
        add(&clocks.working_ns, since.elapsed());
    }
}

/// Adds up what tasks came to over a whole pass.
#[derive(Clone, Debug, Default)]
pub struct PassSums {
    /// Records emitted.
    pub out: RecordSum,
    /// Records left out.
    pub dropped: RecordSum,
}

impl PassSums {
    /// Adds one batch or load.
    pub fn add(&mut self, merged: &Merged) {
        self.out.combine(&merged.out);
        self.dropped.combine(&merged.dropped);
    }
}
