//! Plain types back to the types that a schema asks for.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Int8Type, Int16Type, Int32Type, Int64Type, RunEndIndexType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, GenericListArray, GenericListViewArray, MapArray, OffsetSizeTrait,
    PrimitiveArray, RunArray, StructArray, UInt64Array, UnionArray, make_array, new_empty_array,
};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, DataType, FieldRef, UnionFields, UnionMode};

use super::{fixed_list, select, structure};

/// The reason why values could not take their type back.
#[derive(Debug)]
pub(crate) enum Restore {
    /// More distinct values than a dictionary's index, or more rows than a run's end, can count: fewer rows may fit.
    TooMany,
    /// Values that the type excludes.
    Arrow(ArrowError),
}

impl From<ArrowError> for Restore {
    fn from(error: ArrowError) -> Restore {
        Restore::Arrow(error)
    }
}

type Result<T> = std::result::Result<T, Restore>;

/// The same values in the type `target`, whose plain type the array has.
///
/// # Errors
/// Values that do not fit the type.
pub(crate) fn from_plain(array: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    use DataType as T;
    if array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    match target {
        T::Dictionary(keys, values) => dictionary(array, &from_plain(array, values)?, keys),
        T::RunEndEncoded(ends, values) => {
            let values = from_plain(array, values.data_type())?;
            match ends.data_type() {
                T::Int16 => runs::<Int16Type>(array, &values, target),
                T::Int32 => runs::<Int32Type>(array, &values, target),
                _ => runs::<Int64Type>(array, &values, target),
            }
        }
        T::List(field) => list::<i32>(array, field),
        T::LargeList(field) => list::<i64>(array, field),
        T::ListView(field) => list_view::<i32>(array, field),
        T::LargeListView(field) => list_view::<i64>(array, field),
        T::Map(field, ordered) => {
            let list = array.as_list::<i32>();
            let entries = from_plain(list.values(), field.data_type())?.as_struct().clone();
            let field = Arc::clone(field);
            let nulls = list.nulls().cloned();
            Ok(Arc::new(MapArray::try_new(field, list.offsets().clone(), entries, nulls, *ordered)?))
        }
        T::FixedSizeList(field, size) => fixed_list(array, field, *size, from_plain),
        T::Struct(fields) => structure(array, fields, from_plain),
        T::Union(fields, mode) => union(array.as_struct(), fields, *mode),
        other => Err(ArrowError::NotYetImplemented(format!("{} as {other}", array.data_type())).into()),
    }
}

fn list<O: OffsetSizeTrait>(array: &ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
    let list = array.as_list::<O>();
    let values = from_plain(list.values(), field.data_type())?;
    let offsets = list.offsets().clone();
    let nulls = list.nulls().cloned();
    Ok(Arc::new(GenericListArray::<O>::try_new(Arc::clone(field), offsets, values, nulls)?))
}

fn list_view<O: OffsetSizeTrait>(array: &ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
    let list = array.as_list::<O>();
    let values = from_plain(list.values(), field.data_type())?;
    let ends = list.offsets();
    let offsets: Vec<O> = ends.iter().take(list.len()).copied().collect();
    let sizes: Vec<O> = ends.windows(2).map(|ends| ends[1] - ends[0]).collect();
    let offsets = ScalarBuffer::from(offsets);
    let sizes = ScalarBuffer::from(sizes);
    let nulls = list.nulls().cloned();
    Ok(Arc::new(GenericListViewArray::<O>::try_new(Arc::clone(field), offsets, sizes, values, nulls)?))
}

/// The rows of one column of a plain type, which are equal where its values are.
fn comparable(plain: &ArrayRef) -> Result<Rows> {
    let converter = RowConverter::new(vec![SortField::new(plain.data_type().clone())])?;
    Ok(converter.convert_columns(std::slice::from_ref(plain))?)
}

