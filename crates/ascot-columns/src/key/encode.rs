//! Key columns to keys, column by column.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_row::Rows;

use super::fixed::ValueOrder;
use super::text::{closed_len, write_closed};
use super::{KeyFormat, KeyPart, KeyPartKind};
use crate::error::{ColumnsError, Result};
use crate::row::{VarValues, fixed_values};

/// The parts of the keys of a block of rows, ready to be written.
pub(crate) struct KeyValues<'f> {
    parts: Vec<(&'f KeyPart, PartValues)>,
}

struct PartValues {
    nulls: Option<NullBuffer>,
    values: Values,
}

enum Values {
    Bool(BooleanBuffer),
    Fixed(Buffer),
    /// With the encoded length of every value.
    Bytes(VarValues, Vec<usize>),
    Nested(Rows),
}

impl KeyFormat {
    /// Collects the values of the key columns; `columns` are those of the schema.
    pub(crate) fn gather(&self, columns: &[ArrayRef]) -> Result<KeyValues<'_>> {
        let part = |part| Ok((part, PartValues::new(part, &columns[part.column])?));
        Ok(KeyValues { parts: self.parts.iter().map(part).collect::<Result<_>>()? })
    }
}

impl PartValues {
    fn new(part: &KeyPart, array: &ArrayRef) -> Result<PartValues> {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        let values = match &part.kind {
            KeyPartKind::Bool => Values::Bool(array.as_boolean().values().clone()),
            KeyPartKind::Fixed { width, .. } => Values::Fixed(fixed_values(array, *width)),
            KeyPartKind::Bytes { open } => {
                let values = VarValues::of_array(array);
                let mut lengths = vec![0; array.len()];
                values.for_each(|row, value| {
                    let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                    lengths[row] = match open {
                        _ if is_null => 0,
                        true => value.len(),
                        false => closed_len(value),
                    };
                });
                Values::Bytes(values, lengths)
            }
            KeyPartKind::Nested(converter) => {
                Values::Nested(converter.convert_columns(std::slice::from_ref(array))?)
            }
        };
        if nulls.is_some() && part.marker.is_none() && !matches!(values, Values::Nested(_)) {
            return Err(ColumnsError::UnexpectedNull { column: part.name.clone() });
        }
        Ok(PartValues { nulls, values })
    }
}

impl KeyValues<'_> {
    /// Adds the bytes of the keys to `lengths`.
    pub(crate) fn add_lengths(&self, lengths: &mut [usize]) {
        let mut constant = 0;
        for (part, PartValues { values, .. }) in &self.parts {
            match values {
                Values::Bool(_) | Values::Fixed(_) => constant += part.fixed_len().unwrap_or(0),
                Values::Bytes(_, bytes) => {
                    constant += usize::from(part.marker.is_some());
                    lengths.iter_mut().zip(bytes).for_each(|(length, bytes)| *length += bytes);
                }
                Values::Nested(rows) => {
                    lengths.iter_mut().zip(rows.iter()).for_each(|(length, row)| *length += row.data().len());
                }
            }
        }
        lengths.iter_mut().for_each(|length| *length += constant);
    }

    /// Writes the keys at `cursors` of `out`, which holds zeros there, and moves the cursors to their ends.
    pub(crate) fn write(&self, out: &mut [u8], cursors: &mut [usize]) {
        for (part, PartValues { nulls, values }) in &self.parts {
            part.write_markers(nulls.as_ref(), out, cursors);
            match values {
                Values::Bool(values) => {
                    let ordered = values.iter().map(|value| [u8::from(value) ^ part.flip]);
                    write_fixed(ordered, nulls.as_ref(), out, cursors);
                }
                Values::Fixed(values) => part.write_fixed(values, nulls.as_ref(), out, cursors),
                Values::Bytes(values, lengths) => part.write_bytes(values, lengths, out, cursors),
                Values::Nested(rows) => {
                    for (cursor, row) in cursors.iter_mut().zip(rows.iter()) {
                        let bytes = row.data();
                        out[*cursor..*cursor + bytes.len()].copy_from_slice(bytes);
                        *cursor += bytes.len();
                    }
                }
            }
        }
    }
}

