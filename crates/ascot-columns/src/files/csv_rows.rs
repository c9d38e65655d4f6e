//! Columns as rows of CSV.
//!
//! Nulls become empty fields, and a field is quoted only where it has to be. Dates beyond the calendar are refused.
//! Rows that were read by [`CsvColumns`](super::CsvColumns) have the same fields when they are read again.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, ArrowTemporalType, Date32Type, Date64Type, Decimal128Type, Decimal256Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayAccessor, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use ascot_record::framing::CsvFraming;

use crate::error::{ColumnsError, Result};
use crate::type_name::type_name;

/// Appends batches of one schema to a file of CSV.
#[derive(Clone, Debug)]
pub struct CsvRows {
    framing: CsvFraming,
    /// The header is still to be written.
    header_due: bool,
}

/// Appends one value of a column; `false` if it is a date beyond the calendar, which has no text.
type Cell<'a> = Box<dyn Fn(usize, &mut Vec<u8>) -> bool + 'a>;

impl CsvRows {
    /// Rows with these separators. With `has_header` the names of the columns come first.
    pub fn new(framing: CsvFraming, has_header: bool) -> CsvRows {
        CsvRows { framing, header_due: has_header }
    }

    /// Appends `rows` of `batch` to `out`.
    ///
    /// # Errors
    /// A column of a type without a usual text: a list, a struct, an interval, a time with a zone; a date beyond the
    /// calendar. Then `out` is as it was before.
    pub fn to_bytes(&mut self, batch: &RecordBatch, rows: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        let schema = batch.schema_ref();
        let mut cells = Vec::new();
        for (array, field) in batch.columns().iter().zip(schema.fields()) {
            cells.push(cell_of(array, self.framing).ok_or_else(|| ColumnsError::FileBytes {
                reason: format!(
                    "column '{}' has type {}, which has no form in CSV\n  convert it to a string or a number",
                    field.name(),
                    type_name(field.data_type())
                ),
            })?);
        }
        let nulls: Vec<_> = batch.columns().iter().map(|array| array.logical_nulls()).collect();
        let base = out.len();
        let header_due = std::mem::take(&mut self.header_due);
        if header_due {
            self.header(schema, out);
        }
        for row in rows.clone() {
            for (at, (cell, nulls)) in cells.iter().zip(&nulls).enumerate() {
                if at > 0 {
                    out.push(self.framing.separator);
                }
                if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) && !cell(row, out) {
                    out.truncate(base);
                    self.header_due = header_due;
                    let record = (row - rows.start) as u64 + 1;
                    return Err(ColumnsError::Value {
                        record,
                        reason: beyond_the_calendar(schema.field(at)),
                    });
                }
            }
            out.push(b'\n');
        }
        Ok(())
    }

    fn header(&self, schema: &Schema, out: &mut Vec<u8>) {
        for (at, field) in schema.fields().iter().enumerate() {
            if at > 0 {
                out.push(self.framing.separator);
            }
            text(self.framing, field.name().as_bytes(), out);
        }
        out.push(b'\n');
    }
}

fn beyond_the_calendar(field: &Field) -> String {
    format!(
        "has a value in column '{}', of type {}, that is beyond the calendar and has no form in CSV\n  convert the \
         column to a number",
        field.name(),
        type_name(field.data_type())
    )
}

/// The cells of a column; none if its type has no text.
fn cell_of(array: &dyn Array, framing: CsvFraming) -> Option<Cell<'_>> {
    Some(match array.data_type() {
        DataType::Null => Box::new(|_, _| true),
        DataType::Boolean => {
            let array = array.as_boolean();
            Box::new(move |row, out| shown(Some(array.value(row)), out))
        }
        DataType::Utf8 => text_cell(array.as_string::<i32>(), framing),
        DataType::LargeUtf8 => text_cell(array.as_string::<i64>(), framing),
        DataType::Utf8View => text_cell(array.as_string_view(), framing),
        DataType::Binary => text_cell(array.as_binary::<i32>(), framing),
        DataType::LargeBinary => text_cell(array.as_binary::<i64>(), framing),
        DataType::BinaryView => text_cell(array.as_binary_view(), framing),
        DataType::Dictionary(..) => {
            let array = array.as_any_dictionary_opt()?;
            let keys = if array.values().is_empty() { Vec::new() } else { array.normalized_keys() };
            let value = cell_of(array.values().as_ref(), framing)?;
            Box::new(move |row, out| value(keys[row], out))
        }
        _ => return number_cell(array),
    })
}

