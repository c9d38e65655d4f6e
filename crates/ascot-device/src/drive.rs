//! Drives requests against areas for a slice of time.
//!
//! Each request in flight has a thread and a buffer of its own; the next free thread takes the next request, so
//! requests reach the device nearly in order. Lanes of both directions run at the pace of the slower one, as in a job
//! that writes what it reads.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ascot_io::{Direction, Unpoisoned, threads};

use crate::area::Area;
use crate::error::ProbeError;

/// The request pattern on an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) request_bytes: u64,
    pub(crate) depth: usize,
    /// Number of streams: requests alternate between them, and each stream is sequential.
    pub(crate) streams: u64,
}

impl Pattern {
    /// Bytes of the buffers.
    pub(crate) fn memory(&self) -> usize {
        self.request_bytes as usize * self.depth
    }
}

/// Requests of one direction.
pub(crate) struct Lane<'a> {
    pub(crate) area: &'a Area,
    pub(crate) direction: Direction,
    pub(crate) pattern: Pattern,
    /// [`Pattern::memory`] bytes, page-aligned.
    pub(crate) memory: &'a mut [u8],
}

/// The bytes that a lane moved, and the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moved {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

impl Moved {
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }

    pub(crate) fn seconds_of_request(&self) -> f64 {
        self.seconds / self.requests.max(1) as f64
    }

    fn add(&mut self, other: &Moved) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
    }
}

/// A lane may be ahead of the other by at most this share of an area.
const LEAD_SHARE: u64 = 16;
/// Pause of a lane that is ahead before it checks again.
const LEAD_WAIT: Duration = Duration::from_micros(50);
/// A slice takes at most this many times its length, including unmeasured time.
const PATIENCE: f64 = 2.0;

/// The shared state of a slice's threads.
struct Course<'a> {
    stop: AtomicBool,
    cancel: &'a AtomicBool,
    /// Locked until all threads are started, so that they begin at the same time.
    start: RwLock<()>,
    seconds: f64,
    /// Bytes done by each lane; unused for a single lane.
    done: [AtomicU64; 2],
}

/// One lane's state.
struct Track<'a> {
    number: usize,
    area: &'a Area,
    direction: Direction,
    pattern: Pattern,
    seen: u64,
    next: AtomicU64,
    coupled: bool,
}

/// Drives one or two lanes for about `seconds` of measured time. An area that is written is emptied before, and again
/// whenever it is full.
pub(crate) fn slice(
    lanes: &mut [Lane<'_>],
    seconds: f64,
    cancel: &AtomicBool,
) -> Result<Vec<Moved>, ProbeError> {
    let began = Instant::now();
    let mut sums = vec![Moved::default(); lanes.len()];
    loop {
        for lane in lanes.iter().filter(|lane| lane.direction == Direction::Write) {
            lane.area.empty()?;
        }
        let measured = sums.first().map_or(0.0, |sum| sum.seconds);
        let moved = once(lanes, seconds - measured, cancel)?;
        sums.iter_mut().zip(&moved).for_each(|(sum, moved)| sum.add(moved));
        let measured = sums.first().map_or(seconds, |sum| sum.seconds);
        if measured >= 0.9 * seconds || began.elapsed().as_secs_f64() > PATIENCE * seconds {
            return Ok(sums);
        }
    }
}

/// Writes an area from its start to its end.
pub(crate) fn fill(lane: Lane<'_>, cancel: &AtomicBool) -> Result<Moved, ProbeError> {
    Ok(once(&mut [lane], f64::INFINITY, cancel)?.first().copied().unwrap_or_default())
}

/// Runs until the time is over, or the written area is full.
fn once<'a>(lanes: &mut [Lane<'a>], seconds: f64, cancel: &AtomicBool) -> Result<Vec<Moved>, ProbeError> {
    let coupled = lanes.len() == 2;
    let course = Course {
        stop: AtomicBool::new(false),
        cancel,
        start: RwLock::new(()),
        seconds,
        done: Default::default(),
    };
    let track = |(number, lane): (usize, &Lane<'a>)| {
        let Lane { area, direction, pattern, .. } = *lane;
        let read = if direction == Direction::Read { area.bytes_read.load(Ordering::Relaxed) } else { 0 };
        let seen = read / pattern.request_bytes;
        Track { number, area, direction, pattern, seen, next: AtomicU64::new(0), coupled }
    };
    let tracks: Vec<Track<'_>> = lanes.iter().enumerate().map(track).collect();
    let mut sums = vec![Moved::default(); lanes.len()];
    threads::scope(|scope| {
        let closed = course.start.write().unpoisoned();
        let mut running = Vec::new();
        let mut failed = None;
        for (track, lane) in tracks.iter().zip(lanes) {
            for buf in lane.memory.chunks_exact_mut(track.pattern.request_bytes as usize) {
                let course = &course;
                match scope.spawn("request", move || work(track, course, buf)) {
                    Ok(thread) => running.push((track.number, thread)),
                    Err(refused) => failed = Some(refused.into()),
                }
            }
        }
        course.stop.store(failed.is_some(), Ordering::Relaxed);
        drop(closed);
        for (number, thread) in running {
            match thread.join().map_err(ProbeError::from).flatten() {
                Ok(moved) => {
                    let seconds = sums[number].seconds.max(moved.seconds);
                    sums[number].add(&moved);
                    sums[number].seconds = seconds;
                }
                Err(error) => {
                    course.stop.store(true, Ordering::Relaxed);
                    failed = Some(error);
                }
            }
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(ProbeError::Cancelled);
        }
        failed.map_or(Ok(()), Err)
    })?;
    for (track, sum) in tracks.iter().zip(&sums).filter(|(track, _)| track.direction == Direction::Read) {
        track.area.bytes_read.fetch_add(sum.bytes, Ordering::Relaxed);
    }
    Ok(sums)
}

