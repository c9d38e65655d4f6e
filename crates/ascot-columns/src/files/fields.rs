//! Records of fixed length as columns, one for each named field.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::MutableBuffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use ascot_record::layout::{Endian, Layout};

use super::whole_records;
use crate::error::{ColumnsError, Result};
use crate::row::fixed_values;
use crate::type_name::type_name;
use crate::width::fixed_width;

/// A field of records of fixed length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedField {
    /// The name of its column.
    pub name: String,
    /// Its first byte in the record, from 0.
    pub offset: usize,
    /// Its type: a number, date, time or decimal, or fixed-size binary.
    pub data_type: DataType,
    /// The order of its bytes; of no effect on fixed-size binary.
    pub endian: Endian,
}

/// The fields of records of fixed length.
#[derive(Clone, Debug)]
pub struct FixedFields {
    len: usize,
    fields: Vec<(FixedField, usize)>,
    schema: SchemaRef,
}

impl FixedFields {
    /// Fields of records of `len` bytes. Bytes between them are not read, and written as zeros.
    ///
    /// # Errors
    /// A type without a fixed width of whole bytes, or a field that extends beyond the record.
    pub fn new(len: usize, fields: Vec<FixedField>) -> Result<FixedFields> {
        let schema: Vec<Field> =
            fields.iter().map(|field| Field::new(&field.name, field.data_type.clone(), false)).collect();
        let checked = |field: FixedField| {
            let refuse =
                |text: String| ColumnsError::FileBytes { reason: format!("field '{}' {text}", field.name) };
            let width = fixed_width(&field.data_type).ok_or_else(|| {
                refuse(format!("has type {}, which has no fixed width", type_name(&field.data_type)))
            })?;
            match field.offset.checked_add(width) {
                Some(end) if end <= len => Ok((field, width)),
                _ => Err(refuse(format!(
                    "of {width} bytes at {} extends beyond the record of {len} bytes",
                    field.offset
                ))),
            }
        };
        let fields = fields.into_iter().map(checked).collect::<Result<_, _>>()?;
        Ok(FixedFields { len, fields, schema: Arc::new(Schema::new(schema)) })
    }

    /// Bytes of a record, at least one.
    pub(super) fn record_bytes(&self) -> usize {
        self.len.max(1)
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The fields of the records in `bytes`, as columns.
    ///
    /// # Errors
    /// Bytes that end within a record.
    pub fn to_batch(&self, bytes: &[u8]) -> Result<RecordBatch> {
        whole_records(Layout::Fixed { len: self.len }, self.len, bytes.len())?;
        let rows = bytes.len() / self.len;
        let column = |(field, width): &(FixedField, usize)| {
            let mut values = MutableBuffer::with_capacity(rows * width);
            for record in bytes.chunks_exact(self.len) {
                values.extend_from_slice(&record[field.offset..field.offset + width]);
            }
            if field.reversed() && *width > 0 {
                values.as_slice_mut().chunks_exact_mut(*width).for_each(<[u8]>::reverse);
            }
            let data = ArrayData::builder(field.data_type.clone()).len(rows).add_buffer(values.into());
            Ok(make_array(data.build()?))
        };
        let columns = self.fields.iter().map(column).collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// Appends the rows of `batch`, whose columns have the names and types of the fields in any order, as records to
    /// `out`.
    ///
    /// # Errors
    /// Columns of other names or types, or with nulls. Then `out` is as it was before.
    pub fn to_bytes(&self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        if batch.num_columns() != self.fields.len() {
            return Err(ColumnsError::ColumnCount {
                expected: self.fields.len(),
                found: batch.num_columns(),
            });
        }
        let columns = self.columns_of(batch)?;
        for ((field, _), array) in self.fields.iter().zip(&columns) {
            if *array.data_type() != field.data_type {
                let expected = field.data_type.clone();
                let found = array.data_type().clone();
                return Err(ColumnsError::ColumnType { column: field.name.clone(), expected, found });
            }
            if array.null_count() > 0 {
                return Err(ColumnsError::UnexpectedNull { column: field.name.clone() });
            }
        }
        let base = out.len();
        out.resize(base + batch.num_rows() * self.len, 0);
        for ((field, width), array) in self.fields.iter().zip(&columns).filter(|((_, width), _)| *width > 0) {
            let values = fixed_values(array, *width);
            for (record, value) in out[base..].chunks_exact_mut(self.len).zip(values.chunks_exact(*width)) {
                let slot = &mut record[field.offset..field.offset + width];
                slot.copy_from_slice(value);
                if field.reversed() {
                    slot.reverse();
                }
            }
        }
        Ok(())
    }

    /// The columns of `batch` in the order of the fields.
    fn columns_of<'b>(&self, batch: &'b RecordBatch) -> Result<Vec<&'b ArrayRef>> {
        let known = || batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect();
        let column = |(field, _): &(FixedField, usize)| {
            let unknown = || ColumnsError::UnknownColumn { name: field.name.clone(), known: known() };
            batch.column_by_name(&field.name).ok_or_else(unknown)
        };
        self.fields.iter().map(column).collect()
    }
}

