//! Merges of sources that may not be sorted, cut into blocks and tasks, by the merging threads: compared with a plain
//! merge, and with a plain search for disorder.

use std::sync::Arc;

use ascot_io::{Buf, Pool};
use ascot_record::checksum::RecordSum;
use ascot_record::framing::LineFraming;
use ascot_record::keys::LastResort;
use ascot_record::layout::{Endian, NumberFormat, NumberType};
use ascot_record::order::{ProgramOrder, RangeOrder, WriteKey};
use proptest::prelude::*;

use super::*;
use crate::records::unchecked::first_unordered;
use crate::records::{Framed, Numbers, Sorted, Unchecked};
use crate::resources::Lease;

const LINES: LineFraming = LineFraming(b'\n');

const U64: NumberFormat = NumberFormat { kind: NumberType::U64, endian: Endian::Little };

/// Blocks of the merging threads: much smaller than a task, so that a task fills several.
const EMIT_BLOCK_BYTES: usize = 128;

/// A computed key: the first byte.
struct FirstByte;

impl WriteKey for FirstByte {
    fn write_key(&self, body: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(body.get(..1).unwrap_or_default());
    }
}

fn block_of<R: Records>(records: &R, bytes: &[u8], place: Unchecked) -> Segment {
    let mut buf = Buf::heap(bytes.len());
    buf[..bytes.len()].copy_from_slice(bytes);
    let sorted = records.index(Lease::plain(buf), 0..bytes.len());
    records.whole(Arc::new(Sorted { unchecked: Some(place), ..sorted }))
}

/// The blocks of an input of these records, as its reader makes them.
fn blocks_of_input<R: Records>(records: &R, input: usize, blocks: &[Vec<Vec<u8>>]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut last: Option<&Vec<u8>> = None;
    let (mut before, mut offset) = (0, 0);
    for block in blocks.iter().filter(|block| !block.is_empty()) {
        let breaks_order = last.is_some_and(|last| first_unordered(records, Some(last), &block[0]).is_some());
        let place = Unchecked { input, name: input.to_string(), before, offset, breaks_order };
        let bytes = block.concat();
        segments.push(block_of(records, &bytes, place));
        before += block.len() as u64;
        offset += bytes.len() as u64;
        last = block.last();
    }
    segments
}

/// The result of a merge: the bytes given out before it ended, and its sums or the error that stopped it.
struct Outcome {
    bytes: Vec<u8>,
    sums: Result<Merged, SortError>,
}

/// Merges `sources` in `tasks` tasks by the threads of a job.
fn merged<R: Records>(
    records: &R,
    threads: &EmitThreads,
    sources: Vec<Vec<Segment>>,
    tasks: usize,
    rules: Rules,
) -> Outcome {
    let tasks = cut_tasks(records, sources, tasks, CutRules::default());
    let mut bytes = Vec::new();
    let sums = threads.run(tasks, rules, &Cancel::default(), &mut |block| {
        bytes.extend_from_slice(&block.buf[..block.len]);
        Ok(())
    });
    Outcome { bytes, sums }
}

/// The largest share of a task in `tasks` tasks of these sources, as a multiple of the mean.
fn largest_task<R: Records>(records: &R, sources: &[Vec<u8>], tasks: usize) -> f64 {
    let segment = |bytes: &Vec<u8>| {
        let mut buf = Buf::heap(bytes.len());
        buf[..bytes.len()].copy_from_slice(bytes);
        vec![records.whole(Arc::new(records.index(Lease::plain(buf), 0..bytes.len())))]
    };
    let sources: Vec<_> = sources.iter().map(segment).collect();
    let bytes = |sources: &[Vec<Segment>]| {
        sources.iter().flatten().map(|segment| records.bytes_in(segment)).sum::<u64>()
    };
    let total = bytes(&sources);
    let cut = cut_tasks(records, sources, tasks, CutRules::default());
    let largest = cut.iter().map(|task| bytes(&task.sources)).max().unwrap_or(0);
    largest as f64 * tasks as f64 / total as f64
}

/// Chunks of an input have about the same keys, and each of them gives a few samples only.
#[test]
fn many_alike_sources_are_cut_into_tasks_of_similar_size() {
    const SOURCES: u64 = 100;
    const RECORDS: u64 = 20_000;
    let key = |source: u64, record: u64| record * SOURCES + source;
    let numbers: Vec<Vec<u8>> = (0..SOURCES)
        .map(|source| (0..RECORDS).flat_map(|record| key(source, record).to_le_bytes()).collect())
        .collect();
    let lines: Vec<Vec<u8>> = (0..SOURCES)
        .map(|source| {
            (0..RECORDS).flat_map(|record| format!("{:09}\n", key(source, record)).into_bytes()).collect()
        })
        .collect();
    for tasks in [10, 100] {
        let largest = largest_task(&Numbers::<u64>::new(U64, false), &numbers, tasks);
        assert!(largest < 3.0, "{tasks} tasks of numbers: {largest}");
        let largest = largest_task(&Framed::new(LINES, RangeOrder::whole(LINES, false)), &lines, tasks);
        assert!(largest < 3.0, "{tasks} tasks of lines: {largest}");
    }
}

