//! Random types, arrays and batches. Values are often equal, extreme or null, and arrays are slices of longer ones.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, RunEndIndexType, UInt16Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, GenericListArray,
    GenericListViewArray, Int32Array, MapArray, NullArray, OffsetSizeTrait, PrimitiveArray, RecordBatch,
    RecordBatchOptions, RunArray, StructArray, UnionArray, make_array,
};
use arrow_buffer::{ArrowNativeType, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, IntervalUnit, Schema, TimeUnit, UnionFields, UnionMode};

/// A generator of random numbers (xorshift64): this crate does not stand on `ascot-model`, which has another.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 11) % end as u64) as usize
    }

    pub fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// Types without children.
pub fn flat_types() -> Vec<DataType> {
    use DataType as T;
    let mut types = vec![
        T::Null,
        T::Boolean,
        T::Utf8,
        T::LargeUtf8,
        T::Utf8View,
        T::Binary,
        T::LargeBinary,
        T::BinaryView,
        T::FixedSizeBinary(0),
        T::FixedSizeBinary(3),
        T::FixedSizeBinary(16),
        T::Decimal32(9, 2),
        T::Decimal64(18, 2),
        T::Decimal128(38, 3),
        T::Decimal256(76, -3),
        T::Date32,
        T::Date64,
        T::Time32(TimeUnit::Second),
        T::Time64(TimeUnit::Nanosecond),
        T::Duration(TimeUnit::Millisecond),
        T::Timestamp(TimeUnit::Microsecond, None),
        T::Timestamp(TimeUnit::Nanosecond, Some("+02:00".into())),
        T::Interval(IntervalUnit::YearMonth),
        T::Interval(IntervalUnit::DayTime),
        T::Interval(IntervalUnit::MonthDayNano),
        T::Float16,
        T::Float32,
        T::Float64,
    ];
    types.extend([T::Int8, T::Int16, T::Int32, T::Int64, T::UInt8, T::UInt16, T::UInt32, T::UInt64]);
    types
}

/// A type with at most `depth` levels of children.
pub fn random_type(noise: &mut Noise, depth: usize) -> DataType {
    use DataType as T;
    if depth == 0 || noise.one_in(3) {
        let flat = flat_types();
        return flat[noise.below(flat.len())].clone();
    }
    let child = |noise: &mut Noise| Arc::new(random_field("item", noise, depth - 1));
    match noise.below(12) {
        0 => T::List(child(noise)),
        1 => T::LargeList(child(noise)),
        2 => T::ListView(child(noise)),
        3 => T::LargeListView(child(noise)),
        4 => T::FixedSizeList(child(noise), noise.below(4) as i32),
        5 | 6 => T::Struct(
            (0..noise.below(4)).map(|at| random_field(&format!("f{at}"), noise, depth - 1)).collect(),
        ),
        7 => {
            let key = Field::new("key", random_type(noise, 0), false);
            let key = if *key.data_type() == T::Null { key.with_data_type(T::Int8) } else { key };
            let entries = T::Struct(vec![key, random_field("value", noise, depth - 1)].into());
            T::Map(Arc::new(Field::new("entries", entries, false)), false)
        }
        8 => T::Dictionary(Box::new(T::Int8), Box::new(random_type(noise, 0))),
        9 => T::Dictionary(Box::new(T::UInt16), Box::new(random_type(noise, 0))),
        10 => {
            let ends = Field::new("run_ends", [T::Int16, T::Int32][noise.below(2)].clone(), false);
            let values = Field::new("values", random_type(noise, depth - 1), true);
            T::RunEndEncoded(Arc::new(ends), Arc::new(values))
        }
        _ => {
            let fields = (0..1 + noise.below(3)).map(|at| random_field(&format!("u{at}"), noise, 0));
            let fields: Vec<Field> = fields.collect();
            let ids: Vec<i8> = (0..fields.len() as i8).map(|at| 2 * at + 1).collect();
            let mode = if noise.one_in(2) { UnionMode::Sparse } else { UnionMode::Dense };
            T::Union(UnionFields::try_new(ids, fields).unwrap(), mode)
        }
    }
}

fn random_field(name: &str, noise: &mut Noise, depth: usize) -> Field {
    let data_type = random_type(noise, depth);
    let nullable = !noise.one_in(3) || has_nulls_of_values(&data_type);
    Field::new(name, data_type, nullable)
}

/// Whether arrays of a type may be null without nulls of their own.
fn has_nulls_of_values(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null | DataType::RunEndEncoded(..) | DataType::Union(..) => true,
        DataType::Dictionary(_, values) => has_nulls_of_values(values),
        _ => false,
    }
}

/// A batch of `columns` columns, named `c0`, `c1` and so on.
pub fn random_batch(noise: &mut Noise, columns: usize, rows: usize, depth: usize) -> RecordBatch {
    let fields: Vec<Field> = (0..columns).map(|at| random_field(&format!("c{at}"), noise, depth)).collect();
    let arrays = fields.iter().map(|field| random_array(field.data_type(), field.is_nullable(), rows, noise));
    let arrays = arrays.collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).unwrap()
}

