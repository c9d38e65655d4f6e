//! Index sorts compared with the standard stable sort, on ordinary and hostile inputs.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::framing::{FixedFraming, LineFraming};
use crate::order::{ProgramOrder, RangeOrder, WriteKey, compare};

const LINES: LineFraming = LineFraming(b'\n');

/// The second half of the body first: a key that must be computed.
#[derive(Clone, Copy, Debug)]
struct Rotated;

impl WriteKey for Rotated {
    fn write_key(&self, body: &[u8], out: &mut Vec<u8>) {
        let (left, right) = body.split_at(body.len() / 2);
        out.extend_from_slice(right);
        out.extend_from_slice(left);
    }
}

/// The length of the body only: keys that are nearly all equal.
#[derive(Clone, Copy, Debug)]
struct Length;

impl WriteKey for Length {
    fn write_key(&self, body: &[u8], out: &mut Vec<u8>) {
        out.push(body.len() as u8);
    }

    fn fixed_key_len(&self) -> Option<usize> {
        Some(1)
    }
}

fn starts_of<F: Framing>(framing: &F, bytes: &[u8]) -> Vec<u32> {
    let mut starts = vec![0; bytes.len()];
    let found = framing.frame(bytes, &mut starts);
    assert_eq!(found.bytes, bytes.len());
    starts.truncate(found.records);
    starts
}

fn check<F: Framing, O: RecordOrder>(framing: F, order: &O, bytes: &[u8]) {
    let starts = starts_of(&framing, bytes);
    let record = |start: u32| &bytes[start as usize..framing.end(bytes, start as usize).unwrap()];
    let mut wanted = starts.clone();
    wanted.sort_by(|a, b| compare(order, record(*a), record(*b), &mut vec![], &mut vec![]));
    let mut sorted = starts.clone();
    let mut scratch = ChunkScratch::with_capacity(starts.len());
    sort_chunk(&framing, order, bytes, &mut sorted, &mut scratch);
    assert!(sorted == wanted);
    let mut noted = starts.clone();
    scratch.clear();
    for start in &starts {
        let mut computed = vec![];
        let key = order.key(record(*start), &mut computed);
        if order.fixed_key_len() == Some(key.len()) {
            scratch.note(key);
        }
    }
    sort_noted_chunk(&framing, order, bytes, &mut noted, &mut scratch);
    assert!(noted == wanted);
}

fn check_lines(lines: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    for line in lines {
        bytes.extend(line.iter().map(|byte| if *byte == b'\n' { 0 } else { *byte }));
        bytes.push(b'\n');
    }
    for descending in [false, true] {
        check(LINES, &RangeOrder::whole(LINES, descending), &bytes);
        for last_resort in [LastResort::None, LastResort::Bytes, LastResort::BytesReversed] {
            check(LINES, &RangeOrder::new(LINES, 1..4, descending, last_resort), &bytes);
        }
    }
    check(LINES, &ProgramOrder::new(LINES, Rotated, LastResort::Bytes), &bytes);
    check(LINES, &ProgramOrder::new(LINES, Length, LastResort::BytesReversed), &bytes);
}

fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn random_records_with_ten_byte_keys() {
    let mut next = random(1);
    let bytes: Vec<u8> = (0..100 * 5000).map(|_| next(256) as u8).collect();
    let framing = FixedFraming(100);
    for descending in [false, true] {
        check(framing, &RangeOrder::new(framing, 0..10, descending, LastResort::None), &bytes);
    }
}

#[test]
fn few_values_with_and_without_last_resort() {
    let mut next = random(2);
    for values in [1, 2, 5] {
        let bytes: Vec<u8> = (0..16 * 3000).map(|_| next(values) as u8).collect();
        let framing = FixedFraming(16);
        for last_resort in [LastResort::None, LastResort::Bytes, LastResort::BytesReversed] {
            check(framing, &RangeOrder::new(framing, 3..7, false, last_resort), &bytes);
            check(framing, &RangeOrder::new(framing, 0..16, true, last_resort), &bytes);
            check(framing, &RangeOrder::new(framing, 12..30, true, last_resort), &bytes);
        }
    }
}

