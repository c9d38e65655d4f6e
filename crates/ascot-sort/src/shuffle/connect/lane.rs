//! A destination of a sender: opens its connection, sends the batches of a chunk, and takes the answers.
//!
//! The bytes of a batch are written from where the chunk has them; only their head is made for each batch.
//!
//! Invariant: a lane has at most as many batches without an answer as its sender allows.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ascot_io::is_passing;
use rustix::event::{PollFd, PollFlags, poll};

use super::opening::Opening;
use super::wire::{ANSWERS_BYTES_MAX, Answer, LENGTH_BYTES, PAUSE, Secret};

/// Slices of one call of the system.
const SLICES_MAX: usize = 256;

/// A destination, where its writer listens, and the number of batches for it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The destination.
    pub destination: u32,
    /// The address of its writer.
    pub address: SocketAddr,
    /// The number of batches.
    pub batches: u32,
}

/// The bytes of a batch: its head, and those of its pieces.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Header and table of pieces.
    pub head: Vec<u8>,
    /// The rest, in order.
    pub pieces: Vec<&'a [u8]>,
}

/// Why a destination did not get its batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ended, or there was none.
    Lost(String),
    /// A batch arrived damaged.
    Damaged(String),
    /// The writer could not append a batch.
    Failed(String),
}

/// The result of sending a chunk.
#[derive(Debug, Default)]
pub struct Sent {
    /// Bytes of batches that were sent whole.
    pub bytes: u64,
    /// Batches that the writers had already.
    pub repeated: u32,
    /// The destinations that failed.
    pub failed: BTreeMap<u32, Fault>,
}

/// The fault of a target whose connection has this error.
pub(super) fn lost(target: &Target, error: &io::Error) -> Fault {
    Fault::Lost(format!("connection to {}: {error}", target.address))
}

/// What can be done on each connection: take bytes, give answers.
pub(super) fn wait(lanes: &[Lane<'_>]) -> Vec<Ready> {
    let mut polled: Vec<PollFd<'_>> =
        lanes.iter().map(|lane| PollFd::new(&lane.stream, lane.wanted())).collect();
    // After a signal nothing is ready, and the caller looks at the job.
    let _ = poll(&mut polled, Some(&PAUSE));
    polled
        .iter()
        .map(|one| {
            let found = one.revents();
            Ready { write: found.contains(PollFlags::OUT), read: found.intersects(!PollFlags::OUT) }
        })
        .collect()
}

/// What can be done on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    write: bool,
    /// There are answers, or the connection has ended.
    read: bool,
}

/// A destination while a chunk is sent.
pub(super) struct Lane<'a> {
    /// The number of the target.
    number: usize,
    pub target: Target,
    pub stream: TcpStream,
    /// How far the connection is, if it is not open yet.
    opening: Option<Opening>,
    /// Whether the connection was idle before, and has given no answer since.
    pub was_idle: bool,
    /// The number of the next batch.
    next: u32,
    unanswered: u32,
    writing: Option<Writing<'a>>,
    answers: Vec<u8>,
}

