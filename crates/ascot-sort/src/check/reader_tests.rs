//! Cutting: any blocks of any records give the same records.

use ascot_io::Buf;
use ascot_record::framing::{FixedFraming, LineFraming, PrefixedFraming};
use ascot_record::gensort::Validator;
use ascot_record::layout::Endian;
use ascot_record::order::BodyOrder;
use proptest::prelude::*;

use super::super::judge::Ordered;
use super::*;

/// Cuts `bytes`, handed over in blocks of the sizes given (the last of them again and again).
fn cut(judge: &dyn Judge, bytes: &[u8], sizes: &[usize]) -> (Vec<Vec<u8>>, Rest) {
    let mut parts = Vec::new();
    let mut emit = |part: Part| parts.push(part.bytes().to_vec());
    let mut cutter = Cutter::new(judge, 0);
    let mut rest = bytes;
    let mut sizes = sizes.iter().copied().chain(std::iter::repeat(sizes[sizes.len() - 1]));
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(1).clamp(1, rest.len());
        let (block, behind) = rest.split_at(size);
        let mut buf = Buf::heap(size + 3);
        buf[2..size + 2].copy_from_slice(block);
        assert!(cutter.take(Filled { buf, start: 2, end: size + 2 }, &mut emit));
        rest = behind;
    }
    let end = cutter.finish(&mut emit);
    (parts, end)
}

fn lines() -> impl Judge {
    let framing = LineFraming(b'\n');
    Ordered::new(framing, BodyOrder::new(framing, false), Some(b'\n'))
}

fn prefixed() -> impl Judge {
    let framing = PrefixedFraming { width: 1, endian: Endian::Little };
    Ordered::new(framing, BodyOrder::new(framing, false), None)
}

#[test]
fn a_record_over_many_blocks_is_put_together() {
    let (parts, end) = cut(&lines(), b"ab\ncdefgh\nij", &[2]);
    assert_eq!(parts.concat(), b"ab\ncdefgh\nij\n");
    assert_eq!(end, Rest::Nothing);
}

#[test]
fn an_incomplete_record_is_told() {
    let validator = Validator::new(4, vec![0..2, 2..3]).unwrap();
    let (parts, end) = cut(&validator, b"aaaabbbbccc", &[3]);
    assert_eq!(parts.concat(), b"aaaabbbb");
    assert_eq!(end, Rest::CutShort { offset: 8, have: 3 });
    let (_, end) = cut(&prefixed(), b"\x02ab\x05abc", &[100]);
    assert_eq!(end, Rest::CutShort { offset: 3, have: 4 });
}

#[test]
fn a_long_record_is_found_by_steps() {
    let mut bytes = vec![b'x'; 100_000];
    bytes[50_000] = b'\n';
    let (parts, end) = cut(&lines(), &bytes, &[10, 90_000, 7]);
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [50_001, 50_000]);
    assert_eq!(end, Rest::Nothing);
}

proptest! {
    #[test]
    fn any_blocks_give_the_same_bytes_in_whole_records(
        lengths in prop::collection::vec(0_usize..20, 0..40),
        sizes in prop::collection::vec(1_usize..50, 1..10),
    ) {
        let mut bytes = Vec::new();
        for &length in &lengths {
            bytes.push(length as u8);
            bytes.extend((0..length).map(|i| i as u8));
        }
        let judge = prefixed();
        let (parts, end) = cut(&judge, &bytes, &sizes);
        prop_assert_eq!(end, Rest::Nothing);
        prop_assert_eq!(parts.concat(), bytes);
        for part in &parts {
            prop_assert_eq!(judge.whole(part), part.len());
        }
        let records: u64 = parts.iter().map(|part| judge.validate(part).records).sum();
        prop_assert_eq!(records, lengths.len() as u64);
    }

    #[test]
    fn fixed_records_of_both_judges_agree(
        data in prop::collection::vec(0_u8..3, 0..300),
        sizes in prop::collection::vec(1_usize..50, 1..10),
    ) {
        let framing = FixedFraming(5);
        let general = Ordered::new(framing, BodyOrder::new(framing, false), None);
        let whole = 0..5;
        let fast = Validator::new(5, vec![whole]).unwrap();
        let mut results = Vec::new();
        for judge in [&general as &dyn Judge, &fast] {
            let (parts, end) = cut(judge, &data, &sizes);
            let total = parts.iter().fold(Default::default(), |total, part| {
                judge.combine(total, judge.validate(part))
            });
            results.push((total, end));
        }
        prop_assert_eq!(&results[0], &results[1]);
    }
}
