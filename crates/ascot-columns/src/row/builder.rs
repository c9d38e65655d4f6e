//! Columns that grow by blocks of decoded values, and become arrays.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::{
    ArrayRef, FixedSizeListArray, GenericListArray, NullArray, OffsetSizeTrait, StructArray, make_array,
};
use arrow_buffer::{
    BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer,
};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field};

use super::span::Span;
use crate::width::fixed_width;

/// Values up to this length lie in their view.
const INLINE_BYTES: usize = 12;

/// A column under construction.
pub(crate) struct ColumnBuilder {
    data_type: DataType,
    rows: usize,
    nulls: NullBufferBuilder,
    values: Values,
}

/// The values of a column under construction.
pub(super) enum Values {
    Null,
    Bool(BooleanBufferBuilder),
    Fixed(MutableBuffer),
    Small { offsets: Vec<i32>, bytes: Vec<u8> },
    Large { offsets: Vec<i64>, bytes: Vec<u8> },
    View { views: Vec<u128>, bytes: Vec<u8> },
    List { offsets: Vec<usize>, elements: Box<ColumnBuilder> },
    FixedList { elements: Box<ColumnBuilder> },
    Struct(Vec<ColumnBuilder>),
}

impl ColumnBuilder {
    /// An empty column of a plain type.
    pub(crate) fn new(data_type: &DataType) -> ColumnBuilder {
        let child = |field: &Arc<Field>| Box::new(ColumnBuilder::new(field.data_type()));
        let values = match data_type {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Bool(BooleanBufferBuilder::new(0)),
            DataType::Struct(fields) => {
                Values::Struct(fields.iter().map(|field| ColumnBuilder::new(field.data_type())).collect())
            }
            DataType::List(field) | DataType::LargeList(field) => {
                Values::List { offsets: vec![0], elements: child(field) }
            }
            DataType::FixedSizeList(field, _) => Values::FixedList { elements: child(field) },
            DataType::LargeUtf8 | DataType::LargeBinary => {
                Values::Large { offsets: vec![0], bytes: Vec::new() }
            }
            DataType::Utf8View | DataType::BinaryView => {
                Values::View { views: Vec::new(), bytes: Vec::new() }
            }
            other => match fixed_width(other) {
                Some(_) => Values::Fixed(MutableBuffer::new(0)),
                None => Values::Small { offsets: vec![0], bytes: Vec::new() },
            },
        };
        ColumnBuilder { data_type: data_type.clone(), rows: 0, nulls: NullBufferBuilder::new(0), values }
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The values, to which the caller appends those of `rows` rows.
    pub(super) fn grow(&mut self, rows: usize) -> &mut Values {
        self.rows += rows;
        &mut self.values
    }

    /// Appends `rows` rows that are no nulls; their values are appended separately.
    pub(crate) fn append_valid(&mut self, rows: usize) {
        self.nulls.append_n_non_nulls(rows);
    }

    /// Appends whether a row is valid; its value is appended separately.
    #[inline]
    pub(crate) fn append_validity(&mut self, is_valid: bool) {
        self.nulls.append(is_valid);
    }

    /// Appends booleans.
    pub(crate) fn append_bools(&mut self, values: impl ExactSizeIterator<Item = bool>) {
        let rows = values.len();
        if let Values::Bool(bits) = self.grow(rows) {
            bits.reserve(rows);
            values.for_each(|value| bits.append(value));
        }
    }

    /// Appends values of `W` bytes.
    pub(crate) fn append_fixed<const W: usize>(&mut self, values: impl ExactSizeIterator<Item = [u8; W]>) {
        let rows = values.len();
        if let Values::Fixed(bytes) = self.grow(rows) {
            let at = bytes.len();
            bytes.resize(at + rows * W, 0);
            let (slots, _) = bytes.as_slice_mut()[at..].as_chunks_mut::<W>();
            slots.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
        }
    }

    /// Appends values of any fixed width.
    pub(crate) fn append_slices<'v>(&mut self, values: impl ExactSizeIterator<Item = &'v [u8]>) {
        if let Values::Fixed(bytes) = self.grow(values.len()) {
            values.for_each(|value| bytes.extend_from_slice(value));
        }
    }