/// Merges inputs plainly: takes the smallest of their first records, of equal ones that of the earliest input.
fn merged_plainly<R: Records>(records: &R, inputs: &[Vec<Vec<Vec<u8>>>], unique: bool) -> Vec<Vec<u8>> {
    let bound = |record: &Vec<u8>| {
        let place = Unchecked { input: 0, name: String::new(), before: 0, offset: 0, breaks_order: false };
        (records.first(&block_of(records, record, place)), record.clone())
    };
    let mut rest: Vec<VecDeque<_>> =
        inputs.iter().map(|blocks| blocks.iter().flatten().map(bound).collect()).collect();
    let mut merged = Vec::new();
    loop {
        rest.retain(|input| !input.is_empty());
        let smallest = rest.iter_mut().min_by(|a, b| records.compare(&a[0].0, &b[0].0));
        let Some(record) = smallest.and_then(VecDeque::pop_front) else { break };
        merged.push(record);
    }
    if unique {
        merged.dedup_by(|(later, _), (first, _)| records.compare_keys(later, first).is_eq());
    }
    merged.into_iter().map(|(_, record)| record).collect()
}

/// The sum of some whole records.
fn sum_of<R: Records>(records: &R, bytes: &[u8]) -> RecordSum {
    let mut sum = RecordSum::new();
    records.sum(bytes, &mut sum);
    sum
}

/// The first record of an input that is out of order: its number, from 1, and its offset.
fn disorder_in<R: Records>(records: &R, blocks: &[Vec<Vec<u8>>]) -> Option<(u64, u64)> {
    let bytes = blocks.concat().concat();
    let offset = first_unordered(records, None, &bytes)?;
    Some((records.cut(&bytes[..offset], usize::MAX).records as u64 + 1, offset as u64))
}

