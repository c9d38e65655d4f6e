//! Merges compared with the standard stable sort.

use proptest::prelude::*;

use super::*;
use crate::chunk::gather;
use crate::framing::{FixedFraming, Framing, LineFraming};
use crate::order::{LastResort, ProgramOrder, RangeOrder, WriteKey};

const LINES: LineFraming = LineFraming(b'\n');

#[derive(Clone, Copy, Debug)]
struct Copied;

impl WriteKey for Copied {
    fn write_key(&self, body: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(body);
    }
}

fn order_of<O: RecordOrder>(order: &O) -> impl Fn(&Vec<u8>, &Vec<u8>) -> Ordering {
    |a, b| compare(order, a, b, &mut vec![], &mut vec![])
}

/// Merges `sources` after sorting each, interrupting every `stop` records.
fn check<F: Framing, O: RecordOrder>(framing: F, order: &O, mut sources: Vec<Vec<Vec<u8>>>, stop: usize) {
    sources.iter_mut().for_each(|source| source.sort_by(order_of(order)));
    let mut wanted = sources.concat();
    wanted.sort_by(order_of(order));

    let bytes: Vec<Vec<u8>> = sources.iter().map(|source| source.concat()).collect();
    let starts: Vec<Vec<u32>> = bytes
        .iter()
        .map(|bytes| {
            let mut starts = vec![0; bytes.len()];
            let found = framing.frame(bytes, &mut starts);
            starts.truncate(found.records);
            starts
        })
        .collect();
    let slices: Vec<Vec<&[u8]>> = bytes
        .iter()
        .zip(&starts)
        .map(|(bytes, starts)| {
            let cut = starts.get(starts.len() / 2).map_or(0, |start| *start as usize);
            vec![&bytes[..cut], &[], &bytes[cut..]]
        })
        .collect();
    let mut cursors: Vec<_> = slices.iter().map(|slices| SliceCursor::new(framing, slices)).collect();
    assert!(merged(&mut cursors, order, stop) == wanted);
}

fn merged<F: Framing, O: RecordOrder>(
    cursors: &mut [SliceCursor<'_, F>],
    order: &O,
    stop: usize,
) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut room = stop;
        let flow = merge(cursors, order, &mut |record: &[u8]| {
            if room == 0 {
                return ControlFlow::Break(());
            }
            room -= 1;
            out.push(record.to_vec());
            ControlFlow::Continue(())
        });
        if flow.is_continue() {
            return out;
        }
    }
}

#[test]
fn no_source_one_source_empty_sources() {
    let order = RangeOrder::whole(LINES, false);
    check(LINES, &order, vec![], 5);
    check(LINES, &order, vec![vec![]; 3], 5);
    check(LINES, &order, vec![vec![b"b\n".to_vec(), b"a\n".to_vec()]], 1);
    check(LINES, &order, vec![vec![], vec![b"b\n".to_vec(), b"a\n".to_vec()], vec![]], 5);
}

#[test]
fn presorted_sources_follow_one_another() {
    let order = RangeOrder::whole(LINES, false);
    let sources = (0..5)
        .map(|source| (0..50).map(|at| format!("{:05}\n", source * 50 + at).into_bytes()).collect())
        .collect();
    check(LINES, &order, sources, 7);
}

#[test]
fn keys_that_look_like_the_end() {
    let framing = FixedFraming(10);
    let order = RangeOrder::new(framing, 0..9, false, LastResort::None);
    let record = |last: u8| [[0xff; 9].as_slice(), &[last]].concat();
    let sources = (0..3).map(|source| (0..4).map(|at| record(source * 4 + at)).collect()).collect();
    check(framing, &order, sources, 100);
    let descending = RangeOrder::new(framing, 0..9, true, LastResort::None);
    let sources = vec![vec![vec![0; 10], record(1)], vec![record(2), vec![0; 10]], vec![]];
    check(framing, &descending, sources, 100);
}

proptest! {
    #[test]
    fn any_lines(
        sources in proptest::collection::vec(proptest::collection::vec("[ab]{0,10}", 0..30), 0..9),
        descending: bool,
        stop in 1usize..50,
    ) {
        let sources: Vec<Vec<Vec<u8>>> = sources
            .into_iter()
            .map(|source| source.into_iter().map(|line| format!("{line}\n").into_bytes()).collect())
            .collect();
        check(LINES, &RangeOrder::whole(LINES, descending), sources.clone(), stop);
        check(LINES, &RangeOrder::new(LINES, 0..2, descending, LastResort::None), sources.clone(), stop);
        check(LINES, &RangeOrder::new(LINES, 0..1, descending, LastResort::BytesReversed), sources.clone(), stop);
        check(LINES, &ProgramOrder::new(LINES, Copied, LastResort::None), sources, stop);
    }
}

