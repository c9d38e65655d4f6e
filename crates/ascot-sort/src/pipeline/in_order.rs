//! The caller's end of a pipeline: results in the order in which their items were read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ascot_io::waits::{Need, wait_for};
use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::{Message, ReadTimes, Shared};
use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::resources::turns::{Seat, Side, Turns};

/// Time between two calls of what the caller does while it waits.
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
    read_times: ReadTimes,
    waited: Duration,
}

impl<'a, O> InOrder<'a, O> {
    pub(super) fn new(
        messages: Receiver<Message<O>>,
        shared: &'a Shared,
        turns: Option<Arc<Turns>>,
        cancel: &'a Cancel,
    ) -> Self {
        InOrder {
            messages,
            shared,
            turns,
            cancel,
            arrived: BTreeMap::new(),
            next: 0,
            ready: 0,
            total: None,
            read_times: ReadTimes::default(),
            waited: Duration::ZERO,
        }
    }

    /// The caller's seat at the device, for writes while the reader reads.
    pub fn writer(&self) -> Seat {
        Seat::new(self.turns.as_ref(), Side::Writer)
    }

    /// The next result, waited for; none after the last.
    pub fn next_result(&mut self) -> Result<Option<O>, SortError> {
        let cancel = self.cancel;
        self.next_result_or(&mut || cancel.check())
    }

    /// As [`InOrder::next_result`]; calls `idle` now and then while it waits.
    pub fn next_result_or(
        &mut self,
        idle: &mut dyn FnMut() -> Result<(), SortError>,
    ) -> Result<Option<O>, SortError> {
        loop {
            self.cancel.check()?;
            if self.ready > 0 {
                return Ok(self.take());
            }
            if self.ends_after(0) {
                return Ok(None);
            }
            self.wait_or(idle)?;
        }
    }

    /// Waits until something changes: a result arrives, the reader ends or waits for memory.
    pub fn wait(&mut self) -> Result<(), SortError> {
        let cancel = self.cancel;
        self.wait_or(&mut || cancel.check())
    }

    fn wait_or(&mut self, idle: &mut dyn FnMut() -> Result<(), SortError>) -> Result<(), SortError> {
        let since = Instant::now();
        let message = self.receive(idle);
        self.waited += since.elapsed();
        self.cancel.check()?;
        match message? {
            Message::Done(number, result) => {
                self.arrived.insert(number, result);
                while self.arrived.contains_key(&(self.next + self.ready)) {
                    self.ready += 1;
                }
            }
            Message::Starved => {}
            Message::Read(end) => {
                let (total, times) = end?;
                self.total = Some(total);
                self.read_times = times;
            }
            Message::Died => return Err(died()),
        }
        Ok(())
    }

    fn receive(&self, idle: &mut dyn FnMut() -> Result<(), SortError>) -> Result<Message<O>, SortError> {
        let mut waiting = None;
        loop {
            match self.messages.recv_timeout(IDLE_INTERVAL) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Timeout) => {
                    waiting.get_or_insert_with(|| wait_for("results of workers", Need::Blocked, None));
                    idle()?;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(died()),
            }
        }
    }

    /// Results that can be taken without waiting, in order.
    pub fn ready(&self) -> impl ExactSizeIterator<Item = &O> {
        self.arrived.values().take(self.ready as usize)
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

    /// Whether no results follow the next `count`.
    pub fn ends_after(&self, count: usize) -> bool {
        self.total == Some(self.next + count as u64)
    }

    /// Whether the workers have finished every item that the reader has handed on.
    pub fn all_arrived(&self) -> bool {
        self.shared.handed_on.load(Relaxed) == self.next + self.ready
    }

    pub(super) fn read_times(&self) -> ReadTimes {
        self.read_times
    }

    /// Time spent waiting for results.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl<O> Drop for InOrder<'_, O> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Relaxed);
    }
}

/// Names no thread: the scope of the threads replaces this error by one that does.
fn died() -> SortError {
    SortError::Internal("a thread of a pass ended early")
}
