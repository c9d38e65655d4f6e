//! The encoded bytes as drawn, the layouts that are chosen, the limits of batches, and the errors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float32Array, Int8Array, Int16Array,
    IntervalDayTimeArray, RecordBatch, StringArray, UInt8Array, UInt32Array, UnionArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, UnionFields};
use arrow_select::take::take;
use ascot_columns::{BatchLimits, ColumnsError, Decoder, Encoder, SortColumn};

fn batch(columns: Vec<(&str, ArrayRef, bool)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn text(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn numbers(values: &[u32]) -> ArrayRef {
    Arc::new(UInt32Array::from(values.to_vec()))
}

fn encoded(batch: &RecordBatch, keys: &[SortColumn]) -> (String, Vec<u8>) {
    let mut encoder = Encoder::new(batch.schema(), keys).unwrap();
    let mut bytes = Vec::new();
    encoder.encode(batch, &mut bytes).unwrap();
    (encoder.layout().to_string(), bytes)
}

fn decoded(mut decoder: Decoder, mut bytes: &[u8]) -> Result<Vec<RecordBatch>, ColumnsError> {
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        bytes = &bytes[decoder.push(bytes)?..];
        batches.extend(decoder.next_batch());
    }
    decoder.finish()?;
    batches.extend(std::iter::from_fn(|| decoder.next_batch()));
    Ok(batches)
}

#[test]
fn rows_are_as_drawn() {
    let batch = batch(vec![
        ("key", Arc::new(UInt8Array::from(vec![9])), false),
        ("a", numbers(&[7]), false),
        ("b", Arc::new(Int16Array::from(vec![None])), true),
        ("c", text(&["ab"]), false),
        ("d", text(&["xyz"]), false),
    ]);
    let (layout, bytes) = encoded(&batch, &[SortColumn::new("key")]);
    assert_eq!(layout, "prefixed:u32");
    assert_eq!(bytes, b"\x11\0\0\0\x09\x01\x07\0\0\0\0\0\x02\0\0\0abxyz");
}

#[test]
fn keys_are_as_drawn() {
    let key = |array: ArrayRef, nullable: bool, descending: bool, nulls_first: bool| {
        let column = SortColumn { name: "c".into(), descending, nulls_first };
        encoded(&batch(vec![("c", array, nullable)]), &[column])
    };
    let small = || Arc::new(Int16Array::from(vec![Some(-2), None]));
    assert_eq!(key(small(), true, false, true), ("fixed:3".into(), b"\x01\x7f\xfe\0\0\0".to_vec()));
    assert_eq!(key(small(), true, true, false), ("fixed:3".into(), b"\0\x80\x01\x01\0\0".to_vec()));
    let float = Arc::new(Float32Array::from(vec![1.0, -1.0]));
    assert_eq!(key(float, false, false, false).1, b"\xbf\x80\0\0\x40\x7f\xff\xff");
    let bools = Arc::new(BooleanArray::from(vec![false, true]));
    assert_eq!(key(bools, false, true, false).1, b"\xff\xfe");
    let (layout, open) = key(text(&["a\0"]), false, false, false);
    assert_eq!((&layout[..], &open[..]), ("keyed:u32", &b"\x06\0\0\0\x02\0\0\0a\0"[..]));
    let (_, closed) = key(text(&["a\0"]), false, true, false);
    assert_eq!(closed, b"\x08\0\0\0\x04\0\0\0\x9e\xfe\xfe\xff");
}

#[test]
fn layouts_follow_the_widths() {
    let batch = batch(vec![
        ("n", numbers(&[1]), true),
        ("s", text(&["a"]), true),
        ("nulls", Arc::new(arrow_array::NullArray::new(1)), true),
    ]);
    let layout = |columns: &[usize], keys: &[&str]| {
        let keys: Vec<_> = keys.iter().map(|name| SortColumn::new(*name)).collect();
        let batch = batch.project(columns).unwrap();
        let encoder = Encoder::new(batch.schema(), &keys).unwrap();
        (encoder.layout().to_string(), encoder.keys().first().map(|range| range.end))
    };
    assert_eq!(layout(&[0], &["n"]), ("fixed:5".into(), Some(5)));
    assert_eq!(layout(&[0, 1], &["n"]), ("prefixed:u32".into(), Some(5)));
    assert_eq!(layout(&[0, 1], &["s"]), ("keyed:u32".into(), None));
    assert_eq!(layout(&[2], &["nulls"]), ("keyed:u32".into(), None));
}

#[test]
fn a_repeated_key_column_counts_once() {
    let batch = batch(vec![("n", numbers(&[1, 2]), false)]);
    let down = SortColumn { descending: true, ..SortColumn::new("n") };
    assert_eq!(encoded(&batch, &[SortColumn::new("n"), down]), encoded(&batch, &[SortColumn::new("n")]));
}

#[test]
fn batches_keep_to_their_limits() {
    let batch = batch(vec![
        ("n", numbers(&[1, 2, 3, 4, 5]), false),
        ("s", text(&["", "a", "long text", "b", "c"]), false),
    ]);
    let mut encoder = Encoder::new(batch.schema(), &[SortColumn::new("n")]).unwrap();
    let mut bytes = Vec::new();
    encoder.encode(&batch, &mut bytes).unwrap();
    let sizes = |rows, limit| {
        let batches = decoded(encoder.decoder(BatchLimits { rows, bytes: limit }), &bytes).unwrap();
        batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>()
    };
    assert_eq!(sizes(2, usize::MAX), [2, 2, 1]);
    assert_eq!(sizes(5, usize::MAX), [5]);
    // Records of 8, 9, 17, 9 and 9 bytes.
    assert_eq!(sizes(100, 17), [2, 1, 1, 1]);
    assert_eq!(sizes(100, 18), [2, 1, 2]);
    assert_eq!(sizes(0, 0), [1, 1, 1, 1, 1]);
}

#[test]
fn some_rows_are_encoded_at_a_time() {
    let rows = 5000;
    let batch = batch(vec![("n", numbers(&(0..rows).collect::<Vec<_>>()), false)]);
    let mut encoder = Encoder::new(batch.schema(), &[SortColumn::new("n")]).unwrap();
    let (mut all, mut parts, mut row) = (Vec::new(), Vec::new(), 0);
    encoder.encode(&batch, &mut all).unwrap();
    while row < batch.num_rows() {
        let before = parts.len();
        let next = encoder.encode_some(&batch, row, 1, &mut parts).unwrap();
        assert!(next > row && next - row <= 1024 && parts.len() > before);
        row = next;
    }
    assert_eq!(parts, all);
    assert_eq!(encoder.encode_some(&batch, row, 1, &mut parts).unwrap(), row);
}

#[test]
fn long_rows_are_encoded_one_at_a_time() {
    let long = "x".repeat(200 << 10);
    let batch = batch(vec![("s", text(&[&long, "a", &long, &long, "b"]), false)]);
    let mut encoder = Encoder::new(batch.schema(), &[SortColumn::new("s")]).unwrap();
    let (mut bytes, mut row, mut rows) = (Vec::new(), 0, Vec::new());
    while row < batch.num_rows() {
        row = encoder.encode_some(&batch, row, 1, &mut bytes).unwrap();
        rows.push(row);
    }
    assert_eq!(rows, [2, 3, 5]);
    assert_eq!(decoded(encoder.decoder(BatchLimits::default()), &bytes).unwrap(), [batch]);
}

#[test]
fn dictionaries_that_grow_too_large_divide_a_batch() {
    let rows = |range: std::ops::Range<u32>| {
        let keys = Int8Array::from_iter_values(0..100);
        let dictionary =
            DictionaryArray::<Int8Type>::try_new(keys, numbers(&range.collect::<Vec<_>>())).unwrap();
        batch(vec![("d", Arc::new(dictionary), true)])
    };
    let (first, second) = (rows(0..100), rows(100..200));
    let mut encoder = Encoder::new(first.schema(), &[SortColumn::new("d")]).unwrap();
    let mut bytes = Vec::new();
    encoder.encode(&first, &mut bytes).unwrap();
    encoder.encode(&second, &mut bytes).unwrap();
    let batches = decoded(encoder.decoder(BatchLimits::default()), &bytes).unwrap();
    assert!(batches.len() > 1);
    let values = batches.iter().flat_map(|batch| {
        assert_eq!(batch.schema(), first.schema());
        let array = batch.column(0).as_dictionary::<Int8Type>();
        let plain = take(array.values(), array.keys(), None).unwrap();
        plain.as_primitive::<UInt32Type>().values().to_vec()
    });
    assert!(values.eq(0..200));
}

#[test]
fn dictionaries_of_lists_come_back() {
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value([Some(1), None]);
    lists.append_null();
    lists.append_value([]);
    let lists: ArrayRef = Arc::new(lists.finish());
    let keys = Int8Array::from(vec![Some(2), Some(0), None, Some(1), Some(0)]);
    let dictionary = DictionaryArray::<Int8Type>::try_new(keys, lists).unwrap();
    let batch = batch(vec![("n", numbers(&[1, 2, 3, 4, 5]), false), ("d", Arc::new(dictionary), true)]);
    let (_, bytes) = encoded(&batch, &[SortColumn::new("n")]);
    let decoder = Decoder::new(batch.schema(), &[SortColumn::new("n")], BatchLimits::default()).unwrap();
    let found = decoded(decoder, &bytes).unwrap();
    let plain = |batch: &RecordBatch| {
        let array = batch.column(1).as_dictionary::<Int8Type>();
        take(array.values(), array.keys(), None).unwrap().to_data()
    };
    assert_eq!(found[0].schema(), batch.schema());
    assert_eq!(plain(&found[0]), plain(&batch));
    assert_eq!(found[0].column(1).as_dictionary::<Int8Type>().values().len(), 2);
}

#[test]
fn metadata_of_the_schema_is_kept() {
    let field = Field::new("n", DataType::UInt32, false)
        .with_metadata(HashMap::from([("unit".to_owned(), "m".to_owned())]));
    let schema: SchemaRef =
        Arc::new(Schema::new_with_metadata(vec![field], HashMap::from([("a".to_owned(), "b".to_owned())])));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers(&[3])]).unwrap();
    let (_, bytes) = encoded(&batch, &[SortColumn::new("n")]);
    let decoder = Decoder::new(Arc::clone(&schema), &[SortColumn::new("n")], BatchLimits::default()).unwrap();
    assert_eq!(decoded(decoder, &bytes).unwrap(), [batch]);
}

