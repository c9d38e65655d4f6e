//! Measures the record kernels on one core and prints a table.
//!
//! `cargo run --release -p ascot-record --example kernels [NAME]` runs those whose name has NAME in
//! it. Each is run for about a second; the best run counts.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

use ascot_record::checksum::RecordSum;
use ascot_record::chunk::{ChunkScratch, gather, sort_chunk};
use ascot_record::framing::{FixedFraming, Framing, LineFraming, PrefixedFraming};
use ascot_record::layout::{Endian, NumberFormat, NumberType};
use ascot_record::merge::{SliceCursor, merge};
use ascot_record::number::{merge_numbers, to_ordered};
use ascot_record::order::{LastResort, RangeOrder, RecordOrder};
use ascot_record::vsort::sort;
use rustix::time::{ClockId, clock_gettime};

const RECORD: usize = 100;
const RECORDS: FixedFraming = FixedFraming(RECORD);
const LINES: LineFraming = LineFraming(b'\n');

/// Which kernels to run, and how their rates are shown.
struct Bench {
    wanted: String,
}

impl Bench {
    /// Runs `work` on a fresh result of `setup`, over and over, and prints bytes per second.
    fn rate<T>(&self, name: &str, bytes: usize, mut setup: impl FnMut() -> T, mut work: impl FnMut(&mut T)) {
        if !name.contains(&self.wanted) {
            return;
        }
        let begin = Instant::now();
        let mut best = f64::INFINITY;
        while begin.elapsed().as_secs_f64() < 1.0 {
            let mut state = setup();
            let start = processor_seconds();
            work(&mut state);
            best = best.min(processor_seconds() - start);
            black_box(&state);
        }
        println!("{name:<52} {:>8.2} GB/s {:>9.2} ms", bytes as f64 / best / 1e9, best * 1e3);
    }
}

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The same items in huge pages, where the system has them.
#[expect(unsafe_code, reason = "the system call has no safe wrapper")]
fn huge<T: Copy>(items: &[T]) -> Vec<T> {
    const PAGE: usize = 2 << 20;
    let mut vec: Vec<T> = Vec::with_capacity(items.len() + PAGE / size_of::<T>());
    #[cfg(target_os = "linux")]
    {
        let begin = vec.as_ptr().addr().next_multiple_of(4096);
        let len = size_of_val(items) / 4096 * 4096;
        // SAFETY: advice about whole pages of our own allocation; it changes no byte of them.
        unsafe { libc::madvise(begin as *mut libc::c_void, len, libc::MADV_HUGEPAGE) };
    }
    vec.extend_from_slice(items);
    vec
}

struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn numbers(&mut self, count: usize) -> Vec<u64> {
        huge(&(0..count).map(|_| self.next()).collect::<Vec<_>>())
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_ne_bytes());
        }
        bytes.truncate(len);
        huge(&bytes)
    }

    /// Lines of words, most of which share how they begin.
    fn lines(&mut self, len: usize, head: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 200);
        while bytes.len() < len {
            bytes.extend_from_slice(head.as_bytes());
            let tail = format!("{:016x}{:>width$}\n", self.next(), "", width = (self.next() % 60) as usize);
            bytes.extend_from_slice(tail.as_bytes());
        }
        huge(&bytes)
    }
}

/// Lines of a log: times of one day with microseconds, in no order, and words.
fn log_lines(noise: &mut Noise, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 200);
    while bytes.len() < len {
        let at = noise.next() % 86_400_000_000;
        let (second, micros) = (at / 1_000_000, at % 1_000_000);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let host = noise.next() % 40;
        let item = noise.next() % 100_000;
        let line = format!(
            "2026-11-26T{hour:02}:{minute:02}:{second:02}.{micros:06}Z host-{host:02} web[311]: GET /items/{item} 200\n"
        );
        bytes.extend_from_slice(line.as_bytes());
    }
    huge(&bytes)
}

fn starts_of<F: Framing>(framing: &F, bytes: &[u8]) -> Vec<u32> {
    let mut starts = vec![0; bytes.len()];
    let found = framing.frame(bytes, &mut starts);
    starts.truncate(found.records);
    starts
}

/// A number from noise and its place.
type Shape = fn(u64, u64) -> u64;

