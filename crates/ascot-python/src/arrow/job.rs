//! A job whose input or output is in this process.
//!
//! ```text
//!   calling thread                              threads of the job
//!   Source::next ─▶ [slot: one batch] ─▶ RecordSource: batches become records ─▶ engine   (for each input)
//!   RecordStream: records become batches ◀─ [blocks of the job's memory] ◀───────┘
//! ```
//!
//! The calling thread begins the job, passes batches to it and polls signals until the first block of the output comes
//! or the job ends. It then returns, and the reader of the output drives the rest: the job waits while no block is
//! taken. From then on no thread of the job needs the interpreter.
//!
//! Invariants: the slot and the source of an input hold at most two batches; every block belongs to the memory of
//! the job. The job has ended and removed its files when its [`JobHandle`] has been dropped, unless it waits for a
//! foreign stream.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use ascot_io::threads::Thread;
use ascot_io::{BlockSink, Buf, Unpoisoned, threads};
use ascot_model::report::Report;
use ascot_sort::{Cancel, Observer, Progress, SortError};
use pyo3::prelude::*;

use super::import::Source;
use crate::errors::{Failure, Result};
use crate::running::{PAUSE, Running, Unfinished, report_progress};

/// The part of a job that the calling thread, the threads of the job and the reader of its output share.
///
/// `Default` makes that of a job without inputs in this process.
#[derive(Default)]
pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    cancel: Cancel,
}

#[derive(Default)]
struct State {
    /// One for each input in this process.
    slots: Vec<Slot>,
    /// Blocks of the output that were not taken yet, and the number of bytes in each.
    blocks: VecDeque<(Buf, usize)>,
    /// The end of the job.
    ended: bool,
    /// Its report, if it makes one.
    result: Option<Result<Option<Report>>>,
    /// Why the source of batches stopped the job.
    source_failure: Option<Failure>,
    progress: Option<Progress>,
    warnings: Vec<String>,
}

/// The next batch of an input on its way to the job.
#[derive(Default)]
enum Slot {
    /// The job will want it.
    #[default]
    Empty,
    /// The job waits for it.
    Wanted,
    Full(RecordBatch),
    /// There are no more.
    Ended,
}

impl Shared {
    /// Of a job with a number of inputs in this process.
    pub fn new(inputs: usize) -> Shared {
        let slots = std::iter::repeat_with(Slot::default).take(inputs).collect();
        Shared { state: Mutex::new(State { slots, ..State::default() }), ..Shared::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Changes the state, and wakes those who wait.
    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let result = act(&mut self.state());
        self.changed.notify_all();
        result
    }

    /// Waits until `found` returns a value, or for `time`.
    fn wait<T>(&self, time: Duration, mut found: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let until = Instant::now() + time;
        let mut state = self.state();
        loop {
            if let Some(value) = found(&mut state) {
                self.changed.notify_all();
                return Some(value);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unpoisoned().0;
        }
    }

    /// The switch that stops the job.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The next batch that the calling thread passes for `input`; none at the end, or if the job is cancelled.
    pub fn next_batch(&self, input: usize) -> Option<RecordBatch> {
        while !self.cancel.is_cancelled() {
            let taken = self.wait(PAUSE, |state| match std::mem::take(&mut state.slots[input]) {
                Slot::Full(batch) => Some(Some(batch)),
                Slot::Ended => {
                    state.slots[input] = Slot::Ended;
                    Some(None)
                }
                Slot::Empty | Slot::Wanted => {
                    state.slots[input] = Slot::Wanted;
                    None
                }
            });
            if let Some(batch) = taken {
                return batch;
            }
        }
        None
    }

    /// Notes why the source stops the job.
    pub fn fail(&self, failure: Failure) {
        self.change(|state| {
            state.source_failure.get_or_insert(failure);
        });
    }

    /// The report of the job, once it has ended well.
    pub fn report(&self) -> Option<Report> {
        self.state().result.as_ref()?.as_ref().ok()?.clone()
    }

    /// The error of the job, which ends or has ended; none if there was none, or it was told.
    pub fn failure(&self) -> Option<Failure> {
        loop {
            let end = self.wait(PAUSE, |state| {
                state.ended.then(|| match &state.result {
                    Some(Err(_)) => state.end().err(),
                    _ => None,
                })
            });
            if let Some(failure) = end {
                return failure;
            }
        }
    }

    /// Progress since the last call.
    pub fn take_progress(&self) -> Option<Progress> {
        self.state().progress.take()
    }

    /// Warnings for the user since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.state().warnings)
    }
}

impl Observer for Shared {
    fn progress(&self, progress: &Progress) {
        self.state().progress = Some(progress.clone());
    }

    fn warning(&self, text: &str) {
        self.state().warnings.push(text.to_owned());
    }
}

/// The output of a job in this process.
pub struct Blocks(pub Arc<Shared>);

impl BlockSink for Blocks {
    fn put(&mut self, block: Buf, len: usize) {
        self.0.change(|state| state.blocks.push_back((block, len)));
    }