impl FixedField {
    /// Whether its bytes are in another order than Arrow's.
    fn reversed(&self) -> bool {
        self.endian == Endian::Big && !matches!(self.data_type, DataType::FixedSizeBinary(_))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int16Type, UInt32Type};

    use super::*;

    fn field(name: &str, offset: usize, data_type: DataType, endian: Endian) -> FixedField {
        FixedField { name: name.to_owned(), offset, data_type, endian }
    }

    #[test]
    fn fields_become_columns_and_come_back() {
        let fields = FixedFields::new(
            10,
            vec![
                field("tag", 7, DataType::FixedSizeBinary(3), Endian::Big),
                field("id", 0, DataType::UInt32, Endian::Big),
                field("x", 4, DataType::Int16, Endian::Little),
            ],
        );
        let fields = fields.unwrap();
        let bytes = b"\0\0\x01\x02\xfe\xff\0abc\0\0\0\x07\x03\0\0def";
        let batch = fields.to_batch(bytes).unwrap();
        assert_eq!(batch.column(0).as_fixed_size_binary().value(1), b"def");
        assert_eq!(batch.column(1).as_primitive::<UInt32Type>().values(), &[0x102, 7]);
        assert_eq!(batch.column(2).as_primitive::<Int16Type>().values(), &[-2, 3]);
        let mut out = Vec::new();
        fields.to_bytes(&batch, &mut out).unwrap();
        assert_eq!(out, bytes);
        assert_eq!(fields.to_batch(b"").unwrap().num_rows(), 0);
        assert!(fields.to_batch(&bytes[1..]).is_err());
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let numbers = |name: &str, offset| field(name, offset, DataType::UInt8, Endian::Little);
        let fields = |one, other| FixedFields::new(2, vec![numbers(one, 0), numbers(other, 1)]).unwrap();
        let batch = fields("b", "a").to_batch(b"\x01\x02\x03\x04").unwrap();
        let mut out = Vec::new();
        fields("a", "b").to_bytes(&batch, &mut out).unwrap();
        assert_eq!(out, b"\x02\x01\x04\x03");
        let unknown = fields("a", "c").to_bytes(&batch, &mut out);
        assert!(matches!(unknown, Err(ColumnsError::UnknownColumn { name, .. }) if name == "c"));
        assert_eq!(out.len(), 4);
    }

    #[test]
    fn fields_beyond_the_record_and_text_are_refused() {
        let beyond = FixedFields::new(8, vec![field("id", 5, DataType::UInt32, Endian::Little)]).unwrap_err();
        assert!(beyond.to_string().contains("'id'") && beyond.to_string().contains("8 bytes"), "{beyond}");
        assert!(FixedFields::new(8, vec![field("name", 0, DataType::Utf8, Endian::Little)]).is_err());
        assert!(FixedFields::new(8, vec![field("x", usize::MAX, DataType::UInt8, Endian::Little)]).is_err());
    }
}