/// One thread: takes requests until the course ends.
fn work(track: &Track<'_>, course: &Course<'_>, buf: &mut [u8]) -> Result<Moved, ProbeError> {
    drop(course.start.read().unpoisoned());
    let began = Instant::now();
    let mut moved = Moved::default();
    while !course.stop.load(Ordering::Relaxed)
        && !course.cancel.load(Ordering::Relaxed)
        && began.elapsed().as_secs_f64() < course.seconds
    {
        if track.is_ahead(course) {
            std::thread::sleep(LEAD_WAIT);
            continue;
        }
        let Some(at) = track.take() else {
            course.stop.store(true, Ordering::Relaxed);
            break;
        };
        let done = match track.direction {
            Direction::Read => track.area.read(at, buf),
            Direction::Write => track.area.write(at, buf),
        };
        if let Err(error) = done {
            course.stop.store(true, Ordering::Relaxed);
            return Err(error);
        }
        moved.requests += 1;
        moved.bytes += track.pattern.request_bytes;
        moved.seconds = began.elapsed().as_secs_f64();
        if let Some(done) = course.done.get(track.number) {
            done.fetch_add(track.pattern.request_bytes, Ordering::Relaxed);
        }
    }
    Ok(moved)
}

impl Track<'_> {
    /// Whether the other lane must catch up first.
    fn is_ahead(&self, course: &Course<'_>) -> bool {
        let asked = self.next.load(Ordering::Relaxed) * self.pattern.request_bytes;
        let lead = (self.area.bytes() / LEAD_SHARE).max(2 * self.pattern.memory() as u64);
        let other = course.done.get(1 - self.number.min(1)).map_or(0, |done| done.load(Ordering::Relaxed));
        self.coupled && asked > other + lead
    }

    /// The offset of the next request; `None` if the written area is full.
    fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let total = self.area.bytes() / self.pattern.request_bytes;
        (self.direction == Direction::Read || number < total).then(|| self.position(number, total))
    }

    /// The offset of request `number`: the streams divide the area, and each wraps at its end.
    fn position(&self, number: u64, total: u64) -> u64 {
        let streams = self.pattern.streams;
        let steps = (total / streams).max(1);
        let stream = number % streams;
        let step = number / streams + self.seen / streams;
        (stream * steps + step % steps) * self.pattern.request_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_io::Buf;

    const MIB: u64 = 1 << 20;

    fn lane<'a>(area: &'a Area, direction: Direction, streams: u64, memory: &'a mut [u8]) -> Lane<'a> {
        let pattern = Pattern { request_bytes: MIB / 4, depth: 4, streams };
        Lane { area, direction, pattern, memory }
    }

    #[test]
    fn streams_divide_an_area_and_go_forward() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let area = Area::create(directory.path(), 2, MIB).unwrap();
        let pattern = Pattern { request_bytes: MIB / 4, depth: 1, streams: 2 };
        let track = |direction| Track {
            number: 0,
            area: &area,
            direction,
            pattern,
            seen: 2,
            next: AtomicU64::new(0),
            coupled: false,
        };
        let quarter = MIB / 4;
        let reading = track(Direction::Read);
        let wanted = [1, 5, 2, 6, 3, 7, 0, 4].map(|at| Some(at * quarter));
        assert_eq!([(); 8].map(|()| reading.take()), wanted);
        let writing = track(Direction::Write);
        assert!((0..8).all(|_| writing.take().is_some()));
        assert_eq!(writing.take(), None);
    }

    #[test]
    fn a_slice_moves_what_it_says_and_both_ways_keep_pace() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let area = Area::create(directory.path(), 2, 4 * MIB).unwrap();
        let (mut one, mut two) = (Buf::heap(MIB as usize), Buf::heap(MIB as usize));
        let no = AtomicBool::new(false);
        let moved = fill(lane(&area, Direction::Write, 1, &mut one), &no).unwrap();
        assert_eq!((moved.requests, moved.bytes), (32, 8 * MIB));
        let other = Area::create(directory.path(), 1, 8 * MIB).unwrap();
        let mut lanes =
            [lane(&area, Direction::Read, 2, &mut one), lane(&other, Direction::Write, 1, &mut two)];
        let moved = slice(&mut lanes, 0.05, &no).unwrap();
        assert!(moved[0].bytes > 0 && moved[1].bytes > 0);
        assert!(moved.iter().all(|lane| lane.seconds > 0.0 && lane.rate() > 0.0));
        assert!(area.bytes_read.load(Ordering::Relaxed) >= moved[0].bytes);
    }

    #[test]
    fn a_wish_to_stop_is_heard() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let area = Area::create(directory.path(), 1, 8 * MIB).unwrap();
        let mut memory = Buf::heap(MIB as usize);
        let stopped =
            slice(&mut [lane(&area, Direction::Write, 1, &mut memory)], 60.0, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(ProbeError::Cancelled)));
    }
}
