//! Merges of sources that may not be sorted, cut into blocks and tasks, compared with a plain search for disorder.

use std::sync::atomic::AtomicU64;

use ascot_io::Buf;
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

/// What a merge in `tasks` tasks returns: its bytes, and the error that stopped it.
fn merged<R: Records>(
    records: &R,
    sources: Vec<Vec<Segment>>,
    tasks: usize,
    rules: Rules,
) -> (Vec<u8>, Option<SortError>) {
    let mut bytes = Vec::new();
    let cut = CutRules { separates_equals: !rules.unique, ..CutRules::default() };
    for task in cut_tasks(records, sources, tasks, cut) {
        let (send, receive) = unbounded();
        let blocks = BlockPool::new(Buf::heap(1 << 16), 1 << 16);
        let mut emitter = Emitter::new(blocks, send, Arc::default());
        match merge_task(records, &task, rules, &mut emitter).unwrap() {
            Ok(merged) => emitter.finish(Message::Done(merged)),
            Err(error) => emitter.finish(Message::Unordered(error, Box::new(task))),
        }
        for message in receive {
            match message {
                Message::Block(block) => bytes.extend_from_slice(&block.buf[..block.len]),
                Message::Unordered(error, _) => return (bytes, Some(error)),
                Message::Done(_) => {}
            }
        }
    }
    (bytes, None)
}

/// The first record of an input that is out of order: its number, from 1, and its offset.
fn disorder_in<R: Records>(records: &R, blocks: &[Vec<Vec<u8>>]) -> Option<(u64, u64)> {
    let bytes = blocks.concat().concat();
    let offset = first_unordered(records, None, &bytes)?;
    Some((records.cut(&bytes[..offset], usize::MAX).records as u64 + 1, offset as u64))
}

