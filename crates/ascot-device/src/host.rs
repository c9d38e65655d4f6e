//! The processors: sorting and merging in memory, with the kernels that jobs use, on all cores at once.
//!
//! Generated data are sorted in chunks, and the chunks merged; each kind of record in turn, several times. All threads
//! do the same work at the same time, as in a job: two logical cores may share one physical core, and all share caches
//! and memory. The result is the speed of one thread. The merged data exceed the cache, as in jobs.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

use ascot_io::threads::{self, ScopedThread};
use ascot_io::{PAGE_BYTES, Pool, ThreadError};
use ascot_model::host::{NARROW_MERGE, RecordClass, WIDE_MERGE};
use ascot_model::measurement::{Figure, HostMeasurement, KernelMeasurement};
use ascot_model::random::SplitMix64;
use ascot_record::chunk::{ChunkScratch, sort_chunk};
use ascot_record::cursor::{SliceCursor, gather};
use ascot_record::framing::{FixedFraming, Framing, LineFraming};
use ascot_record::merge::merge;
use ascot_record::number::merge_numbers;
use ascot_record::order::{LastResort, RangeOrder, RecordOrder};
use ascot_record::vsort;

use crate::Clock;
use crate::error::ProbeError;

/// Numbers of chunks merged at once: narrow and wide.
const PIECES: [usize; 2] = [NARROW_MERGE as usize, WIDE_MERGE as usize];
/// Approximate bytes of all chunks of all threads; less if time is short.
const BYTES: usize = 64 << 20;
const BYTES_IN_HASTE: usize = 8 << 20;
const MIN_BYTES: usize = 4 << 20;
const HASTE_SECONDS: f64 = 1.0;
/// Bytes of newly allocated memory: large enough for huge pages, as in jobs.
const FRESH_BYTES: usize = 64 << 20;
/// Minimum and maximum repetitions for each kind of record.
const MIN_REPEATS: usize = 3;
const MAX_REPEATS: usize = 9;

const FIXED_BYTES: usize = 100;
const FIXED_KEY: std::ops::Range<usize> = 0..10;
/// Lengths of lines without their end.
const MIN_LINE: u64 = 16;
const LINE_RANGE: u64 = 64;

/// Seconds of sorting and of merging the same data.
#[derive(Clone, Copy)]
struct Seconds {
    sort: f64,
    merge: f64,
}

/// Measured bytes/s, by repetition.
#[derive(Clone, Default)]
struct Rates {
    sort: Vec<f64>,
    merge: Vec<f64>,
    wide_merge: Vec<f64>,
}

/// A kind of record with its data.
enum Subject {
    Numbers(Vec<u64>),
    Fixed(Vec<u8>),
    Lines { bytes: Vec<u8>, lines: usize },
}

/// Measures each kind of record until `until`, on `threads` threads.
pub fn measure(clock: &Clock<'_>, until: Instant, threads: usize) -> Result<HostMeasurement, ProbeError> {
    let hasty = Clock::seconds_until(until) < HASTE_SECONDS;
    let bytes = if hasty { BYTES_IN_HASTE } else { BYTES };
    let subjects = subjects((bytes / threads.max(1)).max(MIN_BYTES));
    let mut scratches: Vec<ChunkScratch> = (0..threads.max(1)).map(|_| ChunkScratch::default()).collect();
    let mut rates = vec![Rates::default(); subjects.len()];
    let mut fresh = Vec::new();
    for repeat in 0..MAX_REPEATS {
        if repeat >= MIN_REPEATS && Clock::seconds_until(until) == 0.0 {
            break;
        }
        fresh.extend(fresh_memory());
        for (subject, rates) in subjects.iter().zip(&mut rates) {
            clock.tick()?;
            let rate = |seconds: f64| subject.bytes() as f64 / seconds.max(1e-9);
            let [narrow, wide] = PIECES;
            let narrow = subject.run_on_all(narrow, &mut scratches)?;
            let wide = subject.run_on_all(wide, &mut scratches)?;
            rates.sort.push(rate(narrow.sort));
            rates.merge.push(rate(narrow.merge));
            rates.wide_merge.push(rate(wide.merge));
        }
    }
    Ok(HostMeasurement {
        threads,
        fresh_memory: (!fresh.is_empty()).then(|| Figure::new(&fresh)),
        kernels: subjects.iter().zip(rates).map(|(subject, rates)| subject.kernel(&rates)).collect(),
    })
}