impl KeyPart {
    fn write_markers(&self, nulls: Option<&NullBuffer>, out: &mut [u8], cursors: &mut [usize]) {
        let Some(marker) = self.marker else { return };
        for (row, cursor) in cursors.iter_mut().enumerate() {
            let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
            out[*cursor] = if is_null { marker.null } else { marker.value };
            *cursor += 1;
        }
    }

    fn write_fixed(&self, values: &[u8], nulls: Option<&NullBuffer>, out: &mut [u8], cursors: &mut [usize]) {
        let KeyPartKind::Fixed { width, order } = self.kind else { return };
        match width {
            1 => self.write_width::<1>(order, values, nulls, out, cursors),
            2 => self.write_width::<2>(order, values, nulls, out, cursors),
            4 => self.write_width::<4>(order, values, nulls, out, cursors),
            8 => self.write_width::<8>(order, values, nulls, out, cursors),
            16 => self.write_width::<16>(order, values, nulls, out, cursors),
            32 => self.write_width::<32>(order, values, nulls, out, cursors),
            // Only fixed bytes have other widths.
            _ => {
                for (row, cursor) in cursors.iter_mut().enumerate() {
                    let slot = &mut out[*cursor..*cursor + width];
                    if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                        slot.copy_from_slice(&values[row * width..][..width]);
                        slot.iter_mut().for_each(|byte| *byte ^= self.flip);
                    }
                    *cursor += width;
                }
            }
        }
    }

    fn write_width<const W: usize>(
        &self,
        order: ValueOrder,
        values: &[u8],
        nulls: Option<&NullBuffer>,
        out: &mut [u8],
        cursors: &mut [usize],
    ) {
        let values = values.as_chunks::<W>().0.iter();
        let flip = self.flip;
        match order {
            ValueOrder::Unsigned => {
                write_fixed(
                    values.map(|value| ValueOrder::Unsigned.ordered(*value, flip)),
                    nulls,
                    out,
                    cursors,
                );
            }
            ValueOrder::Signed => {
                write_fixed(
                    values.map(|value| ValueOrder::Signed.ordered(*value, flip)),
                    nulls,
                    out,
                    cursors,
                );
            }
            ValueOrder::Float => {
                write_fixed(values.map(|value| ValueOrder::Float.ordered(*value, flip)), nulls, out, cursors);
            }
            ValueOrder::Bytes => {
                write_fixed(values.map(|value| ValueOrder::Bytes.ordered(*value, flip)), nulls, out, cursors);
            }
        }
    }

    fn write_bytes(&self, values: &VarValues, lengths: &[usize], out: &mut [u8], cursors: &mut [usize]) {
        let KeyPartKind::Bytes { open } = self.kind else { return };
        values.for_each(|row, value| {
            let cursor = cursors[row];
            let length = lengths[row];
            let slot = &mut out[cursor..cursor + length];
            match open {
                true => slot.copy_from_slice(value),
                // A null has no bytes.
                false if length == 0 => {}
                false => write_closed(value, self.flip, slot),
            }
            cursors[row] += length;
        });
    }
}

/// Writes ordered values at the cursors, except nulls, and moves the cursors.
fn write_fixed<const W: usize>(
    values: impl Iterator<Item = [u8; W]>,
    nulls: Option<&NullBuffer>,
    out: &mut [u8],
    cursors: &mut [usize],
) {
    for (row, (cursor, value)) in cursors.iter_mut().zip(values).enumerate() {
        if nulls.is_none_or(|nulls| nulls.is_valid(row))
            && let Some(slot) = out.get_mut(*cursor..*cursor + W)
        {
            slot.copy_from_slice(&value);
        }
        *cursor += W;
    }
}
