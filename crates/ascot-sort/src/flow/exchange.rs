//! The exchange between the engine and the program: bytes of inputs go to its pipes, and bytes of outputs come from
//! them, in whatever order the program reads and writes.
//!
//! ```text
//!   nothing can move, and          the engine
//!   an input's bucket is empty     reads, by its schedule, beginning with that input
//!   an output's bytes have come    keeps them; if memory is full it writes, by its schedule
//!   neither                        waits for the program
//! ```
//!
//! Invariants: bytes that the program has written are always taken, so that it can go on reading; an input that the
//! program does not read holds its bucket and no more. A program whose streams end early is an error, unless it may
//! leave inputs unread: it would lose data silently.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ascot_bowtie::engine::{BlockInput, BlockOutput, Bowtie, FileWriter, Reader};
use ascot_bowtie::flow::{Flow, Step};
use ascot_io::clocks::{State, in_state};
use ascot_io::{Buf, Filled, is_passing};
use ascot_model::report::FlowStream;
use ascot_model::units;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::api::{Cancel, Result, SortError};
use crate::flow::ends::Relay;
use crate::flow::peer::{FromPeer, Peer, ToPeer};

/// Time for which the program may run after it has closed a stream early; then this is an error.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for the program while requests are in flight, and while none are.
const WAIT_MOVING: Duration = Duration::from_millis(1);
const WAIT_IDLE: Duration = Duration::from_millis(20);
/// Most bytes that one stream moves before it is the next one's turn.
const TURN_BYTES: usize = 1 << 20;

/// The source of the bytes of an input.
pub(super) enum Source {
    /// The stream of the engine with this number.
    Stream(usize),
    /// A pipe or socket.
    Relay(Relay),
    /// Records that are handed over one block at a time.
    Records,
}

/// The destination of the bytes of an output.
pub(super) enum Sink {
    /// The stream of the engine with this number.
    Stream(usize),
    /// A pipe or socket.
    Relay(Relay),
}

/// An input of the program.
pub(super) struct Feed {
    name: PathBuf,
    /// None once it has ended, or the program has closed it.
    pipe: Option<ToPeer>,
    source: Source,
    given: u64,
    /// The program has closed it before its end.
    is_left: bool,
}

/// An output of the program.
pub(super) struct Take {
    name: PathBuf,
    /// None once the program has closed it.
    pipe: Option<FromPeer>,
    sink: Sink,
    taken: u64,
}

/// The limits that the user sets for the program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// Time without a byte after which the program counts as stuck.
    pub(super) idle: Option<Duration>,
    /// It may close streams before it has read its inputs.
    pub(super) allow_unread: bool,
}

/// A stream that the program closed early.
struct Early {
    what: String,
    since: Instant,
}

/// A program or function, and its streams.
pub(super) struct Exchange {
    program: Peer,
    feeds: Vec<Feed>,
    takes: Vec<Take>,
    patience: Patience,
    /// For bytes from the program to the engine.
    buffer: Buf,
    /// The time when a byte moved last.
    moved: Instant,
    early: Option<Early>,
}

impl Feed {
    /// An input that is given through `pipe`, which is a queue if the function runs in this process.
    pub(super) fn new(name: &Path, pipe: ToPeer, source: Source) -> Feed {
        Feed { name: name.to_path_buf(), pipe: Some(pipe), source, given: 0, is_left: false }
    }

    /// Gives bytes to the program; none if it closed the pipe, 0 if the pipe is full.
    fn give(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let given = push(self.pipe.as_ref(), bytes)?;
        self.given += given.unwrap_or(0) as u64;
        Ok(given)
    }

    /// The same with the bytes of its relay.
    fn give_relayed(&mut self) -> io::Result<Option<usize>> {
        let Source::Relay(relay) = &mut self.source else { return Ok(Some(0)) };
        let given = push(self.pipe.as_ref(), relay.bytes())?;
        relay.consume(given.unwrap_or(0));
        self.given += given.unwrap_or(0) as u64;
        Ok(given)
    }

    /// Tells the program that there are no more bytes.
    fn end(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.end();
        }
    }

    /// Whether the program has taken everything that was given.
    fn is_dry(&self) -> bool {
        self.pipe.as_ref().is_some_and(ToPeer::is_dry)
    }
}

/// Gives bytes to the program: the number taken, 0 if there is no room, none if the program has closed it.
fn push(pipe: Option<&ToPeer>, bytes: &[u8]) -> io::Result<Option<usize>> {
    pipe.map_or(Ok(None), |pipe| pipe.give(bytes))
}