/// Bytes/s of allocating memory of a job's pool; `None` if the system has too little memory.
fn fresh_memory() -> Option<f64> {
    let mut region = Pool::new(FRESH_BYTES).region(FRESH_BYTES, "the measurement").ok()?;
    let began = Instant::now();
    region.chunks_mut(PAGE_BYTES).for_each(|page| page[0] = 1);
    let seconds = began.elapsed().as_secs_f64();
    black_box(&region);
    Some(FRESH_BYTES as f64 / seconds.max(1e-9))
}

fn subjects(bytes: usize) -> [Subject; 3] {
    let mut noise = SplitMix64(1);
    let numbers = (0..bytes / size_of::<u64>()).map(|_| noise.next_u64()).collect();
    let mut fixed = vec![0; bytes / FIXED_BYTES * FIXED_BYTES];
    for word in fixed.chunks_exact_mut(8) {
        word.copy_from_slice(&noise.next_u64().to_le_bytes());
    }
    let mut text = Vec::with_capacity(bytes);
    let mut lines = 0;
    while text.len() + ((MIN_LINE + LINE_RANGE) as usize) < bytes {
        for _ in 0..MIN_LINE + noise.next_u64() % LINE_RANGE {
            text.push(b'a' + (noise.next_u64() >> 32) as u8 % 26);
        }
        text.push(b'\n');
        lines += 1;
    }
    [Subject::Numbers(numbers), Subject::Fixed(fixed), Subject::Lines { bytes: text, lines }]
}

impl Subject {
    fn bytes(&self) -> usize {
        match self {
            Subject::Numbers(numbers) => numbers.len() * size_of::<u64>(),
            Subject::Fixed(bytes) | Subject::Lines { bytes, .. } => bytes.len(),
        }
    }

    /// Mean time per thread with all threads running; each has its scratch.
    fn run_on_all(&self, pieces: usize, scratches: &mut [ChunkScratch]) -> Result<Seconds, ThreadError> {
        let count = scratches.len().max(1) as f64;
        let all: Vec<Seconds> = threads::scope(|scope| {
            let start = |scratch| scope.spawn("measure", move || self.run(pieces, scratch));
            let running: Vec<_> = scratches.iter_mut().map(start).collect::<Result<_, _>>()?;
            running.into_iter().map(ScopedThread::join).collect::<Result<_, ThreadError>>()
        })?;
        let mean = |seconds: fn(&Seconds) -> f64| all.iter().map(seconds).sum::<f64>() / count;
        Ok(Seconds { sort: mean(|one| one.sort), merge: mean(|one| one.merge) })
    }

    fn run(&self, pieces: usize, scratch: &mut ChunkScratch) -> Seconds {
        match self {
            Subject::Numbers(numbers) => run_numbers(numbers, pieces),
            Subject::Fixed(bytes) => {
                let framing = FixedFraming(FIXED_BYTES);
                let order = RangeOrder::new(framing, FIXED_KEY, false, LastResort::None);
                run_records(framing, &order, bytes, pieces, scratch)
            }
            Subject::Lines { bytes, .. } => {
                let framing = LineFraming(b'\n');
                run_records(framing, &RangeOrder::whole(framing, false), bytes, pieces, scratch)
            }
        }
    }

    fn kernel(&self, rates: &Rates) -> KernelMeasurement {
        let (layout, class, record_bytes) = match self {
            Subject::Numbers(_) => ("u64", RecordClass::Number, 8.0),
            Subject::Fixed(_) => ("fixed:100", RecordClass::Fixed, FIXED_BYTES as f64),
            Subject::Lines { bytes, lines } => {
                ("lines", RecordClass::Line, bytes.len() as f64 / (*lines).max(1) as f64)
            }
        };
        let sort = Figure::new(&rates.sort);
        let merge = Figure::new(&rates.merge);
        let wide_merge = Some(Figure::new(&rates.wide_merge));
        KernelMeasurement { layout: layout.into(), class, record_bytes, sort, merge, wide_merge }
    }
}

