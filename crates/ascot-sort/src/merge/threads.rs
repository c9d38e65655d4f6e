//! The threads of merges: a batch of sorted sources is cut into tasks by key range, and each thread merges one task at
//! a time.
//!
//! ```text
//!   source 0  [  .  |  .  |  .  ]      .: samples, at another place of each source
//!   source 1  [ .   | .   | .   ]      |: the splitters, quantiles of all samples
//!              task 0  1     2
//! ```
//!
//! They also sum up the records of blocks ([`BlockSum`]), so that the thread that reads and writes need not.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ascot_io::threads::{Thread, spawn, start_some};
use ascot_io::waits::{Need, receive, receive_looking, wait_for};
use ascot_io::{BlockPool, Buf, Pool, Unpoisoned};
use ascot_record::checksum::RecordSum;
use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::api::{Cancel, Result, SortError};
use crate::records::unchecked::merge_unchecked;
use crate::records::{Emitter, Merged, MergedBlock, Message, Records, Rules, Segment, Side, Sorted, Task};

/// Multiples of it, without their whole part, are evenly spread over 0 to 1, however many.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;

/// Number of samples per task.
const SAMPLES_PER_TASK: usize = 12;

/// Conditions that tasks must respect.
#[derive(Clone, Debug, Default)]
pub struct CutRules {
    /// Key emitted before, if duplicates are dropped.
    pub previous: Option<Vec<u8>>,
    /// Whether the key of the last record is needed.
    pub keeps_key: bool,
    /// Maximum number of records to emit; if set, there is only one task.
    pub limit: Option<u64>,
}

/// Cuts sources into about `tasks` tasks of similar size. Records with equal keys stay in one
/// task.
pub fn cut_tasks<R: Records>(
    records: &R,
    sources: Vec<Vec<Segment>>,
    tasks: usize,
    rules: CutRules,
) -> Vec<Task> {
    let limit = rules.limit.unwrap_or(u64::MAX);
    let splitters =
        if tasks <= 1 || rules.limit.is_some() { Vec::new() } else { splitters(records, &sources, tasks) };
    let mut cut: Vec<Task> = (0..=splitters.len())
        .map(|_| Task { sources: Vec::with_capacity(sources.len()), previous: None, last: false, limit })
        .collect();
    for source in sources {
        let mut shares: Vec<Vec<Segment>> = vec![Vec::new(); cut.len()];
        // The first task that may get a segment: records of one source go to tasks in their order, sorted or not.
        let mut first = 0;
        for mut segment in source {
            while !segment.is_empty() {
                let at = match splitters.get(first) {
                    Some(splitter) => records.position(&segment, splitter, Side::Lower, true),
                    None => segment.hi,
                };
                if at > segment.lo {
                    shares[first].push(Segment { hi: at, ..segment.clone() });
                    segment.lo = at;
                }
                first += usize::from(at < segment.hi);
            }
        }
        for (task, share) in cut.iter_mut().zip(shares) {
            if !share.is_empty() {
                task.sources.push(share);
            }
        }
    }
    // A task without records does not know the key before it.
    cut.retain(|task| !task.sources.is_empty());
    if let Some(first) = cut.first_mut() {
        first.previous = rules.previous;
    }
    if let Some(last) = cut.last_mut() {
        last.last = rules.keeps_key;
    }
    cut
}

fn splitters<R: Records>(records: &R, sources: &[Vec<Segment>], tasks: usize) -> Vec<R::Bound> {
    let total: u64 = sources.iter().flatten().map(|segment| records.bytes_in(segment)).sum();
    let wanted = (tasks * SAMPLES_PER_TASK) as u64;
    let mut samples = Vec::new();
    let mut owed = 0;
    let mut phase = 0.5;
    for segment in sources.iter().flatten().filter(|segment| !segment.is_empty()) {
        // Small segments are sampled in turn.
        owed += records.bytes_in(segment) * wanted;
        let count = owed / total.max(1);
        owed -= count * total.max(1);
        records.sample(segment, count as usize, phase, &mut samples);
        // Samples at the same places of segments with alike keys would be a few keys over and over.
        phase = (phase + GOLDEN_RATIO) % 1.0;
    }
    samples.sort_by(|a, b| records.compare_keys(a, b));
    let mut splitters: Vec<R::Bound> =
        (1..tasks).filter_map(|i| samples.get(samples.len() * i / tasks).cloned()).collect();
    splitters.dedup_by(|a, b| records.compare_keys(a, b).is_eq());
    splitters
}

/// Threads left for other uses if the system refuses some: a reader, a sorter, two for devices and pipes.
const THREADS_OF_OTHERS: usize = 4;

/// Interval at which a thread that waits for blocks checks whether the job is cancelled.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

enum Order {
    Merge(Work),
    /// Sums up the records of a block.
    Sum(Unsummed),
    /// Ends one thread.
    End,
}

struct Work {
    task: Task,
    rules: Rules,
    send: Sender<Message>,
    /// Set when the rest of its run is not needed any more.
    stopped: Arc<AtomicBool>,
}

/// A block whose records are missing in a sum.
struct Unsummed {
    block: Arc<Sorted>,
    sum: Arc<BlockSum>,
}