fn text_cell<'a, A>(array: A, framing: CsvFraming) -> Cell<'a>
where
    A: ArrayAccessor<Item: AsRef<[u8]>> + 'a,
{
    Box::new(move |row, out| {
        text(framing, array.value(row).as_ref(), out);
        true
    })
}

/// The cells of a column of numbers, dates or times.
fn number_cell(array: &dyn Array) -> Option<Cell<'_>> {
    Some(match array.data_type() {
        DataType::Int8 => plain::<Int8Type>(array),
        DataType::Int16 => plain::<Int16Type>(array),
        DataType::Int32 => plain::<Int32Type>(array),
        DataType::Int64 => plain::<Int64Type>(array),
        DataType::UInt8 => plain::<UInt8Type>(array),
        DataType::UInt16 => plain::<UInt16Type>(array),
        DataType::UInt32 => plain::<UInt32Type>(array),
        DataType::UInt64 => plain::<UInt64Type>(array),
        DataType::Float32 => float::<Float32Type>(array),
        DataType::Float64 => float::<Float64Type>(array),
        DataType::Decimal128(..) => {
            let array = array.as_primitive::<Decimal128Type>();
            Box::new(move |row, out| shown(Some(array.value_as_string(row)), out))
        }
        DataType::Decimal256(..) => {
            let array = array.as_primitive::<Decimal256Type>();
            Box::new(move |row, out| shown(Some(array.value_as_string(row)), out))
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            Box::new(move |row, out| shown(array.value_as_date(row), out))
        }
        DataType::Date64 => {
            let array = array.as_primitive::<Date64Type>();
            Box::new(move |row, out| shown(array.value_as_date(row), out))
        }
        DataType::Timestamp(TimeUnit::Second, None) => time::<TimestampSecondType>(array),
        DataType::Timestamp(TimeUnit::Millisecond, None) => time::<TimestampMillisecondType>(array),
        DataType::Timestamp(TimeUnit::Microsecond, None) => time::<TimestampMicrosecondType>(array),
        DataType::Timestamp(TimeUnit::Nanosecond, None) => time::<TimestampNanosecondType>(array),
        _ => return None,
    })
}

fn plain<T: ArrowPrimitiveType>(array: &dyn Array) -> Cell<'_>
where
    T::Native: std::fmt::Display,
{
    let array = array.as_primitive::<T>();
    Box::new(move |row, out| shown(Some(array.value(row)), out))
}

fn time<T: ArrowTemporalType>(array: &dyn Array) -> Cell<'_>
where
    i64: From<T::Native>,
{
    let array = array.as_primitive::<T>();
    Box::new(move |row, out| shown(array.value_as_datetime(row), out))
}

/// Appends a value as text; `false` if there is none: a date beyond the calendar.
fn shown(value: Option<impl std::fmt::Display>, out: &mut Vec<u8>) -> bool {
    use std::io::Write;

    let Some(value) = value else { return false };
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
    true
}

/// Floats as the shortest text that gives them back, with an exponent if they are very large or small.
fn float<T: ArrowPrimitiveType>(array: &dyn Array) -> Cell<'_>
where
    T::Native: Copy + Into<f64> + std::fmt::Display + std::fmt::LowerExp,
{
    let array = array.as_primitive::<T>();
    Box::new(move |row, out| {
        let value = array.value(row);
        let size: f64 = value.into();
        let is_usual = size == 0.0 || !size.is_finite() || (1e-5..1e16).contains(&size.abs());
        if is_usual { shown(Some(value), out) } else { shown(Some(format_args!("{value:e}")), out) }
    })
}

