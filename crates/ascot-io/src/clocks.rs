//! The clocks of a job's threads: they show where the time goes.
//!
//! A thread that works for a job has a clock. It is always in one *stage*, the part of the job for which the thread
//! works, and in one *state*: busy, or waiting for input, memory or the device. A switch ends one interval and begins
//! the next at the same moment, so the states add up to the time that the thread spends in the stage:
//!
//! ```text
//!   sort 0  ├─ busy ─┼─ input ─┼── busy ──┼─ memory ─┼ busy ┤
//!           ^ enters the stage `sort`                       ^ leaves it
//! ```
//!
//! [`threads`](crate::threads) gives every thread that a job starts a clock of this job, and [`waits`](crate::waits)
//! switches its state where it waits. The wall time of a stage is measured apart, from entering to leaving, and so is
//! the processor time.
//!
//! A switch takes one look at the time and one lock that others take only when the account is read. Threads that work
//! for no job have no clock, and their switches do nothing.
//!
//! Lock order: `book`, then `run` or `device`.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::processor_time::{self, ProcessorClock};
use crate::sync::Unpoisoned;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It works, or is ready to work and gets no processor.
    Busy,
    /// It waits for data: from another thread, or from the program at the other end of a pipe.
    Input,
    /// It waits for a free buffer, or for a place in the queue of the threads after it or in a full pipe.
    Memory,
    /// It waits for a transfer, for its turn on the device, or for bytes to become durable.
    Device,
}

/// The time of one thread in one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// The stage.
    pub stage: String,
    /// The thread.
    pub thread: String,
    /// From entering the stage to leaving it.
    pub wall: Duration,
    /// On a processor.
    pub processor: Duration,
    /// In [`State::Busy`].
    pub busy: Duration,
    /// In [`State::Input`].
    pub input: Duration,
    /// In [`State::Memory`].
    pub memory: Duration,
    /// In [`State::Device`].
    pub device: Duration,
    /// Bytes that the thread has counted.
    pub bytes: u64,
}

impl ThreadTimes {
    fn new(stage: &str, thread: &str) -> Self {
        ThreadTimes { stage: stage.into(), thread: thread.into(), ..ThreadTimes::default() }
    }

    fn of(&mut self, state: State) -> &mut Duration {
        match state {
            State::Busy => &mut self.busy,
            State::Input => &mut self.input,
            State::Memory => &mut self.memory,
            State::Device => &mut self.device,
        }
    }

    fn add(&mut self, more: &ThreadTimes) {
        self.wall += more.wall;
        self.processor += more.processor;
        self.busy += more.busy;
        self.input += more.input;
        self.memory += more.memory;
        self.device += more.device;
        self.bytes += more.bytes;
    }
}

/// The times of all threads of a job up to a moment.
#[derive(Clone, Debug)]
pub struct Times {
    /// The moment.
    pub until: Instant,
    /// By stage and thread.
    pub threads: Vec<ThreadTimes>,
    /// Time in which at least one thread waited for a device, or a device thread had requests in flight.
    pub device: Duration,
}

/// The clocks of one job; clones are the same clocks.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    book: Mutex<Book>,
    device: Mutex<Union>,
}

/// The threads that have a clock, and the times of those that have ended.
#[derive(Debug, Default)]
struct Book {
    running: Vec<Arc<ThreadClock>>,
    ended: Vec<ThreadTimes>,
    taken: Taken,
}

/// The times that were taken.
#[derive(Clone, Debug, Default)]
struct Taken {
    threads: Vec<ThreadTimes>,
    device: Duration,
}

/// The union of intervals.
#[derive(Debug, Default)]
pub(crate) struct Union {
    open: usize,
    since: Option<Instant>,
    total: Duration,
}

#[derive(Debug)]
struct ThreadClock {
    clocks: Clocks,
    thread: String,
    processor: Option<ProcessorClock>,
    run: Mutex<Run>,
}

/// The current interval of a thread, and the times of its stages so far.
#[derive(Debug)]
struct Run {
    state: State,
    /// Start of the state.
    since: Instant,
    /// Start of the stage.
    entered: Instant,
    /// Processor time at the start of the stage.
    processor: Duration,
    stages: Vec<ThreadTimes>,
    /// The current one of them.
    at: usize,
}

thread_local! {
    static CLOCK: RefCell<Option<Arc<ThreadClock>>> = const { RefCell::new(None) };
}

/// Calls `work` with the clock of this thread. None if it has no clock, or is ending.
fn with_clock<T>(work: impl FnOnce(&ThreadClock) -> T) -> Option<T> {
    CLOCK.try_with(|clock| clock.borrow().as_deref().map(work)).ok().flatten()
}

impl Clocks {
    /// Clocks of a new job.
    pub fn new() -> Self {
        Self::default()
    }

    /// The clocks of the job for which this thread works.
    pub fn of_thread() -> Option<Clocks> {
        with_clock(|clock| clock.clocks.clone())
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.book.lock().unpoisoned()
    }