impl Take {
    /// An output that is taken from `pipe`.
    pub(super) fn new(name: &Path, pipe: FromPeer, sink: Sink) -> Take {
        Take { name: name.to_path_buf(), pipe: Some(pipe), sink, taken: 0 }
    }

    fn is_over(&self) -> bool {
        let delivered = match &self.sink {
            Sink::Stream(_) => true,
            Sink::Relay(relay) => relay.bytes().is_empty(),
        };
        self.pipe.is_none() && delivered
    }
}

impl Exchange {
    /// An exchange with a program or function that has just started; `buffer` holds what it writes at a time.
    pub(super) fn new(
        program: Peer,
        feeds: Vec<Feed>,
        takes: Vec<Take>,
        patience: Patience,
        buffer: Buf,
    ) -> Exchange {
        Exchange { program, feeds, takes, patience, buffer, moved: Instant::now(), early: None }
    }

    /// Bytes that each input has given and each output has taken.
    pub(super) fn streams(&self) -> (Vec<FlowStream>, Vec<FlowStream>) {
        let stream = |name: &PathBuf, bytes| FlowStream { file: name.display().to_string(), bytes };
        let given = self.feeds.iter().map(|feed| stream(&feed.name, feed.given)).collect();
        let taken = self.takes.iter().map(|take| stream(&take.name, take.taken)).collect();
        (given, taken)
    }

    /// Takes what the program has written, and passes it on; says whether anything moved.
    pub(super) fn take_outputs<I: BlockInput, O: BlockOutput>(
        &mut self,
        bowtie: &mut Bowtie<I, O>,
    ) -> Result<bool> {
        let mut moved = false;
        for at in 0..self.takes.len() {
            moved |= self.take_output(at, bowtie)?;
        }
        self.note(moved);
        Ok(moved)
    }

    fn take_output<I: BlockInput, O: BlockOutput>(
        &mut self,
        at: usize,
        bowtie: &mut Bowtie<I, O>,
    ) -> Result<bool> {
        let mut moved = false;
        for _ in 0..TURN_BYTES / self.buffer.len().max(1) {
            let Take { pipe, sink, taken, .. } = &mut self.takes[at];
            if let Sink::Relay(relay) = sink {
                moved |= relay.deliver()?;
                if !relay.bytes().is_empty() {
                    return Ok(moved);
                }
            }
            let Some(open) = pipe else { return Ok(moved) };
            let read = |buffer: &mut [u8]| open.take(buffer);
            let result = match sink {
                Sink::Stream(_) => read(&mut self.buffer),
                Sink::Relay(relay) => relay.put(read),
            };
            match result {
                Ok(0) => {
                    self.end_output(at);
                    return Ok(true);
                }
                Ok(count) => {
                    *taken += count as u64;
                    moved = true;
                    if let Sink::Stream(stream) = sink {
                        bowtie.write_all(*stream, &self.buffer[..count])?;
                    }
                }
                Err(error) if is_passing(&error) => return Ok(moved),
                Err(error) => return Err(self.program.failure(format!("cannot be read from: {error}"))),
            }
        }
        Ok(moved)
    }

    /// The program has closed an output.
    fn end_output(&mut self, at: usize) {
        let Take { pipe, name, .. } = &mut self.takes[at];
        *pipe = None;
        let what = format!("closed output {at} ({}) before it had read all of its inputs", name.display());
        if self.feeds.iter().any(|feed| feed.pipe.is_some()) {
            self.note_early(what);
        }
    }

    /// Gives bytes of pipes and sockets to the program; says whether anything moved.
    fn feed_relays(&mut self) -> Result<bool> {
        let mut moved = false;
        for at in 0..self.feeds.len() {
            let feed = &mut self.feeds[at];
            let Source::Relay(relay) = &mut feed.source else { continue };
            if feed.pipe.is_none() {
                continue;
            }
            moved |= relay.fetch()?;
            if relay.is_over() {
                feed.end();
                moved = true;
            } else if !relay.bytes().is_empty() {
                let given = feed.give_relayed();
                moved |= self.given(at, given)?.is_some_and(|count| count > 0);
            }
        }
        Ok(moved)
    }

    /// Gives bytes of files to the program; says whether anything moved.
    fn feed_streams<I, O>(&mut self, bowtie: &mut Bowtie<I, O>) -> Result<bool>
    where
        I: BlockInput<Block = Filled>,
        O: BlockOutput,
    {
        let mut moved = false;
        for at in 0..self.feeds.len() {
            let Source::Stream(stream) = self.feeds[at].source else { continue };
            let mut left = TURN_BYTES;
            while self.feeds[at].pipe.is_some() && left > 0 {
                let data = bowtie.data(stream);
                if data.is_empty() {
                    if bowtie.exhausted(stream) {
                        self.feeds[at].end();
                        moved = true;
                    }
                    break;
                }
                let given = self.feeds[at].give(data);
                let Some(count @ 1..) = self.given(at, given)? else { break };
                bowtie.consume(stream, count);
                left = left.saturating_sub(count);
                moved = true;
            }
        }
        Ok(moved)
    }

