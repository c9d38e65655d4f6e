//! Measures the record kernels on one core and prints a table.
//!
//! `cargo run --release -p ascot-record --example kernels [NAME]` runs those whose name has NAME in
//! it. Each is run for about a second; the best run counts.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

use ascot_record::checksum::RecordSum;
use ascot_record::framing::{FixedFraming, Framing, LineFraming, frame};
use ascot_record::layout::{Endian, NumberFormat, NumberType};
use ascot_record::merge::{Cursor, PieceCursor, SliceCursor, merge};
use ascot_record::number::{merge_numbers_u64, to_ordered};
use ascot_record::order::{BodyOrder, LastResort, RangeOrder, RecordOrder};
use ascot_record::piece::{PieceScratch, sort_piece};
use ascot_record::vsort::{sort_u32, sort_u64};

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
            let start = Instant::now();
            work(&mut state);
            best = best.min(start.elapsed().as_secs_f64());
            black_box(&state);
        }
        println!("{name:<52} {:>8.2} GB/s {:>9.2} ms", bytes as f64 / best / 1e9, best * 1e3);
    }
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
        (0..count).map(|_| self.next()).collect()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_ne_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// Lines of words, most of which share how they begin.
    fn lines(&mut self, len: usize, head: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 200);
        while bytes.len() < len {
            bytes.extend_from_slice(head.as_bytes());
            let tail = format!("{:016x}{:>width$}\n", self.next(), "", width = (self.next() % 60) as usize);
            bytes.extend_from_slice(tail.as_bytes());
        }
        bytes
    }
}

fn starts_of<F: Framing>(framing: &F, bytes: &[u8]) -> Vec<u32> {
    let mut starts = vec![0; bytes.len()];
    let found = frame(framing, bytes, &mut starts);
    starts.truncate(found.records);
    starts
}

fn numbers(bench: &Bench) {
    let noise = &mut Noise(1);
    for count in [1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 24] {
        let input = noise.numbers(count);
        let bytes = count * 8;
        bench.rate(&format!("sort_u64 random {count}"), bytes, || input.clone(), |v| sort_u64(v));
    }
    let input = noise.numbers(1 << 17);
    bench.rate("std sort_unstable u64 131072", 8 << 17, || input.clone(), |v| v.sort_unstable());
    let narrow: Vec<u32> = noise.numbers(1 << 20).into_iter().map(|x| x as u32).collect();
    bench.rate("sort_u32 random 1048576", 4 << 20, || narrow.clone(), |v| sort_u32(v));
    let shapes: [(&str, fn(u64, u64) -> u64); 5] = [
        ("sorted", |_, at| at),
        ("all equal", |_, _| 7),
        ("two values", |noise, _| noise % 2),
        ("1000 values", |noise, _| noise % 1000),
        ("nearly sorted", |noise, at| if noise % 64 == 0 { noise >> 44 } else { at }),
    ];
    for (name, shape) in shapes {
        let input: Vec<u64> = (0..1 << 20).map(|at| shape(noise.next(), at)).collect();
        bench.rate(&format!("sort_u64 {name} 1048576"), 8 << 20, || input.clone(), |v| sort_u64(v));
    }
    for ways in [2, 8, 64, 256] {
        let total = 1 << 23;
        let mut slices: Vec<Vec<u64>> = (0..ways).map(|_| noise.numbers(total / ways)).collect();
        slices.iter_mut().for_each(|slice| slice.sort_unstable());
        let slices: Vec<&[u64]> = slices.iter().map(Vec::as_slice).collect();
        let name = format!("merge_numbers_u64 fan-in {ways}");
        let out = &mut vec![0; total];
        bench.rate(&name, total * 8, || (), |()| merge_numbers_u64(&slices, out));
    }
    let input = noise.bytes(16 << 20);
    let format = NumberFormat { kind: NumberType::F64, endian: Endian::Big };
    bench.rate("to_ordered f64-be", 16 << 20, || input.clone(), |v| to_ordered(v, format, false));
    let numbers = noise.numbers(1 << 20);
    bench.rate("checksum add_u64s", 8 << 20, RecordSum::new, |sum| sum.add_u64s(&numbers));
    bench.rate("checksum add, 100 bytes", 16 << 20, RecordSum::new, |sum| {
        input.chunks(RECORD).for_each(|record| sum.add(record));
    });
}

/// Frames and sorts one piece.
fn piece<F: Framing, O: RecordOrder>(bench: &Bench, name: &str, framing: F, order: &O, bytes: &[u8]) {
    let starts = starts_of(&framing, bytes);
    let mut scratch = PieceScratch::with_capacity(starts.len());
    let name = format!("sort_piece {name}, {} records", starts.len());
    bench.rate(
        &name,
        bytes.len(),
        || starts.clone(),
        |starts| {
            sort_piece(&framing, order, bytes, starts, &mut scratch);
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
    let by_line = BodyOrder::new(LINES, false);
    piece(bench, "lines", LINES, &by_line, &noise.lines(16 << 20, ""));
    let urls = noise.lines(16 << 20, "https://example.org/shared/");
    piece(bench, "lines with a common head", LINES, &by_line, &urls);
    let starts = &mut vec![0; 1 << 20];
    bench.rate("frame lines", urls.len(), || (), |()| drop(black_box(frame(&LINES, &urls, starts))));
}

/// Merges to an output block that is filled over and over.
fn merge_all<C: Cursor, O: RecordOrder>(cursors: &mut [C], order: &O, block: &mut Vec<u8>) {
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
        let mut scratch = PieceScratch::with_capacity(records);
        let pieces: Vec<(Vec<u8>, Vec<u32>)> = (0..ways)
            .map(|_| {
                let bytes = noise.bytes(records * RECORD);
                let mut starts = starts_of(&RECORDS, &bytes);
                sort_piece(&RECORDS, &order, &bytes, &mut starts, &mut scratch);
                (bytes, starts)
            })
            .collect();
        let total = ways * records * RECORD;
        bench.rate(
            &format!("merge pieces fan-in {ways}, 100-byte records"),
            total,
            || {
                pieces
                    .iter()
                    .map(|(bytes, starts)| PieceCursor::new(RECORDS, bytes, starts))
                    .collect::<Vec<_>>()
            },
            |cursors| merge_all(cursors, &order, &mut block),
        );
        let runs: Vec<Vec<u8>> = pieces
            .iter()
            .map(|(bytes, starts)| {
                starts.iter().flat_map(|start| &bytes[*start as usize..][..RECORD]).copied().collect()
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

fn main() {
    let bench = Bench { wanted: std::env::args().nth(1).unwrap_or_default() };
    numbers(&bench);
    pieces(&bench);
    merges(&bench);
}
