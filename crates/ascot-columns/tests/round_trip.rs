//! Random batches: their keys order the rows as Arrow does, and decoding gives the batches back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_ord::ord::make_comparator;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, IntervalUnit, SortOptions};
use arrow_select::take::take;
use ascot_columns::{BatchLimits, ColumnsError, Decoder, Encoder, SortColumn};
use ascot_record::framing::{FixedFraming, Framing, PrefixedFraming};
use ascot_record::keys::ByteRangeKey;
use ascot_record::layout::Layout;
use proptest::prelude::*;

use common::{Noise, flat_types, random_array, random_batch, random_type};

/// The records of some bytes, each with its key, as the engine finds them.
fn records<'b>(layout: Layout, keys: &[ByteRangeKey], bytes: &'b [u8]) -> Vec<(&'b [u8], &'b [u8])> {
    fn split<'b, F: Framing>(
        framing: F,
        keys: &[ByteRangeKey],
        bytes: &'b [u8],
    ) -> Vec<(&'b [u8], &'b [u8])> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let end = framing.end(bytes, at).expect("records are whole");
            let record = &bytes[at..end];
            let body = framing.body(record);
            let key = match keys {
                [] => body,
                [range] => &body[range.start..range.end],
                _ => panic!("one range at most"),
            };
            found.push((key, record));
            at = end;
        }
        found
    }
    match layout {
        Layout::Fixed { len } => split(FixedFraming(len), keys, bytes),
        Layout::Prefixed { width, endian, keyed } => {
            split(PrefixedFraming { width, endian, keyed }, keys, bytes)
        }
        other => panic!("{other}"),
    }
}

/// Compares two rows of a column as Arrow does.
fn comparator(array: &ArrayRef, options: SortOptions) -> Box<dyn Fn(usize, usize) -> Ordering> {
    if let Ok(comparator) = make_comparator(array, array, options) {
        return comparator;
    }
    let field = SortField::new_with_options(array.data_type().clone(), options);
    let rows = RowConverter::new(vec![field]).unwrap().convert_columns(std::slice::from_ref(array)).unwrap();
    Box::new(move |a, b| rows.row(a).cmp(&rows.row(b)))
}