/// An array of a type, a slice of a longer one.
pub fn random_array(data_type: &DataType, nullable: bool, rows: usize, noise: &mut Noise) -> ArrayRef {
    let before = noise.below(12);
    let after = noise.below(3);
    whole_array(data_type, nullable, before + rows + after, noise).slice(before, rows)
}

fn random_nulls(nullable: bool, rows: usize, noise: &mut Noise) -> Option<NullBuffer> {
    let share = 1 + noise.below(4);
    (nullable && !noise.one_in(4)).then(|| NullBuffer::from_iter((0..rows).map(|_| !noise.one_in(share))))
}

fn whole_array(data_type: &DataType, nullable: bool, rows: usize, noise: &mut Noise) -> ArrayRef {
    use DataType as T;
    let nulls = match data_type {
        T::Null | T::RunEndEncoded(..) | T::Union(..) | T::Dictionary(..) => None,
        _ => random_nulls(nullable, rows, noise),
    };
    match data_type {
        T::Null => Arc::new(NullArray::new(rows)),
        T::Boolean => {
            let values = (0..rows).map(|_| noise.one_in(2)).collect::<Vec<_>>();
            Arc::new(BooleanArray::new(values.into(), nulls))
        }
        T::Utf8 | T::Binary | T::LargeUtf8 | T::LargeBinary | T::Utf8View | T::BinaryView => {
            random_bytes(data_type, rows, nulls, noise)
        }
        T::List(field) => random_list::<i32>(field, rows, nulls, noise),
        T::LargeList(field) => random_list::<i64>(field, rows, nulls, noise),
        T::ListView(field) => random_list_view::<i32>(field, rows, nulls, noise),
        T::LargeListView(field) => random_list_view::<i64>(field, rows, nulls, noise),
        T::FixedSizeList(field, size) => {
            let values = random_array(field.data_type(), field.is_nullable(), rows * *size as usize, noise);
            let list = FixedSizeListArray::try_new_with_length(field.clone(), *size, values, nulls, rows);
            Arc::new(list.unwrap())
        }
        T::Struct(fields) => {
            let columns =
                fields.iter().map(|field| random_array(field.data_type(), field.is_nullable(), rows, noise));
            let columns = columns.collect();
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows).unwrap())
        }
        T::Map(field, ordered) => {
            let (offsets, elements) = random_offsets::<i32>(rows, noise);
            let entries = random_array(field.data_type(), false, elements, noise);
            let entries = StructArray::from(entries.to_data());
            Arc::new(MapArray::try_new(field.clone(), offsets, entries, nulls, *ordered).unwrap())
        }
        T::Dictionary(keys, values) => match keys.as_ref() {
            T::Int8 => random_dictionary::<Int8Type>(values, nullable, rows, noise),
            _ => random_dictionary::<UInt16Type>(values, nullable, rows, noise),
        },
        T::RunEndEncoded(ends, values) => match ends.data_type() {
            T::Int16 => random_runs::<Int16Type>(values, rows, noise),
            _ => random_runs::<Int32Type>(values, rows, noise),
        },
        T::Union(fields, mode) => random_union(fields, *mode, rows, noise),
        other => random_fixed(other, rows, nulls, noise),
    }
}

fn random_fixed(data_type: &DataType, rows: usize, nulls: Option<NullBuffer>, noise: &mut Noise) -> ArrayRef {
    let width = match data_type {
        DataType::FixedSizeBinary(width) => *width as usize,
        other => other.primitive_width().unwrap(),
    };
    let mut values = MutableBuffer::new(rows * width);
    for _ in 0..rows {
        let kind = noise.below(5);
        for at in 0..width {
            values.push(match kind {
                0 => 0u8,
                1 => 0xff,
                2 if at > 0 => 0,
                3 if at + 1 < width => 0xff,
                _ => noise.next() as u8,
            });
        }
    }
    let data = ArrayData::builder(data_type.clone()).len(rows).nulls(nulls).add_buffer(values.into());
    make_array(data.build().unwrap())
}