fn run_numbers(numbers: &[u64], pieces: usize) -> Seconds {
    let mut sorted = numbers.to_vec();
    let mut out = vec![0; numbers.len()];
    // Touched before: the first use of memory is time of the operating system, not of the compute kernel.
    out.fill(1);
    let piece = numbers.len().div_ceil(pieces).max(1);
    let began = Instant::now();
    sorted.chunks_mut(piece).for_each(vsort::sort);
    let sort = began.elapsed().as_secs_f64();
    let slices: Vec<&[u64]> = sorted.chunks(piece).collect();
    let began = Instant::now();
    merge_numbers(&slices, &mut out);
    let merge = began.elapsed().as_secs_f64();
    black_box(&out);
    Seconds { sort, merge }
}

fn run_records<F: Framing, O: RecordOrder>(
    framing: F,
    order: &O,
    bytes: &[u8],
    count: usize,
    scratch: &mut ChunkScratch,
) -> Seconds {
    let mut out = vec![1; bytes.len()];
    let mut sorted = vec![1; bytes.len()];
    let mut free = &mut sorted[..];
    let mut pieces: Vec<[&[u8]; 1]> = Vec::with_capacity(count);
    let mut sort = 0.0;
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut starts = vec![1; (bytes.len() / count / MIN_LINE as usize).max(1)];
        let began = Instant::now();
        let limit = rest.len().min(bytes.len() / count + FIXED_BYTES);
        let found = framing.frame(&rest[..limit], &mut starts);
        if found.bytes == 0 {
            break;
        }
        starts.truncate(found.records);
        let (piece, after) = rest.split_at(found.bytes);
        sort_chunk(&framing, order, piece, &mut starts, scratch);
        let (room, left) = free.split_at_mut(piece.len());
        gather(&framing, piece, &starts, room);
        sort += began.elapsed().as_secs_f64();
        pieces.push([room]);
        free = left;
        rest = after;
    }
    let began = Instant::now();
    let mut cursors: Vec<_> = pieces.iter().map(|piece| SliceCursor::new(framing, piece)).collect();
    let mut at = 0;
    let _ = merge(&mut cursors, order, &mut |record: &[u8]| {
        match out.get_mut(at..at + record.len()) {
            Some(space) => space.copy_from_slice(record),
            None => return ControlFlow::Break(()),
        }
        at += record.len();
        ControlFlow::Continue(())
    });
    let merge = began.elapsed().as_secs_f64();
    black_box(&out);
    Seconds { sort, merge }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn every_layout_has_its_speeds() {
        let cancel = AtomicBool::new(false);
        let clock = Clock::start(0.1, &cancel, &|_| {});
        let host = measure(&clock, clock.share(1.0), 3).unwrap();
        assert!(host.threads == 3 && host.fresh_memory.is_some_and(|figure| figure.value > 1e6));
        let kernels = host.kernels;
        let layouts: Vec<&str> = kernels.iter().map(|kernel| kernel.layout.as_str()).collect();
        assert_eq!(layouts, ["u64", "fixed:100", "lines"]);
        for kernel in kernels {
            assert!(kernel.sort.value > 1e6 && kernel.merge.value > 1e6, "{kernel:?}");
            assert!(kernel.wide_merge.is_some_and(|figure| figure.value > 1e6), "{kernel:?}");
            assert!(kernel.record_bytes >= 8.0);
        }
    }

    #[test]
    fn it_can_be_stopped() {
        let cancel = AtomicBool::new(true);
        let clock = Clock::start(1.0, &cancel, &|_| {});
        assert!(matches!(measure(&clock, clock.share(1.0), 1), Err(ProbeError::Cancelled)));
    }
}
