//! Columns to rows, column by column.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;

use super::values::{VarValues, nulls_of};
use super::{Column, Kind, RowFormat};
use crate::error::{ColumnsError, Result};
use crate::width::LENGTH;

/// Rows of a list's elements encoded at a time.
const CHILD_ROWS: usize = 1024;

/// The parts of a block of rows, ready to be written.
pub(crate) struct RowValues<'f> {
    format: &'f RowFormat,
    /// The bit of a column, and its nulls.
    nulls: Vec<(usize, NullBuffer)>,
    bools: Vec<(usize, BooleanBuffer, Option<NullBuffer>)>,
    fixed: Vec<FixedValues>,
    /// By number of the column of any length.
    vars: Vec<VarValues>,
}

struct FixedValues {
    at: usize,
    width: usize,
    values: Buffer,
    nulls: Option<NullBuffer>,
}

impl RowFormat {
    /// Collects the values of `columns`, which have `rows` rows each.
    pub(crate) fn gather<'c>(
        &self,
        columns: impl IntoIterator<Item = &'c ArrayRef>,
        rows: usize,
    ) -> Result<RowValues<'_>> {
        let mut values = RowValues {
            format: self,
            nulls: vec![],
            bools: vec![],
            fixed: vec![],
            vars: Vec::with_capacity(self.vars),
        };
        for (column, array) in self.columns.iter().zip(columns) {
            debug_assert_eq!(array.len(), rows);
            values.add(column, array)?;
        }
        Ok(values)
    }

    /// The rows of one column, back to back, and the offset of each. Rows of different lengths follow their lengths.
    fn encode_column(&self, array: &ArrayRef) -> Result<(Vec<usize>, Vec<u8>)> {
        let prefix = if self.fixed_len().is_some() { 0 } else { LENGTH };
        let mut offsets = Vec::with_capacity(array.len() + 1);
        let mut out = Vec::new();
        offsets.push(0);
        let mut starts = Vec::new();
        let mut cursors = Vec::new();
        for first in (0..array.len()).step_by(CHILD_ROWS) {
            let rows = CHILD_ROWS.min(array.len() - first);
            let values = self.gather([&array.slice(first, rows)], rows)?;
            let mut lengths = vec![self.head(); rows];
            values.add_lengths(&mut lengths);
            starts.clear();
            let mut at = out.len();
            for length in &lengths {
                starts.push(at + prefix);
                at += prefix + length;
                offsets.push(at);
            }
            out.resize(at, 0);
            if prefix > 0 {
                for (row, (start, length)) in starts.iter().zip(&lengths).enumerate() {
                    let long = |_| ColumnsError::RowTooLong { row: first + row, bytes: *length };
                    let length = u32::try_from(*length).map_err(long)?;
                    out[start - prefix..*start].copy_from_slice(&length.to_le_bytes());
                }
            }
            values.write(&mut out, &starts, &mut cursors);
        }
        Ok((offsets, out))
    }
}