fn random_bytes(data_type: &DataType, rows: usize, nulls: Option<NullBuffer>, noise: &mut Noise) -> ArrayRef {
    const PARTS: [&str; 8] =
        ["", "a", "\0", "\u{1}", "b\u{2}", "\u{e9}", "longer than a view holds", "\u{10ffff}"];
    let text = |noise: &mut Noise| -> String {
        (0..noise.below(4)).map(|_| PARTS[noise.below(PARTS.len())]).collect()
    };
    let texts: Vec<String> = (0..rows).map(|_| text(noise)).collect();
    let mut values: Vec<u8> = texts.concat().into_bytes();
    let data = ArrayData::builder(data_type.clone()).len(rows).nulls(nulls);
    let ends = texts.iter().scan(0, |end, text| {
        *end += text.len();
        Some(*end)
    });
    let offsets = std::iter::once(0).chain(ends);
    if matches!(data_type, DataType::Binary | DataType::LargeBinary) {
        values.iter_mut().for_each(|byte| *byte = byte.wrapping_add(0x80));
    }
    let data = match data_type {
        DataType::Utf8 | DataType::Binary => {
            let offsets: Vec<i32> = offsets.map(|end| end as i32).collect();
            data.add_buffer(Buffer::from_vec(offsets)).add_buffer(Buffer::from_vec(values))
        }
        DataType::LargeUtf8 | DataType::LargeBinary => {
            let offsets: Vec<i64> = offsets.map(|end| end as i64).collect();
            data.add_buffer(Buffer::from_vec(offsets)).add_buffer(Buffer::from_vec(values))
        }
        _ => {
            let view = |(text, at): (&String, usize)| make_view(text.as_bytes(), 0, at as u32);
            let views: Vec<u128> = texts.iter().zip(offsets).map(view).collect();
            data.add_buffer(Buffer::from_vec(views)).add_buffer(Buffer::from_vec(values))
        }
    };
    make_array(data.build().unwrap())
}

/// Offsets of lists of a few elements each, and the number of all elements.
fn random_offsets<O: OffsetSizeTrait>(rows: usize, noise: &mut Noise) -> (OffsetBuffer<O>, usize) {
    let lengths: Vec<usize> = (0..rows).map(|_| noise.below(4)).collect();
    let elements = lengths.iter().sum();
    (OffsetBuffer::from_lengths(lengths), elements)
}

fn random_list<O: OffsetSizeTrait>(
    field: &Arc<Field>,
    rows: usize,
    nulls: Option<NullBuffer>,
    noise: &mut Noise,
) -> ArrayRef {
    let (offsets, elements) = random_offsets::<O>(rows, noise);
    let values = random_array(field.data_type(), field.is_nullable(), elements, noise);
    Arc::new(GenericListArray::<O>::try_new(field.clone(), offsets, values, nulls).unwrap())
}

fn random_list_view<O: OffsetSizeTrait>(
    field: &Arc<Field>,
    rows: usize,
    nulls: Option<NullBuffer>,
    noise: &mut Noise,
) -> ArrayRef {
    const ELEMENTS: usize = 9;
    let values = random_array(field.data_type(), field.is_nullable(), ELEMENTS, noise);
    let sizes: Vec<usize> = (0..rows).map(|_| noise.below(4)).collect();
    let offsets: Vec<O> = sizes.iter().map(|size| O::usize_as(noise.below(ELEMENTS - size + 1))).collect();
    let sizes: Vec<O> = sizes.iter().map(|size| O::usize_as(*size)).collect();
    let list = GenericListViewArray::<O>::try_new(field.clone(), offsets.into(), sizes.into(), values, nulls);
    Arc::new(list.unwrap())
}

fn random_dictionary<K: arrow_array::types::ArrowDictionaryKeyType>(
    values: &DataType,
    nullable: bool,
    rows: usize,
    noise: &mut Noise,
) -> ArrayRef {
    let count = 1 + noise.below(9);
    let values = random_array(values, nullable, count, noise);
    let keys = (0..rows).map(|_| {
        let index = K::Native::from_usize(noise.below(count));
        if nullable && noise.one_in(4) { None } else { index }
    });
    let keys: PrimitiveArray<K> = keys.collect();
    Arc::new(DictionaryArray::try_new(keys, values).unwrap())
}

fn random_runs<R: RunEndIndexType>(values: &Arc<Field>, rows: usize, noise: &mut Noise) -> ArrayRef {
    let mut ends = Vec::new();
    let mut end = 0;
    while end < rows.max(1) {
        end = (end + 1 + noise.below(3)).min(rows.max(1));
        ends.push(R::Native::usize_as(end));
    }
    let values = random_array(values.data_type(), true, ends.len(), noise);
    let ends = PrimitiveArray::<R>::from_iter_values(ends);
    Arc::new(RunArray::<R>::try_new(&ends, &values).unwrap().slice(0, rows))
}

fn random_union(fields: &UnionFields, mode: UnionMode, rows: usize, noise: &mut Noise) -> ArrayRef {
    const CHILD_ROWS: usize = 5;
    let ids: Vec<i8> = fields.iter().map(|(id, _)| id).collect();
    let types: Vec<i8> = (0..rows).map(|_| ids[noise.below(ids.len())]).collect();
    let child_rows = if mode == UnionMode::Sparse { rows } else { CHILD_ROWS };
    let child = |field: &Arc<Field>| random_array(field.data_type(), field.is_nullable(), child_rows, noise);
    let children = fields.iter().map(|(_, field)| field).map(child).collect();
    let offsets: Option<ScalarBuffer<i32>> = (mode == UnionMode::Dense).then(|| {
        Int32Array::from_iter_values((0..rows).map(|row| (row % CHILD_ROWS) as i32)).values().clone()
    });
    Arc::new(UnionArray::try_new(fields.clone(), types.into(), offsets, children).unwrap())
}
