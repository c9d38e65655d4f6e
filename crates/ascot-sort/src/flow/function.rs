//! The streams of a function that runs in this process: bytes go through queues in memory instead of pipes.
//!
//! ```text
//!   thread of the engine                                     thread of the function
//!   FunctionPeer::give ─▶ [queue of an input, 64 KiB]   ─▶ FunctionStreams::read
//!   FunctionPeer::take ◀─ [queue of an output, 64 KiB]  ◀─ FunctionStreams::write
//! ```
//!
//! The engine never waits in here: it polls a descriptor that becomes readable when the function has done
//! something ([`FunctionPeer::event`]). The function waits for at most the time that it gives, so that it can look at
//! signals.
//!
//! Invariants: the queues belong to the memory of the job; after the job has ended the function finds all of its
//! streams over; bytes leave a queue in the order in which they came.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ascot_io::sync::Unpoisoned;
use ascot_io::{Action, Buf, During};
use rustix::event::{EventfdFlags, eventfd};

use crate::api::Result;

/// The streams of a function, as the function uses them. Clones share them.
#[derive(Clone)]
pub struct FunctionStreams {
    shared: Arc<Shared>,
}

/// The result of reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// This number of bytes was moved, at least one.
    Bytes(usize),
    /// The time is over, and nothing could be moved.
    Nothing,
    /// The input has ended.
    End,
    /// The job has ended early: it failed, or was cancelled.
    Over,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the function.
    changed: Condvar,
    /// Wakes the engine.
    event: OwnedFd,
}

struct State {
    inputs: Vec<Queue>,
    outputs: Vec<Queue>,
    /// The input for whose next bytes the function waits.
    wanted: Option<usize>,
    /// The function has ended well.
    ended: bool,
    /// The job has ended.
    over: bool,
    /// The event was signalled, and the engine has not looked since.
    signalled: bool,
}

/// Bytes on their way, in a buffer that is used in a circle.
#[derive(Default)]
struct Queue {
    /// None before the job has given it memory.
    buf: Option<Buf>,
    from: usize,
    len: usize,
    /// No more bytes come.
    closed: bool,
}

impl Queue {
    fn room(&self) -> usize {
        self.buf.as_ref().map_or(0, |buf| buf.len()) - self.len
    }

    /// Appends as many of `bytes` as there is room for.
    fn push(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        let Some(buf) = &mut self.buf else { return 0 };
        let at = (self.from + self.len) % buf.len();
        let first = count.min(buf.len() - at);
        buf[at..at + first].copy_from_slice(&bytes[..first]);
        buf[..count - first].copy_from_slice(&bytes[first..count]);
        self.len += count;
        count
    }

    /// Copies the next bytes to `out`, and leaves them.
    fn peek(&self, out: &mut [u8]) -> usize {
        let count = out.len().min(self.len);
        let Some(buf) = &self.buf else { return 0 };
        let first = count.min(buf.len() - self.from);
        out[..first].copy_from_slice(&buf[self.from..self.from + first]);
        out[first..count].copy_from_slice(&buf[..count - first]);
        count
    }

    /// Moves the next bytes to `out`.
    fn pull(&mut self, out: &mut [u8]) -> usize {
        let count = self.peek(out);
        let bytes = self.buf.as_ref().map_or(1, |buf| buf.len());
        self.from = (self.from + count) % bytes;
        self.len -= count;
        count
    }
}