    fn device(&self) -> MutexGuard<'_, Union> {
        self.inner.device.lock().unpoisoned()
    }

    /// From now on the calling thread works for this job under the name `thread`, until the returned guard is
    /// dropped. The name without its number is that of the stage.
    pub fn enter(&self, thread: &str) -> Entered {
        let mut book = self.book();
        let name = book.free_name(thread);
        let stage = ThreadTimes::new(stage_of(thread), &name);
        let now = Instant::now();
        let run = Run {
            state: State::Busy,
            since: now,
            entered: now,
            processor: processor_time::of_thread(),
            stages: vec![stage],
            at: 0,
        };
        let clock = Arc::new(ThreadClock {
            clocks: self.clone(),
            thread: name,
            processor: ProcessorClock::of_caller(),
            run: Mutex::new(run),
        });
        book.running.push(Arc::clone(&clock));
        drop(book);
        let before = CLOCK.try_with(|current| current.replace(Some(Arc::clone(&clock)))).ok().flatten();
        Entered { clock, before }
    }

    /// The times since the last call, of threads that have ended and of those that still work.
    pub fn take(&self) -> Times {
        let mut book = self.book();
        let mut threads = std::mem::take(&mut book.ended);
        let now = Instant::now();
        book.count_until(now);
        book.running.iter().for_each(|clock| clock.run().take_into(&mut threads));
        let times = Times { until: now, threads, device: self.device().take(now) };
        book.taken.add(&times);
        times
    }

    /// The times from the start, whether they were taken or not.
    pub fn so_far(&self) -> Times {
        let book = self.book();
        let now = Instant::now();
        book.count_until(now);
        let Taken { mut threads, device } = book.taken.clone();
        add_all(&mut threads, &book.ended);
        book.running.iter().for_each(|clock| add_all(&mut threads, &clock.run().stages));
        Times { until: now, threads, device: device + self.device().open_until(now) }
    }
}

impl Taken {
    fn add(&mut self, more: &Times) {
        add_all(&mut self.threads, &more.threads);
        self.device += more.device;
    }
}

/// Adds `more` times, by stage and thread.
fn add_all(threads: &mut Vec<ThreadTimes>, more: &[ThreadTimes]) {
    more.iter().for_each(|times| add_to(threads, times.clone()));
}

/// The name of a thread without its number.
fn stage_of(thread: &str) -> &str {
    thread.trim_end_matches(|digit: char| digit.is_ascii_digit()).trim_end()
}

impl Book {
    /// Counts the intervals of running threads up to `now`.
    fn count_until(&self, now: Instant) {
        for clock in &self.running {
            // The thread cannot end meanwhile: it would need the book.
            let processor = clock.processor.and_then(ProcessorClock::read);
            clock.run().count_until(now, processor);
        }
    }

    /// A name that no running thread has: `name`, or with a number after it.
    fn free_name(&self, name: &str) -> String {
        let is_free = |wanted: &str| self.running.iter().all(|clock| clock.thread != wanted);
        let numbered = (2..).map(|number| format!("{name} {number}"));
        std::iter::once(name.to_owned()).chain(numbered).find(|name| is_free(name)).unwrap_or_default()
    }
}

/// Adds `times` to those of the same thread in the same stage.
fn add_to(threads: &mut Vec<ThreadTimes>, times: ThreadTimes) {
    let same = |known: &&mut ThreadTimes| known.thread == times.thread && known.stage == times.stage;
    match threads.iter_mut().find(same) {
        Some(known) => known.add(&times),
        None => threads.push(times),
    }
}

impl Union {
    pub(crate) fn begin(&mut self, now: Instant) {
        self.open += 1;
        self.since.get_or_insert(now);
    }

    pub(crate) fn end(&mut self, now: Instant) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0
            && let Some(since) = self.since.take()
        {
            self.total += now.saturating_duration_since(since);
        }
    }

    /// The total, with the open interval up to `now`.
    pub(crate) fn open_until(&mut self, now: Instant) -> Duration {
        if let Some(since) = &mut self.since {
            self.total += now.saturating_duration_since(*since);
            *since = now;
        }
        self.total
    }

    fn take(&mut self, now: Instant) -> Duration {
        let total = self.open_until(now);
        self.total = Duration::ZERO;
        total
    }
}

