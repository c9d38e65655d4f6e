//! A lane moves the bytes of one volume in one direction, with a fixed number of requests in flight.
//!
//! Reading lanes and writing lanes share equal buffers, as in a sort: a reader fills one and hands it over, a writer
//! takes the next, and a written buffer is free again.
//!
//! ```text
//!   free buffers --> reader of /in/a --\                 /--> writer of /out/a --> free buffers
//!                --> reader of /in/b ---+--> handed over +--> writer of /out/b -->
//! ```
//!
//! Every lane has its own quota of requests and its own I/O queue, and takes buffers as fast as it can: a slow volume
//! does not hold up the others, except that all wait when no buffer is free.
//!
//! Liveness: readers hold at most their depth of buffers each, and there are more buffers than that, so some buffer is
//! handed over, in a writer, or free. A reader that finds no free buffer hands over its oldest one before it waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ascot_io::{BlockPool, Buf, Direction, IoQueue, PendingTransfer};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::error::DiskError;
use super::volume::VolumeFile;

/// Interval at which a lane that waits for a buffer checks whether it should stop.
const BETWEEN_CHECKS: Duration = Duration::from_millis(20);

/// The state that the lanes of a pass share.
pub(super) struct Course<'a> {
    /// The buffers.
    pub(super) blocks: &'a BlockPool,
    /// Set when a lane fails.
    pub(super) stop: &'a AtomicBool,
    /// Set by the caller.
    pub(super) cancel: &'a AtomicBool,
    /// Bytes moved so far, for the display.
    pub(super) moved: &'a AtomicU64,
}

impl Course<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.cancel.load(Ordering::Relaxed)
    }
}

/// The requests of a volume in one direction.
pub(super) struct Lane<'a> {
    pub(super) file: &'a VolumeFile,
    /// Number of requests.
    pub(super) quota: u64,
    /// Requests in flight.
    pub(super) depth: usize,
}

/// The bytes of a lane, and the time from its first buffer to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

impl Moved {
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

/// Where a writing lane takes its buffers.
pub(super) enum Source {
    /// From the readers.
    Handed(Receiver<Buf>),
    /// Free buffers, with the bytes they have.
    Free,
}

/// Requests in flight, oldest first, and what they have moved.
struct Flight<'a> {
    lane: &'a Lane<'a>,
    course: &'a Course<'a>,
    queue: IoQueue,
    direction: Direction,
    pending: VecDeque<(PendingTransfer, u64)>,
    begun: u64,
    offset: u64,
    first: Option<Instant>,
    moved: Moved,
}

impl<'a> Flight<'a> {
    fn new(lane: &'a Lane<'a>, course: &'a Course<'a>, direction: Direction) -> Self {
        let queue = match direction {
            Direction::Read => IoQueue::start(lane.depth, 1),
            Direction::Write => IoQueue::start(1, lane.depth),
        };
        let pending = VecDeque::with_capacity(lane.depth);
        Flight {
            lane,
            course,
            queue,
            direction,
            pending,
            begun: 0,
            offset: 0,
            first: None,
            moved: Moved::default(),
        }
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= self.lane.depth
    }

    fn has_begun_all(&self) -> bool {
        self.begun >= self.lane.quota
    }

    fn begin(&mut self, buf: Buf) {
        let bytes = buf.len() as u64;
        self.first.get_or_insert_with(Instant::now);
        let transfer = self.queue.begin(&self.lane.file.file, self.direction, self.offset, buf);
        self.pending.push_back((transfer, bytes));
        self.offset += bytes;
        self.begun += 1;
    }

    /// Waits for the oldest request, and for the buffer of a read; `None` without one.
    fn complete(&mut self) -> Result<Option<Buf>, DiskError> {
        let Some((transfer, bytes)) = self.pending.pop_front() else { return Ok(None) };
        let doing = match self.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        let buf = transfer.complete().map_err(|source| self.lane.file.volume.failed(doing, source))?;
        self.moved.bytes += bytes;
        self.note_time();
        self.course.moved.fetch_add(bytes, Ordering::Relaxed);
        Ok(buf)
    }

    fn note_time(&mut self) {
        self.moved.seconds = self.first.map_or(0.0, |first| first.elapsed().as_secs_f64());
    }
}

impl Lane<'_> {
    /// Reads the file from its start; hands the buffers over if there is a receiver. An early end is that of the
    /// course, whose cause another lane or the caller knows.
    pub(super) fn read(&self, course: &Course<'_>, sink: Option<&Sender<Buf>>) -> Result<Moved, DiskError> {
        let mut flight = Flight::new(self, course, Direction::Read);
        let hand_over = |buf: Option<Buf>| {
            if let (Some(sink), Some(buf)) = (sink, buf) {
                // The writers are gone only after the end of the course.
                let _ = sink.send(buf);
            }
        };
        while !course.is_over() {
            if flight.has_begun_all() || flight.is_full() {
                if flight.pending.is_empty() {
                    break;
                }
                hand_over(flight.complete()?);
            } else if let Some(block) = course.blocks.try_take() {
                flight.begin(block);
            } else if flight.pending.is_empty() {
                let Some(block) = course.blocks.take(|| course.is_over()) else { break };
                flight.begin(block);
            } else {
                hand_over(flight.complete()?);
            }
        }
        Ok(flight.moved)
    }

    /// Writes the file from its start. On a volume without O_DIRECT the last buffer is written when the device has it.
    pub(super) fn write(&self, course: &Course<'_>, source: &Source) -> Result<Moved, DiskError> {
        let mut flight = Flight::new(self, course, Direction::Write);
        while !course.is_over() && !flight.has_begun_all() {
            if flight.is_full() {
                flight.complete()?;
                continue;
            }
            match self.next(course, source) {
                Next::Buffer(buf) => flight.begin(buf),
                Next::Later => {}
                Next::End => break,
            }
        }
        while !flight.pending.is_empty() {
            flight.complete()?;
        }
        if !self.file.volume.is_direct && !course.is_over() {
            self.file.sync()?;
            flight.note_time();
        }
        Ok(flight.moved)
    }

    fn next(&self, course: &Course<'_>, source: &Source) -> Next {
        match source {
            Source::Free => course.blocks.take(|| course.is_over()).map_or(Next::End, Next::Buffer),
            Source::Handed(buffers) => match buffers.recv_timeout(BETWEEN_CHECKS) {
                Ok(buf) => Next::Buffer(buf),
                Err(RecvTimeoutError::Timeout) => Next::Later,
                Err(RecvTimeoutError::Disconnected) => Next::End,
            },
        }
    }
}

/// The next buffer of a writing lane.
enum Next {
    Buffer(Buf),
    /// None so far.
    Later,
    /// None any more.
    End,
}