fn numbers(bench: &Bench) {
    let noise = &mut Noise(1);
    for count in [1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 24] {
        let input = noise.numbers(count);
        let bytes = count * 8;
        bench.rate(&format!("sort_u64 random {count}"), bytes, || huge(&input), |v| sort(v));
    }
    let input = noise.numbers(1 << 17);
    bench.rate("std sort_unstable u64 131072", 8 << 17, || input.clone(), |v| v.sort_unstable());
    let narrow: Vec<u32> = noise.numbers(1 << 20).into_iter().map(|x| x as u32).collect();
    bench.rate("sort_u32 random 1048576", 4 << 20, || narrow.clone(), |v| sort(v));
    let shapes: [(&str, Shape); 5] = [
        ("sorted", |_, at| at),
        ("all equal", |_, _| 7),
        ("two values", |noise, _| noise % 2),
        ("1000 values", |noise, _| noise % 1000),
        ("nearly sorted", |noise, at| if noise % 64 == 0 { noise >> 44 } else { at }),
    ];
    for (name, shape) in shapes {
        let input: Vec<u64> = (0..1 << 20).map(|at| shape(noise.next(), at)).collect();
        bench.rate(&format!("sort_u64 {name} 1048576"), 8 << 20, || input.clone(), |v| sort(v));
    }
    for ways in [2, 8, 64, 256] {
        let total = 1 << 23;
        let mut slices: Vec<Vec<u64>> = (0..ways).map(|_| noise.numbers(total / ways)).collect();
        slices.iter_mut().for_each(|slice| slice.sort_unstable());
        let slices: Vec<&[u64]> = slices.iter().map(Vec::as_slice).collect();
        let name = format!("merge_numbers fan-in {ways}");
        let out = &mut huge(&vec![0; total]);
        bench.rate(&name, total * 8, || (), |()| merge_numbers(&slices, out));
    }
    let input = noise.bytes(16 << 20);
    let format = NumberFormat { kind: NumberType::F64, endian: Endian::Big };
    bench.rate("to_ordered f64-be", 16 << 20, || input.clone(), |v| to_ordered(v, format, false));
    let numbers = noise.numbers(1 << 20);
    bench.rate("checksum add_numbers", 8 << 20, RecordSum::new, |sum| sum.add_numbers(&numbers));
    bench.rate("checksum add, 100 bytes", 16 << 20, RecordSum::new, |sum| {
        input.chunks(RECORD).for_each(|record| sum.add(record));
    });
}

/// Frames and sorts one piece.
fn piece<F: Framing, O: RecordOrder>(bench: &Bench, name: &str, framing: F, order: &O, bytes: &[u8]) {
    let starts = starts_of(&framing, bytes);
    let mut scratch = ChunkScratch::with_capacity(starts.len());
    let name = format!("sort_chunk {name}, {} records", starts.len());
    bench.rate(
        &name,
        bytes.len(),
        || starts.clone(),
        |starts| {
            sort_chunk(&framing, order, bytes, starts, &mut scratch);
        },
    );
}

fn pieces(bench: &Bench) {
    let noise = &mut Noise(2);
    let by_key = RangeOrder::new(RECORDS, 0..10, false, LastResort::None);
    for records in [1 << 14, 1 << 16, 1 << 18] {
        let bytes = noise.bytes(records * RECORD);
        piece(bench, "100-byte records", RECORDS, &by_key, &bytes);
    }
    let bytes = noise.bytes(RECORD << 18);
    let by_key = RangeOrder::new(RECORDS, 0..10, false, LastResort::Bytes);
    let equal: Vec<u8> = bytes.chunks(RECORD).flat_map(|r| [[7; 10].as_slice(), &r[10..]].concat()).collect();
    piece(bench, "equal keys, by bytes after", RECORDS, &by_key, &equal);
    let equal = RangeOrder::new(RECORDS, 0..10, false, LastResort::None);
    piece(bench, "equal keys", RECORDS, &equal, &vec![7; RECORD << 18]);
    let by_line = RangeOrder::whole(LINES, false);
    piece(bench, "lines", LINES, &by_line, &noise.lines(16 << 20, ""));
    let urls = noise.lines(16 << 20, "https://example.org/shared/");
    piece(bench, "lines with a common head", LINES, &by_line, &urls);
    piece(bench, "lines", LINES, &by_line, &noise.lines(1 << 20, ""));
    for len in [1 << 20, 4 << 20, 16 << 20] {
        piece(bench, "lines of a log", LINES, &by_line, &log_lines(noise, len));
    }
    let starts = &mut vec![0; 1 << 20];
    bench.rate(
        "frame lines",
        urls.len(),
        || (),
        |()| {
            black_box(LINES.frame(&urls, starts));
        },
    );
}

