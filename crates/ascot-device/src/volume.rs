//! The measurement of a volume: its slices, their repetitions, and the resulting figures.
//!
//! ```text
//!   storing  checkpoints, before the open files of the other measurements take all descriptors
//!   pilot    approximate speed, to choose the bytes to lay out in the available time
//!   layout   writes the files to be read
//!   cache    bursts of writes after a sync
//!   sweep    request sizes and numbers in flight; selects the smallest of those about as fast as the best
//!   rounds   each figure once a round, with the requests of a job: reading, writing, both;
//!            switches by number of files, both directions
//! ```
//!
//! The cost of a switch is the extra time per request when requests alternate between k files, compared with
//! sequential requests to one file in the same round, with the same size and number in flight: the cost of the
//! requests themselves cancels out.

use std::time::Instant;

use ascot_io::{DEFAULT_DEPTH, Direction};
use ascot_model::measurement::{CacheMeasurement, Figure, Speed, SwitchPoint, VolumeMeasurement};

use crate::Clock;
use crate::area::Area;
use crate::cache;
use crate::checkpoint;
use crate::drive::{Driver, Lane, Moved, Pattern};
use crate::error::{ProbeError, Result};
use crate::target::Target;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Request sizes and numbers in flight to try; together at most [`BUFFER_BYTES`].
const REQUESTS: [u64; 3] = [256 * KIB, MIB, 4 * MIB];
const DEPTHS: [usize; 3] = [1, 4, 16];
/// Requests for measuring rates: jobs keep at least `JOB_BYTES` in flight, in requests of at most `JOB_REQUEST_BYTES`.
const JOB_BYTES: usize = 8 << 20;
const JOB_REQUEST_BYTES: u64 = MIB;
/// Maximum number of requests in flight in one direction.
const MAX_DEPTH: usize = 64;
/// Bytes of the buffers of one direction.
const BUFFER_BYTES: usize = 16 << 20;
/// Of the patterns within this share of the fastest, the one with the least memory is selected.
const ABOUT_AS_FAST: f64 = 0.97;

/// Bytes moved between two switches: short, so that the cost of a switch is visible.
const RUN_BYTES: u64 = 256 * KIB;
/// Maximum number of files between which requests alternate.
const MAX_FILES: u64 = 256;
/// Minimum number of runs in each file.
const MIN_RUNS: u64 = 2;

/// There are four areas: one file to read and one to write, many files to read and many to write.
const AREAS: u64 = 4;
const PILOT_BYTES: u64 = 64 * MIB;
const PILOT_SECONDS: f64 = 0.3;
/// Ends of the layout and of the sweep, as shares of the time.
const LAYOUT_SHARE: f64 = 0.2;
const SWEEP_UNTIL: f64 = 0.45;
/// The longest burst of writes, as a share of the time.
const CACHE_SHARE: f64 = 0.04;
/// Attempts per pattern; the best counts, because a disturbance only makes it slower.
const TRIES: usize = 2;
/// The measured share of a round; the rest is emptying files and starting threads.
const MEASURED_SHARE: f64 = 0.7;
/// Length of a rate's slice in slices of a switch.
const RATE_WEIGHT: f64 = 2.0;

/// Number of rounds: more if they are short, never below the minimum.
const MAX_ROUNDS: u32 = 5;
const MIN_ROUNDS: u32 = 3;
/// Minimum seconds of a round for the maximum number of rounds.
const ROUND_SECONDS: f64 = 1.5;

