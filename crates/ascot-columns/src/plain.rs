//! Plain types: the few types that rows are made of, and the conversion of all others to them and back.
//!
//! ```text
//! dictionary, run ends        their values
//! list view, map              list
//! union                       struct of the type's number and all children, each of which may be null
//! ```
//!
//! A dictionary is built anew from decoded values: it holds each distinct value once, in order of appearance.
//!
//! Invariant: [`from_plain`] of the result of [`to_plain`] has equal values.

mod restore;

pub(crate) use restore::{Restore, from_plain};

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, Int8Array, Int32Array, OffsetSizeTrait,
    StructArray, UInt64Array, UnionArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};
use arrow_select::take::{TakeOptions, take};

/// Name of the field that holds the number of a union's type.
const TYPE_FIELD: &str = "type";

/// The plain type of a column.
fn plain_type(data_type: &DataType) -> DataType {
    use DataType as T;
    let plain = |field: &FieldRef| Arc::new(plain_field(field));
    match data_type {
        T::Dictionary(_, values) => plain_type(values),
        T::RunEndEncoded(_, values) => plain_type(values.data_type()),
        T::List(field) | T::ListView(field) | T::Map(field, _) => T::List(plain(field)),
        T::LargeList(field) | T::LargeListView(field) => T::LargeList(plain(field)),
        T::FixedSizeList(field, size) => T::FixedSizeList(plain(field), *size),
        T::Struct(fields) => T::Struct(fields.iter().map(plain).collect()),
        T::Union(fields, _) => {
            let number = Field::new(TYPE_FIELD, T::Int8, false);
            let children = fields.iter().map(|(_, field)| plain_field(field).with_nullable(true));
            T::Struct(std::iter::once(number).chain(children).collect())
        }
        other => other.clone(),
    }
}

/// A field with its plain type.
pub(crate) fn plain_field(field: &Field) -> Field {
    let nullable = field.is_nullable() || values_may_be_null(field.data_type());
    field.clone().with_data_type(plain_type(field.data_type())).with_nullable(nullable)
}

/// Whether an array without nulls of its own may have null values.
fn values_may_be_null(data_type: &DataType) -> bool {
    match data_type {
        DataType::RunEndEncoded(_, values) => values.is_nullable() || values_may_be_null(values.data_type()),
        DataType::Dictionary(_, values) => values_may_be_null(values),
        _ => false,
    }
}

/// The same values in a plain type.
///
/// # Errors
/// Arrays that contradict themselves, such as an index beyond a dictionary.
pub(crate) fn to_plain(array: &ArrayRef, plain: &DataType) -> Result<ArrayRef, ArrowError> {
    use DataType as T;
    if array.data_type() == plain {
        return Ok(Arc::clone(array));
    }
    match (array.data_type(), plain) {
        (T::Dictionary(..), _) => {
            let dictionary = array.as_any_dictionary();
            to_plain(&select(dictionary.values(), dictionary.keys())?, plain)
        }
        (T::RunEndEncoded(ends, _), _) => {
            let values = match ends.data_type() {
                T::Int16 => run_values::<Int16Type>(array)?,
                T::Int32 => run_values::<Int32Type>(array)?,
                _ => run_values::<Int64Type>(array)?,
            };
            to_plain(&values, plain)
        }
        (T::List(_), T::List(field)) => list::<i32>(array, field),
        (T::LargeList(_), T::LargeList(field)) => list::<i64>(array, field),
        (T::ListView(_), T::List(field)) => list_view::<i32>(array, field),
        (T::LargeListView(_), T::LargeList(field)) => list_view::<i64>(array, field),
        (T::Map(..), T::List(field)) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            list_of(map.offsets(), &entries, map.nulls().cloned(), field)
        }
        (T::FixedSizeList(..), T::FixedSizeList(field, size)) => fixed_list(array, field, *size, to_plain),
        (T::Struct(_), T::Struct(fields)) => structure(array, fields, to_plain),
        (T::Union(..), T::Struct(fields)) => union(array.as_union(), fields.iter().skip(1), plain),
        (found, _) => Err(ArrowError::NotYetImplemented(format!("{found} as {plain}"))),
    }
}

/// How the arrays within an array are converted: to the plain type, or back.
type Convert<E> = fn(&ArrayRef, &DataType) -> Result<ArrayRef, E>;