/// Checks a merge of `inputs`: blocks of records each.
fn check<R: Records>(records: &R, inputs: &[Vec<Vec<Vec<u8>>>], tasks: usize) {
    let broken: Vec<_> = inputs.iter().map(|blocks| disorder_in(records, blocks)).collect();
    for unique in [false, true] {
        let sources = inputs.iter().enumerate();
        let sources = sources.map(|(input, blocks)| blocks_of_input(records, input, blocks)).collect();
        let (bytes, error) = merged(records, sources, tasks, Rules { unique, sum: true });
        assert_eq!(first_unordered(records, None, &bytes), None, "records after the disorder are given out");
        match error {
            None => {
                assert!(broken.iter().all(Option::is_none), "{broken:?} is not found");
                let given = inputs.concat().concat().concat();
                assert!(unique || bytes.len() == given.len());
            }
            Some(SortError::NotSorted { input, record, offset }) => {
                let number: usize = input.parse().unwrap();
                assert_eq!(broken[number], Some((record, offset)), "the first of the input");
            }
            Some(error) => panic!("{error}"),
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
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn the_first_record_out_of_order_of_an_input_is_found(
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
        check(&Framed::new(LINES, RangeOrder::whole(LINES, false)), &lines, tasks);
        check(&Framed::new(LINES, RangeOrder::whole(LINES, true)), &lines, tasks);
        check(&Framed::new(LINES, RangeOrder::new(LINES, 0..1, false, LastResort::Bytes)), &lines, tasks);
        check(&Framed::new(LINES, RangeOrder::new(LINES, 0..1, false, LastResort::BytesReversed)), &lines, tasks);
        check(&Framed::new(LINES, ProgramOrder::new(LINES, FirstByte, LastResort::None)), &lines, tasks);
        let number = |line: &Vec<u8>| {
            let digits = line.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
            digits.to_ne_bytes().to_vec()
        };
        let numbers: Vec<Vec<Vec<Vec<u8>>>> =
            lines.iter().map(|blocks| blocks.iter().map(|block| block.iter().map(number).collect()).collect()).collect();
        check(&Numbers::<u64>::new(U64, false), &numbers, tasks);
    }

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

/// A computed key that counts how often it is computed: no bytes, as if every record lacked it.
struct Missing<'a>(&'a AtomicU64);

impl WriteKey for Missing<'_> {
    fn write_key(&self, _body: &[u8], _out: &mut Vec<u8>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Sorted sources of `count` blocks each; block `i` of a source holds the lines of one letter.
fn sources_of_equal_keys<R: Records>(records: &R, sources: usize, count: u8) -> Vec<Vec<Segment>> {
    let block = |source: usize, block: u8| {
        let line = |number| format!("{}{number:04}{}\n", char::from(b'a' + block), source);
        let lines: String = (0..4000).map(line).collect();
        let bytes = lines.as_bytes();
        let mut buf = Buf::heap(bytes.len());
        buf[..bytes.len()].copy_from_slice(bytes);
        records.whole(Arc::new(records.index(Lease::plain(buf), 0..bytes.len())))
    };
    (0..sources).map(|source| (0..count).map(|number| block(source, number)).collect()).collect()
}

#[test]
fn a_bound_is_searched_in_one_block_of_each_input() {
    static COMPUTED: AtomicU64 = AtomicU64::new(0);
    let order = ProgramOrder::new(LINES, Missing(&COMPUTED), LastResort::Bytes);
    let records = Arc::new(Framed::new(LINES, order));
    let hold = |segment: Segment| Held {
        bytes: records.bytes_in(&segment),
        segment,
        last: OnceCell::new(),
        block: 0,
        long: false,
        straddles: false,
    };
    let sources = sources_of_equal_keys(&*records, 3, 20);
    let mut samples = Vec::new();
    records.sample(&sources[1][15], 1, &mut samples);
    let bound = samples.remove(0);
    let held: Vec<VecDeque<_>> =
        sources.into_iter().map(|source| source.into_iter().map(hold).collect()).collect();
    COMPUTED.store(0, Relaxed);
    let below = bytes_below(&*records, &held, &bound);
    let blocks = held.iter().flatten().map(|held| held.bytes).sum::<u64>();
    assert!(below > blocks * 3 / 4 && below < blocks * 8 / 10, "{below} of {blocks}");
    // Two keys for a comparison with the last record of each block, and one for each step of a binary search.
    let (comparisons, steps) = (3 * 16, 3 * 20);
    let computed = COMPUTED.load(Relaxed);
    assert!(computed <= 2 * comparisons + steps, "{computed}");
    // Without the exact place, two keys for each step of a binary search among the blocks.
    COMPUTED.store(0, Relaxed);
    let up_to = bytes_up_to(&*records, &held, &bound);
    assert!(up_to >= below && up_to <= below + 3 * held[0][0].bytes, "{up_to} {below}");
    let computed = COMPUTED.load(Relaxed);
    assert!(computed <= 2 * 3 * 6, "{computed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Equal keys are cut into tasks, and come out as from a single task.
    #[test]
    fn equal_keys_make_several_tasks(
        inputs in prop::collection::vec(prop::collection::vec("[ab][a-c]{0,2}", 0..40), 1..6),
        tasks in 2usize..9,
    ) {
        for last_resort in [LastResort::None, LastResort::Bytes, LastResort::BytesReversed] {
            let records = Framed::new(LINES, RangeOrder::new(LINES, 0..1, false, last_resort));
            let sources = || -> Vec<Vec<Segment>> {
                inputs.iter().enumerate().filter(|(_, lines)| !lines.is_empty()).map(|(source, lines)| {
                    // Long enough for several samples; the source shows in equal records.
                    let mut lines: Vec<String> =
                        lines.iter().map(|line| format!("{line}{}{source}\n", " ".repeat(250))).collect();
                    match last_resort {
                        LastResort::None => lines.sort_by_key(|line| line.as_bytes()[0]),
                        LastResort::Bytes => lines.sort(),
                        LastResort::BytesReversed => {
                            lines.sort_by(|a, b| a[..1].cmp(&b[..1]).then(b[1..].cmp(&a[1..])));
                        }
                    }
                    let bytes = lines.concat().into_bytes();
                    let mut buf = Buf::heap(bytes.len());
                    buf[..bytes.len()].copy_from_slice(&bytes);
                    vec![records.whole(Arc::new(records.index(Lease::plain(buf), 0..bytes.len())))]
                }).collect()
            };
            let rules = Rules { unique: false, sum: true };
            let (one, _) = merged(&records, sources(), 1, rules);
            let (several, _) = merged(&records, sources(), tasks, rules);
            prop_assert!(one == several);
        }
    }
}

#[test]
fn equal_keys_make_tasks_of_similar_size() {
    for last_resort in [LastResort::None, LastResort::Bytes] {
        let records = Framed::new(LINES, RangeOrder::new(LINES, 9..9, false, last_resort));
        let rules = CutRules { separates_equals: true, ..CutRules::default() };
        let tasks = cut_tasks(&records, sources_of_equal_keys(&records, 8, 10), 4, rules.clone());
        let bytes = |task: &Task| -> u64 {
            task.sources.iter().flatten().map(|segment| records.bytes_in(segment)).sum()
        };
        let sizes: Vec<u64> = tasks.iter().map(bytes).collect();
        let total: u64 = sizes.iter().sum();
        assert!(sizes.len() == 4 && sizes.iter().all(|&size| size <= total / 2), "{sizes:?}");
        let together = CutRules { separates_equals: false, ..rules };
        let tasks = cut_tasks(&records, sources_of_equal_keys(&records, 8, 10), 4, together);
        assert_eq!(tasks.len(), 1, "records of a key stay together if duplicates are dropped");
    }
}