/// Measures the volume of `target`.
pub(crate) fn measure(target: &Target, clock: &Clock<'_>) -> Result<VolumeMeasurement> {
    let checkpoint_seconds = Some(checkpoint::measure(target, clock)?);
    let bench = Bench::new(target, clock)?;
    bench.lay_out()?;
    let cache = bench.cache()?;
    let (read, write) = bench.sweep()?;
    let rounds = bench.rounds(as_in_jobs(read), as_in_jobs(write))?;
    let speed = |pattern: Pattern, rates: &[f64]| Speed {
        rate: Figure::new(rates),
        request_bytes: pattern.request_bytes,
        depth: pattern.depth as u32,
    };
    let switches = |rounds: &[Vec<f64>]| {
        let points = bench.file_counts().into_iter().enumerate();
        points
            .map(|(at, files)| {
                let seconds: Vec<f64> = rounds.iter().filter_map(|round| round.get(at)).copied().collect();
                SwitchPoint { files: files as u32, seconds: Figure::new(&seconds) }
            })
            .collect()
    };
    Ok(VolumeMeasurement {
        read: speed(read, &rounds.read),
        write: speed(write, &rounds.write),
        duplex: Figure::new(&rounds.duplex),
        // The accounts of small jobs tell it.
        request_seconds: None,
        checkpoint_seconds,
        run_bytes: RUN_BYTES,
        read_switches: switches(&rounds.read_switches),
        write_switches: switches(&rounds.write_switches),
        cache,
        used_bytes: bench.areas.bytes(),
        repeats: rounds.read.len() as u32,
        seconds: clock.elapsed(),
    })
}

/// The places of the directions in pairs.
const READ: usize = Direction::Read as usize;
const WRITE: usize = Direction::Write as usize;

/// The areas of a measurement: each pair has one to read and one to write.
struct Areas {
    one: [Area; 2],
    many: [Area; 2],
    /// Number of files in each area of many files.
    files: u64,
}

impl Areas {
    fn bytes(&self) -> u64 {
        self.one.iter().chain(&self.many).map(Area::bytes).sum()
    }

    /// Four areas of `bytes` in total; the areas of many files have as many as possible.
    fn create(target: &Target, bytes: u64) -> Result<Areas> {
        let largest = REQUESTS.iter().max().copied().unwrap_or(MIB);
        let one_bytes = (bytes / AREAS / largest).max(1) * largest;
        let mut files = (one_bytes / (MIN_RUNS * RUN_BYTES)).clamp(2, MAX_FILES);
        files = 1 << files.ilog2();
        let pair = |files: u64, file_bytes: u64| {
            let area = || Area::create(&target.directory, files, file_bytes);
            Ok([area()?, area()?])
        };
        // These first, because they are needed more than many files.
        let one = pair(1, one_bytes)?;
        loop {
            match pair(files, one_bytes / files / RUN_BYTES * RUN_BYTES) {
                Ok(many) => return Ok(Areas { one, many, files }),
                // If descriptors run out, fewer files are better than no measurement.
                Err(error) if files > 2 && out_of_descriptors(&error) => files /= 2,
                Err(error) => return Err(error),
            }
        }
    }
}

fn out_of_descriptors(error: &ProbeError) -> bool {
    matches!(error, ProbeError::File { source, .. } if source.raw_os_error() == Some(libc::EMFILE))
}

/// The figures of the rounds, one a round.
#[derive(Default)]
struct Rounds {
    read: Vec<f64>,
    write: Vec<f64>,
    duplex: Vec<f64>,
    /// For each round, by number of files.
    read_switches: Vec<Vec<f64>>,
    write_switches: Vec<Vec<f64>>,
}

struct Bench<'a> {
    clock: &'a Clock<'a>,
    areas: Areas,
    driver: Driver,
}

impl<'a> Bench<'a> {
    fn new(target: &Target, clock: &'a Clock<'a>) -> Result<Self> {
        let driver = Driver::start(MAX_DEPTH, 2 * BUFFER_BYTES);
        let rate = pilot(target, clock, &driver)?;
        // Half of the files are written before they are read.
        let seconds = clock.budget.as_secs_f64() * LAYOUT_SHARE;
        let bytes = target.bytes.min((2.0 * rate * seconds) as u64).max(crate::MIN_BYTES);
        let areas = Areas::create(target, bytes)?;
        Ok(Bench { clock, areas, driver })
    }

    /// The numbers of files: 2, 4, 8, ...
    fn file_counts(&self) -> Vec<u64> {
        (1..=self.areas.files.ilog2()).map(|power| 1 << power).collect()
    }

    /// Writes the files to be read.
    fn lay_out(&self) -> Result<()> {
        for area in [&self.areas.one[READ], &self.areas.many[READ]] {
            self.clock.tick()?;
            let pattern = Pattern { request_bytes: RUN_BYTES, depth: 16, streams: 1 };
            self.driver.fill(area, pattern, self.clock.cancel)?;
        }
        Ok(())
    }