    /// The result of giving bytes to the program: the number taken, 0 if the pipe is full, none if the program has
    /// closed it early.
    fn given(&mut self, at: usize, given: io::Result<Option<usize>>) -> Result<Option<usize>> {
        let given = given.map_err(|error| self.program.failure(format!("cannot be written to: {error}")))?;
        if given.is_none() {
            let feed = &mut self.feeds[at];
            feed.pipe = None;
            feed.is_left = true;
            let what = format!("closed input {at} ({}) before it had read all of it", feed.name.display());
            self.note_early(what);
        }
        Ok(given)
    }

    fn note_early(&mut self, what: String) {
        if self.early.is_none() {
            self.early = Some(Early { what, since: Instant::now() });
        }
    }

    fn note(&mut self, moved: bool) {
        if moved {
            self.moved = Instant::now();
        }
    }

    /// The first input that holds nothing and of which the program has taken everything.
    fn dry<I, O>(&self, bowtie: &Bowtie<I, O>) -> Option<usize>
    where
        I: BlockInput<Block = Filled>,
        O: BlockOutput,
    {
        let dry = |feed: &Feed| match feed.source {
            Source::Stream(stream) if bowtie.data(stream).is_empty() && feed.is_dry() => Some(stream),
            _ => None,
        };
        self.feeds.iter().find_map(dry)
    }

    /// Whether the program has ended and all that it wrote is taken. An error if it failed, is stuck, or has left
    /// something unread.
    fn is_over(&mut self) -> Result<bool> {
        let ended = self.program.has_ended()?;
        if ended && self.takes.iter().all(Take::is_over) {
            self.refuse_unread()?;
            self.program.release();
            return Ok(true);
        }
        let Patience { idle, allow_unread } = self.patience;
        if let Some(early) = &self.early
            && !allow_unread
            && early.since.elapsed() > PATIENCE
        {
            return Err(self.program.failure(early.what.clone()));
        }
        if let Some(idle) = idle
            && self.moved.elapsed() > idle
        {
            let time = units::seconds(idle.as_secs_f64());
            let what = format!("has neither read nor written for {time}: {}", self.stuck_at(ended));
            return Err(self.program.failure(what));
        }
        Ok(false)
    }

    /// Refuses a program that has ended without having read its inputs.
    fn refuse_unread(&mut self) -> Result<()> {
        if self.patience.allow_unread {
            return Ok(());
        }
        if let Some((at, feed)) =
            self.feeds.iter().enumerate().find(|(_, feed)| feed.pipe.is_some() || feed.is_left)
        {
            let name = feed.name.display();
            return Err(self.program.failure(format!("ended before it had read all of input {at} ({name})")));
        }
        // It has read its inputs after all, but closed an output before.
        self.early.take().map_or(Ok(()), |early| Err(self.program.failure(early.what)))
    }

    /// The stream at which a program that does nothing may be stuck.
    fn stuck_at(&self, ended: bool) -> String {
        let silent = |feed: &&Feed| {
            feed.pipe.is_some() && matches!(&feed.source, Source::Relay(relay) if relay.bytes().is_empty())
        };
        let named = |feed: &Feed| {
            let at = self.feeds.iter().position(|other| std::ptr::eq(other, feed)).unwrap_or(0);
            format!("input {at} ({})", feed.name.display())
        };
        if let Some(feed) = self.feeds.iter().find(silent) {
            return format!("it may wait for {}, which brings no bytes", named(feed));
        }
        if let Some(feed) = self.feeds.iter().find(|feed| feed.pipe.is_some()) {
            return format!("{} has bytes that it does not read", named(feed));
        }
        match self.takes.iter().enumerate().find(|(_, take)| take.pipe.is_some()) {
            Some((at, take)) => {
                let name = take.name.display();
                let process = if ended { "another process of it" } else { "it" };
                format!("output {at} ({name}) waits for its end, and {process} keeps it open")
            }
            None => "it has closed all of its streams and does not end".into(),
        }
    }

