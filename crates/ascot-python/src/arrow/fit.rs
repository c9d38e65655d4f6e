//! Batches with the columns of an earlier batch.
//!
//! Libraries store the same values in arrays of several types: pyarrow has text as `Utf8`, polars as `Utf8View`, pandas
//! as `LargeUtf8`. Such a column is copied to an array of the type that the first batch has. Any other difference is
//! refused.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::iterator::ArrayIter;
use arrow_array::{
    Array, ArrayAccessor, ArrayRef, BinaryArray, BinaryViewArray, LargeBinaryArray, LargeStringArray,
    RecordBatch, StringArray, StringViewArray,
};
use arrow_schema::{DataType, Schema, SchemaRef};
use ascot_columns::type_name;

/// The rows of `batch` with the columns of `schema`.
///
/// # Errors
/// The first difference that is not one of types for the same values.
pub fn fitted(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, String> {
    let Some(found) = difference(schema, batch.schema_ref(), DataType::equals_datatype) else {
        return Ok(batch.clone());
    };
    if difference(schema, batch.schema_ref(), is_same_value).is_some() {
        return Err(found);
    }
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        let same = field.data_type().equals_datatype(column.data_type());
        if same { Ok(Arc::clone(column)) } else { copied(column, field.data_type()) }
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    // Nested columns may name their fields otherwise, and any column may have nulls.
    let fields = schema.fields().iter().zip(&columns).map(|(field, column)| {
        let field = field.as_ref().clone().with_data_type(column.data_type().clone());
        field.with_nullable(true)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns).map_err(|error| error.to_string())
}

/// The first difference between the columns of two schemas, whose types are compared by `is_same`.
fn difference(
    expected: &Schema,
    found: &Schema,
    is_same: impl Fn(&DataType, &DataType) -> bool,
) -> Option<String> {
    let wanted = expected.fields();
    let given = found.fields();
    if wanted.len() != given.len() {
        return Some(format!("{} columns instead of {}", given.len(), wanted.len()));
    }
    wanted.iter().zip(given).enumerate().find_map(|(at, (wanted, given))| {
        if wanted.name() != given.name() {
            return Some(format!("column {} is '{}' instead of '{}'", at + 1, given.name(), wanted.name()));
        }
        let same = is_same(wanted.data_type(), given.data_type());
        (!same).then(|| {
            let name = wanted.name();
            let wanted = type_name(wanted.data_type());
            format!("column '{name}' has type {} instead of {wanted}: cast it", type_name(given.data_type()))
        })
    })
}

/// The kind of values of a type that has others with the same values.
fn kind_of(data_type: &DataType) -> Option<bool> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(true),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(false),
        _ => None,
    }
}

/// Whether arrays of both types have the same values.
fn is_same_value(one: &DataType, other: &DataType) -> bool {
    one.equals_datatype(other) || (kind_of(one).is_some() && kind_of(one) == kind_of(other))
}

/// A column of text or bytes as an array of another type of the same.
fn copied(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
    if matches!(wanted, DataType::Utf8 | DataType::Binary) && bytes_of(column) > i32::MAX as usize {
        return Err(format!("a column of type {} has more than 2 GiB", type_name(column.data_type())));
    }
    Ok(match column.data_type() {
        DataType::Utf8 => texts(column.as_string::<i32>(), wanted),
        DataType::LargeUtf8 => texts(column.as_string::<i64>(), wanted),
        DataType::Utf8View => texts(column.as_string_view(), wanted),
        DataType::Binary => bytes(column.as_binary::<i32>(), wanted),
        DataType::LargeBinary => bytes(column.as_binary::<i64>(), wanted),
        _ => bytes(column.as_binary_view(), wanted),
    })
}

fn texts<'a>(values: impl ArrayAccessor<Item = &'a str>, wanted: &DataType) -> ArrayRef {
    let values = ArrayIter::new(values);
    match wanted {
        DataType::Utf8 => Arc::new(StringArray::from_iter(values)),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from_iter(values)),
        _ => Arc::new(StringViewArray::from_iter(values)),
    }
}

fn bytes<'a>(values: impl ArrayAccessor<Item = &'a [u8]>, wanted: &DataType) -> ArrayRef {
    let values = ArrayIter::new(values);
    match wanted {
        DataType::Binary => Arc::new(BinaryArray::from_iter(values)),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(values)),
        _ => Arc::new(BinaryViewArray::from_iter(values)),
    }
}

/// Bytes of all values of a column of text or bytes.
fn bytes_of(column: &ArrayRef) -> usize {
    match column.data_type() {
        DataType::LargeUtf8 => column.as_string::<i64>().value_data().len(),
        DataType::LargeBinary => column.as_binary::<i64>().value_data().len(),
        DataType::Utf8View => column.as_string_view().total_bytes_len(),
        DataType::BinaryView => column.as_binary_view().total_bytes_len(),
        _ => 0,
    }
}