impl RowValues<'_> {
    fn add(&mut self, column: &Column, array: &ArrayRef) -> Result<()> {
        let nulls = nulls_of(array);
        match (column.bit, &nulls) {
            (Some(bit), Some(nulls)) => self.nulls.push((bit, nulls.clone())),
            (None, Some(_)) => return Err(ColumnsError::UnexpectedNull { column: column.name.clone() }),
            (_, None) => {}
        }
        match &column.kind {
            Kind::Null => {}
            Kind::Bool { at } => self.bools.push((*at, array.as_boolean().values().clone(), nulls)),
            Kind::Fixed { at, width } => {
                let values = fixed_values(array, *width);
                self.fixed.push(FixedValues { at: *at, width: *width, values, nulls });
            }
            Kind::Bytes { .. } => self.vars.push(VarValues::of_array(array)),
            Kind::List { child, .. } => {
                let values = match column.data_type {
                    DataType::LargeList(_) => list_values::<i64>(array, child, nulls)?,
                    _ => list_values::<i32>(array, child, nulls)?,
                };
                self.vars.push(values);
            }
            Kind::FixedList { size, child, .. } => {
                let (offsets, bytes) = child.encode_column(array.as_fixed_size_list().values())?;
                let offsets = (0..=array.len()).map(|row| offsets[row * size]).collect();
                self.vars.push(VarValues::encoded(offsets, bytes, None));
            }
            Kind::Struct(fields) => {
                for (field, array) in fields.iter().zip(array.as_struct().columns()) {
                    self.add(field, array)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the bytes of the columns of any length to the length of every row.
    pub(crate) fn add_lengths(&self, lengths: &mut [usize]) {
        for values in &self.vars {
            values.for_each(|row, value| lengths[row] += value.len());
        }
    }

    /// Writes the rows at `starts` of `out`, which holds zeros there. Overwrites `cursors`.
    pub(crate) fn write(&self, out: &mut [u8], starts: &[usize], cursors: &mut Vec<usize>) {
        let format = self.format;
        for (bit, nulls) in &self.nulls {
            for (start, is_valid) in starts.iter().zip(nulls.iter()) {
                out[start + bit / 8] |= u8::from(!is_valid) << (bit % 8);
            }
        }
        for (at, values, nulls) in &self.bools {
            for (row, (start, value)) in starts.iter().zip(values.iter()).enumerate() {
                let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                out[start + format.bitmap + at] = u8::from(value && is_valid);
            }
        }
        for values in &self.fixed {
            values.write(out, starts, format.bitmap);
        }
        cursors.clear();
        cursors.extend(starts.iter().map(|start| start + format.head()));
        for (var, values) in self.vars.iter().enumerate() {
            if format.has_length(var) {
                let at = format.length_at(var);
                values.for_each(|row, value| {
                    let slot = starts[row] + at;
                    out[slot..slot + LENGTH].copy_from_slice(&(value.len() as u32).to_le_bytes());
                });
            }
            values.for_each(|row, value| {
                let cursor = &mut cursors[row];
                out[*cursor..*cursor + value.len()].copy_from_slice(value);
                *cursor += value.len();
            });
        }
    }
}

impl FixedValues {
    fn write(&self, out: &mut [u8], starts: &[usize], bitmap: usize) {
        match self.width {
            0 => {}
            1 => self.scatter::<1>(out, starts, bitmap),
            2 => self.scatter::<2>(out, starts, bitmap),
            4 => self.scatter::<4>(out, starts, bitmap),
            8 => self.scatter::<8>(out, starts, bitmap),
            16 => self.scatter::<16>(out, starts, bitmap),
            32 => self.scatter::<32>(out, starts, bitmap),
            width => self.each(starts, self.values.chunks_exact(width), |start, value| {
                out[start + bitmap + self.at..][..width].copy_from_slice(value);
            }),
        }
    }

    fn scatter<const W: usize>(&self, out: &mut [u8], starts: &[usize], bitmap: usize) {
        let at = bitmap + self.at;
        self.each(starts, self.values.as_chunks::<W>().0.iter(), |start, value| {
            if let Some(slot) = out.get_mut(start + at..start + at + W) {
                slot.copy_from_slice(value);
            }
        });
    }

    /// Passes the start of every row and its value to `write`, except nulls.
    fn each<V>(&self, starts: &[usize], values: impl Iterator<Item = V>, mut write: impl FnMut(usize, V)) {
        let rows = starts.iter().zip(values);
        match &self.nulls {
            None => rows.for_each(|(start, value)| write(*start, value)),
            Some(nulls) => rows
                .zip(nulls.iter())
                .filter(|(_, is_valid)| *is_valid)
                .for_each(|((start, value), _)| write(*start, value)),
        }
    }
}

/// The values of an array of a fixed width, back to back.
pub(crate) fn fixed_values(array: &dyn Array, width: usize) -> Buffer {
    let data = array.to_data();
    match data.buffers().first() {
        Some(buffer) => buffer.slice_with_length(data.offset() * width, data.len() * width),
        None => Buffer::default(),
    }
}

/// The encoded elements of every list; of a null list, none.
fn list_values<O: OffsetSizeTrait>(
    array: &ArrayRef,
    child: &RowFormat,
    nulls: Option<NullBuffer>,
) -> Result<VarValues> {
    let list = array.as_list::<O>();
    let ends = list.offsets();
    let first = ends[0].as_usize();
    let elements = list.values().slice(first, ends[ends.len() - 1].as_usize() - first);
    let (offsets, bytes) = child.encode_column(&elements)?;
    let offsets = ends.iter().map(|end| offsets[end.as_usize() - first]).collect();
    Ok(VarValues::encoded(offsets, bytes, nulls))
}