    fn is_taken(&mut self, time: Duration) -> bool {
        self.0.wait(time, |state| state.blocks.is_empty().then_some(())).is_some()
    }
}

/// A running job. Dropping it stops the job.
pub struct JobHandle {
    shared: Arc<Shared>,
    thread: Option<Thread<()>>,
    _running: Running,
}

impl JobHandle {
    /// Begins `work` on a thread of its own.
    ///
    /// # Errors
    /// The system refuses a thread, or this process was forked while a job ran.
    pub fn begin(
        shared: &Arc<Shared>,
        work: impl FnOnce(&Shared) -> Result<Option<Report>> + Send + 'static,
    ) -> Result<JobHandle> {
        let running = Running::begin()?;
        let worker = Arc::clone(shared);
        let unfinished = Unfinished::begin(&shared.cancel);
        let thread = threads::spawn("job", move || {
            let _end = End(&worker);
            let _unfinished = unfinished;
            let result = work(&worker);
            worker.state().result = Some(result);
        })?;
        Ok(JobHandle { shared: Arc::clone(shared), thread: Some(thread), _running: running })
    }

    /// Passes batches of `sources` to the job, polls signals and reports progress, until `until`. A source is the input
    /// of its number; one that is none is read by the job itself.
    ///
    /// # Errors
    /// The exception of a source, of a handler of a signal or of `progress`.
    pub fn attend(
        &self,
        py: Python<'_>,
        sources: &mut [Option<Source>],
        progress: Option<&Py<PyAny>>,
        until: Until,
    ) -> PyResult<()> {
        let mut looked = Instant::now();
        loop {
            let passed: Vec<bool> = sources.iter().map(Option::is_some).collect();
            let event = py.detach(|| {
                self.shared.wait(PAUSE, |state| {
                    let first = until == Until::FirstBlock && !state.blocks.is_empty();
                    if first || state.ended {
                        return Some(Event::Ready);
                    }
                    state.next_to_fill(&passed).map(Event::Fill)
                })
            });
            match event {
                Some(Event::Ready) => return Ok(()),
                Some(Event::Fill(input)) => {
                    let next = sources[input].as_mut().map_or(Ok(None), |source| source.next(py))?;
                    let slot = next.map_or(Slot::Ended, Slot::Full);
                    if matches!(slot, Slot::Ended) {
                        sources[input] = None;
                    }
                    self.shared.change(|state| state.slots[input] = slot);
                }
                None => {}
            }
            if looked.elapsed() >= PAUSE || event.is_none() {
                looked = Instant::now();
                let news = self.shared.state().progress.take();
                report_progress(py, news, progress)?;
            }
        }
    }

    /// The next block of the output; none once the job has ended well. It calls `look` while it waits.
    ///
    /// # Errors
    /// Those of the job and of `look`, after which the job is cancelled.
    pub fn next_block(&self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<Option<(Buf, usize)>> {
        loop {
            let next = self.shared.wait(PAUSE, |state| match state.blocks.pop_front() {
                Some(block) => Some(Ok(Some(block))),
                None if state.ended => Some(state.end()),
                None => None,
            });
            if let Some(next) = next {
                return next;
            }
            look().inspect_err(|_| self.shared.cancel.cancel())?;
        }
    }

    /// The error of the job, if it has failed before its output began.
    ///
    /// # Errors
    /// That of the job.
    pub fn check(&self) -> Result<()> {
        let mut state = self.shared.state();
        if state.ended && state.blocks.is_empty() { state.end().map(drop) } else { Ok(()) }
    }

    /// The report of the job, which has ended.
    ///
    /// # Errors
    /// That of the job.
    pub fn report(&self) -> Result<Report> {
        self.check()?;
        self.shared.report().ok_or(FAULT)
    }

    /// Stops the job, and waits for its end. While the job may still hold the stream of another library, the caller
    /// must not hold the interpreter.
    pub fn stop(&mut self) {
        self.shared.cancel.cancel();
        self.shared.change(|state| {
            state.slots.fill_with(|| Slot::Ended);
            state.blocks.clear();
        });
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Calls `find` with the first block of the output; returns the default if there is none.
    pub fn of_first_block<T: Default>(&self, find: impl FnOnce(&[u8]) -> T) -> T {
        let state = self.shared.state();
        state.blocks.front().map_or_else(T::default, |(block, len)| find(&block[..*len]))
    }
}

/// A job that ended without a result.
const FAULT: Failure = Failure::Sort(SortError::Internal("a thread of the job has died"));

impl State {
    /// The input that needs a batch next, one for which the job waits if there is one.
    fn next_to_fill(&self, passed: &[bool]) -> Option<usize> {
        let find = |wanted: fn(&Slot) -> bool| {
            self.slots.iter().zip(passed).position(|(slot, &passed)| passed && wanted(slot))
        };
        find(|slot| matches!(slot, Slot::Wanted)).or_else(|| find(|slot| matches!(slot, Slot::Empty)))
    }

    /// The error of a job that has ended, if it failed.
    fn end(&mut self) -> Result<Option<(Buf, usize)>> {
        if let Some(failure) = self.source_failure.take() {
            return Err(failure);
        }
        match self.result.take() {
            Some(Err(failure)) => Err(failure),
            Some(ended) => {
                self.result = Some(ended);
                Ok(None)
            }
            None => Err(FAULT),
        }
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How long the calling thread attends to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until its output begins.
    FirstBlock,
    /// Until it ends.
    End,
}

#[derive(Clone, Copy)]
enum Event {
    Ready,
    /// An input needs a batch.
    Fill(usize),
}

/// Reports the end of the job when it is dropped, also by a panic.
struct End<'w>(&'w Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.ended = true);
    }
}