/// Merges to an output block that is filled over and over.
fn merge_all<F: Framing, O: RecordOrder>(cursors: &mut [SliceCursor<'_, F>], order: &O, block: &mut Vec<u8>) {
    let limit = block.capacity();
    let _ = merge(cursors, order, &mut |record: &[u8]| {
        if block.len() + record.len() > limit {
            block.clear();
        }
        block.extend_from_slice(record);
        ControlFlow::Continue(())
    });
}

fn merges(bench: &Bench) {
    let noise = &mut Noise(3);
    let order = RangeOrder::new(RECORDS, 0..10, false, LastResort::None);
    let mut block = Vec::with_capacity(1 << 20);
    for ways in [2, 16, 64, 256] {
        let records = (1 << 20) / ways;
        let mut scratch = ChunkScratch::with_capacity(records);
        let pieces: Vec<(Vec<u8>, Vec<u32>)> = (0..ways)
            .map(|_| {
                let bytes = noise.bytes(records * RECORD);
                let mut starts = starts_of(&RECORDS, &bytes);
                sort_chunk(&RECORDS, &order, &bytes, &mut starts, &mut scratch);
                (bytes, starts)
            })
            .collect();
        let total = ways * records * RECORD;
        let runs: Vec<Vec<u8>> = pieces
            .iter()
            .map(|(bytes, starts)| {
                let records = starts.iter().flat_map(|start| &bytes[*start as usize..][..RECORD]);
                huge(&records.copied().collect::<Vec<_>>())
            })
            .collect();
        let slices: Vec<[&[u8]; 1]> = runs.iter().map(|run| [run.as_slice()]).collect();
        bench.rate(
            &format!("merge slices fan-in {ways}, 100-byte records"),
            total,
            || slices.iter().map(|slices| SliceCursor::new(RECORDS, slices)).collect::<Vec<_>>(),
            |cursors| merge_all(cursors, &order, &mut block),
        );
    }
}

/// Merges rows with a key of eight bytes, as those of tables: the length of the row, that of the key, the key, the
/// rest.
fn merges_of_rows(bench: &Bench) {
    const ROW: usize = 60;
    let noise = &mut Noise(6);
    let framing = black_box(PrefixedFraming { width: 4, endian: Endian::Little, keyed: true });
    let order = RangeOrder::whole(framing, false);
    let mut block = Vec::with_capacity(1 << 20);
    for ways in [2, 16, 64, 256, 1024] {
        let records = (1 << 21) / ways.min(64);
        let runs: Vec<Vec<u8>> = (0..ways)
            .map(|_| {
                let mut keys = noise.numbers(records);
                keys.sort_unstable();
                let rows = keys.iter().flat_map(|key| {
                    let lengths = [ROW as u32 - 4, 8].map(u32::to_le_bytes).concat();
                    [lengths, key.to_be_bytes().to_vec(), vec![b'x'; ROW - 16]].concat()
                });
                huge(&rows.collect::<Vec<_>>())
            })
            .collect();
        let slices: Vec<[&[u8]; 1]> = runs.iter().map(|run| [run.as_slice()]).collect();
        bench.rate(
            &format!("merge slices fan-in {ways}, rows of {ROW} bytes"),
            ways * records * ROW,
            || slices.iter().map(|slices| SliceCursor::new(framing, slices)).collect::<Vec<_>>(),
            |cursors| merge_all(cursors, &order, &mut block),
        );
    }
}

/// Copies sorted pieces out.
fn gathers(bench: &Bench) {
    let noise = &mut Noise(4);
    let order = RangeOrder::new(RECORDS, 0..10, false, LastResort::None);
    for records in [1 << 14, 1 << 18, 1 << 20] {
        let bytes = noise.bytes(records * RECORD);
        let mut starts = starts_of(&RECORDS, &bytes);
        sort_chunk(&RECORDS, &order, &bytes, &mut starts, &mut ChunkScratch::with_capacity(records));
        let out = &mut huge(&bytes);
        bench.rate(
            &format!("gather {records} 100-byte records"),
            bytes.len(),
            || (),
            |()| {
                gather(&RECORDS, &bytes, &starts, out, &mut |_| ());
            },
        );
    }
}

/// Merges runs of lines whose first bytes decide, and of such whose do not.
fn merges_of_lines(bench: &Bench) {
    let noise = &mut Noise(5);
    let order = RangeOrder::whole(LINES, false);
    let mut block = Vec::with_capacity(1 << 20);
    for name in ["lines", "lines with a common head", "lines of a log"] {
        let runs: Vec<Vec<u8>> = (0..16)
            .map(|_| {
                let bytes = match name {
                    "lines" => noise.lines(2 << 20, ""),
                    "lines of a log" => log_lines(noise, 2 << 20),
                    _ => noise.lines(2 << 20, "https://example.org/shared/"),
                };
                let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                lines.sort_unstable();
                huge(&lines.concat())
            })
            .collect();
        let slices: Vec<[&[u8]; 1]> = runs.iter().map(|run| [run.as_slice()]).collect();
        bench.rate(
            &format!("merge slices fan-in 16, {name}"),
            runs.iter().map(Vec::len).sum(),
            || slices.iter().map(|slices| SliceCursor::new(LINES, slices)).collect::<Vec<_>>(),
            |cursors| merge_all(cursors, &order, &mut block),
        );
    }
}

fn main() {
    let bench = Bench { wanted: std::env::args().nth(1).unwrap_or_default() };
    numbers(&bench);
    pieces(&bench);
    gathers(&bench);
    merges(&bench);
    merges_of_lines(&bench);
    merges_of_rows(&bench);
}