    /// The device's write cache, if bursts show it.
    fn cache(&self) -> Result<Option<CacheMeasurement>> {
        let seconds = CACHE_SHARE * self.clock.budget.as_secs_f64();
        cache::measure(&self.areas.one[WRITE], &self.driver, seconds, self.clock)
    }

    /// Selects the patterns for reading and for writing.
    fn sweep(&self) -> Result<(Pattern, Pattern)> {
        let max = self.areas.one[READ].bytes() / 2;
        let patterns: Vec<Pattern> = REQUESTS
            .iter()
            .flat_map(|&request_bytes| DEPTHS.map(|depth| Pattern { request_bytes, depth, streams: 1 }))
            .filter(|pattern| pattern.memory() <= BUFFER_BYTES && pattern.request_bytes <= max)
            .collect();
        let seconds = Clock::seconds_until(self.clock.share(SWEEP_UNTIL)).max(0.1);
        let slice = MEASURED_SHARE * seconds / (2 * TRIES * patterns.len()) as f64;
        let mut reads = vec![0.0; patterns.len()];
        let mut writes = vec![0.0; patterns.len()];
        for _ in 0..TRIES {
            for (pattern, (read, write)) in patterns.iter().zip(reads.iter_mut().zip(&mut writes)) {
                *read = self.one(Direction::Read, *pattern, slice)?.rate().max(*read);
                *write = self.one(Direction::Write, *pattern, slice)?.rate().max(*write);
            }
        }
        match (leanest(&patterns, &reads), leanest(&patterns, &writes)) {
            (Some(read), Some(write)) => Ok((read, write)),
            _ => Err(ProbeError::Cancelled),
        }
    }

    fn rounds(&self, read: Pattern, write: Pattern) -> Result<Rounds> {
        let began = Instant::now();
        let left = Clock::seconds_until(self.clock.share(1.0)).max(0.3);
        let wanted = ((left / ROUND_SECONDS) as u32).clamp(MIN_ROUNDS, MAX_ROUNDS);
        // A baseline before and after the numbers of files, for each direction.
        let slices = 3.0 * RATE_WEIGHT + 2.0 * (self.file_counts().len() + 2) as f64;
        let slice = MEASURED_SHARE * left / f64::from(wanted) / slices;
        let mut rounds = Rounds::default();
        for round in 0..wanted {
            let spent = began.elapsed().as_secs_f64();
            let behind = spent * f64::from(round + 1) > left * f64::from(round.max(1));
            if round >= 2 && behind {
                break;
            }
            self.round(&mut rounds, read, write, slice, round % 2 == 1)?;
        }
        Ok(rounds)
    }

    /// Measures every figure once, in every other round in reverse order.
    fn round(
        &self,
        rounds: &mut Rounds,
        read: Pattern,
        write: Pattern,
        slice: f64,
        backward: bool,
    ) -> Result<()> {
        rounds.read.push(self.one(Direction::Read, read, RATE_WEIGHT * slice)?.rate());
        rounds.write.push(self.one(Direction::Write, write, RATE_WEIGHT * slice)?.rate());
        rounds.duplex.push(self.both(read, write, RATE_WEIGHT * slice)?);
        rounds.read_switches.push(self.switches(Direction::Read, slice, backward)?);
        rounds.write_switches.push(self.switches(Direction::Write, slice, backward)?);
        Ok(())
    }

    /// Seconds of a switch by number of files.
    fn switches(&self, direction: Direction, slice: f64, backward: bool) -> Result<Vec<f64>> {
        let mut counts = self.file_counts();
        if backward {
            counts.reverse();
        }
        let before = self.many(direction, 1, slice)?;
        let mut costs = Vec::with_capacity(counts.len());
        for streams in counts {
            costs.push(self.many(direction, streams, slice)?);
        }
        let base = f64::midpoint(before, self.many(direction, 1, slice)?);
        if backward {
            costs.reverse();
        }
        Ok(costs.into_iter().map(|cost| cost - base).collect())
    }

    /// Seconds of a request that alternates between `streams` files.
    fn many(&self, direction: Direction, streams: u64, slice: f64) -> Result<f64> {
        let pattern = Pattern { request_bytes: RUN_BYTES, depth: DEFAULT_DEPTH, streams };
        Ok(self.alone(|areas| &areas.many, direction, pattern, slice)?.seconds_of_request())
    }