#[test]
fn long_common_prefixes() {
    let mut next = random(3);
    let lines: Vec<Vec<u8>> = (0..3000)
        .map(|_| {
            let mut line =
                b"https://example.org/a/very/long/path/that/all/share?".repeat(1 + next(2) as usize);
            line.extend(next(500).to_string().bytes());
            line
        })
        .collect();
    check_lines(&lines);
}

#[test]
fn every_line_a_prefix_of_the_next() {
    let mut lines: Vec<Vec<u8>> = (0..400).map(|len| vec![b'a'; len]).collect();
    check_lines(&lines);
    lines.reverse();
    check_lines(&lines);
    let zeros: Vec<Vec<u8>> = (0..300).map(|at| vec![0; (at * 7) % 100]).collect();
    check_lines(&zeros);
}

#[test]
fn skewed_words_and_empty_lines() {
    let mut next = random(4);
    let lines: Vec<Vec<u8>> = (0..4000)
        .map(|_| {
            let below = 1 << next(12);
            let word = next(below);
            if word == 0 { vec![] } else { word.to_string().into_bytes() }
        })
        .collect();
    check_lines(&lines);
}

#[test]
fn very_long_computed_keys_do_not_fit_the_room() {
    let mut next = random(5);
    let lines = (0..60).map(|_| {
        let mut line = vec![b'x'; 20_000];
        line[5000] = b'a' + next(3) as u8;
        line
    });
    let lines: Vec<Vec<u8>> = lines.collect();
    check_lines(&lines);
}

#[test]
fn sorted_reversed_and_equal_records() {
    let framing = FixedFraming(4);
    let order = RangeOrder::new(framing, 0..4, false, LastResort::None);
    let ascending: Vec<u8> = (0u32..1000).flat_map(u32::to_be_bytes).collect();
    let descending: Vec<u8> = (0u32..1000).rev().flat_map(u32::to_be_bytes).collect();
    let equal = vec![7; 400];
    check(framing, &order, &ascending);
    check(framing, &order, &descending);
    check(framing, &order, &equal);
    check(framing, &order, &[]);
    check(framing, &order, &[1, 2, 3, 4]);
}

#[test]
fn scratch_is_what_was_said() {
    let mut next = random(6);
    let bytes: Vec<u8> = (0..100 * 2000).map(|_| next(2) as u8).collect();
    let framing = FixedFraming(100);
    let order = RangeOrder::new(framing, 0..10, false, LastResort::Bytes);
    let mut scratch = ChunkScratch::with_capacity(2000);
    sort_chunk(&framing, &order, &bytes, &mut starts_of(&framing, &bytes), &mut scratch);
    let Tools { frames, materialised, key_bytes, key_a, key_b } = &scratch.tools;
    let held = scratch.codes.capacity() * 8
        + scratch.origin.capacity() * 4
        + frames.capacity() * size_of::<Frame>()
        + materialised.capacity() * size_of::<Materialised>()
        + key_bytes.capacity()
        + key_a.capacity()
        + key_b.capacity();
    assert!(held <= scratch_bytes(2000), "{held}");
}

#[test]
fn codes_order_as_the_strings_do() {
    let strings: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"ab", b"abcdefgh", b"b"];
    for ordinal_bits in 0..32 {
        let coding = Coding { ordinal_bits, fixed: None, flips: false };
        for pair in strings.windows(2) {
            let order = coding.bits(pair[0], 0).cmp(&coding.bits(pair[1], 0));
            assert_eq!(order, Ordering::Less, "{ordinal_bits} {pair:?}");
            let flipped = Coding { flips: true, ..coding };
            assert_eq!(flipped.bits(pair[0], 0).cmp(&flipped.bits(pair[1], 0)), Ordering::Greater);
        }
    }
}

proptest! {
    #[test]
    fn any_lines(lines in proptest::collection::vec("[ab\u{0}]{0,12}", 0..200)) {
        check_lines(&lines.into_iter().map(String::into_bytes).collect::<Vec<_>>());
    }
}
