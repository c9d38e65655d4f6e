//! Drives requests against areas for a slice of time, through the queue that performs the requests of jobs.
//!
//! A lane moves bytes in one direction: it keeps a number of requests in flight, and waits for the oldest before it
//! begins another. Lanes of both directions run at the pace of the slower one, as in a job that writes what it reads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ascot_io::{BlockPool, Buf, Direction, IoQueue, PendingTransfer, Pool, threads};
use ascot_model::random::SplitMix64;

use crate::area::Area;
use crate::error::{ProbeError, Result};

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
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a> {
    pub(crate) area: &'a Area,
    pub(crate) direction: Direction,
    pub(crate) pattern: Pattern,
}

impl Lane<'_> {
    /// Requests that earlier slices read: none is read again before all others.
    fn seen(&self) -> u64 {
        match self.direction {
            Direction::Read => self.area.bytes_read.load(Ordering::Relaxed) / self.pattern.request_bytes,
            Direction::Write => 0,
        }
    }
}

/// What performs the requests, and the memory of their buffers.
pub(crate) struct Driver {
    queue: IoQueue,
    memory: Pool,
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

/// The shared state of the lanes of a slice.
struct Course<'a> {
    stop: AtomicBool,
    cancel: &'a AtomicBool,
    seconds: f64,
    /// Bytes done by each lane; unused for a single lane.
    done: [AtomicU64; 2],
}

/// One lane's state.
struct Track<'a> {
    number: usize,
    lane: Lane<'a>,
    queue: &'a IoQueue,
    blocks: &'a BlockPool,
    seen: u64,
    coupled: bool,
}

impl Driver {
    /// A driver with up to `depth` requests in flight in each direction, whose buffers take at most `memory_bytes`.
    pub(crate) fn start(depth: usize, memory_bytes: usize) -> Driver {
        Driver { queue: IoQueue::start(depth, depth), memory: Pool::new(memory_bytes) }
    }