/// A dictionary of `values`, which are the values of `plain`.
fn dictionary(plain: &ArrayRef, values: &ArrayRef, keys: &DataType) -> Result<ArrayRef> {
    let rows = comparable(plain)?;
    let nulls = plain.logical_nulls();
    let mut numbers = HashMap::new();
    let mut firsts = Vec::new();
    let mut indices = Vec::with_capacity(values.len());
    for (row, bytes) in rows.iter().enumerate() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            indices.push(None);
            continue;
        }
        let number = *numbers.entry(bytes).or_insert_with(|| {
            firsts.push(row as u64);
            firsts.len() - 1
        });
        indices.push(Some(number));
    }
    let distinct = select(values, &UInt64Array::from(firsts))?;
    match keys {
        DataType::Int8 => indexed::<Int8Type>(&indices, distinct),
        DataType::Int16 => indexed::<Int16Type>(&indices, distinct),
        DataType::Int32 => indexed::<Int32Type>(&indices, distinct),
        DataType::Int64 => indexed::<Int64Type>(&indices, distinct),
        DataType::UInt8 => indexed::<UInt8Type>(&indices, distinct),
        DataType::UInt16 => indexed::<UInt16Type>(&indices, distinct),
        DataType::UInt32 => indexed::<UInt32Type>(&indices, distinct),
        _ => indexed::<UInt64Type>(&indices, distinct),
    }
}

fn indexed<K: ArrowDictionaryKeyType>(indices: &[Option<usize>], distinct: ArrayRef) -> Result<ArrayRef> {
    if distinct.len().checked_sub(1).is_some_and(|last| K::Native::from_usize(last).is_none()) {
        return Err(Restore::TooMany);
    }
    let keys: PrimitiveArray<K> = indices.iter().map(|index| index.and_then(K::Native::from_usize)).collect();
    Ok(Arc::new(DictionaryArray::try_new(keys, distinct)?))
}

/// Runs of `values`, which are the values of `plain`.
fn runs<R: RunEndIndexType>(plain: &ArrayRef, values: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    if values.is_empty() {
        return Ok(new_empty_array(target));
    }
    let rows = comparable(plain)?;
    let mut ends = Vec::new();
    let mut firsts = vec![0];
    for row in 1..values.len() {
        if rows.row(row - 1) != rows.row(row) {
            ends.push(row);
            firsts.push(row as u64);
        }
    }
    ends.push(values.len());
    let end = |end: usize| R::Native::from_usize(end).ok_or(Restore::TooMany);
    let ends = ends.into_iter().map(end).collect::<Result<Vec<_>>>()?;
    let ends = PrimitiveArray::<R>::from_iter_values(ends);
    let runs = RunArray::<R>::try_new(&ends, &select(values, &UInt64Array::from(firsts))?)?;
    // The fields keep the names of the schema.
    Ok(make_array(runs.into_data().into_builder().data_type(target.clone()).build()?))
}

fn union(array: &StructArray, fields: &UnionFields, mode: UnionMode) -> Result<ArrayRef> {
    let [numbers, children @ ..] = array.columns() else {
        return Err(ArrowError::InvalidArgumentError("a union without types".into()).into());
    };
    let numbers = numbers.as_primitive::<Int8Type>().values().clone();
    let children =
        children.iter().zip(fields.iter()).map(|(child, (_, field))| from_plain(child, field.data_type()));
    let children = children.collect::<Result<Vec<_>>>()?;
    if mode == UnionMode::Sparse {
        return Ok(Arc::new(UnionArray::try_new(fields.clone(), numbers, None, children)?));
    }
    let mut offsets = vec![0i32; numbers.len()];
    let mut dense = Vec::new();
    for (child, (number, _)) in children.iter().zip(fields.iter()) {
        let mut rows = Vec::new();
        for (row, _) in numbers.iter().enumerate().filter(|(_, other)| **other == number) {
            offsets[row] = i32::try_from(rows.len()).map_err(|_| Restore::TooMany)?;
            rows.push(row as u64);
        }
        dense.push(select(child, &UInt64Array::from(rows))?);
    }
    Ok(Arc::new(UnionArray::try_new(fields.clone(), numbers, Some(ScalarBuffer::from(offsets)), dense)?))
}