#[test]
fn wrong_keys_are_named() {
    let interval: ArrayRef = Arc::new(IntervalDayTimeArray::from(vec![None; 1]));
    let fields = UnionFields::try_new(vec![0], vec![Field::new("x", DataType::UInt32, false)]).unwrap();
    let union: ArrayRef =
        Arc::new(UnionArray::try_new(fields, vec![0].into(), None, vec![numbers(&[1])]).unwrap());
    let columns = vec![("n", numbers(&[1]), false), ("i", interval, true), ("u", union, false)];
    let schema = batch(columns).schema();
    let error = |name: &str| Encoder::new(Arc::clone(&schema), &[SortColumn::new(name)]).unwrap_err();
    let unknown = error("m");
    assert!(
        matches!(&unknown, ColumnsError::UnknownColumn { name, known } if name == "m" && known.len() == 3)
    );
    assert!(unknown.to_string().contains("n, i, u"), "{unknown}");
    for name in ["i", "u"] {
        assert!(matches!(error(name), ColumnsError::NoOrder { column, .. } if column == name));
    }
    assert!(matches!(Encoder::new(Arc::clone(&schema), &[]), Err(ColumnsError::NoKey)));
    let twice =
        Schema::new(vec![Field::new("a", DataType::Int8, true), Field::new("a", DataType::Int8, true)]);
    let twice = Encoder::new(Arc::new(twice), &[SortColumn::new("a")]);
    assert!(matches!(twice, Err(ColumnsError::AmbiguousColumn { name }) if name == "a"));
}