    /// Appends strings or binary values, which lie at `spans` of `source`.
    ///
    /// # Errors
    /// More bytes than the offsets of the type count.
    pub(crate) fn append_spans(&mut self, source: &[u8], spans: &[Span]) -> Result<(), &'static str> {
        const FULL: &str = "its strings exceed what offsets of 32 bits count";
        let total: usize = spans.iter().map(|span| span.end - span.start).sum();
        match self.grow(spans.len()) {
            Values::Small { offsets, bytes } => {
                i32::try_from(bytes.len() + total).map_err(|_| FULL)?;
                copy_spans(source, spans, bytes, total);
                let mut end = offsets.last().copied().unwrap_or(0);
                offsets.extend(spans.iter().map(|span| {
                    end += (span.end - span.start) as i32;
                    end
                }));
            }
            Values::Large { offsets, bytes } => {
                copy_spans(source, spans, bytes, total);
                let mut end = offsets.last().copied().unwrap_or(0);
                offsets.extend(spans.iter().map(|span| {
                    end += (span.end - span.start) as i64;
                    end
                }));
            }
            Values::View { views, bytes } => {
                u32::try_from(bytes.len() + total).map_err(|_| FULL)?;
                for span in spans {
                    let value = &source[span.start..span.end];
                    views.push(make_view(value, 0, bytes.len() as u32));
                    if value.len() > INLINE_BYTES {
                        bytes.extend_from_slice(value);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The array of all rows; the column is empty afterwards.
    ///
    /// # Errors
    /// Values that the type excludes, such as strings that are not UTF-8.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let (rows, nulls) = (std::mem::take(&mut self.rows), self.nulls.finish());
        let data = ArrayData::builder(self.data_type.clone()).len(rows).nulls(nulls.clone());
        let data = match &mut self.values {
            Values::Null => return Ok(Arc::new(NullArray::new(rows))),
            Values::List { offsets, elements } => {
                let offsets = std::mem::replace(offsets, vec![0]);
                return match &self.data_type {
                    DataType::LargeList(field) => list::<i64>(field, &offsets, elements.finish()?, nulls),
                    DataType::List(field) => list::<i32>(field, &offsets, elements.finish()?, nulls),
                    _ => Err(ArrowError::NotYetImplemented(self.data_type.to_string())),
                };
            }
            Values::FixedList { elements } => {
                let DataType::FixedSizeList(field, size) = &self.data_type else {
                    return Err(ArrowError::NotYetImplemented(self.data_type.to_string()));
                };
                let field = Arc::clone(field);
                let elements = elements.finish()?;
                return Ok(Arc::new(FixedSizeListArray::try_new_with_length(
                    field, *size, elements, nulls, rows,
                )?));
            }
            Values::Struct(columns) => {
                let DataType::Struct(fields) = &self.data_type else {
                    return Err(ArrowError::NotYetImplemented(self.data_type.to_string()));
                };
                let arrays = columns.iter_mut().map(ColumnBuilder::finish).collect::<Result<_, _>>()?;
                return Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows)?));
            }
            Values::Bool(bits) => data.add_buffer(bits.finish().into_inner()),
            Values::Fixed(bytes) => {
                // The next batch has about the same size.
                let next = MutableBuffer::new(bytes.len());
                data.add_buffer(std::mem::replace(bytes, next).into())
            }
            Values::Small { offsets, bytes } => {
                let offsets = Buffer::from_vec(renew(offsets, &[0]));
                data.add_buffer(offsets).add_buffer(Buffer::from_vec(renew(bytes, &[])))
            }
            Values::Large { offsets, bytes } => {
                let offsets = Buffer::from_vec(renew(offsets, &[0]));
                data.add_buffer(offsets).add_buffer(Buffer::from_vec(renew(bytes, &[])))
            }
            Values::View { views, bytes } => {
                let views = Buffer::from_vec(renew(views, &[]));
                data.add_buffer(views).add_buffer(Buffer::from_vec(renew(bytes, &[])))
            }
        };
        Ok(make_array(data.build()?))
    }
}

/// Takes `items`, and leaves `first` with room for as many.
fn renew<T: Copy>(items: &mut Vec<T>, first: &[T]) -> Vec<T> {
    let mut next = Vec::with_capacity(items.len());
    next.extend_from_slice(first);
    std::mem::replace(items, next)
}

/// Appends the bytes at `spans` of `source`, which are `total`.
fn copy_spans(source: &[u8], spans: &[Span], bytes: &mut Vec<u8>, total: usize) {
    bytes.reserve(total);
    for span in spans {
        bytes.extend_from_slice(&source[span.start..span.end]);
    }
}

fn list<O: OffsetSizeTrait>(
    field: &Arc<Field>,
    offsets: &[usize],
    elements: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let offset = |&offset: &usize| O::from_usize(offset).ok_or(ArrowError::OffsetOverflowError(offset));
    let offsets = offsets.iter().map(offset).collect::<Result<Vec<O>, _>>()?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(GenericListArray::<O>::try_new(Arc::clone(field), offsets, elements, nulls)?))
}