/// Checks a merge of `inputs`: blocks of records each.
fn check<R: Records>(records: R, inputs: &[Vec<Vec<Vec<u8>>>], tasks: usize) {
    let records = &Arc::new(records);
    let threads = EmitThreads::start(records, &Pool::new(1 << 20), 2, 2, EMIT_BLOCK_BYTES).unwrap();
    let broken: Vec<_> = inputs.iter().map(|blocks| disorder_in(&**records, blocks)).collect();
    for unique in [false, true] {
        let sources = inputs.iter().enumerate();
        let sources = sources.map(|(input, blocks)| blocks_of_input(&**records, input, blocks)).collect();
        let Outcome { bytes, sums } =
            merged(&**records, &threads, sources, tasks, Rules { unique, sum: true });
        assert_eq!(
            first_unordered(&**records, None, &bytes),
            None,
            "records after the disorder are given out"
        );
        match sums {
            Ok(sums) => {
                assert!(broken.iter().all(Option::is_none), "{broken:?} is not found");
                assert_eq!(bytes, merged_plainly(&**records, inputs, unique).concat(), "the merged records");
                assert_eq!(sums.out, sum_of(&**records, &bytes), "the sum of the records given out");
                let mut all = sums.out;
                all.combine(&sums.dropped);
                let given = inputs.concat().concat().concat();
                assert_eq!(all, sum_of(&**records, &given), "the sum of all records");
            }
            Err(SortError::NotSorted { input, record, offset }) => {
                let number: usize = input.parse().unwrap();
                assert_eq!(broken[number], Some((record, offset)), "the first of the input");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sorts records, and then moves those at `breaks` to the middle.
fn nearly_sorted(mut records: Vec<Vec<u8>>, breaks: &[prop::sample::Index]) -> Vec<Vec<u8>> {
    records.sort();
    if records.is_empty() {
        return records;
    }
    for at in breaks {
        let moved = records.remove(at.index(records.len()));
        records.insert(records.len() / 2, moved);
    }
    records
}

/// Cuts records into blocks of these lengths, over and over.
fn in_blocks(records: &[Vec<u8>], lengths: &[usize]) -> Vec<Vec<Vec<u8>>> {
    let mut lengths = lengths.iter().cycle();
    let mut rest = records;
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let (block, after) = rest.split_at((*lengths.next().unwrap()).min(rest.len()));
        blocks.push(block.to_vec());
        rest = after;
    }
    blocks
}

proptest! {
    // Fewer cases than elsewhere, because each one starts sixteen threads.
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn inputs_are_merged_and_the_first_record_out_of_order_of_one_is_found(
        inputs in prop::collection::vec(
            (prop::collection::vec("[a-e]{0,3}", 0..60), prop::collection::vec(any::<prop::sample::Index>(), 0..3)),
            1..4,
        ),
        lengths in prop::collection::vec(1usize..20, 1..4),
        tasks in 1usize..9,
    ) {
        let lines = inputs.iter().map(|(lines, breaks)| {
            let lines = lines.iter().map(|line| format!("{line}\n").into_bytes()).collect();
            in_blocks(&nearly_sorted(lines, breaks), &lengths)
        });
        let lines: Vec<_> = lines.collect();
        check(Framed::new(LINES, RangeOrder::whole(LINES, false)), &lines, tasks);
        check(Framed::new(LINES, RangeOrder::whole(LINES, true)), &lines, tasks);
        check(Framed::new(LINES, RangeOrder::new(LINES, 0..1, false, LastResort::Bytes)), &lines, tasks);
        check(Framed::new(LINES, RangeOrder::new(LINES, 0..1, false, LastResort::BytesReversed)), &lines, tasks);
        check(Framed::new(LINES, RangeOrder::new(LINES, 0..1, false, LastResort::None)), &lines, tasks);
        check(Framed::new(LINES, RangeOrder::new(LINES, 0..1, true, LastResort::None)), &lines, tasks);
        check(Framed::new(LINES, ProgramOrder::new(LINES, FirstByte, LastResort::None)), &lines, tasks);
        let number = |line: &Vec<u8>| {
            let digits = line.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
            digits.to_ne_bytes().to_vec()
        };
        let numbers_of = |blocks: &Vec<Vec<Vec<u8>>>| -> Vec<Vec<Vec<u8>>> {
            blocks.iter().map(|block| block.iter().map(number).collect()).collect()
        };
        let numbers: Vec<Vec<Vec<Vec<u8>>>> = lines.iter().map(numbers_of).collect();
        check(Numbers::<u64>::new(U64, false), &numbers, tasks);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A cut never separates a record from a smaller one after it, so that only neighbours within a task and across
    /// blocks need comparison.
    #[test]
    fn a_cut_hides_no_disorder(lines in prop::collection::vec("[a-e]{0,3}", 1..80), bound in "[a-e]{0,3}") {
        // Long enough for several indexed records.
        let lines: Vec<_> = lines.iter().map(|line| format!("{line}{}\n", " ".repeat(900)).into_bytes()).collect();
        let records = Framed::new(LINES, RangeOrder::whole(LINES, false));
        let place = |breaks_order| Unchecked { input: 0, name: String::new(), before: 0, offset: 0, breaks_order };
        let segment = block_of(&records, &lines.concat(), place(false));
        let bound = records.first(&block_of(&records, format!("{bound}\n").as_bytes(), place(false)));
        for side in [Side::Lower, Side::Upper] {
            let at = records.position(&segment, &bound, side, true);
            let parts = [Segment { hi: at, ..segment.clone() }, Segment { lo: at, ..segment.clone() }];
            if parts.iter().all(|part| !part.is_empty()) {
                let order = records.compare_keys(&records.last(&parts[0]), &records.first(&parts[1]));
                prop_assert!(order.is_le());
            }
        }
        let values: Vec<u8> = lines.iter().flat_map(|line| u64::from(line[0]).to_ne_bytes()).collect();
        let numbers = Numbers::<u64>::new(U64, false);
        let segment = block_of(&numbers, &values, place(false));
        let at = numbers.position(&segment, &u64::from(b'c'), Side::Lower, true) as usize * 8;
        let value = |at: usize| values.get(at).copied();
        prop_assert!(at == 0 || value(at - 8) < Some(b'c'));
        prop_assert!(at == values.len() || value(at) >= Some(b'c'));
    }
}

/// Blocks that threads add to a sum, which waits for all of them, also without any merge after them.
#[test]
fn threads_sum_up_the_records_of_blocks() {
    let records = Arc::new(Framed::new(LINES, RangeOrder::whole(LINES, false)));
    let pool = Pool::new(1 << 20);
    let threads = EmitThreads::start(&records, &pool, 2, 4, EMIT_BLOCK_BYTES).expect("threads");
    let place = || Unchecked { input: 0, name: String::new(), before: 0, offset: 0, breaks_order: false };
    let sum = Arc::new(BlockSum::default());
    let mut right = RecordSum::new();
    for number in 0..300 {
        let bytes: Vec<u8> = (0..number).flat_map(|line| format!("{number} {line}\n").into_bytes()).collect();
        bytes.split_inclusive(|&byte| byte == b'\n').for_each(|line| right.add(line));
        threads.sum(&block_of(&*records, &bytes, place()).sorted, &sum);
    }
    assert_eq!(sum.wait(), right);
    sum.add(&right);
    assert_eq!(sum.wait().count, 2 * right.count);
}