impl<'a> Lane<'a> {
    /// A lane over an idle connection.
    pub fn over(number: usize, target: Target, stream: TcpStream) -> Lane<'a> {
        let opening = None;
        let writing = None;
        let answers = Vec::new();
        Lane { number, target, stream, opening, was_idle: true, next: 0, unanswered: 0, writing, answers }
    }

    /// A lane that opens its connection within `time`.
    ///
    /// # Errors
    /// The fault of a connection that cannot be opened.
    pub fn opening(number: usize, target: Target, time: Duration) -> Result<Lane<'a>, Fault> {
        let begun = Opening::begin(&target.address, time);
        let (stream, opening) = begun.map_err(|error| lost(&target, &error))?;
        Ok(Lane { opening: Some(opening), was_idle: false, ..Lane::over(number, target, stream) })
    }

    /// Whether all batches are answered.
    pub fn is_done(&self) -> bool {
        self.opening.is_none() && self.next == self.target.batches && self.unanswered == 0
    }

    fn wanted(&self) -> PollFlags {
        match &self.opening {
            Some(opening) => opening.wanted(),
            None if self.writing.is_some() => PollFlags::IN | PollFlags::OUT,
            None => PollFlags::IN,
        }
    }

    /// Begins the next batch if the connection is open and the destination may get one.
    pub fn begin_batch(&mut self, window: u32, frame: &mut impl FnMut(usize, u32) -> Frame<'a>) {
        let is_free = self.opening.is_none() && self.writing.is_none();
        if is_free && self.unanswered < window && self.next < self.target.batches {
            self.writing = Some(Writing::new(frame(self.number, self.next)));
            self.next += 1;
            self.unanswered += 1;
        }
    }

    /// The same from its beginning over a new connection, which is open within `time`.
    ///
    /// # Errors
    /// Those of [`Lane::opening`].
    pub fn again(self, time: Duration) -> Result<Lane<'a>, Fault> {
        let number = self.number;
        let target = self.target;
        // Its connection is closed first.
        drop(self);
        Lane::opening(number, target, time)
    }

    /// Does what can be done.
    ///
    /// # Errors
    /// The fault of the destination.
    pub fn advance(&mut self, ready: Ready, secret: &Secret, sent: &mut Sent) -> Result<(), Fault> {
        let target = self.target;
        let lost = |error: io::Error| lost(&target, &error);
        if let Some(opening) = &mut self.opening {
            if opening.advance(&mut self.stream, ready.write || ready.read, secret).map_err(lost)? {
                self.opening = None;
            }
            return Ok(());
        }
        if ready.write
            && let Some(writing) = &mut self.writing
            && writing.write(&mut self.stream).map_err(lost)?
        {
            sent.bytes += writing.bytes as u64;
            self.writing = None;
        }
        if ready.read {
            self.read().map_err(lost)?;
            self.take_answers(sent)?;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => self.answers.extend(&bytes[..read]),
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        if self.answers.len() > ANSWERS_BYTES_MAX {
            return Err(io::Error::other("the answers are too long"));
        }
        Ok(())
    }

    fn take_answers(&mut self, sent: &mut Sent) -> Result<(), Fault> {
        let fault = |what: &str| lost(&self.target, &io::Error::other(what));
        while let Some(answer) = Answer::take(&mut self.answers).map_err(fault)? {
            match answer {
                Answer::New => {}
                Answer::Known => sent.repeated += 1,
                Answer::Damaged(text) => return Err(Fault::Damaged(text)),
                Answer::Failed(text) => return Err(Fault::Failed(text)),
            }
            self.unanswered = self.unanswered.checked_sub(1).ok_or_else(|| fault("an answer to no batch"))?;
            self.was_idle = false;
        }
        Ok(())
    }
}

/// A batch of which some bytes are sent.
struct Writing<'a> {
    head: Vec<u8>,
    pieces: Vec<&'a [u8]>,
    /// All of its bytes, without its length.
    bytes: usize,
    /// The slice that is sent next, 0 for the head, and the bytes of it that are sent.
    slice: usize,
    done: usize,
}

impl<'a> Writing<'a> {
    fn new(frame: Frame<'a>) -> Writing<'a> {
        let bytes = frame.head.len() + frame.pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let head = [&(bytes as u32).to_le_bytes()[..LENGTH_BYTES], &frame.head].concat();
        Writing { head, pieces: frame.pieces, bytes, slice: 0, done: 0 }
    }

    fn slice(&self, at: usize) -> Option<&[u8]> {
        if at == 0 { Some(&self.head) } else { self.pieces.get(at - 1).copied() }
    }

    /// Writes what the connection takes. Returns whether all is sent.
    fn write(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        loop {
            let slices: Vec<IoSlice<'_>> = (self.slice..self.slice + SLICES_MAX)
                .map_while(|at| self.slice(at))
                .enumerate()
                .map(|(at, slice)| IoSlice::new(if at == 0 { &slice[self.done..] } else { slice }))
                .collect();
            if slices.is_empty() {
                return Ok(true);
            }
            let written = match stream.write_vectored(&slices) {
                Ok(written) => written,
                Err(error) if is_passing(&error) => return Ok(false),
                Err(error) => return Err(error),
            };
            self.pass(written);
        }
    }

    /// Moves on by `bytes` bytes, and over slices without bytes.
    fn pass(&mut self, bytes: usize) {
        self.done += bytes;
        while let Some(length) = self.slice(self.slice).map(<[u8]>::len)
            && self.done >= length
        {
            self.done -= length;
            self.slice += 1;
        }
    }
}