    /// Drives one or two lanes for about `seconds` of measured time. An area that is written is emptied before, and
    /// again whenever it is full.
    pub(crate) fn slice(&self, lanes: &[Lane<'_>], seconds: f64, cancel: &AtomicBool) -> Result<Vec<Moved>> {
        let began = Instant::now();
        let blocks = self.blocks(lanes)?;
        let mut sums = vec![Moved::default(); lanes.len()];
        loop {
            for lane in lanes.iter().filter(|lane| lane.direction == Direction::Write) {
                lane.area.empty()?;
            }
            let measured = sums.first().map_or(0.0, |sum| sum.seconds);
            let moved = self.once(lanes, &blocks, seconds - measured, cancel)?;
            sums.iter_mut().zip(&moved).for_each(|(sum, moved)| sum.add(moved));
            let measured = sums.first().map_or(seconds, |sum| sum.seconds);
            if measured >= 0.9 * seconds || began.elapsed().as_secs_f64() > PATIENCE * seconds {
                return Ok(sums);
            }
        }
    }

    /// Writes an area from its start to its end.
    pub(crate) fn fill(&self, area: &Area, pattern: Pattern, cancel: &AtomicBool) -> Result<()> {
        let lane = Lane { area, direction: Direction::Write, pattern };
        let blocks = self.blocks(&[lane])?;
        self.once(&[lane], &blocks, f64::INFINITY, cancel)?;
        Ok(())
    }

    /// The buffers of each lane, filled with incompressible data.
    fn blocks(&self, lanes: &[Lane<'_>]) -> Result<Vec<BlockPool>> {
        let of_lane = |lane: &Lane<'_>| {
            let region = self.noise(lane.pattern.memory())?;
            Ok(BlockPool::new(region, lane.pattern.request_bytes as usize))
        };
        lanes.iter().map(of_lane).collect()
    }

    /// Incompressible data.
    pub(crate) fn noise(&self, bytes: usize) -> Result<Buf> {
        let mut region = self.memory.region(bytes, "requests")?;
        SplitMix64(1).fill(&mut region);
        Ok(region)
    }

    /// Runs until the time is over, or the written area is full.
    fn once(
        &self,
        lanes: &[Lane<'_>],
        blocks: &[BlockPool],
        seconds: f64,
        cancel: &AtomicBool,
    ) -> Result<Vec<Moved>> {
        let course = Course { stop: AtomicBool::new(false), cancel, seconds, done: Default::default() };
        let coupled = lanes.len() == 2;
        let queue = &self.queue;
        let of_lanes = lanes.iter().copied().zip(blocks).enumerate();
        let track = |(number, (lane, blocks))| Track {
            number,
            lane,
            queue,
            blocks,
            seen: Lane::seen(&lane),
            coupled,
        };
        let tracks: Vec<Track<'_>> = of_lanes.map(track).collect();
        let moved = threads::scope(|scope| {
            let course = &course;
            let started: Vec<_> =
                tracks.iter().map(|track| scope.spawn("requests", || track.run(course))).collect();
            // A lane must not wait for another that could not start.
            course.stop.fetch_or(started.iter().any(Result::is_err), Ordering::Relaxed);
            let joined = started.into_iter().map(|thread| thread?.join().map_err(ProbeError::from).flatten());
            joined.collect::<Result<Vec<Moved>>>()
        });
        if cancel.load(Ordering::Relaxed) {
            return Err(ProbeError::Cancelled);
        }
        let moved = moved?;
        for (lane, moved) in lanes.iter().zip(&moved).filter(|(lane, _)| lane.direction == Direction::Read) {
            lane.area.bytes_read.fetch_add(moved.bytes, Ordering::Relaxed);
        }
        Ok(moved)
    }
}

impl Track<'_> {
    /// Keeps requests in flight until the course ends; stops the other lane too when it ends.
    fn run(&self, course: &Course<'_>) -> Result<Moved> {
        let moved = self.drive(course);
        course.stop.fetch_or(self.coupled || moved.is_err(), Ordering::Relaxed);
        moved
    }

    fn drive(&self, course: &Course<'_>) -> Result<Moved> {
        let Lane { area, direction, pattern } = self.lane;
        let began = Instant::now();
        let mut moved = Moved::default();
        let mut in_flight: VecDeque<PendingTransfer> = VecDeque::with_capacity(pattern.depth);
        let mut begun = 0;
        loop {
            let goes_on = !course.is_over(began);
            let ahead = self.is_ahead(begun, course);
            let next = if goes_on && !ahead && in_flight.len() < pattern.depth {
                self.position(begun)
            } else {
                None
            };
            if let Some(at) = next {
                let Some(block) = self.blocks.take(|| course.is_over(began)) else { continue };
                in_flight.push_back(area.begin(self.queue, direction, at, block)?);
                begun += 1;
            } else if let Some(oldest) = in_flight.pop_front() {
                area.complete(oldest, direction)?;
                moved.requests += 1;
                moved.bytes += pattern.request_bytes;
                moved.seconds = began.elapsed().as_secs_f64();
                if let Some(done) = course.done.get(self.number) {
                    done.store(moved.bytes, Ordering::Relaxed);
                }
            } else if goes_on && ahead {
                std::thread::sleep(LEAD_WAIT);
            } else {
                return Ok(moved);
            }
        }
    }

    /// Whether the other lane must catch up before request `begun` begins.
    fn is_ahead(&self, begun: u64, course: &Course<'_>) -> bool {
        let Lane { area, pattern, .. } = self.lane;
        let asked = begun * pattern.request_bytes;
        let lead = (area.bytes() / LEAD_SHARE).max(2 * pattern.memory() as u64);
        let other = course.done.get(1 - self.number.min(1)).map_or(0, |done| done.load(Ordering::Relaxed));
        self.coupled && asked > other + lead
    }

    /// The offset of request `number`: the streams divide the area, and each wraps at its end. `None` if the written
    /// area is full.
    fn position(&self, number: u64) -> Option<u64> {
        let Lane { area, direction, pattern } = self.lane;
        let total = area.bytes() / pattern.request_bytes;
        let steps = (total / pattern.streams).max(1);
        let stream = number % pattern.streams;
        let step = number / pattern.streams + self.seen / pattern.streams;
        let at = (stream * steps + step % steps) * pattern.request_bytes;
        (direction == Direction::Read || number < total).then_some(at)
    }
}

impl Course<'_> {
    fn is_over(&self, began: Instant) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.cancel.load(Ordering::Relaxed)
            || began.elapsed().as_secs_f64() >= self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn lane(area: &Area, direction: Direction, streams: u64) -> Lane<'_> {
        Lane { area, direction, pattern: Pattern { request_bytes: MIB / 4, depth: 4, streams } }
    }

    #[test]
    fn streams_divide_an_area_and_go_forward() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let area = Area::create(directory.path(), 2, MIB).unwrap();
        let driver = Driver::start(4, 2 * MIB as usize);
        let blocks = driver.blocks(&[lane(&area, Direction::Read, 2)]).unwrap();
        let track = |direction| Track {
            number: 0,
            lane: lane(&area, direction, 2),
            queue: &driver.queue,
            blocks: &blocks[0],
            seen: 2,
            coupled: false,
        };
        let offsets = |direction| (0..9).map(|number| track(direction).position(number)).collect::<Vec<_>>();
        let wanted = [1, 5, 2, 6, 3, 7, 0, 4, 1].map(|at| Some(at * MIB / 4));
        assert_eq!(offsets(Direction::Read), wanted);
        assert!(offsets(Direction::Write)[..8].iter().all(Option::is_some));
        assert_eq!(offsets(Direction::Write)[8], None);
    }

    #[test]
    fn a_slice_moves_what_it_says_and_both_ways_keep_pace() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let area = Area::create(directory.path(), 2, 4 * MIB).unwrap();
        let driver = Driver::start(4, 2 * MIB as usize);
        let no = AtomicBool::new(false);
        driver.fill(&area, lane(&area, Direction::Write, 1).pattern, &no).unwrap();
        let other = Area::create(directory.path(), 1, 8 * MIB).unwrap();
        let lanes = [lane(&area, Direction::Read, 2), lane(&other, Direction::Write, 1)];
        let moved = driver.slice(&lanes, 0.05, &no).unwrap();
        assert!(moved.iter().all(|lane| lane.bytes == lane.requests * MIB / 4));
        assert!(moved.iter().all(|lane| lane.seconds > 0.0 && lane.rate() > 0.0));
        let most = moved[0].bytes.max(moved[1].bytes);
        assert!(moved[0].bytes.abs_diff(moved[1].bytes) <= most / 2, "{moved:?}");
        assert_eq!(area.bytes_read.load(Ordering::Relaxed), moved[0].bytes);
    }

    #[test]
    fn an_area_is_filled_with_noise() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let area = Area::create(directory.path(), 2, 2 * MIB).unwrap();
        let driver = Driver::start(4, MIB as usize);
        driver.fill(&area, lane(&area, Direction::Write, 1).pattern, &AtomicBool::new(false)).unwrap();
        for at in (0..16).map(|block| block * MIB / 4) {
            let read = area.begin(&driver.queue, Direction::Read, at, Buf::heap(4096)).unwrap();
            let page = area.complete(read, Direction::Read).unwrap().unwrap();
            assert!(page.iter().filter(|byte| **byte == 0).count() < 64, "at {at}");
        }
    }

    #[test]
    fn a_wish_to_stop_is_heard() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let area = Area::create(directory.path(), 1, 8 * MIB).unwrap();
        let driver = Driver::start(4, MIB as usize);
        let stopped = driver.slice(&[lane(&area, Direction::Write, 1)], 60.0, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(ProbeError::Cancelled)));
    }
}