/// Records of 40 bytes whose keys have few different blocks, and blocks of zeros: their codes often agree.
fn alike() -> impl Strategy<Value = Vec<u8>> {
    let block = prop_oneof![Just(*b"\0\0\0\0"), Just(*b"aaaa"), Just(*b"aa\0\0"), Just(*b"\xff\xff\xff\xff")];
    proptest::collection::vec(block, 10).prop_map(|blocks| blocks.concat())
}

proptest! {
    #[test]
    fn keys_with_common_heads(
        sources in proptest::collection::vec(proptest::collection::vec((alike(), 0usize..9), 0..30), 0..9),
        descending: bool,
        stop in 1usize..50,
    ) {
        let framing = FixedFraming(44);
        let record = |(tail, from): (Vec<u8>, usize)| {
            [&[b'a'; 40][..4 * from], &tail[4 * from..], &(from as u32).to_be_bytes()].concat()
        };
        let sources: Vec<Vec<Vec<u8>>> =
            sources.into_iter().map(|source| source.into_iter().map(record).collect()).collect();
        check(framing, &RangeOrder::new(framing, 0..40, descending, LastResort::None), sources.clone(), stop);
        check(framing, &RangeOrder::new(framing, 3..31, descending, LastResort::Bytes), sources, stop);
    }
}

/// Merges `sources` as they are; the merge stops before the first record that is out of order by its key.
fn check_unsorted<O: RecordOrder>(order: &O, sources: &[Vec<Vec<u8>>]) {
    let key = |record: &Vec<u8>| order.key(record, &mut Vec::new()).to_vec();
    let descends = |a: &Vec<u8>, b: &Vec<u8>| {
        if order.descending() { key(a) < key(b) } else { key(a) > key(b) }
    };
    let sorted = |records: &[Vec<u8>]| !records.windows(2).any(|pair| descends(&pair[0], &pair[1]));
    let bytes: Vec<Vec<u8>> = sources.iter().map(|source| source.concat()).collect();
    let slices: Vec<Vec<&[u8]>> = bytes.iter().map(|bytes| vec![bytes.as_slice()]).collect();
    let mut cursors: Vec<_> = slices.iter().map(|slices| SliceCursor::new(LINES, slices)).collect();
    let mut out: Vec<Vec<u8>> = Vec::new();
    let flow = merge_checked(&mut cursors, order, &mut |record: &[u8]| {
        out.push(record.to_vec());
        ControlFlow::Continue(())
    });
    assert!(sorted(&out));
    if sources.iter().all(|source| sorted(source)) {
        assert!(flow.is_continue());
        assert_eq!(out.len(), sources.concat().len());
    } else {
        assert_eq!(flow, ControlFlow::Break(Stop::Unordered));
    }
}

proptest! {
    #[test]
    fn disorder_stops_a_checked_merge(
        mut sources in proptest::collection::vec(proptest::collection::vec("[ab]{0,10}", 0..30), 0..5),
        unsorted in 0usize..5,
        breaks in 0usize..40,
        descending: bool,
    ) {
        for (number, source) in sources.iter_mut().enumerate() {
            source.sort_unstable();
            if descending {
                source.reverse();
            }
            if number == unsorted && breaks < source.len() {
                source.swap(breaks / 2, breaks);
            }
        }
        let sources: Vec<Vec<Vec<u8>>> = sources
            .into_iter()
            .map(|source| source.into_iter().map(|line| format!("{line}\n").into_bytes()).collect())
            .collect();
        check_unsorted(&RangeOrder::whole(LINES, descending), &sources);
        check_unsorted(&RangeOrder::new(LINES, 0..9, descending, LastResort::None), &sources);
        check_unsorted(&RangeOrder::new(LINES, 0..1, descending, LastResort::Bytes), &sources);
        check_unsorted(&ProgramOrder::new(LINES, Copied, LastResort::None), &sources);
    }
}

#[test]
fn gathering_stops_where_room_ends() {
    let bytes = b"ccc\na\nbb\n";
    let mut out = [0; 6];
    let mut places = Vec::new();
    let copied = gather(&LINES, bytes, &[4, 6, 0], &mut out, &mut |place| places.push(place));
    assert_eq!(places, [0, 2]);
    assert_eq!((copied.records, copied.bytes), (2, 5));
    assert_eq!(&out[..5], b"a\nbb\n");
}