/// Lists of one length with the type of `field` for their values.
fn fixed_list<E: From<ArrowError>>(
    array: &ArrayRef,
    field: &FieldRef,
    size: i32,
    convert: Convert<E>,
) -> Result<ArrayRef, E> {
    let list = array.as_fixed_size_list();
    let values = convert(list.values(), field.data_type())?;
    let nulls = list.nulls().cloned();
    let length = list.len();
    Ok(Arc::new(FixedSizeListArray::try_new_with_length(Arc::clone(field), size, values, nulls, length)?))
}

/// Structures whose columns have the types of `fields`.
fn structure<E: From<ArrowError>>(
    array: &ArrayRef,
    fields: &Fields,
    convert: Convert<E>,
) -> Result<ArrayRef, E> {
    let array = array.as_struct();
    let columns =
        array.columns().iter().zip(fields).map(|(column, field)| convert(column, field.data_type()));
    let columns = columns.collect::<Result<_, E>>()?;
    let nulls = array.nulls().cloned();
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())?))
}

/// The values at some indices; null where the index is.
fn select(values: &dyn Array, indices: &dyn Array) -> Result<ArrayRef, ArrowError> {
    take(values, indices, Some(TakeOptions { check_bounds: true }))
}

fn run_values<R: RunEndIndexType>(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let runs = array.as_run::<R>();
    let rows: Vec<u64> = (0..runs.len() as u64).collect();
    let indices = runs.get_physical_indices(&rows)?;
    select(runs.values(), &UInt64Array::from_iter_values(indices.into_iter().map(|index| index as u64)))
}

fn list<O: OffsetSizeTrait>(array: &ArrayRef, field: &FieldRef) -> Result<ArrayRef, ArrowError> {
    let list = array.as_list::<O>();
    list_of(list.offsets(), list.values(), list.nulls().cloned(), field)
}

/// A list of the elements that `offsets` include, in a plain type.
fn list_of<O: OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
    values: &ArrayRef,
    nulls: Option<arrow_buffer::NullBuffer>,
    field: &FieldRef,
) -> Result<ArrayRef, ArrowError> {
    let first = offsets[0];
    let last = offsets[offsets.len() - 1];
    let values = values.slice(first.as_usize(), (last - first).as_usize());
    let offsets: Vec<O> = offsets.iter().map(|offset| *offset - first).collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let values = to_plain(&values, field.data_type())?;
    Ok(Arc::new(GenericListArray::<O>::try_new(Arc::clone(field), offsets, values, nulls)?))
}

fn list_view<O: OffsetSizeTrait>(array: &ArrayRef, field: &FieldRef) -> Result<ArrayRef, ArrowError> {
    let list = array.as_list_view::<O>();
    let mut offsets = vec![O::zero()];
    let mut indices: Vec<u64> = Vec::new();
    for row in 0..list.len() {
        if list.is_valid(row) {
            let start = list.value_offset(row).as_usize() as u64;
            indices.extend(start..start + list.value_size(row).as_usize() as u64);
        }
        let end = O::from_usize(indices.len()).ok_or(ArrowError::OffsetOverflowError(indices.len()))?;
        offsets.push(end);
    }
    let values = select(list.values(), &UInt64Array::from(indices))?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    list_of(&offsets, &values, list.nulls().cloned(), field)
}

/// A struct of the numbers of the types and of the children, which `fields` describe.
fn union<'f>(
    array: &UnionArray,
    fields: impl Iterator<Item = &'f FieldRef>,
    plain: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int8Array::new(array.type_ids().clone(), None))];
    for ((number, _), field) in array.fields().iter().zip(fields) {
        let child = array.child(number);
        let child = match array.offsets() {
            None => Arc::clone(child),
            Some(offsets) => {
                let of_child = array.type_ids().iter().map(|other| *other == number);
                let indices = offsets.iter().zip(of_child).map(|(offset, here)| here.then_some(*offset));
                select(child, &indices.collect::<Int32Array>())?
            }
        };
        columns.push(to_plain(&child, field.data_type())?);
    }
    let DataType::Struct(fields) = plain else {
        return Err(ArrowError::NotYetImplemented(plain.to_string()));
    };
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, None, array.len())?))
}