impl FunctionStreams {
    /// The streams of a function with `inputs` inputs and `outputs` outputs, whose job has not begun.
    ///
    /// # Errors
    /// The system refuses a descriptor.
    pub fn new(inputs: usize, outputs: usize) -> Result<FunctionStreams> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .during(Action::Open, "eventfd".as_ref())?;
        let queues = |count| (0..count).map(|_| Queue::default()).collect();
        let state = State {
            inputs: queues(inputs),
            outputs: queues(outputs),
            wanted: None,
            ended: false,
            over: false,
            signalled: false,
        };
        let shared = Shared { state: Mutex::new(state), changed: Condvar::new(), event };
        Ok(FunctionStreams { shared: Arc::new(shared) })
    }

    /// Moves the next bytes of an input to `out`; waits for at most `time` until there are any.
    pub fn read(&self, input: usize, out: &mut [u8], time: Duration) -> Moved {
        let mut pull = |queue: &mut Queue| queue.pull(out);
        self.get(input, 0, time, &mut pull)
    }

    /// Copies the next bytes of an input to `out`, and leaves them there; waits for at most `time` until there are more
    /// than `known`. It returns [`Moved::End`] if there never will be: the input has ended, or its queue is full.
    pub fn peek(&self, input: usize, known: usize, out: &mut [u8], time: Duration) -> Moved {
        let mut peek = |queue: &mut Queue| queue.peek(out);
        self.get(input, known, time, &mut peek)
    }

    fn get(
        &self,
        input: usize,
        known: usize,
        time: Duration,
        take: &mut dyn FnMut(&mut Queue) -> usize,
    ) -> Moved {
        self.wait(time, Some(input), |state| {
            let queue = state.inputs.get_mut(input)?;
            if queue.len > known {
                return Some(Moved::Bytes(take(queue)));
            }
            (queue.closed || (queue.buf.is_some() && queue.room() == 0)).then_some(Moved::End)
        })
    }

    /// Appends bytes to an output; waits for at most `time` until there is room for any.
    pub fn write(&self, output: usize, bytes: &[u8], time: Duration) -> Moved {
        self.wait(time, None, |state| {
            let written = state.outputs.get_mut(output)?.push(bytes);
            (written > 0).then_some(Moved::Bytes(written))
        })
    }

    /// The function has ended well: its outputs are complete, and it reads no more.
    pub fn end(&self) {
        let mut state = self.shared.state();
        state.ended = true;
        state.outputs.iter_mut().for_each(|queue| queue.closed = true);
        self.shared.wake_engine(&mut state);
    }

    /// Waits until `find` returns a value, or for `time`.
    fn wait(
        &self,
        time: Duration,
        input: Option<usize>,
        mut find: impl FnMut(&mut State) -> Option<Moved>,
    ) -> Moved {
        let until = Instant::now() + time;
        let mut state = self.shared.state();
        loop {
            if state.over {
                return Moved::Over;
            }
            if let Some(moved) = find(&mut state) {
                state.wanted = None;
                if let Moved::Bytes(_) = moved {
                    self.shared.wake_engine(&mut state);
                }
                return moved;
            }
            if state.wanted != input {
                state.wanted = input;
                self.shared.wake_engine(&mut state);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Moved::Nothing;
            }
            state = self.shared.changed.wait_timeout(state, left).unpoisoned().0;
        }
    }

    /// The engine's end of these streams.
    pub(super) fn peer(&self) -> FunctionPeer {
        FunctionPeer { shared: Arc::clone(&self.shared) }
    }

    /// Marks the streams as over when the result is dropped.
    pub(super) fn over_at_end(&self) -> impl Drop + use<> {
        OverAtEnd(Arc::clone(&self.shared))
    }
}

impl fmt::Debug for FunctionStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        write!(f, "FunctionStreams({} x {})", state.inputs.len(), state.outputs.len())
    }
}

struct OverAtEnd(Arc<Shared>);