    /// One direction alone, in one file.
    fn one(&self, direction: Direction, pattern: Pattern, slice: f64) -> Result<Moved> {
        self.alone(|areas| &areas.one, direction, pattern, slice)
    }

    /// One direction alone.
    fn alone(
        &self,
        areas: fn(&Areas) -> &[Area; 2],
        direction: Direction,
        pattern: Pattern,
        slice: f64,
    ) -> Result<Moved> {
        self.clock.tick()?;
        let area = &areas(&self.areas)[direction as usize];
        let moved = self.driver.slice(&[Lane { area, direction, pattern }], slice, self.clock.cancel)?;
        Ok(moved.first().copied().unwrap_or_default())
    }

    /// Bytes/s of each direction with both active.
    fn both(&self, read: Pattern, write: Pattern, slice: f64) -> Result<f64> {
        self.clock.tick()?;
        let [from, to] = &self.areas.one;
        let lanes = [
            Lane { area: from, direction: Direction::Read, pattern: read },
            Lane { area: to, direction: Direction::Write, pattern: write },
        ];
        let moved = self.driver.slice(&lanes, slice, self.clock.cancel)?;
        Ok(moved.iter().map(Moved::rate).sum::<f64>() / moved.len().max(1) as f64)
    }
}

/// The requests of a job with enough memory, on a volume whose leanest good pattern is this one.
fn as_in_jobs(pattern: Pattern) -> Pattern {
    let request_bytes = pattern.request_bytes.min(JOB_REQUEST_BYTES);
    let in_flight = pattern.memory().clamp(JOB_BYTES, BUFFER_BYTES);
    Pattern { request_bytes, depth: in_flight / request_bytes as usize, ..pattern }
}

/// Approximate write speed, bytes/s.
fn pilot(target: &Target, clock: &Clock<'_>, driver: &Driver) -> Result<f64> {
    clock.tick()?;
    let bytes = (target.bytes / AREAS).min(PILOT_BYTES) / MIB * MIB;
    let area = Area::create(&target.directory, 1, bytes.max(MIB))?;
    let pattern = Pattern { request_bytes: RUN_BYTES, depth: 16, streams: 1 };
    let lane = Lane { area: &area, direction: Direction::Write, pattern };
    let moved = driver.slice(&[lane], PILOT_SECONDS, clock.cancel)?;
    Ok(moved.first().map_or(0.0, Moved::rate))
}

/// Of the patterns about as fast as the fastest, the one with the least memory in flight.
fn leanest(patterns: &[Pattern], rates: &[f64]) -> Option<Pattern> {
    let best = rates.iter().copied().fold(0.0, f64::max);
    let good = patterns.iter().zip(rates).filter(|(_, rate)| **rate >= ABOUT_AS_FAST * best);
    good.map(|(pattern, _)| *pattern).min_by_key(|pattern| (pattern.memory(), pattern.depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn of_patterns_about_as_fast_the_leanest_is_taken() {
        let pattern = |request_bytes, depth| Pattern { request_bytes, depth, streams: 1 };
        let patterns = [pattern(MIB, 1), pattern(MIB, 4), pattern(4 * MIB, 4)];
        assert_eq!(leanest(&patterns, &[1.0, 1.95, 2.0]), Some(patterns[1]));
        assert_eq!(leanest(&patterns, &[1.0, 1.5, 2.0]), Some(patterns[2]));
        assert_eq!(leanest(&[], &[]), None);
    }

    #[test]
    fn a_small_measurement_has_every_figure() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let target = Target::find(directory.path(), 32 << 20).unwrap();
        let cancel = AtomicBool::new(false);
        let clock = Clock::start(1.0, &cancel, &|_| {});
        let measured = measure(&target, &clock).unwrap();
        assert!(measured.used_bytes <= 32 << 20);
        assert!(measured.repeats >= 2);
        assert!(measured.read.rate.value > 0.0 && measured.write.rate.value > 0.0);
        assert!(measured.duplex.value > 0.0);
        let files: Vec<u32> = measured.read_switches.iter().map(|point| point.files).collect();
        assert_eq!(files, [2, 4, 8, 16]);
        assert_eq!(measured.profile("x").check(), Ok(()));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
