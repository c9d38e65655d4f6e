//! Columns that grow by blocks of decoded values, and become arrays.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::{
    ArrayRef, FixedSizeListArray, GenericListArray, NullArray, OffsetSizeTrait, StructArray, make_array,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBufferBuilder, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer,
};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::{ArrowError, DataType, Field};

use super::reuse::ReusedBuffer;
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
    Fixed(ReusedBuffer),
    Small(Texts),
    Large(Texts),
    View { views: ReusedBuffer, bytes: ReusedBuffer },
    List { offsets: Vec<usize>, elements: Box<ColumnBuilder> },
    FixedList { elements: Box<ColumnBuilder> },
    Struct(Vec<ColumnBuilder>),
}

/// Values of any length one after the other, and the end of each.
#[derive(Default)]
pub(super) struct Texts {
    offsets: ReusedBuffer,
    bytes: ReusedBuffer,
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
            DataType::LargeUtf8 | DataType::LargeBinary => Values::Large(Texts::default()),
            DataType::Utf8View | DataType::BinaryView => {
                Values::View { views: ReusedBuffer::default(), bytes: ReusedBuffer::default() }
            }
            other => match fixed_width(other) {
                Some(_) => Values::Fixed(ReusedBuffer::default()),
                None => Values::Small(Texts::default()),
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
            let (slots, _) = bytes.extend_zeros::<u8>(rows * W).as_chunks_mut::<W>();
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
            Values::Small(texts) => {
                i32::try_from(texts.bytes.len() + total).map_err(|_| FULL)?;
                texts.append::<i32>(source, spans, total);
            }
            Values::Large(texts) => texts.append::<i64>(source, spans, total),
            Values::View { views, bytes } => {
                u32::try_from(bytes.len() + total).map_err(|_| FULL)?;
                for span in spans {
                    let value = &source[span.start..span.end];
                    views.extend_from_slice(&[make_view(value, 0, bytes.len() as u32)]);
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
        let rows = std::mem::take(&mut self.rows);
        let nulls = self.nulls.finish();
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
            Values::Fixed(bytes) => data.add_buffer(bytes.finish()),
            Values::Small(texts) => texts.finish::<i32>(data),
            Values::Large(texts) => texts.finish::<i64>(data),
            Values::View { views, bytes } => data.add_buffer(views.finish()).add_buffer(bytes.finish()),
        };
        Ok(make_array(data.build()?))
    }
}

impl Texts {
    /// Appends the bytes at `spans` of `source`, which are `total`. The caller has checked that offsets count them.
    fn append<O: ArrowNativeType>(&mut self, source: &[u8], spans: &[Span], total: usize) {
        let mut end = self.bytes.len();
        self.begin::<O>();
        let mut rest = self.bytes.extend_zeros::<u8>(total);
        let offsets = self.offsets.extend_zeros::<O>(spans.len());
        for (span, offset) in spans.iter().zip(offsets) {
            let value = &source[span.start..span.end];
            let (slot, others) = rest.split_at_mut(value.len());
            slot.copy_from_slice(value);
            rest = others;
            end += value.len();
            *offset = O::usize_as(end);
        }
    }

    /// Appends the first offset, unless it is there.
    fn begin<O: ArrowNativeType>(&mut self) {
        if self.offsets.len() == 0 {
            self.offsets.extend_zeros::<O>(1);
        }
    }

    fn finish<O: ArrowNativeType>(&mut self, data: ArrayDataBuilder) -> ArrayDataBuilder {
        self.begin::<O>();
        data.add_buffer(self.offsets.finish()).add_buffer(self.bytes.finish())
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
