//! Measures encoding and decoding on one core and prints a table.
//!
//! `cargo run --release -p ascot-columns --example rates [NAME]` runs the cases whose name has NAME in it. Each is run
//! for about a second; the best run counts. Rates are those of the bytes of the arrays.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Float64Array, Int32Array, ListArray, RecordBatch, StringArray, UInt64Array};
use arrow_buffer::OffsetBuffer;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, Field};
use ascot_columns::{BatchLimits, ColumnsError, Encoder, SortColumn};
use rustix::time::{ClockId, clock_gettime};

const ROWS: usize = 64 << 10;

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs `work` over and over; prints bytes per second and the time of a row.
fn rate(
    name: &str,
    bytes: usize,
    mut work: impl FnMut() -> Result<(), ColumnsError>,
) -> Result<(), ColumnsError> {
    if !name.contains(&std::env::args().nth(1).unwrap_or_default()) {
        return Ok(());
    }
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    while begin.elapsed().as_secs_f64() < 1.0 {
        let start = processor_seconds();
        work()?;
        best = best.min(processor_seconds() - start);
    }
    println!("{name:<44} {:>7.2} GB/s {:>8.1} ns/row", bytes as f64 / best / 1e9, best * 1e9 / ROWS as f64);
    Ok(())
}

/// A number that looks random.
fn noise(row: usize) -> u64 {
    let mixed = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn texts(bytes: usize) -> StringArray {
    let mut builder = StringBuilder::new();
    for row in 0..ROWS {
        let text = format!("{:016x}", noise(row)).repeat(bytes.div_ceil(16));
        builder.append_value(&text[..bytes]);
    }
    builder.finish()
}

fn batch(columns: Vec<(&str, ArrayRef, bool)>) -> Result<RecordBatch, ColumnsError> {
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// Encoding and decoding of a batch of `bytes` bytes.
fn both(name: &str, batch: &RecordBatch, keys: &[SortColumn], bytes: usize) -> Result<(), ColumnsError> {
    let mut encoder = Encoder::new(batch.schema(), keys)?;
    let mut records = Vec::new();
    let layout = encoder.layout();
    rate(&format!("{name}, encode {layout}"), bytes, || {
        records.clear();
        encoder.encode(batch, &mut records)
    })?;
    records.clear();
    encoder.encode(batch, &mut records)?;
    let mut decoder = encoder.decoder(BatchLimits::default());
    rate(&format!("{name}, decode {layout}"), bytes, || {
        let mut rest = &records[..];
        while !rest.is_empty() {
            rest = &rest[decoder.push(rest)?..];
            while let Some(batch) = decoder.next_batch() {
                black_box(batch);
            }
        }
        decoder.finish()?;
        while let Some(batch) = decoder.next_batch() {
            black_box(batch);
        }
        Ok(())
    })
}

fn main() -> Result<(), ColumnsError> {
    let ids: ArrayRef = Arc::new(UInt64Array::from_iter_values((0..ROWS).map(noise)));
    let text: ArrayRef = Arc::new(texts(40));
    let price: ArrayRef = Arc::new(Float64Array::from_iter_values((0..ROWS).map(|row| noise(row) as f64)));
    let some: ArrayRef =
        Arc::new(Int32Array::from_iter((0..ROWS).map(|row| (row % 3 > 0).then_some(row as i32))));
    let key = [SortColumn::new("id")];

    let pair = batch(vec![("id", ids.clone(), false), ("text", text.clone(), false)])?;
    both("u64 key, 40-byte string", &pair, &key, ROWS * 48)?;
    let nullable = batch(vec![("id", ids.clone(), true), ("text", text.clone(), true)])?;
    both("the same, nullable", &nullable, &key, ROWS * 48)?;
    both("40-byte string key, u64", &nullable, &[SortColumn::new("text")], ROWS * 48)?;
    let down = SortColumn { descending: true, ..SortColumn::new("text") };
    both("40-byte string key descending, u64", &nullable, &[down], ROWS * 48)?;
    let numbers =
        batch(vec![("id", ids.clone(), false), ("price", price.clone(), false), ("n", some.clone(), true)])?;
    both("u64 key, f64, i32 with nulls", &numbers, &key, ROWS * 20)?;

    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let elements: ArrayRef = Arc::new(Int32Array::from_iter_values((0..ROWS * 8).map(|at| at as i32)));
    let list = ListArray::try_new(item, OffsetBuffer::from_repeated_length(8, ROWS), elements, None)?;
    let lists = batch(vec![("id", ids.clone(), false), ("list", Arc::new(list), true)])?;
    both("u64 key, list of 8 i32", &lists, &key, ROWS * 44)?;

    for (name, column) in [("u64", &ids), ("40-byte string", &text)] {
        let converter = RowConverter::new(vec![SortField::new(column.data_type().clone())])?;
        let bytes = ROWS * if name == "u64" { 8 } else { 40 };
        rate(&format!("{name} key by arrow-row, key only"), bytes, || {
            black_box(converter.convert_columns(std::slice::from_ref(column))?);
            Ok(())
        })?;
        let alone = batch(vec![("id", Arc::clone(column), true)])?;
        both(&format!("{name} key only"), &alone, &key, bytes)?;
    }
    Ok(())
}