impl Drop for Unsummed {
    fn drop(&mut self) {
        self.sum.state.lock().unpoisoned().missing -= 1;
        self.sum.added.notify_all();
    }
}

/// The sum of the records of blocks, to which threads add them. Threads take blocks and tasks in the order in which
/// they came, so a block is hardly longer in use than its last task.
#[derive(Default)]
pub struct BlockSum {
    state: Mutex<SumSoFar>,
    added: Condvar,
}

#[derive(Default)]
struct SumSoFar {
    sum: RecordSum,
    /// Number of blocks that are not added yet.
    missing: usize,
}

impl BlockSum {
    /// Adds a sum.
    pub fn add(&self, sum: &RecordSum) {
        self.state.lock().unpoisoned().sum.combine(sum);
    }

    /// The sum of all blocks, once they are added.
    pub fn wait(&self) -> RecordSum {
        let _waiting = wait_for("sums of records", Need::DATA, None);
        let state = self.state.lock().unpoisoned();
        self.added.wait_while(state, |state| state.missing > 0).unpoisoned().sum
    }
}

/// Stops the tasks of a run, however the run ends: no thread then waits for a block any longer.
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
}

impl EmitThreads {
    /// Starts `threads` threads, each with `blocks` blocks of `block_bytes` from `pool`.
    pub fn start<R: Records>(
        records: &Arc<R>,
        pool: &Pool,
        threads: usize,
        blocks: usize,
        block_bytes: usize,
    ) -> Result<Self> {
        let (send, receive) = unbounded::<Order>();
        let threads = threads.max(1);
        let region = || pool.region(blocks * block_bytes, "merged records");
        let mut regions = (0..threads).map(|_| region()).collect::<Result<Vec<_>, _>>()?;
        let started = start_some(threads, |number| {
            let blocks = BlockPool::new(regions.pop().unwrap_or_else(|| Buf::heap(0)), block_bytes);
            let records = Arc::clone(records);
            let receive = receive.clone();
            spawn(&format!("merge {number}"), move || emit_thread(&*records, &receive, &blocks))
        })?;
        let mut this = EmitThreads { orders: Some(send), threads: started };
        if this.threads.len() < threads {
            this.leave_threads_to_others();
        }
        Ok(this)
    }

    /// No threads: for a job that merges nothing.
    pub fn none() -> Self {
        EmitThreads { orders: None, threads: Vec::new() }
    }

    /// Whether there are none.
    pub fn are_none(&self) -> bool {
        self.threads.is_empty()
    }

    /// Ends some threads, because the system starts no more and the job's other threads are indispensable.
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

    /// Lets a thread add the records of `block` to `sum`.
    pub fn sum(&self, block: &Arc<Sorted>, sum: &Arc<BlockSum>) {
        sum.state.lock().unpoisoned().missing += 1;
        let unsummed = Unsummed { block: Arc::clone(block), sum: Arc::clone(sum) };
        let _ = self.orders.as_ref().map(|orders| orders.send(Order::Sum(unsummed)));
    }

    /// Merges `tasks`; `sink` gets their blocks in order. Returns the sums over all of them.
    pub fn run(
        &self,
        tasks: Vec<Task>,
        rules: Rules,
        cancel: &Cancel,
        sink: &mut dyn FnMut(MergedBlock) -> Result<()>,
    ) -> Result<Merged> {
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
            total.add(sequence(&receive, cancel, sink)?);
        }
        Ok(total)
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
    sink: &mut dyn FnMut(MergedBlock) -> Result<()>,
) -> Result<Merged> {
    let what = "blocks of merged records";
    loop {
        // The merging thread may wait for blocks that the reader of a pipe does not take.
        match receive_looking(receive, what, Need::DATA, BETWEEN_LOOKS, &mut || cancel.check())? {
            Some(Message::Block(block)) => {
                cancel.check()?;
                sink(block)?;
            }
            Some(Message::Done(merged)) => return Ok(merged),
            Some(Message::Unordered(error, task)) => {
                drop(task);
                return Err(error);
            }
            // Only a thread that died leaves a task unfinished.
            None => return Err(SortError::Internal("a merging thread ended early")),
        }
    }
}

fn emit_thread<R: Records>(records: &R, orders: &Receiver<Order>, blocks: &BlockPool) {
    while let Ok(order) = receive(orders, "tasks to merge", Need::WORK) {
        let Work { task, rules, send, stopped } = match order {
            Order::Merge(work) => work,
            Order::Sum(unsummed) => {
                let mut sum = RecordSum::new();
                records.sum(unsummed.block.record_bytes(), &mut sum);
                unsummed.sum.add(&sum);
                continue;
            }
            Order::End => break,
        };
        let mut emitter = Emitter::new(blocks.clone(), send, stopped);
        let merged = if task.is_unchecked() {
            merge_unchecked(records, &task, rules, &mut emitter)
        } else {
            records.merge(&task, rules, &mut emitter).ok().map(Ok)
        };
        match merged {
            Some(Ok(merged)) => {
                drop(task);
                emitter.finish(Message::Done(merged));
            }
            Some(Err(error)) => emitter.finish(Message::Unordered(error, Box::new(task))),
            None => {}
        }
    }
}