/// The rows of a batch in Arrow's order; rows with equal keys keep their order.
fn arrow_order(batch: &RecordBatch, keys: &[SortColumn]) -> Vec<usize> {
    let comparators = keys.iter().map(|key| {
        let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
        comparator(batch.column_by_name(&key.name).unwrap(), options)
    });
    let comparators: Vec<_> = comparators.collect();
    let mut order: Vec<usize> = (0..batch.num_rows()).collect();
    order.sort_by(|&a, &b| {
        comparators.iter().map(|compare| compare(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
    order
}

/// Decodes records that arrive in parts of random sizes.
fn decode(
    mut decoder: Decoder,
    mut bytes: &[u8],
    noise: &mut Noise,
) -> Result<Vec<RecordBatch>, ColumnsError> {
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let size = 1 + if noise.one_in(2) { noise.below(bytes.len()) } else { noise.below(9) };
        let part = &bytes[..size.min(bytes.len())];
        bytes = &bytes[decoder.push(part)?..];
        batches.extend(std::iter::from_fn(|| decoder.next_batch()));
    }
    decoder.finish()?;
    batches.extend(std::iter::from_fn(|| decoder.next_batch()));
    Ok(batches)
}

fn take_rows(batch: &RecordBatch, rows: &[usize]) -> RecordBatch {
    let indices = UInt64Array::from_iter_values(rows.iter().map(|&row| row as u64));
    let columns = batch.columns().iter().map(|column| take(column, &indices, None).unwrap()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).unwrap()
}

/// Fails unless the columns of both batches have the same types and values.
fn assert_same(found: &RecordBatch, expected: &RecordBatch) {
    assert_eq!(found.schema(), expected.schema());
    assert_eq!(found.num_rows(), expected.num_rows());
    for (found, expected) in found.columns().iter().zip(expected.columns()) {
        found.to_data().validate_full().unwrap();
        assert_eq!(found.data_type(), expected.data_type());
        let converter = RowConverter::new(vec![SortField::new(expected.data_type().clone())]).unwrap();
        let rows = |array: &ArrayRef| converter.convert_columns(std::slice::from_ref(array)).unwrap();
        let (found_rows, expected_rows) = (rows(found), rows(expected));
        for row in 0..expected.len() {
            let same = found_rows.row(row) == expected_rows.row(row);
            assert!(same, "row {row} of {}: {found:?}, not {expected:?}", expected.data_type());
        }
    }
}

/// Checks order and content of a batch that is encoded by `keys`.
fn check(batch: &RecordBatch, keys: &[SortColumn], noise: &mut Noise) {
    let mut encoder = Encoder::new(batch.schema(), keys).unwrap();
    let mut bytes = Vec::new();
    encoder.encode(batch, &mut bytes).unwrap();
    let mut records = records(encoder.layout(), &encoder.keys(), &bytes);
    assert_eq!(records.len(), batch.num_rows());
    let starts: Vec<_> = records.iter().map(|(_, record)| record.as_ptr()).collect();
    records.sort_by_key(|(key, _)| *key);
    let number = |record: &[u8]| starts.binary_search(&record.as_ptr()).unwrap();
    let order: Vec<usize> = records.iter().map(|(_, record)| number(record)).collect();
    let expected = arrow_order(batch, keys);
    assert_eq!(order, expected, "{keys:?} of {:?}", batch.schema());

    let sorted: Vec<u8> = records.iter().flat_map(|(_, record)| *record).copied().collect();
    let limits =
        BatchLimits { rows: 1 + noise.below(batch.num_rows() + 1), bytes: 1 + noise.below(sorted.len() + 1) };
    let batches = decode(encoder.decoder(limits), &sorted, noise).unwrap();
    let mut first = 0;
    for found in &batches {
        let end = first + found.num_rows();
        assert!(end > first && found.num_rows() <= limits.rows);
        assert_same(found, &take_rows(batch, &expected[first..end]));
        first = end;
    }
    assert_eq!(first, batch.num_rows());
}

/// Whether a type can be a key.
fn has_order(data_type: &DataType) -> bool {
    match data_type {
        DataType::Interval(unit) => *unit == IntervalUnit::YearMonth,
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            has_order(field.data_type())
        }
        DataType::ListView(field) | DataType::LargeListView(field) | DataType::Map(field, _) => {
            has_order(field.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| has_order(field.data_type())),
        DataType::Union(..) => false,
        DataType::Dictionary(_, values) => has_order(values),
        DataType::RunEndEncoded(_, values) => has_order(values.data_type()),
        _ => true,
    }
}

/// A key of each column that has an order, the columns in random sequence, or some of them.
fn random_keys(batch: &RecordBatch, noise: &mut Noise) -> Vec<SortColumn> {
    let schema = batch.schema();
    let mut names: Vec<&String> = schema
        .fields()
        .iter()
        .filter(|field| has_order(field.data_type()))
        .map(|field| field.name())
        .collect();
    let mut keys = Vec::new();
    while !names.is_empty() && (keys.is_empty() || noise.one_in(2)) {
        let name = names.swap_remove(noise.below(names.len())).clone();
        keys.push(SortColumn { name, descending: noise.one_in(2), nulls_first: noise.one_in(2) });
    }
    keys
}

fn one_column(array: ArrayRef, nullable: bool) -> RecordBatch {
    let field = arrow_schema::Field::new("c", array.data_type().clone(), nullable);
    RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(vec![field])), vec![array]).unwrap()
}

#[test]
fn every_flat_type_is_a_key_in_every_order() {
    let mut noise = Noise::new(1);
    for data_type in flat_types().into_iter().filter(has_order) {
        for options in 0..8 {
            let nullable = options & 4 != 0 || data_type == DataType::Null;
            let batch = one_column(random_array(&data_type, nullable, 200, &mut noise), nullable);
            let key =
                SortColumn { name: "c".into(), descending: options & 1 != 0, nulls_first: options & 2 != 0 };
            check(&batch, &[key], &mut noise);
        }
    }
}

#[test]
fn batches_of_many_blocks_are_encoded() {
    let mut noise = Noise::new(3);
    for depth in [0, 1] {
        let batch = random_batch(&mut noise, 5, 3000, depth);
        let keys = random_keys(&batch, &mut noise);
        check(&batch, &keys, &mut noise);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn flat_batches_are_ordered_and_come_back(seed: u64, columns in 1..6usize, rows in 0..60usize) {
        let noise = &mut Noise::new(seed);
        let batch = random_batch(noise, columns, rows, 0);
        let keys = random_keys(&batch, noise);
        if !keys.is_empty() {
            check(&batch, &keys, noise);
        }
    }

    #[test]
    fn nested_batches_are_ordered_and_come_back(seed: u64, columns in 1..4usize, rows in 0..40usize) {
        let noise = &mut Noise::new(seed);
        let batch = random_batch(noise, columns, rows, 3);
        let keys = random_keys(&batch, noise);
        if !keys.is_empty() {
            check(&batch, &keys, noise);
        }
    }

    #[test]
    fn nested_keys_are_ordered(seed: u64, descending: bool, nulls_first: bool) {
        let noise = &mut Noise::new(seed);
        let data_type = random_type(noise, 2);
        if has_order(&data_type) {
            let batch = one_column(random_array(&data_type, true, 30, noise), true);
            check(&batch, &[SortColumn { name: "c".into(), descending, nulls_first }], noise);
        }
    }

    #[test]
    fn damaged_records_are_errors_and_no_panics(seed: u64, rows in 1..20usize) {
        let noise = &mut Noise::new(seed);
        let batch = random_batch(noise, 3, rows, 2);
        let keys = random_keys(&batch, noise);
        if keys.is_empty() {
            return Ok(());
        }
        let mut encoder = Encoder::new(batch.schema(), &keys).unwrap();
        let mut bytes = Vec::new();
        encoder.encode(&batch, &mut bytes).unwrap();
        for _ in 0..20 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + noise.below(3) {
                let at = noise.below(damaged.len());
                damaged[at] = if noise.one_in(2) { noise.next() as u8 } else { damaged[at] ^ (1 << noise.below(8)) };
            }
            // The values may be others, or the error names the record.
            match decode(encoder.decoder(BatchLimits::default()), &damaged, noise) {
                Ok(batches) => batches.iter().for_each(|batch| {
                    batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
                }),
                Err(ColumnsError::Corrupt { offset, .. }) => prop_assert!(offset < damaged.len() as u64),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        // Every part of the records but the whole is cut short, unless it ends between records.
        let ends: Vec<usize> = records(encoder.layout(), &encoder.keys(), &bytes).iter().scan(0, |end, (_, record)| {
            *end += record.len();
            Some(*end)
        }).collect();
        for cut in 1..bytes.len() {
            let decoded = decode(encoder.decoder(BatchLimits::default()), &bytes[..cut], noise);
            prop_assert_eq!(decoded.is_ok(), ends.contains(&cut), "{}", cut);
        }
    }
}