/// A text as a field, in quotes if it needs them.
fn text(framing: CsvFraming, value: &[u8], out: &mut Vec<u8>) {
    let CsvFraming { separator, quote } = framing;
    if !value.iter().any(|byte| [separator, quote, b'\n', b'\r'].contains(byte)) {
        out.extend_from_slice(value);
        return;
    }
    out.push(quote);
    for part in value.split_inclusive(|byte| *byte == quote) {
        out.extend_from_slice(part);
        if part.last() == Some(&quote) {
            out.push(quote);
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array,
        Int64Array, ListArray, StringArray, StringViewArray, TimestampMillisecondArray,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::files::{CsvColumns, TextType};

    const FRAMING: CsvFraming = CsvFraming { separator: b',', quote: b'"' };

    fn csv(columns: Vec<(&str, ArrayRef)>) -> Result<String> {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        )?;
        let mut out = Vec::new();
        let mut rows = CsvRows::new(FRAMING, true);
        rows.to_bytes(&batch, 0..1, &mut out)?;
        rows.to_bytes(&batch, 1..batch.num_rows(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn values_of_every_kind_have_their_usual_text() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("a,b", Arc::new(StringArray::from(vec![Some("x\"y"), None]))),
            ("view", Arc::new(StringViewArray::from(vec!["plain", "two\nlines"]))),
            (
                "kind",
                Arc::new(
                    ["red", "blue"].into_iter().collect::<DictionaryArray<arrow_array::types::Int8Type>>(),
                ),
            ),
            ("n", Arc::new(Int64Array::from(vec![i64::MIN, 7]))),
            ("f", Arc::new(Float64Array::from(vec![3.0, 1e300]))),
            ("g", Arc::new(Float32Array::from(vec![0.1, f32::NAN]))),
            ("yes", Arc::new(BooleanArray::from(vec![true, false]))),
            ("day", Arc::new(Date32Array::from(vec![0, 19_723]))),
            ("at", Arc::new(TimestampMillisecondArray::from(vec![1, 86_400_000]))),
            (
                "money",
                Arc::new(Decimal128Array::from(vec![12_345, -5]).with_precision_and_scale(9, 2).unwrap()),
            ),
        ];
        let expected = "\"a,b\",view,kind,n,f,g,yes,day,at,money\n\
                        \"x\"\"y\",plain,red,-9223372036854775808,3,0.1,true,1970-01-01,\
                        1970-01-01 00:00:00.001,123.45\n\
                        ,\"two\nlines\",blue,7,1e300,NaN,false,2024-01-01,1970-01-02 00:00:00,-0.05\n";
        assert_eq!(csv(columns).unwrap(), expected);
    }

    #[test]
    fn a_type_without_text_is_named() {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1)])]);
        let error = csv(vec![("parts", Arc::new(list))]).unwrap_err().to_string();
        assert!(error.contains("'parts'") && error.contains("list<item: int64>"), "{error}");
    }

    #[test]
    fn a_date_beyond_the_calendar_is_refused_with_its_row() {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(0), None, Some(i32::MAX)]));
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![0, 1, i64::MIN]));
        for array in [days, times] {
            let batch = RecordBatch::try_from_iter_with_nullable([("at", array, true)]).unwrap();
            let mut rows = CsvRows::new(FRAMING, true);
            let mut out = b"before".to_vec();
            let error = rows.to_bytes(&batch, 1..3, &mut out).unwrap_err().after(10).to_string();
            assert!(error.starts_with("record 12 has a value in column 'at'"), "{error}");
            assert_eq!(out, b"before");
            rows.to_bytes(&batch, 0..1, &mut out).unwrap();
            assert!(out.starts_with(b"beforeat\n1970-01-01"), "the header is still written");
        }
    }

    proptest! {
        #[test]
        fn fields_come_back(rows in prop::collection::vec(("[a-c,\"\n\r ]{1,5}", "[a-c,\"\n\r ]{0,5}"), 1..9)) {
            let column = |pick: fn(&(String, String)) -> Option<&str>| -> ArrayRef {
                Arc::new(rows.iter().map(pick).collect::<StringArray>())
            };
            let filled = column(|row| Some(&row.0));
            let optional = column(|row| Some(row.1.as_str()).filter(|text| !text.is_empty()));
            let columns = [filled, optional];
            let batch = RecordBatch::try_from_iter([("a", columns[0].clone()), ("b", columns[1].clone())]).unwrap();
            let mut out = Vec::new();
            CsvRows::new(FRAMING, false).to_bytes(&batch, 0..rows.len(), &mut out).unwrap();
            let read = CsvColumns::new(FRAMING, b"a,b\n", true, TextType::Utf8, &[], &[]).unwrap();
            let found = read.to_batch(&out, 0).unwrap();
            prop_assert_eq!(found.columns(), batch.columns());
        }
    }
}