    /// Waits until the program, or a pipe of the user, can move bytes. Returns an input for which the program may
    /// wait, of those in `empty`, if nothing else can move.
    fn wait(&mut self, empty: &[usize], is_moving: bool) -> Option<usize> {
        if let Some(Feed { source: Source::Stream(stream), .. }) =
            self.program.wanted().and_then(|input| self.feeds.get(input))
            && empty.contains(stream)
        {
            return Some(*stream);
        }
        let mut polled = Vec::new();
        let mut inputs = Vec::new();
        for feed in &self.feeds {
            let Some(pipe) = &feed.pipe else { continue };
            if let Source::Relay(relay) = &feed.source
                && relay.bytes().is_empty()
            {
                polled.push(PollFd::new(relay.descriptor(), PollFlags::IN));
                inputs.push(None);
                continue;
            }
            let stream = match feed.source {
                Source::Stream(stream) if empty.contains(&stream) => Some(stream),
                _ => None,
            };
            if let Some(pipe) = pipe.descriptor() {
                polled.push(PollFd::new(pipe, PollFlags::OUT));
                inputs.push(stream);
            }
        }
        for take in &self.takes {
            match (&take.sink, &take.pipe) {
                (Sink::Relay(relay), _) if !relay.bytes().is_empty() => {
                    polled.push(PollFd::new(relay.descriptor(), PollFlags::OUT));
                }
                (_, Some(pipe)) => {
                    polled.extend(pipe.descriptor().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
                }
                (_, None) => {}
            }
        }
        polled.extend(self.program.event().map(|event| PollFd::from_borrowed_fd(event, PollFlags::IN)));
        let wait = if is_moving { WAIT_MOVING } else { WAIT_IDLE };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        // An interrupted wait is repeated by the caller.
        let waiting = in_state(State::Input);
        let _ = poll(&mut polled, Some(&timeout));
        drop(waiting);
        self.program.note_event();
        let ready = |at: &usize| !polled[*at].revents().is_empty();
        let others = (0..polled.len()).filter(|at| inputs.get(*at).is_none_or(Option::is_none));
        if others.filter(|at| ready(at)).count() > 0 {
            return None;
        }
        (0..inputs.len()).filter(ready).find_map(|at| inputs[at])
    }
}

/// Records for the first input, handed over in order.
impl Exchange {
    /// Gives all of `bytes` to the program, and takes what it writes meanwhile.
    pub(super) fn hand_over<I: BlockInput, O: BlockOutput>(
        &mut self,
        mut bytes: &[u8],
        bowtie: &mut Bowtie<I, O>,
        cancel: &Cancel,
    ) -> Result<()> {
        while !bytes.is_empty() {
            cancel.check()?;
            bowtie.pump()?;
            let mut moved = self.take_outputs(bowtie)?;
            if self.feeds[0].pipe.is_some() {
                let given = self.feeds[0].give(bytes);
                let count = self.given(0, given)?.unwrap_or(0);
                bytes = &bytes[count..];
                moved |= count > 0;
                self.note(moved);
            } else if self.patience.allow_unread {
                return Ok(());
            }
            if !moved {
                // An error if it has ended already.
                self.is_over()?;
                self.wait(&[], bowtie.is_moving());
            }
        }
        Ok(())
    }

    /// Ends the first input, and takes what the program still writes.
    pub(super) fn end<I: BlockInput, O: BlockOutput>(
        &mut self,
        bowtie: &mut Bowtie<I, O>,
        cancel: &Cancel,
    ) -> Result<()> {
        self.feeds[0].end();
        loop {
            cancel.check()?;
            bowtie.pump()?;
            if self.take_outputs(bowtie)? {
                continue;
            }
            if self.is_over()? {
                return Ok(());
            }
            self.wait(&[], bowtie.is_moving());
        }
    }
}

/// The function in the middle: the program, fed from files.
pub(super) struct ProgramFlow {
    pub(super) exchange: Exchange,
}

impl Flow<Reader, FileWriter> for ProgramFlow {
    type Error = SortError;

    fn step(&mut self, bowtie: &mut Bowtie<Reader, FileWriter>) -> Result<Step> {
        let exchange = &mut self.exchange;
        let mut moved = exchange.feed_streams(bowtie)?;
        moved |= exchange.feed_relays()?;
        moved |= exchange.take_outputs(bowtie)?;
        exchange.note(moved);
        if let Some(input) = exchange.dry(bowtie) {
            return Ok(Step::Need(input));
        }
        if moved {
            return Ok(Step::Progress);
        }
        if exchange.is_over()? {
            return Ok(Step::Done);
        }
        let empty: Vec<usize> = (0..bowtie.inputs()).filter(|&input| bowtie.data(input).is_empty()).collect();
        match exchange.wait(&empty, bowtie.is_moving()) {
            Some(input) => Ok(Step::Need(input)),
            None => Ok(Step::Progress),
        }
    }
}