impl Drop for OverAtEnd {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Wakes the engine if it waits.
    fn wake_engine(&self, state: &mut State) {
        if !state.signalled {
            state.signalled = true;
            // The counter of the descriptor cannot overflow: it is read before it is written again.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

/// The engine's end of a function's streams.
pub(super) struct FunctionPeer {
    shared: Arc<Shared>,
}

impl FunctionPeer {
    /// The queue of input `number`, which gets the memory `buf`.
    pub(super) fn input(&self, number: usize, buf: Buf) -> FunctionInput {
        if let Some(queue) = self.shared.state().inputs.get_mut(number) {
            queue.buf = Some(buf);
        }
        FunctionInput { shared: Arc::clone(&self.shared), number }
    }

    /// The queue of output `number`, which gets the memory `buf`.
    pub(super) fn output(&self, number: usize, buf: Buf) -> FunctionOutput {
        if let Some(queue) = self.shared.state().outputs.get_mut(number) {
            queue.buf = Some(buf);
        }
        self.shared.changed.notify_all();
        FunctionOutput { shared: Arc::clone(&self.shared), number }
    }

    /// Readable when something has changed since the last [`look`](Self::look).
    pub(super) fn event(&self) -> &OwnedFd {
        &self.shared.event
    }

    /// Takes note of the event.
    pub(super) fn look(&self) {
        let mut state = self.shared.state();
        if std::mem::take(&mut state.signalled) {
            let _ = rustix::io::read(&self.shared.event, &mut [0_u8; 8]);
        }
    }

    /// Whether the function has ended well.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.state().ended
    }

    /// The input for whose next bytes the function waits.
    pub(super) fn wanted(&self) -> Option<usize> {
        self.shared.state().wanted
    }
}

/// The engine's end of an input.
pub(super) struct FunctionInput {
    shared: Arc<Shared>,
    number: usize,
}

impl FunctionInput {
    /// Gives bytes to the function: the number taken, 0 if the queue is full, none if the function has ended.
    pub(super) fn give(&self, bytes: &[u8]) -> Option<usize> {
        let mut state = self.shared.state();
        if state.ended {
            return None;
        }
        let count = state.inputs.get_mut(self.number).map_or(0, |queue| queue.push(bytes));
        drop(state);
        if count > 0 {
            self.shared.changed.notify_all();
        }
        Some(count)
    }

    /// Whether the function has taken everything that was given.
    pub(super) fn is_dry(&self) -> bool {
        self.shared.state().inputs.get(self.number).is_none_or(|queue| queue.len == 0)
    }
}

impl FunctionInput {
    /// Ends the input. One that is dropped without this has not ended: the job has failed.
    pub(super) fn end(self) {
        if let Some(queue) = self.shared.state().inputs.get_mut(self.number) {
            queue.closed = true;
        }
        self.shared.changed.notify_all();
    }
}

/// The engine's end of an output.
pub(super) struct FunctionOutput {
    shared: Arc<Shared>,
    number: usize,
}

impl FunctionOutput {
    /// Moves what the function has written to `out`: the number of bytes, 0 at the end, none if there are none now.
    pub(super) fn take(&self, out: &mut [u8]) -> Option<usize> {
        let mut state = self.shared.state();
        let queue = state.outputs.get_mut(self.number)?;
        let count = queue.pull(out);
        if count == 0 && !queue.closed {
            return None;
        }
        drop(state);
        self.shared.changed.notify_all();
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use ascot_io::Pool;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(1);

    fn streams() -> (FunctionStreams, FunctionInput, FunctionOutput, usize) {
        let pool = Pool::new(1 << 20);
        let streams = FunctionStreams::new(1, 1).unwrap();
        let peer = streams.peer();
        let buf = || pool.region(1, "a queue").unwrap();
        let (input, output) = (peer.input(0, buf()), peer.output(0, buf()));
        (streams, input, output, buf().len())
    }

    #[test]
    fn bytes_come_out_in_order_through_queues_that_wrap() {
        let (streams, input, output, _) = streams();
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        let function = thread::spawn(move || {
            let mut buffer = [0; 777];
            while let Moved::Bytes(count) = streams.read(0, &mut buffer, LONG) {
                let mut at = 0;
                while at < count {
                    let Moved::Bytes(written) = streams.write(0, &buffer[at..count], LONG) else { return };
                    at += written;
                }
            }
            streams.end();
        });
        let (mut given, mut found, mut buffer) = (0, Vec::new(), [0; 1001]);
        let mut input = Some(input);
        loop {
            match &input {
                Some(open) if given < bytes.len() => given += open.give(&bytes[given..]).unwrap(),
                _ => input.take().into_iter().for_each(FunctionInput::end),
            }
            match output.take(&mut buffer) {
                Some(0) => break,
                Some(count) => found.extend_from_slice(&buffer[..count]),
                None => thread::yield_now(),
            }
        }
        function.join().unwrap();
        assert_eq!(found, bytes);
    }

    #[test]
    fn a_look_ahead_takes_nothing_and_ends_where_nothing_more_can_come() {
        let (streams, input, _output, size) = streams();
        let mut buffer = vec![0; 2 * size];
        assert_eq!(streams.peek(0, 0, &mut buffer, SHORT), Moved::Nothing);
        assert_eq!(input.give(b"abc"), Some(3));
        assert_eq!(streams.peek(0, 0, &mut buffer, SHORT), Moved::Bytes(3));
        assert_eq!(streams.peek(0, 3, &mut buffer, SHORT), Moved::Nothing);
        assert_eq!(streams.peer().wanted(), Some(0));
        assert_eq!(input.give(&vec![7; size]), Some(size - 3));
        assert_eq!(streams.peek(0, 3, &mut buffer, SHORT), Moved::Bytes(size));
        assert_eq!(streams.peek(0, size, &mut buffer, SHORT), Moved::End);
        assert!(!input.is_dry());
        assert_eq!((streams.read(0, &mut buffer, SHORT), buffer[0]), (Moved::Bytes(size), b'a'));
        assert!(input.is_dry());
        assert_eq!(streams.read(0, &mut buffer, SHORT), Moved::Nothing);
        input.end();
        assert_eq!(streams.read(0, &mut buffer, SHORT), Moved::End);
    }

    #[test]
    fn the_end_of_one_side_reaches_the_other() {
        let (streams, input, output, _) = streams();
        let peer = streams.peer();
        peer.look();
        assert!(!peer.has_ended() && output.take(&mut [0; 8]).is_none());
        streams.end();
        assert!(peer.has_ended() && input.give(b"x").is_none());
        assert_eq!(output.take(&mut [0; 8]), Some(0));
        drop(streams.over_at_end());
        assert_eq!(streams.write(0, b"x", LONG), Moved::Over);
        assert_eq!(streams.read(0, &mut [0; 8], LONG), Moved::Over);
    }
}
