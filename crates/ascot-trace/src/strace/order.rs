//! Puts events in the order of their times.
//!
//! A log has a call at its end, with the time of its start. So an event waits while a call that started earlier has
//! not ended. Invariant: at most [`MAX_WAITING`] events wait; beyond it the earliest leaves.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::event::Event;

/// Events that wait for earlier calls.
const MAX_WAITING: usize = 1 << 18;

/// Takes the events of a log.
pub type Sink<'a> = &'a mut dyn FnMut(&Event) -> Result<()>;

/// Sorts events, and passes them on.
pub struct Order<'a> {
    sink: Sink<'a>,
    /// Starts of calls that have not ended, with their threads.
    running: BTreeSet<(u64, u32)>,
    /// The events that wait, by their times and numbers.
    waiting: BTreeMap<(u64, u64), Event>,
    next: u64,
}

impl<'a> Order<'a> {
    /// Passes events on to `sink`.
    pub fn new(sink: Sink<'a>) -> Order<'a> {
        Order { sink, running: BTreeSet::new(), waiting: BTreeMap::new(), next: 0 }
    }

    /// A call of a thread starts and does not end at once.
    pub fn started(&mut self, time_ns: u64, thread: u32) {
        self.running.insert((time_ns, thread));
    }

    /// That call ends.
    pub fn ended(&mut self, time_ns: u64, thread: u32) {
        self.running.remove(&(time_ns, thread));
    }

    /// Adds an event, and passes on all that need not wait.
    pub fn push(&mut self, event: Event) -> Result<()> {
        if self.waiting.is_empty() && self.running.is_empty() {
            return (self.sink)(&event);
        }
        self.waiting.insert((event.time_ns, self.next), event);
        self.next += 1;
        let earliest = self.running.first().map_or(u64::MAX, |(time_ns, _)| *time_ns);
        self.pass(earliest)
    }

    fn pass(&mut self, until_ns: u64) -> Result<()> {
        while let Some((&(time_ns, _), event)) = self.waiting.first_key_value()
            && (time_ns <= until_ns || self.waiting.len() > MAX_WAITING)
        {
            (self.sink)(event)?;
            self.waiting.pop_first();
        }
        Ok(())
    }

    /// Passes on the rest.
    pub fn finish(mut self) -> Result<()> {
        self.pass(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;

    fn at(time_ns: u64) -> Event {
        Event { time_ns, process: 0, file: 0, kind: Kind::Read, jumped: false, offset: 0, size: 1 }
    }

    #[test]
    fn an_event_waits_for_calls_that_started_earlier() {
        let mut times = Vec::new();
        let mut sink = |event: &Event| {
            times.push(event.time_ns);
            Ok(())
        };
        let mut order = Order::new(&mut sink);
        order.push(at(1)).unwrap();
        order.started(2, 7);
        order.push(at(3)).unwrap();
        order.push(at(5)).unwrap();
        order.ended(2, 7);
        order.started(4, 8);
        order.push(at(2)).unwrap();
        order.finish().unwrap();
        assert_eq!(times, [1, 2, 3, 5]);
    }
}