#[test]
fn batches_of_another_schema_are_refused() {
    let first = batch(vec![("n", numbers(&[1]), false), ("s", text(&["a"]), false)]);
    let mut encoder = Encoder::new(first.schema(), &[SortColumn::new("n")]).unwrap();
    let mut out = b"before".to_vec();
    let mut error = |columns| encoder.encode(&batch(columns), &mut out).unwrap_err();
    let another_type = error(vec![("n", numbers(&[1]), false), ("s", numbers(&[1]), false)]);
    let message = another_type.to_string();
    assert!(message.contains("'s'") && message.contains("uint32") && message.contains("string"), "{message}");
    let another_name = error(vec![("n", numbers(&[1]), false), ("t", text(&["a"]), false)]).to_string();
    assert!(another_name.contains("'t'") && another_name.contains("'s'"), "{another_name}");
    let fewer = error(vec![("n", numbers(&[1]), false)]);
    assert!(matches!(fewer, ColumnsError::ColumnCount { expected: 2, found: 1 }));
    for (column, n, s) in [("n", None, Some("a")), ("s", Some(1), None)] {
        let (n, s) = (Arc::new(UInt32Array::from(vec![n])), Arc::new(StringArray::from(vec![s])));
        let error = error(vec![("n", n as ArrayRef, true), ("s", s as ArrayRef, true)]);
        assert!(
            matches!(&error, ColumnsError::UnexpectedNull { column: found } if found == column),
            "{error}"
        );
    }
    assert_eq!(out, b"before");
}

#[test]
fn a_damaged_record_is_named_by_its_offset() {
    let batch = batch(vec![
        ("n", numbers(&[1, 2]), false),
        ("s", text(&["a", "b"]), false),
        ("t", text(&["", ""]), false),
    ]);
    let (_, mut bytes) = encoded(&batch, &[SortColumn::new("n")]);
    let decoder = || Decoder::new(batch.schema(), &[SortColumn::new("n")], BatchLimits::default()).unwrap();
    let half = bytes.len() / 2;
    bytes[half + 8] = 9;
    let error = decoded(decoder(), &bytes).unwrap_err();
    assert!(matches!(error, ColumnsError::Corrupt { offset, .. } if offset == half as u64), "{error}");
    let mut failed = decoder();
    failed.push(&bytes).unwrap_err();
    assert!(failed.push(&bytes[..half]).is_err() && failed.finish().is_err());
    let error = decoded(decoder(), &bytes[..half + 5]).unwrap_err();
    assert!(error.to_string().contains("cut short after 5 bytes"), "{error}");
}
