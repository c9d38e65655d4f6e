//! Chunks of any size give the same records.

use std::sync::Arc;

use ascot_io::{Disk, Pool};
use ascot_record::framing::{FixedFraming, LineFraming, PrefixedFraming};
use ascot_record::layout::Endian;
use ascot_record::order::RangeOrder;
use proptest::prelude::*;

use super::*;
use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::api::request::Input;
use crate::read::inputs::{InputPosition, Inputs};
use crate::read::record_reader::RecordReader;
use crate::resources::chunk_pool::ChunkPool;

/// Cuts a file of `bytes`, read into buffers of some pages.
fn cut(judge: &Arc<dyn Judge>, bytes: &[u8], pages: usize) -> Result<Vec<Vec<u8>>, SortError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let inputs = Inputs::open(&[Input::Path(file.path().into())]).unwrap();
    let pool = Pool::new(16 << 20);
    let buffers = ChunkPool::new(&pool, pages * 4096, 6, pool.budget());
    let cancel = Cancel::new();
    let start = InputPosition::default();
    let mut reader = RecordReader::new(judge, &Disk::default(), inputs, &buffers, start, &cancel);
    let mut parts = Vec::new();
    while let Some(placed) = reader.next(&|| ())? {
        parts.push(placed.chunk.lease.bytes()[placed.chunk.bytes].to_vec());
    }
    Ok(parts)
}

fn lines() -> Arc<dyn Judge> {
    let framing = LineFraming(b'\n');
    Arc::new(Ordered::new(framing, RangeOrder::whole(framing, false)))
}

fn prefixed() -> Arc<dyn Judge> {
    let framing = PrefixedFraming { width: 1, endian: Endian::Little, keyed: false };
    Arc::new(Ordered::new(framing, RangeOrder::whole(framing, false)))
}

fn whole(judge: &dyn Judge, part: &[u8]) -> usize {
    judge.cut(part, usize::MAX).bytes
}

#[test]
fn a_record_over_many_blocks_is_put_together() {
    let record = "x".repeat(50_000);
    let bytes = format!("ab\n{record}\nij");
    let parts = cut(&lines(), bytes.as_bytes(), 2).unwrap();
    assert_eq!(parts.concat(), format!("{bytes}\n").as_bytes());
}

#[test]
fn an_incomplete_record_is_told() {
    let place = |result: Result<Vec<Vec<u8>>, SortError>| match result {
        Err(SortError::CutShort { record, offset, have, .. }) => (record, offset, have),
        other => panic!("{other:?}"),
    };
    let validator: Arc<dyn Judge> = Arc::new(Ordered::fixed(4, vec![0..2, 2..3]));
    assert_eq!(place(cut(&validator, b"aaaabbbbccc", 2)), (3, 8, 3));
    assert_eq!(place(cut(&prefixed(), b"\x02ab\x05abc", 2)), (2, 3, 4));
}

#[test]
fn a_long_record_is_found_by_steps() {
    let mut bytes = vec![b'x'; 100_000];
    bytes[50_000] = b'\n';
    for pages in [2, 3, 5] {
        let parts = cut(&lines(), &bytes, pages).unwrap();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [50_001, 50_000]);
    }
}

proptest! {
    #[test]
    fn any_blocks_give_the_same_bytes_in_whole_records(
        lengths in prop::collection::vec(0_u8..=255, 0..400),
        pages in 2_usize..9,
    ) {
        let mut bytes = Vec::new();
        for &length in &lengths {
            bytes.push(length);
            bytes.extend(0..length);
        }
        let judge = prefixed();
        let parts = cut(&judge, &bytes, pages).unwrap();
        prop_assert_eq!(parts.concat(), bytes);
        for part in &parts {
            prop_assert_eq!(whole(&*judge, part), part.len());
        }
        let records: u64 = parts.iter().map(|part| judge.validate(part).records).sum();
        prop_assert_eq!(records, lengths.len() as u64);
    }

    #[test]
    fn fixed_records_of_both_judges_agree(
        data in prop::collection::vec(0_u8..3, 0..4000),
        pages in 2_usize..4,
    ) {
        let data: Vec<u8> = data.iter().flat_map(|&byte| [byte; 5]).collect();
        let framing = FixedFraming(5);
        let general: Arc<dyn Judge> = Arc::new(Ordered::new(framing, RangeOrder::whole(framing, false)));
        let record = 0..5;
        let fast: Arc<dyn Judge> = Arc::new(Ordered::fixed(5, vec![record]));
        let mut results = Vec::new();
        for judge in [&general, &fast] {
            let parts = cut(judge, &data, pages).unwrap();
            let total = parts.iter().fold(Validation::default(), |total, part| {
                judge.combine(total, judge.validate(part))
            });
            prop_assert_eq!(total.records, data.len() as u64 / 5);
            results.push(total);
        }
        prop_assert_eq!(&results[0], &results[1]);
    }
}
