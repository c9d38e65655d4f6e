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
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ascot_io::threads::{Thread, spawn, start_some};
use ascot_io::waits::{Need, receive, wait_for};
use ascot_io::{BlockPool, Buf, Pool};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::records::emitter::{Chunk, Clocks, Emitter, Merged, Message, add, take};
use crate::records::{Records, Rules, Task};

/// Threads left to others where the system refuses some: a reader, one that sorts, two for devices and pipes.
const THREADS_OF_OTHERS: usize = 4;

/// How often who waits for chunks looks whether the job is to stop.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

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