impl ThreadClock {
    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unpoisoned()
    }

    /// Switches to `state`; returns the state before.
    fn switch(&self, state: State) -> State {
        let now = Instant::now();
        let mut run = self.run();
        run.end_state(now);
        let before = std::mem::replace(&mut run.state, state);
        drop(run);
        self.note_device(before, state, now);
        before
    }

    fn note_device(&self, before: State, after: State, now: Instant) {
        match (before == State::Device, after == State::Device) {
            (false, true) => self.clocks.device().begin(now),
            (true, false) => self.clocks.device().end(now),
            _ => {}
        }
    }

    /// Switches back to `before` after a call of the system, `worked` of which was processor time.
    fn end_call(&self, before: State, worked: Duration) {
        let now = Instant::now();
        let mut run = self.run();
        run.end_state(now);
        let during = std::mem::replace(&mut run.state, before);
        let times = run.times();
        let worked = worked.min(*times.of(during));
        *times.of(during) -= worked;
        times.busy += worked;
        drop(run);
        self.note_device(during, before, now);
        if during == State::Device && before != State::Device {
            let mut device = self.clocks.device();
            device.total = device.total.saturating_sub(worked);
        }
    }

    /// Switches to a stage; returns the stage before, if it is another.
    fn switch_stage(&self, stage: &str) -> Option<String> {
        let now = Instant::now();
        let mut run = self.run();
        if run.times().stage == stage {
            return None;
        }
        run.end_state(now);
        run.end_stage(now, processor_time::of_thread());
        let before = run.times().stage.clone();
        run.at = run.stages.iter().position(|times| times.stage == stage).unwrap_or_else(|| {
            run.stages.push(ThreadTimes::new(stage, &self.thread));
            run.stages.len() - 1
        });
        Some(before)
    }
}

impl Run {
    fn times(&mut self) -> &mut ThreadTimes {
        &mut self.stages[self.at]
    }

    fn end_state(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since);
        self.since = self.since.max(now);
        let state = self.state;
        *self.times().of(state) += elapsed;
    }

    fn end_stage(&mut self, now: Instant, processor: Duration) {
        let wall = now.saturating_duration_since(self.entered);
        let worked = processor.saturating_sub(self.processor);
        self.entered = self.entered.max(now);
        self.processor = processor;
        let times = self.times();
        times.wall += wall;
        times.processor += worked;
    }

    /// Counts the intervals up to `now`. `processor`: the processor time of the thread, if it is known.
    fn count_until(&mut self, now: Instant, processor: Option<Duration>) {
        self.end_state(now);
        let processor = processor.unwrap_or(self.processor);
        self.end_stage(now, processor);
    }

    /// Moves the times counted to `threads`.
    fn take_into(&mut self, threads: &mut Vec<ThreadTimes>) {
        let ThreadTimes { stage, thread, .. } = self.times();
        let current = ThreadTimes::new(stage, thread);
        for times in std::mem::replace(&mut self.stages, vec![current]) {
            add_to(threads, times);
        }
        self.at = 0;
    }
}

/// The calling thread works for a job, until this is dropped, by the same thread.
#[derive(Debug)]
pub struct Entered {
    clock: Arc<ThreadClock>,
    /// The clock that the thread had before.
    before: Option<Arc<ThreadClock>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let now = Instant::now();
        let clocks = self.clock.clocks.clone();
        let mut book = clocks.book();
        book.running.retain(|clock| !Arc::ptr_eq(clock, &self.clock));
        let mut run = self.clock.run();
        let state = run.state;
        run.count_until(now, Some(processor_time::of_thread()));
        run.take_into(&mut book.ended);
        drop(run);
        drop(book);
        self.clock.note_device(state, State::Busy, now);
        let before = self.before.take();
        // A thread that is ending has no clock any more.
        let _ = CLOCK.try_with(|current| {
            let mut current = current.borrow_mut();
            if current.as_ref().is_some_and(|clock| Arc::ptr_eq(clock, &self.clock)) {
                *current = before;
            }
        });
    }
}

/// The thread waits, or works for another stage, until this is dropped.
#[derive(Debug)]
pub struct Switched<T> {
    before: Option<T>,
    back: fn(&ThreadClock, T),
}

impl<T> Drop for Switched<T> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            with_clock(|clock| (self.back)(clock, before));
        }
    }
}

/// Switches this thread to `state` until the returned guard is dropped.
pub fn in_state(state: State) -> Switched<State> {
    let back = |clock: &ThreadClock, before| {
        clock.switch(before);
    };
    Switched { before: with_clock(|clock| clock.switch(state)), back }
}

/// Makes this thread work for the stage `name` until the returned guard is dropped.
pub fn in_stage(name: &'static str) -> Switched<String> {
    let before = with_clock(|clock| clock.switch_stage(name)).flatten();
    let back = |clock: &ThreadClock, before: String| {
        clock.switch_stage(&before);
    };
    Switched { before, back }
}

/// Calls the system, which may keep this thread waiting in `state`. The processor time of the call counts as busy.
pub fn call<T>(state: State, system: impl FnOnce() -> T) -> T {
    let Some(before) = with_clock(|clock| clock.switch(state)) else { return system() };
    let worked_before = processor_time::of_thread();
    let result = system();
    let worked = processor_time::of_thread().saturating_sub(worked_before);
    with_clock(|clock| clock.end_call(before, worked));
    result
}

/// Counts `bytes` that this thread has moved for its stage.
pub fn count(bytes: u64) {
    with_clock(|clock| clock.run().times().bytes += bytes);
}
